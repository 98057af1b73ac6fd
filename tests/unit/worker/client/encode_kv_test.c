/* Operations on KV tables are encoded, then carried out by a model of the shards that reads
 * requests with the wire functions and keeps every array, piece by piece; what comes back is
 * compared. */

#include <stdlib.h>
#include <string.h>

#include "core/limits.h"
#include "core/partition.h"
#include "tests/support/unit.h"
#include "worker/client/encode.h"
#include "worker/client/scatter.h"

#define KEYS_MAX  4096U
#define BYTES_MAX (40U << 20)

/* What the shards have: the batch's values as they arrived, and how often each byte did. */
struct model {
    uint8_t *bytes, *visits;
    uint32_t requests, sections, pieces, tails, reply_buffers;
    uint64_t longest_section; /* bytes of values */
    const uint64_t *keys;
    const uint64_t *starts; /* [key_count + 1]: in values */
    uint32_t key_count, width, shard_count, command;
};

struct fixture {
    struct sl_scratch wire, notes;
    struct sl_encode_plan plan;
    struct sl_operation operations[4];
    struct sl_encode_list list;
    struct sl_table table;
    struct model model;
    uint64_t keys[KEYS_MAX], starts[KEYS_MAX + 1];
    uint32_t lens[KEYS_MAX];
    uint8_t *push, *pull;
    enum sl_precision sent, returned; /* of values of 4 bytes: small integers then */
};

static void setup(struct fixture *fixture)
{
    fixture->table = (struct sl_table){.id = 5, .spec = {.kind = SL_TABLE_KV, .dim = 4}};
    fixture->plan = (struct sl_encode_plan){.wire = &fixture->wire,
                                            .notes = &fixture->notes,
                                            .operations = fixture->operations,
                                            .operation_count = 1,
                                            .shard_count = 3,
                                            .payload_bytes_max = SL_LIMIT_FRAME_PAYLOAD_BYTES};
    fixture->push = malloc(BYTES_MAX);
    fixture->pull = malloc(BYTES_MAX);
    fixture->model.bytes = malloc(BYTES_MAX);
    fixture->model.visits = malloc(BYTES_MAX);
    for (uint32_t i = 0; i < BYTES_MAX; i++) {
        fixture->push[i] = (uint8_t)(i * 7 + i / 251);
    }
}

static void teardown(struct fixture *fixture)
{
    sl_scratch_fini(&fixture->wire);
    sl_scratch_fini(&fixture->notes);
    free(fixture->push);
    free(fixture->pull);
    free(fixture->model.bytes);
    free(fixture->model.visits);
}

static uint32_t index_of(const struct model *model, uint64_t key)
{
    for (uint32_t i = 0; i < model->key_count; i++) {
        if (model->keys[i] == key) {
            return i;
        }
    }
    fail();
    return 0;
}

/* One array, or a piece of it: `count` values from `start` on. */
static void serve_values(struct model *model, uint64_t start, uint64_t count, const uint8_t *values,
                         uint8_t *reply)
{
    uint64_t at = start * model->width, bytes = count * model->width;
    for (uint64_t i = at; i < at + bytes; i++) {
        model->visits[i]++;
    }
    if (values != NULL) {
        memcpy(model->bytes + at, values, bytes);
    }
    if (reply != NULL) {
        memcpy(reply, model->bytes + at, bytes);
    }
}

