#include "tests/sim/final.h"

#include <inttypes.h>

#include "core/assert.h"
#include "core/clock.h"
#include "ps/server/request.h"
#include "ps/server/state.h"
#include "ps/shard/state.h"
#include "tests/sim/elsewhere.h"
#include "worker/client/control.h"

#define PULL_TIMEOUT_MS           60000
#define DROP_NS                   (20 * SL_CLOCK_NS_PER_S) /* until all rows are freed */
#define TURNS_OF_SECOND           400   /* of a ps that has nothing to do: heartbeats, sweeps */
#define TURNS_OF_SECOND_WITH_DISK 10000 /* and checkpoints */

static void judge_table(struct sl_sim_oracle *oracle, const struct sl_sim_operation *operation)
{
    const struct sl_sim_table *table = &oracle->tables[operation->table];
    bool sparse = table->spec.kind == SL_TABLE_SPARSE;
    uint32_t dim = sparse ? table->spec.dim : 1;
    for (uint32_t i = 0; i < operation->watched_count; i++) {
        const uint32_t *at = &operation->watched_at[2 * (size_t)i];
        sl_sim_oracle_final(oracle, operation->units[i], operation->values[(size_t)at[0] * dim],
                            operation->values[(size_t)at[1] * dim]);
        if (sparse) { /* its bait comes behind the second witness */
            sl_sim_oracle_final_bait(oracle, operation->units[i],
                                     operation->values[((size_t)at[1] + 1) * dim]);
        }
    }
    for (uint32_t i = 0; i < table->shared_count; i++) {
        uint64_t at = sparse ? (uint64_t)i * dim : table->shared[i];
        sl_sim_oracle_sum(oracle, operation->table, i, operation->values[at],
                          operation->found == NULL ? NULL : &operation->found[i]);
    }
}

void sl_sim_final_ended(void *ctx, struct sl_sim_work *work, int err)
{
    struct sl_sim_cluster *cluster = ctx;
    if (!cluster->is_final) {
        return;
    }
    if (err != 0) {
        sl_sim_fail(&cluster->oracle.breach, "progress",
                    "all is healed, and yet the observer's pull fails: %s: %s", sl_err_name(err),
                    sl_step_error(work->step));
        return;
    }
    judge_table(&cluster->oracle, &work->operations[0]);
}

static void check_server(struct sl_sim_oracle *oracle, const struct sl_server *server,
                         const char *name)
{
    if (server->host->memory.buffers.used_bytes != 0 || server->scheduler.parked_bytes != 0 ||
        server->host->memory.requests.free_count != server->host->memory.requests.block_count ||
        server->host->memory.replies.frame_count != 0) {
        sl_sim_fail(&oracle->breach, "memory",
                    "%s keeps %zu bytes of buffers, %zu of parked requests, %u requests and "
                    "%u frames after all clients have gone",
                    name, server->host->memory.buffers.used_bytes, server->scheduler.parked_bytes,
                    server->host->memory.requests.block_count -
                        server->host->memory.requests.free_count,
                    server->host->memory.replies.frame_count);
    }
    if (server->sessions.away_count != 0) {
        sl_sim_fail(&oracle->breach, "memory", "%s keeps %u sessions longer than their lease", name,
                    server->sessions.away_count);
    }
    if (!oracle->forgot && server->shard != NULL && server->shard->push_buffer.entry_count != 0) {
        sl_sim_fail(&oracle->breach, "memory",
                    "%s keeps %u pushes aside after all workers have gone", name,
                    server->shard->push_buffer.entry_count);
    }
}

static void check_memory(struct sl_sim_cluster *cluster)
{
    for (uint32_t i = 0; i < cluster->plan->ps_count; i++) {
        const struct sl_sim_ps *ps = &cluster->ps[i];
        for (uint32_t k = 0; ps->running && k < ps->options.reactor_count; k++) {
            check_server(&cluster->oracle, ps->servers[k], sl_reactor_name(ps->cores[k].reactor));
        }
        SL_PROCESS_FOREACH (hosted, &ps->wiring) {
            if (hosted->server != NULL) {
                check_server(&cluster->oracle, hosted->server,
                             sl_reactor_name(hosted->core->reactor));
            }
        }
    }
}

