#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/report_parts.h"
#include "core/log.h"
#include "tests/support/unit.h"

static const struct sl_bench_common common = {
    .rounds = 5, .seconds = 1, .warm_up = 0.5, .server_core = 0, .client_core = 0};

/* A directory for a test's files, and what is printed. */
static char directory[64], json_path[96];
static char *printed;
static size_t printed_bytes;

static int set_up(void **state)
{
    (void)snprintf(directory, sizeof directory, "/tmp/sl_report_XXXXXX");
    if (mkdtemp(directory) == NULL) {
        return -1;
    }
    (void)snprintf(json_path, sizeof json_path, "%s/report.json", directory);
    printed = NULL;
    return 0;
}

static int tear_down(void **state)
{
    DIR *files = opendir(directory);
    const struct dirent *file;
    while (files != NULL && (file = readdir(files)) != NULL) {
        (void)unlinkat(dirfd(files), file->d_name, 0);
    }
    (void)closedir(files);
    free(printed);
    return rmdir(directory);
}

static struct sl_bench_report *make(void)
{
    struct sl_bench_report *report;
    assert_int_equal(sl_bench_report_create("pull", "1 row", &report), 0);
    return report;
}

static struct sl_bench_figure *add(struct sl_bench_report *report, const char *name,
                                   const char *unit, const double *samples, uint32_t count)
{
    struct sl_bench_figure *figure = sl_bench_report_figure(report, name, "requests", unit);
    for (uint32_t i = 0; i < count; i++) {
        sl_bench_figure_sample(figure, samples[i]);
    }
    return figure;
}

SL_CASE_WITH(bench_quantile__lies_between_samples, set_up, tear_down)
{
    const double samples[] = {40, 10, 30, 20};
    assert_true(sl_bench_quantile(samples, 4, 0) == 10);
    assert_true(sl_bench_quantile(samples, 4, 0.5) == 25);
    assert_true(sl_bench_quantile(samples, 4, 0.25) == 17.5);
    assert_true(sl_bench_quantile(samples, 4, 1) == 40);
    assert_true(sl_bench_quantile(samples, 1, 0.75) == 40);
    assert_true(samples[0] == 40);
}

/* Of 1/2, 20/10 and 3/4 the median is 3/4; that of the samples would give 3/4 of quite other
 * pairs: 3/10. */
SL_CASE_WITH(report_ratio__is_of_each_round, set_up, tear_down)
{
    struct sl_bench_report *report = make();
    const struct sl_bench_figure *a = add(report, "a", "1/s", (double[]){1, 20, 3}, 3);
    const struct sl_bench_figure *b = add(report, "b", "1/s", (double[]){2, 10, 4}, 3);
    const struct sl_bench_ratio *ratio = sl_bench_report_ratio(report, "a / b", a, b, 0, 0);
    assert_true(sl_bench_quantile(ratio->samples, ratio->count, 0.5) == 0.75);
    assert_true(sl_bench_ratio_holds(ratio));
    assert_true(sl_bench_ratio_holds(sl_bench_report_ratio(report, "", a, b, 0.75, 0)));
    assert_false(sl_bench_ratio_holds(sl_bench_report_ratio(report, "", a, b, 0.76, 0)));
    assert_true(sl_bench_ratio_holds(sl_bench_report_ratio(report, "", a, b, 0, 0.75)));
    assert_false(sl_bench_ratio_holds(sl_bench_report_ratio(report, "", a, b, 0, 0.74)));
    sl_bench_report_destroy(&report);
    assert_null(report);
}

SL_CASE_WITH(report_ratio__to_nothing_holds_nothing, set_up, tear_down)
{
    struct sl_bench_report *report = make();
    const struct sl_bench_figure *a = add(report, "a", "1/s", (double[]){0}, 1);
    assert_false(sl_bench_ratio_holds(sl_bench_report_ratio(report, "", a, a, 0.5, 0)));
    assert_int_equal(sl_bench_report_write_json(report, &common, json_path), 0);
    sl_bench_report_destroy(&report);
}

SL_CASE_WITH(report_figure__stays_where_it_is, set_up, tear_down)
{
    struct sl_bench_report *report = make();
    struct sl_bench_figure *first = add(report, "first", "", (double[]){1}, 1);
    for (int i = 0; i < 200; i++) {
        sl_bench_report_add(report, "later", "count", "", i);
    }
    assert_ptr_equal(report->figures[0], first);
    assert_string_equal(first->name, "first");
    sl_bench_report_destroy(&report);
}

static void print(const struct sl_bench_report *report)
{
    FILE *to = open_memstream(&printed, &printed_bytes);
    sl_bench_report_print(report, &common, to);
    (void)fclose(to);
}

