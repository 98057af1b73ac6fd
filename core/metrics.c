#include "core/metrics.h"

#include <string.h>

#include "core/assert.h"

void sl_metrics_init(struct sl_metrics *metrics)
{
    const int err = pthread_mutex_init(&metrics->lock, NULL);
    sl_assert(err == 0);
    sl_list_init(&metrics->sources);
}

void sl_metrics_fini(struct sl_metrics *metrics)
{
    (void)pthread_mutex_destroy(&metrics->lock);
}

void sl_metrics_add(struct sl_metrics *metrics, struct sl_metrics_source *source)
{
    sl_assert(source->collect != NULL || source->cells != NULL);
    (void)pthread_mutex_lock(&metrics->lock);
    sl_list_append(&metrics->sources, &source->link);
    (void)pthread_mutex_unlock(&metrics->lock);
}

void sl_metrics_remove(struct sl_metrics *metrics, struct sl_metrics_source *source)
{
    (void)pthread_mutex_lock(&metrics->lock);
    if (sl_list_linked(&source->link)) {
        sl_list_remove(&source->link);
    }
    (void)pthread_mutex_unlock(&metrics->lock);
}

static const char *text_or_empty(const char *text)
{
    return text == NULL ? "" : text;
}

static void visit_rows(const struct sl_metrics_source *source, struct sl_metrics_visitor *visitor)
{
    for (uint32_t i = 0; i < source->row_count; i++) {
        const struct sl_metrics_row *row = &source->rows[i];
        const void *cell = (const char *)source->cells + row->offset;
        struct sl_metrics_series series = {.row = row,
                                           .labels = text_or_empty(source->labels),
                                           .detail = text_or_empty(source->detail)};
        if (row->kind == SL_METRICS_HISTOGRAM) {
            series.histogram = cell;
        } else {
            series.value = sl_cell_get(cell);
        }
        visitor->visit(visitor, &series);
    }
}

static void core_metrics_walk(struct sl_metrics *metrics, struct sl_metrics_visitor *visitor)
{
    SL_LIST_FOREACH (link, &metrics->sources) {
        const struct sl_metrics_source *source =
            SL_CONTAINER_OF(link, struct sl_metrics_source, link);
        if (source->is_active != NULL && sl_cell_get(source->is_active) == 0) {
            continue;
        }
        if (source->collect != NULL) {
            source->collect(source->ctx, visitor);
        } else {
            visit_rows(source, visitor);
        }
    }
}

void sl_metrics_walk(struct sl_metrics *metrics, struct sl_metrics_visitor *visitor)
{
    (void)pthread_mutex_lock(&metrics->lock);
    core_metrics_walk(metrics, visitor);
    (void)pthread_mutex_unlock(&metrics->lock);
}

bool sl_metrics_try_walk(struct sl_metrics *metrics, struct sl_metrics_visitor *visitor)
{
    if (pthread_mutex_trylock(&metrics->lock) != 0) {
        return false;
    }
    core_metrics_walk(metrics, visitor);
    (void)pthread_mutex_unlock(&metrics->lock);
    return true;
}

void sl_metrics_visit(struct sl_metrics_visitor *visitor, const struct sl_metrics_row *row,
                      const char *labels, uint64_t value)
{
    const struct sl_metrics_series series = {
        .row = row, .labels = labels, .detail = "", .value = value};
    visitor->visit(visitor, &series);
}

void sl_metrics_label(char labels[SL_METRICS_LABELS_BYTES], const char *name, const char *value)
{
    const size_t name_bytes = strlen(name);
    size_t used = strlen(labels);
    sl_assert(used + name_bytes + sizeof ",=\"\"" <= SL_METRICS_LABELS_BYTES);
    if (used > 0) {
        labels[used++] = ',';
    }
    memcpy(labels + used, name, name_bytes);
    used += name_bytes;
    labels[used++] = '=';
    labels[used++] = '"';
    /* Room for an escaped byte, the closing quote and NUL. */
    for (; *value != '\0' && used + 4 <= SL_METRICS_LABELS_BYTES; value++) {
        if (*value == '\\' || *value == '"' || *value == '\n') {
            labels[used++] = '\\';
        }
        labels[used++] = *value == '\n' ? 'n' : (unsigned char)*value < 0x80 ? *value : '?';
    }
    labels[used++] = '"';
    labels[used] = '\0';
}
