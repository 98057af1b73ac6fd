#include <starling.h>

#include "core/hash.h"
#include "tests/support/unit.h"

#define COUNT 5000

static uint64_t keys[COUNT], unique[COUNT];
static uint32_t inverse[COUNT], counts[COUNT];

static void check(uint64_t distinct)
{
    uint64_t seed = 5;
    for (size_t i = 0; i < COUNT; i++) {
        keys[i] = sl_hash_random(&seed) % distinct;
    }
    keys[7] = UINT64_MAX;
    size_t found = 0;
    assert_int_equal(sl_keys_unique(keys, COUNT, unique, inverse, counts, &found), 0);
    uint32_t next = 0, seen[COUNT] = {0};
    for (size_t i = 0; i < COUNT; i++) {
        assert_true(inverse[i] <= next); /* the order of first appearance */
        next += inverse[i] == next;
        assert_int_equal(unique[inverse[i]], keys[i]);
        seen[inverse[i]]++;
    }
    assert_int_equal(found, next);
    for (size_t u = 0; u < found; u++) {
        assert_int_equal(counts[u], seen[u]);
        for (size_t v = 0; v < u; v++) {
            assert_int_not_equal(unique[u], unique[v]);
        }
    }
}

SL_CASE(keys_unique__lists_keys_in_order_of_first_appearance)
{
    check(1);
    check(900);
    check(UINT64_MAX);
}

SL_CASE(keys_unique__replaces_the_keys_in_place)
{
    uint64_t some[] = {9, 0, 9, UINT64_MAX, 0};
    size_t found = 0;
    assert_int_equal(sl_keys_unique(some, 5, some, NULL, NULL, &found), 0);
    assert_int_equal(found, 3);
    assert_int_equal(some[0], 9);
    assert_int_equal(some[1], 0);
    assert_int_equal(some[2], UINT64_MAX);
}

SL_CASE(keys_unique__refuses_null_arrays)
{
    size_t found = 7;
    assert_int_equal(sl_keys_unique(NULL, 1, unique, NULL, NULL, &found), SL_ERR_INVALID);
    assert_int_equal(sl_keys_unique(keys, 1, NULL, NULL, NULL, &found), SL_ERR_INVALID);
    assert_string_equal(sl_last_error(), "keys_unique: keys or unique is NULL");
    assert_int_equal(sl_keys_unique(keys, 1, unique, NULL, NULL, NULL), SL_ERR_INVALID);
    assert_string_equal(sl_last_error(), "keys_unique: unique_count is NULL");
    assert_int_equal(found, 7);
    assert_int_equal(sl_keys_unique(NULL, 0, NULL, NULL, NULL, &found), 0);
    assert_int_equal(found, 0);
}
