/* EVICT: one round over a table, by thresholds of the request or of the policy; what ends it; and
 * that a shard which follows the log has the same rows. */
#include <string.h>

#include "ps/shard/state.h"
#include "snapshot_fixture.h"

#define ROWS   8 /* id of the table */
#define BUDGET 60

static struct fixture backup; /* follows the log of the fixture's shard */

static void open_table(struct fixture *f, enum sl_consistency_mode mode,
                       const struct sl_policy_spec *policy)
{
    struct sl_table_spec spec = {
        .name = "rows",
        .kind = SL_TABLE_SPARSE,
        .dim = DIM,
        .optimizer = sl_optimizer_defaults(SL_OPTIMIZER_SUM),
        .consistency = {.mode = mode, .worker_count = mode == SL_CONSISTENCY_ASP ? 0 : WORKERS},
        .policy = *policy,
    };
    assert_int_equal(sl_shard_table_open(f->shard, ROWS, &spec, &f->reason), 0);
}

static const struct sl_policy_spec no_policy;

static void push(struct fixture *f, uint64_t first, uint32_t count, float value)
{
    snapshot_fill(count, first, value);
    shard_request_begin(&f->request, 0);
    shard_request_push(&f->request, SL_REQUEST_PUSH, ROWS, snapshot_keys, count, snapshot_gradients,
                       DIM);
    assert_int_equal(fixture_run(f, NOBODY), SL_SHARD_DONE);
}

static uint64_t row_count(const struct fixture *f)
{
    return sl_sparse_table_row_count(f->shard->tables[ROWS]->sparse);
}

static void evict_begin(struct fixture *f, uint32_t ttl_steps, uint32_t count_below, float l2_below)
{
    uint32_t bits;
    memcpy(&bits, &l2_below, sizeof bits);
    shard_request_begin(&f->request, 0);
    shard_request_evict(&f->request, (struct sl_request_section){.table_id = ROWS,
                                                                 .command = ttl_steps,
                                                                 .bag_count = count_below,
                                                                 .start = bits});
    fixture_begin(f, NOBODY);
}

/* Evicts once, and has the backup do what is logged of it. */
static uint32_t evict_some(struct fixture *f)
{
    struct sl_shard_evicted rows;
    const uint32_t spent = sl_shard_evict(f->shard, BUDGET, &rows);
    if (rows.count > 0 && backup.shard != NULL) {
        shard_request_begin(&backup.request, 0);
        shard_request_erase(&backup.request, (uint16_t)rows.table_id, rows.keys, rows.count);
        assert_int_equal(fixture_run(&backup, NOBODY), SL_SHARD_DONE);
    }
    return spent;
}

/* Goes on with the request, one slice and one eviction after the other. */
static int evict_go_on(struct fixture *f, uint64_t *count)
{
    int result;
    uint32_t spent;
    while ((result = sl_shard_run(f->shard, &f->work, f->reply, 1000, &spent, &f->reason)) ==
           SL_SHARD_AGAIN) {
        assert_true(sl_shard_eviction_due(f->shard));
        assert_true(evict_some(f) > 0);
    }
    sl_shard_abandon(f->shard, &f->work);
    assert_null(f->shard->round.request);
    if (result == SL_SHARD_DONE) {
        memcpy(count, f->reply, sizeof *count);
    }
    return result;
}

static uint64_t evict(struct fixture *f, uint32_t ttl_steps, uint32_t count_below, float l2_below)
{
    uint64_t count = 0;
    evict_begin(f, ttl_steps, count_below, l2_below);
    assert_false(sl_shard_ready(f->shard, &f->work, UINT64_MAX)); /* never runs at once */
    assert_int_equal(evict_go_on(f, &count), SL_SHARD_DONE);
    return count;
}

