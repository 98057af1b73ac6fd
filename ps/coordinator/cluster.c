#include "ps/coordinator/cluster.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/event.h"
#include "core/log.h"
#include "ps/coordinator/checkpoint.h"
#include "ps/coordinator/expiry.h"
#include "ps/coordinator/identity.h"
#include "ps/coordinator/job.h"
#include "ps/coordinator/move.h"
#include "ps/coordinator/placement.h"
#include "ps/coordinator/restore.h"
#include "ps/coordinator/table.h"

uint32_t sl_coordinator_cluster_missing(const struct sl_coordinator *coordinator,
                                        struct sl_message_waiting *waiting)
{
    uint32_t total = sl_coordinator_placement_list_missing(coordinator, waiting);
    return sl_coordinator_job_missing(coordinator, total, waiting);
}

/* Servers follow changes of roles, which replicas and moves cause. */
static bool servers_follow(const struct sl_coordinator *coordinator)
{
    return coordinator->placement.shard_count != 0 &&
           (coordinator->placement.replicas > 0 || coordinator->placement.has_new_roles);
}

/* A server that follows roles, and any member that has an older cluster, gets changes of roles at
 * once: a missing server blocks only requests to its own shards. Other members wait until no server
 * is missing. */
static bool may_get_cluster(const struct sl_coordinator *coordinator,
                            const struct sl_coordinator_member *member, bool is_whole)
{
    const bool knows = sl_coordinator_is_ps(member)
                           ? servers_follow(coordinator) || (coordinator->tables.dropped.has_bits &&
                                                             !member->waits_for_cluster)
                           : member->cluster_version != 0;
    return is_whole || (coordinator->cluster.is_ready && knows);
}

/* True if the member waits for the cluster or has an older version, and may receive it now. */
static bool needs_cluster(const struct sl_coordinator *coordinator,
                          const struct sl_coordinator_member *member, bool is_whole)
{
    const bool is_drained = sl_coordinator_is_ps(member) &&
                            !sl_coordinator_has_ps(coordinator, member->hello.task_index);
    bool cares = !sl_coordinator_is_ps(member) || servers_follow(coordinator) ||
                 coordinator->tables.dropped.has_bits;
    bool is_outdated =
        member->registered && cares && member->cluster_version != coordinator->cluster.version;
    return member->connected && !is_drained && (member->waits_for_cluster || is_outdated) &&
           may_get_cluster(coordinator, member, is_whole);
}

static void send_cluster_to(struct sl_coordinator *coordinator,
                            struct sl_coordinator_member *member, struct sl_message *message)
{
    message->id = member->waits_for_cluster ? member->cluster_waiter.request : 0;
    message->cluster.restore = sl_coordinator_is_ps(member)
                                   ? coordinator->ps[member->hello.task_index].checkpoints.restore
                                   : coordinator->began_from;
    message->cluster.abandoned_above = sl_coordinator_is_ps(member) ? coordinator->began_from : 0;
    message->cluster.abandoned_to = sl_coordinator_is_ps(member) ? coordinator->abandoned_to : 0;
    message->cluster.kept_to = sl_coordinator_is_ps(member) ? coordinator->kept_to : 0;
    message->cluster.values_lost = coordinator->values_lost;
    message->cluster.job = coordinator->identity;
    message->cluster.dropped = coordinator->tables.dropped;
    member->waits_for_cluster = false;
    member->cluster_version = coordinator->cluster.version;
    sl_coordinator_send(coordinator, member, message);
    if (sl_coordinator_is_ps(member)) {
        sl_coordinator_expiry_notify_missed(coordinator, member);
    }
}

/* Runs whenever no task is missing. If a server or a table id is older than this coordinator, every
 * server must have that job's values. Returns false if the shards could not be placed. */
