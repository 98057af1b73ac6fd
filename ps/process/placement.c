#include "ps/process/placement.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "ps/process/checkpoint.h"
#include "ps/process/embedding.h"
#include "ps/process/main_thread.h"
#include "ps/process/restore.h"
#include "ps/server/restore.h"
#include "ps/server/table_drop.h"

const char *sl_process_replica_flaw(const struct sl_process_options *options)
{
    return options->replicas == 0  ? NULL
           : options->ps_count < 2 ? "needs a second server, to have the backups"
           : options->kv_handler != NULL
               ? "does not go with a handler of KV tables, whose state it "
                 "does not know"
           : options->endpoints.data.scheme != SL_ENDPOINT_TCP
               ? "needs a data endpoint of tcp, to which the backup's primary connects"
               : NULL;
}

/* Replica reports to the coordinator */

static struct sl_message_replica_report report_of(const struct sl_process_hosted *hosted)
{
    const struct sl_message_placement *placement = &hosted->placement;
    const uint32_t task = hosted->process->member.task_index;
    const bool is_primary = placement->primary == task;
    const enum sl_process_report report =
        hosted->notified_epoch == placement->epoch ? hosted->report : SL_PROCESS_REPORT_NOTHING;
    return (struct sl_message_replica_report){
        .shard = hosted->shard,
        .epoch = placement->epoch,
        .role = !hosted->is_here                       ? SL_MESSAGE_REPLICA_NEITHER
                : is_primary                           ? SL_MESSAGE_REPLICA_PRIMARY
                : placement->backup_plus_1 == task + 1 ? SL_MESSAGE_REPLICA_BACKUP
                                                       : SL_MESSAGE_REPLICA_NEITHER,
        .in_sync = is_primary ? report == SL_PROCESS_REPORT_IN_SYNC : placement->in_sync,
        .is_undecided = is_primary && report == SL_PROCESS_REPORT_NOTHING,
    };
}

/* Sets the reports about the shards here, from which a coordinator learns the roles. */
static void tell_member(const struct sl_process *process, bool is_news)
{
    struct sl_message_replica_report reports[SL_LIMIT_SHARDS];
    uint32_t count = 0;
    SL_PROCESS_FOREACH (hosted, process) {
        reports[count++] = report_of(hosted);
    }
    sl_agent_report(process->agent, reports, count, is_news);
}

/* Memory */

static void set_limit(void *ctx, uint64_t tables_bytes, uint64_t b)
{
    struct sl_process_hosted *hosted = ctx;
    hosted->tables_bytes = tables_bytes;
    if (hosted->server != NULL) {
        sl_server_set_memory_limit(hosted->server, tables_bytes);
    }
}

/* Divides the memory for tables among the shards that are here and, if `more`, another one. Returns
 * false if each would get too little, or, with `more`, less than some shard uses already. */
static bool divide_memory(struct sl_process *process, bool more)
{
    const struct sl_process_options *options = &process->options;
    uint32_t count = more ? 1 : 0;
    uint64_t most = 0;
    SL_PROCESS_FOREACH (hosted, process) {
        const uint64_t used = hosted->is_here ? sl_cell_get(&hosted->cells.memory_bytes) : 0;
        most = used > most ? used : most;
        count += hosted->is_here;
    }
    const size_t bytes = sl_memory_plan_tables(
        &process->memory, options->reactors.shards * (1 + options->replicas), count);
    const bool has_limit = process->memory.tables_bytes != 0;
    if (has_limit && (bytes == 0 || (more && bytes < most))) {
        return false;
    }
    if (bytes != process->shards.tables_bytes) {
        process->shards.tables_bytes = bytes;
        (void)sl_process_hosted_post(process, set_limit, bytes, 0);
    }
    return true;
}

/* Begin and end of a server, on its reactor */

/* Keeps the totals of a server that ends, with those of an earlier one. */
static void hosted_keep_stats(struct sl_process_hosted *hosted)
{
    const struct sl_message_stats earlier = hosted->stats;
    struct sl_message old = {.kind = SL_MESSAGE_STATS, .stats = earlier};
    if (sl_server_stats(hosted->server, &hosted->stats) != 0) {
        sl_log_warn("no memory for the totals of shard %u", hosted->shard);
        hosted->stats = earlier;
        return;
    }
    hosted->stats.requests += earlier.requests;
    hosted->stats.degraded_writes += earlier.degraded_writes;
    sl_message_fini(&old);
}

static void hosted_destroy(struct sl_process_hosted *hosted)
{
    hosted_keep_stats(hosted);
    sl_process_metrics_remove_shard(hosted);
    sl_server_destroy(&hosted->server);
}

