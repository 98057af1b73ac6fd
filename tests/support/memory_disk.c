#include "tests/support/memory_disk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/hash.h"

static struct memory_disk_name *find_in(struct memory_disk_name *names, const char *path)
{
    for (uint32_t i = 0; i < MEMORY_DISK_NODES; i++) {
        if (names[i].path[0] != '\0' && strcmp(names[i].path, path) == 0) {
            return &names[i];
        }
    }
    return NULL;
}

static void put_name(struct memory_disk_name *names, const char *path, uint32_t node)
{
    struct memory_disk_name *name = find_in(names, path);
    for (uint32_t i = 0; name == NULL && i < MEMORY_DISK_NODES; i++) {
        name = names[i].path[0] == '\0' ? &names[i] : NULL;
    }
    sl_assert(name != NULL);
    sl_assert(strlen(path) < sizeof name->path);
    (void)snprintf(name->path, sizeof name->path, "%s", path);
    name->node = node;
}

static void apply(struct memory_disk_name *names, const struct memory_disk_change *change)
{
    struct memory_disk_name *from = find_in(names, change->from);
    if (change->from[0] != '\0' && from != NULL) {
        from->path[0] = '\0';
    }
    if (change->to[0] != '\0') {
        put_name(names, change->to, change->node);
    }
}

/* All changes of names are on the disk, as they are some time after they were made. */
static void write_back(struct memory_disk *disk)
{
    for (uint32_t i = 0; i < disk->change_count; i++) {
        apply(disk->synced, &disk->changes[i]);
    }
    disk->change_count = 0;
}

static void change(struct memory_disk *disk, const char *from, const char *to, uint32_t node)
{
    if (disk->change_count == MEMORY_DISK_CHANGES) {
        write_back(disk);
    }
    struct memory_disk_change *change = &disk->changes[disk->change_count++];
    (void)snprintf(change->from, sizeof change->from, "%s", from);
    (void)snprintf(change->to, sizeof change->to, "%s", to);
    change->node = node;
    apply(disk->names, change);
}

static size_t folder_length(const char *path)
{
    return (size_t)(strrchr(path, '/') - path);
}

/* Whether the path is of a name in the folder, which has no slash at its end. */
static bool is_in(const char *path, const char *folder)
{
    const size_t bytes = folder_length(path);
    return bytes == strlen(folder) && strncmp(path, folder, bytes) == 0;
}

static int fail(int err, const char *text, char *why)
{
    (void)snprintf(why, SL_DISK_WHY_BYTES, "%s", text);
    return err;
}

/* Counts the operation; not 0: it fails. *stops_now: and is the one at which the machine stops. */
static int begin(struct memory_disk *disk, bool *stops_now, char *why)
{
    const uint64_t number = disk->operations++;
    *stops_now = number == disk->stop_at;
    disk->stopped = disk->stopped || *stops_now;
    return disk->stopped || number == disk->fail_at ? fail(SL_ERR_IO, "Input/output error", why)
                                                    : 0;
}

static void mark_named(const struct memory_disk_name *names, bool *used)
{
    for (uint32_t i = 0; i < MEMORY_DISK_NODES; i++) {
        if (names[i].path[0] != '\0') {
            used[names[i].node] = true;
        }
    }
}

/* One that nothing leads to any more. */
static uint32_t free_node(const struct memory_disk *disk)
{
    bool used[MEMORY_DISK_NODES] = {false};
    mark_named(disk->names, used);
    mark_named(disk->synced, used);
    for (uint32_t i = 0; i < disk->change_count; i++) {
        used[disk->changes[i].node] = true;
    }
    uint32_t node = 0;
    while (node < MEMORY_DISK_NODES && (used[node] || disk->nodes[node].open > 0)) {
        node++;
    }
    sl_assert(node < MEMORY_DISK_NODES);
    return node;
}

static uint32_t add_node(struct memory_disk *disk, bool is_folder)
{
    const bool is_fresh = disk->node_count < MEMORY_DISK_NODES;
    const uint32_t node = is_fresh ? disk->node_count++ : free_node(disk);
    free(disk->nodes[node].bytes);
    disk->nodes[node] = (struct memory_disk_node){.is_folder = is_folder};
    return node;
}

