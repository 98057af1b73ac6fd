/* The coordinator's process, and who has which shards. */
#include <inttypes.h>
#include <string.h>

#include "core/clock.h"
#include "core/hash.h"
#include "ps/coordinator/state.h"
#include "ps/replication/state.h"
#include "ps/shard/state.h"
#include "tests/sim/cluster.h"

#define SCHEDULER_TASK 999 /* no ps */

static struct sl_sim_world_place *scheduler_place(struct sl_sim_cluster *cluster)
{
    return &cluster->member.places[sl_sim_plan_coordinator_host(cluster->plan)];
}

void sl_sim_cluster_start_scheduler(struct sl_sim_cluster *cluster)
{
    const struct sl_sim_plan *plan = cluster->plan;
    if (!plan->replica.apart) {
        return;
    }
    const struct sl_sim_ps_options options = {
        .network = cluster->world->network,
        .host = sl_sim_plan_coordinator_host(plan),
        .task_index = SCHEDULER_TASK,
        .ps_count = plan->ps_at_start,
        .shard_count = 1,
        .reactor_count = 1,
        .worker_count = plan->worker_count,
        .lease_ns = plan->lease_ns,
        .start_timeout_ns = plan->start_timeout_ns,
        .peer_timeout_ms = plan->peer_timeout_ms,
        .secret = plan->secret ? &cluster->secret : NULL,
        .seed = sl_hash_random(&cluster->member.random),
        .gap_ns = plan->gap_ns,
        .hosts_coordinator = true,
        .is_scheduler = true,
        .records = &cluster->records,
        .disk = cluster->disks == NULL ? NULL : sl_sim_cluster_disk(cluster, 0),
        .oracle = &cluster->oracle,
        .has_views = plan->has_views,
    };
    sl_sim_world_note(cluster->world, "the coordinator starts");
    sl_sim_network_revive(cluster->world->network, options.host);
    sl_sim_ps_start(&cluster->scheduler, &options);
    *scheduler_place(cluster) = (struct sl_sim_world_place){.member = &cluster->member,
                                                            .process = &cluster->scheduler.process,
                                                            .start_ns = SL_CLOCK_NEVER};
}

void sl_sim_cluster_run_scheduler(struct sl_sim_cluster *cluster)
{
    struct sl_sim_ps *scheduler = &cluster->scheduler;
    if (cluster->plan->replica.apart && !scheduler->running &&
        scheduler_place(cluster)->start_ns <= cluster->world->now_ns) {
        sl_sim_cluster_start_scheduler(cluster);
    }
    if (scheduler->running && sl_sim_process_due(&scheduler->process) <= cluster->world->now_ns) {
        cluster->member.turns += sl_sim_process_step(&scheduler->process);
        sl_sim_cluster_look_at_complete(cluster);
    }
}

void sl_sim_cluster_kill_scheduler(struct sl_sim_cluster *cluster, bool silent, uint64_t for_ns)
{
    if (cluster->scheduler.running) {
        sl_sim_world_note(cluster->world, "the coordinator is killed");
        sl_sim_ps_kill(&cluster->scheduler, silent);
        *scheduler_place(cluster) = (struct sl_sim_world_place){
            .member = &cluster->member, .start_ns = cluster->world->now_ns + for_ns};
    }
}

/* Every look at the coordinator sees one decision at most of each shard that matters: one turn of
 * its process lies between two. */
struct sl_coordinator *sl_sim_cluster_coordinator(const struct sl_sim_cluster *cluster)
{
    const struct sl_sim_ps *at =
        cluster->plan->replica.apart ? &cluster->scheduler : &cluster->ps[0];
    return at->running ? at->wiring.coordinator : NULL;
}

/* NULL: the ps does not have it now. */
static struct sl_server *server_of(const struct sl_sim_ps *ps, uint32_t shard)
{
    SL_PROCESS_FOREACH (hosted, &ps->wiring) {
        if (hosted->shard == shard) {
            return hosted->server;
        }
    }
    return NULL;
}

static bool is_primary(const struct sl_server *server)
{
    return server != NULL && server->replica->config.is_primary;
}

