#include "core/hash.h"
#include "core/key_index.h"
#include "tests/support/unit.h"

#define KEYS 200000

/* Every u64 is a key, and numbers are those of the first appearance; also after a clear. */
SL_CASE(key_index__numbers_keys_in_order_of_first_appearance)
{
    struct sl_key_index index = {0};
    uint64_t number = 7;
    assert_false(sl_key_index_find(&index, 0, &number));
    for (uint32_t round = 0; round < 4; round++) {
        for (uint64_t i = 0; i < KEYS; i++) {
            const uint64_t key = i < 2 ? i - 1 : sl_hash_key((i + round / 2) * 3);
            assert_int_equal(sl_key_index_add(&index, key, &number), 0);
            assert_int_equal(number, i);
            assert_int_equal(index.count, round % 2 == 0 ? i + 1 : KEYS);
        }
        assert_true(sl_key_index_find(&index, UINT64_MAX, &number));
        assert_int_equal(number, 0);
        assert_true(sl_key_index_find(&index, 0, &number));
        assert_int_equal(number, 1);
        assert_false(sl_key_index_find(&index, sl_hash_key(1), &number));
        if (round == 1) {
            sl_key_index_clear(&index);
            assert_int_equal(index.count, 0);
            assert_false(sl_key_index_find(&index, 0, &number));
        }
    }
    sl_key_index_fini(&index);
}

/* Also those of a use before are left out. */
SL_CASE(key_index_keys__writes_each_key_at_its_number)
{
    struct sl_key_index index = {0};
    uint64_t number, keys[3000];
    sl_key_index_keys(&index, keys); /* none */
    for (uint64_t i = 0; i < 5; i++) {
        assert_int_equal(sl_key_index_add(&index, i, &number), 0);
    }
    sl_key_index_clear(&index);
    for (uint64_t i = 0; i < 3000; i++) {
        assert_int_equal(sl_key_index_add(&index, UINT64_MAX - i, &number), 0);
    }
    sl_key_index_keys(&index, keys);
    for (uint64_t i = 0; i < 3000; i++) {
        assert_int_equal(keys[i], UINT64_MAX - i);
    }
    sl_key_index_fini(&index);
}
