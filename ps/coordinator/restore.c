#include "ps/coordinator/restore.h"

#include <inttypes.h>

#include "core/event.h"
#include "ps/coordinator/checkpoint.h"
#include "ps/coordinator/placement.h"

/* The servers that must agree: those present before the job begins. */
struct parties {
    const struct sl_coordinator_ps *ps[SL_LIMIT_PS];
    uint32_t tasks[SL_LIMIT_PS];
    uint32_t count;
};

static bool coordinator_restore_has(const struct sl_message_numbers *numbers, uint64_t number)
{
    for (uint32_t i = 0; i < numbers->count; i++) {
        if (numbers->items[i] == number) {
            return true;
        }
    }
    return false;
}

/* True if the server has the checkpoint complete and may restore one that new. */
static bool can_begin_from(const struct sl_coordinator_ps *ps, uint64_t number)
{
    return number <= ps->checkpoints.restore &&
           (number == ps->checkpoints.restore ||
            coordinator_restore_has(&ps->checkpoints.complete, number));
}

/* The newest checkpoint below `below` that the first server can restore; 0: none. */
static uint64_t next_of_first(const struct parties *parties, uint64_t below)
{
    const struct sl_coordinator_ps *first = parties->ps[0];
    if (first->checkpoints.restore < below) {
        return first->checkpoints.restore;
    }
    for (uint32_t i = 0; i < first->checkpoints.complete.count; i++) {
        if (first->checkpoints.complete.items[i] < below) {
            return first->checkpoints.complete.items[i];
        }
    }
    return 0;
}

/* The newest checkpoint that all can restore; 0: none. */
static uint64_t choose_common(const struct parties *parties)
{
    uint64_t number = parties->count == 0 ? 0 : next_of_first(parties, UINT64_MAX);
    while (number != 0) {
        uint32_t agree = 0;
        while (agree < parties->count && can_begin_from(parties->ps[agree], number)) {
            agree++;
        }
        if (agree == parties->count) {
            return number;
        }
        number = next_of_first(parties, number);
    }
    return 0;
}

/* A server writes the manifest only after every server has its files on disk, and a checkpoint
 * counts as complete only after every server has its manifest. So if one server has files without a
 * manifest, the checkpoint never completed, even if others have its manifest. */
static bool was_never_complete(const struct parties *parties, uint64_t number)
{
    for (uint32_t i = 0; i < parties->count; i++) {
        if (coordinator_restore_has(&parties->ps[i]->checkpoints.unfinished, number)) {
            return true;
        }
    }
    return false;
}

/* Finds a server with a checkpoint that may have completed, and its *number. Returns parties->count
 * if there is none. */
static uint32_t find_complete(const struct parties *parties, uint64_t *number)
{
    for (uint32_t i = 0; i < parties->count; i++) {
        const struct sl_coordinator_ps *ps = parties->ps[i];
        *number = ps->checkpoints.restore;
        if (ps->checkpoints.restore != 0 && !was_never_complete(parties, ps->checkpoints.restore)) {
            return i;
        }
        for (uint32_t k = 0; k < ps->checkpoints.complete.count; k++) {
            *number = ps->checkpoints.complete.items[k];
            if (*number <= ps->checkpoints.restore && !was_never_complete(parties, *number)) {
                return i;
            }
        }
    }
    return parties->count;
}

/* Finds a server that cannot restore that checkpoint. One exists. */
static uint32_t find_other(const struct parties *parties, uint64_t number)
{
    uint32_t i = 0;
    while (i + 1 < parties->count && can_begin_from(parties->ps[i], number)) {
        i++;
    }
    return i;
}

static void refuse(struct sl_coordinator *coordinator, const struct sl_coordinator_member *member,
                   uint64_t id, const struct parties *parties, uint32_t who, uint64_t number)
{
    const uint32_t other = find_other(parties, number);
    const uint64_t others = parties->ps[other]->checkpoints.restore;
    if (others == 0) {
        sl_coordinator_refuse(coordinator, member, id, SL_ERR_INVALID,
                              "ps/%u has checkpoint %" PRIu64
                              " to restore, ps/%u has none: all servers must have it",
                              parties->tasks[who], number, parties->tasks[other]);
    } else {
        sl_coordinator_refuse(coordinator, member, id, SL_ERR_INVALID,
                              "ps/%u has checkpoint %" PRIu64
                              " to restore, the newest of ps/%u is %" PRIu64
                              ": all servers must have it",
                              parties->tasks[who], number, parties->tasks[other], others);
    }
}

bool sl_coordinator_restore_agrees(struct sl_coordinator *coordinator,
                                   const struct sl_coordinator_member *member,
                                   const struct sl_message *message)
{
    const struct sl_coordinator_ps mine = {.checkpoints = {.restore = message->reg.restore,
                                                           .complete = message->reg.complete,
                                                           .unfinished = message->reg.unfinished}};
    struct parties parties = {.ps = {&mine}, .tasks = {member->hello.task_index}, .count = 1};
    for (uint32_t i = 0; i < coordinator->member_count; i++) {
        const struct sl_coordinator_member *other = coordinator->members[i];
        const uint32_t task = other->hello.task_index;
        if (other != member && sl_coordinator_is_ps(other) && other->registered &&
            coordinator->ps[task].shard_count != 0 && !coordinator->ps[task].serving) {
            parties.ps[parties.count] = &coordinator->ps[task];
            parties.tasks[parties.count++] = task;
        }
    }
    uint64_t number;
    if (choose_common(&parties) != 0) {
        return true;
    }
    const uint32_t who = find_complete(&parties, &number);
    if (who < parties.count) {
        refuse(coordinator, member, message->id, &parties, who, number);
    }
    return who == parties.count;
}

