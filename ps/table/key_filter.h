/* A counting Bloom filter estimates how often each key was added, in about 5 bytes per key. Apart
 * from halvings (age_steps) and the limit of an addition, an estimate is never too low; for a
 * fraction of the keys it is too high. Only the shard's reactor calls it. Nothing allocates.
 *
 * The filter is stored in a dense table: the 32 bits of each float hold eight counters of 4 bits.
 * The high bits of a key's hash choose its block, as they choose its shard; so the filters of all
 * shards are parts of one array, which another number of shards splits at other places. If a
 * boundary between shards lies in a block, each of them has a copy of it, with its own keys only.
 *
 * Sources: Bloom, "Space/Time Trade-offs in Hash Coding with Allowable Errors", 1970; Fan et al.,
 * "Summary Cache", 2000 (counters of 4 bits); Estan and Varghese, "New Directions in Traffic
 * Measurement and Accounting", 2002 (only the least counters of a key are raised); Putze et al.,
 * "Cache-, Hash- and Space-Efficient Bloom Filters", 2007 (all counters of a key in one block). */
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

/* Returns the number of blocks of all shards, such that after keys_expected different keys were
 * added, a fraction p = false_positives (0: 0.01) of all other keys has no counter of 0. With m
 * counters, k per key, and n keys: p = (1 - e^(-k n / m))^k, so m = -k n / ln(1 - p^(1/k)). */
uint64_t sl_key_filter_block_count(const struct sl_policy_spec *policy);

/* Writes the range of blocks that hold keys of this shard. */
void sl_key_filter_range(uint64_t block_count, uint32_t shard, uint32_t shard_count,
                         uint64_t *first, uint64_t *end);

/* Adds 1 to the count of a key of this shard if it is less than `most`, which is less than 15.
 * Returns a mask: bit i is set if the key's counter i was raised; 0: the count had reached `most`.
 * step: not before that of any earlier call. */
uint32_t sl_key_filter_add(const struct sl_key_filter *filter, uint64_t key, uint64_t step,
                           uint32_t most);

/* Undoes the newest addition that was not undone yet. raised: what it returned; step: that of the
 * addition. No merge lies between both. */
void sl_key_filter_take_back(const struct sl_key_filter *filter, uint64_t key, uint64_t step,
                             uint32_t raised);

/* Merges a block of another filter, of equal block_count and hash_count: `number` counts over all
 * shards, last_step is that of the block's last change, `step` is not before it. Each counter
 * becomes the higher one of both, which is never too low for keys that were added to one of the
 * filters only. Does nothing if this filter does not have the block. */
void sl_key_filter_merge(const struct sl_key_filter *filter, uint64_t number, uint32_t last_step,
                         uint64_t step, const float *values);

#endif
