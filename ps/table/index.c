#include "ps/table/index.h"

#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "ps/table/index_internal.h"
#include "ps/table/sparse_table.h"

#define DEPTH_MAX           34 /* hash bits that the directory may use */
#define PAGE_CHUNK          ((size_t)64 << 10)

#define SEGMENT_ENTRIES     (SL_TABLE_INDEX_SEGMENT_BUCKETS * SL_TABLE_BUCKET_ENTRIES)
#define SEGMENT_BYTES       (SL_TABLE_INDEX_SEGMENT_BUCKETS * sizeof(struct sl_table_bucket))
#define SEGMENT_CHUNK       ((size_t)64 << 10)

/* A segment is split when it is 85 % full. Beyond that, every fifth key would not be in its own
 * bucket. A run of PROBE_MAX full buckets also splits a segment, unless the segment is so empty
 * that the keys must have been chosen to collide. */
#define SPLIT_ENTRIES       (SEGMENT_ENTRIES * 85 / 100)
#define SPLIT_ENTRIES_LEAST (SEGMENT_ENTRIES / 4)
#define PROBE_MAX           8

/* Two segments that a split has made, and that have MERGE_ENTRIES together, become one again. That
 * is looked at when the entries left in one are a multiple of MERGE_STEP. The directory keeps its
 * size; a segment has at most 1 << MERGE_LEVELS entries of it, so no merge takes long. */
#define MERGE_ENTRIES       (SEGMENT_ENTRIES * 3 / 8)
#define MERGE_STEP          8
#define MERGE_LEVELS        SL_TABLE_INDEX_PAGE_BITS
#define FIRST_BYTES         ((DEPTH_MAX + 7) / 8)

/* If the final key count is known, one split adds up to SPLIT_LEVELS bits and aims at
 * EXPECTED_ENTRIES per segment in the end. Few segments then need another split. */
#define SPLIT_LEVELS        3
#define EXPECTED_ENTRIES    (SEGMENT_ENTRIES * 75 / 100)

/* Lookup */

/* Returns the record index of the key in this bucket, or SL_ROW_NONE. */
static uint32_t find_in_bucket(const struct sl_table_index *index,
                               const struct sl_table_bucket *bucket, uint8_t tag, uint64_t key)
{
    uint64_t matches = sl_table_bucket_match(bucket, tag);
    while (matches != 0) {
        const uint32_t record_index = bucket->records[sl_table_bucket_pop(&matches)];
        if (sl_table_index_key_of(index, record_index) == key) {
            return record_index;
        }
    }
    return SL_ROW_NONE;
}

/* A bucket with room ends the search: an entry lies behind full buckets only (index_remove.c). */
static uint32_t find_in_segment(const struct sl_table_index *index,
                                const struct sl_table_bucket *segment, uint64_t hash, uint64_t key)
{
    for (uint32_t probe = 0; probe < SL_TABLE_INDEX_SEGMENT_BUCKETS; probe++) {
        const struct sl_table_bucket *bucket =
            &segment[(hash + probe) % SL_TABLE_INDEX_SEGMENT_BUCKETS];
        const uint32_t record_index =
            find_in_bucket(index, bucket, sl_table_index_tag_of(hash), key);
        if (record_index != SL_ROW_NONE || bucket->used < SL_TABLE_BUCKET_ENTRIES) {
            return record_index;
        }
    }
    return SL_ROW_NONE;
}

uint32_t sl_table_index_find_one(const struct sl_table_index *index, uint64_t key)
{
    uint32_t record_index = SL_ROW_NONE;
    while (index != NULL && record_index == SL_ROW_NONE) {
        const uint64_t hash = sl_table_index_hash_of(index, key);
        record_index = find_in_segment(index, sl_table_index_segment_of(index, hash), hash, key);
        index = index->overflow;
    }
    return record_index;
}

/* Directory */

/* The caller overwrites the whole page. Pages are freed only with the index. */
static struct sl_table_page *page_create(struct sl_table_index *index)
{
    if (sl_slab_reserve(&index->pages) != 0) {
        return NULL;
    }
    struct sl_table_page *page = sl_slab_at(&index->pages, index->pages.unit_count++);
    page->sharers = 1;
    return page;
}

