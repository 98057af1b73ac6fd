/* Selects the checkpoint to restore. Blocks. Any thread. */
#ifndef SL_PS_CHECKPOINT_SELECT_H
#define SL_PS_CHECKPOINT_SELECT_H

#include "core/reason.h"
#include "ps/checkpoint/directory.h"

struct sl_checkpoint_select_options {
    uint64_t up_to;       /* selects this number or one before it; 0: any */
    bool fallback;        /* passes over damaged ones, and reads every byte of the selected one */
    uint32_t shard_count; /* a checkpoint with so many shards needs the files of `own` here; with
                             another number all files. 0: those of `own` in any case */
    struct sl_checkpoint_shard_range own;
    uint32_t intact_max; /* stops when so many are found, the selected one among them */
    const struct sl_checkpoint_report *report; /* what damages candidates; may be NULL */
};

/* Selects the newest intact checkpoint of the list, and marks intact ones INTACT. *number: 0:
 * none. A damaged candidate is an error, unless fallback; so is a list whose candidates are all
 * damaged. Damage of others is ignored, but not a read error: such a checkpoint may be intact.
 * Errors, with a reason: CORRUPT, VERSION, NO_MEMORY, IO. */
int sl_checkpoint_select(const struct sl_disk *disk, const char *directory,
                         const struct sl_checkpoint_select_options *options,
                         struct sl_checkpoint_list *list, uint64_t *number,
                         struct sl_reason *reason);

/* Finds the newest intact checkpoint of a directory. Errors: as above; NOT_FOUND: none. */
int sl_checkpoint_newest(const struct sl_disk *disk, const char *directory,
                         struct sl_checkpoint_shard_range range, uint64_t *number,
                         struct sl_reason *reason);

#endif
