#include "ps/checkpoint/directory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ps/checkpoint/directory_internal.h"

#define PREFIX "checkpoint-"

static void subdir_name(uint64_t number, char name[SL_DISK_NAME_BYTES])
{
    (void)snprintf(name, SL_DISK_NAME_BYTES, PREFIX "%06" PRIu64, number);
}

/* Returns 0 if the name is not a checkpoint's. Each number has exactly one spelling. */
static uint64_t number_of(const char *name)
{
    char again[SL_DISK_NAME_BYTES];
    if (strncmp(name, PREFIX, sizeof PREFIX - 1) != 0) {
        return 0;
    }
    const char *digits = name + sizeof PREFIX - 1;
    if (strlen(digits) > 12 || strspn(digits, "0123456789") != strlen(digits)) {
        return 0;
    }
    const uint64_t number = strtoull(digits, NULL, 10);
    subdir_name(number, again);
    return strcmp(name, again) == 0 ? number : 0;
}

int sl_checkpoint_directory_path(const char *directory, uint64_t number, const char *name,
                                 char *path, struct sl_reason *reason)
{
    char subdir[SL_DISK_NAME_BYTES];
    char inner[2 * SL_DISK_NAME_BYTES];
    subdir_name(number, subdir);
    if (name == NULL) {
        return sl_disk_join(directory, subdir, path, reason);
    }
    (void)snprintf(inner, sizeof inner, "%s/%.255s", subdir, name);
    return sl_disk_join(directory, inner, path, reason);
}

/* One manifest */

int sl_checkpoint_directory_manifest(const struct sl_disk *disk, const char *directory,
                                     uint64_t number, struct sl_checkpoint_manifest *out,
                                     struct sl_reason *reason)
{
    char path[SL_DISK_PATH_BYTES];
    struct sl_reason why;
    char *text;
    size_t bytes;
    int err =
        sl_checkpoint_directory_path(directory, number, SL_CHECKPOINT_MANIFEST_NAME, path, reason);
    if (err == 0) {
        err = sl_disk_load(disk, path, SL_CHECKPOINT_MANIFEST_BYTES_MAX, &text, &bytes, reason);
        err = err == SL_ERR_TOO_LARGE ? SL_ERR_CORRUPT : err;
    }
    if (err != 0) {
        return err;
    }
    err = sl_checkpoint_manifest_decode(text, bytes, out, &why);
    free(text);
    if (err == 0 && out->number != number) {
        sl_reason_set(&why, "it is the manifest of checkpoint %" PRIu64, out->number);
        sl_checkpoint_manifest_fini(out);
        err = SL_ERR_CORRUPT;
    }
    if (err != 0) {
        sl_reason_set(reason, "%s: %s", path, why.text);
    }
    return err;
}

/* Listing */

static int read_state(const struct sl_disk *disk, const char *directory,
                      struct sl_checkpoint_found *found, struct sl_reason *reason)
{
    struct sl_checkpoint_manifest manifest;
    int err = sl_checkpoint_directory_manifest(disk, directory, found->number, &manifest, reason);
    if (err == SL_ERR_NO_MEMORY || err == SL_ERR_TOO_LARGE) {
        return err;
    }
    found->state = err == 0                  ? SL_CHECKPOINT_PUBLISHED
                   : err == SL_ERR_NOT_FOUND ? SL_CHECKPOINT_INCOMPLETE
                                             : SL_CHECKPOINT_DAMAGED;
    if (err == 0) {
        found->base = manifest.base;
        sl_checkpoint_manifest_fini(&manifest);
    }
    return 0;
}

static int by_number(const void *one, const void *other)
{
    const uint64_t a = ((const struct sl_checkpoint_found *)one)->number;
    const uint64_t b = ((const struct sl_checkpoint_found *)other)->number;
    return (a > b) - (a < b);
}

