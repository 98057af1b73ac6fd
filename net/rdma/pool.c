#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/arena_pages.h"
#include "core/log.h"
#include "net/rdma/internal.h"

#define SLAB_BYTES_MIN (64U << 10) /* where no more memory can be locked */
#define SLAB_BYTES     (256U << 10)
#define SLAB_BYTES_MAX (2U << 20)
#define BATCH          16U
#define CQ_SLACK       256U /* completions of queue pairs that are no more */

struct sl_rdma_slab {
    struct sl_rdma_slab *next;
    uint8_t *base;
    size_t bytes;
    struct ibv_mr *mr; /* NULL: given back, with the device */
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

/* ---- Slabs ------------------------------------------------------------------------------------
 */

static int access_of(const struct sl_rdma_nic *rail, enum sl_rdma_block_kind kind)
{
    int access = IBV_ACCESS_LOCAL_WRITE;
    if (kind == SL_RDMA_BLOCK_STAGING) {
        access |= IBV_ACCESS_REMOTE_READ;
    }
    if (kind == SL_RDMA_BLOCK_STAGING && rail->can.is_iwarp) {
        access |= IBV_ACCESS_REMOTE_WRITE;
    }
    return access;
}

static void slab_close(struct sl_rdma_slab *slab)
{
    sl_arena_pages_unmap(slab->base, slab->bytes);
    free(slab);
}

static struct sl_rdma_slab *slab_open(struct sl_rdma_nic *rail, enum sl_rdma_block_kind kind,
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
    slab->mr = sl_rdma_memory_pin(rail, slab->base, bytes, access_of(rail, kind));
    if (slab->mr == NULL) {
        slab_close(slab);
        return NULL;
    }
    for (uint32_t i = 0; i < count; i++) {
        slab->blocks[i] = (struct sl_rdma_block){.kind = kind,
                                                 .key = slab->mr->lkey,
                                                 .remote_key = slab->mr->rkey,
                                                 .rail = rail,
                                                 .at = slab->base + i * block_bytes[kind]};
    }
    return slab;
}

/* Each slab is as large as all before it together, within bounds: whoever has few connections locks
 * little memory. */
static size_t next_slab_bytes(const struct sl_rdma_pool *pool, enum sl_rdma_block_kind kind)
{
    size_t bytes = SLAB_BYTES;
    while (bytes < SLAB_BYTES_MAX && bytes < (size_t)pool->total[kind] * block_bytes[kind]) {
        bytes *= 2;
    }
    return bytes;
}

/* What could not be had a moment ago cannot be now: asking the system takes long. */
static bool grow(struct sl_rdma_nic *rail, enum sl_rdma_block_kind kind, bool at_all_costs)
{
    struct sl_rdma_pool *pool = &rail->pool;
    if (rail->gone ||
        (!at_all_costs && sl_rdma_memory_is_refused(rail, &pool->refusals[kind], SLAB_BYTES_MIN))) {
        return false;
    }
    struct sl_rdma_slab *slab = NULL;
    for (size_t bytes = next_slab_bytes(pool, kind); slab == NULL && bytes >= SLAB_BYTES_MIN;
         bytes /= 2) {
        slab = slab_open(rail, kind, bytes);
    }
    if (slab == NULL) {
        sl_rdma_memory_refused(rail, &pool->refusals[kind], SLAB_BYTES_MIN);
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

int sl_rdma_pool_open(struct sl_rdma_nic *rail)
{
    bool can = grow(rail, SL_RDMA_BLOCK_RECEIVE, true) && grow(rail, SL_RDMA_BLOCK_SEND, true) &&
               grow(rail, SL_RDMA_BLOCK_STAGING, true);
    return can ? 0 : SL_ERR_NO_MEMORY;
}

void sl_rdma_pool_close(struct sl_rdma_nic *rail)
{
    struct sl_rdma_pool *pool = &rail->pool;
    sl_rdma_pool_unpin(rail);
    while (pool->slabs != NULL) {
        struct sl_rdma_slab *slab = pool->slabs;
        pool->slabs = slab->next;
        slab_close(slab);
    }
    *pool = (struct sl_rdma_pool){0};
}

void sl_rdma_pool_unpin(struct sl_rdma_nic *rail)
{
    for (struct sl_rdma_slab *slab = rail->pool.slabs; slab != NULL; slab = slab->next) {
        if (slab->mr != NULL) {
            (void)rail->rdma->library->dereg_mr(slab->mr);
            slab->mr = NULL;
        }
    }
}

/* ---- Posting ----------------------------------------------------------------------------------
 */

/* On the stack, and not cleared. */
struct chain {
    struct ibv_recv_wr requests[BATCH];
    struct ibv_sge pieces[BATCH];
    struct sl_rdma_block *blocks[BATCH];
    uint32_t count;
};

static void chain_add(struct chain *chain, struct sl_rdma_block *block)
{
    uint32_t i = chain->count++;
    chain->blocks[i] = block;
    chain->pieces[i] = (struct ibv_sge){
        .addr = (uintptr_t)block->at, .length = block_bytes[block->kind], .lkey = block->key};
    chain->requests[i] = (struct ibv_recv_wr){
        .wr_id = (uintptr_t)block | 1, .sg_list = &chain->pieces[i], .num_sge = 1};
    if (i > 0) {
        chain->requests[i - 1].next = &chain->requests[i];
    }
}

/* With `conn` to its queue pair. What the device does not take is free again: it is about to fail,
 * or its connection is. */
static void chain_post(struct sl_rdma_nic *rail, struct sl_rdma_conn *conn, struct chain *chain)
{
    if (chain->count == 0) {
        return;
    }
    struct ibv_recv_wr *refused = NULL;
    int err = rail->srq != NULL ? ibv_post_srq_recv(rail->srq, chain->requests, &refused)
                                : ibv_post_recv(conn->link.id->qp, chain->requests, &refused);
    uint32_t taken = err != 0 ? (uint32_t)(refused - chain->requests) : chain->count;
    for (uint32_t i = 0; i < taken; i++) {
        chain->blocks[i]->posted_to = conn;
    }
    for (uint32_t i = taken; i < chain->count; i++) {
        push_free(&rail->pool, chain->blocks[i]);
    }
    rail->pool.posted += taken;
    if (conn != NULL) {
        conn->link.receives += taken;
    }
    if (err != 0) {
        sl_log_debug("rdma: %s: %u receive buffers were not taken: %s", rail->name,
                     chain->count - taken, strerror(err));
    }
    chain->count = 0;
}

/* What is free: to the shared receive queue as far as it goes, or to a connection up to what it was
 * promised. */
static void post_free(struct sl_rdma_nic *rail, struct sl_rdma_conn *conn)
{
    struct sl_rdma_pool *pool = &rail->pool;
    uint32_t posted = conn != NULL ? conn->link.receives : pool->posted;
    uint32_t wanted = conn != NULL ? conn->promised : rail->srq_entries;
    uint32_t room = wanted > posted ? wanted - posted : 0;
    struct chain chain;
    chain.count = 0;
    while (room > 0 && pool->free[SL_RDMA_BLOCK_RECEIVE] != NULL) {
        room--;
        chain_add(&chain, pop_free(pool, SL_RDMA_BLOCK_RECEIVE));
        if (chain.count == BATCH || room == 0 || pool->free[SL_RDMA_BLOCK_RECEIVE] == NULL) {
            uint32_t offered = chain.count;
            uint32_t before = pool->posted;
            chain_post(rail, conn, &chain);
            room = pool->posted - before == offered ? room : 0;
        }
    }
}

/* Without a shared receive queue: the connection that a message of was in the block, if it is still
 * short of what it was promised. It may have another queue pair meanwhile, which has all it needs.
 */
static struct sl_rdma_conn *who_misses(const struct sl_rdma_block *block, uint32_t chained)
{
    struct sl_rdma_conn *conn = block->conn;
    bool misses = conn != NULL && conn->serial == block->conn_serial && conn->link.id != NULL &&
                  conn->link.id->qp != NULL && conn->link.receives + chained < conn->promised;
    return misses ? conn : NULL;
}

void sl_rdma_pool_flush(struct sl_rdma_nic *rail)
{
    struct sl_rdma_pool *pool = &rail->pool;
    struct sl_rdma_conn *conn = NULL;
    struct chain chain;
    chain.count = 0;
    while (pool->again != NULL) {
        struct sl_rdma_block *block = pool->again;
        pool->again = block->next;
        struct sl_rdma_conn *next = NULL;
        if (rail->srq == NULL) {
            next = who_misses(block, block->conn == conn ? chain.count : 0);
        }
        if (rail->gone || (rail->srq == NULL && next == NULL)) {
            push_free(pool, block);
            continue;
        }
        if (next != conn) {
            chain_post(rail, conn, &chain);
        }
        conn = next;
        chain_add(&chain, block);
    }
    pool->again_count = 0;
    chain_post(rail, conn, &chain);
}

/* Whoever has no shared receive queue looks after each connection's. */
void sl_rdma_pool_refill(struct sl_rdma_nic *rail)
{
    const struct sl_rdma *rdma = rail->rdma;
    if (rail->gone || rail->pool.free[SL_RDMA_BLOCK_RECEIVE] == NULL) {
        return;
    }
    if (rail->srq != NULL) {
        post_free(rail, NULL);
        return;
    }
    for (uint32_t i = 0; i < rdma->conn_capacity; i++) {
        struct sl_rdma_conn *conn = rdma->conns[i];
        if (conn != NULL && conn->rail == rail && conn->promised > 0 && conn->link.id != NULL &&
            conn->link.id->qp != NULL) {
            post_free(rail, conn);
        }
    }
}

/* ---- Promises ---------------------------------------------------------------------------------
 */

static bool grow_completion_queue(struct sl_rdma_nic *rail, uint32_t needed)
{
    uint32_t entries = rail->cq_entries;
    while (entries < needed) {
        entries *= 2;
    }
    entries = entries < rail->can.cqe_max ? entries : rail->can.cqe_max;
    if (entries < needed || !rail->can.resizes) {
        return false;
    }
    if (rail->rdma->library->resize_cq(rail->cq, (int)entries) != 0) {
        return false;
    }
    rail->cq_entries = (uint32_t)rail->cq->cqe;
    return rail->cq_entries >= needed;
}

/* Every work request outstanding may complete, those in error although they are not signalled. */
static bool reserve_completions(struct sl_rdma_nic *rail, uint32_t promised)
{
    uint32_t needed = promised + CQ_SLACK;
    if (needed > rail->cq_entries && !grow_completion_queue(rail, needed)) {
        return false;
    }
    rail->cq_promised = promised;
    return true;
}

static bool reserve_buffers(struct sl_rdma_nic *rail, uint32_t promised, bool at_all_costs)
{
    struct sl_rdma_pool *pool = &rail->pool;
    if (rail->srq != NULL && promised > rail->srq_entries) {
        return false;
    }
    while (pool->total[SL_RDMA_BLOCK_RECEIVE] < promised) {
        if (!grow(rail, SL_RDMA_BLOCK_RECEIVE, at_all_costs)) {
            return false;
        }
    }
    pool->promised = promised;
    return true;
}

/* Work requests of a queue pair that may complete. With iWARP reads may be outstanding that count
 * as completed, as what was sent behind them is. */
static uint32_t sends_of(const struct sl_rdma_nic *rail)
{
    return SL_RDMA_SENDS + (rail->can.is_iwarp ? rail->can.reads_max : 0);
}

bool sl_rdma_pool_reserve(struct sl_rdma_nic *rail, struct sl_rdma_conn *conn, uint32_t window)
{
    struct sl_rdma_pool *pool = &rail->pool;
    uint32_t wanted = window + SL_RDMA_SPARE;
    bool is_new = conn->promised == 0;
    uint32_t buffers = pool->promised - conn->promised + wanted;
    uint32_t completions =
        rail->cq_promised - conn->promised + wanted + (is_new ? sends_of(rail) : 0);
    bool is_minimum = window <= SL_RDMA_WINDOW_MIN;
    if (rail->gone || (!is_minimum && buffers > rail->rdma->buffers_max)) {
        return false;
    }
    uint32_t before = rail->cq_promised;
    if (!reserve_completions(rail, completions)) {
        sl_log_debug("rdma: %s: no room for completions of one more connection", rail->name);
        return false;
    }
    if (!reserve_buffers(rail, buffers, is_minimum)) {
        rail->cq_promised = before;
        return false;
    }
    rail->promises += is_new;
    conn->promised = wanted;
    post_free(rail, rail->srq == NULL ? conn : NULL);
    return true;
}

bool sl_rdma_pool_is_full(const struct sl_rdma_nic *rail)
{
    const uint32_t buffers = SL_RDMA_WINDOW_MIN + SL_RDMA_SPARE;
    const uint32_t entries = rail->can.resizes ? rail->can.cqe_max : rail->cq_entries;
    return rail->cq_promised + sends_of(rail) + buffers + CQ_SLACK > entries ||
           (rail->srq != NULL && rail->pool.promised + buffers > rail->srq_entries);
}

static void take_back(struct sl_rdma_nic *rail, struct sl_rdma_conn *conn)
{
    struct sl_rdma_pool *pool = &rail->pool;
    for (struct sl_rdma_slab *slab = pool->slabs; slab != NULL; slab = slab->next) {
        for (uint32_t i = 0; i < slab->block_count; i++) {
            struct sl_rdma_block *block = &slab->blocks[i];
            if (block->posted_to == conn) {
                block->posted_to = NULL;
                pool->posted--;
                push_free(pool, block);
            }
        }
    }
    conn->link.receives = 0;
}

void sl_rdma_pool_forget(struct sl_rdma_nic *rail, struct sl_rdma_conn *conn)
{
    if (rail->srq == NULL && conn->link.receives > 0) {
        take_back(rail, conn);
    }
}

void sl_rdma_pool_release(struct sl_rdma_nic *rail, struct sl_rdma_conn *conn)
{
    sl_rdma_pool_forget(rail, conn);
    if (conn->promised == 0) {
        return;
    }
    rail->pool.promised -= conn->promised;
    rail->cq_promised -= conn->promised + sends_of(rail);
    rail->promises--;
    conn->promised = 0;
}

/* ---- Blocks -----------------------------------------------------------------------------------
 */

struct sl_rdma_block *sl_rdma_pool_get(struct sl_rdma_nic *rail, enum sl_rdma_block_kind kind)
{
    struct sl_rdma_pool *pool = &rail->pool;
    sl_assert(kind != SL_RDMA_BLOCK_RECEIVE);
    struct sl_rdma_block *block = pop_free(pool, kind);
    if (block == NULL && pool->total[kind] < rail->rdma->buffers_max && grow(rail, kind, false)) {
        block = pop_free(pool, kind);
    }
    return block;
}

struct sl_rdma_block *sl_rdma_pool_lend(struct sl_rdma_nic *rail)
{
    struct sl_rdma_pool *pool = &rail->pool;
    const uint32_t total = pool->total[SL_RDMA_BLOCK_STAGING];
    if (pool->lent + 1 >= total &&
        (total >= rail->rdma->buffers_max || !grow(rail, SL_RDMA_BLOCK_STAGING, false))) {
        return NULL;
    }
    struct sl_rdma_block *block = sl_rdma_pool_get(rail, SL_RDMA_BLOCK_STAGING);
    pool->lent += block != NULL;
    return block;
}

void sl_rdma_pool_unlend(struct sl_rdma_block *block)
{
    block->rail->pool.lent--;
    sl_rdma_pool_put(block);
}

/* A completion may be looked at only after its queue pair was destroyed and what was posted there
 * taken back, and perhaps posted to another. */
static bool is_posted_to(const struct sl_rdma_block *block, uint32_t queue_pair)
{
    const struct sl_rdma_conn *conn = block->posted_to;
    return conn != NULL && conn->link.id->qp->qp_num == queue_pair;
}

struct sl_rdma_block *sl_rdma_pool_take(struct sl_rdma_nic *rail, const struct ibv_wc *completion)
{
    struct sl_rdma_block *block = (struct sl_rdma_block *)(uintptr_t)(completion->wr_id - 1);
    bool good = completion->status == IBV_WC_SUCCESS;
    if (rail->srq == NULL && !is_posted_to(block, completion->qp_num)) {
        return NULL;
    }
    rail->pool.posted--;
    if (block->posted_to != NULL) {
        block->posted_to->link.receives--;
    }
    block->conn = good ? block->posted_to : NULL;
    block->conn_serial = block->conn != NULL ? block->conn->serial : 0;
    block->posted_to = NULL;
    return block;
}

void sl_rdma_pool_put(struct sl_rdma_block *block)
{
    struct sl_rdma_pool *pool = &block->rail->pool;
    sl_assert(block->refs == 0);
    if (block->kind != SL_RDMA_BLOCK_RECEIVE) {
        struct sl_rdma *rdma = block->rail->rdma;
        push_free(pool, block);
        if (block->kind == SL_RDMA_BLOCK_STAGING && rdma->ready != NULL) {
            rdma->awake = true; /* one of those may wait for it */
        }
        return;
    }
    block->next = pool->again;
    pool->again = block;
    if (++pool->again_count == BATCH) {
        sl_rdma_pool_flush(block->rail);
    }
}
