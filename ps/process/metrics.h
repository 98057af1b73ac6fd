/* The metrics of a process: its registry, and for each core one block with the cells of the objects
 * on that reactor. Blocks outlive these objects. A reader on another thread walks the registry
 * (core/metrics_text.h). */
#ifndef SL_PS_PROCESS_METRICS_H
#define SL_PS_PROCESS_METRICS_H

#include "core/metrics.h"
#include "core/metrics_process.h"
#include "ps/coordinator/metrics.h"
#include "ps/replication/metrics.h"
#include "ps/server/metrics.h"
#include "reactor/metrics.h"

struct sl_process;
struct sl_process_hosted;
struct sl_server_options;

#define SL_PROCESS_LABEL_BYTES 32

/* The cells of a reactor and of the server that has its transports; those of shards are in struct
 * sl_process_hosted. One reactor writes the cells. Begins on a page of its own. */
struct sl_process_block {
    _Alignas(4096) struct sl_reactor_cells reactor;
    struct sl_server_cells server;

    /* Rarely written: */
    _Alignas(64) struct sl_metrics_source reactor_source;
    struct sl_metrics_source transports[SL_SERVER_TRANSPORTS];
    char reactor_label[SL_PROCESS_LABEL_BYTES];
    char schemes[SL_SERVER_TRANSPORTS][SL_PROCESS_LABEL_BYTES];
};

/* Written by reactor 0, except the limit. */
struct sl_process_cells {
    struct sl_cell memory_limit_bytes; /* of the process; 0: none */
    struct sl_cell coordinator_losses; /* connections to the coordinator that broke */
    struct {
        struct sl_cell number; /* of the last complete one; 0: none since the start */
        struct sl_cell success_ns, duration_ns, bytes;
    } checkpoint;
};

struct sl_process_metrics {
    struct sl_metrics registry;
    struct sl_metrics_process process;
    struct sl_process_cells cells;
    struct sl_coordinator_cells coordinator;
    struct sl_metrics_source checkpoint_source, coordinator_source, memory_source;
    struct sl_metrics_source agent_source, view_source;
    struct sl_process_block *blocks; /* [reactors.count] */
};

/* Main thread, before the cores are created. Errors: NO_MEMORY. */
int sl_process_metrics_init(struct sl_process *process);

/* Adds the core's server, created with these options, and its transports. The core's reactor. */
void sl_process_metrics_add_core(struct sl_process *process, uint32_t core,
                                 const struct sl_server_options *server);

/* Adds the sources of a shard's server; removes them, and resets its cells. The shard's reactor. */
void sl_process_metrics_add_shard(struct sl_process_hosted *hosted);
void sl_process_metrics_remove_shard(struct sl_process_hosted *hosted);

/* Main thread: no reactor runs, and no reader uses the registry. */
void sl_process_metrics_fini(struct sl_process *process);

#endif
