#include "net/rdma/cache.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "net/rdma/internal.h"
#include "net/rdma/unmapped.h"

#define LOOK_BACK 8U /* entries that begin before an address and may hold it, looked at at most */

struct sl_rdma_hold {
    uintptr_t base;
    size_t bytes;
    int access;
    uint32_t uses;
    bool listed; /* in the index */
    struct ibv_mr *mr;
    struct sl_rdma_unmapped *watch;     /* NULL: not kept beyond its uses */
    struct sl_rdma_hold *newer, *older; /* of those listed */
};

struct sl_rdma_cache {
    struct sl_rdma_nic *nic;
    struct sl_rdma_hold **index; /* by base */
    uint32_t count, capacity;
    struct sl_rdma_hold *newest, *oldest;
    size_t bytes, bytes_max; /* listed */
    uint32_t entries_max;
    uint32_t unmapped_count; /* when the index was last cleared of what was unmapped */
    struct sl_rdma_refusal refusal;
    bool watching;
};

/* ---- The index and the order of use -----------------------------------------------------------
 */

/* How many begin at `base` or before. */
static uint32_t position_after(const struct sl_rdma_cache *cache, uintptr_t base)
{
    uint32_t low = 0;
    uint32_t high = cache->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (cache->index[middle]->base <= base) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static void unlink_use(struct sl_rdma_cache *cache, struct sl_rdma_hold *hold)
{
    *(hold->newer != NULL ? &hold->newer->older : &cache->newest) = hold->older;
    *(hold->older != NULL ? &hold->older->newer : &cache->oldest) = hold->newer;
}

static void link_newest(struct sl_rdma_cache *cache, struct sl_rdma_hold *hold)
{
    hold->newer = NULL;
    hold->older = cache->newest;
    *(hold->older != NULL ? &hold->older->newer : &cache->oldest) = hold;
    cache->newest = hold;
}

static bool reserve_place(struct sl_rdma_cache *cache)
{
    if (cache->count < cache->capacity) {
        return true;
    }
    uint32_t capacity = cache->capacity != 0 ? cache->capacity * 2 : 64;
    struct sl_rdma_hold **index = realloc(cache->index, capacity * sizeof *index);
    if (index == NULL) {
        return false;
    }
    cache->index = index;
    cache->capacity = capacity;
    return true;
}

static void list(struct sl_rdma_cache *cache, struct sl_rdma_hold *hold)
{
    uint32_t at = position_after(cache, hold->base);
    memmove(&cache->index[at + 1], &cache->index[at], (cache->count - at) * sizeof cache->index[0]);
    cache->index[at] = hold;
    cache->count++;
    cache->bytes += hold->bytes;
    hold->listed = true;
    link_newest(cache, hold);
}

static void unlist(struct sl_rdma_cache *cache, struct sl_rdma_hold *hold)
{
    uint32_t at = position_after(cache, hold->base);
    do {
        at--;
    } while (cache->index[at] != hold);
    cache->count--;
    memmove(&cache->index[at], &cache->index[at + 1], (cache->count - at) * sizeof cache->index[0]);
    cache->bytes -= hold->bytes;
    hold->listed = false;
    unlink_use(cache, hold);
}

/* ---- One registration -------------------------------------------------------------------------
 */

static void hold_destroy(struct sl_rdma_cache *cache, struct sl_rdma_hold *hold)
{
    if (hold->watch != NULL) {
        sl_rdma_unmapped_forget(&hold->watch);
    }
    if (hold->mr != NULL) {
        (void)cache->nic->rdma->library->dereg_mr(hold->mr);
    }
    free(hold);
}

static void remove_idle(struct sl_rdma_cache *cache, struct sl_rdma_hold *hold)
{
    unlist(cache, hold);
    hold_destroy(cache, hold);
}

/* Evicts the oldest that are not in use. */
static void trim(struct sl_rdma_cache *cache, size_t bytes_max, uint32_t entries_max)
{
    struct sl_rdma_hold *hold = cache->oldest;
    while (hold != NULL && (cache->bytes > bytes_max || cache->count > entries_max)) {
        struct sl_rdma_hold *newer = hold->newer;
        if (hold->uses == 0) {
            remove_idle(cache, hold);
        }
        hold = newer;
    }
}

/* Those in use are found no more, and go with their last use. */
static void clear_unmapped(struct sl_rdma_cache *cache)
{
    uint32_t count = cache->watching ? sl_rdma_unmapped_count() : 0;
    if (count == cache->unmapped_count) {
        return;
    }
    cache->unmapped_count = count;
    for (struct sl_rdma_hold *hold = cache->oldest; hold != NULL;) {
        struct sl_rdma_hold *newer = hold->newer;
        if (hold->watch != NULL && sl_rdma_unmapped_seen(hold->watch)) {
            if (hold->uses == 0) {
                remove_idle(cache, hold);
            } else {
                unlist(cache, hold);
            }
        }
        hold = newer;
    }
}

/* Memory that can be written gets a registration that serves most uses; memory that cannot, the one
 * that was asked for. */
static struct ibv_mr *pin(struct sl_rdma_cache *cache, void *at, size_t bytes, int *access)
{
    int all = *access | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
    struct ibv_mr *mr = sl_rdma_memory_pin(cache->nic, at, bytes, all);
    if (mr != NULL) {
        *access = all;
    } else if (!sl_rdma_memory_is_short(errno) && (*access & IBV_ACCESS_LOCAL_WRITE) == 0) {
        mr = sl_rdma_memory_pin(cache->nic, at, bytes, *access);
    }
    return mr;
}

/* Watched before the device looks at its pages: what is unmapped in between is seen. */
static bool hold_pin(struct sl_rdma_cache *cache, struct sl_rdma_hold *hold)
{
    void *at = (void *)hold->base;
    bool keeps = cache->watching && (hold->access & IBV_ACCESS_REMOTE_WRITE) == 0;
    hold->watch = keeps ? sl_rdma_unmapped_watch(at, hold->bytes) : NULL;
    hold->mr = pin(cache, at, hold->bytes, &hold->access);
    if (hold->mr != NULL && hold->watch != NULL && !sl_rdma_unmapped_is_private(at, hold->bytes)) {
        sl_rdma_unmapped_forget(&hold->watch);
    }
    return hold->mr != NULL;
}

static struct sl_rdma_hold *hold_create(struct sl_rdma_cache *cache, uintptr_t base, size_t bytes,
                                        int access)
{
    if (sl_rdma_memory_is_refused(cache->nic, &cache->refusal, bytes)) {
        return NULL;
    }
    struct sl_rdma_hold *hold = reserve_place(cache) ? calloc(1, sizeof *hold) : NULL;
    if (hold == NULL) {
        return NULL;
    }
    hold->base = base;
    hold->bytes = bytes;
    hold->access = access;
    if (!hold_pin(cache, hold)) {
        if (sl_rdma_memory_is_short(errno)) {
            sl_rdma_memory_refused(cache->nic, &cache->refusal, bytes);
        }
        hold_destroy(cache, hold);
        return NULL;
    }
    list(cache, hold);
    return hold;
}

/* ---- Get and put ------------------------------------------------------------------------------
 */

static struct sl_rdma_hold *find(struct sl_rdma_cache *cache, uintptr_t at, size_t bytes,
                                 int access)
{
    uint32_t end = position_after(cache, at);
    for (uint32_t i = end; i > 0 && end - i < LOOK_BACK; i--) {
        struct sl_rdma_hold *hold = cache->index[i - 1];
        size_t offset = at - hold->base;
        if (offset <= hold->bytes && bytes <= hold->bytes - offset &&
            (hold->access & access) == access) {
            return hold;
        }
    }
    return NULL;
}

struct sl_rdma_hold *sl_rdma_cache_get(struct sl_rdma_cache *cache, const void *at, size_t bytes,
                                       int access)
{
    clear_unmapped(cache);
    struct sl_rdma_hold *hold = find(cache, (uintptr_t)at, bytes, access);
    if (hold == NULL) {
        hold = hold_create(cache, (uintptr_t)at, bytes, access);
    } else {
        unlink_use(cache, hold);
        link_newest(cache, hold);
    }
    if (hold != NULL) {
        hold->uses++;
        trim(cache, cache->bytes_max, cache->entries_max);
    }
    return hold;
}

void sl_rdma_cache_put(struct sl_rdma_cache *cache, struct sl_rdma_hold *hold)
{
    sl_assert(hold->uses > 0);
    if (--hold->uses > 0) {
        return;
    }
    if (!hold->listed) {
        hold_destroy(cache, hold);
    } else if (hold->watch == NULL) {
        remove_idle(cache, hold);
    } else {
        trim(cache, cache->bytes_max, cache->entries_max);
    }
}

const struct ibv_mr *sl_rdma_cache_region(const struct sl_rdma_hold *hold)
{
    return hold->mr;
}

/* ---- Open and close ---------------------------------------------------------------------------
 */

struct sl_rdma_cache *sl_rdma_cache_open(struct sl_rdma_nic *nic, size_t bytes_max,
                                         uint32_t entries_max)
{
    struct sl_rdma_cache *cache = calloc(1, sizeof *cache);
    if (cache == NULL) {
        return NULL;
    }
    cache->nic = nic;
    cache->bytes_max = bytes_max;
    cache->entries_max = entries_max;
    cache->watching = sl_rdma_unmapped_open();
    cache->unmapped_count = cache->watching ? sl_rdma_unmapped_count() : 0;
    return cache;
}

bool sl_rdma_cache_shrink(struct sl_rdma_cache *cache)
{
    const uint32_t before = cache->count;
    trim(cache, 0, 0);
    return cache->count < before;
}

void sl_rdma_cache_close(struct sl_rdma_cache **cache)
{
    struct sl_rdma_cache *gone = *cache;
    if (gone == NULL) {
        return;
    }
    trim(gone, 0, 0);
    sl_assert(gone->count == 0);
    if (gone->watching) {
        sl_rdma_unmapped_close();
    }
    free(gone->index);
    free(gone);
    *cache = NULL;
}
