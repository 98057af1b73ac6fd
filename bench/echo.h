/* Bare echo (bench/bare.h) as a contestant. */
#ifndef SL_BENCH_ECHO_H
#define SL_BENCH_ECHO_H

#include "bench/bare.h"
#include "bench/contest.h"

/* What it measures, in this order. */
enum sl_bench_echo_quantity {
    SL_BENCH_ECHO_REQUESTS, /* 1/s */
    SL_BENCH_ECHO_P50,      /* us */
    SL_BENCH_ECHO_P99,
    SL_BENCH_ECHO_QUANTITIES
};

/* Both must outlive the contest. */
struct sl_bench_contestant sl_bench_echo_contestant(const char *name,
                                                    struct sl_bench_bare_echo *echo);

#endif
