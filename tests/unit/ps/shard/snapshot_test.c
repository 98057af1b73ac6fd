/* When a snapshot begins, how it treats buffered pushes, and where memory is short. That a snapshot
 * shows one moment is tested in snapshot_model_test.c. */

#include <string.h>

#include "snapshot_fixture.h"
#include "tests/support/unit.h"

/* A second request beside the fixture's. */
static struct fixture other;

static void begin_large(struct fixture *f, uint32_t worker, uint32_t clock, uint16_t table)
{
    snapshot_fill(LARGE, 0, 1.0F);
    shard_request_begin(&f->request, clock);
    shard_request_push(&f->request, SL_REQUEST_PUSH, table, snapshot_keys, LARGE,
                       snapshot_gradients, DIM);
    fixture_begin(f, worker);
}

/* Runs the request until some of it has been applied, but not all: a later snapshot_slice has. */
static void run_half(struct fixture *f)
{
    while (f->work.done == 0 || !sl_flags_has(f->work.flags, SL_SHARD_IN_PART)) {
        (void)snapshot_slice(f, 100, SL_SHARD_AGAIN);
    }
}

CASE(begin__one_at_a_time)
{
    assert_int_equal(sl_shard_snapshot_state(f->shard), SL_SHARD_SNAPSHOT_NONE);
    assert_int_equal(sl_shard_snapshot_begin(f->shard, &snapshot_everything), 0);
    assert_int_equal(sl_shard_snapshot_state(f->shard), SL_SHARD_SNAPSHOT_RUNNING);
    assert_int_equal(sl_shard_snapshot_begin(f->shard, &snapshot_everything), SL_ERR_EXISTS);
    snapshot_end(f);
    snapshot_end(f); /* none: nothing */
    struct shard_stream empty = snapshot_of(f->shard, NULL, NULL);
    assert_int_equal(snapshot_records(&empty), 3); /* blocks of DENSE */
    shard_stream_fini(&empty);
}

/* A push is applied in part: the snapshot waits for it, others that are long for the snapshot, and
 * nobody else for anybody. */
CASE(begin__long_pushes_wait_for_it_and_it_for_those_that_have_begun)
{
    other.shard = f->shard;
    begin_large(f, NOBODY, 0, ASP);
    run_half(f);
    assert_int_equal(sl_shard_snapshot_begin(f->shard, &snapshot_everything), SL_ERR_AGAIN);
    assert_int_equal(sl_shard_snapshot_state(f->shard), SL_SHARD_SNAPSHOT_PENDING);

    /* A dense one needs no large scratch. */
    shard_request_begin(&other.request, 0);
    snapshot_fill(3000, 0, 1.0F);
    shard_request_dense(&other.request, SL_REQUEST_DENSE_PUSH, DENSE, 0, 3000, snapshot_gradients);
    fixture_begin(&other, NOBODY);
    (void)snapshot_slice(&other, 20, SL_SHARD_AGAIN);
    assert_false(sl_flags_has(other.work.flags, SL_SHARD_IN_PART));
    assert_int_equal(snapshot_slice(&other, 20, SL_SHARD_AGAIN), 0);
    const struct sl_shard_request held = other.work;

    assert_int_equal(fixture_push(&other, NOBODY, 0, ASP, 7, 1.0F),
                     SL_SHARD_DONE); /* a short one */
    shard_request_begin(&other.request, 0);
    shard_request_dense(&other.request, SL_REQUEST_DENSE_PUSH, DENSE, 0, 600, snapshot_gradients);
    assert_int_equal(fixture_run(&other, NOBODY),
                     SL_SHARD_DONE); /* one that fits into a snapshot_slice */

    assert_int_equal(sl_shard_snapshot_begin(f->shard, &snapshot_everything), SL_ERR_AGAIN);
    snapshot_run_to_end(f);
    assert_int_equal(sl_shard_snapshot_begin(f->shard, &snapshot_everything), 0);
    snapshot_end(f);

    /* The one that was held goes on. */
    shard_request_begin(&other.request, 0);
    shard_request_dense(&other.request, SL_REQUEST_DENSE_PUSH, DENSE, 0, 3000, snapshot_gradients);
    other.work = held;
    snapshot_run_to_end(&other);
}

