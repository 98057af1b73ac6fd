#include "objects/node/cost.h"

#include <math.h>
#include <stdint.h>

#include "tests/support/unit.h"

static void expect(const struct sl_objects_cost *cost, double read_ns, double byte_ns)
{
    double read, byte;
    sl_objects_cost_fit(cost, &read, &byte);
    assert_true(fabs(read - read_ns) < 1e-6 * (read_ns + 1));
    assert_true(fabs(byte - byte_ns) < 1e-6 * (byte_ns + 1));
}

SL_CASE(cost__is_the_line_through_the_samples)
{
    struct sl_objects_cost cost = {0};
    expect(&cost, 0, 0);
    for (uint64_t bytes = 1000; bytes <= 10000; bytes += 1000) {
        sl_objects_cost_add(&cost, bytes, 5000 + 3 * bytes);
    }
    expect(&cost, 5000, 3);
}

SL_CASE(cost__forgets_all_but_the_last_64)
{
    struct sl_objects_cost cost = {0};
    sl_objects_cost_add(&cost, 1, 1000000000);
    for (uint64_t i = 1; i <= SL_OBJECTS_COST_SAMPLES; i++) {
        sl_objects_cost_add(&cost, i, 100 + 2 * i);
    }
    expect(&cost, 100, 2);
}

/* READs of one size, and noise that would give a negative cost. */
SL_CASE(cost__is_never_negative)
{
    struct sl_objects_cost cost = {0};
    sl_objects_cost_add(&cost, 1000, 3000);
    sl_objects_cost_add(&cost, 1000, 5000);
    expect(&cost, 0, 4);
    sl_objects_cost_add(&cost, 500, 5000);
    expect(&cost, 0, (3000 + 5000 + 5000) / 2500.0);
    cost = (struct sl_objects_cost){0};
    sl_objects_cost_add(&cost, 1000, 1000);
    sl_objects_cost_add(&cost, 2000, 4000);
    expect(&cost, 0, 5000 / 3000.0);
}
