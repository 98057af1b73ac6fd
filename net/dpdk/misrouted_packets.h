/* Packets for other reactors of the process. Owner reactor. */
#ifndef SL_NET_DPDK_MISROUTED_PACKETS_H
#define SL_NET_DPDK_MISROUTED_PACKETS_H

#include "net/dpdk/state.h"

/* When the netifs are known. `take` handles packets from other reactors. */
void sl_dpdk_misrouted_packets_open(struct sl_dpdk *dpdk, sl_dpdk_misrouted_packets_fn *take);
void sl_dpdk_misrouted_packets_close(struct sl_dpdk *dpdk);
/* Posts a copy of the packet to the reactor that owns its id, or for OPEN its UDP port. False: that
 * is this reactor, or none. */
bool sl_dpdk_misrouted_packets_forward(struct sl_dpdk *dpdk, const struct sl_dpdk_netif *netif,
                                       const struct sl_dpdk_packet *packet,
                                       const struct sl_dpdk_parsed *parsed);
/* Posts a neighbour packet to all other reactors of the device. */
void sl_dpdk_misrouted_packets_neighbour(struct sl_dpdk *dpdk, const struct sl_dpdk_netif *netif,
                                         const struct sl_dpdk_packet *packet);

#endif
