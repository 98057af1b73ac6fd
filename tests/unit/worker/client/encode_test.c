/* Steps are encoded, then carried out by a model of the shards that reads requests with the wire
 * functions and answers with values that depend on the key, and what comes back is compared. All
 * values are integers that every precision has: also INT8, where rows and sums stay below 128. */

#include <stdlib.h>
#include <string.h>

#include "core/limits.h"
#include "core/partition.h"
#include "tests/support/unit.h"
#include "worker/client/encode.h"
#include "worker/client/error_feedback.h"
#include "worker/client/scatter.h"

#define SHARDS_MAX 5

struct fixture {
    struct sl_scratch wire, notes;
    struct sl_encode_plan plan;
    struct sl_operation operations[8];
    struct sl_encode_list list;
    uint32_t ticks, finishes, sections;
    uint32_t sections_of_next; /* of clock 42: behind the tick of 41 */
    float *pushed;             /* dense: what arrived for each element; sparse: column 0 by key */
    uint32_t *visits;
    uint32_t *block_visits; /* dense: sections that pushed to a part of the block */
    uint64_t least, most;   /* dense: elements of a section that pushes */
    enum sl_precision pull, push;
};

static struct sl_table sparse = {.id = 2, .spec = {.kind = SL_TABLE_SPARSE, .dim = 3}};
static struct sl_table dense = {.id = 3, .spec = {.kind = SL_TABLE_DENSE, .length = 700001}};
#define DENSE_BLOCKS  (700001 / SL_PARTITION_BLOCK_ELEMENTS + 1)
#define KEYS_DISTINCT 50000U

static float value_of(uint64_t key, uint32_t column)
{
    return (float)(key % 40 + column);
}

static float value_of_element(uint64_t element)
{
    return (float)(element % 256);
}

static void setup(struct fixture *fixture)
{
    fixture->pushed = calloc(dense.spec.length, sizeof *fixture->pushed);
    fixture->visits = calloc(dense.spec.length, sizeof *fixture->visits);
    fixture->block_visits = calloc(DENSE_BLOCKS, sizeof *fixture->block_visits);
    fixture->plan = (struct sl_encode_plan){.wire = &fixture->wire,
                                            .notes = &fixture->notes,
                                            .operations = fixture->operations,
                                            .shard_count = 3,
                                            .payload_bytes_max = SL_ENCODE_PAYLOAD_BYTES_MIN,
                                            .clock = 41};
}

static void teardown(struct fixture *fixture)
{
    sl_scratch_fini(&fixture->wire);
    sl_scratch_fini(&fixture->notes);
    free(fixture->pushed);
    free(fixture->visits);
    free(fixture->block_visits);
}

static struct sl_operation *add(struct fixture *fixture, struct sl_operation operation)
{
    struct sl_operation *at = &fixture->operations[fixture->plan.operation_count++];
    *at = operation;
    if (operation.op != SL_REQUEST_FIND && operation.values != NULL) {
        at->pull = operation.table == &dense && fixture->pull == SL_PRECISION_INT8
                       ? SL_PRECISION_BF16
                       : fixture->pull;
    }
    if (sl_request_takes_rate((uint8_t)operation.op)) {
        at->push = fixture->push;
    }
    return at;
}

static void narrow(const struct sl_request_section *section, const float *values, uint32_t rows,
                   void *reply)
{
    const enum sl_precision precision = sl_request_returned(section);
    const size_t row_bytes = sl_precision_row_bytes(precision, 3);
    for (uint32_t i = 0; i < rows; i++) {
        sl_precision_kernels(SL_PRECISION_SIMD_SCALAR)
            ->narrow(precision, values + (size_t)i * 3, 3, (uint8_t *)reply + i * row_bytes);
    }
    if (section->count > 0) {
        sl_precision_narrow_array(precision, values, section->count, reply);
    }
}

