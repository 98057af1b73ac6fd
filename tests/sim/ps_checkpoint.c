/* A ps with a disk: what a process does about checkpoints, with its own code
 * (ps/process/checkpoint.c, restore.c), and what the oracles hear of it. */
#include <stdio.h>

#include "core/assert.h"
#include "ps/checkpoint/directory.h"
#include "ps/server/request.h"
#include "ps/server/state.h"
#include "tests/sim/evictions.h"
#include "tests/sim/ps.h"
#include "tests/sim/windows.h"

static const struct sl_sim_disk *disk_of(const struct sl_sim_ps *ps)
{
    return ps->options.disk;
}

static int join(struct sl_process *process)
{
    struct sl_sim_ps *ps = process->sim_hooks->ctx;
    sl_sim_oracle_finds(ps->options.oracle, ps->options.task_index,
                        sl_process_restore_found(&ps->wiring).number, disk_of(ps)->was_damaged);
    sl_sim_ps_join(ps);
    return 0;
}

static uint32_t owner_of(const struct sl_sim_ps *ps, uint32_t which)
{
    const uint32_t ps_count = ps->options.ps_count;
    return (ps->options.task_index + (which == SL_PROCESS_HOME ? 0 : ps_count - 1)) % ps_count;
}

/* Nobody has been served yet. */
static void check_rows(const struct sl_sim_ps *ps, uint32_t which, uint64_t number)
{
    struct sl_shard *shards[SL_SIM_REACTORS_MAX];
    struct sl_sim_windows windows = {0};
    char who[64];
    (void)snprintf(who, sizeof who, "ps/%u, from checkpoint %u", ps->options.task_index,
                   (uint32_t)number);
    for (uint32_t i = 0; i < ps->options.shard_count; i++) {
        struct sl_server *server = sl_process_server(&ps->wiring, which, i);
        shards[i] = server->shard;
        sl_sim_windows_of_server(&windows, server);
    }
    sl_sim_oracle_rows(ps->options.oracle, who, shards, ps->options.shard_count, SL_CLOCK_NEVER,
                       &windows);
    sl_sim_evictions_check(
        ps->options.oracle, who, shards, ps->options.shard_count,
        sl_sim_oracle_find_checkpoint(ps->options.oracle, owner_of(ps, which), number));
    sl_sim_windows_fini(&windows);
}

