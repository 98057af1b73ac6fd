#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/hash.h"
#include "core/partition.h"
#include "ps/optimizer/initializer.h"
#include "ps/shard/section.h"
#include "ps/shard/shard.h"
#include "ps/shard/state.h"
#include "tests/support/shard_request.h"
#include "tests/support/unit.h"

#define DIM         4
#define MANY        3000 /* keys of a push that is sliced */
#define NOBODY      UINT32_MAX
#define ROWS_PULLED 600
#define KEYS_OF     2 /* distinct keys are a half of those of a push with repeats */

struct fixture {
    struct sl_shard *shard;
    struct shard_request request, other;
    _Alignas(8) uint8_t reply[SL_LIMIT_FRAME_PAYLOAD_BYTES];
    _Alignas(8) uint8_t other_reply[SL_LIMIT_FRAME_PAYLOAD_BYTES];
    struct sl_reason reason;
    uint64_t keys[MANY];
    float gradients[MANY * DIM];
    uint32_t calls; /* of sl_shard_run that the last request took */
};

static struct sl_table_spec sparse_spec(const char *name, enum sl_optimizer_kind optimizer)
{
    struct sl_table_spec spec = {
        .kind = SL_TABLE_SPARSE,
        .dim = DIM,
        .optimizer = sl_optimizer_defaults(optimizer),
        .initializer = {.kind = SL_INITIALIZER_CONSTANT, .value = 1.0F},
    };
    (void)snprintf(spec.name, sizeof spec.name, "%s", name);
    return spec;
}

static struct sl_shard *make_shard(const struct sl_shard_options *options)
{
    struct sl_shard *shard;
    assert_int_equal(sl_shard_create(options, &shard), 0);
    return shard;
}

static void open_table(struct fixture *f, uint32_t id, const struct sl_table_spec *spec)
{
    int err = sl_shard_table_open(f->shard, id, spec, &f->reason);
    if (err != 0) {
        fail_msg("%s", f->reason.text);
    }
}

/* Tables 0 "sum" and 1 "ada", sparse; 2 "dense" of 5000. One shard of one. */
static void setup(struct fixture *f)
{
    struct sl_shard_options options = {.index = 0, .count = 1};
    f->shard = make_shard(&options);
    struct sl_table_spec spec = sparse_spec("sum", SL_OPTIMIZER_SUM);
    open_table(f, 0, &spec);
    spec = sparse_spec("ada", SL_OPTIMIZER_ADAGRAD);
    open_table(f, 1, &spec);
    spec = sparse_spec("dense", SL_OPTIMIZER_SUM);
    spec.kind = SL_TABLE_DENSE;
    spec.dim = 0;
    spec.length = 5000;
    open_table(f, 2, &spec);
}

static void teardown(struct fixture *f)
{
    sl_shard_destroy(&f->shard);
}

#define CASE(name) SL_CASE_USING(name, struct fixture, f, setup, teardown)

static struct sl_shard_client caller_of(uint32_t worker)
{
    return (struct sl_shard_client){.has_clock = worker != NOBODY,
                                    .worker = worker == NOBODY ? 0 : worker};
}

static int begin(struct fixture *f, const struct shard_request *request, uint32_t worker,
                 struct sl_shard_request *work)
{
    struct sl_shard_client caller = caller_of(worker);
    return sl_shard_begin(f->shard, &caller, request->payload, request->bytes, work, &f->reason);
}

