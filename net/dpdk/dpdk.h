/* DPDK: frames as reliable messages over UDP, on queues that this process polls itself.
 * docs/dpdk.md specifies the protocol. */
#ifndef SL_NET_DPDK_DPDK_H
#define SL_NET_DPDK_DPDK_H

#include "net/transport.h"

/* Capabilities STREAMS, JOINS, HANDS_OVER, CHECKSUMS, and REGISTERS: what lies in registered memory
 * is sent from there where a device gathers. The protocol itself needs no library: with a medium
 * (net/dpdk/port.h) it runs on any ports; without one on those of the plug-in. */
extern const struct sl_transport_ops sl_dpdk_ops;

/* &sl_dpdk_ops where the plug-in loads, else NULL and *why. Any thread. */
const struct sl_transport_ops *sl_dpdk_find(const char **why);

#endif
