/* Rows of one table in this process, found by their keys and copied out a request's worth at a
 * time: what a ps does with a pull, without the network. One thread. */
#ifndef SL_BENCH_TABLE_READS_H
#define SL_BENCH_TABLE_READS_H

#include "bench/contest.h"
#include "core/err.h"

struct sl_bench_table_reads;

/* A table of `rows` rows of `dim` columns with Adagrad's slots, and uniform keys to draw from it.
 * *out is owned by the caller. Errors, logged: NO_MEMORY. */
int sl_bench_table_reads_create(uint64_t rows, uint32_t dim, uint32_t keys_of_request,
                                struct sl_bench_table_reads **out);

/* Nulls *reads, which may be NULL. */
void sl_bench_table_reads_destroy(struct sl_bench_table_reads **reads);

/* On the server's core; quantity "keys", 1/s. */
struct sl_bench_contestant sl_bench_table_reads_contestant(const char *name,
                                                           struct sl_bench_table_reads *reads);

#endif
