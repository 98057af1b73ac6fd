#include "serve/onnx_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "serve/engine/onnx.h"

static int fail_system(const char *path, struct sl_reason *reason)
{
    const int system_errno = errno;
    return sl_reason_fail(reason, sl_err_from_errno(system_errno), "%s: %s", path,
                          strerror(system_errno));
}

static int read_bytes(const char *path, const void *bytes, size_t count,
                      struct sl_graph_memory *memory, struct sl_graph *out,
                      struct sl_reason *reason)
{
    struct sl_reason why;
    /* The messages hold a copy of the bytes; f16 becomes twice as large; what is written is a copy
     * too. */
    sl_graph_memory_init(memory, (64U << 20) + 4 * count);
    const int err = sl_onnx_read(bytes, count, true, memory, out, &why);
    return err == 0 ? 0 : sl_reason_fail(reason, err, "%s: %s", path, why.text);
}

int sl_onnx_file_read(const char *path, struct sl_graph_memory *memory, struct sl_graph *out,
                      struct sl_reason *reason)
{
    struct stat status;
    sl_graph_memory_init(memory, 0);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return fail_system(path, reason);
    }
    int err = fstat(fd, &status) != 0 ? fail_system(path, reason) : 0;
    const size_t count = err == 0 ? (size_t)status.st_size : 0;
    if (err == 0 && (count == 0 || count > SL_ONNX_FILE_BYTES_MAX)) {
        err = sl_reason_fail(reason, SL_ERR_INVALID, "%s: a model has 1 to %d bytes, not %zu", path,
                             SL_ONNX_FILE_BYTES_MAX, count);
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
