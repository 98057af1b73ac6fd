/* The free set against an array of flags. */
#include <stdlib.h>

#include "core/hash.h"
#include "ps/table/free_set.h"
#include "tests/support/unit.h"

#define NUMBERS 400000 /* several groups */

static uint32_t lowest_flag(const bool *flags)
{
    for (uint32_t i = 0; i < NUMBERS; i++) {
        if (flags[i]) {
            return i;
        }
    }
    return UINT32_MAX;
}

/* Numbers come in runs and alone, and mostly the lowest goes, as for new rows. */
SL_CASE(free_set__as_flags)
{
    struct sl_table_budget budget = {0};
    struct sl_free_set set = {0};
    bool *flags = calloc(NUMBERS, sizeof *flags);
    uint64_t seed = 3;
    uint32_t count = 0;
    for (uint32_t op = 0; op < 4000; op++) {
        const uint32_t run = sl_hash_random(&seed) % 4 == 0 ? 300 : 1;
        const uint32_t from = (uint32_t)(sl_hash_random(&seed) % (NUMBERS - run));
        const bool adds = sl_hash_random(&seed) % 8 < (op / 1000 % 2 == 0 ? 5 : 2);
        for (uint32_t i = from; i < from + run; i++) {
            const uint32_t number = adds || op % 16 == 0 || count == 0 ? i : set.first;
            assert_int_equal(sl_free_set_has(&set, number), flags[number]);
            if (adds && !flags[number]) {
                assert_true(sl_free_set_add(&set, &budget, number));
                flags[number] = true;
                count++;
            } else if (!adds && flags[number]) {
                sl_free_set_remove(&set, number);
                flags[number] = false;
                count--;
            }
        }
        assert_int_equal(set.count, count);
        if (op % 16 == 0 && count > 0) {
            assert_int_equal(set.first, lowest_flag(flags));
        }
    }
    assert_int_equal(budget.bytes, set.bytes_charged);
    assert_true(budget.bytes < NUMBERS / 3); /* below three bits for each number */
    sl_free_set_fini(&set, &budget);
    assert_int_equal(budget.bytes, 0);
    free(flags);
}

/* A table at its limit must be able to keep the records of erased rows. */
SL_CASE(free_set__at_the_limit)
{
    struct sl_table_budget budget = {.bytes = 100, .bytes_max = 100};
    struct sl_free_set set = {0};
    assert_false(sl_free_set_has(&set, 77));
    assert_true(sl_free_set_add(&set, &budget, 77));
    assert_int_equal(budget.bytes, 100);
    assert_true(sl_free_set_has(&set, 77));
    assert_int_equal(set.first, 77);
    sl_free_set_fini(&set, &budget);
    assert_int_equal(budget.bytes, 100);
}
