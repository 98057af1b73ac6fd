/* The hellos of both sides, and the parameters of connect and accept that carry them. Owner
 * reactor. */
#ifndef SL_NET_RDMA_HELLO_H
#define SL_NET_RDMA_HELLO_H

#include "net/rdma/state.h"

static inline bool sl_rdma_hello_is_sane(const struct sl_rdma_hello *hello)
{
    return hello->reads > 0 && hello->limit - 1U < SL_RDMA_LIMIT_AHEAD_MAX;
}

/* Parameters for connect and accept. Fills *hello; the result points to it. */
struct rdma_conn_param sl_rdma_hello_param(const struct sl_rdma_conn *conn,
                                           struct sl_rdma_hello *hello);
void sl_rdma_hello_take(struct sl_rdma_conn *conn, const struct sl_rdma_hello *hello);

#endif
