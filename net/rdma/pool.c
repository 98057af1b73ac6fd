#include "net/rdma/pool.h"

#include <stdlib.h>
#include <string.h>

#include "core/arena_pages.h"
#include "core/log.h"
#include "net/rdma/state.h"

#define SLAB_BYTES_MIN (64U << 10) /* last resort when locked memory is short */
#define SLAB_BYTES     (256U << 10)
#define SLAB_BYTES_MAX (2U << 20)
#define BATCH          16U
#define CQ_SLACK       256U /* completions of destroyed queue pairs */

struct sl_rdma_slab {
    struct sl_rdma_slab *next;
    uint8_t *base;
    size_t bytes;
    struct ibv_mr *mr; /* NULL: deregistered, the device is gone */
    uint32_t block_count;
    struct sl_rdma_block blocks[];
};

static const uint32_t block_bytes[] = {
    [SL_RDMA_BLOCK_RECEIVE] = SL_RDMA_PACKET_BYTES,
    [SL_RDMA_BLOCK_STAGING] = SL_RDMA_STAGING_BYTES,
    [SL_RDMA_BLOCK_SEND] = SL_RDMA_PACKET_BYTES,
};

static void push_free(struct sl_rdma_pool *pool, struct sl_rdma_block *block)
{
    block->next = pool->free[block->kind];
    pool->free[block->kind] = block;
}

static struct sl_rdma_block *pop_free(struct sl_rdma_pool *pool, enum sl_rdma_block_kind kind)
{
    struct sl_rdma_block *block = pool->free[kind];
    if (block != NULL) {
        pool->free[kind] = block->next;
        block->next = NULL;
    }
    return block;
}

/* Slabs */

static int access_of(enum sl_rdma_block_kind kind)
{
    return IBV_ACCESS_LOCAL_WRITE | (kind == SL_RDMA_BLOCK_STAGING ? IBV_ACCESS_REMOTE_READ : 0);
}

static void slab_close(struct sl_rdma_slab *slab)
{
    sl_arena_pages_unmap(slab->base, slab->bytes);
    free(slab);
}

static struct sl_rdma_slab *slab_open(struct sl_rdma_nic *nic, enum sl_rdma_block_kind kind,
                                      size_t bytes)
{
    uint32_t count = (uint32_t)(bytes / block_bytes[kind]);
    struct sl_rdma_slab *slab = calloc(1, sizeof *slab + count * sizeof slab->blocks[0]);
    if (slab == NULL) {
        return NULL;
    }
    slab->bytes = bytes;
    slab->block_count = count;
    slab->base = sl_arena_pages_map(bytes, bytes % SL_ARENA_HUGE_PAGE_BYTES == 0);
    if (slab->base == NULL) {
        free(slab);
        return NULL;
    }
    slab->mr = sl_rdma_memory_pin(nic, slab->base, bytes, access_of(kind));
    if (slab->mr == NULL) {
        slab_close(slab);
        return NULL;
    }
    for (uint32_t i = 0; i < count; i++) {
        slab->blocks[i] = (struct sl_rdma_block){.kind = kind,
                                                 .key = slab->mr->lkey,
                                                 .remote_key = slab->mr->rkey,
                                                 .nic = nic,
                                                 .at = slab->base + i * block_bytes[kind]};
    }
    return slab;
}

/* Each slab is as large as all slabs before it, within bounds: few connections lock little
 * memory. */
static size_t next_slab_bytes(const struct sl_rdma_pool *pool, enum sl_rdma_block_kind kind)
{
    size_t bytes = SLAB_BYTES;
    while (bytes < SLAB_BYTES_MAX && bytes < (size_t)pool->total[kind] * block_bytes[kind]) {
        bytes *= 2;
    }
    return bytes;
}

/* Skips sizes that were refused in this round: asking the kernel is slow. */
static bool rdma_pool_grow(struct sl_rdma_nic *nic, enum sl_rdma_block_kind kind, bool at_all_costs)
{
    struct sl_rdma_pool *pool = &nic->pool;
    if (nic->gone ||
        (!at_all_costs && sl_rdma_memory_is_refused(nic, &pool->refusals[kind], SLAB_BYTES_MIN))) {
        return false;
    }
    struct sl_rdma_slab *slab = NULL;
    for (size_t bytes = next_slab_bytes(pool, kind); slab == NULL && bytes >= SLAB_BYTES_MIN;
         bytes /= 2) {
        slab = slab_open(nic, kind, bytes);
    }
    if (slab == NULL) {
        sl_rdma_memory_refused(nic, &pool->refusals[kind], SLAB_BYTES_MIN);
        return false;
    }
    slab->next = pool->slabs;
    pool->slabs = slab;
    pool->total[kind] += slab->block_count;
    for (uint32_t i = slab->block_count; i > 0; i--) {
        push_free(pool, &slab->blocks[i - 1]);
    }
    return true;
}

