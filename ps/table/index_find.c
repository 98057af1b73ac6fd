/* Batched lookup. */
#include "core/assert.h"
#include "ps/table/index_internal.h"
#include "ps/table/sparse_table.h"

#define FIND_GROUP 32
#define FIND_LEFT  64
#define CACHE_LINE 64

/* Keys of one batch in progress. */
struct find_group {
    const uint64_t *keys;
    uint32_t *record_indexes; /* out: record index of each key, at first a guess */
    uint32_t count;
    const struct sl_table_bucket *buckets[FIND_GROUP];
    const void *guesses[FIND_GROUP]; /* the guessed records; NULL: none */
    uint64_t hashes[FIND_GROUP];     /* tags would do, but stores of bytes may alias `index` */
};

/* Keys not settled by the first guess:
 * - about 5 % of the keys present: another entry has the same tag, or the bucket was full;
 * - missing keys whose bucket is full or has an entry with the same tag;
 * - with an overflow index, all missing keys. */
struct find_left {
    const struct sl_table_index *index;
    bool any_missing; /* of the keys so far */
    uint32_t count;
    struct find_search {
        uint64_t key, hash;
        const struct sl_table_bucket *segment;
        uint64_t matches; /* untried matches of the bucket at `probe` */
        uint32_t probe;
        uint32_t candidate;     /* record index being prefetched; SL_ROW_NONE: none left */
        uint32_t *record_index; /* out */
    } searches[FIND_LEFT];
};

/* Returns the record's address. Always inline: GCC removes calls of functions that only
 * prefetch. */
static inline __attribute__((always_inline)) const void *
prefetch_record(const struct sl_table_index *index, uint32_t record_index, size_t bytes)
{
    const char *record = sl_slab_at(index->records, record_index);
    for (size_t line = 0; line < bytes; line += CACHE_LINE) {
        __builtin_prefetch(record + line);
    }
    __builtin_prefetch(record + bytes - 1);
    return record;
}

/* First pass: compute and prefetch each key's own bucket. */
static void group_hash(const struct sl_table_index *index, struct find_group *group)
{
    for (uint32_t i = 0; i < group->count; i++) {
        const uint64_t hash = sl_hash_key(group->keys[i]); /* level 0 */
        group->buckets[i] =
            &sl_table_index_segment_of(index, hash)[hash % SL_TABLE_INDEX_SEGMENT_BUCKETS];
        group->hashes[i] = hash;
        __builtin_prefetch(group->buckets[i]);
    }
}

/* Second pass: guess the first record with a matching tag. If a full bucket has none, the next
 * bucket is likely. */
static void group_guess(const struct sl_table_index *index, struct find_group *group,
                        size_t touch_bytes)
{
    for (uint32_t i = 0; i < group->count; i++) {
        const struct sl_table_bucket *bucket = group->buckets[i];
        uint64_t matches = sl_table_bucket_match(bucket, sl_table_index_tag_of(group->hashes[i]));
        group->record_indexes[i] = SL_ROW_NONE;
        group->guesses[i] = NULL;
        if (matches != 0) {
            group->record_indexes[i] = bucket->records[sl_table_bucket_pop(&matches)];
            group->guesses[i] = prefetch_record(index, group->record_indexes[i], touch_bytes);
        } else if (bucket->used == SL_TABLE_BUCKET_ENTRIES) {
            __builtin_prefetch(bucket + 1);
        }
    }
}

/* Advances to the next entry with the search's tag and prefetches its record. */
static void index_find_search_next(const struct sl_table_index *index, struct find_search *search,
                                   size_t touch_bytes)
{
    const struct sl_table_bucket *segment = search->segment;
    while (search->matches == 0) {
        const struct sl_table_bucket *bucket =
            &segment[(search->hash + search->probe) % SL_TABLE_INDEX_SEGMENT_BUCKETS];
        search->probe++;
        if (bucket->used < SL_TABLE_BUCKET_ENTRIES ||
            search->probe == SL_TABLE_INDEX_SEGMENT_BUCKETS) {
            search->candidate = SL_ROW_NONE;
            return;
        }
        bucket = &segment[(search->hash + search->probe) % SL_TABLE_INDEX_SEGMENT_BUCKETS];
        search->matches = sl_table_bucket_match(bucket, sl_table_index_tag_of(search->hash));
    }
    const struct sl_table_bucket *bucket =
        &segment[(search->hash + search->probe) % SL_TABLE_INDEX_SEGMENT_BUCKETS];
    search->candidate = bucket->records[sl_table_bucket_pop(&search->matches)];
    (void)prefetch_record(index, search->candidate, touch_bytes);
}

static void left_add(struct find_left *left, uint64_t key, uint64_t hash, uint32_t *record_index,
                     size_t touch_bytes)
{
    struct find_search *search = &left->searches[left->count++];
    *search = (struct find_search){
        .key = key,
        .hash = hash,
        .segment = sl_table_index_segment_of(left->index, hash),
        .record_index = record_index,
    };
    const struct sl_table_bucket *bucket = &search->segment[hash % SL_TABLE_INDEX_SEGMENT_BUCKETS];
    search->matches = sl_table_bucket_match(bucket, sl_table_index_tag_of(hash));
    if (search->matches != 0) {
        (void)sl_table_bucket_pop(&search->matches); /* the first guess, already checked */
    }
    index_find_search_next(left->index, search, touch_bytes);
}

