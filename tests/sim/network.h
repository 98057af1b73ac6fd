/* A network inside one thread, on a virtual clock: hosts, and between them connections with the
 * contract of net/transport.h. Everything that happens is decided by one seed. Within a connection
 * nothing is reordered, doubled or lost but by its end; across connections everything may be.
 *
 * A transport is opened on a host by giving the host as options.medium. Hosts are found by address
 * (sl_sim_network_address), listeners by port. Frames leave at the network's speed, arrive after a
 * delay, and wait at a receiver that does not poll, up to a window. The network checks what the
 * contract asks of those above it: a frame's memory does not change until `sent`, memory that was
 * named by `sink` is left alone until `received`, messages are released once. What was released is
 * overwritten. One thread. Allocates. */
#ifndef SL_TESTS_SIM_NETWORK_H
#define SL_TESTS_SIM_NETWORK_H

#include <stdbool.h>
#include <stdint.h>

#include "net/transport.h"
#include "tests/sim/costs.h"
#include "tests/sim/ether.h"

#define SL_SIM_PORT_BASE 3333 /* of packet devices: where reactor 0 listens */
#define SL_SIM_RAILS_MAX 2

struct sl_sim_network_options {
    /* Transports are DPDK's, on packet devices: ether.h, dpdk.h. Else they are the network's own.
     */
    bool has_packets;
    /* Memory that is sent may change, and memory that is received into belongs to others too: a
     * payload that has landed in part stays there in part. */
    bool is_one_sided;
    struct sl_sim_ether_options ether;
    uint64_t seed;
    uint32_t delay_us_min, delay_us_max; /* one way, of most frames */
    uint32_t late_permille, late_us_max; /* and of some */
    uint32_t bytes_per_us;               /* of one direction of a connection */
    uint32_t link_bytes_per_ms;     /* of each direction of the link that the long payloads of all
                                     * connections share; 0: each goes at the speed of its own */
    uint32_t window_bytes;          /* that a receiver takes while it does not poll */
    uint32_t short_permille;        /* bursts of which a part is taken */
    uint32_t break_per_10000;       /* frames with which their connection breaks */
    uint32_t connect_fail_permille; /* attempts that fail for no reason */
    uint32_t host_count;
    uint32_t peer_timeout_ms; /* of transports that ask for the default; 0: 10 s */
    /* One-sided WRITEs: the target's processor sees them so much later than its device has them, at
     * most, unless they are flushed. */
    uint32_t place_us_max;
    uint32_t region_fail_permille; /* regions for which a device has no memory */
    /* Turns take time, and frames leave when their turn has come to them; their delay and speed are
     * those of the costs, and nothing is drawn. NULL: turns take none. */
    const struct sl_sim_costs *costs;
    uint32_t server_count; /* with costs: the first hosts are servers */
};

/* One frame, as it leaves its sender or reaches its receiver. */
struct sl_sim_frame {
    uint64_t pair;     /* of the connection */
    bool by_connector; /* the side that sends it */
    bool delivered;
    uint32_t from, to; /* hosts */
    struct sl_frame header;
    const uint8_t *payload; /* header.payload_bytes bytes */
};

/* What an observer is told. */
struct sl_sim_watch {
    void (*frame)(void *ctx, const struct sl_sim_frame *frame);
    /* A one-sided operation has reached the target's device, and counts as done there. */
    void (*operation)(void *ctx, uint32_t from, uint32_t to, int kind, uint32_t bytes);
    /* One side of a connection is told that it has ended. */
    void (*ended)(void *ctx, uint32_t host, uint64_t pair, bool connector, int err);
    /* Something will happen on this host at that time: step it then. */
    void (*wake)(void *ctx, uint32_t host, uint64_t at_ns);
    void (*packet)(void *ctx, const struct sl_sim_passage *passage);
    /* A transport has broken its contract. */
    void (*breach)(void *ctx, const char *what);
    /* A server has closed a connection of whose frame more came a moment ago. */
    void (*cut_off)(void *ctx, const char *peer);
    void *ctx;
};

