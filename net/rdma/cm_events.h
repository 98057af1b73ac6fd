/* Events of rdma_cm, for listeners and connections. Owner reactor. */
#ifndef SL_NET_RDMA_CM_EVENTS_H
#define SL_NET_RDMA_CM_EVENTS_H

#include "net/rdma/state.h"

/* Handles pending events. Returns their count. */
uint32_t sl_rdma_cm_events_poll(struct sl_rdma *rdma);

#endif
