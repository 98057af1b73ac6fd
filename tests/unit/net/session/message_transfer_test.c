#include <stdlib.h>
#include <string.h>

#include "core/hash.h"
#include "net/session/message.h"
#include "random_message.h"
#include "tests/support/unit.h"

#define KIND_COUNT (SL_MESSAGE_FENCED - SL_MESSAGE_SEGMENT_GET + 1)

static const uint8_t attached[SL_MESSAGE_ATTACHED_BYTES + 1];

static uint32_t below(uint64_t *seed, uint32_t limit)
{
    return (uint32_t)(sl_hash_random(seed) % limit);
}

static void random_buffers(uint64_t *seed, struct sl_message_buffers *to)
{
    to->count = below(seed, 8);
    to->items = calloc(to->count + 1, sizeof *to->items);
    uint64_t address = 1;
    for (uint32_t i = 0; i < to->count; i++) {
        struct sl_message_buffer *buffer = &to->items[i];
        address += below(seed, 2) == 0 ? 0 : sl_hash_random(seed) >> 8;
        buffer->key = sl_hash_random(seed);
        buffer->address = address;
        buffer->bytes = 1 + (sl_hash_random(seed) >> 8);
        address += buffer->bytes;
        buffer->access = below(seed, 4);
        random_message_name(seed, buffer->location, sizeof buffer->location);
        buffer->token_count = below(seed, SL_MESSAGE_TOKENS_MAX + 1);
        for (uint32_t k = 0; k < buffer->token_count; k++) {
            struct sl_message_token *token = &buffer->tokens[k];
            token->endpoint = (uint16_t)below(seed, SL_MESSAGE_ENDPOINTS_MAX);
            token->byte_count = (uint8_t)below(seed, SL_MESSAGE_TOKEN_BYTES + 1);
            memset(token->bytes, below(seed, 256) & 0xff, token->byte_count);
        }
    }
}

static void random_segment(uint64_t *seed, struct sl_message_segment *to)
{
    to->incarnation = sl_hash_random(seed);
    random_message_name(seed, to->host, sizeof to->host);
    to->endpoint_count = below(seed, 5);
    to->endpoints = calloc(to->endpoint_count + 1, sizeof *to->endpoints);
    for (uint32_t i = 0; i < to->endpoint_count; i++) {
        random_message_name(seed, to->endpoints[i].endpoint, sizeof to->endpoints[i].endpoint);
        random_message_name(seed, to->endpoints[i].device, sizeof to->endpoints[i].device);
    }
    if (below(seed, 2) == 0) {
        to->matrix = malloc(SL_MESSAGE_MATRIX_BYTES);
        random_message_name(seed, to->matrix, SL_MESSAGE_MATRIX_BYTES);
    }
    random_buffers(seed, &to->buffers);
    to->more = to->buffers.count > 0 && below(seed, 2) == 0;
}

static void random_message(uint64_t *seed, enum sl_message_kind kind, struct sl_message *to)
{
    memset(to, 0, sizeof *to);
    to->kind = kind;
    to->id = sl_hash_random(seed);
    switch (kind) {
    case SL_MESSAGE_SEGMENT_GET:
        to->above = sl_hash_random(seed);
        break;
    case SL_MESSAGE_SEGMENT:
        random_segment(seed, &to->segment);
        break;
    case SL_MESSAGE_BUFFER_ADDED:
        random_buffers(seed, &to->buffers);
        break;
    case SL_MESSAGE_BUFFER_GONE:
    case SL_MESSAGE_BUFFER_RELEASED:
        to->keys.count = 1 + below(seed, SL_MESSAGE_BUFFERS_MAX);
        for (uint32_t i = 0; i < to->keys.count; i++) {
            to->keys.items[i] = sl_hash_random(seed);
        }
        break;
    case SL_MESSAGE_NOTICE:
        to->notice.sequence = 1 + below(seed, 1000);
        random_message_name(seed, to->notice.sender, sizeof to->notice.sender);
        random_message_name(seed, to->notice.name, sizeof to->notice.name);
        to->notice.byte_count = below(seed, SL_MESSAGE_NOTICE_BYTES + 1);
        memset(to->notice.bytes, below(seed, 256) & 0xff, to->notice.byte_count);
        to->notice.attached = attached;
        to->notice.attached_bytes = below(seed, 300);
        break;
    case SL_MESSAGE_FENCE:
        to->fence.lane = 1 + below(seed, 100);
        to->fence.epoch = 1 + below(seed, 100);
        break;
    default:
        break;
    }
}