int sl_rdma_pool_open(struct sl_rdma_nic *nic)
{
    bool can = rdma_pool_grow(nic, SL_RDMA_BLOCK_RECEIVE, true) &&
               rdma_pool_grow(nic, SL_RDMA_BLOCK_SEND, true) &&
               rdma_pool_grow(nic, SL_RDMA_BLOCK_STAGING, true);
    return can ? 0 : SL_ERR_NO_MEMORY;
}

void sl_rdma_pool_close(struct sl_rdma_nic *nic)
{
    struct sl_rdma_pool *pool = &nic->pool;
    sl_rdma_pool_unpin(nic);
    while (pool->slabs != NULL) {
        struct sl_rdma_slab *slab = pool->slabs;
        pool->slabs = slab->next;
        slab_close(slab);
    }
    *pool = (struct sl_rdma_pool){0};
}

void sl_rdma_pool_unpin(struct sl_rdma_nic *nic)
{
    for (struct sl_rdma_slab *slab = nic->pool.slabs; slab != NULL; slab = slab->next) {
        if (slab->mr != NULL) {
            (void)nic->rdma->library->dereg_mr(slab->mr);
            slab->mr = NULL;
        }
    }
}

/* Posting */

/* On the stack, not cleared. */
struct batch {
    struct ibv_recv_wr requests[BATCH];
    struct ibv_sge remote_sges[BATCH];
    struct sl_rdma_block *blocks[BATCH];
    uint32_t count;
};

static void batch_add(struct batch *batch, struct sl_rdma_block *block)
{
    uint32_t i = batch->count++;
    batch->blocks[i] = block;
    batch->remote_sges[i] = (struct ibv_sge){
        .addr = (uintptr_t)block->at, .length = block_bytes[block->kind], .lkey = block->key};
    batch->requests[i] = (struct ibv_recv_wr){
        .wr_id = (uintptr_t)block | 1, .sg_list = &batch->remote_sges[i], .num_sge = 1};
    if (i > 0) {
        batch->requests[i - 1].next = &batch->requests[i];
    }
}

/* Blocks that the device refuses become free: the device is about to fail. */
static void rdma_pool_batch_post(struct sl_rdma_nic *nic, struct batch *batch)
{
    if (batch->count == 0) {
        return;
    }
    struct ibv_recv_wr *refused = NULL;
    int err = ibv_post_srq_recv(nic->srq, batch->requests, &refused);
    uint32_t taken = err != 0 ? (uint32_t)(refused - batch->requests) : batch->count;
    for (uint32_t i = taken; i < batch->count; i++) {
        push_free(&nic->pool, batch->blocks[i]);
    }
    nic->pool.posted += taken;
    if (err != 0) {
        sl_log_debug("rdma: %s: %u receive buffers were not taken: %s", nic->name,
                     batch->count - taken, strerror(err));
    }
    batch->count = 0;
}

/* Posts free blocks to the shared receive queue, as far as it has room. */
static void post_free(struct sl_rdma_nic *nic)
{
    struct sl_rdma_pool *pool = &nic->pool;
    uint32_t room = nic->srq_entries > pool->posted ? nic->srq_entries - pool->posted : 0;
    struct batch batch;
    batch.count = 0;
    while (room > 0 && pool->free[SL_RDMA_BLOCK_RECEIVE] != NULL) {
        room--;
        batch_add(&batch, pop_free(pool, SL_RDMA_BLOCK_RECEIVE));
        if (batch.count == BATCH || room == 0 || pool->free[SL_RDMA_BLOCK_RECEIVE] == NULL) {
            uint32_t offered = batch.count;
            uint32_t before = pool->posted;
            rdma_pool_batch_post(nic, &batch);
            room = pool->posted - before == offered ? room : 0;
        }
    }
}

void sl_rdma_pool_flush(struct sl_rdma_nic *nic)
{
    struct sl_rdma_pool *pool = &nic->pool;
    struct batch batch;
    batch.count = 0;
    while (pool->again != NULL) {
        struct sl_rdma_block *block = pool->again;
        pool->again = block->next;
        if (nic->gone) {
            push_free(pool, block);
        } else {
            batch_add(&batch, block);
        }
    }
    pool->again_count = 0;
    rdma_pool_batch_post(nic, &batch);
}

void sl_rdma_pool_refill(struct sl_rdma_nic *nic)
{
    if (!nic->gone) {
        post_free(nic);
    }
}

/* Reservations */

static bool grow_completion_queue(struct sl_rdma_nic *nic, uint32_t needed)
{
    uint32_t entries = nic->cq_entries;
    while (entries < needed) {
        entries *= 2;
    }
    entries = entries < nic->caps.cqe_max ? entries : nic->caps.cqe_max;
    if (entries < needed || !nic->caps.resizes) {
        return false;
    }
    if (nic->rdma->library->resize_cq(nic->cq, (int)entries) != 0) {
        return false;
    }
    nic->cq_entries = (uint32_t)nic->cq->cqe;
    return nic->cq_entries >= needed;
}

