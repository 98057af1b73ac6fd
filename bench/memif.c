#include "bench/memif.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/child.h"
#include "core/log.h"

#define PROGRAM   "starling-bare-memif"
#define START_MS  30000
#define ARGUMENTS 10U

static const char *const PARTS[] = {
    [SL_BENCH_MEMIF_STREAM] = "stream",
    [SL_BENCH_MEMIF_MOVED] = "moved",
    [SL_BENCH_MEMIF_TRIPS] = "trips",
    [SL_BENCH_MEMIF_RATE] = "rate",
};

bool sl_bench_memif_is_there(void)
{
    char path[SL_BENCH_PATH_BYTES];
    return sl_bench_child_beside(PROGRAM, path);
}

/* Lines of a name and a number. */
static int read_result(const char *text, struct sl_bench_memif_result *out)
{
    double seconds = 0, all = 0, least = 0;
    uint32_t count = 0;
    for (const char *line = text; line != NULL && *line != '\0'; line = strchr(line, '\n')) {
        char name[16];
        double value;
        line += *line == '\n';
        if (sscanf(line, "%15s %lf", name, &value) != 2) {
            continue;
        }
        if (strcmp(name, "seconds") == 0) {
            seconds = value;
        } else if (strcmp(name, "sender") == 0) {
            least = count++ == 0 || value < least ? value : least;
            all += value;
        } else if (strcmp(name, "p50") == 0) {
            out->p50_us = value;
        } else if (strcmp(name, "p99") == 0) {
            out->p99_us = value;
        }
    }
    if (seconds <= 0 || count == 0) {
        sl_log_error(PROGRAM " printed no figures");
        return SL_ERR_PROTOCOL;
    }
    out->frames_per_s = all / seconds;
    out->slowest_frames_per_s = least / seconds;
    return 0;
}

int sl_bench_memif_run(const struct sl_bench_memif *memif, const struct sl_bench_common *common,
                       struct sl_bench_memif_result *out)
{
    char path[SL_BENCH_PATH_BYTES], numbers[ARGUMENTS][32], *text = NULL;
    if (!sl_bench_child_beside(PROGRAM, path)) {
        sl_log_error(PROGRAM " is not beside this program: it is built where DPDK is");
        return SL_ERR_IO;
    }
    (void)snprintf(numbers[0], sizeof numbers[0], "%" PRIu32, memif->packet_bytes);
    (void)snprintf(numbers[1], sizeof numbers[1], "%" PRIu32, memif->frame_bytes);
    (void)snprintf(numbers[2], sizeof numbers[2], "%" PRIu32, memif->depth);
    (void)snprintf(numbers[3], sizeof numbers[3], "%" PRIu32, memif->senders);
    (void)snprintf(numbers[4], sizeof numbers[4], "%d", common->server_core);
    (void)snprintf(numbers[5], sizeof numbers[5], "%d", common->client_core);
    (void)snprintf(numbers[6], sizeof numbers[6], "%g", common->warm_up);
    (void)snprintf(numbers[7], sizeof numbers[7], "%g", common->seconds);
    const char *const argv[] = {path,       PARTS[memif->part], numbers[0],    numbers[1],
                                numbers[2], numbers[3],         numbers[4],    numbers[5],
                                numbers[6], numbers[7],         memif->folder, NULL};
    const struct sl_bench_child_options options = {.argv = argv, .core = -1, .reads = true};
    struct sl_bench_child child;
    int err = sl_bench_child_start(&options, &child);
    if (err == 0) {
        const double lasts_ms = (common->warm_up + common->seconds) * 1000;
        err = sl_bench_child_collect(&child, START_MS + (uint32_t)lasts_ms, &text);
    }
    *out = (struct sl_bench_memif_result){0};
    err = err != 0 ? err : read_result(text, out);
    free(text);
    return err;
}
