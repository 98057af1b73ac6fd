/* Who serves the shards of each ps, and who has their backups. The shards of ps p live on p and on
 * the ps behind it: one of the two is their primary, the other may be their backup. What changes
 * that begins a new epoch, which only the coordinator issues. */
#include <stdio.h>
#include <string.h>

#include "core/assert.h"
#include "core/clock.h"
#include "core/log.h"
#include "ps/coordinator_internal.h"

/* How often it is said that shards have no backup in step. */
#define ALONE_TOLD_NS (60 * SL_CLOCK_NS_PER_S)

/* The two pairs that a ps is one of: of its own shards, and of those of the ps before it. */
#define PAIRS_OF_A_PS 2

static uint32_t behind(const struct sl_coordinator *coordinator, uint32_t task)
{
    return (task + 1) % coordinator->options.ps_count;
}

/* The pair's number, by whose shards it has. */
static uint32_t pair_of(const struct sl_coordinator *coordinator, uint32_t task, uint32_t which)
{
    const uint32_t ps_count = coordinator->options.ps_count;
    return (task + (which == 0 ? 0 : ps_count - 1)) % ps_count;
}

static bool is_here(const struct sl_coordinator *coordinator, uint32_t task)
{
    const struct sl_coordinator_member *member =
        sl_coordinator_find(coordinator, SL_MESSAGE_ROLE_PS, task);
    return member != NULL && member->registered;
}

bool sl_coordinator_replica_needs(const struct sl_coordinator *coordinator, uint32_t task)
{
    bool needed = false;
    for (uint32_t which = 0; which < PAIRS_OF_A_PS; which++) {
        const struct sl_coordinator_ps *pair = &coordinator->ps[pair_of(coordinator, task, which)];
        needed = needed || (pair->epoch != 0 && pair->primary == task);
    }
    return needed || coordinator->ps[task].epoch == 0;
}

uint32_t sl_coordinator_replica_primary(const struct sl_coordinator *coordinator, uint32_t owner)
{
    const struct sl_coordinator_ps *pair = &coordinator->ps[owner];
    return pair->epoch == 0 ? owner : pair->primary;
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
            return "with --replicas all ps have the same number of shards";
        }
    }
    for (uint32_t which = 0; which < PAIRS_OF_A_PS; which++) {
        const struct sl_coordinator_ps *pair = &coordinator->ps[pair_of(coordinator, task, which)];
        if (pair->deposed_id == member->hello.client_id && pair->primary != task) {
            return "it was lost, and its backup serves its shards now: start it anew";
        }
    }
    const struct sl_coordinator_ps *known = &coordinator->ps[task];
    if (coordinator->formed && reg->replicas > 0 && reg->serving && known->shard_count != 0 &&
        known->client_id != member->hello.client_id) {
        return "another process has had its place since: start it anew";
    }
    return reg->replicas > 0 && coordinator->options.ps_count < 2
               ? "--replicas needs another ps to have them"
               : NULL;
}

/* What the cluster says of it is another from now on. */
static void moved(struct sl_coordinator *coordinator, const struct sl_coordinator_ps *pair)
{
    coordinator->cluster_version++;
    sl_coordinator_note(coordinator, SL_COORDINATOR_RECORD_JOB, 0);
    sl_coordinator_note(coordinator, SL_COORDINATOR_RECORD_PS, (uint32_t)(pair - coordinator->ps));
}

/* A new epoch, in which the backup, if there is one, has nothing yet. */
static void begin_epoch(struct sl_coordinator *coordinator, struct sl_coordinator_ps *pair,
                        uint32_t primary, uint32_t backup)
{
    pair->epoch++;
    pair->primary = primary;
    pair->backup = backup;
    pair->in_step = false;
    moved(coordinator, pair);
}

