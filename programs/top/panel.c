#include "programs/top/panel.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/format.h"
#include "core/reason.h"

#define CLIP_MIN 8              /* columns that are left of a clipped text */
#define TIME_MAX 253402300799.0 /* the end of the year 9999 */

enum format {
    NAME,    /* text, at the left; the filter looks here */
    PHASES,  /* text, as NAME: clock 12.4ms, send 80us */
    INTEGER, /* as it is */
    COUNT,   /* 43.8k */
    SIZE,    /* bytes: 1.58G, of powers of 1024 */
    MICROS,  /* 840us, 1.20ms */
    SECONDS, /* 0.4s, 3.2m, 2h */
    PERCENT, /* 31% of 0.31 */
    FIGURE,  /* four significant digits */
    TIME,    /* 12:03:05 of unix seconds, local */
};

struct column {
    const char *title, *field;
    enum format format;
};

/* Unused ones have no title. */
static const struct column servers_columns[SL_PANEL_COLUMNS_MAX + 1] = {
    {"SERVER", "name", NAME},     {"STATE", "state", NAME},    {"SHARD", "shard", INTEGER},
    {"SERVING", "serving", NAME}, {"BACKUP", "backup", NAME},  {"SYNC", "in_sync", NAME},
    {"MOVES", "moves_to", NAME},  {"BUSY", "busy", PERCENT},   {"REQ/S", "requests_s", COUNT},
    {"P99", "p99_us", MICROS},    {"KEYS/S", "keys_s", COUNT}, {"BYTES/S", "bytes_s", SIZE},
    {"MEMORY", "memory", SIZE},   {"ROWS", "rows", COUNT}};
static const struct column workers_columns[SL_PANEL_COLUMNS_MAX + 1] = {
    {"WORKER", "name", NAME},
    {"STATE", "state", NAME},
    {"LAG", "lag", COUNT},
    {"CLOCK", "clock", INTEGER},
    {"STEPS/S", "steps_s", COUNT},
    {"STEP P99", "step_p99_us", MICROS},
    {"REQ/S", "requests_s", COUNT},
    {"FLIGHT", "in_flight", COUNT},
    {"RECONNECTS", "reconnects", COUNT},
    {"REPORT AGE", "age_s", SECONDS}};
static const struct column tables_columns[SL_PANEL_COLUMNS_MAX + 1] = {
    {"TABLE", "name", NAME},
    {"ROWS", "rows", COUNT},
    {"MEMORY", "memory", SIZE},
    {"PULLED/S", "pulled_keys_s", COUNT},
    {"PUSHED/S", "pushed_keys_s", COUNT},
    {"EVICTED/S", "evicted_keys_s", COUNT},
    {"WAITING", "waiting_keys", COUNT}};
static const struct column keys_columns[SL_PANEL_COLUMNS_MAX + 1] = {{"KEY", "key", NAME},
                                                                     {"SHARE", "share", PERCENT},
                                                                     {"SHARD", "shard", INTEGER},
                                                                     {"TABLE", "table", NAME}};
static const struct column slow_columns[SL_PANEL_COLUMNS_MAX + 1] = {
    {"TIME", "time", TIME},
    {"COUNT", "count", INTEGER},
    {"LONGEST", "total_us", MICROS},
    {"OP", "op", NAME},
    {"CLIENT", "client", NAME},
    {"TABLE", "table", NAME},
    {"KEYS", "keys", COUNT},
    {"SHARD", "shard", INTEGER},
    {"WHERE ITS TIME WENT", "phases", PHASES}};

/* A row for each item of a list in an answer, or for each part of an item, if it has parts. */
static const struct panel {
    const char *name, *answer, *list, *parts;
    const struct column *columns; /* until one without a title */
} panels[] = {
    [SL_PANEL_SERVERS] = {"servers", "cluster", "servers", "shards", servers_columns},
    [SL_PANEL_WORKERS] = {"workers", "cluster", "workers", NULL, workers_columns},
    [SL_PANEL_TABLES] = {"tables", "cluster", "tables", NULL, tables_columns},
    [SL_PANEL_KEYS] = {"keys", "hot", "tables", "keys", keys_columns},
    [SL_PANEL_SLOW] = {"slow", "slow", "groups", NULL, slow_columns},
};

/* ---- values as text ---- */

static const json_t *panel_value_of(const struct sl_panel_row *row, const char *field)
{
    const json_t *value = json_object_get(row->part, field);
    return value != NULL ? value : json_object_get(row->item, field);
}