static bool continue_whole(struct sl_coordinator *coordinator, uint64_t now_ns)
{
    const bool is_later = !coordinator->cluster.is_ready && coordinator->tables.are_older;
    sl_coordinator_job_begin(coordinator, now_ns);
    if (!coordinator->cluster.is_ready) {
        coordinator->cluster.is_ready = true;
        sl_coordinator_note(coordinator, SL_COORDINATOR_RECORD_JOB, 0);
        sl_coordinator_restore_choose(coordinator);
        sl_coordinator_checkpoint_cluster_ready(coordinator, now_ns);
    }
    if (sl_coordinator_placement_begin(coordinator) != 0) {
        return false;
    }
    for (uint32_t task = 0; is_later && task < coordinator->placement.ps_end; task++) {
        sl_coordinator_restore_check_values(coordinator, task);
    }
    return true;
}

/* Writes the servers of the job. Returns their number. */
static uint32_t list_servers(const struct sl_coordinator *coordinator, struct sl_message_ps *to)
{
    uint32_t count = 0;
    for (uint32_t task = 0; task < coordinator->placement.ps_end; task++) {
        const struct sl_coordinator_ps *from = &coordinator->ps[task];
        if (!sl_coordinator_has_ps(coordinator, task)) {
            continue;
        }
        struct sl_message_ps *ps = &to[count++];
        ps->task_index = task;
        ps->first_shard = from->first_shard;
        ps->shard_count = from->shard_count;
        ps->reactor_count = from->reactor_count;
        memcpy(ps->data_endpoint, from->data_endpoint, sizeof ps->data_endpoint);
        memcpy(ps->host, from->host, sizeof ps->host);
        memcpy(ps->bypass_endpoint, from->bypass_endpoint, sizeof ps->bypass_endpoint);
    }
    return count;
}

/* Sends the cluster to every member that needs it. is_whole: no task is missing. */
static void send_cluster(struct sl_coordinator *coordinator, bool is_whole, uint64_t now_ns)
{
    if (coordinator->job.never_began) {
        return; /* the job never begins */
    }
    if (is_whole && !coordinator->cluster.is_ready &&
        !sl_coordinator_identity_settle(coordinator)) {
        return; /* a server is missing again */
    }
    if (is_whole && !coordinator->cluster.is_ready &&
        sl_coordinator_placement_waits(coordinator, now_ns)) {
        return;
    }
    const bool is_placed = !is_whole || continue_whole(coordinator, now_ns);
    uint32_t needed = 0;
    for (uint32_t i = 0; i < coordinator->member_count; i++) {
        needed += needs_cluster(coordinator, coordinator->members[i], is_whole) ? 1 : 0;
    }
    if (needed == 0) {
        return;
    }
    struct sl_message message = {
        .kind = SL_MESSAGE_CLUSTER,
        .cluster = {.ps = calloc(coordinator->placement.ps_end, sizeof *message.cluster.ps),
                    .worker_count = coordinator->job.worker_count},
    };
    if (!is_placed || message.cluster.ps == NULL ||
        sl_coordinator_placement_fill(coordinator, &message.cluster) != 0) {
        sl_log_error("no memory to send the cluster to the members; retrying");
        free(message.cluster.ps);
        return;
    }
    message.cluster.ps_count = list_servers(coordinator, message.cluster.ps);
    for (uint32_t i = 0; i < coordinator->member_count; i++) {
        if (needs_cluster(coordinator, coordinator->members[i], is_whole)) {
            send_cluster_to(coordinator, coordinator->members[i], &message);
        }
    }
    free(message.cluster.placements);
    free(message.cluster.ps);
}

/* Refuses a member that expects other counts than earlier members. */
static bool counts_agree(struct sl_coordinator *coordinator,
                         const struct sl_coordinator_member *member,
                         const struct sl_message *message)
{
    const struct sl_message_register *reg = &message->reg;
    if (reg->ps_count != 0 && reg->ps_count != coordinator->options.ps_count) {
        sl_coordinator_refuse(coordinator, member, message->id, SL_ERR_INVALID,
                              "%s expects %u server%s, the coordinator %u", member->name,
                              reg->ps_count, sl_log_plural(reg->ps_count),
                              coordinator->options.ps_count);
        return false;
    }
    if (reg->worker_count == 0) {
        return true;
    }
    if (coordinator->job.worker_count == 0) {
        coordinator->job.worker_count = reg->worker_count;
        coordinator->job.counted_workers_known = false;
        memcpy(coordinator->job.worker_count_from, member->name, sizeof member->name);
        sl_coordinator_note(coordinator, SL_COORDINATOR_RECORD_JOB, 0);
    }
    if (reg->worker_count != coordinator->job.worker_count) {
        sl_coordinator_refuse(coordinator, member, message->id, SL_ERR_INVALID,
                              "%s expects %u worker%s, %s %u", member->name, reg->worker_count,
                              sl_log_plural(reg->worker_count), coordinator->job.worker_count_from,
                              coordinator->job.worker_count);
        return false;
    }
    return true;
}

