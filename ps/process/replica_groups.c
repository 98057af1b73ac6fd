#include "ps/process/replica_groups.h"

#include <stdlib.h>

#include "core/log.h"
#include "ps/process/main_thread.h"
#include "ps/replication/replication.h"
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

/* A message to a core. */
struct new_config {
    struct sl_server *server;
    struct sl_replica_config config;
};

static void core_take_config(void *ctx, uint64_t a, uint64_t b)
{
    struct new_config *new = ctx;
    sl_replication_set_config(new->server, &new->config);
    free(new);
}

bool sl_process_replica_is_primary(const struct sl_process *process, uint32_t which)
{
    return process->options.replicas == 0
               ? which == SL_PROCESS_HOME
               : process->hosted[which].group.ps.primary == process->member.task_index;
}

/* Sets the address of the backup of a primary here: a partner on the next server, or a home server
 * on the previous one. */
static bool fill_backup(const struct sl_process *process, uint32_t which, uint32_t core,
                        const struct sl_message_ps *at, struct sl_replica_config *config)
{
    config->backup_task = at->task_index;
    config->backup_shard = core + (which == SL_PROCESS_HOME ? process->options.reactors.shards : 0);
    if (sl_endpoint_parse(at->data_endpoint, &config->backup, NULL) != 0 ||
        config->backup.scheme != SL_ENDPOINT_TCP) {
        sl_log_error("ps/%u has no endpoint of tcp for backups: %s", at->task_index,
                     at->data_endpoint);
        return false;
    }
    return true;
}

static void tell_core(struct sl_process *process, uint32_t which, uint32_t core)
{
    const struct sl_process_replica_group *config = &process->hosted[which].group;
    struct new_config *new = malloc(sizeof *new);
    if (new == NULL) {
        sl_log_error("no memory for the replica group of reactor %u: this server ends", core);
        sl_process_answer(&process->cores[0], SL_ERR_NO_MEMORY);
        return; /* the process stops: the next epoch may never come, but the backups continue */
    }
    *new = (struct new_config){.server = sl_process_server(process, which, core)};
    new->config.epoch = config->ps.epoch;
    new->config.is_primary = config->ps.primary == process->member.task_index;
    new->config.has_backup = new->config.is_primary && config->ps.backup_plus_1 != 0 &&
                             fill_backup(process, which, core, &config->backup, &new->config);
    sl_reactor_post(process->reactors[0], sl_process_reactor_of(process, core),
                    (struct sl_mail){.run = core_take_config, .ctx = new, .drop = free});
}

void sl_process_replica_tell(struct sl_process *process)
{
    for (uint32_t which = SL_PROCESS_HOME; which <= SL_PROCESS_PARTNER; which++) {
        struct sl_process_replica_group *config = &process->hosted[which].group;
        if (!process->has_shards || config->notified_epoch == config->ps.epoch) {
            continue;
        }
        config->notified_epoch = config->ps.epoch;
        config->in_sync_count = 0;
        config->report = SL_PROCESS_REPORT_NOTHING;
        for (uint32_t core = 0; core < process->options.reactors.shards; core++) {
            tell_core(process, which, core);
        }
    }
}

static const struct sl_message_ps *find_ps(const struct sl_message_cluster *cluster, uint32_t task)
{
    for (uint32_t i = 0; i < cluster->ps_count; i++) {
        if (cluster->ps[i].task_index == task) {
            return &cluster->ps[i];
        }
    }
    return NULL;
}

static uint32_t first_shard_of(const struct sl_message_cluster *cluster, uint32_t task)
{
    uint32_t first = 0;
    for (uint32_t i = 0; i < cluster->ps_count && cluster->ps[i].task_index < task; i++) {
        first += cluster->ps[i].shard_count;
    }
    return first;
}

