/* perftest (Debian's package of that name), the usual measure of RDMA devices: a server and a
 * client on the same device, each pinned as Starling's two sides are, and the client's figures. One
 * thread. */
#ifndef SL_BENCH_PERFTEST_H
#define SL_BENCH_PERFTEST_H

#include <stdbool.h>
#include <stdint.h>

#include "bench/contest.h"
#include "bench/rdma_device.h"

enum sl_bench_perftest_tool {
    SL_BENCH_PERFTEST_WRITE_BW,
    SL_BENCH_PERFTEST_READ_BW,
    SL_BENCH_PERFTEST_SEND_BW,
    SL_BENCH_PERFTEST_SEND_LAT,
};

struct sl_bench_perftest {
    enum sl_bench_perftest_tool tool;
    const struct sl_bench_rdma_device *device;
    uint32_t bytes;
    uint32_t depth; /* messages under way; not of SEND_LAT, which has one */
    bool events;    /* it sleeps until something is complete, instead of asking all the time */
    double per_s; /* messages, as the last repeat had it; 0 at first: how long the next shall be */
};

/* Whether all of it is installed; says so where it is not. */
bool sl_bench_perftest_is_there(void);

/* Its quantities: of SEND_LAT p50 and p99 of the round trip in us (it prints half of it), of the
 * others bytes and messages, both 1/s. *test must outlive the contest. */
struct sl_bench_contestant sl_bench_perftest_contestant(const char *name,
                                                        struct sl_bench_perftest *test);

/* ---- What it prints ----------------------------------------------------------------------------
 */

struct sl_bench_perftest_rate {
    double bytes_per_s, messages_per_s;
};

struct sl_bench_perftest_latency {
    double half_us_p50, half_us_p99;
};

/* The columns are found by their names, which differ a little from version to version. Errors:
 * PROTOCOL: there is no such table, or a number in it is none. */
int sl_bench_perftest_read_rate(const char *text, uint64_t bytes,
                                struct sl_bench_perftest_rate *out);
int sl_bench_perftest_read_latency(const char *text, struct sl_bench_perftest_latency *out);

#endif
