#include "programs/serve/base/range.h"

#include <string.h>

#include "core/hash.h"
#include "tests/support/unit.h"

#define COUNT 64
#define BYTES 4096

SL_CASE(range_take__fills_the_first_gap)
{
    struct sl_serve_ranges ranges;
    struct sl_serve_range a, b, c, d;
    sl_serve_ranges_init(&ranges, 256);
    assert_true(sl_serve_range_take(&ranges, 1, &a));
    assert_true(sl_serve_range_take(&ranges, 65, &b));
    assert_true(sl_serve_range_take(&ranges, 64, &c));
    assert_int_equal(a.offset, 0);
    assert_int_equal(b.offset, 64);
    assert_int_equal(c.offset, 192);
    assert_int_equal(ranges.used_bytes, 256);
    assert_false(sl_serve_range_take(&ranges, 1, &d));
    sl_serve_range_put(&ranges, &b);
    assert_false(sl_serve_range_take(&ranges, 129, &d));
    assert_true(sl_serve_range_take(&ranges, 128, &d));
    assert_int_equal(d.offset, 64);
    sl_serve_range_put(&ranges, &b); /* again */
    assert_int_equal(ranges.used_bytes, 256);
}

SL_CASE(range_take__takes_nothing_or_not_too_much)
{
    struct sl_serve_ranges ranges;
    struct sl_serve_range none, all;
    sl_serve_ranges_init(&ranges, 100);
    assert_true(sl_serve_range_take(&ranges, 0, &none));
    sl_serve_range_put(&ranges, &none);
    assert_false(sl_serve_range_take(&ranges, 101, &all));
    assert_false(sl_serve_range_take(&ranges, UINT64_MAX, &all));
    assert_false(sl_serve_range_take(&ranges, 65, &all)); /* 128 with the rest of its 64 */
    assert_true(sl_serve_range_take(&ranges, 64, &all));
    assert_int_equal(ranges.used_bytes, 64);
}

/* Against an array of bytes. */
SL_CASE(range_take__never_takes_what_is_taken)
{
    static struct sl_serve_range taken[COUNT];
    static uint8_t owner[BYTES];
    struct sl_serve_ranges ranges;
    uint64_t random = 5;
    sl_serve_ranges_init(&ranges, BYTES);
    for (uint32_t i = 0; i < 20000; i++) {
        struct sl_serve_range *range = &taken[sl_hash_random(&random) % COUNT];
        if (sl_list_linked(&range->link)) {
            memset(owner + range->offset, 0, range->bytes);
            sl_serve_range_put(&ranges, range);
        } else if (sl_serve_range_take(&ranges, 1 + sl_hash_random(&random) % 300, range)) {
            assert_int_equal(range->offset % SL_SERVE_RANGE_ALIGN, 0);
            assert_true(range->offset + range->bytes <= BYTES);
            for (uint64_t at = range->offset; at < range->offset + range->bytes; at++) {
                assert_int_equal(owner[at], 0);
                owner[at] = 1;
            }
        }
    }
    uint64_t used = 0;
    for (uint32_t i = 0; i < BYTES; i++) {
        used += owner[i];
    }
    assert_int_equal(ranges.used_bytes, used);
}