static int hosted_create(struct sl_process_hosted *hosted)
{
    const struct sl_process *process = hosted->process;
    struct sl_replication_options replication = process->shards.replication;
    struct sl_server_options options = process->shards.server;
    replication.ctx = hosted;
    replication.cells = &hosted->replica_cells;
    options.reactor = hosted->core->reactor;
    options.beside = hosted->core->server;
    options.local_index = hosted->shard - process->member.first_shard;
    options.replication = &replication;
    options.cells = &hosted->cells;
    options.task_index = process->member.task_index;
    options.shard.memory_bytes_max = hosted->tables_bytes;
    int err = sl_server_create(&options, &hosted->server);
    if (err != 0) {
        return err;
    }
    if (process->member.lease_ns != 0) {
        sl_server_set_lease(hosted->server, process->member.lease_ns);
    }
    err = sl_process_checkpoint_open(hosted);
    err = err != 0
              ? err
              : sl_server_set_shard(hosted->server, hosted->shard, process->member.shard_count);
    if (err != 0) {
        sl_server_destroy(&hosted->server);
        return err;
    }
    sl_process_metrics_add_shard(hosted);
    return 0;
}

static void reactor_0_started(void *ctx, uint64_t a, uint64_t b)
{
    sl_process_hosted_started(((struct sl_process_hosted *)ctx)->process);
}

/* At the start: restores checkpoint `restore`, if that is not 0. */
static void create_first(void *ctx, uint64_t restore, uint64_t b)
{
    struct sl_process_hosted *hosted = ctx;
    hosted->tables_bytes = hosted->process->memory.tables_bytes;
    int err = hosted_create(hosted);
    err = err != 0 ? err : sl_process_restore_shard(hosted, restore);
    if (err != 0) {
        sl_process_answer(hosted->core, err);
        return;
    }
    sl_reactor_post(hosted->core->reactor, 0,
                    (struct sl_mail){.run = reactor_0_started, .ctx = hosted});
}

static void create_failed(void *ctx, uint64_t a, uint64_t b)
{
    struct sl_process_hosted *hosted = ctx;
    hosted->is_here = false;
    hosted->refused_epoch = hosted->placement.epoch;
    (void)divide_memory(hosted->process, false);
    if (hosted->process->agent != NULL) {
        tell_member(hosted->process, true);
    }
}

/* After the start: the backup of a shard, or a shard that moves here. */
static void create_later(void *ctx, uint64_t tables_bytes, uint64_t b)
{
    struct sl_process_hosted *hosted = ctx;
    hosted->tables_bytes = tables_bytes;
    if (hosted->server != NULL) {
        hosted->end.returns = hosted->end.is_ending;
        return;
    }
    const int err = hosted_create(hosted);
    if (err != 0) {
        sl_log_error("shard %u cannot be received: %s", hosted->shard, sl_err_name(err));
        sl_reactor_post(hosted->core->reactor, 0,
                        (struct sl_mail){.run = create_failed, .ctx = hosted});
    } else if (hosted->process->options.checkpoint.restores) {
        sl_server_start_serving(hosted->server);
    }
}

static void hosted_ended(void *ctx)
{
    struct sl_process_hosted *hosted = ctx;
    hosted_destroy(hosted);
    hosted->end.is_ending = false;
    if (hosted->end.returns) {
        hosted->end.returns = false;
        create_later(hosted, hosted->tables_bytes, 0);
        if (hosted->server != NULL && hosted->end.config.epoch != 0) {
            sl_replication_set_config(hosted->server, &hosted->end.config);
        }
    }
}

/* is_own: not the cluster says it, but the shard's replication. */
static void end_here(void *ctx, uint64_t is_own, uint64_t b)
{
    struct sl_process_hosted *hosted = ctx;
    if (is_own == 0) {
        hosted->end.returns = false;
        hosted->end.config.epoch = 0;
    }
    if (hosted->server != NULL && !hosted->end.is_ending) {
        hosted->end.is_ending = true;
        sl_server_retire(hosted->server, hosted_ended, hosted);
    }
}

void sl_process_placement_destroy(struct sl_process_core *core)
{
    SL_PROCESS_FOREACH (hosted, core->process) {
        if (hosted->core == core && hosted->server != NULL) {
            hosted_destroy(hosted);
        }
    }
}

/* Roles */

struct new_config {
    struct sl_process_hosted *hosted;
    struct sl_replica_config config;
};

static void take_config(void *ctx, uint64_t a, uint64_t b)
{
    struct new_config *new = ctx;
    struct sl_server *server = new->hosted->server;
    new->hosted->end.config = new->config;
    if (server != NULL && !new->hosted->end.is_ending) {
        sl_replication_set_config(server, &new->config);
    }
    free(new);
}

