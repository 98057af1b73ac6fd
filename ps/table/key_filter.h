/* A counting Bloom filter estimates how often a key was counted, in a few bits a key: never too
 * low, and too high for a share of the keys. Owner reactor. Nothing allocates.
 *
 * The filter is a dense table whose blocks are counters of 4 bits, eight in an element. The high
 * bits of a key's hash, which also choose its shard, choose the block; so the filters of all shards
 * are parts of one array, and another number of shards divides it anew. A block at the border of
 * two shards is at both, each with the counts of its own keys.
 *
 * Sources: Bloom, "Space/Time Trade-offs in Hash Coding with Allowable Errors", 1970; Fan et al.,
 * "Summary Cache", 2000 (counters of 4 bits); Estan and Varghese, "New Directions in Traffic
 * Measurement and Accounting", 2002 (only the least counters of a key are raised); Putze et al.,
 * "Cache-, Hash- and Space-Efficient Bloom Filters", 2007 (one block a key). */
#ifndef SL_PS_TABLE_KEY_FILTER_H
#define SL_PS_TABLE_KEY_FILTER_H

#include <starling.h>

#include "core/partition.h"
#include "ps/table/dense_table.h"

#define SL_KEY_FILTER_HASHES_MAX 8 /* counters of a key */

struct sl_key_filter {
    struct sl_dense_table *table;
    uint64_t block_count; /* of all shards */
    uint32_t hash_count;
    uint32_t age_steps; /* the counters are halved at each multiple of it; 0: never */
};

/* Returns the number of counters of each key: log2(1 / false_positives), the optimum, up to the
 * maximum. */
uint32_t sl_key_filter_hash_count(const struct sl_policy_spec *policy);

/* Returns the number of blocks of all shards: after keys_expected keys, a share of false_positives
 * of the others finds no counter of 0, so they are counted too high. m counters with k for a key
 * and n keys have p = (1 - e^(-k n / m))^k, so m = -k n / ln(1 - p^(1/k)). */
uint64_t sl_key_filter_block_count(const struct sl_policy_spec *policy);

/* Writes the range of blocks that hold keys of this shard. */
void sl_key_filter_range(uint64_t block_count, uint32_t shard, uint32_t shard_count,
                         uint64_t *first, uint64_t *end);

/* Counts the key once more, unless its count is at least `most`, below 15. Returns which of its
 * counters were raised, a bit each; 0: none, its count is at least `most`. step: at least that of
 * each call before. */
uint32_t sl_key_filter_add(const struct sl_key_filter *filter, uint64_t key, uint64_t step,
                           uint32_t most);

/* Takes the last addition back that has not been taken back: raised is what it returned. */
void sl_key_filter_take_back(const struct sl_key_filter *filter, uint64_t key, uint64_t step,
                             uint32_t raised);

/* Merges a block of another filter of the same size, which was last changed at last_step. Each
 * counter becomes the higher one of both, so no key that one of them has counted is too low. A
 * block that the filter does not hold is left out. */
void sl_key_filter_merge(const struct sl_key_filter *filter, uint64_t number, uint32_t last_step,
                         uint64_t step, const float *values);

#endif
