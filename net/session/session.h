/* A session connects to one peer, performs the handshake, and carries control requests. The
 * handshake: Hello, proofs of the secret from both sides (net/session/auth.h), Welcome. Workers
 * have a session to the coordinator and one to each reactor of the servers, on whose connection
 * they send data frames through the outbox. Servers have one to the coordinator.
 *
 * Attempts are retried with back-off until the start timeout. Every request has a deadline. A
 * persistent session also reconnects, without limit, whenever a connection breaks after its
 * welcome. It keeps requests in flight and resends them after the messages that `welcomed` sends;
 * ids and deadlines stay. (So an owner that repeats a request in every `welcomed` may send it
 * twice.)
 *
 * Owner reactor. Allocates. Every event and answer may close any session, and make requests. */
#ifndef SL_NET_SESSION_SESSION_H
#define SL_NET_SESSION_SESSION_H

#include "core/clock.h"
#include "core/secret.h"
#include "net/outbox.h"
#include "net/session/message.h"
#include "net/transport.h"

/* After the first welcome, a later one must come within this time, else another attempt follows.
 * The first may take the whole start timeout, since the cluster has to assemble. */
#define SL_SESSION_GREETING_NS       (10 * SL_CLOCK_NS_PER_S)
/* To connect and be welcomed at one of several candidates: `endpoint` and `others`. */
#define SL_SESSION_CANDIDATE_NS      (2 * SL_CLOCK_NS_PER_S)
#define SL_SESSION_PATH_PAUSE_NS     (60 * SL_CLOCK_NS_PER_S)
#define SL_SESSION_PATH_PAUSE_MAX_NS (3600 * SL_CLOCK_NS_PER_S)
/* Well above the 10 s after which a transport closes a silent connection. The end that sends no
 * long frames may only see that the other end closed (CLOSED). */
#define SL_SESSION_PATH_LASTS_NS     (60 * SL_CLOCK_NS_PER_S)

struct sl_session;

struct sl_session_events {
    /* The peer sent its welcome. */
    void (*welcomed)(void *ctx, struct sl_session *session,
                     const struct sl_message_welcome *welcome);
    /* Delivers a data frame (REPLY, CREDIT), on a connection to a shard or a backup, or a transfer
     * lane; a checksum, if any, is verified. Release it as in transport.h. NULL on control
     * connections, among them lane 0 of a transfer. */
    void (*received)(void *ctx, struct sl_session *session,
                     const struct sl_transport_message *message);
    /* As in transport.h, for long REPLY frames. NULL on control connections. */
    void *(*sink)(void *ctx, struct sl_session *session, const struct sl_frame *header);
    /* Delivers a message that answers no request, on a control connection: CLUSTER (a server
     * moved), EXPIRED, ENDED, CHECKPOINT, CHECKPOINT_PUBLISH, CHECKPOINT_DONE, BUFFER_ADDED or
     * BUFFER_GONE. May be NULL. */
    void (*notified)(void *ctx, struct sl_session *session, const struct sl_message *message);
    /* Returns whether a message for this shard may be sent now; else it waits for
     * sl_session_send_ready. Data connections only; may be NULL: always. */
    bool (*is_ready)(void *ctx, uint32_t shard);
    /* The transport has room again; queued frames of the outbox were offered first. May be NULL. */
    void (*writable)(void *ctx, struct sl_session *session);
    /* Persistent sessions: the connection broke after its welcome, and the session reconnects.
     * Unanswered messages may or may not have arrived. sl_session_conn is NULL until `welcomed`.
     * `reason` names the peer and the cause. */
    void (*lost)(void *ctx, struct sl_session *session, int err, const char *reason);
    /* The session ended; the owner still has to close it. `reason` names the peer and the cause.
     * Requests in flight were answered with `err` before. Causes:
     * - the start timeout;
     * - a final Error (VERSION, PROTOCOL, REFUSED, EXISTS, INVALID, UNSUPPORTED), or a peer that
     *   does not speak the protocol. Before the welcome both count only from a trusted peer
     *   (`secret` below);
     * - not persistent: the connection broke after its welcome;
     * - the control session of a transfer: a Goodbye after the welcome;
     * - `ends`, and refusals for a whole lease (`secret`), below.
     *
     * Another Error before the welcome leads to another attempt. After the welcome, other Errors,
     * malformed or misplaced frames, and other Goodbyes break the connection; of a transfer's lane
     * also final Errors. */
    void (*closed)(void *ctx, struct sl_session *session, int err, const char *reason);
};

