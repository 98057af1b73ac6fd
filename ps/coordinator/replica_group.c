#include "ps/coordinator/replica_group.h"

#include <string.h>

#include "core/clock.h"
#include "core/event.h"
#include "ps/coordinator/expiry.h"

/* Interval of the warnings about degraded shards. */
#define DEGRADED_WARN_NS (60 * SL_CLOCK_NS_PER_S)

/* A backup that fails before it is in sync gets a new epoch: at once the first time, then after a
 * pause that doubles. */
#define RETRY_NS         SL_CLOCK_NS_PER_S
#define RETRY_MAX_NS     (4 * SL_CLOCK_NS_PER_S)

/* No real epoch gets this far: reports from here on are ignored. */
#define EPOCHS_MAX       ((uint64_t)1 << 63)

/* A server is in two groups: that of its own shards and that of the previous server's. */
#define GROUPS_OF_A_PS   2

static uint32_t behind(const struct sl_coordinator *coordinator, uint32_t task)
{
    return (task + 1) % coordinator->options.ps_count;
}

/* A group has the index of the server that its shards belong to. */
static uint32_t group_of(const struct sl_coordinator *coordinator, uint32_t task, uint32_t which)
{
    const uint32_t ps_count = coordinator->options.ps_count;
    return (task + (which == 0 ? 0 : ps_count - 1)) % ps_count;
}

static bool replica_group_is_here(const struct sl_coordinator *coordinator, uint32_t task)
{
    const struct sl_coordinator_member *member =
        sl_coordinator_find(coordinator, SL_MESSAGE_ROLE_PS, task);
    return member != NULL && member->registered;
}

bool sl_coordinator_replica_needs(const struct sl_coordinator *coordinator, uint32_t task)
{
    bool needed = false;
    for (uint32_t which = 0; which < GROUPS_OF_A_PS; which++) {
        const struct sl_coordinator_ps *group =
            &coordinator->ps[group_of(coordinator, task, which)];
        needed = needed || (group->epoch != 0 && group->primary == task);
    }
    return needed || coordinator->ps[task].epoch == 0;
}

uint32_t sl_coordinator_replica_list_missing(const struct sl_coordinator *coordinator,
                                             struct sl_message_waiting *waiting)
{
    bool here[SL_LIMIT_PS] = {false};
    for (uint32_t i = 0; i < coordinator->member_count; i++) {
        const struct sl_coordinator_member *member = coordinator->members[i];
        if (sl_coordinator_is_ps(member) && member->registered) {
            here[member->hello.task_index] = true;
        }
    }
    uint32_t total = 0;
    for (uint32_t task = 0; task < coordinator->options.ps_count; task++) {
        if (!here[task] && sl_coordinator_replica_needs(coordinator, task)) {
            sl_coordinator_list_missing(waiting, &total, "ps", task);
        }
    }
    return total;
}

uint32_t sl_coordinator_replica_primary(const struct sl_coordinator *coordinator, uint32_t owner)
{
    const struct sl_coordinator_ps *group = &coordinator->ps[owner];
    return group->epoch == 0 ? owner : group->primary;
}

const char *sl_coordinator_replica_check(const struct sl_coordinator *coordinator,
                                         const struct sl_coordinator_member *member,
                                         const struct sl_message_register *reg)
{
    const uint32_t task = member->hello.task_index;
    for (uint32_t other = 0; other < coordinator->options.ps_count; other++) {
        const struct sl_coordinator_ps *ps = &coordinator->ps[other];
        if (ps->shard_count == 0 || other == task) {
            continue;
        }
        if (ps->replicas != reg->replicas) {
            return "it has other --replicas than the others";
        }
        if (reg->replicas > 0 && ps->shard_count != reg->shard_count) {
            return "with --replicas all servers need the same number of shards";
        }
    }
    for (uint32_t which = 0; which < GROUPS_OF_A_PS; which++) {
        const struct sl_coordinator_ps *group =
            &coordinator->ps[group_of(coordinator, task, which)];
        if (group->deposed_id == member->hello.client_id && group->primary != task) {
            return "it expired, and its backup serves its shards now: restart it";
        }
    }
    const struct sl_coordinator_ps *known = &coordinator->ps[task];
    if (coordinator->cluster_ready && reg->replicas > 0 && reg->serving &&
        known->shard_count != 0 && known->client_id != member->hello.client_id) {
        return "another process has its task now: restart it";
    }
    return reg->replicas > 0 && coordinator->options.ps_count < 2
               ? "--replicas needs another server to have them"
               : NULL;
}

