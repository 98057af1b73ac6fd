/* Starts a child process in its own process group, so that Ctrl-C reaches only the launcher, which
 * forwards it once. The kernel kills the child when the thread that forked it ends: use the main
 * thread. */
#ifndef SL_PROGRAMS_LAUNCH_CHILD_H
#define SL_PROGRAMS_LAUNCH_CHILD_H

#include <stdbool.h>
#include <sys/types.h>

#include "core/reason.h"
#include "programs/launch/words.h"

struct sl_child {
    pid_t pid; /* 0: not running */
    int in;    /* write end of its standard input; -1: /dev/null */
    int out;   /* read end of its standard output, non-blocking; -1: the log */
    int err;   /* the same for standard error */
};

struct sl_child_options {
    char *const *argv;                /* NULL-terminated */
    const struct sl_words *variables; /* NAME=VALUE; they replace those of this process */
    int log_fd;                       /* for output without a pipe, or -1 */
    bool show_out;                    /* pipe for standard output even with a log */
    bool hold_in; /* standard input is a pipe, which ends when the launcher closes it or dies */
};

/* Returns the path of a program of Starling: in bin_dir, unless NULL; else beside this executable;
 * else the bare name, for the PATH. The caller frees it. NULL: no memory. */
char *sl_child_find_program(const char *name, const char *bin_dir);

/* Errors, with reason, which names the program and this host: NOT_FOUND (no such program), IO,
 * NO_MEMORY. */
int sl_child_start(const struct sl_child_options *options, struct sl_child *out,
                   struct sl_reason *reason);

#endif