CASE(evict_round__goes_by_the_thresholds_of_the_request)
{
    open_table(f, SL_CONSISTENCY_ASP, &no_policy);
    push(f, 0, 3000, 1.0F);
    push(f, 0, 1000, 1.0F);
    push(f, 0, 500, -2.0F); /* 0 */
    const uint64_t *evicted = f->shard->tables[ROWS]->eviction.evicted;
    assert_int_equal(evict(f, 3, 0, 0), 0);
    assert_int_equal(evict(f, 2, 0, 0), 2000);
    assert_int_equal(evicted[SL_EVICTION_TTL], 2000);
    assert_int_equal(evict(f, 0, 0, 0.1F), 500);
    assert_int_equal(evicted[SL_EVICTION_L2], 500);
    assert_int_equal(evict(f, 0, 2, 0), 0);
    assert_int_equal(evict(f, 0, 3, 0), 500);
    assert_int_equal(evicted[SL_EVICTION_COUNT], 500);
    assert_int_equal(row_count(f), 0);
    assert_int_equal(evict(f, 0, 3, 0), 0);
    assert_false(sl_shard_eviction_due(f->shard));
}

CASE(evict_round__goes_by_the_policy_and_keeps_what_it_protects)
{
    open_table(f, SL_CONSISTENCY_ASP,
               &(struct sl_policy_spec){.ttl_steps = 100,
                                        .protect_steps = 3,
                                        .slot_shift = 10,
                                        .slot_bits = 1,
                                        .slot_count = 1,
                                        .slots = {{.ttl_steps = 4}}});
    push(f, 0, 100, 1.0F);
    push(f, 1024, 100, 1.0F);
    for (uint32_t i = 0; i < 3; i++) {
        push(f, 0, 10, 1.0F);
    }
    assert_int_equal(evict(f, 0, 0, 0), 90);  /* of the slot */
    assert_int_equal(evict(f, 1, 9, 9), 100); /* but not the ten that are protected */
    assert_int_equal(row_count(f), 10);
}

CASE(evict_round__needs_a_threshold)
{
    uint64_t count;
    open_table(f, SL_CONSISTENCY_ASP,
               &(struct sl_policy_spec){.order = SL_POLICY_LRU, .rows_max = 10});
    evict_begin(f, 0, 0, 0);
    assert_int_equal(evict_go_on(f, &count), SL_ERR_INVALID);
    assert_non_null(strstr(f->reason.text, "(table rows): the table's policy has no threshold"));
}

/* The second round begins once the first has ended, here since its client is gone. */
CASE(evict_round__one_is_in_progress)
{
    static struct fixture other;
    open_table(f, SL_CONSISTENCY_ASP, &no_policy);
    push(f, 0, 3000, 1.0F);
    evict_begin(f, 0, 2, 0);
    (void)snapshot_slice(f, 1000, SL_SHARD_AGAIN);
    assert_true(evict_some(f) > 0);
    other.shard = f->shard;
    evict_begin(&other, 0, 2, 0);
    for (uint32_t i = 0; i < 2; i++) {
        (void)snapshot_slice(&other, 1000, SL_SHARD_AGAIN);
        assert_ptr_equal(f->shard->round.request, &f->work);
    }
    const uint64_t left = row_count(f);
    assert_true(left < 3000);
    sl_shard_abandon(f->shard, &f->work);
    assert_false(sl_shard_eviction_due(f->shard));
    uint64_t count = 0;
    assert_int_equal(evict_go_on(&other, &count), SL_SHARD_DONE);
    assert_int_equal(count, left);
    assert_int_equal(evict_some(f), 0);
}

CASE(evict_round__ends_when_the_table_is_dropped)
{
    uint64_t count;
    open_table(f, SL_CONSISTENCY_ASP, &no_policy);
    push(f, 0, 3000, 1.0F);
    evict_begin(f, 0, 2, 0);
    (void)snapshot_slice(f, 1000, SL_SHARD_AGAIN);
    assert_true(evict_some(f) > 0);
    assert_true(sl_shard_table_drop(f->shard, ROWS));
    assert_false(sl_shard_eviction_due(f->shard));
    assert_int_equal(evict_some(f), 0);
    struct sl_shard_storage storage;
    assert_true(sl_shard_take_dropped(f->shard, &storage));
    sl_shard_storage_free(&storage);
    assert_int_equal(evict_go_on(f, &count), SL_ERR_NOT_FOUND);
    assert_non_null(strstr(f->reason.text, "rows"));
}

