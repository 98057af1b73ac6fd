#include "programs/ckpt/tensor_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "core/assert.h"
#include "core/end_signals.h"
#include "programs/ckpt/npz.h"
#include "programs/safetensors/safetensors.h"

#define RUN_BYTES  (256U << 10) /* adjacent pieces are written together */
#define RUNS       16
#define PATH_BYTES 1024

/* Buffered data of a tensor. */
struct run {
    uint32_t tensor;
    uint64_t first;
    size_t bytes;
    uint8_t *held; /* [RUN_BYTES]; NULL: not allocated */
};

struct sl_tensor_writer {
    enum sl_tensor_writer_format format;
    struct sl_tensors *tensors;
    int fd;
    bool replace;
    uint64_t end; /* of the last tensor */
    struct run runs[RUNS];
    char path[PATH_BYTES];
    char part[PATH_BYTES + 8];
};

bool sl_tensor_writer_format_of(const char *path, enum sl_tensor_writer_format *out)
{
    const char *dot = strrchr(path, '.');
    if (dot != NULL && strcmp(dot, ".safetensors") == 0) {
        *out = SL_TENSOR_WRITER_SAFETENSORS;
        return true;
    }
    if (dot != NULL && strcmp(dot, ".npz") == 0) {
        *out = SL_TENSOR_WRITER_NPZ;
        return true;
    }
    return false;
}

static int tensor_writer_refuse(const struct sl_tensor_writer *archive, const char *what,
                                struct sl_reason *reason)
{
    const int said = errno;
    return sl_reason_fail(reason, SL_ERR_IO, "cannot %s %s: %s", what, archive->path,
                          strerror(said));
}

static int tensor_writer_no_memory(struct sl_reason *reason)
{
    return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "no memory");
}

static int write_at(struct sl_tensor_writer *archive, uint64_t at, const void *from, size_t bytes,
                    struct sl_reason *reason)
{
    const uint8_t *next = from;
    while (bytes > 0) {
        ssize_t done = pwrite(archive->fd, next, bytes, (off_t)at);
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done <= 0) {
            return tensor_writer_refuse(archive, "write", reason);
        }
        next += done;
        at += (uint64_t)done;
        bytes -= (size_t)done;
    }
    return 0;
}

static int open_part(struct sl_tensor_writer *archive, struct sl_reason *reason)
{
    (void)snprintf(archive->part, sizeof archive->part, "%s.part", archive->path);
    if (!archive->replace && access(archive->path, F_OK) == 0) {
        return sl_reason_fail(reason, SL_ERR_EXISTS,
                              "%s is there already; --replace writes over it", archive->path);
    }
    (void)unlink(archive->part);
    archive->fd = open(archive->part, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    return archive->fd < 0 ? tensor_writer_refuse(archive, "create", reason) : 0;
}

/* Sets offsets and writes the header. The zip's headers are written at the end, since they contain
 * checksums. */
static int begin(struct sl_tensor_writer *archive, const json_t *metadata, struct sl_reason *reason)
{
    char *head;
    size_t bytes;
    if (archive->format == SL_TENSOR_WRITER_NPZ) {
        archive->end = sl_npz_layout(archive->tensors);
    } else {
        int err = sl_safetensors_head(archive->tensors, metadata, &head, &bytes, reason);
        if (err != 0) {
            return err;
        }
        archive->end = bytes;
        for (uint32_t i = 0; i < archive->tensors->count; i++) {
            archive->end += archive->tensors->items[i].bytes;
        }
        err = write_at(archive, 0, head, bytes, reason);
        free(head);
        if (err != 0) {
            return err;
        }
    }
    /* Unwritten bytes are zero. */
    return ftruncate(archive->fd, (off_t)archive->end) == 0
               ? 0
               : tensor_writer_refuse(archive, "write", reason);
}

int sl_tensor_writer_create(const char *path, enum sl_tensor_writer_format format, bool replace,
                            struct sl_tensors *tensors, const json_t *metadata,
                            struct sl_tensor_writer **out, struct sl_reason *reason)
{
    if (strlen(path) >= PATH_BYTES) {
        return sl_reason_fail(reason, SL_ERR_TOO_LARGE, "the path of the file is too long");
    }
    struct sl_tensor_writer *archive = calloc(1, sizeof *archive);
    if (archive == NULL) {
        return tensor_writer_no_memory(reason);
    }
    archive->format = format;
    archive->replace = replace;
    archive->tensors = tensors;
    (void)snprintf(archive->path, sizeof archive->path, "%s", path);
    int err = open_part(archive, reason);
    if (err != 0) {
        free(archive);
        return err;
    }
    err = begin(archive, metadata, reason);
    if (err != 0) {
        sl_tensor_writer_abandon(&archive);
        return err;
    }
    *out = archive;
    return 0;
}

static int tensor_writer_flush(struct sl_tensor_writer *archive, struct run *run,
                               struct sl_reason *reason)
{
    const uint64_t at = archive->tensors->items[run->tensor].at + run->first;
    int err = write_at(archive, at, run->held, run->bytes, reason);
    run->bytes = 0;
    return err;
}

int sl_tensor_writer_write(struct sl_tensor_writer *archive, uint32_t tensor, uint64_t first,
                           const void *from, size_t bytes, struct sl_reason *reason)
{
    struct run *run = &archive->runs[tensor % RUNS];
    sl_assert(tensor < archive->tensors->count);
    sl_assert(first <= archive->tensors->items[tensor].bytes);
    sl_assert(bytes <= archive->tensors->items[tensor].bytes - first);
    const bool adjoins = run->tensor == tensor && run->first + run->bytes == first &&
                         bytes <= RUN_BYTES - run->bytes;
    if (run->bytes != 0 && !adjoins) {
        int err = tensor_writer_flush(archive, run, reason);
        if (err != 0) {
            return err;
        }
    }
    if (bytes > RUN_BYTES) {
        return write_at(archive, archive->tensors->items[tensor].at + first, from, bytes, reason);
    }
    if (run->held == NULL && (run->held = malloc(RUN_BYTES)) == NULL) {
        return tensor_writer_no_memory(reason);
    }
    if (run->bytes == 0) {
        run->tensor = tensor;
        run->first = first;
    }
    memcpy(run->held + run->bytes, from, bytes);
    run->bytes += bytes;
    return 0;
}

/* Computes the CRC-32 of the npy header and the data in the file. */
static int sum(struct sl_tensor_writer *archive, const struct sl_tensor *tensor, uint8_t *buffer,
               uint32_t *crc, struct sl_reason *reason)
{
    uint8_t head[512];
    const size_t head_bytes = sl_npz_array_head(tensor, head);
    uLong all = crc32_z(crc32_z(0, NULL, 0), head, head_bytes);
    for (uint64_t done = 0; done < tensor->bytes;) {
        const uint64_t left = tensor->bytes - done;
        const size_t asked = left < RUN_BYTES ? (size_t)left : RUN_BYTES;
        ssize_t got = pread(archive->fd, buffer, asked, (off_t)(tensor->at + done));
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            errno = got < 0 ? errno : EIO;
            return tensor_writer_refuse(archive, "read", reason);
        }
        all = crc32_z(all, buffer, (size_t)got);
        done += (uint64_t)got;
        const int err = sl_end_signals_check(reason);
        if (err != 0) {
            return err;
        }
    }
    *crc = (uint32_t)all;
    return 0;
}

