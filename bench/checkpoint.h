/* The parts of starling-bench checkpoint (bench/README.md says what they measure). One thread. */
#ifndef SL_BENCH_CHECKPOINT_H
#define SL_BENCH_CHECKPOINT_H

#include <starling.h>

#include "bench/child.h"
#include "bench/ps_process.h"
#include "bench/report.h"

enum { SL_BENCH_CHECKPOINT_LEVELS = 2 };

struct sl_bench_checkpoint_options {
    struct sl_bench_common common;
    int part;
    uint64_t rows, dim;
    /* Of the load beside the checkpoints: */
    uint64_t keys, connections, depth;
    double pull_rate, push_rate; /* 0: closed loops */
    int polling;
    double touched;  /* share of the rows, between a full checkpoint and one that adds to it */
    const char *dir; /* NULL: $TMPDIR or /tmp */
};

struct sl_bench_checkpoint {
    const struct sl_bench_checkpoint_options *options;
    struct sl_bench_report *report;
    struct sl_bench_scratch scratch;
};

/* The checkpoints of one level, as the part on files has left them: the newest is a full one, of
 * all rows. */
struct sl_bench_checkpoint_files {
    uint32_t level;
    char dir[SL_BENCH_PATH_BYTES];
    char newest[SL_BENCH_PATH_BYTES + 64]; /* its folder */
    uint64_t bytes, adds_bytes;            /* of a full one, and of one that adds */
    float value;                           /* sl_bench_checkpoint_value, in all of them */
};

/* A ps on the server's core with a folder of its own in the scratch folder, or with none (NULL). */
int sl_bench_checkpoint_start(const struct sl_bench_checkpoint *bench,
                              const struct sl_bench_ps_options *checkpoints,
                              struct sl_bench_ps **out);

/* A client of that ps, with the table open. Errors, logged: as sl_client_create. */
int sl_bench_checkpoint_connect(const struct sl_bench_checkpoint *bench,
                                const struct sl_bench_ps *ps, struct sl_client **client,
                                struct sl_table **table);

/* Asks for a checkpoint and waits for it. Errors, logged. */
int sl_bench_checkpoint_ask(struct sl_client *client, uint64_t *number, double *seconds);

/* The first value of a row that each push of the part on files changes. Errors, logged. */
int sl_bench_checkpoint_value(const struct sl_bench_checkpoint *bench, struct sl_client *client,
                              struct sl_table *table, float *value);

/* Latency, memory and stalls of a ps that serves, with and without a checkpoint in progress. */
int sl_bench_checkpoint_measure_serving(struct sl_bench_checkpoint *bench);

/* Bytes of full checkpoints and of such as add. files[LEVELS]: packed ones first, then such that
 * are not. */
int sl_bench_checkpoint_measure_files(struct sl_bench_checkpoint *bench,
                                      struct sl_bench_checkpoint_files *files);

/* From the start of a ps to the first row, beside read() and memcpy. */
int sl_bench_checkpoint_measure_restore(struct sl_bench_checkpoint *bench,
                                        const struct sl_bench_checkpoint_files *files);

#endif
