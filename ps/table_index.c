#include "ps/table_index.h"

#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/hash.h"
#include "ps/table.h"
#include "ps/table_bucket.h"

/* Bits of a hash. The 16 highest choose the shard (core/partition.h), so the keys of one table
 * share some of them; none of the index's bits is among those, and no two uses share a bit. */
#define BUCKET_BITS         6  /* bits 0 to 5: the bucket in its segment */
#define TAG_SHIFT           6  /* bits 6 to 13: the tag */
#define DIRECTORY_SHIFT     14 /* bits 14 to 47: the directory, from the lowest */
#define DEPTH_MAX           34

#define SEGMENT_BUCKETS     (1U << BUCKET_BITS)
#define SEGMENT_ENTRIES     (SEGMENT_BUCKETS * SL_TABLE_BUCKET_SLOTS)
#define SEGMENT_BYTES       (SEGMENT_BUCKETS * sizeof(struct sl_table_bucket))
#define SEGMENT_CHUNK       ((size_t)64 << 10)

/* A segment is split when 85 % of it are used: fuller, and every fifth key is not in its own
 * bucket. A run of full buckets as long as PROBE_MAX is a reason too, unless the segment is so
 * empty that the keys must have been chosen for it. */
#define SPLIT_ENTRIES       (SEGMENT_ENTRIES * 85 / 100)
#define SPLIT_ENTRIES_LEAST (SEGMENT_ENTRIES / 4)
#define PROBE_MAX           8

#define PAGE_BITS           10
#define PAGE_ENTRIES        (1U << PAGE_BITS)
#define PAGE_CHUNK          ((size_t)64 << 10)

#define FIND_GROUP          32
#define FIND_LEFT           64
#define CACHE_LINE          64

/* A piece of the directory; the root may name it several times until a split tells them apart. */
struct sl_table_page {
    uint64_t sharers; /* entries of the root that point here */
    struct sl_table_bucket *segments[PAGE_ENTRIES];
};

static uint64_t hash_of(const struct sl_table_index *index, uint64_t key)
{
    const uint64_t hash = sl_hash_key(key);
    return index->level == 0 ? hash : sl_hash_key(hash + index->level * 0x9e3779b97f4a7c15ULL);
}

static uint8_t tag_of(uint64_t hash)
{
    return (uint8_t)(hash >> TAG_SHIFT);
}

static uint64_t directory_bits(uint64_t hash, uint32_t depth)
{
    return (hash >> DIRECTORY_SHIFT) & ((1ULL << depth) - 1);
}

static struct sl_table_bucket *segment_of(const struct sl_table_index *index, uint64_t hash)
{
    const uint64_t at = directory_bits(hash, index->depth);
    return index->root[at >> PAGE_BITS]->segments[at & (PAGE_ENTRIES - 1)];
}

static uint64_t key_of(const struct sl_table_index *index, uint32_t number)
{
    uint64_t key;
    memcpy(&key, sl_table_memory_at(index->records, number), sizeof key);
    return key;
}

/* ---- Finding --------------------------------------------------------------------------------- */

/* The record of the key among the bucket's, or SL_TABLE_NO_RECORD. */
static uint32_t find_in_bucket(const struct sl_table_index *index,
                               const struct sl_table_bucket *bucket, uint8_t tag, uint64_t key)
{
    uint64_t matches = sl_table_bucket_match(bucket, tag);
    while (matches != 0) {
        const uint32_t number = bucket->records[sl_table_bucket_pop(&matches)];
        if (key_of(index, number) == key) {
            return number;
        }
    }
    return SL_TABLE_NO_RECORD;
}

/* Entries are never taken out, so a bucket that is not full ends the search. */
static uint32_t find_in_segment(const struct sl_table_index *index,
                                const struct sl_table_bucket *segment, uint64_t hash, uint64_t key)
{
    for (uint32_t probe = 0; probe < SEGMENT_BUCKETS; probe++) {
        const struct sl_table_bucket *bucket = &segment[(hash + probe) % SEGMENT_BUCKETS];
        const uint32_t number = find_in_bucket(index, bucket, tag_of(hash), key);
        if (number != SL_TABLE_NO_RECORD || bucket->used < SL_TABLE_BUCKET_SLOTS) {
            return number;
        }
    }
    return SL_TABLE_NO_RECORD;
}

