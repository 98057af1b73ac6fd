#include "programs/serve/base/message.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "objects/catalogue/manifest.h"
#include "tests/support/page_example.h"
#include "tests/support/unit.h"

static struct sl_serve_message message, again;
static struct sl_reason reason;
static uint8_t wire[SL_SERVE_MESSAGE_BYTES + 1];

static void fill(char *text, size_t bytes, char letter)
{
    memset(text, letter, bytes - 1);
    text[bytes - 1] = '\0';
}

static struct sl_serve_tensor *add_tensor(uint64_t rows, uint64_t offset)
{
    struct sl_serve_tensor *tensor = &message.tensors[message.tensor_count++];
    fill(tensor->name, sizeof tensor->name, 't');
    tensor->type = SL_OBJECT_F32;
    tensor->rank = SL_OBJECTS_RANK_MAX;
    for (uint32_t i = 0; i < SL_OBJECTS_RANK_MAX; i++) {
        tensor->shape[i] = i == 0 ? rows : 1;
    }
    tensor->offset = offset;
    tensor->bytes = 4 * rows;
    return tensor;
}

static void set_name(char *to, const char *name)
{
    (void)snprintf(to, SL_SERVE_TENSOR_NAME, "%s", name);
}

/* A message with the longest texts and the most items. */
static void make_full(uint32_t kind)
{
    memset(&message, 0, sizeof message);
    message.kind = kind;
    message.incarnation = kind == SL_SERVE_MESSAGE_LOAD || kind == SL_SERVE_MESSAGE_DONE ? 0 : 5;
    switch (kind) {
    case SL_SERVE_MESSAGE_JOIN:
        fill(message.join.host, sizeof message.join.host, 'h');
        message.join.arena_address = INT64_MAX;
        message.join.arena_bytes = 64 << 20;
        message.join.batch_max = 32;
        break;
    case SL_SERVE_MESSAGE_LOAD:
        message.request = UINT64_MAX;
        message.queue_count = 3;
        message.queue_ns = 4000;
        fill(message.current, sizeof message.current, 'c');
        message.load_count = SL_SERVE_LOADS_MAX;
        for (uint32_t i = 0; i < SL_SERVE_LOADS_MAX; i++) {
            struct sl_serve_load *one = &message.loads[i];
            *one = (struct sl_serve_load){.version = i + 1,
                                          .bytes = 100,
                                          .resident_bytes = 100 - i,
                                          .alpha_ns = 20000,
                                          .beta_ps = 300,
                                          .batch_ns = 5,
                                          .row_ns = 6,
                                          .exposed_ns = INT64_MAX};
            fill(one->model, sizeof one->model, (char)('a' + i));
        }
        break;
    case SL_SERVE_MESSAGE_INFER:
        message.request = UINT64_MAX;
        message.request_kind = SL_SERVE_LOAD;
        fill(message.model, sizeof message.model, 'm');
        message.version = 7;
        message.deadline_us = 1000000;
        message.input_address = 1 << 20;
        message.input_bytes = 64 * SL_SERVE_TENSORS_MAX;
        message.output_address = 1 << 21;
        message.output_room = 1 << 22;
        break;
    case SL_SERVE_MESSAGE_DONE:
        message.err = SL_ERR_DEADLINE;
        fill(message.text, sizeof message.text, 'x');
        message.version = 7;
        message.output_bytes = 64 * SL_SERVE_TENSORS_MAX;
        message.queue_us = 1;
        message.load_us = 2;
        message.compute_us = UINT32_MAX;
        break;
    case SL_SERVE_MESSAGE_CANCEL:
        message.request = 9;
        break;
    default:
        break;
    }
    const bool has_tensors = kind == SL_SERVE_MESSAGE_INFER || kind == SL_SERVE_MESSAGE_DONE;
    for (uint64_t i = 0; has_tensors && i < SL_SERVE_TENSORS_MAX; i++) {
        add_tensor(16, 64 * i);
    }
}