/* Sets the address of the backup. Returns false if it cannot have one. */
static bool fill_backup(const struct sl_process_hosted *hosted, struct sl_replica_config *config)
{
    config->backup_task = hosted->placement.backup_plus_1 - 1;
    const bool is_tcp = sl_endpoint_parse(hosted->backup_endpoint, &config->backup, NULL) == 0 &&
                        config->backup.scheme == SL_ENDPOINT_TCP;
    if (!is_tcp || hosted->process->shards.server.hooks == NULL) {
        sl_log_error("shard %u cannot be copied to ps/%u: %s", hosted->shard, config->backup_task,
                     is_tcp ? "it has a KV handler, whose state is not known"
                            : "that server has no TCP endpoint");
    }
    return is_tcp && hosted->process->shards.server.hooks != NULL;
}

static void tell_config(struct sl_process_hosted *hosted)
{
    struct sl_process *process = hosted->process;
    struct new_config *new = malloc(sizeof *new);
    if (new == NULL) {
        sl_log_error("no memory to change the role of shard %u: this server ends", hosted->shard);
        sl_process_answer(&process->cores[0], SL_ERR_NO_MEMORY);
        return; /* the process stops: the next epoch may never come, but the backups continue */
    }
    *new = (struct new_config){.hosted = hosted};
    new->config.epoch = hosted->placement.epoch;
    new->config.is_primary = sl_process_hosted_is_primary(hosted);
    new->config.needs_backup = process->options.replicas > 0;
    hosted->notified_epoch = hosted->placement.epoch;
    hosted->report = SL_PROCESS_REPORT_NOTHING;
    if (new->config.is_primary && hosted->placement.backup_plus_1 != 0) {
        new->config.has_backup = fill_backup(hosted, &new->config);
        hosted->report =
            new->config.has_backup ? SL_PROCESS_REPORT_NOTHING : SL_PROCESS_REPORT_FAILED;
        process->shards.has_news = process->shards.has_news || !new->config.has_backup;
    }
    if (process->shards.server.hooks == NULL) {
        free(new);
        return;
    }
    sl_process_hosted_mail(hosted, (struct sl_mail){.run = take_config, .ctx = new, .drop = free});
}

/* Begins, changes or ends the server of a shard as the cluster says. */
static void hosted_update(struct sl_process_hosted *hosted, const struct sl_message_placement *now)
{
    const uint32_t task = hosted->process->member.task_index;
    const bool was_primary = sl_process_hosted_is_primary(hosted);
    const bool is_wanted = sl_message_placement_has(now, task);
    hosted->placement = *now;
    if (hosted->is_here && (!is_wanted || (was_primary && now->primary != task))) {
        hosted->is_here = false;
        sl_process_hosted_mail(hosted, (struct sl_mail){.run = end_here, .ctx = hosted});
        (void)divide_memory(hosted->process, false);
    }
    if (!is_wanted || hosted->is_here || hosted->refused_epoch == now->epoch) {
        /* nothing to create */
    } else if (!divide_memory(hosted->process, true)) {
        sl_log_error("shard %u cannot be received: no memory is left of --memory-limit",
                     hosted->shard);
        hosted->refused_epoch = now->epoch;
        hosted->process->shards.has_news = true;
    } else {
        hosted->is_here = true;
        hosted->notified_epoch = 0;
        sl_process_hosted_mail(hosted, (struct sl_mail){.run = create_later,
                                                        .ctx = hosted,
                                                        .a = hosted->process->shards.tables_bytes});
        sl_process_embedding_created(hosted);
    }
    if (hosted->is_here && hosted->notified_epoch != now->epoch) {
        tell_config(hosted);
    }
}

/* Returns 0 or why the coordinator's word about a shard cannot be followed. */
static int take_placement(struct sl_process *process, const struct sl_message_cluster *cluster,
                          uint32_t shard)
{
    const struct sl_message_placement *now = &cluster->placements[shard];
    const uint32_t task = sl_agent_task_index(process->agent);
    const bool is_wanted = sl_message_placement_has(now, task);
    const struct sl_message_ps *backup =
        now->backup_plus_1 == 0 ? NULL
                                : sl_message_cluster_find_ps(cluster, now->backup_plus_1 - 1);
    if (now->epoch == 0 || (backup == NULL) != (now->backup_plus_1 == 0)) {
        sl_log_error("the coordinator does not say where shard %u is", shard);
        return SL_ERR_PROTOCOL;
    }
    struct sl_process_hosted *hosted = sl_process_hosted_find(process, shard, is_wanted);
    if (hosted == NULL) {
        return is_wanted ? SL_ERR_NO_MEMORY : 0;
    }
    if (now->epoch < hosted->placement.epoch) {
        sl_log_error("the coordinator has restarted, and does not know who has shard %u: it says "
                     "epoch %llu, and was at %llu",
                     shard, (unsigned long long)now->epoch,
                     (unsigned long long)hosted->placement.epoch);
        return SL_ERR_PROTOCOL;
    }
    if (backup != NULL) {
        memcpy(hosted->backup_endpoint, backup->data_endpoint, sizeof hosted->backup_endpoint);
    }
    if (process->shards.has_joined) {
        hosted_update(hosted, now);
    } else {
        hosted->placement = *now;
    }
    return 0;
}

