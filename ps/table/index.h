/* The index maps the u64 keys of one table to record indexes by extendible hashing. It stores no
 * keys: each record begins with its key. Owner reactor. Allocates when it grows.
 *
 * A segment has 64 buckets of one cache line, probed linearly from the key's own bucket. The
 * directory maps the low bits of a hash to segments. A segment that is too full is split by the
 * next bit, alone. The directory consists of pages. Doubling it copies only pointers to pages; a
 * page is copied when a split first changes it. So no pause grows with the size of the table.
 * Removals merge segments again.
 *
 * The index accepts any set of keys. Keys chosen to share the low hash bits could force endless
 * doubling of the directory. Therefore the directory has at most eight entries per segment, and
 * keys that find no bucket go to an overflow index with other hashes. */
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
    struct sl_table_page **root; /* 1 << (depth - bits of a page) pointers; pages may be shared */
    uint32_t depth;              /* hash bits that the directory uses */
    uint32_t depth_expected;     /* final depth of most segments; 0: unknown */
    uint32_t level;              /* 0, plus one for each overflow index */
    struct sl_table_index *overflow;
};

/* Errors: NO_MEMORY. */
int sl_table_index_init(struct sl_table_index *index, struct sl_table_budget *budget,
                        const struct sl_slab *records);
void sl_table_index_fini(struct sl_table_index *index);

/* Returns the memory that the index has charged to the budget. */
size_t sl_table_index_memory_bytes(const struct sl_table_index *index);

/* Writes the record index of each key, or SL_ROW_NONE, to record_indexes[count]. Works in batches
 * and prefetches buckets, then records, including the first touch_bytes (at least 1) of each record
 * found. Returns true when it found all keys. */
bool sl_table_index_find(const struct sl_table_index *index, const uint64_t *keys, uint32_t count,
                         size_t touch_bytes, uint32_t *record_indexes);

uint32_t sl_table_index_find_one(const struct sl_table_index *index, uint64_t key);

/* Adds a key that is not in the index; its record is already written. Errors: NO_MEMORY, without an
 * effect that a lookup can see. */
int sl_table_index_insert(struct sl_table_index *index, uint64_t key, uint32_t record_index);

/* Finds a key or adds it. *found: the key's record index, or `record_index` if the key was added.
 * Record `record_index` begins with the key already. hash: sl_hash_key(key). Errors: NO_MEMORY,
 * without an effect that a lookup can see. */
int sl_table_index_put(struct sl_table_index *index, uint64_t key, uint64_t hash,
                       uint32_t record_index, uint32_t *found);

/* Removes a key. Returns its record index; SL_ROW_NONE: the key is not in the index. Later entries
 * of the probe run move up, so lookups need no mark in its place. A segment that has become rather
 * empty is merged with its other half, and memory returns to the system; the directory keeps its
 * size. */
uint32_t sl_table_index_remove(struct sl_table_index *index, uint64_t key);

/* Sets another record for a key of the index (asserted); both records begin with the key. */
void sl_table_index_move(struct sl_table_index *index, uint64_t key, uint32_t record_index);

/* For bulk inserts of some dozens of keys. The first call computes the hashes and prefetches the
 * buckets. The second, once the buckets are cached, prefetches touch_bytes (at least 1) of the
 * likely records. */
void sl_table_index_fetch_buckets(const struct sl_table_index *index, const uint64_t *keys,
                                  uint32_t count, uint64_t *hashes);
void sl_table_index_fetch_records(const struct sl_table_index *index, const uint64_t *hashes,
                                  uint32_t count, size_t touch_bytes);

/* Announces that the index will hold about `count` keys. The index then splits a segment into up to
 * eight at once, still one segment per step. Until those keys arrive it takes up to eight times the
 * memory that its keys need. */
void sl_table_index_reserve(struct sl_table_index *index, uint64_t count);

#endif
