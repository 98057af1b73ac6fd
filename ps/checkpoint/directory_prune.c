/* Removes old checkpoints and leftovers of crashes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "ps/checkpoint/directory_internal.h"

/* True for files that may be removed with a checkpoint's directory; others are foreign. */
static bool is_ours(const char *name)
{
    char again[SL_DISK_NAME_BYTES];
    char part[SL_DISK_NAME_BYTES];
    unsigned int shard;
    unsigned int count;
    if (strncmp(name, SL_CHECKPOINT_MANIFEST_NAME, sizeof SL_CHECKPOINT_MANIFEST_NAME - 1) == 0) {
        const char *rest = name + sizeof SL_CHECKPOINT_MANIFEST_NAME - 1;
        return *rest == '\0' || strcmp(name, SL_CHECKPOINT_ABANDONED_NAME) == 0 ||
               strncmp(rest, SL_CHECKPOINT_PART_SUFFIX, sizeof SL_CHECKPOINT_PART_SUFFIX - 1) == 0;
    }
    if (sscanf(name, "shard-%4u-of-%4u.slc", &shard, &count) != 2) {
        return false;
    }
    sl_checkpoint_file_name(shard, count, again);
    (void)snprintf(part, sizeof part, "%.31s" SL_CHECKPOINT_PART_SUFFIX, again);
    return strcmp(name, again) == 0 || strcmp(name, part) == 0;
}

/* Another server may have removed the same file. */
static int unless_gone(int err)
{
    return err == SL_ERR_NOT_FOUND ? 0 : err;
}

static bool directory_prune_has_name(const struct sl_disk_names *names, const char *name)
{
    bool is_found = false;
    for (uint32_t i = 0; i < names->count; i++) {
        is_found = is_found || strcmp(names->items[i].name, name) == 0;
    }
    return is_found;
}

/* Earlier jobs */

static int mark_kept(const struct sl_disk *disk, const char *subdir, struct sl_reason *reason)
{
    char path[SL_DISK_PATH_BYTES];
    struct sl_disk_file file;
    int err = sl_disk_join(subdir, SL_CHECKPOINT_KEPT_NAME, path, reason);
    err = err != 0 ? err : sl_disk_open(disk, path, SL_DISK_CREATE, &file, reason);
    if (err == 0) {
        err = sl_disk_sync(&file, reason);
        const int closed = sl_disk_close(&file, err == 0 ? reason : NULL);
        err = err != 0 ? err : closed;
    }
    err = err == SL_ERR_EXISTS ? 0 : err; /* another server did it */
    return err != 0 ? err : sl_disk_sync_directory(disk, subdir, reason);
}

int sl_checkpoint_directory_keep(const struct sl_disk *disk, const char *directory, uint64_t to,
                                 struct sl_reason *reason)
{
    struct sl_checkpoint_list list = {0};
    int err = to == 0 ? 0 : sl_checkpoint_directory_list(disk, directory, &list, reason);
    for (uint32_t i = 0; err == 0 && i < list.count && list.items[i].number <= to; i++) {
        char subdir[SL_DISK_PATH_BYTES];
        struct sl_disk_names names = {0};
        err = sl_checkpoint_directory_path(directory, list.items[i].number, NULL, subdir, reason);
        err = err != 0 ? err : unless_gone(sl_disk_list(disk, subdir, &names, reason));
        if (err == 0 && !directory_prune_has_name(&names, SL_CHECKPOINT_KEPT_NAME) &&
            (directory_prune_has_name(&names, SL_CHECKPOINT_MANIFEST_NAME) ||
             directory_prune_has_name(&names, SL_CHECKPOINT_ABANDONED_NAME))) {
            err = mark_kept(disk, subdir, reason);
        }
        sl_disk_names_fini(&names);
    }
    sl_checkpoint_list_fini(&list);
    return err;
}

static int is_kept(const struct sl_disk *disk, const char *directory, uint64_t number, bool *out,
                   struct sl_reason *reason)
{
    char subdir[SL_DISK_PATH_BYTES];
    struct sl_disk_names names = {0};
    int err = sl_checkpoint_directory_path(directory, number, NULL, subdir, reason);
    err = err != 0 ? err : unless_gone(sl_disk_list(disk, subdir, &names, reason));
    *out = directory_prune_has_name(&names, SL_CHECKPOINT_KEPT_NAME);
    sl_disk_names_fini(&names);
    return err;
}