/* Runs f->request to its end, in slices of `budget`; it must not park. */
static int run(struct fixture *f, uint32_t worker, uint32_t budget)
{
    struct sl_shard_request work;
    int err = begin(f, &f->request, worker, &work);
    if (err != 0) {
        return err;
    }
    uint64_t spent_in_all = 0;
    int result = SL_SHARD_AGAIN;
    for (f->calls = 0; result == SL_SHARD_AGAIN; f->calls++) {
        assert_true(f->calls < 100000);
        uint32_t spent;
        result = sl_shard_run(f->shard, &work, f->reply, budget, &spent, &f->reason);
        spent_in_all += spent;
        while (sl_shard_iteration_due(f->shard)) {
            (void)sl_shard_apply_iteration(f->shard, budget);
        }
    }
    assert_int_not_equal(result, SL_SHARD_PARKED);
    if (result == SL_SHARD_DONE) {
        assert_int_equal(work.reply_done, work.reply_bytes);
        assert_true(f->calls > 1 || spent_in_all <= work.cost);
    }
    return result;
}

static void must_run(struct fixture *f, uint32_t worker, uint32_t budget)
{
    int err = run(f, worker, budget);
    if (err != 0) {
        fail_msg("%d: %s", err, f->reason.text);
    }
}

static const float *reply_floats(const struct fixture *f)
{
    return (const float *)(const void *)f->reply;
}

static float pull_one(struct fixture *f, uint16_t table, uint64_t key)
{
    shard_request_begin(&f->request, 0);
    shard_request_pull(&f->request, table, &key, 1);
    must_run(f, NOBODY, 100);
    return reply_floats(f)[0];
}

CASE(shard_begin__refuses_what_does_not_fit_the_tables)
{
    struct sl_shard_request work;
    uint64_t key = 1;
    shard_request_begin(&f->request, 0);
    assert_int_equal(begin(f, &f->request, NOBODY, &work), SL_ERR_PROTOCOL);

    shard_request_pull(&f->request, 0, &key, 1);
    shard_request_pull(&f->request, 7, &key, 1);
    assert_int_equal(begin(f, &f->request, NOBODY, &work), SL_ERR_NOT_FOUND);
    assert_non_null(strstr(f->reason.text, "section 1"));

    shard_request_begin(&f->request, 0);
    shard_request_pull(&f->request, 2, &key, 1);
    assert_int_equal(begin(f, &f->request, NOBODY, &work), SL_ERR_PROTOCOL);
    assert_non_null(strstr(f->reason.text, "dense"));

    shard_request_begin(&f->request, 0);
    shard_request_tick(&f->request);
    assert_int_equal(begin(f, &f->request, NOBODY, &work), SL_ERR_PROTOCOL);

    shard_request_begin(&f->request, 0);
    shard_request_dense(&f->request, SL_REQUEST_DENSE_PULL, 2, 4999, 2, NULL);
    assert_int_equal(begin(f, &f->request, NOBODY, &work), SL_ERR_WRONG_SHARD);

    shard_request_begin(&f->request, 0);
    shard_request_pull(&f->request, 0, &key, 1);
    f->request.bytes += 8;
    assert_int_equal(begin(f, &f->request, NOBODY, &work), SL_ERR_PROTOCOL);
    for (size_t snapshot = 8; snapshot <= 40; snapshot += 8) {
        shard_request_begin(&f->request, 0);
        shard_request_pull(&f->request, 0, &key, 1);
        f->request.bytes -= snapshot;
        assert_int_equal(begin(f, &f->request, NOBODY, &work), SL_ERR_PROTOCOL);
    }
}

CASE(shard_begin__refuses_a_reply_longer_than_a_frame)
{
    struct sl_table_spec spec = sparse_spec("wide", SL_OPTIMIZER_SUM);
    spec.dim = SL_LIMIT_DIM;
    open_table(f, 3, &spec);
    shard_request_begin(&f->request, 0);
    uint32_t most = SL_LIMIT_FRAME_PAYLOAD_BYTES / (SL_LIMIT_DIM * sizeof(float));
    struct sl_shard_request work;
    shard_request_pull(&f->request, 3, f->keys, most);
    assert_int_equal(begin(f, &f->request, NOBODY, &work), 0);
    assert_int_equal(work.reply_bytes, SL_LIMIT_FRAME_PAYLOAD_BYTES);
    shard_request_pull(&f->request, 3, f->keys, 1);
    assert_int_equal(begin(f, &f->request, NOBODY, &work), SL_ERR_TOO_LARGE);
}

