/* The metrics that a process reads from its views: tables, clocks of workers, members of the job.
 * Their series come and go with what they show. */
#ifndef SL_PS_PROCESS_VIEW_METRICS_H
#define SL_PS_PROCESS_VIEW_METRICS_H

#include "core/metrics.h"

struct sl_process;

/* Workers with a series of their own: tasks below this. */
#define SL_VIEW_METRICS_WORKERS 1024

/* Returns a source whose registry only the observer's thread walks. */
struct sl_metrics_source sl_view_metrics_source(struct sl_process *process);

#endif
