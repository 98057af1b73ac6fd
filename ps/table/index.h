/* The index of one table: u64 key -> record number, by extendible hashing. Keys are not in it: they
 * stand at the start of the records.
 *
 * A segment is 64 buckets of one cache line, probed linearly from the key's own. The directory maps
 * the low bits of a hash to segments. A segment that is too full is split by the next bit, alone.
 * The directory is cut into pages; doubling it copies pointers to pages, and a page itself only
 * when a split first makes it differ, so that growing costs no pause that the size of the table
 * shows in.
 *
 * Any set of keys is served. Keys chosen so that their hashes share the low bits could force the
 * directory to double without end; it is never larger than eight times the number of segments, and
 * what finds no place then goes to an overflow index with other hashes. Owner reactor. */
#ifndef SL_PS_TABLE_INDEX_H
#define SL_PS_TABLE_INDEX_H

#include "ps/table/slab.h"

struct sl_table_bucket;
struct sl_table_page;

struct sl_table_index {
    struct sl_table_budget *budget;
    const struct sl_slab *records; /* each begins with its u64 key */
    struct sl_slab segments;
    struct sl_slab pages;        /* of the directory */
    struct sl_table_page **root; /* 1 << (depth - bits of a page) pages, some the same */
    uint32_t depth;              /* bits of the hash that the directory tells apart */
    uint32_t depth_expected;     /* of most segments, in the end; 0: not known */
    uint32_t level;              /* 0, and one more for each overflow */
    struct sl_table_index *overflow;
};

/* Errors: NO_MEMORY. */
int sl_table_index_init(struct sl_table_index *index, struct sl_table_budget *budget,
                        const struct sl_slab *records);
void sl_table_index_fini(struct sl_table_index *index);

/* numbers[count] of the keys, or SL_ROW_NONE; in batches, with prefetch of buckets, then of
 * records. The first touch_bytes (1 at least) of each record found are on their way then. */
void sl_table_index_find(const struct sl_table_index *index, const uint64_t *keys, uint32_t count,
                         size_t touch_bytes, uint32_t *numbers);

/* One key. */
uint32_t sl_table_index_find_one(const struct sl_table_index *index, uint64_t key);

/* Adds a key that is not there, whose record is written. Errors: NO_MEMORY; nothing has changed
 * then that a find can see. */
int sl_table_index_insert(struct sl_table_index *index, uint64_t key, uint32_t number);

/* *found: the record of the key; of one that is not there `number`, whose record begins with the
 * key already, and which is added. hash: sl_hash_key(key). Errors: NO_MEMORY; nothing has changed
 * then that a find can see. */
int sl_table_index_put(struct sl_table_index *index, uint64_t key, uint64_t hash, uint32_t number,
                       uint32_t *found);

/* For who puts many: the hashes of some dozens of keys, whose buckets are on their way then; and,
 * when these have come, the beginning of the records that are likely theirs. */
void sl_table_index_fetch_buckets(const struct sl_table_index *index, const uint64_t *keys,
                                  uint32_t count, uint64_t *hashes);
void sl_table_index_fetch_records(const struct sl_table_index *index, const uint64_t *hashes,
                                  uint32_t count);

/* There will be about so many keys: the index grows in fewer and larger steps up to there, of which
 * each is of one segment as ever. It takes up to eight times what the keys need that have come. */
void sl_table_index_reserve(struct sl_table_index *index, uint64_t count);

#endif
