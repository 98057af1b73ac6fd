#include "ps/clocks.h"

#include <stdlib.h>

#include "core/assert.h"

int sl_clocks_init(struct sl_clocks *clocks)
{
    *clocks = (struct sl_clocks){.clocks = calloc(SL_LIMIT_WORKERS, sizeof *clocks->clocks)};
    return clocks->clocks == NULL ? SL_ERR_NO_MEMORY : 0;
}

void sl_clocks_fini(struct sl_clocks *clocks)
{
    free(clocks->clocks);
    *clocks = (struct sl_clocks){0};
}

/* Finds the group's floor, and how many workers stand on it, from nothing. */
static void scan(const uint32_t *clocks, struct sl_clocks_group *group)
{
    uint32_t floor = SL_CLOCKS_FINISHED;
    for (uint32_t worker = 0; worker < group->worker_count; worker++) {
        floor = clocks[worker] < floor ? clocks[worker] : floor;
    }
    uint32_t at_floor = 0;
    for (uint32_t worker = 0; worker < group->worker_count; worker++) {
        at_floor += clocks[worker] == floor;
    }
    group->floor = floor;
    group->at_floor = at_floor;
}

static void widen_everyone(struct sl_clocks *clocks, uint32_t worker_count)
{
    if (worker_count > clocks->everyone.worker_count) {
        clocks->everyone.worker_count = worker_count;
        scan(clocks->clocks, &clocks->everyone);
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
    clocks->groups[index].worker_count = worker_count;
    scan(clocks->clocks, &clocks->groups[index]);
    widen_everyone(clocks, worker_count);
    return index;
}

void sl_clocks_hear(struct sl_clocks *clocks, uint32_t worker)
{
    sl_assert(worker < SL_LIMIT_WORKERS);
    widen_everyone(clocks, worker + 1);
}

uint32_t sl_clocks_floor_of_all(const struct sl_clocks *clocks)
{
    return clocks->everyone.worker_count == 0 ? 0 : clocks->everyone.floor;
}

/* A worker of the group went on from clock `from`. True when that moved the floor. */
static bool group_advance(const uint32_t *clocks, struct sl_clocks_group *group, uint32_t worker,
                          uint32_t from)
{
    if (worker >= group->worker_count || from != group->floor) {
        return false;
    }
    group->at_floor--;
    if (group->at_floor > 0) {
        return false;
    }
    scan(clocks, group);
    return true;
}

int sl_clocks_tick(struct sl_clocks *clocks, uint32_t worker, uint32_t clock)
{
    if (worker >= SL_LIMIT_WORKERS) {
        return SL_ERR_PROTOCOL;
    }
    uint32_t from = clocks->clocks[worker];
    if (from == SL_CLOCKS_FINISHED) {
        return 0;
    }
    if (clock != from && clock != SL_CLOCKS_FINISHED) {
        return SL_ERR_PROTOCOL;
    }
    sl_clocks_hear(clocks, worker);
    clocks->clocks[worker] = clock == SL_CLOCKS_FINISHED ? clock : clock + 1;
    for (uint32_t i = 0; i < clocks->group_count; i++) {
        clocks->moved |= group_advance(clocks->clocks, &clocks->groups[i], worker, from);
    }
    (void)group_advance(clocks->clocks, &clocks->everyone, worker, from);
    return 0;
}

uint32_t sl_clocks_slowest(const struct sl_clocks *clocks, uint32_t group)
{
    const struct sl_clocks_group *of = &clocks->groups[group];
    uint32_t worker = 0;
    while (worker + 1 < of->worker_count && clocks->clocks[worker] != of->floor) {
        worker++;
    }
    return worker;
}

bool sl_clocks_take_moved(struct sl_clocks *clocks)
{
    bool moved = clocks->moved;
    clocks->moved = false;
    return moved;
}
