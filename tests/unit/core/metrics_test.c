#include <stdio.h>
#include <string.h>

#include "core/metrics.h"
#include "tests/support/unit.h"

struct cells {
    struct sl_cell pulls, pushes;
    struct sl_cell_histogram time;
};

static const struct sl_metrics_row rows[] = {
    {"requests_total", "op=\"pull\"", SL_METRICS_COUNTER, SL_METRICS_PLAIN,
     offsetof(struct cells, pulls), "Requests."},
    {"requests_total", "op=\"push\"", SL_METRICS_COUNTER, SL_METRICS_PLAIN,
     offsetof(struct cells, pushes), NULL},
    {"request_seconds", NULL, SL_METRICS_HISTOGRAM, SL_METRICS_NS, offsetof(struct cells, time),
     "Time."},
};

static const struct sl_metrics_row table_row = {"table_rows",     NULL, SL_METRICS_GAUGE,
                                                SL_METRICS_PLAIN, 0,    "Rows."};

/* Writes what it visits. */
struct list {
    struct sl_metrics_visitor visitor;
    char text[1024];
};

static void visit(struct sl_metrics_visitor *visitor, const struct sl_metrics_series *series)
{
    struct list *list = SL_CONTAINER_OF(visitor, struct list, visitor);
    struct sl_cell_copy copy = {.count = series->value};
    if (series->histogram != NULL) {
        sl_cell_read(series->histogram, &copy);
    }
    const size_t used = strlen(list->text);
    (void)snprintf(list->text + used, sizeof list->text - used, "%s{%s|%s|%s} %llu\n",
                   series->row->name, series->row->labels == NULL ? "" : series->row->labels,
                   series->labels, series->detail, (unsigned long long)copy.count);
}

static const char *walk(struct sl_metrics *metrics)
{
    static struct list list;
    list = (struct list){.visitor.visit = visit};
    sl_metrics_walk(metrics, &list.visitor);
    return list.text;
}

static void collect(void *ctx, struct sl_metrics_visitor *visitor)
{
    char labels[SL_METRICS_LABELS_BYTES] = "";
    sl_metrics_label(labels, "table", ctx);
    sl_metrics_visit(visitor, &table_row, labels, 9);
}

SL_CASE(metrics_walk__visits_rows_and_collected_series)
{
    static struct cells cells[2];
    struct sl_metrics metrics;
    sl_metrics_init(&metrics);
    struct sl_metrics_source sources[] = {
        {.rows = rows, .row_count = 3, .cells = &cells[0], .detail = "shard=\"0\""},
        {.rows = rows, .row_count = 1, .cells = &cells[1], .labels = "transport=\"tcp\""},
        {.collect = collect, .ctx = "emb"},
    };
    for (int i = 0; i < 3; i++) {
        sl_metrics_add(&metrics, &sources[i]);
    }
    sl_cell_add(&cells[0].pulls, 4);
    sl_cell_add(&cells[0].pushes, 5);
    sl_cell_record(&cells[0].time, 1000, 6);
    sl_cell_add(&cells[1].pulls, 7);
    assert_string_equal(walk(&metrics), "requests_total{op=\"pull\"||shard=\"0\"} 4\n"
                                        "requests_total{op=\"push\"||shard=\"0\"} 5\n"
                                        "request_seconds{||shard=\"0\"} 6\n"
                                        "requests_total{op=\"pull\"|transport=\"tcp\"|} 7\n"
                                        "table_rows{|table=\"emb\"|} 9\n");
    sl_metrics_remove(&metrics, &sources[0]);
    sl_metrics_remove(&metrics, &sources[0]);
    sl_metrics_remove(&metrics, &sources[1]);
    assert_string_equal(walk(&metrics), "table_rows{|table=\"emb\"|} 9\n");
    sl_metrics_remove(&metrics, &sources[2]);
    assert_string_equal(walk(&metrics), "");
    sl_metrics_fini(&metrics);
}

SL_CASE(metrics_label__escapes_and_separates)
{
    char labels[SL_METRICS_LABELS_BYTES] = "";
    sl_metrics_label(labels, "table", "a\"b\\c\nd\xff");
    sl_metrics_label(labels, "op", "pull");
    assert_string_equal(labels, "table=\"a\\\"b\\\\c\\nd?\",op=\"pull\"");
}

SL_CASE(metrics_label__truncates_between_escapes)
{
    for (size_t shift = 0; shift < 2; shift++) {
        char value[2 * SL_METRICS_LABELS_BYTES];
        memset(value, '"', sizeof value);
        value[sizeof value - 1] = '\0';
        if (shift > 0) {
            value[0] = 'x';
        }
        char labels[SL_METRICS_LABELS_BYTES] = "";
        sl_metrics_label(labels, "t", value);
        const size_t length = strlen(labels);
        assert_true(length < SL_METRICS_LABELS_BYTES);
        assert_string_equal(labels + length - 3, "\\\"\"");
        const size_t backslashes = (length - 4 - shift) / 2;
        for (size_t i = 0; i < backslashes; i++) {
            assert_int_equal(labels[3 + shift + 2 * i], '\\');
        }
    }
}
