/* Connections: creation, received packets, and the end that end.h began. Owner reactor. */
#ifndef SL_NET_DPDK_CONN_H
#define SL_NET_DPDK_CONN_H

#include "net/dpdk/state.h"

/* `new` chooses an id, `make` takes one. NULL: no memory. */
struct sl_dpdk_conn *sl_dpdk_conn_new(struct sl_dpdk *dpdk,
                                      const struct sl_transport_events *events, void *ctx);
struct sl_dpdk_conn *sl_dpdk_conn_make(struct sl_dpdk *dpdk,
                                       const struct sl_transport_events *events, void *ctx,
                                       uint64_t id);

/* Handles a packet of class OURS from the peer, LIVE or later, that is not of the handshake: checks
 * its number, then passes it to the send or receive code. Returns whether the packet's memory was
 * kept. */
bool sl_dpdk_conn_take(struct sl_dpdk_conn *conn, struct sl_dpdk_netif *netif,
                       struct sl_dpdk_packet *packet, const struct sl_dpdk_parsed *parsed);

/* Called by poll for `ready`. Returns whether it did work. */
bool sl_dpdk_conn_visit(struct sl_dpdk_conn *conn);
/* Sets the timer to the earliest time that send.c and sent_packets need. */
void sl_dpdk_conn_set_timer(struct sl_dpdk_conn *conn);

/* Used when the transport closes. end_all ends all connections, which then hold no packet of a
 * port. After the ports are closed, cancel_all reports `closed`. */
void sl_dpdk_conn_end_all(struct sl_dpdk *dpdk);
void sl_dpdk_conn_cancel_all(struct sl_dpdk *dpdk);
void sl_dpdk_conn_free_all(struct sl_dpdk *dpdk); /* frees the memory */

#endif
