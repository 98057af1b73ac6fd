/* The workers' clocks of one shard. Worker w's clock is the number of iterations that it has
 * ticked; a floor is the least clock of workers 0 to worker_count - 1. Tables with the same
 * worker_count share a group, which keeps their floor: a tick costs O(1) but for the last worker
 * of an iteration, whose tick costs one scan of the group.
 *
 * A worker that finished or left counts no more, as if its clock were without end, and never counts
 * again: one that comes back is served, but holds nobody up. Owner reactor. Allocates at init. */
#ifndef SL_PS_CLOCKS_H
#define SL_PS_CLOCKS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/err.h"
#include "core/limits.h"

/* The clock of a worker that counts no more; equals SL_REQUEST_CLOCK_FINISHED. */
#define SL_CLOCKS_FINISHED UINT32_MAX

struct sl_clocks_group {
    uint32_t worker_count;
    uint32_t floor;
    uint32_t at_floor; /* workers whose clock is the floor: when the last goes on, scan */
};

struct sl_clocks {
    uint32_t *clocks; /* [SL_LIMIT_WORKERS] */
    struct sl_clocks_group groups[SL_LIMIT_TABLES];
    uint32_t group_count;
    struct sl_clocks_group everyone; /* all workers heard of, and those of the largest group */
    bool moved;                      /* the floor of some group advanced since it was last asked */
};

/* Errors: NO_MEMORY. */
int sl_clocks_init(struct sl_clocks *clocks);
void sl_clocks_fini(struct sl_clocks *clocks);

/* The group of this worker_count (1 to SL_LIMIT_WORKERS), made when there is none. At most
 * SL_LIMIT_TABLES different ones (asserted). */
uint32_t sl_clocks_group(struct sl_clocks *clocks, uint32_t worker_count);

static inline uint32_t sl_clocks_floor(const struct sl_clocks *clocks, uint32_t group)
{
    return clocks->groups[group].floor;
}

/* The worker is known from now on: it counts for sl_clocks_floor_of_all. */
void sl_clocks_hear(struct sl_clocks *clocks, uint32_t worker);

/* The least clock of all workers heard of; 0 when there is none. */
uint32_t sl_clocks_floor_of_all(const struct sl_clocks *clocks);

/* The worker has finished iteration `clock`, which must be its current one, or, with
 * SL_CLOCKS_FINISHED, will push no more. The ticks of a worker that counts no more have no effect.
 * Errors: PROTOCOL (another clock than the current one, or no such worker). */
int sl_clocks_tick(struct sl_clocks *clocks, uint32_t worker, uint32_t clock);

/* The worker's clock, SL_CLOCKS_FINISHED when it counts no more. worker < SL_LIMIT_WORKERS. */
static inline uint32_t sl_clocks_of(const struct sl_clocks *clocks, uint32_t worker)
{
    return clocks->clocks[worker];
}

/* A worker of the group whose clock is the floor: for whom the others wait. */
uint32_t sl_clocks_slowest(const struct sl_clocks *clocks, uint32_t group);

/* True once after each advance of a group's floor. */
bool sl_clocks_take_moved(struct sl_clocks *clocks);

#endif
