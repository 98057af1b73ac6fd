/* The connecting side. Owner reactor. */
#ifndef SL_NET_RDMA_CONNECT_H
#define SL_NET_RDMA_CONNECT_H

#include "net/rdma/cm.h"

int sl_rdma_connect(struct sl_transport *transport, const struct sl_endpoint *endpoint,
                    uint32_t target, const struct sl_transport_events *events, void *ctx,
                    struct sl_conn **out);

/* From poll, for connections in `ready`, RESOLVING: repeats a request that a busy listener has
 * rejected. Returns whether work was done. */
bool sl_rdma_connect_visit(struct sl_rdma_conn *conn);

/* Takes an event of rdma_cm for either side. */
void sl_rdma_connect_event(struct sl_rdma_conn *conn, const struct sl_rdma_cm_event *event);

#endif
