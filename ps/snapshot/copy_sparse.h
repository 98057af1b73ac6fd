/* Copies a sparse table for a snapshot: the ROWS blocks (of dim 0: WAITING) show all records as
 * they were at the start, while pushes continue. A walk copies records in order of their row index.
 * Before a push or an erase changes a record that the walk has not reached, the hook copies it
 * (copy-on-write). Owner reactor. */
#ifndef SL_PS_SNAPSHOT_COPY_SPARSE_H
#define SL_PS_SNAPSHOT_COPY_SPARSE_H

#include "ps/snapshot/builder.h"
#include "ps/snapshot/copied_set.h"
#include "ps/table/sparse_table.h"

struct sl_copy_sparse {
    struct sl_sparse_table_hook hook;
    struct sl_sparse_table *table;
    struct sl_snapshot_appender stream;
    struct sl_copied_set marks;
    struct sl_snapshot_delta since;
    uint32_t float_count, record_cost;
};

/* Starts the copy; allocates nothing. The struct must not move until sl_copy_sparse_end. base: the
 * table at the snapshot that this one is based on, NULL for a full snapshot. step: the table's
 * step. */
void sl_copy_sparse_begin(struct sl_copy_sparse *copy, struct sl_sparse_table *table,
                          struct sl_snapshot_builder *blocks, uint32_t table_id,
                          const struct sl_snapshot_base *base, uint64_t step);

/* Continues the walk and returns the cost, in units of the shard's budget. Stops when the builder
 * has no room. At the end it closes the last block. */
uint32_t sl_copy_sparse_run(struct sl_copy_sparse *copy, uint32_t budget);

/* Removes the hook and drops the open block. Closed blocks stay in the builder. */
void sl_copy_sparse_end(struct sl_copy_sparse *copy);

#endif
