/* Eviction: which rows go, which never do, and that a shard which follows the log of another one
 * has the same rows. */
#include <stdlib.h>
#include <string.h>

#include "core/hash.h"
#include "ps/shard/state.h"
#include "snapshot_fixture.h"

#define ROWS    8 /* id of the table with a policy */
#define BUDGET  300
#define KEY_MAX 200000

static struct fixture backup; /* follows the log of the fixture's shard */
static struct sl_shard_evicted rows;
static uint64_t evicted_keys[KEY_MAX];
static uint32_t evicted_count;

static void open_with(struct fixture *f, const struct sl_policy_spec *policy)
{
    struct sl_table_spec spec = {
        .name = "rows",
        .kind = SL_TABLE_SPARSE,
        .dim = DIM,
        .optimizer = sl_optimizer_defaults(SL_OPTIMIZER_ADAGRAD),
        .policy = *policy,
    };
    assert_int_equal(sl_shard_table_open(f->shard, ROWS, &spec, &f->reason), 0);
}

static void open_bsp(struct fixture *f, const struct sl_policy_spec *policy)
{
    struct sl_table_spec spec = {
        .name = "rows",
        .kind = SL_TABLE_SPARSE,
        .dim = DIM,
        .optimizer = sl_optimizer_defaults(SL_OPTIMIZER_ADAGRAD),
        .consistency = {.mode = SL_CONSISTENCY_BSP, .worker_count = WORKERS},
        .policy = *policy,
    };
    assert_int_equal(sl_shard_table_open(f->shard, ROWS, &spec, &f->reason), 0);
}

static struct sl_shard_table *table_of(const struct fixture *f)
{
    return f->shard->tables[ROWS];
}

static const struct sl_row *row_of(const struct fixture *f, uint64_t key)
{
    uint32_t record;
    return sl_sparse_table_find(table_of(f)->sparse, &key, 1, &record)
               ? sl_sparse_table_record(table_of(f)->sparse, record)
               : NULL;
}

static int push(struct fixture *f, uint64_t first, uint32_t count, float value)
{
    snapshot_fill(count, first, value);
    shard_request_begin(&f->request, 0);
    shard_request_push(&f->request, SL_REQUEST_PUSH, ROWS, snapshot_keys, count, snapshot_gradients,
                       DIM);
    return fixture_run(f, NOBODY);
}

static void push_times(struct fixture *f, uint64_t key, uint32_t times)
{
    for (uint32_t i = 0; i < times; i++) {
        assert_int_equal(push(f, key, 1, 1.0F), SL_SHARD_DONE);
    }
}

/* Evicts until nothing is due; notes the keys. */
static void evict_all(struct fixture *f)
{
    evicted_count = 0;
    while (sl_shard_evict(f->shard, BUDGET, &rows) > 0) {
        assert_true(evicted_count + rows.count <= KEY_MAX);
        memcpy(evicted_keys + evicted_count, rows.keys, rows.count * sizeof rows.keys[0]);
        evicted_count += rows.count;
    }
    assert_false(sl_shard_eviction_due(f->shard));
}

static uint64_t row_count(const struct fixture *f)
{
    return sl_sparse_table_row_count(table_of(f)->sparse);
}

CASE(evict__rows_go_for_their_age)
{
    open_with(f, &(struct sl_policy_spec){.ttl_steps = 8});
    assert_int_equal(push(f, 0, 100, 1.0F), SL_SHARD_DONE);
    push_times(f, 1000, 7);
    evict_all(f);
    assert_int_equal(row_count(f), 101);
    push_times(f, 1000, 3); /* a quarter of the time later, all have been judged */
    evict_all(f);
    assert_int_equal(row_count(f), 1);
    assert_int_equal(table_of(f)->eviction.evicted[SL_EVICTION_TTL], 100);
    assert_true(fixture_peek(f, ROWS, 5) == 0.0F);
    const float alone = fixture_peek(f, ROWS, 1000);
    assert_int_equal(push(f, 5, 1, 1.0F), SL_SHARD_DONE);
    assert_true(fixture_peek(f, ROWS, 5) != 0.0F);
    assert_true(fixture_peek(f, ROWS, 5) > alone); /* without the accumulator of its first life */
    assert_int_equal(row_of(f, 5)->count, 1);
}

