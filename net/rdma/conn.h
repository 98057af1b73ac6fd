/* Connections: creation, queue pair, and the end that end.h began. Owner reactor. */
#ifndef SL_NET_RDMA_CONN_H
#define SL_NET_RDMA_CONN_H

#include "net/rdma/state.h"

/* A connection in the table, RESOLVING, with send and receive state. NULL: no memory. */
struct sl_rdma_conn *sl_rdma_conn_new(struct sl_rdma *rdma,
                                      const struct sl_transport_events *events, void *ctx);

/* Creates the queue pair of link.id on the NIC of its device, and reserves the window. Errors,
 * logged: as sl_rdma_nic_get; CLOSED: the requester has left; TOO_LARGE: the queues of the
 * device are full. */
int sl_rdma_conn_make_queue_pair(struct sl_rdma_conn *conn);

/* Destroys the queue pair and the id: the device no longer uses their memory. */
void sl_rdma_conn_drop_link(struct sl_rdma_conn *conn);

/* The queue pair is connected: RESOLVING or ACCEPTING -> LIVE. Reports `connected` or `accepted`.
 * From poll. */
void sl_rdma_conn_established(struct sl_rdma_conn *conn);

/* From poll, for connections in `ready`: continues an end or a drain. Returns whether
 * work was done. */
bool sl_rdma_conn_visit(struct sl_rdma_conn *conn);
void sl_rdma_conn_cancel_all(struct sl_rdma *rdma); /* `closed` with CANCELLED, immediately */
void sl_rdma_conn_free_all(struct sl_rdma *rdma);   /* all messages are released */

#endif