static uint8_t *serve_section(struct model *model, uint32_t shard,
                              const struct sl_request_view *view, uint8_t *reply)
{
    const struct sl_request_section *section = &view->section;
    bool lengths = section->op == SL_REQUEST_KV_LENGTHS;
    bool pulls = section->op == SL_REQUEST_KV_PULL || section->op == SL_REQUEST_KV_PUSH_PULL;
    const enum sl_precision returned = sl_request_returned(section);
    const size_t wide_bytes = section->count * sizeof(float) + 1;
    float *sent_wide = malloc(wide_bytes), *reply_wide = malloc(wide_bytes);
    const uint8_t *values = view->values;
    uint8_t *out = returned == SL_PRECISION_F32 ? reply : (uint8_t *)reply_wide;
    if (view->encoded != NULL) {
        sl_precision_widen_array(sl_request_pushed(section), view->encoded, 0, section->count,
                                 sent_wide);
        values = (uint8_t *)sent_wide;
    }
    model->sections++;
    model->pieces += section->bag_count > 0;
    assert_int_equal(section->command, model->command);
    uint64_t section_bytes = section->count * model->width;
    if (section_bytes > model->longest_section) {
        model->longest_section = section_bytes;
    }
    for (uint32_t i = 0; i < section->key_count; i++) {
        uint32_t index = index_of(model, view->keys[i]);
        assert_int_equal(sl_partition_kv_owner(view->keys[i], model->shard_count), shard);
        uint64_t whole = model->starts[index + 1] - model->starts[index];
        if (lengths) {
            memcpy(out + i * sizeof(uint32_t), &(uint32_t){(uint32_t)whole}, sizeof(uint32_t));
            continue;
        }
        uint64_t count = section->bag_count > 0 ? section->count
                         : view->lens != NULL   ? view->lens[i]
                                                : section->count / section->key_count;
        assert_true(section->bag_count == 0 ? count == whole : section->bag_count == whole);
        serve_values(model, model->starts[index] + section->start, count, values,
                     pulls ? out : NULL);
        values = values == NULL ? NULL : values + count * model->width;
        out = pulls ? out + count * model->width : out;
    }
    if (returned != SL_PRECISION_F32) {
        sl_precision_narrow_array(returned, reply_wide, section->count, reply);
    }
    free(sent_wide);
    free(reply_wide);
    return reply + sl_request_reply_bytes(section, model->width);
}

static void serve(struct fixture *fixture, const struct sl_request *request)
{
    struct model *model = &fixture->model;
    uint64_t bytes = (uint64_t)request->body_bytes + request->tail_bytes;
    assert_true(bytes <= fixture->plan.payload_bytes_max);
    assert_true(request->reply_bytes <= fixture->plan.payload_bytes_max);
    assert_true(request->tail == NULL || request->body_bytes <= SL_ENCODE_TAIL_BODY_BYTES_MAX);
    assert_int_equal(bytes % 8, 0);
    uint8_t *payload = malloc(bytes), *reply = malloc(request->reply_bytes + 8);
    memcpy(payload, request->body, request->body_bytes);
    if (request->tail != NULL) {
        memcpy(payload + request->body_bytes, request->tail, request->tail_bytes);
    }
    struct sl_bytes cursor = sl_bytes_over(payload, bytes);
    struct sl_request_prefix prefix;
    assert_int_equal(sl_request_read_prefix(&cursor, &prefix), 0);
    uint8_t *at = reply;
    for (uint32_t i = 0; i < prefix.section_count; i++) {
        struct sl_request_view view = {0};
        struct sl_request_section section;
        assert_int_equal(sl_request_read_section(&cursor, &section), 0);
        assert_int_equal(sl_request_read_body(&cursor, &section, model->width, &view), 0);
        at = serve_section(model, request->shard, &view, at);
    }
    assert_int_equal(cursor.left, 0);
    assert_int_equal(at - reply, request->reply_bytes);
    model->requests++;
    model->tails += request->tail != NULL;
    model->reply_buffers += request->reply_memory != NULL;
    if (request->reply_memory != NULL) {
        memcpy(request->reply_memory, reply, request->reply_bytes);
    } else {
        sl_scatter_reply(request, reply);
    }
    free(payload);
    free(reply);
}

/* Keys that are spread over the whole range; lens NULL: all arrays have `len` values. */
static void make_batch(struct fixture *fixture, uint32_t key_count, uint32_t len, bool with_lens)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < key_count; i++) {
        fixture->keys[i] = UINT64_MAX / (key_count + 1) * (i + 1);
        fixture->lens[i] = with_lens ? 1 + (i * 37 + len) % (2 * len) : len;
        fixture->starts[i] = at;
        at += fixture->lens[i];
    }
    fixture->starts[key_count] = at;
    uint32_t width = fixture->table.spec.dim;
    assert_true(at * width <= BYTES_MAX);
    fixture->operations[0] = (struct sl_operation){.table = &fixture->table,
                                                   .keys = fixture->keys,
                                                   .lens = with_lens ? fixture->lens : NULL,
                                                   .key_count = key_count,
                                                   .count = at};
}

