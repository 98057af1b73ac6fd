/* One table of an export: what its tensors are, and the records of it. */
#ifndef SL_TOOLS_CKPT_EXPORT_TABLE_H
#define SL_TOOLS_CKPT_EXPORT_TABLE_H

#include "tools/ckpt/checkpoint_source.h"
#include "tools/ckpt/row_index.h"
#include "tools/ckpt/tensor_writer.h"

#define SL_EXPORT_NONE UINT32_MAX

struct sl_export_table {
    const struct sl_checkpoint_source_table *table; /* NULL: it is not exported */
    struct sl_row_index rows;                       /* sparse and KV */
    uint64_t *lens; /* KV, [rows.count]: lengths; then where they begin */
    uint64_t lens_capacity;
    uint64_t value_count; /* KV: of all arrays */
    uint8_t *seen;        /* dense: bits of the blocks that came */
    /* Tensors by number, or SL_EXPORT_NONE. */
    uint32_t keys, lengths, values, slots, block_slots, steps, counts;
};

/* The first time round: which keys there are. Errors: CORRUPT, NO_MEMORY; with a reason. */
int sl_export_table_count(struct sl_export_table *export, const struct sl_snapshot_block *block,
                          char *reason, size_t reason_bytes);

/* Then: what tensors that makes. Errors: EXISTS (a name twice), CORRUPT (a dense table lacks
 * blocks), TOO_LARGE, NO_MEMORY; with a reason. */
int sl_export_table_describe(struct sl_export_table *export, bool slots, enum sl_tensor_type keys,
                             struct sl_tensors *tensors, char *reason, size_t reason_bytes);

/* The second time round: into the file. */
int sl_export_table_write(struct sl_export_table *export, const struct sl_snapshot_block *block,
                          struct sl_tensor_writer *archive, char *reason, size_t reason_bytes);

/* KV: the lengths, when all else is written. */
int sl_export_table_end(struct sl_export_table *export, struct sl_tensor_writer *archive,
                        char *reason, size_t reason_bytes);

void sl_export_table_fini(struct sl_export_table *export);

#endif
