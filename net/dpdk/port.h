/* A port: one reactor's queues of one packet device, as the protocol sees them. net/dpdk/module has
 * the ports of DPDK's devices, tests/support/wire_port.h has cables inside one process, and
 * port_fault.h one that loses, reorders, doubles and corrupts what goes through another.
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

#define SL_DPDK_BURST      32U /* packets that are received or sent by one call */
#define SL_DPDK_NAME_BYTES 64U

/* Memory of one packet, from its Ethernet header on, without the frame check sequence. What receive
 * and reserve gave out is the caller's until release, or until send took it. */
struct sl_dpdk_packet {
    uint8_t *bytes;
    uint32_t length; /* received: as long as it is; reserved: 0, and `room` bytes may be written */
    uint32_t room;
    uint16_t queue; /* received: the queue it came on. To be sent: the one that it leaves by */
    bool checked;   /* received: the device has found the UDP checksum right */
    bool unchecked; /* to be sent: the UDP checksum field has 0, and the device fills it in. Only
                     * where `sums` of the port's facts */
    /* To be sent, only where `gathers` of the port's facts: this follows `bytes` in the packet and
     * is read where it lies, in memory registered with the port. *pending (when not NULL) was
     * incremented by the caller, and is decremented, on the same thread, when the device has read
     * it: not before release, poll, send or close. */
    const uint8_t *tail;
    uint32_t tail_length;
    uint32_t *pending;
    void *token; /* the port's, not NULL */
};

/* How the device's queues belong to the reactors of this process: the peer chooses by it the queue
 * to send by, where a packet that leaves by queue i arrives by queue i. Queue q belongs to reactor
 * q % reactors, or (blocks) to q / (queues / reactors). */
struct sl_dpdk_queues {
    uint16_t queues; /* of the device, each way */
    uint16_t reactors;
    uint16_t index; /* this one's among them */
    bool blocks;
    bool straight; /* a packet that leaves by queue i arrives by queue i: memif, cables */
};
/* The reactors of a device follow one another in their group: this one's index there, less `index`,
 * is that of the first. */

struct sl_dpdk_port_info {
    char name[SL_DPDK_NAME_BYTES]; /* "net_memif0"; no two of a process have the same */
    struct sl_dpdk_self self;
    /* The UDP port of this process's reactor 0 at this device; the others' follow. One for all
     * devices of a medium. */
    uint16_t port_base;
    uint16_t frame_bytes_max; /* of a packet, from its Ethernet header on: MTU + 14 */
    uint16_t packets;         /* that can be received and not released, at least */
    bool tx_gather;           /* takes `rest` */
    bool tx_checksum;         /* fills in UDP checksums */
    bool rx_interrupt;        /* arm wakes the reactor when a packet comes */
    bool is_one_peers; /* the link leads to one process, and is down when that has gone: memif */
    struct sl_dpdk_queues queues;
};

struct sl_dpdk_port_stats {
    uint64_t sent, received; /* packets */
    uint64_t dropped;        /* by the device, for want of a buffer; as far as it says so */
    uint64_t reserve_failed;
};

struct sl_dpdk_port_ops {
    /* Of all devices of `medium` (struct sl_dpdk_medium), this reactor's ports: at most `max`, into
     * ports[]; returns how many, or an error with a logged line that says why and what to do:
     * NOT_FOUND (no device), INVALID (arguments), UNSUPPORTED, NO_MEMORY, IO. */
    int (*open)(void *medium, struct sl_reactor *reactor, struct sl_dpdk_port **ports,
                uint32_t max);
    void (*close)(struct sl_dpdk_port **port);
    void (*info)(const struct sl_dpdk_port *port, struct sl_dpdk_port_info *out);
    bool (*link_is_up)(struct sl_dpdk_port *port); /* not each turn */
    uint32_t (*receive)(struct sl_dpdk_port *port, struct sl_dpdk_packet *packets, uint32_t count);
    /* Received or reserved, and not sent. Leaves *pending as it is. */
    void (*release)(struct sl_dpdk_port *port, struct sl_dpdk_packet *packets, uint32_t count);
    /* Fewer than asked for when buffers are short. */
    uint32_t (*reserve)(struct sl_dpdk_port *port, struct sl_dpdk_packet *packets, uint32_t count);
    /* How many it took, in order; fewer when the queue is full. */
    uint32_t (*send)(struct sl_dpdk_port *port, const struct sl_dpdk_packet *packets,
                     uint32_t count);
    /* Before the reactor sleeps. False: packets are there. True: where `wakes`, the reactor will be
     * woken by the next one; else nobody does, and the caller sets itself a timer. */
    bool (*arm)(struct sl_dpdk_port *port);
    /* gathers: memory that `rest` may point to. Errors: NO_MEMORY, UNSUPPORTED. */
    int (*memory_register)(struct sl_dpdk_port *port, void *base, size_t bytes);
    void (*memory_unregister)(struct sl_dpdk_port *port, void *base);
    void (*stats)(const struct sl_dpdk_port *port, struct sl_dpdk_port_stats *out);
};

/* What every port begins with. */
struct sl_dpdk_port {
    const struct sl_dpdk_port_ops *ops;
    struct sl_reactor *reactor;
};

/* transport_options.medium of a dpdk transport: where its ports come from. NULL stands for the
 * plug-in, with options.dpdk. */
struct sl_dpdk_medium {
    const struct sl_dpdk_port_ops *ops;
    void *ctx; /* open's `medium` */
};

#endif
