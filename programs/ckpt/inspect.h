/* Output of `ls` and `verify`. One thread; blocks. */
#ifndef SL_PROGRAMS_CKPT_INSPECT_H
#define SL_PROGRAMS_CKPT_INSPECT_H

#include <stdio.h>

#include "core/reason.h"
#include "ps/checkpoint/directory.h"
#include "ps/snapshot/block.h"

/* Prints one line per checkpoint of a directory. Errors: of sl_checkpoint_directory_list. */
int sl_inspect_list(const char *directory, FILE *to, struct sl_reason *reason);

/* Prints the tables of a checkpoint; number 0: the newest. Errors: of sl_checkpoint_source_open. */
int sl_inspect_tables(const char *directory, uint64_t number, FILE *to, struct sl_reason *reason);

/* Reads every byte of a checkpoint and its bases; number 0: of all in the directory. Prints a line
 * for each intact checkpoint and each damaged file. Errors: CORRUPT (printed), and those of
 * sl_checkpoint_directory_verify. */
int sl_inspect_verify(const char *directory, uint64_t number,
                      struct sl_checkpoint_shard_range range, FILE *to, struct sl_reason *reason);

/* Prints a line about a table: name, kind, shape, properties. size: text behind the shape, or "".
 */
void sl_inspect_table(const struct sl_snapshot_table *table, const char *size, FILE *to);

#endif
