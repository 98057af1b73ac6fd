/* Copies a shard's part of a dense table for a snapshot, as copy_sparse.h does, block by block.
 * Owner reactor. */
#ifndef SL_PS_SNAPSHOT_COPY_DENSE_H
#define SL_PS_SNAPSHOT_COPY_DENSE_H

#include "ps/snapshot/builder.h"
#include "ps/snapshot/copied_set.h"
#include "ps/table/dense_table.h"

struct sl_copy_dense {
    struct sl_dense_table_hook hook;
    struct sl_dense_table *table;
    struct sl_snapshot_appender stream;
    struct sl_copied_set marks;
    struct sl_snapshot_delta since;
};

/* All as in copy_sparse.h. kind: DENSE; WAITING for the filter of a table with BLOOM. */
void sl_copy_dense_begin(struct sl_copy_dense *copy, struct sl_dense_table *table,
                         struct sl_snapshot_builder *blocks, enum sl_snapshot_kind kind,
                         uint32_t table_id, const struct sl_snapshot_base *base, uint64_t step);
uint32_t sl_copy_dense_run(struct sl_copy_dense *copy, uint32_t budget);
void sl_copy_dense_end(struct sl_copy_dense *copy);

#endif