struct sl_sim_network;

/* Asserts that there is memory. */
struct sl_sim_network *sl_sim_network_create(const struct sl_sim_network_options *options,
                                             const struct sl_sim_watch *watch);

/* All transports are closed; asserts that no message was kept. Nulls *network. */
void sl_sim_network_destroy(struct sl_sim_network **network);

uint64_t sl_sim_network_now(const struct sl_sim_network *network);
/* Do not advance beyond sl_sim_network_due, when the next packet reaches the switch of net/dpdk's
 * devices. */
void sl_sim_network_advance(struct sl_sim_network *network, uint64_t now_ns);
uint64_t sl_sim_network_due(const struct sl_sim_network *network);

/* The medium of a host's transports; place: 0, or 1 for a second one of the same reactor. */
void *sl_sim_network_medium(struct sl_sim_network *network, uint32_t host, uint32_t place);

/* With costs: the processor time of the turn that the caller is about to begin. */
struct sl_sim_meter *sl_sim_network_meter(struct sl_sim_network *network);

/* What transports are opened with, and where a host listens: under the scheme of TCP always, which
 * is the one that leads to the coordinator too. */
const struct sl_transport_ops *sl_sim_network_transport(const struct sl_sim_network *network);
void sl_sim_network_endpoint(const struct sl_sim_network *network, uint32_t host,
                             struct sl_endpoint *out);

/* "10.0.1.7"; the host's device in a second network, rail 1, has "10.1.1.7". */
void sl_sim_network_address(uint32_t host, char *text, size_t text_bytes);
void sl_sim_network_rail_address(uint32_t host, uint32_t rail, char *text, size_t text_bytes);

/* When a reactor's transports have something to do next; SL_CLOCK_NEVER: not by themselves. */
uint64_t sl_sim_network_next(const struct sl_sim_network *network, uint32_t host,
                             const struct sl_reactor *reactor);

/* Is the host's end of a connection open there? Counts connections of all its transports. */
uint32_t sl_sim_network_connections(const struct sl_sim_network *network, uint32_t host);

/* From now on nothing goes from one host to the other, until as many heals were called; both ends
 * of a connection on which nothing is acknowledged for their peer_timeout end with DEADLINE. rail:
 * SL_SIM_RAILS_MAX: on all rails. */
void sl_sim_network_block(struct sl_sim_network *network, uint32_t from, uint32_t to,
                          uint32_t rail);
void sl_sim_network_heal(struct sl_sim_network *network, uint32_t from, uint32_t to, uint32_t rail);

/* Breaks one connection of the host, or all: both sides are told, each at a time of its own within
 * `told_us_max`, or, over packets, find out by themselves; what was on its way may or may not
 * arrive. Returns within what time both know, in ns. */
uint64_t sl_sim_network_break(struct sl_sim_network *network, uint32_t host, bool all,
                              uint32_t told_us_max);

/* The process on the host is gone from one moment to the next. Its peers are told soon or, when the
 * machine went with it (`silent`), after their peer_timeout. Its own transports see the end of
 * every connection, and no connect succeeds, until sl_sim_network_revive: for freeing its memory.
 */
void sl_sim_network_kill(struct sl_sim_network *network, uint32_t host, bool silent);

/* Its transports are closed; another process may run there. */
void sl_sim_network_revive(struct sl_sim_network *network, uint32_t host);

/* From now on no connection breaks, and no connect fails, by chance; and nobody shares a link. */
void sl_sim_network_calm(struct sl_sim_network *network);

/* Connects to the host fail from now on, while `refuse` is set. */
void sl_sim_network_refuse(struct sl_sim_network *network, uint32_t host, bool refuse);

extern const struct sl_transport_ops sl_sim_transport_ops;

/* The same, with one-sided operations: as RDMA's. */
extern const struct sl_transport_ops sl_sim_device_ops;

#endif