SL_CASE(message_transfer__returns_what_was_encoded)
{
    uint64_t seed = 1;
    for (int i = 0; i < 100 * KIND_COUNT; i++) {
        struct sl_message message;
        random_message(&seed, (enum sl_message_kind)(SL_MESSAGE_SEGMENT_GET + i % KIND_COUNT),
                       &message);
        random_message_assert_returned(&message);
        sl_message_fini(&message);
    }
}

SL_CASE(message_transfer__survives_every_changed_byte)
{
    uint64_t seed = 2;
    for (int i = 0; i < 3 * KIND_COUNT; i++) {
        struct sl_message message, decoded;
        random_message(&seed, (enum sl_message_kind)(SL_MESSAGE_SEGMENT_GET + i % KIND_COUNT),
                       &message);
        size_t bytes;
        uint8_t *encoded = random_message_encode(&message, &bytes);
        for (size_t at = 0; at < bytes; at++) {
            uint8_t was = encoded[at];
            encoded[at] = (uint8_t)sl_hash_random(&seed);
            const int err = sl_message_decode(encoded, bytes, &decoded);
            assert_true(err == SL_OK || err == SL_ERR_PROTOCOL);
            if (err == SL_OK) {
                size_t again_bytes;
                free(random_message_encode(&decoded,
                                           &again_bytes)); /* what was let in can be sent on */
                sl_message_fini(&decoded);
            }
            encoded[at] = was;
        }
        sl_message_fini(&message);
        free(encoded);
    }
}

static int decode_buffers(struct sl_message_buffer *buffers, uint32_t count)
{
    return random_message_decode(&(struct sl_message){
        .kind = SL_MESSAGE_BUFFER_ADDED, .buffers = {.items = buffers, .count = count}});
}

SL_CASE(message_transfer__refuses_odd_buffers)
{
    struct sl_message_buffer buffers[2] = {{.address = 16, .bytes = 16},
                                           {.address = 32, .bytes = UINT64_MAX - 32}};
    assert_int_equal(decode_buffers(buffers, 2), SL_OK);
    buffers[1].bytes++; /* the end is 2^64 */
    assert_int_equal(decode_buffers(buffers, 2), SL_ERR_PROTOCOL);
    buffers[1].bytes = 0;
    assert_int_equal(decode_buffers(buffers, 2), SL_ERR_PROTOCOL);
    buffers[1] = (struct sl_message_buffer){.address = 31, .bytes = 1}; /* overlaps */
    assert_int_equal(decode_buffers(buffers, 2), SL_ERR_PROTOCOL);
    buffers[1].address = 8;
    assert_int_equal(decode_buffers(buffers, 2), SL_ERR_PROTOCOL);
    assert_int_equal(decode_buffers(buffers, 1), SL_OK);
    buffers[0].address = 0;
    assert_int_equal(decode_buffers(buffers, 1), SL_ERR_PROTOCOL);
    buffers[0] = (struct sl_message_buffer){.address = 1, .bytes = 1, .access = 4};
    assert_int_equal(decode_buffers(buffers, 1), SL_ERR_PROTOCOL);
}

