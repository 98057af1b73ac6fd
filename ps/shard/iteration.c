/* BSP: applies buffered pushes once every worker has finished their iteration. The order is
 * iteration, worker, arrival. */
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "ps/shard/evict.h"
#include "ps/shard/iteration.h"
#include "ps/shard/lookup.h"
#include "ps/shard/section.h"
#include "ps/shard/snapshot_hooks.h"

int sl_shard_iteration_reserve(struct sl_shard_table *table, uint32_t queue_count)
{
    if (queue_count <= table->queue_count) {
        return 0;
    }
    struct sl_shard_push_buffer_queue *queues =
        realloc(table->buffered, queue_count * sizeof *table->buffered);
    if (queues == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    memset(queues + table->queue_count, 0,
           (queue_count - table->queue_count) * sizeof *table->buffered);
    table->buffered = queues;
    table->queue_count = queue_count;
    return 0;
}

void sl_shard_iteration_add(struct sl_shard *shard, struct sl_shard_table *table, uint32_t worker,
                            struct sl_shard_buffered_push *entry)
{
    struct sl_shard_push_buffer_queue *queue = &table->buffered[worker];
    if (queue->first == NULL) {
        queue->first = entry;
    } else {
        queue->last->next = entry;
    }
    queue->last = entry;
    table->holds_erased &= table->buffered_count > 0;
    entry->order = ++shard->snapshots.order_last;
    table->buffered_count++;
}

/* A queue's clocks ascend, so the entries to drop are at its end. */
static void queue_drop(struct sl_shard *shard, struct sl_shard_table *table, uint32_t worker,
                       uint32_t clock)
{
    struct sl_shard_push_buffer_queue *queue = &table->buffered[worker];
    struct sl_shard_buffered_push *kept = NULL;
    struct sl_shard_buffered_push *entry = queue->first;
    while (entry != NULL && entry->clock < clock) {
        kept = entry;
        entry = entry->next;
    }
    if (kept == NULL) {
        queue->first = NULL;
    } else {
        kept->next = NULL;
    }
    queue->last = kept;
    for (const struct sl_shard_buffered_push *dropped = entry; dropped != NULL;
         dropped = dropped->next) {
        sl_assert(dropped->clock >= sl_clocks_min(&shard->clocks, table->clock_group));
        table->buffered_count--;
    }
    sl_shard_snapshot_dropped(shard, queue, entry);
}

void sl_shard_iteration_drop_table(struct sl_shard *shard, struct sl_shard_table *table)
{
    for (uint32_t worker = 0; worker < table->queue_count; worker++) {
        queue_drop(shard, table, worker, 0);
    }
}

void sl_shard_iteration_drop(struct sl_shard *shard, uint32_t worker, uint32_t clock)
{
    for (uint32_t i = 0; i < shard->table_count; i++) {
        struct sl_shard_table *table = shard->tables[i];
        if (table != NULL && worker < table->queue_count) {
            queue_drop(shard, table, worker, clock);
        }
    }
}

/* Returns the smallest clock of the table's buffered pushes, which is at the front of a queue. */
static uint32_t least_clock(const struct sl_shard_table *table)
{
    uint32_t least = SL_CLOCKS_FINISHED;
    for (uint32_t worker = 0; worker < table->queue_count; worker++) {
        const struct sl_shard_buffered_push *first = table->buffered[worker].first;
        if (first != NULL && first->clock < least) {
            least = first->clock;
        }
    }
    return least;
}

void sl_shard_iteration_update(struct sl_shard *shard)
{
    struct sl_shard_iteration_state next = {.clock = SL_CLOCKS_FINISHED};
    if (shard->iteration.due) {
        return;
    }
    for (uint32_t i = 0; i < shard->table_count;
         i++) { /* an iteration of all tables, then the next */
        const struct sl_shard_table *table = shard->tables[i];
        if (table == NULL || table->buffered_count == 0) {
            continue;
        }
        uint32_t clock = least_clock(table);
        if (clock < sl_clocks_min(&shard->clocks, table->clock_group) && clock < next.clock) {
            next = (struct sl_shard_iteration_state){
                .due = true, .table_id = i, .clock = clock, .step_before = table->step};
        }
    }
    if (next.due) {
        shard->iteration = next;
    }
}

bool sl_shard_iteration_due(const struct sl_shard *shard)
{
    return shard->iteration.due;
}

/* Applies some records or elements of the entry and returns their number. */
static uint64_t apply_some(struct sl_shard *shard, struct sl_shard_table *table,
                           struct sl_shard_buffered_push *entry, struct sl_shard_slice *slice)
{
    const struct sl_shard_iteration_state *iteration = &shard->iteration;
    uint32_t left = sl_shard_slice_left(slice);
    if (table->dense != NULL) {
        uint64_t at = entry->start + iteration->done;
        uint64_t count = sl_shard_dense_step(at, entry->start + entry->count, left);
        sl_dense_table_apply(table->dense, at, count, entry->gradients + iteration->done,
                             &iteration->push);
        slice->spent += (uint32_t)sl_shard_dense_cost(count);
        return count;
    }
    uint64_t count = entry->count - iteration->done;
    uint64_t paid = (uint64_t)left / table->key_cost + 1;
    count = count < paid ? count : paid;
    uint32_t *records = entry->records + iteration->done;
    if (table->holds_erased) {
        const int err = sl_shard_find_again(shard, table, records, (uint32_t)count);
        sl_assert(err == 0); /* an acknowledged push cannot fail */
    }
    sl_sparse_table_apply(table->sparse, records, (uint32_t)count,
                          entry->gradients + iteration->done * table->spec.dim, &iteration->push);
    slice->spent += (uint32_t)count * table->key_cost;
    return count;
}

/* Continues the first entry of the current worker; removes it from the queue when it is done. */
static void apply_entry(struct sl_shard *shard, struct sl_shard_table *table,
                        struct sl_shard_slice *slice)
{
    struct sl_shard_iteration_state *iteration = &shard->iteration;
    struct sl_shard_push_buffer_queue *queue = &table->buffered[iteration->worker];
    struct sl_shard_buffered_push *entry = queue->first;
    if (!iteration->in_entry) {
        iteration->in_entry = iteration->begun = true;
        iteration->done = 0;
        iteration->push = sl_shard_next_push(table, entry->rate);
        slice->spent++;
    }
    iteration->done += apply_some(shard, table, entry, slice);
    if (iteration->done < entry->count) {
        return;
    }
    if (table->optimizer->end_push != NULL) {
        table->optimizer->end_push(&table->spec.optimizer, &table->state);
    }
    iteration->in_entry = false;
    table->pushed_rows += entry->count;
    table->buffered_count--;
    queue->first = entry->next;
    sl_shard_snapshot_iteration_applied(shard, queue, entry);
}

/* A pending snapshot delays the iteration, unless the snapshot waits for a push that waits for the
 * iteration. */
static bool is_held(const struct sl_shard *shard)
{
    const struct sl_shard_snapshots *snapshots = &shard->snapshots;
    return (snapshots->wanted ||
            (snapshots->holds && shard->iteration.clock >= snapshots->hold_clock)) &&
           snapshots->pushes_in_part == 0 && !shard->iteration.begun;
}

uint32_t sl_shard_apply_iteration(struct sl_shard *shard, uint32_t budget)
{
    struct sl_shard_iteration_state *iteration = &shard->iteration;
    struct sl_shard_slice slice = {.budget = budget};
    while (iteration->due && sl_shard_slice_left(&slice) > 0 && !is_held(shard)) {
        struct sl_shard_table *table = shard->tables[iteration->table_id];
        if (iteration->worker == table->queue_count) {
            if (!sl_shard_evict_at_commit(shard, table, iteration->step_before, slice.budget,
                                          &slice.spent)) {
                break;
            }
            /* this iteration of this table is complete; others may be due */
            const bool begun = iteration->begun;
            const uint32_t clock = iteration->clock;
            iteration->due = false;
            sl_shard_iteration_update(shard);
            iteration->begun = begun && iteration->due && iteration->clock == clock;
            continue;
        }
        const struct sl_shard_buffered_push *first = table->buffered[iteration->worker].first;
        if (first == NULL || first->clock != iteration->clock) {
            iteration->worker++;
            continue;
        }
        apply_entry(shard, table, &slice);
    }
    return slice.spent + sl_shard_snapshot_copy_debt(shard);
}
