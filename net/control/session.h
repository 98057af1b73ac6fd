/* The connecting side of one connection up to its welcome, and of a control connection after it:
 * connects, again and again with back-off while nobody listens, says hello, proves that it has the
 * secret and has the peer prove it (net/control/auth.h), checks the welcome, then sends requests
 * and matches answers to them. Used by workers (to the coordinator, and to each shard, where the
 * owner sends its requests with the outbox on the session's connection) and by ps processes (to the
 * coordinator). Owner reactor. Every request has a deadline; nothing hangs.
 *
 * A persistent session outlives its connections: when one breaks after the welcome it connects
 * again, with back-off and without end, and is welcomed again. Requests in flight are kept and sent
 * again under their ids behind what `welcomed` sends; their deadlines go on. (So an owner who asks
 * the same in every `welcomed` may have it sent twice.) It ends, with `closed`, when a peer that
 * can be trusted refuses it for good.
 *
 * An Error that answers the hello, or comes later without being asked for, ends any session when it
 * is final: VERSION, PROTOCOL, REFUSED, EXISTS, INVALID, UNSUPPORTED. Others pass: after the hello
 * another attempt follows, later the connection is lost. Broken or misplaced frames and a Goodbye
 * after the welcome are a loss too; before it, what is no Starling ends it.
 *
 * Before the welcome only a trusted peer ends a session. With a secret, a trusted peer is one that
 * has proved it on this connection, and only such a peer says where the coordinator is. Without
 * one, any peer says so: after an election the place of the old coordinator leads to the new one.
 * There any peer is trusted before the session's first welcome, so that a wrong configuration ends
 * at once; later a peer is when the session has been refused for a whole lease (without a lease:
 * SL_SESSION_GREETING_NS). All else is an obstacle: logged once a minute, then another attempt
 * follows. A session that is still refused at the start timeout ends with the error of the last
 * refusal.
 *
 * A host name is looked up anew for each attempt, without making the reactor wait
 * (net/control/resolve.h); of its addresses each attempt takes the next. Numeric hosts take no
 * thread, nor do those of shm, which are found by the name itself.
 *
 * A session may have a nearer way to its peer than its endpoint, such as shared memory or RDMA.
 * Every connection is tried that way first, and where it fails before the welcome, whyever, by the
 * endpoint at once. When that one is welcomed, the log says so once, and the near way is left alone
 * for SL_SESSION_PATH_PAUSE_NS, longer each time that it fails, or until the owner tells of it
 * anew; as long as neither is, both are tried. It is left alone, too, when its connections do not
 * last: when three in a row, or two by a fault of the medium (IO, DEADLINE), end within
 * SL_SESSION_PATH_LASTS_NS of their welcomes, and the owner did not ask for it. A persistent
 * session that goes by its endpoint then looks whether somebody takes connections by the near way
 * again: if so, it breaks its own and goes there. Where that comes to nothing it is left alone for
 * longer and longer, up to SL_SESSION_PATH_PAUSE_MAX_NS.
 *
 * A session may look for its peer, the coordinator, at several places: each attempt that fails is
 * followed by one at the next; an Error that answers the hello and says where the coordinator is
 * now, by one there, and does not end the session. A connection that breaks is first made again
 * where it was.
 *
 * A welcome that does not come within SL_SESSION_GREETING_NS on a later connection makes it try
 * anew; the first may take as long as the start timeout, since the cluster has to come together.
 *
 * Every event and answer may close the session or others, and make requests. Allocates. */
#ifndef SL_NET_CONTROL_SESSION_H
#define SL_NET_CONTROL_SESSION_H

#include "core/clock.h"
#include "core/secret.h"
#include "net/control/message.h"
#include "net/outbox.h"
#include "net/transport.h"

#define SL_SESSION_GREETING_NS       (10 * SL_CLOCK_NS_PER_S)
#define SL_SESSION_PLACE_NS          (2 * SL_CLOCK_NS_PER_S) /* where there are other places */
#define SL_SESSION_PATH_PAUSE_NS     (60 * SL_CLOCK_NS_PER_S)
#define SL_SESSION_PATH_PAUSE_MAX_NS (3600 * SL_CLOCK_NS_PER_S)
/* Well beyond the 10 s after which a transport gives a silent peer up: a peer sees the other end of
 * a connection that carries no long frames fail, and is told that it is CLOSED. */
#define SL_SESSION_PATH_LASTS_NS     (60 * SL_CLOCK_NS_PER_S)

struct sl_session;

