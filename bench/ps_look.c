#include "bench/ps_look.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/log.h"

#define TEXT_BYTES 4096 /* no line of a log is as long */

static int read_status(const struct sl_bench_ps *ps, const char *name, uint64_t *bytes)
{
    char path[64], line[160];
    unsigned long long kib = 0;
    bool found = false;
    (void)snprintf(path, sizeof path, "/proc/%d/status", (int)sl_bench_ps_pid(ps));
    FILE *file = fopen(path, "re");
    while (file != NULL && !found && fgets(line, sizeof line, file) != NULL) {
        found = strncmp(line, name, strlen(name)) == 0 &&
                sscanf(line + strlen(name), ": %llu kB", &kib) == 1;
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    if (!found) {
        sl_log_error("%s: there is no %s", path, name);
        return SL_ERR_IO;
    }
    *bytes = kib * 1024;
    return 0;
}

int sl_bench_ps_look_memory(const struct sl_bench_ps *ps, struct sl_bench_ps_memory *out)
{
    struct sl_bench_ps_memory memory;
    int err = read_status(ps, "VmRSS", &memory.resident);
    err = err != 0 ? err : read_status(ps, "VmHWM", &memory.peak);
    if (err == 0) {
        *out = memory;
    }
    return err;
}

int sl_bench_ps_look_forget_peak(const struct sl_bench_ps *ps)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/clear_refs", (int)sl_bench_ps_pid(ps));
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    const bool done = fd >= 0 && write(fd, "5", 1) == 1;
    if (!done) {
        sl_log_error("%s: %s", path, strerror(errno));
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return done ? 0 : SL_ERR_IO;
}

/* Of the text of whole lines. */
static void count_stalls(const char *text, struct sl_bench_ps_stalls *stalls)
{
    static const char words[] = ": a turn took ";
    for (const char *at = strstr(text, words); at != NULL; at = strstr(at + 1, words)) {
        double ms = 0, longest_ms = 0;
        unsigned long long more = 0;
        if (sscanf(at + sizeof words - 1, "%lf ms, of which %*s %lf ms (%llu more", &ms,
                   &longest_ms, &more) >= 1) {
            stalls->count += 1 + more;
            stalls->longest_ms = ms > stalls->longest_ms ? ms : stalls->longest_ms;
        }
    }
}

struct sl_bench_ps_stalls sl_bench_ps_look_stalls(const struct sl_bench_ps *ps, uint64_t *at)
{
    struct sl_bench_ps_stalls stalls = {0};
    char text[TEXT_BYTES + 1];
    for (;;) {
        const ssize_t bytes = pread(sl_bench_ps_log_fd(ps), text, TEXT_BYTES, (off_t)*at);
        text[bytes > 0 ? bytes : 0] = '\0';
        char *end = strrchr(text, '\n');
        if (end == NULL) {
            return stalls; /* no whole line any more */
        }
        end[1] = '\0';
        count_stalls(text, &stalls);
        *at += (uint64_t)(end + 1 - text);
    }
}