/* Returns the section's gradients as f32; the caller frees them. NULL: it has none. */
static float *widened(const struct sl_request_view *view)
{
    const struct sl_request_section *section = &view->section;
    const uint64_t rows = section->key_count;
    float *wide = malloc((rows * 3 + section->count + 1) * sizeof *wide);
    const enum sl_precision precision = sl_request_pushed(section);
    const uint8_t *from = view->encoded;
    if (view->gradients != NULL) {
        memcpy(wide, view->gradients, (rows * 3 + section->count) * sizeof *wide);
    } else if (from == NULL) {
        free(wide);
        return NULL;
    } else if (section->count > 0) {
        sl_precision_widen_array(precision, from, 0, section->count, wide);
    }
    for (uint64_t i = 0; from != NULL && i < rows; i++) {
        sl_precision_kernels(SL_PRECISION_SIMD_SCALAR)
            ->widen(precision, from + i * sl_precision_row_bytes(precision, 3), 3, wide + i * 3);
    }
    return wide;
}

/* One section by the model; returns where the next reply array goes. */
static uint8_t *serve_section(struct fixture *fixture, uint32_t shard,
                              const struct sl_request_view *view, uint8_t *reply)
{
    const struct sl_request_section *section = &view->section;
    if (section->op == SL_REQUEST_TICK) {
        return reply;
    }
    const uint32_t bags = section->bag_count;
    float *out = calloc((section->key_count + bags) * 3 + section->count + 1, sizeof *out);
    float *gradients = widened(view);
    uint32_t bag = 0;
    bool replies = section->op == SL_REQUEST_PULL_POOLED;
    for (uint32_t i = 0; i < section->key_count; i++) {
        assert_int_equal(sl_partition_owner(view->keys[i], fixture->plan.shard_count), shard);
        if (gradients != NULL) {
            float *pushed = &fixture->pushed[view->keys[i]];
            *pushed = (section->op == SL_REQUEST_ASSIGN ? 0 : *pushed) + gradients[i * 3];
            fixture->visits[view->keys[i]]++;
        }
        while (section->bag_count > 0 && view->bag_ends[bag] <= i) {
            bag++;
        }
        for (uint32_t column = 0; column < 3; column++) {
            if (section->op == SL_REQUEST_PULL_POOLED) {
                out[bag * 3 + column] += value_of(view->keys[i], column);
            } else if (section->op != SL_REQUEST_PUSH && section->op != SL_REQUEST_ASSIGN) {
                out[i * 3 + column] = value_of(view->keys[i], column);
                replies = true;
            }
        }
    }
    if (section->count > 0 && gradients != NULL) {
        fixture->least = section->count < fixture->least ? section->count : fixture->least;
        fixture->most = section->count > fixture->most ? section->count : fixture->most;
    }
    for (uint64_t i = 0; i < section->count; i++) {
        if (gradients != NULL) {
            const uint64_t block = (section->start + i) / SL_PARTITION_BLOCK_ELEMENTS;
            fixture->block_visits[block] +=
                i == 0 || (section->start + i) % SL_PARTITION_BLOCK_ELEMENTS == 0;
            fixture->pushed[section->start + i] += gradients[i];
            fixture->visits[section->start + i]++;
        }
        if (section->op != SL_REQUEST_DENSE_PUSH) {
            out[i] = value_of_element(section->start + i);
            replies = true;
        }
    }
    if (replies) {
        narrow(section, out, bags > 0 ? bags : section->key_count, reply);
    }
    free(out);
    free(gradients);
    uint8_t *found = reply + sl_bytes_pad8((uint64_t)section->key_count * 3 * sizeof *out);
    for (uint32_t i = 0; section->op == SL_REQUEST_FIND && i < section->key_count; i++) {
        found[i] = view->keys[i] % 2;
    }
    return reply + sl_request_reply_bytes(section, section->count == 0 ? 3 : 0);
}