/* Rows move as others go, and each goes in time; then the memory is returned. */
CASE(evict__memory_returns)
{
    enum { OLD = 40000, STEPS = 20 };
    open_with(f, &(struct sl_policy_spec){.ttl_steps = STEPS});
    for (uint64_t first = 0; first < OLD; first += OLD / STEPS) {
        assert_int_equal(push(f, first, OLD / STEPS, 1.0F), SL_SHARD_DONE);
    }
    const size_t full = f->shard->memory_bytes;
    for (uint32_t step = 1; step <= STEPS; step++) {
        push_times(f, 1000000, 1);
        evict_all(f);
        const uint32_t due = step < STEPS / 4 ? 0 : step - STEPS / 4;
        assert_true(row_count(f) <= 1 + OLD - due * (OLD / STEPS));
    }
    push_times(f, 1000000, STEPS / 4);
    evict_all(f);
    assert_int_equal(row_count(f), 1);
    for (uint32_t i = 0; i < 200; i++) {
        push_times(f, 1000000, 1);
    }
    assert_true(sl_sparse_table_record_count(table_of(f)->sparse) < 20000);
    assert_true(f->shard->memory_bytes < full * 3 / 4);
}

#define TTL 16 /* seconds */

/* Rows of known age, each pushed in another second; a third of the time and two seconds later than
 * due, all have been judged. Then no push comes any more. */
CASE(evict__rows_go_for_their_age_in_seconds)
{
    open_with(f, &(struct sl_policy_spec){.ttl_seconds = TTL});
    for (uint64_t second = 1000; second < 1100; second++) {
        sl_shard_eviction_clock(f->shard, second);
        if (second < 1060) {
            assert_int_equal(push(f, second, 1, 1.0F), SL_SHARD_DONE);
        }
        evict_all(f);
        for (uint64_t key = 1000; key < second && key < 1060; key++) {
            assert_true(row_of(f, key) != NULL || second - key > TTL);
            assert_true(row_of(f, key) == NULL || second - key <= TTL + TTL / 3 + 2);
        }
    }
    assert_int_equal(row_count(f), 0);
    assert_int_equal(table_of(f)->eviction.evicted[SL_EVICTION_TTL], 60);
}

/* The clock of another process is another one. */
CASE(evict__restored_rows_count_their_seconds_anew)
{
    open_with(f, &(struct sl_policy_spec){.ttl_seconds = TTL});
    sl_shard_eviction_clock(f->shard, 1000);
    assert_int_equal(push(f, 0, 10, 1.0F), SL_SHARD_DONE);
    struct sl_shard *copy = snapshot_copy(f->shard);
    sl_shard_destroy(&f->shard);
    f->shard = copy;
    for (uint64_t second = 5; second <= 5 + TTL; second++) {
        sl_shard_eviction_clock(f->shard, second);
        evict_all(f);
        assert_int_equal(row_count(f), 10);
    }
    for (uint64_t second = 6 + TTL; second < 8 + TTL + TTL / 3; second++) {
        sl_shard_eviction_clock(f->shard, second);
        evict_all(f);
    }
    assert_int_equal(row_count(f), 0);
}

/* Bits 4 and 5 of a key are its slot. */
CASE(evict__slots_have_ages_of_their_own)
{
    open_with(f, &(struct sl_policy_spec){.ttl_steps = 40,
                                          .slot_shift = 4,
                                          .slot_bits = 2,
                                          .slot_count = 3,
                                          .slots = {{.ttl_steps = 8}, {0}, {.ttl_steps = 80}}});
    assert_int_equal(push(f, 0, 64, 1.0F), SL_SHARD_DONE);
    static const uint32_t left[] = {48, 16, 0}; /* slots 1 to 3, slot 2, none */
    static const uint32_t steps[] = {10, 40, 50};
    for (uint32_t i = 0; i < 3; i++) {
        push_times(f, 1UL << 32 | 1U << 4, steps[i]);
        evict_all(f);
        assert_int_equal(row_count(f), left[i] + 1);
    }
}

