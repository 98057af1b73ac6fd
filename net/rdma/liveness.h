/* The liveness check. Several times per peer timeout it visits all connections, and ends with
 * DEADLINE those whose peer owes an answer and has sent nothing for the whole timeout. Owner
 * reactor. */
#ifndef SL_NET_RDMA_LIVENESS_H
#define SL_NET_RDMA_LIVENESS_H

#include "net/rdma/state.h"

void sl_rdma_liveness_open(struct sl_rdma *rdma);
void sl_rdma_liveness_close(struct sl_rdma *rdma);
void sl_rdma_liveness_add(struct sl_rdma *rdma, struct sl_rdma_conn *conn);

#endif