static void write_name(const json_t *value, char text[SL_PANEL_CELL_BYTES])
{
    const char *name = json_is_true(value)     ? "yes"
                       : json_is_false(value)  ? "no"
                       : json_is_string(value) ? json_string_value(value)
                                               : "-";
    (void)snprintf(text, SL_PANEL_CELL_BYTES, "%s", name);
    sl_reason_make_printable(text, strlen(text));
}

void sl_panel_time(double unix_seconds, char text[SL_PANEL_CELL_BYTES])
{
    const time_t seconds = (time_t)fmin(fmax(unix_seconds, 0), TIME_MAX);
    struct tm local;
    (void)localtime_r(&seconds, &local);
    (void)strftime(text, SL_PANEL_CELL_BYTES, "%H:%M:%S", &local);
}

static void write_scaled(double value, enum format format, char text[SL_PANEL_CELL_BYTES])
{
    static const struct {
        double factor, base;
        const char *units[6];
    } scales[] = {[COUNT] = {1, 1000, {"", "k", "M", "G", "T"}},
                  [SIZE] = {1, 1024, {"", "K", "M", "G", "T"}},
                  [MICROS] = {1, 1000, {"us", "ms", "s"}},
                  [SECONDS] = {1, 60, {"s", "m", "h"}},
                  [PERCENT] = {100, HUGE_VAL, {"%"}}};
    const char *const *unit = scales[format].units;
    value *= scales[format].factor;
    while (fabs(value) >= scales[format].base && unit[1] != NULL) {
        value /= scales[format].base;
        unit++;
    }
    const bool is_whole = value == floor(value) || fabs(value) >= 100;
    const int digits = is_whole ? 0 : fabs(value) >= 10 || format == SECONDS ? 1 : 2;
    (void)snprintf(text, SL_PANEL_CELL_BYTES, "%.*f%s", digits, value, *unit);
}

/* Where the time of a slow request went. */
static void write_phases(const json_t *value, char text[SL_PANEL_CELL_BYTES])
{
    static const char *const phases[] = {"iteration", "clock", "memory", "backup", "work", "send"};
    text[0] = '\0';
    for (size_t i = 0; i < sizeof phases / sizeof phases[0]; i++) {
        char field[16], time[SL_PANEL_CELL_BYTES];
        (void)snprintf(field, sizeof field, "%s_us", phases[i]);
        const double micros = json_number_value(json_object_get(value, field));
        if (micros > 0) {
            write_scaled(micros, MICROS, time);
            (void)sl_format_add(text, SL_PANEL_CELL_BYTES, ", ", "%s %s", phases[i], time);
        }
    }
    if (text[0] == '\0') {
        (void)snprintf(text, SL_PANEL_CELL_BYTES, "-");
    }
}

static void panel_write_value(const json_t *value, enum format format,
                              char text[SL_PANEL_CELL_BYTES])
{
    const double number = json_number_value(value);
    if (format == PHASES) {
        write_phases(value, text);
    } else if (format == NAME || !json_is_number(value)) {
        write_name(value, text);
    } else if (format == INTEGER) {
        (void)snprintf(text, SL_PANEL_CELL_BYTES, "%.15g", number);
    } else if (format == FIGURE) {
        (void)snprintf(text, SL_PANEL_CELL_BYTES, "%.4g", number);
    } else if (format == TIME) {
        sl_panel_time(number, text);
    } else {
        write_scaled(number, format, text);
    }
}

/* ---- rows ---- */

/* Fills a row; false: it does not match. */
static bool fill(struct sl_panel_row *row, const struct column *columns, const char *filter)
{
    bool matches = *filter == '\0';
    for (uint32_t i = 0; columns[i].title != NULL; i++) {
        panel_write_value(panel_value_of(row, columns[i].field), columns[i].format, row->cells[i]);
        matches |= columns[i].format <= PHASES && strcasestr(row->cells[i], filter) != NULL;
    }
    return matches;
}

