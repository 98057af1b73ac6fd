/* The message at the head whose payload goes to a sink. Owner reactor. */
#ifndef SL_NET_DPDK_LONG_MESSAGE_H
#define SL_NET_DPDK_LONG_MESSAGE_H

#include "net/dpdk/receive_slots.h"

bool sl_dpdk_long_has(const struct sl_dpdk_conn *conn,
                      uint32_t offset); /* whether the piece at `offset` was received */
/* Copies a piece, already counted as arrived, to the sink. False: it does not fit into the message
 * or was received before; nothing was written. */
bool sl_dpdk_long_place(struct sl_dpdk_conn *conn, uint32_t offset, const uint8_t *body,
                        uint32_t bytes);
/* Asks for the sink, copies parked pieces, delivers. Returns whether the message was delivered. */
bool sl_dpdk_long_deliver(struct sl_dpdk_conn *conn, struct sl_dpdk_slot *slot);

#endif
