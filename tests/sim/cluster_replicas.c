/* A cluster whose shards have backups: the coordinator's process, and who has which shards. */
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
        .ps_count = plan->ps_count,
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

/* Every look at the coordinator sees one decision at most of each pair that matters: one turn of
 * its process lies between two. */
struct sl_coordinator *sl_sim_cluster_coordinator(const struct sl_sim_cluster *cluster)
{
    const struct sl_sim_ps *at =
        cluster->plan->replica.apart ? &cluster->scheduler : &cluster->ps[0];
    return at->running ? at->coordinator : NULL;
}

/* The shard lives at its own ps, and at the one behind that, behind its own shards. */
static struct sl_server *server_of(const struct sl_sim_cluster *cluster, uint32_t shard, bool guest)
{
    const struct sl_sim_plan *plan = cluster->plan;
    const uint32_t owner = sl_sim_oracle_ps_of(plan, shard);
    const struct sl_sim_ps *ps = &cluster->ps[guest ? (owner + 1) % plan->ps_count : owner];
    const uint32_t local = shard % plan->shards_of_ps + (guest ? plan->shards_of_ps : 0);
    return ps->running ? ps->servers[local] : NULL;
}

static bool is_primary(const struct sl_server *server)
{
    return server != NULL && server->replica->config.is_primary;
}

/* The one that has been told so last; NULL: nobody is, now. */
struct sl_server *sl_sim_cluster_primary(const struct sl_sim_cluster *cluster, uint32_t shard)
{
    struct sl_server *own = server_of(cluster, shard, false);
    struct sl_server *guest = server_of(cluster, shard, true);
    if (is_primary(own) && is_primary(guest)) {
        return own->replica->config.epoch > guest->replica->config.epoch ? own : guest;
    }
    return is_primary(own) ? own : is_primary(guest) ? guest : NULL;
}

/* Two may be, for a while; but not in one epoch. */
static void look_at_doubles(struct sl_sim_cluster *cluster, uint32_t owner)
{
    for (uint32_t i = 0; i < cluster->plan->shards_of_ps; i++) {
        const uint32_t shard = owner * cluster->plan->shards_of_ps + i;
        const struct sl_server *own = server_of(cluster, shard, false);
        const struct sl_server *guest = server_of(cluster, shard, true);
        if (!is_primary(own) || !is_primary(guest)) {
            continue;
        }
        cluster->oracle.doubled_ns[owner] = cluster->world->now_ns;
        if (own->replica->config.epoch == guest->replica->config.epoch) {
            sl_sim_fail(&cluster->oracle.breach, "epochs",
                        "shard %u has two primaries in epoch %" PRIu64, shard,
                        own->replica->config.epoch);
        }
    }
}

/* Another one: the coordinator may know nothing of what was before. */
static uint64_t generation(const struct sl_sim_cluster *cluster)
{
    return cluster->plan->replica.apart ? cluster->records.forgotten : cluster->ps[0].incarnation;
}

/* A coordinator that hears none of the ps that its records know begins anew, and the job with it.
 */
static void look_at_pair(struct sl_sim_cluster *cluster, uint32_t owner,
                         const struct sl_coordinator *coordinator)
{
    struct sl_sim_pair *pair = &cluster->pairs[owner];
    const struct sl_coordinator_ps *told = &coordinator->ps[owner];
    const uint64_t holder = coordinator->ps[told->primary].client_id;
    if (told->epoch == 0 || (told->epoch == pair->epoch && holder == pair->holder)) {
        return;
    }
    sl_sim_world_note(cluster->world, "the shards of ps/%u: epoch %" PRIu64 ", ps/%u, backup %d",
                      owner, told->epoch, told->primary, (int)told->backup);
    /* The first epoch has another holder only where the job has begun anew in its first one. */
    const bool is_anew =
        told->epoch < pair->epoch || (told->epoch == pair->epoch && told->epoch == 1);
    cluster->oracle.forgot = cluster->oracle.forgot || is_anew;
    if (told->epoch <= pair->epoch && generation(cluster) == pair->generation) {
        sl_sim_fail(&cluster->oracle.breach, "epochs",
                    "the shards of ps/%u were in epoch %" PRIu64 ", of ps/%u, and are in "
                    "%" PRIu64 ", of ps/%u",
                    owner, pair->epoch, pair->primary, told->epoch, told->primary);
    }
    if (pair->holder != 0 && told->primary != pair->primary && !is_anew) {
        cluster->oracle.moved_ns[owner] = cluster->world->now_ns;
        sl_sim_oracle_undoes_evictions(&cluster->oracle, owner);
    } else if (pair->holder != 0 && holder != pair->holder) {
        sl_sim_oracle_loses(&cluster->oracle, owner,
                            coordinator->ps[told->primary].checkpoints.restore);
    }
    *pair = (struct sl_sim_pair){.epoch = told->epoch,
                                 .primary = told->primary,
                                 .holder = holder,
                                 .generation = generation(cluster)};
}

void sl_sim_cluster_limit_backups(struct sl_sim_cluster *cluster)
{
    for (uint32_t i = 0; cluster->plan->replica.is_there && i < cluster->plan->ps_count; i++) {
        const struct sl_sim_ps *ps = &cluster->ps[i];
        for (uint32_t k = 0; ps->running && k < sl_sim_ps_server_count(ps); k++) {
            const struct sl_replication *replica = ps->servers[k]->replica;
            const bool is_backup = replica->stage <= SL_REPLICATION_PROMOTING;
            const bool is_limited = cluster->is_without_memory[i] && is_backup;
            if (ps->servers[k]->shard != NULL) {
                ps->servers[k]->shard->options.memory_bytes_max =
                    is_limited ? 1 : cluster->plan->memory_bytes_max;
            }
        }
    }
}

void sl_sim_cluster_look_at_pairs(struct sl_sim_cluster *cluster)
{
    const struct sl_coordinator *coordinator =
        cluster->plan->replica.is_there ? sl_sim_cluster_coordinator(cluster) : NULL;
    for (uint32_t owner = 0; coordinator != NULL && owner < cluster->plan->ps_count; owner++) {
        look_at_pair(cluster, owner, coordinator);
        look_at_doubles(cluster, owner);
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
    const struct sl_sim_ps *ps = &cluster->ps[replica->config.backup_task];
    if (!replica->config.has_backup || !replica->is_in_sync || !ps->running) {
        return NULL;
    }
    const struct sl_server *backup = ps->servers[replica->config.backup_shard];
    return backup->replica->config.epoch == replica->config.epoch ? backup : NULL;
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
    const uint32_t owner = sl_sim_oracle_ps_of(cluster->plan, unit->shard);
    const struct sl_server *primary = sl_sim_cluster_primary(cluster, unit->shard);
    const bool is_staged =
        cluster->oracle.tables[unit->table].spec.consistency.mode == SL_CONSISTENCY_BSP;
    if (is_staged || primary == NULL || primary->replica->stage == SL_REPLICATION_PROMOTING ||
        unit->epoch_begun != cluster->oracle.epochs[owner]) {
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

void sl_sim_cluster_compare_pairs(struct sl_sim_cluster *cluster)
{
    for (uint32_t i = 0; cluster->plan->replica.is_there && i < cluster->plan->shard_count; i++) {
        compare_shard(cluster, i);
    }
}
