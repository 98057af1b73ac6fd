/* Pushes to one dense table in this process: what a ps does with a dense push, without the network.
 * One thread. */
#ifndef SL_BENCH_TABLE_APPLIES_H
#define SL_BENCH_TABLE_APPLIES_H

#include "bench/contest.h"
#include "ps/optimizer/optimizer.h"

struct sl_bench_table_applies {
    uint64_t bytes; /* of a push, and of the table's values */
    uint32_t depth; /* gradients of so many pushes, in turns */
    enum sl_optimizer_kind optimizer;
    const float *gradients; /* [depth][bytes / 4] */
};

/* Makes a table and pushes to it on the server's core; quantity "bytes", 1/s. ctx must stay. */
struct sl_bench_contestant
sl_bench_table_applies_contestant(const char *name, struct sl_bench_table_applies *applies);

#endif
