/* Packets to frames. Owner reactor. */
#ifndef SL_NET_DPDK_RECEIVE_H
#define SL_NET_DPDK_RECEIVE_H

#include "net/dpdk/receive_slots.h"

enum sl_dpdk_taken {
    SL_DPDK_TAKEN,         /* the content was copied */
    SL_DPDK_PARKED,        /* the packet's memory was kept */
    SL_DPDK_NO_ROOM,       /* dropped, as if lost */
    SL_DPDK_PROTOCOL_ERROR /* the connection ends with PROTOCOL */
};
/* Handles a new DATA or BUNDLE of a LIVE connection; sl_dpdk_receive_deliver, called by poll,
 * delivers. conn.c records the number if the packet was taken or parked, and marks the connection.
 */
enum sl_dpdk_taken sl_dpdk_receive_take(struct sl_dpdk_conn *conn, struct sl_dpdk_packet *packet,
                                        const struct sl_dpdk_parsed *parsed);
/* LIVE only. Asks `sink` and delivers complete messages from the head on. Returns whether it did
 * work. Marks the connection as waiting if `sink` returned NULL. Stops when an upcall ends or
 * disconnects the connection, or when a frame is malformed: sl_conn_fail, which conn.c handles. */
bool sl_dpdk_receive_deliver(struct sl_dpdk_conn *conn);
void sl_dpdk_receive_release(struct sl_conn *conn, const struct sl_transport_message *message);

#endif