SL_CASE(message_transfer__takes_the_largest_page)
{
    struct sl_message message = {.kind = SL_MESSAGE_SEGMENT};
    struct sl_message_segment *segment = &message.segment;
    segment->more = true;
    segment->endpoint_count = SL_MESSAGE_ENDPOINTS_MAX;
    segment->endpoints = calloc(segment->endpoint_count, sizeof *segment->endpoints);
    for (uint32_t i = 0; i < segment->endpoint_count; i++) {
        memset(segment->endpoints[i].endpoint, 'e', SL_LIMIT_ENDPOINT_BYTES - 1);
        memset(segment->endpoints[i].device, 'd', SL_MESSAGE_DEVICE_BYTES - 1);
    }
    segment->matrix = calloc(1, SL_MESSAGE_MATRIX_BYTES);
    memset(segment->matrix, 'm', SL_MESSAGE_MATRIX_BYTES - 1);
    segment->buffers.count = SL_MESSAGE_BUFFERS_MAX;
    segment->buffers.items = calloc(SL_MESSAGE_BUFFERS_MAX, sizeof *segment->buffers.items);
    for (uint32_t i = 0; i < SL_MESSAGE_BUFFERS_MAX; i++) {
        struct sl_message_buffer *buffer = &segment->buffers.items[i];
        buffer->key = UINT64_MAX;
        buffer->address = ((uint64_t)1 << 62) + i;
        buffer->bytes = 1;
        memset(buffer->location, 'l', SL_MESSAGE_LOCATION_BYTES - 1);
        buffer->token_count = SL_MESSAGE_TOKENS_MAX;
        for (uint32_t k = 0; k < SL_MESSAGE_TOKENS_MAX; k++) {
            buffer->tokens[k].byte_count = SL_MESSAGE_TOKEN_BYTES;
        }
    }
    assert_int_equal(random_message_decode(&message), SL_OK);
    segment->endpoints[7].endpoint[0] = '\0';
    assert_int_equal(random_message_decode(&message), SL_ERR_PROTOCOL);
    segment->endpoints[7].endpoint[0] = 'e';
    segment->buffers.count = 0; /* more after none */
    assert_int_equal(random_message_decode(&message), SL_ERR_PROTOCOL);
    sl_message_fini(&message);
}

SL_CASE(message_transfer__checks_hellos_and_fences)
{
    struct sl_message hello = {.kind = SL_MESSAGE_HELLO,
                               .hello = {.purpose = SL_MESSAGE_PURPOSE_TRANSFER,
                                         .role = SL_MESSAGE_ROLE_CLIENT,
                                         .lane = 3,
                                         .lane_epoch = 1}};
    assert_int_equal(random_message_decode(&hello), SL_OK);
    hello.hello.role = SL_MESSAGE_ROLE_PS;
    assert_int_equal(random_message_decode(&hello), SL_ERR_PROTOCOL);
    hello.hello.role = SL_MESSAGE_ROLE_CLIENT;
    hello.hello.lane_epoch = 0;
    assert_int_equal(random_message_decode(&hello), SL_ERR_PROTOCOL);
    struct sl_message fence = {.kind = SL_MESSAGE_FENCE, .fence = {.lane = 0, .epoch = 1}};
    assert_int_equal(random_message_decode(&fence), SL_ERR_PROTOCOL);
    struct sl_message notice = {.kind = SL_MESSAGE_NOTICE};
    assert_int_equal(random_message_decode(&notice), SL_ERR_PROTOCOL);
}

SL_CASE(message_transfer__refuses_an_attachment_that_is_too_long)
{
    /* The last field: 73728 bytes, the limit. */
    static const uint8_t header[] = {7 << 3 | 2, 0x80, 0xc0, 0x04};
    struct sl_message decoded;
    const struct sl_message message = {.kind = SL_MESSAGE_NOTICE,
                                       .notice = {.sequence = 1,
                                                  .sender = "s",
                                                  .name = "n",
                                                  .attached = attached,
                                                  .attached_bytes = SL_MESSAGE_ATTACHED_BYTES}};
    size_t bytes;
    uint8_t *encoded = random_message_encode(&message, &bytes);
    assert_int_equal(sl_message_decode(encoded, bytes, &decoded), SL_OK);
    assert_int_equal(decoded.notice.attached_bytes, SL_MESSAGE_ATTACHED_BYTES);
    assert_ptr_equal(decoded.notice.attached + SL_MESSAGE_ATTACHED_BYTES, encoded + bytes);
    encoded = realloc(encoded, bytes + 1);
    assert_non_null(encoded);
    encoded[bytes] = 0;
    uint8_t *field = encoded + bytes - SL_MESSAGE_ATTACHED_BYTES - sizeof header;
    assert_memory_equal(field, header, sizeof header);
    field[1]++;
    encoded[2]++; /* behind a tag of two bytes: the length of the message */
    assert_int_equal(sl_message_decode(encoded, bytes + 1, &decoded), SL_ERR_PROTOCOL);
    free(encoded);
}
