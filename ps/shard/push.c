/* Push part of a section: looks up records and sums gradients of repeated keys. Then it applies
 * each record once, or buffers the push until the iteration is complete. */
#include <string.h>

#include "core/assert.h"
#include "core/partition.h"
#include "ps/shard/internal.h"

/* Finding a repeat costs about an eighth of a visit. */
#define COLLECT_KEYS_PER_COST 8

static bool is_small(const struct sl_shard_table *table, const struct sl_shard_exec *work)
{
    return table->sparse != NULL && sl_shard_push_is_small(&work->view.section, table->spec.dim);
}

static int stage_begin(struct sl_shard *shard, const struct sl_shard_table *table,
                       struct sl_shard_exec *work, struct sl_shard_slice *slice)
{
    const struct sl_request_section *section = &work->view.section;
    uint32_t clock = sl_clocks_of(&shard->clocks, work->caller.worker);
    if (work->prefix.clock != clock) {
        return sl_shard_fail(shard, work, slice, SL_ERR_PROTOCOL,
                             "a push of iteration %u by worker/%u, which is at iteration %u",
                             work->prefix.clock, work->caller.worker, clock);
    }
    if (work->caller.worker >= table->queue_count) {
        return sl_shard_fail(shard, work, slice, SL_ERR_NO_MEMORY,
                             "no memory to buffer pushes of worker/%u", work->caller.worker);
    }
    uint64_t floats =
        table->sparse != NULL ? (uint64_t)section->key_count * table->spec.dim : section->count;
    struct sl_shard_buffered_push *buffered =
        sl_shard_push_buffer_get(&shard->push_buffer, section->key_count, floats);
    if (buffered == NULL && sl_shard_snapshot_yield(shard)) {
        buffered = sl_shard_push_buffer_get(&shard->push_buffer, section->key_count, floats);
    }
    if (buffered == NULL) {
        return sl_shard_fail(shard, work, slice, SL_ERR_NO_MEMORY,
                             "pushes that wait for other workers fill the %zu bytes reserved",
                             shard->push_buffer.bytes_max);
    }
    sl_clocks_pushed(&shard->clocks, work->caller.worker);
    buffered->clock = clock;
    buffered->start = section->start;
    work->buffered = buffered;
    work->records = buffered->records;
    work->sums = buffered->gradients;
    return SL_SHARD_DONE;
}

int sl_shard_push_begin(struct sl_shard *shard, struct sl_shard_table *table,
                        struct sl_shard_exec *work, struct sl_shard_slice *slice)
{
    struct sl_shard_scratch *scratch = NULL;
    if (table->sparse != NULL) {
        scratch = is_small(table, work) ? &shard->small : &shard->large;
        if (scratch->owner != NULL) {
            sl_assert(scratch == &shard->large);
            return SL_SHARD_AGAIN;
        }
        work->records = scratch->records;
    }
    work->sums = NULL;
    work->distinct = 0;
    work->done = 0;
    bool is_empty = table->sparse != NULL && work->view.section.key_count == 0;
    if (!is_empty && sl_shard_buffers_pushes(shard, table, &work->caller)) {
        int err = stage_begin(shard, table, work, slice);
        if (err != 0) {
            return err;
        }
    }
    if (scratch != NULL) {
        sl_shard_scratch_begin(scratch, work->view.section.key_count);
        scratch->owner = work;
        work->scratch = scratch;
    }
    return SL_SHARD_DONE;
}

static void scratch_put(struct sl_shard_exec *work)
{
    if (work->scratch != NULL) {
        work->scratch->owner = NULL;
        work->scratch = NULL;
    }
}

void sl_shard_push_drop(struct sl_shard *shard, struct sl_shard_exec *work)
{
    sl_shard_kv_drop(shard, work);
    sl_shard_part_end(shard, work);
    scratch_put(work);
    if (work->buffered != NULL) {
        sl_shard_push_buffer_put(&shard->push_buffer, work->buffered);
        work->buffered = NULL;
    }
}

static void add_row(float *restrict sum, const float *restrict row, uint32_t dim)
{
    for (uint32_t i = 0; i < dim; i++) {
        sum[i] += row[i];
    }
}

