#include "tools/top/panel.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/err.h"

/* Appends a copy of outer, with the fields of inner in their place. */
static void append(json_t *rows, const json_t *outer, const json_t *inner)
{
    json_t *row = json_copy((json_t *)(uintptr_t)outer);
    (void)json_object_update(row, (json_t *)(uintptr_t)inner);
    (void)json_array_append_new(rows, row);
}

/* A new array of flat objects: one for each part of an item, or for the item if it has none. */
static json_t *collect(const struct sl_panel *panel, const json_t *state)
{
    json_t *rows = json_array(), *item, *part;
    size_t i, j;
    json_array_foreach(json_object_get(json_object_get(state, panel->answer), panel->list), i, item)
    {
        const json_t *parts = panel->parts != NULL ? json_object_get(item, panel->parts) : NULL;
        json_array_foreach(parts, j, part)
        {
            append(rows, item, part);
        }
        if (json_array_size(parts) == 0) {
            append(rows, item, parts); /* phases are one object, not an array */
        }
    }
    return rows;
}

#define LEFT(title, field, format)                                                                 \
    {                                                                                              \
        title, field, SL_FORMAT_##format, true                                                     \
    }
#define RIGHT(title, field, format)                                                                \
    {                                                                                              \
        title, field, SL_FORMAT_##format, false                                                    \
    }

const struct sl_panel sl_panels[SL_PANEL_COUNT] = {
    [SL_PANEL_SERVERS] = {"servers",
                          "cluster",
                          "servers",
                          "shards",
                          {LEFT("SERVER", "name", TEXT), LEFT("STATE", "state", TEXT),
                           RIGHT("SHARD", "shard", TEXT), LEFT("SERVING", "serving", TEXT),
                           LEFT("BACKUP", "backup", TEXT), LEFT("SYNC", "in_sync", TEXT),
                           RIGHT("BUSY", "busy", PERCENT), RIGHT("REQ/S", "requests_s", COUNT),
                           RIGHT("P99", "p99_us", MICROS), RIGHT("KEYS/S", "keys_s", COUNT),
                           RIGHT("BYTES/S", "bytes_s", SIZE), RIGHT("MEMORY", "memory", SIZE),
                           RIGHT("ROWS", "rows", COUNT)}},
    [SL_PANEL_WORKERS] = {"workers",
                          "cluster",
                          "workers",
                          NULL,
                          {LEFT("WORKER", "name", TEXT), LEFT("STATE", "state", TEXT),
                           RIGHT("LAG", "lag", COUNT), RIGHT("CLOCK", "clock", TEXT),
                           RIGHT("STEPS/S", "steps_s", COUNT),
                           RIGHT("STEP P99", "step_p99_us", MICROS),
                           RIGHT("REQ/S", "requests_s", COUNT), RIGHT("FLIGHT", "in_flight", COUNT),
                           RIGHT("RECONNECTS", "reconnects", COUNT),
                           RIGHT("REPORT AGE", "age_s", SECONDS)}},
    [SL_PANEL_TABLES] = {"tables",
                         "cluster",
                         "tables",
                         NULL,
                         {LEFT("TABLE", "name", TEXT), RIGHT("ROWS", "rows", COUNT),
                          RIGHT("MEMORY", "memory", SIZE),
                          RIGHT("PULLED/S", "pulled_keys_s", COUNT),
                          RIGHT("PUSHED/S", "pushed_keys_s", COUNT)}},
    [SL_PANEL_KEYS] =
        {"keys",
         "hot",
         "tables",
         "keys",
         {LEFT("KEY", "key", TEXT), RIGHT("SHARE", "share", PERCENT), RIGHT("SHARD", "shard", TEXT),
          LEFT("TABLE", "table", TEXT)}},
    [SL_PANEL_SLOW] = {"slow",
                       "slow",
                       "requests",
                       "phases",
                       {LEFT("TIME", "time", TIME), RIGHT("TOTAL", "total_us", MICROS),
                        LEFT("OP", "op", TEXT), LEFT("CLIENT", "client", TEXT),
                        LEFT("TABLE", "table", TEXT), RIGHT("KEYS", "keys", COUNT),
                        RIGHT("SHARD", "shard", TEXT), RIGHT("ITERATION", "iteration_us", MICROS),
                        RIGHT("CLOCK", "clock_us", MICROS), RIGHT("MEMORY", "memory_us", MICROS),
                        RIGHT("BACKUP", "backup_us", MICROS), RIGHT("WORK", "work_us", MICROS),
                        RIGHT("SEND", "send_us", MICROS)}},
};

static void write_cell(const struct sl_panel_rows *rows, int row, int column,
                       char text[SL_FORMAT_BYTES])
{
    const struct sl_panel_column *of = &rows->panel->columns[column];
    if (row < 0) {
        (void)snprintf(text, SL_FORMAT_BYTES, "%s", of->title);
    } else {
        sl_format_value(json_object_get(rows->rows[row], of->field), of->format, text);
    }
}

static bool has_column(const struct sl_panel *panel, int column)
{
    return column < SL_PANEL_COLUMNS_MAX && panel->columns[column].title != NULL;
}

struct order {
    const char *field;
    int sign;
};

/* Numbers by value, names so that worker/10 follows worker/9; a missing value is the least. */
static int compare(const void *a, const void *b, void *ctx)
{
    const struct order *order = ctx;
    const json_t *x = json_object_get(*(const json_t *const *)a, order->field);
    const json_t *y = json_object_get(*(const json_t *const *)b, order->field);
    if (json_is_string(x) && json_is_string(y)) {
        return order->sign * strverscmp(json_string_value(x), json_string_value(y));
    }
    const double m = json_is_number(x) ? json_number_value(x) : -1;
    const double n = json_is_number(y) ? json_number_value(y) : -1;
    return order->sign * ((m > n) - (m < n));
}

