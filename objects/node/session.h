/* A session is one reader of a node: it follows one name, waits for versions and opens views of
 * them. Its requests and answers are structs of a fixed size. They come as calls of an application
 * to the node of its own process, or as packets on the socket of an agent (local.h); both ways have
 * the same meaning. A session has one request in progress at most; another one ends it.
 *
 * A view pins the slots of one version in the node's pool until it is closed, or the session ends.
 *
 * Owner: the node's reactor. */
#ifndef SL_OBJECTS_NODE_SESSION_H
#define SL_OBJECTS_NODE_SESSION_H

#include <stdbool.h>

#include "objects/catalogue/message.h"
#include "objects/node/board.h"

struct sl_objects;

/* Packets */

enum sl_objects_session_kind {
    SL_OBJECTS_SESSION_HELLO = 1,  /* the first one of a session; answer: a descriptor of the board
                                      (board.h) */
    SL_OBJECTS_SESSION_FOLLOW = 2, /* once; answer: the board's entry, the newest version */
    SL_OBJECTS_SESSION_WAIT = 3,   /* answer: the newest version */
    SL_OBJECTS_SESSION_OPEN = 4,   /* answer: version, view; descriptors of
                                     the table (board.h) and of the pool */
    SL_OBJECTS_SESSION_WAIT_VIEW = 5,
    SL_OBJECTS_SESSION_CLOSE = 6
};

#define SL_OBJECTS_SESSION_MAGIC     0x334f5353U /* "SSO3"; a new number if a struct changes */
#define SL_OBJECTS_SESSION_STOPS_MAX 64
#define SL_OBJECTS_SESSION_FDS_MAX   2
#define SL_OBJECTS_FOLLOW_FETCH      1U /* option: fetch every new version */
#define SL_OBJECTS_OPEN_STREAM       1U /* option: answer when the manifests are verified */

struct sl_objects_session_request {
    uint32_t kind;       /* enum sl_objects_session_kind */
    uint32_t timeout_ms; /* answered by then, with DEADLINE; 1 to SL_TRANSFER_TIMEOUT_MS_MAX */
    /* HELLO: SL_OBJECTS_SESSION_MAGIC. WAIT: the newest one has to be above this. OPEN;
     * 0: the newest, complete here if followed with fetch, else announced. OPEN waits for the first
     * version of the name. */
    uint64_t version;
    uint64_t behind_max;  /* OPEN 0: a version that is complete here is good enough, if at most so
                             many newer ones were announced */
    uint64_t view;        /* WAIT_VIEW, CLOSE: its number */
    uint64_t image_bytes; /* WAIT_VIEW: until so many bytes of the images, in order, are verified */
    uint32_t options;     /* FOLLOW, OPEN: bits */
    uint32_t stop_count;  /* OPEN */
    /* OPEN: offsets in the images taken together, ascending: READs end there, one after another. */
    uint64_t stops[SL_OBJECTS_SESSION_STOPS_MAX];
    /* FOLLOW. HELLO: the catalogue that the node has to have; "": any. */
    char name[SL_OBJECTS_NAME_BYTES];
};

struct sl_objects_session_answer {
    uint32_t kind;
    int32_t err; /* 0 or a negative sl_err; then only `text` is set */
    uint64_t version, view;
    uint32_t board_entry;             /* FOLLOW: its index */
    uint32_t fd_count;                /* that come with the packet */
    char text[SL_OBJECTS_TEXT_BYTES]; /* of an error; OPEN: the version's note */
};

/* On the reactor */

struct sl_objects_session;

/* The request in progress is answered; answer->fd_count descriptors, which stay the session's, come
 * with it. Valid during the call, which may make the next request, but not end the session. */
typedef void sl_objects_session_answered_fn(void *ctx,
                                            const struct sl_objects_session_answer *answer,
                                            const int *fds);

/* pid: of the reader, for log lines. Errors: NO_MEMORY. */
int sl_objects_session_create(struct sl_objects *node, int pid,
                              sl_objects_session_answered_fn *answered, void *ctx,
                              struct sl_objects_session **out);

/* Begins a request, which is copied; it is answered in this turn or later. Errors: PROTOCOL: it is
 * none, or one is in progress; it is not answered. */
int sl_objects_session_request(struct sl_objects_session *session,
                               const struct sl_objects_session_request *request);

/* Without an answer to the request in progress. Nulls *session. */
void sl_objects_session_destroy(struct sl_objects_session **session);

/* Of this process */

/* A thread of the application: a session at the node of its process. Errors: NO_MEMORY. */
int sl_objects_session_open(struct sl_objects *node, struct sl_objects_session **out);

/* A thread of the application makes a request, and waits for its answer. fds[answer->fd_count] are
 * the caller's. Returns answer->err, with the text in sl_objects_last_error. FOLLOW with fetch and
 * OPEN allocate the node's pool, and have the errors of that, too. */
int sl_objects_session_call(struct sl_objects_session *session,
                            const struct sl_objects_session_request *request,
                            struct sl_objects_session_answer *answer,
                            int fds[SL_OBJECTS_SESSION_FDS_MAX]);

/* A thread of the application: ends it with its views. Nulls *session. */
void sl_objects_session_close(struct sl_objects_session **session);

#endif