/* Returns the error in the registration of a server, or NULL. */
static const char *check_ps(const struct sl_coordinator *coordinator,
                            const struct sl_coordinator_member *member,
                            const struct sl_message_register *reg)
{
    const uint32_t task = member->hello.task_index;
    const struct sl_coordinator_ps *ps = &coordinator->ps[task];
    const uint32_t known = ps->shard_count;
    const bool is_at_start =
        ps->place == SL_COORDINATOR_AT_START && task < coordinator->options.ps_count;
    uint32_t others = 0;
    for (uint32_t other = 0; other < coordinator->placement.ps_end; other++) {
        others += other == task ? 0 : coordinator->ps[other].shard_count;
    }
    return is_at_start && reg->shard_count == 0
               ? "a server of the job's start has shards of its own"
           : ps->place == SL_COORDINATOR_DRAINED &&
                   (reg->shard_count != 0 || !member->hello.join_running)
               ? "it was drained, and other servers have its shards: start it with --join"
           : !is_at_start && ps->place != SL_COORDINATOR_DRAINING && reg->shard_count != 0
               ? "a server that joins a running job brings no shards"
           : reg->data_endpoint[0] == '\0' ? "a server must name its data endpoint"
           : reg->checkpoint_newest > SL_LIMIT_CHECKPOINT_NUMBER ||
                   reg->restore > SL_LIMIT_CHECKPOINT_NUMBER
               ? "a checkpoint's number is above the limit of 999999999999"
           : reg->shard_count > SL_LIMIT_SHARDS - others
               ? "the cluster would have more shards than the limit of 4096"
           : known != 0 && known != reg->shard_count && reg->shard_count != 0
               ? "it restarted with another number of shards"
               : sl_coordinator_placement_check(coordinator, member, reg);
}

static void log_return(const struct sl_coordinator_member *member,
                       const struct sl_message_register *reg, uint64_t restore, bool is_new)
{
    char from[64] = "";
    if (is_new && restore != 0) {
        (void)snprintf(from, sizeof from, "; it restores checkpoint %" PRIu64, restore);
    } else if (is_new) {
        (void)snprintf(from, sizeof from, "; its tables start empty");
    }
    sl_log_event(SL_LOG_WARN,
                 SL_EVENT("server_restarted", SL_EVENT_NUMBER("task", member->hello.task_index),
                          SL_EVENT_TEXT("data", reg->data_endpoint),
                          SL_EVENT_NUMBER("checkpoint", is_new ? restore : 0)),
                 "%s restarted at %s%s", member->name, reg->data_endpoint, from);
}

/* Notes a server that joins the job, now or before it has begun. */
static void join(struct sl_coordinator *coordinator, const struct sl_coordinator_member *member,
                 const struct sl_message_register *reg)
{
    const uint32_t task = member->hello.task_index;
    coordinator->ps[task].place = SL_COORDINATOR_JOINED;
    coordinator->placement.ps_end =
        task < coordinator->placement.ps_end ? coordinator->placement.ps_end : task + 1;
    coordinator->placement.has_new_roles = true;
    coordinator->placement.balances = coordinator->placement.balances || !reg->serving;
    coordinator->cluster.version++;
    sl_coordinator_note(coordinator, SL_COORDINATOR_RECORD_JOB, 0);
    sl_log_event(SL_LOG_INFO,
                 SL_EVENT("server_joined", SL_EVENT_NUMBER("task", task),
                          SL_EVENT_TEXT("data", reg->data_endpoint)),
                 "%s joins the running job at %s", member->name, reg->data_endpoint);
}

