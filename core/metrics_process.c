#include "core/metrics_process.h"

#include <dirent.h>
#include <inttypes.h>
#include <starling.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "core/arena_ahead.h"
#include "core/arena_pages.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/text_file.h"

enum row { CPU, START, RESIDENT, ORDINARY, REFUSED, FDS, FDS_MAX, LOG_LINES, BUILD };

static const struct sl_metrics_row rows[] = {
    [CPU] = {"process_cpu_seconds_total", NULL, SL_METRICS_COUNTER, SL_METRICS_NS, 0,
             "Processor time of all threads, in user and kernel mode."},
    [START] = {"process_start_time_seconds", NULL, SL_METRICS_GAUGE, SL_METRICS_NS, 0,
               "Unix time at which the process started."},
    [RESIDENT] = {"process_resident_memory_bytes", NULL, SL_METRICS_GAUGE, SL_METRICS_PLAIN, 0,
                  "Memory of the process that is in RAM."},
    [ORDINARY] = {"ordinary_page_bytes", NULL, SL_METRICS_GAUGE, SL_METRICS_PLAIN, 0,
                  "Memory of tables and buffers that is mapped on ordinary, not huge pages."},
    [REFUSED] = {"huge_pages_refused_total", NULL, SL_METRICS_COUNTER, SL_METRICS_PLAIN, 0,
                 "Huge pages that the system refused for good; their memory stays on ordinary "
                 "pages."},
    [FDS] = {"process_open_fds", NULL, SL_METRICS_GAUGE, SL_METRICS_PLAIN, 0,
             "Open file descriptors."},
    [FDS_MAX] = {"process_max_fds", NULL, SL_METRICS_GAUGE, SL_METRICS_PLAIN, 0,
                 "Limit on open file descriptors."},
    [LOG_LINES] = {"log_lines_total", NULL, SL_METRICS_COUNTER, SL_METRICS_PLAIN, 0,
                   "Log lines written, by level."},
    [BUILD] = {"build_info", NULL, SL_METRICS_GAUGE, SL_METRICS_PLAIN, 0,
               "Always 1; the labels are the version and the role of the process."},
};

static uint64_t time_ns(clockid_t clock)
{
    struct timespec time = {0};
    (void)clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * SL_CLOCK_NS_PER_S + (uint64_t)time.tv_nsec;
}

/* The start in clock ticks since boot is the 20th field behind the name, which ends with ")". */
static uint64_t start_ns(void)
{
    char text[1024];
    uint64_t ticks = 0;
    (void)sl_text_file_read("/proc/self/stat", text, sizeof text);
    const char *field = strrchr(text, ')');
    for (int i = 0; field != NULL && i < 20; i++) {
        field = strchr(field + 1, ' ');
    }
    if (field == NULL || sscanf(field, "%" SCNu64, &ticks) != 1) {
        return 0;
    }
    const uint64_t tick_ns = SL_CLOCK_NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK);
    return time_ns(CLOCK_REALTIME) - time_ns(CLOCK_BOOTTIME) + ticks * tick_ns;
}

uint64_t sl_metrics_process_resident_bytes(void)
{
    char text[256];
    uint64_t pages = 0;
    (void)sl_text_file_read("/proc/self/statm", text, sizeof text);
    return sscanf(text, "%*u %" SCNu64, &pages) == 1 ? pages * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

/* Less ".", ".." and the descriptor of the folder itself. */
static uint64_t open_fds(void)
{
    DIR *folder = opendir("/proc/self/fd");
    uint64_t count = 0;
    while (folder != NULL && readdir(folder) != NULL) {
        count++;
    }
    if (folder != NULL) {
        (void)closedir(folder);
    }
    return count > 3 ? count - 3 : 0;
}

static void metrics_process_collect(void *ctx, struct sl_metrics_visitor *visitor)
{
    static const char *const levels[] = {"level=\"debug\"", "level=\"info\"", "level=\"warning\"",
                                         "level=\"error\""};
    const struct sl_metrics_process *process = ctx;
    struct rlimit fds = {0};
    (void)getrlimit(RLIMIT_NOFILE, &fds);
    sl_metrics_visit(visitor, &rows[CPU], "", time_ns(CLOCK_PROCESS_CPUTIME_ID));
    sl_metrics_visit(visitor, &rows[START], "", start_ns());
    sl_metrics_visit(visitor, &rows[RESIDENT], "", sl_metrics_process_resident_bytes());
    sl_metrics_visit(visitor, &rows[ORDINARY], "", sl_arena_pages_ordinary_bytes());
    sl_metrics_visit(visitor, &rows[REFUSED], "", sl_arena_ahead_refused_count());
    sl_metrics_visit(visitor, &rows[FDS], "", open_fds());
    sl_metrics_visit(visitor, &rows[FDS_MAX], "", fds.rlim_cur);
    sl_metrics_visit(visitor, &rows[BUILD], process->labels, 1);
    for (int level = SL_LOG_DEBUG; level < SL_LOG_OFF; level++) {
        sl_metrics_visit(visitor, &rows[LOG_LINES], levels[level],
                         sl_log_lines((enum sl_log_level)level));
    }
}

void sl_metrics_process_add(struct sl_metrics *metrics, struct sl_metrics_process *process,
                            const char *role)
{
    *process =
        (struct sl_metrics_process){.source = {.collect = metrics_process_collect, .ctx = process}};
    sl_metrics_label(process->labels, "version", sl_version());
    sl_metrics_label(process->labels, "role", role);
    sl_metrics_add(metrics, &process->source);
}
