/* Private to the session files, of which each calls only those before it: session_base.c (timers,
 * messages, the connection), session_request.c (requests and answers), session_path.c (preferred
 * path), session_end.c (end, refusals), session_greeting.c (Hello to Welcome), session_connection.c
 * (attempts, transport events), session.c (owner's functions). */
#ifndef SL_NET_SESSION_SESSION_INTERNAL_H
#define SL_NET_SESSION_SESSION_INTERNAL_H

#include "core/backoff.h"
#include "net/session/auth.h"
#include "net/session/resolve.h"
#include "net/session/session.h"

#define SL_SESSION_REASON_BYTES                                                                    \
    (SL_MESSAGE_TEXT_BYTES + 2 * SL_LIMIT_ENDPOINT_BYTES +                                         \
     SL_MESSAGE_MISSING_COUNT * (SL_MESSAGE_NAME_BYTES + 2))

/* Reason for not being welcomed, without the peer's name. */
#define SL_SESSION_LAST_ERROR_BYTES (SL_MESSAGE_TEXT_BYTES + 64)

/* Bounds of the pause between attempts. */
#define SL_SESSION_BACK_OFF_MIN_NS  (50 * SL_CLOCK_NS_PER_MS)
#define SL_SESSION_BACK_OFF_MAX_NS  (1 * SL_CLOCK_NS_PER_S)

/* Limit for looking up a host name. */
#define SL_SESSION_RESOLVE_NS       (5 * SL_CLOCK_NS_PER_S)

struct sl_session_request;

enum sl_session_state {
    SL_SESSION_PAUSING,
    SL_SESSION_RESOLVING, /* looking up the host name */
    SL_SESSION_CONNECTING,
    SL_SESSION_GREETING, /* Hello is sent */
    SL_SESSION_WELCOMED,
    SL_SESSION_ENDED /* the owner was notified, or has closed */
};

/* Where the attempt after this one goes, if that fails or its connection breaks. */
enum sl_session_next_target {
    SL_SESSION_NEXT_CANDIDATE, /* another candidate endpoint */
    SL_SESSION_NEXT_SAME,      /* the same, as it has welcomed this session */
    SL_SESSION_NEXT_NAMED      /* options.endpoint: a redirect or the owner has named it */
};

enum sl_session_probe {
    SL_SESSION_PROBE_FAILED,
    SL_SESSION_PROBE_CONNECTED,
    SL_SESSION_PROBE_STOPPED /* by this side: says nothing about the path */
};

/* Proof of the secret on one connection. */
enum sl_session_proof {
    SL_SESSION_UNPROVED,
    SL_SESSION_CHALLENGED, /* by the peer, whose own proof is due */
    SL_SESSION_PROVED      /* the peer has the secret */
};

/* State of the preferred path; zeros: unknown. */
struct sl_session_preferred_state {
    bool failed; /* since the last welcome; cause: last_error */
    char last_error[SL_SESSION_LAST_ERROR_BYTES];
    uint64_t from_ns;  /* end of the pause */
    uint64_t pause_ns; /* the last pause */
    struct sl_backoff backoff;
    /* A probe succeeded and the fallback connection was closed for it. If the new connection fails,
     * the pause may grow beyond that of failed probes. */
    bool found;
    uint32_t losses; /* weighted count of connections that broke soon after their welcome */
};

struct sl_session {
    struct sl_session_options options;
    struct sl_reactor *reactor; /* outlives its transports, which may close one by one */
    char peer_name[SL_MESSAGE_NAME_BYTES];
    enum sl_session_state state;
    struct {
        struct sl_endpoint endpoint;
        char text[SL_LIMIT_ENDPOINT_BYTES]; /* `endpoint`, for messages */
        bool is_preferred;
        struct sl_outbox *outbox;
    } path;                     /* in use */
    struct sl_resolve *resolve; /* NULL: no lookup in progress */
    struct {
        /* At a host name, by path.is_preferred: each one uses the next address. */
        uint32_t counts[2];
        struct sl_timer deadline; /* of connecting and greeting */
        int local_err;            /* of the last connect that did not begin, or 0 */
    } attempt;
    struct sl_session_preferred_state preferred; /* session_path.c */
    struct {
        struct sl_conn *conn; /* beside the session's; NULL: none */
        enum sl_session_probe result;
        struct sl_timer timer; /* for the next probe, or limits the current one */
    } probe;                   /* of the preferred path */
    struct sl_conn *conn;      /* NULL: none; else its `closed` has not come yet */
    struct sl_outbox_queue queue;
    uint8_t *control_memory; /* for a long control frame being received; NULL: none */
    struct {
        bool has_begun; /* this side has disconnected: `closed` uses err and last_error */
        int err;
        bool by_owner; /* that is no failure of the path */
    } breaking;
    struct {
        uint32_t place;           /* 0: options.endpoint, n: options.others[n - 1] */
        struct sl_endpoint first; /* options.endpoint before candidates and redirects */
        enum sl_session_next_target next;
    } candidate; /* being tried */
    struct {
        enum sl_session_proof state;
        uint8_t challenge[SL_MESSAGE_NONCE_BYTES];
    } proof;
    bool was_welcomed; /* at least once: from then on only an attempt has a deadline */
    uint64_t welcomed_ns;
    struct {
        uint64_t opened_ns;
        struct sl_timer deadline;
    } start; /* until the first welcome */
    struct {
        struct sl_timer timer;
        struct sl_backoff backoff;
    } retry;
    struct {
        struct sl_timer timer;
        uint64_t wait_ns;
    } report;
    char last_error[SL_SESSION_LAST_ERROR_BYTES]; /* "": none */
    /* A run of refusals by untrusted peers (sl_session_reject). Another error at the endpoint of
     * the last one, or a welcome, ends the run. */
    struct {
        uint64_t since_ns; /* 0: none */
        struct sl_endpoint endpoint;
        int err;          /* of the last refusal */
        uint64_t wait_ns; /* without a secret, a run of this length ends the session */
        uint64_t log_ns;  /* no refusal is logged before this time */
    } refusal;
    struct {
        struct sl_session_request *first; /* in flight, oldest first */
        uint64_t next_id;
        struct sl_timer resend;
        /* Names in the peer's last Waiting, "ps/1, worker/3"; "": none since the last answer. */
        char waited_for[SL_MESSAGE_MISSING_COUNT * (SL_MESSAGE_NAME_BYTES + 2)];
    } requests;