CASE(evict__an_idle_table_is_not_walked)
{
    open_with(f, &(struct sl_policy_spec){.ttl_steps = 8});
    push_times(f, 1, 20);
    evict_all(f);
    assert_int_equal(sl_shard_evict(f->shard, BUDGET, &rows), 0);
    assert_int_equal(fixture_push(f, NOBODY, 0, ASP, 1, 5.0F), SL_SHARD_DONE);
    assert_false(sl_shard_eviction_due(f->shard));
}

CASE(evict__rows_go_for_their_count_and_norm_but_not_early)
{
    open_with(f, &(struct sl_policy_spec){.count_below = 3, .l2_below = 1e-4F, .protect_steps = 8});
    push_times(f, 1, 2);
    push_times(f, 2, 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(push(f, 3, 1, 1e-6F), SL_SHARD_DONE);
    }
    evict_all(f);
    assert_int_equal(row_count(f), 3);
    push_times(f, 4, 12);
    evict_all(f);
    assert_null(row_of(f, 1));
    assert_non_null(row_of(f, 2));
    assert_null(row_of(f, 3));
    assert_int_equal(table_of(f)->eviction.evicted[SL_EVICTION_COUNT], 1);
    assert_int_equal(table_of(f)->eviction.evicted[SL_EVICTION_L2], 1);
}

/* Rows [0, 1000) are old, those behind them are young. */
CASE(evict__the_oldest_make_room_first)
{
    open_with(f, &(struct sl_policy_spec){.rows_max = 1000, .order = SL_POLICY_LRU});
    for (uint64_t key = 0; key < 2000; key += 10) {
        assert_int_equal(push(f, key, 10, 1.0F), SL_SHARD_DONE);
    }
    evict_all(f);
    assert_int_equal(row_count(f), 1000);
    assert_int_equal(evicted_count, 1000);
    uint32_t old = 0;
    for (uint32_t i = 0; i < evicted_count; i++) {
        old += evicted_keys[i] < 1000;
    }
    assert_true(old > 850);
}

CASE(evict__the_rarest_make_room_first)
{
    open_with(f, &(struct sl_policy_spec){
                     .rows_max = 500, .order = SL_POLICY_LFU, .half_life_steps = 1000});
    for (uint32_t i = 0; i < 50; i++) {
        assert_int_equal(push(f, 0, 400, 1.0F), SL_SHARD_DONE);
    }
    for (uint64_t key = 1000; key < 2000; key += 50) {
        assert_int_equal(push(f, key, 50, 1.0F), SL_SHARD_DONE);
        evict_all(f);
        assert_int_equal(row_count(f), key + 50 < 1150 ? 400 + key + 50 - 1000 : 500);
    }
    uint32_t kept = 0;
    for (uint64_t key = 0; key < 400; key++) {
        kept += row_of(f, key) != NULL;
    }
    assert_true(kept > 390);
}

CASE(evict__nothing_goes_where_all_are_protected)
{
    open_with(f,
              &(struct sl_policy_spec){.rows_max = 10, .order = SL_POLICY_LRU, .protect_steps = 5});
    assert_int_equal(push(f, 0, 100, 1.0F), SL_SHARD_DONE);
    evict_all(f); /* and it ends */
    assert_int_equal(row_count(f), 100);
    push_times(f, 0, 5);
    evict_all(f);
    assert_int_equal(row_count(f), 10);
    assert_non_null(row_of(f, 0));
}

