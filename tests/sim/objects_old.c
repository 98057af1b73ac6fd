#include "tests/sim/objects_old.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "objects/catalogue/message.h"

#define PREFIX "/c/" SL_SIM_OLD_NAME

/* A file of the disk, or an old record. */
struct file {
    void *inner; /* NULL: an old record */
    uint32_t count;
    uint8_t bytes[SL_OBJECTS_MESSAGE_BYTES];
};

static bool is_old(const char *path)
{
    return strncmp(path, PREFIX, strlen(PREFIX)) == 0;
}

static const struct sl_disk *inner(const struct sl_sim_old *old)
{
    return &old->memory->disk;
}

static int fail(int err, const char *text, char *why)
{
    (void)snprintf(why, SL_DISK_WHY_BYTES, "%s", text);
    return err;
}

/* Old files cannot be read either when the machine has stopped. */
static int check(const struct sl_sim_old *old, char *why)
{
    return old->memory->stopped ? fail(SL_ERR_IO, "Input/output error", why) : 0;
}

static int refuse_change(const struct sl_sim_old *old, const char *path, char *why)
{
    sl_sim_fail(old->breach, "old", "%s is changed", path);
    return fail(SL_ERR_IO, "Read-only file system", why);
}

static void fill(struct file *file, uint32_t name, uint32_t version)
{
    char text[32];
    (void)snprintf(text, sizeof text, SL_SIM_OLD_NAME "%u", name);
    struct sl_objects_message hold = {
        .kind = SL_OBJECTS_HOLD,
        .name = text,
        .version = version,
        .commit.record_count = 1,
        .commit.record = {.name = text,
                          .note = "",
                          .version = version,
                          .epoch = 1,
                          .time_ms = version,
                          .origin = SL_ORIGIN_PS,
                          .part_count = 1,
                          .parts = {{.digest = {.low = name + 1ULL, .high = version},
                                     .bytes = 1,
                                     .manifest_bytes = 1}}},
    };
    file->count = sl_objects_message_encode(&hold, file->bytes);
}

static int old_open(void *ctx, const char *path, enum sl_disk_mode mode, void **out, char *why)
{
    const struct sl_sim_old *old = ctx;
    uint32_t name, version;
    struct file *file = calloc(1, sizeof *file);
    sl_assert(file != NULL);
    int err = check(old, why);
    if (err == 0 && !is_old(path)) {
        err = inner(old)->ops->open(inner(old)->ctx, path, mode, &file->inner, why);
    } else if (err == 0 && mode == SL_DISK_CREATE) {
        err = refuse_change(old, path, why);
    } else if (err == 0) {
        const int read = sscanf(path, PREFIX "%u/%u.0.record", &name, &version);
        sl_assert(read == 2);
        fill(file, name, version);
    }
    *out = file;
    if (err != 0) {
        free(file);
    }
    return err;
}

static int old_write(void *ctx, void *handle, const void *from, size_t bytes, char *why)
{
    const struct sl_disk *disk = inner(ctx);
    return disk->ops->write(disk->ctx, ((struct file *)handle)->inner, from, bytes, why);
}

static int old_read(void *ctx, void *handle, uint64_t offset, void *to, size_t bytes, size_t *got,
                    char *why)
{
    const struct sl_disk *disk = inner(ctx);
    const struct file *file = handle;
    if (file->inner != NULL) {
        return disk->ops->read(disk->ctx, file->inner, offset, to, bytes, got, why);
    }
    const size_t left = offset < file->count ? file->count - (size_t)offset : 0;
    *got = bytes < left ? bytes : left;
    memcpy(to, file->bytes + (offset < file->count ? offset : 0), *got);
    return check(ctx, why);
}

static int old_size(void *ctx, void *handle, uint64_t *bytes, char *why)
{
    const struct sl_disk *disk = inner(ctx);
    const struct file *file = handle;
    *bytes = file->count;
    return file->inner != NULL ? disk->ops->size(disk->ctx, file->inner, bytes, why)
                               : check(ctx, why);
}

static int old_sync(void *ctx, void *handle, char *why)
{
    const struct sl_disk *disk = inner(ctx);
    return disk->ops->sync(disk->ctx, ((struct file *)handle)->inner, why);
}

static int old_close(void *ctx, void *handle, char *why)
{
    const struct sl_disk *disk = inner(ctx);
    struct file *file = handle;
    const int err = file->inner != NULL ? disk->ops->close(disk->ctx, file->inner, why) : 0;
    free(file);
    return err;
}

static int old_rename(void *ctx, const char *from, const char *to, char *why)
{
    const struct sl_disk *disk = inner(ctx);
    return is_old(from) ? refuse_change(ctx, from, why)
                        : disk->ops->rename(disk->ctx, from, to, why);
}

static int old_sync_directory(void *ctx, const char *path, char *why)
{
    const struct sl_disk *disk = inner(ctx);
    return is_old(path) ? check(ctx, why) : disk->ops->sync_directory(disk->ctx, path, why);
}

static int old_make_subdir(void *ctx, const char *path, char *why)
{
    const struct sl_disk *disk = inner(ctx);
    return is_old(path) ? refuse_change(ctx, path, why)
                        : disk->ops->make_subdir(disk->ctx, path, why);
}

static int old_remove(void *ctx, const char *path, char *why)
{
    const struct sl_disk *disk = inner(ctx);
    return is_old(path) ? refuse_change(ctx, path, why) : disk->ops->remove(disk->ctx, path, why);
}

static int old_remove_subdir(void *ctx, const char *path, char *why)
{
    const struct sl_disk *disk = inner(ctx);
    return is_old(path) ? fail(SL_ERR_EXISTS, "Directory not empty", why)
                        : disk->ops->remove_subdir(disk->ctx, path, why);
}

static int old_list(void *ctx, const char *path, struct sl_disk_names *out, char *why)
{
    const struct sl_sim_old *old = ctx;
    const bool is_name = is_old(path);
    const uint32_t count = is_name ? SL_SIM_OLD_OF_NAME : old->count / SL_SIM_OLD_OF_NAME;
    int err = is_name ? check(old, why) : inner(old)->ops->list(inner(old)->ctx, path, out, why);
    for (uint32_t i = 0; err == 0 && i < count && (is_name || strcmp(path, "/c") == 0); i++) {
        char text[32];
        (void)snprintf(text, sizeof text, is_name ? "%u.0.record" : SL_SIM_OLD_NAME "%u",
                       i + is_name);
        err = sl_disk_names_add(out, text, !is_name, why);
        (void)snprintf(text, sizeof text, "%u.0.data", i + 1);
        err = err != 0 || !is_name ? err : sl_disk_names_add(out, text, false, why);
    }
    return err;
}

void sl_sim_old_init(struct sl_sim_old *old, struct memory_disk *memory, uint32_t count,
                     struct sl_sim_breach *breach)
{
    static const struct sl_disk_ops ops = {
        .open = old_open,
        .write = old_write,
        .read = old_read,
        .size = old_size,
        .sync = old_sync,
        .close = old_close,
        .rename = old_rename,
        .sync_directory = old_sync_directory,
        .make_subdir = old_make_subdir,
        .remove = old_remove,
        .remove_subdir = old_remove_subdir,
        .list = old_list,
    };
    *old = (struct sl_sim_old){
        .disk = {.ops = &ops, .ctx = old}, .memory = memory, .count = count, .breach = breach};
}
