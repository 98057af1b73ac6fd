/* Other programs as children of a benchmark, killed by the kernel when the benchmark dies, their
 * standard error ours; free ports; and a folder. One thread: the kernel means the thread that
 * forked. */
#ifndef SL_BENCH_CHILD_H
#define SL_BENCH_CHILD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/err.h"

#define SL_BENCH_PATH_BYTES 1024

/* A command line, with NULL at its end. Zeros: empty. Not to be copied. */
struct sl_bench_arguments {
    const char *items[64];
    char text[8192];
    uint32_t count, used;
};

/* One more argument. What does not fit is an assertion. */
void sl_bench_arguments_add(struct sl_bench_arguments *arguments, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The file of this name beside this program, which can be accessed in this mode (X_OK). */
bool sl_bench_child_beside(const char *name, int mode, char path[SL_BENCH_PATH_BYTES]);

/* A script of bench/, "report.py", as it is installed or in the source tree. */
void sl_bench_child_script(const char *name, char path[SL_BENCH_PATH_BYTES]);

/* Starts the program, which is looked for along PATH. prints: its standard output is ours, else
 * /dev/null. One that cannot be executed ends with status 127. Errors, logged: IO. */
int sl_bench_child_start(const struct sl_bench_arguments *arguments, bool prints, pid_t *out);

/* Waits for its end; at the deadline it is killed. *pid is then 0. Errors, logged: DEADLINE, CLOSED
 * (it ended with another status than 0). */
int sl_bench_child_wait(pid_t *pid, uint32_t timeout_ms);

/* Ends it, unless *pid is 0: SIGTERM, after 2 s SIGKILL. */
void sl_bench_child_stop(pid_t *pid);

/* A port of loopback on which nobody listens; another may still take it. Errors, logged: IN_USE. */
int sl_bench_child_port(uint16_t *port);

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
