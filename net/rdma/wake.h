/* Descriptors and timers that wake the transport. Owner reactor. */
#ifndef SL_NET_RDMA_WAKE_H
#define SL_NET_RDMA_WAKE_H

#include "net/rdma/state.h"

/* Adds a descriptor to epoll_fd. `what` is returned with its events: a NIC, or NULL for rdma_cm. */
int sl_rdma_wake_watch(struct sl_rdma *rdma, int fd, struct sl_rdma_nic *what);
void sl_rdma_wake_unwatch(struct sl_rdma *rdma, int fd);

/* Starts the timer of the next liveness round, for a NIC or a connection. */
void sl_rdma_wake_sweep(struct sl_rdma *rdma);

/* Starts a round of retries in some milliseconds: visits connections that wait for memory. */
void sl_rdma_wake_retry(struct sl_rdma *rdma);

#endif
