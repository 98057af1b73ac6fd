/* The turn: receives packets, dispatches them, and sends packets. Owner reactor. */
#ifndef SL_NET_DPDK_POLL_H
#define SL_NET_DPDK_POLL_H

#include "net/dpdk/state.h"

uint32_t sl_dpdk_poll(struct sl_transport *transport, uint32_t budget);
void sl_dpdk_flush(struct sl_transport *transport);

/* As sl_dpdk_misrouted_packets_fn. */
void sl_dpdk_poll_take_misrouted(struct sl_dpdk *dpdk, struct sl_dpdk_netif *netif,
                                 struct sl_dpdk_packet *packet, bool for_neighbours);

#endif
