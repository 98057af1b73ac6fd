/* What the blocks of an image say, for the tests of cuts: the records by what they are of, in an
 * order of their own, so that two images can be compared whatever the order of their blocks.
 * Assertions inside are CMocka's. */
#ifndef SL_TESTS_UNIT_PS_SHARD_SNAPSHOT_STREAM_H
#define SL_TESTS_UNIT_PS_SHARD_SNAPSHOT_STREAM_H

#include "ps/shard/snapshot.h"
#include "ps/snapshot/block.h"

/* A row, a dense block, a KV array, a worker's clock; or all that a worker has staged of a table.
 */
struct cut_item {
    uint8_t kind;
    uint32_t table_id;
    uint64_t key;
    uint8_t *bytes; /* without the key; of staged pushes: without where they were cut */
    size_t length, capacity;
    size_t missing;   /* of a KV array, or a push */
    uint32_t written; /* of a KV array */
};

struct cut_image {
    struct cut_item *items;
    size_t count, capacity;
    uint32_t *places; /* hashed, of index + 1 */
    struct sl_snapshot_table tables[SL_LIMIT_TABLES];
    bool has_table[SL_LIMIT_TABLES];
    struct sl_snapshot_end counted, end;
    bool ended;
    uint32_t blocks;
};

struct cut_image *cut_image_new(void);
void cut_image_free(struct cut_image *image);

/* Adds what is in the block. Nothing may come twice, nothing of a table before its TABLE, nothing
 * behind the END, which has to be right. */
void cut_image_add(struct cut_image *image, const struct sl_snapshot_block *block);

struct cut_item *cut_image_find(const struct cut_image *image, uint8_t kind, uint32_t table_id,
                                uint64_t key);
size_t cut_image_count(const struct cut_image *image, uint8_t kind, uint32_t table_id);

/* The values of a row, an array; the bytes begin with last_step and count for rows and blocks. */
const float *cut_image_floats(const struct cut_item *item);

/* Both are complete and say the same. */
void cut_image_same(const struct cut_image *a, const struct cut_image *b);

/* What `adds` adds to `base`, which becomes it. */
void cut_image_overlay(struct cut_image *base, const struct cut_image *adds);

/* Takes and gives back all blocks that wait. */
void cut_image_take(struct sl_shard *shard, struct cut_image *image);

/* Cuts the shard in one go: it must be able to. *base (or NULL): of it. */
struct cut_image *cut_image_of(struct sl_shard *shard, const struct sl_shard_snapshot_base *from,
                               struct sl_shard_snapshot_base **base);

/* Of a shard that stands still, made plainly, record by record (tests/support/shard_image.h). */
struct cut_image *cut_image_still(struct sl_shard *shard);

#endif