/* Searches the overflow index, if any, for a key without a candidate left. */
static uint32_t find_in_overflow(struct find_left *left, uint64_t key)
{
    const struct sl_table_index *overflow = left->index->overflow;
    const uint32_t found = overflow == NULL ? SL_ROW_NONE : sl_table_index_find_one(overflow, key);
    left->any_missing |= found == SL_ROW_NONE;
    return found;
}

/* Finishes all searches in rounds. Each round checks one record per search, prefetched in the round
 * before. */
static void left_settle(struct find_left *left, size_t touch_bytes)
{
    const struct sl_table_index *index = left->index;
    while (left->count > 0) {
        uint32_t open = 0;
        for (uint32_t i = 0; i < left->count; i++) {
            struct find_search *search = &left->searches[i];
            if (search->candidate == SL_ROW_NONE) {
                *search->record_index = find_in_overflow(left, search->key);
            } else if (sl_table_index_key_of(index, search->candidate) == search->key) {
                *search->record_index = search->candidate;
            } else {
                index_find_search_next(index, search, touch_bytes);
                left->searches[open++] = *search;
            }
        }
        left->count = open;
    }
}

/* Third pass: check the guesses. A key without a guess is missing if its bucket has room and there
 * is no overflow index. */
static void group_check(const struct sl_table_index *index, const struct find_group *group,
                        struct find_left *left, size_t touch_bytes)
{
    for (uint32_t i = 0; i < group->count; i++) {
        const void *guess = group->guesses[i];
        if (guess != NULL && sl_table_index_key_at(guess) == group->keys[i]) {
            continue;
        }
        if (guess == NULL && group->buckets[i]->used < SL_TABLE_BUCKET_ENTRIES &&
            index->overflow == NULL) {
            left->any_missing = true;
            continue;
        }
        left_add(left, group->keys[i], group->hashes[i], &group->record_indexes[i], touch_bytes);
    }
    if (left->count > FIND_LEFT - FIND_GROUP) {
        left_settle(left, touch_bytes);
    }
}

/* Sets the next group of keys, from `done` on; empty at the end. */
static void group_take(struct find_group *group, const uint64_t *keys, uint32_t *record_indexes,
                       uint32_t done, uint32_t count)
{
    const uint32_t left = done < count ? count - done : 0;
    group->keys = keys + done;
    group->record_indexes = record_indexes + done;
    group->count = left < FIND_GROUP ? left : FIND_GROUP;
}

/* Loads of one pass are independent of each other, and each pass prefetches for the next. The
 * buckets of the next group are prefetched while the records of this group arrive. */
bool sl_table_index_find(const struct sl_table_index *index, const uint64_t *keys, uint32_t count,
                         size_t touch_bytes, uint32_t *record_indexes)
{
    struct find_group groups[2];
    struct find_left left;
    sl_assert(index->level == 0);
    left.index = index;
    left.any_missing = false;
    left.count = 0;
    group_take(&groups[0], keys, record_indexes, 0, count);
    group_hash(index, &groups[0]);
    for (uint32_t done = 0, turn = 0; done < count; done += FIND_GROUP, turn ^= 1) {
        struct find_group *next = &groups[turn ^ 1];
        group_guess(index, &groups[turn], touch_bytes);
        group_take(next, keys, record_indexes, done + groups[turn].count, count);
        group_hash(index, next);
        group_check(index, &groups[turn], &left, touch_bytes);
    }
    left_settle(&left, touch_bytes);
    return !left.any_missing;
}

void sl_table_index_fetch_buckets(const struct sl_table_index *index, const uint64_t *keys,
                                  uint32_t count, uint64_t *hashes)
{
    sl_assert(index->level == 0);
    for (uint32_t i = 0; i < count; i++) {
        hashes[i] = sl_table_index_hash_of(index, keys[i]);
        const struct sl_table_bucket *segment = sl_table_index_segment_of(index, hashes[i]);
        __builtin_prefetch(segment, 1); /* it counts the entries */
        __builtin_prefetch(&segment[hashes[i] % SL_TABLE_INDEX_SEGMENT_BUCKETS], 1);
    }
}

void sl_table_index_fetch_records(const struct sl_table_index *index, const uint64_t *hashes,
                                  uint32_t count, size_t touch_bytes)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct sl_table_bucket *segment = sl_table_index_segment_of(index, hashes[i]);
        const struct sl_table_bucket *bucket = &segment[hashes[i] % SL_TABLE_INDEX_SEGMENT_BUCKETS];
        uint64_t matches = sl_table_bucket_match(bucket, sl_table_index_tag_of(hashes[i]));
        if (matches != 0) {
            (void)prefetch_record(index, bucket->records[sl_table_bucket_pop(&matches)],
                                  touch_bytes);
        } else if (bucket->used == SL_TABLE_BUCKET_ENTRIES) {
            __builtin_prefetch(bucket + 1);
        }
    }
}