/* Nothing that stands on a damaged file is served. */
static void check_files(struct sl_sim_ps *ps, uint32_t which, uint64_t number)
{
    struct sl_sim_disk *disk = ps->options.disk;
    struct sl_checkpoint_chain chain;
    struct sl_reason reason;
    struct sl_sim_disk_troubles troubles;
    sl_sim_disk_spare(disk, &troubles);
    const struct sl_checkpoint_shard_range scope = {.first = ps->wiring.hosted[which].first_shard,
                                                    .count = ps->options.shard_count};
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

static void check_restored(struct sl_sim_ps *ps)
{
    const uint64_t number = sl_agent_restore(ps->member);
    if (ps->was_checked || number == 0 || disk_of(ps)->memory.stopped ||
        ps->options.oracle->is_elsewhere) {
        return;
    }
    ps->was_checked = true;
    for (uint32_t which = 0; which < SL_PROCESS_HOSTED_MAX; which++) {
        if (ps->wired[0].loads[which]) {
            check_rows(ps, which, number);
            check_files(ps, which, number);
        }
    }
}

static void answer(void *ctx, uint32_t core, int result)
{
    struct sl_sim_ps *ps = ctx;
    if (result != 0) {
        ps->failed = true;
        sl_sim_disk_failed(ps->options.disk, result);
    } else {
        ps->options.disk->failures = 0;
        check_restored(ps);
    }
}

/* The network's: processes' own begin anywhere. */
static int64_t time_s(void *ctx)
{
    const struct sl_sim_ps *ps = ctx;
    return (int64_t)(sl_sim_network_now(ps->options.network) / SL_CLOCK_NS_PER_S);
}

static void begins(void *ctx, const struct sl_message_checkpoint *begun)
{
    struct sl_sim_ps *ps = ctx;
    for (uint32_t which = 0; which < SL_PROCESS_HOSTED_MAX; which++) {
        if (sl_process_replica_is_primary(&ps->wiring, which)) {
            sl_sim_oracle_checkpoint_begins(ps->options.oracle, owner_of(ps, which), begun->number);
        }
    }
    sl_process_on_checkpoint(&ps->wiring, begun);
}

/* All have their files now, and in a folder that they share the manifest of one is that of all. */
static void is_written(void *ctx, const struct sl_message_checkpoint_publish *complete)
{
    struct sl_sim_ps *ps = ctx;
    for (uint32_t owner = 0; owner < ps->options.ps_count; owner++) {
        if (disk_of(ps)->is_shared || owner == ps->options.task_index) {
            sl_sim_oracle_checkpoint_written(ps->options.oracle, owner, complete->number);
        }
    }
    sl_process_on_checkpoint_publish(&ps->wiring, complete);
}

static void is_complete(void *ctx, uint64_t number)
{
    sl_process_on_checkpoint_completed(&((struct sl_sim_ps *)ctx)->wiring, number);
}

static bool has_tables(void *ctx)
{
    const struct sl_sim_ps *ps = ctx;
    return sl_process_has_tables(&ps->wiring);
}

void sl_sim_ps_wire_member(struct sl_sim_ps *ps, struct sl_agent_options *member)
{
    if (ps->options.disk != NULL) {
        const struct sl_process_restore_candidate found = sl_process_restore_found(&ps->wiring);
        member->checkpoints.restore = found.number;
        member->checkpoints.newest = found.highest;
        member->checkpoints.unclaimed = found.unclaimed;
        member->checkpoints.complete = found.complete;
        member->checkpoints.unfinished = found.unfinished;
        member->events.has_tables = has_tables;
        member->events.checkpoint = begins;
        member->events.checkpoint_publish = is_written;
        member->events.checkpoint_completed = is_complete;
    }
}

uint64_t sl_sim_ps_wire_joined(struct sl_sim_ps *ps, uint32_t first_shard, uint32_t shard_count)
{
    uint64_t number = 0;
    if (ps->options.disk != NULL) {
        ps->wiring.agent = ps->member;
        ps->wiring.hosted[SL_PROCESS_HOME].first_shard = first_shard;
        ps->wiring.member.shard_count = shard_count;
        uint64_t above;
        uint64_t to;
        sl_agent_abandoned(ps->member, &above, &to);
        sl_sim_oracle_abandons(ps->options.oracle, above, to);
        number = sl_process_restore_joined(&ps->wiring);
    }
    if (!ps->options.has_replica && ps->options.oracle != NULL) {
        sl_sim_oracle_restores(ps->options.oracle, ps->options.task_index, number);
    }
    return number;
}

void sl_sim_ps_wire(struct sl_sim_ps *ps)
{
    const struct sl_sim_ps_options *options = &ps->options;
    const struct sl_sim_disk *disk = disk_of(ps);
    ps->sim_hooks = (struct sl_process_sim_hooks){
        .answer = answer, .wait = sl_sim_ps_wait, .time_s = time_s, .ctx = ps};
    ps->wiring = (struct sl_process){
        .options = {.kind = SL_PROCESS_PS,
                    .task_index = options->task_index,
                    .ps_count = options->ps_count,
                    .worker_count = options->worker_count,
                    .reactors = {.count = options->reactor_count, .shards = options->shard_count},
                    .replicas = options->has_replica,
                    .checkpoint = {.directory = SL_SIM_DISK_FOLDER,
                                   .keep = disk->plan.keep,
                                   .compression_level = disk->plan.level,
                                   .snapshot_budget = disk->plan.cut_keys,
                                   .restores = sl_sim_disk_restores(disk),
                                   .fresh = true, /* if it does not restore */
                                   .fallback = sl_sim_disk_falls_back(disk),
                                   .disk = &disk->memory.disk}},
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
        int err = sl_process_checkpoint_open(&ps->wired[i]);
        sl_assert(err == 0);
    }
    int err = sl_process_restore_begin(&ps->wiring, join);
    sl_assert(err == 0);
}

void sl_sim_ps_unwire(struct sl_sim_ps *ps)
{
    ps->wiring.agent = NULL;
    sl_process_checkpoint_close(&ps->wiring);
    sl_process_restore_close(&ps->wiring);
}