uint32_t sl_table_index_find_one(const struct sl_table_index *index, uint64_t key)
{
    uint32_t number = SL_TABLE_NO_RECORD;
    while (index != NULL && number == SL_TABLE_NO_RECORD) {
        const uint64_t hash = hash_of(index, key);
        number = find_in_segment(index, segment_of(index, hash), hash, key);
        index = index->overflow;
    }
    return number;
}

/* Keys on their way through a batched lookup. */
struct find_group {
    const uint64_t *keys;
    uint32_t *numbers; /* out: of each key, first a guess */
    uint32_t count;
    const struct sl_table_bucket *buckets[FIND_GROUP];
    uint8_t tags[FIND_GROUP];
};

/* Keys whose first guess was not right: another entry with the same tag stands before theirs, their
 * own bucket was full when they came, or they are not there. One in twenty of those that are. */
struct find_left {
    const struct sl_table_index *index;
    uint32_t count;
    struct find_search {
        uint64_t key, hash;
        const struct sl_table_bucket *segment;
        uint64_t matches; /* of the bucket at `probe`, those not tried yet */
        uint32_t probe;
        uint32_t candidate; /* whose record is on its way, or SL_TABLE_NO_RECORD: none left */
        uint32_t *number;   /* where the answer goes */
    } searches[FIND_LEFT];
};

/* Inlined by force, for GCC removes calls of what only prefetches. */
static inline __attribute__((always_inline)) void
prefetch_record(const struct sl_table_index *index, uint32_t number, size_t bytes)
{
    const char *record = sl_table_memory_at(index->records, number);
    for (size_t line = 0; line < bytes; line += CACHE_LINE) {
        __builtin_prefetch(record + line);
    }
    __builtin_prefetch(record + bytes - 1);
}

/* First pass: where each key's own bucket is. */
static void group_hash(const struct sl_table_index *index, struct find_group *group)
{
    for (uint32_t i = 0; i < group->count; i++) {
        const uint64_t hash = hash_of(index, group->keys[i]);
        group->buckets[i] = &segment_of(index, hash)[hash % SEGMENT_BUCKETS];
        group->tags[i] = tag_of(hash);
        __builtin_prefetch(group->buckets[i]);
    }
}

/* Second pass: the first record whose tag fits. Where none does in a full bucket, the next bucket
 * is the likely one. */
static void group_guess(const struct sl_table_index *index, struct find_group *group,
                        size_t touch_bytes)
{
    for (uint32_t i = 0; i < group->count; i++) {
        const struct sl_table_bucket *bucket = group->buckets[i];
        uint64_t matches = sl_table_bucket_match(bucket, group->tags[i]);
        group->numbers[i] = SL_TABLE_NO_RECORD;
        if (matches != 0) {
            group->numbers[i] = bucket->records[sl_table_bucket_pop(&matches)];
            prefetch_record(index, group->numbers[i], touch_bytes);
        } else if (bucket->used == SL_TABLE_BUCKET_SLOTS) {
            __builtin_prefetch(bucket + 1);
        }
    }
}

/* The next entry with the search's tag, its record asked for. */
static void search_next(const struct sl_table_index *index, struct find_search *search,
                        size_t touch_bytes)
{
    const struct sl_table_bucket *segment = search->segment;
    while (search->matches == 0) {
        const struct sl_table_bucket *bucket =
            &segment[(search->hash + search->probe) % SEGMENT_BUCKETS];
        search->probe++;
        if (bucket->used < SL_TABLE_BUCKET_SLOTS || search->probe == SEGMENT_BUCKETS) {
            search->candidate = SL_TABLE_NO_RECORD;
            return;
        }
        bucket = &segment[(search->hash + search->probe) % SEGMENT_BUCKETS];
        search->matches = sl_table_bucket_match(bucket, tag_of(search->hash));
    }
    const struct sl_table_bucket *bucket =
        &segment[(search->hash + search->probe) % SEGMENT_BUCKETS];
    search->candidate = bucket->records[sl_table_bucket_pop(&search->matches)];
    prefetch_record(index, search->candidate, touch_bytes);
}