CASE(shard_table_open__says_what_differs)
{
    struct sl_table_spec spec = sparse_spec("sum", SL_OPTIMIZER_SUM);
    open_table(f, 0, &spec);
    assert_int_equal(sl_shard_table_open(f->shard, 5, &spec, &f->reason), SL_ERR_EXISTS);
    spec.dim = 8;
    assert_int_equal(sl_shard_table_open(f->shard, 0, &spec, &f->reason), SL_ERR_EXISTS);
    assert_non_null(strstr(f->reason.text, "dim"));
    spec = sparse_spec("new", SL_OPTIMIZER_SUM);
    assert_int_equal(sl_shard_table_open(f->shard, SL_LIMIT_TABLES, &spec, &f->reason),
                     SL_ERR_INVALID);
    spec.dim = 0;
    assert_int_equal(sl_shard_table_open(f->shard, 4, &spec, &f->reason), SL_ERR_INVALID);
}

CASE(shard_run__pull_keeps_the_order_of_existing_and_missing_keys)
{
    uint64_t keys[] = {UINT64_MAX, 0, 5, 0};
    float gradient[DIM] = {1, 2, 3, 4};
    shard_request_begin(&f->request, 0);
    shard_request_push(&f->request, SL_REQUEST_PUSH, 0, &keys[1], 1, gradient, DIM);
    shard_request_pull(&f->request, 0, keys, 4);
    must_run(f, NOBODY, 1000);
    const float *rows = reply_floats(f);
    for (int i = 0; i < DIM; i++) {
        assert_true(rows[i] == 1.0F);
        assert_true(rows[DIM + i] == 1.0F + gradient[i]);
        assert_true(rows[2 * DIM + i] == 1.0F);
        assert_true(rows[3 * DIM + i] == 1.0F + gradient[i]);
    }
}

static uint64_t row_count(const struct fixture *f, uint32_t table)
{
    return sl_sparse_table_row_count(f->shard->tables[table]->sparse);
}

/* Pulls of every kind, in long and short slices, answer with the row that a push of zeros would
 * create. None of them creates a row or takes memory; the push creates each row once. */
CASE(shard_run__pull_never_creates_a_row)
{
    struct sl_table_spec spec = sparse_spec("random", SL_OPTIMIZER_SUM);
    spec.initializer = (struct sl_initializer_spec){
        .kind = SL_INITIALIZER_UNIFORM, .low = -1.0F, .high = 1.0F, .seed = 7};
    open_table(f, 3, &spec);
    uint32_t ends[ROWS_PULLED / 5];
    for (uint32_t i = 0; i < ROWS_PULLED; i++) {
        f->keys[i] = i % 2 == 0 ? i : UINT64_MAX - i;
        ends[i / 5] = i + 1;
    }
    memset(f->gradients, 0, sizeof f->gradients);
    static float pulled[ROWS_PULLED * DIM], pooled[ROWS_PULLED / 5 * DIM];
    const size_t bytes = sl_sparse_table_memory_bytes(f->shard->tables[3]->sparse);
    for (uint32_t pushed = 0; pushed <= ROWS_PULLED; pushed += ROWS_PULLED / 3) {
        shard_request_begin(&f->request, 0);
        shard_request_push(&f->request, SL_REQUEST_PUSH, 3, f->keys, pushed, f->gradients, DIM);
        must_run(f, NOBODY, 1000);
        for (uint32_t budget = 1; budget <= 100000; budget *= 10) {
            shard_request_begin(&f->request, 0);
            shard_request_pull(&f->request, 3, f->keys, ROWS_PULLED);
            must_run(f, NOBODY, budget);
            if (pushed == 0 && budget == 1) {
                memcpy(pulled, f->reply, sizeof pulled);
            }
            assert_memory_equal(f->reply, pulled, sizeof pulled);
            shard_request_begin(&f->request, 0);
            shard_request_pooled(&f->request, 3, f->keys, ROWS_PULLED, ends, ROWS_PULLED / 5);
            must_run(f, NOBODY, budget);
            if (pushed == 0 && budget == 1) {
                memcpy(pooled, f->reply, sizeof pooled);
            }
            assert_memory_equal(f->reply, pooled, sizeof pooled);
            assert_int_equal(row_count(f, 3), pushed);
        }
        assert_true(pushed > 0 ||
                    bytes == sl_sparse_table_memory_bytes(f->shard->tables[3]->sparse));
    }
    for (uint32_t i = 0; i < ROWS_PULLED * DIM; i++) {
        float expected;
        sl_initializer_fill(&spec.initializer, f->keys[i / DIM], i % DIM, 1, &expected);
        assert_true(pulled[i] == expected);
    }
}

