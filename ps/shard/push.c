/* Push part of a section: looks up records and sums gradients of repeated keys. Then it applies
 * each record once, or buffers the push until the iteration is complete. An assign goes the same
 * way, but is never buffered: buffered pushes follow it at their commit. */
#include <string.h>

#include "core/assert.h"
#include "core/partition.h"
#include "ps/shard/admit.h"
#include "ps/shard/iteration.h"
#include "ps/shard/key_admission.h"
#include "ps/shard/kv.h"
#include "ps/shard/lookup.h"
#include "ps/shard/push.h"
#include "ps/shard/snapshot_hooks.h"

/* Finding a repeat costs about an eighth of a visit. */
#define COLLECT_KEYS_PER_COST 8
#define TIDY_RECORDS          256 /* after erases, at the start of each push */

static bool push_is_small(const struct sl_shard_table *table,
                          const struct sl_shard_request *request)
{
    return table->sparse != NULL && sl_shard_push_is_small(&request->view.section, table->spec.dim);
}

static bool assigns(const struct sl_shard_request *request)
{
    return sl_shard_op_assigns(request->view.section.op);
}

static int buffer_begin(struct sl_shard *shard, const struct sl_shard_table *table,
                        struct sl_shard_request *request, struct sl_shard_slice *slice)
{
    const struct sl_request_section *section = &request->view.section;
    uint32_t clock = sl_clocks_of(&shard->clocks, request->caller.worker);
    if (request->prefix.clock != clock) {
        return sl_shard_fail(shard, request, slice, SL_ERR_PROTOCOL,
                             "a push of iteration %u by worker/%u, which is at iteration %u",
                             request->prefix.clock, request->caller.worker, clock);
    }
    if (request->caller.worker >= table->queue_count) {
        return sl_shard_fail(shard, request, slice, SL_ERR_NO_MEMORY,
                             "no memory to buffer pushes of worker/%u", request->caller.worker);
    }
    uint64_t floats =
        table->sparse != NULL ? (uint64_t)section->key_count * table->spec.dim : section->count;
    struct sl_shard_buffered_push *buffered =
        sl_shard_push_buffer_get(&shard->push_buffer, section->key_count, floats);
    if (buffered == NULL && sl_shard_snapshot_yield(shard)) {
        buffered = sl_shard_push_buffer_get(&shard->push_buffer, section->key_count, floats);
    }
    if (buffered == NULL) {
        return sl_shard_fail(
            shard, request, slice, SL_ERR_NO_MEMORY,
            "the push buffer (%zu bytes) is full of pushes that wait for worker/%u",
            shard->push_buffer.bytes_max, sl_clocks_slowest(&shard->clocks, table->clock_group));
    }
    sl_clocks_pushed(&shard->clocks, request->caller.worker);
    buffered->clock = clock;
    buffered->start = section->start;
    buffered->rate = sl_rate_from_bits(section->command);
    request->push.buffered = buffered;
    request->push.records = buffered->records;
    request->push.sums = buffered->gradients;
    return SL_SHARD_DONE;
}

int sl_shard_push_begin(struct sl_shard *shard, struct sl_shard_table *table,
                        struct sl_shard_request *request, struct sl_shard_slice *slice)
{
    struct sl_shard_scratch *scratch = NULL;
    if (table->sparse != NULL) {
        if (sl_shard_key_admission_busy(shard, table)) {
            return SL_SHARD_AGAIN;
        }
        if (sl_shard_waiting_keys(table) != NULL || sl_sparse_table_has_unused(table->sparse)) {
            slice->spent += sl_shard_tidy(shard, table, NULL, TIDY_RECORDS);
        }
        scratch = push_is_small(table, request) ? &shard->small : &shard->large;
        if (scratch->owner != NULL) {
            sl_assert(scratch == &shard->large);
            return SL_SHARD_AGAIN;
        }
        if (sl_flags_has(request->flags, SL_SHARD_READS) &&
            sl_shard_eviction_awaited(shard, table, request->view.section.key_count)) {
            return SL_SHARD_AGAIN;
        }
        request->push.records = scratch->records;
    }
    request->push.sums = NULL;
    request->push.distinct = 0;
    request->done = 0;
    bool is_empty = table->sparse != NULL && request->view.section.key_count == 0;
    if (!is_empty && !assigns(request) && sl_shard_buffers_pushes(shard, table, &request->caller)) {
        int err = buffer_begin(shard, table, request, slice);
        if (err != 0) {
            return err;
        }
    }
    if (scratch != NULL) {
        sl_shard_scratch_begin(scratch, request->view.section.key_count);
        scratch->owner = request;
        request->push.scratch = scratch;
        request->push.created_end = scratch->created;
        request->push.waiting = scratch->created + request->view.section.key_count;
        if (request->view.encoded != NULL && request->push.sums == NULL) {
            request->push.sums = scratch->gradients;
        }
    }
    return SL_SHARD_DONE;
}

