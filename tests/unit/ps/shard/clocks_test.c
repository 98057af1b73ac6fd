#include <stdlib.h>

#include "core/hash.h"
#include "ps/shard/clocks.h"
#include "tests/support/unit.h"

static void setup(struct sl_clocks *clocks)
{
    assert_int_equal(sl_clocks_init(clocks), 0);
}

#define CASE(name) SL_CASE_USING(name, struct sl_clocks, clocks, setup, sl_clocks_fini)

/* The worker ticks up to this clock. */
static void tick_to(struct sl_clocks *clocks, uint32_t worker, uint32_t clock)
{
    for (uint32_t at = sl_clocks_of(clocks, worker); at < clock; at++) {
        assert_int_equal(sl_clocks_tick(clocks, worker, at), 0);
    }
}

CASE(clocks_tick__moves_the_min_clock_with_the_last_worker)
{
    uint32_t group = sl_clocks_group(clocks, 3);
    assert_int_equal(sl_clocks_min(clocks, group), 0);
    assert_int_equal(sl_clocks_tick(clocks, 0, 0), 0);
    assert_int_equal(sl_clocks_tick(clocks, 0, 1), 0);
    assert_int_equal(sl_clocks_tick(clocks, 2, 0), 0);
    assert_int_equal(sl_clocks_min(clocks, group), 0);
    assert_int_equal(sl_clocks_slowest(clocks, group), 1);
    assert_false(sl_clocks_take_moved(clocks));
    assert_int_equal(sl_clocks_tick(clocks, 1, 0), 0);
    assert_int_equal(sl_clocks_min(clocks, group), 1);
    assert_true(sl_clocks_take_moved(clocks));
    assert_false(sl_clocks_take_moved(clocks));
}

CASE(clocks_tick__refuses_another_clock_than_the_current)
{
    assert_int_equal(sl_clocks_tick(clocks, 4, 1), SL_ERR_PROTOCOL);
    assert_int_equal(sl_clocks_tick(clocks, 4, 0), 0);
    assert_int_equal(sl_clocks_tick(clocks, 4, 0), SL_ERR_PROTOCOL);
    assert_int_equal(sl_clocks_of(clocks, 4), 1);
    assert_int_equal(sl_clocks_tick(clocks, SL_LIMIT_WORKERS, 0), SL_ERR_PROTOCOL);
}

CASE(clocks_tick__of_a_finished_worker_has_no_effect)
{
    uint32_t group = sl_clocks_group(clocks, 2);
    assert_int_equal(sl_clocks_tick(clocks, 0, SL_CLOCKS_FINISHED), 0);
    assert_int_equal(sl_clocks_tick(clocks, 0, 0), 0);
    assert_int_equal(sl_clocks_of(clocks, 0), SL_CLOCKS_FINISHED);
    assert_int_equal(sl_clocks_min(clocks, group), 0);
    assert_int_equal(sl_clocks_tick(clocks, 1, 0), 0);
    assert_int_equal(sl_clocks_min(clocks, group), 1);
    assert_int_equal(sl_clocks_tick(clocks, 1, SL_CLOCKS_FINISHED), 0);
    assert_int_equal(sl_clocks_min(clocks, group), SL_CLOCKS_FINISHED);
}

CASE(clocks_tick__of_the_last_iteration_there_is_finishes)
{
    uint32_t last = SL_CLOCKS_FINISHED - 1;
    assert_int_equal(sl_clocks_join(clocks, 0, last), last);
    assert_int_equal(sl_clocks_tick(clocks, 0, last), 0);
    assert_int_equal(sl_clocks_of(clocks, 0), SL_CLOCKS_FINISHED);
    assert_false(sl_clocks_is_active(clocks, 0));
}

CASE(clocks_group__is_shared_by_equal_counts_and_starts_where_the_workers_are)
{
    uint32_t two = sl_clocks_group(clocks, 2);
    assert_int_equal(sl_clocks_group(clocks, 2), two);
    assert_int_equal(sl_clocks_tick(clocks, 0, 0), 0);
    uint32_t one = sl_clocks_group(clocks, 1);
    assert_int_not_equal(one, two);
    assert_int_equal(sl_clocks_min(clocks, one), 1);
    assert_int_equal(sl_clocks_min(clocks, two), 0);
}

