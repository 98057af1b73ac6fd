/* Batched pulls of a few rows. Owner reactor. */
#ifndef SL_PS_SHARD_PULL_H
#define SL_PS_SHARD_PULL_H

#include "ps/shard/shard.h"

/* A pull of a few rows of one table that can be served now, the most frequent request. Many of
 * these run together, so that their cache misses overlap. */
struct sl_shard_small_pull {
    const uint64_t *keys; /* in the request's memory */
    uint32_t key_count;   /* 1 to SL_SHARD_SMALL_PULL_KEYS */
    uint32_t reply_bytes; /* at most SL_SHARD_SMALL_PULL_BYTES */
    uint32_t cost;        /* in units of the budget */
    uint16_t table_id;
};
#define SL_SHARD_SMALL_PULL_KEYS  64
#define SL_SHARD_SMALL_PULL_BYTES SL_LIMIT_INLINE_PAYLOAD_BYTES

/* Returns true when the request is such a pull. false: another request, an invalid one, or one that
 * must wait; use sl_shard_begin. */
bool sl_shard_small_pull_parse(const struct sl_shard *shard, const struct sl_shard_client *caller,
                               const uint8_t *payload, size_t payload_bytes,
                               struct sl_shard_small_pull *out);

/* Finds the rows of pulls of one table; NULL for a missing row. Their keys, at most
 * SL_SHARD_PULL_BATCH_KEYS, are contiguous. Returns false when some pull cannot run, or not now:
 * begin each of them. */
#define SL_SHARD_PULL_BATCH_KEYS 256
bool sl_shard_pull_batch_find(const struct sl_shard *shard, uint16_t table_id, const uint64_t *keys,
                              uint32_t key_count, const float **rows);

/* Writes the reply to one of these pulls, given its keys and their rows. */
void sl_shard_small_pull_write(const struct sl_shard *shard, uint16_t table_id,
                               const uint64_t *keys, const float *const *rows, uint32_t key_count,
                               uint8_t *reply);

/* Counts keys of pulls that were written. */
void sl_shard_small_pulls_end(struct sl_shard *shard, uint16_t table_id, const uint64_t *keys,
                              uint32_t key_count);

#endif