/* The one that has been told so last; NULL: nobody is, now. */
struct sl_server *sl_sim_cluster_primary(const struct sl_sim_cluster *cluster, uint32_t shard)
{
    struct sl_server *newest = NULL;
    for (uint32_t i = 0; i < cluster->plan->ps_count; i++) {
        struct sl_server *server = server_of(&cluster->ps[i], shard);
        if (is_primary(server) &&
            (newest == NULL || server->replica->config.epoch > newest->replica->config.epoch)) {
            newest = server;
        }
    }
    return newest;
}

/* Two may be, for a while; but not in one epoch. */
static void look_at_doubles(struct sl_sim_cluster *cluster, uint32_t shard)
{
    const struct sl_server *newest = sl_sim_cluster_primary(cluster, shard);
    for (uint32_t i = 0; newest != NULL && i < cluster->plan->ps_count; i++) {
        const struct sl_server *server = server_of(&cluster->ps[i], shard);
        if (!is_primary(server) || server == newest) {
            continue;
        }
        cluster->oracle.shards[shard].doubled_ns = cluster->world->now_ns;
        if (server->replica->config.epoch == newest->replica->config.epoch) {
            sl_sim_fail(&cluster->oracle.breach, "epochs",
                        "shard %u has two primaries in epoch %" PRIu64, shard,
                        server->replica->config.epoch);
        }
    }
}

/* Another one: the coordinator may know nothing of what was before. */
static uint64_t generation(const struct sl_sim_cluster *cluster)
{
    return cluster->plan->replica.apart ? cluster->records.forgotten
                                        : cluster->ps[0].wiring.incarnation;
}

/* The backup that was in sync is still there. */
static bool is_kept(const struct sl_coordinator *coordinator,
                    const struct sl_sim_place_of_shard *place)
{
    const struct sl_coordinator_member *member =
        place->backup == SL_COORDINATOR_NO_TASK
            ? NULL
            : sl_coordinator_find(coordinator, SL_MESSAGE_ROLE_PS, place->backup);
    return member != NULL && member->connected && member->registered &&
           member->hello.client_id == place->keeper;
}

/* A coordinator that hears none of the ps that its records know begins anew, and the job with it.
 * Without a backup, a process that follows its primary's goes on in the same epoch. */
static void shard_changed(struct sl_sim_cluster *cluster, uint32_t shard,
                          const struct sl_coordinator *coordinator, uint64_t holder)
{
    const struct sl_sim_place_of_shard *place = &cluster->shards[shard];
    struct sl_sim_oracle *oracle = &cluster->oracle;
    const struct sl_coordinator_shard *told = &coordinator->placement.shards[shard];
    const bool is_same = told->epoch == place->epoch && told->primary == place->primary;
    sl_sim_world_note(cluster->world, "shard %u: epoch %" PRIu64 ", ps/%u, backup %d", shard,
                      told->epoch, told->primary, (int)told->backup);
    /* The first epoch has another holder only where the job has begun anew in its first one. */
    const bool is_anew = told->epoch < place->epoch ||
                         (told->epoch == place->epoch && told->epoch == 1 && place->holder != 0);
    const bool may_follow = is_same && !cluster->plan->replica.is_there;
    oracle->forgot = oracle->forgot || (is_anew && cluster->plan->replica.is_there);
    if (told->epoch <= place->epoch && !may_follow && generation(cluster) == place->generation) {
        sl_sim_fail(&oracle->breach, "epochs",
                    "shard %u was in epoch %" PRIu64 ", of ps/%u, and is in %" PRIu64 ", of ps/%u",
                    shard, place->epoch, place->primary, told->epoch, told->primary);
    }
    if (place->holder != 0 && told->primary != place->primary && !is_anew) {
        oracle->shards[shard].moved_ns = cluster->world->now_ns;
        oracle->shards[shard].primaries |= 1U << told->primary;
        sl_sim_oracle_undoes_evictions(oracle, shard);
    }
    /* Another coordinator found nobody who has the shard, and no new process to restore it. */
    const struct sl_sim_ps *ps = &cluster->ps[told->primary];
    if (place->holder != 0 && told->primary != place->primary && ps->wiring.shards.has_joined &&
        generation(cluster) != place->generation && server_of(ps, shard) == NULL) {
        sl_sim_oracle_begins(oracle, shard, told->primary, 0);
    }
    const bool is_gone =
        holder != place->holder ||
        sl_coordinator_find(coordinator, SL_MESSAGE_ROLE_PS, told->primary) == NULL;
    if (place->holder != 0 && is_gone && told->primary == place->primary && !is_anew &&
        is_kept(coordinator, place)) {
        sl_sim_fail(&oracle->breach, "durability",
                    "shard %u stays on ps/%u, whose process is gone, though ps/%u has all of it",
                    shard, told->primary, place->backup);
    }
}

