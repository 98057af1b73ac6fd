/* What session.c (its life and its owner), session_connection.c (attempts, and what the transport
 * reports), session_near.c (the near way), session_greeting.c (hello to welcome) and
 * session_request.c (requests and their answers) share. */
#ifndef SL_NET_CONTROL_SESSION_INTERNAL_H
#define SL_NET_CONTROL_SESSION_INTERNAL_H

#include "net/control/resolve.h"
#include "net/control/session.h"

#define SL_SESSION_REASON_BYTES                                                                    \
    (SL_MESSAGE_TEXT_BYTES + 2 * SL_LIMIT_ENDPOINT_BYTES +                                         \
     SL_MESSAGE_MISSING_COUNT * (SL_MESSAGE_NAME_BYTES + 2))

/* Why there is no welcome, without the peer's name. */
#define SL_SESSION_LAST_ERROR_BYTES (SL_MESSAGE_TEXT_BYTES + 64)

/* How long a host name may be looked up. */
#define SL_SESSION_RESOLVE_NS       (5 * SL_CLOCK_NS_PER_S)

struct sl_session_request;

enum sl_session_state {
    SL_SESSION_PAUSING,    /* between two attempts to connect */
    SL_SESSION_RESOLVING,  /* until the host's addresses are known */
    SL_SESSION_CONNECTING, /* until the transport says connected */
    SL_SESSION_GREETING,   /* hello is sent */
    SL_SESSION_WELCOMED,
    SL_SESSION_ENDED /* the owner has been told, or has closed */
};

enum sl_session_probe {
    SL_SESSION_PROBE_FAILED,
    SL_SESSION_PROBE_CONNECTED,
    SL_SESSION_PROBE_STOPPED /* it is not to be judged */
};

struct sl_session {
    struct sl_session_options options;
    struct sl_reactor *reactor; /* which outlives its transports: they may close one by one */
    char peer_name[SL_MESSAGE_NAME_BYTES];
    char peer[SL_LIMIT_ENDPOINT_BYTES]; /* `way`, for messages */

    enum sl_session_state state;
    struct sl_resolve *resolve; /* NULL: no look-up in progress */
    struct sl_endpoint path;    /* in use */
    bool is_preferred;          /* it is the near one */
    uint32_t attempt_counts[2]; /* to connect to one of a name's addresses; by is_preferred */
    struct sl_outbox *outbox;   /* for it */
    bool preferred_failed;      /* since the last welcome; preferred_last_error says why */
    uint64_t preferred_from_ns; /* not before, the near way is tried again */
    uint64_t
        preferred_pause_ns; /* it was left alone for so long last; 0: it is not known to fail */
    bool preferred_found; /* by a probe, for which the endpoint's connection was given up: it owes a
                           * connection that lasts */
    uint32_t preferred_losses; /* of its connections, weighed, each soon after a welcome */
    struct sl_conn *probe;     /* by it, beside conn: to see whether it is there again; or NULL */
    enum sl_session_probe probe_result;
    struct sl_timer preferred_timer; /* for the next probe, or of this one */
    char preferred_last_error[SL_SESSION_LAST_ERROR_BYTES];
    struct sl_conn *conn; /* NULL: none; else it has not been reported closed */
    struct sl_outbox_queue queue;
    uint8_t *control_memory; /* of a long control frame on its way in; NULL: none */
    bool breaking;           /* we have disconnected: `closed` goes by break_err and obstacle */
    int break_err;
    uint32_t place;           /* that is tried: 0: the endpoint of the options, else of others */
    struct sl_endpoint first; /* the endpoint of the options, as they were at first */
    bool was_told;            /* the next attempt goes where a peer has said */
    bool stays;               /* the next attempt goes where the last connection was */
    bool moves;               /* it does not: nothing is heard from there */
    bool is_given_up;         /* by the owner: that says nothing of the way */
    bool challenged;          /* by the peer, on this connection, with the nonce in `challenge` */
    bool proved;              /* the peer has, on this connection: the secret */
    uint8_t challenge[SL_MESSAGE_NONCE_BYTES];
    bool was_welcomed; /* once: from then on only the greeting has a deadline */

    struct sl_timer retry, report, start_deadline, greeting_deadline, resend;
    uint64_t opened_ns, deadline_ns, welcomed_ns;
    uint64_t back_off_ns, back_off_max_ns, report_wait_ns;
    char last_error[SL_SESSION_LAST_ERROR_BYTES]; /* "": nothing is known */
    /* Refusals that cannot be trusted (sl_session_reject): the time of the first one in a row, and
     * the place of the last. Another obstacle at that place, or a welcome, ends the row; 0: none.
     */
    uint64_t refused_since_ns;
    struct sl_endpoint refused_at;
    int refusal_err;          /* the error of the last refusal */
    uint64_t refusal_wait_ns; /* without a secret, a refusal counts after this time */
    uint64_t refusal_log_ns;  /* no refusal is logged before */

