#include "programs/serve/onnx_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/file_kind.h"
#include "core/key_index.h"
#include "programs/serve/engine/onnx.h"

static int fail_system(const char *path, struct sl_reason *reason)
{
    const int system_errno = errno;
    return sl_reason_fail(reason, sl_err_from_errno(system_errno), "%s: %s", path,
                          strerror(system_errno));
}

/* Opens a regular file; beneath a folder, also after links have been followed, unless the folder is
 * AT_FDCWD. Errors: INVALID, those of the system; no descriptor is left. */
static int onnx_file_open_file(int folder, const char *path, int *fd, struct stat *status,
                               struct sl_reason *reason)
{
    const struct open_how how = {.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK, /* for a pipe */
                                 .resolve = RESOLVE_BENEATH};
    *fd = folder == AT_FDCWD ? open(path, (int)how.flags)
                             : (int)syscall(SYS_openat2, folder, path, &how, sizeof how);
    if (*fd < 0 && errno == EXDEV) {
        return sl_reason_fail(reason, SL_ERR_INVALID,
                              "%s leads out of the model's folder: accepted is a path in it", path);
    }
    int err = *fd < 0 || fstat(*fd, status) != 0 ? fail_system(path, reason) : 0;
    if (err == 0 && !S_ISREG(status->st_mode)) {
        err = sl_reason_fail(reason, SL_ERR_INVALID, "%s: not a regular file", path);
    }
    if (err != 0 && *fd >= 0) {
        (void)close(*fd);
    }
    return err;
}

/* The files with tensors beside a model. */
struct beside {
    int folder; /* of the model */
    struct sl_graph_memory *memory;
    struct sl_key_index seen; /* inodes: each file adds its bytes to the memory's limit once */
};

static int read_beside(void *context, const char *location, uint64_t offset, size_t bytes,
                       const void **data, struct sl_reason *reason)
{
    struct beside *beside = context;
    char begin[SL_FILE_KIND_BYTES];
    uint64_t number;
    struct stat status;
    int fd;
    int err = onnx_file_open_file(beside->folder, location, &fd, &status, reason);
    if (err != 0) {
        return err;
    }
    const uint64_t size = (uint64_t)status.st_size, seen_before = beside->seen.count;
    if (sl_key_index_add(&beside->seen, status.st_ino, &number) == 0 && number == seen_before) {
        beside->memory->bytes_left += 4 * size; /* as of the model itself */
    }
    const bool is_inside = offset <= size && bytes <= size - offset;
    uint8_t *to = is_inside ? sl_graph_memory_take(beside->memory, bytes, 1) : NULL;
    if (!is_inside) {
        const ssize_t got = pread(fd, begin, sizeof begin, 0);
        const char *kind = sl_file_kind_explain(begin, got > 0 ? (size_t)got : 0);
        err = sl_reason_fail(
            reason, SL_ERR_INVALID, "%zu bytes at %" PRIu64 " of %s, which has %" PRIu64 "%s%s",
            bytes, offset, location, size, kind != NULL ? ": " : "", kind != NULL ? kind : "");
    } else if (to == NULL) {
        err = sl_reason_fail(reason, SL_ERR_NO_MEMORY, "no memory, or tensors share bytes of %s",
                             location);
    }
    for (size_t at = 0; err == 0 && at < bytes;) {
        const ssize_t got = pread(fd, to + at, bytes - at, (off_t)(offset + at));
        errno = got == 0 ? EIO : errno;
        err = got <= 0 ? fail_system(location, reason) : 0;
        at += got > 0 ? (size_t)got : 0;
    }
    (void)close(fd);
    *data = to;
    return err;
}

static int read_bytes(const char *path, const void *bytes, size_t count,
                      struct sl_graph_memory *memory, struct sl_graph *out,
                      struct sl_reason *reason)
{
    struct sl_reason why;
    const char *slash = strrchr(path, '/');
    char folder[PATH_MAX];
    (void)snprintf(folder, sizeof folder, "%.*s.", slash != NULL ? (int)(slash - path) + 1 : 0,
                   path);
    struct beside beside = {.folder = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC),
                            .memory = memory};
    const struct sl_onnx_files files = {.read = read_beside, .context = &beside};
    /* The messages hold a copy of the bytes; f16 becomes twice as large; what is written is a copy
     * too. */
    sl_graph_memory_init(memory, (64U << 20) + 4 * count);
    const int err = sl_onnx_read(bytes, count, true, &files, memory, out, &why);
    const char *kind = err == SL_ERR_INVALID ? sl_file_kind_explain(bytes, count) : NULL;
    sl_key_index_fini(&beside.seen);
    (void)close(beside.folder);
    return err == 0 ? 0
                    : sl_reason_fail(reason, err, "%s: %s", path, kind != NULL ? kind : why.text);
}

int sl_onnx_file_read(const char *path, struct sl_graph_memory *memory, struct sl_graph *out,
                      struct sl_reason *reason)
{
    int fd;
    struct stat status;
    sl_graph_memory_init(memory, 0);
    int err = onnx_file_open_file(AT_FDCWD, path, &fd, &status, reason);
    if (err != 0) {
        return err;
    }
    const uint64_t count = (uint64_t)status.st_size;
    if (count == 0 || count > SL_ONNX_FILE_BYTES_MAX) {
        err = sl_reason_fail(
            reason, SL_ERR_INVALID, "%s: a model has 1 to %d bytes, not %" PRIu64 "%s", path,
            SL_ONNX_FILE_BYTES_MAX, count,
            count == 0 ? ": the file is empty" : ": save larger weights as external data");
    }
    void *bytes = err == 0 ? mmap(NULL, count, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    if (err == 0 && bytes == MAP_FAILED) {
        err = fail_system(path, reason);
    } else if (err == 0) {
        err = read_bytes(path, bytes, count, memory, out, reason);
        (void)munmap(bytes, count);
    }
    (void)close(fd);
    return err;
}

int sl_onnx_file_write(const char *path, const struct sl_graph *graph,
                       struct sl_graph_memory *memory, struct sl_reason *reason)
{
    uint8_t *bytes;
    size_t count;
    char *beside = NULL;
    int err = sl_onnx_write(graph, true, memory, &bytes, &count);
    if (err != 0 || asprintf(&beside, "%s.new", path) < 0) {
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "%s: no memory to write it", path);
    }
    if (count > SL_ONNX_FILE_BYTES_MAX) {
        err = sl_reason_fail(reason, SL_ERR_TOO_LARGE, "%s: would have %zu bytes, above %d", path,
                             count, SL_ONNX_FILE_BYTES_MAX);
    } else {
        FILE *file = fopen(beside, "wbe");
        const bool is_written = file != NULL && fwrite(bytes, 1, count, file) == count;
        const bool is_closed = file != NULL && fclose(file) == 0;
        if (!is_written || !is_closed || rename(beside, path) != 0) {
            err = fail_system(path, reason);
            (void)unlink(beside);
        }
    }
    free(beside);
    return err;
}
