/* METRICS_TEXT in the environment names a file for the text of all kinds of series, which
 * parsers.py gives to other parsers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/metrics_text.h"
#include "tests/support/unit.h"

struct cells {
    struct sl_cell pulls, pushes, floor, ceiling, cpu, share;
    struct sl_cell_histogram time;
};

static const struct sl_metrics_row rows[] = {
    {"requests_total", "op=\"push\"", SL_METRICS_COUNTER, SL_METRICS_PLAIN,
     offsetof(struct cells, pushes), NULL},
    {"requests_total", "op=\"pull\"", SL_METRICS_COUNTER, SL_METRICS_PLAIN,
     offsetof(struct cells, pulls), "Back\\slash and\nnewline."},
    {"clock_floor", NULL, SL_METRICS_GAUGE_MIN, SL_METRICS_PLAIN, offsetof(struct cells, floor),
     "Lowest."},
    {"staleness_steps", NULL, SL_METRICS_GAUGE_MAX, SL_METRICS_PLAIN,
     offsetof(struct cells, ceiling), "Highest."},
    {"process_cpu_seconds_total", NULL, SL_METRICS_COUNTER, SL_METRICS_NS,
     offsetof(struct cells, cpu), "Processor time."},
    {"hot_share", NULL, SL_METRICS_GAUGE, SL_METRICS_PPM, offsetof(struct cells, share), "Share."},
};

static const struct sl_metrics_row time_row = {"request_seconds",
                                               "op=\"pull\"",
                                               SL_METRICS_HISTOGRAM,
                                               SL_METRICS_NS,
                                               offsetof(struct cells, time),
                                               "Time."};

static const struct sl_metrics_row table_row = {"table_rows",     NULL, SL_METRICS_GAUGE,
                                                SL_METRICS_PLAIN, 0,    "Rows."};

static void collect_table(void *ctx, struct sl_metrics_visitor *visitor)
{
    char labels[SL_METRICS_LABELS_BYTES] = "";
    sl_metrics_label(labels, "table", "a\"b\\c");
    sl_metrics_visit(visitor, &table_row, labels, 9);
}

struct fixture {
    struct sl_metrics metrics;
    struct cells cells[2];
    struct sl_metrics_source sources[5];
    char *text;
    size_t bytes;
};

static void set_up(struct fixture *f)
{
    *f = (struct fixture){0};
    sl_metrics_init(&f->metrics);
}

static void tear_down(struct fixture *f)
{
    free(f->text);
    sl_metrics_fini(&f->metrics);
}

static void write_text(struct fixture *f, bool one_by_one)
{
    free(f->text);
    f->text = NULL;
    assert_int_equal(sl_metrics_text_create(&f->metrics, one_by_one, &f->text, &f->bytes), 0);
    assert_int_equal(strlen(f->text), f->bytes);
}

static void add(struct fixture *f, uint32_t i, const struct sl_metrics_source *source)
{
    f->sources[i] = *source;
    sl_metrics_add(&f->metrics, &f->sources[i]);
}

#define CASE(name) SL_CASE_USING(name, struct fixture, fixture, set_up, tear_down)

CASE(metrics_text__of_nothing)
{
    write_text(fixture, false);
    assert_string_equal(fixture->text, "");
}

CASE(metrics_text__has_every_kind_sorted_and_escaped)
{
    struct cells *cells = fixture->cells;
    sl_cell_set(&cells->pulls, 3);
    sl_cell_set(&cells->pushes, UINT64_MAX);
    sl_cell_set(&cells->floor, 4);
    sl_cell_set(&cells->ceiling, 5);
    sl_cell_set(&cells->cpu, 1500000001);
    sl_cell_set(&cells->share, 120000);
    add(fixture, 0, &(struct sl_metrics_source){.rows = rows, .row_count = 6, .cells = cells});
    add(fixture, 1, &(struct sl_metrics_source){.collect = collect_table});
    write_text(fixture, false);
    assert_string_equal(fixture->text,
                        "# HELP starling_clock_floor Lowest.\n"
                        "# TYPE starling_clock_floor gauge\n"
                        "starling_clock_floor 4\n"
                        "# HELP starling_hot_share Share.\n"
                        "# TYPE starling_hot_share gauge\n"
                        "starling_hot_share 0.12\n"
                        "# HELP process_cpu_seconds_total Processor time.\n"
                        "# TYPE process_cpu_seconds_total counter\n"
                        "process_cpu_seconds_total 1.500000001\n"
                        "# HELP starling_requests_total Back\\\\slash and\\nnewline.\n"
                        "# TYPE starling_requests_total counter\n"
                        "starling_requests_total{op=\"pull\"} 3\n"
                        "starling_requests_total{op=\"push\"} 18446744073709551615\n"
                        "# HELP starling_staleness_steps Highest.\n"
                        "# TYPE starling_staleness_steps gauge\n"
                        "starling_staleness_steps 5\n"
                        "# HELP starling_table_rows Rows.\n"
                        "# TYPE starling_table_rows gauge\n"
                        "starling_table_rows{table=\"a\\\"b\\\\c\"} 9\n");
}

CASE(metrics_text__has_cumulative_buckets_in_seconds)
{
    struct sl_cell_histogram *time = &fixture->cells[0].time;
    sl_cell_record(time, 8000, 1);
    sl_cell_record(time, 8001, 2);
    sl_cell_record(time, SL_CELL_LONGEST_NS + 5, 4);
    add(fixture, 0,
        &(struct sl_metrics_source){
            .rows = &time_row, .row_count = 1, .cells = fixture->cells, .labels = "table=\"t\""});
    write_text(fixture, false);
    const char *const limits[] = {"0.000008", "0.000016", "0.000032", "0.000064", "0.000128",
                                  "0.000256", "0.000512", "0.001024", "0.004096", "0.016384",
                                  "0.065536", "0.262144", "1.048576", "8.388608", "+Inf"};
    char wanted[4096];
    int used = snprintf(wanted, sizeof wanted,
                        "# HELP starling_request_seconds Time.\n"
                        "# TYPE starling_request_seconds histogram\n");
    for (int i = 0; i < 15; i++) {
        used += snprintf(wanted + used, sizeof wanted - (size_t)used,
                         "starling_request_seconds_bucket{op=\"pull\",table=\"t\",le=\"%s\"} %d\n",
                         limits[i],
                         i == 0   ? 1
                         : i < 14 ? 3
                                  : 7);
    }
    (void)snprintf(wanted + used, sizeof wanted - (size_t)used,
                   "starling_request_seconds_sum{op=\"pull\",table=\"t\"} 268.435480022\n"
                   "starling_request_seconds_count{op=\"pull\",table=\"t\"} 7\n");
    assert_string_equal(fixture->text, wanted);
}

CASE(metrics_text__merges_sources_or_lists_them_one_by_one)
{
    for (uint32_t i = 0; i < 2; i++) {
        struct cells *cells = &fixture->cells[i];
        sl_cell_set(&cells->pulls, 3 + i);
        sl_cell_set(&cells->floor, 4 + i);
        sl_cell_set(&cells->ceiling, 6 + i);
        sl_cell_record(&cells->time, UINT64_C(8000) << i, 1 + i);
        const char *detail = i == 0 ? "shard=\"0\"" : "shard=\"1\"";
        add(fixture, 2 * i,
            &(struct sl_metrics_source){
                .rows = rows + 1, .row_count = 3, .cells = cells, .detail = detail});
        add(fixture, 2 * i + 1,
            &(struct sl_metrics_source){
                .rows = &time_row, .row_count = 1, .cells = cells, .detail = detail});
    }
    write_text(fixture, false);
    assert_non_null(strstr(fixture->text, "\nstarling_requests_total{op=\"pull\"} 7\n"));
    assert_non_null(strstr(fixture->text, "\nstarling_clock_floor 4\n"));
    assert_non_null(strstr(fixture->text, "\nstarling_staleness_steps 7\n"));
    assert_non_null(strstr(fixture->text, "{op=\"pull\",le=\"0.000008\"} 1\n"));
    assert_non_null(strstr(fixture->text, "{op=\"pull\",le=\"0.000016\"} 3\n"));
    assert_non_null(strstr(fixture->text, "_seconds_sum{op=\"pull\"} 0.00004\n"));
    assert_null(strstr(fixture->text, "shard"));
    write_text(fixture, true);
    assert_non_null(strstr(fixture->text, "{op=\"pull\",shard=\"0\"} 3\n"));
    assert_non_null(strstr(fixture->text, "{op=\"pull\",shard=\"1\"} 4\n"));
    assert_non_null(strstr(fixture->text, "clock_floor{shard=\"1\"} 5\n"));
    assert_non_null(strstr(fixture->text, "{op=\"pull\",shard=\"1\",le=\"+Inf\"} 2\n"));
    assert_non_null(strstr(fixture->text, "_seconds_sum{op=\"pull\",shard=\"1\"} 0.000032\n"));
    assert_null(strstr(fixture->text, "le=\"0"));
}

SL_CASE(metrics_text__for_parsers)
{
    const char *path = getenv("METRICS_TEXT");
    if (path == NULL) {
        skip();
    }
    static struct fixture fixture;
    set_up(&fixture);
    sl_cell_set(&fixture.cells->pulls, 3);
    sl_cell_record(&fixture.cells->time, 8000, 2);
    add(&fixture, 0,
        &(struct sl_metrics_source){.rows = rows, .row_count = 6, .cells = fixture.cells});
    add(&fixture, 1,
        &(struct sl_metrics_source){.rows = &time_row, .row_count = 1, .cells = fixture.cells});
    add(&fixture, 2, &(struct sl_metrics_source){.collect = collect_table});
    write_text(&fixture, false);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(fixture.text, 1, fixture.bytes, file), fixture.bytes);
    assert_int_equal(fclose(file), 0);
    tear_down(&fixture);
}
