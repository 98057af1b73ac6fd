/* The cut of a sparse table: the ROWS of an image that shows all records as they were when it
 * began, while pushes go on. A walk puts them into blocks by their number; a record that is about
 * to change before the walk has reached it is put at once. Owner reactor. */
#ifndef SL_PS_SNAPSHOT_COPY_SPARSE_H
#define SL_PS_SNAPSHOT_COPY_SPARSE_H

#include "ps/snapshot/builder.h"
#include "ps/snapshot/copied.h"
#include "ps/table/sparse_table.h"

struct sl_copy_sparse {
    struct sl_sparse_table_hook hook;
    struct sl_sparse_table *table;
    struct sl_snapshot_appender stream;
    struct sl_copied marks;
    struct sl_snapshot_delta since;
    uint32_t float_count, record_cost;
};

/* Begins here and now; allocates nothing. The cut stays where it is until it has ended. base: what
 * the image adds to, or NULL; step: the table's. */
void sl_copy_sparse_begin(struct sl_copy_sparse *copy, struct sl_sparse_table *table,
                          struct sl_snapshot_builder *blocks, uint32_t table_id,
                          const struct sl_snapshot_base *base, uint64_t step);

/* Walks on; returns what it spent, in units of the shard's budget. Stops when the blocks have no
 * room, and at the end, where it closes its last block. */
uint32_t sl_copy_sparse_run(struct sl_copy_sparse *copy, uint32_t budget);

static inline bool sl_copy_sparse_done(const struct sl_copy_sparse *copy)
{
    return copy->marks.at == copy->marks.count;
}

/* Pushes pay nothing any more; what has been put stays in its blocks but for the open one. */
void sl_copy_sparse_end(struct sl_copy_sparse *copy);

#endif
