#include "ps/coordinator/move.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/event.h"
#include "ps/coordinator/placement.h"

#define NO_TASK SL_COORDINATOR_NO_TASK

/* Where the shards are when all moves that are chosen so far have been made. */
struct plan {
    struct sl_coordinator_load load;
    uint32_t at[SL_LIMIT_SHARDS];
    bool is_chosen[SL_LIMIT_SHARDS]; /* it moves */
};

static void plan_init(const struct sl_coordinator *coordinator, struct plan *plan)
{
    sl_coordinator_placement_load(coordinator, &plan->load);
    for (uint32_t i = 0; i < coordinator->placement.shard_count; i++) {
        const struct sl_coordinator_shard *shard = &coordinator->placement.shards[i];
        plan->is_chosen[i] = shard->moves_to != NO_TASK;
        plan->at[i] = plan->is_chosen[i] ? shard->moves_to : shard->primary;
    }
}

/* A shard can move if its primary can send it. */
static bool can_move(const struct plan *plan, uint32_t shard, uint32_t from)
{
    return plan->at[shard] == from && plan->load.is_here[from] && !plan->is_chosen[shard];
}

static bool choose_drained(const struct sl_coordinator *coordinator, const struct plan *plan,
                           struct sl_message_move *move)
{
    for (uint32_t i = 0; i < coordinator->placement.shard_count; i++) {
        const uint32_t from = plan->at[i];
        if (coordinator->ps[from].place == SL_COORDINATOR_DRAINING && can_move(plan, i, from)) {
            const uint32_t to = sl_coordinator_placement_least(
                coordinator, &plan->load, from, coordinator->placement.shards[i].backup, false);
            *move = (struct sl_message_move){.shard = i, .from = from, .to = to};
            return to != NO_TASK;
        }
    }
    return false;
}

static bool choose_balancing(const struct sl_coordinator *coordinator, const struct plan *plan,
                             struct sl_message_move *move)
{
    const uint32_t *primaries = plan->load.primaries;
    uint32_t from = NO_TASK, to = NO_TASK;
    for (uint32_t task = 0; task < coordinator->placement.ps_end; task++) {
        if (sl_coordinator_placement_takes(coordinator, &plan->load, task)) {
            from = from == NO_TASK || primaries[task] > primaries[from] ? task : from;
            to = to == NO_TASK || primaries[task] < primaries[to] ? task : to;
        }
    }
    if (from == NO_TASK || primaries[from] - primaries[to] < 2) {
        return false;
    }
    for (uint32_t i = 0; i < coordinator->placement.shard_count; i++) {
        if (can_move(plan, i, from)) {
            *move = (struct sl_message_move){.shard = i, .from = from, .to = to};
            return true;
        }
    }
    return false;
}

/* Adds all moves that follow to the plan. Returns their number. */
static uint32_t plan_all(const struct sl_coordinator *coordinator, struct plan *plan,
                         bool (*choose)(const struct sl_coordinator *, const struct plan *,
                                        struct sl_message_move *),
                         struct sl_message_move *moves)
{
    uint32_t count = 0;
    while (count < coordinator->placement.shard_count && choose(coordinator, plan, &moves[count])) {
        const struct sl_message_move *move = &moves[count++];
        plan->load.primaries[move->from]--;
        plan->load.primaries[move->to]++;
        plan->at[move->shard] = move->to;
        plan->is_chosen[move->shard] = true;
    }
    return count;
}

/* Making them */

static void begin(struct sl_coordinator *coordinator, const struct sl_message_move *move)
{
    struct sl_coordinator_shard *shard = &coordinator->placement.shards[move->shard];
    shard->moves_to = move->to;
    if (shard->backup != move->to) {
        sl_coordinator_placement_set_backup(coordinator, move->shard, move->to);
    }
    sl_coordinator_placement_note(coordinator, move->shard);
    sl_log_event(SL_LOG_INFO,
                 SL_EVENT("shard_moving", SL_EVENT_NUMBER("shard", move->shard),
                          SL_EVENT_NUMBER("from", move->from), SL_EVENT_NUMBER("to", move->to),
                          SL_EVENT_NUMBER("epoch", shard->epoch)),
                 "shard %u moves from ps/%u to ps/%u (epoch %llu)", move->shard, move->from,
                 move->to, (unsigned long long)shard->epoch);
}

/* Finds a queued move that can begin. */
static bool choose_queued(const struct sl_coordinator *coordinator, const struct plan *plan,
                          struct sl_message_move *move)
{
    for (uint32_t i = 0; i < coordinator->placement.shard_count; i++) {
        const struct sl_coordinator_shard *shard = &coordinator->placement.shards[i];
        if (shard->moves_to != NO_TASK && plan->load.is_here[shard->primary]) {
            *move =
                (struct sl_message_move){.shard = i, .from = shard->primary, .to = shard->moves_to};
            return true;
        }
    }
    return false;
}