SL_CASE_WITH(report_print__tells_medians_spread_and_targets, set_up, tear_down)
{
    struct sl_bench_report *report = make();
    const struct sl_bench_figure *a =
        add(report, "a", "1/s", (double[]){100000, 120000, 110000}, 3);
    const struct sl_bench_figure *b =
        add(report, "b", "1/s", (double[]){200000, 200000, 200000}, 3);
    sl_bench_report_ratio(report, "a / b", a, b, 0.6, 0);
    sl_bench_report_ratio(report, "a / b again", a, b, 0, 0.6);
    print(report);
    assert_non_null(strstr(printed, "pull: 1 row"));
    assert_non_null(strstr(printed, STARLING_VERSION));
    assert_non_null(strstr(printed, "110  k/s   105 .. 115\n"));
    assert_non_null(strstr(printed, "0.550  0.525 .. 0.575  at least 0.6  MISSED\n"));
    assert_non_null(strstr(printed, "0.550  0.525 .. 0.575  at most 0.6   holds\n"));
    sl_bench_report_destroy(&report);
}

/* Of 100 values p99 is one of them, and p99.9 is none. */
SL_CASE_WITH(report_print__leaves_out_quantiles_that_it_cannot_know, set_up, tear_down)
{
    struct sl_bench_report *report = make();
    struct sl_metric_histogram histogram;
    sl_metric_init(&histogram);
    for (uint64_t i = 1; i <= 100; i++) {
        sl_metric_record(&histogram, i < 99 ? 10000 : 31000);
    }
    sl_bench_report_histogram(report, "pull", &histogram);
    print(report);
    assert_non_null(strstr(printed, "p50  "));
    assert_non_null(strstr(printed, "p99.999"));
    const char *row = strstr(printed, "\n  pull ");
    assert_non_null(row);
    double values[5];
    assert_int_equal(sscanf(row, " pull 100 %lf %lf %lf %lf %lf", &values[0], &values[1],
                            &values[2], &values[3], &values[4]),
                     4); /* p50, p90, p99 and the longest */
    assert_true(values[0] < 11 && values[1] < 11 && values[2] > 29 && values[3] == 31);
    sl_bench_report_destroy(&report);
}

