#include "net/rdma/caps.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "core/arena_pages.h"
#include "core/log.h"
#include "net/rdma/state.h"

#define PROBE_SENDS 16

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static uint32_t positive(int value)
{
    return value > 0 ? (uint32_t)value : 0;
}

/* Calls through the context: the inline function of the header needs libibverbs linked. */
static bool pages_on_demand(struct ibv_context *verbs)
{
    struct verbs_context *extended = verbs_get_ctx_op(verbs, query_device_ex);
    struct ibv_device_attr_ex attr;
    memset(&attr, 0, sizeof attr);
    if (extended == NULL || extended->query_device_ex(verbs, NULL, &attr, sizeof attr) != 0) {
        return false;
    }
    const uint32_t needed = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ;
    return (attr.odp_caps.general_caps & IBV_ODP_SUPPORT) != 0 &&
           (attr.odp_caps.per_transport_caps.rc_odp_caps & needed) == needed;
}

static bool takes_relaxed_order(const struct sl_rdma_nic *nic)
{
    const struct sl_rdma_library *library = nic->rdma->library;
    size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
    void *page = sl_arena_pages_map(bytes, false);
    if (page == NULL) {
        return false;
    }
    struct ibv_mr *mr = library->reg_mr(nic->pd, page, bytes,
                                        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                            IBV_ACCESS_RELAXED_ORDERING);
    if (mr != NULL) {
        (void)library->dereg_mr(mr);
    }
    sl_arena_pages_unmap(page, bytes);
    return mr != NULL;
}

static bool can_make(const struct sl_rdma_nic *nic, uint32_t inline_bytes, uint32_t remote_sges)
{
    const struct sl_rdma_library *library = nic->rdma->library;
    struct ibv_qp_init_attr attr = {.send_cq = nic->cq,
                                    .recv_cq = nic->cq,
                                    .cap = {.max_send_wr = PROBE_SENDS,
                                            .max_recv_wr = 1,
                                            .max_send_sge = remote_sges,
                                            .max_recv_sge = 1,
                                            .max_inline_data = inline_bytes},
                                    .qp_type = IBV_QPT_RC};
    struct ibv_qp *qp = library->create_plain_qp(nic->pd, &attr);
    if (qp != NULL) {
        (void)library->destroy_plain_qp(qp);
    }
    return qp != NULL;
}

/* No device reports its inline size, which depends on the number of SGEs. So queue pairs are
 * created with decreasing sizes until one succeeds. */
static int probe_queue_pairs(struct sl_rdma_nic *nic, uint32_t remote_sges_max)
{
    static const uint32_t inline_bytes[] = {256, 128, 64, 0};
    for (uint32_t remote_sges = remote_sges_max; remote_sges > 0; remote_sges /= 2) {
        for (uint32_t i = 0; i < sizeof inline_bytes / sizeof inline_bytes[0]; i++) {
            if (can_make(nic, inline_bytes[i], remote_sges)) {
                nic->caps.inline_max = inline_bytes[i];
                nic->caps.sge_max = remote_sges;
                return 0;
            }
        }
    }
    sl_log_error("rdma: %s: no queue pair can be made: %s", nic->name, strerror(errno));
    return SL_ERR_IO;
}

int sl_rdma_caps_ask(struct sl_rdma_nic *nic)
{
    struct ibv_device_attr attr;
    memset(&attr, 0, sizeof attr);
    if (sl_rdma_device_is_iwarp(nic->verbs->device)) {
        sl_log_error("rdma: %s: " SL_RDMA_NO_IWARP, nic->name);
        return SL_ERR_UNSUPPORTED;
    }
    int err = nic->rdma->library->query_device(nic->verbs, &attr);
    if (err != 0) {
        sl_log_error("rdma: %s: it cannot be asked what it can: %s", nic->name, strerror(err));
        return SL_ERR_IO;
    }
    if (attr.max_srq <= 0 || attr.max_srq_wr <= 0) {
        sl_log_error("rdma: %s: the device has no shared receive queue: use TCP", nic->name);
        return SL_ERR_UNSUPPORTED;
    }
    uint32_t reads = least(positive(attr.max_qp_rd_atom), positive(attr.max_qp_init_rd_atom));
    reads = least(reads, SL_RDMA_READS);
    nic->caps = (struct sl_rdma_caps){
        .on_demand = pages_on_demand(nic->verbs),
        .sge_max = least(positive(attr.max_sge), SL_RDMA_REMOTE_SGES + 2),
        .reads_max = reads > 0 ? reads : 1,
        .srq_max = positive(attr.max_srq_wr),
        .cqe_max = positive(attr.max_cqe),
    };
    return 0;
}

int sl_rdma_caps_try(struct sl_rdma_nic *nic)
{
    nic->caps.relaxed_order = takes_relaxed_order(nic);
    return probe_queue_pairs(nic, nic->caps.sge_max);
}
