/* Requests that another shard of the same number has carried out, and this one follows. */

#include "fixture.h"
#include "tests/support/unit.h"

#define SECTIONS 6

static const float one[DIM] = {1.0F, 1.0F};
static const uint64_t key = 7;

/* Two iterations in one request: pushes, a tick, pulls that wait for the others, pushes, a tick. */
static void make_step(struct fixture *f)
{
    const float dense = 1.0F;
    shard_request_begin(&f->request, 0);
    shard_request_push(&f->request, SL_REQUEST_PUSH_PULL, ASP, &key, 1, one, DIM);
    shard_request_dense(&f->request, SL_REQUEST_DENSE_PUSH, DENSE, 0, 1, &dense);
    shard_request_tick(&f->request);
    shard_request_pull(&f->request, BSP, &key, 1);
    shard_request_push(&f->request, SL_REQUEST_PUSH, ASP, &key, 1, one, DIM);
    shard_request_tick(&f->request);
}

static int follow(struct fixture *f, uint32_t first, uint32_t end)
{
    make_step(f);
    fixture_begin(f, 0);
    sl_shard_skip_writes_before(&f->work, first);
    sl_shard_apply_only(&f->work, end);
    return fixture_go_on(f);
}

static uint32_t clock_of(const struct fixture *f)
{
    return sl_shard_worker_find(f->shard, 0).clock;
}

CASE(shard_follow__writes_and_waits_for_nobody)
{
    assert_int_equal(follow(f, 0, SECTIONS), SL_SHARD_DONE);
    assert_true(fixture_peek(f, ASP, key) == 2.0F);
    assert_int_equal(clock_of(f), 2);
}

/* What was there before the log began is not done again; what was not done there, not here. */
CASE(shard_follow__does_the_sections_that_it_is_told)
{
    assert_int_equal(follow(f, 0, 0), SL_SHARD_DONE);
    assert_int_equal(clock_of(f), 0);
    assert_int_equal(follow(f, 0, 1), SL_SHARD_DONE);
    assert_true(fixture_peek(f, ASP, key) == 1.0F);
    assert_int_equal(clock_of(f), 0);
    assert_int_equal(follow(f, 1, 4), SL_SHARD_DONE);
    assert_true(fixture_peek(f, ASP, key) == 1.0F);
    assert_int_equal(clock_of(f), 1);
    assert_int_equal(follow(f, 4, SECTIONS), SL_SHARD_DONE);
    assert_true(fixture_peek(f, ASP, key) == 2.0F);
    assert_int_equal(clock_of(f), 2);
}

CASE(shard_follow__a_single_section)
{
    shard_request_begin(&f->request, 0);
    shard_request_push(&f->request, SL_REQUEST_PUSH_PULL, ASP, &key, 1, one, DIM);
    fixture_begin(f, NOBODY);
    sl_shard_apply_only(&f->work, 1);
    assert_int_equal(fixture_go_on(f), SL_SHARD_DONE);
    assert_true(fixture_peek(f, ASP, key) == 1.0F);
    shard_request_begin(&f->request, 0);
    shard_request_pull(&f->request, ASP, &key, 1);
    fixture_begin(f, NOBODY);
    sl_shard_apply_only(&f->work, 1);
    assert_int_equal(fixture_go_on(f), SL_SHARD_DONE);
}
