/* Sections of KV tables. A push first reserves all its arrays. Then it creates and updates them in
 * slices. A pull reads in slices at once. */
#include <inttypes.h>
#include <string.h>

#include "core/assert.h"
#include "core/partition.h"
#include "ps/shard/handler.h"
#include "ps/shard/kv.h"
#include "ps/shard/kv_measured.h"
#include "ps/shard/lookup.h"
#include "ps/shard/push.h"
#include "ps/shard/snapshot_hooks.h"
#include "ps/shard/whole.h"

static_assert(SL_SHARD_BATCH_KEYS == SL_KV_TABLE_BATCH, "a batch is looked up at once");

#define RESERVED_KEYS_PER_COST 8 /* keys reserved for one unit of budget */

/* Smallest part of an array to copy at a time. A push_pull alternates in steps of PUSH_PULL_BYTES,
 * so that the pull reads the pushed values from the L1 cache. */
#define VISIT_BYTES_LEAST      4096
#define PUSH_PULL_BYTES        8192

/* Part of a key's array that the section names: `count` values from `start` on; `whole` is the
 * length of the array. */
struct part {
    uint32_t start, count, whole;
};

static struct part part_of(const struct sl_request_view *view, uint32_t key)
{
    const struct sl_request_section *section = &view->section;
    if (section->bag_count != 0) { /* a chunk; bag_count is the length of its array */
        return (struct part){(uint32_t)section->start, (uint32_t)section->count,
                             section->bag_count};
    }
    const uint32_t length =
        view->lens != NULL ? view->lens[key] : (uint32_t)section->count / section->key_count;
    return (struct part){0, length, length};
}

static int fail_length(const struct sl_shard *shard, const struct sl_shard_request *request,
                       struct sl_shard_slice *slice, uint32_t key, uint32_t length)
{
    return sl_shard_fail(shard, request, slice, SL_ERR_INVALID,
                         "key %" PRIu64 " has %u values, asked for are %u", request->view.keys[key],
                         length, part_of(&request->view, key).whole);
}

/* Start of a push */

void sl_shard_kv_limit_memory(const struct sl_shard *shard, struct sl_shard_table *table)
{
    if (shard->options.memory_bytes_max != 0) {
        sl_kv_table_set_bytes_max(table->kv, sl_kv_table_memory_bytes(table->kv) +
                                                 sl_shard_memory_left(shard));
    }
}

void sl_shard_kv_count_memory(struct sl_shard *shard, struct sl_shard_table *table)
{
    const size_t bytes = sl_kv_table_memory_bytes(table->kv);
    shard->memory_bytes += bytes - table->counted.memory;
    table->counted.memory = bytes;
}

/* Reserves the next keys, at most a batch. */
static int reservation_batch(struct sl_shard *shard, struct sl_shard_table *table,
                             struct sl_shard_request *request, struct sl_shard_slice *slice,
                             struct sl_kv_reservation *reservation, uint32_t count,
                             uint32_t *records)
{
    const uint32_t *lens = request->view.lens;
    uint32_t failed = 0;
    uint32_t length = 0;
    int err =
        sl_shard_check_kv_owner(shard, request, slice, request->view.keys + request->key, count);
    if (err != 0) {
        return err;
    }
    sl_shard_kv_limit_memory(shard, table);
    err = sl_kv_table_reserve(table->kv, reservation, request->view.keys + request->key,
                              lens == NULL ? NULL : lens + request->key,
                              part_of(&request->view, request->key).whole, count, records, &failed,
                              &length);
    sl_shard_kv_count_memory(shard, table);
    slice->spent += (count + RESERVED_KEYS_PER_COST - 1) / RESERVED_KEYS_PER_COST;
    if (err == SL_ERR_INVALID) {
        return fail_length(shard, request, slice, request->key + failed, length);
    }
    if (err != 0) {
        return sl_shard_fail(shard, request, slice, err,
                             "no memory for more arrays: the tables have %zu bytes, %s",
                             shard->memory_bytes, sl_shard_limit_text(shard, (char[64]){0}));
    }
    request->key += count;
    return SL_SHARD_DONE;
}

static int make_batch(struct sl_shard *shard, struct sl_shard_table *table,
                      struct sl_shard_request *request, struct sl_shard_slice *slice,
                      struct sl_kv_reservation *reservation, const uint32_t *records,
                      uint32_t count)
{
    const int err = sl_kv_table_make(table->kv, reservation, records, count);
    sl_shard_kv_count_memory(shard, table);
    return err == 0 ? 0
                    : sl_shard_fail(shard, request, slice, err,
                                    "the system has no memory for more arrays");
}