/* A preferred path to the same peer, such as shared memory or RDMA. Each attempt tries it first; if
 * it fails before the welcome, the session falls back to the endpoint at once.
 *
 * The path is paused when the fallback is then welcomed (logged once), or when its connections do
 * not last: three in a row, or two that fail with IO or DEADLINE, end within
 * SL_SESSION_PATH_LASTS_NS of their welcome, other than by the owner. Pauses begin with
 * SL_SESSION_PATH_PAUSE_NS and double with each failure. The owner ends a pause with
 * sl_session_set_preferred.
 *
 * On the fallback, a persistent session probes the path and reconnects over it when a probe
 * succeeds. If that connection fails too, pauses grow up to SL_SESSION_PATH_PAUSE_MAX_NS. */
struct sl_session_preferred {
    struct sl_transport *transport; /* of the same reactor; NULL: no preferred path */
    struct sl_outbox *outbox;       /* for this transport; shared as below */
    struct sl_endpoint endpoint;
};

struct sl_session_options {
    struct sl_transport *transport;
    struct sl_outbox *outbox; /* shared by the sessions of a reactor; outlives them */
    /* A host name is looked up again for each attempt (net/session/resolve.h), which takes the next
     * of its addresses. Numeric and shm hosts need no lookup. */
    struct sl_endpoint endpoint;
    struct sl_session_preferred preferred;
    /* More candidate endpoints of the coordinator, of the same scheme; they outlive the session.
     * Each failed attempt is followed by one at the next candidate. A broken connection is first
     * retried where it was. */
    const struct sl_endpoint *others;
    uint32_t other_count;
    /* An Error that answers the hello may redirect to the coordinator's endpoint: the session goes
     * there and does not end. With a secret, the peer must have proved it. Without one, any peer
     * may redirect: after an election, the old coordinator's address leads to the new one. */
    bool follows;
    uint32_t target;               /* the peer's reactor, for transports that do not migrate */
    struct sl_message_hello hello; /* protocol_version and software are filled in */
    const struct sl_session_events *events;
    void *ctx;
    /* "coordinator", "ps/1 shard 0": for messages; copied, up to 63 bytes. */
    const char *peer_name;
    uint64_t start_timeout_ns; /* until the first welcome, retries included; > 0 */
    bool persistent;           /* requires `lost` */
    struct {
        bool if_refused;   /* before the first welcome, when no process listens, twice in a row */
        bool with_process; /* the same later: the process that has sent a welcome has ended */
    } ends;
    /* Outlives the session; NULL: the cluster has none. It decides which peers are trusted to
     * refuse:
     * - With a secret, a peer that has proved it on this connection.
     * - Without one, any peer before the first welcome, so that a wrong configuration ends the
     *   session at once. Later a peer that has refused for a whole lease (no lease:
     *   SL_SESSION_GREETING_NS).
     *
     * Other refusals are logged once a minute and retried. A session that is still refused at the
     * start timeout ends with the error of the last refusal. */
    const struct sl_secret *secret;
};

/* Returns why a persistent session is not welcomed ("refused: no process listens there yet"); ""
 * while it is welcomed. */
const char *sl_session_last_error(const struct sl_session *session);

/* Returns whether an attempt has failed since the session was opened or last welcomed. */
bool sl_session_has_failed(const struct sl_session *session);

/* Returns the error with which this host refused to begin the last attempt: NOT_FOUND, UNSUPPORTED:
 * its device or address has gone. 0: it has begun. */
int sl_session_local_err(const struct sl_session *session);

/* Breaks the connection of a persistent session as if the peer had: `lost` follows in a later turn.
 * Not welcomed yet: another attempt follows. No connection: no effect. */
void sl_session_reconnect(struct sl_session *session, const char *why);

/* As sl_session_reconnect, for a silent peer: the next attempt goes to another candidate, if
 * any. */
void sl_session_move(struct sl_session *session, const char *why);

/* Sets the endpoint of the next attempts: the peer moved. Cuts short a pause between attempts. Does
 * not break a connection or an attempt in progress (see sl_session_reconnect). */