CASE(clocks_group__counts_who_has_joined_before)
{
    assert_int_equal(sl_clocks_join(clocks, 7, 2), 2);
    uint32_t one = sl_clocks_group(clocks, 1);
    tick_to(clocks, 0, 5);
    assert_int_equal(sl_clocks_min(clocks, one), 2);
    assert_int_equal(sl_clocks_slowest(clocks, one), 7);
}

CASE(clocks_counts__from_the_first_for_those_expected_only)
{
    assert_true(sl_clocks_is_active(clocks, 9)); /* nobody is expected: anybody */
    uint32_t group = sl_clocks_group(clocks, 2);
    assert_true(sl_clocks_is_active(clocks, 1));
    assert_false(sl_clocks_is_active(clocks, 2));
    assert_true(sl_clocks_is_active_in(clocks, group, 1));
    sl_clocks_mark_seen(clocks, 2);
    assert_false(sl_clocks_is_active_in(clocks, group, 2));
    assert_int_equal(sl_clocks_join(clocks, 2, 0), 0);
    assert_true(sl_clocks_is_active(clocks, 2));
    assert_true(sl_clocks_is_active_in(clocks, group, 2));
}

CASE(clocks_join__holds_every_group_up)
{
    uint32_t one = sl_clocks_group(clocks, 1);
    uint32_t two = sl_clocks_group(clocks, 2);
    tick_to(clocks, 0, 4);
    tick_to(clocks, 1, 4);
    assert_int_equal(sl_clocks_join(clocks, 5, 3), 4);
    assert_false(sl_clocks_is_active(clocks, 5));
    assert_int_equal(sl_clocks_join(clocks, 5, 4), 4);
    tick_to(clocks, 0, 9);
    tick_to(clocks, 1, 9);
    assert_int_equal(sl_clocks_min(clocks, one), 4);
    assert_int_equal(sl_clocks_min(clocks, two), 4);
    assert_int_equal(sl_clocks_slowest(clocks, two), 5);
    tick_to(clocks, 5, 6);
    assert_int_equal(sl_clocks_min(clocks, two), 6);
    assert_int_equal(sl_clocks_min(clocks, one), 6);
}

CASE(clocks_join__again_only_before_it_has_begun)
{
    (void)sl_clocks_group(clocks, 3);
    assert_int_equal(sl_clocks_join(clocks, 1, 0), 0);
    assert_int_equal(sl_clocks_join(clocks, 1, 2), 2);
    assert_int_equal(sl_clocks_join(clocks, 1, 2), 2);
    assert_int_equal(sl_clocks_join(clocks, 1, 1), 2); /* not back */
    tick_to(clocks, 1, 3);
    assert_int_equal(sl_clocks_join(clocks, 1, 3), 3);
    assert_int_equal(sl_clocks_join(clocks, 1, 4), 3);
    sl_clocks_pushed(clocks, 2);
    assert_int_equal(sl_clocks_join(clocks, 2, 1), 0);
    assert_int_equal(sl_clocks_join(clocks, 2, 0), 0);
    assert_int_equal(sl_clocks_join(clocks, 2, 1), 0); /* and knows still that it has pushed */
}

CASE(clocks_join__is_not_for_who_has_finished)
{
    (void)sl_clocks_group(clocks, 2);
    assert_int_equal(sl_clocks_tick(clocks, 1, SL_CLOCKS_FINISHED), 0);
    sl_clocks_expire(clocks, 1);
    sl_clocks_leave(clocks, 1);
    assert_int_equal(sl_clocks_of(clocks, 1), SL_CLOCKS_FINISHED);
    assert_int_equal(sl_clocks_joinable(clocks, 1), SL_CLOCKS_FINISHED);
    assert_int_equal(sl_clocks_join(clocks, 1, 5), SL_CLOCKS_FINISHED);
    assert_false(sl_clocks_is_active(clocks, 1));
    assert_int_equal(sl_clocks_join(clocks, 0, SL_CLOCKS_FINISHED), 0);
}