/* Adds one key's record and gradient. The request's own gradients are used until a key repeats. The
 * first repeat copies those so far to `sums`. */
static void collect_record(struct sl_shard_exec *work, uint32_t dim, uint32_t record,
                           const float *gradient)
{
    uint32_t at = sl_shard_scratch_find(work->scratch, work->records, record, work->distinct);
    bool repeats = at < work->distinct;
    if (repeats && work->sums == NULL) {
        work->sums = work->scratch->gradients;
        memcpy(work->sums, work->view.gradients, (size_t)work->distinct * dim * sizeof(float));
    }
    if (repeats) {
        add_row(work->sums + (size_t)at * dim, gradient, dim);
        return;
    }
    work->records[at] = record;
    if (work->sums != NULL) {
        memcpy(work->sums + (size_t)at * dim, gradient, dim * sizeof(float));
    }
    work->distinct++;
}

static int collect_sparse(struct sl_shard *shard, struct sl_shard_table *table,
                          struct sl_shard_exec *work, struct sl_shard_slice *slice)
{
    uint32_t records[SL_SHARD_BATCH_KEYS];
    uint32_t dim = table->spec.dim;
    uint32_t key_count = work->view.section.key_count;
    while (work->done < key_count) {
        uint32_t left = sl_shard_slice_left(slice);
        if (left == 0 && !is_small(table, work)) {
            return SL_SHARD_AGAIN;
        }
        uint32_t count = sl_shard_batch(key_count - work->done, UINT32_MAX);
        int err = sl_shard_lookup(shard, table, work, slice, work->view.keys + work->done, count,
                                  records);
        if (err != 0) {
            return err;
        }
        const float *gradients = work->view.gradients + work->done * dim;
        for (uint32_t i = 0; i < count; i++) {
            collect_record(work, dim, records[i], gradients + (size_t)i * dim);
        }
        work->done += count;
        slice->spent += (count + COLLECT_KEYS_PER_COST - 1) / COLLECT_KEYS_PER_COST;
    }
    return SL_SHARD_DONE;
}

uint64_t sl_shard_push_dense_step(uint64_t at, uint64_t end, uint32_t left)
{
    uint64_t count = (uint64_t)left * SL_SHARD_ELEMENTS_PER_KEY;
    count = count < SL_PARTITION_BLOCK_ELEMENTS ? SL_PARTITION_BLOCK_ELEMENTS : count;
    if (count >= end - at) {
        return end - at;
    }
    uint64_t stop = at + count;
    return stop - stop % SL_PARTITION_BLOCK_ELEMENTS - at;
}

/* Only a buffered dense push is copied; there are no keys to look up. */
static int collect_dense(struct sl_shard_exec *work, struct sl_shard_slice *slice)
{
    while (work->buffered != NULL && work->done < work->view.section.count) {
        uint32_t left = sl_shard_slice_left(slice);
        if (left == 0) {
            return SL_SHARD_AGAIN;
        }
        uint64_t count = sl_shard_push_dense_step(work->done, work->view.section.count, left);
        memcpy(work->buffered->gradients + work->done, work->view.gradients + work->done,
               count * sizeof(float));
        work->done += count;
        slice->spent += (uint32_t)(count / SL_SHARD_ELEMENTS_PER_KEY) + 1;
    }
    return SL_SHARD_DONE;
}

/* Queues the complete entry. */
static void stage_end(struct sl_shard *shard, struct sl_shard_table *table,
                      struct sl_shard_exec *work)
{
    struct sl_shard_buffered_push *buffered = work->buffered;
    buffered->count = table->sparse != NULL ? work->distinct : (uint32_t)work->view.section.count;
    if (table->sparse != NULL) {
        sl_shard_push_buffer_trim(&shard->push_buffer, buffered, buffered->count * table->spec.dim);
    }
    if (sl_clocks_is_expired(&shard->clocks, work->caller.worker)) {
        sl_shard_push_drop(shard, work);
        return;
    }
    work->buffered = NULL;
    scratch_put(work);
    sl_shard_iteration_add(shard, table, work->caller.worker, buffered);
    if (buffered->clock < sl_clocks_min(&shard->clocks, table->clock_group)) {
        sl_shard_iteration_update(shard); /* the worker left before the push was complete */
    }
}

