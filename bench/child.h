/* Other programs as children of a benchmark: on a core of their own, killed by the kernel when the
 * benchmark dies, their standard error ours. One thread: the kernel means the thread that forked.
 */
#ifndef SL_BENCH_CHILD_H
#define SL_BENCH_CHILD_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/err.h"

#define SL_BENCH_PATH_BYTES 1024

struct sl_bench_child {
    pid_t pid; /* 0: none runs */
    int in;    /* write end of its standard input; -1: it is /dev/null */
    int out;   /* read end of its standard output; -1: it goes to /dev/null */
};

/* A command line, with NULL at its end. Zeros: empty. Not to be copied. */
struct sl_bench_arguments {
    const char *items[64];
    char text[8192];
    uint32_t count, used;
};

/* One more argument. What does not fit is an assertion. */
void sl_bench_arguments_add(struct sl_bench_arguments *arguments, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

struct sl_bench_child_options {
    const char *const *argv;        /* up to NULL; argv[0] is a path */
    const char *const *environment; /* "NAME=value" up to NULL, put over ours; or NULL */
    const char *const *without;     /* names of our variables that it must not have; or NULL */
    int core;                       /* that it is pinned to with all its threads; -1: any */
    const cpu_set_t *cores;         /* several, in its place; or NULL */
    bool reads;                     /* its standard output is read */
    bool writes;                    /* its standard input is written */
    int log_fd; /* where its standard output and error go: it then runs in "/"; 0: nowhere */
};

/* Where the program is: on the PATH, and in /usr/sbin and /sbin, which need not be on it. */
bool sl_bench_child_find(const char *name, char path[SL_BENCH_PATH_BYTES]);

/* The program of this name beside this one. */
bool sl_bench_child_beside(const char *name, char path[SL_BENCH_PATH_BYTES]);

/* The beginning of a command line: Python and a script of bench/, "report.py", as it is installed
 * or in the source tree. Errors, logged: NOT_FOUND. */
int sl_bench_child_script(const char *name, struct sl_bench_arguments *argv);

/* Errors, logged: IO. A program that cannot be executed ends with status 127. */
int sl_bench_child_start(const struct sl_bench_child_options *options, struct sl_bench_child *out);

/* Reads a line of its output, which ends with NUL in place of its end. Errors: CLOSED (it ended
 * before), DEADLINE, TOO_LARGE. */
int sl_bench_child_line(struct sl_bench_child *child, char *line, size_t line_bytes,
                        uint32_t timeout_ms);

/* Reads its output to the end, and waits for its end; at the deadline it is killed. *text, the
 * caller's to free, ends with NUL. Errors, logged: DEADLINE, CLOSED (it ended with another status
 * than 0), TOO_LARGE, NO_MEMORY. */
int sl_bench_child_collect(struct sl_bench_child *child, uint32_t timeout_ms, char **text);

/* Waits for the end of one that is not read. Errors as above. */
int sl_bench_child_wait(struct sl_bench_child *child, uint32_t timeout_ms);

/* Ends it, if it runs: SIGTERM, after 2 s SIGKILL. */
void sl_bench_child_stop(struct sl_bench_child *child);

/* A port of loopback on which nobody listens; another may still take it. Errors, logged: IN_USE. */
int sl_bench_child_port(uint16_t *port);

/* Whether a process listens there. */
bool sl_bench_child_listens(uint16_t port);

/* A folder for a benchmark's files, which is removed when the benchmark ends, however that happens.
 * One thread. */
struct sl_bench_scratch {
    char path[SL_BENCH_PATH_BYTES - 64]; /* room for a name in it */
    pid_t cleaner;                       /* 0: none */
    int pipe;
};

/* Makes a folder "starling-bench-NAME-…" in `parent`; NULL: in $TMPDIR or /tmp. Errors, logged: IO;
 * in any case *scratch needs fini. */
int sl_bench_scratch_init(struct sl_bench_scratch *scratch, const char *parent, const char *name);

/* Removes it with all that is in it, and waits for that. Does nothing with one of zeros. */
void sl_bench_scratch_fini(struct sl_bench_scratch *scratch);

#endif
