#include "core/clock.h"
#include "tests/support/unit.h"

SL_CASE(clock_system__never_goes_back)
{
    uint64_t last = sl_clock_now_ns(sl_clock_system());
    assert_true(last > 0);
    for (int i = 0; i < 1000; i++) {
        const uint64_t now = sl_clock_now_ns(sl_clock_system());
        assert_true(now >= last);
        last = now;
    }
}

static uint64_t read_counter(void *ctx)
{
    uint64_t *counter = ctx;
    return (*counter)++;
}

SL_CASE(clock_now_ns__asks_the_clock_it_is_given)
{
    uint64_t counter = 41;
    const struct sl_clock clock = {.now_ns = read_counter, .ctx = &counter};
    assert_true(sl_clock_now_ns(&clock) == 41);
    assert_true(sl_clock_now_ns(&clock) == 42);
}
