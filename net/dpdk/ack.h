/* Acknowledged and lost packets of a connection. Owner reactor. */
#ifndef SL_NET_DPDK_ACK_H
#define SL_NET_DPDK_ACK_H

#include "net/dpdk/state.h"

/* Handles the acknowledgement and grant in a packet. False: no honest peer sends this
 * acknowledgement. */
bool sl_dpdk_send_acknowledged(struct sl_dpdk_conn *conn, const struct sl_dpdk_parsed *parsed);
void sl_dpdk_send_expired(struct sl_dpdk_conn *conn); /* the timer of sent_packets */

#endif