static bool matches(const struct sl_panel_rows *rows, int row, const char *filter)
{
    bool found = *filter == '\0';
    for (int column = 0; !found && has_column(rows->panel, column); column++) {
        char text[SL_FORMAT_BYTES];
        write_cell(rows, row, column, text);
        found = rows->panel->columns[column].is_left && strcasestr(text, filter) != NULL;
    }
    return found;
}

static void measure(struct sl_panel_rows *rows)
{
    for (int column = 0; has_column(rows->panel, column); column++) {
        for (int row = -1; row < (int)rows->count; row++) {
            char text[SL_FORMAT_BYTES];
            write_cell(rows, row, column, text);
            const int width = sl_format_width(text);
            rows->widths[column] = width > rows->widths[column] ? width : rows->widths[column];
        }
    }
}

int sl_panel_rows_init(const struct sl_panel *panel, const json_t *state,
                       const struct sl_panel_choice *choice, struct sl_panel_rows *out)
{
    struct sl_panel_rows rows = {.panel = panel, .all = collect(panel, state)};
    rows.rows = calloc(json_array_size(rows.all) + 1, sizeof(const json_t *));
    if (rows.rows == NULL) {
        json_decref(rows.all);
        return SL_ERR_NO_MEMORY;
    }
    for (size_t i = 0; i < json_array_size(rows.all); i++) {
        rows.rows[rows.count] = json_array_get(rows.all, i);
        rows.count += matches(&rows, (int)rows.count, choice->filter);
    }
    if (choice->column >= 0) {
        struct order order = {panel->columns[choice->column].field, choice->is_descending ? -1 : 1};
        qsort_r(rows.rows, rows.count, sizeof(const json_t *), compare, &order);
    }
    measure(&rows);
    *out = rows;
    return 0;
}

void sl_panel_rows_fini(struct sl_panel_rows *rows)
{
    json_decref(rows->all);
    free(rows->rows);
}

void sl_panel_line(const struct sl_panel_rows *rows, int row, int width,
                   char line[SL_PANEL_LINE_BYTES])
{
    size_t used = 0;
    line[0] = '\0';
    for (int column = 0; has_column(rows->panel, column); column++) {
        char text[SL_FORMAT_BYTES];
        write_cell(rows, row, column, text);
        const int gap = column > 0 ? 2 : 0;
        const int room = column > 0 || rows->widths[0] < width ? rows->widths[column] : width;
        if (gap + room > width || used + sizeof text + (size_t)room >= SL_PANEL_LINE_BYTES) {
            break;
        }
        sl_format_clip(text, room);
        const int blank = room - sl_format_width(text);
        const bool is_left = rows->panel->columns[column].is_left;
        used += (size_t)snprintf(line + used, SL_PANEL_LINE_BYTES - used, "%*s%s%*s",
                                 gap + (is_left ? 0 : blank), "", text, is_left ? blank : 0, "");
        width -= gap + room;
    }
    while (used > 0 && line[used - 1] == ' ') {
        line[--used] = '\0';
    }
}

static void add(char line[SL_PANEL_LINE_BYTES], const char *title, const json_t *value,
                enum sl_format format)
{
    char text[SL_FORMAT_BYTES];
    const size_t used = strlen(line);
    sl_format_value(value, format, text);
    (void)snprintf(line + used, SL_PANEL_LINE_BYTES - used, "%s%s%s%s", used > 0 ? "  " : "", title,
                   title[0] != '\0' ? " " : "", text);
}

void sl_panel_summary(const json_t *state, char job[SL_PANEL_LINE_BYTES],
                      char totals[SL_PANEL_LINE_BYTES])
{
    static const struct sl_panel_column columns[] = {
        {"requests/s", "requests_s", SL_FORMAT_COUNT, false},
        {"keys/s", "keys_s", SL_FORMAT_COUNT, false},
        {"bytes/s", "bytes_s", SL_FORMAT_SIZE, false},
        {"p99", "p99_us", SL_FORMAT_MICROS, false},
        {"staleness", "staleness", SL_FORMAT_COUNT, false},
        {"memory", "memory", SL_FORMAT_SIZE, false}};
    const json_t *cluster = json_object_get(state, "cluster"), *missing;
    const json_t *checkpoint = json_object_get(cluster, "checkpoint");
    const json_t *last = json_object_get(checkpoint, "last");
    size_t i;
    job[0] = totals[0] = '\0';
    add(job, "job", json_object_get(cluster, "job"), SL_FORMAT_TEXT);
    json_array_foreach(json_object_get(cluster, "missing"), i, missing)
    {
        add(job, "missing", missing, SL_FORMAT_TEXT);
    }
    add(job, "coordinator", json_object_get(cluster, "coordinator"), SL_FORMAT_TEXT);
    if (json_is_number(last)) {
        json_t *age = json_real(json_number_value(json_object_get(cluster, "time")) -
                                json_number_value(last));
        add(job, "checkpoint", json_object_get(checkpoint, "number"), SL_FORMAT_TEXT);
        add(job, "age", age, SL_FORMAT_SECONDS);
        json_decref(age);
    }
    for (i = 0; i < sizeof columns / sizeof columns[0]; i++) {
        add(totals, columns[i].title,
            json_object_get(json_object_get(cluster, "totals"), columns[i].field),
            columns[i].format);
    }
}
