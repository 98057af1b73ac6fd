#include <string.h>

#include "core/hash.h"
#include "net/wire/frame.h"
#include "tests/support/unit.h"

static struct sl_frame random_frame(uint64_t *seed)
{
    struct sl_frame frame = {
        .type = (uint8_t)(1 + sl_hash_random(seed) % 5),
        .request_id = sl_hash_random(seed),
        .budget_us = (uint32_t)sl_hash_random(seed),
        .credit_bytes = (uint32_t)sl_hash_random(seed),
        .credit_requests = (uint16_t)sl_hash_random(seed),
    };
    if (frame.type == SL_FRAME_REPLY) {
        frame.status = (uint8_t)sl_hash_random(seed);
    }
    if (frame.type != SL_FRAME_CREDIT) {
        frame.payload_bytes =
            (uint32_t)(sl_hash_random(seed) % (SL_LIMIT_CONTROL_PAYLOAD_BYTES + 1));
    }
    return frame;
}

SL_CASE(frame_decode__returns_what_was_encoded)
{
    uint64_t seed = 1;
    for (int i = 0; i < 10000; i++) {
        struct sl_frame frame = random_frame(&seed);
        uint8_t bytes[SL_FRAME_HEADER_BYTES + 1];
        uint8_t *header = bytes + i % 2; /* any alignment */
        sl_frame_encode(&frame, header);
        struct sl_frame decoded;
        assert_int_equal(sl_frame_decode(header, &decoded), SL_OK);
        frame.magic = SL_FRAME_MAGIC;
        frame.version = SL_FRAME_PROTOCOL_VERSION;
        assert_memory_equal(&decoded, &frame, sizeof frame);
    }
}

SL_CASE(frame_decode__refuses_what_is_no_frame)
{
    static const struct {
        size_t offset;
        uint8_t value;
        int err;
    } cases[] = {
        {4, 'X', SL_ERR_PROTOCOL},   /* magic */
        {6, 99, SL_ERR_VERSION},     /* version */
        {6, 0, SL_ERR_VERSION},      /**/
        {7, 0, SL_ERR_PROTOCOL},     /* type */
        {7, 6, SL_ERR_PROTOCOL},     /**/
        {20, 1, SL_ERR_PROTOCOL},    /* a checksum without its flag */
        {30, 2, SL_ERR_PROTOCOL},    /* an unknown flag */
        {30, 0x81, SL_ERR_PROTOCOL}, /**/
        {31, 1, SL_ERR_PROTOCOL},    /* a status in a request */
        {3, 1, SL_ERR_TOO_LARGE},    /* payload_bytes, 16 MiB more */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint8_t header[SL_FRAME_HEADER_BYTES];
        sl_frame_encode(&(struct sl_frame){.type = SL_FRAME_REQUEST, .request_id = 1}, header);
        header[cases[i].offset] = cases[i].value;
        struct sl_frame decoded;
        assert_int_equal(sl_frame_decode(header, &decoded), cases[i].err);
    }
}

SL_CASE(frame_decode__tells_the_version_of_another_protocol)
{
    uint8_t header[SL_FRAME_HEADER_BYTES];
    memset(header, 0xff, sizeof header);
    memcpy(header + 4, "LS\x09", 3);
    struct sl_frame decoded;
    assert_int_equal(sl_frame_decode(header, &decoded), SL_ERR_VERSION);
    assert_int_equal(decoded.version, 9);
}

SL_CASE(frame_decode__has_a_limit_for_each_type)
{
    static const struct {
        uint8_t type;
        uint32_t bytes_max;
    } cases[] = {
        {SL_FRAME_CONTROL, SL_LIMIT_CONTROL_PAYLOAD_BYTES},
        {SL_FRAME_REQUEST, SL_LIMIT_FRAME_PAYLOAD_BYTES},
        {SL_FRAME_REPLY, SL_LIMIT_FRAME_PAYLOAD_BYTES},
        {SL_FRAME_CREDIT, 0},
        {SL_FRAME_DATA, SL_LIMIT_FRAME_PAYLOAD_BYTES},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sl_frame frame = {.type = cases[i].type, .payload_bytes = cases[i].bytes_max};
        uint8_t header[SL_FRAME_HEADER_BYTES];
        struct sl_frame decoded;
        sl_frame_encode(&frame, header);
        assert_int_equal(sl_frame_decode(header, &decoded), SL_OK);
        frame.payload_bytes++;
        sl_frame_encode(&frame, header);
        assert_int_equal(sl_frame_decode(header, &decoded), SL_ERR_TOO_LARGE);
    }
}

SL_CASE(frame_verify__notices_each_changed_byte)
{
    uint8_t bytes[SL_FRAME_HEADER_BYTES + 21];
    struct sl_frame frame = {.type = SL_FRAME_REPLY, .request_id = 7, .payload_bytes = 21};
    sl_frame_encode(&frame, bytes);
    memset(bytes + SL_FRAME_HEADER_BYTES, 0x5a, 21);
    sl_frame_seal(bytes, bytes + SL_FRAME_HEADER_BYTES, 8, bytes + SL_FRAME_HEADER_BYTES + 8, 13);
    struct sl_frame decoded;
    assert_int_equal(sl_frame_decode(bytes, &decoded), SL_OK);
    assert_int_equal(decoded.flags, SL_FRAME_CHECKSUM);
    assert_int_equal(sl_frame_verify(&decoded, bytes + SL_FRAME_HEADER_BYTES), SL_OK);
    for (size_t i = 0; i < sizeof bytes; i++) {
        for (int bit = 0; bit < 8; bit++) {
            bytes[i] ^= (uint8_t)(1 << bit);
            int err = sl_frame_decode(bytes, &decoded);
            if (err == SL_OK && decoded.payload_bytes == 21) {
                assert_int_equal(sl_frame_verify(&decoded, bytes + SL_FRAME_HEADER_BYTES),
                                 SL_ERR_CORRUPT);
            }
            bytes[i] ^= (uint8_t)(1 << bit);
        }
    }
}
