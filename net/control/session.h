/* The connecting side of one connection up to its welcome, and of a control connection after it:
 * connects, again and again with back-off while nobody listens, says hello, checks the welcome,
 * then sends requests and matches answers to them. Used by workers (to the coordinator, and to each
 * shard until the connection is handed to the data plane) and by ps processes (to the coordinator).
 * Owner reactor. Every request has a deadline; nothing hangs. */
#ifndef SL_NET_CONTROL_SESSION_H
#define SL_NET_CONTROL_SESSION_H

#include "net/control/message.h"
#include "net/outbox.h"
#include "net/transport.h"

struct sl_session;

struct sl_session_events {
    /* The welcome has come. */
    void (*welcomed)(void *ctx, struct sl_session *session,
                     const struct sl_message_welcome *welcome);
    /* A data-plane frame (REPLY, CREDIT) on a data connection; release it as in transport.h. */
    void (*received)(void *ctx, struct sl_session *session,
                     const struct sl_transport_message *message);
    /* As in transport.h, for data connections; may be NULL on control connections. */
    void *(*sink)(void *ctx, struct sl_session *session, const struct sl_frame *header);
    void (*writable)(void *ctx, struct sl_session *session);
    /* The end: the start deadline passed, the peer refused the hello, or the connection broke.
     * `reason` names the peer and why. Requests in flight have been answered with `err` before. */
    void (*closed)(void *ctx, struct sl_session *session, int err, const char *reason);
};

struct sl_session_options {
    struct sl_transport *transport;
    struct sl_outbox *outbox; /* shared by the sessions of a reactor; outlives them */
    struct sl_endpoint endpoint;
    struct sl_message_hello hello; /* protocol_version and software are filled in */
    const struct sl_session_events *events;
    void *ctx;
    const char *peer_name;     /* "coordinator", "ps/1 shard 0": in messages; copied */
    uint64_t start_timeout_ns; /* to connect and be welcomed, retries included */
};

/* The answer: a message, or NULL with an error: DEADLINE, CLOSED, or what the peer's Error says,
 * whose text is then in `reason`. A Waiting is not an answer: it is logged. */
typedef void sl_session_answer_fn(void *ctx, const struct sl_message *answer, int err,
                                  const char *reason);

/* Begins to connect. Errors: NO_MEMORY, NOT_FOUND. */
int sl_session_open(const struct sl_session_options *options, struct sl_session **out);

/* Says goodbye and closes; no event follows. Requests in flight are answered CANCELLED. */
void sl_session_close(struct sl_session **session);

/* Sends a request; `answer(ctx, …)` is called exactly once. message->id is assigned. */
void sl_session_request(struct sl_session *session, struct sl_message *message, uint64_t timeout_ns,
                        sl_session_answer_fn *answer, void *ctx);

/* The connection, for the data plane to send on with the outbox; NULL before the welcome. */
struct sl_conn *sl_session_conn(struct sl_session *session);
struct sl_outbox_queue *sl_session_queue(struct sl_session *session);
const char *sl_session_peer_name(const struct sl_session *session);

#endif
