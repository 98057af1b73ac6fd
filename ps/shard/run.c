/* Executes a request, section by section and slice by slice. */
#include <stdio.h>
#include <string.h>

#include "core/assert.h"
#include "core/reason.h"
#include "ps/shard/admit.h"
#include "ps/shard/erase.h"
#include "ps/shard/iteration.h"
#include "ps/shard/kv.h"
#include "ps/shard/lookup.h"
#include "ps/shard/push.h"
#include "ps/shard/scan.h"

/* Returns the place of a FIND's flags, after zeroing the padding between the rows and them. */
static uint8_t *found_of(const struct sl_shard_table *table, const struct sl_shard_request *request,
                         uint8_t *reply)
{
    const uint64_t bytes =
        (uint64_t)request->view.section.key_count * table->spec.dim * sizeof(float);
    uint8_t *rows = reply + request->reply_done;
    memset(rows + bytes, 0, sl_bytes_pad8(bytes) - bytes);
    return rows + sl_bytes_pad8(bytes);
}

static void write_found(uint8_t *found, const uint32_t *records, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        found[i] = records[i] != SL_ROW_NONE;
    }
}

static int read_rows(struct sl_shard *shard, struct sl_shard_table *table,
                     struct sl_shard_request *request, uint8_t *reply, struct sl_shard_slice *slice)
{
    uint32_t records[SL_SHARD_BATCH_KEYS];
    const enum sl_precision as = sl_request_returned(&request->view.section);
    const size_t row_bytes = sl_precision_row_bytes(as, table->spec.dim);
    uint8_t *rows = reply + request->reply_done;
    uint32_t key_count = request->view.section.key_count;
    const bool finds = request->view.section.op == SL_REQUEST_FIND;
    while (request->done < key_count) {
        uint32_t left = sl_shard_slice_left(slice);
        if (left == 0) {
            return SL_SHARD_AGAIN;
        }
        uint32_t count =
            sl_shard_batch(key_count - request->done, (uint64_t)left / table->key_cost + 1);
        const uint64_t *keys = request->view.keys + request->done;
        uint8_t *into = rows + request->done * row_bytes;
        bool complete;
        int err =
            sl_shard_lookup_existing(shard, table, request, slice, keys, count, records, &complete);
        if (err != 0) {
            return err;
        }
        if (complete) {
            sl_sparse_table_gather(table->sparse, records, count, as, into);
        } else {
            sl_sparse_table_gather_partial(table->sparse, keys, records, count, as, into);
        }
        if (finds) {
            write_found(found_of(table, request, reply) + request->done, records, count);
        }
        sl_shard_see_keys(shard, table, keys, count);
        request->done += count;
        slice->spent += count * table->key_cost;
    }
    table->pulled_rows += key_count;
    return SL_SHARD_DONE;
}

/* Splits the bags at a batch of keys: ends[i] is the end of bag bags_done + i within the batch.
 * Returns the number of bags; the last may continue in the next batch. */
static uint32_t split_bags(const struct sl_shard_request *request, uint32_t key_count,
                           uint32_t *ends)
{
    uint32_t bag_count = request->view.section.bag_count - request->bags_done;
    bag_count = bag_count < SL_SHARD_BATCH_KEYS ? bag_count : SL_SHARD_BATCH_KEYS;
    const uint32_t *bag_ends = request->view.bag_ends + request->bags_done;
    uint32_t first = (uint32_t)request->done;
    for (uint32_t i = 0; i < bag_count; i++) {
        if (bag_ends[i] - first > key_count) {
            ends[i] = key_count;
            return i + 1;
        }
        ends[i] = bag_ends[i] - first;
    }
    return bag_count;
}