    /* The names in the peer's last Waiting, "ps/1, worker/3"; "": none since the last answer. */
    char waited_for[SL_MESSAGE_MISSING_COUNT * (SL_MESSAGE_NAME_BYTES + 2)];

    struct sl_session_request *requests; /* in flight, oldest first */
    uint64_t next_id;

    bool abandoned;  /* by the owner: freed as soon as nothing refers to it */
    uint32_t in_use; /* calls into the owner from within the session's functions */
};

/* Around everything that calls the owner, who may close the session meanwhile: it is freed by the
 * last leave at the earliest. */
void sl_session_enter(struct sl_session *session);
void sl_session_leave(struct sl_session *session);

/* The end by the session's own doing: answers the requests, disconnects, tells the owner, once. The
 * second puts the peer's name before the reason. */
void sl_session_end(struct sl_session *session, int err, const char *reason);
void sl_session_end_because(struct sl_session *session, int err, const char *why);

void sl_session_name_reason(const struct sl_session *session, const char *why,
                            char reason[SL_SESSION_REASON_BYTES]);

void sl_session_set_last_error(struct sl_session *session, const char *what);

/* Before the welcome: the peer refuses for good, or is no peer for this session. Ends the session
 * if the peer can be trusted: with a secret, a peer that has proved it on this connection; without
 * one, any peer before the first welcome, and later one that refuses for refusal_wait_ns. Else the
 * refusal is an obstacle: it is logged, the connection breaks, another attempt follows. */
void sl_session_reject(struct sl_session *session, int err, const char *why);

/* The near way, or the endpoint, is in use from now on. */
void sl_session_take_path(struct sl_session *session, bool preferred);

/* How long a connection by the near way may take. */
uint64_t sl_session_path_patience_ns(const struct sl_session *session);

/* The welcome has come, by whatever way. */
void sl_session_path_welcomed(struct sl_session *session);

/* A connection by the near way was lost after its welcome. */
void sl_session_path_lost(struct sl_session *session, int err);

/* The near way is another one now. */
void sl_session_path_changed(struct sl_session *session);

/* The connection that it might take the place of is gone; a look-up ends, too. */
void sl_session_path_stop(struct sl_session *session);
void sl_session_path_timer(struct sl_timer *timer, uint64_t now_ns);

/* The first attempt comes in the next turn. */
void sl_session_begin(struct sl_session *session);
void sl_session_retry_soon(struct sl_session *session);

/* The welcome said so: pauses stay well below the peer's lease, in ms; 0: it has none. */
void sl_session_note_lease(struct sl_session *session, uint32_t lease_ms);

/* A peer says that the coordinator is there. False: that is no endpoint for this session. */
bool sl_session_follow_redirect(struct sl_session *session, const char *endpoint);

/* Disconnects, for another attempt to follow (or, after the welcome of a session that is not
 * persistent, the end). */
void sl_session_break(struct sl_session *session, int err, const char *why);

/* What came is not what the peer may send. Before the welcome that is sl_session_reject. Later the
 * connection is at fault, and a persistent session makes another. */
void sl_session_distrust(struct sl_session *session, int err, const char *why);

/* Whether an Error of this code is the peer's last word to this process. */
bool sl_session_is_final(int err);

void sl_session_arm(struct sl_session *session, struct sl_timer *timer, uint64_t wait_ns);
void sl_session_disarm_all(struct sl_session *session);

/* The peer speaks this version, which is not ours: sl_session_reject. */
void sl_session_reject_version(struct sl_session *session, uint32_t version, const char *software);

/* Says hello: the connection is there. */
void sl_session_greet(struct sl_session *session);

/* A message that came before the welcome, or is it. */
void sl_session_greeted(struct sl_session *session, const struct sl_message *message);

/* Sends one control message. Errors: NO_MEMORY (the outbox is full). */
int sl_session_send(struct sl_session *session, const struct sl_message *message);

/* Logs for whom the peer waits, and keeps the names for the reason of a deadline. */
void sl_session_note_waiting(struct sl_session *session, const struct sl_message_waiting *waiting);

/* A message that came after the welcome. */
void sl_session_request_answered(struct sl_session *session, const struct sl_message *message);

/* The connection is gone: nothing of what is in flight counts as sent. */
void sl_session_request_lose_all(struct sl_session *session);

/* Sends what does not, oldest first; what the outbox has no room for now, a little later. */
void sl_session_request_send_all(struct sl_session *session);

/* Answers all that is in flight with the error. */
void sl_session_request_fail_all(struct sl_session *session, int err, const char *reason);

#endif
