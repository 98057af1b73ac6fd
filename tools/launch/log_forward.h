/* Passes the output of a child on, whole lines at a time, each after the child's name. Where the
 * launcher's own output has no room, since nobody reads it now, `waits_on` is asked over and over
 * whether to go on waiting; else the line is dropped. Owned by the supervisor. */
#ifndef SL_TOOLS_LAUNCH_LOG_FORWARD_H
#define SL_TOOLS_LAUNCH_LOG_FORWARD_H

#include <stdbool.h>
#include <stddef.h>

#define SL_LOG_FORWARD_LINE_BYTES 4096 /* a longer line is broken */

struct sl_log_forward {
    int from;                    /* non-blocking read end; owned; -1: closed */
    int to;                      /* the launcher's own stdout or stderr */
    int copy;                    /* also there, without prefix; -1: nowhere */
    int lost_errno;              /* of the first write that failed and lost output; 0: none */
    size_t start;                /* length of the prefix, which begins `line` */
    size_t used;                 /* of `line`, prefix included */
    bool (*waits_on)(void *ctx); /* may be NULL: waits for ever */
    void *ctx;
    char line[SL_LOG_FORWARD_LINE_BYTES];
};

/* name: "worker/3", or NULL for no prefix. waits_on may be set afterwards. lost_errno stays as it
 * is, over all children of a task: zero it once before. */
void sl_log_forward_init(struct sl_log_forward *forward, int from, int to, int copy,
                         const char *name);

enum sl_log_forward_result {
    SL_LOG_FORWARD_MORE, /* something was passed on; there may be more */
    SL_LOG_FORWARD_IDLE, /* nothing is there now */
    SL_LOG_FORWARD_END,  /* everybody who could write has closed */
};

/* Reads once and passes on the lines that are complete. */
enum sl_log_forward_result sl_log_forward_pump(struct sl_log_forward *forward);

/* Passes on what the pipe still holds, ends an unfinished line, closes. Does not wait for a
 * grandchild that keeps the pipe open. */
void sl_log_forward_fini(struct sl_log_forward *forward);

#endif
