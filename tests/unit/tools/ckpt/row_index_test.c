#include "core/hash.h"
#include "tests/support/unit.h"
#include "tools/ckpt/row_index.h"

#define KEYS 200000

/* Every u64 is a key, and numbers are those of the first coming. */
SL_CASE(rows__number_keys_as_they_come)
{
    struct sl_row_index rows = {0};
    uint64_t number = 7;
    bool fresh;
    assert_false(sl_row_index_find(&rows, 0, &number));
    for (uint32_t round = 0; round < 2; round++) {
        for (uint64_t i = 0; i < KEYS; i++) {
            const uint64_t key = i < 2 ? i - 1 : sl_hash_key(i * 3);
            assert_int_equal(sl_row_index_add(&rows, key, &number, &fresh), 0);
            assert_int_equal(number, i);
            assert_int_equal(fresh, round == 0);
        }
    }
    assert_int_equal(rows.count, KEYS);
    assert_true(sl_row_index_find(&rows, UINT64_MAX, &number));
    assert_int_equal(number, 0);
    assert_true(sl_row_index_find(&rows, 0, &number));
    assert_int_equal(number, 1);
    assert_false(sl_row_index_find(&rows, sl_hash_key(1), &number));
    sl_row_index_fini(&rows);
}