static void look_at_shard(struct sl_sim_cluster *cluster, uint32_t shard,
                          const struct sl_coordinator *coordinator)
{
    struct sl_sim_place_of_shard *place = &cluster->shards[shard];
    const struct sl_coordinator_shard *told = &coordinator->placement.shards[shard];
    const uint64_t holder = coordinator->ps[told->primary].client_id;
    if (told->epoch != place->epoch || told->primary != place->primary || holder != place->holder) {
        shard_changed(cluster, shard, coordinator, holder);
    }
    *place = (struct sl_sim_place_of_shard){
        .epoch = told->epoch,
        .primary = told->primary,
        .holder = holder,
        .generation = generation(cluster),
        .backup = told->in_sync ? told->backup : SL_COORDINATOR_NO_TASK,
        .keeper = told->in_sync ? coordinator->ps[told->backup].client_id : 0};
}

void sl_sim_cluster_limit_backups(struct sl_sim_cluster *cluster)
{
    for (uint32_t i = 0; cluster->plan->replica.is_there && i < cluster->plan->ps_count; i++) {
        SL_PROCESS_FOREACH (hosted, &cluster->ps[i].wiring) {
            if (hosted->server != NULL && hosted->server->shard != NULL) {
                const bool is_backup = hosted->server->replica->stage <= SL_REPLICATION_PROMOTING;
                const bool is_limited = cluster->is_without_memory[i] && is_backup;
                hosted->server->shard->options.memory_bytes_max =
                    is_limited ? 1 : cluster->plan->memory_bytes_max;
            }
        }
    }
}

void sl_sim_cluster_look_at_shards(struct sl_sim_cluster *cluster)
{
    const struct sl_coordinator *coordinator = sl_sim_cluster_coordinator(cluster);
    for (uint32_t i = 0; coordinator != NULL && i < coordinator->placement.shard_count; i++) {
        look_at_shard(cluster, i, coordinator);
        look_at_doubles(cluster, i);
    }
}

/* NULL: the server has no such table. */
static const struct sl_shard_table *table_of(const struct sl_server *server, uint32_t table_id)
{
    const struct sl_shard *shard = server->shard;
    return shard == NULL || table_id >= shard->table_count ? NULL : shard->tables[table_id];
}

/* Column 0 of the row, or the element; 0 where there is none. */
static float value_of(const struct sl_server *server, uint32_t table_id, uint64_t key)
{
    const struct sl_shard_table *table = table_of(server, table_id);
    float value = 0;
    if (table == NULL) {
        return 0;
    }
    if (table->dense != NULL) {
        sl_dense_table_read(table->dense, key, 1, SL_PRECISION_F32, &value);
        return value;
    }
    uint32_t record;
    sl_sparse_table_find(table->sparse, &key, 1, &record);
    return record == SL_ROW_NONE ? 0 : sl_sparse_table_record(table->sparse, record)->values[0];
}

/* The server of its backup, if that has what is acknowledged; else NULL. */
static const struct sl_server *in_sync_with(const struct sl_sim_cluster *cluster,
                                            const struct sl_server *primary)
{
    const struct sl_replication *replica = primary->replica;
    if (!replica->config.has_backup || !replica->is_in_sync) {
        return NULL;
    }
    const struct sl_server *backup =
        server_of(&cluster->ps[replica->config.backup_task], primary->options.shard.index);
    return backup != NULL && backup->replica->config.epoch == replica->config.epoch ? backup : NULL;
}

