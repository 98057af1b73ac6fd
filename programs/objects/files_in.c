#include "programs/objects/files_in.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/array.h"
#include "core/log.h"
#include "objects/catalogue/manifest.h"
#include "programs/safetensors/safetensors.h"

#define ALIGNMENT  64 /* of tensors in an image */
#define TYPE(name) [SL_OBJECT_##name] = #name
static const char *const types[] = {
    TYPE(BOOL), TYPE(U8),      TYPE(I8),      TYPE(U16),     TYPE(I16),         TYPE(U32),
    TYPE(I32),  TYPE(U64),     TYPE(I64),     TYPE(F16),     TYPE(BF16),        TYPE(F32),
    TYPE(F64),  TYPE(F8_E4M3), TYPE(F8_E5M2), TYPE(F8_E8M0), TYPE(F8_E4M3FNUZ), TYPE(F8_E5M2FNUZ),
    TYPE(C64),  TYPE(F4),      TYPE(F6_E2M3), TYPE(F6_E3M2)};
#define TYPES (sizeof types / sizeof types[0])

const char *sl_files_in_type_name(uint32_t type)
{
    return type < TYPES ? types[type] : "unknown";
}

static uint64_t padded(uint64_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* Appends a tensor; its name, prefix and name together, and its path are copied. */
static int files_in_append(struct sl_files_in *files, const struct sl_files_in_tensor *item,
                           const char *prefix, const char *name, struct sl_reason *reason)
{
    const size_t path_bytes = strlen(item->path) + 1;
    const size_t name_bytes = strlen(prefix) + strlen(name) + 1;
    char *text = malloc(path_bytes + name_bytes);
    if (text == NULL ||
        !sl_array_make_room(&files->items, &files->capacity, files->count, sizeof *files->items)) {
        free(text);
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "no memory");
    }
    memcpy(text, item->path, path_bytes);
    (void)snprintf(text + path_bytes, name_bytes, "%s%s", prefix, name);
    struct sl_files_in_tensor *copy = &files->items[files->count++];
    *copy = *item;
    copy->path = text;
    copy->tensor.name = text + path_bytes;
    files->bytes = padded(files->bytes) + item->tensor.bytes;
    return 0;
}

/* The first bytes of a file: all, or the head. */
static int append_file(struct sl_files_in *files, const char *path, const char *inner,
                       uint64_t bytes, struct sl_reason *reason)
{
    const struct sl_files_in_tensor item = {
        .path = path,
        .tensor = {.type = SL_OBJECT_U8, .rank = 1, .shape = {bytes}, .bytes = bytes}};
    files->file_count++;
    return files_in_append(files, &item, SL_FILES_IN_PREFIX, inner, reason);
}

static int append_tensor(struct sl_files_in *files, const char *path,
                         const struct sl_tensor *tensor, struct sl_reason *reason)
{
    uint32_t type = 0;
    while (type < TYPES && strcmp(types[type], tensor->type_name) != 0) {
        type++;
    }
    uint64_t bytes;
    const bool is_typed = sl_objects_tensor_bytes(type, tensor->rank, tensor->shape, &bytes) &&
                          bytes == tensor->bytes;
    if (!is_typed || strncmp(tensor->name, SL_FILES_IN_PREFIX, strlen(SL_FILES_IN_PREFIX)) == 0) {
        return sl_reason_fail(reason, SL_ERR_INVALID,
                              "%s: \"%s\": objects do not accept %s %s: put the file with --bytes",
                              path, tensor->name,
                              is_typed       ? "a name that begins with"
                              : type < TYPES ? "a shape with so many bytes of the type"
                                             : "the type",
                              is_typed ? SL_FILES_IN_PREFIX : tensor->type_name);
    }
    struct sl_files_in_tensor item = {
        .path = path,
        .at = tensor->at,
        .tensor = {.type = type, .rank = tensor->rank, .bytes = tensor->bytes}};
    memcpy(item.tensor.shape, tensor->shape, sizeof tensor->shape);
    return files_in_append(files, &item, "", tensor->name, reason);
}

static int append_tensors(struct sl_files_in *files, const char *path, const char *inner,
                          uint64_t file_bytes, struct sl_reason *reason)
{
    struct sl_safetensors from;
    int err = sl_safetensors_open(path, &from, reason);
    if (err != 0) {
        return err;
    }
    err = append_file(files, path, inner,
                      from.tensors.count > 0 ? from.tensors.items[0].at : file_bytes, reason);
    for (uint32_t i = 0; err == 0 && i < from.tensors.count; i++) {
        err = append_tensor(files, path, &from.tensors.items[i], reason);
    }
    sl_safetensors_close(&from);
    return err;
}

static bool has_ending(const char *path, const char *ending)
{
    const size_t length = strlen(path), ending_length = strlen(ending);
    return length >= ending_length && strcmp(path + length - ending_length, ending) == 0;
}

/* Length of the file, by reading it: files of /proc and /sys report none, or a page. */
static int count_bytes(const char *path, uint64_t *bytes, struct sl_reason *reason)
{
    static char chunk[1U << 16];
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = file < 0 ? -1 : 1;
    *bytes = 0;
    while (got > 0 || (got < 0 && file >= 0 && errno == EINTR)) {
        got = pread(file, chunk, sizeof chunk, (off_t)*bytes);
        *bytes += got > 0 ? (uint64_t)got : 0;
    }
    const int cause = errno;
    (void)close(file);
    return got == 0
               ? 0
               : sl_reason_fail(reason, SL_ERR_IO, "cannot read %s: %s", path, strerror(cause));
}

