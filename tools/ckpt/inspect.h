/* What `ls` and `verify` print. One thread; blocks. */
#ifndef SL_TOOLS_CKPT_INSPECT_H
#define SL_TOOLS_CKPT_INSPECT_H

#include <stdio.h>

#include "ps/checkpoint/directory.h"
#include "ps/snapshot/block.h"

/* All checkpoints of a directory, a line each. Errors: as of sl_checkpoint_directory_list. */
int sl_inspect_list(const char *directory, FILE *to, char *reason, size_t reason_bytes);

/* The tables of a checkpoint, number 0: of the newest. Errors: as of sl_checkpoint_source_open. */
int sl_inspect_tables(const char *directory, uint64_t number, FILE *to, char *reason,
                      size_t reason_bytes);

/* Reads every byte of a checkpoint and of those that it adds to; number 0: of all in the
 * directory. A line for each that is whole, and for each file that is not. Errors: CORRUPT (what
 * was found is printed), and those of sl_checkpoint_directory_verify. */
int sl_inspect_verify(const char *directory, uint64_t number,
                      struct sl_checkpoint_shard_range range, FILE *to, char *reason,
                      size_t reason_bytes);

/* A line about a table: name, kind, shape, and what it is besides. */
void sl_inspect_table(const struct sl_snapshot_table *table, FILE *to);

#endif
