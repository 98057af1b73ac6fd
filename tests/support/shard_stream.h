/* Snapshots of whole shards for tests: made record by record, from a shard that does nothing
 * meanwhile; loaded; and shards compared bit for bit. Asserts that there is memory. */
#ifndef SL_TESTS_SUPPORT_SHARD_STREAM_H
#define SL_TESTS_SUPPORT_SHARD_STREAM_H

#include "core/reason.h"
#include "ps/shard/shard.h"
#include "ps/snapshot/block.h"

struct shard_stream {
    struct sl_snapshot_block *first, *last;
    struct sl_snapshot_end end;
};

/* The base of an incremental snapshot: the tables' steps at that moment, by id. */
struct shard_stream_base {
    uint64_t steps[SL_LIMIT_TABLES];
    uint64_t rows[SL_LIMIT_TABLES];
};

/* The base for an incremental snapshot after the one that is made now. */
void shard_stream_base_of(const struct sl_shard *shard, struct shard_stream_base *out);

/* base NULL: a full snapshot. block_bytes: how long blocks are, at least
 * SL_SNAPSHOT_TABLE_BYTES. */
void shard_stream_make(const struct sl_shard *shard, const struct shard_stream_base *base,
                       uint32_t block_bytes, struct shard_stream *out);
void shard_stream_fini(struct shard_stream *snapshot);

/* Walks a snapshot of the shard (ps/shard/snapshot.h) that has begun, and appends its blocks to
 * `out`. True: it goes on; false: it is done, and has not failed (asserted). `out` is zeroed
 * before. */
bool shard_stream_snapshot(struct sl_shard *shard, uint32_t key_budget, struct shard_stream *out);

/* Appends an empty block. */
struct sl_snapshot_block *shard_stream_append(struct shard_stream *snapshot,
                                              enum sl_snapshot_kind kind, uint32_t table_id,
                                              uint32_t capacity);

/* Loads all of it, in slices of that budget; 0 or the loader's error. */
int shard_stream_load(const struct shard_stream *snapshot, struct sl_shard *shard,
                      uint32_t key_budget, struct sl_reason *reason);

/* What the first difference is between the tables of two clusters, each a number of shards: rows,
 * slots, steps and visits of records, dense blocks, arrays. NULL: none. Static storage. */
const char *shard_stream_differ(struct sl_shard *const *a, uint32_t a_count,
                                struct sl_shard *const *b, uint32_t b_count);

/* Of two shards of the same index and count also the tables' steps, states and counters, clocks,
 * floors, and the buffered pushes, in order. */
const char *shard_stream_differ_at_all(struct sl_shard *a, struct sl_shard *b);

/* As one piece of bytes: of each block u32 kind, table, count and bytes, and the payload. Returns
 * how many; to NULL: only that. */
size_t shard_stream_pack(const struct shard_stream *snapshot, uint8_t *to);

/* Loads a packed snapshot as one of that shard, whatever the bytes are. */
int shard_stream_load_packed(const uint8_t *from, size_t bytes, uint32_t stream_shard,
                             uint32_t stream_shard_count, struct sl_shard *shard,
                             struct sl_reason *reason);

#endif
