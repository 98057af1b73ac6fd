/* Which shards a step touches, and what each of them receives: random steps against a reference
 * that looks at every shard for every operation. A seed decides everything. */
#include <string.h>

#include "core/limits.h"
#include "core/partition.h"
#include "tests/support/unit.h"
#include "worker/client/encode.h"

enum { SHARDS_MAX = 600, OPERATIONS_MAX = 6, KEYS_MAX = 1500, LENGTH_MAX = 1 << 20 };

/* The part of an operation that a shard receives: the number of its keys or elements, and a digest
 * of them and of their values, in their order. */
struct share {
    uint64_t count, digest;
};

struct fixture {
    struct sl_scratch wire, notes;
    struct sl_encode_plan plan;
    uint64_t seed;
    struct sl_operation operations[OPERATIONS_MAX];
    struct sl_table tables[OPERATIONS_MAX]; /* id: 1 and the index of the operation */
    uint64_t keys[OPERATIONS_MAX][KEYS_MAX];
    uint32_t bag_ends[OPERATIONS_MAX][KEYS_MAX], lens[OPERATIONS_MAX][KEYS_MAX];
    struct share expected[OPERATIONS_MAX][SHARDS_MAX], actual[OPERATIONS_MAX][SHARDS_MAX];
    uint32_t ticks[SHARDS_MAX];
    uint32_t shards_visited;
    struct sl_encode_list list;
    float gradients[LENGTH_MAX], values[LENGTH_MAX]; /* value i is i */
};

static void setup(struct fixture *fixture)
{
    fixture->plan = (struct sl_encode_plan){.wire = &fixture->wire,
                                            .notes = &fixture->notes,
                                            .operations = fixture->operations,
                                            .shard_count = 512,
                                            .payload_bytes_max = SL_LIMIT_FRAME_PAYLOAD_BYTES};
    for (uint32_t i = 0; i < LENGTH_MAX; i++) {
        fixture->gradients[i] = (float)i;
    }
}

static void teardown(struct fixture *fixture)
{
    sl_scratch_fini(&fixture->wire);
    sl_scratch_fini(&fixture->notes);
}

#define CASE(name) SL_CASE_USING(name, struct fixture, fixture, setup, teardown)

static uint32_t below(struct fixture *fixture, uint64_t bound)
{
    return (uint32_t)(sl_hash_random(&fixture->seed) % bound);
}

static void note(struct share *share, uint64_t word, const float *value)
{
    const uint64_t pushed = value == NULL ? 0 : (uint64_t)*value + 1;
    share->digest = sl_hash_key(share->digest ^ word) + pushed;
    share->count++;
}

/* The elements of a shard form one range, which arrives in pieces of any length. */
static void note_range(struct share *share, uint64_t start, uint64_t count, const float *values)
{
    const uint64_t word = start - share->count; /* of the range */
    const uint64_t pushed = values == NULL ? 0 : (uint64_t)*values + 1 - share->count;
    const uint64_t digest = sl_hash_key(word) + pushed;
    assert_true(share->count == 0 || share->digest == digest);
    share->digest = digest;
    share->count += count;
}

/* Operations */

static void add_sparse(struct fixture *fixture, uint32_t i, struct sl_operation *operation)
{
    static const enum sl_request_op ops[] = {SL_REQUEST_PULL,      SL_REQUEST_PUSH,
                                             SL_REQUEST_PUSH_PULL, SL_REQUEST_ASSIGN,
                                             SL_REQUEST_ERASE,     SL_REQUEST_PULL_POOLED};
    const enum sl_request_op op = ops[below(fixture, sizeof ops / sizeof *ops)];
    const uint32_t key_count = below(fixture, below(fixture, 2) == 0 ? 9 : KEYS_MAX);
    const bool pushes = sl_request_takes_rate((uint8_t)op) || op == SL_REQUEST_ASSIGN;
    for (uint32_t key = 0; key < key_count; key++) {
        fixture->keys[i][key] = sl_hash_random(&fixture->seed);
    }
    *operation = (struct sl_operation){
        .op = op,
        .keys = fixture->keys[i],
        .key_count = key_count,
        .gradients = pushes ? fixture->gradients : NULL,
        .values = op == SL_REQUEST_ERASE || (pushes && op != SL_REQUEST_PUSH_PULL)
                      ? NULL
                      : fixture->values,
    };
    for (uint32_t end = 0; op == SL_REQUEST_PULL_POOLED && end < key_count;) {
        end += 1 + below(fixture, key_count - end);
        fixture->bag_ends[i][operation->bag_count++] = end;
    }
    operation->bag_ends = fixture->bag_ends[i];
    fixture->tables[i].spec = (struct sl_table_spec){.kind = SL_TABLE_SPARSE, .dim = 1};
}

