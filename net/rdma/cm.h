/* The event channel of rdma_cm, and the rejection of connect requests. Owner reactor, except
 * where another thread is named. */
#ifndef SL_NET_RDMA_CM_H
#define SL_NET_RDMA_CM_H

#include "net/rdma/state.h"

int sl_rdma_cm_open(struct sl_rdma *rdma);
void sl_rdma_cm_close(struct sl_rdma *rdma);

/* Keeps the event channel open, even beyond the close of the transport, while a connect request
 * goes to another reactor. Release on any thread. */
struct sl_rdma_channel *sl_rdma_cm_keep(struct sl_rdma *rdma);
void sl_rdma_cm_let_go(struct sl_rdma_channel **channel);

/* A copy of an rdma_cm event, which is already acknowledged: its id may be destroyed. */
struct sl_rdma_cm_event {
    enum rdma_cm_event_type type;
    int status;
    struct rdma_cm_id *id;
    bool has_hello; /* `hello` has our magic; its version may differ */
    struct sl_rdma_hello hello;
};

/* Context of a listener's id: bit 0 tells it from a connection. */
static inline void *sl_rdma_cm_listener_tag(struct sl_rdma_listener *listener)
{
    return (void *)((uintptr_t)listener | 1);
}

/* The reason for an error of sl_rdma_conn_make_queue_pair. */
enum sl_rdma_reason sl_rdma_cm_reason(int err);

/* Rejects a connect request. The second function also destroys the id. */
void sl_rdma_cm_refuse(const struct sl_rdma_library *library, struct rdma_cm_id *id,
                       enum sl_rdma_reason reason);
void sl_rdma_cm_reject(const struct sl_rdma_library *library, struct rdma_cm_id *id,
                       enum sl_rdma_reason reason);

#endif
