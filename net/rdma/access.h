/* Remote access of peers to registered memory. Owner reactor. */
#ifndef SL_NET_RDMA_ACCESS_H
#define SL_NET_RDMA_ACCESS_H

#include "net/rdma/state.h"

/* Accepts the connect request of link.id, which has its queue pair. The peer gets no remote access
 * yet. Errors: IO. */
int sl_rdma_access_accept(struct sl_rdma_conn *conn);

/* Takes remote access from a connection that was just made. librdmacm gave it. */
void sl_rdma_access_shut(struct sl_rdma_conn *conn);

/* Gives the peer remote access. False: the device refuses, and the connection has ended. */
bool sl_rdma_access_open(struct sl_rdma_conn *conn);

#endif