static int end_zip(struct sl_tensor_writer *archive, uint32_t *crcs, uint8_t *buffer,
                   struct sl_reason *reason)
{
    const struct sl_tensors *tensors = archive->tensors;
    uint8_t head[SL_NPZ_HEAD_BYTES_MAX];
    size_t bytes;
    for (uint32_t i = 0; i < tensors->count; i++) {
        const struct sl_tensor *tensor = &tensors->items[i];
        int err = sum(archive, tensor, buffer, &crcs[i], reason);
        if (err != 0) {
            return err;
        }
        bytes = sl_npz_head(tensor, crcs[i], head);
        err = write_at(archive, tensor->at - bytes, head, bytes, reason);
        if (err != 0) {
            return err;
        }
    }
    uint8_t *directory = sl_npz_directory(tensors, crcs, archive->end, &bytes);
    if (directory == NULL) {
        return tensor_writer_no_memory(reason);
    }
    int err = write_at(archive, archive->end, directory, bytes, reason);
    free(directory);
    return err;
}

static int end(struct sl_tensor_writer *archive, struct sl_reason *reason)
{
    int err = 0;
    for (uint32_t i = 0; err == 0 && i < RUNS; i++) {
        if (archive->runs[i].bytes != 0) {
            err = tensor_writer_flush(archive, &archive->runs[i], reason);
        }
    }
    if (err == 0 && archive->format == SL_TENSOR_WRITER_NPZ) {
        uint32_t *crcs = calloc(archive->tensors->count + 1, sizeof *crcs);
        uint8_t *buffer = malloc(RUN_BYTES);
        err = crcs == NULL || buffer == NULL ? tensor_writer_no_memory(reason)
                                             : end_zip(archive, crcs, buffer, reason);
        free(crcs);
        free(buffer);
    }
    return err;
}

static int sync_directory(const struct sl_tensor_writer *archive, struct sl_reason *reason)
{
    char path[PATH_BYTES];
    (void)snprintf(path, sizeof path, "%s", archive->path);
    int fd = open(dirname(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool done = fd >= 0 && (fsync(fd) == 0 || errno == EINVAL);
    int err = done ? 0 : tensor_writer_refuse(archive, "sync the directory of", reason);
    if (fd >= 0) {
        (void)close(fd);
    }
    return err;
}

static void free_archive(struct sl_tensor_writer **archive)
{
    for (uint32_t i = 0; i < RUNS; i++) {
        free((*archive)->runs[i].held);
    }
    free(*archive);
    *archive = NULL;
}

int sl_tensor_writer_finish(struct sl_tensor_writer **archive, struct sl_reason *reason)
{
    struct sl_tensor_writer *self = *archive;
    int err = end(self, reason);
    if (err == 0 && fsync(self->fd) != 0) {
        err = tensor_writer_refuse(self, "sync", reason);
    }
    if (err == 0 && rename(self->part, self->path) != 0) {
        err = tensor_writer_refuse(self, "give its name to", reason);
    }
    if (err != 0) {
        sl_tensor_writer_abandon(archive);
        return err;
    }
    (void)close(self->fd);
    err = sync_directory(self, reason);
    free_archive(archive);
    return err;
}

void sl_tensor_writer_abandon(struct sl_tensor_writer **archive)
{
    if (*archive == NULL) {
        return;
    }
    (void)close((*archive)->fd);
    (void)unlink((*archive)->part);
    free_archive(archive);
}