/* What had gone before the push began is logged before it, so the backup has it no more. */
static void check_backup(struct sl_sim_cluster *cluster, const struct sl_server *backup,
                         const struct sl_sim_unit *unit)
{
    struct sl_sim_oracle *oracle = &cluster->oracle;
    for (uint32_t i = 0; i < oracle->unit_count; i++) {
        const struct sl_sim_unit *other = &oracle->units[i];
        for (uint32_t k = 0; k < 2 && other->table == unit->table && other->shard == unit->shard;
             k++) {
            if (sl_sim_oracle_must_lack(other, k, unit->begun_ns)) {
                sl_sim_oracle_check_evicted(oracle, other, k,
                                            value_of(backup, unit->table, other->witness[k]),
                                            unit->begun_ns, "the backup");
            }
        }
    }
}

void sl_sim_cluster_acknowledged(struct sl_sim_oracle *oracle, const struct sl_sim_unit *unit)
{
    struct sl_sim_cluster *cluster = SL_CONTAINER_OF(oracle, struct sl_sim_cluster, oracle);
    const struct sl_server *primary = sl_sim_cluster_primary(cluster, unit->shard);
    const bool is_staged =
        cluster->oracle.tables[unit->table].spec.consistency.mode == SL_CONSISTENCY_BSP;
    if (is_staged || primary == NULL || primary->replica->stage == SL_REPLICATION_PROMOTING ||
        unit->epoch_begun != oracle->shards[unit->shard].epoch) {
        return;
    }
    const struct sl_server *backup = in_sync_with(cluster, primary);
    const bool may_lack = sl_sim_oracle_may_lack(unit, 0);
    const bool is_here = may_lack || value_of(primary, unit->table, unit->witness[0]) != 0;
    const bool is_there =
        may_lack || backup == NULL || value_of(backup, unit->table, unit->witness[0]) != 0;
    if (backup != NULL && sl_sim_oracle_forgets_rows(oracle, unit->table)) {
        check_backup(cluster, backup, unit);
    }
    if (!is_here || !is_there) {
        sl_sim_fail(&cluster->oracle.breach, "backups",
                    "worker/%u's push of iteration %u to t%u on shard %u is acknowledged, "
                    "and is not at its %s",
                    cluster->oracle.instances[unit->instance].task, unit->clock, unit->table,
                    unit->shard, is_here ? "backup" : "primary");
    }
}

/* Returns true when a push or an assign has changed the row. Others may differ: a push that fails
 * creates rows, and a backup's snapshot has those again that were erased behind a buffered push. */
static bool is_written(const struct sl_row *row)
{
    return row != NULL && row->count != SL_ROW_ERASED && row->last_step != 0;
}

static const struct sl_row *row_of(const struct sl_shard_table *table, uint64_t key)
{
    uint32_t record;
    sl_sparse_table_find(table->sparse, &key, 1, &record);
    return record == SL_ROW_NONE ? NULL : sl_sparse_table_record(table->sparse, record);
}

/* Every written row of the one is the same in the other, with its slots. */
static void compare_rows(struct sl_sim_cluster *cluster, uint32_t shard, uint32_t table_id,
                         const struct sl_shard_table *one, const struct sl_shard_table *other)
{
    const size_t bytes =
        sizeof(struct sl_row) +
        sizeof(float) * (one->spec.dim + sl_optimizer_slot_floats(one->optimizer, one->spec.dim));
    for (uint32_t i = 0; i < sl_sparse_table_record_count(one->sparse); i++) {
        const struct sl_row *row = sl_sparse_table_record(one->sparse, i);
        const struct sl_row *same = is_written(row) ? row_of(other, row->key) : row;
        if (same == NULL || memcmp(row, same, bytes) != 0) {
            sl_sim_fail(&cluster->oracle.breach, "backups",
                        "key %" PRIu64 " of t%u is %g in step %u at one of shard %u and its "
                        "backup, and %g in step %u at the other",
                        row->key, table_id, (double)row->values[0], row->last_step, shard,
                        same == NULL ? 0.0 : (double)same->values[0],
                        same == NULL ? 0 : same->last_step);
            return;
        }
    }
}