static bool folder_is_there(struct memory_disk *disk, const char *path)
{
    char folder[MEMORY_DISK_PATH];
    (void)snprintf(folder, sizeof folder, "%.*s", (int)folder_length(path), path);
    const struct memory_disk_name *name = find_in(disk->names, folder);
    return name != NULL && disk->nodes[name->node].is_folder;
}

static int memory_open(void *ctx, const char *path, enum sl_disk_mode mode, void **file, char *why)
{
    struct memory_disk *disk = ctx;
    bool stops;
    int err = begin(disk, &stops, why);
    if (err != 0) {
        return err;
    }
    const struct memory_disk_name *name = find_in(disk->names, path);
    uint32_t node;
    if (mode == SL_DISK_CREATE) {
        if (name != NULL) {
            return fail(SL_ERR_EXISTS, "File exists", why);
        }
        if (!folder_is_there(disk, path)) {
            return fail(SL_ERR_NOT_FOUND, "No such file or directory", why);
        }
        node = add_node(disk, false);
        change(disk, "", path, node);
    } else {
        if (name == NULL) {
            return fail(SL_ERR_NOT_FOUND, "No such file or directory", why);
        }
        node = name->node;
        if (disk->nodes[node].is_folder) {
            return fail(SL_ERR_IO, "it is not a regular file", why);
        }
    }
    disk->open_files++;
    disk->nodes[node].open++;
    *file = &disk->nodes[node];
    return 0;
}

static void append(struct memory_disk_node *node, const void *from, size_t bytes)
{
    if (bytes == 0) {
        return;
    }
    if (node->count + bytes > node->capacity) {
        node->capacity = (node->count + bytes) * 2;
        node->bytes = realloc(node->bytes, node->capacity);
        sl_assert(node->bytes != NULL);
    }
    memcpy(node->bytes + node->count, from, bytes);
    node->count += bytes;
}

/* One that fails has written a part. */
static int memory_write(void *ctx, void *file, const void *from, size_t bytes, char *why)
{
    struct memory_disk *disk = ctx;
    bool stops;
    const bool stopped = disk->stopped;
    int err = begin(disk, &stops, why);
    if (err != 0 && !stopped) {
        append(file, from, bytes / 2);
    }
    if (err != 0) {
        return err;
    }
    if (bytes > disk->bytes_left) {
        append(file, from, (size_t)disk->bytes_left);
        disk->bytes_left = 0;
        return fail(SL_ERR_IO, "No space left on device", why);
    }
    disk->bytes_left -= bytes;
    append(file, from, bytes);
    return 0;
}

static int memory_read(void *ctx, void *file, uint64_t offset, void *to, size_t bytes, size_t *got,
                       char *why)
{
    struct memory_disk *disk = ctx;
    const struct memory_disk_node *node = file;
    bool stops;
    const bool halves = disk->operations == disk->short_read_at;
    int err = begin(disk, &stops, why);
    if (err != 0) {
        return err;
    }
    const size_t left = offset < node->count ? node->count - (size_t)offset : 0;
    *got = bytes < left ? bytes : left;
    *got = halves ? *got / 2 : *got;
    if (*got > 0) {
        memcpy(to, node->bytes + offset, *got);
    }
    return 0;
}

static int memory_size(void *ctx, void *file, uint64_t *bytes, char *why)
{
    bool stops;
    int err = begin(ctx, &stops, why);
    if (err == 0) {
        *bytes = ((struct memory_disk_node *)file)->count;
    }
    return err;
}

static int memory_sync(void *ctx, void *file, char *why)
{
    struct memory_disk_node *node = file;
    bool stops;
    int err = begin(ctx, &stops, why);
    if (err == 0) {
        node->synced = node->count;
    }
    return err;
}

static int memory_close(void *ctx, void *file, char *why)
{
    struct memory_disk *disk = ctx;
    bool stops;
    disk->open_files--;
    ((struct memory_disk_node *)file)->open--;
    return begin(disk, &stops, why);
}

static int memory_rename(void *ctx, const char *from, const char *to, char *why)
{
    struct memory_disk *disk = ctx;
    bool stops;
    int err = begin(disk, &stops, why);
    if (err != 0) {
        return err;
    }
    const struct memory_disk_name *name = find_in(disk->names, from);
    if (name == NULL) {
        return fail(SL_ERR_NOT_FOUND, "No such file or directory", why);
    }
    sl_assert(folder_length(from) == folder_length(to));
    change(disk, from, to, name->node);
    return 0;
}