struct sl_session_events {
    /* The welcome has come. */
    void (*welcomed)(void *ctx, struct sl_session *session,
                     const struct sl_message_welcome *welcome);
    /* A data-plane frame (REPLY, CREDIT) on a data connection, or one to a backup, its checksum
     * verified where it has one; release it as in transport.h. NULL on control connections. */
    void (*received)(void *ctx, struct sl_session *session,
                     const struct sl_transport_message *message);
    /* As in transport.h, for data connections: asked for long REPLY frames only. NULL on control
     * connections. */
    void *(*sink)(void *ctx, struct sl_session *session, const struct sl_frame *header);
    /* A message that was not asked for, on a control connection: CLUSTER (a ps has moved), LOST,
     * ENDED, CHECKPOINT or CHECKPOINT_COMPLETE. May be NULL. */
    void (*notified)(void *ctx, struct sl_session *session, const struct sl_message *message);
    /* There is room in the transport again, and what waited in the outbox has been offered. May be
     * NULL. */
    void (*writable)(void *ctx, struct sl_session *session);
    /* Persistent sessions: the connection broke after its welcome; another is being tried. What was
     * sent on it and not answered may or may not have arrived; sl_session_conn is NULL until
     * `welcomed`. `reason` names the peer and why. */
    void (*lost)(void *ctx, struct sl_session *session, int err, const char *reason);
    /* The end: the start deadline passed, the peer refused the hello, or the connection broke.
     * `reason` names the peer and why. Requests in flight have been answered with `err` before.
     * The session is still the owner's to close. */
    void (*closed)(void *ctx, struct sl_session *session, int err, const char *reason);
};

/* A nearer way to the same peer. */
struct sl_session_preferred {
    struct sl_transport *transport; /* of the same reactor; NULL: there is none */
    struct sl_outbox *outbox;       /* for it; as the session's */
    struct sl_endpoint endpoint;
};

struct sl_session_options {
    struct sl_transport *transport;
    struct sl_outbox *outbox; /* shared by the sessions of a reactor; outlives them */
    struct sl_endpoint endpoint;
    struct sl_session_preferred preferred;
    /* Where the coordinator may be, too: of the endpoint's scheme; outlive the session. */
    const struct sl_endpoint *others;
    uint32_t other_count;
    bool follows; /* an Error that answers the hello may say where it is; else that says nothing */
    struct sl_message_hello hello; /* protocol_version and software are filled in */
    const struct sl_session_events *events;
    void *ctx;
    const char *peer_name; /* "coordinator", "ps/1 shard 0": in messages; copied, up to 63 bytes */
    uint64_t start_timeout_ns;      /* to connect and be welcomed first, retries included; > 0 */
    bool persistent;                /* `lost` is set then */
    const struct sl_secret *secret; /* outlives the session; NULL: the cluster has none */
};

/* What keeps a persistent session from its next welcome: "refused: nobody listens there yet"; ""
 * while it is welcomed. */
const char *sl_session_last_error(const struct sl_session *session);

/* Breaks the connection of a persistent session, as if the peer had: `lost` follows from inside a
 * later turn (only another attempt when it was not welcomed yet). Nothing when it has none. */
void sl_session_reconnect(struct sl_session *session, const char *why);

/* Likewise, since nothing is heard from the peer: first at another place, where there are others.
 */
void sl_session_move(struct sl_session *session, const char *why);

/* Where the next attempts go: the peer has moved. A pause between attempts is cut short; a
 * connection or an attempt in progress goes on (sl_session_reconnect breaks it). */
void sl_session_set_endpoint(struct sl_session *session, const struct sl_endpoint *endpoint);

/* Which of the peer's shards the next attempts are for. */
void sl_session_set_shard(struct sl_session *session, uint32_t shard);

/* Which near way there is from now on, for the next attempts; its past is forgotten. */
void sl_session_set_preferred(struct sl_session *session,
                              const struct sl_session_preferred *preferred);

/* Where the connection goes that there is, or the last or next attempt. Valid until the session
 * changes. */
const struct sl_endpoint *sl_session_endpoint(const struct sl_session *session);

/* Sends a message that has no answer: HEARTBEAT, CHECKPOINT_PART, CHECKPOINT_DONE. Errors: CLOSED
 * (not welcomed), NO_MEMORY. */
int sl_session_notify(struct sl_session *session, struct sl_message *message);

/* The answer: a message of the kind that the request asks for (Register: Cluster; TableOpen:
 * TableOpened; Barrier: BarrierDone; StatsGet: Stats; CheckpointAsk: CheckpointDone), valid
 * during the call, or NULL with an error: DEADLINE, CLOSED, CANCELLED, NO_MEMORY, PROTOCOL (an
 * answer of another kind), or what the peer's Error says, whose text is then in `reason`. A Waiting
 * is not an answer: it is logged. */
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
 * nothing to send with (NO_MEMORY), or to send on (CLOSED; a persistent session keeps the request
 * until its next welcome). message->id is assigned. timeout_ns > 0. The message is copied: it has
 * no memory of its own. */
void sl_session_request(struct sl_session *session, struct sl_message *message, uint64_t timeout_ns,
                        sl_session_answer_fn *answer, void *ctx);

/* The content of a request that waits for a connection, or for room, becomes that of `message`, of
 * the same kind. False: there is no such request. */
bool sl_session_request_renew(struct sl_session *session, const struct sl_message *message);

/* The connection, for the data plane to send on with the queue and the outbox, which is the one of
 * its way; NULL before the welcome and after the end. */
struct sl_conn *sl_session_conn(struct sl_session *session);
struct sl_outbox_queue *sl_session_queue(struct sl_session *session);
struct sl_outbox *sl_session_outbox(struct sl_session *session);
const char *sl_session_peer_name(const struct sl_session *session);

#endif