static void scratch_put(struct sl_shard_request *request)
{
    if (request->push.scratch != NULL) {
        request->push.scratch->owner = NULL;
        request->push.scratch = NULL;
    }
}

void sl_shard_push_drop(struct sl_shard *shard, struct sl_shard_request *request)
{
    sl_shard_kv_drop(shard, request);
    sl_shard_part_end(shard, request);
    scratch_put(request);
    if (request->push.buffered != NULL) {
        sl_shard_push_buffer_put(&shard->push_buffer, request->push.buffered);
        request->push.buffered = NULL;
    }
}

static void add_row(float *restrict sum, const float *restrict row, uint32_t dim)
{
    for (uint32_t i = 0; i < dim; i++) {
        sum[i] += row[i];
    }
}

/* Copies the gradients so far to `sums`, because the rest will not be in the request's order. */
static void begin_sums(struct sl_shard_request *request, uint32_t dim)
{
    if (request->push.sums == NULL) {
        request->push.sums = request->push.scratch->gradients;
        memcpy(request->push.sums, request->view.gradients,
               (size_t)request->push.distinct * dim * sizeof(float));
    }
}

/* Returns the gradients of the keys from `done` on. Encoded ones are widened to the place among the
 * sums where they stay if no key of them repeats. */
static const float *next_gradients(const struct sl_shard_request *request, uint32_t dim,
                                   uint32_t count)
{
    if (request->view.encoded == NULL) {
        return request->view.gradients + request->done * dim;
    }
    const struct sl_precision_kernels *kernels = sl_precision_kernels(SL_PRECISION_SIMD_BEST);
    const enum sl_precision precision = sl_request_pushed(&request->view.section);
    const size_t bytes = sl_precision_row_bytes(precision, dim);
    const uint8_t *row = (const uint8_t *)request->view.encoded + request->done * bytes;
    float *gradients = request->push.sums + (size_t)request->push.distinct * dim;
    for (uint32_t i = 0; i < count; i++) {
        kernels->widen(precision, row + i * bytes, dim, gradients + (size_t)i * dim);
    }
    return gradients;
}

/* Adds one key's record and gradient. The request's own gradients are used until a key repeats. The
 * first repeat copies those so far to `sums`. Of a key that repeats in an assign, the last row
 * counts. */
static void collect_record(struct sl_shard_request *request, uint32_t dim, uint32_t record,
                           const float *gradient)
{
    uint32_t at = sl_shard_scratch_find(request->push.scratch, request->push.records, record,
                                        request->push.distinct);
    bool repeats = at < request->push.distinct;
    if (repeats) {
        begin_sums(request, dim);
    }
    if (repeats && !assigns(request)) {
        add_row(request->push.sums + (size_t)at * dim, gradient, dim);
        return;
    }
    request->push.records[at] = record;
    if (request->push.sums != NULL && request->push.sums + (size_t)at * dim != gradient) {
        memcpy(request->push.sums + (size_t)at * dim, gradient, dim * sizeof(float));
    }
    request->push.distinct += !repeats;
}

/* Adds the keys of a batch that were admitted. */
static void collect_admitted(struct sl_shard_table *table, struct sl_shard_request *request,
                             const uint32_t *records, uint32_t count, const float *gradients)
{
    const uint32_t dim = table->spec.dim;
    for (uint32_t i = 0; i < count; i++) {
        if (records[i] == SL_ROW_NONE) {
            begin_sums(request, dim);
            table->refused++;
        } else {
            collect_record(request, dim, records[i], gradients + (size_t)i * dim);
        }
    }
}

static int collect_sparse(struct sl_shard *shard, struct sl_shard_table *table,
                          struct sl_shard_request *request, struct sl_shard_slice *slice)
{
    uint32_t records[SL_SHARD_BATCH_KEYS];
    uint32_t dim = table->spec.dim;
    uint32_t key_count = request->view.section.key_count;
    const bool admits = table->admits && !assigns(request);
    while (request->done < key_count) {
        uint32_t left = sl_shard_slice_left(slice);
        if (left == 0 && !push_is_small(table, request)) {
            return SL_SHARD_AGAIN;
        }
        uint32_t count = sl_shard_batch(key_count - request->done, UINT32_MAX);
        const uint64_t *keys = request->view.keys + request->done;
        int err = (admits ? sl_shard_key_admission_lookup
                          : sl_shard_lookup)(shard, table, request, slice, keys, count, records);
        if (err != 0) {
            return err;
        }
        sl_shard_see_keys(shard, table, keys, count);
        const float *gradients = next_gradients(request, dim, count);
        if (admits) {
            collect_admitted(table, request, records, count, gradients);
        }
        for (uint32_t i = 0; i < count && !admits; i++) {
            collect_record(request, dim, records[i], gradients + (size_t)i * dim);
        }
        request->done += count;
        slice->spent += (count + COLLECT_KEYS_PER_COST - 1) / COLLECT_KEYS_PER_COST;
    }
    return SL_SHARD_DONE;
}

