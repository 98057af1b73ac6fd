/* A checkpoint that is being read: its chain of files, oldest first, and the tables that they name.
 * One thread; blocks; memory of two blocks and the tables' specifications. */
#ifndef SL_TOOLS_CKPT_CHECKPOINT_SOURCE_H
#define SL_TOOLS_CKPT_CHECKPOINT_SOURCE_H

#include <stdbool.h>

#include "core/limits.h"
#include "ps/checkpoint/directory.h"
#include "ps/snapshot/block.h"

#define SL_CHECKPOINT_SOURCE_REASON (SL_DISK_PATH_BYTES + 512)

struct sl_checkpoint_source_table {
    struct sl_snapshot_table info; /* of the shard with the greatest step, in the newest files */
    uint32_t slots_per_value, slots_per_row;
    uint32_t slot_floats; /* of a sparse row; of a dense one's block of 1024 */
    uint32_t value_bytes; /* of a KV table */
    uint64_t newest;      /* the checkpoint that info is of */
};

struct sl_checkpoint_source {
    const char *directory;
    struct sl_checkpoint_chain chain;
    struct sl_checkpoint_source_table *tables; /* [table_count], allocated */
    uint32_t table_count;
};

/* number 0: the newest; one that is damaged is an error. Reads the tables of all files. Errors:
 * NOT_FOUND, CORRUPT, VERSION, NO_MEMORY, IO; with a reason. */
int sl_checkpoint_source_open(const char *directory, uint64_t number,
                              struct sl_checkpoint_source *out, char *reason, size_t reason_bytes);

/* Called for each block of the kinds that are asked for, which has been checked as a block and
 * belongs to a table of its kind. Not 0: the walk ends with that. */
typedef int (*sl_checkpoint_source_visit_fn)(void *ctx, uint32_t table,
                                             const struct sl_snapshot_block *block, char *reason,
                                             size_t reason_bytes);

/* Visits ROWS, DENSE and KV blocks of all files, the oldest checkpoint's first: of two records of
 * one thing the later one counts. Errors: as above, and what `visit` returns. */
int sl_checkpoint_source_walk(const struct sl_checkpoint_source *source,
                              sl_checkpoint_source_visit_fn visit, void *ctx, char *reason,
                              size_t reason_bytes);

void sl_checkpoint_source_close(struct sl_checkpoint_source *source);

#endif
