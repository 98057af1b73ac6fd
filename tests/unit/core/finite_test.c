#include "core/finite.h"

#include <math.h>

#include "tests/support/unit.h"

#define COUNT 300

/* At every place, within blocks and behind the last one. */
SL_CASE(finite_prefix__finds_the_first_place)
{
    const float finite[] = {0, -0.0F, 3.4028234e38F, -3.4028234e38F, 1e-45F, 1};
    const float odd[] = {NAN, -NAN, INFINITY, -INFINITY};
    float values[COUNT];
    for (uint32_t i = 0; i < COUNT; i++) {
        values[i] = finite[i % 6];
    }
    for (uint32_t count = 0; count <= COUNT; count++) {
        assert_int_equal(sl_finite_prefix(values, count), count);
    }
    for (uint32_t at = COUNT; at-- > 0;) {
        values[at] = odd[at % 4]; /* those behind it stay */
        assert_int_equal(sl_finite_prefix(values, COUNT), at);
        assert_int_equal(sl_finite_prefix(values, at), at);
        assert_int_equal(sl_finite_prefix(values + at, COUNT - at), 0);
    }
}