/* Rows that come faster than they go do not heap up. */
CASE(evict__a_push_waits_where_too_many_rows_are_there)
{
    uint32_t spent;
    open_with(f, &(struct sl_policy_spec){.rows_max = 320, .order = SL_POLICY_LRU});
    assert_int_equal(push(f, 0, 1350, 1.0F), SL_SHARD_DONE); /* 1024 + 320 / 32 beyond it: 1354 */
    assert_int_equal(push(f, 1350, 100, 1.0F), SL_SHARD_DONE);
    snapshot_fill(100, 2000, 1.0F);
    shard_request_begin(&f->request, 0);
    shard_request_push(&f->request, SL_REQUEST_PUSH, ROWS, snapshot_keys, 100, snapshot_gradients,
                       DIM);
    fixture_begin(f, NOBODY);
    assert_false(sl_shard_ready(f->shard, &f->work, UINT64_MAX));
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(sl_shard_run(f->shard, &f->work, f->reply, 1000, &spent, &f->reason),
                         SL_SHARD_AGAIN);
    }
    assert_int_equal(row_count(f), 1450);
    evict_all(f);
    snapshot_run_to_end(f);
    assert_int_equal(row_count(f), 420);
}

/* The room that the second section found before the request may be used by the first. */
CASE(evict__a_request_of_several_pushes_runs_in_slices)
{
    open_with(f, &(struct sl_policy_spec){.rows_max = 320, .order = SL_POLICY_LRU});
    snapshot_fill(100, 0, 1.0F);
    shard_request_begin(&f->request, 0);
    shard_request_push(&f->request, SL_REQUEST_PUSH, ROWS, snapshot_keys, 100, snapshot_gradients,
                       DIM);
    fixture_begin(f, NOBODY);
    assert_true(sl_shard_ready(f->shard, &f->work, UINT64_MAX));
    shard_request_push(&f->request, SL_REQUEST_PUSH, ROWS, snapshot_keys, 100, snapshot_gradients,
                       DIM);
    fixture_begin(f, NOBODY);
    assert_false(sl_shard_ready(f->shard, &f->work, UINT64_MAX));
    snapshot_run_to_end(f);
    assert_int_equal(row_count(f), 100);
}

/* It holds the records of its keys from slice to slice. */
CASE(evict__waits_for_a_long_push)
{
    open_with(f, &(struct sl_policy_spec){.rows_max = 10, .order = SL_POLICY_LRU});
    fixture_long(f, SL_REQUEST_PUSH, ROWS, 0);
    fixture_begin(f, NOBODY);
    (void)snapshot_slice(f, 1000, SL_SHARD_AGAIN);
    while (sl_shard_written(&f->work) == 0 && f->shard->snapshots.pushes_in_part == 0) {
        (void)snapshot_slice(f, 200, SL_SHARD_AGAIN);
    }
    assert_true(sl_shard_eviction_due(f->shard));
    assert_int_equal(sl_shard_evict(f->shard, BUDGET, &rows), 0);
    snapshot_run_to_end(f);
    evict_all(f);
    assert_int_equal(row_count(f), 10);
}

/* New keys without end find room below the limit, also while a snapshot goes on. */
CASE(evict__new_rows_find_room_in_a_limited_memory)
{
    const struct sl_shard_options options = {.count = 1, .memory_bytes_max = (size_t)2 << 20};
    for (uint32_t with = 0; with < 2; with++) {
        sl_shard_destroy(&f->shard);
        assert_int_equal(sl_shard_create(&options, &f->shard), 0);
        open_with(f, &(struct sl_policy_spec){.order = with == 0 ? SL_POLICY_NONE : SL_POLICY_LRU});
        int err = SL_SHARD_DONE;
        uint64_t key = 0;
        for (; key < 200000 && err == SL_SHARD_DONE; key += 200) {
            err = push(f, key, 200, 1.0F);
            assert_true(f->shard->memory_bytes <= options.memory_bytes_max);
            evict_all(f);
            if (key == 100000) {
                assert_int_equal(sl_shard_snapshot_begin(f->shard, &snapshot_everything), 0);
            }
        }
        assert_int_equal(err, with == 0 ? SL_ERR_NO_MEMORY : SL_SHARD_DONE);
        assert_int_equal(key == 200000, with);
        if (with == 1) {
            assert_true(fixture_peek(f, ROWS, key - 1) != 0);
            snapshot_end(f);
        }
    }
}