/* Removes our files. A kept checkpoint keeps its files; so does an abandoned one, unless
 * also_abandoned. *count: files removed. */
static int directory_prune_remove_files(const struct sl_disk *disk, const char *subdir,
                                        bool also_abandoned, uint32_t *count,
                                        struct sl_reason *reason)
{
    char path[SL_DISK_PATH_BYTES];
    struct sl_disk_names names = {0};
    *count = 0;
    int err = unless_gone(sl_disk_list(disk, subdir, &names, reason));
    const bool stays =
        directory_prune_has_name(&names, SL_CHECKPOINT_KEPT_NAME) ||
        (!also_abandoned && directory_prune_has_name(&names, SL_CHECKPOINT_ABANDONED_NAME));
    for (uint32_t i = 0; err == 0 && !stays && i < names.count; i++) {
        if (names.items[i].is_subdir || !is_ours(names.items[i].name)) {
            continue;
        }
        err = sl_disk_join(subdir, names.items[i].name, path, reason);
        if (err == 0) {
            err = unless_gone(sl_disk_remove(disk, path, reason));
            *count += err == 0;
        }
    }
    sl_disk_names_fini(&names);
    return err;
}

/* Not an error: already removed, or foreign files are inside. */
static int remove_subdir(const struct sl_disk *disk, const char *subdir, struct sl_reason *reason)
{
    int err = unless_gone(sl_disk_remove_subdir(disk, subdir, reason));
    return err == SL_ERR_EXISTS ? 0 : err;
}

/* Removes the manifest first, durably: a crash then leaves an incomplete checkpoint, not a damaged
 * one. */
static int remove_checkpoint(const struct sl_disk *disk, const char *directory, uint64_t number,
                             struct sl_reason *reason)
{
    char subdir[SL_DISK_PATH_BYTES];
    char manifest[SL_DISK_PATH_BYTES];
    uint32_t count;
    int err = sl_checkpoint_directory_path(directory, number, NULL, subdir, reason);
    if (err == 0) {
        err = sl_disk_join(subdir, SL_CHECKPOINT_MANIFEST_NAME, manifest, reason);
    }
    err = err != 0 ? err : unless_gone(sl_disk_remove(disk, manifest, reason));
    err = err != 0 ? err : unless_gone(sl_disk_sync_directory(disk, subdir, reason));
    err = err != 0 ? err : directory_prune_remove_files(disk, subdir, true, &count, reason);
    return err != 0 ? err : remove_subdir(disk, subdir, reason);
}

static void keep_number(const struct sl_checkpoint_list *list, bool *kept, uint64_t number)
{
    for (uint32_t i = 0; i < list->count; i++) {
        kept[i] = kept[i] || list->items[i].number == number;
    }
}

/* Marks in `kept` the newest `keep` intact checkpoints with their bases, and all damaged ones.
 * *newest: the highest intact number; 0: none. */
static int choose(const struct sl_disk *disk, const char *directory,
                  const struct sl_checkpoint_list *list,
                  const struct sl_checkpoint_prune_options *options, bool *kept, uint64_t *newest,
                  struct sl_reason *reason)
{
    uint32_t keep = options->keep;
    for (uint32_t i = list->count; i-- > 0;) {
        struct sl_checkpoint_chain chain;
        const struct sl_checkpoint_found *found = &list->items[i];
        bool stays;
        int err = is_kept(disk, directory, found->number, &stays, reason);
        if (err != 0) {
            return err;
        }
        kept[i] = kept[i] || stays;
        if (stays && found->number != options->newest) {
            continue;
        }
        if (options->newest != 0 && found->number > options->newest) {
            kept[i] = found->number <= options->above || found->state == SL_CHECKPOINT_DAMAGED;
            continue;
        }
        if (found->state == SL_CHECKPOINT_INCOMPLETE) {
            continue;
        }
        err = found->state == SL_CHECKPOINT_DAMAGED
                  ? SL_ERR_CORRUPT
                  : sl_checkpoint_directory_chain(disk, directory, found->number, options->range,
                                                  NULL, &chain, reason);
        if (err == SL_ERR_NO_MEMORY || err == SL_ERR_TOO_LARGE) {
            return err;
        }
        kept[i] = kept[i] || err != 0;
        if (err != 0) {
            continue;
        }
        *newest = *newest == 0 ? found->number : *newest;
        for (uint32_t k = 0; keep > 0 && k < chain.count; k++) {
            keep_number(list, kept, chain.items[k].number);
        }
        keep -= keep > 0;
        sl_checkpoint_chain_fini(&chain);
    }
    return 0;
}