/* Whether the folder of that name is there, or would be there after some crash. */
static bool may_be_there(struct memory_disk *disk, const char *path)
{
    char folder[MEMORY_DISK_PATH];
    (void)snprintf(folder, sizeof folder, "%.*s", (int)folder_length(path), path);
    return folder[0] == '\0' || find_in(disk->names, folder) != NULL ||
           find_in(disk->synced, folder) != NULL;
}

/* What was in folders that are gone for good. */
static void forget_removed(struct memory_disk *disk)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < disk->change_count; i++) {
        const struct memory_disk_change *one = &disk->changes[i];
        if (may_be_there(disk, one->to[0] != '\0' ? one->to : one->from)) {
            disk->changes[kept++] = *one;
        }
    }
    disk->change_count = kept;
    for (uint32_t i = 0; i < MEMORY_DISK_NODES; i++) {
        if (disk->synced[i].path[0] != '\0' && !may_be_there(disk, disk->synced[i].path)) {
            disk->synced[i].path[0] = '\0';
        }
    }
}

static int memory_sync_folder(void *ctx, const char *path, char *why)
{
    struct memory_disk *disk = ctx;
    uint32_t kept = 0;
    bool stops;
    int err = begin(disk, &stops, why);
    if (err != 0) {
        return err;
    }
    if (find_in(disk->names, path) == NULL) {
        return fail(SL_ERR_NOT_FOUND, "No such file or directory", why);
    }
    for (uint32_t i = 0; i < disk->change_count; i++) {
        const struct memory_disk_change *one = &disk->changes[i];
        if (is_in(one->to[0] != '\0' ? one->to : one->from, path)) {
            apply(disk->synced, one);
        } else {
            disk->changes[kept++] = *one;
        }
    }
    disk->change_count = kept;
    forget_removed(disk);
    return 0;
}

static int memory_make_folder(void *ctx, const char *path, char *why)
{
    struct memory_disk *disk = ctx;
    bool stops;
    int err = begin(disk, &stops, why);
    if (err != 0) {
        return err;
    }
    if (find_in(disk->names, path) != NULL) {
        return fail(SL_ERR_EXISTS, "File exists", why);
    }
    if (!folder_is_there(disk, path)) {
        return fail(SL_ERR_NOT_FOUND, "No such file or directory", why);
    }
    change(disk, "", path, add_node(disk, true));
    return 0;
}

static int memory_remove(void *ctx, const char *path, char *why)
{
    struct memory_disk *disk = ctx;
    bool stops;
    int err = begin(disk, &stops, why);
    if (err == 0 && find_in(disk->names, path) == NULL) {
        err = fail(SL_ERR_NOT_FOUND, "No such file or directory", why);
    }
    if (err == 0) {
        change(disk, path, "", 0);
    }
    return err;
}

static int memory_remove_folder(void *ctx, const char *path, char *why)
{
    struct memory_disk *disk = ctx;
    for (uint32_t i = 0; !disk->stopped && i < MEMORY_DISK_NODES; i++) {
        if (disk->names[i].path[0] != '\0' && is_in(disk->names[i].path, path)) {
            return fail(SL_ERR_EXISTS, "Directory not empty", why);
        }
    }
    return memory_remove(ctx, path, why);
}

static int memory_list(void *ctx, const char *path, struct sl_disk_names *out, char *why)
{
    struct memory_disk *disk = ctx;
    bool stops;
    int err = begin(disk, &stops, why);
    if (err == 0 && find_in(disk->names, path) == NULL) {
        err = fail(SL_ERR_NOT_FOUND, "No such file or directory", why);
    }
    for (uint32_t i = 0; err == 0 && i < MEMORY_DISK_NODES; i++) {
        const struct memory_disk_name *name = &disk->names[i];
        if (name->path[0] != '\0' && is_in(name->path, path)) {
            err = sl_disk_names_add(out, strrchr(name->path, '/') + 1,
                                    disk->nodes[name->node].is_folder, why);
        }
    }
    return err;
}

