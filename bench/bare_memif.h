/* Packets between two processes over memif, with rte_ethdev and nothing of Starling's on the way:
 * what the DPDK transport is held against. A program of its own, since starling-bench has nothing
 * of DPDK: bench/memif.h runs it. Each of the two processes has one thread on a core of its own,
 * which polls. */
#ifndef SL_BENCH_BARE_MEMIF_H
#define SL_BENCH_BARE_MEMIF_H

#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/err.h"
#include "core/metric.h"

#define SL_BENCH_BARE_BURST       32U
#define SL_BENCH_BARE_SENDERS_MAX 16U
#define SL_BENCH_BARE_HEAD_BYTES  74U /* as much as Ethernet, IPv4, UDP and our header have */

enum sl_bench_bare_part {
    /* Frames in packets, one way; each is copied from an array of its sender's, and read: */
    SL_BENCH_BARE_STREAM, /* in the packets that it came in */
    SL_BENCH_BARE_MOVED,  /* in an array of the receiver's, to where it was copied */
    /* Packets and their answers: */
    SL_BENCH_BARE_TRIPS, /* one at a time */
    SL_BENCH_BARE_RATE,  /* as many as `depth` under way */
    SL_BENCH_BARE_PARTS
};

struct sl_bench_bare {
    enum sl_bench_bare_part part;
    uint32_t packet_bytes; /* from the Ethernet header on, at most */
    uint32_t frame_bytes;  /* of a frame's payload */
    uint32_t depth;        /* arrays of each sender; packets under way */
    uint32_t senders;      /* each with a device of its own, all on one thread */
    double warm_up, seconds;
    const char *folder; /* of memif's sockets */
    int server_core, client_core;
};

struct sl_bench_bare_result {
    int err;
    double seconds;
    uint64_t each[SL_BENCH_BARE_SENDERS_MAX]; /* frames of each sender; packets answered */
    struct sl_metric_histogram latency;       /* TRIPS, in ns */
};

/* ---- bare_memif_device.c --------------------------------------------------------------------- */

struct sl_bench_bare_device {
    uint16_t id;
    struct rte_mempool *pool;
};

/* Starts DPDK in this process and makes its ends of all devices, whose links are then up, or will
 * be. Errors, logged: IO, NO_MEMORY. */
int sl_bench_bare_open(const struct sl_bench_bare *bare, bool is_server,
                       struct sl_bench_bare_device *devices);
bool sl_bench_bare_is_up(const struct sl_bench_bare_device *device);

/* ---- bare_memif_stream.c, bare_memif_pairs.c ------------------------------------------------- */

/* Each of these runs one side; who measures fills *out, the other does not return. */
void sl_bench_bare_send_stream(const struct sl_bench_bare *bare,
                               const struct sl_bench_bare_device *devices);
int sl_bench_bare_take_stream(const struct sl_bench_bare *bare,
                              const struct sl_bench_bare_device *devices,
                              struct sl_bench_bare_result *out);
void sl_bench_bare_answer(const struct sl_bench_bare *bare,
                          const struct sl_bench_bare_device *device);
int sl_bench_bare_ask(const struct sl_bench_bare *bare, const struct sl_bench_bare_device *device,
                      struct sl_bench_bare_result *out);

#endif
