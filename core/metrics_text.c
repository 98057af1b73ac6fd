#include "core/metrics_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/array.h"
#include "core/assert.h"
#include "core/clock.h"
#include "core/err.h"
#include "core/format.h"

/* Limits of the exported buckets in powers of two of a microsecond, which the cells have too. */
static const uint8_t bucket_powers[] = {3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 18, 20, 23};

#define BUCKETS       (sizeof bucket_powers / sizeof bucket_powers[0])

/* Labels of the row, of the source and its detail. */
#define LABELS_BYTES  (SL_METRICS_LABELS_BYTES + 128)

#define DECIMAL_BYTES 32

struct value {
    uint64_t value;  /* of a histogram: the number of durations */
    uint64_t sum_ns; /* of a histogram */
    uint64_t buckets[BUCKETS];
};

struct series {
    const struct sl_metrics_row *row;
    struct value value;
    char labels[LABELS_BYTES];
};

struct collection {
    struct sl_metrics_visitor visitor;
    bool one_by_one;
    bool is_short_of_memory;
    struct series *series;
    uint32_t count, capacity;
};

static void append_labels(char labels[LABELS_BYTES], const char *more)
{
    if (more == NULL || *more == '\0') {
        return;
    }
    const bool fits = sl_format_add(labels, LABELS_BYTES, ",", "%s", more);
    sl_assert(fits);
}

static struct value value_of(const struct sl_metrics_series *series)
{
    struct value value = {.value = series->value};
    if (series->histogram == NULL) {
        return value;
    }
    struct sl_cell_copy copy = {0};
    sl_cell_read(series->histogram, &copy);
    uint64_t count = 0;
    uint32_t cell = 0;
    for (uint32_t i = 0; i < BUCKETS; i++) {
        const uint64_t limit_ns = SL_CLOCK_NS_PER_US << bucket_powers[i];
        for (; sl_cell_limit_ns(cell) <= limit_ns; cell++) {
            count += copy.counts[cell];
        }
        value.buckets[i] = count;
    }
    value.value = copy.count;
    value.sum_ns = copy.sum_ns;
    return value;
}

static void metrics_text_collect(struct sl_metrics_visitor *visitor,
                                 const struct sl_metrics_series *series)
{
    struct collection *collection = SL_CONTAINER_OF(visitor, struct collection, visitor);
    if (!sl_array_make_room(&collection->series, &collection->capacity, collection->count,
                            sizeof *collection->series)) {
        collection->is_short_of_memory = true;
        return;
    }
    struct series *to = &collection->series[collection->count++];
    *to = (struct series){.row = series->row, .value = value_of(series)};
    append_labels(to->labels, series->row->labels);
    append_labels(to->labels, series->labels);
    append_labels(to->labels, collection->one_by_one ? series->detail : NULL);
}

static int metrics_text_compare(const void *a, const void *b)
{
    const struct series *left = *(const struct series *const *)a;
    const struct series *right = *(const struct series *const *)b;
    const int names = strcmp(left->row->name, right->row->name);
    return names != 0 ? names : strcmp(left->labels, right->labels);
}

static void merge(struct series *into, const struct series *from)
{
    struct value *to = &into->value;
    const struct value *more = &from->value;
    switch (into->row->kind) {
    case SL_METRICS_GAUGE_MAX:
        to->value = more->value > to->value ? more->value : to->value;
        break;
    case SL_METRICS_GAUGE_MIN:
        to->value = more->value < to->value ? more->value : to->value;
        break;
    case SL_METRICS_COUNTER:
    case SL_METRICS_GAUGE:
    case SL_METRICS_HISTOGRAM:
        to->value += more->value;
        break;
    }
    to->sum_ns += more->sum_ns;
    for (uint32_t i = 0; i < BUCKETS; i++) {
        to->buckets[i] += more->buckets[i];
    }
}

/* Sorts the series and merges equal ones. Returns their number. */
static uint32_t sort(struct series **sorted, uint32_t count)
{
    qsort(sorted, count, sizeof(struct series *), metrics_text_compare);
    uint32_t used = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (used > 0 && metrics_text_compare(&sorted[used - 1], &sorted[i]) == 0) {
            merge(sorted[used - 1], sorted[i]);
        } else {
            sorted[used++] = sorted[i];
        }
    }
    return used;
}

/* Writes value / 10^digits, without zeros at the end. */
static const char *decimal(char text[DECIMAL_BYTES], uint64_t value, int digits)
{
    uint64_t unit = 1;
    for (; digits > 0 && value % 10 == 0; digits--) {
        value /= 10;
    }
    for (int i = 0; i < digits; i++) {
        unit *= 10;
    }
    if (digits == 0) {
        (void)snprintf(text, DECIMAL_BYTES, "%" PRIu64, value);
    } else {
        (void)snprintf(text, DECIMAL_BYTES, "%" PRIu64 ".%0*" PRIu64, value / unit, digits,
                       value % unit);
    }
    return text;
}

