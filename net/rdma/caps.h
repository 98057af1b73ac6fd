/* Capabilities of a device, determined once. Owner reactor. */
#ifndef SL_NET_RDMA_CAPS_H
#define SL_NET_RDMA_CAPS_H

#include <stdbool.h>
#include <stdint.h>

struct sl_rdma_nic;

struct sl_rdma_caps {
    bool on_demand;      /* the device supports on-demand paging (logged only) */
    bool relaxed_order;  /* accepts IBV_ACCESS_RELAXED_ORDERING */
    uint32_t inline_max; /* bytes of an inline work request */
    uint32_t sge_max;    /* SGEs of a SEND, at most SL_RDMA_REMOTE_SGES + 2 */
    uint32_t reads_max;  /* outstanding reads of a queue pair */
    uint32_t srq_max;    /* entries of a shared receive queue, at least 1 */
    uint32_t cqe_max;
    bool resizes; /* completion queues can be resized */
};

/* Fills nic->caps: `ask` queries the device, then `try` makes objects (needs pd and cq). Errors,
 * logged: IO, UNSUPPORTED. */
int sl_rdma_caps_ask(struct sl_rdma_nic *nic);
int sl_rdma_caps_try(struct sl_rdma_nic *nic);

#endif