/* Other tables fill the memory. */
CASE(evict__nothing_goes_of_an_empty_table)
{
    const struct sl_shard_options options = {.count = 1, .memory_bytes_max = (size_t)2 << 20};
    sl_shard_destroy(&f->shard);
    assert_int_equal(sl_shard_create(&options, &f->shard), 0);
    open_with(f, &(struct sl_policy_spec){.order = SL_POLICY_LRU});
    snapshot_open_table(f, WIDE, SL_TABLE_SPARSE, DIM, 0);
    int err = SL_SHARD_DONE;
    for (uint64_t key = 0; err == SL_SHARD_DONE; key += 200) {
        snapshot_fill(200, key, 1.0F);
        shard_request_begin(&f->request, 0);
        shard_request_push(&f->request, SL_REQUEST_PUSH, WIDE, snapshot_keys, 200,
                           snapshot_gradients, DIM);
        err = fixture_run(f, NOBODY);
    }
    assert_true(f->shard->memory_bytes > options.memory_bytes_max / 100 * 92);
    evict_all(f);
    assert_int_equal(table_of(f)->eviction.evicted[SL_EVICTION_ROOM], 0);
}

/* A snapshot has the rows of its beginning: those that go meanwhile, and not the ones that use
 * their records. */
CASE(evict__a_snapshot_keeps_the_rows_of_its_beginning)
{
    struct shard_stream stream = {0};
    open_with(f, &(struct sl_policy_spec){.rows_max = 1000, .order = SL_POLICY_LRU});
    assert_int_equal(push(f, 0, 900, 1.0F), SL_SHARD_DONE);
    push_times(f, 0, 2);
    assert_int_equal(push(f, 900, 300, 1.0F), SL_SHARD_DONE);
    evict_all(f); /* free records before it begins */
    struct sl_shard *still = snapshot_copy(f->shard);
    assert_int_equal(sl_shard_snapshot_begin(f->shard, &snapshot_everything), 0);
    for (uint64_t key = 2000; shard_stream_snapshot(f->shard, 20, &stream); key += 20) {
        assert_int_equal(push(f, key, 20, 3.0F), SL_SHARD_DONE);
        assert_int_equal(push(f, key - 1100, 5, 2.0F), SL_SHARD_DONE);
        evict_all(f);
    }
    assert_true(sl_sparse_table_record_count(table_of(f)->sparse) < 1300);
    sl_shard_snapshot_end(f->shard, NULL);
    snapshot_clean(f->shard);
    snapshot_check(still, &stream);
}

/* The keys of an incremental snapshot and its base make the shard again, whatever went between. */
CASE(evict__an_incremental_snapshot_forgets_what_went)
{
    struct sl_shard_snapshot_base *base;
    struct sl_shard *made = NULL;
    open_with(f, &(struct sl_policy_spec){.rows_max = 300, .order = SL_POLICY_LRU});
    assert_int_equal(push(f, 0, 300, 1.0F), SL_SHARD_DONE);
    struct shard_stream full = snapshot_of(f->shard, NULL, &base);
    for (uint64_t key = 1000; key < 1200; key += 20) {
        assert_int_equal(push(f, key, 20, 3.0F), SL_SHARD_DONE);
        evict_all(f);
    }
    struct shard_stream delta = snapshot_of(f->shard, base, NULL);
    sl_shard_snapshot_base_destroy(&base);
    snapshot_load(&full, &made);
    snapshot_load(&delta, &made);
    snapshot_same(f->shard, made);
    sl_shard_destroy(&made);
    shard_stream_fini(&full);
    shard_stream_fini(&delta);
}

/* A list of keys that is longer than the rows would make an incremental snapshot larger than a full
 * one. */