/* Marks the group as changed: members need a new cluster. */
static void moved(struct sl_coordinator *coordinator, const struct sl_coordinator_ps *group)
{
    coordinator->cluster_version++;
    sl_coordinator_note(coordinator, SL_COORDINATOR_RECORD_JOB, 0);
    sl_coordinator_note(coordinator, SL_COORDINATOR_RECORD_PS, (uint32_t)(group - coordinator->ps));
}

/* Begins a new epoch. Its backup, if any, is not in sync. */
static void begin_epoch(struct sl_coordinator *coordinator, struct sl_coordinator_ps *group,
                        uint32_t primary, uint32_t backup)
{
    group->epoch++;
    group->primary = primary;
    group->backup = backup;
    group->in_sync = false;
    group->retry_ns = 0;
    moved(coordinator, group);
}

static bool is_primary(const struct sl_message_replica_report *report)
{
    return report != NULL && report->role == SL_MESSAGE_REPLICA_PRIMARY;
}

/* An event about the replica group of the shards of `owner`. */
#define GROUP_EVENT(event, owner, group)                                                           \
    SL_EVENT(event, SL_EVENT_NUMBER("owner", (owner)),                                             \
             SL_EVENT_NUMBER("primary", (group)->primary),                                         \
             SL_EVENT_NUMBER("epoch", (group)->epoch))

/* Begins a new epoch after a failed catch-up or a loss of sync: the backup gets a new snapshot. */
static void retry_backup(struct sl_coordinator *coordinator, struct sl_coordinator_ps *group)
{
    const uint32_t owner = (uint32_t)(group - coordinator->ps);
    begin_epoch(coordinator, group, group->primary, group->backup);
    sl_log_event(SL_LOG_WARN, GROUP_EVENT("backup_out_of_sync", owner, group),
                 "the backups of the shards of ps/%u on ps/%u are not in sync (epoch %llu): until "
                 "they are, writes to ps/%u are acknowledged while degraded",
                 owner, group->backup, (unsigned long long)group->epoch, group->primary);
}

/* The pause is short: a shard that is already in sync holds its replies for the backup until the
 * next epoch, while other shards of the server are not in sync. */
static void note_failure(struct sl_coordinator *coordinator, struct sl_coordinator_ps *group,
                         uint64_t now_ns)
{
    if (group->retry_ns != 0) {
        return; /* a repeated report */
    }
    if (group->backoff.least_ns == 0) {
        group->backoff = (struct sl_backoff){.least_ns = RETRY_NS, .most_ns = RETRY_MAX_NS};
        retry_backup(coordinator, group);
        return;
    }
    group->retry_ns = now_ns + sl_backoff_next(&group->backoff, 0);
}

static void take_report(struct sl_coordinator *coordinator, uint32_t task,
                        const struct sl_message_replica_report *report, uint64_t now_ns)
{
    if (report->task_index >= coordinator->options.ps_count) {
        return;
    }
    struct sl_coordinator_ps *group = &coordinator->ps[report->task_index];
    if (!is_primary(report) || report->is_undecided || group->primary != task ||
        group->epoch != report->epoch || group->backup == SL_COORDINATOR_NO_BACKUP) {
        return;
    }
    if (report->in_sync) {
        if (group->in_sync) {
            return;
        }
        group->in_sync = true;
        group->backoff.least_ns = 0;
        group->retry_ns = 0;
        moved(coordinator, group);
        sl_log_event(SL_LOG_INFO, GROUP_EVENT("backup_in_sync", report->task_index, group),
                     "ps/%u has the backups of the shards of ps/%u: they are in sync (epoch %llu)",
                     group->backup, report->task_index, (unsigned long long)group->epoch);
        return;
    }
    if (group->in_sync) {
        retry_backup(coordinator, group);
    } else {
        note_failure(coordinator, group, now_ns);
    }
}