static const struct sl_disk_ops memory_ops = {
    .open = memory_open,
    .write = memory_write,
    .read = memory_read,
    .size = memory_size,
    .sync = memory_sync,
    .close = memory_close,
    .rename = memory_rename,
    .sync_directory = memory_sync_folder,
    .make_subdir = memory_make_folder,
    .remove = memory_remove,
    .remove_subdir = memory_remove_folder,
    .list = memory_list,
};

void memory_disk_init(struct memory_disk *disk)
{
    memset(disk, 0, sizeof *disk);
    disk->disk = (struct sl_disk){.ops = &memory_ops, .ctx = disk};
    disk->fail_at = MEMORY_DISK_NEVER;
    disk->short_read_at = MEMORY_DISK_NEVER;
    disk->stop_at = MEMORY_DISK_NEVER;
    disk->bytes_left = UINT64_MAX;
    const uint32_t node = add_node(disk, true);
    put_name(disk->names, "/c", node);
    put_name(disk->synced, "/c", node);
}

void memory_disk_fini(struct memory_disk *disk)
{
    for (uint32_t i = 0; i < disk->node_count; i++) {
        free(disk->nodes[i].bytes);
    }
    disk->node_count = 0;
}

/* What a crash leaves of bytes that were not synced. */
static void tear(struct memory_disk_node *node, uint64_t *random)
{
    const size_t loose = node->count - node->synced;
    const size_t kept = (size_t)(sl_hash_random(random) % (loose + 1));
    const bool garbled = (sl_hash_random(random) & 1) != 0;
    for (size_t i = node->synced; garbled && i < node->synced + kept; i++) {
        node->bytes[i] = (sl_hash_random(random) & 3) == 0 ? 0 : node->bytes[i];
    }
    node->count = node->synced + kept;
    node->synced = node->count;
}

/* Names in folders that are not there are not there either. */
static void drop_orphans(struct memory_disk *disk)
{
    for (uint32_t depth = 0; depth < 4; depth++) {
        for (uint32_t i = 0; i < MEMORY_DISK_NODES; i++) {
            char *path = disk->names[i].path;
            if (path[0] != '\0' && folder_length(path) != 0 && !folder_is_there(disk, path)) {
                path[0] = '\0';
            }
        }
    }
}

void memory_disk_restart(struct memory_disk *disk, uint64_t seed)
{
    uint64_t random = seed;
    const uint64_t mode = sl_hash_random(&random) % 8; /* none, all, the first, else any */
    const uint64_t first = sl_hash_random(&random) % (disk->change_count + 1);
    for (uint32_t i = 0; i < disk->change_count; i++) {
        const bool any = (sl_hash_random(&random) & 1) != 0;
        if (mode == 1 || (mode == 2 && i < first) || (mode >= 3 && any)) {
            apply(disk->synced, &disk->changes[i]);
        }
    }
    disk->change_count = 0;
    memcpy(disk->names, disk->synced, sizeof disk->names);
    drop_orphans(disk);
    memcpy(disk->synced, disk->names, sizeof disk->names);
    for (uint32_t i = 0; i < disk->node_count; i++) {
        tear(&disk->nodes[i], &random);
    }
    memory_disk_reopen(disk);
}

void memory_disk_reopen(struct memory_disk *disk)
{
    for (uint32_t i = 0; i < disk->node_count; i++) {
        disk->nodes[i].open = 0;
    }
    disk->open_files = 0;
    disk->stopped = false;
    disk->stop_at = MEMORY_DISK_NEVER;
    disk->fail_at = MEMORY_DISK_NEVER;
}

struct memory_disk_node *memory_disk_find(struct memory_disk *disk, const char *path)
{
    const struct memory_disk_name *name = find_in(disk->names, path);
    return name == NULL ? NULL : &disk->nodes[name->node];
}

void memory_disk_put(struct memory_disk *disk, const char *path, const void *bytes, size_t count)
{
    struct memory_disk_node *node = memory_disk_find(disk, path);
    if (node == NULL) {
        const uint32_t number = add_node(disk, false);
        put_name(disk->names, path, number);
        put_name(disk->synced, path, number);
        node = &disk->nodes[number];
    }
    node->count = 0;
    append(node, bytes, count);
    node->synced = count;
}