/* Logs why servers do not restore their newest checkpoint. */
static void log_passed_over(const struct parties *parties, uint64_t number)
{
    for (uint32_t i = 0; i < parties->count; i++) {
        const uint64_t newest = parties->ps[i]->checkpoints.restore;
        if (newest > number) {
            sl_log_event(SL_LOG_WARN,
                         SL_EVENT("checkpoint_skipped", SL_EVENT_NUMBER("number", newest),
                                  SL_EVENT_NUMBER("task", parties->tasks[i])),
                         "checkpoint %" PRIu64 " of ps/%u is skipped: not all servers have it%s",
                         newest, parties->tasks[i],
                         was_never_complete(parties, newest) ? ", and it was never complete" : "");
        }
    }
}

/* The newest of a server's own checkpoints up to `latest`; 0: none. */
static uint64_t newest_up_to(uint64_t latest, uint64_t restore,
                             const struct sl_message_numbers *complete)
{
    uint64_t number = restore <= latest ? restore : 0;
    for (uint32_t i = 0; i < complete->count; i++) {
        if (complete->items[i] <= latest && complete->items[i] > number) {
            number = complete->items[i];
        }
    }
    return number;
}

uint64_t sl_coordinator_restore_of_replacement(const struct sl_coordinator *coordinator,
                                               const struct sl_message_register *reg)
{
    return newest_up_to(coordinator->checkpoint.job_latest, reg->restore, &reg->complete);
}

/* Only the coordinator restarted: servers that do not serve are replacements. */
static void restore_replacements(struct sl_coordinator *coordinator)
{
    for (uint32_t task = 0; task < coordinator->options.ps_count; task++) {
        struct sl_coordinator_ps *ps = &coordinator->ps[task];
        if (!ps->serving) {
            ps->checkpoints.restore =
                newest_up_to(coordinator->checkpoint.job_latest, ps->checkpoints.restore,
                             &ps->checkpoints.complete);
            sl_coordinator_note(coordinator, SL_COORDINATOR_RECORD_PS, task);
        }
    }
}

/* All servers restore this checkpoint. Newer ones are abandoned. */
static void begin_from(struct sl_coordinator *coordinator, uint64_t number, bool restores)
{
    struct sl_coordinator_checkpoint *checkpoint = &coordinator->checkpoint;
    if (number != 0) {
        sl_log_event(SL_LOG_INFO, SL_EVENT("job_restored", SL_EVENT_NUMBER("number", number)),
                     "the job restores checkpoint %" PRIu64, number);
    }
    coordinator->began_from = checkpoint->last_on_all_servers = checkpoint->job_latest = number;
    coordinator->abandoned_to = restores ? checkpoint->max_seen : 0;
    coordinator->kept_to = number == 0 && !restores ? checkpoint->max_seen : 0;
    for (uint32_t task = 0; task < coordinator->options.ps_count; task++) {
        coordinator->ps[task].checkpoints.restore = number;
        sl_coordinator_note(coordinator, SL_COORDINATOR_RECORD_PS, task);
    }
}

void sl_coordinator_restore_check_values(struct sl_coordinator *coordinator, uint32_t task)
{
    const struct sl_coordinator_ps *ps = &coordinator->ps[task];
    if (coordinator->values_lost != 0 || !sl_coordinator_is_known(ps) || ps->serving ||
        ps->checkpoints.restore != 0 || !sl_coordinator_placement_needs(coordinator, task)) {
        return;
    }
    sl_log_event(SL_LOG_ERROR, SL_EVENT("values_lost", SL_EVENT_NUMBER("task", task)),
                 "ps/%u was restarted without the values of its shards: the job has lost them, and "
                 "no further checkpoint of it is written; start the job again",
                 task);
    coordinator->values_lost = 1 + task;
    coordinator->cluster.version++; /* informs every member */
    sl_coordinator_note(coordinator, SL_COORDINATOR_RECORD_JOB, 0);
    sl_coordinator_checkpoint_lose(coordinator);
}

void sl_coordinator_restore_choose(struct sl_coordinator *coordinator)
{
    struct parties parties = {.count = 0};
    bool restores = false;
    for (uint32_t task = 0; task < coordinator->options.ps_count; task++) {
        const struct sl_coordinator_ps *ps = &coordinator->ps[task];
        if (!ps->serving) {
            restores = restores || ps->checkpoints.restore != 0;
            parties.ps[parties.count] = ps;
            parties.tasks[parties.count++] = task;
        }
    }
    if (parties.count < coordinator->options.ps_count) {
        restore_replacements(coordinator);
    } else {
        const uint64_t number = choose_common(&parties);
        log_passed_over(&parties, number);
        begin_from(coordinator, number, restores);
    }
    sl_coordinator_note(coordinator, SL_COORDINATOR_RECORD_JOB, 0);
}