static void run(struct fixture *fixture)
{
    struct model *model = &fixture->model;
    *model = (struct model){.bytes = model->bytes,
                            .visits = model->visits,
                            .keys = fixture->keys,
                            .starts = fixture->starts,
                            .key_count = fixture->operations[0].key_count,
                            .width = fixture->table.spec.dim,
                            .command = fixture->operations[0].command,
                            .shard_count = fixture->plan.shard_count};
    memset(model->visits, 0, fixture->operations[0].count * model->width);
    fixture->list = (struct sl_encode_list){0};
    sl_scratch_reset(&fixture->wire);
    sl_scratch_reset(&fixture->notes);
    assert_int_equal(sl_encode_route(&fixture->plan), 0);
    uint32_t shard = 0;
    while ((shard = sl_encode_next(&fixture->plan, shard)) < fixture->plan.shard_count) {
        assert_int_equal(sl_encode_shard(&fixture->plan, shard, &fixture->list), 0);
        shard++;
    }
    for (struct sl_request *at = fixture->list.first; at != NULL; at = at->next) {
        serve(fixture, at);
    }
}

/* Pushes the batch, pulls it, and does both at once; all of it arrives, once, and comes back. */
static void check_batch(struct fixture *fixture)
{
    struct sl_operation *operation = &fixture->operations[0];
    uint64_t bytes = operation->count * fixture->table.spec.dim;
    operation->command = 9;
    operation->push = fixture->sent;
    operation->pull = SL_PRECISION_F32;
    operation->op = SL_REQUEST_KV_PUSH;
    operation->gradients = fixture->push;
    operation->values = NULL;
    run(fixture);
    assert_memory_equal(fixture->model.bytes, fixture->push, bytes);
    for (uint64_t i = 0; i < bytes; i++) {
        assert_int_equal(fixture->model.visits[i], 1);
    }
    for (struct sl_request *at = fixture->list.first; at != NULL; at = at->next) {
        assert_true(at->writes);
    }
    operation->op = SL_REQUEST_KV_PULL;
    operation->push = SL_PRECISION_F32;
    operation->pull = fixture->returned;
    operation->gradients = NULL;
    operation->values = fixture->pull;
    memset(fixture->pull, 0, bytes);
    run(fixture);
    assert_memory_equal(fixture->pull, fixture->push, bytes);
    for (struct sl_request *at = fixture->list.first; at != NULL; at = at->next) {
        assert_false(at->writes);
    }
    operation->op = SL_REQUEST_KV_PUSH_PULL;
    operation->push = fixture->sent;
    operation->gradients = fixture->push;
    memset(fixture->pull, 0, bytes);
    memset(fixture->model.bytes, 0, bytes);
    run(fixture);
    assert_memory_equal(fixture->pull, fixture->push, bytes);
}

#define CASE(name) SL_CASE_USING(name, struct fixture, fixture, setup, teardown)

CASE(kv__goes_to_the_owners_of_its_ranges)
{
    for (uint32_t shards = 1; shards <= 64; shards *= 4) {
        fixture->plan.shard_count = shards;
        for (uint32_t keys = 1; keys <= 300; keys = keys * 3 + 1) {
            make_batch(fixture, keys, 5, false);
            check_batch(fixture);
            assert_true(fixture->model.requests <= (shards < keys ? shards : keys));
            make_batch(fixture, keys, 5, true);
            check_batch(fixture);
        }
    }
}

CASE(kv__keys_at_the_ends_of_ranges)
{
    fixture->plan.shard_count = 7;
    make_batch(fixture, 14, 3, true);
    for (uint32_t shard = 0; shard < 7; shard++) {
        fixture->keys[2 * shard] = sl_partition_kv_first(shard, 7);
        fixture->keys[2 * shard + 1] =
            shard == 6 ? UINT64_MAX : sl_partition_kv_first(shard + 1, 7) - 1;
    }
    check_batch(fixture);
    assert_int_equal(fixture->model.requests, 7);
}

