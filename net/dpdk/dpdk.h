/* DPDK: frames as reliable messages over UDP, on queues that this process polls itself.
 * docs/dpdk.md specifies the protocol. */
#ifndef SL_NET_DPDK_DPDK_H
#define SL_NET_DPDK_DPDK_H

#include "net/transport.h"

/* A packet device of this process, and what it is called in its network. Strings outlive the
 * transports. */
struct sl_dpdk_device {
    /* The EAL's: "0000:3b:00.0", "net_memif0". NULL: a device of STARLING_DPDK_EAL_ARGS, or of the
     * machine, that none of the others names. */
    const char *name;
    /* Of a virtual device that is made here: "iface=eth2". NULL: it is there. */
    const char *arguments;
    const char *address; /* "10.0.0.1/24", "fd00::1/64"; without a prefix everybody is beside it */
    const char *gateway; /* or NULL */
    uint16_t mtu;        /* of IP packets; 0: 1500, or what the device has */
    /* Queues each way, a multiple of the reactors; 0: one for each. memif: the same on both sides,
     * and for a straight way from any reactor to any a product of both their numbers. */
    uint16_t queues;
    /* The reactors that have it, by index, which follow one another; 0 reactors: all. The same for
     * each of a reactor's devices. */
    uint16_t reactors;
    uint32_t first_reactor;
};

/* Where the plug-in's ports come from. */
struct sl_dpdk_options {
    const struct sl_dpdk_device *devices;
    uint32_t device_count;
    uint16_t port_base; /* the UDP port of reactor 0; the others' follow. 0: SL_DPDK_PORT_BASE */
    /* For the EAL, with blanks between, before those of STARLING_DPDK_EAL_ARGS; or NULL. The first
     * transport's of the process count. */
    const char *eal_arguments;
};

#define SL_DPDK_PORT_BASE 9200U

/* Capabilities STREAMS, JOINS, HANDS_OVER, CHECKSUMS, and REGISTERS: what lies in registered memory
 * is sent from there where a device gathers. The protocol itself needs no library: with a medium
 * (net/dpdk/port.h) it runs on any ports; without one on those of the plug-in. */
extern const struct sl_transport_ops sl_dpdk_ops;

/* &sl_dpdk_ops where the plug-in loads, else NULL and *why (a string that lasts). Any thread. */
const struct sl_transport_ops *sl_dpdk_find(const char **why);

#endif
