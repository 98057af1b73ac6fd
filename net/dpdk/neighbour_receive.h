/* ARP and neighbour discovery. Owner reactor. */
#ifndef SL_NET_DPDK_NEIGHBOUR_RECEIVE_H
#define SL_NET_DPDK_NEIGHBOUR_RECEIVE_H

#include "net/dpdk/state.h"

/* Handles an ARP or neighbour discovery packet. came: the packet; NULL: another reactor received
 * it. */
void sl_dpdk_neighbour_receive(struct sl_dpdk *dpdk, struct sl_dpdk_netif *netif,
                               const uint8_t *bytes, uint32_t length,
                               const struct sl_dpdk_packet *came);

#endif
