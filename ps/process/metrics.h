/* The metrics of a process: its registry, and for each core one block with the cells of the objects
 * on that reactor. Blocks outlive these objects. A reader on another thread walks the registry
 * (observe/metrics/text.h). */
#ifndef SL_PS_PROCESS_METRICS_H
#define SL_PS_PROCESS_METRICS_H

#include "core/metrics.h"
#include "observe/metrics/process.h"
#include "reactor/metrics.h"

struct sl_process;

/* One reactor writes the cells. Begins on a page of its own. */
struct sl_process_block {
    _Alignas(4096) struct sl_reactor_cells reactor;

    /* Not written while reactors run: */
    _Alignas(64) struct sl_metrics_source reactor_source;
    char reactor_label[32];
};

struct sl_process_metrics {
    struct sl_metrics registry;
    struct sl_metrics_process process;
    struct sl_process_block *blocks; /* [reactor_count] */
};

/* Main thread, before the cores are created. Errors: NO_MEMORY. */
int sl_process_metrics_init(struct sl_process *process);

/* Main thread: no reactor runs, and no reader uses the registry. */
void sl_process_metrics_fini(struct sl_process *process);

#endif