/* The titles, and the rows that match. */
static struct sl_panel_row *collect(const struct panel *panel, const json_t *state,
                                    const char *filter, uint32_t *count)
{
    const json_t *list = json_object_get(json_object_get(state, panel->answer), panel->list), *item;
    size_t index, room = 1;
    json_array_foreach(list, index, item)
    {
        room += 1 + json_array_size(json_object_get(item, panel->parts));
    }
    struct sl_panel_row *rows = calloc(room, sizeof *rows);
    if (rows == NULL) {
        return NULL;
    }
    for (uint32_t i = 0; panel->columns[i].title != NULL; i++) {
        (void)snprintf(rows[0].cells[i], sizeof rows[0].cells[i], "%s", panel->columns[i].title);
    }
    *count = 0;
    json_array_foreach(list, index, item)
    {
        const json_t *parts = json_object_get(item, panel->parts);
        size_t i = 0;
        do {
            struct sl_panel_row *row = &rows[*count + 1];
            row->item = item;
            row->part = json_array_get(parts, i);
            *count += fill(row, panel->columns, filter);
        } while (++i < json_array_size(parts));
    }
    return rows;
}

struct sort {
    const char *field;
    int sign;
};

/* Numbers by value, names so that worker/10 follows worker/9; a missing value is the least. */
static int panel_compare(const void *a, const void *b, void *ctx)
{
    const struct sort *sort = ctx;
    const json_t *x = panel_value_of(a, sort->field), *y = panel_value_of(b, sort->field);
    if (json_is_string(x) && json_is_string(y)) {
        return sort->sign * strverscmp(json_string_value(x), json_string_value(y));
    }
    const double m = json_is_number(x) ? json_number_value(x) : -1;
    const double n = json_is_number(y) ? json_number_value(y) : -1;
    return sort->sign * ((m > n) - (m < n));
}

/* The columns that fit; the last of them is clipped, if it is text. */
static void write_line(struct sl_panel_row *row, const struct column *columns, const int *widths,
                       int width)
{
    int used = 0;
    for (uint32_t i = 0; columns[i].title != NULL; i++) {
        const bool is_text = columns[i].format <= PHASES;
        const int gap = i > 0 ? 2 : 0, left = width - used - gap;
        if (widths[i] > left && (!is_text || left < CLIP_MIN) && i > 0) {
            break;
        }
        const int room = widths[i] < left ? widths[i] : left;
        used += snprintf(row->line + used, sizeof row->line - (size_t)used, "%*s%*.*s", gap, "",
                         is_text ? -room : room, room, row->cells[i]);
    }
    while (used > 0 && row->line[used - 1] == ' ') {
        row->line[--used] = '\0';
    }
}

struct sl_panel_row *sl_panel_rows(uint32_t panel, const json_t *state, struct sl_panel_order order,
                                   const char *filter, int width, uint32_t *count)
{
    const struct column *columns = panels[panel].columns;
    struct sl_panel_row *rows = collect(&panels[panel], state, filter, count);
    if (rows == NULL) {
        return NULL;
    }
    if (order.column > 0) {
        struct sort sort = {columns[order.column - 1].field, order.is_descending ? -1 : 1};
        qsort_r(rows + 1, *count, sizeof *rows, panel_compare, &sort);
    }
    int widths[SL_PANEL_COLUMNS_MAX] = {0};
    for (uint32_t i = 0; i < (*count + 1) * SL_PANEL_COLUMNS_MAX; i++) {
        const uint32_t column = i % SL_PANEL_COLUMNS_MAX;
        const int bytes = (int)strlen(rows[i / SL_PANEL_COLUMNS_MAX].cells[column]);
        widths[column] = bytes > widths[column] ? bytes : widths[column];
    }
    for (uint32_t i = 0; i <= *count; i++) {
        write_line(&rows[i], columns, widths,
                   width < SL_PANEL_LINE_BYTES ? width : SL_PANEL_LINE_BYTES - 1);
    }
    return rows;
}

const char *sl_panel_title(uint32_t panel, uint32_t column)
{
    return column == 0 ? panels[panel].name : panels[panel].columns[column - 1].title;
}

void sl_panel_order_next(uint32_t panel, struct sl_panel_order *order)
{
    const struct column *next = &panels[panel].columns[order->column];
    order->column = next->title != NULL ? order->column + 1 : 0;
    order->is_descending = next->title != NULL && next->format > PHASES;
}

/* ---- the job ---- */

static void panel_append(char line[SL_PANEL_LINE_BYTES], const char *title, const json_t *value,
                         enum format format)
{
    char text[SL_PANEL_CELL_BYTES];
    panel_write_value(value, format, text);
    (void)sl_format_add(line, SL_PANEL_LINE_BYTES, "  ", "%s%s", title, text);
}