/* Returns false if the coordinator's data about that server is inconsistent. */
static bool take_config(struct sl_process_replica_group *config,
                        const struct sl_message_cluster *cluster, uint32_t task)
{
    const struct sl_message_ps *ps = find_ps(cluster, task);
    const struct sl_message_ps *backup =
        ps == NULL || ps->backup_plus_1 == 0 ? NULL : find_ps(cluster, ps->backup_plus_1 - 1);
    if (ps == NULL || ps->epoch == 0 || (backup == NULL) != (ps->backup_plus_1 == 0)) {
        sl_log_error("the coordinator knows of no backups of the shards of ps/%u", task);
        return false;
    }
    if (ps->epoch < config->ps.epoch) {
        sl_log_error("the coordinator has restarted, and does not know who has the shards of "
                     "ps/%u: it says epoch %llu, and was at %llu",
                     task, (unsigned long long)ps->epoch, (unsigned long long)config->ps.epoch);
        return false;
    }
    config->ps = *ps;
    config->backup = backup == NULL ? *ps : *backup;
    return true;
}

static struct sl_message_replica_report report_of(const struct sl_process *process,
                                                  const struct sl_process_replica_group *config)
{
    const uint32_t task = sl_agent_task_index(process->agent);
    const bool is_primary = config->ps.primary == task;
    const enum sl_process_report report =
        config->notified_epoch == config->ps.epoch ? config->report : SL_PROCESS_REPORT_NOTHING;
    return (struct sl_message_replica_report){
        .task_index = config->ps.task_index,
        .epoch = config->ps.epoch,
        .role = is_primary                             ? SL_MESSAGE_REPLICA_PRIMARY
                : config->ps.backup_plus_1 == task + 1 ? SL_MESSAGE_REPLICA_BACKUP
                                                       : SL_MESSAGE_REPLICA_NEITHER,
        .in_sync = is_primary ? report == SL_PROCESS_REPORT_IN_SYNC : config->ps.in_sync,
        .is_undecided = is_primary && report == SL_PROCESS_REPORT_NOTHING,
    };
}

/* Sets the replica reports, from which a new coordinator learns the roles. */
static void tell_member(const struct sl_process *process, bool is_news)
{
    struct sl_message_replica_report reports[SL_MESSAGE_REPLICA_REPORTS_MAX];
    for (uint32_t which = SL_PROCESS_HOME; which <= SL_PROCESS_PARTNER; which++) {
        reports[which] = report_of(process, &process->hosted[which].group);
    }
    sl_agent_report(process->agent, reports, SL_MESSAGE_REPLICA_REPORTS_MAX, is_news);
}

/* Passes the ids of dropped tables that are new to all servers. */
static void post_dropped(struct sl_process *process, const struct sl_message_dropped *dropped)
{
    for (uint32_t id = 0; dropped->has_bits && id < SL_LIMIT_TABLES; id++) {
        if (!sl_message_dropped_has(dropped, id) || sl_message_dropped_has(&process->dropped, id)) {
            continue;
        }
        sl_message_dropped_add(&process->dropped, id);
        for (uint32_t i = 0; i < sl_process_server_count(process); i++) {
            sl_reactor_post(
                process->reactors[0], sl_process_reactor_of(process, i),
                (struct sl_mail){.run = sl_server_table_drop, .ctx = process->servers[i], .a = id});
        }
    }
}

void sl_process_on_cluster(void *ctx, const struct sl_message_cluster *cluster)
{
    struct sl_process *process = ctx;
    post_dropped(process, &cluster->dropped);
    const uint32_t task = sl_agent_task_index(process->agent);
    const uint32_t before = (task + cluster->ps_count - 1) % cluster->ps_count;
    if (process->options.replicas == 0) {
        return;
    }
    if (!take_config(&process->hosted[SL_PROCESS_HOME].group, cluster, task) ||
        !take_config(&process->hosted[SL_PROCESS_PARTNER].group, cluster, before)) {
        sl_process_answer(&process->cores[0], SL_ERR_PROTOCOL);
        return;
    }
    if (!process->has_shards) {
        process->hosted[SL_PROCESS_PARTNER].first_shard = first_shard_of(cluster, before);
    }
    sl_process_replica_tell(process);
    tell_member(process, false);
}