static void serve(struct fixture *fixture, const struct sl_request *request)
{
    uint64_t bytes = request->body_bytes + request->tail_bytes;
    assert_true(bytes <= fixture->plan.payload_bytes_max);
    assert_true(request->reply_bytes <= fixture->plan.payload_bytes_max);
    assert_true(request->tail == NULL || request->body_bytes <= SL_ENCODE_TAIL_BODY_BYTES_MAX);
    uint8_t *payload = malloc(bytes);
    uint8_t *reply = malloc(request->reply_bytes + 8);
    memcpy(payload, request->body, request->body_bytes);
    if (request->tail != NULL) {
        memcpy(payload + request->body_bytes, request->tail, request->tail_bytes);
    }
    struct sl_bytes cursor = sl_bytes_over(payload, bytes);
    struct sl_request_prefix prefix;
    assert_int_equal(sl_request_read_prefix(&cursor, &prefix), 0);
    uint8_t *at = reply;
    uint32_t clock = prefix.clock, last_clock = clock;
    for (uint32_t i = 0; i < prefix.section_count; i++) {
        struct sl_request_view view = {0};
        struct sl_request_section section;
        assert_int_equal(sl_request_read_section(&cursor, &section), 0);
        uint32_t dim = section.table_id == sparse.id ? 3 : 0;
        assert_int_equal(sl_request_read_body(&cursor, &section, dim, &view), 0);
        if (section.op == SL_REQUEST_TICK) {
            fixture->ticks++;
            fixture->finishes += clock++ == SL_REQUEST_CLOCK_FINISHED;
        } else {
            fixture->sections_of_next += clock == 42;
            assert_in_range(clock, 41, 42);
            last_clock = clock;
        }
        fixture->sections++;
        at = serve_section(fixture, request->shard, &view, at);
    }
    assert_true(request->first_read == NULL || request->clock == last_clock);
    assert_int_equal(cursor.left, 0);
    assert_int_equal(at - reply, request->reply_bytes);
    sl_scatter_reply(request, reply);
    free(payload);
    free(reply);
}

static void run(struct fixture *fixture)
{
    fixture->list = (struct sl_encode_list){0};
    assert_int_equal(sl_encode_route(&fixture->plan), 0);
    uint32_t shard = 0;
    while ((shard = sl_encode_next(&fixture->plan, shard)) < fixture->plan.shard_count) {
        assert_int_equal(sl_encode_shard(&fixture->plan, shard, &fixture->list), 0);
        shard++;
    }
    uint32_t count = 0;
    for (struct sl_request *at = fixture->list.first; at != NULL; at = at->next) {
        serve(fixture, at);
        count++;
    }
    assert_int_equal(count, fixture->list.count);
    for (uint32_t i = 0; i < fixture->plan.operation_count; i++) {
        if (fixture->operations[i].op == SL_REQUEST_PULL_POOLED) {
            sl_scatter_pool(&fixture->operations[i]);
        }
    }
}

static uint64_t *random_keys(uint32_t count)
{
    uint64_t *keys = malloc(count * sizeof *keys + 1);
    uint64_t seed = count;
    for (uint32_t i = 0; i < count; i++) {
        keys[i] = sl_hash_random(&seed) % KEYS_DISTINCT;
    }
    return keys;
}

static float *whole_gradients(uint64_t count)
{
    float *gradients = malloc(count * sizeof *gradients + 8);
    for (uint64_t i = 0; i < count; i++) {
        gradients[i] = (float)(i % 7);
    }
    return gradients;
}

static void check_rows(const uint64_t *keys, const float *rows, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t column = 0; column < 3; column++) {
            assert_true(rows[i * 3 + column] == value_of(keys[i], column));
        }
    }
}

static void check_pull(struct fixture *fixture, uint32_t count, enum sl_request_op op)
{
    uint64_t *keys = random_keys(count);
    float *rows = calloc((size_t)count * 3 + 1, sizeof *rows);
    uint8_t *found = calloc(count + 1, 1);
    fixture->plan.operation_count = 0;
    add(fixture, (struct sl_operation){.op = op,
                                       .table = &sparse,
                                       .keys = keys,
                                       .key_count = count,
                                       .values = rows,
                                       .found = op == SL_REQUEST_FIND ? found : NULL});
    run(fixture);
    check_rows(keys, rows, count);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(found[i], op == SL_REQUEST_FIND ? keys[i] % 2 : 0);
    }
    free(keys);
    free(rows);
    free(found);
}

#define CASE(name) SL_CASE_USING(name, struct fixture, fixture, setup, teardown)