/* Keys 0, 1, 2, ... each twice, in an order that mixes first and second mentions. */
static void fill_repeating(struct fixture *f, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        f->keys[i] = i * 7 % (count / KEYS_OF);
        for (uint32_t c = 0; c < DIM; c++) {
            f->gradients[i * DIM + c] = (float)(i % 13) - 6.0F;
        }
    }
}

/* What Adagrad makes of every key when it sees each once, with the sum. */
static void check_repeating(struct fixture *f, uint32_t count)
{
    struct sl_shard_options options = {.index = 0, .count = 1};
    struct fixture *plain = calloc(1, sizeof *plain);
    assert_non_null(plain);
    plain->shard = make_shard(&options);
    struct sl_table_spec spec = sparse_spec("ada", SL_OPTIMIZER_ADAGRAD);
    open_table(plain, 1, &spec);
    for (uint64_t key = 0; key < count / KEYS_OF; key++) {
        float sum[DIM] = {0};
        for (uint32_t i = 0; i < count; i++) {
            for (uint32_t c = 0; f->keys[i] == key && c < DIM; c++) {
                sum[c] += f->gradients[i * DIM + c];
            }
        }
        shard_request_begin(&plain->request, 0);
        shard_request_push(&plain->request, SL_REQUEST_PUSH_PULL, 1, &key, 1, sum, DIM);
        must_run(plain, NOBODY, 100);
        assert_true(reply_floats(plain)[0] == pull_one(f, 1, key));
    }
    sl_shard_destroy(&plain->shard);
    free(plain);
}

CASE(shard_run__push_visits_each_key_once_with_the_sum)
{
    fill_repeating(f, 200);
    shard_request_begin(&f->request, 0);
    shard_request_push(&f->request, SL_REQUEST_PUSH, 1, f->keys, 200, f->gradients, DIM);
    must_run(f, NOBODY, 1);
    assert_true(f->calls < 4); /* a small push is done in one go */
    check_repeating(f, 200);
}

CASE(shard_run__long_push_visits_each_key_once_with_the_sum)
{
    fill_repeating(f, MANY);
    shard_request_begin(&f->request, 0);
    shard_request_push(&f->request, SL_REQUEST_PUSH, 1, f->keys, MANY, f->gradients, DIM);
    must_run(f, NOBODY, 10);
    assert_true(f->calls > 100);
    check_repeating(f, MANY);
}

static void fill_distinct(struct fixture *f, uint64_t first)
{
    for (uint32_t i = 0; i < MANY; i++) {
        f->keys[i] = first + i;
        for (uint32_t c = 0; c < DIM; c++) {
            f->gradients[i * DIM + c] = (float)(i % 100);
        }
    }
}

CASE(shard_run__long_push_without_repeats_is_sliced)
{
    fill_distinct(f, 0);
    shard_request_begin(&f->request, 0);
    shard_request_push(&f->request, SL_REQUEST_PUSH_PULL, 0, f->keys, MANY, f->gradients, DIM);
    must_run(f, NOBODY, 64);
    assert_true(f->calls > 50);
    const float *rows = reply_floats(f);
    for (uint32_t i = 0; i < MANY * DIM; i++) {
        assert_true(rows[i] == 1.0F + f->gradients[i]);
    }
}

