/* Frames to packets. Owner reactor. */
#ifndef SL_NET_DPDK_SEND_H
#define SL_NET_DPDK_SEND_H

#include "net/dpdk/state.h"

/* Sends retransmissions, then new content, as far as window, grant, pacing and buffers allow; or a
 * single ACK if one is due. Returns the time of the next packet that pacing delays; SL_CLOCK_NEVER:
 * none. */
uint64_t sl_dpdk_send_flush(struct sl_dpdk_conn *conn);
/* Whether more than one packet is queued, estimated from the next frame's length. */
bool sl_dpdk_send_is_full(const struct sl_dpdk_conn *conn);
/* Sends a probe with the next flush. */
void sl_dpdk_send_probe(struct sl_dpdk_conn *conn);
/* A probe of full size. Its acknowledgement sets conn->liveness.full_size_acked. */
void sl_dpdk_send_wide_probe(struct sl_dpdk_conn *conn);
/* Queues a FIN after the last frame. */
void sl_dpdk_send_bye(struct sl_dpdk_conn *conn);
/* Sends an unnumbered packet: RESET, REFUSE, RETRY, ACCEPT, OPEN. */
void sl_dpdk_send_unnumbered(struct sl_dpdk *dpdk, struct sl_dpdk_netif *netif,
                             const struct sl_dpdk_route *route, uint16_t queue,
                             const struct sl_dpdk_header *header, const void *body);

#endif