static uint32_t encode(const struct sl_serve_message *from, void *to)
{
    const int length = sl_serve_message_encode(from, to, &reason);
    assert_true(length > 0);
    return (uint32_t)length;
}

/* Its own allocation, so that a sanitizer sees every byte too many. */
static int decode(size_t bytes)
{
    uint8_t *exact = malloc(bytes + 1);
    assert_non_null(exact);
    memcpy(exact, wire, bytes);
    reason.text[0] = '\0';
    const int err = sl_serve_message_decode(exact, (uint32_t)bytes, &again, &reason);
    free(exact);
    assert_true((err == 0) == (reason.text[0] == '\0'));
    return err;
}

SL_CASE(message_decode__gives_what_was_sent)
{
    for (uint32_t kind = 1; kind < SL_SERVE_MESSAGE_KINDS; kind++) {
        make_full(kind);
        assert_int_equal(decode(encode(&message, wire)), 0);
        assert_memory_equal(&again, &message, sizeof message);
    }
}

SL_CASE(message_decode__every_other_length_is_refused)
{
    for (uint32_t kind = 1; kind < SL_SERVE_MESSAGE_KINDS; kind++) {
        make_full(kind);
        const uint32_t length = encode(&message, wire);
        for (uint32_t bytes = 0; bytes < length; bytes++) {
            assert_int_equal(decode(bytes), SL_ERR_PROTOCOL);
        }
        wire[length] = 0;
        assert_int_equal(decode(length + 1), SL_ERR_PROTOCOL);
    }
    assert_int_equal(decode(SL_SERVE_MESSAGE_BYTES + 1), SL_ERR_PROTOCOL);
}

SL_CASE(message_decode__any_byte_is_an_error_or_encoded_again)
{
    static const uint8_t VALUES[] = {0, 1, 63, ' ', '@', 0x7f, 0x80, 0xff};
    uint8_t back[SL_SERVE_MESSAGE_BYTES];
    uint32_t refused = 0;
    for (uint32_t kind = 1; kind < SL_SERVE_MESSAGE_KINDS; kind++) {
        make_full(kind);
        const uint32_t length = encode(&message, wire);
        for (uint32_t at = 0; at < length; at++) {
            const uint8_t before = wire[at];
            for (size_t i = 0; i < sizeof VALUES; i++) {
                wire[at] = VALUES[i];
                if (decode(length) == 0) {
                    assert_int_equal(encode(&again, back), length);
                    assert_memory_equal(back, wire, length);
                } else {
                    refused++;
                }
            }
            wire[at] = before;
        }
    }
    assert_true(refused > 1000);
}

/* The message with one number of its bytes replaced, at the place where the encoded bytes differ
 * between two values of the member. */
static void refuse(uint32_t kind, uint64_t *member, uint64_t bad, const char *name)
{
    uint8_t other[SL_SERVE_MESSAGE_BYTES];
    const uint64_t good = *member;
    const uint32_t length = encode(&message, wire);
    *member = good ^ 1;
    encode(&message, other);
    *member = good;
    uint32_t at = 0;
    while (at < length && wire[at] == other[at]) {
        at++;
    }
    assert_true(at < length);
    memcpy(wire + at, &bad, sizeof bad);
    assert_int_equal(decode(length), SL_ERR_PROTOCOL);
    assert_non_null(strstr(reason.text, sl_serve_message_name(kind)));
    assert_non_null(strstr(reason.text, name));
}

SL_CASE(message_decode__numbers_have_their_limits)
{
    make_full(SL_SERVE_MESSAGE_JOIN);
    refuse(message.kind, &message.join.arena_bytes, 1ULL << 63, "`join.arena_bytes`");
    make_full(SL_SERVE_MESSAGE_LOAD);
    refuse(message.kind, &message.loads[2].resident_bytes, 102, "`resident_bytes`");
    refuse(message.kind, &message.loads[2].exposed_ns, 1ULL << 63, "`exposed_ns`");
    make_full(SL_SERVE_MESSAGE_INFER);
    refuse(message.kind, &message.request, 0, "`request`");
    refuse(message.kind, &message.deadline_us, INT64_MAX, "`deadline_us`");
    refuse(message.kind, &message.input_address, 1ULL << 63, "`input_address`");
    refuse(message.kind, &message.output_room, 1ULL << 63, "`output_room`");
    make_full(SL_SERVE_MESSAGE_CANCEL);
    refuse(message.kind, &message.request, 0, "`request`");
}