static void left_add(struct find_left *left, uint64_t key, uint32_t *number, size_t touch_bytes)
{
    struct find_search *search = &left->searches[left->count++];
    const uint64_t hash = hash_of(left->index, key);
    *search = (struct find_search){
        .key = key,
        .hash = hash,
        .segment = segment_of(left->index, hash),
        .number = number,
    };
    const struct sl_table_bucket *bucket = &search->segment[hash % SEGMENT_BUCKETS];
    search->matches = sl_table_bucket_match(bucket, tag_of(hash));
    if (search->matches != 0) {
        (void)sl_table_bucket_pop(&search->matches); /* the guess */
    }
    search_next(left->index, search, touch_bytes);
}

/* Settles all that are left, in rounds: a round looks at one record of each, all of which the round
 * before has asked for. */
static void left_settle(struct find_left *left, size_t touch_bytes)
{
    const struct sl_table_index *index = left->index;
    while (left->count > 0) {
        uint32_t open = 0;
        for (uint32_t i = 0; i < left->count; i++) {
            struct find_search *search = &left->searches[i];
            if (search->candidate == SL_TABLE_NO_RECORD) {
                *search->number = index->overflow == NULL
                                      ? SL_TABLE_NO_RECORD
                                      : sl_table_index_find_one(index->overflow, search->key);
            } else if (key_of(index, search->candidate) == search->key) {
                *search->number = search->candidate;
            } else {
                search_next(index, search, touch_bytes);
                left->searches[open++] = *search;
            }
        }
        left->count = open;
    }
}

/* Third pass: whether the guesses are right. */
static void group_check(const struct sl_table_index *index, const struct find_group *group,
                        struct find_left *left, size_t touch_bytes)
{
    for (uint32_t i = 0; i < group->count; i++) {
        const uint32_t guess = group->numbers[i];
        const bool settled =
            guess == SL_TABLE_NO_RECORD
                ? group->buckets[i]->used < SL_TABLE_BUCKET_SLOTS && index->overflow == NULL
                : key_of(index, guess) == group->keys[i];
        if (!settled) {
            left_add(left, group->keys[i], &group->numbers[i], touch_bytes);
        }
    }
    if (left->count > FIND_LEFT - FIND_GROUP) {
        left_settle(left, touch_bytes);
    }
}

/* The keys from `done` on that make the next group; none at the end. */
static void group_take(struct find_group *group, const uint64_t *keys, uint32_t *numbers,
                       uint32_t done, uint32_t count)
{
    const uint32_t left = done < count ? count - done : 0;
    group->keys = keys + done;
    group->numbers = numbers + done;
    group->count = left < FIND_GROUP ? left : FIND_GROUP;
}

/* Each pass makes loads that do not depend on one another and leaves those of the next pass on
 * their way; while the records of one group come, the buckets of the next are asked for. */
void sl_table_index_find(const struct sl_table_index *index, const uint64_t *keys, uint32_t count,
                         size_t touch_bytes, uint32_t *numbers)
{
    struct find_group groups[2];
    struct find_left left;
    sl_assert(index->level == 0);
    left.index = index;
    left.count = 0;
    group_take(&groups[0], keys, numbers, 0, count);
    group_hash(index, &groups[0]);
    for (uint32_t done = 0, turn = 0; done < count; done += FIND_GROUP, turn ^= 1) {
        struct find_group *next = &groups[turn ^ 1];
        group_guess(index, &groups[turn], touch_bytes);
        group_take(next, keys, numbers, done + groups[turn].count, count);
        group_hash(index, next);
        group_check(index, &groups[turn], &left, touch_bytes);
    }
    left_settle(&left, touch_bytes);
}

/* ---- The directory --------------------------------------------------------------------------- */

/* Pages are written over at once, and given back with the index only. */
static struct sl_table_page *page_create(struct sl_table_index *index)
{
    if (sl_table_memory_reserve(&index->pages) != 0) {
        return NULL;
    }
    struct sl_table_page *page = sl_table_memory_at(&index->pages, index->pages.unit_count++);
    page->sharers = 1;
    return page;
}