static void add_dense(struct fixture *fixture, uint32_t i, struct sl_operation *operation)
{
    const uint64_t length = 1 + below(fixture, LENGTH_MAX);
    const uint64_t start = below(fixture, length + 1);
    const uint32_t way = below(fixture, 3);
    uint64_t count = below(fixture, length - start + 1);
    count = below(fixture, 2) == 0 && count > 3000 ? 3000 : count;
    *operation = (struct sl_operation){
        .op = SL_REQUEST_DENSE_PULL + way,
        .start = start,
        .count = count,
        .gradients = way == 0 ? NULL : fixture->gradients,
        .values = way == 1 ? NULL : fixture->values,
    };
    fixture->tables[i].spec = (struct sl_table_spec){.kind = SL_TABLE_DENSE, .length = length};
}

static void add_kv(struct fixture *fixture, uint32_t i, struct sl_operation *operation)
{
    const uint32_t key_count = below(fixture, below(fixture, 2) == 0 ? 9 : KEYS_MAX);
    const uint32_t way = below(fixture, 3);
    const bool has_lens = below(fixture, 2) == 0;
    const uint64_t gap = UINT64_MAX / (key_count + 1);
    uint64_t count = 0;
    for (uint32_t key = 0; key < key_count; key++) {
        fixture->keys[i][key] = gap * key + sl_hash_random(&fixture->seed) % gap;
        fixture->lens[i][key] = has_lens ? 1 + below(fixture, 5) : 3;
        count += fixture->lens[i][key];
    }
    *operation = (struct sl_operation){
        .op = SL_REQUEST_KV_PUSH + way,
        .keys = fixture->keys[i],
        .key_count = key_count,
        .lens = has_lens ? fixture->lens[i] : NULL,
        .count = count,
        .gradients = way == 1 ? NULL : fixture->gradients,
        .values = way == 0 ? NULL : fixture->values,
    };
    fixture->tables[i].spec = (struct sl_table_spec){.kind = SL_TABLE_KV, .dim = sizeof(float)};
}

static void add_of_shard(struct fixture *fixture, uint32_t i, struct sl_operation *operation)
{
    static const struct sl_request_scan scan = {.end = 9};
    const bool scans = below(fixture, 2) == 0;
    *operation = (struct sl_operation){.op = scans ? SL_REQUEST_SCAN : SL_REQUEST_EVICT,
                                       .scan = scans ? &scan : NULL,
                                       .shard = below(fixture, fixture->plan.shard_count),
                                       .count = scans ? 10 : 0,
                                       .width = 1,
                                       .values = fixture->values};
    fixture->tables[i].spec = (struct sl_table_spec){.kind = SL_TABLE_SPARSE, .dim = 1};
}

static void make_step(struct fixture *fixture)
{
    static void (*const adders[])(struct fixture *, uint32_t, struct sl_operation *) = {
        add_sparse, add_sparse, add_dense, add_kv, add_of_shard};
    struct sl_encode_plan *plan = &fixture->plan;
    plan->shard_count = 1 + below(fixture, below(fixture, 2) == 0 ? 9 : SHARDS_MAX);
    plan->batched = below(fixture, 4) != 0;
    plan->operation_count = below(fixture, OPERATIONS_MAX + 1);
    plan->tick = below(fixture, 2) == 0
                     ? SL_TICK_NONE
                     : (below(fixture, 4) == 0 ? SL_TICK_FINISH : SL_TICK_ITERATION);
    plan->tick_at = below(fixture, plan->operation_count + 1);
    for (uint32_t i = 0; i < plan->operation_count; i++) {
        struct sl_operation *operation = &fixture->operations[i];
        adders[below(fixture, sizeof adders / sizeof *adders)](fixture, i, operation);
        fixture->tables[i].id = 1 + i;
        operation->table = &fixture->tables[i];
    }
}

/* The reference */

static const float *pushed(const struct sl_operation *operation, uint64_t index)
{
    return operation->gradients == NULL ? NULL : (const float *)operation->gradients + index;
}

static void expect_sparse(const struct sl_operation *operation, uint32_t shard, uint32_t shards,
                          struct share *share)
{
    uint32_t bag = 0, last_bag = UINT32_MAX;
    for (uint32_t key = 0; key < operation->key_count; key++) {
        while (operation->bag_count > 0 && operation->bag_ends[bag] <= key) {
            bag++;
        }
        if (sl_partition_owner(operation->keys[key], shards) == shard) {
            const bool begins = operation->bag_count > 0 && bag != last_bag;
            note(share, operation->keys[key] + begins, pushed(operation, key));
            last_bag = bag;
        }
    }
}