/* Groups of a new coordinator */

/* Reports on one group from its two servers. If they are already serving, the coordinator
 * restarted. */
struct claims {
    uint32_t tasks[GROUPS_OF_A_PS];
    const struct sl_message_replica_report *of[GROUPS_OF_A_PS]; /* NULL: none */
    uint64_t epoch;                                             /* newest that they report */
};

static const struct sl_message_replica_report *find_report(const struct sl_coordinator_ps *ps,
                                                           uint32_t owner)
{
    for (uint32_t i = 0; ps->serving && i < ps->report_count; i++) {
        if (ps->reports[i].task_index == owner && ps->reports[i].epoch < EPOCHS_MAX) {
            return &ps->reports[i];
        }
    }
    return NULL;
}

static struct claims find_claims(const struct sl_coordinator *coordinator, uint32_t owner)
{
    struct claims claims = {.tasks = {owner, behind(coordinator, owner)}};
    for (uint32_t place = 0; place < GROUPS_OF_A_PS; place++) {
        const struct sl_message_replica_report *report =
            find_report(&coordinator->ps[claims.tasks[place]], owner);
        claims.of[place] = report;
        claims.epoch =
            report != NULL && report->epoch > claims.epoch ? report->epoch : claims.epoch;
    }
    return claims;
}

static bool is_whole_backup(const struct sl_message_replica_report *report)
{
    return report != NULL && report->role == SL_MESSAGE_REPLICA_BACKUP && report->in_sync;
}

/* Returns the replica that has all acknowledged writes: the last primary or, if its process is
 * gone, the backup that was in sync with it. GROUPS_OF_A_PS: none. If the primary's process still
 * runs unnoticed, it acknowledges nothing without that backup, which rejects it from the next
 * epoch. */
static uint32_t find_successor(const struct claims *claims)
{
    uint32_t successor = GROUPS_OF_A_PS;
    for (uint32_t place = 0; place < GROUPS_OF_A_PS; place++) {
        const struct sl_message_replica_report *report = claims->of[place];
        if (!is_primary(report) && !is_whole_backup(report)) {
            continue;
        }
        const bool is_first = successor == GROUPS_OF_A_PS;
        const uint64_t epoch = is_first ? 0 : claims->of[successor]->epoch;
        if (is_first || report->epoch > epoch || (report->epoch == epoch && is_primary(report))) {
            successor = place;
        }
    }
    return successor;
}

/* True if both replicas can keep their roles and their epoch. */
static bool can_continue(const struct sl_message_replica_report *primary,
                         const struct sl_message_replica_report *backup)
{
    return is_primary(primary) && (primary->in_sync || primary->is_undecided) && backup != NULL &&
           backup->role == SL_MESSAGE_REPLICA_BACKUP && backup->epoch == primary->epoch;
}

/* The values of the group are lost. Prefers a new process as primary, because it can restore a
 * checkpoint. */
static uint32_t find_beginner(const struct sl_coordinator *coordinator, const struct claims *claims)
{
    if (claims->epoch != 0) {
        sl_log_event(SL_LOG_ERROR,
                     SL_EVENT("shards_lost", SL_EVENT_NUMBER("owner", claims->tasks[0])),
                     "the shards of ps/%u were lost with the coordinator, and ps/%u and ps/%u have "
                     "no backup in sync: the shards restart empty",
                     claims->tasks[0], claims->tasks[0], claims->tasks[1]);
    }
    return coordinator->ps[claims->tasks[0]].serving && !coordinator->ps[claims->tasks[1]].serving;
}