/* Keeps the replica reports until the shards are placed. */
static void keep_reports(const struct sl_coordinator *coordinator,
                         struct sl_coordinator_member *member,
                         const struct sl_message_register *reg)
{
    const size_t bytes = reg->replica_report_count * sizeof *reg->replica_reports;
    free(member->reports);
    member->reports = bytes == 0 || coordinator->placement.shard_count != 0 ? NULL : malloc(bytes);
    member->report_count = member->reports == NULL ? 0 : reg->replica_report_count;
    if (member->reports != NULL) {
        memcpy(member->reports, reg->replica_reports, bytes);
    }
}

static void take_registration(struct sl_coordinator *coordinator,
                              const struct sl_coordinator_member *member,
                              const struct sl_message_register *reg)
{
    struct sl_coordinator_ps *known = &coordinator->ps[member->hello.task_index];
    known->shard_count = reg->shard_count == 0 ? known->shard_count : reg->shard_count;
    known->reactor_count = reg->reactor_count;
    known->replicas = coordinator->placement.replicas = reg->replicas;
    known->client_id = member->hello.client_id;
    known->gone = SL_COORDINATOR_END_NONE;
    memcpy(known->data_endpoint, reg->data_endpoint, sizeof known->data_endpoint);
    memcpy(known->host, reg->host, sizeof known->host);
    memcpy(known->bypass_endpoint, reg->bypass_endpoint, sizeof known->bypass_endpoint);
}

/* Refuses a registration, or ends a process whose server was drained. */
static bool refuses_ps(struct sl_coordinator *coordinator, struct sl_coordinator_member *member,
                       const struct sl_message *message)
{
    const struct sl_message_register *reg = &message->reg;
    const struct sl_coordinator_ps *known = &coordinator->ps[member->hello.task_index];
    if (known->place == SL_COORDINATOR_DRAINED && known->client_id == member->hello.client_id) {
        sl_coordinator_move_end_drained(coordinator, member);
        return true;
    }
    const char *why = check_ps(coordinator, member, reg);
    if (why != NULL) {
        sl_coordinator_refuse(coordinator, member, message->id, SL_ERR_INVALID,
                              "%s with %u shard%s: %s", member->name, reg->shard_count,
                              sl_log_plural(reg->shard_count), why);
        return true;
    }
    if (coordinator->cluster.is_ready) {
        return reg->serving && sl_coordinator_identity_refuses(coordinator, member);
    }
    return !reg->serving && reg->shard_count != 0 &&
           !sl_coordinator_restore_agrees(coordinator, member, message);
}

/* Registers a server. A returning server must have as many shards as before, because the keys are
 * partitioned over them. */
