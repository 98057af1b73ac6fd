#include "net/rdma/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "core/log.h"
#include "core/shared.h"
#include "net/rdma/wake.h"

/* Remote access of a registration. Each level includes the lower ones. */
enum level { LOCAL, READABLE, WRITABLE, LEVELS };

struct region_chunks {
    uint64_t serial; /* registration that the chunks belong to; 0: none */
    size_t count;
    /* [LEVELS * count], by level, then by chunk. NULL: not registered with the device yet. */
    struct ibv_mr **chunks;
};

struct sl_rdma_chunks {
    struct region_chunks regions[SL_RDMA_REGIONS];
    uint32_t last; /* the region found last */
    struct sl_rdma_refusal refusal;
};

/* Registration with the device */

bool sl_rdma_memory_is_short(int reason)
{
    return reason == ENOMEM || reason == EAGAIN;
}

void sl_rdma_memory_explain(struct sl_rdma_nic *nic, size_t bytes, int reason)
{
    if (nic->limit_told) {
        return;
    }
    nic->limit_told = true;
    struct rlimit limit = {.rlim_cur = RLIM_INFINITY};
    (void)getrlimit(RLIMIT_MEMLOCK, &limit);
    if (limit.rlim_cur == RLIM_INFINITY) {
        sl_log_warn("rdma: %s: %zu bytes of memory could not be registered: %s", nic->name, bytes,
                    strerror(reason));
        return;
    }
    sl_log_warn("rdma: %s: %zu bytes of memory could not be registered: %s; %llu bytes may be "
                "locked at most: raise that (ulimit -l unlimited, memlock in "
                "/etc/security/limits.conf, LimitMEMLOCK=infinity of a service, docker run "
                "--ulimit memlock=-1)",
                nic->name, bytes, strerror(reason), (unsigned long long)limit.rlim_cur);
}

void sl_rdma_memory_refused(struct sl_rdma_nic *nic, struct sl_rdma_refusal *refusal, size_t bytes)
{
    sl_rdma_memory_explain(nic, bytes, errno);
    *refusal = (struct sl_rdma_refusal){.round = nic->rdma->retry.count, .bytes = bytes};
    sl_rdma_wake_retry(nic->rdma);
}

bool sl_rdma_memory_is_refused(const struct sl_rdma_nic *nic, const struct sl_rdma_refusal *refusal,
                               size_t bytes)
{
    return refusal->bytes != 0 && bytes >= refusal->bytes &&
           refusal->round == nic->rdma->retry.count;
}

struct ibv_mr *sl_rdma_memory_pin(struct sl_rdma_nic *nic, void *at, size_t bytes, int access)
{
    access |= nic->caps.relaxed_order ? IBV_ACCESS_RELAXED_ORDERING : 0;
    return nic->rdma->library->reg_mr(nic->pd, at, bytes, access);
}

/* Regions of the layers above */

int sl_rdma_memory_register(struct sl_transport *transport, void *base, size_t bytes)
{
    struct sl_rdma *rdma = (struct sl_rdma *)transport;
    uint32_t index = 0;
    while (index < SL_RDMA_REGIONS && rdma->regions[index].base != NULL) {
        index++;
    }
    if (index == SL_RDMA_REGIONS) {
        sl_log_error("rdma: more than %u regions cannot be registered", SL_RDMA_REGIONS);
        return SL_ERR_NO_MEMORY;
    }
    const struct sl_shared *shared = sl_shared_find(base, bytes);
    rdma->regions[index] =
        (struct sl_rdma_region){.base = base,
                                .bytes = bytes,
                                .peers_write = shared != NULL && shared->access == SL_SHARED_WRITE,
                                .lands = shared == NULL || shared->access == SL_SHARED_WRITE,
                                .serial = ++rdma->region_serial};
    rdma->region_end = index >= rdma->region_end ? index + 1 : rdma->region_end;
    return 0;
}

static void drop_chunks(struct sl_rdma_nic *nic, uint32_t index)
{
    struct region_chunks *region = &nic->chunks->regions[index];
    for (size_t i = 0; i < LEVELS * region->count; i++) {
        if (region->chunks[i] != NULL) {
            (void)nic->rdma->library->dereg_mr(region->chunks[i]);
        }
    }
    free(region->chunks);
    *region = (struct region_chunks){0};
}

void sl_rdma_memory_unregister(struct sl_transport *transport, void *base)
{
    struct sl_rdma *rdma = (struct sl_rdma *)transport;
    for (uint32_t index = 0; index < rdma->region_end; index++) {
        if (rdma->regions[index].base != base) {
            continue;
        }
        for (struct sl_rdma_nic *nic = rdma->nics; nic != NULL; nic = nic->next) {
            if (nic->chunks != NULL) {
                drop_chunks(nic, index);
            }
        }
        rdma->regions[index] = (struct sl_rdma_region){0};
        return;
    }
}

/* Keys */

static bool holds(const struct sl_rdma_region *region, const void *at, size_t bytes)
{
    uintptr_t offset = (uintptr_t)at - (uintptr_t)region->base;
    return region->base != NULL && (uintptr_t)at >= (uintptr_t)region->base &&
           offset <= region->bytes && bytes <= region->bytes - offset;
}

static const struct sl_rdma_region *rdma_memory_find_region(struct sl_rdma_nic *nic, const void *at,
                                                            size_t bytes)
{
    const struct sl_rdma *rdma = nic->rdma;
    struct sl_rdma_chunks *chunks = nic->chunks;
    if (holds(&rdma->regions[chunks->last], at, bytes)) {
        return &rdma->regions[chunks->last];
    }
    for (uint32_t index = 0; index < rdma->region_end; index++) {
        if (holds(&rdma->regions[index], at, bytes)) {
            chunks->last = index;
            return &rdma->regions[index];
        }
    }
    return NULL;
}

