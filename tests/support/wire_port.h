/* Ports of packet devices that are not there: cables and a switch in this process's memory. The
 * reactors may be threads of their own (one lock for the whole switch: it is a test's medium), or
 * stepped by one thread on a clock that the test moves.
 *
 * A host stands for a process: its medium is what goes to sl_transport_open as options.medium. It
 * has devices; each device belongs to reactors that follow one another, and each of these gets one
 * port of it, with the queues that sl_dpdk_queues gives it. Packets find the device by its Ethernet
 * address; broadcasts and multicasts go to all others. Nobody's packets are lost.
 *
 * It is strict with who uses it: packets must be the caller's, of the right length, and leave by a
 * queue of the port's own; `rest` must lie in registered memory and is read late; what was released
 * is overwritten. */
#ifndef SL_TESTS_SUPPORT_WIRE_PORT_H
#define SL_TESTS_SUPPORT_WIRE_PORT_H

#include <stdbool.h>
#include <stdint.h>

#include "core/clock.h"
#include "net/dpdk/port.h"

struct sl_wire;
struct sl_wire_host;
struct sl_wire_device;

struct sl_wire_options {
    const struct sl_clock *clock; /* that delays go by; NULL: the system's */
    uint64_t delay_ns;            /* of each packet */
};

/* By which queue a packet arrives. */
enum sl_wire_steering {
    SL_WIRE_STRAIGHT, /* that by which it left, modulo their number */
    SL_WIRE_SCATTER,  /* by a hash of addresses and UDP ports */
    SL_WIRE_FIRST     /* queue 0, all of them */
};

struct sl_wire_device_options {
    const char *address; /* "10.0.0.1", "fd00::1" */
    const char *gateway; /* NULL: none */
    uint8_t prefix_bits; /* 0: all are beside us */
    uint16_t port_base;
    uint32_t first_reactor; /* their indices */
    uint16_t reactors;      /* 0: 1 */
    uint16_t queues;        /* 0: one for each of them */
    bool blocks;
    enum sl_wire_steering steering;
    uint16_t frame_bytes_max; /* 0: 1514 */
    uint16_t queue_packets;   /* of one receive queue; 0: 256 */
    uint16_t packets;         /* of one port, received and not released; 0: 1024 */
    uint32_t byte_ps;         /* picoseconds that each byte takes to arrive, one queue; 0: none */
    bool drops;               /* what finds a queue full is lost; else its sender keeps it */
    bool tx_gather, tx_checksum, rx_interrupt;
    bool is_one_peers; /* only said: what is on the switch is the test's */
};

/* Abort when there is no memory. Destroyed when all ports of all hosts are closed. */
struct sl_wire *sl_wire_create(const struct sl_wire_options *options);
void sl_wire_destroy(struct sl_wire **wire);

/* Any thread, while no port of the host is open. */
struct sl_wire_host *sl_wire_host_add(struct sl_wire *wire);
struct sl_wire_device *sl_wire_device_add(struct sl_wire_host *host,
                                          const struct sl_wire_device_options *options);
void sl_wire_host_remove(struct sl_wire_host **host);
struct sl_dpdk_medium *sl_wire_host_medium(struct sl_wire_host *host);

/* The link is down: what is sent from it or to it is lost. Any thread. */
void sl_wire_device_set_down(struct sl_wire_device *device, bool is_down);
const uint8_t *sl_wire_device_mac(const struct sl_wire_device *device);

/* Sees each packet that is sent (not what is injected), before it arrives; false: it is lost.
 * Called with the switch locked: it may not send. NULL: no tap. Any thread. */
void sl_wire_set_tap(struct sl_wire *wire,
                     bool (*tap)(void *ctx, const uint8_t *bytes, uint32_t length), void *ctx);

/* A packet from nowhere, as if it had left by that queue. Any thread. */
void sl_wire_inject(struct sl_wire *wire, const uint8_t *bytes, uint32_t length, uint16_t queue);

/* When the first of the packets on their way arrives; SL_CLOCK_NEVER: none is. Any thread. */
uint64_t sl_wire_next_ns(struct sl_wire *wire);

/* Packets handed out by a device's ports and not given back. Of stepped reactors, or its own. */
uint32_t sl_wire_device_held(struct sl_wire_device *device);

#endif