/* Writes a tensor that is wrong in one number over a right one of the same length. */
static void refuse_tensor(struct sl_serve_tensor wrong)
{
    make_full(SL_SERVE_MESSAGE_INFER);
    const uint32_t length = encode(&message, wire);
    uint8_t *at = wire + length - (4 + 4 + 8 * SL_OBJECTS_RANK_MAX + 8 + 8);
    memcpy(at, &wrong.type, 4);
    memcpy(at + 4, &wrong.rank, 4);
    memcpy(at + 8, wrong.shape, sizeof wrong.shape);
    memcpy(at + 8 + sizeof wrong.shape, &wrong.offset, 8);
    memcpy(at + 16 + sizeof wrong.shape, &wrong.bytes, 8);
    const int err = decode(length);
    assert_int_equal(err, SL_ERR_PROTOCOL);
    assert_non_null(strstr(reason.text, "`tensor"));
}

SL_CASE(message_decode__tensors_lie_in_the_inputs)
{
    make_full(SL_SERVE_MESSAGE_INFER);
    const struct sl_serve_tensor right = message.tensors[SL_SERVE_TENSORS_MAX - 1];
    struct sl_serve_tensor wrong = right;
    wrong.type = 999;
    refuse_tensor(wrong);
    wrong = right;
    wrong.rank = SL_OBJECTS_RANK_MAX + 1;
    refuse_tensor(wrong);
    wrong = right;
    wrong.shape[3] = 1ULL << 62; /* the product overflows */
    refuse_tensor(wrong);
    wrong = right;
    wrong.shape[0] = 15; /* not of that many bytes */
    refuse_tensor(wrong);
    wrong = right;
    wrong.offset += 4;
    refuse_tensor(wrong);
    wrong = right;
    wrong.offset += 64;
    refuse_tensor(wrong);
    wrong = right;
    wrong.offset = UINT64_MAX - 63;
    refuse_tensor(wrong);
}

SL_CASE(message_decode__an_error_is_negative)
{
    make_full(SL_SERVE_MESSAGE_DONE);
    const uint32_t length = encode(&message, wire);
    for (int err = -3; err < 4; err++) {
        memcpy(wire + 4, &err, sizeof err);
        assert_int_equal(decode(length), err <= 0 ? 0 : SL_ERR_PROTOCOL);
    }
}

/* The tail fills the message, or is not there; an error has none. */
static void pass_tail(uint32_t kind, uint64_t *bytes)
{
    static uint8_t tail[SL_SERVE_MESSAGE_BYTES];
    make_full(kind);
    message.err = 0;
    message.tensor_count = 0;
    const uint32_t length = encode(&message, wire);
    *bytes = SL_SERVE_MESSAGE_BYTES - length;
    memset(tail, 0x5a, sizeof tail);
    message.tail = tail;
    assert_int_equal(encode(&message, wire), SL_SERVE_MESSAGE_BYTES);
    assert_int_equal(sl_serve_message_decode(wire, SL_SERVE_MESSAGE_BYTES, &again, &reason), 0);
    assert_ptr_equal(again.tail, wire + length);
    assert_memory_equal(again.tail, tail, *bytes);
    for (uint32_t left = length + 1; left < SL_SERVE_MESSAGE_BYTES; left++) {
        assert_int_equal(decode(left), SL_ERR_PROTOCOL);
    }
    assert_int_equal(decode(length), 0);
    assert_null(again.tail);
    ++*bytes;
    assert_int_equal(sl_serve_message_encode(&message, wire, &reason), SL_ERR_TOO_LARGE);
    *bytes = 0;
    encode(&message, wire);
    assert_int_equal(decode(length), 0);
    assert_null(again.tail);
    assert_int_equal(decode(length + 1), SL_ERR_PROTOCOL);
}

