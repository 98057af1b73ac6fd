/* The client side of the handshake, and the hellos of both sides. Owner reactor. */
#ifndef SL_NET_DPDK_CONNECT_H
#define SL_NET_DPDK_CONNECT_H

#include "net/dpdk/state.h"

int sl_dpdk_connect(struct sl_transport *transport, const struct sl_endpoint *endpoint,
                    uint32_t target, const struct sl_transport_events *events, void *ctx,
                    struct sl_conn **out);

/* Handles RETRY, ACCEPT and REFUSE. conn: the connection with the header's id, or NULL. */
void sl_dpdk_connect_take(struct sl_dpdk *dpdk, struct sl_dpdk_netif *netif,
                          struct sl_dpdk_conn *conn, const struct sl_dpdk_parsed *packet);
/* A REFUSE of another version ends the connect. False: it is not from the peer, or comes too late.
 */
bool sl_dpdk_connect_take_other(struct sl_dpdk_conn *conn, const struct sl_dpdk_netif *netif,
                                const struct sl_dpdk_parsed *packet);
/* A PROBE of an unknown connection: answers RESET if the id is from before a restart of this
 * process. */
void sl_dpdk_connect_stranger(struct sl_dpdk *dpdk, struct sl_dpdk_netif *netif,
                              const struct sl_dpdk_parsed *packet);
/* ASKING only: the neighbour was resolved. */
void sl_dpdk_connect_routed(struct sl_dpdk_conn *conn);
/* Sends the hello of this side. kind: OPEN, ACCEPT. */
void sl_dpdk_connect_say(struct sl_dpdk_conn *conn, enum sl_dpdk_kind kind);
/* Makes the connection LIVE with the peer's hello. */
void sl_dpdk_connect_begin(struct sl_dpdk_conn *conn, const struct sl_dpdk_hello *hello,
                           const uint8_t mac[6]);

#endif