static void metrics_text_write_name(FILE *to, const struct sl_metrics_row *row, const char *suffix)
{
    const bool is_standard = strncmp(row->name, "process_", strlen("process_")) == 0;
    (void)fprintf(to, "%s%s%s", is_standard ? "" : "starling_", row->name, suffix);
}

/* le: the limit of a bucket; NULL: none. */
static void write_line(FILE *to, const struct series *series, const char *suffix, const char *le,
                       const char *value)
{
    const bool has_labels = series->labels[0] != '\0';
    metrics_text_write_name(to, series->row, suffix);
    if (le != NULL) {
        (void)fprintf(to, "{%s%sle=\"%s\"}", series->labels, has_labels ? "," : "", le);
    } else if (has_labels) {
        (void)fprintf(to, "{%s}", series->labels);
    }
    (void)fprintf(to, " %s\n", value);
}

static void write_series(FILE *to, const struct series *series, uint32_t bucket_count)
{
    static const int digits[] = {[SL_METRICS_PLAIN] = 0, [SL_METRICS_NS] = 9, [SL_METRICS_PPM] = 6};
    const struct value *value = &series->value;
    char number[DECIMAL_BYTES], limit[DECIMAL_BYTES];
    if (series->row->kind != SL_METRICS_HISTOGRAM) {
        write_line(to, series, "", NULL, decimal(number, value->value, digits[series->row->unit]));
        return;
    }
    for (uint32_t i = 0; i < bucket_count; i++) {
        decimal(limit, SL_CLOCK_NS_PER_US << bucket_powers[i], 9);
        write_line(to, series, "_bucket", limit, decimal(number, value->buckets[i], 0));
    }
    write_line(to, series, "_bucket", "+Inf", decimal(number, value->value, 0));
    write_line(to, series, "_sum", NULL, decimal(number, value->sum_ns, 9));
    write_line(to, series, "_count", NULL, decimal(number, value->value, 0));
}

/* Writes HELP and TYPE. */
static void write_head(FILE *to, const struct sl_metrics_row *row, const char *help)
{
    static const char *const types[] = {
        [SL_METRICS_COUNTER] = "counter",     [SL_METRICS_GAUGE] = "gauge",
        [SL_METRICS_GAUGE_MAX] = "gauge",     [SL_METRICS_GAUGE_MIN] = "gauge",
        [SL_METRICS_HISTOGRAM] = "histogram",
    };
    (void)fprintf(to, "# HELP ");
    metrics_text_write_name(to, row, " ");
    for (; *help != '\0'; help++) {
        if (*help == '\n' || *help == '\\') {
            (void)fputc('\\', to);
        }
        (void)fputc(*help == '\n' ? 'n' : *help, to);
    }
    (void)fprintf(to, "\n# TYPE ");
    metrics_text_write_name(to, row, " ");
    (void)fprintf(to, "%s\n", types[row->kind]);
}

/* Writes the first family; returns how many series it has. */
static uint32_t write_family(FILE *to, struct series *const *sorted, uint32_t count,
                             uint32_t bucket_count)
{
    const struct sl_metrics_row *row = sorted[0]->row;
    const char *help = NULL;
    uint32_t length = 0;
    for (; length < count && strcmp(sorted[length]->row->name, row->name) == 0; length++) {
        help = help == NULL ? sorted[length]->row->help : help;
    }
    write_head(to, row, help == NULL ? "" : help);
    for (uint32_t i = 0; i < length; i++) {
        write_series(to, sorted[i], bucket_count);
    }
    return length;
}

/* Errors: NO_MEMORY. */
static int write_text(struct collection *collection, char **text, size_t *bytes)
{
    struct series **sorted = calloc(collection->count + 1, sizeof(struct series *));
    FILE *to = sorted == NULL ? NULL : open_memstream(text, bytes);
    if (to == NULL) {
        free(sorted);
        return SL_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < collection->count; i++) {
        sorted[i] = &collection->series[i];
    }
    const uint32_t count = sort(sorted, collection->count);
    for (uint32_t done = 0; done < count;) {
        done += write_family(to, sorted + done, count - done, collection->one_by_one ? 0 : BUCKETS);
    }
    free(sorted);
    const bool failed = ferror(to) != 0;
    if (fclose(to) != 0 || failed) {
        free(*text);
        *text = NULL;
        return SL_ERR_NO_MEMORY;
    }
    return 0;
}

int sl_metrics_text_create(struct sl_metrics *metrics, bool one_by_one, char **text, size_t *bytes)
{
    struct collection collection = {.visitor.visit = metrics_text_collect,
                                    .one_by_one = one_by_one};
    sl_metrics_walk(metrics, &collection.visitor);
    const int err =
        collection.is_short_of_memory ? SL_ERR_NO_MEMORY : write_text(&collection, text, bytes);
    free(collection.series);
    return err;
}
