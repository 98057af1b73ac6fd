/* Packet devices of a simulated network's hosts, and the switch between them: what sl_dpdk_ops runs
 * on. Packets may be lost, doubled, late, overtaken, corrupted and forged; queues fill up; cables
 * have a speed. All of it is decided by the network's seed, on its clock. A port is strict with who
 * uses it, as tests/support/wire_port is. One thread. Allocates. */
#ifndef SL_TESTS_SIM_ETHER_H
#define SL_TESTS_SIM_ETHER_H

#include "net/dpdk/port.h"

#define SL_SIM_ETHER_FRAME_MAX 9014U
#define SL_SIM_ETHER_PLACES    2U /* devices of a host: for two transports of one reactor */

struct sl_sim_network;
struct sl_sim_ether;
struct sl_sim_device;

/* By which queue a packet arrives. */
enum sl_sim_steering {
    SL_SIM_STEERING_STRAIGHT, /* that by which it left, modulo their number */
    SL_SIM_STEERING_SCATTER,  /* by a hash of addresses and UDP ports */
    SL_SIM_STEERING_FIRST,    /* queue 0, all of them */
    SL_SIM_STEERING_COUNT
};

/* How devices and the switch are; speed, delays and the switch's memory are the network's. */
struct sl_sim_ether_options {
    bool is_v6;
    bool blocks, gathers, sums, wakes; /* of struct sl_dpdk_queues and sl_dpdk_port_info; a device
                                        * that gathers also sums */
    bool moves;                        /* a host that is started again has another address */
    enum sl_sim_steering steering;
    uint16_t queues_each;   /* of each reactor */
    uint16_t frame_max;     /* bytes of a packet */
    uint16_t queue_packets; /* that wait in a receive queue; more are lost */
    uint16_t send_packets;  /* that wait to be sent */
    uint16_t packets;       /* that a port lends */
    /* Of 1000 packets. */
    uint32_t lost, doubled, overtaken, corrupted;
    uint32_t ancient; /* come again seconds later */
    uint32_t forged;  /* followed by one with wild numbers, from the same address */
    /* Followed by one of somebody who is no host: strangers.h. */
    uint32_t strangers;
};

/* One packet, as it leaves. */
struct sl_sim_passage {
    uint32_t from, to; /* hosts */
    const uint8_t *bytes;
    uint32_t length;
    uint64_t at_ns; /* when it arrives; SL_CLOCK_NEVER: never */
    const char *fate;
};

struct sl_sim_ether *sl_sim_ether_create(struct sl_sim_network *network);
void sl_sim_ether_destroy(struct sl_sim_ether **ether); /* all ports are closed */

/* Of the host's device number `place`. */
struct sl_dpdk_medium *sl_sim_ether_medium(struct sl_sim_ether *ether, uint32_t host,
                                           uint32_t place);
void sl_sim_ether_address(const struct sl_sim_ether *ether, uint32_t host, char *text,
                          size_t text_bytes);

/* When the next packet for this reactor is there to be received. */
uint64_t sl_sim_ether_next(const struct sl_sim_ether *ether, uint32_t host,
                           const struct sl_reactor *reactor);

/* When the next packet reaches the switch; and the switch forwards all that have until now. */
uint64_t sl_sim_ether_due(const struct sl_sim_ether *ether);
void sl_sim_ether_advance(struct sl_sim_ether *ether);

/* What waits at the host is lost; what is on its way is not, and reaches the process that is there
 * then. */
void sl_sim_ether_forget(struct sl_sim_ether *ether, uint32_t host);
/* No more strangers come. */
void sl_sim_ether_calm(struct sl_sim_ether *ether);
/* Another process begins there. */
void sl_sim_ether_revive(struct sl_sim_ether *ether, uint32_t host);

/* The host of a port. */
uint32_t sl_sim_ether_host(const struct sl_dpdk_port *port);
struct sl_sim_network *sl_sim_ether_network(const struct sl_dpdk_port *port);

#endif
