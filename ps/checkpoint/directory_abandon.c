/* Abandons checkpoints that the job did not continue from. */
#include "ps/checkpoint/directory_internal.h"

static int abandon_one(const struct sl_disk *disk, const char *directory, uint64_t number,
                       struct sl_reason *reason)
{
    char subdir[SL_DISK_PATH_BYTES];
    char from[SL_DISK_PATH_BYTES];
    char to[SL_DISK_PATH_BYTES];
    int err = sl_checkpoint_directory_path(directory, number, NULL, subdir, reason);
    if (err == 0) {
        err = sl_disk_join(subdir, SL_CHECKPOINT_MANIFEST_NAME, from, reason);
    }
    if (err == 0) {
        err = sl_disk_join(subdir, SL_CHECKPOINT_ABANDONED_NAME, to, reason);
    }
    if (err == 0) {
        err = sl_disk_rename(disk, from, to, reason);
        err = err == SL_ERR_NOT_FOUND ? 0 : err; /* another server did it */
    }
    return err != 0 ? err : sl_disk_sync_directory(disk, subdir, reason);
}

/* Newest first: at no time does a published one lack its base. */
int sl_checkpoint_directory_abandon(const struct sl_disk *disk, const char *directory,
                                    uint64_t above, uint64_t to, uint32_t *count,
                                    struct sl_reason *reason)
{
    struct sl_checkpoint_list list;
    int err = sl_checkpoint_directory_list(disk, directory, &list, reason);
    if (err != 0) {
        return err;
    }
    *count = 0;
    for (uint32_t i = list.count; err == 0 && i-- > 0;) {
        const struct sl_checkpoint_found *found = &list.items[i];
        if (found->number > above && found->number <= to &&
            found->state == SL_CHECKPOINT_PUBLISHED) {
            err = abandon_one(disk, directory, found->number, reason);
            *count += err == 0;
        }
    }
    sl_checkpoint_list_fini(&list);
    return err;
}