CASE(evict__a_snapshot_is_full_where_more_rows_went_than_are_there)
{
    for (uint32_t pushes = 1; pushes <= 2; pushes++) {
        struct sl_shard_snapshot_base *base;
        sl_shard_destroy(&f->shard);
        assert_int_equal(sl_shard_create(&(struct sl_shard_options){.count = 1}, &f->shard), 0);
        open_with(f, &(struct sl_policy_spec){.rows_max = 300, .order = SL_POLICY_LRU});
        assert_int_equal(push(f, 0, 300, 1.0F), SL_SHARD_DONE);
        struct shard_stream full = snapshot_of(f->shard, NULL, &base);
        for (uint32_t i = 1; i <= pushes; i++) {
            assert_int_equal(push(f, 1000 * i, 200, 1.0F), SL_SHARD_DONE);
            evict_all(f);
        }
        const struct sl_shard_snapshot_options options = {.base = base};
        assert_int_equal(sl_shard_snapshot_begin(f->shard, &options), 0);
        assert_int_equal(sl_shard_snapshot_is_full(f->shard), pushes == 2);
        snapshot_end(f);
        sl_shard_snapshot_base_destroy(&base);
        shard_stream_fini(&full);
    }
}

/* What the primary logs of an eviction. */
static void follow(uint32_t count)
{
    if (count > 0) {
        shard_request_begin(&backup.request, 0);
        shard_request_erase(&backup.request, ROWS, evicted_keys, count);
        assert_int_equal(fixture_run(&backup, NOBODY), SL_SHARD_DONE);
    }
}

static struct sl_policy_spec draw_policy(uint64_t *random)
{
    struct sl_policy_spec policy = {
        .order = (enum sl_policy_order)(sl_hash_random(random) % SL_POLICY_ORDER_COUNT),
        .protect_steps = (uint32_t)(sl_hash_random(random) % 10),
    };
    policy.ttl_steps = sl_hash_random(random) % 2 == 0 ? 0 : policy.protect_steps + 10;
    policy.count_below = policy.protect_steps == 0 ? 0 : (uint32_t)(sl_hash_random(random) % 4);
    policy.l2_below = policy.protect_steps == 0 || sl_hash_random(random) % 2 ? 0 : 0.02F;
    policy.rows_max = policy.order == SL_POLICY_NONE ? 0 : 50 + sl_hash_random(random) % 200;
    policy.half_life_steps = policy.order == SL_POLICY_LFU ? 20 : 0;
    return policy;
}

/* Nothing goes that the policy protects, and for a threshold only what it names. */
static void check_judged(const struct fixture *before, const struct sl_policy_spec *policy)
{
    const uint64_t step = table_of(before)->step;
    for (uint32_t i = 0; i < evicted_count; i++) {
        const struct sl_row *row = row_of(before, evicted_keys[i]);
        assert_non_null(row);
        const uint32_t age = (uint32_t)step - row->last_step;
        const float norm = row->values[0] * row->values[0] + row->values[1] * row->values[1];
        const bool is_due = (policy->ttl_steps > 0 && age >= policy->ttl_steps) ||
                            row->count < policy->count_below ||
                            norm < policy->l2_below * policy->l2_below;
        assert_true(age >= policy->protect_steps);
        assert_true(is_due || policy->rows_max > 0);
    }
}

/* Random pushes, erases and snapshots under random policies. The backup executes the same writes,
 * and the erases that stand for evictions: it has the same rows, bit for bit. */
CASE(evict__a_shard_that_follows_the_log_has_the_same_rows)
{
    for (uint64_t seed = 1; seed <= 40; seed++) {
        uint64_t random = seed;
        const struct sl_policy_spec policy = draw_policy(&random);
        sl_shard_destroy(&f->shard);
        fixture_make(f, 0);
        fixture_make(&backup, 0);
        open_with(f, &policy);
        open_with(&backup, &policy);
        for (uint32_t i = 0; i < 150; i++) {
            const uint64_t first = sl_hash_random(&random) % 500;
            const uint32_t count = 1 + (uint32_t)(sl_hash_random(&random) % 20);
            const float value = (float)(sl_hash_random(&random) % 9) - 4.0F;
            assert_int_equal(push(f, first, count, value), SL_SHARD_DONE);
            assert_int_equal(push(&backup, first, count, value), SL_SHARD_DONE);
            evict_all(f);
            check_judged(&backup, &policy);
            follow(evicted_count);
            if (policy.rows_max > 0 && policy.protect_steps == 0) {
                assert_true(row_count(f) <= policy.rows_max);
            }
        }
        snapshot_same(f->shard, backup.shard);
        sl_shard_destroy(&backup.shard);
    }
}