static void begin_group(struct sl_coordinator *coordinator, uint32_t owner)
{
    struct sl_coordinator_ps *group = &coordinator->ps[owner];
    const struct claims claims = find_claims(coordinator, owner);
    const uint32_t successor = find_successor(&claims);
    const bool is_expired = successor == GROUPS_OF_A_PS;
    const uint32_t place = is_expired ? find_beginner(coordinator, &claims) : successor;
    const uint32_t primary = claims.tasks[place];
    const uint32_t backup = claims.tasks[1 - place];
    group->epoch = claims.epoch;
    if (can_continue(claims.of[place], claims.of[1 - place])) {
        group->primary = primary;
        group->backup = backup;
        group->in_sync = claims.of[place]->in_sync;
        moved(coordinator, group);
        return;
    }
    begin_epoch(coordinator, group, primary, backup);
    if (!is_expired && !is_primary(claims.of[place])) {
        sl_log_event(
            SL_LOG_WARN, GROUP_EVENT("backup_promoted", owner, group),
            "ps/%u serves the shards of ps/%u from now on, instead of ps/%u, which expired "
            "with the coordinator (epoch %llu)",
            primary, owner, backup, (unsigned long long)group->epoch);
    }
}

void sl_coordinator_replica_begin(struct sl_coordinator *coordinator)
{
    for (uint32_t task = 0; task < coordinator->options.ps_count; task++) {
        if (coordinator->ps[task].replicas > 0 && coordinator->ps[task].epoch == 0) {
            begin_group(coordinator, task);
        }
    }
    for (uint32_t task = 0; task < coordinator->options.ps_count; task++) {
        if (!sl_coordinator_replica_needs(coordinator, task)) {
            coordinator->ps[task].checkpoints.restore =
                0; /* another server serves its shards; it becomes the backup */
        }
    }
}

/* Servers that come and go */

void sl_coordinator_replica_register(struct sl_coordinator *coordinator,
                                     const struct sl_coordinator_member *member,
                                     const struct sl_message_register *reg, bool is_new,
                                     uint64_t now_ns)
{
    const uint32_t task = member->hello.task_index;
    coordinator->ps[task].report_count = reg->replica_report_count;
    memcpy(coordinator->ps[task].reports, reg->replica_reports, sizeof reg->replica_reports);
    for (uint32_t which = 0; which < GROUPS_OF_A_PS; which++) {
        const uint32_t owner = group_of(coordinator, task, which);
        struct sl_coordinator_ps *group = &coordinator->ps[owner];
        const uint32_t other = owner == task ? behind(coordinator, task) : owner;
        if (group->epoch == 0) {
            continue; /* the cluster is not ready */
        }
        if (group->primary == task && is_new) {
            const bool has_other = replica_group_is_here(coordinator, other);
            begin_epoch(coordinator, group, task, has_other ? other : SL_COORDINATOR_NO_BACKUP);
        } else if (group->primary != task && (is_new || group->backup != task)) {
            begin_epoch(coordinator, group, group->primary, task);
            sl_log_event(SL_LOG_INFO, GROUP_EVENT("backup_started", owner, group),
                         "ps/%u receives the backups of the shards of ps/%u (epoch %llu)", task,
                         owner, (unsigned long long)group->epoch);
        } else if (group->primary == task && group->backup == SL_COORDINATOR_NO_BACKUP &&
                   replica_group_is_here(coordinator, other)) {
            begin_epoch(coordinator, group, task, other);
        }
    }
    for (uint32_t i = 0; i < reg->replica_report_count; i++) {
        take_report(coordinator, task, &reg->replica_reports[i], now_ns);
    }
}

/* Promotes the backup. It may lack expirations that the former primary did not receive. */
static void take_over(struct sl_coordinator *coordinator, uint32_t owner, uint64_t last_seen_ns)
{
    struct sl_coordinator_ps *group = &coordinator->ps[owner];
    const uint32_t from = group->primary;
    group->deposed_id = coordinator->ps[from].client_id;
    begin_epoch(coordinator, group, group->backup, SL_COORDINATOR_NO_BACKUP);
    sl_log_event(SL_LOG_WARN, GROUP_EVENT("backup_promoted", owner, group),
                 "ps/%u serves the shards of ps/%u from now on, instead of ps/%u (epoch %llu)",
                 group->primary, owner, from, (unsigned long long)group->epoch);
    sl_coordinator_expiry_mark_missed(
        coordinator, sl_coordinator_find(coordinator, SL_MESSAGE_ROLE_PS, group->primary),
        last_seen_ns);
}