/* Sums one batch of keys into its bags. */
static int pool_batch(struct sl_shard *shard, struct sl_shard_table *table,
                      struct sl_shard_request *request, float *pooled, uint32_t count,
                      struct sl_shard_slice *slice)
{
    uint32_t records[SL_SHARD_BATCH_KEYS];
    uint32_t ends[SL_SHARD_BATCH_KEYS];
    uint32_t dim = table->spec.dim;
    uint32_t bags = split_bags(request, count, ends);
    count = bags == 0 ? 0 : ends[bags - 1];
    const uint64_t *keys = request->view.keys + request->done;
    bool complete;
    int err =
        sl_shard_lookup_existing(shard, table, request, slice, keys, count, records, &complete);
    if (err != 0) {
        return err;
    }
    /* The first bag may continue from an earlier batch; the others are new. */
    const uint32_t *bag_ends = request->view.bag_ends;
    uint64_t first_start = request->bags_done == 0 ? 0 : bag_ends[request->bags_done - 1];
    uint32_t fresh = first_start < request->done ? 1 : 0;
    float *into = pooled + (size_t)request->bags_done * dim;
    memset(into + (size_t)fresh * dim, 0, (size_t)(bags - fresh) * dim * sizeof(float));
    if (complete) {
        sl_sparse_table_pool(table->sparse, records, ends, bags, into);
    } else {
        sl_sparse_table_pool_partial(table->sparse, keys, records, ends, bags, into);
    }
    sl_shard_see_keys(shard, table, keys, count);
    request->done += count;
    bool last_ended = bag_ends[request->bags_done + bags - 1] == request->done;
    request->bags_done += last_ended ? bags : bags - 1;
    slice->spent += count * table->key_cost + bags;
    return SL_SHARD_DONE;
}

/* Returns how many of the next bags are summed at once: their sums have room, and their keys are
 * looked up together, unless it is one long bag. */
static uint32_t narrow_bags(const struct sl_shard_table *table,
                            const struct sl_shard_request *request)
{
    const uint32_t *ends = request->view.bag_ends + request->bags_done;
    const uint32_t left = request->view.section.bag_count - request->bags_done;
    const uint32_t most = SL_LIMIT_DIM / table->spec.dim;
    uint32_t bags = 1;
    while (bags < left && bags < most && ends[bags] - request->done <= SL_SHARD_BATCH_KEYS) {
        bags++;
    }
    return bags;
}

/* Sums whole bags in f32, then narrows the sums: a slice does not end within a bag. */
static int pool_narrow(struct sl_shard *shard, struct sl_shard_table *table,
                       struct sl_shard_request *request, enum sl_precision as, uint8_t *rows,
                       struct sl_shard_slice *slice)
{
    const struct sl_precision_kernels *kernels = sl_precision_kernels(SL_PRECISION_SIMD_BEST);
    const uint32_t dim = table->spec.dim, bags = narrow_bags(table, request);
    const uint32_t *bag_ends = request->view.bag_ends + request->bags_done;
    uint32_t records[SL_SHARD_BATCH_KEYS], ends[SL_LIMIT_DIM];
    float sums[SL_LIMIT_DIM];
    memset(sums, 0, (size_t)bags * dim * sizeof *sums);
    do {
        const uint32_t count = sl_shard_batch(bag_ends[bags - 1] - request->done, UINT32_MAX);
        const uint64_t *keys = request->view.keys + request->done;
        bool complete;
        const int err =
            sl_shard_lookup_existing(shard, table, request, slice, keys, count, records, &complete);
        if (err != 0) {
            return err;
        }
        for (uint32_t i = 0; i < bags; i++) {
            ends[i] = bags == 1 ? count : bag_ends[i] - (uint32_t)request->done;
        }
        if (complete) {
            sl_sparse_table_pool(table->sparse, records, ends, bags, sums);
        } else {
            sl_sparse_table_pool_partial(table->sparse, keys, records, ends, bags, sums);
        }
        sl_shard_see_keys(shard, table, keys, count);
        request->done += count;
        slice->spent += count * table->key_cost;
    } while (request->done < bag_ends[bags - 1]);
    const size_t row_bytes = sl_precision_row_bytes(as, dim);
    for (uint32_t i = 0; i < bags; i++) {
        kernels->narrow(as, sums + (size_t)i * dim, dim,
                        rows + (request->bags_done + i) * row_bytes);
    }
    request->bags_done += bags;
    slice->spent += bags;
    return SL_SHARD_DONE;
}

static int read_pooled(struct sl_shard *shard, struct sl_shard_table *table,
                       struct sl_shard_request *request, uint8_t *reply,
                       struct sl_shard_slice *slice)
{
    uint8_t *rows = reply + request->reply_done;
    const struct sl_request_section *section = &request->view.section;
    const enum sl_precision as = sl_request_returned(section);
    while (request->bags_done < section->bag_count) {
        uint32_t left = sl_shard_slice_left(slice);
        if (left == 0) {
            return SL_SHARD_AGAIN;
        }
        uint32_t count = sl_shard_batch(section->key_count - request->done,
                                        (uint64_t)left / table->key_cost + 1);
        int err = as == SL_PRECISION_F32
                      ? pool_batch(shard, table, request, (float *)(void *)rows, count, slice)
                      : pool_narrow(shard, table, request, as, rows, slice);
        if (err != 0) {
            return err;
        }
    }
    table->pulled_rows += section->key_count;
    return SL_SHARD_DONE;
}