static void drop_here(void *ctx, uint64_t table, uint64_t b)
{
    const struct sl_process_hosted *hosted = ctx;
    if (hosted->server != NULL && !hosted->end.is_ending) {
        sl_server_table_drop(hosted->server, table, 0);
    }
}

/* Passes the ids of tables that were dropped since to all servers. Only after the join. */
static void post_dropped(struct sl_process *process, const struct sl_message_dropped *dropped)
{
    for (uint32_t id = 0; dropped->has_bits && id < SL_LIMIT_TABLES; id++) {
        if (sl_message_dropped_has(dropped, id) && !sl_message_dropped_has(&process->dropped, id)) {
            sl_message_dropped_add(&process->dropped, id);
            (void)sl_process_hosted_post(process, drop_here, id, 0);
        }
    }
}

void sl_process_on_cluster(void *ctx, const struct sl_message_cluster *cluster)
{
    struct sl_process *process = ctx;
    int err = 0;
    for (uint32_t shard = 0; shard < cluster->shard_count && err == 0; shard++) {
        err = take_placement(process, cluster, shard);
    }
    if (err != 0) {
        sl_process_answer(&process->cores[0], err);
        return;
    }
    if (process->shards.has_joined) {
        post_dropped(process, &cluster->dropped);
        tell_member(process, process->shards.has_news);
        process->shards.has_news = false;
    }
}

void sl_process_placement_join(struct sl_process *process, uint64_t restore)
{
    const uint32_t task = process->member.task_index;
    process->shards.has_joined = true;
    process->shards.tables_bytes = process->memory.tables_bytes;
    process->shards.starts_left = 1; /* until all mails are posted */
    SL_PROCESS_FOREACH (hosted, process) {
        const bool is_primary = hosted->placement.primary == task;
        hosted->is_here = sl_message_placement_has(&hosted->placement, task);
        if (hosted->is_here) {
            process->shards.starts_left++;
            sl_process_hosted_mail(hosted, (struct sl_mail){.run = create_first,
                                                            .ctx = hosted,
                                                            .a = is_primary ? restore : 0});
            sl_process_embedding_created(hosted);
            tell_config(hosted);
        }
    }
    (void)divide_memory(process, false);
    process->shards.starts_left += sl_process_restore_is_needed(process) ? 1 : 0;
    post_dropped(process, sl_agent_dropped(process->agent));
    tell_member(process, false);
    sl_process_hosted_started(process);
}

/* Callbacks of the shards' replication */

static void state_changed(void *ctx, uint64_t epoch, uint64_t in_sync)
{
    struct sl_process_hosted *hosted = ctx;
    if (!hosted->is_here || epoch != hosted->notified_epoch ||
        hosted->report == SL_PROCESS_REPORT_FAILED) {
        return;
    }
    hosted->report = in_sync != 0 ? SL_PROCESS_REPORT_IN_SYNC : SL_PROCESS_REPORT_FAILED;
    if (hosted->process->agent != NULL) {
        tell_member(hosted->process, true);
    }
}

void sl_process_on_replica_state_changed(void *ctx, uint32_t local_index, uint64_t epoch,
                                         bool in_sync)
{
    struct sl_process_hosted *hosted = ctx;
    sl_reactor_post(
        hosted->core->reactor, 0,
        (struct sl_mail){.run = state_changed, .ctx = hosted, .a = epoch, .b = in_sync});
}

/* REFUSED: another server has the shard, and the cluster that says so is on its way. */
void sl_process_on_replica_failed(void *ctx, int err)
{
    struct sl_process_hosted *hosted = ctx;
    if (err == SL_ERR_REFUSED) {
        sl_reactor_post(hosted->core->reactor, hosted->core->index,
                        (struct sl_mail){.run = end_here, .ctx = hosted, .a = 1});
    } else {
        sl_process_answer(hosted->core, err);
    }
}
