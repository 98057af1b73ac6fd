/* Connects the memory plan with the options of a process and of its servers. */
#include "ps/process/internal.h"

int sl_process_memory_plan(const struct sl_process_options *options, struct sl_memory_plan *out,
                           char *reason, size_t reason_bytes)
{
    const bool serves = options->kind != SL_PROCESS_SCHEDULER;
    const struct sl_memory_plan_options plan = {
        .limit_bytes = options->memory_bytes_max,
        .reactors = options->reactor_count,
        .replicas = options->replicas,
        .has_shm = serves && (options->shm || options->data.scheme == SL_ENDPOINT_SHM),
        .has_bypass = serves && (options->has_bypass || options->data.scheme == SL_ENDPOINT_RDMA ||
                                 options->data.scheme == SL_ENDPOINT_DPDK),
        .has_tls = options->tls != NULL,
        .has_metastore = options->metastore != NULL,
        .has_checkpoints = serves && options->checkpoint.directory != NULL,
        .checkpoint_level = options->checkpoint.compression_level,
    };
    return sl_memory_plan_make(&plan, out, reason, reason_bytes);
}

void sl_process_memory_apply(const struct sl_memory_plan *plan, struct sl_server_options *server)
{
    server->shard.memory_bytes_max = plan->tables_bytes;
    server->shard.push_buffer_bytes_max = plan->staging_bytes;
    server->shard.snapshot_bytes_max = plan->snapshot_bytes;
    server->shard.limit_covers_all = true;
    server->buffer_bytes_max = plan->buffer_bytes;
    server->kept_bytes_max = plan->kept_bytes;
    server->log_bytes_max = plan->log_bytes;
    server->waiting_max = plan->waiting;
    server->transport_options.connections_max = plan->connections;
    server->transport_options.buffer_count = plan->receive;
    server->transport_options.unplaced_bytes = plan->unplaced_bytes;
}
