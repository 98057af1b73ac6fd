#include "programs/train/train_metrics.h"

#include <math.h>
#include <stdlib.h>

#include "core/clock.h"
#include "core/metrics_text.h"
#include "programs/train/train_report.h"

/* More than a client's page has. */
#define CLIENT_ROOM (64 << 10)

#define ROW(kind, unit, member, name, labels, help)                                                \
    {                                                                                              \
        name, labels, SL_METRICS_##kind, SL_METRICS_##unit,                                        \
            offsetof(struct sl_train_cells, member), help                                          \
    }
#define TIME(member, activity)                                                                     \
    ROW(COUNTER, NS, member, "training_seconds_total", "in=\"" activity "\"",                      \
        "Time of the training thread, by what it did.")

static const struct sl_metrics_row rows[] = {
    ROW(COUNTER, PLAIN, rows, "training_examples_total", NULL, "Examples trained on."),
    ROW(COUNTER, PLAIN, batches, "training_batches_total", NULL, "Batches trained on."),
    ROW(GAUGE, PPM, loss, "training_loss", NULL, "Mean loss of the last batches."),
    TIME(reading_ns, "reading"),
    TIME(waiting_ns, "waiting"),
    TIME(computing_ns, "computing"),
    TIME(sending_ns, "sending"),
};

void sl_train_metrics_init(struct sl_train_metrics *metrics)
{
    sl_metrics_init(&metrics->registry);
    sl_metrics_process_add(&metrics->registry, &metrics->process, "worker");
    metrics->source = (struct sl_metrics_source){
        .rows = rows, .row_count = sizeof rows / sizeof *rows, .cells = &metrics->cells};
    sl_metrics_add(&metrics->registry, &metrics->source);
}

void sl_train_metrics_fini(struct sl_train_metrics *metrics)
{
    sl_metrics_fini(&metrics->registry);
}

static void set_time(struct sl_cell *cell, double seconds)
{
    sl_cell_set(cell, (uint64_t)(seconds * (double)SL_CLOCK_NS_PER_S));
}

void sl_train_metrics_update(struct sl_train_cells *cells, const struct sl_train_report *report,
                             double recent_loss)
{
    const bool is_shown = isfinite(recent_loss) && recent_loss >= 0 && recent_loss < 1e12;
    sl_cell_set(&cells->rows, report->rows);
    sl_cell_set(&cells->batches, report->batches);
    sl_cell_set(&cells->loss, is_shown ? (uint64_t)(recent_loss * 1e6) : 0);
    set_time(&cells->reading_ns, report->reading_seconds);
    set_time(&cells->waiting_ns, report->waiting_seconds);
    set_time(&cells->computing_ns, report->computing_seconds);
    set_time(&cells->sending_ns, report->sending_seconds);
}

/* No family is in both parts. */
int sl_train_metrics_create(struct sl_train_metrics *metrics, const struct sl_client *client,
                            char **text, size_t *bytes)
{
    char *page;
    size_t own;
    int err = sl_metrics_text_create(&metrics->registry, false, &page, &own);
    if (err != 0) {
        return err;
    }
    char *whole = realloc(page, own + CLIENT_ROOM);
    if (whole == NULL) {
        free(page);
        return SL_ERR_NO_MEMORY;
    }
    const int more = client == NULL ? 0 : sl_client_metrics(client, whole + own, CLIENT_ROOM);
    if (more < 0 || more >= CLIENT_ROOM) {
        free(whole);
        return more < 0 ? more : SL_ERR_NO_MEMORY;
    }
    *text = whole;
    *bytes = own + (size_t)more;
    return 0;
}