static int add_file(struct sl_files_in *files, const FTSENT *entry, size_t root_length,
                    bool as_bytes, struct sl_reason *reason)
{
    uint64_t bytes = (uint64_t)entry->fts_statp->st_size;
    const int err =
        entry->fts_statp->st_blocks > 0 ? 0 : count_bytes(entry->fts_path, &bytes, reason);
    if (err != 0) {
        return err;
    }
    const char *inner = entry->fts_path + root_length;
    if (entry->fts_level == FTS_ROOTLEVEL) {
        const char *slash = strrchr(entry->fts_path, '/');
        inner = slash == NULL ? entry->fts_path : slash;
    }
    inner += strspn(inner, "/");
    return !as_bytes && has_ending(inner, ".safetensors")
               ? append_tensors(files, entry->fts_path, inner, bytes, reason)
               : append_file(files, entry->fts_path, inner, bytes, reason);
}

static int files_in_by_name(const FTSENT **one, const FTSENT **other)
{
    return strcmp((*one)->fts_name, (*other)->fts_name);
}

int sl_files_in_add(struct sl_files_in *files, const char *path, bool as_bytes,
                    struct sl_reason *reason)
{
    char *const roots[] = {(char *)path, NULL};
    FTS *walk = fts_open(roots, FTS_LOGICAL | FTS_NOCHDIR, files_in_by_name);
    FTSENT *entry;
    int cause;
    int err = walk == NULL
                  ? sl_reason_fail(reason, SL_ERR_IO, "cannot read %s: %s", path, strerror(errno))
                  : 0;
    while (err == 0 && (entry = fts_read(walk)) != NULL) {
        entry->fts_parent->fts_number++; /* 0 of an empty directory */
        switch (entry->fts_info) {
        case FTS_F:
            err = add_file(files, entry, strlen(path), as_bytes, reason);
            break;
        case FTS_D:
            break;
        case FTS_DP:
            if (entry->fts_number == 0) {
                sl_log_warn("%s is empty: objects keep files only", entry->fts_path);
            }
            break;
        case FTS_DC:
        case FTS_DEFAULT:
            err = sl_reason_fail(reason, SL_ERR_INVALID,
                                 "%s is neither a file nor a directory, or leads back to itself",
                                 entry->fts_path);
            break;
        default:
            cause = entry->fts_errno == 0 ? ENOENT : entry->fts_errno; /* 0: of a dangling link */
            err = sl_reason_fail(reason, cause == ENOENT ? SL_ERR_NOT_FOUND : SL_ERR_IO,
                                 "cannot read %s: %s", entry->fts_path, strerror(cause));
        }
    }
    if (walk != NULL) {
        (void)fts_close(walk);
    }
    return err;
}

static int read_item(const struct sl_files_in_tensor *item, int file, uint8_t *to,
                     struct sl_reason *reason)
{
    for (uint64_t done = 0; done < item->tensor.bytes;) {
        const ssize_t got =
            pread(file, to + done, item->tensor.bytes - done, (off_t)(item->at + done));
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return sl_reason_fail(reason, SL_ERR_IO, "cannot read %s: %s", item->path,
                                  strerror(errno));
        }
        if (got == 0) {
            return sl_reason_fail(reason, SL_ERR_CORRUPT, "%s became shorter while it was read",
                                  item->path);
        }
        done += (uint64_t)got;
    }
    return 0;
}

/* The file ends behind its last item. */
static int check_end(const struct sl_files_in_tensor *last, int file, struct sl_reason *reason)
{
    char more;
    return pread(file, &more, 1, (off_t)(last->at + last->tensor.bytes)) <= 0
               ? 0
               : sl_reason_fail(reason, SL_ERR_CORRUPT, "%s became longer while it was read",
                                last->path);
}

uint8_t *sl_files_in_map(uint64_t bytes, struct sl_reason *reason)
{
    void *base = mmap(NULL, bytes + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) {
        sl_reason_set(reason, "no memory for %" PRIu64 " bytes", bytes);
        return NULL;
    }
    return base;
}

void sl_files_in_unmap(uint8_t *base, uint64_t bytes)
{
    if (base != NULL) {
        (void)munmap(base, bytes + 1);
    }
}

int sl_files_in_read(struct sl_files_in *files, struct sl_reason *reason)
{
    const char *path = NULL;
    int file = -1, err = 0;
    uint64_t at = 0;
    files->base = sl_files_in_map(files->bytes, reason);
    if (files->base == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; err == 0 && i < files->count; i++) {
        struct sl_files_in_tensor *item = &files->items[i];
        if (path == NULL || strcmp(item->path, path) != 0) {
            path = item->path;
            (void)close(file);
            file = open(path, O_RDONLY | O_CLOEXEC);
        }
        at = padded(at);
        item->tensor.data = files->base + at;
        err = file < 0
                  ? sl_reason_fail(reason, SL_ERR_IO, "cannot open %s: %s", path, strerror(errno))
                  : read_item(item, file, files->base + at, reason);
        const bool is_last = i + 1 == files->count || strcmp(item[1].path, path) != 0;
        err = err == 0 && is_last ? check_end(item, file, reason) : err;
        at += item->tensor.bytes;
    }
    (void)close(file);
    return err;
}

void sl_files_in_fini(struct sl_files_in *files)
{
    for (uint32_t i = 0; i < files->count; i++) {
        free((void *)files->items[i].path);
    }
    free(files->items);
    sl_files_in_unmap(files->base, files->bytes);
    *files = (struct sl_files_in){0};
}
