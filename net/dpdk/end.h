/* Where the end of a connection begins. These functions only mark the connection and make no
 * upcall: the next poll visits it, and conn.c carries out the end. Owner reactor. */
#ifndef SL_NET_DPDK_END_H
#define SL_NET_DPDK_END_H

#include "net/dpdk/state.h"

/* Ends the connection: the next poll reports `closed` with this error. Idempotent: the first error
 * stays. tell: send the peer a RESET. */
void sl_dpdk_conn_end(struct sl_dpdk_conn *conn, int err, bool tell);
/* Log one line and end the connection: with PROTOCOL, with DEADLINE. */
void sl_dpdk_conn_refuse(struct sl_dpdk_conn *conn, const char *what);
void sl_dpdk_conn_lost(struct sl_dpdk_conn *conn, const char *what);
void sl_dpdk_conn_disconnect(struct sl_conn *conn);

/* Sends a RESET that says `err`, if the peer's id and address are known. */
void sl_dpdk_conn_send_reset(struct sl_dpdk_conn *conn, int err);
void sl_dpdk_conn_stop_timers(struct sl_dpdk_conn *conn);

#endif