/* Few keys: reserves and creates their arrays at once. */
static int collect_few(struct sl_shard *shard, struct sl_shard_table *table,
                       struct sl_shard_request *request, struct sl_shard_slice *slice)
{
    uint32_t records[SL_SHARD_BATCH_KEYS];
    const uint32_t count = request->view.section.key_count;
    struct sl_kv_reservation reservation;
    sl_kv_table_reservation_begin(table->kv, &reservation);
    int err = reservation_batch(shard, table, request, slice, &reservation, count, records);
    err = err != 0 ? err : make_batch(shard, table, request, slice, &reservation, records, count);
    sl_kv_table_reservation_end(table->kv, &reservation);
    sl_shard_kv_count_memory(shard, table);
    return err;
}

/* Many keys: reserves them in slices. The reservation lasts until the last array is created. */
static int collect_many(struct sl_shard *shard, struct sl_shard_table *table,
                        struct sl_shard_request *request, struct sl_shard_slice *slice)
{
    const uint32_t key_count = request->view.section.key_count;
    while (request->key < key_count) {
        if (sl_shard_slice_left(slice) == 0) {
            return SL_SHARD_AGAIN;
        }
        const uint32_t count = sl_shard_batch(key_count - request->key, UINT32_MAX);
        const int err =
            reservation_batch(shard, table, request, slice, sl_kv_table_own_reservation(table->kv),
                              count, request->push.records + request->key);
        if (err != 0) {
            return err;
        }
    }
    return SL_SHARD_DONE;
}

static int push_begin(struct sl_shard *shard, struct sl_shard_table *table,
                      struct sl_shard_request *request)
{
    if (!sl_shard_push_is_large(&request->view.section, table->spec.dim)) {
        return SL_SHARD_DONE;
    }
    if (shard->large.owner != NULL) {
        return SL_SHARD_AGAIN;
    }
    shard->large.owner = request;
    request->push.scratch = &shard->large;
    request->push.records = shard->large.records;
    sl_kv_table_reservation_begin(table->kv, sl_kv_table_own_reservation(table->kv));
    return SL_SHARD_DONE;
}

void sl_shard_kv_drop(struct sl_shard *shard, struct sl_shard_request *request)
{
    sl_shard_handler_stop_waiting(shard, request);
    sl_shard_whole_leave(shard, request);
    if (request->push.scratch != NULL && sl_shard_op_kv(request->view.section.op)) {
        struct sl_shard_table *table = shard->tables[request->view.section.table_id];
        if (table->kv != NULL) { /* else the table was dropped */
            sl_kv_table_reservation_end(table->kv, sl_kv_table_own_reservation(table->kv));
            sl_shard_kv_count_memory(shard, table);
        }
        request->push.scratch->owner = NULL;
        request->push.scratch = NULL;
    }
}

/* Values */

void sl_shard_kv_write(enum sl_precision precision, const uint8_t *values, uint64_t count,
                       uint32_t width, uint8_t *reply)
{
    if (precision == SL_PRECISION_F32) {
        memcpy(reply, values, count * width);
    } else {
        sl_precision_narrow_array(precision, (const float *)(const void *)values, count, reply);
    }
}

/* Pushes, pulls or both, a few values at a time: the pull finds the pushed values in the cache. */
static void visit_in_steps(struct sl_shard_table *table, const struct sl_shard_request *request,
                           struct sl_kv_array *array, uint32_t at, uint32_t count, uint8_t *reply)
{
    const struct sl_request_view *view = &request->view;
    const uint32_t width = table->spec.dim;
    const uint32_t step_max = PUSH_PULL_BYTES / width;
    const enum sl_precision returned = sl_request_returned(&view->section);
    const size_t sent_bytes =
        returned == SL_PRECISION_F32 ? width : sl_precision_row_bytes(returned, 1);
    for (uint32_t done = 0; done < count; done += step_max) {
        const uint32_t step = count - done < step_max ? count - done : step_max;
        const uint64_t first = request->done + done;
        if (request->phase == SL_SHARD_PHASE_APPLY && view->encoded != NULL) {
            float widened[PUSH_PULL_BYTES / sizeof(float)];
            sl_precision_widen_array(sl_request_pushed(&view->section), view->encoded, first, step,
                                     widened);
            sl_kv_table_push(table->kv, array, at + done, step, widened);
        } else if (request->phase == SL_SHARD_PHASE_APPLY) {
            const uint8_t *pushed = view->values;
            sl_kv_table_push(table->kv, array, at + done, step, pushed + first * width);
        }
        if (sl_shard_op_pulls(view->section.op)) {
            sl_shard_kv_write(returned, array->values + (size_t)(at + done) * width, step, width,
                              reply + request->reply_done + first * sent_bytes);
        }
    }
}

