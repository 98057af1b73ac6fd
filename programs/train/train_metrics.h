/* The metrics of starling-worker: the progress of its training, and where its time goes. The
 * training thread writes the cells; any thread reads them. */
#ifndef SL_PROGRAMS_TRAIN_TRAIN_METRICS_H
#define SL_PROGRAMS_TRAIN_TRAIN_METRICS_H

#include "core/metrics_process.h"

struct sl_client;
struct sl_train_report;

struct sl_train_cells {
    struct sl_cell rows, batches;
    struct sl_cell loss; /* recent mean, in millionths */
    struct sl_cell reading_ns, waiting_ns, computing_ns, sending_ns;
};

struct sl_train_metrics {
    struct sl_metrics registry; /* the cells, and the process */
    struct sl_metrics_process process;
    struct sl_metrics_source source;
    struct sl_train_cells cells;
};

void sl_train_metrics_init(struct sl_train_metrics *metrics);

/* No reader uses the registry. */
void sl_train_metrics_fini(struct sl_train_metrics *metrics);

/* Copies what the report has after a batch. The training thread. */
void sl_train_metrics_update(struct sl_train_cells *cells, const struct sl_train_report *report,
                             double recent_loss);

/* Writes the page /metrics of the process and of its client (NULL: none), in the text format
 * 0.0.4. *text: with NUL, freed by the caller; *bytes: without NUL. Any thread but a reactor's.
 * Errors: NO_MEMORY. */
int sl_train_metrics_create(struct sl_train_metrics *metrics, const struct sl_client *client,
                            char **text, size_t *bytes);

#endif
