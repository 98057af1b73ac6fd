#include "objects/node/delta_code.h"

#include <stdlib.h>
#include <string.h>

#include "core/err.h"
#include "core/hash.h"
#include "tests/support/unit.h"

enum { BLOCK = SL_OBJECTS_BLOCK_BYTES, ROUNDS = 400 };

static uint64_t random_state;
static uint8_t base[BLOCK], block[BLOCK], encoded[2 * BLOCK], rebuilt[BLOCK + 8];

static uint32_t below(uint32_t bound)
{
    return (uint32_t)(sl_hash_random(&random_state) % bound);
}

static void fill(uint8_t *to, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++) {
        to[i] = (uint8_t)sl_hash_random(&random_state);
    }
}

/* Changes each element, of `width` bytes, with this chance of 1000; only its lowest byte, or all.
 */
static void change(uint32_t width, uint32_t permille, bool only_lowest, uint32_t bytes)
{
    memcpy(block, base, BLOCK);
    for (uint32_t i = 0; i < bytes; i++) {
        const bool is_lowest = i % width == 0;
        static bool is_changed;
        is_changed = is_lowest ? below(1000) < permille : is_changed;
        block[i] ^= is_changed && (is_lowest || !only_lowest) ? (uint8_t)(1 + below(255)) : 0;
    }
}

static struct sl_objects_delta_coder *coder;

static int set_up(void **state)
{
    (void)state;
    random_state = 7;
    fill(base, BLOCK);
    assert_int_equal(sl_objects_delta_coder_create(&coder), 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    sl_objects_delta_coder_destroy(&coder);
    assert_null(coder);
    return 0;
}
SL_UNIT_GROUP(set_up, tear_down);

static uint32_t encode(uint32_t width, uint32_t bytes)
{
    return sl_objects_delta_encode(coder, width, base, block, bytes, encoded, sizeof encoded);
}

static void expect_rebuilt(uint32_t length, uint32_t bytes)
{
    memset(rebuilt, 0xa5, sizeof rebuilt);
    assert_int_equal(sl_objects_delta_decode(coder, base, encoded, length, rebuilt, bytes), 0);
    assert_memory_equal(rebuilt, block, bytes);
    for (uint32_t i = bytes; i < bytes + 8; i++) {
        assert_int_equal(rebuilt[i], 0xa5);
    }
}

SL_CASE(decode__rebuilds_blocks_of_any_length_width_and_change)
{
    static const uint32_t permilles[] = {0, 1, 10, 100, 500, 1000};
    for (uint32_t round = 0; round < ROUNDS; round++) {
        const uint32_t width = 1U << below(4);
        const uint32_t bytes = below(3) == 0   ? BLOCK - below(2) * below(64)
                               : below(2) == 0 ? 1 + below(200)
                                               : 1 + below(BLOCK);
        change(width, permilles[below(6)], below(2) == 0, bytes);
        const uint32_t length = encode(width, bytes);
        assert_int_not_equal(length, 0);
        expect_rebuilt(length, bytes);
    }
}

/* What travels of bf16 weights, by the share of elements that change to any value. */
SL_CASE(encode__is_as_short_as_the_change)
{
    static const uint32_t changed[] = {10, 30, 100}, most[] = {30, 80, 200};
    for (uint32_t i = 0; i < 3; i++) {
        change(2, changed[i], false, BLOCK);
        assert_in_range(encode(2, BLOCK), 1, (uint64_t)BLOCK * most[i] / 1000);
    }
}

SL_CASE(encode__has_no_room)
{
    change(4, 1000, false, BLOCK);
    const uint32_t length = encode(4, BLOCK);
    for (uint32_t room = 0; room < length; room += 1 + below(BLOCK / 16)) {
        const uint32_t most = sl_objects_delta_encode(coder, 4, base, block, BLOCK, encoded, room);
        assert_in_range(most, 0, room);
        if (most != 0) {
            expect_rebuilt(most, BLOCK);
        }
    }
}

SL_CASE(decode__refuses_what_is_cut_or_longer)
{
    change(2, 20, false, 5001);
    const uint32_t length = encode(2, 5001);
    for (uint32_t i = 0; i < length; i++) {
        assert_int_equal(sl_objects_delta_decode(coder, base, encoded, i, rebuilt, 5001),
                         SL_ERR_CORRUPT);
    }
    assert_int_equal(sl_objects_delta_decode(coder, base, encoded, length + 1, rebuilt, 5001),
                     SL_ERR_CORRUPT);
    expect_rebuilt(length, 5001);
}

/* Wrong bytes, or an error: both are left to the digest. Nothing is written behind the block. */
SL_CASE(decode__keeps_its_bounds_with_damaged_bytes)
{
    for (uint32_t round = 0; round < 20 * ROUNDS; round++) {
        const uint32_t width = 1U << below(4), bytes = 1 + below(3000);
        change(width, 50, false, bytes);
        const uint32_t length = encode(width, bytes);
        for (uint32_t i = 0; i <= below(3); i++) {
            encoded[below(below(2) == 0 ? length
                          : 40 < length ? 40
                                        : length)] = (uint8_t)below(256);
        }
        memset(rebuilt, 0xa5, sizeof rebuilt);
        const int err = sl_objects_delta_decode(coder, base, encoded, length, rebuilt, bytes);
        assert_true(err == 0 || err == SL_ERR_CORRUPT);
        for (uint32_t i = bytes; i < bytes + 8; i++) {
            assert_int_equal(rebuilt[i], 0xa5);
        }
    }
}