/* Copies one slice of an array: `count` values from `at` on, at value `done` of the section. */
static void visit(struct sl_shard_table *table, const struct sl_shard_request *request,
                  struct sl_kv_array *array, uint32_t at, uint32_t count, uint8_t *reply)
{
    const struct sl_request_view *view = &request->view;
    const size_t width = table->spec.dim;
    const uint8_t *pushed = view->values; /* NULL: none, or encoded */
    const bool pushes = request->phase == SL_SHARD_PHASE_APPLY;
    if (!pushes && sl_request_returned(&view->section) == SL_PRECISION_F32) {
        memcpy(reply + request->reply_done + request->done * width, array->values + at * width,
               count * width);
    } else if (pushes && pushed != NULL && !sl_shard_op_pulls(view->section.op)) {
        sl_kv_table_push(table->kv, array, at, count, pushed + request->done * width);
    } else {
        visit_in_steps(table, request, array, at, count, reply);
    }
}

/* Copies as many values of the array as the budget pays for. Returns true when its part is done. */
static bool visit_array(struct sl_shard_table *table, struct sl_shard_request *request,
                        struct sl_kv_array *array, uint8_t *reply, struct sl_shard_slice *slice)
{
    const uint32_t width = table->spec.dim;
    const struct part part = part_of(&request->view, request->key);
    const uint64_t paid = (uint64_t)sl_shard_slice_left(slice) * SL_SHARD_KV_BYTES_PER_COST;
    const uint64_t most = (paid < VISIT_BYTES_LEAST ? VISIT_BYTES_LEAST : paid) / width;
    const uint32_t left = part.count - request->key_done;
    const uint32_t count = left < most ? left : (uint32_t)most;
    if (array == NULL) {
        const enum sl_precision returned = sl_request_returned(&request->view.section);
        const size_t bytes =
            returned == SL_PRECISION_F32 ? width : sl_precision_row_bytes(returned, 1);
        memset(reply + request->reply_done + request->done * bytes, 0, count * bytes);
    } else {
        sl_assert(array->length == part.whole);
        visit(table, request, array, part.start + request->key_done, count, reply);
    }
    slice->spent += 1 + (uint32_t)((uint64_t)count * width / SL_SHARD_KV_BYTES_PER_COST);
    request->done += count;
    request->key_done += count;
    if (count < left) {
        return false;
    }
    request->key_done = 0;
    request->key++;
    return true;
}

/* Finds the arrays of the next keys; NULL: never pushed. */
static int find_arrays(const struct sl_shard *shard, struct sl_shard_table *table,
                       const struct sl_shard_request *request, struct sl_shard_slice *slice,
                       uint32_t count, struct sl_kv_array **arrays)
{
    const uint64_t *keys = request->view.keys + request->key;
    const int err = sl_shard_check_kv_owner(shard, request, slice, keys, count);
    if (err == 0) {
        sl_kv_table_find(table->kv, keys, count, arrays);
    }
    return err;
}

/* The arrays of the next keys: of a pull, or of a small push, which has created them. NULL: a
 * pull of zeros. */
static int find_batch(const struct sl_shard *shard, struct sl_shard_table *table,
                      const struct sl_shard_request *request, struct sl_shard_slice *slice,
                      uint32_t count, struct sl_kv_array **arrays)
{
    const uint64_t *keys = request->view.keys + request->key;
    const int err = find_arrays(shard, table, request, slice, count, arrays);
    if (err != 0) {
        return err;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (arrays[i] == NULL && (request->view.section.flags & SL_REQUEST_FLAG_ZEROS) != 0) {
            continue;
        }
        if (arrays[i] == NULL) {
            return sl_shard_fail(shard, request, slice, SL_ERR_NOT_FOUND,
                                 "no client has pushed key %" PRIu64, keys[i]);
        }
        if (arrays[i]->length != part_of(&request->view, request->key + i).whole) {
            return fail_length(shard, request, slice, request->key + i, arrays[i]->length);
        }
    }
    return 0;
}

