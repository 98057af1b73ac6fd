/* Listeners, which the transports of a process share. Owner reactor. */
#ifndef SL_NET_RDMA_LISTEN_H
#define SL_NET_RDMA_LISTEN_H

#include "net/rdma/cm.h"

int sl_rdma_listen(struct sl_transport *transport, const struct sl_endpoint *endpoint,
                   const struct sl_transport_events *events, void *ctx, struct sl_endpoint *bound);
void sl_rdma_listen_close(struct sl_rdma *rdma);

/* Handles a connect request. Takes the id. */
void sl_rdma_listen_request(struct sl_rdma_listener *listener,
                            const struct sl_rdma_cm_event *event);

/* The listener's device was removed. */
void sl_rdma_listen_lost(struct sl_rdma_listener *listener);

#endif