static int read_dense(struct sl_shard_table *table, struct sl_shard_request *request,
                      uint8_t *reply, struct sl_shard_slice *slice)
{
    const struct sl_request_section *section = &request->view.section;
    const enum sl_precision precision = sl_request_returned(section);
    uint8_t *values = reply + request->reply_done;
    while (request->done < section->count) {
        uint32_t left = sl_shard_slice_left(slice);
        if (left == 0) {
            return SL_SHARD_AGAIN;
        }
        uint64_t at = section->start + request->done;
        uint64_t count = sl_shard_dense_step(at, section->start + section->count, left);
        sl_dense_table_read(table->dense, at, count, precision,
                            values + request->done * sl_precision_row_bytes(precision, 1));
        request->done += count;
        slice->spent += (uint32_t)sl_shard_dense_cost(count);
    }
    table->pulled_rows += section->count;
    return SL_SHARD_DONE;
}

static int tick(struct sl_shard *shard, struct sl_shard_request *request,
                struct sl_shard_slice *slice)
{
    uint32_t worker = request->caller.worker;
    if (sl_shard_section_skips_writes(request)) {
        request->prefix.clock = sl_shard_clock_after(request->prefix.clock);
        return SL_SHARD_DONE;
    }
    slice->spent++;
    if (sl_clocks_tick(&shard->clocks, worker, request->prefix.clock) != 0) {
        return sl_shard_fail(shard, request, slice, SL_ERR_PROTOCOL,
                             "worker/%u ticks iteration %u, but is at iteration %u", worker,
                             request->prefix.clock, sl_clocks_of(&shard->clocks, worker));
    }
    request->prefix.clock = sl_shard_clock_after(request->prefix.clock);
    sl_shard_section_wrote(request);
    sl_shard_iteration_update(shard);
    return SL_SHARD_DONE;
}

static int run_admit(struct sl_shard *shard, struct sl_shard_table *table,
                     struct sl_shard_request *request, struct sl_shard_slice *slice)
{
    uint8_t op = request->view.section.op;
    if (sl_shard_op_pulls(op) &&
        !sl_shard_admits(shard, table, &request->caller, request->prefix.clock)) {
        request->parked_on = request->view.section.table_id;
        return SL_SHARD_PARKED;
    }
    request->done = 0;
    request->bags_done = 0;
    if (op == SL_REQUEST_EVICT && shard->round.request != NULL) {
        return SL_SHARD_AGAIN;
    }
    if (!sl_shard_pushes(request, op)) {
        request->phase = SL_SHARD_PHASE_READ;
        return op == SL_REQUEST_SCAN    ? sl_shard_scan_begin(shard, table, request, slice)
               : op == SL_REQUEST_EVICT ? sl_shard_evict_begin(shard, table, request, slice)
                                        : SL_SHARD_DONE;
    }
    int result = op == SL_REQUEST_ERASE ? sl_shard_erase_begin(shard, request)
                                        : sl_shard_push_begin(shard, table, request, slice);
    if (result == SL_SHARD_DONE) {
        request->phase = SL_SHARD_PHASE_COLLECT;
    }
    return result;
}

static int run_read(struct sl_shard *shard, struct sl_shard_table *table,
                    struct sl_shard_request *request, uint8_t *reply, struct sl_shard_slice *slice)
{
    if (request->reply_bytes == 0) {
        return SL_SHARD_DONE; /* no keys and no bags */
    }
    if (table->dense != NULL) {
        return read_dense(table, request, reply, slice);
    }
    if (sl_shard_op_walks(request->view.section.op)) {
        return request->view.section.op == SL_REQUEST_SCAN
                   ? sl_shard_scan_run(shard, table, request, reply, slice)
                   : sl_shard_evict_run(shard, request, reply);
    }
    if (request->view.section.op == SL_REQUEST_PULL_POOLED) {
        return read_pooled(shard, table, request, reply, slice);
    }
    return read_rows(shard, table, request, reply, slice);
}

/* A backup executes what the primary executed before the drop, which has no effect any more. */
static int run_dropped(struct sl_shard *shard, struct sl_shard_request *request,
                       struct sl_shard_slice *slice)
{
    if (!sl_flags_has(request->flags, SL_SHARD_READS)) {
        sl_shard_push_drop(shard, request);
        return SL_SHARD_DONE;
    }
    return sl_shard_fail(shard, request, slice, SL_ERR_NOT_FOUND, "the table was dropped");
}

