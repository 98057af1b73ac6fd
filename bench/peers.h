/* Other systems that are measured beside Starling, in the same run: Redis, iperf3 and perftest, by
 * bench/peers.py, which pins their programs as Starling's are. A system that is not installed is
 * left out, and a line names its package. One thread. */
#ifndef SL_BENCH_PEERS_H
#define SL_BENCH_PEERS_H

#include "bench/child.h"
#include "bench/contest.h"

struct sl_bench_peer {
    struct sl_bench_child script; /* pid 0: the system is left out */
};

/* Starts the script with these arguments, "redis --rows=1000", and waits until it is ready. Errors,
 * logged: IO, DEADLINE, CLOSED, NOT_FOUND (python3). */
int sl_bench_peer_start(struct sl_bench_peer *peer, const struct sl_bench_common *common,
                        const char *format, ...) __attribute__((format(printf, 3, 4)));
void sl_bench_peer_stop(struct sl_bench_peer *peer);

static inline bool sl_bench_peer_is_there(const struct sl_bench_peer *peer)
{
    return peer->script.pid != 0;
}

/* The output of the script for one load. */
enum sl_bench_peer_kind {
    SL_BENCH_PEER_REQUESTS, /* "requests" and "keys", 1/s */
    SL_BENCH_PEER_BYTES,    /* "bytes", 1/s */
    SL_BENCH_PEER_MESSAGES, /* "bytes" and "messages", 1/s */
    SL_BENCH_PEER_TRIPS,    /* "p50" and "p99", us */
};

struct sl_bench_peer_load {
    struct sl_bench_peer *peer;
    enum sl_bench_peer_kind kind;
    char words[64]; /* as bench/peers.py reads them: "1 64" */
};

/* *load must outlive the contest; its peer is there. */
struct sl_bench_contestant sl_bench_peer_contestant(const char *name,
                                                    struct sl_bench_peer_load *load);

/* The RDMA device that is measured. */
struct sl_bench_rdma_device {
    char name[64];    /* "mlx5_0" */
    char address[64]; /* IPv4, of its network interface */
    int gid; /* index of the address in the GID table of port 1, of RoCE v2; -1: there is none */
};

/* The device of this name, or the first that can be measured; name, address: NULL, or what the user
 * says. Errors, printed: NOT_FOUND. */
int sl_bench_peer_rdma_device(const char *name, const char *address,
                              struct sl_bench_rdma_device *out);

#endif
