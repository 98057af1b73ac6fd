/* Copies buffered BSP pushes for a snapshot. They never change; they only leave their queues, and
 * stay in the ring until copied. Each queue is copied in order of arrival: pushes applied
 * meanwhile, then those in the queue, then those dropped from its end. */
#include <string.h>

#include "core/assert.h"
#include "ps/shard/snapshot_internal.h"

#define AHEAD            16 /* prefetch distance in records */
#define QUEUES_PER_COST  16 /* empty queues */
#define RECORDS_PER_COST 8  /* records whose keys are read */

static bool snapshot_buffered_is_kept(const struct sl_shard *shard,
                                      const struct sl_shard_buffered_push *entry)
{
    const struct sl_shard_snapshot *snapshot = shard->snapshots.current;
    return snapshot != NULL && !snapshot->failed && entry->order <= snapshot->order &&
           entry->put_by != snapshot->number;
}

/* Returns the entry, or NULL when it and all later ones came after the snapshot. */
static struct sl_shard_buffered_push *in_snapshot(const struct sl_shard_snapshot *snapshot,
                                                  struct sl_shard_buffered_push *entry)
{
    return entry != NULL && entry->order <= snapshot->order ? entry : NULL;
}

void sl_shard_snapshot_iteration_applied(struct sl_shard *shard,
                                         struct sl_shard_push_buffer_queue *queue,
                                         struct sl_shard_buffered_push *entry)
{
    if (!snapshot_buffered_is_kept(shard, entry)) {
        sl_shard_push_buffer_put(&shard->push_buffer, entry);
        return;
    }
    struct sl_shard_snapshot *snapshot = shard->snapshots.current;
    snapshot->kept++;
    if (snapshot->cursor == entry) {
        snapshot->cursor = in_snapshot(snapshot, entry->next);
    }
    entry->next = NULL;
    if (queue->applied_first == NULL) {
        queue->applied_first = entry;
    } else {
        queue->applied_last->next = entry;
    }
    queue->applied_last = entry;
}

void sl_shard_snapshot_dropped(struct sl_shard *shard, struct sl_shard_push_buffer_queue *queue,
                               struct sl_shard_buffered_push *entries)
{
    struct sl_shard_buffered_push **end = &queue->dropped;
    struct sl_shard_buffered_push *before = queue->dropped;
    while (entries != NULL) {
        struct sl_shard_buffered_push *entry = entries;
        entries = entry->next;
        if (!snapshot_buffered_is_kept(shard, entry)) {
            sl_shard_push_buffer_put(&shard->push_buffer, entry);
            continue;
        }
        shard->snapshots.current->kept++;
        if (shard->snapshots.current->cursor == entry) {
            shard->snapshots.current->cursor = NULL; /* all later entries are dropped too */
        }
        *end = entry;
        end = &entry->next;
    }
    *end = before;
}

/* Copying */

static void put_keys(const struct sl_shard_table *table, const uint32_t *records, uint32_t count,
                     uint64_t *keys)
{
    for (uint32_t i = 0; i < count; i++) {
        if (count - i > AHEAD) {
            __builtin_prefetch(sl_sparse_table_record(table->sparse, records[i + AHEAD]));
        }
        keys[i] = sl_sparse_table_record(table->sparse, records[i])->key;
    }
}

/* Copies another piece of the entry, as far as a block has room. Adds to *spent. */
static void put_piece(struct sl_shard_snapshot *snapshot, const struct sl_shard_table *table,
                      const struct sl_shard_buffered_push *entry, uint32_t *spent)
{
    struct sl_snapshot_block *block = sl_snapshot_appender_block(&snapshot->buffered);
    if (block == NULL) {
        return;
    }
    const uint32_t dim = table->sparse != NULL ? table->spec.dim : 0;
    const struct sl_snapshot_buffered_push piece = {
        .worker = snapshot->worker,
        .clock = entry->clock,
        .count = entry->count,
        .start = table->sparse != NULL ? 0 : entry->start,
        .first = snapshot->done,
        .rate = entry->rate,
    };
    uint64_t *keys;
    float *gradients;
    const uint32_t here = sl_snapshot_put_buffered_push(block, &piece, dim, &keys, &gradients);
    if (here == 0) {
        sl_assert(block->count > 0);
        sl_snapshot_appender_close(&snapshot->buffered);
        return;
    }
    const size_t width = (dim == 0 ? 1 : dim) * sizeof(float);
    memcpy(gradients, entry->gradients + snapshot->done * (width / sizeof(float)), here * width);
    if (dim != 0) {
        put_keys(table, entry->records + snapshot->done, here, keys);
        *spent += here / RECORDS_PER_COST;
    }
    snapshot->done += here;
    *spent += sl_snapshot_cost(here * width) + 1;
}

