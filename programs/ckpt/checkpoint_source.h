/* Reads a checkpoint: the files of its chain, and the tables in them. One thread; blocks.
 * Memory for two blocks and the table specifications. */
#ifndef SL_PROGRAMS_CKPT_CHECKPOINT_SOURCE_H
#define SL_PROGRAMS_CKPT_CHECKPOINT_SOURCE_H

#include <stdbool.h>

#include "core/limits.h"
#include "core/reason.h"
#include "ps/checkpoint/directory.h"
#include "ps/optimizer/row.h"
#include "ps/snapshot/block.h"

#define SL_CHECKPOINT_SOURCE_REASON (SL_DISK_PATH_BYTES + 512)

struct sl_checkpoint_source_table {
    /* From the newest checkpoint, the shard with the greatest step. */
    struct sl_snapshot_table info;
    struct sl_row_layout layout; /* of a sparse table */
    uint32_t slots_per_value, slots_per_row;
    uint32_t slot_floats; /* of a sparse row, or of a dense block of 1024 elements */
    uint32_t value_bytes; /* of a KV table */
    uint64_t newest;      /* number of the checkpoint that info is from */
    uint64_t rows;        /* sparse: approximately; valid until a walk */
};

struct sl_checkpoint_source {
    const char *directory;
    struct sl_checkpoint_chain chain;
    struct sl_checkpoint_source_table *tables; /* [table_count], allocated */
    uint32_t table_count;
};

/* Opens a checkpoint and reads the tables of all files. number 0: the newest; if it is damaged,
 * this fails. Errors: NOT_FOUND, CORRUPT, VERSION, NO_MEMORY, IO; with a reason. */
int sl_checkpoint_source_open(const char *directory, uint64_t number,
                              struct sl_checkpoint_source *out, struct sl_reason *reason);

/* Called for each requested block, already validated and of its table's kind. A result other than 0
 * ends the walk with it. */
typedef int (*sl_checkpoint_source_visit_fn)(void *ctx, uint32_t table,
                                             const struct sl_snapshot_block *block,
                                             struct sl_reason *reason);

/* Visits the ERASED, ROWS, DENSE and KV blocks of the files that a restore needs, shard by shard
 * and the oldest checkpoint first: later records replace earlier ones. Errors: as above, and
 * results of `visit`. */
int sl_checkpoint_source_walk(const struct sl_checkpoint_source *source,
                              sl_checkpoint_source_visit_fn visit, void *ctx,
                              struct sl_reason *reason);

void sl_checkpoint_source_close(struct sl_checkpoint_source *source);

#endif