static bool register_ps(struct sl_coordinator *coordinator, struct sl_coordinator_member *member,
                        const struct sl_message *message, uint64_t now_ns)
{
    const struct sl_message_register *reg = &message->reg;
    if (refuses_ps(coordinator, member, message)) {
        return false;
    }
    struct sl_coordinator_ps *known = &coordinator->ps[member->hello.task_index];
    const bool joins = reg->shard_count == 0;
    sl_coordinator_table_take_dropped(coordinator, &reg->dropped);
    const bool is_known = sl_coordinator_is_known(known);
    bool is_new = known->client_id != member->hello.client_id;
    bool moved = strcmp(known->data_endpoint, reg->data_endpoint) != 0 ||
                 strcmp(known->host, reg->host) != 0 ||
                 strcmp(known->bypass_endpoint, reg->bypass_endpoint) != 0 ||
                 known->reactor_count != reg->reactor_count;
    if (is_new || !coordinator->cluster.is_ready) {
        known->checkpoints.restore = reg->serving ? 0
                                     : coordinator->cluster.is_ready
                                         ? sl_coordinator_restore_of_replacement(coordinator, reg)
                                         : reg->restore;
        known->serving = reg->serving;
        known->checkpoints.complete = reg->complete;
        known->checkpoints.unfinished = reg->unfinished;
        known->checkpoints.unclaimed = reg->unclaimed;
    }
    if (coordinator->cluster.is_ready &&
        !sl_coordinator_placement_needs(coordinator, member->hello.task_index)) {
        known->checkpoints.restore =
            0; /* another server serves its shards; it becomes the backup */
    }
    if (is_known && (is_new || moved)) {
        coordinator->cluster.version++;
        sl_coordinator_note(coordinator, SL_COORDINATOR_RECORD_JOB, 0);
        log_return(member, reg, known->checkpoints.restore,
                   is_new && (coordinator->placement.shard_count == 0 ||
                              coordinator->placement.replicas == 0));
    } else if (!is_known && joins) {
        join(coordinator, member, reg);
    }
    known->restarted = known->restarted || (is_known && is_new);
    coordinator->tables.are_older =
        coordinator->tables.are_older || (reg->serving && reg->has_tables);
    take_registration(coordinator, member, reg);
    keep_reports(coordinator, member, reg);
    /* A server that joins has no part in a checkpoint that is being written. */
    sl_coordinator_checkpoint_register(coordinator, member, reg, is_new && (is_known || !joins),
                                       now_ns);
    sl_coordinator_placement_register(coordinator, member, reg, is_known && is_new, now_ns);
    if (is_new || moved || !coordinator->cluster.is_ready) {
        sl_coordinator_note(coordinator, SL_COORDINATOR_RECORD_PS, member->hello.task_index);
    }
    const bool has_tables = coordinator->tables.count > 0 || coordinator->tables.are_older;
    if (is_known && is_new && coordinator->cluster.is_ready && has_tables) {
        sl_coordinator_restore_check_values(coordinator, member->hello.task_index);
    }
    return true;
}

void sl_coordinator_cluster_update(struct sl_coordinator *coordinator, uint64_t now_ns)
{
    struct sl_message_waiting nobody = {0};
    send_cluster(coordinator, sl_coordinator_cluster_missing(coordinator, &nobody) == 0, now_ns);
}

void sl_coordinator_cluster_register(struct sl_coordinator *coordinator,
                                     struct sl_coordinator_member *member,
                                     const struct sl_message *message, uint64_t now_ns)
{
    member->job = message->reg.job;
    member->cluster_waiter.request = message->id;
    if (sl_coordinator_job_refuses(coordinator, member, message->id) ||
        !counts_agree(coordinator, member, message) ||
        (sl_coordinator_is_ps(member) && !register_ps(coordinator, member, message, now_ns))) {
        return;
    }
    if (!member->registered) {
        member->registered = true;
        sl_coordinator_note_member(coordinator, member);
    }
    member->waits_for_cluster = true;
    sl_coordinator_waiter_init(&member->cluster_waiter, coordinator, member, message->id, 0,
                               now_ns);
    sl_coordinator_move_advance(coordinator, now_ns);
    sl_coordinator_cluster_update(coordinator, now_ns);
    sl_coordinator_checkpoint_resend(coordinator, member);
    sl_coordinator_checkpoint_update(coordinator, now_ns);
    sl_coordinator_job_notify_end(coordinator, member);
}

void sl_coordinator_cluster_tick(struct sl_coordinator *coordinator, uint64_t now_ns)
{
    struct sl_message_waiting waiting = {0};
    uint32_t missing = sl_coordinator_cluster_missing(coordinator, &waiting);
    sl_coordinator_job_update(coordinator, missing, now_ns);
    /* For members that were disconnected, and after a failed allocation. */
    send_cluster(coordinator, missing == 0, now_ns);
    if (missing == 0) { /* sl_coordinator_placement_waits */
        (void)snprintf(waiting.missing[0], sizeof waiting.missing[0], "a server that has joined");
        waiting.missing_count = 1;
    }
    for (uint32_t i = 0; i < coordinator->member_count; i++) {
        struct sl_coordinator_member *member = coordinator->members[i];
        if (member->waits_for_cluster) {
            (void)sl_coordinator_waiter_tick(&member->cluster_waiter, coordinator, "the cluster",
                                             &waiting, now_ns);
        }
    }
}
