/* Addresses; the port and queue to a peer, and the headers of its packets. Owner reactor. */
#ifndef SL_NET_DPDK_ROUTE_H
#define SL_NET_DPDK_ROUTE_H

#include "net/dpdk/state.h"

bool sl_dpdk_route_is_v4(const struct in6_addr *ip);
bool sl_dpdk_route_is_any(const struct in6_addr *ip);
/* Whether the address can be answered: not multicast, broadcast or unspecified, and the port is not
 * 0. */
bool sl_dpdk_route_is_answerable(const struct sl_dpdk_address *from);
/* Errors: those of sl_endpoint_resolve, logged. */
int sl_dpdk_route_parse(const struct sl_endpoint *endpoint, bool passive, struct in6_addr *out);
void sl_dpdk_route_host(const struct in6_addr *ip, char host[SL_LIMIT_ENDPOINT_BYTES]);
void sl_dpdk_route_format(const struct sl_dpdk_address *address,
                          char text[SL_LIMIT_ENDPOINT_BYTES]);
/* The netif that reaches this address; NULL: none has its family. */
struct sl_dpdk_netif *sl_dpdk_route_side(struct sl_dpdk *dpdk, const struct in6_addr *ip);
struct sl_dpdk_queues sl_dpdk_route_queues(const struct sl_dpdk_hello *hello);
/* A local queue of this reactor; if possible the one that leads to the peer's reactor. */
uint16_t sl_dpdk_route_queue(const struct sl_dpdk_queues *ours,
                             const struct sl_dpdk_queues *theirs);
/* `set` sets conn->path.route and conn->path.queue for this Ethernet address. `learn` does so only
 * if the address changed. `find` looks the address up in the neighbour table; false: unknown, and a
 * request was sent. */
void sl_dpdk_route_set(struct sl_dpdk_conn *conn, const uint8_t mac[6]);
void sl_dpdk_route_learn(struct sl_dpdk_conn *conn, const uint8_t mac[6]);
bool sl_dpdk_route_find(struct sl_dpdk_conn *conn);
/* The peer's address is that of the local device. */
bool sl_dpdk_route_is_own(const struct sl_dpdk_conn *conn);

/* Whether the packet's addresses are those of the peer. */
bool sl_dpdk_route_is_from_peer(const struct sl_dpdk_conn *conn, const struct sl_dpdk_netif *netif,
                                const struct sl_dpdk_parsed *parsed);

#endif