#define SMALL_KEYS 500

/* Pushes keys of their own to a table of narrow rows, whose index takes a large part of memory. */
static int push_small(struct fixture *f, uint64_t first)
{
    snapshot_fill(SMALL_KEYS, first, 1.0F);
    shard_request_begin(&f->request, 0);
    shard_request_push(&f->request, SL_REQUEST_PUSH, ROWS, snapshot_keys, SMALL_KEYS,
                       snapshot_gradients, 1);
    return fixture_run(f, NOBODY);
}

/* A backup begins with a snapshot of a primary whose memory is full, and follows its log with the
 * same limit. It cannot wait for room, and needs none. */
CASE(evict__a_backup_has_room_where_its_primary_has)
{
    const struct sl_table_spec spec = {.name = "rows",
                                       .kind = SL_TABLE_SPARSE,
                                       .dim = 1,
                                       .optimizer = sl_optimizer_defaults(SL_OPTIMIZER_SGD),
                                       .policy.order = SL_POLICY_LRU};
    for (size_t bytes_max = (size_t)7 << 20; bytes_max < (size_t)14 << 20;
         bytes_max += (size_t)400 << 10) {
        const struct sl_shard_options options = {.count = 1, .memory_bytes_max = bytes_max};
        uint64_t key = 0;
        sl_shard_destroy(&f->shard);
        assert_int_equal(sl_shard_create(&options, &f->shard), 0);
        assert_int_equal(sl_shard_create(&options, &backup.shard), 0);
        assert_int_equal(sl_shard_table_open(f->shard, ROWS, &spec, &f->reason), 0);
        for (; key < bytes_max / 16; key += SMALL_KEYS) {
            assert_int_equal(push_small(f, key), SL_SHARD_DONE);
            evict_all(f);
        }
        struct shard_stream stream = snapshot_of(f->shard, NULL, NULL);
        if (shard_stream_load(&stream, backup.shard, BUDGET, &f->reason) != 0) {
            fail_msg("limit %zu, of which the primary uses %zu: %s", bytes_max,
                     f->shard->memory_bytes, f->reason.text);
        }
        shard_stream_fini(&stream);
        for (uint32_t i = 0; i < 100; i++, key += SMALL_KEYS) {
            assert_int_equal(push_small(f, key), SL_SHARD_DONE);
            assert_int_equal(push_small(&backup, key), SL_SHARD_DONE);
            evict_all(f);
            follow(evicted_count);
        }
        snapshot_same(f->shard, backup.shard);
        sl_shard_destroy(&backup.shard);
    }
}

/* BSP */

static void push_bsp(struct fixture *f, uint32_t worker, uint32_t clock, uint64_t first,
                     uint32_t count, float value)
{
    snapshot_fill(count, first, value);
    shard_request_begin(&f->request, clock);
    shard_request_push(&f->request, SL_REQUEST_PUSH, ROWS, snapshot_keys, count, snapshot_gradients,
                       DIM);
    assert_int_equal(fixture_run(f, worker), SL_SHARD_DONE);
}

/* An iteration has three steps. */
CASE(evict__bsp_rows_go_at_commits)
{
    open_bsp(f, &(struct sl_policy_spec){.ttl_steps = 6});
    push_bsp(f, 0, 0, 1000, 10, 1.0F);
    for (uint32_t clock = 0; clock < 4; clock++) {
        for (uint32_t worker = 0; worker < WORKERS; worker++) {
            if (clock > 0 || worker > 0) {
                push_bsp(f, worker, clock, worker, 1, 1.0F);
            }
            assert_false(sl_shard_eviction_due(f->shard));
        }
        assert_int_equal(row_of(f, 1000) != NULL, clock < 3); /* of steps 1 and 7 */
        fixture_tick_all(f, clock);
        fixture_commit(f);
        assert_int_equal(row_of(f, 1000) != NULL, clock < 2);
    }
    assert_int_equal(row_count(f), WORKERS);
    assert_int_equal(table_of(f)->eviction.evicted[SL_EVICTION_TTL], 10);
    assert_int_equal(sl_shard_evict(f->shard, BUDGET, &rows), 0);
}