/* Removes the others below `end`, incrementals before their bases. */
static int remove_others(const struct sl_disk *disk, const char *directory,
                         const struct sl_checkpoint_list *list, const bool *kept, uint64_t end,
                         uint32_t *removed, struct sl_reason *reason)
{
    int err = 0;
    uint32_t count = 0;
    for (uint32_t i = list->count; err == 0 && i-- > 0;) {
        const struct sl_checkpoint_found *found = &list->items[i];
        if (kept[i] || found->number >= end) {
            continue;
        }
        err = remove_checkpoint(disk, directory, found->number, reason);
        count += err == 0 && found->state == SL_CHECKPOINT_PUBLISHED;
    }
    err = err != 0 ? err : sl_disk_sync_directory(disk, directory, reason);
    if (err == 0) {
        *removed = count;
    }
    return err;
}

int sl_checkpoint_directory_prune(const struct sl_disk *disk, const char *directory,
                                  const struct sl_checkpoint_prune_options *options,
                                  uint32_t *removed, struct sl_reason *reason)
{
    sl_assert(options->keep > 0);
    sl_assert(options->newest <= options->above);
    sl_assert(options->newest == 0 || options->above < options->below);
    struct sl_checkpoint_list list;
    uint64_t newest = 0;
    int err = sl_checkpoint_directory_list(disk, directory, &list, reason);
    if (err != 0) {
        return err;
    }
    bool *kept = calloc(list.count + 1, sizeof *kept);
    if (kept == NULL) {
        err = sl_reason_fail(reason, SL_ERR_NO_MEMORY, "no memory to prune %s", directory);
    } else {
        err = choose(disk, directory, &list, options, kept, &newest, reason);
    }
    if (err == 0) {
        const bool is_here = newest != 0 && newest == options->newest;
        err = remove_others(disk, directory, &list, kept, is_here ? options->below : newest,
                            removed, reason);
    }
    free(kept);
    sl_checkpoint_list_fini(&list);
    return err;
}

/* Aborted checkpoints */

/* Removes twice: a server that shares the directory may have written its manifest late. */
static int clear_files(const struct sl_disk *disk, const char *subdir, struct sl_reason *reason)
{
    uint32_t count;
    int err = directory_prune_remove_files(disk, subdir, false, &count, reason);
    if (err != 0 || count == 0) {
        return err;
    }
    err = directory_prune_remove_files(disk, subdir, false, &count, reason);
    return err != 0 ? err : unless_gone(sl_disk_sync_directory(disk, subdir, reason));
}

static int clear_one(const struct sl_disk *disk, const char *directory, uint64_t number,
                     bool subdir_too, struct sl_reason *reason)
{
    char subdir[SL_DISK_PATH_BYTES];
    int err = sl_checkpoint_directory_path(directory, number, NULL, subdir, reason);
    err = err != 0 ? err : clear_files(disk, subdir, reason);
    return err != 0 || !subdir_too ? err : remove_subdir(disk, subdir, reason);
}

int sl_checkpoint_directory_remove_incomplete(const struct sl_disk *disk, const char *directory,
                                              uint64_t below, uint32_t subdirs,
                                              struct sl_reason *reason)
{
    struct sl_checkpoint_list list;
    uint32_t kept = 0;
    bool is_any_gone = false;
    int err = sl_checkpoint_directory_list(disk, directory, &list, reason);
    if (err != 0) {
        return err;
    }
    for (uint32_t i = list.count; err == 0 && i-- > 0;) {
        const struct sl_checkpoint_found *found = &list.items[i];
        if (found->number < below && found->state == SL_CHECKPOINT_INCOMPLETE) {
            const bool subdir_too = kept >= subdirs;
            err = clear_one(disk, directory, found->number, subdir_too, reason);
            is_any_gone = is_any_gone || subdir_too;
            kept++;
        }
    }
    sl_checkpoint_list_fini(&list);
    return err != 0 || !is_any_gone ? err : sl_disk_sync_directory(disk, directory, reason);
}