static void append_count(char line[SL_PANEL_LINE_BYTES], const char *noun, const json_t *list)
{
    const size_t count = json_array_size(list);
    (void)sl_format_add(line, SL_PANEL_LINE_BYTES, "  ", "%zu %s%s", count, noun,
                        count == 1 ? "" : "s");
}

/* State, mode and age of the job; what is not as it should be, first. */
static void write_job(const json_t *cluster, char line[SL_PANEL_LINE_BYTES])
{
    const json_t *trouble = json_object_get(cluster, "trouble"), *item;
    const json_t *checkpoint = json_object_get(cluster, "checkpoint");
    const json_t *last = json_object_get(checkpoint, "last");
    const char *stage = json_string_value(json_object_get(cluster, "job"));
    const bool is_running = stage != NULL && strcmp(stage, "running") == 0;
    size_t i;
    line[0] = '\0';
    if (json_is_string(json_object_get(cluster, "title"))) {
        panel_append(line, "", json_object_get(cluster, "title"), NAME);
    }
    panel_append(line, "job ", json_object_get(cluster, "job"), NAME);
    json_array_foreach(trouble, i, item)
    {
        char text[SL_PANEL_CELL_BYTES];
        panel_write_value(item, NAME, text);
        (void)sl_format_add(line, SL_PANEL_LINE_BYTES,
                            i > 0        ? ", "
                            : is_running ? ", degraded: "
                                         : ": ",
                            "%s", text);
    }
    panel_append(line, "", json_object_get(cluster, "mode"), NAME);
    append_count(line, "server", json_object_get(cluster, "servers"));
    append_count(line, "worker", json_object_get(cluster, "workers"));
    panel_append(line, "up ", json_object_get(cluster, "uptime_s"), SECONDS);
    panel_append(line, "coordinator ", json_object_get(cluster, "coordinator"), NAME);
    if (json_is_number(last)) {
        json_t *age = json_real(json_number_value(json_object_get(cluster, "time")) -
                                json_number_value(last));
        panel_append(line, "checkpoint ", json_object_get(checkpoint, "number"), INTEGER);
        panel_append(line, "of ", age, SECONDS);
        (void)sl_format_add(line, SL_PANEL_LINE_BYTES, " ", "ago");
        json_decref(age);
    }
}

static void write_training(const json_t *training, char line[SL_PANEL_LINE_BYTES])
{
    const json_t *metric = json_object_get(training, "metric");
    const char *name = json_string_value(json_object_get(metric, "name"));
    char title[SL_PANEL_CELL_BYTES], epoch[SL_PANEL_CELL_BYTES], epochs[SL_PANEL_CELL_BYTES];
    line[0] = '\0';
    if (!json_is_object(training)) {
        (void)snprintf(line, SL_PANEL_LINE_BYTES, "training: not reported");
        return;
    }
    panel_write_value(json_object_get(training, "epoch"), FIGURE, epoch);
    panel_write_value(json_object_get(training, "epochs"), INTEGER, epochs);
    (void)sl_format_add(line, SL_PANEL_LINE_BYTES, "  ", "epochs %s of %s", epoch, epochs);
    panel_append(line, "loss ", json_object_get(training, "loss"), FIGURE);
    panel_append(line, "samples/s ", json_object_get(training, "samples_s"), COUNT);
    panel_append(line, "left ", json_object_get(training, "eta_s"), SECONDS);
    if (name != NULL) {
        (void)snprintf(title, sizeof title, "%.64s ", name);
        sl_reason_make_printable(title, strlen(title));
        panel_append(line, title, json_object_get(metric, "value"), FIGURE);
    }
    panel_append(line, "learning rate ", json_object_get(training, "learning_rate"), FIGURE);
}

void sl_panel_summary(const json_t *state, struct sl_panel_summary *out)
{
    static const struct column columns[] = {
        {"req/s ", "requests_s", COUNT},    {"keys/s ", "keys_s", COUNT},
        {"bytes/s ", "bytes_s", SIZE},      {"p99 ", "p99_us", MICROS},
        {"staleness ", "staleness", COUNT}, {"memory ", "memory", SIZE}};
    const json_t *cluster = json_object_get(state, "cluster");
    const json_t *sums = json_object_get(cluster, "totals");
    write_job(cluster, out->job);
    write_training(json_object_get(cluster, "training"), out->training);
    out->totals[0] = '\0';
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) {
        panel_append(out->totals, columns[i].title, json_object_get(sums, columns[i].field),
                     columns[i].format);
    }
}
