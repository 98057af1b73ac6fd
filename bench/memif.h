/* What the DPDK transport is held against: bare packets over memif, by starling-bare-memif beside
 * this program. One thread. */
#ifndef SL_BENCH_MEMIF_H
#define SL_BENCH_MEMIF_H

#include <stdbool.h>
#include <stdint.h>

#include "bench/report.h"

#define SL_BENCH_MEMIF_SENDERS_MAX 16U

enum sl_bench_memif_part {
    SL_BENCH_MEMIF_STREAM, /* frames one way, read in the packets that they came in */
    SL_BENCH_MEMIF_MOVED,  /* read where they were put together again */
    SL_BENCH_MEMIF_TRIPS,  /* packets and answers, one at a time */
    SL_BENCH_MEMIF_RATE,   /* or so many under way */
};

struct sl_bench_memif {
    enum sl_bench_memif_part part;
    const char *folder;    /* for sockets */
    uint32_t packet_bytes; /* the longest, from the Ethernet header on */
    uint32_t frame_bytes;  /* a multiple of 64 */
    uint32_t depth;        /* arrays that each sender sends from in turns; packets under way */
    uint32_t senders;      /* each has a device of its own; one thread drives all */
};

struct sl_bench_memif_result {
    double frames_per_s; /* of all senders; or packets that were answered */
    double slowest_frames_per_s;
    double p50_us, p99_us; /* TRIPS */
};

/* Whether it is there: it is built where DPDK is. */
bool sl_bench_memif_is_there(void);

/* Errors, logged: IO, DEADLINE, CLOSED, PROTOCOL (what it printed). */
int sl_bench_memif_run(const struct sl_bench_memif *memif, const struct sl_bench_common *common,
                       struct sl_bench_memif_result *out);

#endif