CASE(shard_run__long_pushes_take_the_scratch_in_turns)
{
    fill_distinct(f, 0);
    shard_request_begin(&f->request, 0);
    shard_request_push(&f->request, SL_REQUEST_PUSH, 0, f->keys, MANY, f->gradients, DIM);
    shard_request_begin(&f->other, 0);
    shard_request_push(&f->other, SL_REQUEST_PUSH, 0, f->keys, MANY, f->gradients, DIM);
    struct sl_shard_request first;
    struct sl_shard_request second;
    assert_int_equal(begin(f, &f->request, NOBODY, &first), 0);
    assert_int_equal(begin(f, &f->other, NOBODY, &second), 0);
    uint32_t spent;
    assert_int_equal(sl_shard_run(f->shard, &first, f->reply, 64, &spent, &f->reason),
                     SL_SHARD_AGAIN);
    assert_false(sl_shard_ready(f->shard, &second, UINT32_MAX));
    assert_int_equal(sl_shard_run(f->shard, &second, f->reply, 64, &spent, &f->reason),
                     SL_SHARD_AGAIN);
    assert_int_equal(sl_shard_run(f->shard, &second, f->reply, 64, &spent, &f->reason),
                     SL_SHARD_AGAIN);
    assert_int_equal(spent, 0);
    assert_true(pull_one(f, 0, 5) == 1.0F); /* pulls go on, and small pushes */
    float one[DIM] = {1, 1, 1, 1};
    uint64_t other_key = MANY + 1;
    shard_request_begin(&f->request, 0); /* the first request's bytes are not read again */
    shard_request_push(&f->request, SL_REQUEST_PUSH, 0, &other_key, 1, one, DIM);
    sl_shard_abandon(f->shard, &first);
    must_run(f, NOBODY, 64);
    assert_int_equal(sl_shard_run(f->shard, &second, f->reply, UINT32_MAX, &spent, &f->reason),
                     SL_SHARD_DONE);
    assert_true(pull_one(f, 0, 5) == 6.0F);
}

CASE(shard_run__names_a_key_of_another_shard_and_leaves_the_section_undone)
{
    sl_shard_destroy(&f->shard);
    struct sl_shard_options options = {.index = 1, .count = 3};
    f->shard = make_shard(&options);
    struct sl_table_spec spec = sparse_spec("sum", SL_OPTIMIZER_SUM);
    open_table(f, 0, &spec);
    uint64_t ours = 0;
    while (sl_partition_owner(ours, 3) != 1) {
        ours++;
    }
    uint64_t theirs = 0;
    while (sl_partition_owner(theirs, 3) == 1) {
        theirs++;
    }
    uint64_t keys[] = {ours, theirs};
    float gradients[2 * DIM] = {1, 1, 1, 1, 1, 1, 1, 1};
    shard_request_begin(&f->request, 0);
    shard_request_push(&f->request, SL_REQUEST_PUSH, 0, keys, 2, gradients, DIM);
    assert_int_equal(run(f, NOBODY, 100), SL_ERR_WRONG_SHARD);
    char key_text[32];
    (void)snprintf(key_text, sizeof key_text, "key %llu", (unsigned long long)theirs);
    assert_non_null(strstr(f->reason.text, key_text));
    assert_true(pull_one(f, 0, ours) == 1.0F);
}

