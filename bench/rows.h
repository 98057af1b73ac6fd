/* Tables and rows by the client library, as all loads need them before anything is timed. One
 * thread, the client's. */
#ifndef SL_BENCH_ROWS_H
#define SL_BENCH_ROWS_H

#include <starling.h>

#include "core/err.h"

#define SL_BENCH_ROWS_TIMEOUT_MS 60000

/* A sparse table whose first values are small and random. */
struct sl_table_spec sl_bench_rows_table(const char *name, uint64_t dim,
                                         enum sl_optimizer_kind optimizer);

/* Submits a step, unless err is set, waits for it, and destroys it. Returns err, or the step's
 * error, logged as "what: ...". */
int sl_bench_rows_finish(struct sl_step *step, int err, const char *what);

/* Creates the rows of the first `rows` ranks (bench/workload.h) by reading them. Errors, logged. */
int sl_bench_rows_create(struct sl_client *client, struct sl_table *table, uint64_t rows);

#endif