SL_CASE_WITH(report_value__has_four_digits, set_up, tear_down)
{
    static const struct {
        double value;
        const char *text;
    } cases[] = {{0, "0"},          {144, "144"},      {1.25, "1.250"},    {12.345, "12.35"},
                 {123.45, "123.5"}, {1234.5, "1234"},  {0.0012, "0.0012"}, {-2.5, "-2.500"},
                 {1e10, "1e+10"},   {123456, "123456"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[SL_BENCH_VALUE_BYTES];
        sl_bench_report_value(cases[i].value, text);
        assert_string_equal(text, cases[i].text);
    }
}

SL_CASE_WITH(report_scale__changes_rates_and_counts_alone, set_up, tear_down)
{
    static const struct {
        double value;
        const char *unit;
        double divisor;
        const char *scaled;
    } cases[] = {{9999, "1/s", 1, "1/s"},
                 {2e6, "1/s", 1e3, "k/s"},
                 {2e7, "1/s", 1e6, "M/s"},
                 {2e10, "B/s", 1e9, "GB/s"},
                 {5e7, "keys/s", 1e6, "M keys/s"},
                 {5e7, "us", 1, "us"},
                 {5e7, "", 1e6, "M"},
                 {5e4, "B", 1e3, "kB"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char unit[32];
        assert_true(sl_bench_report_scale(cases[i].value, cases[i].unit, unit, sizeof unit) ==
                    cases[i].divisor);
        assert_string_equal(unit, cases[i].scaled);
    }
}

SL_CASE_WITH(report_json__comes_back_as_it_went, set_up, tear_down)
{
    struct sl_bench_report *report = make();
    struct sl_bench_report *read;
    struct sl_metric_histogram histogram;
    struct sl_bench_figure *a = add(report, "a \"quoted\"", "1/s", (double[]){1, 1.0 / 3}, 2);
    const struct sl_bench_figure *b = add(report, "b", "us", (double[]){2, 0}, 2);
    sl_bench_figure_at(a, "connections", 16);
    sl_bench_report_ratio(report, "a / b", a, b, 0.55, 0);
    sl_metric_init(&histogram);
    sl_metric_record(&histogram, 1000);
    sl_bench_report_histogram(report, "pull", &histogram);
    assert_int_equal(sl_bench_report_write_json(report, &common, json_path), 0);
    assert_int_equal(sl_bench_report_read_json(json_path, "pull", &read), 0);
    assert_string_equal(read->setting, "1 row");
    assert_string_equal(read->machine.cpu, report->machine.cpu);
    assert_int_equal(read->figure_count, 2);
    assert_memory_equal(read->figures[0], a, sizeof *a);
    assert_memory_equal(read->figures[1], b, sizeof *b);
    assert_int_equal(read->ratio_count, 1);
    assert_true(read->ratios[0]->least == 0.55);
    assert_true(read->ratios[0]->samples[0] == 0.5);
    assert_true(isnan(read->ratios[0]->samples[1])); /* 1/3 by 0: no number of JSON */
    sl_bench_report_destroy(&read);
    sl_bench_report_destroy(&report);
}

SL_CASE_WITH(report_read__says_what_is_no_report, set_up, tear_down)
{
    static const char *const texts[] = {
        "",
        "not json",
        "[]",
        "{}",
        "{\"format\": 1}",
        "{\"format\": \"starling-bench report 1\", \"benchmark\": \"pull\", \"setting\": \"\"}",
        "{\"format\": \"starling-bench report 1\", \"benchmark\": \"push\", \"setting\": \"\", "
        "\"machine\": {\"cpu\": \"\", \"kernel\": \"\", \"build\": \"\"}, \"figures\": [], "
        "\"ratios\": []}",
        "{\"format\": \"starling-bench report 1\", \"benchmark\": \"pull\", \"setting\": \"\", "
        "\"machine\": {\"cpu\": \"\", \"kernel\": \"\", \"build\": \"\"}, \"figures\": "
        "[{\"name\": \"\", \"quantity\": \"\", \"unit\": \"\", \"samples\": []}], \"ratios\": []}",
        "{\"format\": \"starling-bench report 1\", \"benchmark\": \"pull\", \"setting\": \"\", "
        "\"machine\": {\"cpu\": \"\", \"kernel\": \"\", \"build\": \"\"}, \"figures\": [], "
        "\"ratios\": [{\"name\": \"\", \"least\": 0, \"most\": 0, \"samples\": [\"1\"]}]}",
    };
    struct sl_bench_report *read = NULL;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        FILE *file = fopen(json_path, "w");
        (void)fputs(texts[i], file);
        (void)fclose(file);
        assert_int_equal(sl_bench_report_read_json(json_path, "pull", &read), SL_ERR_INVALID);
        assert_null(read);
    }
    assert_int_equal(sl_bench_report_read_json("/nowhere.json", "pull", &read), SL_ERR_NOT_FOUND);
    const struct sl_bench_common options = {.compare = json_path};
    assert_int_equal(sl_bench_report_check("pull", &options), SL_ERR_INVALID);
}

static void compare(const struct sl_bench_report *report, const struct sl_bench_report *older)
{
    FILE *to = open_memstream(&printed, &printed_bytes);
    sl_bench_report_compare(report, older, "old.json", to);
    (void)fclose(to);
}

SL_CASE_WITH(report_compare__marks_what_differs_by_more_than_both_spreads, set_up, tear_down)
{
    struct sl_bench_report *older = make();
    struct sl_bench_report *report = make();
    const double low[] = {10, 10.2, 10.1};
    const double high[] = {20, 20.2, 20.1};
    const double wide[] = {5, 20, 35};
    add(older, "rate up", "1/s", low, 3);
    add(report, "rate up", "1/s", high, 3);
    add(older, "time up", "us", low, 3);
    add(report, "time up", "us", high, 3);
    add(older, "count up", "", low, 3);
    add(report, "count up", "", high, 3);
    add(older, "unclear then", "us", wide, 3);
    add(report, "unclear then", "us", low, 3);
    add(older, "unclear now", "us", low, 3);
    add(report, "unclear now", "us", wide, 3);
    add(older, "single", "us", low, 1);
    add(report, "single", "us", high, 1);
    add(older, "gone", "us", low, 3);
    sl_bench_figure_at(add(older, "moved", "us", low, 3), "depth", 1);
    sl_bench_figure_at(add(report, "moved", "us", low, 3), "depth", 2);
    compare(report, older);
    assert_non_null(strstr(printed, "20.10  1/s        1.990  * better\n"));
    assert_non_null(strstr(printed, "20.10  us         1.990  * WORSE\n"));
    assert_non_null(strstr(printed, "20.10             1.990  * differs\n"));
    assert_non_null(strstr(printed, "10.10  us         0.505\n"));
    assert_non_null(strstr(printed, "20  us         1.980\n"));
    assert_non_null(strstr(printed, "20  us         2.000\n"));
    assert_non_null(strstr(printed, "without a counterpart: 1 here, 2 there\n"));
    sl_bench_report_destroy(&older);
    sl_bench_report_destroy(&report);
}

/* The text of the one chart whose name ends so; owned by the caller. */
static char *read_chart(const char *ending)
{
    char path[320];
    char *text = calloc(1, 1 << 20);
    DIR *files = opendir(directory);
    const struct dirent *file;
    while ((file = readdir(files)) != NULL) {
        const size_t length = strlen(file->d_name);
        if (length > strlen(ending) &&
            strcmp(file->d_name + length - strlen(ending), ending) == 0) {
            (void)snprintf(path, sizeof path, "%s/%s", directory, file->d_name);
            FILE *chart = fopen(path, "r");
            assert_true(fread(text, 1, (1 << 20) - 1, chart) > 0);
            (void)fclose(chart);
        }
    }
    (void)closedir(files);
    return text;
}

/* Names that would end a string, run a command or format a number in gnuplot's language. */
SL_CASE_WITH(report_plot__draws_whatever_the_names_are, set_up, tear_down)
{
    struct sl_bench_report *report = make();
    const char *name = "it's \"so\" `touch no` $(x) 5% @a \\ ^2_3";
    struct sl_metric_histogram histogram;
    if (access("/usr/bin/gnuplot", X_OK) != 0) {
        sl_bench_report_destroy(&report);
        skip();
    }
    for (int i = 0; i < 4; i++) {
        struct sl_bench_figure *figure = add(report, name, "1/s", (double[]){1e5 + i, 2e5, 3e5}, 3);
        sl_bench_figure_at(figure, name, 1 << 2 * i);
    }
    sl_bench_report_ratio(report, name, report->figures[0], report->figures[1], 0.5, 0);
    sl_metric_init(&histogram);
    for (uint64_t i = 1; i < 100; i++) {
        sl_metric_record(&histogram, i * 1000);
    }
    sl_bench_report_histogram(report, name, &histogram);
    assert_int_equal(sl_bench_report_plot(report, &common, directory), 0);
    /* The axis has the first 31 bytes of the name, and so has the file. */
    static const char *const endings[] = {"-ratios.svg", "-times.svg", "5---a.svg"};
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        char *chart = read_chart(endings[i]);
        assert_non_null(strstr(chart, "it's \"so\" `touch no` $(x) 5% @a \\ ^2_3"));
        assert_non_null(strstr(chart, "</svg>"));
        free(chart);
    }
    sl_bench_report_destroy(&report);
}