/* Chooses the n-th pair of precisions for what is pulled and pushed; false: there are no more. */
static bool choose(struct fixture *fixture, uint32_t n)
{
    static const enum sl_precision pairs[][2] = {
        {SL_PRECISION_F32, SL_PRECISION_F32},  {SL_PRECISION_F16, SL_PRECISION_INT8},
        {SL_PRECISION_BF16, SL_PRECISION_F16}, {SL_PRECISION_INT8, SL_PRECISION_BF16},
        {SL_PRECISION_F32, SL_PRECISION_INT8}, {SL_PRECISION_INT8, SL_PRECISION_F32},
    };
    if (n < sizeof pairs / sizeof *pairs) {
        fixture->pull = pairs[n][0];
        fixture->push = pairs[n][1];
    }
    return n < sizeof pairs / sizeof *pairs;
}

CASE(encode_shard__pulls_every_row_whatever_the_cuts)
{
    const uint32_t counts[] = {0, 1, 2, 100, 40000};
    for (uint32_t shards = 1; shards <= SHARDS_MAX; shards++) {
        fixture->plan.shard_count = shards;
        fixture->plan.batched = shards % 2 == 0;
        for (uint32_t n = 0; choose(fixture, n); n++) {
            for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
                check_pull(fixture, counts[i], SL_REQUEST_PULL);
                check_pull(fixture, counts[i], SL_REQUEST_FIND);
            }
        }
    }
}

/* Pushes keys of which many repeat, cut or not: every gradient counts (of an assign: the last row),
 * and in a push that is cut no key is visited twice. */
static void check_push(struct fixture *fixture, uint32_t count, enum sl_request_op op)
{
    const bool pull_too = op == SL_REQUEST_PUSH_PULL;
    uint64_t *keys = random_keys(count);
    float *gradients = whole_gradients((uint64_t)count * 3);
    float *rows = calloc((size_t)count * 3 + 1, sizeof *rows);
    float *expected = calloc(KEYS_DISTINCT, sizeof *expected);
    for (uint32_t i = 0; i < count; i++) {
        expected[keys[i]] = (op == SL_REQUEST_ASSIGN ? 0 : expected[keys[i]]) + gradients[i * 3];
    }
    memset(fixture->pushed, 0, KEYS_DISTINCT * sizeof(float));
    memset(fixture->visits, 0, KEYS_DISTINCT * sizeof(uint32_t));
    fixture->plan.operation_count = 0;
    add(fixture, (struct sl_operation){.op = op,
                                       .table = &sparse,
                                       .keys = keys,
                                       .key_count = count,
                                       .gradients = gradients,
                                       .values = pull_too ? rows : NULL});
    run(fixture);
    assert_memory_equal(fixture->pushed, expected, KEYS_DISTINCT * sizeof(float));
    for (uint32_t i = 0; fixture->list.count > fixture->plan.shard_count && i < KEYS_DISTINCT;
         i++) {
        assert_true(fixture->visits[i] <= 1);
    }
    if (pull_too) {
        check_rows(keys, rows, count);
    }
    free(keys);
    free(gradients);
    free(rows);
    free(expected);
}

CASE(encode_shard__pushes_every_gradient_once)
{
    static const enum sl_request_op ops[] = {SL_REQUEST_PUSH, SL_REQUEST_PUSH_PULL,
                                             SL_REQUEST_ASSIGN};
    for (uint32_t shards = 1; shards <= SHARDS_MAX; shards += 2) {
        fixture->plan.shard_count = shards;
        for (uint32_t i = 0; i < 3; i++) {
            fixture->plan.batched = i == 0;
            for (uint32_t n = 0; choose(fixture, n); n++) {
                check_push(fixture, 0, ops[i]);
                check_push(fixture, 1, ops[i]);
                check_push(fixture, 999, ops[i]);
                check_push(fixture, 90001, ops[i]);
                assert_true(fixture->list.count > shards);
            }
        }
    }
}

