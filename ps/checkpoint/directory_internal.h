/* What the files of folder.h share. */
#ifndef SL_PS_CHECKPOINT_DIRECTORY_INTERNAL_H
#define SL_PS_CHECKPOINT_DIRECTORY_INTERNAL_H

#include "ps/checkpoint/directory.h"

#define SL_FOLDER_PART ".part" /* in the temporary names of files that are being written */

/* The numbers of all folders that are named as a checkpoint's, ascending; nothing is read. */
int sl_checkpoint_directory_numbers(const struct sl_disk *disk, const char *directory,
                                    struct sl_checkpoint_list *out, char *reason,
                                    size_t reason_bytes);

/* Whether the files of the scope are there, with the sizes that the manifest says. Each that is not
 * is reported; the first is the reason. Errors: NOT_FOUND (the first is missing), CORRUPT, IO. */
int sl_checkpoint_directory_check_files(const struct sl_disk *disk, const char *directory,
                                        const struct sl_checkpoint_manifest *manifest,
                                        struct sl_checkpoint_shard_range range,
                                        const struct sl_checkpoint_report *report, char *reason,
                                        size_t reason_bytes);

#endif
