/* Where the end of a connection begins. Any file may call these functions, from inside any call of
 * the transport: they only mark the connection and make no upcall. The next poll visits it, and
 * conn.c carries out the end. Owner reactor. */
#ifndef SL_NET_RDMA_END_H
#define SL_NET_RDMA_END_H

#include "net/rdma/state.h"

void sl_rdma_conn_set_timer(struct sl_rdma_conn *conn, uint64_t after_ns);
void sl_rdma_conn_stop_timer(struct sl_rdma_conn *conn);

/* Ends the connection: `closed` with this error follows from poll, once the queue pair is
 * drained. Before CLOSED all received frames are delivered. Idempotent: the first error wins. */
void sl_rdma_conn_end(struct sl_rdma_conn *conn, int err);

/* Logs one line and ends the connection. */
void sl_rdma_conn_refuse(struct sl_rdma_conn *conn, const char *what, int err);

/* The peer's device has refused memory that the peer offered. Either the offer was false, or the
 * peer was killed and its memory went first; then rdma_cm reports the end within SUSPECT_NS.
 * Otherwise the connection ends with PROTOCOL. */
void sl_rdma_conn_suspect(struct sl_rdma_conn *conn);

/* The peer's end of the queue pair is gone. Packets that have arrived are delivered first. */
void sl_rdma_conn_disconnected(struct sl_rdma_conn *conn);
void sl_rdma_conn_disconnect(struct sl_conn *conn);

/* The peer's FIN has arrived. From inside sl_rdma_receive_block. */
void sl_rdma_conn_sent_fin(struct sl_rdma_conn *conn);

#endif
