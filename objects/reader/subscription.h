/* A subscription is the reader of one name: its session (session.h) is at the agent of this host,
 * or at the own node. If the agent ends, the next call connects to the next agent; views of the old
 * one stay as they are. Owner: one thread of the application at a time. */
#ifndef SL_OBJECTS_READER_SUBSCRIPTION_H
#define SL_OBJECTS_READER_SUBSCRIPTION_H

#include "core/shared.h"
#include "objects/node/board.h"
#include "objects/node/local.h"
#include "objects/reader/staleness.h"

/* The session. Its end unpins the views, so it is closed with the last of them, also when it is of
 * no more use: a stopped agent may continue, and use their slots again. */
struct sl_objects_connection {
    struct sl_objects_session *session; /* at the own node; NULL: at an agent */
    int fd;                             /* to the agent; -1: none */
    uint32_t uses;                      /* the subscription, and views */
    bool is_broken;
};

struct sl_subscription {
    struct sl_objects *node;
    char name[SL_OBJECTS_NAME_BYTES];
    char agent[SL_OBJECTS_LOCAL_NAME_BYTES]; /* "": the own node */
    bool follow;
    struct sl_objects_connection *connection; /* NULL: none at present */
    struct sl_shared board;                   /* of the present or the last agent; zero: none */
    const struct sl_objects_board_entry *entry;
    uint64_t newest_min; /* what earlier agents had, until this one knows a version */
    uint32_t view_count;
    struct sl_objects_staleness staleness;
};

/* Makes a request, on a new connection if there is none or the agent has ended. Sets its
 * timeout_ms. fds[answer->fd_count] are the caller's. Errors: those of the answer, or of the way to
 * the agent; with the text in sl_objects_last_error. */
int sl_objects_subscription_call(struct sl_subscription *subscription,
                                 struct sl_objects_session_request *request, uint64_t deadline_ns,
                                 struct sl_objects_session_answer *answer,
                                 int fds[SL_OBJECTS_SESSION_FDS_MAX]);

/* The same on one connection. CLOSED if it is broken. */
int sl_objects_connection_call(struct sl_objects_connection *connection,
                               const struct sl_objects_session_request *request,
                               struct sl_objects_session_answer *answer,
                               int fds[SL_OBJECTS_SESSION_FDS_MAX]);

/* Ends a use; the last one closes it. */
void sl_objects_connection_put(struct sl_objects_connection *connection);

/* A view of the version was opened. */
void sl_objects_subscription_use(struct sl_subscription *subscription, uint64_t version);

#endif
