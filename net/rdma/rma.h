/* One-sided operations (net/transport_rma.h) as verbs READ and WRITE. A region is registered with
 * the first NIC of the transport, on an offload thread. Owner reactor. */
#ifndef SL_NET_RDMA_RMA_H
#define SL_NET_RDMA_RMA_H

#include "net/rdma/send_batch.h"
#include "net/transport_rma.h"

extern const struct sl_transport_rma_ops sl_rdma_rma_ops;

/* Adds work requests for queued operations, as far as the send queue allows. */
void sl_rdma_rma_pack(struct sl_rdma_send_batch *batch);

/* Whether operations wait for room in the send queue; whether some are over and not reported. */
bool sl_rdma_rma_is_queued(const struct sl_rdma_conn *conn);
bool sl_rdma_rma_has_reports(const struct sl_rdma_conn *conn);

void sl_rdma_rma_report(struct sl_rdma_conn *conn); /* from poll */

/* The queue pair is gone: drops all operations. */
void sl_rdma_rma_drop(struct sl_rdma_conn *conn);

#endif