static void take_report(struct sl_coordinator *coordinator, uint32_t task,
                        const struct sl_message_pair *report)
{
    if (report->task_index >= coordinator->options.ps_count) {
        return;
    }
    struct sl_coordinator_ps *pair = &coordinator->ps[report->task_index];
    if (pair->primary != task || pair->epoch != report->epoch ||
        pair->backup == SL_MESSAGE_NO_BACKUP) {
        return;
    }
    if (report->in_step) {
        if (pair->in_step) {
            return;
        }
        pair->in_step = true;
        moved(coordinator, pair);
        sl_log_info("ps/%u has the backups of the shards of ps/%u: they are in step (epoch %llu)",
                    pair->backup, report->task_index, (unsigned long long)pair->epoch);
        return;
    }
    begin_epoch(coordinator, pair, task, pair->backup);
    sl_log_warn("the backups of the shards of ps/%u on ps/%u are out of step (epoch %llu): until "
                "they are in step again, what is pushed to ps/%u is there only",
                report->task_index, pair->backup, (unsigned long long)pair->epoch, task);
}

/* A coordinator that has begun anew, in the first epoch, in which the ps are already: they have
 * said how it goes. A backup that serves was there before, too; another has nothing, and a primary
 * that takes it for the one before waits for it. */
static void take_early_reports(struct sl_coordinator *coordinator, uint32_t task)
{
    const struct sl_coordinator_ps *ps = &coordinator->ps[task];
    for (uint32_t i = 0; i < ps->report_count; i++) {
        struct sl_message_pair report = ps->reports[i];
        const bool is_own = report.task_index == task; /* else nobody can be in the first epoch */
        report.in_step = report.in_step && coordinator->ps[behind(coordinator, task)].serving;
        if (is_own) {
            take_report(coordinator, task, &report);
        }
    }
}

void sl_coordinator_replica_begin(struct sl_coordinator *coordinator)
{
    for (uint32_t task = 0; task < coordinator->options.ps_count; task++) {
        struct sl_coordinator_ps *pair = &coordinator->ps[task];
        if (pair->replicas > 0 && pair->epoch == 0) {
            begin_epoch(coordinator, pair, task, behind(coordinator, task));
            take_early_reports(coordinator, task);
            if (!pair->serving && coordinator->ps[pair->backup].serving) {
                sl_log_error("ps/%u was lost while there was no coordinator that knew of its "
                             "backup on ps/%u: its tables begin anew",
                             task, pair->backup);
            }
        }
    }
}

void sl_coordinator_replica_register(struct sl_coordinator *coordinator,
                                     const struct sl_coordinator_member *member,
                                     const struct sl_message_register *reg, bool is_new)
{
    const uint32_t task = member->hello.task_index;
    coordinator->ps[task].report_count = reg->pair_count;
    memcpy(coordinator->ps[task].reports, reg->pairs, sizeof reg->pairs);
    for (uint32_t which = 0; which < PAIRS_OF_A_PS; which++) {
        const uint32_t owner = pair_of(coordinator, task, which);
        struct sl_coordinator_ps *pair = &coordinator->ps[owner];
        const uint32_t other = owner == task ? behind(coordinator, task) : owner;
        if (pair->epoch == 0) {
            continue; /* the cluster has not come together */
        }
        if (pair->primary == task && is_new) {
            const bool has_other = is_here(coordinator, other);
            begin_epoch(coordinator, pair, task, has_other ? other : SL_MESSAGE_NO_BACKUP);
        } else if (pair->primary != task && (is_new || pair->backup != task)) {
            begin_epoch(coordinator, pair, pair->primary, task);
            sl_log_info("ps/%u gets the backups of the shards of ps/%u (epoch %llu)", task, owner,
                        (unsigned long long)pair->epoch);
        } else if (pair->primary == task && pair->backup == SL_MESSAGE_NO_BACKUP &&
                   is_here(coordinator, other)) {
            begin_epoch(coordinator, pair, task, other);
        }
    }
    for (uint32_t i = 0; i < reg->pair_count; i++) {
        take_report(coordinator, task, &reg->pairs[i]);
    }
}