/* Finishes the current entry, which is the first of its list. */
static void put_end(struct sl_shard *shard, struct sl_shard_push_buffer_queue *queue,
                    struct sl_shard_buffered_push *entry)
{
    struct sl_shard_snapshot *snapshot = shard->snapshots.current;
    entry->put_by = snapshot->number;
    snapshot->done = 0;
    if (entry == snapshot->cursor) {
        snapshot->cursor = in_snapshot(snapshot, entry->next);
        return;
    }
    if (entry == queue->applied_first) {
        queue->applied_first = entry->next;
    } else {
        queue->dropped = entry->next;
    }
    snapshot->kept--;
    sl_shard_push_buffer_put(&shard->push_buffer, entry);
}

static struct sl_shard_buffered_push *next_of(const struct sl_shard_snapshot *snapshot,
                                              const struct sl_shard_push_buffer_queue *queue)
{
    return queue->applied_first != NULL ? queue->applied_first
           : snapshot->cursor != NULL   ? snapshot->cursor
                                        : queue->dropped;
}

/* Continues one queue; returns true when it is done. */
static bool run_queue(struct sl_shard *shard, const struct sl_shard_table *table, uint32_t budget,
                      uint32_t *spent)
{
    struct sl_shard_snapshot *snapshot = shard->snapshots.current;
    struct sl_shard_push_buffer_queue *queue = &table->buffered[snapshot->worker];
    if (!snapshot->in_queue) {
        snapshot->in_queue = true;
        snapshot->cursor = in_snapshot(snapshot, queue->first);
    }
    struct sl_shard_buffered_push *entry;
    while ((entry = next_of(snapshot, queue)) != NULL) {
        if (*spent >= budget || !sl_snapshot_builder_have_room(&shard->snapshots.blocks)) {
            return false;
        }
        put_piece(snapshot, table, entry, spent);
        if (snapshot->done == entry->count) {
            put_end(shard, queue, entry);
        }
    }
    snapshot->in_queue = false;
    return true;
}

/* Small blocks, because one piece may fill a block. */
#define BLOCK_BYTES (64U << 10)

bool sl_shard_snapshot_buffered_run(struct sl_shard *shard, uint32_t budget, uint32_t *spent)
{
    struct sl_shard_snapshot *snapshot = shard->snapshots.current;
    for (; snapshot->part < snapshot->part_count; snapshot->part++) {
        const struct sl_shard_snapshot_part *part = &snapshot->parts[snapshot->part];
        if (snapshot->worker == 0 && !snapshot->in_queue) {
            sl_snapshot_appender_init(&snapshot->buffered, &shard->snapshots.blocks,
                                      SL_SNAPSHOT_BUFFERED_PUSH, part->table_id, 0);
            snapshot->buffered.least_bytes = BLOCK_BYTES;
        }
        for (; snapshot->worker < part->queue_count; snapshot->worker++) {
            if (*spent >= budget || !run_queue(shard, part->table, budget, spent)) {
                return false;
            }
            *spent += snapshot->worker % QUEUES_PER_COST == 0;
        }
        sl_snapshot_appender_close(&snapshot->buffered);
        snapshot->worker = 0;
    }
    return true;
}

static void drop_all(struct sl_shard *shard, struct sl_shard_buffered_push **first)
{
    while (*first != NULL) {
        struct sl_shard_buffered_push *entry = *first;
        *first = entry->next;
        sl_shard_push_buffer_put(&shard->push_buffer, entry);
        shard->snapshots.current->kept--;
    }
}

void sl_shard_snapshot_buffered_drop(struct sl_shard *shard)
{
    struct sl_shard_snapshot *snapshot = shard->snapshots.current;
    for (uint32_t i = 0; i < snapshot->part_count && snapshot->kept > 0; i++) {
        const struct sl_shard_snapshot_part *part = &snapshot->parts[i];
        for (uint32_t worker = 0; worker < part->queue_count; worker++) {
            drop_all(shard, &part->table->buffered[worker].applied_first);
            drop_all(shard, &part->table->buffered[worker].dropped);
        }
    }
    sl_assert(snapshot->kept == 0);
    sl_snapshot_appender_drop(&snapshot->buffered);
}
