/* One shard's connection on its worker reactor: the requests that wait for credit, those in flight,
 * and where replies go. A connection that breaks is made again; what it had in flight is kept and
 * sent again under its old id, before everything else. Meanwhile requests wait, and end by their
 * deadline at the latest.
 *
 * A shard that does not remember this client (it was restarted, or the client was away for longer
 * than its lease) is given the client's tables again, and the worker's clock joins again at its own
 * iteration, before any request; writes that had been sent to it fail. One that was restored from a
 * checkpoint is told the same, and the writes are sent to it again. A link that is CLOSED, since
 * the peer refuses it for good, breaks the protocol, or the others went on without this worker,
 * fails all that it has, naming the peer and why, and everything that is given to it afterwards.
 *
 * link.c: requests and replies. link_connection.c: connections, and what outlives them.
 * link_restore.c: what a shard that has forgotten is told. Owner reactor. */
#ifndef SL_WORKER_SHARD_CONN_H
#define SL_WORKER_SHARD_CONN_H

#include "core/endpoint.h"
#include "net/control/session.h"
#include "net/credit.h"
#include "worker/inflight.h"
#include "worker/operation.h"

struct sl_control_op;
struct sl_client_io;
struct sl_client_io_options;

enum sl_shard_conn_state {
    SL_SHARD_CONN_OPENING,   /* never welcomed yet */
    SL_SHARD_CONN_OPEN,      /* requests are sent */
    SL_SHARD_CONN_RESTORING, /* welcomed by a shard that had forgotten this client */
    SL_SHARD_CONN_BREAKING,  /* was told to end its connection, which has not ended */
    SL_SHARD_CONN_AWAY,      /* between two connections */
    SL_SHARD_CONN_CLOSED     /* for good */
};

#define SL_SHARD_CONN_NAME_BYTES   (SL_LIMIT_ENDPOINT_BYTES + 48)
#define SL_SHARD_CONN_REASON_BYTES SL_MESSAGE_TEXT_BYTES

/* Where the shards of a ps are reached: at itself, or, when their backups have taken over, at
 * another ps, where they come behind its own. */
struct sl_shard_address {
    uint32_t server_task;
    uint32_t first_shard; /* the ps's first one has this number there */
    struct sl_endpoint endpoint;
    /* Beside a TCP endpoint: shared memory, where the ps is on this host, or else RDMA or DPDK,
     * where the ps has it. */
    struct sl_endpoint preferred;
    bool has_preferred;
};

struct sl_shard_conn {
    struct sl_client_io *io;
    uint32_t shard;                      /* in the cluster */
    uint32_t ps_task, local_shard;       /* and in its process */
    char peer_name[32];                  /* "ps/1 shard 3" */
    char name[SL_SHARD_CONN_NAME_BYTES]; /* "ps/1 shard 3 (tcp://127.0.0.1:5555)": as it is
                                            connected */
    struct sl_shard_address place;
    enum sl_shard_conn_state state;
    bool ends;                               /* BREAKING: for good */
    char reason[SL_SHARD_CONN_REASON_BYTES]; /* why the last connection broke */
    struct sl_session *session;
    struct sl_control_op *opening; /* the call that waits for the first welcome, or NULL */

    /* Of the connection that there is. */
    struct sl_outbox *outbox;
    enum sl_endpoint_scheme scheme;
    bool direct_to_user; /* the shard can write replies into buffers of the client */
    bool
        needs_registered; /* RDMA: and into those of client_io; what is long is registered memory */

    /* As the last welcome said. */
    struct sl_credit credit;    /* what is left of it */
    uint32_t payload_bytes_max; /* of one frame */
    uint64_t incarnation;
    bool counts; /* this worker's clock, on this shard */
    uint32_t clock_told;

    /* This worker's clock on this shard, as far as this side knows. */
    bool has_clock;   /* the start has agreed on one */
    bool finished;    /* a finish was sent, or the worker began as finished */
    uint32_t clock;   /* iterations ticked */
    bool must_finish; /* a shard that has forgotten the finish is to be told again */

    struct {
        bool pending;   /* the shard does not have yet what it forgot */
        bool asked;     /* one request is out */
        bool anew;      /* it forgot once more meanwhile: begin again with the answer */
        uint32_t table; /* of the hub's: the next */
    } restore;

    uint64_t next_id; /* ascends over connections */
    struct sl_inflight inflight;
    /* Those to be sent again come first; then by priority, then by age. */
    struct sl_request *queue_first, *queue_last;
    struct sl_request *reply_buffer; /* its reply is being received into the caller's memory */
    void *buffer;                    /* of the hub's: a long reply is being received into it */
};