/* A row may be evicted while a push to it is buffered for the next iteration. That push then
 * creates the row again. */
CASE(evict__bsp_a_row_of_a_push_that_waits_may_go)
{
    open_bsp(f, &(struct sl_policy_spec){.ttl_steps = 4});
    push_bsp(f, 0, 0, 7, 1, 1.0F);
    fixture_tick_all(f, 0);
    fixture_commit(f);
    const float alone = fixture_peek(f, ROWS, 7);
    for (uint32_t i = 0; i < 5; i++) {
        push_bsp(f, 1, 1, 1, 1, 1.0F);
    }
    assert_int_equal(fixture_tick(f, 0, 1), SL_SHARD_DONE);
    push_bsp(f, 0, 2, 7, 1, 1.0F);
    assert_int_equal(fixture_tick(f, 1, 1), SL_SHARD_DONE);
    assert_int_equal(fixture_tick(f, 2, 1), SL_SHARD_DONE);
    fixture_commit(f);
    assert_null(row_of(f, 7));
    fixture_tick_all(f, 2);
    fixture_commit(f);
    assert_true(fixture_peek(f, ROWS, 7) == alone);
    assert_int_equal(row_of(f, 7)->count, 1);
}

static void commit_in_slices(struct fixture *f, uint32_t budget)
{
    while (sl_shard_iteration_due(f->shard)) {
        (void)sl_shard_apply_iteration(f->shard, budget);
    }
}

/* Pushes of an iteration arrive in any order, and commits take any number of slices: the rows are
 * the same, also on a shard that has been restored on the way. */
CASE(evict__bsp_rows_do_not_depend_on_the_order_of_arrival)
{
    uint64_t gone = 0;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        uint64_t random = seed;
        struct sl_policy_spec policy = draw_policy(&random);
        policy = (struct sl_policy_spec){.ttl_steps = policy.ttl_steps,
                                         .protect_steps = policy.protect_steps,
                                         .count_below = policy.count_below,
                                         .l2_below = policy.l2_below};
        sl_shard_destroy(&f->shard);
        fixture_make(f, 0);
        fixture_make(&backup, 0);
        open_bsp(f, &policy);
        open_bsp(&backup, &policy);
        for (uint32_t clock = 0; clock < 40; clock++) {
            const uint64_t first = sl_hash_random(&random) % 200;
            const float value = (float)(sl_hash_random(&random) % 9) / 4.0F - 1.0F;
            for (uint32_t i = 0; i < WORKERS; i++) {
                const uint32_t other = WORKERS - 1 - i;
                push_bsp(f, i, clock, first + 5ULL * i, 12, value);
                push_bsp(&backup, other, clock, first + 5ULL * other, 12, value);
            }
            for (uint32_t i = 0; i < WORKERS; i++) {
                assert_int_equal(fixture_tick(f, i, clock), SL_SHARD_DONE);
                assert_int_equal(fixture_tick(&backup, WORKERS - 1 - i, clock), SL_SHARD_DONE);
            }
            commit_in_slices(f, 1 + (uint32_t)(sl_hash_random(&random) % 50));
            commit_in_slices(&backup, 1 + (uint32_t)(sl_hash_random(&random) % 50));
            if (clock == 20) {
                struct sl_shard *copy = snapshot_copy(backup.shard);
                sl_shard_destroy(&backup.shard);
                backup.shard = copy;
            }
            assert_int_equal(row_count(f), row_count(&backup));
        }
        assert_null(shard_stream_differ(&f->shard, 1, &backup.shard, 1));
        for (uint32_t i = 0; i < SL_EVICTION_REASON_COUNT; i++) {
            gone += table_of(f)->eviction.evicted[i];
        }
        sl_shard_destroy(&backup.shard);
    }
    assert_true(gone > 1000);
}