CASE(clocks_lose__remembers_where_it_stood)
{
    uint32_t group = sl_clocks_group(clocks, 3);
    tick_to(clocks, 0, 5);
    tick_to(clocks, 1, 3);
    sl_clocks_pushed(clocks, 1);
    sl_clocks_expire(clocks, 1);
    assert_int_equal(sl_clocks_of(clocks, 1), 3);
    assert_int_equal(sl_clocks_joinable(clocks, 1), 3);
    assert_int_equal(sl_clocks_tick(clocks, 1, 3), 0); /* has no effect */
    sl_clocks_expire(clocks, 2);                       /* never heard of */
    assert_int_equal(sl_clocks_min(clocks, group), 5);
    assert_int_equal(sl_clocks_joinable(clocks, 1), 5);
    assert_int_equal(sl_clocks_join(clocks, 1, 3), 5);
    assert_int_equal(sl_clocks_join(clocks, 1, 6), 6);
    assert_int_equal(sl_clocks_slowest(clocks, group), 0);
}

CASE(clocks_leave__ends_the_iteration_in_which_it_pushed)
{
    (void)sl_clocks_group(clocks, 3);
    tick_to(clocks, 0, 2);
    sl_clocks_leave(clocks, 0);
    sl_clocks_expire(clocks, 0);
    assert_int_equal(sl_clocks_joinable(clocks, 0), 2);
    tick_to(clocks, 1, 2);
    sl_clocks_pushed(clocks, 1);
    sl_clocks_leave(clocks, 1);
    assert_int_equal(sl_clocks_joinable(clocks, 1), 3);
}

/* Nobody is waited for, but who comes has to begin behind what has been done. */
CASE(clocks_min_clock__of_nobody_lies_behind_what_was_done)
{
    uint32_t group = sl_clocks_group(clocks, 2);
    tick_to(clocks, 0, 4);
    tick_to(clocks, 1, 2);
    assert_false(sl_clocks_is_empty(clocks, group));
    sl_clocks_expire(clocks, 0);
    assert_int_equal(sl_clocks_min(clocks, group), 2);
    (void)sl_clocks_take_moved(clocks);
    sl_clocks_expire(clocks, 1);
    assert_true(sl_clocks_take_moved(clocks));
    assert_true(sl_clocks_is_empty(clocks, group));
    assert_int_equal(sl_clocks_slowest(clocks, group), SL_LIMIT_WORKERS);
    assert_int_equal(sl_clocks_min(clocks, group), 4);
    assert_int_equal(sl_clocks_join(clocks, 1, 2), 4);
    assert_int_equal(sl_clocks_join(clocks, 1, 6), 6);
    assert_false(sl_clocks_is_empty(clocks, group));
    assert_int_equal(sl_clocks_min(clocks, group), 6);
}

/* Though the floor stays where it is. */
CASE(clocks_take_moved__also_when_nobody_is_left_to_wait_for)
{
    uint32_t group = sl_clocks_group(clocks, 1);
    assert_false(sl_clocks_take_moved(clocks));
    sl_clocks_expire(clocks, 0);
    assert_int_equal(sl_clocks_min(clocks, group), 0);
    assert_true(sl_clocks_take_moved(clocks));
}

CASE(clocks_min_clock_of_all__counts_all_known_workers)
{
    assert_int_equal(sl_clocks_min_of_all(clocks), 0);
    sl_clocks_mark_seen(clocks, 0);
    assert_int_equal(sl_clocks_tick(clocks, 0, 0), 0);
    assert_int_equal(sl_clocks_min_of_all(clocks), 1);
    sl_clocks_mark_seen(clocks, 2); /* worker 1 may never come */
    assert_int_equal(sl_clocks_min_of_all(clocks), 0);
    tick_to(clocks, 2, 3);
    assert_int_equal(sl_clocks_min_of_all(clocks), 1);
    (void)sl_clocks_group(clocks, 2);
    assert_int_equal(sl_clocks_min_of_all(clocks), 0);
}