CASE(kv__bytes_of_any_count_and_place)
{
    fixture->table.spec.dim = 1;
    uint8_t *push = fixture->push;
    for (uint32_t len = 1; len < 20; len++) {
        fixture->push = push + len;
        make_batch(fixture, 31, len, len % 2 == 0);
        check_batch(fixture);
    }
    fixture->push = push + 3;
    make_batch(fixture, 2, 300001, true);
    check_batch(fixture);
    fixture->push = push;
}

CASE(kv__is_cut_between_keys)
{
    fixture->plan.payload_bytes_max = SL_ENCODE_PAYLOAD_BYTES_MIN;
    for (uint32_t lens = 0; lens < 2; lens++) {
        make_batch(fixture, 1000, 301, lens == 1);
        check_batch(fixture);
        assert_int_equal(fixture->model.pieces, 0);
        assert_true(fixture->model.requests > 1000 * 301 * 4 / SL_ENCODE_PAYLOAD_BYTES_MIN);
        assert_true(fixture->model.requests < 2 * 1000 * 301 * 4 / SL_ENCODE_PAYLOAD_BYTES_MIN + 3);
    }
}

CASE(kv__an_array_that_fits_is_not_cut)
{
    uint32_t room = SL_LIMIT_FRAME_PAYLOAD_BYTES - 8 - 32 - 8;
    make_batch(fixture, 1, room / 4, false);
    check_batch(fixture);
    assert_int_equal(fixture->model.requests, 1);
    assert_int_equal(fixture->model.pieces, 0);
    assert_int_equal(fixture->model.tails, 1);
    assert_int_equal(fixture->model.reply_buffers, 1);
    make_batch(fixture, 1, room / 4 + 1, false);
    check_batch(fixture);
    assert_true(fixture->model.pieces > 1);
}

CASE(kv__a_long_array_goes_in_pieces)
{
    make_batch(fixture, 2, (4U << 20) + 1, false);
    check_batch(fixture); /* 16 MiB and 4 bytes each */
    assert_int_equal(fixture->model.pieces, fixture->model.sections);
    assert_true(fixture->model.longest_section <= 1U << 20);
    assert_int_equal(fixture->model.tails, 32);
    assert_int_equal(fixture->model.reply_buffers, 16); /* the second array is not aligned to 8 */
    fixture->table.spec.dim = 1;
    fixture->plan.payload_bytes_max = SL_ENCODE_PAYLOAD_BYTES_MIN;
    make_batch(fixture, 3, 200003, true);
    check_batch(fixture);
    assert_true(fixture->model.pieces >= 6);
}

/* Arrays of any length, whole and in chunks: the rows of a section begin with its first value. */
CASE(kv__travels_in_every_precision)
{
    static const enum sl_precision pairs[][2] = {{SL_PRECISION_F16, SL_PRECISION_BF16},
                                                 {SL_PRECISION_INT8, SL_PRECISION_F32},
                                                 {SL_PRECISION_F32, SL_PRECISION_F16},
                                                 {SL_PRECISION_BF16, SL_PRECISION_BF16}};
    static const uint32_t pieces[] = {0, 6, 6, 0}; /* of 1.5 Mi values: F32 has 6 MiB */
    float *values = (float *)(void *)fixture->push;
    for (uint32_t i = 0; i < BYTES_MAX / sizeof *values; i++) {
        values[i] = (float)(i % 128);
    }
    for (uint32_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        fixture->sent = pairs[i][0];
        fixture->returned = pairs[i][1];
        fixture->plan.batched = i % 2 == 0;
        fixture->plan.payload_bytes_max = SL_ENCODE_PAYLOAD_BYTES_MIN;
        make_batch(fixture, 1000, 301, i % 2 == 0);
        check_batch(fixture);
        make_batch(fixture, 3, 130001, i % 2 == 0);
        check_batch(fixture);
        fixture->plan.payload_bytes_max = SL_LIMIT_FRAME_PAYLOAD_BYTES;
        make_batch(fixture, 1, 300, false);
        check_batch(fixture);
        make_batch(fixture, 1, 3U << 19, false);
        check_batch(fixture);
        assert_int_equal(fixture->model.pieces, pieces[i]);
    }
}

