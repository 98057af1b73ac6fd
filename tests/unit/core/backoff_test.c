#include "core/backoff.h"
#include "core/hash.h"
#include "tests/support/unit.h"

SL_CASE(backoff_next__is_any_part_of_the_least_pause_first_and_then_doubles)
{
    struct sl_backoff backoff = {.least_ns = 100, .most_ns = 350};
    assert_int_equal(sl_backoff_next(&backoff, 99), 1);
    assert_int_equal(sl_backoff_next(&backoff, 99), 101);
    assert_int_equal(sl_backoff_next(&backoff, 149), 201);
    assert_int_equal(sl_backoff_next(&backoff, 149), 350);
    sl_backoff_reset(&backoff);
    assert_int_equal(sl_backoff_next(&backoff, 0), 100);
    assert_int_equal(sl_backoff_next(&backoff, 0), 200);
}

SL_CASE(backoff_next__keeps_to_limits_that_change)
{
    struct sl_backoff backoff = {.least_ns = 100};
    assert_int_equal(sl_backoff_next(&backoff, 7), 93);
    assert_int_equal(sl_backoff_next(&backoff, 7), 100); /* no limit above the least one */
    backoff.least_ns = 5000;
    assert_int_equal(sl_backoff_next(&backoff, 4899), 101); /* more clients than it knew */
    backoff.least_ns = 50;
    backoff.most_ns = 80;
    assert_int_equal(sl_backoff_next(&backoff, 7), 80);
}

/* A thousand clients lose their server at one moment. */
SL_CASE(backoff_next__spreads_a_crowd)
{
    enum { CLIENTS = 1000, WINDOWS = 50 };
    uint32_t counts[WINDOWS] = {0};
    const uint64_t spread_ms = sl_backoff_spread_ms(CLIENTS, 10000);
    uint64_t random = 1;
    assert_int_equal(spread_ms, 5000);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        struct sl_backoff backoff = {.least_ns = spread_ms};
        const uint64_t pause_ms = sl_backoff_next(&backoff, sl_hash_random(&random));
        assert_in_range(pause_ms, 1, spread_ms);
        counts[(pause_ms - 1) * WINDOWS / spread_ms]++;
    }
    for (uint32_t i = 0; i < WINDOWS; i++) {
        assert_in_range(counts[i], 5, 40);
    }
}

SL_CASE(backoff_spread_ms__grows_with_the_clients_up_to_a_limit)
{
    assert_int_equal(sl_backoff_spread_ms(0, 2500), 0);
    assert_int_equal(sl_backoff_spread_ms(7, 2500), 35);
    assert_int_equal(sl_backoff_spread_ms(1000000, 2500), 2500);
}
