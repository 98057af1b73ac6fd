/* Hash layout and directory lookup, private to the files index*.c. Owner reactor. */
#ifndef SL_PS_TABLE_INDEX_INTERNAL_H
#define SL_PS_TABLE_INDEX_INTERNAL_H

#include <string.h>

#include "core/hash.h"
#include "ps/table/bucket.h"
#include "ps/table/index.h"

/* Use of the hash bits. The 16 highest choose the shard (core/partition.h), so keys of one table
 * share some of them. The index therefore uses none of those, and each bit only once. */
#define SL_TABLE_INDEX_BUCKET_BITS     6  /* bits 0 to 5: bucket within the segment */
#define SL_TABLE_INDEX_TAG_SHIFT       6  /* bits 6 to 13: the tag */
#define SL_TABLE_INDEX_DIRECTORY_SHIFT 14 /* bits 14 to 47: directory, from the lowest */

#define SL_TABLE_INDEX_SEGMENT_BUCKETS (1U << SL_TABLE_INDEX_BUCKET_BITS)

#define SL_TABLE_INDEX_PAGE_BITS       10
#define SL_TABLE_INDEX_PAGE_ENTRIES    (1U << SL_TABLE_INDEX_PAGE_BITS)

/* A part of the directory. Several root entries may share a page until a split separates them. */
struct sl_table_page {
    uint64_t sharers; /* root entries that point here */
    struct sl_table_bucket *segments[SL_TABLE_INDEX_PAGE_ENTRIES];
};

static inline uint64_t sl_table_index_hash_of(const struct sl_table_index *index, uint64_t key)
{
    const uint64_t hash = sl_hash_key(key);
    return index->level == 0 ? hash : sl_hash_key(hash + index->level * 0x9e3779b97f4a7c15ULL);
}

static inline uint8_t sl_table_index_tag_of(uint64_t hash)
{
    return (uint8_t)(hash >> SL_TABLE_INDEX_TAG_SHIFT);
}

static inline uint64_t sl_table_index_directory_bits(uint64_t hash, uint32_t depth)
{
    return (hash >> SL_TABLE_INDEX_DIRECTORY_SHIFT) & ((1ULL << depth) - 1);
}

static inline struct sl_table_bucket *sl_table_index_segment_of(const struct sl_table_index *index,
                                                                uint64_t hash)
{
    const uint64_t at = sl_table_index_directory_bits(hash, index->depth);
    return index->root[at >> SL_TABLE_INDEX_PAGE_BITS]
        ->segments[at & (SL_TABLE_INDEX_PAGE_ENTRIES - 1)];
}

/* Merges the hash's segment with another after a removal, if both have few entries. */
void sl_table_index_merge(struct sl_table_index *index, uint64_t hash);

static inline uint64_t sl_table_index_key_at(const void *record)
{
    uint64_t key;
    memcpy(&key, record, sizeof key);
    return key;
}

static inline uint64_t sl_table_index_key_of(const struct sl_table_index *index,
                                             uint32_t record_index)
{
    return sl_table_index_key_at(sl_slab_at(index->records, record_index));
}

#endif
