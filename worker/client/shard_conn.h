/* A shard connection is the client's channel to one shard, on a reactor of the client: the queue of
 * requests that wait for credit, the requests in flight. It uses the connection to the reactor that
 * serves the shard (reactor_conn.h), on which it is attached. After that connection broke, or when
 * another reactor serves the shard, it is attached again, and its requests in flight are
 * retransmitted first, with their old ids. Meanwhile requests wait, until their deadline.
 *
 * A shard may know nothing of this client: it restarted, or the lease passed. Then, before any
 * request, the client opens its tables there again, and its worker joins at its own clock; writes
 * in flight fail. If the shard was restored from a checkpoint that has the client's session, writes
 * in flight are retransmitted instead. A connection becomes CLOSED if the peer refuses it
 * permanently or violates the protocol, or if other workers continued without this one: all its
 * requests, present and later, fail with the peer's name and the reason.
 *
 * This file: requests and replies. shard_conn_connect.h: attaching, and restoring a shard's state.
 * Owner reactor. */
#ifndef SL_WORKER_CLIENT_SHARD_CONN_H
#define SL_WORKER_CLIENT_SHARD_CONN_H

#include "core/backoff.h"
#include "worker/client/inflight.h"
#include "worker/client/operation.h"
#include "worker/client/reactor_conn.h"

struct sl_control_op;
struct sl_client_io;
struct sl_client_io_options;

enum sl_shard_conn_state {
    SL_SHARD_CONN_OPENING,      /* not attached yet */
    SL_SHARD_CONN_OPEN,         /* sending requests */
    SL_SHARD_CONN_RESTORING,    /* attached to a shard without this client's state */
    SL_SHARD_CONN_BREAKING,     /* disconnecting, not yet closed; then DISCONNECTED */
    SL_SHARD_CONN_ENDING,       /* the same; then CLOSED */
    SL_SHARD_CONN_DISCONNECTED, /* not attached any more; reconnecting, or attaching again */
    SL_SHARD_CONN_CLOSED        /* permanently */
};

#define SL_SHARD_CONN_NAME_BYTES   (SL_LIMIT_ENDPOINT_BYTES + 48)
#define SL_SHARD_CONN_REASON_BYTES SL_MESSAGE_TEXT_BYTES

struct sl_shard_conn {
    struct sl_client_io *io;
    uint32_t shard;                      /* in the cluster */
    char peer_name[32];                  /* "ps/1 shard 3", numbered in the cluster */
    char name[SL_SHARD_CONN_NAME_BYTES]; /* "ps/1 shard 3 (tcp://127.0.0.1:5555)": with the endpoint
                                          * in use */
    struct sl_shard_conn *next_of_io;
    struct sl_reactor_address address;       /* of the reactor that serves the shard */
    struct sl_reactor_conn *reactor;         /* the connection to it; NULL: CLOSED, or not opened */
    struct sl_list_link of_reactor, waiting; /* in its lists */
    enum sl_shard_conn_state state;
    char reason[SL_SHARD_CONN_REASON_BYTES]; /* why it was detached, or is not attached */
    struct sl_control_op *opening; /* operation that waits for the first welcome, or NULL */
    struct {
        bool asked; /* an Attach is unanswered */
        int err;    /* of the last refusal */
        struct sl_timer retry;
        struct sl_backoff backoff;
    } attach;

    /* From the last welcome. */
    uint32_t payload_bytes_max; /* of one frame */
    uint64_t incarnation;

    /* This worker's clock on this shard. */
    struct {
        bool is_counted;   /* the shard counts it, as of its last answer */
        uint32_t at_shard; /* as of its last answer */
        bool is_agreed;    /* the start has agreed on a clock */
        bool is_finished;  /* a finish was sent, or the worker had already finished */
        bool must_finish;  /* send the finish again: the shard lost it */
        uint32_t value;    /* iterations ticked, as the client has it */
    } clock;

    struct {
        bool pending;   /* the shard lacks state of this client */
        bool asked;     /* one request is unanswered */
        uint32_t table; /* index of the next table in io->tables */
    } restore;

    uint64_t next_id; /* ascends across connections */
    struct sl_inflight inflight;
    /* Order: requests to retransmit, then by priority, then by age. */
    struct sl_request *queue_first, *queue_last;
};

/* Returns whether the shard takes messages of this client. */
static inline bool sl_shard_conn_is_attached(const struct sl_shard_conn *conn)
{
    return conn->state == SL_SHARD_CONN_OPEN || conn->state == SL_SHARD_CONN_RESTORING;
}

/* Returns whether the connection is permanently down. */
static inline bool sl_shard_conn_is_down(const struct sl_shard_conn *conn)
{
    return conn->state == SL_SHARD_CONN_CLOSED || conn->state == SL_SHARD_CONN_ENDING;
}

/* Returns 0 or why the connection cannot take this request, with *text: CLOSED, TOO_LARGE. */
int sl_shard_conn_check(const struct sl_shard_conn *conn, const struct sl_request *request,
                        const char **text);

/* Sends the request or queues it until there are a connection and credit. Check it first. Never
 * fails. */
void sl_shard_conn_submit(struct sl_shard_conn *conn, struct sl_request *request);

/* Removes a queued request. */
void sl_shard_conn_withdraw(struct sl_shard_conn *conn, struct sl_request *request);

/* Abandons a request in flight: its reply is dropped, and it is not retransmitted. */
void sl_shard_conn_forget(struct sl_shard_conn *conn, struct sl_request *request);

/* Sends queued requests, as far as credit and the outbox allow. False: some wait for these. */
bool sl_shard_conn_pump(struct sl_shard_conn *conn);

/* Handles a reply, and releases it. */
void sl_shard_conn_replied(struct sl_shard_conn *conn, const struct sl_transport_message *message);

/* Returns the memory that is intended for a long reply; NULL: none. */
void *sl_shard_conn_sink(struct sl_shard_conn *conn, const struct sl_frame *header);

/* The connection has closed: moves requests in flight that are still wanted to the head of the
 * queue, by ascending id; those that are not sent twice fail. */
void sl_shard_conn_requeue(struct sl_shard_conn *conn);

/* The shard lost its state: fails sent writes with this text; sent reads get new ids. */
void sl_shard_conn_fail_writes(struct sl_shard_conn *conn, const char *text);

/* Fails requests longer than the shard's new limit. */
void sl_shard_conn_fail_oversized(struct sl_shard_conn *conn);

/* Fails all requests with conn->reason. The connection has closed or will deliver nothing more. */
void sl_shard_conn_fail_all(struct sl_shard_conn *conn);

#endif
