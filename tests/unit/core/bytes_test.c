#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "core/bytes.h"

static void bytes_over__reads_little_endian_in_order(void **state)
{
    (void)state;
    const uint8_t raw[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    struct sl_bytes cursor = sl_bytes_over(raw, sizeof raw);
    assert_int_equal(sl_bytes_u8(&cursor), 0x01);
    assert_int_equal(sl_bytes_u16(&cursor), 0x0302);
    assert_int_equal(sl_bytes_u32(&cursor), 0x07060504);
    assert_true(sl_bytes_u64(&cursor) == 0x0f0e0d0c0b0a0908ULL);
    assert_int_equal(cursor.left, 0);
    assert_false(cursor.bad);
}

static void bytes_u32__past_the_end_turns_bad_and_stays_bad(void **state)
{
    (void)state;
    const uint8_t raw[] = {0xff, 0xff, 0xff};
    struct sl_bytes cursor = sl_bytes_over(raw, sizeof raw);
    assert_int_equal(sl_bytes_u32(&cursor), 0);
    assert_true(cursor.bad);
    /* There are three bytes still, but nothing may be read of a message that was cut. */
    assert_int_equal(sl_bytes_u8(&cursor), 0);
    assert_null(sl_bytes_take(&cursor, 0));
    assert_true(cursor.bad);
}

static void bytes_copy__past_the_end_yields_zeros(void **state)
{
    (void)state;
    const uint8_t raw[] = {1, 2};
    uint8_t to[3] = {9, 9, 9};
    struct sl_bytes cursor = sl_bytes_over(raw, sizeof raw);
    sl_bytes_copy(&cursor, to, sizeof to);
    assert_int_equal(to[0] | to[1] | to[2], 0);
}

static void bytes_take__stays_in_place(void **state)
{
    (void)state;
    const uint8_t raw[8] = {0};
    struct sl_bytes cursor = sl_bytes_over(raw, sizeof raw);
    assert_ptr_equal(sl_bytes_take(&cursor, 3), raw);
    assert_ptr_equal(sl_bytes_take(&cursor, 5), raw + 3);
    assert_ptr_equal(sl_bytes_take(&cursor, 0), raw + 8);
    assert_null(sl_bytes_take(&cursor, 1));
}

static void bytes_take_array__a_product_that_overflows_is_bad(void **state)
{
    (void)state;
    const uint8_t raw[16] = {0};
    struct sl_bytes cursor = sl_bytes_over(raw, sizeof raw);
    assert_ptr_equal(sl_bytes_take_array(&cursor, 2, 4), raw);
    assert_false(cursor.bad);
    /* 2^61 items of 8 bytes are 2^64 bytes: zero, if the product were allowed to wrap. */
    assert_null(sl_bytes_take_array(&cursor, 1ULL << 61, 8));
    assert_true(cursor.bad);
}

static void bytes_put__fills_to_the_last_byte_and_no_further(void **state)
{
    (void)state;
    uint8_t buffer[5] = {0, 0, 0, 0, 0x77};
    struct sl_bytes_writer writer = sl_bytes_writer_over(buffer, 4);
    sl_bytes_put(&writer, "abc", 3);
    assert_int_equal(writer.left, 1);
    sl_bytes_put(&writer, "de", 2);
    assert_true(writer.bad);
    sl_bytes_put(&writer, "f", 1);
    assert_memory_equal(buffer, "abc\0\x77", 5);
}

static void bytes_reserve__bad_writer_gives_nothing(void **state)
{
    (void)state;
    uint8_t buffer[8];
    struct sl_bytes_writer writer = sl_bytes_writer_over(buffer, sizeof buffer);
    assert_ptr_equal(sl_bytes_reserve(&writer, 8), buffer);
    assert_null(sl_bytes_reserve(&writer, 1));
    assert_null(sl_bytes_reserve(&writer, 0));
}

static void bytes_pad8__rounds_up(void **state)
{
    (void)state;
    assert_int_equal(sl_bytes_pad8(0), 0);
    assert_int_equal(sl_bytes_pad8(1), 8);
    assert_int_equal(sl_bytes_pad8(8), 8);
    assert_int_equal(sl_bytes_pad8(9), 16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_over__reads_little_endian_in_order),
        cmocka_unit_test(bytes_u32__past_the_end_turns_bad_and_stays_bad),
        cmocka_unit_test(bytes_copy__past_the_end_yields_zeros),
        cmocka_unit_test(bytes_take__stays_in_place),
        cmocka_unit_test(bytes_take_array__a_product_that_overflows_is_bad),
        cmocka_unit_test(bytes_put__fills_to_the_last_byte_and_no_further),
        cmocka_unit_test(bytes_reserve__bad_writer_gives_nothing),
        cmocka_unit_test(bytes_pad8__rounds_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
