/* Copies a shard's part of a KV table for a snapshot, as copy_sparse.h does, array by array. A long
 * array is copied in pieces, so that a push to a part of it need not copy all of it. Owner reactor.
 * Allocates a few bytes for each long array of which pushes had pieces copied before the walk. */
#ifndef SL_PS_SNAPSHOT_COPY_KV_H
#define SL_PS_SNAPSHOT_COPY_KV_H

#include "ps/snapshot/builder.h"
#include "ps/snapshot/copied_set.h"
#include "ps/table/kv_table.h"

struct sl_copy_kv_pieces;

struct sl_copy_kv {
    struct sl_kv_table_hook hook;
    struct sl_kv_table *table;
    struct sl_snapshot_appender stream;
    struct sl_copied_set marks; /* arrays that are done */
    bool all;                   /* all arrays; else those newer than the base */
    uint32_t base_count;        /* records at the base */
    uint64_t base_epoch;
    uint32_t piece_values;
    uint32_t piece_at;                 /* pieces of the current array that the walk has passed */
    uint32_t initialized_count;        /* of the current array, before any change */
    struct sl_copy_kv_pieces **pieces; /* hash table by record index; NULL: empty */
    size_t pieces_bytes;
};

/* All as in copy_sparse.h, except that the base has the table's generation in place of the step. */
void sl_copy_kv_begin(struct sl_copy_kv *copy, struct sl_kv_table *table,
                      struct sl_snapshot_builder *blocks, uint32_t table_id,
                      const struct sl_snapshot_base *base);
uint32_t sl_copy_kv_run(struct sl_copy_kv *copy, uint32_t budget);
void sl_copy_kv_end(struct sl_copy_kv *copy);

#endif