static size_t root_entries(const struct sl_table_index *index)
{
    return (size_t)1 << (index->depth - SL_TABLE_INDEX_PAGE_BITS);
}

/* Adds one bit: the upper half shares the pages of the lower half. */
static int directory_double(struct sl_table_index *index)
{
    const size_t entries = root_entries(index);
    if (!sl_table_budget_take(index->budget, entries * sizeof *index->root)) {
        return SL_ERR_NO_MEMORY;
    }
    struct sl_table_page **root = realloc(index->root, 2 * entries * sizeof *root);
    if (root == NULL) {
        sl_table_budget_give(index->budget, entries * sizeof *root);
        return SL_ERR_NO_MEMORY;
    }
    for (size_t i = 0; i < entries; i++) {
        root[entries + i] = root[i];
        root[i]->sharers++;
    }
    index->root = root;
    index->depth++;
    return 0;
}

/* Copies the page of entry `at` if other root entries share it. */
static int page_unshare(struct sl_table_index *index, uint64_t at)
{
    struct sl_table_page *shared = index->root[at >> SL_TABLE_INDEX_PAGE_BITS];
    if (shared->sharers == 1) {
        return 0;
    }
    struct sl_table_page *page = page_create(index);
    if (page == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    memcpy(page->segments, shared->segments, sizeof page->segments);
    shared->sharers--;
    index->root[at >> SL_TABLE_INDEX_PAGE_BITS] = page;
    return 0;
}

/* Growth */

static int segment_create(struct sl_table_index *index, uint8_t depth, struct sl_table_bucket **out)
{
    const int err = sl_slab_reserve(&index->segments);
    if (err != 0) {
        return err;
    }
    struct sl_table_bucket *segment = sl_slab_at(&index->segments, index->segments.unit_count++);
    if (index->segments.unit_count <= index->segments.dirty_end) {
        memset(segment, 0, SEGMENT_BYTES);
    }
    segment->depth = depth;
    *out = segment;
    return 0;
}

/* Returns the first bucket with room among `reach` buckets from the hash's own, or NULL. */
static struct sl_table_bucket *find_room(struct sl_table_bucket *segment, uint64_t hash,
                                         uint32_t reach)
{
    for (uint32_t probe = 0; probe < reach; probe++) {
        struct sl_table_bucket *bucket = &segment[(hash + probe) % SL_TABLE_INDEX_SEGMENT_BUCKETS];
        if (bucket->used < SL_TABLE_BUCKET_ENTRIES) {
            return bucket;
        }
    }
    return NULL;
}

static void index_place(struct sl_table_bucket *segment, struct sl_table_bucket *bucket,
                        uint64_t hash, uint32_t record_index)
{
    bucket->tags[bucket->used] = sl_table_index_tag_of(hash);
    bucket->records[bucket->used] = record_index;
    if (bucket != segment && bucket != &segment[hash % SL_TABLE_INDEX_SEGMENT_BUCKETS]) {
        bucket->strays |= (uint16_t)(1U << bucket->used);
    }
    bucket->used++;
    segment->entries++;
}

/* Always inline: GCC considers a function that only prefetches free of effects and removes calls of
 * it. */
static inline __attribute__((always_inline)) void
prefetch_records(const struct sl_table_index *index, const struct sl_table_bucket *bucket)
{
    for (uint32_t entry = 0; entry < bucket->used; entry++) {
        __builtin_prefetch(sl_slab_at(index->records, bucket->records[entry]));
    }
}

/* Distributes the entries of `lower` over both segments by directory bit `bit`. Each segment has
 * room for all of them. */
static void redistribute(const struct sl_table_index *index, struct sl_table_bucket *lower,
                         struct sl_table_bucket *upper, uint32_t bit)
{
    struct sl_table_bucket full[SL_TABLE_INDEX_SEGMENT_BUCKETS];
    const uint32_t ahead = 4;
    memcpy(full, lower, SEGMENT_BYTES);
    memset(lower, 0, SEGMENT_BYTES);
    for (uint32_t b = 0; b < ahead; b++) {
        prefetch_records(index, &full[b]);
    }
    for (uint32_t b = 0; b < SL_TABLE_INDEX_SEGMENT_BUCKETS; b++) {
        if (b + ahead < SL_TABLE_INDEX_SEGMENT_BUCKETS) {
            prefetch_records(index, &full[b + ahead]);
        }
        for (uint32_t entry = 0; entry < full[b].used; entry++) {
            const uint32_t record_index = full[b].records[entry];
            const uint64_t hash =
                sl_table_index_hash_of(index, sl_table_index_key_of(index, record_index));
            const bool up = (hash >> (SL_TABLE_INDEX_DIRECTORY_SHIFT + bit) & 1) != 0;
            struct sl_table_bucket *segment = up ? upper : lower;
            index_place(segment, find_room(segment, hash, SL_TABLE_INDEX_SEGMENT_BUCKETS), hash,
                        record_index);
        }
    }
}

/* The lowest directory entry of a segment; the others have the same bits up to its depth. */
static uint64_t segment_first(const struct sl_table_bucket *segment)
{
    uint64_t first = 0;
    for (uint32_t i = 0; i < FIRST_BYTES; i++) {
        first |= (uint64_t)segment[1 + i].depth << 8 * i;
    }
    return first;
}

static void segment_set_first(struct sl_table_bucket *segment, uint64_t first)
{
    for (uint32_t i = 0; i < FIRST_BYTES; i++) {
        segment[1 + i].depth = (uint8_t)(first >> 8 * i);
    }
}

/* Sets the directory entries of a segment. */
static void index_point(struct sl_table_index *index, struct sl_table_bucket *segment)
{
    const uint64_t end = 1ULL << index->depth, stride = 1ULL << segment->depth;
    for (uint64_t at = segment_first(segment); at < end; at += stride) {
        index->root[at >> SL_TABLE_INDEX_PAGE_BITS]
            ->segments[at & (SL_TABLE_INDEX_PAGE_ENTRIES - 1)] = segment;
    }
}

/* Returns true when the directory has, or may add, another bit for the segment. At most 8 directory
 * entries per segment suffice for every set of keys not chosen to collide. */
static bool has_bit_for(const struct sl_table_index *index, const struct sl_table_bucket *segment)
{
    return segment->depth < index->depth ||
           (index->depth < DEPTH_MAX &&
            2ULL << index->depth <= 8 * (uint64_t)index->segments.unit_count);
}

/* Returns true when one more bit may separate the segment's entries. */
static bool may_split(const struct sl_table_index *index, const struct sl_table_bucket *segment)
{
    return segment->entries >= SPLIT_ENTRIES_LEAST && has_bit_for(index, segment);
}

/* Splits the hash's segment. Takes all memory first, so that a failure leaves at most a larger
 * directory with the same content. */
static int split(struct sl_table_index *index, struct sl_table_bucket *lower, uint64_t hash)
{
    const uint8_t depth = lower->depth;
    int err = depth == index->depth ? directory_double(index) : 0;
    const uint64_t first = sl_table_index_directory_bits(hash, depth) | 1ULL << depth;
    for (uint64_t at = first; err == 0 && at < 1ULL << index->depth; at += 2ULL << depth) {
        err = page_unshare(index, at);
    }
    struct sl_table_bucket *upper = NULL;
    err = err != 0 ? err : segment_create(index, depth, &upper);
    if (err != 0) {
        return err;
    }
    redistribute(index, lower, upper, depth);
    lower->depth = (uint8_t)(depth + 1);
    upper->depth = (uint8_t)(depth + 1);
    segment_set_first(lower, first ^ 1ULL << depth);
    segment_set_first(upper, first);
    index_point(index, upper);
    return 0;
}

/* Adds the entries of a segment to another, which has room. */
static void add_entries(const struct sl_table_index *index, const struct sl_table_bucket *from,
                        struct sl_table_bucket *segment)
{
    for (uint32_t b = 0; b < SL_TABLE_INDEX_SEGMENT_BUCKETS; b++) {
        prefetch_records(index, &from[b]);
    }
    for (uint32_t b = 0; b < SL_TABLE_INDEX_SEGMENT_BUCKETS; b++) {
        for (uint32_t entry = 0; entry < from[b].used; entry++) {
            const uint32_t record_index = from[b].records[entry];
            const uint64_t hash =
                sl_table_index_hash_of(index, sl_table_index_key_of(index, record_index));
            index_place(segment, find_room(segment, hash, SL_TABLE_INDEX_SEGMENT_BUCKETS), hash,
                        record_index);
        }
    }
}

/* The last segment moves to the place of the one that is no longer needed. */
void sl_table_index_merge(struct sl_table_index *index, uint64_t hash)
{
    struct sl_table_bucket *segment = sl_table_index_segment_of(index, hash);
    const uint32_t depth = segment->depth;
    if (segment->entries % MERGE_STEP != 0 || segment->entries > MERGE_ENTRIES / 2 || depth == 0 ||
        index->depth - depth >= MERGE_LEVELS) {
        return;
    }
    const uint64_t bit = 1ULL << (SL_TABLE_INDEX_DIRECTORY_SHIFT + depth - 1);
    struct sl_table_bucket *lower = sl_table_index_segment_of(index, hash & ~bit);
    struct sl_table_bucket *upper = sl_table_index_segment_of(index, hash | bit);
    if (lower->depth != upper->depth || lower->entries + upper->entries > MERGE_ENTRIES) {
        return;
    }
    add_entries(index, upper, lower);
    lower->depth--;
    index_point(index, lower);
    const struct sl_table_bucket *last =
        sl_slab_at(&index->segments, index->segments.unit_count - 1);
    if (upper != last) {
        memcpy(upper, last, SEGMENT_BYTES);
        index_point(index, upper);
    }
    sl_slab_pop(&index->segments);
    index->depth_expected = 0; /* what was expected has come and gone */
}

/* Adds the key to the overflow index, which holds keys whose hashes this index cannot separate. */
static int insert_overflow(struct sl_table_index *index, uint64_t key, uint32_t record_index)
{
    if (index->overflow == NULL) {
        if (!sl_table_budget_take(index->budget, sizeof *index->overflow)) {
            return SL_ERR_NO_MEMORY;
        }
        struct sl_table_index *overflow = malloc(sizeof *overflow);
        int err = overflow == NULL ? SL_ERR_NO_MEMORY : 0;
        err = err != 0 ? err : sl_table_index_init(overflow, index->budget, index->records);
        if (err != 0) {
            sl_table_budget_give(index->budget, sizeof *overflow);
            free(overflow);
            return err;
        }
        overflow->level = index->level + 1;
        index->overflow = overflow;
    }
    return sl_table_index_insert(index->overflow, key, record_index);
}

/* Finds the key or a bucket for it. *record_index: record index of the key, or SL_ROW_NONE. Returns
 * NULL when the key is present or no bucket within PROBE_MAX has room. One pass suffices, since a
 * bucket with room ends the search too. */
static struct sl_table_bucket *find_place(const struct sl_table_index *index,
                                          struct sl_table_bucket *segment, uint64_t hash,
                                          uint64_t key, uint32_t *record_index)
{
    for (uint32_t probe = 0; probe < SL_TABLE_INDEX_SEGMENT_BUCKETS; probe++) {
        struct sl_table_bucket *bucket = &segment[(hash + probe) % SL_TABLE_INDEX_SEGMENT_BUCKETS];
        *record_index = find_in_bucket(index, bucket, sl_table_index_tag_of(hash), key);
        if (*record_index != SL_ROW_NONE) {
            return NULL;
        }
        if (bucket->used < SL_TABLE_BUCKET_ENTRIES) {
            return probe < PROBE_MAX ? bucket : NULL;
        }
    }
    return NULL;
}

/* Splits the segment, and its halves again while the expected key count requires it. So entries
 * move once instead of once per doubling. Without memory for a further split, that half is split
 * when it is full. */
static int split_far(struct sl_table_index *index, uint64_t hash, uint32_t levels)
{
    struct sl_table_bucket *segment = sl_table_index_segment_of(index, hash);
    const uint32_t depth = segment->depth;
    const uint64_t bit = 1ULL << (SL_TABLE_INDEX_DIRECTORY_SHIFT + depth);
    const int err = split(index, segment, hash);
    if (err == 0 && levels > 1 && depth + 1 < index->depth_expected &&
        has_bit_for(index, segment)) {
        (void)split_far(index, hash & ~bit, levels - 1);
        (void)split_far(index, hash | bit, levels - 1);
    }
    return err;
}

void sl_table_index_reserve(struct sl_table_index *index, uint64_t count)
{
    uint32_t depth = 0;
    while (depth < DEPTH_MAX && count >> depth > EXPECTED_ENTRIES) {
        depth++;
    }
    index->depth_expected = depth;
}

/* Adds a key that is not in the index. */
static int index_insert(struct sl_table_index *index, uint64_t hash, uint64_t key,
                        uint32_t record_index)
{
    for (;;) {
        struct sl_table_bucket *segment = sl_table_index_segment_of(index, hash);
        struct sl_table_bucket *bucket = find_room(segment, hash, PROBE_MAX);
        const bool crowded = bucket == NULL || segment->entries >= SPLIT_ENTRIES;
        int err = 0;
        if (crowded && may_split(index, segment)) {
            err = split_far(index, hash, SPLIT_LEVELS);
            if (err == 0) {
                continue;
            }
        }
        /* Fill a segment that cannot be split. Without memory a long search is better than none. */
        if (err != 0 && bucket == NULL) {
            bucket = find_room(segment, hash, SL_TABLE_INDEX_SEGMENT_BUCKETS);
        }
        if (bucket != NULL) {
            index_place(segment, bucket, hash, record_index);
            return 0;
        }
        return err != 0 ? err : insert_overflow(index, key, record_index);
    }
}

int sl_table_index_put(struct sl_table_index *index, uint64_t key, uint64_t hash,
                       uint32_t record_index, uint32_t *found)
{
    sl_assert_slow(hash == sl_table_index_hash_of(index, key));
    struct sl_table_bucket *segment = sl_table_index_segment_of(index, hash);
    struct sl_table_bucket *bucket = find_place(index, segment, hash, key, found);
    if (*found == SL_ROW_NONE && index->overflow != NULL) {
        *found = sl_table_index_find_one(index->overflow, key);
    }
    if (*found != SL_ROW_NONE) {
        return 0;
    }
    *found = record_index;
    if (bucket != NULL && segment->entries < SPLIT_ENTRIES) {
        index_place(segment, bucket, hash, record_index);
        return 0;
    }
    return index_insert(index, hash, key, record_index);
}

int sl_table_index_insert(struct sl_table_index *index, uint64_t key, uint32_t record_index)
{
    return index_insert(index, sl_table_index_hash_of(index, key), key, record_index);
}

/* Lifecycle */

int sl_table_index_init(struct sl_table_index *index, struct sl_table_budget *budget,
                        const struct sl_slab *records)
{
    *index = (struct sl_table_index){
        .budget = budget, .records = records, .depth = SL_TABLE_INDEX_PAGE_BITS};
    struct sl_table_bucket *segment = NULL;
    struct sl_table_page *page = NULL;
    if (!sl_table_budget_take(budget, sizeof *index->root)) {
        return SL_ERR_NO_MEMORY;
    }
    sl_slab_init(&index->segments, budget, SEGMENT_BYTES, SEGMENT_CHUNK);
    sl_slab_init(&index->pages, budget, sizeof(struct sl_table_page), PAGE_CHUNK);
    index->root = calloc(1, sizeof *index->root);
    if (index->root != NULL) {
        page = page_create(index);
    }
    if (page == NULL || segment_create(index, 0, &segment) != 0) {
        free(index->root);
        sl_table_budget_give(budget, sizeof *index->root);
        sl_slab_fini(&index->pages);
        sl_slab_fini(&index->segments);
        return SL_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < SL_TABLE_INDEX_PAGE_ENTRIES; i++) {
        page->segments[i] = segment;
    }
    index->root[0] = page;
    return 0;
}

size_t sl_table_index_memory_bytes(const struct sl_table_index *index)
{
    size_t bytes = 0;
    for (; index != NULL; index = index->overflow) {
        bytes += sl_slab_memory_bytes(&index->segments) + sl_slab_memory_bytes(&index->pages) +
                 root_entries(index) * sizeof *index->root;
        bytes += index->overflow == NULL ? 0 : sizeof *index->overflow;
    }
    return bytes;
}

void sl_table_index_fini(struct sl_table_index *index)
{
    if (index->overflow != NULL) {
        sl_table_index_fini(index->overflow);
        free(index->overflow);
        sl_table_budget_give(index->budget, sizeof *index->overflow);
    }
    sl_table_budget_give(index->budget, root_entries(index) * sizeof *index->root);
    free(index->root);
    sl_slab_fini(&index->pages);
    sl_slab_fini(&index->segments);
}
