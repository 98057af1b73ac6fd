#include "ps/checkpoint/select.h"

#include <inttypes.h>
#include <stdio.h>

#include "core/log.h"

#define WHY_BYTES (SL_DISK_PATH_BYTES + 256)

struct search {
    const struct sl_disk *disk;
    const char *directory;
    const struct sl_checkpoint_select_options *options;
    uint64_t selected;
    uint32_t intact, damaged; /* number of checkpoints */
    char *reason;
    size_t reason_bytes;
};

/* Checks the files that are needed; of a candidate with fallback, every byte. */
static int check(const struct search *search, uint64_t number, bool is_candidate, char *why)
{
    const struct sl_checkpoint_select_options *options = search->options;
    const struct sl_checkpoint_report *report = is_candidate ? options->report : NULL;
    struct sl_checkpoint_shard_range range = options->own;
    struct sl_checkpoint_manifest manifest;
    int err = sl_checkpoint_directory_manifest(search->disk, search->directory, number, &manifest,
                                               why, WHY_BYTES);
    if (err != 0) {
        return err;
    }
    if (options->shard_count != 0 && manifest.shard_count != options->shard_count) {
        range = (struct sl_checkpoint_shard_range){0};
    }
    sl_checkpoint_manifest_fini(&manifest);
    return is_candidate && options->fallback
               ? sl_checkpoint_directory_verify(search->disk, search->directory, number, range,
                                                report, why, WHY_BYTES)
               : sl_checkpoint_directory_chain(search->disk, search->directory, number, range,
                                               report, NULL, why, WHY_BYTES);
}

static int check_candidate(struct search *search, struct sl_checkpoint_found *found)
{
    const struct sl_checkpoint_select_options *options = search->options;
    const bool is_candidate =
        search->selected == 0 && (options->up_to == 0 || found->number <= options->up_to);
    char why[WHY_BYTES];
    if (found->state == SL_CHECKPOINT_INCOMPLETE ||
        (!is_candidate && search->intact >= options->intact_max)) {
        return 0;
    }
    int err = check(search, found->number, is_candidate, why);
    const bool is_damage =
        err == SL_ERR_CORRUPT || err == SL_ERR_NOT_FOUND || err == SL_ERR_VERSION;
    if (err == 0) {
        found->state = SL_CHECKPOINT_INTACT;
        search->intact++;
        search->selected = is_candidate ? found->number : search->selected;
    } else if (!is_damage || (is_candidate && !options->fallback)) {
        (void)snprintf(search->reason, search->reason_bytes, "checkpoint %" PRIu64 ": %s",
                       found->number, why);
        return err;
    } else if (is_candidate) {
        sl_log_warn("checkpoint %" PRIu64 " is skipped: %s", found->number, why);
        search->damaged++;
    }
    return 0;
}

int sl_checkpoint_select(const struct sl_disk *disk, const char *directory,
                         const struct sl_checkpoint_select_options *options,
                         struct sl_checkpoint_list *list, uint64_t *number, char *reason,
                         size_t reason_bytes)
{
    struct search search = {.disk = disk,
                            .directory = directory,
                            .options = options,
                            .reason = reason,
                            .reason_bytes = reason_bytes};
    int err = 0;
    for (uint32_t i = list->count; err == 0 && i > 0; i--) {
        err = check_candidate(&search, &list->items[i - 1]);
    }
    if (err == 0 && search.selected == 0 && search.damaged > 0) {
        (void)snprintf(reason, reason_bytes,
                       "no checkpoint in %s is intact; start without --restore to begin with empty "
                       "tables",
                       directory);
        err = SL_ERR_CORRUPT;
    }
    *number = search.selected;
    return err;
}

int sl_checkpoint_newest(const struct sl_disk *disk, const char *directory,
                         struct sl_checkpoint_shard_range range, uint64_t *number, char *reason,
                         size_t reason_bytes)
{
    const struct sl_checkpoint_select_options options = {.own = range, .intact_max = 1};
    struct sl_checkpoint_list list;
    int err = sl_checkpoint_directory_list(disk, directory, &list, reason, reason_bytes);
    if (err != 0) {
        return err;
    }
    err = sl_checkpoint_select(disk, directory, &options, &list, number, reason, reason_bytes);
    sl_checkpoint_list_fini(&list);
    if (err == 0 && *number == 0) {
        (void)snprintf(reason, reason_bytes, "there is no complete checkpoint in %s", directory);
        err = SL_ERR_NOT_FOUND;
    }
    return err;
}
