/* The workers' clocks of one shard. Worker w's clock is the number of iterations that it has
 * ticked. Tables with the same worker_count share a group, and a group's floor is the least clock
 * of the workers that count in it: workers 0 to worker_count - 1, from clock 0 and before they are
 * heard of, and every worker that has joined, whatever its index.
 *
 * A worker that has finished, left or been lost does not count: nobody waits for it, and its ticks
 * have no effect. One that left or was lost may join again, at a clock that no floor has passed, so
 * that a floor never goes down; one that has finished is done for good. Where nobody counts in a
 * group, nobody has to be waited for, and the floor lies at the end of what its workers have done:
 * at FINISHED when all of them have finished.
 *
 * A tick costs O(1) but for the last worker of an iteration, whose tick costs one scan of the
 * workers expected or joined. Owner reactor. Allocates at init. */
#ifndef SL_PS_SHARD_CLOCKS_H
#define SL_PS_SHARD_CLOCKS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/err.h"
#include "core/limits.h"
#include "ps/snapshot/block.h"

struct sl_clocks_worker {
    uint32_t clock;  /* iterations that it has ended, also of one that does not count any more */
    uint8_t state;   /* sl_clocks_state */
    bool seen : 1;   /* of its hello, tick or join */
    bool joined : 1; /* counts, while present, in every group */
    bool began : 1;  /* has ticked or pushed since it counts */
    bool pushed : 1; /* in its iteration */
};

struct sl_clocks_group {
    uint32_t worker_count;
    uint32_t min_clock;
    uint32_t count_at_min; /* workers whose clock is the floor: when the last goes on, scan. 0:
                            * nobody counts */
};

struct sl_clocks {
    struct sl_clocks_worker *workers; /* [SL_LIMIT_WORKERS] */
    struct sl_clocks_group groups[SL_LIMIT_TABLES];
    uint32_t group_count;
    uint32_t expected;               /* the largest worker_count of a group */
    uint32_t heard_end, joined_end;  /* above every worker heard of, and every one joined */
    struct sl_clocks_group everyone; /* who is heard of or expected; its worker_count is not used */
    bool moved;                      /* some group lets more in since that was last asked */
};

/* Errors: NO_MEMORY. */
int sl_clocks_init(struct sl_clocks *clocks);
void sl_clocks_fini(struct sl_clocks *clocks);

/* The group of this worker_count (1 to SL_LIMIT_WORKERS), made when there is none. At most
 * SL_LIMIT_TABLES different ones (asserted). */
uint32_t sl_clocks_group(struct sl_clocks *clocks, uint32_t worker_count);

static inline uint32_t sl_clocks_min(const struct sl_clocks *clocks, uint32_t group)
{
    return clocks->groups[group].min_clock;
}

/* True when the worker is one of the group's, gone or not. worker < SL_LIMIT_WORKERS. */
static inline bool sl_clocks_belongs(const struct sl_clocks *clocks, uint32_t group,
                                     uint32_t worker)
{
    return worker < clocks->groups[group].worker_count || clocks->workers[worker].joined;
}

/* True when the group waits for this worker. */
static inline bool sl_clocks_counts_in(const struct sl_clocks *clocks, uint32_t group,
                                       uint32_t worker)
{
    return clocks->workers[worker].state == SL_CLOCKS_STATE_ACTIVE &&
           sl_clocks_belongs(clocks, group, worker);
}

static inline bool sl_clocks_is_expired(const struct sl_clocks *clocks, uint32_t worker)
{
    return clocks->workers[worker].state == SL_CLOCKS_STATE_EXPIRED;
}

/* True when nobody counts in the group. */
static inline bool sl_clocks_is_empty(const struct sl_clocks *clocks, uint32_t group)
{
    return clocks->groups[group].count_at_min == 0;
}

/* True when the worker counts in some group, or would while there is none yet. */
bool sl_clocks_counts(const struct sl_clocks *clocks, uint32_t worker);

