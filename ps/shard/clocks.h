/* The clocks count the iterations of each worker for one shard. A worker's clock is the number of
 * iterations that it has ticked. Owner reactor. Allocates only at init.
 *
 * Tables with the same worker_count share a group. A group's workers are 0 to worker_count - 1,
 * from clock 0 on and even before they connect, and every joined worker, whatever its index.
 * min_clock is the smallest clock of the group's active workers.
 *
 * A worker that finished, left or expired is not active: no other worker waits for it, and its
 * ticks have no effect. A worker that left or expired may join again, at a clock not below any
 * min_clock, so min_clock never decreases. A finished worker never joins again. Without active
 * workers, min_clock is the greatest clock of the group's workers, or FINISHED when all finished.
 *
 * A tick costs O(1). Only the last tick of an iteration scans the workers expected or joined. */
#ifndef SL_PS_SHARD_CLOCKS_H
#define SL_PS_SHARD_CLOCKS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/err.h"
#include "core/limits.h"
#include "ps/snapshot/block.h"

struct sl_clocks_group {
    uint32_t worker_count;
    uint32_t min_clock;
    uint32_t count_at_min; /* active workers at min_clock; the last to advance triggers a scan. 0:
                              no active worker */
};

struct sl_clocks {
    struct sl_clocks_worker *workers; /* [SL_LIMIT_WORKERS] */
    struct sl_clocks_group groups[SL_LIMIT_TABLES];
    uint32_t group_count;
    uint32_t expected;               /* largest worker_count of all groups */
    uint32_t seen_end, joined_end;   /* index limits of all workers seen, and of all joined */
    struct sl_clocks_group everyone; /* all workers seen or expected; worker_count is unused */
    bool moved;                      /* a group admits more than at the last sl_clocks_take_moved */
};

/* Errors: NO_MEMORY. */
int sl_clocks_init(struct sl_clocks *clocks);
void sl_clocks_fini(struct sl_clocks *clocks);

/* Returns the group of this worker_count (1 to SL_LIMIT_WORKERS) and creates it if necessary. At
 * most SL_LIMIT_TABLES groups (asserted). */
uint32_t sl_clocks_group(struct sl_clocks *clocks, uint32_t worker_count);

static inline uint32_t sl_clocks_min(const struct sl_clocks *clocks, uint32_t group)
{
    return clocks->groups[group].min_clock;
}

/* Returns true when the worker belongs to the group, active or not. worker < SL_LIMIT_WORKERS. */
static inline bool sl_clocks_belongs(const struct sl_clocks *clocks, uint32_t group,
                                     uint32_t worker)
{
    return worker < clocks->groups[group].worker_count || clocks->workers[worker].joined;
}

/* Returns true when the worker is active in the group, so that the group waits for it. */
static inline bool sl_clocks_is_active_in(const struct sl_clocks *clocks, uint32_t group,
                                          uint32_t worker)
{
    return clocks->workers[worker].state == SL_CLOCKS_STATE_ACTIVE &&
           sl_clocks_belongs(clocks, group, worker);
}

static inline bool sl_clocks_is_expired(const struct sl_clocks *clocks, uint32_t worker)
{
    return clocks->workers[worker].state == SL_CLOCKS_STATE_EXPIRED;
}

/* Returns true when the group has no active worker. */
static inline bool sl_clocks_is_empty(const struct sl_clocks *clocks, uint32_t group)
{
    return clocks->groups[group].count_at_min == 0;
}

/* Returns true when the worker is active in some group; while no group exists, unless it left,
 * finished or expired. */
bool sl_clocks_is_active(const struct sl_clocks *clocks, uint32_t worker);

/* Records that the worker exists: sl_clocks_min_of_all includes it while it is active. */
void sl_clocks_mark_seen(struct sl_clocks *clocks, uint32_t worker);

/* Returns the smallest clock of all active workers that are expected or seen. This is a statistic:
 * it decreases when a worker joins behind the others. SL_CLOCKS_FINISHED: no worker is left; 0:
 * there has been none. */
uint32_t sl_clocks_min_of_all(const struct sl_clocks *clocks);

/* Ends iteration `clock` of the worker, which must be its current one. With SL_CLOCKS_FINISHED the
 * worker has finished and pushes no more. Errors: PROTOCOL (another clock, or no such worker). */
int sl_clocks_tick(struct sl_clocks *clocks, uint32_t worker, uint32_t clock);

/* Records that the worker pushed in its current iteration to a BSP table. */
void sl_clocks_pushed(struct sl_clocks *clocks, uint32_t worker);

/* Makes the worker active in every group, from `clock` on. Refused in these cases:
 * - a min_clock has passed `clock`;
 * - the worker has finished;
 * - the worker is active at another clock, and `clock` is lower or it has begun to tick or push.
 *
 * Returns `clock` when accepted, else the worker's clock or the clock at which it may join. */
uint32_t sl_clocks_join(struct sl_clocks *clocks, uint32_t worker, uint32_t clock);

/* Returns the clock at which an inactive worker may join: its own, so that it repeats nothing, or
 * the greatest min_clock. SL_CLOCKS_FINISHED: it has finished. */
uint32_t sl_clocks_joinable(const struct sl_clocks *clocks, uint32_t worker);

/* Makes the worker inactive; no effect when it is inactive already. A worker that leaves ends the
 * iteration in which it pushed; a worker that expires does not. */
void sl_clocks_leave(struct sl_clocks *clocks, uint32_t worker);
void sl_clocks_expire(struct sl_clocks *clocks, uint32_t worker);

/* Restore the workers of a snapshot: load_begin clears all workers, each `load` sets one, load_end
 * computes every min_clock. In between, only sl_clocks_group may be called. worker <
 * SL_LIMIT_WORKERS. */
void sl_clocks_load_begin(struct sl_clocks *clocks);
void sl_clocks_load(struct sl_clocks *clocks, uint32_t worker, const struct sl_clocks_worker *as);
void sl_clocks_load_end(struct sl_clocks *clocks);

/* Lets every active worker join ahead of its clock, as if it had not ticked or pushed since it
 * joined. */
void sl_clocks_allow_ahead(struct sl_clocks *clocks);

/* Returns true when the job has not ended: a worker left before it finished, or one expired and
 * none finished. Active workers do not count. */
bool sl_clocks_is_unfinished(const struct sl_clocks *clocks);

/* Has an effect only when no seen worker is active. Makes workers that left before they finished
 * active again at their own clocks; if there are none, does so for expired workers. They stopped
 * together and are expected to return together. A min_clock may decrease: only for a shard that is
 * being restored. */
void sl_clocks_expect_again(struct sl_clocks *clocks);

/* Returns the worker's clock, also after it left or expired; SL_CLOCKS_FINISHED when it has
 * finished. worker < SL_LIMIT_WORKERS. */
static inline uint32_t sl_clocks_of(const struct sl_clocks *clocks, uint32_t worker)
{
    const struct sl_clocks_worker *who = &clocks->workers[worker];
    return who->state == SL_CLOCKS_STATE_FINISHED ? SL_CLOCKS_FINISHED : who->clock;
}

/* Returns an active worker whose clock is min_clock; SL_LIMIT_WORKERS: no active worker. */
uint32_t sl_clocks_slowest(const struct sl_clocks *clocks, uint32_t group);

/* Returns true once after an increase of a group's min_clock, and after a group's last active
 * worker has gone. */
bool sl_clocks_take_moved(struct sl_clocks *clocks);

#endif
