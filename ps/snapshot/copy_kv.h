/* The cut of a shard's part of a KV table, as table_cut.h, array by array; a long one piece by
 * piece, so that a push to a part of it does not have to wait for the copy of the whole. Owner
 * reactor. Allocates a few bytes for each long array of which pushes have had some pieces copied,
 * and the walk has yet to come to the others. */
#ifndef SL_PS_SNAPSHOT_COPY_KV_H
#define SL_PS_SNAPSHOT_COPY_KV_H

#include "ps/snapshot/builder.h"
#include "ps/snapshot/copied.h"
#include "ps/table/kv_table.h"

struct sl_copy_kv_pieces;

struct sl_copy_kv {
    struct sl_kv_table_hook hook;
    struct sl_kv_table *table;
    struct sl_snapshot_appender stream;
    struct sl_copied marks; /* of an array of which nothing is wanted any more */
    bool all;               /* arrays; else those newer than the base: */
    uint32_t base_count;    /* records that it had */
    uint64_t base_epoch;
    uint32_t piece_values;
    uint32_t piece_at;          /* the walk has passed so many pieces of the array that it is at, */
    uint32_t initialized_count; /* which was written so far */
    struct sl_copy_kv_pieces **pieces; /* by record number: hashed; NULL: none yet */
    size_t pieces_bytes;
};

/* All as in table_cut.h, but for the base, in which the store's epoch stands for the step. */
void sl_copy_kv_begin(struct sl_copy_kv *copy, struct sl_kv_table *table,
                      struct sl_snapshot_builder *blocks, uint32_t table_id,
                      const struct sl_snapshot_base *base);
uint32_t sl_copy_kv_run(struct sl_copy_kv *copy, uint32_t budget);
static inline bool sl_copy_kv_done(const struct sl_copy_kv *copy)
{
    return copy->marks.at == copy->marks.count;
}
void sl_copy_kv_end(struct sl_copy_kv *copy);

#endif
