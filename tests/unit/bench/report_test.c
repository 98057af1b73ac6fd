#include "bench/report.h"

#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/log.h"
#include "tests/support/unit.h"

static const struct sl_bench_common common = {
    .rounds = 5, .seconds = 1, .warm_up = 0.5, .server_core = 0, .client_core = 1};

static struct sl_bench_figure *add(struct sl_bench_report *report, const char *name,
                                   const double *samples, uint32_t count)
{
    struct sl_bench_figure *figure = sl_bench_report_figure(report, name, "requests", "1/s");
    for (uint32_t i = 0; i < count; i++) {
        sl_bench_figure_sample(figure, samples[i]);
    }
    return figure;
}

SL_CASE(report_figure__stays_where_it_is)
{
    struct sl_bench_report *report = sl_bench_report_create("pull", "1 row");
    struct sl_bench_figure *first = add(report, "first", (double[]){1}, 1);
    for (int i = 0; i < 200; i++) {
        sl_bench_report_add(report, "later", "count", "", i);
    }
    assert_ptr_equal(report->figures[0], first);
    assert_string_equal(first->name, "first");
    sl_bench_report_destroy(&report);
    assert_null(report);
}

SL_CASE(report_write__has_all_that_was_added)
{
    static struct sl_metric_histogram histogram;
    char path[] = "/tmp/sl_report_XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    struct sl_bench_report *report = sl_bench_report_create("pull", "1 row");
    struct sl_bench_figure *a = add(report, "a \"quoted\"", (double[]){1, 1.0 / 3}, 2);
    const struct sl_bench_figure *b = add(report, "b", (double[]){2, 0}, 2);
    sl_bench_figure_at(a, "connections", 16);
    sl_bench_report_ratio(report, "a / b", a, b, 0.55, 0);
    sl_bench_report_disturbed(report, 2, true);
    sl_metric_init(&histogram);
    sl_metric_record(&histogram, 1000);
    sl_bench_report_histogram(report, "pull", &histogram);
    assert_int_equal(sl_bench_report_write(report, &common, path), 0);
    sl_bench_report_destroy(&report);

    json_t *root = json_load_file(path, 0, NULL);
    const char *name, *x_name, *ratio;
    double x, first, second, ratio_first, least;
    json_t *nothing;
    int left_out, count, client_core;
    assert_int_equal(
        json_unpack(root,
                    "{s:[{s:s, s:s, s:F, s:[F, F]}, o], s:[{s:s, s:F, s:[F, o]}], s:i, "
                    "s:[{s:i}], s:i}",
                    "figures", "name", &name, "x_name", &x_name, "x", &x, "samples", &first,
                    &second, &nothing, "ratios", "name", &ratio, "least", &least, "samples",
                    &ratio_first, &nothing, "rounds_left_out", &left_out, "distributions", "count",
                    &count, "client_core", &client_core),
        0);
    assert_string_equal(name, "a \"quoted\"");
    assert_string_equal(x_name, "connections");
    assert_true(x == 16 && first == 1 && second == 1.0 / 3);
    assert_string_equal(ratio, "a / b");
    assert_true(ratio_first == 0.5 && least == 0.55);
    assert_true(json_is_null(nothing)); /* 1/3 by 0: no number of JSON */
    assert_int_equal(left_out, 2);
    assert_int_equal(count, 1);
    assert_int_equal(client_core, 1);
    json_decref(root);
    (void)close(fd);
    (void)unlink(path);
}

SL_CASE(report_check__needs_what_is_asked_for)
{
    assert_int_equal(sl_bench_report_check("pull", &common), 0);
    const struct sl_bench_common compared = {.compare = "/nowhere.json"};
    assert_int_not_equal(sl_bench_report_check("pull", &compared), 0);
    const struct sl_bench_common written = {.json = "/nowhere/report.json"};
    assert_int_not_equal(sl_bench_report_check("pull", &written), 0);
}

/* In a process of its own, which an assertion ends. */
static int ratio_ends_by(const char *over, const char *other)
{
    const pid_t child = fork();
    if (child == 0) {
        struct sl_bench_report *report = sl_bench_report_create("pull", "1 row");
        struct sl_bench_figure *a = add(report, "a", (double[]){6}, 1);
        struct sl_bench_figure *b = add(report, "b", (double[]){3}, 1);
        sl_bench_figure_over(a, over);
        sl_bench_figure_over(b, other);
        (void)freopen("/dev/null", "w", stderr);
        sl_bench_report_ratio(report, "a / b", a, b, 0, 0);
        _exit(0);
    }
    int status;
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
}

SL_CASE(report_ratio__is_of_one_transport)
{
    assert_int_equal(ratio_ends_by("TCP", "TCP"), 0);
    assert_int_equal(ratio_ends_by("TCP", NULL), 0);
    assert_int_equal(ratio_ends_by("TCP", "shared memory"), SIGABRT);
}

SL_UNIT_SETUP()
{
    sl_log_setup(SL_LOG_OFF, "test");
}
