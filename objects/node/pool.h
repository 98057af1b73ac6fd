/* The pool keeps versions of objects in memory of the caller, which it divides into slots of
 * 256 KiB: one for each block. Blocks lie in few runs of adjacent slots. A block equal to the same
 * block of the version before shares its slot.
 *
 * A version that is pinned keeps its blocks. The least recently used version without pin and
 * without `keep` gives up blocks for others, from the last to the first, so that what is left is
 * always a beginning of the image. A slot with a verified block is not written until no version has
 * it.
 *
 * Pure: no I/O, no clock. One owner thread. Allocates at init and for each new version. */
#ifndef SL_OBJECTS_NODE_POOL_H
#define SL_OBJECTS_NODE_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include <starling_objects.h>

#include "core/hash.h"
#include "core/list.h"
#include "core/reason.h"

#define SL_OBJECTS_POOL_BUCKETS 1024

struct sl_objects_pool_key {
    const char *name; /* shorter than SL_OBJECTS_NAME_BYTES */
    uint64_t version; /* from 1 */
    uint32_t part;
};

struct sl_objects_pool_block {
    uint32_t slot;
    bool is_verified;
};

struct sl_objects_pool_version {
    struct sl_objects_pool_key key; /* its name: `name` */
    uint32_t block_count;
    uint32_t digest_count;   /* blocks [0, digest_count) have digests */
    uint32_t resident_count; /* blocks [0, resident_count) have slots */
    uint32_t verified_count; /* of these, in any order */
    uint32_t pins;
    bool keep;           /* do not evict; the owner sets it at any time */
    uint32_t head_count; /* evicted down to so many blocks, it is freed; the owner sets it */
    void *owner;         /* the owner's; NULL at first. The rest is private. */
    bool is_retired;
    struct sl_hash_128 *digests; /* [block_count], behind the blocks */
    char name[SL_OBJECTS_NAME_BYTES];
    struct sl_objects_pool_version *next; /* of the same bucket */
    struct sl_list_link link;             /* of pool->unpinned */
    struct sl_objects_pool_block blocks[];
};

/* A version has lost blocks; with none left, it is freed after this call. Must not call the pool.
 */
typedef void sl_objects_pool_shrunk_fn(void *context, struct sl_objects_pool_version *version);

struct sl_objects_pool {
    uint8_t *base;
    uint32_t slot_count, free_count;
    uint32_t *users;         /* [slot_count]: versions that have the slot; 0: it is free */
    struct sl_list unpinned; /* versions by their last use, the oldest first */
    sl_objects_pool_shrunk_fn *shrunk;
    void *context;
    struct sl_objects_pool_version *buckets[SL_OBJECTS_POOL_BUCKETS]; /* by name and part */
};

/* base[bytes], less than 2^50, must stay mapped until fini; a rest that fills no slot is not used.
 * Errors: NO_MEMORY, which leaves *pool as it is. */
int sl_objects_pool_init(struct sl_objects_pool *pool, void *base, uint64_t bytes,
                         sl_objects_pool_shrunk_fn *shrunk, void *context);

/* Frees all versions, pinned ones too; calls shrunk for each. */
void sl_objects_pool_fini(struct sl_objects_pool *pool);

/* Finds or adds the version, pins it, and gives each of its first `count` blocks a slot; other
 * versions give up blocks where needed. digests[count] is copied: those of the other blocks may
 * follow with a later call. *out is valid until shrunk says that it is freed. An error changes at
 * most the order of use. Errors, with a reason: TOO_LARGE (block_count: larger than the pool),
 * NO_MEMORY (too much is pinned or kept), EXISTS (the version is here with other blocks). */
int sl_objects_pool_reserve(struct sl_objects_pool *pool, const struct sl_objects_pool_key *key,
                            uint32_t block_count, const struct sl_hash_128 *digests, uint32_t count,
                            struct sl_objects_pool_version **out, struct sl_reason *reason);

/* NULL: not here, or retired. */
struct sl_objects_pool_version *sl_objects_pool_find(const struct sl_objects_pool *pool,
                                                     const struct sl_objects_pool_key *key);

void sl_objects_pool_pin(struct sl_objects_pool *pool, struct sl_objects_pool_version *version);

/* The last pin of a retired version frees it. */
void sl_objects_pool_unpin(struct sl_objects_pool *pool, struct sl_objects_pool_version *version);

/* The version is not found any more, and is freed as soon as it has no pin: at once if it has none
 * now. */
void sl_objects_pool_retire(struct sl_objects_pool *pool, struct sl_objects_pool_version *version);

/* The block has a slot, and its bytes match its digest: they do not change any more. */
void sl_objects_pool_set_verified(struct sl_objects_pool_version *version, uint32_t block);

#endif