/* Creates the arrays of the next keys of a large push. */
static int make_next(struct sl_shard *shard, struct sl_shard_table *table,
                     struct sl_shard_request *request, struct sl_shard_slice *slice, uint32_t count,
                     struct sl_kv_array **arrays)
{
    const uint32_t *records = request->push.records + request->key;
    const int err = make_batch(shard, table, request, slice, sl_kv_table_own_reservation(table->kv),
                               records, count);
    for (uint32_t i = 0; i < count; i++) {
        arrays[i] = sl_kv_table_at(table->kv, records[i]);
    }
    return err;
}

static int visit_all(struct sl_shard *shard, struct sl_shard_table *table,
                     struct sl_shard_request *request, uint8_t *reply, struct sl_shard_slice *slice)
{
    struct sl_kv_array *arrays[SL_SHARD_BATCH_KEYS];
    const uint32_t key_count = request->view.section.key_count;
    while (request->key < key_count) {
        const uint32_t paid = sl_shard_slice_left(slice);
        if (paid == 0) {
            return SL_SHARD_AGAIN;
        }
        const uint32_t count = sl_shard_batch(key_count - request->key, paid);
        const int err = request->push.scratch != NULL
                            ? make_next(shard, table, request, slice, count, arrays)
                            : find_batch(shard, table, request, slice, count, arrays);
        if (err != 0) {
            return err;
        }
        for (uint32_t i = 0; i < count; i++) {
            if (!visit_array(table, request, arrays[i], reply, slice)) {
                break;
            }
        }
    }
    return SL_SHARD_DONE;
}

/* Sections */

static int run_lengths(const struct sl_shard *shard, struct sl_shard_table *table,
                       struct sl_shard_request *request, uint8_t *reply,
                       struct sl_shard_slice *slice)
{
    struct sl_kv_array *arrays[SL_SHARD_BATCH_KEYS];
    uint32_t *lengths = (uint32_t *)(void *)(reply + request->reply_done);
    const uint32_t key_count = request->view.section.key_count;
    while (request->key < key_count) {
        const uint32_t paid = sl_shard_slice_left(slice);
        if (paid == 0) {
            return SL_SHARD_AGAIN;
        }
        const uint32_t count = sl_shard_batch(key_count - request->key, paid);
        const uint64_t *keys = request->view.keys + request->key;
        const int err = sl_shard_check_kv_owner(shard, request, slice, keys, count);
        if (err != 0) {
            return err;
        }
        if (shard->options.kv_handler != NULL) {
            sl_shard_handler_lengths(shard, table, keys, count, lengths + request->key);
        } else {
            sl_kv_table_find(table->kv, keys, count, arrays);
            for (uint32_t i = 0; i < count; i++) {
                lengths[request->key + i] = arrays[i] == NULL ? 0 : arrays[i]->length;
            }
        }
        request->key += count;
        slice->spent += count;
    }
    return SL_SHARD_DONE;
}

/* A pull that asks for lengths. */
static int run_measured(const struct sl_shard *shard, struct sl_shard_table *table,
                        struct sl_shard_request *request, uint8_t *reply,
                        struct sl_shard_slice *slice)
{
    struct sl_kv_array *arrays[SL_SHARD_BATCH_KEYS];
    const struct sl_request_section *section = &request->view.section;
    const uint64_t room_bytes = section->count / section->key_count * table->spec.dim;
    while (request->key < section->key_count) {
        const uint32_t paid = sl_shard_slice_left(slice);
        if (paid == 0) {
            return SL_SHARD_AGAIN;
        }
        const uint32_t count = sl_shard_batch(section->key_count - request->key, paid);
        const int err = find_arrays(shard, table, request, slice, count, arrays);
        if (err != 0) {
            return err;
        }
        for (uint32_t i = 0; i < count; i++) {
            const struct sl_kv_array *array = arrays[i];
            sl_shard_kv_measured_write(table, request, request->key + i,
                                       array == NULL ? NULL : array->values,
                                       array == NULL ? 0 : array->length, reply);
        }
        request->key += count;
        slice->spent += count + (uint32_t)(count * room_bytes / SL_SHARD_KV_BYTES_PER_COST);
    }
    return SL_SHARD_DONE;
}

/* While a snapshot is pending, only a push that fits into this slice runs. This is checked before
 * any array is created. */
static bool is_held(const struct sl_shard_table *table, const struct sl_shard_request *request,
                    const struct sl_shard_slice *slice)
{
    const struct sl_request_section *section = &request->view.section;
    const uint32_t unreserved = section->key_count - request->key;
    const uint64_t cost = sl_shard_kv_cost(section, table->spec.dim) +
                          (unreserved + RESERVED_KEYS_PER_COST - 1) / RESERVED_KEYS_PER_COST;
    return cost > sl_shard_slice_left(slice);
}

