/* Workers that join, leave and expire. */
#include "ps/shard/iteration.h"

uint32_t sl_shard_clock_min(const struct sl_shard *shard)
{
    return sl_clocks_min_of_all(&shard->clocks);
}

struct sl_shard_worker sl_shard_worker_find(const struct sl_shard *shard, uint32_t worker)
{
    bool active = sl_clocks_is_active(&shard->clocks, worker);
    return (struct sl_shard_worker){
        .active = active,
        .clock = active ? sl_clocks_of(&shard->clocks, worker)
                        : sl_clocks_joinable(&shard->clocks, worker),
    };
}

void sl_shard_worker_seen(struct sl_shard *shard, uint32_t worker)
{
    sl_clocks_mark_seen(&shard->clocks, worker);
}

/* Makes queues for joined workers in all BSP tables. Without memory, the table later refuses the
 * worker's pushes (sl_shard_push_begin). */
static void reserve_queues(struct sl_shard *shard, uint32_t queue_count)
{
    for (uint32_t i = 0; i < shard->table_count; i++) {
        struct sl_shard_table *table = shard->tables[i];
        if (table != NULL && table->buffered != NULL) {
            (void)sl_shard_iteration_reserve(table, queue_count);
        }
    }
}

uint32_t sl_shard_worker_join(struct sl_shard *shard, uint32_t worker, uint32_t clock)
{
    bool was_active = sl_clocks_is_active(&shard->clocks, worker);
    uint32_t least = sl_clocks_join(&shard->clocks, worker, clock);
    if (least != clock || !sl_clocks_is_active(&shard->clocks, worker)) {
        return least;
    }
    if (!was_active) {
        sl_shard_iteration_drop(shard, worker, clock); /* the worker repeats these iterations */
    }
    reserve_queues(shard, worker + 1);
    sl_shard_iteration_update(shard);
    return clock;
}

void sl_shard_worker_left(struct sl_shard *shard, uint32_t worker)
{
    sl_clocks_leave(&shard->clocks, worker);
    sl_shard_iteration_update(shard);
}

void sl_shard_worker_expired(struct sl_shard *shard, uint32_t worker)
{
    if (sl_clocks_is_active(&shard->clocks, worker)) {
        sl_shard_iteration_drop(shard, worker, sl_clocks_of(&shard->clocks, worker));
    }
    sl_clocks_expire(&shard->clocks, worker);
    sl_shard_iteration_update(shard);
}

bool sl_shard_is_unfinished(const struct sl_shard *shard)
{
    return sl_clocks_is_unfinished(&shard->clocks);
}