static int list_numbers(const struct sl_disk *disk, const char *directory,
                        struct sl_checkpoint_list *out, struct sl_reason *reason)
{
    struct sl_disk_names names;
    int err = sl_disk_list(disk, directory, &names, reason);
    if (err != 0) {
        return err;
    }
    struct sl_checkpoint_list list = {.items = calloc(names.count + 1, sizeof *list.items)};
    if (list.items == NULL) {
        err = sl_reason_fail(reason, SL_ERR_NO_MEMORY, "no memory to list %s", directory);
    }
    for (uint32_t i = 0; err == 0 && i < names.count; i++) {
        const uint64_t number = names.items[i].is_subdir ? number_of(names.items[i].name) : 0;
        if (number != 0) {
            list.items[list.count++].number = number;
        }
    }
    sl_disk_names_fini(&names);
    if (err != 0) {
        return err;
    }
    qsort(list.items, list.count, sizeof list.items[0], by_number);
    *out = list;
    return 0;
}

int sl_checkpoint_directory_list(const struct sl_disk *disk, const char *directory,
                                 struct sl_checkpoint_list *out, struct sl_reason *reason)
{
    struct sl_checkpoint_list list;
    int err = list_numbers(disk, directory, &list, reason);
    if (err != 0) {
        return err;
    }
    for (uint32_t i = 0; err == 0 && i < list.count; i++) {
        err = read_state(disk, directory, &list.items[i], reason);
    }
    if (err != 0) {
        sl_checkpoint_list_fini(&list);
        return err;
    }
    *out = list;
    return 0;
}

void sl_checkpoint_list_fini(struct sl_checkpoint_list *list)
{
    free(list->items);
    *list = (struct sl_checkpoint_list){0};
}

uint32_t sl_checkpoint_list_drop_strays(struct sl_checkpoint_list *list, uint64_t *first)
{
    uint64_t newest = 0;
    uint32_t kept = 0;
    uint32_t dropped = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        const struct sl_checkpoint_found found = list->items[i];
        newest = found.state == SL_CHECKPOINT_PUBLISHED ? found.number : newest;
    }
    for (uint32_t i = 0; i < list->count; i++) {
        const uint64_t number = list->items[i].number;
        if (number > newest && number - newest > SL_CHECKPOINT_STRAY_GAP) {
            *first = dropped++ == 0 ? number : *first;
        } else {
            list->items[kept++] = list->items[i];
        }
    }
    list->count = kept;
    return dropped;
}

/* Publish */

static int set_base(const struct sl_disk *disk, const char *directory,
                    struct sl_checkpoint_manifest *manifest, struct sl_reason *reason)
{
    struct sl_checkpoint_manifest base;
    manifest->base_id = 0;
    if (manifest->base != 0) {
        int err = sl_checkpoint_directory_manifest(disk, directory, manifest->base, &base, reason);
        if (err != 0) {
            return err;
        }
        manifest->base_id = base.id;
        sl_checkpoint_manifest_fini(&base);
    }
    manifest->id = sl_checkpoint_manifest_id(manifest);
    return 0;
}

int sl_checkpoint_directory_publish(const struct sl_disk *disk, const char *directory,
                                    struct sl_checkpoint_manifest *manifest,
                                    struct sl_checkpoint_shard_range range, uint32_t writer,
                                    struct sl_reason *reason)
{
    char subdir[SL_DISK_PATH_BYTES];
    char part[SL_DISK_NAME_BYTES];
    size_t bytes;
    int err = set_base(disk, directory, manifest, reason);
    if (err == 0) {
        err = sl_checkpoint_directory_check_files(disk, directory, manifest, range, NULL, reason);
    }
    if (err == 0) {
        err = sl_checkpoint_directory_path(directory, manifest->number, NULL, subdir, reason);
    }
    if (err != 0) {
        return err;
    }
    char *text = sl_checkpoint_manifest_encode(manifest, &bytes);
    if (text == NULL) {
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "no memory to write the manifest of %s",
                              subdir);
    }
    (void)snprintf(part, sizeof part, SL_CHECKPOINT_MANIFEST_NAME SL_CHECKPOINT_PART_SUFFIX "%u",
                   writer);
    err = sl_disk_replace(disk, subdir, SL_CHECKPOINT_MANIFEST_NAME, part, text, bytes, reason);
    free(text);
    return err;
}