static size_t root_entries(const struct sl_table_index *index)
{
    return (size_t)1 << (index->depth - PAGE_BITS);
}

/* One bit more: the upper half names the pages of the lower. */
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

/* Makes the page that entry `at` lies on the entry's own. */
static int page_unshare(struct sl_table_index *index, uint64_t at)
{
    struct sl_table_page *shared = index->root[at >> PAGE_BITS];
    if (shared->sharers == 1) {
        return 0;
    }
    struct sl_table_page *page = page_create(index);
    if (page == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    memcpy(page->segments, shared->segments, sizeof page->segments);
    shared->sharers--;
    index->root[at >> PAGE_BITS] = page;
    return 0;
}

/* ---- Growing --------------------------------------------------------------------------------- */

static int segment_create(struct sl_table_index *index, uint8_t depth, struct sl_table_bucket **out)
{
    const int err = sl_table_memory_reserve(&index->segments);
    if (err != 0) {
        return err;
    }
    struct sl_table_bucket *segment =
        sl_table_memory_at(&index->segments, index->segments.unit_count++);
    segment->depth = depth;
    *out = segment;
    return 0;
}

/* The first bucket with room among `reach` from the hash's own, or NULL. */
static struct sl_table_bucket *find_room(struct sl_table_bucket *segment, uint64_t hash,
                                         uint32_t reach)
{
    for (uint32_t probe = 0; probe < reach; probe++) {
        struct sl_table_bucket *bucket = &segment[(hash + probe) % SEGMENT_BUCKETS];
        if (bucket->used < SL_TABLE_BUCKET_SLOTS) {
            return bucket;
        }
    }
    return NULL;
}

static void place(struct sl_table_bucket *segment, struct sl_table_bucket *bucket, uint64_t hash,
                  uint32_t number)
{
    bucket->tags[bucket->used] = tag_of(hash);
    bucket->records[bucket->used] = number;
    bucket->used++;
    segment->entries++;
}

/* Inlined by force: GCC takes a function that only prefetches for one without effects, and removes
 * the calls of it. */
static inline __attribute__((always_inline)) void
prefetch_records(const struct sl_table_index *index, const struct sl_table_bucket *bucket)
{
    for (uint32_t slot = 0; slot < bucket->used; slot++) {
        __builtin_prefetch(sl_table_memory_at(index->records, bucket->records[slot]));
    }
}

/* Deals the entries of the lower segment out between it and the upper by bit `bit` of the
 * directory's. Both have room for all of them. */
static void redistribute(const struct sl_table_index *index, struct sl_table_bucket *lower,
                         struct sl_table_bucket *upper, uint32_t bit)
{
    struct sl_table_bucket full[SEGMENT_BUCKETS];
    const uint32_t ahead = 4;
    memcpy(full, lower, SEGMENT_BYTES);
    memset(lower, 0, SEGMENT_BYTES);
    for (uint32_t b = 0; b < ahead; b++) {
        prefetch_records(index, &full[b]);
    }
    for (uint32_t b = 0; b < SEGMENT_BUCKETS; b++) {
        if (b + ahead < SEGMENT_BUCKETS) {
            prefetch_records(index, &full[b + ahead]);
        }
        for (uint32_t slot = 0; slot < full[b].used; slot++) {
            const uint32_t number = full[b].records[slot];
            const uint64_t hash = hash_of(index, key_of(index, number));
            const bool up = (hash >> (DIRECTORY_SHIFT + bit) & 1) != 0;
            struct sl_table_bucket *segment = up ? upper : lower;
            place(segment, find_room(segment, hash, SEGMENT_BUCKETS), hash, number);
        }
    }
}

/* Whether one bit more may tell the segment's entries apart. The rule on the directory's size holds
 * for every set of keys that were not chosen against it. */
static bool may_split(const struct sl_table_index *index, const struct sl_table_bucket *segment)
{
    if (segment->entries < SPLIT_ENTRIES_LEAST) {
        return false;
    }
    return segment->depth < index->depth ||
           (index->depth < DEPTH_MAX &&
            2ULL << index->depth <= 8 * (uint64_t)index->segments.unit_count);
}

/* Splits the segment that the hash belongs to. Memory is taken first: a failure leaves a directory
 * that is larger, but says the same. */
static int split(struct sl_table_index *index, struct sl_table_bucket *lower, uint64_t hash)
{
    const uint8_t depth = lower->depth;
    int err = depth == index->depth ? directory_double(index) : 0;
    const uint64_t first = directory_bits(hash, depth) | 1ULL << depth;
    const uint64_t end = 1ULL << index->depth;
    const uint64_t stride = 2ULL << depth;
    for (uint64_t at = first; err == 0 && at < end; at += stride) {
        err = page_unshare(index, at);
    }
    struct sl_table_bucket *upper = NULL;
    if (err == 0) {
        err = segment_create(index, depth, &upper);
    }
    if (err != 0) {
        return err;
    }
    redistribute(index, lower, upper, depth);
    lower->depth = (uint8_t)(depth + 1);
    upper->depth = (uint8_t)(depth + 1);
    for (uint64_t at = first; at < end; at += stride) {
        index->root[at >> PAGE_BITS]->segments[at & (PAGE_ENTRIES - 1)] = upper;
    }
    return 0;
}

/* The index that takes what the hashes of this one cannot tell apart. */
static int insert_overflow(struct sl_table_index *index, uint64_t key, uint32_t number)
{
    if (index->overflow == NULL) {
        if (!sl_table_budget_take(index->budget, sizeof *index->overflow)) {
            return SL_ERR_NO_MEMORY;
        }
        struct sl_table_index *overflow = malloc(sizeof *overflow);
        int err = overflow == NULL ? SL_ERR_NO_MEMORY : 0;
        if (err == 0) {
            err = sl_table_index_init(overflow, index->budget, index->records);
        }
        if (err != 0) {
            sl_table_budget_give(index->budget, sizeof *overflow);
            free(overflow);
            return err;
        }
        overflow->level = index->level + 1;
        index->overflow = overflow;
    }
    return sl_table_index_insert(index->overflow, key, number);
}

int sl_table_index_insert(struct sl_table_index *index, uint64_t key, uint32_t number)
{
    const uint64_t hash = hash_of(index, key);
    for (;;) {
        struct sl_table_bucket *segment = segment_of(index, hash);
        struct sl_table_bucket *bucket = find_room(segment, hash, PROBE_MAX);
        const bool crowded = bucket == NULL || segment->entries >= SPLIT_ENTRIES;
        int err = 0;
        if (crowded && may_split(index, segment)) {
            err = split(index, segment, hash);
            if (err == 0) {
                continue;
            }
        }
        /* A segment that cannot be split, for whatever reason, is filled. */
        if (bucket != NULL) {
            place(segment, bucket, hash, number);
            return 0;
        }
        return err != 0 ? err : insert_overflow(index, key, number);
    }
}

/* ---- Life ------------------------------------------------------------------------------------ */

int sl_table_index_init(struct sl_table_index *index, struct sl_table_budget *budget,
                        const struct sl_table_memory *records)
{
    *index = (struct sl_table_index){.budget = budget, .records = records, .depth = PAGE_BITS};
    struct sl_table_bucket *segment = NULL;
    struct sl_table_page *page = NULL;
    if (!sl_table_budget_take(budget, sizeof *index->root)) {
        return SL_ERR_NO_MEMORY;
    }
    sl_table_memory_init(&index->segments, budget, SEGMENT_BYTES, SEGMENT_CHUNK);
    sl_table_memory_init(&index->pages, budget, sizeof(struct sl_table_page), PAGE_CHUNK);
    index->root = calloc(1, sizeof *index->root);
    if (index->root != NULL) {
        page = page_create(index);
    }
    if (page == NULL || segment_create(index, 0, &segment) != 0) {
        free(index->root);
        sl_table_budget_give(budget, sizeof *index->root);
        sl_table_memory_fini(&index->pages);
        sl_table_memory_fini(&index->segments);
        return SL_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < PAGE_ENTRIES; i++) {
        page->segments[i] = segment;
    }
    index->root[0] = page;
    return 0;
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
    sl_table_memory_fini(&index->pages);
    sl_table_memory_fini(&index->segments);
}
