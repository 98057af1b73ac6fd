#include "ps/process/metrics.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ps/process/hosted.h"
#include "ps/process/view_metrics.h"

static void add_core(struct sl_metrics *registry, struct sl_process_block *block, uint32_t index)
{
    (void)snprintf(block->reactor_label, sizeof block->reactor_label, "reactor=\"%u\"", index);
    block->reactor_source = sl_reactor_metrics_source(&block->reactor, block->reactor_label);
    sl_metrics_add(registry, &block->reactor_source);
}

#define GAUGE(name, unit, member, help)                                                            \
    {                                                                                              \
        name, NULL, SL_METRICS_GAUGE, SL_METRICS_##unit,                                           \
            offsetof(struct sl_process_cells, member), help                                        \
    }

static const struct sl_metrics_row checkpoint_rows[] = {
    GAUGE("checkpoint_number", PLAIN, checkpoint.number,
          "Number of the last complete checkpoint since the process started; 0: none."),
    GAUGE("checkpoint_last_success_timestamp_seconds", NS, checkpoint.success_ns,
          "Unix time at which that checkpoint was complete on all servers; 0: none."),
    GAUGE("checkpoint_duration_seconds", NS, checkpoint.duration_ns,
          "Time that it took on all servers."),
    GAUGE("checkpoint_bytes", PLAIN, checkpoint.bytes, "Bytes of its files of this server."),
};

static const struct sl_metrics_row memory_rows[] = {
    GAUGE("memory_limit_bytes", PLAIN, memory_limit_bytes,
          "Limit on the memory of the process; no series without one."),
};

static const struct sl_metrics_row agent_rows[] = {
    {"coordinator_losses_total", NULL, SL_METRICS_COUNTER, SL_METRICS_PLAIN,
     offsetof(struct sl_process_cells, coordinator_losses),
     "Connections to the coordinator that broke."},
};

#define ROWS(table) table, sizeof table / sizeof *table

static void add_cells(struct sl_process_metrics *metrics, struct sl_metrics_source *source,
                      const struct sl_metrics_row *rows, uint32_t row_count)
{
    *source =
        (struct sl_metrics_source){.rows = rows, .row_count = row_count, .cells = &metrics->cells};
    sl_metrics_add(&metrics->registry, source);
}

/* Metrics of the process, apart from its reactors. */
static void add_process(struct sl_process *process)
{
    struct sl_process_metrics *metrics = &process->metrics;
    const struct sl_process_options *options = &process->options;
    const bool is_scheduler = options->kind == SL_PROCESS_SCHEDULER;
    sl_metrics_process_add(&metrics->registry, &metrics->process,
                           is_scheduler ? "scheduler" : "ps");
    metrics->coordinator_source = sl_coordinator_metrics_source(&metrics->coordinator);
    sl_metrics_add(&metrics->registry, &metrics->coordinator_source);
    metrics->view_source = sl_view_metrics_source(process);
    sl_metrics_add(&metrics->registry, &metrics->view_source);
    sl_cell_set(&metrics->cells.memory_limit_bytes, options->memory_bytes_max);
    if (options->memory_bytes_max != 0) {
        add_cells(metrics, &metrics->memory_source, ROWS(memory_rows));
    }
    if (is_scheduler) {
        return;
    }
    add_cells(metrics, &metrics->agent_source, ROWS(agent_rows));
    if (options->checkpoint.directory != NULL) {
        add_cells(metrics, &metrics->checkpoint_source, ROWS(checkpoint_rows));
    }
}

static void add_transport(struct sl_process *process, uint32_t core, uint32_t which,
                          const struct sl_transport_ops *ops)
{
    struct sl_process_block *block = &process->metrics.blocks[core];
    if (ops != NULL) {
        (void)snprintf(block->schemes[which], SL_PROCESS_LABEL_BYTES, "transport=\"%s\"",
                       ops->scheme);
        block->transports[which] = sl_transport_metrics_source(
            &block->server.transports[which], block->schemes[which], block->reactor_label);
        sl_metrics_add(&process->metrics.registry, &block->transports[which]);
    }
}

void sl_process_metrics_add_core(struct sl_process *process, uint32_t core,
                                 const struct sl_server_options *server)
{
    add_transport(process, core, SL_SERVER_TRANSPORT_FIRST, server->transports.first);
    add_transport(process, core, SL_SERVER_TRANSPORT_SHM, server->transports.shm);
    add_transport(process, core, SL_SERVER_TRANSPORT_BYPASS, server->transports.bypass);
}

void sl_process_metrics_add_shard(struct sl_process_hosted *hosted)
{
    struct sl_metrics *registry = &hosted->process->metrics.registry;
    if (hosted->process->observer.views == NULL) {
        return; /* a simulation */
    }
    (void)snprintf(hosted->metrics.label, sizeof hosted->metrics.label, "shard=\"%u\"",
                   hosted->shard);
    hosted->metrics.server = sl_server_metrics_source(&hosted->cells, hosted->metrics.label);
    hosted->metrics.replica = sl_replication_metrics_source(&hosted->replica_cells);
    sl_metrics_add(registry, &hosted->metrics.server);
    sl_metrics_add(registry, &hosted->metrics.replica);
}

/* Cells are numbers that other threads may read meanwhile. */
static void reset(void *cells, size_t bytes)
{
    for (size_t i = 0; i < bytes / sizeof(struct sl_cell); i++) {
        sl_cell_set((struct sl_cell *)cells + i, 0);
    }
}

void sl_process_metrics_remove_shard(struct sl_process_hosted *hosted)
{
    struct sl_metrics *registry = &hosted->process->metrics.registry;
    if (hosted->process->observer.views != NULL) {
        sl_metrics_remove(registry, &hosted->metrics.server);
        sl_metrics_remove(registry, &hosted->metrics.replica);
    }
    reset(&hosted->cells, sizeof hosted->cells);
    reset(&hosted->replica_cells, sizeof hosted->replica_cells);
}

int sl_process_metrics_init(struct sl_process *process)
{
    struct sl_process_metrics *metrics = &process->metrics;
    const size_t bytes = process->options.reactors.count * sizeof *metrics->blocks;
    metrics->blocks = aligned_alloc(_Alignof(struct sl_process_block), bytes);
    if (metrics->blocks == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    memset(metrics->blocks, 0, bytes);
    sl_metrics_init(&metrics->registry);
    add_process(process);
    for (uint32_t i = 0; i < process->options.reactors.count; i++) {
        add_core(&metrics->registry, &metrics->blocks[i], i);
    }
    return 0;
}

void sl_process_metrics_fini(struct sl_process *process)
{
    if (process->metrics.blocks != NULL) {
        sl_metrics_fini(&process->metrics.registry);
        free(process->metrics.blocks);
        process->metrics.blocks = NULL;
    }
}
