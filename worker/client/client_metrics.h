/* The metrics of a client: names for its cells (client_cells.h), and sl_client_metrics. */
#ifndef SL_WORKER_CLIENT_CLIENT_METRICS_H
#define SL_WORKER_CLIENT_CLIENT_METRICS_H

#include "worker/client/client_internal.h"

/* Adds the cells of the client_ios to the client's registry. Before they run. */
void sl_client_metrics_init(struct sl_client *client);

/* Adds those of an application thread. That thread. */
void sl_client_metrics_add_thread(struct sl_client *client, struct sl_thread_ctx *thread_ctx);

/* Adds the step times of all application threads to the copy. False: another thread uses the
 * registry, and nothing was added. Any thread. */
bool sl_client_metrics_step_times(struct sl_metrics *metrics, struct sl_cell_copy *times);

#endif
