/* A folder for a benchmark's files, which is removed when the benchmark ends, however that happens.
 * One thread. */
#ifndef SL_BENCH_SCRATCH_H
#define SL_BENCH_SCRATCH_H

#include <sys/types.h>

#include "bench/child.h"
#include "core/err.h"

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
