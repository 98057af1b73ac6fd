#include <stdlib.h>

#include "core/array.h"
#include "tests/support/unit.h"

SL_CASE(array_make_room__keeps_the_items)
{
    uint64_t *items = NULL;
    uint32_t capacity = 0;
    for (uint32_t i = 0; i < 1000; i++) {
        assert_true(sl_array_make_room(&items, &capacity, i, sizeof *items));
        assert_true(capacity > i);
        items[i] = i;
    }
    assert_true(sl_array_make_room(&items, &capacity, 5000, sizeof *items)); /* several doublings */
    assert_in_range(capacity, 5001, 10002);
    for (uint32_t i = 0; i < 1000; i++) {
        assert_int_equal(items[i], i);
    }
    const uint32_t before = capacity;
    assert_false(sl_array_make_room(&items, &capacity, UINT32_MAX, sizeof *items));
    assert_false(sl_array_make_room(&items, &capacity, before, SIZE_MAX / 2));
    assert_int_equal(capacity, before);
    assert_int_equal(items[999], 999);
    free(items);
}

SL_CASE(array_bisect__finds_the_first_that_is_not_before)
{
    static const uint32_t values[] = {1, 3, 3, 7};
    for (uint32_t wanted = 0; wanted < 9; wanted++) {
        for (uint32_t count = 0; count <= 4; count++) {
            uint32_t first = 0, expected = 0;
            SL_ARRAY_BISECT(first, count, i, values[i] < wanted);
            while (expected < count && values[expected] < wanted) {
                expected++;
            }
            assert_int_equal(first, expected);
        }
    }
}