/* Removes the rows that a refused push has created, and fails it as its lookup has. A row that
 * another push has visited between two slices stays. Other requests hold none of these records:
 * there is one large push at a time, and a small one runs in one slice; buffered pushes look for
 * erased rows. */
static int undo(struct sl_shard *shard, struct sl_shard_table *table,
                struct sl_shard_request *request, struct sl_shard_slice *slice)
{
    const uint32_t *created = request->push.scratch->created;
    table->holds_erased |= table->buffered_count > 0;
    if (!sl_shard_key_admission_undo(table, request, slice)) {
        return SL_SHARD_AGAIN;
    }
    while (request->push.created_end > created) {
        if (sl_shard_slice_left(slice) == 0 && !push_is_small(table, request)) {
            return SL_SHARD_AGAIN;
        }
        const uint32_t count =
            sl_shard_batch((uint64_t)(request->push.created_end - created), UINT32_MAX);
        request->push.created_end -= count;
        sl_shard_key_admission_undo_created(table, request->push.created_end, count);
        sl_sparse_table_erase_unvisited(table->sparse, request->push.created_end, count);
        sl_shard_count_memory(shard, table);
        slice->spent += count + sl_shard_snapshot_copy_debt(shard);
    }
    const uint64_t left = request->view.section.key_count - request->done;
    const int err = sl_shard_check_owner(shard, request, slice, request->view.keys + request->done,
                                         sl_shard_batch(left, UINT32_MAX));
    return err != 0 ? err : sl_shard_fail_memory(shard, request, slice);
}

/* Only a buffered dense push is copied; there are no keys to look up. */
static int collect_dense(struct sl_shard_request *request, struct sl_shard_slice *slice)
{
    while (request->push.buffered != NULL && request->done < request->view.section.count) {
        uint32_t left = sl_shard_slice_left(slice);
        if (left == 0) {
            return SL_SHARD_AGAIN;
        }
        uint64_t count = sl_shard_dense_step(request->done, request->view.section.count, left);
        float *gradients = request->push.buffered->gradients + request->done;
        if (request->view.encoded != NULL) {
            sl_precision_widen_array(sl_request_pushed(&request->view.section),
                                     request->view.encoded, request->done, count, gradients);
        } else {
            memcpy(gradients, request->view.gradients + request->done, count * sizeof(float));
        }
        request->done += count;
        slice->spent += (uint32_t)sl_shard_dense_cost(count);
    }
    return SL_SHARD_DONE;
}

/* Queues the complete entry. */
static void buffer_end(struct sl_shard *shard, struct sl_shard_table *table,
                       struct sl_shard_request *request)
{
    struct sl_shard_buffered_push *buffered = request->push.buffered;
    buffered->count =
        table->sparse != NULL ? request->push.distinct : (uint32_t)request->view.section.count;
    if (table->sparse != NULL) {
        sl_shard_push_buffer_trim(&shard->push_buffer, buffered, buffered->count * table->spec.dim);
    }
    if (sl_clocks_is_expired(&shard->clocks, request->caller.worker)) {
        sl_shard_push_drop(shard, request);
        return;
    }
    request->push.buffered = NULL;
    scratch_put(request);
    sl_shard_iteration_add(shard, table, request->caller.worker, buffered);
    if (buffered->clock < sl_clocks_min(&shard->clocks, table->clock_group)) {
        sl_shard_iteration_update(shard); /* the worker left before the push was complete */
    }
}

static int apply_sparse(struct sl_shard_table *table, struct sl_shard_request *request,
                        struct sl_shard_slice *slice)
{
    const float *gradients =
        request->push.sums != NULL ? request->push.sums : request->view.gradients;
    if (sl_shard_waiting_keys(table) != NULL &&
        !sl_shard_key_admission_apply(table, request, slice)) {
        return SL_SHARD_AGAIN;
    }
    while (request->done < request->push.distinct) {
        uint32_t left = sl_shard_slice_left(slice);
        if (left == 0 && !push_is_small(table, request)) {
            return SL_SHARD_AGAIN;
        }
        uint64_t count = request->push.distinct - request->done;
        uint64_t paid = (uint64_t)left / table->key_cost + 1;
        count = push_is_small(table, request) || count < paid ? count : paid;
        const uint32_t *records = request->push.records + request->done;
        const float *rows = gradients + request->done * table->spec.dim;
        if (table->admits) {
            sl_shard_key_admission_pushed(table, records, (uint32_t)count);
        }
        if (assigns(request)) {
            sl_sparse_table_assign(table->sparse, records, (uint32_t)count, rows,
                                   request->push.optimizer.step);
        } else {
            sl_sparse_table_apply(table->sparse, records, (uint32_t)count, rows,
                                  &request->push.optimizer);
        }
        request->done += count;
        slice->spent += (uint32_t)count * table->key_cost;
    }
    return SL_SHARD_DONE;
}