CASE(shard_run__no_memory_is_an_error_that_names_the_limit)
{
    sl_shard_destroy(&f->shard);
    struct sl_shard_options options = {.index = 0, .count = 1, .memory_bytes_max = 4U << 20};
    f->shard = make_shard(&options);
    struct sl_table_spec spec = sparse_spec("sum", SL_OPTIMIZER_SUM);
    spec.dim = 1024;
    open_table(f, 0, &spec);
    static const float gradient[1024] = {1.0F};
    int err = 0;
    for (uint64_t key = 0; key < 8192 && err == 0; key++) {
        shard_request_begin(&f->request, 0);
        shard_request_push(&f->request, SL_REQUEST_PUSH, 0, &key, 1, gradient, 1024);
        err = run(f, NOBODY, 100);
    }
    assert_int_equal(err, SL_ERR_NO_MEMORY);
    assert_non_null(strstr(f->reason.text, "4194304"));
    assert_true(pull_one(f, 0, 0) == 2.0F);    /* rows that exist are still served */
    assert_true(pull_one(f, 0, 8192) == 1.0F); /* a missing row needs no memory */
}

/* Without a limit it is the system that has no more: nobody is told of a limit of nothing. */
SL_CASE(shard_limit_text__names_only_a_limit_that_is_set)
{
    const struct sl_shard_options limits[] = {{.count = 1},
                                              {.count = 1, .memory_bytes_max = 4U << 20}};
    for (uint32_t i = 0; i < 2; i++) {
        struct sl_shard *shard = make_shard(&limits[i]);
        char text[64];
        assert_ptr_equal(sl_shard_limit_text(shard, text), text);
        assert_true((strstr(text, "the limit is") != NULL) == (i == 1));
        assert_non_null(strstr(text, i == 1 ? "4194304" : "no --memory-limit is set"));
        sl_shard_destroy(&shard);
    }
}

CASE(shard_run__pooled_sums_do_not_depend_on_slices)
{
    fill_distinct(f, 0);
    shard_request_begin(&f->request, 0);
    shard_request_push(&f->request, SL_REQUEST_PUSH, 0, f->keys, MANY, f->gradients, DIM);
    must_run(f, NOBODY, UINT32_MAX);
    static uint32_t ends[1200];
    uint64_t seed = 5;
    uint32_t end = 0;
    for (uint32_t i = 0; i < 1200; i++) {
        uint32_t longest = i % 100 == 0 ? 700 : 3;
        end += (uint32_t)(sl_hash_random(&seed) % longest); /* many bags are empty */
        ends[i] = end < MANY ? end : MANY;
    }
    ends[1199] = MANY;
    for (uint32_t budget = 1; budget < 5000; budget = budget * 3 + 1) {
        memset(f->reply, 0xff, sizeof f->reply);
        shard_request_begin(&f->request, 0);
        shard_request_pooled(&f->request, 0, f->keys, MANY, ends, 1200);
        must_run(f, NOBODY, budget);
        uint32_t key = 0;
        for (uint32_t i = 0; i < 1200; i++) {
            float sum = 0;
            for (; key < ends[i]; key++) {
                sum += 1.0F + (float)(key % 100);
            }
            assert_true(reply_floats(f)[i * DIM] == sum);
        }
    }
}

CASE(shard_run__dense_ranges_are_read_and_written_in_slices)
{
    static float gradients[4321];
    for (uint32_t i = 0; i < 4321; i++) {
        gradients[i] = (float)i;
    }
    for (uint32_t budget = 1; budget < 200; budget += 33) {
        shard_request_begin(&f->request, 0);
        shard_request_dense(&f->request, SL_REQUEST_DENSE_PUSH_PULL, 2, 555, 4321, gradients);
        must_run(f, NOBODY, budget);
    }
    shard_request_begin(&f->request, 0);
    shard_request_dense(&f->request, SL_REQUEST_DENSE_PULL, 2, 554, 4323, NULL);
    must_run(f, NOBODY, 1);
    assert_true(f->calls > 4);
    const float *values = reply_floats(f);
    assert_true(values[0] == 1.0F);
    assert_true(values[4322] == 1.0F);
    for (uint32_t i = 0; i < 4321; i++) {
        assert_true(values[i + 1] == 1.0F + 7.0F * (float)i);
    }
}