SL_CASE(message_decode__tails_are_whole)
{
    pass_tail(SL_SERVE_MESSAGE_INFER, &message.input_bytes);
    pass_tail(SL_SERVE_MESSAGE_DONE, &message.output_bytes);
    make_full(SL_SERVE_MESSAGE_DONE); /* with an error */
    message.tail = wire;
    const uint32_t length = encode(&message, wire);
    assert_int_equal(decode(length), 0);
    assert_int_equal(decode(length + 1), SL_ERR_PROTOCOL);
}

SL_CASE(message_encode__refuses_what_decoding_refuses)
{
    static const char *const names[] = {
        "",         "x\x01", "y\x7f", "caf\xe9", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80",
        "\xe2\x82", "\xff"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        make_full(SL_SERVE_MESSAGE_INFER);
        set_name(message.tensors[1].name, names[i]);
        assert_int_equal(sl_serve_message_encode(&message, wire, &reason), SL_ERR_INVALID);
        assert_non_null(strstr(reason.text, "INFER"));
        assert_non_null(strstr(reason.text, "`tensor.name`"));
    }
    make_full(SL_SERVE_MESSAGE_DONE);
    message.tensors[0].bytes++;
    assert_int_equal(sl_serve_message_encode(&message, wire, &reason), SL_ERR_INVALID);
    message.kind = SL_SERVE_MESSAGE_KINDS;
    assert_int_equal(sl_serve_message_encode(&message, wire, &reason), SL_ERR_INVALID);
    make_full(SL_SERVE_MESSAGE_INFER);
    set_name(message.tensors[0].name, "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80");
    assert_int_equal(decode(encode(&message, wire)), 0);
}

/* Those of docs/protocol.md. */
static const float INPUTS[4] = {1, 2, 3, 4};
static const float OUTPUTS[16] = {0.5f, 0.25f, 0.25f};
static const struct sl_serve_message INFER = {.kind = SL_SERVE_MESSAGE_INFER,
                                              .incarnation = 0x1f2e3d4c5b6a7988,
                                              .request = 7,
                                              .model = "mlp",
                                              .deadline_us = 1000000,
                                              .input_address = 0x7f0000000000,
                                              .input_bytes = 16,
                                              .output_address = 0x7f0010000000,
                                              .output_room = 4096,
                                              .tensor_count = 1,
                                              .tensors = {{.name = "x",
                                                           .type = SL_OBJECT_F32,
                                                           .rank = 2,
                                                           .shape = {1, 4},
                                                           .offset = 0,
                                                           .bytes = 16}},
                                              .tail = (const uint8_t *)INPUTS};
static const struct sl_serve_message DONE = {.kind = SL_SERVE_MESSAGE_DONE,
                                             .version = 3,
                                             .queue_us = 50,
                                             .compute_us = 400,
                                             .output_bytes = 64,
                                             .tensor_count = 1,
                                             .tensors = {{.name = "y",
                                                          .type = SL_OBJECT_F32,
                                                          .rank = 2,
                                                          .shape = {1, 3},
                                                          .offset = 0,
                                                          .bytes = 12}},
                                             .tail = (const uint8_t *)OUTPUTS};

SL_CASE(message_encode__examples_of_the_page)
{
    uint8_t shown[SL_SERVE_MESSAGE_BYTES];
    const uint32_t infer = encode(&INFER, wire);
    assert_int_equal(sl_page_example("serve infer", shown), infer);
    assert_memory_equal(shown, wire, infer);
    const uint32_t done = encode(&DONE, wire);
    assert_int_equal(sl_page_example("serve done", shown), done);
    assert_memory_equal(shown, wire, done);
}

SL_CASE(message_name__of_any_number)
{
    assert_string_equal(sl_serve_message_name(SL_SERVE_MESSAGE_INFER), "INFER");
    assert_string_equal(sl_serve_message_name(0), "unknown");
    assert_string_equal(sl_serve_message_name(UINT32_MAX), "unknown");
}