    bool abandoned;  /* closed by the owner; freed when nothing refers to it */
    uint32_t in_use; /* depth of sl_session_enter */
};

/* Whether the peer's connection carries control messages only. */
static inline bool sl_session_is_control(const struct sl_session_options *options)
{
    const struct sl_message_hello *hello = &options->hello;
    return hello->purpose == SL_MESSAGE_PURPOSE_CONTROL ||
           (hello->purpose == SL_MESSAGE_PURPOSE_TRANSFER && hello->lane == 0);
}

/* Whether the peer must prove the cluster's secret. */
static inline bool sl_session_has_secret(const struct sl_session *session)
{
    return sl_auth_is_required(session->options.secret);
}

/* session_base.c */

void sl_session_arm(struct sl_session *session, struct sl_timer *timer, uint64_t wait_ns);
void sl_session_disarm_all(struct sl_session *session);

/* Bracket every call to the owner, which may close the session in it: the last leave frees it at
 * the earliest. */
void sl_session_enter(struct sl_session *session);
void sl_session_leave(struct sl_session *session);

void sl_session_name_reason(const struct sl_session *session, const char *why,
                            char reason[SL_SESSION_REASON_BYTES]);

void sl_session_set_last_error(struct sl_session *session, const char *what);

/* Whether an Error with this code is permanent. */
bool sl_session_is_final(int err);

/* Disconnects. Another attempt follows; after the welcome of a session that is not persistent, the
 * end. */
void sl_session_break(struct sl_session *session, int err, const char *why);

/* Sends one control message. Errors: NO_MEMORY (the outbox is full). */
int sl_session_send(struct sl_session *session, const struct sl_message *message);

/* session_request.c */

/* Handles a message after the welcome. Returns false if it answers no request. */
bool sl_session_request_answered(struct sl_session *session, const struct sl_message *message);

/* Logs the names in a Waiting, and keeps them for the reason of a deadline. */
void sl_session_note_waiting(struct sl_session *session, const struct sl_message_waiting *waiting);

/* Marks all requests unsent: the connection is gone. */
void sl_session_request_lose_all(struct sl_session *session);

/* Sends unsent requests, oldest first; if the outbox is full, again a little later. */
void sl_session_request_send_all(struct sl_session *session);

/* Answers all requests with the error. */
void sl_session_request_fail_all(struct sl_session *session, int err, const char *reason);

/* session_path.c */

/* Limit for connecting over the preferred path. */
uint64_t sl_session_path_patience_ns(const struct sl_session *session);

/* Called at every welcome, over either path. */
void sl_session_path_welcomed(struct sl_session *session);

/* Called when a welcomed connection over the preferred path breaks. */
void sl_session_path_lost(struct sl_session *session, int err);

/* Called when the owner sets another preferred path. Returns whether the lookup in progress is for
 * the old one. */
bool sl_session_path_changed(struct sl_session *session);

/* Stops the probe, and any lookup. */
void sl_session_path_stop(struct sl_session *session);
void sl_session_path_timer(struct sl_timer *timer, uint64_t now_ns);

/* session_end.c */

/* Stops timers, closes the connection and answers pending requests. */
void sl_session_shut(struct sl_session *session, int err, const char *reason);

/* End the session: shut it, notify the owner once. end_because puts the peer's name before the
 * reason. */
void sl_session_end(struct sl_session *session, int err, const char *reason);
void sl_session_end_because(struct sl_session *session, int err, const char *why);

/* Handles a permanent refusal, or a wrong peer, before the welcome. If the peer is trusted
 * (sl_session_options.secret), the session ends. Else the refusal is logged, the connection breaks,
 * and another attempt follows. */
void sl_session_reject(struct sl_session *session, int err, const char *why);

/* Rejects a peer that speaks another protocol version. */
void sl_session_reject_version(struct sl_session *session, uint32_t version, const char *software);

/* Handles a protocol violation. Before the welcome: sl_session_reject. Later the connection breaks:
 * a persistent session reconnects, another one ends. */
void sl_session_distrust(struct sl_session *session, int err, const char *why);

/* session_greeting.c */

/* Sends the Hello on a new connection. */
void sl_session_greet(struct sl_session *session);

/* Handles a message before, or with, the welcome. */
void sl_session_greeted(struct sl_session *session, const struct sl_message *message);

/* session_connection.c */

/* Selects the preferred path or the endpoint. */
void sl_session_take_path(struct sl_session *session, bool preferred);

/* Schedules the first attempt for the next turn. */
void sl_session_begin(struct sl_session *session);
void sl_session_retry_soon(struct sl_session *session);

#endif