/* With replicas: a backup that is not in sync yet, and has not failed. */
static bool any_backup_waits(const struct sl_coordinator *coordinator)
{
    for (uint32_t i = 0; i < coordinator->placement.shard_count; i++) {
        const struct sl_coordinator_shard *shard = &coordinator->placement.shards[i];
        if (shard->backup != NO_TASK && !shard->in_sync && shard->backoff.least_ns == 0) {
            return true;
        }
    }
    return false;
}

static bool has_backup_at(const struct sl_coordinator_shard *shard, uint32_t task)
{
    return shard->backup == task || (shard->backup == NO_TASK && shard->partner == task);
}

/* Moves one backup away from a server that is being drained: the next one follows when that is in
 * sync. */
static bool replace_backup(struct sl_coordinator *coordinator,
                           const struct sl_coordinator_load *load)
{
    if (coordinator->placement.replicas == 0 || any_backup_waits(coordinator)) {
        return false;
    }
    for (uint32_t i = 0; i < coordinator->placement.shard_count; i++) {
        const struct sl_coordinator_shard *shard = &coordinator->placement.shards[i];
        const uint32_t task = shard->backup != NO_TASK ? shard->backup : shard->partner;
        if (shard->moves_to != NO_TASK || task == NO_TASK ||
            coordinator->ps[task].place != SL_COORDINATOR_DRAINING) {
            continue;
        }
        const uint32_t to =
            sl_coordinator_placement_least(coordinator, load, shard->primary, shard->primary, true);
        if (to != NO_TASK) {
            sl_coordinator_placement_set_backup(coordinator, i, to);
            return true;
        }
    }
    return false;
}

static bool has_shards(const struct sl_coordinator *coordinator, uint32_t task)
{
    for (uint32_t i = 0; i < coordinator->placement.shard_count; i++) {
        const struct sl_coordinator_shard *shard = &coordinator->placement.shards[i];
        if (shard->primary == task ||
            (coordinator->placement.replicas > 0 && has_backup_at(shard, task))) {
            return true;
        }
    }
    return false;
}

void sl_coordinator_move_end_drained(struct sl_coordinator *coordinator,
                                     const struct sl_coordinator_member *member)
{
    struct sl_message message = {.kind = SL_MESSAGE_ENDED};
    (void)snprintf(message.why, sizeof message.why, "%s was drained: other servers have its shards",
                   member->name);
    sl_coordinator_send(coordinator, member, &message);
}

/* The process is remembered, in case it misses the message that it ends. */
static void finish_drain(struct sl_coordinator *coordinator, uint32_t task)
{
    struct sl_coordinator_ps *ps = &coordinator->ps[task];
    const struct sl_coordinator_member *member =
        sl_coordinator_find(coordinator, SL_MESSAGE_ROLE_PS, task);
    *ps = (struct sl_coordinator_ps){
        .place = SL_COORDINATOR_DRAINED,
        .shard_count = ps->shard_count,
        .first_shard = ps->first_shard,
        .client_id = ps->client_id,
    };
    coordinator->placement.has_new_roles = true;
    coordinator->cluster.version++;
    sl_coordinator_note(coordinator, SL_COORDINATOR_RECORD_PS, task);
    sl_coordinator_note(coordinator, SL_COORDINATOR_RECORD_JOB, 0);
    sl_log_event(SL_LOG_INFO, SL_EVENT("server_drained", SL_EVENT_NUMBER("task", task)),
                 "ps/%u was drained: other servers have its shards", task);
    if (member != NULL) {
        sl_coordinator_move_end_drained(coordinator, member);
    }
}

/* A server without shards has to know where they are, for clients that ask it, before it ends. */
static bool finish_drains(struct sl_coordinator *coordinator)
{
    for (uint32_t task = 0; task < coordinator->placement.ps_end; task++) {
        const struct sl_coordinator_member *member =
            coordinator->ps[task].place == SL_COORDINATOR_DRAINING
                ? sl_coordinator_find(coordinator, SL_MESSAGE_ROLE_PS, task)
                : NULL;
        const bool is_told = member == NULL || !member->connected ||
                             member->cluster_version == coordinator->cluster.version;
        if (coordinator->ps[task].place == SL_COORDINATOR_DRAINING && is_told &&
            !has_shards(coordinator, task)) {
            finish_drain(coordinator, task);
            return true;
        }
    }
    return false;
}

/* False for a server of the records that has not come back yet: it may have died, and its copy of
 * the shard with it. */
static bool is_connected(const struct sl_coordinator *coordinator, uint32_t task)
{
    const struct sl_coordinator_member *member =
        sl_coordinator_find(coordinator, SL_MESSAGE_ROLE_PS, task);
    return member != NULL && member->registered && member->connected;
}

