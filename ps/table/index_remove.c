/* Removal of keys. No tombstone remains: later entries of the probe run move up. */
#include "core/assert.h"
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

/* Returns a bit for each entry that may not be in its own bucket: a segment's first bucket has no
 * room to note which. */
static uint32_t strays_of(const struct sl_table_bucket *segment,
                          const struct sl_table_bucket *bucket)
{
    return bucket == segment ? (1U << bucket->used) - 1 : bucket->strays;
}

/* The last entry takes the place of the removed one. */
static void remove_entry(const struct sl_table_bucket *segment, struct sl_table_bucket *bucket,
                         uint32_t entry)
{
    const uint32_t last = --bucket->used;
    bucket->tags[entry] = bucket->tags[last];
    bucket->records[entry] = bucket->records[last];
    if (bucket != segment) {
        const uint32_t stray = bucket->strays >> last & 1;
        const uint32_t others = bucket->strays & ~(1U << entry);
        bucket->strays = (uint16_t)((others | stray << entry) & ~(1U << last));
    }
}

static void move_entry(const struct sl_table_bucket *segment, struct sl_table_bucket *from,
                       uint32_t entry, struct sl_table_bucket *to, bool is_stray)
{
    to->tags[to->used] = from->tags[entry];
    to->records[to->used] = from->records[entry];
    if (to != segment && is_stray) {
        to->strays |= (uint16_t)(1U << to->used);
    }
    to->used++;
    remove_entry(segment, from, entry);
}

/* Returns an entry of bucket `at` whose search passes bucket `gap`, or SL_TABLE_BUCKET_ENTRIES.
 * *own: its own bucket. */
static uint32_t find_passing(const struct sl_table_index *index,
                             const struct sl_table_bucket *segment, uint32_t gap, uint32_t at,
                             uint32_t *own)
{
    const struct sl_table_bucket *bucket = &segment[at];
    for (uint32_t strays = strays_of(segment, bucket); strays != 0; strays &= strays - 1) {
        const uint32_t entry = (uint32_t)__builtin_ctz(strays);
        const uint64_t key = sl_table_index_key_of(index, bucket->records[entry]);
        *own = (uint32_t)(sl_table_index_hash_of(index, key) % BUCKETS);
        if ((at - *own) % BUCKETS >= (at - gap) % BUCKETS) {
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
        uint32_t own;
        const uint32_t entry = find_passing(index, segment, gap, at, &own);
        if (entry < SL_TABLE_BUCKET_ENTRIES) {
            move_entry(segment, &segment[at], entry, &segment[gap], own != gap);
            gap = at;
        }
        if (ends_run) {
            return;
        }
    }
}

/* Returns the key's bucket and sets its entry there; NULL: the key is not in this index. */
static struct sl_table_bucket *find_key(const struct sl_table_index *index, uint64_t hash,
                                        uint64_t key, uint32_t *entry)
{
    struct sl_table_bucket *segment = sl_table_index_segment_of(index, hash);
    for (uint32_t probe = 0; probe < BUCKETS; probe++) {
        struct sl_table_bucket *bucket = &segment[(hash + probe) % BUCKETS];
        *entry = find_entry(index, bucket, hash, key);
        if (*entry < SL_TABLE_BUCKET_ENTRIES) {
            return bucket;
        }
        if (bucket->used < SL_TABLE_BUCKET_ENTRIES) {
            break;
        }
    }
    return NULL;
}

static uint32_t remove_here(struct sl_table_index *index, uint64_t key)
{
    const uint64_t hash = sl_table_index_hash_of(index, key);
    struct sl_table_bucket *segment = sl_table_index_segment_of(index, hash);
    uint32_t entry;
    struct sl_table_bucket *bucket = find_key(index, hash, key, &entry);
    if (bucket == NULL) {
        return SL_ROW_NONE;
    }
    const bool was_full = bucket->used == SL_TABLE_BUCKET_ENTRIES;
    const uint32_t record_index = bucket->records[entry];
    remove_entry(segment, bucket, entry);
    segment->entries--;
    if (was_full) {
        close_gap(index, segment, (uint32_t)(bucket - segment));
    }
    sl_table_index_merge(index, hash);
    return record_index;
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

void sl_table_index_move(struct sl_table_index *index, uint64_t key, uint32_t record_index)
{
    struct sl_table_bucket *bucket = NULL;
    uint32_t entry = 0;
    for (; bucket == NULL; index = index->overflow) {
        sl_assert(index != NULL);
        bucket = find_key(index, sl_table_index_hash_of(index, key), key, &entry);
    }
    bucket->records[entry] = record_index;
}