CASE(begin__a_long_push_that_is_held_when_the_wish_ends)
{
    other.shard = f->shard;
    shard_request_begin(&other.request, 0);
    snapshot_fill(3000, 0, 1.0F);
    shard_request_dense(&other.request, SL_REQUEST_DENSE_PUSH, DENSE, 0, 3000, snapshot_gradients);
    fixture_begin(&other, NOBODY);
    while (!sl_flags_has(other.work.flags, SL_SHARD_IN_PART)) {
        (void)snapshot_slice(&other, 20, SL_SHARD_AGAIN);
    }
    assert_int_equal(sl_shard_snapshot_begin(f->shard, &snapshot_everything), SL_ERR_AGAIN);
    begin_large(f, NOBODY, 0, ASP);
    for (uint32_t i = 0; i < 100; i++) {
        (void)snapshot_slice(f, 100, SL_SHARD_AGAIN);
    }
    assert_false(sl_flags_has(f->work.flags, SL_SHARD_IN_PART));
    snapshot_end(f);
    snapshot_run_to_end(f);
    snapshot_run_to_end(&other);
}

/* Nobody has the client's end, but its push is not left by half. */
CASE(begin__an_orphan_is_run_to_the_end_of_its_push)
{
    begin_large(f, NOBODY, 0, ASP);
    run_half(f);
    assert_false(sl_shard_stop_writes(&f->work));
    assert_int_equal(sl_shard_snapshot_begin(f->shard, &snapshot_everything), SL_ERR_AGAIN);
    snapshot_run_to_end(f);
    assert_int_equal(sl_shard_snapshot_begin(f->shard, &snapshot_everything), 0);
    snapshot_end(f);
}

/* The push cannot go on before the commit is done: the commit is not held then. */
CASE(begin__a_commit_that_a_push_in_part_waits_for)
{
    other.shard = f->shard;
    fixture_push_all(f, 0, BSP, 1, 1.0F);
    begin_large(f, NOBODY, 0, ASP);
    run_half(f);
    assert_int_equal(sl_shard_snapshot_begin(f->shard, &snapshot_everything), SL_ERR_AGAIN);
    fixture_tick_all(&other, 0);
    assert_true(sl_shard_iteration_due(f->shard));
    assert_int_equal(snapshot_slice(f, 100, SL_SHARD_AGAIN), 0);
    (void)sl_shard_apply_iteration(f->shard, 1);
    assert_int_equal(sl_shard_snapshot_begin(f->shard, &snapshot_everything), SL_ERR_AGAIN);
    fixture_commit(f);
    snapshot_run_to_end(f);
    assert_int_equal(sl_shard_snapshot_begin(f->shard, &snapshot_everything), 0);
    snapshot_end(f);
}

/* A commit that has begun is in a snapshot whole; one that has not begun is not in it at all. */
CASE(begin__a_commit_is_in_it_whole_or_not_at_all)
{
    fixture_push_all(f, 0, BSP, 1, 1.0F);
    fixture_tick_all(f, 0);
    assert_true(sl_shard_iteration_due(f->shard));
    (void)sl_shard_apply_iteration(f->shard, 1);
    assert_int_equal(sl_shard_snapshot_begin(f->shard, &snapshot_everything), SL_ERR_AGAIN);
    fixture_commit(f);

    /* The next one does not begin while the wish lasts. */
    fixture_push_all(f, 1, BSP, 1, 1.0F);
    fixture_tick_all(f, 1);
    assert_true(sl_shard_iteration_due(f->shard));
    assert_int_equal(sl_shard_apply_iteration(f->shard, 100), 0);
    struct sl_shard *still = snapshot_copy(f->shard);
    assert_int_equal(sl_shard_snapshot_begin(f->shard, &snapshot_everything), 0);
    fixture_commit(f);
    struct shard_stream stream = snapshot_finish(f->shard, NULL);
    assert_int_equal(stream.end.records[SL_SNAPSHOT_BUFFERED_PUSH], WORKERS);
    snapshot_check(still, &stream);
}

/* Two iterations are due at once: the second one waits for the snapshot. */
CASE(hold__until_a_snapshot_begins)
{
    assert_int_equal(sl_shard_snapshot_iterations(f->shard), 0);
    sl_shard_snapshot_hold(f->shard, 1);
    for (uint32_t clock = 0; clock < 2; clock++) {
        fixture_push_all(f, clock, BSP, 1, 1.0F);
        fixture_tick_all(f, clock);
        assert_int_equal(sl_shard_snapshot_iterations(f->shard), clock);
        while (sl_shard_apply_iteration(f->shard, 100) > 0) {
        }
        assert_int_equal(sl_shard_snapshot_iterations(f->shard), 1);
    }
    assert_true(sl_shard_iteration_due(f->shard));
    assert_int_equal(sl_shard_snapshot_begin(f->shard, &snapshot_everything), 0);
    fixture_commit(f);
    assert_int_equal(sl_shard_snapshot_iterations(f->shard), 2);
    snapshot_end(f);
}