/* DONE: the arrays of all keys exist or are reserved. */
static int push_collect(struct sl_shard *shard, struct sl_shard_table *table,
                        struct sl_shard_request *request, struct sl_shard_slice *slice)
{
    int result =
        request->push.scratch != NULL ? collect_many(shard, table, request, slice) : SL_SHARD_DONE;
    if (result == SL_SHARD_DONE && shard->snapshots.wanted && is_held(table, request, slice)) {
        result = SL_SHARD_AGAIN;
    }
    if (result == SL_SHARD_DONE && request->push.scratch == NULL) {
        result = collect_few(shard, table, request, slice);
    }
    if (result == SL_SHARD_DONE) {
        request->phase = SL_SHARD_PHASE_APPLY;
        request->key = 0;
    }
    return result;
}

static int begin(struct sl_shard *shard, struct sl_shard_table *table,
                 struct sl_shard_request *request)
{
    request->key = request->key_done = 0;
    request->done = 0;
    if (!sl_shard_pushes(request, request->view.section.op)) {
        request->phase = SL_SHARD_PHASE_READ;
        return SL_SHARD_DONE;
    }
    const int result = push_begin(shard, table, request);
    if (result == SL_SHARD_DONE) {
        request->phase = SL_SHARD_PHASE_COLLECT;
    }
    return result;
}

int sl_shard_kv_run(struct sl_shard *shard, struct sl_shard_table *table,
                    struct sl_shard_request *request, uint8_t *reply, struct sl_shard_slice *slice)
{
    const uint8_t op = request->view.section.op;
    if (sl_shard_handler_is_awaited(shard)) {
        return sl_shard_handler_ask_again(shard, request);
    }
    sl_shard_handler_stop_waiting(shard, request);
    if (op != SL_REQUEST_KV_LENGTHS && shard->options.kv_handler != NULL) {
        return sl_shard_handler_run(shard, table, request, reply, slice);
    }
    int result = SL_SHARD_DONE;
    if (request->phase == SL_SHARD_PHASE_ADMIT) {
        result = begin(shard, table, request);
    }
    if (result == SL_SHARD_DONE && request->phase == SL_SHARD_PHASE_COLLECT) {
        result = push_collect(shard, table, request, slice);
    }
    if (result != SL_SHARD_DONE) {
        return result;
    }
    if (op == SL_REQUEST_KV_LENGTHS) {
        return run_lengths(shard, table, request, reply, slice);
    }
    const bool pushes = request->phase == SL_SHARD_PHASE_APPLY;
    if (pushes || sl_shard_op_pulls(op)) {
        result = sl_shard_asks_lengths(&request->view.section)
                     ? run_measured(shard, table, request, reply, slice)
                     : visit_all(shard, table, request, reply, slice);
        slice->spent += sl_shard_snapshot_copy_debt(shard);
    }
    if (result == SL_SHARD_AGAIN && pushes) {
        sl_shard_part_begin(shard, request);
    }
    if (result == SL_SHARD_DONE) {
        sl_shard_kv_drop(shard, request);
        sl_shard_part_end(shard, request);
        if (pushes) {
            sl_shard_section_wrote(request);
        }
        sl_shard_see_keys(shard, table, request->view.keys, request->view.section.key_count);
        table->step += pushes;
        table->pushed_rows += pushes ? request->view.section.key_count : 0;
        table->pulled_rows += sl_shard_op_pulls(op) ? request->view.section.key_count : 0;
    }
    return result;
}

/* Chunked replies */

bool sl_shard_kv_is_chunked(const struct sl_shard *shard, const struct sl_shard_request *request)
{
    const struct sl_request_view *view = &request->view;
    const struct sl_shard_table *table = shard->tables[view->section.table_id];
    if (shard->options.kv_handler != NULL || view->section.key_count != 1 ||
        sl_shard_asks_lengths(&view->section) ||
        sl_partition_kv_owner(view->keys[0], shard->options.count) != shard->options.index) {
        return false;
    }
    struct sl_kv_array *array;
    sl_kv_table_find(table->kv, view->keys, 1, &array);
    return array != NULL && array->length == part_of(view, 0).whole;
}

uint8_t *sl_shard_kv_next_values(const struct sl_shard *shard,
                                 const struct sl_shard_request *request)
{
    const struct sl_request_view *view = &request->view;
    const struct sl_shard_table *table = shard->tables[view->section.table_id];
    struct sl_kv_array *array;
    sl_kv_table_find(table->kv, view->keys, 1, &array);
    return array->values + (view->section.start + request->done) * table->spec.dim;
}
