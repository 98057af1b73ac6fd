/* The figures of the process itself: processor time, memory, descriptors, start, log lines,
 * version. They are read from the system when the registry is walked. */
#ifndef SL_CORE_METRICS_PROCESS_H
#define SL_CORE_METRICS_PROCESS_H

#include "core/metrics.h"

struct sl_metrics_process {
    struct sl_metrics_source source;
    char labels[SL_METRICS_LABELS_BYTES]; /* of build_info */
};

/* Adds the source; role: "ps", "scheduler" or "worker". Its owner removes it, or keeps it as long
 * as the registry. Any thread. */
void sl_metrics_process_add(struct sl_metrics *metrics, struct sl_metrics_process *process,
                            const char *role);

/* Returns the resident memory of this process; 0: unknown. Any thread. */
uint64_t sl_metrics_process_resident_bytes(void);

#endif
