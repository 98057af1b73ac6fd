#include "ps/shard/clocks.h"

#include <stdlib.h>
#include <string.h>

#include "core/assert.h"

int sl_clocks_init(struct sl_clocks *clocks)
{
    *clocks = (struct sl_clocks){.workers = calloc(SL_LIMIT_WORKERS, sizeof *clocks->workers)};
    return clocks->workers == NULL ? SL_ERR_NO_MEMORY : 0;
}

void sl_clocks_fini(struct sl_clocks *clocks)
{
    free(clocks->workers);
    *clocks = (struct sl_clocks){0};
}

static uint32_t greater(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* Returns true when sl_clocks_min_of_all includes the worker, as long as it is active. */
static bool clocks_is_known(const struct sl_clocks *clocks, uint32_t worker)
{
    const struct sl_clocks_worker *who = &clocks->workers[worker];
    return worker < clocks->expected || (who->seen && (who->joined || clocks->group_count == 0));
}

/* Adds an active worker to the minimum. */
static void clocks_count(struct sl_clocks_group *group, uint32_t clock)
{
    if (clock < group->min_clock) {
        group->min_clock = clock;
        group->count_at_min = 0;
    }
    group->count_at_min += clock == group->min_clock;
}

/* Computes the group's min_clock and count_at_min from scratch. Without an active worker, min_clock
 * becomes the greatest clock of the group's workers, so that all their pushes take effect. */
static void group_scan(struct sl_clocks *clocks, uint32_t index)
{
    struct sl_clocks_group *group = &clocks->groups[index];
    struct sl_clocks_group found = {
        .worker_count = group->worker_count,
        .min_clock = SL_CLOCKS_FINISHED,
    };
    uint32_t done = 0;
    bool all_finished = true;
    uint32_t end = greater(group->worker_count, clocks->joined_end);
    for (uint32_t worker = 0; worker < end; worker++) {
        const struct sl_clocks_worker *who = &clocks->workers[worker];
        if (!sl_clocks_belongs(clocks, index, worker)) {
            continue;
        }
        if (who->state == SL_CLOCKS_STATE_ACTIVE) {
            clocks_count(&found, who->clock);
        } else {
            done = greater(done, who->clock);
            all_finished &= who->state == SL_CLOCKS_STATE_FINISHED;
        }
    }
    if (found.count_at_min == 0 && !all_finished) {
        found.min_clock = done;
    }
    sl_assert(found.min_clock >= group->min_clock);
    clocks->moved |= found.min_clock > group->min_clock || found.count_at_min == 0;
    *group = found;
}

static void everyone_scan(struct sl_clocks *clocks)
{
    clocks->everyone = (struct sl_clocks_group){.min_clock = SL_CLOCKS_FINISHED};
    uint32_t end = greater(clocks->expected, clocks->seen_end);
    for (uint32_t worker = 0; worker < end; worker++) {
        const struct sl_clocks_worker *who = &clocks->workers[worker];
        if (who->state == SL_CLOCKS_STATE_ACTIVE && clocks_is_known(clocks, worker)) {
            clocks_count(&clocks->everyone, who->clock);
        }
    }
}

uint32_t sl_clocks_group(struct sl_clocks *clocks, uint32_t worker_count)
{
    sl_assert(worker_count > 0);
    sl_assert(worker_count <= SL_LIMIT_WORKERS);
    for (uint32_t i = 0; i < clocks->group_count; i++) {
        if (clocks->groups[i].worker_count == worker_count) {
            return i;
        }
    }
    sl_assert(clocks->group_count < SL_LIMIT_TABLES);
    uint32_t index = clocks->group_count++;
    clocks->groups[index] = (struct sl_clocks_group){.worker_count = worker_count};
    bool moved = clocks->moved;
    group_scan(clocks, index);
    clocks->moved = moved; /* no request can wait for a new group yet */
    clocks->expected = greater(clocks->expected, worker_count);
    everyone_scan(clocks);
    return index;
}

bool sl_clocks_is_active(const struct sl_clocks *clocks, uint32_t worker)
{
    sl_assert(worker < SL_LIMIT_WORKERS);
    const struct sl_clocks_worker *who = &clocks->workers[worker];
    return who->state == SL_CLOCKS_STATE_ACTIVE &&
           (who->joined || worker < clocks->expected || clocks->group_count == 0);
}

void sl_clocks_mark_seen(struct sl_clocks *clocks, uint32_t worker)
{
    sl_assert(worker < SL_LIMIT_WORKERS);
    if (!clocks->workers[worker].seen) {
        clocks->workers[worker].seen = true;
        clocks->seen_end = greater(clocks->seen_end, worker + 1);
        everyone_scan(clocks);
    }
}

uint32_t sl_clocks_min_of_all(const struct sl_clocks *clocks)
{
    bool none_yet = clocks->expected == 0 && clocks->seen_end == 0;
    return none_yet ? 0 : clocks->everyone.min_clock;
}

/* A worker of the group advanced from clock `from`, or is no longer active. */
static void group_advance(struct sl_clocks *clocks, uint32_t index, uint32_t worker, uint32_t from)
{
    struct sl_clocks_group *group = &clocks->groups[index];
    if (!sl_clocks_belongs(clocks, index, worker) || from != group->min_clock) {
        return;
    }
    group->count_at_min--;
    if (group->count_at_min == 0) {
        group_scan(clocks, index);
    }
}

static void clocks_advance(struct sl_clocks *clocks, uint32_t worker, uint32_t from)
{
    for (uint32_t i = 0; i < clocks->group_count; i++) {
        group_advance(clocks, i, worker, from);
    }
    struct sl_clocks_group *everyone = &clocks->everyone;
    if (clocks_is_known(clocks, worker) && from == everyone->min_clock &&
        --everyone->count_at_min == 0) {
        everyone_scan(clocks);
    }
}

static void go(struct sl_clocks *clocks, uint32_t worker, enum sl_clocks_state state)
{
    struct sl_clocks_worker *who = &clocks->workers[worker];
    if (who->state != SL_CLOCKS_STATE_ACTIVE) {
        return;
    }
    uint32_t from = who->clock;
    who->state = (uint8_t)state;
    who->clock += who->pushed && state != SL_CLOCKS_STATE_EXPIRED;
    who->pushed = false;
    clocks_advance(clocks, worker, from);
}

void sl_clocks_leave(struct sl_clocks *clocks, uint32_t worker)
{
    sl_assert(worker < SL_LIMIT_WORKERS);
    go(clocks, worker, SL_CLOCKS_STATE_LEFT);
}

void sl_clocks_expire(struct sl_clocks *clocks, uint32_t worker)
{
    sl_assert(worker < SL_LIMIT_WORKERS);
    go(clocks, worker, SL_CLOCKS_STATE_EXPIRED);
}

int sl_clocks_tick(struct sl_clocks *clocks, uint32_t worker, uint32_t clock)
{
    if (worker >= SL_LIMIT_WORKERS) {
        return SL_ERR_PROTOCOL;
    }
    struct sl_clocks_worker *who = &clocks->workers[worker];
    if (who->state != SL_CLOCKS_STATE_ACTIVE) {
        return 0;
    }
    uint32_t from = who->clock;
    if (clock != from && clock != SL_CLOCKS_FINISHED) {
        return SL_ERR_PROTOCOL;
    }
    sl_clocks_mark_seen(clocks, worker);
    if (clock >= SL_CLOCKS_FINISHED - 1) {
        go(clocks, worker, SL_CLOCKS_STATE_FINISHED); /* the last iteration ends here */
        return 0;
    }
    who->clock = from + 1;
    who->began = true;
    who->pushed = false;
    clocks_advance(clocks, worker, from);
    return 0;
}

void sl_clocks_pushed(struct sl_clocks *clocks, uint32_t worker)
{
    sl_assert(worker < SL_LIMIT_WORKERS);
    clocks->workers[worker].began = true;
    clocks->workers[worker].pushed = true;
}

static uint32_t greatest_min_clock(const struct sl_clocks *clocks)
{
    uint32_t min_clock = 0;
    for (uint32_t i = 0; i < clocks->group_count; i++) {
        min_clock = greater(min_clock, clocks->groups[i].min_clock);
    }
    return min_clock;
}

uint32_t sl_clocks_joinable(const struct sl_clocks *clocks, uint32_t worker)
{
    sl_assert(worker < SL_LIMIT_WORKERS);
    return greater(sl_clocks_of(clocks, worker), greatest_min_clock(clocks));
}

uint32_t sl_clocks_join(struct sl_clocks *clocks, uint32_t worker, uint32_t clock)
{
    sl_assert(worker < SL_LIMIT_WORKERS);
    struct sl_clocks_worker *who = &clocks->workers[worker];
    if (who->state == SL_CLOCKS_STATE_FINISHED || clock == SL_CLOCKS_FINISHED ||
        clock < greatest_min_clock(clocks)) {
        return sl_clocks_joinable(clocks, worker);
    }
    bool active = sl_clocks_is_active(clocks, worker);
    if (active && clock != who->clock && (who->began || clock < who->clock)) {
        return who->clock;
    }
    bool stays = active && clock == who->clock;
    *who = (struct sl_clocks_worker){
        .clock = clock,
        .state = SL_CLOCKS_STATE_ACTIVE,
        .seen = true,
        .joined = true,
        .began = stays && who->began,
        .pushed = stays && who->pushed,
    };
    clocks->joined_end = greater(clocks->joined_end, worker + 1);
    clocks->seen_end = greater(clocks->seen_end, worker + 1);
    for (uint32_t i = 0; i < clocks->group_count; i++) {
        group_scan(clocks, i);
    }
    everyone_scan(clocks);
    return clock;
}

void sl_clocks_load_begin(struct sl_clocks *clocks)
{
    memset(clocks->workers, 0, SL_LIMIT_WORKERS * sizeof *clocks->workers);
    clocks->seen_end = clocks->joined_end = 0;
}

void sl_clocks_load(struct sl_clocks *clocks, uint32_t worker, const struct sl_clocks_worker *as)
{
    sl_assert(worker < SL_LIMIT_WORKERS);
    clocks->workers[worker] = *as;
    clocks->seen_end = as->seen ? greater(clocks->seen_end, worker + 1) : clocks->seen_end;
    clocks->joined_end = as->joined ? greater(clocks->joined_end, worker + 1) : clocks->joined_end;
}

void sl_clocks_load_end(struct sl_clocks *clocks)
{
    for (uint32_t i = 0; i < clocks->group_count; i++) {
        clocks->groups[i].min_clock =
            0; /* the old minimum is of other workers; a scan may not lower it */
        group_scan(clocks, i);
    }
    everyone_scan(clocks);
    clocks->moved = true;
}

void sl_clocks_allow_ahead(struct sl_clocks *clocks)
{
    for (uint32_t worker = 0; worker < SL_LIMIT_WORKERS; worker++) {
        clocks->workers[worker].began = false;
    }
}

/* Returns the end of the worker indexes that decide whether a job has ended. */
static uint32_t known_end(const struct sl_clocks *clocks)
{
    return clocks->expected != 0 ? clocks->expected : clocks->seen_end;
}

static bool any_stands(const struct sl_clocks *clocks, enum sl_clocks_state state)
{
    for (uint32_t worker = 0; worker < known_end(clocks); worker++) {
        const struct sl_clocks_worker *who = &clocks->workers[worker];
        const bool has_begun = who->clock > 0 || state == SL_CLOCKS_STATE_FINISHED;
        if (who->state == state && who->seen && has_begun) {
            return true;
        }
    }
    return false;
}

bool sl_clocks_is_unfinished(const struct sl_clocks *clocks)
{
    return any_stands(clocks, SL_CLOCKS_STATE_LEFT) ||
           (any_stands(clocks, SL_CLOCKS_STATE_EXPIRED) &&
            !any_stands(clocks, SL_CLOCKS_STATE_FINISHED));
}

void sl_clocks_expect_again(struct sl_clocks *clocks)
{
    for (uint32_t worker = 0; worker < clocks->seen_end; worker++) {
        const struct sl_clocks_worker *who = &clocks->workers[worker];
        if (who->seen && who->state == SL_CLOCKS_STATE_ACTIVE) {
            return;
        }
    }
    const uint8_t gone =
        any_stands(clocks, SL_CLOCKS_STATE_LEFT) ? SL_CLOCKS_STATE_LEFT : SL_CLOCKS_STATE_EXPIRED;
    for (uint32_t worker = 0; worker < known_end(clocks); worker++) {
        struct sl_clocks_worker *who = &clocks->workers[worker];
        if (who->state == gone) {
            *who = (struct sl_clocks_worker){.clock = who->clock, .state = SL_CLOCKS_STATE_ACTIVE};
        }
    }
    sl_clocks_load_end(clocks);
}

uint32_t sl_clocks_slowest(const struct sl_clocks *clocks, uint32_t group)
{
    const struct sl_clocks_group *of = &clocks->groups[group];
    uint32_t end = greater(of->worker_count, clocks->joined_end);
    for (uint32_t worker = 0; worker < end; worker++) {
        if (sl_clocks_is_active_in(clocks, group, worker) &&
            clocks->workers[worker].clock == of->min_clock) {
            return worker;
        }
    }
    return SL_LIMIT_WORKERS;
}

bool sl_clocks_take_moved(struct sl_clocks *clocks)
{
    bool moved = clocks->moved;
    clocks->moved = false;
    return moved;
}