static int apply_dense(struct sl_shard_table *table, struct sl_shard_request *request,
                       struct sl_shard_slice *slice)
{
    const struct sl_request_section *section = &request->view.section;
    while (request->done < section->count) {
        uint32_t left = sl_shard_slice_left(slice);
        if (left == 0) {
            return SL_SHARD_AGAIN;
        }
        uint64_t at = section->start + request->done;
        uint64_t count = sl_shard_dense_step(at, section->start + section->count, left);
        float widened[SL_PARTITION_BLOCK_ELEMENTS];
        const float *values = widened;
        if (request->view.encoded == NULL) {
            values = request->view.gradients + request->done;
        } else {
            const uint64_t block_left =
                SL_PARTITION_BLOCK_ELEMENTS - at % SL_PARTITION_BLOCK_ELEMENTS;
            count = count < block_left ? count : block_left;
            sl_precision_widen_array(sl_request_pushed(section), request->view.encoded,
                                     request->done, count, widened);
        }
        if (assigns(request)) {
            sl_dense_table_assign(table->dense, at, count, values, request->push.optimizer.step);
        } else {
            sl_dense_table_apply(table->dense, at, count, values, &request->push.optimizer);
        }
        request->done += count;
        slice->spent += (uint32_t)sl_shard_dense_cost(count);
    }
    return SL_SHARD_DONE;
}

/* While a snapshot is pending, no push of so many rows starts that needs another slice. */
static bool is_held(const struct sl_shard *shard, const struct sl_shard_table *table,
                    const struct sl_shard_request *request, uint32_t row_count,
                    const struct sl_shard_slice *slice)
{
    const uint64_t cost = table->sparse != NULL ? (uint64_t)row_count * table->key_cost
                                                : sl_shard_dense_cost(request->view.section.count);
    return shard->snapshots.wanted && request->push.scratch != &shard->small &&
           !sl_flags_has(request->flags, SL_SHARD_IN_PART) && cost > sl_shard_slice_left(slice);
}

static void apply_end(struct sl_shard *shard, struct sl_shard_table *table,
                      struct sl_shard_request *request)
{
    sl_shard_part_end(shard, request);
    if (table->optimizer->end_push != NULL && !assigns(request)) {
        table->optimizer->end_push(&table->spec.optimizer, &table->state);
    }
    table->pushed_rows +=
        table->sparse != NULL ? request->push.distinct : request->view.section.count;
    scratch_put(request);
}

int sl_shard_push_run(struct sl_shard *shard, struct sl_shard_table *table,
                      struct sl_shard_request *request, struct sl_shard_slice *slice)
{
    if (request->phase == SL_SHARD_PHASE_COLLECT) {
        const uint32_t key_count = request->view.section.key_count;
        if (table->admits && is_held(shard, table, request, key_count, slice)) {
            return SL_SHARD_AGAIN;
        }
        int result = table->sparse != NULL ? collect_sparse(shard, table, request, slice)
                                           : collect_dense(request, slice);
        if (result < 0) {
            request->phase = SL_SHARD_PHASE_UNDO;
            return undo(shard, table, request, slice);
        }
        if (result != SL_SHARD_DONE) {
            if (table->admits) {
                sl_shard_part_begin(shard, request);
            }
            return result;
        }
        if (request->push.buffered != NULL) {
            buffer_end(shard, table, request);
            return SL_SHARD_DONE;
        }
        if (table->sparse != NULL && key_count == 0) {
            scratch_put(request);
            return SL_SHARD_DONE;
        }
        if (is_held(shard, table, request, request->push.distinct, slice)) {
            return SL_SHARD_AGAIN;
        }
        request->phase = SL_SHARD_PHASE_APPLY;
        request->done = 0;
        request->push.optimizer =
            sl_shard_next_push(table, sl_rate_from_bits(request->view.section.command));
    }
    if (request->phase == SL_SHARD_PHASE_UNDO) {
        return undo(shard, table, request, slice);
    }
    int result = table->sparse != NULL ? apply_sparse(table, request, slice)
                                       : apply_dense(table, request, slice);
    slice->spent += sl_shard_snapshot_copy_debt(shard);
    if (result == SL_SHARD_DONE) {
        apply_end(shard, table, request);
    } else {
        sl_shard_part_begin(shard, request);
    }
    return result;
}
