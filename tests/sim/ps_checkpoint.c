/* What a ps tells the oracles of checkpoints and restores, which are those of a process
 * (ps/process/checkpoint.c, restore.c). */
#include <stdio.h>

#include "ps/checkpoint/directory.h"
#include "ps/server/request.h"
#include "ps/server/state.h"
#include "tests/sim/evictions.h"
#include "tests/sim/ps.h"
#include "tests/sim/windows.h"

/* Nobody has been served yet. */
static void check_rows(const struct sl_sim_ps *ps, struct sl_process_hosted *hosted,
                       uint64_t number)
{
    struct sl_sim_oracle *oracle = ps->options.oracle;
    struct sl_shard *const shards[] = {hosted->server->shard};
    struct sl_sim_windows windows = {0};
    char who[64];
    (void)snprintf(who, sizeof who, "ps/%u, from checkpoint %u", ps->options.task_index,
                   (uint32_t)number);
    sl_sim_windows_of_server(&windows, hosted->server);
    sl_sim_oracle_rows(oracle, who, shards, 1, SL_CLOCK_NEVER, &windows);
    sl_sim_evictions_check(oracle, who, shards, 1,
                           sl_sim_oracle_find_checkpoint(oracle, hosted->shard, number));
    sl_sim_windows_fini(&windows);
}

/* Nothing that stands on a damaged file is served. */
static void check_files(struct sl_sim_ps *ps, uint32_t shard, uint64_t number)
{
    struct sl_sim_disk *disk = ps->options.disk;
    struct sl_checkpoint_chain chain;
    struct sl_reason reason;
    struct sl_sim_disk_troubles troubles;
    sl_sim_disk_spare(disk, &troubles);
    const struct sl_checkpoint_shard_range scope = {.first = shard, .count = 1};
    int err = sl_checkpoint_directory_chain(&disk->memory.disk, SL_SIM_DISK_FOLDER, number, scope,
                                            NULL, &chain, &reason);
    sl_sim_disk_go_on(disk, &troubles);
    if (err != 0) {
        sl_sim_fail(&ps->options.oracle->breach, "damage", "ps/%u has restored: %s",
                    ps->options.task_index, reason.text);
        return;
    }
    for (uint32_t i = 0; i < chain.count; i++) {
        const char *path = sl_sim_disk_damage(disk, chain.items[i].number);
        if (path != NULL) {
            sl_sim_fail(&ps->options.oracle->breach, "damage",
                        "ps/%u has restored checkpoint %u, although %s is damaged",
                        ps->options.task_index, (uint32_t)number, path);
        }
    }
    sl_checkpoint_chain_fini(&chain);
}

void sl_sim_ps_answer(void *ctx, uint32_t core, int result)
{
    struct sl_sim_ps *ps = ctx;
    struct sl_sim_disk *disk = ps->options.disk;
    ps->failed = ps->failed || result != 0;
    if (disk == NULL || result != 0) {
        if (disk != NULL) {
            sl_sim_disk_failed(disk, result);
        }
        return;
    }
    disk->failures = 0;
    SL_PROCESS_FOREACH (hosted, &ps->wiring) {
        if (hosted->loads && !disk->memory.stopped && !ps->options.oracle->is_elsewhere) {
            check_rows(ps, hosted, sl_agent_restore(ps->wiring.agent));
            check_files(ps, hosted->shard, sl_agent_restore(ps->wiring.agent));
        }
    }
}

/* The network's: processes' own begin anywhere. */
int64_t sl_sim_ps_time_s(void *ctx)
{
    const struct sl_sim_ps *ps = ctx;
    return (int64_t)(sl_sim_network_now(ps->options.network) / SL_CLOCK_NS_PER_S);
}

static void begins(void *ctx, const struct sl_message_checkpoint *begun)
{
    struct sl_sim_ps *ps = ctx;
    SL_PROCESS_FOREACH (hosted, &ps->wiring) {
        if (sl_process_hosted_is_primary(hosted)) {
            sl_sim_oracle_checkpoint_begins(ps->options.oracle, hosted->shard, begun->number);
        }
    }
    sl_process_on_checkpoint(&ps->wiring, begun);
}

/* All have their files now, and in a folder that they share the manifest of one is that of all. */
static void is_written(void *ctx, const struct sl_message_checkpoint_publish *complete)
{
    struct sl_sim_ps *ps = ctx;
    for (uint32_t shard = 0; ps->options.disk->is_shared && shard < complete->file_count; shard++) {
        sl_sim_oracle_checkpoint_written(ps->options.oracle, shard, complete->number);
    }
    SL_PROCESS_FOREACH (hosted, &ps->wiring) {
        if (hosted->checkpoint.takes_part) {
            sl_sim_oracle_checkpoint_written(ps->options.oracle, hosted->shard, complete->number);
        }
    }
    sl_process_on_checkpoint_publish(&ps->wiring, complete);
}

static void is_complete(void *ctx, uint64_t number)
{
    sl_process_on_checkpoint_completed(&((struct sl_sim_ps *)ctx)->wiring, number);
}

void sl_sim_ps_wire_member(struct sl_sim_ps *ps, struct sl_agent_options *member)
{
    const struct sl_process_restore_candidate found = sl_process_restore_found(&ps->wiring);
    sl_sim_oracle_finds(ps->options.oracle, ps->options.task_index, found.number,
                        ps->options.disk->was_damaged);
    member->checkpoints.restore = found.number;
    member->checkpoints.newest = found.highest;
    member->checkpoints.unclaimed = found.unclaimed;
    member->checkpoints.complete = found.complete;
    member->checkpoints.unfinished = found.unfinished;
    member->events.checkpoint = begins;
    member->events.checkpoint_publish = is_written;
    member->events.checkpoint_completed = is_complete;
}

void sl_sim_ps_wire_disk(struct sl_sim_ps *ps)
{
    const struct sl_sim_disk *disk = ps->options.disk;
    ps->wiring.options.checkpoint =
        (struct sl_process_checkpoint){.directory = SL_SIM_DISK_FOLDER,
                                       .keep = disk->plan.keep,
                                       .compression_level = disk->plan.level,
                                       .snapshot_budget = disk->plan.cut_keys,
                                       .restores = sl_sim_disk_restores(disk),
                                       .fresh = true, /* if it does not restore */
                                       .fallback = sl_sim_disk_falls_back(disk),
                                       .disk = &disk->memory.disk};
    ps->wiring.shards.server.restores = ps->wiring.options.checkpoint.restores;
}

void sl_sim_ps_note_begin(struct sl_sim_ps *ps, uint64_t restore)
{
    struct sl_sim_oracle *oracle = ps->options.oracle;
    if (oracle == NULL) {
        return;
    }
    if (ps->options.disk != NULL) {
        uint64_t above;
        uint64_t to;
        sl_agent_abandoned(ps->wiring.agent, &above, &to);
        sl_sim_oracle_abandons(oracle, above, to);
    }
    SL_PROCESS_FOREACH (hosted, &ps->wiring) {
        if (hosted->placement.primary == ps->options.task_index) {
            sl_sim_oracle_begins(oracle, hosted->shard, ps->options.task_index, restore);
        }
    }
}
