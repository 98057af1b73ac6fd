/* The pushes that BSP keeps aside, in a cut. They do not change, they only go; those that go before
 * they have been copied stay in the ring until then. They are copied queue by queue, in each in the
 * order of arrival: first those that have been committed meanwhile, then those in the queue, then
 * those that have been dropped from its end. */
#include <string.h>

#include "core/assert.h"
#include "ps/shard/snapshot_internal.h"

#define AHEAD            16 /* records whose keys are fetched before they are read */
#define QUEUES_PER_COST  16 /* empty ones */
#define RECORDS_PER_COST 8  /* whose keys are read */

static bool is_kept(const struct sl_shard *shard, const struct sl_shard_buffered_push *entry)
{
    const struct sl_shard_snapshot *cut = shard->cut;
    return cut != NULL && !cut->failed && entry->order <= cut->order &&
           entry->put_by != cut->number;
}

/* The entry, unless the cut has none from there on. */
static struct sl_shard_buffered_push *in_cut(const struct sl_shard_snapshot *cut,
                                             struct sl_shard_buffered_push *entry)
{
    return entry != NULL && entry->order <= cut->order ? entry : NULL;
}

void sl_shard_snapshot_iteration_applied(struct sl_shard *shard,
                                         struct sl_shard_push_buffer_queue *queue,
                                         struct sl_shard_buffered_push *entry)
{
    if (!is_kept(shard, entry)) {
        sl_shard_push_buffer_put(&shard->staging, entry);
        return;
    }
    struct sl_shard_snapshot *cut = shard->cut;
    cut->kept++;
    if (cut->cursor == entry) {
        cut->cursor = in_cut(cut, entry->next);
    }
    entry->next = NULL;
    if (queue->committed_first == NULL) {
        queue->committed_first = entry;
    } else {
        queue->committed_last->next = entry;
    }
    queue->committed_last = entry;
}

void sl_shard_snapshot_dropped(struct sl_shard *shard, struct sl_shard_push_buffer_queue *queue,
                               struct sl_shard_buffered_push *entries)
{
    struct sl_shard_buffered_push **end = &queue->dropped;
    struct sl_shard_buffered_push *before = queue->dropped;
    while (entries != NULL) {
        struct sl_shard_buffered_push *entry = entries;
        entries = entry->next;
        if (!is_kept(shard, entry)) {
            sl_shard_push_buffer_put(&shard->staging, entry);
            continue;
        }
        shard->cut->kept++;
        if (shard->cut->cursor == entry) {
            shard->cut->cursor = NULL; /* all behind it go too */
        }
        *end = entry;
        end = &entry->next;
    }
    *end = before;
}

/* ---- Copying --------------------------------------------------------------------------------- */

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

/* Another piece of the entry, as long as a block has room; adds to *spent. */
static void put_piece(struct sl_shard_snapshot *cut, const struct sl_shard_table *table,
                      const struct sl_shard_buffered_push *entry, uint32_t *spent)
{
    struct sl_snapshot_block *block = sl_snapshot_appender_block(&cut->staged);
    if (block == NULL) {
        return;
    }
    const uint32_t dim = table->sparse != NULL ? table->spec.dim : 0;
    const struct sl_snapshot_buffered_push piece = {
        .worker = cut->worker,
        .clock = entry->clock,
        .count = entry->count,
        .start = table->sparse != NULL ? 0 : entry->start,
        .first = cut->done,
    };
    uint64_t *keys;
    float *gradients;
    const uint32_t here = sl_snapshot_put_buffered_push(block, &piece, dim, &keys, &gradients);
    if (here == 0) {
        sl_assert(block->count > 0);
        sl_snapshot_appender_close(&cut->staged);
        return;
    }
    const size_t width = (dim == 0 ? 1 : dim) * sizeof(float);
    memcpy(gradients, entry->gradients + cut->done * (width / sizeof(float)), here * width);
    if (dim != 0) {
        put_keys(table, entry->records + cut->done, here, keys);
        *spent += here / RECORDS_PER_COST;
    }
    cut->done += here;
    *spent += sl_snapshot_cost(here * width) + 1;
}

