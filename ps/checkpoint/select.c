#include "ps/checkpoint/select.h"

#include <inttypes.h>

#include "core/log.h"

struct search {
    const struct sl_disk *disk;
    const char *directory;
    const struct sl_checkpoint_select_options *options;
    uint64_t selected;
    uint32_t intact, damaged; /* number of checkpoints */
    struct sl_reason *reason;
};

/* Checks the files that are needed; of a candidate with fallback, every byte. */
static int check(const struct search *search, uint64_t number, bool is_candidate,
                 struct sl_reason *why)
{
    const struct sl_checkpoint_select_options *options = search->options;
    const struct sl_checkpoint_report *report = is_candidate ? options->report : NULL;
    struct sl_checkpoint_shard_range range = options->own;
    struct sl_checkpoint_manifest manifest;
    int err =
        sl_checkpoint_directory_manifest(search->disk, search->directory, number, &manifest, why);
    if (err != 0) {
        return err;
    }
    if (options->shard_count != 0 && manifest.shard_count != options->shard_count) {
        range = (struct sl_checkpoint_shard_range){0};
    }
    sl_checkpoint_manifest_fini(&manifest);
    return is_candidate && options->fallback
               ? sl_checkpoint_directory_verify(search->disk, search->directory, number, range,
                                                report, why)
               : sl_checkpoint_directory_chain(search->disk, search->directory, number, range,
                                               report, NULL, why);
}

static int check_candidate(struct search *search, struct sl_checkpoint_found *found)
{
    const struct sl_checkpoint_select_options *options = search->options;
    const bool is_candidate =
        search->selected == 0 && (options->up_to == 0 || found->number <= options->up_to);
    struct sl_reason why;
    if (found->state == SL_CHECKPOINT_INCOMPLETE ||
        (!is_candidate && search->intact >= options->intact_max)) {
        return 0;
    }
    int err = check(search, found->number, is_candidate, &why);
    const bool is_damage =
        err == SL_ERR_CORRUPT || err == SL_ERR_NOT_FOUND || err == SL_ERR_VERSION;
    if (err == 0) {
        found->state = SL_CHECKPOINT_INTACT;
        search->intact++;
        search->selected = is_candidate ? found->number : search->selected;
    } else if (!is_damage || (is_candidate && !options->fallback)) {
        return sl_reason_fail(search->reason, err, "checkpoint %" PRIu64 ": %s", found->number,
                              why.text);
    } else if (is_candidate) {
        sl_log_warn("checkpoint %" PRIu64 " is skipped: %s", found->number, why.text);
        search->damaged++;
    }
    return 0;
}

int sl_checkpoint_select(const struct sl_disk *disk, const char *directory,
                         const struct sl_checkpoint_select_options *options,
                         struct sl_checkpoint_list *list, uint64_t *number,
                         struct sl_reason *reason)
{
    struct search search = {
        .disk = disk, .directory = directory, .options = options, .reason = reason};
    int err = 0;
    for (uint32_t i = list->count; err == 0 && i > 0; i--) {
        err = check_candidate(&search, &list->items[i - 1]);
    }
    if (err == 0 && search.selected == 0 && search.damaged > 0) {
        err = sl_reason_fail(
            reason, SL_ERR_CORRUPT,
            "no checkpoint in %s is intact; start without --restore to begin with empty tables",
            directory);
    }
    *number = search.selected;
    return err;
}

int sl_checkpoint_newest(const struct sl_disk *disk, const char *directory,
                         struct sl_checkpoint_shard_range range, uint64_t *number,
                         struct sl_reason *reason)
{
    const struct sl_checkpoint_select_options options = {.own = range, .intact_max = 1};
    struct sl_checkpoint_list list;
    int err = sl_checkpoint_directory_list(disk, directory, &list, reason);
    if (err != 0) {
        return err;
    }
    err = sl_checkpoint_select(disk, directory, &options, &list, number, reason);
    sl_checkpoint_list_fini(&list);
    if (err == 0 && *number == 0) {
        err = sl_reason_fail(reason, SL_ERR_NOT_FOUND, "there is no complete checkpoint in %s",
                             directory);
    }
    return err;
}
