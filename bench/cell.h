/* One contestant that is a load on a ps: its loads, one thread each, are opened when it is first
 * run, and take no processor time while others run. One thread. */
#ifndef SL_BENCH_CELL_H
#define SL_BENCH_CELL_H

#include "bench/contest.h"
#include "bench/load.h"
#include "bench/ps_process.h"

#define SL_BENCH_CELL_LOADS_MAX 64

/* Measurements of a cell, in this order. */
enum sl_bench_cell_quantity {
    SL_BENCH_CELL_REQUESTS,
    SL_BENCH_CELL_KEYS,
    SL_BENCH_CELL_P50,
    SL_BENCH_CELL_P99,
    SL_BENCH_CELL_P999,
    SL_BENCH_CELL_CLIENT_CPU, /* of all loads' threads */
    SL_BENCH_CELL_SERVER_CPU, /* of the whole ps; only of one that we have started */
    SL_BENCH_CELL_QUANTITIES
};
extern const struct sl_bench_quantity sl_bench_cell_quantities[SL_BENCH_CELL_QUANTITIES];

struct sl_bench_cell {
    char name[SL_BENCH_NAME_BYTES];
    /* Of all its loads together: connections and rate are shared out among them. What it points to
     * must outlive the cell. */
    struct sl_bench_load_options options;
    struct sl_bench_ps *ps; /* NULL: a cluster that was there before; else it gives the coordinator
                             */
    bool parks;             /* the ps is parked while the cell does not run */
    uint32_t load_count;    /* 1 to SL_BENCH_CELL_LOADS_MAX; at most the connections */
    int cores[SL_BENCH_CELL_LOADS_MAX];

    struct sl_bench_load *loads[SL_BENCH_CELL_LOADS_MAX];
    struct sl_bench_load_result result; /* of one load, in the last round */
    struct sl_metric_histogram round;   /* latency in the last round */
    struct sl_metric_histogram latency; /* in all of them */
};

/* Fills a contestant; ctx is the cell, which must stay. Before its first run. */
struct sl_bench_contestant sl_bench_cell_contestant(struct sl_bench_cell *cell);

/* Closes its loads. A cell of zeros, or one that never ran, has none. */
void sl_bench_cell_fini(struct sl_bench_cell *cell);

#endif
