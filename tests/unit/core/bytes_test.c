#include "core/bytes.h"
#include "tests/support/unit.h"

SL_CASE(bytes_over__reads_little_endian_in_order)
{
    const uint8_t raw[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    struct sl_bytes cursor = sl_bytes_over(raw, sizeof raw);
    assert_int_equal(sl_bytes_u8(&cursor), 0x01);
    assert_int_equal(sl_bytes_u16(&cursor), 0x0302);
    assert_int_equal(sl_bytes_u32(&cursor), 0x07060504);
    assert_true(sl_bytes_u64(&cursor) == 0x0f0e0d0c0b0a0908ULL);
    assert_int_equal(cursor.left, 0);
    assert_false(cursor.bad);
}

SL_CASE(bytes_u32__past_the_end_turns_bad_and_stays_bad)
{
    const uint8_t raw[] = {0xff, 0xff, 0xff};
    struct sl_bytes cursor = sl_bytes_over(raw, sizeof raw);
    assert_int_equal(sl_bytes_u32(&cursor), 0);
    assert_true(cursor.bad);
    /* There are three bytes still, but nothing may be read of a message that was cut. */
    assert_int_equal(sl_bytes_u8(&cursor), 0);
    assert_null(sl_bytes_take(&cursor, 0));
    assert_true(cursor.bad);
}

SL_CASE(bytes_text__ends_with_a_nul_within_its_limit)
{
    const char raw[] = {'a', 'b', 0, 0, 'c', 'd'};
    struct sl_bytes cursor = sl_bytes_over(raw, sizeof raw);
    assert_string_equal(sl_bytes_text(&cursor, 3), "ab");
    assert_string_equal(sl_bytes_text(&cursor, 1), "");
    assert_int_equal(cursor.left, 2);
    assert_string_equal(sl_bytes_text(&cursor, 9), "");
    assert_true(cursor.bad);
    cursor = sl_bytes_over(raw, sizeof raw);
    assert_string_equal(sl_bytes_text(&cursor, 2), "");
    assert_true(cursor.bad);
    assert_string_equal(sl_bytes_text(&cursor, 9), "");
    cursor = sl_bytes_over(raw, 0);
    assert_string_equal(sl_bytes_text(&cursor, 9), "");
    assert_true(cursor.bad);
}

SL_CASE(bytes_copy__past_the_end_yields_zeros)
{
    const uint8_t raw[] = {1, 2};
    uint8_t to[3] = {9, 9, 9};
    struct sl_bytes cursor = sl_bytes_over(raw, sizeof raw);
    sl_bytes_copy(&cursor, to, sizeof to);
    assert_int_equal(to[0] | to[1] | to[2], 0);
}

SL_CASE(bytes_take_array__a_product_that_overflows_is_bad)
{
    const uint8_t raw[16] = {0};
    struct sl_bytes cursor = sl_bytes_over(raw, sizeof raw);
    assert_ptr_equal(sl_bytes_take_array(&cursor, 2, 4), raw);
    assert_false(cursor.bad);
    /* 2^61 items of 8 bytes are 2^64 bytes: zero, if the product were allowed to wrap. */
    assert_null(sl_bytes_take_array(&cursor, 1ULL << 61, 8));
    assert_true(cursor.bad);
}

SL_CASE(bytes_put__fills_to_the_last_byte_and_no_further)
{
    uint8_t buffer[5] = {0, 0, 0, 0, 0x77};
    struct sl_bytes_writer writer = sl_bytes_writer_over(buffer, 4);
    sl_bytes_put(&writer, "abc", 3);
    assert_int_equal(writer.left, 1);
    sl_bytes_put(&writer, "de", 2);
    assert_true(writer.bad);
    sl_bytes_put(&writer, "f", 1);
    assert_memory_equal(buffer, "abc\0\x77", 5);
}

SL_CASE(bytes_reserve__bad_writer_gives_nothing)
{
    uint8_t buffer[8];
    struct sl_bytes_writer writer = sl_bytes_writer_over(buffer, sizeof buffer);
    assert_ptr_equal(sl_bytes_reserve(&writer, 8), buffer);
    assert_null(sl_bytes_reserve(&writer, 1));
    assert_null(sl_bytes_reserve(&writer, 0));
}
