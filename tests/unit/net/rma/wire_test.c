#include <string.h>

#include "net/rma/wire.h"
#include "tests/support/unit.h"

#define BYTES_MAX 8192

static int read_request(uint32_t count, uint32_t zero, size_t bytes, uint64_t first_id)
{
    static uint8_t payload[BYTES_MAX];
    memcpy(payload, &count, sizeof count);
    memcpy(payload + 4, &zero, sizeof zero);
    struct sl_bytes cursor = sl_bytes_over(payload, bytes);
    uint32_t read;
    const int err = sl_rma_wire_read_request(&cursor, first_id, &read);
    if (err == 0) {
        assert_int_equal(read, count);
    }
    return err;
}

SL_CASE(rma_wire_read_request__checks_count_and_ids)
{
    assert_int_equal(read_request(1, 0, 32, 1), 0);
    assert_int_equal(read_request(SL_LIMIT_TRANSFER_SLICES, 0, sl_rma_wire_request_bytes(256), 1),
                     0);
    assert_int_equal(read_request(257, 0, sl_rma_wire_request_bytes(257), 1), SL_ERR_PROTOCOL);
    assert_int_equal(read_request(0, 0, 8, 1), SL_ERR_PROTOCOL);
    assert_int_equal(read_request(UINT32_MAX, 0, 32, 1), SL_ERR_PROTOCOL);
    assert_int_equal(read_request(1, 1, 32, 1), SL_ERR_PROTOCOL);
    assert_int_equal(read_request(1, 0, 31, 1), SL_ERR_PROTOCOL);
    assert_int_equal(read_request(1, 0, 33, 1), SL_ERR_PROTOCOL);
    assert_int_equal(read_request(1, 0, 0, 1), SL_ERR_PROTOCOL);
    assert_int_equal(read_request(1, 0, 32, 0), SL_ERR_PROTOCOL);
    assert_int_equal(read_request(2, 0, 56, UINT64_MAX - 2), 0);
    assert_int_equal(read_request(2, 0, 56, UINT64_MAX - 1), SL_ERR_PROTOCOL);
}

static int read_slice(uint32_t bytes, uint8_t op, uint8_t last)
{
    const struct sl_rma_wire_slice slice = {
        .key = 7, .offset = UINT64_MAX, .bytes = bytes, .op = op, .zeros = {0, 0, last}};
    struct sl_bytes cursor = sl_bytes_over(&slice, sizeof slice);
    struct sl_rma_wire_slice read;
    const int err = sl_rma_wire_read_slice(&cursor, &read);
    if (err == 0) {
        assert_memory_equal(&read, &slice, sizeof slice);
    }
    return err;
}

SL_CASE(rma_wire_read_slice__checks_length_and_op)
{
    assert_int_equal(read_slice(1, SL_RMA_READ, 0), 0);
    assert_int_equal(read_slice(SL_LIMIT_FRAME_PAYLOAD_BYTES, SL_RMA_WRITE, 0), 0);
    assert_int_equal(read_slice(0, SL_RMA_READ, 0), SL_ERR_PROTOCOL);
    assert_int_equal(read_slice(SL_LIMIT_FRAME_PAYLOAD_BYTES + 1, SL_RMA_READ, 0), SL_ERR_PROTOCOL);
    assert_int_equal(read_slice(1, 0, 0), SL_ERR_PROTOCOL);
    assert_int_equal(read_slice(1, 3, 0), SL_ERR_PROTOCOL);
    assert_int_equal(read_slice(1, SL_RMA_READ, 1), SL_ERR_PROTOCOL);
    struct sl_bytes cursor = sl_bytes_over("", 0);
    struct sl_rma_wire_slice read;
    assert_int_equal(sl_rma_wire_read_slice(&cursor, &read), SL_ERR_PROTOCOL);
}

SL_CASE(rma_wire_read_applied__takes_a_count_and_nothing_else)
{
    const uint32_t payload[3] = {256, 0, 0};
    uint32_t count = 0;
    struct sl_bytes cursor = sl_bytes_over(payload, 8);
    assert_int_equal(sl_rma_wire_read_applied(&cursor, &count), 0);
    assert_int_equal(count, 256);
    cursor = sl_bytes_over(payload, 12);
    assert_int_equal(sl_rma_wire_read_applied(&cursor, &count), SL_ERR_PROTOCOL);
    cursor = sl_bytes_over(payload, 4);
    assert_int_equal(sl_rma_wire_read_applied(&cursor, &count), SL_ERR_PROTOCOL);
    cursor = sl_bytes_over(payload + 1, 8);
    assert_int_equal(sl_rma_wire_read_applied(&cursor, &count), SL_ERR_PROTOCOL);
}
