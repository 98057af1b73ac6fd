#include "objects/node/pool.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/hash.h"

#define BLOCK SL_OBJECTS_BLOCK_BYTES
#define NONE  UINT32_MAX /* no slot */

int sl_objects_pool_init(struct sl_objects_pool *pool, void *base, uint64_t bytes,
                         sl_objects_pool_shrunk_fn *shrunk, void *context)
{
    sl_assert(bytes / BLOCK < NONE);
    uint32_t *users = calloc(bytes / BLOCK + 1, sizeof *users);
    if (users == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    *pool = (struct sl_objects_pool){.base = base,
                                     .slot_count = (uint32_t)(bytes / BLOCK),
                                     .free_count = (uint32_t)(bytes / BLOCK),
                                     .users = users,
                                     .shrunk = shrunk,
                                     .context = context};
    sl_list_init(&pool->unpinned);
    return 0;
}

/* All versions of a name and part are in one bucket. */
static uint32_t node_pool_bucket_of(const struct sl_objects_pool_key *key)
{
    return (uint32_t)(sl_hash_bytes(key->name, strlen(key->name), key->part) %
                      SL_OBJECTS_POOL_BUCKETS);
}

/* Returns the newest version of the name and part up to number `most`; NULL: none. */
static struct sl_objects_pool_version *node_pool_find_newest(const struct sl_objects_pool *pool,
                                                             const struct sl_objects_pool_key *key,
                                                             uint64_t most)
{
    struct sl_objects_pool_version *newest = NULL;
    for (struct sl_objects_pool_version *version = pool->buckets[node_pool_bucket_of(key)];
         version != NULL; version = version->next) {
        if (!version->is_retired && version->key.version <= most &&
            (newest == NULL || version->key.version > newest->key.version) &&
            version->key.part == key->part && strcmp(version->name, key->name) == 0) {
            newest = version;
        }
    }
    return newest;
}

struct sl_objects_pool_version *sl_objects_pool_find(const struct sl_objects_pool *pool,
                                                     const struct sl_objects_pool_key *key)
{
    struct sl_objects_pool_version *version = node_pool_find_newest(pool, key, key->version);
    return version != NULL && version->key.version == key->version ? version : NULL;
}

static void drop_last_block(struct sl_objects_pool *pool, struct sl_objects_pool_version *version)
{
    struct sl_objects_pool_block *block = &version->blocks[--version->resident_count];
    version->verified_count -= block->is_verified;
    block->is_verified = false;
    if (block->slot != NONE) {
        pool->free_count += --pool->users[block->slot] == 0;
        block->slot = NONE;
    }
}

static void node_pool_destroy(struct sl_objects_pool *pool, struct sl_objects_pool_version *version)
{
    struct sl_objects_pool_version **at = &pool->buckets[node_pool_bucket_of(&version->key)];
    while (*at != version) {
        at = &(*at)->next;
    }
    *at = version->next;
    sl_list_remove(&version->link);
    while (version->resident_count > 0) {
        drop_last_block(pool, version);
    }
    pool->shrunk(pool->context, version);
    free(version);
}

void sl_objects_pool_fini(struct sl_objects_pool *pool)
{
    for (uint32_t i = 0; i < SL_OBJECTS_POOL_BUCKETS; i++) {
        while (pool->buckets[i] != NULL) {
            node_pool_destroy(pool, pool->buckets[i]);
        }
    }
    free(pool->users);
    *pool = (struct sl_objects_pool){0};
}

/* Lets blocks from `first` on share the slots of equal ones. Returns how many blocks remain. */
static uint32_t share_slots(struct sl_objects_pool *pool, struct sl_objects_pool_version *version,
                            uint32_t first)
{
    const struct sl_objects_pool_version *before =
        node_pool_find_newest(pool, &version->key, version->key.version - 1);
    uint32_t missing_count = version->resident_count - first;
    for (size_t i = first; before != NULL && i < version->resident_count; i++) {
        struct sl_objects_pool_block *block = &version->blocks[i];
        if (i < before->resident_count && before->blocks[i].is_verified &&
            sl_hash_128_equal(before->digests[i], version->digests[i])) {
            *block = before->blocks[i];
            pool->users[block->slot]++;
            version->verified_count++;
            missing_count--;
        }
    }
    return missing_count;
}

/* Gives free slots to `count` blocks from `block` on that have none, in order: first from runs that
 * are long enough for all, then from runs of half of that length, and so on. So the number of runs
 * is at most about twice the least possible one, after few passes. */
static void take_slots(struct sl_objects_pool *pool, struct sl_objects_pool_block *block,
                       uint32_t count)
{
    for (uint32_t least = count; count > 0; least = (least + 1) / 2) {
        for (uint32_t slot = 0, end; count > 0 && slot < pool->slot_count; slot = end + 1) {
            for (end = slot; end < pool->slot_count && pool->users[end] == 0 && end - slot < count;
                 end++) {
            }
            if (end - slot < least && end - slot < count) {
                continue;
            }
            pool->free_count -= end - slot;
            for (count -= end - slot; slot < end; block++) {
                if (block->slot == NONE) {
                    pool->users[slot] = 1;
                    block->slot = slot++;
                }
            }
        }
    }
}

/* Counts the slots that would be free if all versions that may be evicted were. The first pass
 * takes these versions away from their slots, the second one gives them back. */
static uint32_t count_available(struct sl_objects_pool *pool)
{
    uint32_t available = pool->free_count;
    for (int pass = 0; pass < 2; pass++) {
        SL_LIST_EACH (const struct sl_objects_pool_version, version, link, &pool->unpinned) {
            for (uint32_t i = 0; !version->keep && i < version->resident_count; i++) {
                uint32_t *users = &pool->users[version->blocks[i].slot];
                if (pass == 0) {
                    available += --*users == 0;
                } else {
                    ++*users;
                }
            }
        }
    }
    return available;
}

static void evict(struct sl_objects_pool *pool, uint32_t count)
{
    SL_LIST_EACH (struct sl_objects_pool_version, version, link, &pool->unpinned) {
        if (pool->free_count >= count) {
            return;
        }
        if (version->keep) {
            continue;
        }
        while (version->resident_count > 0 && pool->free_count < count) {
            drop_last_block(pool, version);
        }
        if (version->resident_count > version->head_count) {
            pool->shrunk(pool->context, version);
        } else {
            node_pool_destroy(pool, version);
        }
    }
    sl_assert(pool->free_count >= count);
}

/* NULL: no memory. */
static struct sl_objects_pool_version *create(const struct sl_objects_pool_key *key,
                                              uint32_t block_count)
{
    struct sl_objects_pool_version *version =
        calloc(1, sizeof *version +
                      block_count * (sizeof version->blocks[0] + sizeof version->digests[0]));
    if (version == NULL) {
        return NULL;
    }
    (void)snprintf(version->name, sizeof version->name, "%s", key->name);
    version->key = *key;
    version->key.name = version->name;
    version->block_count = block_count;
    version->digests = (struct sl_hash_128 *)&version->blocks[block_count];
    for (uint32_t i = 0; i < block_count; i++) {
        version->blocks[i].slot = NONE;
    }
    return version;
}

/* Gives slots to the first blocks of a version that cannot be evicted. */
static int fill(struct sl_objects_pool *pool, struct sl_objects_pool_version *version,
                uint32_t count, struct sl_reason *reason)
{
    const uint32_t first = version->resident_count;
    version->resident_count = count > first ? count : first;
    const uint32_t missing_count = share_slots(pool, version, first);
    const uint32_t available =
        missing_count > pool->free_count ? count_available(pool) : pool->free_count;
    if (missing_count > available) {
        while (version->resident_count > first) {
            drop_last_block(pool, version);
        }
        return sl_reason_fail(
            reason, SL_ERR_NO_MEMORY,
            "%s@%" PRIu64 " needs %u slots of 256 KiB, and the versions in use leave %u of %u: "
            "enlarge the pool",
            version->name, version->key.version, missing_count, available, pool->slot_count);
    }
    evict(pool, missing_count);
    take_slots(pool, &version->blocks[first], missing_count);
    return 0;
}

/* Takes over the digests that the version lacks. False: those that it has are others. */
static bool take_digests(struct sl_objects_pool_version *version, const struct sl_hash_128 *digests,
                         uint32_t count)
{
    const uint32_t known = version->digest_count < count ? version->digest_count : count;
    if (memcmp(version->digests, digests, known * sizeof *digests) != 0) {
        return false;
    }
    memcpy(&version->digests[known], &digests[known], (count - known) * sizeof *digests);
    version->digest_count += count - known;
    return true;
}

int sl_objects_pool_reserve(struct sl_objects_pool *pool, const struct sl_objects_pool_key *key,
                            uint32_t block_count, const struct sl_hash_128 *digests, uint32_t count,
                            struct sl_objects_pool_version **out, struct sl_reason *reason)
{
    sl_assert(strlen(key->name) < SL_OBJECTS_NAME_BYTES);
    sl_assert(key->version > 0);
    sl_assert(count <= block_count);
    if (block_count > pool->slot_count) {
        return sl_reason_fail(reason, SL_ERR_TOO_LARGE,
                              "%s@%" PRIu64 " has %" PRIu64 " bytes; the pool has %" PRIu64,
                              key->name, key->version, (uint64_t)block_count * BLOCK,
                              (uint64_t)pool->slot_count * BLOCK);
    }
    struct sl_objects_pool_version *version = sl_objects_pool_find(pool, key);
    const bool is_new = version == NULL;
    if (is_new && (version = create(key, block_count)) == NULL) {
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "no memory");
    }
    if (version->block_count != block_count || !take_digests(version, digests, count)) {
        return sl_reason_fail(reason, SL_ERR_EXISTS, "%s@%" PRIu64 " is here with other bytes",
                              key->name, key->version);
    }
    sl_objects_pool_pin(pool, version);
    int err = fill(pool, version, count, reason);
    if (err == 0) {
        if (is_new) {
            version->next = pool->buckets[node_pool_bucket_of(key)];
            pool->buckets[node_pool_bucket_of(key)] = version;
        }
        *out = version;
    } else if (is_new) {
        free(version);
    } else {
        sl_objects_pool_unpin(pool, version);
    }
    return err;
}

void sl_objects_pool_pin(struct sl_objects_pool *pool, struct sl_objects_pool_version *version)
{
    version->pins++;
    sl_list_remove(&version->link);
}

void sl_objects_pool_unpin(struct sl_objects_pool *pool, struct sl_objects_pool_version *version)
{
    sl_assert(version->pins > 0);
    if (--version->pins > 0) {
        return;
    }
    if (version->is_retired) {
        node_pool_destroy(pool, version);
    } else {
        sl_list_append(&pool->unpinned, &version->link);
    }
}

void sl_objects_pool_retire(struct sl_objects_pool *pool, struct sl_objects_pool_version *version)
{
    version->is_retired = true;
    if (version->pins == 0) {
        node_pool_destroy(pool, version);
    }
}

void sl_objects_pool_set_verified(struct sl_objects_pool_version *version, uint32_t block)
{
    sl_assert(block < version->resident_count);
    version->verified_count += !version->blocks[block].is_verified;
    version->blocks[block].is_verified = true;
}