/* The backup goes on; it has to know who was lost meanwhile. */
static void take_over(struct sl_coordinator *coordinator, uint32_t owner, uint64_t heard_ns)
{
    struct sl_coordinator_ps *pair = &coordinator->ps[owner];
    const uint32_t from = pair->primary;
    pair->deposed_id = coordinator->ps[from].client_id;
    begin_epoch(coordinator, pair, pair->backup, SL_MESSAGE_NO_BACKUP);
    sl_log_warn("ps/%u serves the shards of ps/%u from now on, instead of ps/%u (epoch %llu)",
                pair->primary, owner, from, (unsigned long long)pair->epoch);
    sl_coordinator_member_owe_losses(
        coordinator, sl_coordinator_find(coordinator, SL_MESSAGE_ROLE_PS, pair->primary), heard_ns);
}

void sl_coordinator_replica_lose(struct sl_coordinator *coordinator, uint32_t task,
                                 uint64_t heard_ns)
{
    const bool ends =
        coordinator->stage == SL_COORDINATOR_ENDING || coordinator->stage == SL_COORDINATOR_OVER;
    for (uint32_t which = 0; which < PAIRS_OF_A_PS && !ends; which++) {
        const uint32_t owner = pair_of(coordinator, task, which);
        struct sl_coordinator_ps *pair = &coordinator->ps[owner];
        if (pair->epoch == 0) {
            continue;
        }
        if (pair->backup == task) {
            begin_epoch(coordinator, pair, pair->primary, SL_MESSAGE_NO_BACKUP);
            sl_log_warn("the shards of ps/%u have no backup now (epoch %llu)", owner,
                        (unsigned long long)pair->epoch);
        } else if (pair->primary == task && pair->backup != SL_MESSAGE_NO_BACKUP && pair->in_step &&
                   is_here(coordinator, pair->backup)) {
            take_over(coordinator, owner, heard_ns);
        } else if (pair->primary == task) {
            begin_epoch(coordinator, pair, task, pair->backup);
            sl_log_error("ps/%u had the shards of ps/%u without a backup in step", task, owner);
        }
    }
}

void sl_coordinator_replica_fill(const struct sl_coordinator *coordinator, uint32_t task,
                                 struct sl_message_ps *out)
{
    const struct sl_coordinator_ps *pair = &coordinator->ps[task];
    out->epoch = pair->epoch;
    out->primary = sl_coordinator_replica_primary(coordinator, task);
    out->backup = pair->epoch == 0 ? SL_MESSAGE_NO_BACKUP : pair->backup;
    out->in_step = pair->in_step;
}

static bool is_alone(const struct sl_coordinator_ps *pair)
{
    return pair->epoch != 0 && !pair->in_step;
}

uint32_t sl_coordinator_replica_alone(const struct sl_coordinator *coordinator)
{
    uint32_t shards = 0;
    for (uint32_t task = 0; task < coordinator->options.ps_count; task++) {
        const struct sl_coordinator_ps *pair = &coordinator->ps[task];
        shards += is_alone(pair) ? pair->shard_count : 0;
    }
    return shards;
}

/* So that who looks at the last lines of the log sees it. */
void sl_coordinator_replica_tick(struct sl_coordinator *coordinator, uint64_t now_ns)
{
    for (uint32_t task = 0; task < coordinator->options.ps_count; task++) {
        struct sl_coordinator_ps *pair = &coordinator->ps[task];
        if (!is_alone(pair)) {
            pair->alone_since_ns = pair->alone_told_ns = 0;
        } else if (pair->alone_since_ns == 0) {
            pair->alone_since_ns = pair->alone_told_ns = now_ns;
        } else if (now_ns - pair->alone_told_ns >= ALONE_TOLD_NS) {
            pair->alone_told_ns = now_ns;
            sl_log_warn("the shards of ps/%u have had no backup in step for %llu s: what ps/%u "
                        "acknowledges is there only",
                        task, (now_ns - pair->alone_since_ns) / SL_CLOCK_NS_PER_S, pair->primary);
        }
    }
}