void sl_coordinator_replica_leave(struct sl_coordinator *coordinator, uint32_t task,
                                  uint64_t last_seen_ns)
{
    const bool ends = coordinator->job.stage == SL_COORDINATOR_ENDING ||
                      coordinator->job.stage == SL_COORDINATOR_OVER;
    for (uint32_t which = 0; which < GROUPS_OF_A_PS && !ends; which++) {
        const uint32_t owner = group_of(coordinator, task, which);
        struct sl_coordinator_ps *group = &coordinator->ps[owner];
        if (group->epoch == 0) {
            continue;
        }
        if (group->backup == task) {
            begin_epoch(coordinator, group, group->primary, SL_COORDINATOR_NO_BACKUP);
            sl_log_event(SL_LOG_WARN, GROUP_EVENT("backup_lost", owner, group),
                         "the shards of ps/%u have no backup now (epoch %llu)", owner,
                         (unsigned long long)group->epoch);
        } else if (group->primary == task && group->backup != SL_COORDINATOR_NO_BACKUP &&
                   group->in_sync && replica_group_is_here(coordinator, group->backup)) {
            take_over(coordinator, owner, last_seen_ns);
        } else if (group->primary == task) {
            begin_epoch(coordinator, group, task, group->backup);
            sl_log_event(SL_LOG_ERROR, GROUP_EVENT("shards_unavailable", owner, group),
                         "ps/%u had the shards of ps/%u without a backup in sync", task, owner);
        }
    }
}

void sl_coordinator_replica_fill(const struct sl_coordinator *coordinator, uint32_t task,
                                 struct sl_message_ps *out)
{
    const struct sl_coordinator_ps *group = &coordinator->ps[task];
    if (group->epoch != 0) {
        out->epoch = group->epoch;
        out->primary = group->primary;
        out->backup_plus_1 = group->backup + 1; /* SL_COORDINATOR_NO_BACKUP becomes 0 */
        out->in_sync = group->in_sync;
    }
}

static bool is_degraded(const struct sl_coordinator_ps *group)
{
    return group->epoch != 0 && !group->in_sync;
}

uint32_t sl_coordinator_replica_degraded_shards(const struct sl_coordinator *coordinator)
{
    uint32_t shards = 0;
    for (uint32_t task = 0; task < coordinator->options.ps_count; task++) {
        const struct sl_coordinator_ps *group = &coordinator->ps[task];
        shards += is_degraded(group) ? group->shard_count : 0;
    }
    return shards;
}

/* Begins new epochs for backups whose pause is over. The warning is repeated so that the tail of
 * the log shows degraded shards. */
void sl_coordinator_replica_tick(struct sl_coordinator *coordinator, uint64_t now_ns)
{
    for (uint32_t task = 0; task < coordinator->options.ps_count; task++) {
        struct sl_coordinator_ps *group = &coordinator->ps[task];
        if (group->retry_ns != 0 && now_ns >= group->retry_ns) {
            retry_backup(coordinator, group);
        }
        if (!is_degraded(group)) {
            group->degraded_since_ns = group->degraded_warned_ns = 0;
        } else if (group->degraded_since_ns == 0) {
            group->degraded_since_ns = group->degraded_warned_ns = now_ns;
        } else if (now_ns - group->degraded_warned_ns >= DEGRADED_WARN_NS) {
            group->degraded_warned_ns = now_ns;
            sl_log_event(SL_LOG_WARN, GROUP_EVENT("backup_overdue", task, group),
                         "the shards of ps/%u have had no backup in sync for %llu s: ps/%u "
                         "acknowledges writes while degraded",
                         task, (now_ns - group->degraded_since_ns) / SL_CLOCK_NS_PER_S,
                         group->primary);
        }
    }
}