static void check_pooled(struct fixture *fixture, uint32_t count, uint32_t bag_keys,
                         enum sl_pooling pooling)
{
    uint64_t *keys = random_keys(count);
    /* Every fourth bag is empty. */
    uint32_t bag_count = (count + bag_keys - 1) / bag_keys * 4 / 3 + 4;
    uint32_t *ends = malloc(bag_count * sizeof *ends);
    for (uint32_t bag = 0, end = 0; bag < bag_count; bag++) {
        end += bag % 4 == 3 ? 0 : bag_keys;
        ends[bag] = bag == bag_count - 1 || end > count ? count : end;
    }
    float *pooled = malloc((size_t)bag_count * 3 * sizeof *pooled);
    fixture->plan.operation_count = 0;
    add(fixture, (struct sl_operation){.op = SL_REQUEST_PULL_POOLED,
                                       .pooling = pooling,
                                       .table = &sparse,
                                       .keys = keys,
                                       .key_count = count,
                                       .bag_ends = ends,
                                       .bag_count = bag_count,
                                       .values = pooled});
    run(fixture);
    uint32_t first = 0;
    for (uint32_t bag = 0; bag < bag_count; bag++) {
        float expected = 0;
        for (uint32_t i = first; i < ends[bag]; i++) {
            expected += value_of(keys[i], 2); /* halves: the sums are exact in any order */
        }
        if (pooling == SL_POOLING_MEAN && ends[bag] > first) {
            expected /= (float)(ends[bag] - first);
        }
        first = ends[bag];
        assert_true(pooled[bag * 3 + 2] == expected);
    }
    free(keys);
    free(ends);
    free(pooled);
}

CASE(encode_shard__pools_bags_over_shards_and_cuts)
{
    for (uint32_t shards = 1; shards <= SHARDS_MAX; shards += 2) {
        fixture->plan.shard_count = shards;
        for (uint32_t n = 0; choose(fixture, n); n++) {
            check_pooled(fixture, 0, 1, SL_POOLING_SUM);
            check_pooled(fixture, 10, 3, SL_POOLING_MEAN);
            check_pooled(fixture, 30000, 2, SL_POOLING_SUM);
        }
        choose(fixture, 0);
        check_pooled(fixture, 30000, 9000, SL_POOLING_MEAN);
    }
}

static void check_dense(struct fixture *fixture, uint64_t start, uint64_t count)
{
    float *gradients = whole_gradients(count);
    float *values = calloc(count, sizeof *values);
    float *after = calloc(count, sizeof *after);
    memset(fixture->visits, 0, dense.spec.length * sizeof(uint32_t));
    memset(fixture->block_visits, 0, DENSE_BLOCKS * sizeof(uint32_t));
    memset(fixture->pushed, 0, dense.spec.length * sizeof(float));
    fixture->plan.operation_count = 0;
    add(fixture, (struct sl_operation){.op = SL_REQUEST_DENSE_PULL,
                                       .table = &dense,
                                       .start = start,
                                       .count = count,
                                       .values = values});
    add(fixture, (struct sl_operation){.op = SL_REQUEST_DENSE_PUSH,
                                       .table = &dense,
                                       .start = start,
                                       .count = count,
                                       .gradients = gradients});
    add(fixture, (struct sl_operation){.op = SL_REQUEST_DENSE_PUSH_PULL,
                                       .table = &dense,
                                       .start = start,
                                       .count = count,
                                       .gradients = gradients,
                                       .values = after});
    run(fixture);
    for (uint64_t i = 0; i < dense.spec.length; i++) {
        bool inside = i >= start && i < start + count;
        assert_int_equal(fixture->visits[i], inside ? 2 : 0);
        if (inside) {
            assert_int_equal(fixture->block_visits[i / SL_PARTITION_BLOCK_ELEMENTS], 2);
            assert_true(fixture->pushed[i] == 2 * gradients[i - start]);
            assert_true(values[i - start] == value_of_element(i));
            assert_true(after[i - start] == value_of_element(i));
        }
    }
    free(gradients);
    free(values);
    free(after);
}

/* A server applies sections of at most 512 KiB at once; a short one costs as much as a long one. */
CASE(encode_shard__sends_dense_pushes_over_tcp_in_like_pieces)
{
    fixture->plan.shard_count = 1;
    fixture->plan.over_tcp = true;
    fixture->plan.payload_bytes_max = SL_LIMIT_FRAME_PAYLOAD_BYTES;
    const uint64_t piece = 131072;
    const uint64_t counts[] = {piece, piece + 2, 2 * piece, 2 * piece + 2, 5 * piece + 1024};
    for (uint32_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        fixture->least = UINT64_MAX;
        fixture->most = 0;
        (void)choose(fixture, i);
        check_dense(fixture, 0, counts[i]);
        const uint64_t pieces = (counts[i] + piece - 1) / piece;
        assert_true(fixture->most <= piece);
        assert_true(fixture->most - fixture->least <= pieces * SL_PARTITION_BLOCK_ELEMENTS);
    }
}