static int run_section(struct sl_shard *shard, struct sl_shard_request *request, uint8_t *reply,
                       struct sl_shard_slice *slice)
{
    if (!sl_flags_has(request->flags, SL_SHARD_READS) &&
        sl_shard_op_pulls(request->view.section.op)) {
        return SL_SHARD_DONE;
    }
    if (request->view.section.op == SL_REQUEST_TICK) {
        return tick(shard, request, slice);
    }
    struct sl_shard_table *table = shard->tables[request->view.section.table_id];
    if (table->dropped) {
        return run_dropped(shard, request, slice);
    }
    if (table->kv != NULL) {
        return sl_shard_kv_run(shard, table, request, reply, slice);
    }
    if (request->phase == SL_SHARD_PHASE_ADMIT) {
        int result = run_admit(shard, table, request, slice);
        if (result != SL_SHARD_DONE) {
            return result;
        }
    }
    if (request->phase != SL_SHARD_PHASE_READ) {
        int result = request->view.section.op == SL_REQUEST_ERASE
                         ? sl_shard_erase_run(shard, table, request, slice)
                         : sl_shard_push_run(shard, table, request, slice);
        if (result != SL_SHARD_DONE) {
            return result;
        }
        sl_shard_section_wrote(request);
        request->phase = SL_SHARD_PHASE_READ;
        request->done = 0;
    }
    return sl_shard_op_pulls(request->view.section.op)
               ? run_read(shard, table, request, reply, slice)
               : SL_SHARD_DONE;
}

static void section_read(struct sl_shard *shard, struct sl_shard_request *request)
{
    struct sl_request_section section;
    int err = sl_request_read_section(&request->cursor, &section);
    sl_assert(err == 0);
    request->view.section = section;
    if (section.op != SL_REQUEST_TICK) {
        uint32_t dim = shard->tables[section.table_id]->spec.dim;
        err = sl_request_read_body(&request->cursor, &section, dim, &request->view);
        sl_assert(err == 0);
    }
    if (!sl_flags_has(request->flags, SL_SHARD_READS)) {
        sl_shard_drop_pull_part(request);
    }
    sl_flags_set(&request->flags, SL_SHARD_IN_SECTION, true);
}

/* Zeroes the padding after the section's part of the reply. */
static void section_end(struct sl_shard *shard, struct sl_shard_request *request, uint8_t *reply)
{
    const struct sl_request_section *section = &request->view.section;
    sl_flags_set(&request->flags, SL_SHARD_IN_SECTION, false);
    request->sections_left--;
    if (!sl_shard_op_pulls(section->op) || !sl_flags_has(request->flags, SL_SHARD_READS)) {
        return;
    }
    request->reply_done +=
        sl_request_result_bytes(section, shard->tables[section->table_id]->spec.dim);
    const uint64_t padded = sl_bytes_pad8(request->reply_done);
    if (padded != request->reply_done) {
        memset(reply + request->reply_done, 0, padded - request->reply_done);
        request->reply_done = padded;
    }
}

static int run_sections(struct sl_shard *shard, struct sl_shard_request *request, uint8_t *reply,
                        struct sl_shard_slice *slice)
{
    while (request->sections_left > 0) {
        /* Due pushes precede all later operations. */
        if (shard->iteration.due) {
            return SL_SHARD_AGAIN;
        }
        if (!sl_flags_has(request->flags, SL_SHARD_IN_SECTION) ||
            request->phase == SL_SHARD_PHASE_NEW) {
            if (sl_shard_slice_left(slice) == 0) {
                return SL_SHARD_AGAIN;
            }
            if (!sl_flags_has(request->flags, SL_SHARD_IN_SECTION)) {
                section_read(shard, request);
            }
            slice->spent++;
            request->phase = SL_SHARD_PHASE_ADMIT;
        }
        int result = run_section(shard, request, reply, slice);
        if (result != SL_SHARD_DONE) {
            return result;
        }
        section_end(shard, request, reply);
    }
    sl_assert(request->reply_done == request->reply_bytes);
    return SL_SHARD_DONE;
}

