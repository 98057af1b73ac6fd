/* Workers that join, leave and are lost. */

#include "snapshot_fixture.h"
#include "tests/support/unit.h"

#define FIFTH 4 /* a worker beyond every table's worker_count */

static void check(const struct fixture *f, uint32_t worker, bool active, uint32_t clock)
{
    struct sl_shard_worker found = sl_shard_worker_find(f->shard, worker);
    assert_int_equal(found.active, active);
    assert_int_equal(found.clock, clock);
}

CASE(shard_worker_find__without_waiting_tables_everybody_counts)
{
    sl_shard_destroy(&f->shard);
    struct sl_shard_options options = {.count = 1};
    assert_int_equal(sl_shard_create(&options, &f->shard), 0);
    check(f, FIFTH, true, 0);
    assert_int_equal(fixture_tick(f, FIFTH, 0), SL_SHARD_DONE);
    sl_shard_worker_expired(f->shard, FIFTH);
    check(f, FIFTH, false, 1);
    assert_int_equal(sl_shard_worker_join(f->shard, FIFTH, 0), 0);
    check(f, FIFTH, true, 0);
}

/* A table opened later has room for who joined before. */
CASE(shard_worker_join__holds_for_later_tables)
{
    assert_int_equal(sl_shard_worker_join(f->shard, 1000, 0), 0);
    struct sl_table_spec spec = {
        .name = "later",
        .dim = DIM,
        .optimizer = sl_optimizer_defaults(SL_OPTIMIZER_SUM),
        .consistency = {.mode = SL_CONSISTENCY_BSP, .worker_count = 1},
    };
    assert_int_equal(sl_shard_table_open(f->shard, 9, &spec, &f->reason), 0);
    assert_int_equal(fixture_push(f, 1000, 0, 9, 1, 5.0F), SL_SHARD_DONE);
    assert_int_equal(fixture_tick(f, 0, 0), SL_SHARD_DONE);
    assert_false(sl_shard_iteration_due(f->shard));
    assert_int_equal(fixture_tick(f, 1000, 0), SL_SHARD_DONE);
    fixture_commit(f);
    assert_true(fixture_peek(f, 9, 1) == 5.0F);
}

CASE(shard_worker_join__agrees_with_other_shards_before_it_begins)
{
    assert_int_equal(sl_shard_worker_join(f->shard, 1, 4), 4);
    assert_int_equal(sl_shard_worker_join(f->shard, 1, 5), 5);
    assert_int_equal(fixture_push(f, 1, 5, BSP, 1, 1.0F), SL_SHARD_DONE);
    assert_int_equal(sl_shard_worker_join(f->shard, 1, 6), 5);
    assert_int_equal(sl_shard_worker_join(f->shard, 1, 5), 5);
    /* What it had pushed is still there. */
    sl_shard_worker_left(f->shard, 0);
    sl_shard_worker_left(f->shard, 2);
    assert_int_equal(fixture_tick(f, 1, 5), SL_SHARD_DONE);
    fixture_commit(f);
    assert_true(fixture_peek(f, BSP, 1) == 1.0F);
}

/* Who begins an iteration again replaces what it had pushed of it. */
CASE(shard_worker_join__again_replaces_what_it_repeats)
{
    for (uint32_t clock = 0; clock < 3; clock++) {
        assert_int_equal(fixture_push(f, 1, clock, BSP, 1, 1.0F), SL_SHARD_DONE);
        assert_int_equal(fixture_tick(f, 1, clock), SL_SHARD_DONE);
    }
    sl_shard_worker_left(f->shard, 1);
    check(f, 1, false, 3);
    assert_int_equal(sl_shard_worker_join(f->shard, 1, 1), 1);
    assert_int_equal(fixture_push(f, 1, 1, BSP, 1, 10.0F), SL_SHARD_DONE);
    assert_int_equal(fixture_tick(f, 1, 1), SL_SHARD_DONE);
    sl_shard_worker_left(f->shard, 0);
    sl_shard_worker_left(f->shard, 2);
    fixture_commit(f);
    assert_true(fixture_peek(f, BSP, 1) == 11.0F);
}

/* f->work: a long push of this worker, begun. */
static void begin_long_push(struct fixture *f, uint32_t worker, uint32_t clock)
{
    fixture_long(f, SL_REQUEST_PUSH, BSP, clock);
    fixture_begin(f, worker);
    uint32_t spent;
    assert_int_equal(sl_shard_run(f->shard, &f->work, f->reply, 100, &spent, &f->reason),
                     SL_SHARD_AGAIN);
}