/* Neither starves the other. */
CASE(evict_round__takes_turns_with_policies)
{
    open_table(f, SL_CONSISTENCY_ASP, &no_policy);
    const struct sl_table_spec limited = {
        .name = "limited",
        .kind = SL_TABLE_SPARSE,
        .dim = DIM,
        .optimizer = sl_optimizer_defaults(SL_OPTIMIZER_SUM),
        .policy = {.order = SL_POLICY_LRU, .rows_max = 1},
    };
    assert_int_equal(sl_shard_table_open(f->shard, ROWS + 1, &limited, &f->reason), 0);
    push(f, 0, 3000, 1.0F);
    snapshot_fill(3000, 0, 1.0F);
    shard_request_begin(&f->request, 0);
    shard_request_push(&f->request, SL_REQUEST_PUSH, ROWS + 1, snapshot_keys, 3000,
                       snapshot_gradients, DIM);
    assert_int_equal(fixture_run(f, NOBODY), SL_SHARD_DONE);
    evict_begin(f, 0, 2, 0);
    (void)snapshot_slice(f, 1000, SL_SHARD_AGAIN);
    const struct sl_sparse_table *other = f->shard->tables[ROWS + 1]->sparse;
    for (uint32_t i = 0; i < 5; i++) {
        const uint64_t before[] = {row_count(f), sl_sparse_table_row_count(other)};
        assert_true(evict_some(f) > 0);
        assert_true(evict_some(f) > 0);
        assert_true(row_count(f) < before[0]);
        assert_true(sl_sparse_table_row_count(other) < before[1]);
    }
    sl_shard_abandon(f->shard, &f->work);
}

/* Buffered pushes hold records of rows that go; an iteration that is due goes first. The backup,
 * and a copy by way of a snapshot, have the same rows. */
CASE(evict_round__waits_for_iterations_of_bsp)
{
    uint64_t count = 0;
    fixture_setup(&backup);
    struct fixture *const both[] = {f, &backup};
    for (uint32_t i = 0; i < 2; i++) {
        open_table(both[i], SL_CONSISTENCY_BSP, &no_policy);
        for (uint32_t clock = 0; clock < 2; clock++) {
            for (uint64_t key = 0; key < 100; key++) {
                assert_int_equal(fixture_push(both[i], 0, clock, ROWS, key, 1.0F), SL_SHARD_DONE);
            }
            if (clock == 0) {
                fixture_tick_all(both[i], clock);
                fixture_commit(both[i]);
            }
        }
        fixture_tick_all(both[i], 1);
    }
    evict_begin(f, 0, 100, 0);
    (void)snapshot_slice(f, 1000, SL_SHARD_AGAIN); /* it has not begun */
    assert_int_equal(evict_some(f), 0);
    assert_int_equal(row_count(f), 100);
    fixture_commit(f);
    fixture_commit(&backup);
    for (uint64_t key = 0; key < 50; key++) { /* buffered */
        assert_int_equal(fixture_push(f, 0, 2, ROWS, key, 1.0F), SL_SHARD_DONE);
        assert_int_equal(fixture_push(&backup, 0, 2, ROWS, key, 1.0F), SL_SHARD_DONE);
    }
    evict_begin(f, 0, 100, 0);
    assert_int_equal(evict_go_on(f, &count), SL_SHARD_DONE);
    assert_int_equal(count, 100);
    for (uint32_t i = 0; i < 2; i++) {
        fixture_tick_all(both[i], 2);
        fixture_commit(both[i]);
        assert_int_equal(row_count(both[i]), 50);
    }
    struct sl_shard *copy = snapshot_copy(f->shard);
    snapshot_same(f->shard, copy);
    snapshot_same(backup.shard, copy);
    sl_shard_destroy(&copy);
    fixture_teardown(&backup);
}
