/* The DPDK transport sends frames as reliable messages over UDP, on device queues that the process
 * polls itself. docs/dpdk-protocol.md specifies the protocol. */
#ifndef SL_NET_DPDK_DPDK_H
#define SL_NET_DPDK_DPDK_H

#include "net/transport.h"

/* A packet device of this process and its address. The strings must outlive the transports. */
struct sl_dpdk_device {
    /* EAL name: "0000:3b:00.0", "net_memif0". NULL: any device of STARLING_DPDK_EAL_ARGS or of the
     * machine that no other entry names. */
    const char *name;
    /* Arguments to create a virtual device: "iface=eth2". NULL: the device exists. */
    const char *arguments;
    const char
        *address; /* "10.0.0.1/24", "fd00::1/64"; without a prefix all addresses are on-link */
    const char *gateway; /* or NULL */
    uint16_t mtu;        /* of IP packets; 0: 1500, or the device's own */
    /* Queue pairs, a multiple of the reactors; 0: one for each. memif: the same on both sides; the
     * product of both sides' reactors gives each pair of reactors a queue of its own. */
    uint16_t queues;
    /* The device belongs to `reactors` reactors (0: all) from index first_reactor on. All devices
     * of a reactor must have the same. */
    uint16_t reactors;
    uint32_t first_reactor;
};

/* The devices of the plug-in. */
struct sl_dpdk_options {
    const struct sl_dpdk_device *devices;
    uint32_t device_count;
    uint16_t port_base; /* the UDP port of reactor 0; reactor i has port_base + i. 0:
                           SL_DPDK_PORT_BASE */
    /* EAL arguments, separated by blanks, before those of STARLING_DPDK_EAL_ARGS; or NULL. The
     * options of the process's first transport apply. */
    const char *eal_arguments;
};

#define SL_DPDK_PORT_BASE 9200U

/* Capabilities: MULTI_FRAME, COALESCES, CHECKSUMS and REGISTERS (a device that gathers
 * sends registered memory without a copy). The protocol itself needs no library: with a medium
 * (net/dpdk/port.h) it runs on any ports, without one on those of the plug-in. */
extern const struct sl_transport_ops sl_dpdk_ops;

/* &sl_dpdk_ops if the plug-in loads; else NULL and *why, a string that stays valid. Any thread. */
const struct sl_transport_ops *sl_dpdk_find(const char **why);

#endif