/* Reactor 0: handles the replication state of one shard. */
static void config_moved(void *ctx, uint64_t local_index, uint64_t epoch)
{
    struct sl_process *process = ctx;
    const uint32_t count = process->options.reactors.shards;
    const bool in_sync = (local_index & SL_PROCESS_IN_SYNC) != 0;
    const uint32_t index = (uint32_t)(local_index & ~SL_PROCESS_IN_SYNC);
    struct sl_process_replica_group *config =
        &process->hosted[index < count ? SL_PROCESS_HOME : SL_PROCESS_PARTNER].group;
    if (epoch != config->notified_epoch || config->report == SL_PROCESS_REPORT_FAILED) {
        return;
    }
    config->in_sync_count += in_sync ? 1 : 0;
    if (in_sync && config->in_sync_count < count) {
        return;
    }
    config->report = in_sync ? SL_PROCESS_REPORT_IN_SYNC : SL_PROCESS_REPORT_FAILED;
    if (process->agent != NULL) {
        tell_member(process, true);
    }
}

void sl_process_on_replica_state_changed(void *ctx, uint32_t local_index, uint64_t epoch,
                                         bool in_sync)
{
    const struct sl_process_core *core = ctx;
    sl_reactor_post(core->reactor, 0,
                    (struct sl_mail){.run = config_moved,
                                     .ctx = core->process,
                                     .a = local_index | (in_sync ? SL_PROCESS_IN_SYNC : 0),
                                     .b = epoch});
}

/* Reactor 0. True if the coordinator knows that the group is in sync, or will know before it reads
 * this server's Goodbye: the report was sent earlier on the same connection. */
static bool is_known_in_sync(const struct sl_process *process,
                             const struct sl_process_replica_group *config)
{
    return config->notified_epoch == config->ps.epoch &&
           config->report == SL_PROCESS_REPORT_IN_SYNC &&
           (config->ps.in_sync || (process->agent != NULL && !sl_agent_has_news(process->agent)));
}

/* The coordinator promotes the backups of all shards of a group or of none, by its own state of the
 * group. A single shard, which may not be in sync, cannot decide it. */
void sl_process_replica_end(struct sl_process *process, sl_mail_fn *run)
{
    for (uint32_t which = SL_PROCESS_HOME;
         process->options.replicas > 0 && which <= SL_PROCESS_PARTNER; which++) {
        const struct sl_process_replica_group *group = &process->hosted[which].group;
        process->hosted[which].switches_over = group->ps.primary == process->member.task_index &&
                                               group->ps.epoch != 0 &&
                                               is_known_in_sync(process, group);
    }
    for (uint32_t i = 0; i < process->options.reactors.shards; i++) {
        sl_reactor_post(process->reactors[0], sl_process_reactor_of(process, i),
                        (struct sl_mail){.run = run, .ctx = &process->cores[i]});
    }
}

void sl_process_replica_switch_over(struct sl_process_core *core)
{
    for (uint32_t which = 0; which < sl_process_hosted_count(core->process); which++) {
        sl_replication_set_switchover(sl_process_server(core->process, which, core->index),
                                      core->process->hosted[which].switches_over);
    }
}

void sl_process_on_replica_failed(void *ctx, int err)
{
    sl_process_answer(ctx, err);
}

bool sl_process_has_tables(const struct sl_process *process)
{
    return sl_server_has_tables(sl_process_server(process, SL_PROCESS_HOME, 0)) ||
           (process->options.replicas > 0 &&
            sl_server_has_tables(sl_process_server(process, SL_PROCESS_PARTNER, 0)));
}