/* They have a step to themselves. */
CASE(kv__lone_values_leave_from_their_place)
{
    fixture->plan.shard_count = 1;
    for (uint32_t less = 0; less <= 2; less += 2) {
        make_batch(fixture, 1, SL_ENCODE_LONE_BYTES_MIN / 4 - less, false);
        check_batch(fixture);
        assert_int_equal(fixture->model.tails, less == 0);
    }
}

CASE(kv__long_values_leave_from_their_place)
{
    fixture->plan.shard_count = 1;
    make_batch(fixture, 1, SL_ENCODE_TAIL_BYTES_MIN / 4 - 1, false);
    check_batch(fixture);
    assert_int_equal(fixture->model.tails, 0);
    make_batch(fixture, 1, SL_ENCODE_TAIL_BYTES_MIN / 4, false);
    check_batch(fixture);
    assert_int_equal(fixture->model.tails, 1);
    assert_ptr_equal(fixture->list.first->tail, fixture->push);
    assert_ptr_equal(fixture->list.first->reply_memory, fixture->pull);
    make_batch(fixture, 1, SL_ENCODE_TAIL_BYTES_MIN / 4 + 1, false);
    check_batch(fixture); /* it cannot be padded where it lies */
    assert_int_equal(fixture->model.tails, 0);
    make_batch(fixture, 400, 64, false);
    check_batch(fixture);
    assert_int_equal(fixture->model.tails, 1);
    make_batch(fixture, 1000, 64, false);
    check_batch(fixture); /* too many keys to be copied along */
    assert_int_equal(fixture->model.tails, 0);
}

CASE(kv__lengths)
{
    make_batch(fixture, 501, 9, true);
    uint32_t lens[501] = {0};
    struct sl_operation *operation = &fixture->operations[0];
    operation->op = SL_REQUEST_KV_LENGTHS;
    operation->lens = NULL;
    operation->count = 0;
    operation->values = lens;
    run(fixture);
    assert_memory_equal(lens, fixture->lens, sizeof lens);
    assert_int_equal(fixture->model.requests, 3);
}

CASE(kv__no_keys_no_requests)
{
    make_batch(fixture, 0, 1, false);
    fixture->operations[0].op = SL_REQUEST_KV_PULL;
    fixture->operations[0].values = fixture->pull;
    run(fixture);
    assert_int_equal(fixture->list.count, 0);
}

CASE(kv__lite_shares_requests_while_they_are_short)
{
    fixture->plan.batched = true;
    fixture->plan.shard_count = 1;
    make_batch(fixture, 4, 8, false);
    struct sl_operation *operations = fixture->operations;
    operations[0].op = SL_REQUEST_KV_PUSH;
    operations[0].gradients = fixture->push;
    operations[1] = operations[0];
    operations[1].op = SL_REQUEST_KV_PULL;
    operations[1].gradients = NULL;
    operations[1].values = fixture->pull;
    fixture->plan.operation_count = 2;
    run(fixture);
    assert_int_equal(fixture->model.requests, 1);
    assert_int_equal(fixture->model.sections, 2);
    assert_memory_equal(fixture->pull, fixture->push, 4 * 8 * 4);

    make_batch(fixture, 1, 1 << 20, false);
    operations[0].op = SL_REQUEST_KV_PUSH;
    operations[0].gradients = fixture->push;
    operations[1] = operations[0];
    operations[1].op = SL_REQUEST_KV_PUSH_PULL;
    operations[1].values = fixture->pull;
    run(fixture);
    assert_memory_equal(fixture->pull, fixture->push, 4 << 20);
}

CASE(priority__is_that_of_the_plan)
{
    fixture->plan.priority = -7;
    make_batch(fixture, 40, 8, false);
    check_batch(fixture);
    for (struct sl_request *at = fixture->list.first; at != NULL; at = at->next) {
        assert_int_equal(at->priority, -7);
    }
}