static void expect_dense(const struct sl_operation *operation, uint32_t shard, uint32_t shards,
                         struct share *share)
{
    const uint64_t length = operation->table->spec.length;
    const uint32_t range = sl_partition_range_of_shard(operation->table->id, shard, shards);
    uint64_t start = sl_partition_range_start(length, shards, range);
    uint64_t end = sl_partition_range_start(length, shards, range + 1);
    start = start > operation->start ? start : operation->start;
    end = end < operation->start + operation->count ? end : operation->start + operation->count;
    if (start < end) {
        note_range(share, start, end - start, pushed(operation, start - operation->start));
    }
}

static void expect_kv(const struct sl_operation *operation, uint32_t shard, uint32_t shards,
                      struct share *share)
{
    const uint64_t least = sl_partition_kv_first(shard, shards);
    const uint64_t most =
        shard + 1 == shards ? UINT64_MAX : sl_partition_kv_first(shard + 1, shards) - 1;
    uint64_t start = 0;
    for (uint32_t key = 0; key < operation->key_count; key++) {
        const uint32_t len = operation->lens == NULL ? 3 : operation->lens[key];
        if (operation->keys[key] >= least && operation->keys[key] <= most) {
            note(share, operation->keys[key] + len, pushed(operation, start));
        }
        start += len;
    }
}

static void expect_step(struct fixture *fixture)
{
    const uint32_t shards = fixture->plan.shard_count;
    memset(fixture->expected, 0, sizeof fixture->expected);
    for (uint32_t i = 0; i < fixture->plan.operation_count; i++) {
        const struct sl_operation *operation = &fixture->operations[i];
        const enum sl_table_kind kind = operation->table->spec.kind;
        for (uint32_t shard = 0; shard < shards; shard++) {
            struct share *share = &fixture->expected[i][shard];
            if (operation->op == SL_REQUEST_SCAN || operation->op == SL_REQUEST_EVICT) {
                share->count = operation->shard == shard;
            } else if (kind == SL_TABLE_SPARSE) {
                expect_sparse(operation, shard, shards, share);
            } else {
                (kind == SL_TABLE_KV ? expect_kv : expect_dense)(operation, shard, shards, share);
            }
        }
    }
}

/* The shards */

static void receive_section(struct fixture *fixture, uint32_t shard,
                            const struct sl_request_view *view)
{
    const struct sl_request_section *section = &view->section;
    const uint32_t i = section->table_id - 1U;
    struct share *share = &fixture->actual[i][shard];
    assert_true(i < fixture->plan.operation_count);
    assert_int_equal(section->op, fixture->operations[i].op);
    for (uint32_t later = i + 1; later < fixture->plan.operation_count; later++) {
        assert_int_equal(fixture->actual[later][shard].count, 0);
    }
    assert_int_equal(fixture->ticks[shard],
                     fixture->plan.tick == SL_TICK_ITERATION && i >= fixture->plan.tick_at);
    if (section->op == SL_REQUEST_SCAN || section->op == SL_REQUEST_EVICT) {
        share->count++;
        return;
    }
    if (section->key_count == 0) {
        note_range(share, section->start, section->count, view->gradients);
        return;
    }
    uint32_t bag = 0;
    const float *values = view->values; /* KV */
    for (uint32_t key = 0; key < section->key_count; key++) {
        const bool begins = section->bag_count > 0 && (key == 0 || key == view->bag_ends[bag]);
        bag += begins && key > 0;
        uint64_t word = view->keys[key] + begins;
        const float *value = view->gradients == NULL ? NULL : view->gradients + key;
        if (fixture->tables[i].spec.kind == SL_TABLE_KV) {
            const uint32_t len = view->lens != NULL
                                     ? view->lens[key]
                                     : (uint32_t)(section->count / section->key_count);
            word += len;
            value = values;
            values = values == NULL ? NULL : values + len;
        }
        note(share, word, value);
    }
}

