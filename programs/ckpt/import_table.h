/* Imports one table: its tensors and records. */
#ifndef SL_PROGRAMS_CKPT_IMPORT_TABLE_H
#define SL_PROGRAMS_CKPT_IMPORT_TABLE_H

#include "core/reason.h"
#include "programs/safetensors/safetensors.h"
#include "ps/checkpoint/writer.h"
#include "ps/optimizer/row.h"
#include "ps/snapshot/block.h"

struct sl_import_table {
    struct sl_snapshot_table info;
    const struct sl_optimizer *optimizer;
    struct sl_row_layout layout; /* of a sparse table */
    /* NULL: not in the file. */
    const struct sl_tensor *keys, *values, *lens, *slots, *block_slots, *steps, *counts;
};

/* Finds the tensors of a table; sets its kind and shape. Errors: INVALID (tensors do not match). */
int sl_import_table_find(const struct sl_safetensors *file, const char *name,
                         struct sl_import_table *out, struct sl_reason *reason);

/* Validates the specification and the optimizer's slots. Errors: INVALID. */
int sl_import_table_check(struct sl_import_table *table, struct sl_reason *reason);

/* Checks that all keys are different. Errors: INVALID, IO, CORRUPT, NO_MEMORY. */
int sl_import_table_check_keys(const struct sl_safetensors *file,
                               const struct sl_import_table *table, struct sl_reason *reason);

/* Destination of records: the file of a shard. */
struct sl_import_sink {
    struct sl_checkpoint_writer *writer;
    struct sl_snapshot_block *block; /* being filled */
    struct sl_snapshot_end end;      /* its shard and shard_count select the keys */
};

/* Writes the table's records of this shard. Errors: INVALID (bad step or count), IO, CORRUPT,
 * NO_MEMORY; with a reason. */
int sl_import_table_write(const struct sl_safetensors *file, const struct sl_import_table *table,
                          uint32_t table_id, struct sl_import_sink *sink, struct sl_reason *reason);

#endif
