/* One table of an import: which tensors it is made of, and its records. */
#ifndef SL_TOOLS_CKPT_IMPORT_TABLE_H
#define SL_TOOLS_CKPT_IMPORT_TABLE_H

#include "ps/checkpoint/writer.h"
#include "ps/snapshot/block.h"
#include "tools/ckpt/safetensors.h"

struct sl_import_table {
    struct sl_snapshot_table info;
    const struct sl_optimizer *optimizer;
    /* NULL where there is none: */
    const struct sl_tensor *keys, *values, *lens, *slots, *block_slots, *steps, *counts;
};

/* Sets kind, shape and tensors of the table of that name, with NULL for what the file does not
 * have. Errors: INVALID (the tensors do not go together). */
int sl_import_table_find(const struct sl_safetensors *file, const char *name,
                         struct sl_import_table *out, char *reason, size_t reason_bytes);

/* Once the specification is known: whether it is valid, and the slots are its optimizer's. Errors:
 * INVALID. */
int sl_import_table_check(struct sl_import_table *table, char *reason, size_t reason_bytes);

/* Whether no key is there twice. Errors: INVALID, IO, CORRUPT, NO_MEMORY. */
int sl_import_table_check_keys(const struct sl_safetensors *file,
                               const struct sl_import_table *table, char *reason,
                               size_t reason_bytes);

/* Where records go: a shard's file. */
struct sl_import_sink {
    struct sl_checkpoint_writer *writer;
    struct sl_snapshot_block *block; /* being filled */
    struct sl_snapshot_end end;      /* its shard and shard_count say which keys are this shard's */
};

/* The table's records that are this shard's. Errors: INVALID (a step or a count that is none), IO,
 * CORRUPT, NO_MEMORY; with a reason. */
int sl_import_table_write(const struct sl_safetensors *file, const struct sl_import_table *table,
                          uint32_t table_id, struct sl_import_sink *sink, char *reason,
                          size_t reason_bytes);

#endif