static void compare_elements(struct sl_sim_cluster *cluster, uint32_t shard, uint32_t table_id,
                             const struct sl_dense_table *primary,
                             const struct sl_dense_table *backup)
{
    const uint64_t start = sl_dense_table_start(primary);
    for (uint64_t i = start; i < start + sl_dense_table_element_count(primary); i++) {
        float here, there;
        sl_dense_table_read(primary, i, 1, SL_PRECISION_F32, &here);
        sl_dense_table_read(backup, i, 1, SL_PRECISION_F32, &there);
        if (here != there) {
            sl_sim_fail(&cluster->oracle.breach, "backups",
                        "element %" PRIu64 " of t%u is %g at the primary of shard %u, and "
                        "%g at its backup",
                        i, table_id, (double)here, shard, (double)there);
            return;
        }
    }
}

/* Keys that wait for admission, or the filter that counts them. */
static void compare_waiting(struct sl_sim_cluster *cluster, uint32_t shard, uint32_t table_id,
                            const struct sl_shard_table *primary,
                            const struct sl_shard_table *backup)
{
    if (primary->waiting == NULL) {
        return;
    }
    if (sl_shard_waiting_keys(primary) != NULL) {
        compare_rows(cluster, shard, table_id, primary->waiting, backup->waiting);
        compare_rows(cluster, shard, table_id, backup->waiting, primary->waiting);
        return;
    }
    for (uint32_t i = 0; i < sl_dense_table_block_count(primary->waiting->dense); i++) {
        const struct sl_dense_block here = sl_dense_table_block(primary->waiting->dense, i);
        const struct sl_dense_block there = sl_dense_table_block(backup->waiting->dense, i);
        if (memcmp(here.floats, there.floats, here.float_count * sizeof(float)) != 0) {
            sl_sim_fail(&cluster->oracle.breach, "backups",
                        "block %u of the filter of t%u differs at shard %u and its backup", i,
                        table_id, shard);
            return;
        }
    }
}

static void compare_tables(struct sl_sim_cluster *cluster, uint32_t shard, uint32_t table_id,
                           const struct sl_server *primary, const struct sl_server *backup)
{
    const struct sl_shard_table *here = table_of(primary, table_id);
    const struct sl_shard_table *there = table_of(backup, table_id);
    if (here == NULL || there == NULL) {
        if (here != there) {
            sl_sim_fail(&cluster->oracle.breach, "backups",
                        "the %s of shard %u has no t%u, and the other has it",
                        here == NULL ? "primary" : "backup", shard, table_id);
        }
    } else if (here->dense != NULL) {
        compare_elements(cluster, shard, table_id, here->dense, there->dense);
    } else {
        compare_rows(cluster, shard, table_id, here, there);
        compare_rows(cluster, shard, table_id, there, here);
        compare_waiting(cluster, shard, table_id, here, there);
    }
}

static void compare_shard(struct sl_sim_cluster *cluster, uint32_t shard)
{
    const struct sl_server *primary = sl_sim_cluster_primary(cluster, shard);
    const struct sl_server *backup = primary == NULL ? NULL : in_sync_with(cluster, primary);
    if (backup == NULL) {
        sl_sim_fail(&cluster->oracle.breach, "backups",
                    "all is healed, and shard %u has no %s in step", shard,
                    primary == NULL ? "primary" : "backup");
        return;
    }
    for (uint32_t i = 0; i < cluster->plan->table_count; i++) {
        compare_tables(cluster, shard, i, primary, backup);
    }
}

void sl_sim_cluster_compare_backups(struct sl_sim_cluster *cluster)
{
    for (uint32_t i = 0; cluster->plan->replica.is_there && i < cluster->plan->shard_count; i++) {
        compare_shard(cluster, i);
    }
}
