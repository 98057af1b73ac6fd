#include "net/rdma/rma_memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/array.h"
#include "reactor/offload.h"

#define CLOSE_NS (10 * SL_CLOCK_NS_PER_S)

struct region {
    struct sl_rdma *rdma;
    struct sl_rdma_nic *nic; /* NULL: none, or its device is gone */
    uint64_t key;
    uint8_t *base;
    size_t bytes;
    unsigned access;
    struct ibv_mr *mr; /* NULL: not registered, or not any more */
    int reason;        /* errno of a failed registration */
    int reported;      /* err of the last region_added; 1: none yet */
    bool is_busy;      /* the job runs: mr is not the reactor's */
    bool is_removed;   /* meanwhile */
    struct sl_offload_job job;
};

struct sl_rdma_rma_memory {
    struct sl_offload *offload;
    struct region *regions[SL_LIMIT_TRANSFER_BUFFERS]; /* by ascending base */
    uint32_t count;
    uint32_t jobs; /* of the offload */
};

/* Index of the first region behind an address. */
static uint32_t index_behind(const struct sl_rdma_rma_memory *memory, uintptr_t at)
{
    uint32_t first = 0;
    SL_ARRAY_BISECT(first, memory->count, i, (uintptr_t)memory->regions[i]->base <= at);
    return first;
}

static void insert(struct sl_rdma_rma_memory *memory, struct region *region)
{
    const uint32_t index = index_behind(memory, (uintptr_t)region->base);
    memmove(memory->regions + index + 1, memory->regions + index,
            (memory->count - index) * sizeof memory->regions[0]);
    memory->regions[index] = region;
    memory->count++;
}

static uint32_t rma_memory_index_of(const struct sl_rdma_rma_memory *memory, uint64_t key)
{
    uint32_t index = 0;
    while (index < memory->count && memory->regions[index]->key != key) {
        index++;
    }
    return index;
}

static void take_out(struct sl_rdma_rma_memory *memory, const struct region *region)
{
    const uint32_t index = rma_memory_index_of(memory, region->key);
    memory->count--;
    memmove(memory->regions + index, memory->regions + index + 1,
            (memory->count - index) * sizeof memory->regions[0]);
}

/* Regions seldom overlap: the first one before the address is the one. */
bool sl_rdma_rma_memory_key(const struct sl_rdma_nic *nic, const void *at, uint32_t bytes,
                            uint32_t *key)
{
    const struct sl_rdma_rma_memory *memory = nic->rdma->rma_memory;
    for (uint32_t i = memory != NULL ? index_behind(memory, (uintptr_t)at) : 0; i-- > 0;) {
        const struct region *region = memory->regions[i];
        const size_t offset = (uintptr_t)at - (uintptr_t)region->base;
        if (!region->is_busy && region->mr != NULL && region->nic == nic &&
            offset <= region->bytes && bytes <= region->bytes - offset) {
            *key = region->mr->lkey;
            return true;
        }
    }
    return false;
}

/* Registration. Relaxed ordering could let a peer's later write become visible before an earlier
 * one. */

static void rma_memory_pin(struct sl_offload_job *job)
{
    struct region *region = SL_CONTAINER_OF(job, struct region, job);
    const struct sl_rdma_nic *nic = region->nic;
    if (nic == NULL) {
        return;
    }
    const bool is_written = (region->access & SL_TRANSPORT_RMA_PEERS_WRITE) != 0;
    const bool is_read = (region->access & SL_TRANSPORT_RMA_PEERS_READ) != 0;
    int access = IBV_ACCESS_LOCAL_WRITE;
    access |= is_read ? IBV_ACCESS_REMOTE_READ : 0;
    access |= is_written                ? IBV_ACCESS_REMOTE_WRITE
              : nic->caps.relaxed_order ? IBV_ACCESS_RELAXED_ORDERING
                                        : 0;
    errno = 0;
    region->mr = nic->rdma->library->reg_mr(nic->pd, region->base, region->bytes, access);
    region->reason = region->mr == NULL ? errno : 0;
}

static void start_removal(struct region *region);

static void on_pinned(struct sl_offload_job *job)
{
    struct region *region = SL_CONTAINER_OF(job, struct region, job);
    struct sl_rdma *rdma = region->rdma;
    rdma->rma_memory->jobs--;
    region->is_busy = false;
    if (rdma->base.is_closing) {
        return; /* sl_rdma_rma_memory_close frees it */
    }
    if (region->is_removed) {
        start_removal(region);
        return;
    }
    struct sl_transport_rma_token token = {0};
    int err = job->err;
    if (region->mr != NULL) {
        token = (struct sl_transport_rma_token){.name = (uintptr_t)region->base,
                                                .bytes = region->bytes,
                                                .remote_key = region->mr->rkey,
                                                .access = region->access};
    } else if (err == 0 && region->nic != NULL) {
        sl_rdma_memory_explain(region->nic, region->bytes, region->reason);
        err = sl_rdma_memory_is_short(region->reason) ? SL_ERR_NO_MEMORY : SL_ERR_IO;
    } else if (err == 0) {
        err = SL_ERR_IO;
    }
    if (err == 0 || err != region->reported) {
        region->reported = err;
        sl_transport_rma_report_added(&rdma->base, region->key, &token, err);
    }
}