static bool make_chunks(struct sl_rdma_nic *nic, const struct sl_rdma_region *region,
                        uint32_t index)
{
    struct region_chunks *chunks = &nic->chunks->regions[index];
    if (chunks->serial == region->serial) {
        return true;
    }
    drop_chunks(nic, index);
    size_t count = (region->bytes + SL_RDMA_CHUNK_BYTES - 1) / SL_RDMA_CHUNK_BYTES;
    struct ibv_mr **array = calloc(LEVELS * count, sizeof *array);
    if (array == NULL) {
        return false;
    }
    *chunks = (struct region_chunks){.serial = region->serial, .count = count, .chunks = array};
    return true;
}

/* Memory that peers may write is registered once, at the highest level. */
static enum level level_of(const struct sl_rdma_region *region, enum sl_rdma_use use)
{
    const bool is_written = region->peers_write || use == SL_RDMA_USE_REPLY_BUFFER;
    return is_written ? WRITABLE : use == SL_RDMA_USE_READ ? READABLE : LOCAL;
}

/* The registration of a chunk for this level, or a higher one; else the place for it. */
static struct ibv_mr **place_of(const struct region_chunks *chunks, size_t number, enum level level)
{
    for (size_t i = level; i < LEVELS; i++) {
        struct ibv_mr **place = &chunks->chunks[i * chunks->count + number];
        if (*place != NULL) {
            return place;
        }
    }
    return &chunks->chunks[level * chunks->count + number];
}

static struct ibv_mr *chunk_get(struct sl_rdma_nic *nic, const struct sl_rdma_region *region,
                                size_t number, enum sl_rdma_use use)
{
    struct sl_rdma_chunks *all = nic->chunks;
    uint32_t index = (uint32_t)(region - nic->rdma->regions);
    if (!make_chunks(nic, region, index)) {
        return NULL;
    }
    static const int accesses[LEVELS] = {
        [LOCAL] = IBV_ACCESS_LOCAL_WRITE,
        [READABLE] = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ,
        [WRITABLE] = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE};
    const enum level level = level_of(region, use);
    struct ibv_mr **chunk = place_of(&all->regions[index], number, level);
    if (*chunk != NULL) {
        return *chunk;
    }
    size_t offset = number * SL_RDMA_CHUNK_BYTES;
    size_t left = region->bytes - offset;
    size_t bytes = left < SL_RDMA_CHUNK_BYTES ? left : SL_RDMA_CHUNK_BYTES;
    if (sl_rdma_memory_is_refused(nic, &all->refusal, bytes)) {
        return NULL;
    }
    *chunk = sl_rdma_memory_pin(nic, region->base + offset, bytes, accesses[level]);
    if (*chunk == NULL) {
        sl_rdma_memory_refused(nic, &all->refusal, bytes);
    }
    return *chunk;
}

static uint32_t find_in_region(struct sl_rdma_nic *nic, const struct sl_rdma_region *region,
                               uint8_t *at, uint32_t bytes, enum sl_rdma_use use,
                               struct sl_rdma_local_sge *spans, uint32_t local_sge_max)
{
    uint32_t count = 0;
    while (bytes > 0) {
        size_t offset = (size_t)(at - region->base);
        size_t left = SL_RDMA_CHUNK_BYTES - offset % SL_RDMA_CHUNK_BYTES;
        uint32_t part = bytes < left ? bytes : (uint32_t)left;
        const struct ibv_mr *mr = count < local_sge_max
                                      ? chunk_get(nic, region, offset / SL_RDMA_CHUNK_BYTES, use)
                                      : NULL;
        if (mr == NULL) {
            return 0;
        }
        spans[count++] = (struct sl_rdma_local_sge){
            .at = at, .bytes = part, .local_key = mr->lkey, .remote_key = mr->rkey};
        at += part;
        bytes -= part;
    }
    return count;
}

bool sl_rdma_memory_is_registered(struct sl_rdma_nic *nic, const void *at, uint32_t bytes)
{
    return nic->chunks != NULL && rdma_memory_find_region(nic, at, bytes) != NULL;
}

uint32_t sl_rdma_memory_find(struct sl_rdma_nic *nic, const void *at, uint32_t bytes,
                             enum sl_rdma_use use, struct sl_rdma_local_sge *spans,
                             uint32_t local_sge_max)
{
    sl_assert(bytes > 0);
    sl_assert(local_sge_max > 0);
    if (nic->gone || nic->chunks == NULL) {
        return 0;
    }
    const struct sl_rdma_region *region = rdma_memory_find_region(nic, at, bytes);
    if (region == NULL || (use == SL_RDMA_USE_REPLY_BUFFER && !region->lands)) {
        return 0;
    }
    return find_in_region(nic, region, (uint8_t *)(uintptr_t)at, bytes, use, spans, local_sge_max);
}

/* Open and close */

int sl_rdma_memory_open(struct sl_rdma_nic *nic)
{
    nic->chunks = calloc(1, sizeof *nic->chunks);
    return nic->chunks != NULL ? 0 : SL_ERR_NO_MEMORY;
}

void sl_rdma_memory_close(struct sl_rdma_nic *nic)
{
    if (nic->chunks == NULL) {
        return;
    }
    for (uint32_t index = 0; index < SL_RDMA_REGIONS; index++) {
        drop_chunks(nic, index);
    }
    free(nic->chunks);
    nic->chunks = NULL;
}
