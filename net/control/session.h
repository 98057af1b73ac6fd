/* The connecting side of one connection up to its welcome, and of a control connection after it:
 * connects, again and again with back-off while nobody listens, says hello, checks the welcome,
 * then sends requests and matches answers to them. Used by workers (to the coordinator, and to each
 * shard, where the owner sends its requests with the outbox on the session's connection) and by ps
 * processes (to the coordinator). Owner reactor. Every request has a deadline; nothing hangs.
 *
 * Host names are resolved anew for every attempt to connect, which blocks the reactor on DNS; this
 * happens at start only, until the first welcome: a session whose connection breaks after it does
 * not connect again. Numeric addresses never block. A name that is not known yet is tried again, as
 * a peer that does not listen yet is.
 *
 * Every event and answer may close the session or others, and make requests. Allocates. */
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
    /* A data-plane frame (REPLY, CREDIT) on a data connection, its checksum verified where it has
     * one; release it as in transport.h. NULL on control connections. */
    void (*received)(void *ctx, struct sl_session *session,
                     const struct sl_transport_message *message);
    /* As in transport.h, for data connections: asked for long REPLY frames only. NULL on control
     * connections. */
    void *(*sink)(void *ctx, struct sl_session *session, const struct sl_frame *header);
    /* There is room in the transport again, and what waited in the outbox has been offered. May be
     * NULL. */
    void (*writable)(void *ctx, struct sl_session *session);
    /* The end: the start deadline passed, the peer refused the hello, or the connection broke.
     * `reason` names the peer and why. Requests in flight have been answered with `err` before.
     * The session is still the owner's to close. */
    void (*closed)(void *ctx, struct sl_session *session, int err, const char *reason);
};

struct sl_session_options {
    struct sl_transport *transport;
    struct sl_outbox *outbox; /* shared by the sessions of a reactor; outlives them */
    struct sl_endpoint endpoint;
    struct sl_message_hello hello; /* protocol_version and software are filled in */
    const struct sl_session_events *events;
    void *ctx;
    const char *peer_name; /* "coordinator", "ps/1 shard 0": in messages; copied, up to 63 bytes */
    uint64_t start_timeout_ns; /* to connect and be welcomed, retries included; > 0 */
};

/* The answer: a message of the kind that the request asks for (Register: Cluster; TableOpen:
 * TableOpened; Barrier: BarrierDone; StatsGet: Stats), valid during the call, or NULL with an
 * error: DEADLINE, CLOSED, CANCELLED, NO_MEMORY, PROTOCOL (an answer of another kind), or what the
 * peer's Error says, whose text is then in `reason`. A Waiting is not an answer: it is logged. */
typedef void sl_session_answer_fn(void *ctx, const struct sl_message *answer, int err,
                                  const char *reason);

/* Begins to connect; *out is owned by the caller. No event comes before it returns. Errors:
 * NO_MEMORY. */
int sl_session_open(const struct sl_session_options *options, struct sl_session **out);

/* Says goodbye and closes; no event follows. Requests in flight are answered CANCELLED. What the
 * transport still holds goes out behind the caller's back: transport and outbox must live until it
 * is gone, at the latest until the transport is closed. Nulls *session. */
void sl_session_close(struct sl_session **session);

/* Sends a request; `answer(ctx, …)` is called exactly once, before this returns when there is
 * nothing to send on (CLOSED) or with (NO_MEMORY). message->id is assigned. timeout_ns > 0. */
void sl_session_request(struct sl_session *session, struct sl_message *message, uint64_t timeout_ns,
                        sl_session_answer_fn *answer, void *ctx);

/* The connection, for the data plane to send on with the outbox; NULL before the welcome and after
 * the end. */
struct sl_conn *sl_session_conn(struct sl_session *session);
struct sl_outbox_queue *sl_session_queue(struct sl_session *session);
const char *sl_session_peer_name(const struct sl_session *session);

#endif