CASE(encode_shard__covers_dense_ranges_of_any_size)
{
    for (uint32_t shards = 1; shards <= SHARDS_MAX; shards += 2) {
        fixture->plan.shard_count = shards;
        fixture->plan.batched = shards == 3;
        fixture->plan.over_tcp = shards >= 3;
        fixture->plan.payload_bytes_max =
            shards == 5 ? SL_LIMIT_FRAME_PAYLOAD_BYTES : SL_ENCODE_PAYLOAD_BYTES_MIN;
        for (uint32_t n = 0; choose(fixture, n); n++) {
            check_dense(fixture, 0, dense.spec.length);
            check_dense(fixture, 1, 1);
            check_dense(fixture, 1023, 16386);
            check_dense(fixture, 1025, 600000);
            check_dense(fixture, 233000, 16385);
            check_dense(fixture, 699999, 2);
        }
    }
}

CASE(encode_shard__lite_puts_a_step_into_one_request_per_shard)
{
    uint64_t *keys = random_keys(300);
    float rows[900], more[900];
    const struct sl_operation pull = {
        .op = SL_REQUEST_PULL, .table = &sparse, .keys = keys, .key_count = 300, .values = rows};
    add(fixture, pull);
    add(fixture, pull)->values = more;
    fixture->plan.tick = SL_TICK_ITERATION;
    fixture->plan.tick_at = 2;
    run(fixture);
    assert_int_equal(fixture->list.count, 9);
    assert_int_equal(fixture->ticks, 3);
    fixture->plan.batched = true;
    run(fixture);
    assert_int_equal(fixture->list.count, 3);
    assert_int_equal(fixture->ticks, 6);
    assert_int_equal(fixture->sections_of_next, 0);
    fixture->plan.tick_at = 1; /* between both: the second pull is of the next iteration */
    run(fixture);
    assert_int_equal(fixture->list.count, 3);
    assert_int_equal(fixture->ticks, 9);
    assert_int_equal(fixture->sections_of_next, 3);
    fixture->plan.batched = false;
    run(fixture);
    assert_int_equal(fixture->list.count, 9);
    assert_int_equal(fixture->sections_of_next, 6);
    fixture->plan.batched = true;
    fixture->plan.tick = SL_TICK_FINISH;
    run(fixture);
    assert_int_equal(fixture->list.count, 6);
    assert_int_equal(fixture->finishes, 3);
    check_rows(keys, more, 300);
    free(keys);
}

/* Eight operations on one shard; returns how many requests they become. */
static uint32_t count_requests(struct fixture *fixture, const struct sl_operation *operation,
                               bool tick)
{
    fixture->plan.operation_count = 0;
    for (uint32_t i = 0; i < 8; i++) {
        add(fixture, *operation);
    }
    fixture->plan.tick = tick ? SL_TICK_ITERATION : SL_TICK_NONE;
    fixture->plan.tick_at = 8;
    run(fixture);
    return fixture->list.count;
}

static bool are_inline(const struct fixture *fixture)
{
    bool are = true;
    for (const struct sl_request *at = fixture->list.first; at != NULL; at = at->next) {
        are = are && at->body_bytes + at->tail_bytes <= SL_LIMIT_INLINE_PAYLOAD_BYTES &&
              at->reply_bytes <= SL_LIMIT_INLINE_PAYLOAD_BYTES;
    }
    return are;
}