SL_CASE_WITH(report_plot__names_the_package_that_is_missing, set_up, tear_down)
{
    char *path = strdup(getenv("PATH"));
    const struct sl_bench_common options = {.plot = directory};
    setenv("PATH", directory, 1);
    const int err = sl_bench_report_check("pull", &options);
    setenv("PATH", path, 1);
    free(path);
    assert_int_equal(err, SL_ERR_NOT_FOUND);
}

/* In a process of its own, which an assertion ends. */
static int ratio_ends_by(const char *over, const char *other)
{
    const pid_t child = fork();
    if (child == 0) {
        struct sl_bench_report *report = make();
        struct sl_bench_figure *a = add(report, "a", "1/s", (double[]){6}, 1);
        struct sl_bench_figure *b = add(report, "b", "1/s", (double[]){3}, 1);
        sl_bench_figure_over(a, over);
        sl_bench_figure_over(b, other);
        (void)freopen("/dev/null", "w", stderr);
        (void)sl_bench_report_ratio(report, "a / b", a, b, 0, 0);
        _exit(0);
    }
    int status;
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
}

SL_CASE_WITH(report_ratio__is_of_one_transport, set_up, tear_down)
{
    assert_int_equal(ratio_ends_by("TCP", "TCP"), 0);
    assert_int_equal(ratio_ends_by("TCP", NULL), 0);
    assert_int_equal(ratio_ends_by("TCP", "shared memory"), SIGABRT);
    struct sl_bench_report *report = make();
    struct sl_bench_figure *a = add(report, "a", "1/s", (double[]){6}, 1);
    struct sl_bench_figure *b = add(report, "b", "1/s", (double[]){3}, 1);
    sl_bench_figure_over(b, "TCP");
    assert_string_equal(sl_bench_report_ratio(report, "a / b", a, b, 0, 0)->transport, "TCP");
    sl_bench_figure_over(a, "shared memory");
    assert_true(sl_bench_report_ratio_of_transports(report, "shm / tcp", a, b, 0, 0)->samples[0] ==
                2);
    sl_bench_report_destroy(&report);
}
