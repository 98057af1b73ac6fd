/* Exports one table: its tensors and records. */
#ifndef SL_PROGRAMS_CKPT_EXPORT_TABLE_H
#define SL_PROGRAMS_CKPT_EXPORT_TABLE_H

#include "core/key_index.h"
#include "core/reason.h"
#include "programs/ckpt/checkpoint_source.h"
#include "programs/ckpt/tensor_writer.h"

#define SL_EXPORT_NONE UINT32_MAX

struct sl_export_table {
    const struct sl_checkpoint_source_table *table; /* NULL: not exported */
    enum sl_tensor_type type;                       /* of the values, as a tensor */
    struct sl_key_index rows;                       /* sparse and KV */
    uint64_t *lens; /* [rows.count]: lengths of arrays; sparse: 1, or 0 for an erased row. Later
                       offsets */
    uint64_t lens_capacity;
    uint64_t value_count; /* of all arrays; sparse: rows that were not erased */
    uint8_t *seen;        /* dense: bitmap of the blocks found */
    /* Tensor indices, or SL_EXPORT_NONE. */
    uint32_t keys, lengths, values, slots, block_slots, steps, counts;
};

/* First pass: collects the keys. Errors: CORRUPT, NO_MEMORY; with a reason. */
int sl_export_table_count(struct sl_export_table *export, const struct sl_snapshot_block *block,
                          struct sl_reason *reason);

/* Between the passes: defines the tensors. Errors: EXISTS (duplicate name), CORRUPT (a dense table
 * lacks blocks), TOO_LARGE, NO_MEMORY; with a reason. */
int sl_export_table_describe(struct sl_export_table *export, bool slots, enum sl_tensor_type keys,
                             struct sl_tensors *tensors, struct sl_reason *reason);

/* Second pass: writes the records. */
int sl_export_table_write(struct sl_export_table *export, const struct sl_snapshot_block *block,
                          struct sl_tensor_writer *archive, struct sl_reason *reason);

/* KV: writes the lengths, after all else. */
int sl_export_table_end(struct sl_export_table *export, struct sl_tensor_writer *archive,
                        struct sl_reason *reason);

void sl_export_table_fini(struct sl_export_table *export);

#endif