/* All credit is back at a client that waits for nothing. */
static void check_credit(struct sl_sim_cluster *cluster)
{
    const struct sl_client *client = cluster->observer.worker->client;
    for (uint32_t i = 0; i < client->shard_count; i++) {
        const struct sl_shard_conn *shard = &client->conns[i];
        const struct sl_reactor_conn *conn = shard->reactor;
        if (shard->state == SL_SHARD_CONN_OPEN &&
            (conn->credit.requests != SL_LIMIT_CREDIT_REQUESTS ||
             conn->credit.bytes != SL_LIMIT_CREDIT_BYTES)) {
            sl_sim_fail(&cluster->oracle.breach, "memory",
                        "the observer waits for nothing, and has credit for %u requests and "
                        "%" PRIu64 " bytes at %s",
                        conn->credit.requests, conn->credit.bytes, conn->name);
        }
    }
}

/* Who has nothing to do sleeps; where nobody wakes it, it looks from time to time. */
static void check_rest(struct sl_sim_cluster *cluster, uint64_t turns, uint64_t ns)
{
    const struct sl_sim_network_options *network = &cluster->plan->network;
    const uint64_t each = cluster->disks == NULL ? TURNS_OF_SECOND : TURNS_OF_SECOND_WITH_DISK;
    const uint64_t most = each * cluster->plan->ps_count * (ns / SL_CLOCK_NS_PER_S + 1);
    if (turns > most && (!network->has_packets || network->ether.wakes)) {
        sl_sim_fail(&cluster->oracle.breach, "rest",
                    "nothing is to be done, and the ps have %" PRIu64 " turns in %" PRIu64 " ms",
                    turns, sl_sim_ms(ns));
    }
}

/* Once all is healed, and the disks too. */
static void check_checkpoints(struct sl_sim_cluster *cluster, uint32_t before)
{
    if (sl_sim_cluster_saves(cluster) && cluster->oracle.complete_count == before) {
        sl_sim_fail(&cluster->oracle.breach, "checkpoints",
                    "all is healed, and no checkpoint becomes complete");
    }
}

static void pull_tables(struct sl_sim_cluster *cluster)
{
    struct sl_sim_worker *observer = cluster->observer.worker;
    cluster->is_final = true;
    for (uint32_t i = 0; sl_sim_world_is_good(cluster->world) && i < cluster->plan->table_count;
         i++) {
        struct sl_sim_work *work = sl_sim_worker_begin(observer, 0);
        sl_sim_work_pull_all(work, i);
        sl_sim_worker_submit(observer, work, PULL_TIMEOUT_MS);
        while (sl_sim_world_is_good(cluster->world) && !sl_sim_worker_is_idle(observer)) {
            sl_sim_world_moment(cluster->world);
        }
    }
    cluster->is_final = false;
}

static void run_for(struct sl_sim_cluster *cluster, uint64_t ns)
{
    const uint64_t end_ns = cluster->world->now_ns + ns;
    while (sl_sim_world_is_good(cluster->world) && cluster->world->now_ns < end_ns) {
        sl_sim_world_moment(cluster->world);
    }
}

/* Nobody has rows of a dropped table, primaries and backups alike. */
static void check_dropped(struct sl_sim_cluster *cluster, uint32_t table_id)
{
    for (uint32_t i = 0; i < cluster->plan->ps_count; i++) {
        SL_PROCESS_FOREACH (hosted, &cluster->ps[i].wiring) {
            const struct sl_shard *shard = hosted->server == NULL ? NULL : hosted->server->shard;
            const struct sl_shard_table *table = shard == NULL ? NULL : shard->tables[table_id];
            const bool is_freed = table == NULL || (table->dropped && table->sparse == NULL);
            if (!is_freed && shard->snapshots.current == NULL) {
                sl_sim_fail(&cluster->oracle.breach, "drop",
                            "t%u was dropped, and shard %u of ps/%u has %s", table_id,
                            shard->options.index, i, table->dropped ? "its rows" : "it in use");
            }
        }
    }
}