static void receive(struct fixture *fixture, const struct sl_request *request)
{
    uint8_t *payload = malloc((size_t)request->body_bytes + request->tail_bytes);
    memcpy(payload, request->body, request->body_bytes);
    if (request->tail != NULL) {
        memcpy(payload + request->body_bytes, request->tail, request->tail_bytes);
    }
    struct sl_bytes cursor =
        sl_bytes_over(payload, (size_t)request->body_bytes + request->tail_bytes);
    struct sl_request_prefix prefix;
    assert_int_equal(sl_request_read_prefix(&cursor, &prefix), 0);
    for (uint32_t i = 0; i < prefix.section_count; i++) {
        struct sl_request_section section;
        struct sl_request_view view = {0};
        assert_int_equal(sl_request_read_section(&cursor, &section), 0);
        const uint32_t dim =
            section.op == SL_REQUEST_TICK ? 0 : fixture->tables[section.table_id - 1].spec.dim;
        assert_int_equal(sl_request_read_body(&cursor, &section, dim, &view), 0);
        if (section.op == SL_REQUEST_TICK) {
            fixture->ticks[request->shard]++;
        } else {
            receive_section(fixture, request->shard, &view);
        }
    }
    free(payload);
}

static void run(struct fixture *fixture)
{
    struct sl_encode_plan *plan = &fixture->plan;
    sl_scratch_reset(&fixture->wire);
    sl_scratch_reset(&fixture->notes);
    memset(fixture->actual, 0, sizeof fixture->actual);
    memset(fixture->ticks, 0, sizeof fixture->ticks);
    fixture->list = (struct sl_encode_list){0};
    fixture->shards_visited = 0;
    assert_int_equal(sl_encode_route(plan), 0);
    uint32_t shard = 0;
    while ((shard = sl_encode_next(plan, shard)) < plan->shard_count) {
        const uint32_t before = fixture->list.count;
        assert_int_equal(sl_encode_shard(plan, shard, &fixture->list), 0);
        assert_true(fixture->list.count > before); /* only shards that are touched */
        fixture->shards_visited++;
        shard++;
    }
    shard = 0;
    for (const struct sl_request *at = fixture->list.first; at != NULL; at = at->next) {
        assert_true(at->shard >= shard);
        shard = at->shard;
        receive(fixture, at);
    }
}

CASE(encode_next__random_steps_reach_the_shards_of_the_reference)
{
    for (uint64_t round = 0; round < 1500; round++) {
        fixture->seed = round;
        make_step(fixture);
        expect_step(fixture);
        run(fixture);
        if (memcmp(fixture->actual, fixture->expected, sizeof fixture->expected) != 0) {
            fail_msg("the step of seed %u differs", (unsigned)round);
        }
        for (uint32_t shard = 0; shard < fixture->plan.shard_count; shard++) {
            assert_int_equal(fixture->ticks[shard], fixture->plan.tick != SL_TICK_NONE);
        }
    }
}

/* Rows, a short range, and a batch of a KV table. */
CASE(encode_next__two_of_512_shards_receive_two_requests)
{
    uint64_t keys[] = {1, 2, 1};
    struct sl_operation *operations = fixture->operations;
    fixture->plan.batched = true;
    fixture->plan.operation_count = 1;
    fixture->tables[0] = (struct sl_table){.id = 1, .spec = {.kind = SL_TABLE_SPARSE, .dim = 1}};
    operations[0] = (struct sl_operation){.op = SL_REQUEST_PUSH,
                                          .table = &fixture->tables[0],
                                          .keys = keys,
                                          .key_count = 3,
                                          .gradients = fixture->gradients};
    assert_true(sl_partition_owner(1, 512) != sl_partition_owner(2, 512));
    run(fixture);
    assert_int_equal(fixture->shards_visited, 2);
    assert_int_equal(fixture->list.count, 2);

    fixture->tables[0].spec = (struct sl_table_spec){.kind = SL_TABLE_DENSE, .length = LENGTH_MAX};
    operations[0] = (struct sl_operation){.op = SL_REQUEST_DENSE_PULL,
                                          .table = &fixture->tables[0],
                                          .start = LENGTH_MAX / 512 - 1,
                                          .count = 2,
                                          .values = fixture->values};
    run(fixture);
    assert_int_equal(fixture->shards_visited, 2);
    assert_int_equal(fixture->list.count, 2);

    keys[1] = UINT64_MAX;
    fixture->tables[0].spec = (struct sl_table_spec){.kind = SL_TABLE_KV, .dim = sizeof(float)};
    operations[0] = (struct sl_operation){.op = SL_REQUEST_KV_PULL,
                                          .table = &fixture->tables[0],
                                          .keys = keys,
                                          .key_count = 2,
                                          .count = 2,
                                          .values = fixture->values};
    run(fixture);
    assert_int_equal(fixture->shards_visited, 2);
    assert_int_equal(fixture->list.count, 2);
}
