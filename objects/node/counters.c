#include "objects/node/counters.h"

#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/metrics_text.h"
#include "objects/node/error.h"
#include "objects/node/node.h"

#define ROW(name, label, member, help)                                                             \
    {                                                                                              \
        name, label, SL_METRICS_COUNTER, SL_METRICS_PLAIN,                                         \
            offsetof(struct sl_objects_counters, member), help                                     \
    }

static const struct sl_metrics_row ROWS[] = {
    ROW("objects_fetched_bytes_total", NULL, fetched_bytes, "Bytes of versions read from nodes."),
    ROW("objects_saved_bytes_total", "by=\"equal\"", shared_bytes, "Bytes that were not read."),
    ROW("objects_saved_bytes_total", "by=\"delta\"", delta_saved_bytes, NULL),
    ROW("objects_delta_fallbacks_total", NULL, delta_fallbacks,
        "Deltas, or blocks of them, that were replaced by whole blocks."),
};

int sl_objects_metrics(const struct sl_objects *objects, char *text, size_t room)
{
    sl_assert(objects != NULL);
    struct sl_metrics metrics;
    struct sl_metrics_source source = {.rows = ROWS,
                                       .row_count = sizeof ROWS / sizeof ROWS[0],
                                       .cells = &objects->measured.counters};
    char *made;
    size_t bytes;
    sl_metrics_init(&metrics);
    sl_metrics_add(&metrics, &source);
    const int err = sl_metrics_text_create(&metrics, false, &made, &bytes);
    sl_metrics_remove(&metrics, &source);
    sl_metrics_fini(&metrics);
    if (err != 0) {
        return sl_objects_fail(err, "out of memory");
    }
    if (bytes < room) {
        memcpy(text, made, bytes + 1);
    }
    free(made);
    (void)sl_objects_succeed();
    return (int)bytes;
}