/* The observer drops a table. */
static void drop_table(struct sl_sim_cluster *cluster, uint32_t table_id)
{
    struct sl_sim_worker *observer = cluster->observer.worker;
    struct sl_port *port;
    int err = sl_port_here(observer->client->ports, &port);
    sl_assert(err == 0);
    struct sl_control_op drop = {
        .io = &observer->client->ios[0],
        .run = sl_control_table_drop,
        .deadline_ns =
            sl_sim_process_now(&observer->process) + PULL_TIMEOUT_MS * SL_CLOCK_NS_PER_MS,
        .name = cluster->plan->tables[table_id].name,
    };
    sl_control_op_post(&drop, port);
    sl_sim_process_look(&observer->process);
    while (!drop.done) { /* its deadline passes also when the world has gone bad */
        sl_sim_world_moment(cluster->world);
        sl_port_drain(port);
    }
    if (drop.err != 0) {
        sl_sim_fail(&cluster->oracle.breach, "drop",
                    "all is healed, and t%u cannot be dropped: %s: %s", table_id,
                    sl_err_name(drop.err), drop.text);
    }
    run_for(cluster, DROP_NS);
    check_dropped(cluster, table_id);
}

/* In half of the seeds with backups and no disks, whose servers learn of drops as real ones do, the
 * tables that forget rows end before the job. With disks, the last checkpoint may still have them:
 * what is restored from it elsewhere could not be compared with the tables here. */
static void drop_tables(struct sl_sim_cluster *cluster)
{
    const struct sl_sim_plan *plan = cluster->plan;
    const bool is_drawn = plan->replica.is_there && !plan->disk.is_there && plan->seed % 2 == 0;
    for (uint32_t i = 0; is_drawn && i < plan->table_count && sl_sim_world_is_good(cluster->world);
         i++) {
        if (sl_sim_oracle_forgets_rows(&cluster->oracle, i)) {
            drop_table(cluster, i);
        }
    }
}

void sl_sim_final_run(struct sl_sim_cluster *cluster)
{
    const struct sl_sim_plan *plan = cluster->plan;
    /* A member that is wrongly believed to live has expired by then; every connection is back. */
    uint64_t settled_ns = cluster->world->now_ns + 3 * plan->lease_ns +
                          2 * plan->peer_timeout_ms * SL_CLOCK_NS_PER_MS + 15 * SL_CLOCK_NS_PER_S;
    struct sl_sim_worker *observer = cluster->observer.worker;
    sl_sim_network_calm(cluster->world->network);
    sl_sim_cluster_calm_disks(cluster);
    const uint32_t complete_count = cluster->oracle.complete_count;
    while (sl_sim_world_is_good(cluster->world) &&
           (cluster->world->now_ns < settled_ns || !sl_sim_worker_is_idle(observer))) {
        sl_sim_world_moment(cluster->world);
    }
    if (sl_sim_world_is_good(cluster->world)) {
        pull_tables(cluster);
    }
    if (sl_sim_world_is_good(cluster->world)) {
        sl_sim_oracle_judge(&cluster->oracle);
        check_credit(cluster);
        check_checkpoints(cluster, complete_count);
        sl_sim_cluster_compare_backups(cluster);
        sl_sim_cluster_check_places(cluster);
        sl_sim_views_final(cluster);
        drop_tables(cluster);
    }
    observer->finished = true;
    uint64_t gone_ns = cluster->world->now_ns + 3 * plan->lease_ns;
    if (sl_sim_world_is_good(cluster->world)) {
        sl_sim_worker_close(observer);
    }
    uint64_t idle_ns = gone_ns - plan->lease_ns, turns = 0;
    while (sl_sim_world_is_good(cluster->world) &&
           (cluster->world->now_ns < gone_ns || cluster->observer.worker != NULL)) {
        turns = cluster->world->now_ns < idle_ns ? cluster->member.turns : turns;
        sl_sim_world_moment(cluster->world);
    }
    if (sl_sim_world_is_good(cluster->world)) {
        check_memory(cluster);
        check_rest(cluster, cluster->member.turns - turns, cluster->world->now_ns - idle_ns);
    }
    if (sl_sim_world_is_good(cluster->world)) {
        sl_sim_elsewhere_run(cluster);
    }
}
