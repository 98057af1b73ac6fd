#include "reactor/disk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/array.h"
#include "core/assert.h"

static int disk_refuse(int err, const char *what, const char *path, const char *why,
                       struct sl_reason *reason)
{
    if (err != 0) {
        sl_reason_set(reason, "cannot %s %s: %s", what, path, why);
    }
    return err;
}

int sl_disk_open(const struct sl_disk *disk, const char *path, enum sl_disk_mode mode,
                 struct sl_disk_file *out, struct sl_reason *reason)
{
    char why[SL_DISK_WHY_BYTES] = "";
    void *handle = NULL;
    if (strlen(path) >= sizeof out->path) {
        return disk_refuse(SL_ERR_TOO_LARGE, "open", path, "the path is too long", reason);
    }
    int err = disk->ops->open(disk->ctx, path, mode, &handle, why);
    if (err == 0) {
        out->disk = disk;
        out->handle = handle;
        (void)snprintf(out->path, sizeof out->path, "%s", path);
    }
    return disk_refuse(err, mode == SL_DISK_READ ? "open" : "create", path, why, reason);
}

int sl_disk_write(struct sl_disk_file *file, const void *from, size_t bytes,
                  struct sl_reason *reason)
{
    char why[SL_DISK_WHY_BYTES] = "";
    sl_assert(file->disk != NULL);
    sl_assert(bytes <= SL_DISK_WRITE_BYTES);
    int err = file->disk->ops->write(file->disk->ctx, file->handle, from, bytes, why);
    return disk_refuse(err, "write", file->path, why, reason);
}

int sl_disk_read(struct sl_disk_file *file, uint64_t offset, void *to, size_t bytes, size_t *got,
                 struct sl_reason *reason)
{
    char why[SL_DISK_WHY_BYTES] = "";
    sl_assert(file->disk != NULL);
    sl_assert(bytes <= SL_DISK_WRITE_BYTES);
    int err = file->disk->ops->read(file->disk->ctx, file->handle, offset, to, bytes, got, why);
    sl_assert(err != 0 || *got <= bytes);
    return disk_refuse(err, "read", file->path, why, reason);
}

int sl_disk_size(struct sl_disk_file *file, uint64_t *bytes, struct sl_reason *reason)
{
    char why[SL_DISK_WHY_BYTES] = "";
    sl_assert(file->disk != NULL);
    int err = file->disk->ops->size(file->disk->ctx, file->handle, bytes, why);
    return disk_refuse(err, "learn the size of", file->path, why, reason);
}

int sl_disk_sync(struct sl_disk_file *file, struct sl_reason *reason)
{
    char why[SL_DISK_WHY_BYTES] = "";
    sl_assert(file->disk != NULL);
    int err = file->disk->ops->sync(file->disk->ctx, file->handle, why);
    return disk_refuse(err, "sync", file->path, why, reason);
}

int sl_disk_close(struct sl_disk_file *file, struct sl_reason *reason)
{
    char why[SL_DISK_WHY_BYTES] = "";
    if (file->disk == NULL) {
        return 0;
    }
    const struct sl_disk *disk = file->disk;
    file->disk = NULL;
    int err = disk->ops->close(disk->ctx, file->handle, why);
    return disk_refuse(err, "close", file->path, why, reason);
}

int sl_disk_rename(const struct sl_disk *disk, const char *from, const char *to,
                   struct sl_reason *reason)
{
    char why[SL_DISK_WHY_BYTES] = "";
    int err = disk->ops->rename(disk->ctx, from, to, why);
    return disk_refuse(err, "give its name to", to, why, reason);
}

int sl_disk_sync_directory(const struct sl_disk *disk, const char *path, struct sl_reason *reason)
{
    char why[SL_DISK_WHY_BYTES] = "";
    int err = disk->ops->sync_directory(disk->ctx, path, why);
    return disk_refuse(err, "sync the directory", path, why, reason);
}

int sl_disk_make_subdir(const struct sl_disk *disk, const char *path, struct sl_reason *reason)
{
    char why[SL_DISK_WHY_BYTES] = "";
    int err = disk->ops->make_subdir(disk->ctx, path, why);
    return disk_refuse(err, "make the directory", path, why, reason);
}

int sl_disk_remove(const struct sl_disk *disk, const char *path, struct sl_reason *reason)
{
    char why[SL_DISK_WHY_BYTES] = "";
    int err = disk->ops->remove(disk->ctx, path, why);
    return disk_refuse(err, "remove", path, why, reason);
}

int sl_disk_remove_subdir(const struct sl_disk *disk, const char *path, struct sl_reason *reason)
{
    char why[SL_DISK_WHY_BYTES] = "";
    int err = disk->ops->remove_subdir(disk->ctx, path, why);
    return disk_refuse(err, "remove the directory", path, why, reason);
}

static int disk_by_name(const void *one, const void *other)
{
    return strcmp(((const struct sl_disk_name *)one)->name,
                  ((const struct sl_disk_name *)other)->name);
}

int sl_disk_list(const struct sl_disk *disk, const char *path, struct sl_disk_names *out,
                 struct sl_reason *reason)
{
    char why[SL_DISK_WHY_BYTES] = "";
    struct sl_disk_names names = {0};
    int err = disk->ops->list(disk->ctx, path, &names, why);
    if (err != 0) {
        sl_disk_names_fini(&names);
        return disk_refuse(err, "list the directory", path, why, reason);
    }
    if (names.count > 1) {
        qsort(names.items, names.count, sizeof names.items[0], disk_by_name);
    }
    *out = names;
    return 0;
}

