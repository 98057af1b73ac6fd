/* A shard connection is the client's connection to one shard, on a reactor of the client: its
 * session, the queue of requests that wait for credit, the requests in flight. A broken connection
 * is re-established, and its requests in flight are retransmitted first, with their old ids.
 * Meanwhile requests wait, until their deadline.
 *
 * A shard may know nothing of this client: it restarted, or the lease passed. Then, before any
 * request, the client opens its tables there again, and its worker joins at its own clock; writes
 * in flight fail. If the shard was restored from a checkpoint that has the client's session, writes
 * in flight are retransmitted instead. A connection becomes CLOSED if the peer refuses it
 * permanently or violates the protocol, or if other workers continued without this one: all its
 * requests, present and later, fail with the peer's name and the reason.
 *
 * This file: requests and replies. shard_conn_connect.h: connections. shard_conn_restore.h:
 * restoring a shard's state. Owner reactor. */
#ifndef SL_WORKER_CLIENT_SHARD_CONN_H
#define SL_WORKER_CLIENT_SHARD_CONN_H

#include "core/endpoint.h"
#include "net/credit.h"
#include "net/session/session.h"
#include "worker/client/inflight.h"
#include "worker/client/operation.h"

struct sl_control_op;
struct sl_client_io;
struct sl_client_io_options;

enum sl_shard_conn_state {
    SL_SHARD_CONN_OPENING,      /* before the first welcome */
    SL_SHARD_CONN_OPEN,         /* sending requests */
    SL_SHARD_CONN_RESTORING,    /* welcomed by a shard without this client's state */
    SL_SHARD_CONN_BREAKING,     /* disconnecting, not yet closed; then DISCONNECTED */
    SL_SHARD_CONN_ENDING,       /* the same; then CLOSED */
    SL_SHARD_CONN_DISCONNECTED, /* disconnected, reconnecting */
    SL_SHARD_CONN_CLOSED        /* permanently */
};

#define SL_SHARD_CONN_NAME_BYTES   (SL_LIMIT_ENDPOINT_BYTES + 48)
#define SL_SHARD_CONN_REASON_BYTES SL_MESSAGE_TEXT_BYTES

/* The address of a shard: that of the server that serves it now. */
struct sl_shard_address {
    uint32_t server_task;
    uint32_t reactor_count; /* of server_task */
    struct sl_endpoint endpoint;
    /* Besides a TCP endpoint: shared memory if the server is on this host, else RDMA or DPDK if the
     * server offers it. */
    struct sl_endpoint preferred;
    bool has_preferred;
};

struct sl_shard_conn {
    struct sl_client_io *io;
    uint32_t shard;                      /* in the cluster */
    char peer_name[32];                  /* "ps/1 shard 3", numbered in the cluster */
    char name[SL_SHARD_CONN_NAME_BYTES]; /* "ps/1 shard 3 (tcp://127.0.0.1:5555)": with the endpoint
                                          * in use */
    struct sl_shard_address address;
    enum sl_shard_conn_state state;
    char reason[SL_SHARD_CONN_REASON_BYTES]; /* why the last connection broke */
    struct sl_session *session;
    struct sl_control_op *opening; /* operation that waits for the first welcome, or NULL */

    /* Of the current connection. */
    struct {
        struct sl_outbox *outbox;
        enum sl_endpoint_scheme scheme;
        bool direct_replies; /* the shard can write replies into buffers of the client */
        /* RDMA: the shard can write replies into receive buffers of the client_io, and a long tail
         * must be in registered memory. */
        bool needs_registered;
    } path;

    /* From the last welcome. */
    struct sl_credit credit;    /* left */
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
        bool anew;      /* state was lost again meanwhile: restart after the answer */
        uint32_t table; /* index of the next table in io->tables */
    } restore;

    uint64_t next_id; /* ascends across connections */
    struct sl_inflight inflight;
    /* Order: requests to retransmit, then by priority, then by age. */
    struct sl_request *queue_first, *queue_last;
    struct sl_request *direct_request; /* its reply is being received into the caller's memory */
    void *buffer;                      /* receive buffer of the client_io in use for a long reply */
};

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

/* Sends queued requests, as far as credit and the outbox allow. */
void sl_shard_conn_pump(struct sl_shard_conn *conn);

/* Data events of the session: net/session/session.h. */
void sl_shard_conn_received(void *ctx, struct sl_session *session,
                            const struct sl_transport_message *message);
void *sl_shard_conn_sink(void *ctx, struct sl_session *session, const struct sl_frame *header);

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