/* Returns false if there is nothing to do now. */
static bool step(struct sl_coordinator *coordinator, struct plan *plan, uint64_t now_ns)
{
    const uint32_t moving = sl_coordinator_placement_moving(coordinator);
    struct sl_message_move move;
    plan_init(coordinator, plan);
    if (moving < coordinator->placement.shard_count) {
        const struct sl_coordinator_shard *shard = &coordinator->placement.shards[moving];
        const bool is_ready = shard->in_sync && is_connected(coordinator, shard->primary) &&
                              is_connected(coordinator, shard->moves_to) &&
                              coordinator->checkpoint.stage == SL_COORDINATOR_CHECKPOINT_IDLE;
        if (is_ready) {
            sl_coordinator_placement_commit(coordinator, moving, now_ns);
        }
        return is_ready;
    }
    if (finish_drains(coordinator) || replace_backup(coordinator, &plan->load)) {
        return true;
    }
    if (now_ns < coordinator->placement.move_pause_ns) {
        return false;
    }
    if (choose_queued(coordinator, plan, &move) || choose_drained(coordinator, plan, &move) ||
        (coordinator->placement.balances && choose_balancing(coordinator, plan, &move))) {
        begin(coordinator, &move);
        return true;
    }
    if (coordinator->placement.balances) {
        coordinator->placement.balances = false;
        sl_coordinator_note(coordinator, SL_COORDINATOR_RECORD_JOB, 0);
    }
    return false;
}

void sl_coordinator_move_advance(struct sl_coordinator *coordinator, uint64_t now_ns)
{
    struct plan plan;
    const bool ends = coordinator->job.stage == SL_COORDINATOR_ENDING ||
                      coordinator->job.stage == SL_COORDINATOR_OVER;
    while (coordinator->placement.shard_count != 0 && !ends && step(coordinator, &plan, now_ns)) {
    }
}

/* Requests */

static int check_move(const struct sl_coordinator *coordinator, const struct plan *plan,
                      uint32_t shard, uint32_t task, struct sl_reason *reason)
{
    if (shard >= coordinator->placement.shard_count) {
        return sl_reason_fail(reason, SL_ERR_NOT_FOUND, "there is no shard %u: the job has %u",
                              shard, coordinator->placement.shard_count);
    }
    const struct sl_coordinator_shard *placed = &coordinator->placement.shards[shard];
    if (placed->moves_to != NO_TASK) {
        return sl_reason_fail(reason, SL_ERR_EXISTS, "shard %u moves from ps/%u to ps/%u already",
                              shard, placed->primary, placed->moves_to);
    }
    if (placed->primary == task) {
        return sl_reason_fail(reason, SL_ERR_EXISTS, "shard %u is at ps/%u already", shard, task);
    }
    if (!plan->load.is_here[task] || !plan->load.is_here[placed->primary]) {
        return sl_reason_fail(reason, SL_ERR_NOT_FOUND,
                              "shard %u cannot move from ps/%u to ps/%u: ps/%u is not there", shard,
                              placed->primary, task,
                              plan->load.is_here[task] ? placed->primary : task);
    }
    if (coordinator->ps[task].place == SL_COORDINATOR_DRAINING) {
        return sl_reason_fail(reason, SL_ERR_REFUSED,
                              "shard %u cannot move from ps/%u to ps/%u, which is being drained",
                              shard, placed->primary, task);
    }
    return 0;
}

/* Without a cluster store, no other process continues the work of the coordinator at ps/0. */
static bool hosts_coordinator(const struct sl_coordinator *coordinator, uint32_t task)
{
    return task == 0 && coordinator->options.changed == NULL &&
           coordinator->options.stage_changed == NULL;
}

static int check_drain(const struct sl_coordinator *coordinator, const struct plan *plan,
                       uint32_t task, struct sl_reason *reason)
{
    uint32_t others = 0;
    for (uint32_t other = 0; other < coordinator->placement.ps_end; other++) {
        const bool takes = sl_coordinator_placement_takes(coordinator, &plan->load, other);
        others += other != task && takes ? 1 : 0;
    }
    if (!sl_coordinator_has_ps(coordinator, task)) {
        return sl_reason_fail(reason, SL_ERR_NOT_FOUND, "there is no ps/%u", task);
    }
    if (hosts_coordinator(coordinator, task)) {
        return sl_reason_fail(
            reason, SL_ERR_REFUSED,
            "ps/%u cannot be drained: it hosts the coordinator, which could go on "
            "elsewhere only with a cluster store (--cluster-store)",
            task);
    }
    if (others == 0) {
        return sl_reason_fail(reason, SL_ERR_REFUSED,
                              "ps/%u cannot be drained: no other server is there to get its "
                              "shards; another has to join first",
                              task);
    }
    if (others < 1 + coordinator->placement.replicas) {
        return sl_reason_fail(reason, SL_ERR_REFUSED,
                              "ps/%u cannot be drained: with --replicas two servers must stay; "
                              "another has to join first",
                              task);
    }
    if (!plan->load.is_here[task] && plan->load.primaries[task] > 0) {
        return sl_reason_fail(reason, SL_ERR_REFUSED,
                              "ps/%u cannot be drained: it is not there, and no other server has "
                              "its shards; it has to be restarted first",
                              task);
    }
    return 0;
}

