/* Forwards the output of a child in whole lines, prefixed with the child's name. While the
 * launcher's own output is full, because its reader is slow, `waits_on` is called repeatedly: false
 * drops the line. Owned by the supervisor. */
#ifndef SL_PROGRAMS_LAUNCH_LOG_FORWARD_H
#define SL_PROGRAMS_LAUNCH_LOG_FORWARD_H

#include <stdbool.h>
#include <stddef.h>

#define SL_LOG_FORWARD_LINE_BYTES 4096 /* a longer line is split */

struct sl_log_forward {
    int from;                                      /* non-blocking read end; owned; -1: closed */
    int to;                                        /* the launcher's stdout or stderr */
    int copy;                                      /* second output, without prefix; -1: none */
    int lost_errno;                                /* first write error that lost output; 0: none */
    size_t start;                                  /* length of the prefix at the start of `line` */
    size_t used;                                   /* of `line`, with prefix */
    bool (*waits_on)(void *ctx);                   /* may be NULL: wait forever */
    void (*reads)(const char *line, size_t bytes); /* each line, without prefix; may be NULL */
    void *ctx;
    char line[SL_LOG_FORWARD_LINE_BYTES];
};

/* name: "worker/3"; NULL: no prefix. Set waits_on and reads afterwards if needed. Keeps lost_errno,
 * which covers all children of a task: zero it once before. */
void sl_log_forward_init(struct sl_log_forward *forward, int from, int to, int copy,
                         const char *name);

enum sl_log_forward_result {
    SL_LOG_FORWARD_MORE, /* forwarded something; there may be more */
    SL_LOG_FORWARD_IDLE, /* nothing to read now */
    SL_LOG_FORWARD_END,  /* all writers have closed */
};

/* Reads once and forwards the complete lines. */
enum sl_log_forward_result sl_log_forward_pump(struct sl_log_forward *forward);

/* Forwards the rest of the pipe, terminates an unfinished line, and closes. Does not wait for a
 * grandchild that keeps the pipe open. */
void sl_log_forward_fini(struct sl_log_forward *forward);

#endif