static void buffer_large(struct fixture *f, uint32_t worker, uint32_t clock)
{
    begin_large(f, worker, clock, BSP);
    snapshot_run_to_end(f);
}

/* Committed, or dropped, while the walk is in the middle of one. */
CASE(buffered__go_while_they_are_copied)
{
    for (uint32_t what = 0; what < 2; what++) {
        for (uint32_t i = 0; i < 12; i++) {
            buffer_large(f, i % WORKERS, what);
        }
        struct sl_shard *still = snapshot_copy(f->shard);
        struct shard_stream stream = {0};
        const struct sl_shard_snapshot_options options = {.bytes_max = 1};
        assert_int_equal(sl_shard_snapshot_begin(f->shard, &options), 0);
        (void)sl_shard_snapshot_run(f->shard, 16 * 4 + 1); /* the tables, and a piece */
        (void)sl_shard_snapshot_run(f->shard, 1);
        if (what == 0) {
            fixture_tick_all(f, 0);
            fixture_commit(f);
        } else {
            sl_shard_worker_expired(f->shard, 0);
            (void)sl_shard_snapshot_run(f->shard, 1);
            sl_shard_worker_expired(f->shard, 1);
            sl_shard_worker_expired(f->shard, 2);
        }
        fixture_commit(f);
        while (shard_stream_snapshot(f->shard, 1, &stream)) {
        }
        snapshot_end(f);
        snapshot_check(still, &stream);
    }
}

/* So many long pushes as the room for them holds: all of it is there again. */
static uint32_t fill_push_buffer(struct fixture *f, uint32_t clock)
{
    uint32_t count = 0;
    for (;; count++) {
        begin_large(f, 0, clock, BSP);
        const int result = fixture_go_on(f);
        if (result == SL_ERR_NO_MEMORY) {
            return count;
        }
        assert_int_equal(result, SL_SHARD_DONE);
    }
}

CASE(buffered__what_a_snapshot_keeps_comes_back)
{
    sl_shard_destroy(&f->shard);
    fixture_make(f, 256 << 10);
    const uint32_t room = fill_push_buffer(f, 0);
    assert_true(room > 5);
    assert_int_equal(sl_shard_snapshot_begin(f->shard, &snapshot_everything), 0);
    fixture_tick_all(f, 0);
    fixture_commit(f); /* the snapshot has them all now */
    struct shard_stream stream = snapshot_finish(f->shard, NULL);
    shard_stream_fini(&stream);
    assert_int_equal(fill_push_buffer(f, 1), room);
    assert_int_equal(sl_shard_snapshot_begin(f->shard, &snapshot_everything), 0);
    fixture_tick_all(f, 1);
    fixture_commit(f);
    snapshot_end(f); /* given up */
    assert_int_equal(fill_push_buffer(f, 2), room);
}

/* New pushes need that room: training comes first. */
CASE(buffered__a_snapshot_yields_to_new_pushes)
{
    sl_shard_destroy(&f->shard);
    fixture_make(f, 256 << 10);
    const uint32_t room = fill_push_buffer(f, 0);
    assert_int_equal(sl_shard_snapshot_begin(f->shard, &snapshot_everything), 0);
    fixture_tick_all(f, 0);
    fixture_commit(f);
    assert_int_equal(fill_push_buffer(f, 1), room);
    assert_int_equal(sl_shard_snapshot_state(f->shard), SL_SHARD_SNAPSHOT_FAILED);
    assert_non_null(strstr(sl_shard_snapshot_why(f->shard), "pushes"));
    assert_null(sl_shard_snapshot_take(f->shard));
    snapshot_end(f);
}

/* Nobody takes its blocks: the walk waits, and pulls and pushes go on, until pushes have nowhere to
 * put what they change; then there is no snapshot, and nothing else is lost. */