/* The worker is known from now on: once it counts, it is one of those of sl_clocks_min_of_all. */
void sl_clocks_mark_seen(struct sl_clocks *clocks, uint32_t worker);

/* The least clock of all workers that are expected, or heard of and counting, and have not
 * finished, left or been lost. A measurement: it goes down when a worker comes behind the others.
 * SL_CLOCKS_FINISHED when there is none any more, 0 when there has been none yet. */
uint32_t sl_clocks_min_of_all(const struct sl_clocks *clocks);

/* The worker has finished iteration `clock`, which must be its current one, or, with
 * SL_CLOCKS_FINISHED, will push no more. Errors: PROTOCOL (another clock than the current one, or
 * no such worker). */
int sl_clocks_tick(struct sl_clocks *clocks, uint32_t worker, uint32_t clock);

/* The worker has pushed, in its current iteration, what waits for the others. */
void sl_clocks_pushed(struct sl_clocks *clocks, uint32_t worker);

/* The worker counts from `clock` on in every group; or not, when some floor has passed that clock,
 * when it has finished, or when it counts and has begun at another clock or asks for a lesser one.
 * Returns `clock` when it was accepted, else where the worker stands or may join. */
uint32_t sl_clocks_join(struct sl_clocks *clocks, uint32_t worker, uint32_t clock);

/* Where a worker that does not count may join: at its own clock, so that it repeats nothing, or at
 * the greatest floor; SL_CLOCKS_FINISHED when it has finished. */
uint32_t sl_clocks_joinable(const struct sl_clocks *clocks, uint32_t worker);

/* The worker counts no more. One that leaves ends the iteration in which it has pushed; one that is
 * lost does not. No effect on one that is gone already. */
void sl_clocks_leave(struct sl_clocks *clocks, uint32_t worker);
void sl_clocks_expire(struct sl_clocks *clocks, uint32_t worker);

/* The workers as they were: load_begin forgets all that there are, each `load` says how one stood,
 * and load_end finds the floors, as they were then too. In between nothing else is asked but
 * sl_clocks_group. worker < SL_LIMIT_WORKERS. */
void sl_clocks_load_begin(struct sl_clocks *clocks);
void sl_clocks_load(struct sl_clocks *clocks, uint32_t worker, const struct sl_clocks_worker *as);
void sl_clocks_load_end(struct sl_clocks *clocks);

/* Every worker that is present may join ahead of its clock, as one may that has not begun. */
void sl_clocks_allow_ahead(struct sl_clocks *clocks);

/* True when the workers' job is not over: one has left before it finished, or one was lost and none
 * has finished. Workers that are present say nothing. */
bool sl_clocks_is_unfinished(const struct sl_clocks *clocks);

/* Where no worker that was heard of is present: those that left before they finished, or else those
 * that were lost, are expected again, at their own clocks. They have gone together, and come again
 * together. A floor may go down: for a shard that is restored. */
void sl_clocks_expect_again(struct sl_clocks *clocks);

/* The worker's clock, also of one that left or was lost; SL_CLOCKS_FINISHED when it has finished.
 * worker < SL_LIMIT_WORKERS. */
static inline uint32_t sl_clocks_of(const struct sl_clocks *clocks, uint32_t worker)
{
    const struct sl_clocks_worker *who = &clocks->workers[worker];
    return who->state == SL_CLOCKS_STATE_FINISHED ? SL_CLOCKS_FINISHED : who->clock;
}

/* A worker that counts in the group and whose clock is the floor: for whom the others wait.
 * SL_LIMIT_WORKERS when nobody counts. */
uint32_t sl_clocks_slowest(const struct sl_clocks *clocks, uint32_t group);

/* True once after each advance of a group's floor, and after the last of a group has gone. */
bool sl_clocks_take_moved(struct sl_clocks *clocks);

#endif