CASE(clocks_min_clock_of_all__goes_down_with_who_joins_behind)
{
    sl_clocks_mark_seen(clocks, 0);
    tick_to(clocks, 0, 5);
    assert_int_equal(sl_clocks_join(clocks, 3, 2), 2);
    assert_int_equal(sl_clocks_min_of_all(clocks), 2);
    sl_clocks_expire(clocks, 3);
    assert_int_equal(sl_clocks_min_of_all(clocks), 5);
    sl_clocks_leave(clocks, 0);
    assert_int_equal(sl_clocks_min_of_all(clocks), SL_CLOCKS_FINISHED);
}

/* It stands at 0 until it knows where it begins, which holds nobody up and is nobody's staleness.
 */
CASE(clocks_min_clock_of_all__not_of_who_is_heard_and_has_not_joined)
{
    (void)sl_clocks_group(clocks, 1);
    tick_to(clocks, 0, 5);
    sl_clocks_mark_seen(clocks, 1);
    assert_int_equal(sl_clocks_min_of_all(clocks), 5);
    assert_int_equal(sl_clocks_join(clocks, 1, 5), 5);
    tick_to(clocks, 0, 7);
    assert_int_equal(sl_clocks_min_of_all(clocks), 5);
}

/* What a group's floor should be, by the letter of the header. */
static uint32_t plain_min_clock(const struct sl_clocks *clocks, uint32_t group, uint32_t workers)
{
    uint32_t min_clock = SL_CLOCKS_FINISHED;
    uint32_t done = 0;
    bool all_finished = true;
    for (uint32_t w = 0; w < workers; w++) {
        uint32_t clock = clocks->workers[w].clock;
        if (sl_clocks_is_active_in(clocks, group, w)) {
            min_clock = clock < min_clock ? clock : min_clock;
        } else if (sl_clocks_belongs(clocks, group, w)) {
            done = clock > done ? clock : done;
            all_finished &= sl_clocks_of(clocks, w) == SL_CLOCKS_FINISHED;
        }
    }
    return min_clock == SL_CLOCKS_FINISHED && !all_finished ? done : min_clock;
}

static uint32_t plain_min_clock_of_all(const struct sl_clocks *clocks, uint32_t workers)
{
    uint32_t min_clock = SL_CLOCKS_FINISHED;
    for (uint32_t w = 0; w < workers; w++) {
        const struct sl_clocks_worker *who = &clocks->workers[w];
        bool known = w < clocks->expected || (who->seen && sl_clocks_is_active(clocks, w));
        if (who->state == SL_CLOCKS_STATE_ACTIVE && known) {
            min_clock = who->clock < min_clock ? who->clock : min_clock;
        }
    }
    return min_clock;
}

static void act(struct sl_clocks *clocks, uint32_t worker, uint64_t what, uint64_t *seed)
{
    if (what < 300) {
        uint32_t clock = sl_clocks_of(clocks, worker);
        assert_int_equal(sl_clocks_tick(clocks, worker, clock), 0);
    } else if (what < 304) {
        sl_clocks_leave(clocks, worker);
    } else if (what < 308) {
        sl_clocks_expire(clocks, worker);
    } else if (what < 309) {
        assert_int_equal(sl_clocks_tick(clocks, worker, SL_CLOCKS_FINISHED), 0);
    } else if (what < 320) {
        sl_clocks_pushed(clocks, worker);
    } else {
        uint32_t ahead = (uint32_t)(sl_hash_random(seed) % 4);
        uint32_t clock = sl_clocks_joinable(clocks, worker);
        clock = clock > 2 ? clock - 2 + ahead : ahead;
        uint32_t least = sl_clocks_join(clocks, worker, clock);
        assert_true(least != clock || sl_clocks_is_active(clocks, worker) ||
                    clock == SL_CLOCKS_FINISHED);
        assert_true(least != clock || sl_clocks_of(clocks, worker) == clock);
    }
}