static void start_pin(struct region *region, struct sl_rdma_nic *nic)
{
    struct sl_rdma_rma_memory *memory = region->rdma->rma_memory;
    region->nic = nic;
    region->is_busy = true;
    region->job =
        (struct sl_offload_job){.work = rma_memory_pin, .done = on_pinned, .allocates = true};
    memory->jobs++;
    sl_offload_post(memory->offload, &region->job);
}

static int prepare(struct sl_rdma *rdma)
{
    if (rdma->rma_memory == NULL) {
        rdma->rma_memory = calloc(1, sizeof *rdma->rma_memory);
    }
    if (rdma->rma_memory == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    struct sl_rdma_rma_memory *memory = rdma->rma_memory;
    return memory->offload != NULL
               ? 0
               : sl_offload_create(rdma->base.reactor, "rdma-pin", &memory->offload);
}

int sl_rdma_rma_memory_add(struct sl_rdma *rdma, struct sl_rdma_nic *nic, uint64_t key, void *base,
                           size_t bytes, unsigned access)
{
    const int err = prepare(rdma);
    if (err != 0) {
        return err;
    }
    struct sl_rdma_rma_memory *memory = rdma->rma_memory;
    if (rma_memory_index_of(memory, key) < memory->count) {
        return SL_ERR_EXISTS;
    }
    if (memory->count == SL_LIMIT_TRANSFER_BUFFERS) {
        return SL_ERR_TOO_LARGE;
    }
    struct region *region = calloc(1, sizeof *region);
    if (region == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    *region = (struct region){
        .rdma = rdma, .key = key, .base = base, .bytes = bytes, .access = access, .reported = 1};
    insert(memory, region);
    start_pin(region, nic);
    return 0;
}

static void dereg(struct region *region)
{
    if (region->mr != NULL) {
        (void)region->rdma->library->dereg_mr(region->mr);
        region->mr = NULL;
    }
}

static void rma_memory_unpin(struct sl_offload_job *job)
{
    dereg(SL_CONTAINER_OF(job, struct region, job));
}

static void on_unpinned(struct sl_offload_job *job)
{
    struct region *region = SL_CONTAINER_OF(job, struct region, job);
    struct sl_rdma *rdma = region->rdma;
    const uint64_t key = region->key;
    rdma->rma_memory->jobs--;
    dereg(region); /* if there was no thread */
    free(region);
    if (!rdma->base.is_closing) {
        sl_transport_rma_report_removed(&rdma->base, key, 0);
    }
}

static void start_removal(struct region *region)
{
    struct sl_rdma_rma_memory *memory = region->rdma->rma_memory;
    take_out(memory, region);
    region->job =
        (struct sl_offload_job){.work = rma_memory_unpin, .done = on_unpinned, .allocates = true};
    memory->jobs++;
    sl_offload_post(memory->offload, &region->job);
}

void sl_rdma_rma_memory_remove(struct sl_rdma *rdma, uint64_t key)
{
    struct sl_rdma_rma_memory *memory = rdma->rma_memory;
    const uint32_t index = memory != NULL ? rma_memory_index_of(memory, key) : 0;
    sl_assert(memory != NULL && index < memory->count);
    memory->regions[index]->is_removed = true;
    if (!memory->regions[index]->is_busy) {
        start_removal(memory->regions[index]);
    }
}

bool sl_rdma_rma_memory_is_busy(const struct sl_rdma *rdma)
{
    return rdma->rma_memory != NULL && rdma->rma_memory->jobs > 0;
}

void sl_rdma_rma_memory_pin_again(struct sl_rdma_nic *nic)
{
    const struct sl_rdma_rma_memory *memory = nic->rdma->rma_memory;
    for (uint32_t i = 0; memory != NULL && i < memory->count; i++) {
        struct region *region = memory->regions[i];
        if (!region->is_busy && (region->mr == NULL || region->nic->gone)) {
            dereg(region);
            start_pin(region, nic);
        }
    }
}

void sl_rdma_rma_memory_unpin(struct sl_rdma_nic *nic)
{
    struct sl_rdma_rma_memory *memory = nic->rdma->rma_memory;
    for (uint32_t i = 0; memory != NULL && i < memory->count; i++) {
        if (memory->regions[i]->nic == nic) {
            dereg(memory->regions[i]);
            memory->regions[i]->nic = NULL;
        }
    }
}

/* If a registration hangs in the kernel, its region must stay. */
void sl_rdma_rma_memory_close(struct sl_rdma *rdma)
{
    struct sl_rdma_rma_memory *memory = rdma->rma_memory;
    if (memory == NULL) {
        return;
    }
    if (memory->offload == NULL || sl_offload_destroy(&memory->offload, CLOSE_NS)) {
        for (uint32_t i = 0; i < memory->count; i++) {
            dereg(memory->regions[i]);
            free(memory->regions[i]);
        }
    }
    free(memory);
    rdma->rma_memory = NULL;
}
