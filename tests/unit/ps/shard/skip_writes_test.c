/* Requests that come a second time, and requests that nobody wants any more. */

#include <string.h>

#include "fixture.h"
#include "tests/support/unit.h"

static const float one[DIM] = {1.0F, 1.0F};
static const uint64_t key = 7;

/* What a worker sends in an iteration: pushes, ticks, and pulls for the next one. */
static void make_step(struct fixture *f, uint32_t clock)
{
    float dense = 1.0F;
    shard_request_begin(&f->request, clock);
    shard_request_push(&f->request, SL_REQUEST_PUSH, BSP, &key, 1, one, DIM);
    shard_request_push(&f->request, SL_REQUEST_PUSH_PULL, ASP, &key, 1, one, DIM);
    shard_request_dense(&f->request, SL_REQUEST_DENSE_PUSH_PULL, DENSE, 0, 1, &dense);
    shard_request_tick(&f->request);
    shard_request_pull(&f->request, BSP, &key, 1);
}

static float reply_at(const struct fixture *f, size_t index)
{
    float value;
    memcpy(&value, f->reply + index * sizeof value, sizeof value);
    return value;
}

/* Runs the step, and the ticks of the others that it waits for. */
static void run_step(struct fixture *f)
{
    assert_int_equal(fixture_tick(f, 1, 0), SL_SHARD_DONE);
    assert_int_equal(fixture_tick(f, 2, 0), SL_SHARD_DONE);
    make_step(f, 0);
    assert_int_equal(fixture_run(f, 0), SL_SHARD_AGAIN);
    fixture_commit(f);
    assert_int_equal(fixture_go_on(f), SL_SHARD_DONE);
}

CASE(shard_replay__costs_its_reads)
{
    run_step(f);
    fixture_begin(f, 0);
    uint64_t whole = f->work.cost;
    sl_shard_skip_writes(&f->work);
    assert_true(f->work.cost < whole);
    assert_false(sl_shard_ready(f->shard, &f->work, f->work.cost - 1));
    assert_true(sl_shard_ready(f->shard, &f->work, f->work.cost));
    uint32_t spent;
    assert_int_equal(
        sl_shard_run(f->shard, &f->work, f->reply, (uint32_t)f->work.cost, &spent, &f->reason),
        SL_SHARD_DONE);
    assert_true(spent <= f->work.cost);
}

/* Also of an iteration long past, and of a worker that has finished since. */
CASE(shard_replay__of_an_old_iteration_is_no_error)
{
    run_step(f);
    static struct shard_request old;
    old = f->request;
    assert_int_equal(fixture_tick(f, 0, 1), SL_SHARD_DONE);
    assert_int_equal(fixture_tick(f, 0, SL_REQUEST_CLOCK_FINISHED), SL_SHARD_DONE);
    f->request = old;
    fixture_begin(f, 0);
    sl_shard_skip_writes(&f->work);
    assert_int_equal(fixture_go_on(f), SL_SHARD_DONE);
    assert_true(fixture_peek(f, ASP, key) == 1.0F);
    shard_request_begin(&f->request, SL_REQUEST_CLOCK_FINISHED);
    shard_request_tick(&f->request);
    fixture_begin(f, 1);
    sl_shard_skip_writes(&f->work);
    assert_int_equal(fixture_go_on(f), SL_SHARD_DONE);
    assert_true(sl_shard_worker_find(f->shard, 1).active);
}

/* A push_pull to a table without waiting, too long for one slice, and a short push. */
static void make_long(struct fixture *f)
{
    const uint64_t first = 0;
    fixture_long(f, SL_REQUEST_PUSH_PULL, ASP, 0);
    shard_request_push(&f->request, SL_REQUEST_PUSH, ASP, &first, 1, one, DIM);
}

static void run_some(struct fixture *f, uint32_t budget)
{
    uint32_t spent;
    assert_int_equal(sl_shard_run(f->shard, &f->work, f->reply, budget, &spent, &f->reason),
                     SL_SHARD_AGAIN);
}

/* It does not push, and so needs no working memory that another one has. */
CASE(shard_replay__of_a_long_push_runs_beside_another)
{
    make_long(f);
    fixture_begin(f, NOBODY);
    run_some(f, 100);
    struct sl_shard_request other = f->work;
    fixture_begin(f, NOBODY);
    assert_false(sl_shard_ready(f->shard, &f->work, UINT32_MAX));
    sl_shard_skip_writes(&f->work);
    assert_true(sl_shard_ready(f->shard, &f->work, UINT32_MAX));
    assert_int_equal(fixture_go_on(f), SL_SHARD_DONE);
    assert_true(reply_at(f, 0) == 0.0F);
    sl_shard_abandon(f->shard, &other);
}

CASE(shard_curtail__ends_what_has_not_been_applied)
{
    make_long(f);
    fixture_begin(f, NOBODY);
    run_some(f, 100); /* still looking keys up */
    assert_true(sl_shard_stop_writes(&f->work));
    sl_shard_abandon(f->shard, &f->work);
    assert_true(fixture_peek(f, ASP, 0) == 0.0F);
}

CASE(shard_curtail__completes_a_push_that_is_half_applied)
{
    make_long(f);
    fixture_begin(f, NOBODY);
    while (f->work.done == 0 || f->work.push.records == NULL || f->work.push.optimizer.step == 0) {
        run_some(f, 100);
    }
    assert_false(sl_shard_stop_writes(&f->work));
    assert_int_equal(fixture_go_on(f), SL_SHARD_DONE);
    assert_true(sl_shard_stop_writes(&f->work));
    assert_true(fixture_peek(f, ASP, 0) == 1.0F); /* and not the second push's too */
    assert_true(fixture_peek(f, ASP, LONG_KEYS - 1) == 1.0F);
}
