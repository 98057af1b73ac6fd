#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "core/hash.h"
#include "ps/clocks.h"

static int setup(void **state)
{
    struct sl_clocks *clocks = malloc(sizeof *clocks);
    assert_non_null(clocks);
    assert_int_equal(sl_clocks_init(clocks), 0);
    *state = clocks;
    return 0;
}

static int teardown(void **state)
{
    sl_clocks_fini(*state);
    free(*state);
    return 0;
}

static void clocks_tick__moves_the_floor_with_the_last_worker(void **state)
{
    struct sl_clocks *clocks = *state;
    uint32_t group = sl_clocks_group(clocks, 3);
    assert_int_equal(sl_clocks_floor(clocks, group), 0);
    assert_int_equal(sl_clocks_tick(clocks, 0, 0), 0);
    assert_int_equal(sl_clocks_tick(clocks, 0, 1), 0);
    assert_int_equal(sl_clocks_tick(clocks, 2, 0), 0);
    assert_int_equal(sl_clocks_floor(clocks, group), 0);
    assert_int_equal(sl_clocks_slowest(clocks, group), 1);
    assert_false(sl_clocks_take_moved(clocks));
    assert_int_equal(sl_clocks_tick(clocks, 1, 0), 0);
    assert_int_equal(sl_clocks_floor(clocks, group), 1);
    assert_true(sl_clocks_take_moved(clocks));
    assert_false(sl_clocks_take_moved(clocks));
}

static void clocks_tick__refuses_another_clock_than_the_current(void **state)
{
    struct sl_clocks *clocks = *state;
    assert_int_equal(sl_clocks_tick(clocks, 4, 1), SL_ERR_PROTOCOL);
    assert_int_equal(sl_clocks_tick(clocks, 4, 0), 0);
    assert_int_equal(sl_clocks_tick(clocks, 4, 0), SL_ERR_PROTOCOL);
    assert_int_equal(sl_clocks_of(clocks, 4), 1);
    assert_int_equal(sl_clocks_tick(clocks, SL_LIMIT_WORKERS, 0), SL_ERR_PROTOCOL);
}

static void clocks_tick__of_a_finished_worker_has_no_effect(void **state)
{
    struct sl_clocks *clocks = *state;
    uint32_t group = sl_clocks_group(clocks, 2);
    assert_int_equal(sl_clocks_tick(clocks, 0, SL_CLOCKS_FINISHED), 0);
    assert_int_equal(sl_clocks_tick(clocks, 0, 0), 0);
    assert_int_equal(sl_clocks_of(clocks, 0), SL_CLOCKS_FINISHED);
    assert_int_equal(sl_clocks_floor(clocks, group), 0);
    assert_int_equal(sl_clocks_tick(clocks, 1, 0), 0);
    assert_int_equal(sl_clocks_floor(clocks, group), 1);
    assert_int_equal(sl_clocks_tick(clocks, 1, SL_CLOCKS_FINISHED), 0);
    assert_int_equal(sl_clocks_floor(clocks, group), SL_CLOCKS_FINISHED);
}

static void clocks_group__is_shared_by_equal_counts_and_starts_where_the_workers_are(void **state)
{
    struct sl_clocks *clocks = *state;
    uint32_t two = sl_clocks_group(clocks, 2);
    assert_int_equal(sl_clocks_group(clocks, 2), two);
    assert_int_equal(sl_clocks_tick(clocks, 0, 0), 0);
    uint32_t one = sl_clocks_group(clocks, 1);
    assert_int_not_equal(one, two);
    assert_int_equal(sl_clocks_floor(clocks, one), 1);
    assert_int_equal(sl_clocks_floor(clocks, two), 0);
}

static void clocks_floor_of_all__counts_whoever_was_heard_of(void **state)
{
    struct sl_clocks *clocks = *state;
    assert_int_equal(sl_clocks_floor_of_all(clocks), 0);
    sl_clocks_hear(clocks, 0);
    assert_int_equal(sl_clocks_tick(clocks, 0, 0), 0);
    assert_int_equal(sl_clocks_floor_of_all(clocks), 1);
    sl_clocks_hear(clocks, 1);
    assert_int_equal(sl_clocks_floor_of_all(clocks), 0);
}

/* The counting of workers at the floor against a plain minimum. */
static void clocks_floor__is_the_minimum_after_random_ticks(void **state)
{
    struct sl_clocks *clocks = *state;
    uint32_t groups[] = {sl_clocks_group(clocks, 1), sl_clocks_group(clocks, 5),
                         sl_clocks_group(clocks, 9)};
    uint32_t plain[9] = {0};
    uint64_t seed = 11;
    for (int i = 0; i < 20000; i++) {
        uint32_t worker = (uint32_t)(sl_hash_random(&seed) % 9);
        bool finishes = sl_hash_random(&seed) % 3000 == 0;
        if (plain[worker] == SL_CLOCKS_FINISHED) {
            continue;
        }
        uint32_t clock = finishes ? SL_CLOCKS_FINISHED : plain[worker];
        assert_int_equal(sl_clocks_tick(clocks, worker, clock), 0);
        plain[worker] = finishes ? SL_CLOCKS_FINISHED : clock + 1;
        for (int g = 0; g < 3; g++) {
            uint32_t floor = SL_CLOCKS_FINISHED;
            for (uint32_t w = 0; w < clocks->groups[groups[g]].worker_count; w++) {
                floor = plain[w] < floor ? plain[w] : floor;
            }
            assert_int_equal(sl_clocks_floor(clocks, groups[g]), floor);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(clocks_tick__moves_the_floor_with_the_last_worker, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(clocks_tick__refuses_another_clock_than_the_current, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(clocks_tick__of_a_finished_worker_has_no_effect, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(
            clocks_group__is_shared_by_equal_counts_and_starts_where_the_workers_are, setup,
            teardown),
        cmocka_unit_test_setup_teardown(clocks_floor_of_all__counts_whoever_was_heard_of, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(clocks_floor__is_the_minimum_after_random_ticks, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