int sl_disk_names_add(struct sl_disk_names *names, const char *name, bool is_subdir, char *why)
{
    if (strlen(name) >= SL_DISK_NAME_BYTES) {
        (void)snprintf(why, SL_DISK_WHY_BYTES, "a name of more than %d bytes",
                       SL_DISK_NAME_BYTES - 1);
        return SL_ERR_IO;
    }
    if (names->count == SL_DISK_NAMES_MAX) {
        (void)snprintf(why, SL_DISK_WHY_BYTES, "more than %u names in it", SL_DISK_NAMES_MAX);
        return SL_ERR_TOO_LARGE;
    }
    if (!sl_array_make_room(&names->items, &names->capacity, names->count, sizeof *names->items)) {
        (void)snprintf(why, SL_DISK_WHY_BYTES, "no memory");
        return SL_ERR_NO_MEMORY;
    }
    struct sl_disk_name *item = &names->items[names->count++];
    (void)snprintf(item->name, sizeof item->name, "%s", name);
    item->is_subdir = is_subdir;
    return 0;
}

void sl_disk_names_fini(struct sl_disk_names *names)
{
    free(names->items);
    *names = (struct sl_disk_names){0};
}

int sl_disk_join(const char *subdir, const char *name, char *path, struct sl_reason *reason)
{
    int bytes = snprintf(path, SL_DISK_PATH_BYTES, "%s/%s", subdir, name);
    if (bytes < 0 || bytes >= SL_DISK_PATH_BYTES) {
        return sl_reason_fail(reason, SL_ERR_TOO_LARGE,
                              "the path %.64s.../%s is longer than %d bytes", subdir, name,
                              SL_DISK_PATH_BYTES - 1);
    }
    return 0;
}

int sl_disk_make_directory(const struct sl_disk *disk, const char *path, struct sl_reason *reason)
{
    char above[SL_DISK_PATH_BYTES];
    const int err = sl_disk_make_subdir(disk, path, reason);
    if (err != 0 && err != SL_ERR_EXISTS) {
        return err;
    }
    size_t bytes = strlen(path);
    while (bytes > 1 && path[bytes - 1] == '/') { /* that it ends with */
        bytes--;
    }
    while (bytes > 0 && path[bytes - 1] != '/') {
        bytes--;
    }
    (void)snprintf(above, sizeof above, "%.*s", (int)(bytes > 1 ? bytes - 1 : bytes), path);
    const int sync_err =
        sl_disk_sync_directory(disk, bytes > 0 ? above : ".", err == 0 ? reason : NULL);
    return err == 0 ? sync_err : 0;
}

/* Writes and syncs a new file. */
static int write_whole(const struct sl_disk *disk, const char *path, const void *from, size_t bytes,
                       struct sl_reason *reason)
{
    struct sl_disk_file file;
    int err = sl_disk_open(disk, path, SL_DISK_CREATE, &file, reason);
    if (err != 0) {
        return err;
    }
    err = sl_disk_write(&file, from, bytes, reason);
    err = err != 0 ? err : sl_disk_sync(&file, reason);
    int close_err = err == 0 ? sl_disk_close(&file, reason) : sl_disk_close(&file, NULL);
    return err != 0 ? err : close_err;
}

int sl_disk_replace(const struct sl_disk *disk, const char *subdir, const char *name,
                    const char *temporary, const void *from, size_t bytes, struct sl_reason *reason)
{
    char path[SL_DISK_PATH_BYTES];
    char part[SL_DISK_PATH_BYTES];
    int err = sl_disk_join(subdir, name, path, reason);
    err = err != 0 ? err : sl_disk_join(subdir, temporary, part, reason);
    if (err != 0) {
        return err;
    }
    err = sl_disk_remove(disk, part, reason);
    if (err != 0 && err != SL_ERR_NOT_FOUND) {
        return err;
    }
    err = write_whole(disk, part, from, bytes, reason);
    err = err != 0 ? err : sl_disk_rename(disk, part, path, reason);
    if (err != 0) {
        (void)sl_disk_remove(disk, part, NULL);
        return err;
    }
    return sl_disk_sync_directory(disk, subdir, reason);
}

int sl_disk_load(const struct sl_disk *disk, const char *path, size_t bytes_max, char **out,
                 size_t *bytes, struct sl_reason *reason)
{
    struct sl_disk_file file;
    uint64_t size;
    size_t got = 0;
    char *text = NULL;
    int err = sl_disk_open(disk, path, SL_DISK_READ, &file, reason);
    if (err != 0) {
        return err;
    }
    err = sl_disk_size(&file, &size, reason);
    if (err == 0 && size > bytes_max) {
        err =
            sl_reason_fail(reason, SL_ERR_TOO_LARGE, "%s has %llu bytes; at most %zu are accepted",
                           path, (unsigned long long)size, bytes_max);
    }
    if (err == 0 && (text = malloc((size_t)size + 1)) == NULL) {
        err = sl_reason_fail(reason, SL_ERR_NO_MEMORY, "no memory to read %s", path);
    }
    err = err != 0 ? err : sl_disk_read(&file, 0, text, (size_t)size, &got, reason);
    (void)sl_disk_close(&file, NULL);
    if (err != 0) {
        free(text);
        return err;
    }
    text[got] = '\0';
    *out = text;
    *bytes = got;
    return 0;
}
