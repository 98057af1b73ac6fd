/* What the blocks of an image say, for the tests of cuts: the records by what they are of, in an
 * order of their own, so that two images can be compared whatever the order of their blocks.
 * Assertions inside are CMocka's. */
#ifndef SL_TESTS_UNIT_PS_SHARD_SNAPSHOT_STREAM_H
#define SL_TESTS_UNIT_PS_SHARD_SNAPSHOT_STREAM_H

#include "ps/shard/snapshot.h"
#include "ps/snapshot/block.h"

/* A row, a dense block, a KV array, a worker's clock; or all that a worker has staged of a table.
 */
struct snapshot_item {
    uint8_t kind;
    uint32_t table_id;
    uint64_t key;
    uint8_t *bytes; /* without the key; of staged pushes: without where they were cut */
    size_t length, capacity;
    size_t missing;   /* of a KV array, or a push */
    uint32_t written; /* of a KV array */
};

struct snapshot_stream {
    struct snapshot_item *items;
    size_t count, capacity;
    uint32_t *places; /* hashed, of index + 1 */
    struct sl_snapshot_table tables[SL_LIMIT_TABLES];
    bool has_table[SL_LIMIT_TABLES];
    struct sl_snapshot_end counted, end;
    bool ended;
    uint32_t blocks;
};

struct snapshot_stream *snapshot_stream_new(void);
void snapshot_stream_free(struct snapshot_stream *stream);

/* Adds what is in the block. Nothing may come twice, nothing of a table before its TABLE, nothing
 * behind the END, which has to be right. */
void snapshot_stream_add(struct snapshot_stream *stream, const struct sl_snapshot_block *block);

struct snapshot_item *snapshot_stream_find(const struct snapshot_stream *stream, uint8_t kind,
                                           uint32_t table_id, uint64_t key);
size_t snapshot_stream_count(const struct snapshot_stream *stream, uint8_t kind, uint32_t table_id);

/* The values of a row, an array; the bytes begin with last_step and count for rows and blocks. */
const float *snapshot_stream_floats(const struct snapshot_item *item);

/* Both are complete and say the same. */
void snapshot_stream_same(const struct snapshot_stream *a, const struct snapshot_stream *b);

/* What `adds` adds to `base`, which becomes it. */
void snapshot_stream_overlay(struct snapshot_stream *base, const struct snapshot_stream *adds);

/* Takes and gives back all blocks that wait. */
void snapshot_stream_take(struct sl_shard *shard, struct snapshot_stream *stream);

/* Cuts the shard in one go: it must be able to. *base (or NULL): of it. */
struct snapshot_stream *snapshot_stream_of(struct sl_shard *shard,
                                           const struct sl_shard_snapshot_base *from,
                                           struct sl_shard_snapshot_base **base);

/* Of a shard that stands still, made plainly, record by record (tests/support/shard_image.h). */
struct snapshot_stream *snapshot_stream_still(struct sl_shard *shard);

#endif