void sl_session_set_endpoint(struct sl_session *session, const struct sl_endpoint *endpoint);

/* Sets the peer's shard and its reactor for the next attempts. */
void sl_session_set_shard(struct sl_session *session, uint32_t shard, uint32_t target);

/* Sets lane_epoch of the hello for the next attempts. */
void sl_session_set_lane_epoch(struct sl_session *session, uint64_t lane_epoch);

/* Replaces the preferred path for the next attempts, and forgets the failures of the old one. */
void sl_session_set_preferred(struct sl_session *session,
                              const struct sl_session_preferred *preferred);

/* Returns the endpoint of the connection, or of the last or next attempt. Valid until the session
 * changes. */
const struct sl_endpoint *sl_session_endpoint(const struct sl_session *session);

/* Returns the names for which the peer waits before it answers, such as "ps/1, worker/3"; "": none
 * since the last answer. Valid until the session changes. */
const char *sl_session_waits_for(const struct sl_session *session);

/* Sends a message that has no answer: HEARTBEAT, CHECKPOINT_PART, CHECKPOINT_DONE, BUFFER_RELEASED,
 * REPORT, RELAY_ANSWER, or a BARRIER that leaves. Errors: CLOSED (not welcomed), NO_MEMORY. */
int sl_session_notify(struct sl_session *session, struct sl_message *message);

/* Receives the answer, valid during the call: Register: Cluster; TableOpen: TableOpened; Barrier:
 * BarrierDone; StatsGet: Stats; CheckpointAsk: CheckpointDone; SegmentGet: Segment; Notice:
 * NoticeTaken; Fence: Fenced; TablesGet: Tables; Operation: OperationAllowed; Attach: Welcome;
 * Relay: RelayAnswer, which is not sent again after its connection broke (CLOSED). Or NULL with an
 * error: DEADLINE, CLOSED, CANCELLED, NO_MEMORY, PROTOCOL (an answer of another kind), or the code
 * of the peer's Error, whose text is `reason`. A Waiting is not an answer: it is logged. */
typedef void sl_session_answer_fn(void *ctx, const struct sl_message *answer, int err,
                                  const char *reason);

/* Starts to connect; *out is owned by the caller. No event comes before this returns. Errors:
 * NO_MEMORY. */
int sl_session_open(const struct sl_session_options *options, struct sl_session **out);

/* Sends a Goodbye and closes; no event follows. Requests in flight are answered CANCELLED. The
 * transport may send queued frames later: keep transport and outbox until the frames are sent, at
 * the latest until the transport is closed. Nulls *session. */
void sl_session_close(struct sl_session **session);

/* Sends a request and assigns message->id, whose shard (sl_frame_shard) stays. Calls answer(ctx,
 * ...) exactly once; before this returns if there is no room (NO_MEMORY) or no connection (CLOSED).
 * A persistent session without a connection keeps the request until the next welcome. timeout_ns >
 * 0. The message is copied and must own no memory. */
void sl_session_request(struct sl_session *session, struct sl_message *message, uint64_t timeout_ns,
                        sl_session_answer_fn *answer, void *ctx);

/* Answers the request with this ctx, if there is one, with CANCELLED, before this returns. An
 * answer of the peer is dropped. */
void sl_session_cancel(struct sl_session *session, const void *ctx);

/* Sends the requests that wait: a shard has become ready for messages. */
void sl_session_send_ready(struct sl_session *session);

/* Gives the requests for the shard to another session of the same reactor, where they are sent when
 * it is ready. */
void sl_session_migrate_shard(struct sl_session *from, struct sl_session *to, uint32_t shard);

/* Answers the requests for the shard with the error. */
void sl_session_fail_shard(struct sl_session *session, uint32_t shard, int err, const char *reason);

/* Replaces the content of an unsent request of the same kind; its id stays. Returns false if there
 * is none. */
bool sl_session_request_renew(struct sl_session *session, const struct sl_message *message);

/* The connection, queue and outbox, for sending data frames. The connection is NULL unless
 * welcomed. The outbox is that of the path in use. */
struct sl_conn *sl_session_conn(struct sl_session *session);
struct sl_outbox_queue *sl_session_queue(struct sl_session *session);
struct sl_outbox *sl_session_outbox(struct sl_session *session);

#endif
