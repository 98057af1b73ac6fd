/* Sections of KV tables: what is whole arrays, what is a piece of one, and what is neither. */

#include "core/limits.h"
#include "net/wire/request.h"
#include "tests/support/unit.h"

static int read_one(struct sl_request_section section)
{
    struct sl_bytes cursor = sl_bytes_over(&section, sizeof section);
    return sl_request_read_section(&cursor, &section);
}

static const struct sl_request_section whole_arrays = {
    .op = SL_REQUEST_KV_PULL, .key_count = 2, .command = 7, .count = 6};
static const struct sl_request_section array_piece = {
    .op = SL_REQUEST_KV_PUSH, .key_count = 1, .bag_count = 9, .start = 4, .count = 5};

SL_CASE(request_read_section__knows_whole_arrays)
{
    assert_int_equal(read_one(whole_arrays), SL_OK);
    struct sl_request_section section = whole_arrays;
    section.count = 5; /* two equal lengths */
    assert_int_equal(read_one(section), SL_ERR_PROTOCOL);
    section.flags = SL_REQUEST_FLAG_LENS;
    assert_int_equal(read_one(section), SL_OK);
    section.count = 1; /* one key would have none */
    assert_int_equal(read_one(section), SL_ERR_PROTOCOL);
    section.count = UINT32_MAX;
    assert_int_equal(read_one(section), SL_OK);
    section.count++;
    assert_int_equal(read_one(section), SL_ERR_PROTOCOL);
    section = whole_arrays;
    section.flags = SL_REQUEST_FLAG_LENS << 1;
    assert_int_equal(read_one(section), SL_ERR_PROTOCOL);
    section = whole_arrays;
    section.start = 1;
    assert_int_equal(read_one(section), SL_ERR_PROTOCOL);
    section = whole_arrays;
    section.key_count = 0;
    assert_int_equal(read_one(section), SL_ERR_PROTOCOL);
    section = whole_arrays;
    section.count = 0;
    assert_int_equal(read_one(section), SL_ERR_PROTOCOL);
    section = whole_arrays;
    section.table_id = SL_LIMIT_TABLES;
    assert_int_equal(read_one(section), SL_ERR_PROTOCOL);
}

SL_CASE(request_read_section__keeps_pieces_within_their_array)
{
    assert_int_equal(read_one(array_piece), SL_OK);
    struct sl_request_section section = array_piece;
    section.start = 5;
    assert_int_equal(read_one(section), SL_ERR_PROTOCOL);
    section.start = UINT64_MAX; /* start + count wraps round */
    assert_int_equal(read_one(section), SL_ERR_PROTOCOL);
    section = array_piece;
    section.count = 10;
    assert_int_equal(read_one(section), SL_ERR_PROTOCOL);
    section = array_piece;
    section.key_count = 2;
    assert_int_equal(read_one(section), SL_ERR_PROTOCOL);
    section = array_piece;
    section.flags = SL_REQUEST_FLAG_LENS;
    assert_int_equal(read_one(section), SL_ERR_PROTOCOL);
    section = array_piece;
    section.bag_count = UINT32_MAX;
    section.start = UINT32_MAX - section.count;
    assert_int_equal(read_one(section), SL_OK);
}

SL_CASE(request_read_section__asks_lengths_of_keys_alone)
{
    const struct sl_request_section good = {.op = SL_REQUEST_KV_LENGTHS, .key_count = 3};
    assert_int_equal(read_one(good), SL_OK);
    for (int i = 0; i < 6; i++) {
        struct sl_request_section bad = good;
        bad.flags = i == 0;
        bad.command = i == 1;
        bad.bag_count = i == 2;
        bad.start = i == 3;
        bad.count = i == 4;
        bad.key_count = i == 5 ? 0 : 3;
        assert_int_equal(read_one(bad), SL_ERR_PROTOCOL);
    }
}

/* A body of two keys with lens, and six bytes. */
struct arrays_body {
    uint64_t keys[2];
    uint32_t lens[2];
    uint8_t values[8];
};

static int read_arrays(const struct arrays_body *body, uint32_t dim)
{
    struct sl_request_section section = whole_arrays;
    struct sl_request_view view;
    section.op = SL_REQUEST_KV_PUSH;
    section.flags = SL_REQUEST_FLAG_LENS;
    struct sl_bytes cursor = sl_bytes_over(body, sizeof *body);
    return sl_request_read_body(&cursor, &section, dim, &view);
}

SL_CASE(request_read_body__wants_lens_that_add_up)
{
    const struct arrays_body good = {.lens = {2, 4}};
    assert_int_equal(read_arrays(&good, 1), SL_OK);
    assert_int_equal(read_arrays(&good, 4), SL_ERR_PROTOCOL); /* truncated */
    for (uint32_t dim = 0; dim < 9; dim++) {
        assert_int_equal(read_arrays(&good, dim), dim == 1 ? SL_OK : SL_ERR_PROTOCOL);
    }
    struct arrays_body bad = good;
    bad.lens[0] = 1;
    assert_int_equal(read_arrays(&bad, 1), SL_ERR_PROTOCOL);
    bad.lens[0] = 0;
    bad.lens[1] = 6;
    assert_int_equal(read_arrays(&bad, 1), SL_ERR_PROTOCOL);
    bad.lens[0] = 7; /* their sum is 6 in 32 bits */
    bad.lens[1] = UINT32_MAX;
    assert_int_equal(read_arrays(&bad, 1), SL_ERR_PROTOCOL);
    bad = good;
    bad.values[6] = 1; /* padding */
    assert_int_equal(read_arrays(&bad, 1), SL_ERR_PROTOCOL);
}