CASE(encode_shard__lite_makes_no_long_request_of_short_ones)
{
    uint64_t *keys = random_keys(4000);
    float *rows = calloc(4000 * 3, sizeof *rows);
    struct sl_operation operation = {
        .op = SL_REQUEST_PUSH, .table = &sparse, .keys = keys, .gradients = rows};
    fixture->plan.shard_count = 1;
    fixture->plan.batched = true;
    operation.key_count = 300; /* 6032 bytes */
    assert_int_equal(count_requests(fixture, &operation, false), 4);
    assert_true(are_inline(fixture));
    operation.key_count = 407; /* 8184 bytes with its padding: two, and the prefix */
    assert_int_equal(count_requests(fixture, &operation, true), 8);
    assert_true(are_inline(fixture));
    operation.key_count = 1000; /* 20032 bytes: each is long by itself, and is not cut */
    assert_int_equal(count_requests(fixture, &operation, false), 8);

    operation = (struct sl_operation){
        .op = SL_REQUEST_PULL, .table = &sparse, .keys = keys, .values = rows};
    operation.key_count = 341; /* 4096 bytes of reply with its padding, four of them fit */
    assert_int_equal(count_requests(fixture, &operation, true), 2);
    assert_true(are_inline(fixture));
    operation.key_count = 500; /* 6000 bytes of reply */
    assert_int_equal(count_requests(fixture, &operation, false), 4);
    assert_true(are_inline(fixture));
    operation.key_count = 4000;
    assert_int_equal(count_requests(fixture, &operation, false), 8);
    free(keys);
    free(rows);
}

CASE(encode_shard__lands_whole_replies_only_where_they_fit)
{
    _Alignas(8) float values[1001];
    fixture->plan.shard_count = 1;
    struct sl_operation *pull =
        add(fixture,
            (struct sl_operation){
                .op = SL_REQUEST_DENSE_PULL, .table = &dense, .count = 1000, .values = values});
    run(fixture);
    assert_ptr_equal(fixture->list.first->reply_memory, values);
    pull->values = values + 1; /* not aligned */
    run(fixture);
    assert_null(fixture->list.first->reply_memory);
    pull->values = values;
    pull->pull = SL_PRECISION_BF16;
    run(fixture);
    assert_null(fixture->list.first->reply_memory);
    pull->pull = SL_PRECISION_F32;
    pull->count = 999; /* the padding would be written behind the values */
    run(fixture);
    assert_null(fixture->list.first->reply_memory);
}

/* Narrow values need fewer messages: as many as their bytes need, and no block is cut. */
CASE(encode_shard__fills_messages_with_narrow_values)
{
    enum { KEYS = 30000 };
    uint64_t *keys = random_keys(KEYS);
    float *rows = malloc(KEYS * 3 * sizeof *rows);
    float *values = whole_gradients(600000);
    const struct {
        struct sl_operation operation;
        uint32_t requests[SL_PRECISION_COUNT]; /* with this precision both ways */
    } cases[] = {
        {{.op = SL_REQUEST_PULL, .table = &sparse, .keys = keys, .key_count = KEYS, .values = rows},
         {6, 4, 4, 4}}, /* 12, 6, 6, 7 bytes a row, and 8 of its key */
        {{.op = SL_REQUEST_DENSE_PULL, .table = &dense, .count = 600000, .values = values},
         {37, 19, 19, 19}}, /* 16, 32 and 32 blocks a message */
        {{.op = SL_REQUEST_DENSE_PUSH, .table = &dense, .count = 600000, .gradients = values},
         {39, 19, 19, 10}}, /* 15, 31, 31 and 62 blocks */
    };
    fixture->plan.shard_count = 1;
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (uint32_t precision = 0; precision < SL_PRECISION_COUNT; precision++) {
            fixture->pull = fixture->push = precision;
            fixture->plan.operation_count = 0;
            add(fixture, cases[i].operation);
            run(fixture);
            assert_int_equal(fixture->list.count, cases[i].requests[precision]);
        }
    }
    free(keys);
    free(rows);
    free(values);
}

