#include <fcntl.h>
#include <inttypes.h>
#include <starling.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/arena.h"
#include "core/log.h"
#include "core/metrics_process.h"
#include "core/metrics_text.h"
#include "tests/support/unit.h"

static struct sl_metrics metrics;
static struct sl_metrics_process process;

/* The value of a series, which is in the export exactly once. */
static double value_of(const char *series)
{
    char *text;
    size_t bytes;
    assert_int_equal(sl_metrics_text_create(&metrics, false, &text, &bytes), 0);
    char line[256];
    (void)snprintf(line, sizeof line, "\n%s ", series);
    const char *at = strstr(text, line);
    assert_non_null(at);
    assert_null(strstr(at + 1, line));
    const double value = strtod(at + strlen(line), NULL);
    free(text);
    return value;
}

static int set_up(void **state)
{
    sl_metrics_init(&metrics);
    sl_metrics_process_add(&metrics, &process, "ps");
    return 0;
}

static int tear_down(void **state)
{
    sl_metrics_remove(&metrics, &process.source);
    sl_metrics_fini(&metrics);
    return 0;
}

SL_UNIT_GROUP(set_up, tear_down);

SL_CASE(metrics_process__counts_descriptors)
{
    const double before = value_of("process_open_fds");
    const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_true(value_of("process_open_fds") == before + 1);
    (void)close(fd);
    assert_true(value_of("process_max_fds") >= before);
}

SL_CASE(metrics_process__knows_start_memory_and_processor_time)
{
    const double now = (double)time(NULL);
    const double start = value_of("process_start_time_seconds");
    assert_true(start <= now + 2 && start > now - 3600);
    assert_true(value_of("process_resident_memory_bytes") > 100000);
    struct sl_arena arena;
    sl_arena_init(&arena, 4096, 0, false);
    assert_non_null(sl_arena_map(&arena));
    assert_true(value_of("starling_ordinary_page_bytes") == 4096);
    sl_arena_fini(&arena);
    assert_true(value_of("starling_ordinary_page_bytes") == 0);
    assert_true(value_of("starling_huge_pages_refused_total") == 0);
    const double cpu = value_of("process_cpu_seconds_total");
    assert_true(cpu > 0 && cpu < 3600);
}

SL_CASE(metrics_process__counts_log_lines_by_level)
{
    sl_log_setup(SL_LOG_WARN, "test");
    const double warnings = value_of("starling_log_lines_total{level=\"warning\"}");
    const double infos = value_of("starling_log_lines_total{level=\"info\"}");
    sl_log_warn("a line that is counted");
    sl_log_info("a line that is not written");
    assert_true(value_of("starling_log_lines_total{level=\"warning\"}") == warnings + 1);
    assert_true(value_of("starling_log_lines_total{level=\"info\"}") == infos);
}

SL_CASE(metrics_process__names_version_and_role)
{
    assert_true(value_of("starling_build_info{version=\"" SL_VERSION "\",role=\"ps\"}") == 1);
}
