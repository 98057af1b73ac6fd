/* Two processes with a packet device each, on one switch, stepped by the test on a clock that it
 * moves: host A has two reactors (nodes 0 and 1), host B has one (node 2). Each has a transport and
 * an upper layer that counts. Packets can be lost by kind, kept, changed, and sent again. */
#ifndef SL_TESTS_UNIT_NET_DPDK_HOSTS_H
#define SL_TESTS_UNIT_NET_DPDK_HOSTS_H

#include "net/dpdk/dpdk.h"
#include "net/dpdk/state.h"
#include "tests/support/fault_port.h"
#include "tests/support/unit.h"
#include "tests/support/wire_port.h"

#define NODES     3U
#define LINKS     16U
#define KINDS     16U
#define ADDRESS_A "10.1.0.1"
#define ADDRESS_B "10.1.0.2"
#define PORT_BASE 4000U
#define NEIGHBOUR 0U /* as a kind of packets: ARP */
#define STEP_NS   (100 * SL_CLOCK_NS_PER_US)

struct frame;

/* One connection, as the layer above has it. */
struct link {
    struct node *node;
    struct sl_conn *conn; /* NULL once it is closed */
    uint32_t opened, closed;
    int err;
    uint32_t made, sent; /* numbers of the last frame made, and how many were `sent` */
    uint32_t received, received_last;
    struct frame *first, **end; /* made, and not `sent` */
};

struct node {
    struct sl_reactor *reactor;
    struct sl_transport *transport;
    struct sl_endpoint bound; /* once it listens */
    struct link links[LINKS];
    uint32_t link_count;
    bool echoes;
    bool refuses_sink;
    bool has_strangers;              /* accepted connections are not welcome */
    _Alignas(8) uint8_t sink[32768]; /* one connection at a time receives what is long */
};

struct packet {
    uint32_t length;
    uint8_t bytes[2048];
};

struct hosts {
    struct sl_clock clock;
    struct sl_transport_options transport;
    const struct sl_dpdk_faults *faults;
    uint64_t now_ns;
    struct sl_wire *wire;
    struct sl_wire_host *a, *b;
    struct sl_wire_device *device_a, *device_b;
    struct node nodes[NODES];
    uint32_t lose_longer;                  /* 0: no packet is too long for the cable */
    uint32_t lose[KINDS], received[KINDS]; /* how many are to be lost yet; how many were sent */
    struct packet last[2][KINDS]; /* of each kind, what A, and B, sent last, also what was lost */
};

struct hosts_options {
    struct sl_wire_device_options device; /* of both; addresses and the like are filled in */
    /* Host A has a second device with the same address, the link of which is down, before or behind
     * the other. */
    bool has_twin_before, has_twin_behind;
    struct sl_transport_options transport;
    const struct sl_dpdk_faults *faults; /* of all devices, while the hosts are open; or NULL */
};

/* options: NULL for the defaults. */
void hosts_open(struct hosts *hosts, const struct hosts_options *options);
void hosts_close(struct hosts *hosts); /* all memory must be back */
/* A case on such hosts; further arguments are the options. */
#define HOSTS_CASE(name, ...)                                                                      \
    SL_CASE_USING(name, struct hosts, hosts, hosts_open, hosts_close,                              \
                  &(const struct hosts_options){__VA_ARGS__})

/* Host A dies, without a word, and begins anew. What its links were is left as it is. */
void hosts_restart_a(struct hosts *hosts);

void hosts_step(struct hosts *hosts, uint64_t step_ns);
void hosts_run_ms(struct hosts *hosts, uint32_t ms);
/* Steps until *counter is `value`; fails after 30 s of the hosts' time. */
void hosts_until(struct hosts *hosts, const uint32_t *counter, uint32_t value);

/* Any port where `port` is 0. */
void node_listen(struct node *node, uint16_t port);
struct link *node_connect(struct node *node, const char *address, uint16_t port);
struct link *node_connect_to(struct node *node, const char *address, uint16_t port,
                             uint32_t target);
void link_send(struct link *link, uint32_t count, uint32_t payload_bytes);
struct sl_dpdk *node_dpdk(struct node *node);
struct sl_dpdk_conn *link_conn(struct link *link);

/* Node 0 listens, node 2 is connected to it; the accepted link is node 0's first. */
struct link *hosts_pair(struct hosts *hosts);
struct link *server_of(struct hosts *hosts);
void expect_alive(struct hosts *hosts, struct link *client); /* what it sends arrives */

/* What host A or B sent last of a kind, once more; with what `change` makes of its header, sealed
 * again. */
enum { FROM_A, FROM_B };
void hosts_repeat(struct hosts *hosts, uint32_t from, enum sl_dpdk_kind kind);
void hosts_forge(struct hosts *hosts, uint32_t from, enum sl_dpdk_kind kind,
                 void (*change)(void *ctx, struct sl_dpdk_header *header), void *ctx);

#endif