/* Half-way values go up or down, independently in each row, element and operation. */
CASE(encode_shard__rounds_gradients_randomly)
{
    enum { ROWS = 4096, VALUES = ROWS * 3 };
    static float gradients[VALUES], first[VALUES];
    static uint64_t keys[ROWS];
    uint32_t differ = 0;
    for (uint32_t i = 0; i < VALUES; i++) {
        gradients[i] = 1 + 0x1p-8F; /* BF16 has 1 and 1 + 2^-7 */
        keys[i / 3] = i / 3;
    }
    fixture->plan.shard_count = 1;
    fixture->plan.payload_bytes_max = SL_LIMIT_FRAME_PAYLOAD_BYTES;
    fixture->push = SL_PRECISION_BF16;
    const struct sl_operation operations[] = {
        {.op = SL_REQUEST_PUSH,
         .table = &sparse,
         .keys = keys,
         .key_count = ROWS,
         .gradients = gradients},
        {.op = SL_REQUEST_DENSE_PUSH, .table = &dense, .count = VALUES, .gradients = gradients},
    };
    for (uint32_t i = 0; i < 4; i++) {
        const bool is_sparse = i < 2;
        const uint32_t count = is_sparse ? ROWS : VALUES;
        memset(fixture->pushed, 0, VALUES * sizeof(float));
        fixture->plan.operation_count = 0;
        add(fixture, operations[!is_sparse])->seed = sl_hash_key(i);
        run(fixture);
        uint32_t ups = 0;
        for (uint32_t value = 0; value < count; value++) {
            assert_true(fixture->pushed[value] == 1 || fixture->pushed[value] == 1 + 0x1p-7F);
            ups += fixture->pushed[value] > 1;
            differ += i % 2 == 1 && fixture->pushed[value] != first[value];
        }
        assert_in_range(ups, count * 9 / 20, count * 11 / 20);
        memcpy(first, fixture->pushed, count * sizeof *first);
    }
    assert_in_range(differ, (ROWS + VALUES) * 9 / 20, (ROWS + VALUES) * 11 / 20);
}

/* Of keys that repeat, in one section each and in grouped ones, and of elements: what rounding took
 * is sent with the zeros that follow. */
CASE(encode_shard__sends_what_rounding_took)
{
    enum { ROWS = 30000, KEYS = 3000, PUSHES = 6, GRADIENTS = 3 };
    uint64_t *keys = random_keys(ROWS);
    float *gradients = malloc(ROWS * 3 * sizeof *gradients);
    float *expected = malloc(KEYS_DISTINCT * sizeof *expected);
    for (uint32_t i = 0; i < 8; i++) {
        struct sl_table *table = i < 4 ? &sparse : &dense;
        const bool is_sparse = i < 4;
        uint32_t differ = 0;
        assert_int_equal(sl_error_feedback_create(&table->spec, 8U << 20, &table->feedback), 0);
        fixture->push = i % 2 == 0 ? SL_PRECISION_BF16 : SL_PRECISION_INT8;
        fixture->plan.payload_bytes_max =
            i / 2 % 2 == 0 ? SL_ENCODE_PAYLOAD_BYTES_MIN : SL_LIMIT_FRAME_PAYLOAD_BYTES;
        memset(fixture->pushed, 0, KEYS_DISTINCT * sizeof *expected);
        memset(expected, 0, KEYS_DISTINCT * sizeof *expected);
        for (uint32_t push = 0; push < PUSHES; push++) {
            for (uint32_t row = 0; row < ROWS; row++) {
                keys[row] %= KEYS;
                for (uint32_t column = 0; column < 3; column++) {
                    gradients[row * 3 + column] =
                        push < GRADIENTS ? (float)((row * 7 + push) % 1024) * 0x1p-10F : 0;
                }
                expected[is_sparse ? keys[row] : row + 77] += gradients[is_sparse ? row * 3 : row];
            }
            fixture->plan.operation_count = 0;
            add(fixture,
                (struct sl_operation){.op = is_sparse ? SL_REQUEST_PUSH : SL_REQUEST_DENSE_PUSH,
                                      .table = table,
                                      .keys = keys,
                                      .key_count = is_sparse ? ROWS : 0,
                                      .start = is_sparse ? 0 : 77,
                                      .count = is_sparse ? 0 : ROWS,
                                      .gradients = gradients});
            run(fixture);
            differ += memcmp(fixture->pushed, expected, KEYS_DISTINCT * sizeof *expected) != 0;
        }
        assert_memory_equal(fixture->pushed, expected, KEYS_DISTINCT * sizeof *expected);
        assert_in_range(differ, GRADIENTS, PUSHES - 1);
        sl_error_feedback_destroy(&table->feedback);
    }
    free(keys);
    free(gradients);
    free(expected);
}
