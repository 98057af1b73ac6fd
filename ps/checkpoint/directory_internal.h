/* Declarations shared by the files of directory.h only. */
#ifndef SL_PS_CHECKPOINT_DIRECTORY_INTERNAL_H
#define SL_PS_CHECKPOINT_DIRECTORY_INTERNAL_H

#include "core/reason.h"
#include "ps/checkpoint/directory.h"

/* Checks that the files of the range exist with the manifest's sizes. Each deviation is reported;
 * the first is the reason. Errors: NOT_FOUND (the first is a missing file), CORRUPT, IO. */
int sl_checkpoint_directory_check_files(const struct sl_disk *disk, const char *directory,
                                        const struct sl_checkpoint_manifest *manifest,
                                        struct sl_checkpoint_shard_range range,
                                        const struct sl_checkpoint_report *report,
                                        struct sl_reason *reason);

#endif