CASE(shard_run__pads_the_reply_of_each_section_with_zeros)
{
    memset(f->reply, 0xff, sizeof f->reply);
    shard_request_begin(&f->request, 0);
    shard_request_dense(&f->request, SL_REQUEST_DENSE_PULL, 2, 0, 3, NULL);
    shard_request_dense(&f->request, SL_REQUEST_DENSE_PULL, 2, 0, 1, NULL);
    must_run(f, NOBODY, 1000);
    const float expected[] = {1, 1, 1, 0, 1, 0};
    assert_memory_equal(f->reply, expected, sizeof expected);
}

CASE(shard_run__without_a_reply_needs_no_memory_for_it)
{
    shard_request_begin(&f->request, 0);
    shard_request_pull(&f->request, 0, NULL, 0);
    shard_request_pooled(&f->request, 0, NULL, 0, NULL, 0);
    struct sl_shard_request work;
    assert_int_equal(begin(f, &f->request, NOBODY, &work), 0);
    uint32_t spent;
    assert_int_equal(sl_shard_run(f->shard, &work, NULL, 100, &spent, &f->reason), SL_SHARD_DONE);
}

CASE(shard_ready__means_done_in_one_call_within_the_cost)
{
    uint64_t seed = 3;
    for (int round = 0; round < 300; round++) {
        fill_distinct(f, sl_hash_random(&seed) % 1000);
        shard_request_begin(&f->request, 0);
        uint32_t sections = 1 + (uint32_t)(sl_hash_random(&seed) % 5);
        for (uint32_t i = 0; i < sections; i++) {
            uint32_t count = (uint32_t)(sl_hash_random(&seed) % 1500);
            uint16_t table = (uint16_t)(sl_hash_random(&seed) % 2);
            uint32_t end = count;
            switch (sl_hash_random(&seed) % 4) {
            case 0:
                shard_request_pull(&f->request, table, f->keys, count);
                break;
            case 1:
                shard_request_push(&f->request, SL_REQUEST_PUSH_PULL, table, f->keys, count,
                                   f->gradients, DIM);
                break;
            case 2:
                shard_request_pooled(&f->request, table, f->keys, count, &end, 1);
                break;
            default:
                shard_request_dense(&f->request, SL_REQUEST_DENSE_PUSH, 2, count, count + 1,
                                    f->gradients);
            }
        }
        struct sl_shard_request work;
        assert_int_equal(begin(f, &f->request, NOBODY, &work), 0);
        assert_false(sl_shard_ready(f->shard, &work, work.cost - 1));
        assert_true(sl_shard_ready(f->shard, &work, work.cost));
        uint32_t spent;
        assert_int_equal(sl_shard_run(f->shard, &work, f->reply, UINT32_MAX, &spent, &f->reason),
                         SL_SHARD_DONE);
        assert_true(spent <= work.cost);
    }
}

CASE(shard_stats__counts_rows_and_visits)
{
    fill_repeating(f, 200);
    shard_request_begin(&f->request, 0);
    shard_request_push(&f->request, SL_REQUEST_PUSH_PULL, 1, f->keys, 200, f->gradients, DIM);
    must_run(f, NOBODY, 1000);
    struct sl_message message = {.kind = SL_MESSAGE_STATS};
    assert_int_equal(sl_shard_stats(f->shard, &message.stats), 0);
    assert_int_equal(message.stats.table_count, 3);
    assert_string_equal(message.stats.tables[1].name, "ada");
    assert_int_equal(message.stats.tables[1].rows, 100);
    assert_int_equal(message.stats.tables[1].pushed_rows, 100);
    assert_int_equal(message.stats.tables[1].pulled_rows, 200);
    assert_int_equal(message.stats.tables[1].steps, 1);
    assert_int_equal(message.stats.tables[2].steps, 0);
    assert_int_equal(message.stats.tables[2].rows, 5000);
    sl_message_fini(&message);
}
