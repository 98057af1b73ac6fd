/* A port is one reactor's queues of one packet device. Implementations: net/dpdk/module (DPDK
 * devices), tests/support/wire_port.h (cables inside a process) and tests/support/fault_port.h
 * (injects faults into another port).
 *
 * Owner reactor. Nothing blocks, nothing makes an upcall. */
#ifndef SL_NET_DPDK_PORT_H
#define SL_NET_DPDK_PORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/dpdk/neighbour.h"
#include "reactor/reactor.h"

struct sl_dpdk_port;

#define SL_DPDK_BURST      32U /* packets received or sent by one call */
#define SL_DPDK_NAME_BYTES 64U

/* One packet, from its Ethernet header on, without the frame check sequence. A packet from receive
 * or reserve belongs to the caller until release, or until send takes it. */
struct sl_dpdk_packet {
    uint8_t *bytes;
    uint32_t length; /* received: its length; reserved: 0, and `room` bytes may be written */
    uint32_t room;
    uint16_t queue; /* received: receive queue; to send: transmit queue */
    bool checked;   /* received: the device has verified the UDP checksum */
    bool unchecked; /* to send, only with tx_checksum: the UDP checksum field is 0 and the device
                       fills it in */
    /* To send, only with tx_gather: `tail` follows `bytes` in the packet. The device reads it in
     * place, in memory registered with the port. The caller increments *pending (unless NULL). The
     * port decrements it on the same thread when the device has read the tail: only in
     * calls of receive, release, send, memory_unregister and close. */
    const uint8_t *tail;
    uint32_t tail_length;
    uint32_t *pending;
    void *token; /* of the port, not NULL */
};

/* The assignment of the device's queues to the reactors of a process. Queue q belongs to reactor q
 * % reactors, or (blocks) to q / (queues / reactors). If packets keep their queue number
 * (straight), the peer selects the transmit queue by it. */
struct sl_dpdk_queues {
    uint16_t queues; /* queue pairs of the device */
    uint16_t reactors;
    uint16_t index; /* of this reactor among `reactors` */
    bool blocks;
    bool straight; /* a packet sent on queue i arrives on queue i: memif, test cables */
};
/* A device's reactors have consecutive indices in their group; the first is this reactor's index
 * minus `index`. */

struct sl_dpdk_port_info {
    char name[SL_DPDK_NAME_BYTES]; /* "net_memif0"; unique in the process */
    struct sl_dpdk_self self;
    /* The UDP port of reactor 0; reactor i has port_base + i. The same for all devices of a medium.
     */
    uint16_t port_base;
    uint16_t frame_bytes_max; /* of a packet, from its Ethernet header on: MTU + 14 */
    uint16_t packets;         /* least number of packets that can be received and not released */
    bool tx_checksum;         /* fills in UDP checksums */
    /* Supports `tail`; only with tx_checksum: a sender that computes the checksum itself reads the
     * bytes, and copies them in the same pass. */
    bool tx_gather;
    bool rx_interrupt; /* after arm, a packet wakes the reactor */
    bool is_one_peers; /* the link leads to one process and goes down when that ends: memif */
    struct sl_dpdk_queues queues;
};

struct sl_dpdk_port_stats {
    uint64_t sent, received; /* packets */
    uint64_t dropped;        /* by the device, for lack of a buffer, as far as it counts them */
    uint64_t reserve_failed;
};

struct sl_dpdk_port_ops {
    /* Opens this reactor's ports of all devices of `medium` (the ctx of a struct sl_dpdk_medium):
     * at most `max`, into ports[]. Returns their number or an error, logged with cause and remedy:
     * NOT_FOUND (no device), INVALID (arguments), UNSUPPORTED, NO_MEMORY, IO. */
    int (*open)(void *medium, struct sl_reactor *reactor, struct sl_dpdk_port **ports,
                uint32_t max);
    void (*close)(struct sl_dpdk_port **port);
    void (*info)(const struct sl_dpdk_port *port, struct sl_dpdk_port_info *out);
    bool (*link_is_up)(struct sl_dpdk_port *port); /* slow: not for every turn */
    uint32_t (*receive)(struct sl_dpdk_port *port, struct sl_dpdk_packet *packets, uint32_t count);
    /* Frees packets that were received or reserved and not sent. Leaves *pending unchanged. */
    void (*release)(struct sl_dpdk_port *port, struct sl_dpdk_packet *packets, uint32_t count);
    /* Returns fewer than `count` if buffers are short. */
    uint32_t (*reserve)(struct sl_dpdk_port *port, struct sl_dpdk_packet *packets, uint32_t count);
    /* Returns how many packets it took, in order; fewer if the queue is full. */
    uint32_t (*send)(struct sl_dpdk_port *port, const struct sl_dpdk_packet *packets,
                     uint32_t count);
    /* Called before the reactor sleeps. False: packets are waiting. True with rx_interrupt: the
     * next packet wakes the reactor. True without: the caller must set a timer. */
    bool (*arm)(struct sl_dpdk_port *port);
    /* tx_gather: memory that `tail` may point to. Errors: NO_MEMORY, UNSUPPORTED. */
    int (*memory_register)(struct sl_dpdk_port *port, void *base, size_t bytes);
    void (*memory_unregister)(struct sl_dpdk_port *port, void *base);
    void (*stats)(const struct sl_dpdk_port *port, struct sl_dpdk_port_stats *out);
};

/* The first member of every port. */
struct sl_dpdk_port {
    const struct sl_dpdk_port_ops *ops;
    struct sl_reactor *reactor;
};

/* transport_options.medium of a dpdk transport: the source of its ports. NULL: the plug-in, with
 * options.dpdk. */
struct sl_dpdk_medium {
    const struct sl_dpdk_port_ops *ops;
    void *ctx; /* the `medium` of open */
};

#endif