static int apply_sparse(struct sl_shard_table *table, struct sl_shard_exec *work,
                        struct sl_shard_slice *slice)
{
    const float *gradients = work->sums != NULL ? work->sums : work->view.gradients;
    while (work->done < work->distinct) {
        uint32_t left = sl_shard_slice_left(slice);
        if (left == 0 && !is_small(table, work)) {
            return SL_SHARD_AGAIN;
        }
        uint64_t count = work->distinct - work->done;
        uint64_t paid = (uint64_t)left / table->key_cost + 1;
        count = is_small(table, work) || count < paid ? count : paid;
        sl_sparse_table_apply(table->sparse, work->records + work->done, (uint32_t)count,
                              gradients + work->done * table->spec.dim, &work->state, work->step);
        work->done += count;
        slice->spent += (uint32_t)count * table->key_cost;
    }
    return SL_SHARD_DONE;
}

static int apply_dense(struct sl_shard_table *table, struct sl_shard_exec *work,
                       struct sl_shard_slice *slice)
{
    const struct sl_request_section *section = &work->view.section;
    while (work->done < section->count) {
        uint32_t left = sl_shard_slice_left(slice);
        if (left == 0) {
            return SL_SHARD_AGAIN;
        }
        uint64_t at = section->start + work->done;
        uint64_t count = sl_shard_push_dense_step(at, section->start + section->count, left);
        sl_dense_table_apply(table->dense, at, count, work->view.gradients + work->done,
                             &work->state, work->step);
        work->done += count;
        slice->spent += (uint32_t)(count / SL_SHARD_ELEMENTS_PER_KEY) + 1;
    }
    return SL_SHARD_DONE;
}

/* While a snapshot is pending, no push starts that needs another slice. */
static bool is_held(const struct sl_shard *shard, const struct sl_shard_table *table,
                    const struct sl_shard_exec *work, const struct sl_shard_slice *slice)
{
    const uint64_t cost = table->sparse != NULL
                              ? (uint64_t)work->distinct * table->key_cost
                              : work->view.section.count / SL_SHARD_ELEMENTS_PER_KEY + 1;
    return work->scratch != &shard->small && cost > sl_shard_slice_left(slice);
}

static void apply_end(struct sl_shard *shard, struct sl_shard_table *table,
                      struct sl_shard_exec *work)
{
    sl_shard_part_end(shard, work);
    if (table->optimizer->end_push != NULL) {
        table->optimizer->end_push(&table->spec.optimizer, &table->state);
    }
    table->pushed_rows += table->sparse != NULL ? work->distinct : work->view.section.count;
    scratch_put(work);
}

int sl_shard_push_run(struct sl_shard *shard, struct sl_shard_table *table,
                      struct sl_shard_exec *work, struct sl_shard_slice *slice)
{
    if (work->phase == SL_SHARD_PHASE_COLLECT) {
        int result = table->sparse != NULL ? collect_sparse(shard, table, work, slice)
                                           : collect_dense(work, slice);
        if (result != SL_SHARD_DONE) {
            return result;
        }
        if (work->buffered != NULL) {
            stage_end(shard, table, work);
            return SL_SHARD_DONE;
        }
        if (table->sparse != NULL && work->distinct == 0) {
            scratch_put(work);
            return SL_SHARD_DONE;
        }
        if (shard->snapshots.wanted && is_held(shard, table, work, slice)) {
            return SL_SHARD_AGAIN;
        }
        work->phase = SL_SHARD_PHASE_APPLY;
        work->done = 0;
        work->step = ++table->step;
        work->state = table->state;
    }
    int result =
        table->sparse != NULL ? apply_sparse(table, work, slice) : apply_dense(table, work, slice);
    slice->spent += sl_shard_snapshot_copy_debt(shard);
    if (result == SL_SHARD_DONE) {
        apply_end(shard, table, work);
    } else {
        sl_shard_part_begin(shard, work);
    }
    return result;
}