/* Lets the server keep its place; its shards are moved by sl_coordinator_move_advance. */
static void begin_drain(struct sl_coordinator *coordinator, uint32_t task)
{
    coordinator->ps[task].place = SL_COORDINATOR_DRAINING;
    sl_coordinator_note(coordinator, SL_COORDINATOR_RECORD_PS, task);
    for (uint32_t i = 0; i < coordinator->placement.shard_count; i++) {
        if (coordinator->placement.shards[i].moves_to == task) {
            sl_coordinator_placement_abort(coordinator, i, "the target is drained");
        }
    }
}

/* Plans the moves that the change leads to. */
static int plan_change(struct sl_coordinator *coordinator,
                       const struct sl_message_placement_change *change, struct plan *plan,
                       struct sl_message_moves *moves, struct sl_reason *reason)
{
    int err = 0;
    enum sl_coordinator_place *place = &coordinator->ps[change->task].place;
    const enum sl_coordinator_place was = *place;
    if (coordinator->placement.shard_count == 0) {
        return sl_reason_fail(reason, SL_ERR_AGAIN,
                              "shards can move when the job has begun: it waits for servers");
    }
    plan_init(coordinator, plan);
    switch (change->verb) {
    case SL_MESSAGE_PLACEMENT_MOVE:
        err = check_move(coordinator, plan, change->shard, change->task, reason);
        if (err == 0) {
            moves->items[moves->count++] = (struct sl_message_move){
                change->shard, coordinator->placement.shards[change->shard].primary, change->task};
        }
        break;
    case SL_MESSAGE_PLACEMENT_DRAIN:
        err = check_drain(coordinator, plan, change->task, reason);
        if (err == 0) {
            *place = SL_COORDINATOR_DRAINING; /* for the plan */
            moves->count = plan_all(coordinator, plan, choose_drained, moves->items);
            *place = was;
        }
        break;
    case SL_MESSAGE_PLACEMENT_BALANCE:
        moves->count = plan_all(coordinator, plan, choose_balancing, moves->items);
        break;
    }
    return err;
}

static void make_change(struct sl_coordinator *coordinator,
                        const struct sl_coordinator_member *member,
                        const struct sl_message_placement_change *change, uint64_t now_ns)
{
    char what[64];
    switch (change->verb) {
    case SL_MESSAGE_PLACEMENT_MOVE:
        (void)snprintf(what, sizeof what, "move shard %u to ps/%u", change->shard, change->task);
        coordinator->placement.shards[change->shard].moves_to = change->task;
        sl_coordinator_placement_note(coordinator, change->shard);
        break;
    case SL_MESSAGE_PLACEMENT_DRAIN:
        (void)snprintf(what, sizeof what, "drain ps/%u", change->task);
        begin_drain(coordinator, change->task);
        break;
    case SL_MESSAGE_PLACEMENT_BALANCE:
        (void)snprintf(what, sizeof what, "balance");
        coordinator->placement.balances = true;
        sl_coordinator_note(coordinator, SL_COORDINATOR_RECORD_JOB, 0);
        break;
    }
    sl_log_info("%s: %s", member->name, what);
    coordinator->placement.move_pause_ns = 0;
    sl_coordinator_move_advance(coordinator, now_ns);
}

void sl_coordinator_move_change(struct sl_coordinator *coordinator,
                                const struct sl_coordinator_member *member,
                                const struct sl_message *message, uint64_t now_ns)
{
    const struct sl_message_placement_change *change = &message->placement_change;
    struct plan plan;
    struct sl_reason reason;
    struct sl_message answer = {.kind = SL_MESSAGE_PLACEMENT_CHANGED, .id = message->id};
    answer.moves.items = calloc(coordinator->placement.shard_count + 1, sizeof *answer.moves.items);
    const int err = answer.moves.items == NULL
                        ? sl_reason_fail(&reason, SL_ERR_NO_MEMORY, "no memory")
                        : plan_change(coordinator, change, &plan, &answer.moves, &reason);
    if (err != 0) {
        sl_coordinator_refuse(coordinator, member, message->id, err, "%s", reason.text);
    } else {
        if (!change->dry_run) {
            make_change(coordinator, member, change, now_ns);
        }
        sl_coordinator_send(coordinator, member, &answer);
    }
    free(answer.moves.items);
}
