/* Maps keys, and blocks of dense arrays, to shards. The client routes with the same functions with
 * which the server checks. Pure; any thread. */
#ifndef SL_CORE_PARTITION_H
#define SL_CORE_PARTITION_H

#include "core/hash.h"

#define SL_PARTITION_BUCKET_BITS    16
#define SL_PARTITION_BLOCK_ELEMENTS 1024 /* a dense array is split only at multiples of this */

/* key -> bucket (the high bits of its hash) -> shard: shard s owns the contiguous buckets
 * [ceil(s * 2^16 / shard_count), ceil((s + 1) * 2^16 / shard_count)). */
static inline uint32_t sl_partition_hash_owner(uint64_t hash, uint32_t shard_count)
{
    return (uint32_t)(((hash >> (64 - SL_PARTITION_BUCKET_BITS)) * shard_count) >>
                      SL_PARTITION_BUCKET_BITS);
}

static inline uint32_t sl_partition_owner(uint64_t key, uint32_t shard_count)
{
    return sl_partition_hash_owner(sl_hash_key(key), shard_count);
}

/* The lowest hash of keys of shard `shard` <= shard_count; shard_count yields 2^64, so 0. */
static inline uint64_t sl_partition_hash_first(uint32_t shard, uint32_t shard_count)
{
    const uint64_t bucket =
        (((uint64_t)shard << SL_PARTITION_BUCKET_BITS) + shard_count - 1) / shard_count;
    return bucket << (64 - SL_PARTITION_BUCKET_BITS);
}

/* KV tables: shard s owns the keys [ceil(s * 2^64 / shard_count), ceil((s + 1) * 2^64 /
 * shard_count)), like the servers of ps-lite. */
static inline uint32_t sl_partition_kv_owner(uint64_t key, uint32_t shard_count)
{
    return (uint32_t)(((unsigned __int128)key * shard_count) >> 64);
}

/* The first key of shard `shard` < shard_count. */
static inline uint64_t sl_partition_kv_first(uint32_t shard, uint32_t shard_count)
{
    return (uint64_t)((((unsigned __int128)shard << 64) + shard_count - 1) / shard_count);
}

/* A dense array of `length` elements is split into shard_count contiguous ranges of whole blocks
 * (the last block may be short). Range r belongs to shard (table_id + r) % shard_count, so that
 * many small arrays do not all fall on shard 0. */

/* The first element of range `range`, 0 to shard_count; range shard_count yields `length`. */
uint64_t sl_partition_range_start(uint64_t length, uint32_t shard_count, uint32_t range);

/* The range that holds an element, which is < length. */
uint32_t sl_partition_range_of(uint64_t length, uint32_t shard_count, uint64_t element);

/* The shard that holds a range of a table, and the inverse. */
static inline uint32_t sl_partition_shard_of_range(uint32_t table_id, uint32_t range,
                                                   uint32_t shard_count)
{
    return (uint32_t)(((uint64_t)table_id + range) % shard_count);
}

static inline uint32_t sl_partition_range_of_shard(uint32_t table_id, uint32_t shard,
                                                   uint32_t shard_count)
{
    return (uint32_t)(((uint64_t)shard + shard_count - table_id % shard_count) % shard_count);
}

#endif
