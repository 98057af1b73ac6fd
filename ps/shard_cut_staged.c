/* The pushes that BSP keeps aside, in a cut. They do not change, they only go; those that go before
 * they have been copied stay in the ring until then. They are copied queue by queue, in each in the
 * order of arrival: first those that have been committed meanwhile, then those in the queue, then
 * those that have been dropped from its end. */
#include <string.h>

#include "core/assert.h"
#include "ps/shard_cut_internal.h"

#define AHEAD            16 /* records whose keys are fetched before they are read */
#define QUEUES_PER_COST  16 /* empty ones */
#define RECORDS_PER_COST 8  /* whose keys are read */

static bool is_kept(const struct sl_shard *shard, const struct sl_shard_staged *entry)
{
    const struct sl_shard_cut *cut = shard->cut;
    return cut != NULL && !cut->failed && entry->order <= cut->order &&
           entry->put_by != cut->number;
}

/* The entry, unless the cut has none from there on. */
static struct sl_shard_staged *in_cut(const struct sl_shard_cut *cut, struct sl_shard_staged *entry)
{
    return entry != NULL && entry->order <= cut->order ? entry : NULL;
}

void sl_shard_cut_committed(struct sl_shard *shard, struct sl_shard_staged_queue *queue,
                            struct sl_shard_staged *entry)
{
    if (!is_kept(shard, entry)) {
        sl_shard_staging_put(&shard->staging, entry);
        return;
    }
    struct sl_shard_cut *cut = shard->cut;
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

void sl_shard_cut_dropped(struct sl_shard *shard, struct sl_shard_staged_queue *queue,
                          struct sl_shard_staged *entries)
{
    struct sl_shard_staged **end = &queue->dropped;
    struct sl_shard_staged *before = queue->dropped;
    while (entries != NULL) {
        struct sl_shard_staged *entry = entries;
        entries = entry->next;
        if (!is_kept(shard, entry)) {
            sl_shard_staging_put(&shard->staging, entry);
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
            __builtin_prefetch(sl_table_store_record(table->sparse, records[i + AHEAD]));
        }
        keys[i] = sl_table_store_record(table->sparse, records[i])->key;
    }
}

/* Another piece of the entry, as long as a block has room; adds to *spent. */
static void put_piece(struct sl_shard_cut *cut, const struct sl_shard_table *table,
                      const struct sl_shard_staged *entry, uint32_t *spent)
{
    struct sl_image_block *block = sl_cut_stream_block(&cut->staged);
    if (block == NULL) {
        return;
    }
    const uint32_t dim = table->sparse != NULL ? table->spec.dim : 0;
    const struct sl_image_staged piece = {
        .worker = cut->worker,
        .clock = entry->clock,
        .count = entry->count,
        .start = table->sparse != NULL ? 0 : entry->start,
        .first = cut->done,
    };
    uint64_t *keys;
    float *gradients;
    const uint32_t here = sl_image_put_staged(block, &piece, dim, &keys, &gradients);
    if (here == 0) {
        sl_assert(block->count > 0);
        sl_cut_stream_close(&cut->staged);
        return;
    }
    const size_t width = (dim == 0 ? 1 : dim) * sizeof(float);
    memcpy(gradients, entry->gradients + cut->done * (width / sizeof(float)), here * width);
    if (dim != 0) {
        put_keys(table, entry->records + cut->done, here, keys);
        *spent += here / RECORDS_PER_COST;
    }
    cut->done += here;
    *spent += sl_cut_cost(here * width) + 1;
}

/* The entry that was at work is copied: it is the first of where it is. */
static void put_end(struct sl_shard *shard, struct sl_shard_staged_queue *queue,
                    struct sl_shard_staged *entry)
{
    struct sl_shard_cut *cut = shard->cut;
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
    sl_shard_staging_put(&shard->staging, entry);
}

static struct sl_shard_staged *next_of(const struct sl_shard_cut *cut,
                                       const struct sl_shard_staged_queue *queue)
{
    return queue->committed_first != NULL ? queue->committed_first
           : cut->cursor != NULL          ? cut->cursor
                                          : queue->dropped;
}

/* Goes on with one queue; true when it is done. */
static bool run_queue(struct sl_shard *shard, const struct sl_shard_table *table, uint32_t budget,
                      uint32_t *spent)
{
    struct sl_shard_cut *cut = shard->cut;
    struct sl_shard_staged_queue *queue = &table->staged[cut->worker];
    if (!cut->in_queue) {
        cut->in_queue = true;
        cut->cursor = in_cut(cut, queue->first);
    }
    struct sl_shard_staged *entry;
    while ((entry = next_of(cut, queue)) != NULL) {
        if (*spent >= budget || !sl_cut_blocks_have_room(&shard->cut_blocks)) {
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

bool sl_shard_cut_staged_run(struct sl_shard *shard, uint32_t budget, uint32_t *spent)
{
    struct sl_shard_cut *cut = shard->cut;
    for (; cut->part < cut->part_count; cut->part++) {
        const struct sl_shard_cut_part *part = &cut->parts[cut->part];
        if (cut->worker == 0 && !cut->in_queue) {
            sl_cut_stream_init(&cut->staged, &shard->cut_blocks, SL_IMAGE_STAGED, part->table_id,
                               0);
            cut->staged.least_bytes = BLOCK_BYTES;
        }
        for (; cut->worker < part->queue_count; cut->worker++) {
            if (*spent >= budget || !run_queue(shard, part->table, budget, spent)) {
                return false;
            }
            *spent += cut->worker % QUEUES_PER_COST == 0;
        }
        sl_cut_stream_close(&cut->staged);
        cut->worker = 0;
    }
    return true;
}

static void drop_all(struct sl_shard *shard, struct sl_shard_staged **first)
{
    while (*first != NULL) {
        struct sl_shard_staged *entry = *first;
        *first = entry->next;
        sl_shard_staging_put(&shard->staging, entry);
        shard->cut->kept--;
    }
}

void sl_shard_cut_staged_drop(struct sl_shard *shard)
{
    struct sl_shard_cut *cut = shard->cut;
    for (uint32_t i = 0; i < cut->part_count && cut->kept > 0; i++) {
        const struct sl_shard_cut_part *part = &cut->parts[i];
        for (uint32_t worker = 0; worker < part->queue_count; worker++) {
            drop_all(shard, &part->table->staged[worker].committed_first);
            drop_all(shard, &part->table->staged[worker].dropped);
        }
    }
    sl_assert(cut->kept == 0);
    sl_cut_stream_drop(&cut->staged);
}
