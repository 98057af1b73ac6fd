/* The listening side of the handshake. Owner reactor. */
#ifndef SL_NET_DPDK_LISTEN_H
#define SL_NET_DPDK_LISTEN_H

#include "net/dpdk/state.h"

int sl_dpdk_listen(struct sl_transport *transport, const struct sl_endpoint *endpoint,
                   const struct sl_transport_events *events, void *ctx, struct sl_endpoint *bound);
void sl_dpdk_listen_close(struct sl_dpdk *dpdk);

/* Handle OPEN, the second one of another version. */
void sl_dpdk_listen_take(struct sl_dpdk *dpdk, struct sl_dpdk_netif *netif,
                         const struct sl_dpdk_parsed *packet);
void sl_dpdk_listen_other(struct sl_dpdk *dpdk, struct sl_dpdk_netif *netif,
                          const struct sl_dpdk_parsed *packet);

#endif