/* The counting of workers at the floor against a plain minimum, which never goes down. */
CASE(clocks_min_clock__is_the_minimum_while_workers_come_and_go)
{
    enum { WORKERS = 12, GROUPS = 3 };
    static const uint32_t counts[GROUPS] = {1, 5, 9};
    for (uint64_t seed = 1; seed <= 20; seed++) {
        sl_clocks_fini(clocks);
        assert_int_equal(sl_clocks_init(clocks), 0);
        uint64_t random = seed;
        uint32_t floors[GROUPS] = {0};
        for (uint32_t i = 0; i < 4000; i++) {
            if (i % 500 == 0 && i / 500 < GROUPS) {
                assert_int_equal(sl_clocks_group(clocks, counts[i / 500]), i / 500);
            }
            uint32_t worker = (uint32_t)(sl_hash_random(&random) % WORKERS);
            act(clocks, worker, sl_hash_random(&random) % 330, &random);
            for (uint32_t g = 0; g < clocks->group_count; g++) {
                uint32_t min_clock = sl_clocks_min(clocks, g);
                assert_int_equal(min_clock, plain_min_clock(clocks, g, WORKERS));
                assert_true(min_clock >= floors[g]);
                floors[g] = min_clock;
            }
            assert_int_equal(sl_clocks_min_of_all(clocks), plain_min_clock_of_all(clocks, WORKERS));
        }
    }
}

CASE(clocks_is_unfinished__when_who_has_gone_had_not_finished)
{
    (void)sl_clocks_group(clocks, 3);
    tick_to(clocks, 0, 4);
    assert_false(sl_clocks_is_unfinished(clocks));
    sl_clocks_leave(clocks, 0);
    assert_true(sl_clocks_is_unfinished(clocks));
    assert_int_equal(sl_clocks_join(clocks, 0, 4), 4);
    assert_int_equal(sl_clocks_tick(clocks, 0, SL_CLOCKS_FINISHED), 0);
    assert_false(sl_clocks_is_unfinished(clocks));
    tick_to(clocks, 1, 2);
    sl_clocks_expire(clocks, 1);
    assert_false(sl_clocks_is_unfinished(clocks)); /* the job has gone on to its end without it */
}

CASE(clocks_is_unfinished__when_all_are_lost)
{
    sl_clocks_mark_seen(clocks, 0);
    sl_clocks_expire(clocks, 0);
    assert_false(sl_clocks_is_unfinished(clocks)); /* it had done nothing */
    tick_to(clocks, 1, 2);
    sl_clocks_expire(clocks, 1);
    assert_true(sl_clocks_is_unfinished(clocks));
}

/* The floor had gone to the end of what was done; each goes on at its own clock. */
CASE(clocks_expect_again__those_that_have_left_together)
{
    const uint32_t group = sl_clocks_group(clocks, 3);
    const uint32_t stood[] = {5, 3, 4};
    for (uint32_t worker = 0; worker < 3; worker++) {
        tick_to(clocks, worker, stood[worker]);
    }
    assert_int_equal(sl_clocks_join(clocks, 7, 6), 6); /* on top of the job's */
    for (uint32_t worker = 0; worker < 3; worker++) {
        sl_clocks_leave(clocks, worker);
    }
    sl_clocks_leave(clocks, 7);
    assert_int_equal(sl_clocks_min(clocks, group), 6);
    sl_clocks_expect_again(clocks);
    assert_int_equal(sl_clocks_min(clocks, group), 3);
    for (uint32_t worker = 0; worker < 3; worker++) {
        assert_true(sl_clocks_is_active(clocks, worker));
        assert_int_equal(sl_clocks_join(clocks, worker, stood[worker]), stood[worker]);
    }
    assert_false(sl_clocks_is_active(clocks, 7));
    assert_int_equal(sl_clocks_min_of_all(clocks), 3);
}

CASE(clocks_expect_again__nobody_while_others_work)
{
    const uint32_t group = sl_clocks_group(clocks, 2);
    tick_to(clocks, 0, 2);
    tick_to(clocks, 1, 5);
    sl_clocks_leave(clocks, 0);
    sl_clocks_expect_again(clocks);
    assert_false(sl_clocks_is_active(clocks, 0));
    assert_int_equal(sl_clocks_min(clocks, group), 5);
}