int sl_shard_run(struct sl_shard *shard, struct sl_shard_request *request, uint8_t *reply,
                 uint32_t budget, uint32_t *cost, struct sl_reason *reason)
{
    struct sl_shard_slice slice = {
        .budget = budget,
        .reason = reason,
    };
    int result = run_sections(shard, request, reply, &slice);
    if (result < 0) {
        sl_shard_push_drop(shard, request);
    }
    *cost = slice.spent;
    return result;
}

/* Returns the bytes of the section that waits for admission; 0 when none has been read. */
static size_t section_bytes(const struct sl_shard *shard, const struct sl_shard_request *request)
{
    if (!sl_flags_has(request->flags, SL_SHARD_IN_SECTION)) {
        return 0;
    }
    sl_assert(request->phase <= SL_SHARD_PHASE_ADMIT);
    const struct sl_request_section *section = &request->view.section;
    const struct sl_shard_table *table = shard->tables[section->table_id];
    bool has_body = section->op != SL_REQUEST_TICK;
    return sizeof *section + (has_body ? sl_request_body_bytes(section, table->spec.dim) : 0);
}

size_t sl_shard_rest_bytes(const struct sl_shard *shard, const struct sl_shard_request *request)
{
    return section_bytes(shard, request) + request->cursor.left;
}

/* Joins a section and its out-of-line values. Zeroes the padding, because the original one is
 * unchecked memory of the sender. */
static void move_out_of_line(const struct sl_shard *shard, struct sl_shard_request *request,
                             uint8_t *to)
{
    const struct sl_request_section *section = &request->view.section;
    const uint64_t structure = sizeof *section + sl_request_structure_bytes(section);
    const uint64_t bytes =
        sl_request_values_bytes(section, shard->tables[section->table_id]->spec.dim);
    const struct sl_request_view *view = &request->view;
    const void *values = view->encoded != NULL  ? view->encoded
                         : view->values != NULL ? view->values
                                                : view->gradients;
    memcpy(to, request->cursor.next - structure, structure);
    memcpy(to + structure, values, bytes);
    memset(to + structure + bytes, 0, sl_bytes_pad8(bytes) - bytes);
}

void sl_shard_move_rest(const struct sl_shard *shard, struct sl_shard_request *request, uint8_t *to)
{
    sl_assert((uintptr_t)to % 8 == 0);
    size_t bytes = sl_shard_rest_bytes(shard, request);
    if (sl_flags_has(request->flags, SL_SHARD_OUT_OF_LINE)) {
        move_out_of_line(shard, request, to);
    } else {
        memcpy(to, request->cursor.next - section_bytes(shard, request), bytes);
    }
    request->cursor = sl_bytes_over(to, bytes);
    /* Read the section again from its new place. */
    sl_flags_set(&request->flags, SL_SHARD_OUT_OF_LINE | SL_SHARD_IN_SECTION, false);
}

void sl_shard_clean_padding(const struct sl_shard *shard, const struct sl_shard_request *request,
                            uint8_t *payload, size_t payload_bytes)
{
    const struct sl_request_section *section = &request->view.section;
    const uint64_t used =
        sizeof request->prefix + sizeof *section + sl_request_structure_bytes(section) +
        sl_request_values_bytes(section, shard->tables[section->table_id]->spec.dim);
    sl_assert(used <= payload_bytes);
    memset(payload + used, 0, payload_bytes - used);
}

void sl_shard_abandon(struct sl_shard *shard, struct sl_shard_request *request)
{
    sl_shard_push_drop(shard, request);
    if (shard->round.request == request) {
        shard->round.request = NULL;
    }
}

void sl_shard_describe_wait(const struct sl_shard *shard, const struct sl_shard_request *request,
                            char *text, size_t text_bytes)
{
    const struct sl_shard_table *table = shard->tables[request->parked_on];
    if (table->kv != NULL) {
        (void)snprintf(text, text_bytes, "shard %u: a request to table %s waits for its handler",
                       shard->options.index, table->spec.name);
        return;
    }
    const uint32_t worker = sl_clocks_slowest(&shard->clocks, table->clock_group);
    const uint32_t index = shard->options.index;
    const uint32_t clock = request->prefix.clock;
    if (worker == SL_LIMIT_WORKERS) {
        (void)snprintf(text, text_bytes,
                       "shard %u: a pull of iteration %u from table %s may run now", index, clock,
                       table->spec.name);
        return;
    }
    (void)snprintf(text, text_bytes,
                   "shard %u: a pull of iteration %u from table %s waits for worker/%u, which is "
                   "at iteration %u",
                   index, clock, table->spec.name, worker, sl_clocks_of(&shard->clocks, worker));
}
