/* The file-system mode: a version is a file with a name of its own, which appears by a rename, and
 * "latest" has the newest number. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/now.h"
#include "bench/staleness.h"

struct files {
    struct sl_bench_scratch scratch; /* trainer */
    uint64_t due_ns;                 /* worker: the last look */
    uint8_t *memory;
};

static int open_trainer(struct sl_bench_staleness *run)
{
    struct files *files = calloc(1, sizeof *files);
    run->state = files;
    const int err = files != NULL ? sl_bench_scratch_init(&files->scratch, run->options.dir,
                                                          run->options.trial_name)
                                  : SL_ERR_NO_MEMORY;
    if (err == 0) {
        (void)snprintf(run->place.text, sizeof run->place.text, "%s", files->scratch.path);
    }
    return err;
}

static void close_trainer(struct sl_bench_staleness *run)
{
    struct files *files = run->state;
    if (files != NULL) {
        sl_bench_scratch_fini(&files->scratch);
    }
    free(files);
}

static void path_of(const struct sl_bench_staleness *run, uint64_t version, char path[1100])
{
    (void)snprintf(path, 1100, "%s/%" PRIu64, run->place.text, version);
}

static int write_file(const char *path, const void *bytes, size_t count)
{
    char temporary[1110];
    (void)snprintf(temporary, sizeof temporary, "%s.tmp", path);
    const int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    bool is_written = fd >= 0;
    for (size_t at = 0; is_written && at < count;) {
        const ssize_t wrote = write(fd, (const uint8_t *)bytes + at, count - at);
        is_written = wrote > 0;
        at += wrote > 0 ? (size_t)wrote : 0;
    }
    is_written = is_written && rename(temporary, path) == 0;
    if (!is_written) {
        sl_log_error("%s cannot be written: %s", path, strerror(errno));
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return is_written ? 0 : SL_ERR_IO;
}

static int push(struct sl_bench_staleness *run, uint64_t version)
{
    char path[1100], number[32];
    path_of(run, version, path);
    int err = write_file(path, run->memories[version % SL_BENCH_STALENESS_KEPT], run->bytes);
    run->sent_bytes += run->bytes;
    const int length = snprintf(number, sizeof number, "%" PRIu64, version);
    (void)snprintf(path, sizeof path, "%s/latest", run->place.text);
    err = err != 0 ? err : write_file(path, number, (size_t)length);
    if (version > SL_BENCH_STALENESS_KEPT) {
        path_of(run, version - SL_BENCH_STALENESS_KEPT, path);
        (void)unlink(path);
    }
    return err;
}

static int open_worker(struct sl_bench_staleness *run)
{
    struct files *files = calloc(1, sizeof *files);
    run->state = files;
    if (files != NULL) {
        files->memory = malloc(run->bytes);
    }
    return files != NULL && files->memory != NULL ? 0 : SL_ERR_NO_MEMORY;
}

/* Returns the number of bytes; -1: there is no such file. */
static ssize_t read_file(const char *path, void *to, size_t bytes)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : 0, more = 1;
    while (fd >= 0 && more > 0 && (size_t)got < bytes) {
        more = read(fd, (uint8_t *)to + got, bytes - (size_t)got);
        got += more > 0 ? more : 0;
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return got;
}

static int pull(struct sl_bench_staleness *run, uint64_t above, uint64_t *version,
                const uint8_t **memory)
{
    struct files *files = run->state;
    char path[1100], number[32];
    for (;;) {
        sl_bench_staleness_sleep(run, &files->due_ns);
        uint64_t newest = 0, now = above;
        /* A version that is gone by now has successors. */
        do {
            (void)snprintf(path, sizeof path, "%s/latest", run->place.text);
            const ssize_t length = read_file(path, number, sizeof number - 1);
            newest = now;
            number[length > 0 ? length : 0] = '\0';
            now = strtoull(number, NULL, 10);
            path_of(run, now, path);
            if (now > above && read_file(path, files->memory, run->bytes) == (ssize_t)run->bytes) {
                *version = now;
                *memory = files->memory;
                return 0;
            }
        } while (now > newest);
    }
}

const struct sl_bench_staleness_mode sl_bench_staleness_files = {
    .name = "filesystem",
    .open_trainer = open_trainer,
    .push = push,
    .close_trainer = close_trainer,
    .open_worker = open_worker,
    .pull = pull,
};
