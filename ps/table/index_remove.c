/* Removal of keys. No tombstone remains: later entries of the probe run move up. */
#include "ps/table/index_internal.h"
#include "ps/table/sparse_table.h"

#define BUCKETS SL_TABLE_INDEX_SEGMENT_BUCKETS

/* Returns the key's entry in this bucket, or SL_TABLE_BUCKET_ENTRIES. */
static uint32_t find_entry(const struct sl_table_index *index, const struct sl_table_bucket *bucket,
                           uint64_t hash, uint64_t key)
{
    uint64_t matches = sl_table_bucket_match(bucket, sl_table_index_tag_of(hash));
    while (matches != 0) {
        const uint32_t entry = sl_table_bucket_pop(&matches);
        if (sl_table_index_key_of(index, bucket->records[entry]) == key) {
            return entry;
        }
    }
    return SL_TABLE_BUCKET_ENTRIES;
}

/* The last entry takes the place of the removed one. */
static void remove_entry(struct sl_table_bucket *bucket, uint32_t entry)
{
    bucket->used--;
    bucket->tags[entry] = bucket->tags[bucket->used];
    bucket->records[entry] = bucket->records[bucket->used];
}

static void move_entry(struct sl_table_bucket *from, uint32_t entry, struct sl_table_bucket *to)
{
    to->tags[to->used] = from->tags[entry];
    to->records[to->used] = from->records[entry];
    to->used++;
    remove_entry(from, entry);
}

/* Returns an entry of bucket `at` whose search passes bucket `gap`, or SL_TABLE_BUCKET_ENTRIES. */
static uint32_t find_passing(const struct sl_table_index *index,
                             const struct sl_table_bucket *segment, uint32_t gap, uint32_t at)
{
    const struct sl_table_bucket *bucket = &segment[at];
    for (uint32_t entry = 0; entry < bucket->used; entry++) {
        __builtin_prefetch(sl_slab_at(index->records, bucket->records[entry]));
    }
    for (uint32_t entry = 0; entry < bucket->used; entry++) {
        const uint64_t key = sl_table_index_key_of(index, bucket->records[entry]);
        const uint32_t own = (uint32_t)(sl_table_index_hash_of(index, key) % BUCKETS);
        if ((at - own) % BUCKETS >= (at - gap) % BUCKETS) {
            return entry;
        }
    }
    return SL_TABLE_BUCKET_ENTRIES;
}

/* Fills the room in bucket `gap`, which was full, from later buckets: a search ends at a bucket
 * with room. The run of full buckets, and the first bucket after it, hold all entries that may have
 * passed the gap. */
static void close_gap(const struct sl_table_index *index, struct sl_table_bucket *segment,
                      uint32_t gap)
{
    for (uint32_t at = (gap + 1) % BUCKETS; at != gap; at = (at + 1) % BUCKETS) {
        const bool ends_run = segment[at].used < SL_TABLE_BUCKET_ENTRIES;
        const uint32_t entry = find_passing(index, segment, gap, at);
        if (entry < SL_TABLE_BUCKET_ENTRIES) {
            move_entry(&segment[at], entry, &segment[gap]);
            gap = at;
        }
        if (ends_run) {
            return;
        }
    }
}

static uint32_t remove_here(const struct sl_table_index *index, uint64_t key)
{
    const uint64_t hash = sl_table_index_hash_of(index, key);
    struct sl_table_bucket *segment = sl_table_index_segment_of(index, hash);
    for (uint32_t probe = 0; probe < BUCKETS; probe++) {
        const uint32_t at = (uint32_t)((hash + probe) % BUCKETS);
        const bool was_full = segment[at].used == SL_TABLE_BUCKET_ENTRIES;
        const uint32_t entry = find_entry(index, &segment[at], hash, key);
        if (entry < SL_TABLE_BUCKET_ENTRIES) {
            const uint32_t record_index = segment[at].records[entry];
            remove_entry(&segment[at], entry);
            segment->entries--;
            if (was_full) {
                close_gap(index, segment, at);
            }
            return record_index;
        }
        if (!was_full) {
            break;
        }
    }
    return SL_ROW_NONE;
}

uint32_t sl_table_index_remove(struct sl_table_index *index, uint64_t key)
{
    uint32_t record_index = SL_ROW_NONE;
    while (index != NULL && record_index == SL_ROW_NONE) {
        record_index = remove_here(index, key);
        index = index->overflow;
    }
    return record_index;
}
