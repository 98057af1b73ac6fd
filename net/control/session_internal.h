/* What session.c (the connection) and session_request.c (requests and their answers) share. */
#ifndef SL_NET_CONTROL_SESSION_INTERNAL_H
#define SL_NET_CONTROL_SESSION_INTERNAL_H

#include "net/control/session.h"

#define SL_SESSION_REASON_BYTES                                                                    \
    (SL_MESSAGE_TEXT_BYTES + 2 * SL_LIMIT_ENDPOINT_BYTES +                                         \
     SL_MESSAGE_MISSING_COUNT * (SL_MESSAGE_NAME_BYTES + 2))

struct sl_session_request;

enum sl_session_state {
    SL_SESSION_PAUSING,    /* between two attempts to connect */
    SL_SESSION_CONNECTING, /* until the transport says connected */
    SL_SESSION_GREETING,   /* hello is sent */
    SL_SESSION_WELCOMED,
    SL_SESSION_ENDED /* the owner has been told, or has closed */
};

struct sl_session {
    struct sl_session_options options;
    char peer_name[SL_MESSAGE_NAME_BYTES];
    char peer[SL_LIMIT_ENDPOINT_BYTES]; /* the endpoint as given, for messages */

    enum sl_session_state state;
    struct sl_conn *conn; /* NULL: none; else it has not been reported closed */
    struct sl_outbox_queue queue;
    uint8_t *control_memory; /* of a long control frame on its way in; NULL: none */

    struct sl_timer retry, report, start_deadline;
    uint64_t opened_ns, deadline_ns;
    uint64_t back_off_ns;
    char obstacle[SL_SESSION_REASON_BYTES]; /* why there is no welcome yet */

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

/* The end by the session's own doing: answers the requests, disconnects, tells the owner, once. */
void sl_session_end(struct sl_session *session, int err, const char *reason);

/* Sends one control message. Errors: NO_MEMORY (the outbox is full). */
int sl_session_send(struct sl_session *session, const struct sl_message *message);

/* Logs for whom the peer waits, and keeps the names for the reason of a deadline. */
void sl_session_note_waiting(struct sl_session *session, const struct sl_message_waiting *waiting);

/* A message that came after the welcome. */
void sl_session_request_answered(struct sl_session *session, const struct sl_message *message);

/* Answers all that is in flight with the error. */
void sl_session_request_fail_all(struct sl_session *session, int err, const char *reason);

#endif