/* ---- link_connection.c */

/* Where the shards of this ps, one of the cluster's, are reached by a client with these options.
 * Errors: INVALID, with the reason: the ps that serves them is not in the cluster, has an endpoint
 * that is none, or one for RDMA or DPDK only, to which TLS does not lead, or this process has no
 * device.
 * Any thread. */
int sl_shard_conn_find_place(const struct sl_client_io_options *options,
                             const struct sl_message_ps *all, uint32_t ps_count,
                             const struct sl_message_ps *of, struct sl_shard_address *out,
                             char *reason, size_t reason_bytes);

/* The ps of that task; NULL: there is none. */
const struct sl_message_ps *sl_shard_conn_find_ps(const struct sl_message_ps *all,
                                                  uint32_t ps_count, uint32_t task_index);

/* Writes the link's names from its numbers, and the way that its session takes, or will. Also
 * before the link is its reactor's. */
void sl_shard_conn_set_name(struct sl_shard_conn *conn);

/* Begins to connect; counted into call->left, and answered when welcomed or failed: then
 * call->clock, call->counts and call->payload_bytes_max have taken in what the shard said. */
void sl_shard_conn_open(struct sl_shard_conn *conn, struct sl_control_op *op);

/* Ends the session, with a goodbye where it is open. No request may be left. */
void sl_shard_conn_close(struct sl_shard_conn *conn);

/* This is where the shard is reached: the next connection goes there. */
void sl_shard_conn_move(struct sl_shard_conn *conn, const struct sl_shard_address *place);

/* Ends the connection for this reason; another one is made, unless `for_good`: then all that the
 * link has fails when the connection has closed. */
void sl_shard_conn_break(struct sl_shard_conn *conn, const char *reason, bool for_good);

/* Will never be open again. */
static inline bool sl_shard_conn_is_down(const struct sl_shard_conn *conn)
{
    return conn->state == SL_SHARD_CONN_CLOSED ||
           (conn->state == SL_SHARD_CONN_BREAKING && conn->ends);
}

/* Why nothing is sent at the moment; "" when something is. Valid until the link changes. */
const char *sl_shard_conn_obstacle(const struct sl_shard_conn *conn);

/* ---- link.c */

/* 0, or why the link will not take this request: CLOSED, TOO_LARGE, with *text. */
int sl_shard_conn_check(const struct sl_shard_conn *conn, const struct sl_request *request,
                        const char **text);

/* Sends the request, or queues it, by its priority among those that were never sent, until there is
 * a connection and credit. It was checked. Never fails. */
void sl_shard_conn_submit(struct sl_shard_conn *conn, struct sl_request *request);

/* Takes a queued request back. */
void sl_shard_conn_withdraw(struct sl_shard_conn *conn, struct sl_request *request);

/* Nobody waits for the reply of a request in flight any more: when it comes, it is dropped; when
 * the connection breaks, it is not sent again. */
void sl_shard_conn_forget(struct sl_shard_conn *conn, struct sl_request *request);

/* Sends what waits, as far as credit and the outbox allow. */
void sl_shard_conn_pump(struct sl_shard_conn *conn);

/* The data events of the session: as in net/control/session.h. */
void sl_shard_conn_received(void *ctx, struct sl_session *session,
                            const struct sl_transport_message *message);
void *sl_shard_conn_sink(void *ctx, struct sl_session *session, const struct sl_frame *header);

/* The connection has closed: what was in flight, and is still wanted, goes to the head of the
 * queue, in ascending order of id. */
void sl_shard_conn_keep(struct sl_shard_conn *conn);

/* The shard does not know what was sent to it: writes fail with this text, reads are as new. */
void sl_shard_conn_fail_writes(struct sl_shard_conn *conn, const char *text);

/* Fails those that are longer than what the shard takes now. */
void sl_shard_conn_fail_oversized(struct sl_shard_conn *conn);

/* Fails everything, for link->reason. The connection has closed or will deliver nothing more. */
void sl_shard_conn_fail_all(struct sl_shard_conn *conn);

/* ---- link_restore.c */

/* Goes on with what the shard is to be told, one request at a time; opens the link after the last.
 * Does nothing while an answer is out, or there is no connection. */
void sl_shard_conn_restore(struct sl_shard_conn *conn);

/* The start has agreed on the clock to begin with; UINT32_MAX: this worker counts no more. */
void sl_shard_conn_begin(struct sl_shard_conn *conn, uint32_t clock);

#endif