CASE(memory__too_many_blocks_wait)
{
    snapshot_open_table(f, WIDE, SL_TABLE_SPARSE, 256, 0);
    for (uint32_t i = 0; i < 20; i++) {
        snapshot_push_wide(f, 200, 200 * i, 256);
    }
    const struct sl_shard_snapshot_options options = {.bytes_max = 4 << 20};
    assert_int_equal(sl_shard_snapshot_begin(f->shard, &options), 0);
    while (sl_shard_snapshot_run(f->shard, 1000) > 0) {
        assert_true(sl_shard_snapshot_memory_bytes(f->shard) <= options.bytes_max);
    }
    assert_true(sl_shard_snapshot_waits(f->shard));
    struct sl_snapshot_block *taken = sl_shard_snapshot_take(f->shard);
    assert_non_null(taken);
    for (uint32_t i = 0; i < 20; i++) {
        snapshot_push_wide(f, 200, 200 * i, 256);
        assert_true(sl_shard_snapshot_memory_bytes(f->shard) <= options.bytes_max + 8192);
    }
    assert_int_equal(sl_shard_snapshot_state(f->shard), SL_SHARD_SNAPSHOT_FAILED);
    assert_non_null(strstr(sl_shard_snapshot_why(f->shard), "memory"));
    assert_null(sl_shard_snapshot_take(f->shard));
    assert_false(sl_shard_snapshot_waits(f->shard));
    assert_int_equal(sl_shard_snapshot_run(f->shard, 1000), 0);
    struct sl_shard_snapshot_base *base;
    sl_shard_snapshot_end(f->shard, &base);
    assert_null(base);
    const size_t left = sl_shard_snapshot_memory_bytes(f->shard);
    assert_true(left > options.bytes_max / 2); /* no turn frees all that waited */
    snapshot_clean(f->shard);
    assert_true(sl_shard_snapshot_memory_bytes(f->shard) > 0); /* the one that was taken */
    assert_true(sl_shard_snapshot_memory_bytes(f->shard) < left / 4);

    /* It comes back while another snapshot runs. */
    struct sl_shard *still = snapshot_copy(f->shard);
    assert_int_equal(sl_shard_snapshot_begin(f->shard, &options), 0);
    sl_shard_snapshot_put(f->shard, taken);
    struct shard_stream stream = snapshot_finish(f->shard, NULL);
    snapshot_check(still, &stream);
}

/* With its blocks taken as they come, any size of table goes through little memory. */
CASE(memory__the_walk_waits_for_blocks_and_goes_on)
{
    snapshot_open_table(f, WIDE, SL_TABLE_SPARSE, 256, 0);
    for (uint32_t i = 0; i < 20; i++) {
        snapshot_push_wide(f, 200, 200 * i, 256);
    }
    const struct sl_shard_snapshot_options options = {.bytes_max = 1}; /* the least there is */
    struct shard_stream stream = {0};
    size_t most = 0;
    bool waited = false;
    assert_int_equal(sl_shard_snapshot_begin(f->shard, &options), 0);
    while (sl_shard_snapshot_state(f->shard) == SL_SHARD_SNAPSHOT_RUNNING) {
        const uint32_t spent = sl_shard_snapshot_run(f->shard, 100);
        assert_true(spent <= 120);
        const size_t bytes = sl_shard_snapshot_memory_bytes(f->shard);
        most = bytes > most ? bytes : most;
        if (sl_shard_snapshot_waits(f->shard)) {
            waited = true;
            (void)shard_stream_snapshot(f->shard, 0, &stream);
        }
    }
    assert_true(waited);
    assert_true(most <= 7 * (256 << 10));
    snapshot_end(f);
    assert_int_equal(stream.end.records[SL_SNAPSHOT_ROWS], 4000);
    shard_stream_fini(&stream);
}

/* What a push has to copy first, it pays for. */
CASE(memory__a_push_pays_for_what_it_copies)
{
    uint32_t spent[3];
    snapshot_open_table(f, WIDE, SL_TABLE_SPARSE, 256, 0);
    snapshot_push_wide(f, 200, 0, 256);
    for (uint32_t i = 0; i < 3; i++) {
        if (i == 1) {
            assert_int_equal(sl_shard_snapshot_begin(f->shard, &snapshot_everything), 0);
        }
        snapshot_push_wide(f, 200, 0, 256); /* the request is in f->request */
        fixture_begin(f, NOBODY);
        spent[i] = snapshot_slice(f, 100000, SL_SHARD_DONE);
        if (i == 0) {
            continue;
        }
        assert_int_equal(spent[i], spent[0]); /* the push before has paid */
    }
    snapshot_end(f);
    assert_int_equal(sl_shard_snapshot_begin(f->shard, &snapshot_everything), 0);
    fixture_begin(f, NOBODY);
    assert_true(snapshot_slice(f, 100000, SL_SHARD_DONE) >= spent[0] + 200 * 12);
    snapshot_end(f);
}