/* Its connection breaks in the middle of a long push, which is finished all the same. */
CASE(shard_worker_left__in_the_middle_of_a_push_applies_it)
{
    assert_int_equal(fixture_tick(f, 1, 0), SL_SHARD_DONE);
    assert_int_equal(fixture_tick(f, 2, 0), SL_SHARD_DONE);
    begin_long_push(f, 0, 0);
    sl_shard_worker_left(f->shard, 0);
    assert_int_equal(fixture_go_on(f), SL_SHARD_DONE);
    fixture_commit(f);
    assert_true(fixture_peek(f, BSP, LONG_KEYS - 1) == 1.0F);
}

CASE(shard_worker_lost__in_the_middle_of_a_push_drops_it)
{
    begin_long_push(f, 0, 0);
    sl_shard_worker_expired(f->shard, 0);
    assert_int_equal(fixture_go_on(f), SL_SHARD_DONE);
    assert_int_equal(fixture_tick(f, 1, 0), SL_SHARD_DONE);
    assert_int_equal(fixture_tick(f, 2, 0), SL_SHARD_DONE);
    fixture_commit(f);
    assert_true(fixture_peek(f, BSP, 1) == 0.0F);
    begin_long_push(f, 1, 1); /* the working memory is free again */
    sl_shard_worker_expired(f->shard, 1);
    sl_shard_abandon(f->shard, &f->work);
    begin_long_push(f, 2, 1);
    assert_int_equal(fixture_go_on(f), SL_SHARD_DONE);
    assert_int_equal(fixture_tick(f, 2, 1), SL_SHARD_DONE);
    fixture_commit(f);
    assert_true(fixture_peek(f, BSP, 1) == 1.0F);
}

/* Iteration 0 is being applied while one worker is lost that has pushed it, and part of the next.
 */
CASE(shard_worker_lost__while_its_pushes_are_applied_keeps_them_whole)
{
    for (uint32_t worker = 0; worker < WORKERS; worker++) {
        begin_long_push(f, worker, 0);
        assert_int_equal(fixture_go_on(f), SL_SHARD_DONE);
        assert_int_equal(fixture_push(f, worker, 0, BSP, 1, 10.0F), SL_SHARD_DONE);
    }
    assert_int_equal(fixture_tick(f, 1, 0), SL_SHARD_DONE);
    assert_int_equal(fixture_push(f, 1, 1, BSP, 1, 1000.0F), SL_SHARD_DONE);
    assert_int_equal(fixture_push(f, 1, 1, BSP, 1, 1000.0F), SL_SHARD_DONE);
    assert_int_equal(fixture_tick(f, 0, 0), SL_SHARD_DONE);
    assert_int_equal(fixture_tick(f, 2, 0), SL_SHARD_DONE);
    (void)sl_shard_apply_iteration(f->shard, LONG_KEYS + 100); /* half of worker 1's long push */
    assert_true(sl_shard_iteration_due(f->shard));
    sl_shard_worker_expired(f->shard, 1);
    assert_int_equal(sl_shard_worker_join(f->shard, FIFTH, 1),
                     1); /* and room is made for another */
    fixture_commit(f);
    assert_true(fixture_peek(f, BSP, 1) == 33.0F);
    assert_true(fixture_peek(f, BSP, LONG_KEYS - 1) == 3.0F);
}

/* The process that took the worker's place after the snapshot must join again: until then the
 * others do not wait for it, and then it is too late for iterations that they have ended. */
CASE(shard_worker_expired__before_a_snapshot_is_expired_in_the_restored_shard)
{
    sl_shard_worker_expired(f->shard, 1);
    struct shard_stream stream = snapshot_of(f->shard, NULL, NULL);
    assert_int_equal(sl_shard_worker_join(f->shard, 1, 0), 0);
    sl_shard_destroy(&f->shard);
    snapshot_load(&stream, &f->shard);
    shard_stream_fini(&stream);
    check(f, 1, false, 0);
    assert_int_equal(fixture_tick(f, 0, 0), SL_SHARD_DONE);
    assert_int_equal(fixture_tick(f, 2, 0), SL_SHARD_DONE);
    float value;
    assert_int_equal(fixture_pull(f, 0, 1, BSP, 1, &value), SL_SHARD_DONE);
    assert_int_equal(sl_shard_worker_join(f->shard, 1, 0), 1);
}