/* Every outstanding work request may complete: after an error unsignalled ones do, too. */
static bool reserve_completions(struct sl_rdma_nic *nic, uint32_t promised)
{
    uint32_t needed = promised + CQ_SLACK;
    if (needed > nic->cq_entries && !grow_completion_queue(nic, needed)) {
        return false;
    }
    nic->cq_promised = promised;
    return true;
}

static bool reserve_buffers(struct sl_rdma_nic *nic, uint32_t promised, bool at_all_costs)
{
    struct sl_rdma_pool *pool = &nic->pool;
    if (promised > nic->srq_entries) {
        return false;
    }
    while (pool->total[SL_RDMA_BLOCK_RECEIVE] < promised) {
        if (!rdma_pool_grow(nic, SL_RDMA_BLOCK_RECEIVE, at_all_costs)) {
            return false;
        }
    }
    pool->reserved = promised;
    return true;
}

bool sl_rdma_pool_reserve(struct sl_rdma_nic *nic, struct sl_rdma_conn *conn, uint32_t window)
{
    struct sl_rdma_pool *pool = &nic->pool;
    uint32_t wanted = window + SL_RDMA_SPARE;
    bool is_new = conn->reserved == 0;
    uint32_t buffers = pool->reserved - conn->reserved + wanted;
    uint32_t completions =
        nic->cq_promised - conn->reserved + wanted + (is_new ? SL_RDMA_SENDS : 0);
    bool is_minimum = window <= SL_RDMA_WINDOW_MIN;
    if (nic->gone || (!is_minimum && buffers > nic->rdma->options.buffers_max)) {
        return false;
    }
    uint32_t before = nic->cq_promised;
    if (!reserve_completions(nic, completions)) {
        sl_log_debug("rdma: %s: no room for completions of one more connection", nic->name);
        return false;
    }
    if (!reserve_buffers(nic, buffers, is_minimum)) {
        nic->cq_promised = before;
        return false;
    }
    nic->promises += is_new;
    conn->reserved = wanted;
    post_free(nic);
    return true;
}

bool sl_rdma_pool_is_full(const struct sl_rdma_nic *nic)
{
    const uint32_t buffers = SL_RDMA_WINDOW_MIN + SL_RDMA_SPARE;
    const uint32_t entries = nic->caps.resizes ? nic->caps.cqe_max : nic->cq_entries;
    return nic->cq_promised + SL_RDMA_SENDS + buffers + CQ_SLACK > entries ||
           nic->pool.reserved + buffers > nic->srq_entries;
}

void sl_rdma_pool_release(struct sl_rdma_nic *nic, struct sl_rdma_conn *conn)
{
    if (conn->reserved == 0) {
        return;
    }
    nic->pool.reserved -= conn->reserved;
    nic->cq_promised -= conn->reserved + SL_RDMA_SENDS;
    nic->promises--;
    conn->reserved = 0;
}

/* Blocks */

struct sl_rdma_block *sl_rdma_pool_get(struct sl_rdma_nic *nic, enum sl_rdma_block_kind kind)
{
    struct sl_rdma_pool *pool = &nic->pool;
    sl_assert(kind != SL_RDMA_BLOCK_RECEIVE);
    struct sl_rdma_block *block = pop_free(pool, kind);
    if (block == NULL && pool->total[kind] < nic->rdma->options.buffers_max &&
        rdma_pool_grow(nic, kind, false)) {
        block = pop_free(pool, kind);
    }
    return block;
}

struct sl_rdma_block *sl_rdma_pool_lend(struct sl_rdma_nic *nic)
{
    struct sl_rdma_pool *pool = &nic->pool;
    const uint32_t total = pool->total[SL_RDMA_BLOCK_STAGING];
    if (pool->lent + 1 >= total && (total >= nic->rdma->options.buffers_max ||
                                    !rdma_pool_grow(nic, SL_RDMA_BLOCK_STAGING, false))) {
        return NULL;
    }
    struct sl_rdma_block *block = sl_rdma_pool_get(nic, SL_RDMA_BLOCK_STAGING);
    pool->lent += block != NULL;
    return block;
}

void sl_rdma_pool_unlend(struct sl_rdma_block *block)
{
    block->nic->pool.lent--;
    sl_rdma_pool_put(block);
}

struct sl_rdma_block *sl_rdma_pool_take(struct sl_rdma_nic *nic, const struct ibv_wc *completion)
{
    nic->pool.posted--;
    return (struct sl_rdma_block *)(uintptr_t)(completion->wr_id - 1);
}

void sl_rdma_pool_put(struct sl_rdma_block *block)
{
    struct sl_rdma_pool *pool = &block->nic->pool;
    sl_assert(block->refs == 0);
    if (block->kind != SL_RDMA_BLOCK_RECEIVE) {
        struct sl_rdma *rdma = block->nic->rdma;
        push_free(pool, block);
        if (block->kind == SL_RDMA_BLOCK_STAGING && !sl_list_empty(&rdma->ready)) {
            rdma->awake = true; /* a waiting connection may need it */
        }
        return;
    }
    block->next = pool->again;
    pool->again = block;
    if (++pool->again_count == BATCH) {
        sl_rdma_pool_flush(block->nic);
    }
}
