/* One child process of the launcher, in a process group of its own, so that a Ctrl-C at the
 * terminal reaches the launcher only, which passes it on once. Killed by the kernel when the
 * launcher dies. Main thread: the kernel means the thread that forked. */
#ifndef SL_TOOLS_LAUNCH_CHILD_H
#define SL_TOOLS_LAUNCH_CHILD_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "core/err.h"

struct sl_child {
    pid_t pid; /* 0: not running */
    int in;    /* write end of its standard input, or -1: /dev/null */
    int out;   /* read end of its standard output, non-blocking, or -1: the log */
    int err;   /* likewise of its standard error */
};

struct sl_child_options {
    char *const *argv; /* up to NULL */
    int log_fd;        /* where output goes that is not read through a pipe, or -1 */
    bool show_out;     /* standard output through a pipe even where there is a log */
    bool hold_in;      /* standard input is a pipe that ends when the launcher closes it or dies */
};

/* Errors, with reason: NOT_FOUND (no such program), IO. */
int sl_child_start(const struct sl_child_options *options, struct sl_child *out, char *reason,
                   size_t reason_bytes);

#endif
