/* A netif is a port as the transport uses it: packets on their way out, and lookup. Owner
 * reactor. */
#ifndef SL_NET_DPDK_NETIF_H
#define SL_NET_DPDK_NETIF_H

#include "net/dpdk/internal.h"

struct sl_dpdk_netif *sl_dpdk_netif_of(struct sl_dpdk *dpdk,
                                       const struct in6_addr *ip); /* or NULL */
/* The netif of this device and address; several devices may have the same address. */
struct sl_dpdk_netif *sl_dpdk_netif_like(struct sl_dpdk *dpdk, const char *device,
                                         const struct in6_addr *ip); /* or NULL */

/* Whether the connection's port can gather these bytes: they lie in registered memory. */
bool sl_dpdk_netif_gathers(const struct sl_dpdk_conn *conn, const void *at, size_t bytes);

/* Returns a packet buffer. False: none is free; retry in a later turn. Fill in bytes, length and
 * queue, then call put, which sends the packet by the end of the turn. */
bool sl_dpdk_netif_get(struct sl_dpdk_netif *netif, struct sl_dpdk_packet *out);
/* The same for packets that are not retransmitted: handshake answers, RESET, neighbour packets.
 * They may use the reserved places when `out` is full. */
bool sl_dpdk_netif_get_unnumbered(struct sl_dpdk_netif *netif, struct sl_dpdk_packet *out);
void sl_dpdk_netif_put(struct sl_dpdk *dpdk, struct sl_dpdk_netif *netif,
                       const struct sl_dpdk_packet *packet);
void sl_dpdk_netif_send(struct sl_dpdk *dpdk, struct sl_dpdk_netif *netif); /* sends `out` */

#endif