/* The entry that was at work is copied: it is the first of where it is. */
static void put_end(struct sl_shard *shard, struct sl_shard_push_buffer_queue *queue,
                    struct sl_shard_buffered_push *entry)
{
    struct sl_shard_snapshot *cut = shard->cut;
    entry->put_by = cut->number;
    cut->done = 0;
    if (entry == cut->cursor) {
        cut->cursor = in_cut(cut, entry->next);
        return;
    }
    if (entry == queue->committed_first) {
        queue->committed_first = entry->next;
    } else {
        queue->dropped = entry->next;
    }
    cut->kept--;
    sl_shard_push_buffer_put(&shard->staging, entry);
}

static struct sl_shard_buffered_push *next_of(const struct sl_shard_snapshot *cut,
                                              const struct sl_shard_push_buffer_queue *queue)
{
    return queue->committed_first != NULL ? queue->committed_first
           : cut->cursor != NULL          ? cut->cursor
                                          : queue->dropped;
}

/* Goes on with one queue; true when it is done. */
static bool run_queue(struct sl_shard *shard, const struct sl_shard_table *table, uint32_t budget,
                      uint32_t *spent)
{
    struct sl_shard_snapshot *cut = shard->cut;
    struct sl_shard_push_buffer_queue *queue = &table->staged[cut->worker];
    if (!cut->in_queue) {
        cut->in_queue = true;
        cut->cursor = in_cut(cut, queue->first);
    }
    struct sl_shard_buffered_push *entry;
    while ((entry = next_of(cut, queue)) != NULL) {
        if (*spent >= budget || !sl_snapshot_builder_have_room(&shard->cut_blocks)) {
            return false;
        }
        put_piece(cut, table, entry, spent);
        if (cut->done == entry->count) {
            put_end(shard, queue, entry);
        }
    }
    cut->in_queue = false;
    return true;
}

/* A block of these is short, since one piece is as long as a block. */
#define BLOCK_BYTES (64U << 10)

bool sl_shard_snapshot_buffered_run(struct sl_shard *shard, uint32_t budget, uint32_t *spent)
{
    struct sl_shard_snapshot *cut = shard->cut;
    for (; cut->part < cut->part_count; cut->part++) {
        const struct sl_shard_snapshot_part *part = &cut->parts[cut->part];
        if (cut->worker == 0 && !cut->in_queue) {
            sl_snapshot_appender_init(&cut->staged, &shard->cut_blocks, SL_SNAPSHOT_BUFFERED_PUSH,
                                      part->table_id, 0);
            cut->staged.least_bytes = BLOCK_BYTES;
        }
        for (; cut->worker < part->queue_count; cut->worker++) {
            if (*spent >= budget || !run_queue(shard, part->table, budget, spent)) {
                return false;
            }
            *spent += cut->worker % QUEUES_PER_COST == 0;
        }
        sl_snapshot_appender_close(&cut->staged);
        cut->worker = 0;
    }
    return true;
}

static void drop_all(struct sl_shard *shard, struct sl_shard_buffered_push **first)
{
    while (*first != NULL) {
        struct sl_shard_buffered_push *entry = *first;
        *first = entry->next;
        sl_shard_push_buffer_put(&shard->staging, entry);
        shard->cut->kept--;
    }
}

void sl_shard_snapshot_buffered_drop(struct sl_shard *shard)
{
    struct sl_shard_snapshot *cut = shard->cut;
    for (uint32_t i = 0; i < cut->part_count && cut->kept > 0; i++) {
        const struct sl_shard_snapshot_part *part = &cut->parts[i];
        for (uint32_t worker = 0; worker < part->queue_count; worker++) {
            drop_all(shard, &part->table->staged[worker].committed_first);
            drop_all(shard, &part->table->staged[worker].dropped);
        }
    }
    sl_assert(cut->kept == 0);
    sl_snapshot_appender_drop(&cut->staged);
}
