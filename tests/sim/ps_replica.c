/* A ps with backups: who has which, with the process's own code (ps/process/replica_groups.c). */
#include "ps/replication/replication.h"
#include "tests/sim/ps.h"

static void answer(void *ctx, uint32_t core, int result)
{
    struct sl_sim_ps *ps = ctx;
    ps->failed = ps->failed || result != 0;
}

void sl_sim_ps_pair(struct sl_sim_ps *ps)
{
    const struct sl_sim_ps_options *options = &ps->options;
    if (!options->has_replica) {
        return;
    }
    ps->sim_hooks =
        (struct sl_process_sim_hooks){.answer = answer, .wait = sl_sim_ps_wait, .ctx = ps};
    ps->wiring = (struct sl_process){
        .options = {.kind = SL_PROCESS_PS,
                    .task_index = options->task_index,
                    .ps_count = options->ps_count,
                    .worker_count = options->worker_count,
                    .reactors = {.count = options->reactor_count, .shards = options->shard_count},
                    .replicas = 1},
        .incarnation = ps->incarnation,
        .cores = ps->wired,
        .reactors = ps->process.reactors,
        .servers = ps->servers,
        .member.task_index = options->task_index,
        .sim_hooks = &ps->sim_hooks,
    };
    for (uint32_t i = 0; i < options->shard_count; i++) {
        ps->wired[i] =
            (struct sl_process_core){.process = &ps->wiring,
                                     .index = i,
                                     .reactor = ps->process.reactors[sl_sim_ps_reactor_of(ps, i)]};
    }
}

void sl_sim_ps_pair_server(struct sl_sim_ps *ps, struct sl_server_options *server)
{
    if (ps->options.has_replica) {
        server->hooks = &sl_replication_hooks;
        ps->replication = (struct sl_replication_options){
            .catch_up_budget = ps->options.snapshot_keys,
            .state_changed = sl_process_on_replica_state_changed,
            .failed = sl_process_on_replica_failed,
            .ctx = &ps->wired[server->local_index % ps->options.shard_count],
        };
        server->replication = &ps->replication;
    }
}

static void on_cluster(void *ctx, const struct sl_message_cluster *cluster)
{
    sl_process_on_cluster(&((struct sl_sim_ps *)ctx)->wiring, cluster);
}

void sl_sim_ps_pair_member(const struct sl_sim_ps *ps, struct sl_agent_options *member)
{
    if (ps->options.has_replica) {
        member->replicas = 1;
        member->events.cluster = on_cluster;
    }
}

void sl_sim_ps_pair_joined(struct sl_sim_ps *ps)
{
    if (ps->options.has_replica) {
        ps->wiring.has_shards = true;
        sl_process_replica_tell(&ps->wiring);
    }
}
