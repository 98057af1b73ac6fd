/* The formats here are written down once more, as in docs/protocol.md: random messages are made of
 * them byte by byte, and must be decoded, and encoded again to the same bytes. */
#include "objects/catalogue/message.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/bytes.h"
#include "tests/support/page_example.h"
#include "tests/support/unit.h"

/* A letter stands for a number or a text, as FIELDS says; [a-b ...] is a list of a to b items. */
#define RECORD "nNVQQo[0-16Q][1-64QQiQm]"
#define PEER   "QA"

static const struct format {
    uint32_t kind;
    int answer; /* 0: a request, 1: an answer, 2: an error */
    const char *body;
} FORMATS[] = {
    {SL_OBJECTS_ATTACH, 0, "QILS"},
    {SL_OBJECTS_ATTACH, 1, "JS"},
    {SL_OBJECTS_ALIVE, 0, "QILS"},
    {SL_OBJECTS_ALIVE, 1, "JS"},
    {SL_OBJECTS_BEGIN, 0, "nQpcoI"},
    {SL_OBJECTS_BEGIN, 1, "VQI[0-16" PEER "]"},
    {SL_OBJECTS_BEGIN, 2, "TQQ"},
    {SL_OBJECTS_COMMIT, 0, "pc[1-1" RECORD "]"},
    {SL_OBJECTS_COMMIT, 1, "[1-1" RECORD "]"},
    {SL_OBJECTS_FOLLOW, 0, "nQ"},
    {SL_OBJECTS_FOLLOW, 1, "[0-1" RECORD "]pQ[0-2" PEER "][0-4" PEER "]"},
    {SL_OBJECTS_FIND, 0, "nQp[0-4Q]"},
    {SL_OBJECTS_FIND, 1, "[0-1" RECORD "]pQ[0-2" PEER "][0-4" PEER "]"},
    {SL_OBJECTS_FIND, 2, "TQQ"},
    {SL_OBJECTS_NEWS, 0, "[0-1" RECORD "]pQ[0-2" PEER "][0-4" PEER "]"},
    {SL_OBJECTS_NEWS, 1, ""},
    {SL_OBJECTS_HOLD, 0, "nVpI[0-1" RECORD "]"},
    {SL_OBJECTS_DROP, 0, "nQp"},
    {SL_OBJECTS_LIST, 0, "PPQ"},
    {SL_OBJECTS_LIST, 1, "b[0-8nNVQQIco]"},
    {SL_OBJECTS_REMOVE, 0, "nQ"},
    {SL_OBJECTS_REMOVE, 1, ""},
    {SL_OBJECTS_TABLES, 0, "nVpcQJIWT"},
    {SL_OBJECTS_TABLES, 1, "III"},
    {SL_OBJECTS_RETIRE, 0, "nVpQQ"},
    {SL_OBJECTS_DETACH, 0, ""},
    {SL_OBJECTS_DETACH, 1, ""},
    {SL_OBJECTS_USE, 0, "nQ"},
    {SL_OBJECTS_FOLLOWERS, 0, "nQ"},
    {SL_OBJECTS_FOLLOWERS, 1, "[0-8ALQQQQQ]"},
    {SL_OBJECTS_BATCH, 1, ""}, /* its request: below */
    {SL_OBJECTS_PUT, 0, "pcJQ[1-1" RECORD "]"},
    {SL_OBJECTS_PUT, 1, "[0-1" RECORD "]"},
    {SL_OBJECTS_STORE, 0, "pcJ[1-1" RECORD "]"},
    {SL_OBJECTS_STORE, 1, ""},
    {SL_OBJECTS_WANT, 0, "nVpQQ"},
    {SL_OBJECTS_WANT, 1, "nVpQ[0-128gaG][0-96Q]"},
    {SL_OBJECTS_WANT, 2, "TQQ"},
    {SL_OBJECTS_DONE, 0, "nVp"},
    {SL_OBJECTS_HAVE, 0, "nVpQ[0-128gaG][0-96Q]"},
    {SL_OBJECTS_GONE, 0, "nVpT"},
};
#define FORMAT_COUNT (sizeof FORMATS / sizeof FORMATS[0])

#define STORED       ((256ULL << 30) + (48U << 20))

static const struct field {
    char letter;
    uint32_t bytes;       /* of a number; 0: a text */
    uint64_t least, most; /* a text: its length without NUL */
} FIELDS[] = {
    {'Q', 8, 0, UINT64_MAX}, {'V', 8, 1, UINT64_MAX}, {'I', 4, 0, UINT32_MAX},
    {'J', 4, 1, UINT32_MAX}, {'p', 4, 0, 63},         {'c', 4, 1, 64},
    {'o', 4, 0, 2},          {'b', 4, 0, 1},          {'i', 8, 0, 256ULL << 30},
    {'m', 4, 1, 48U << 20},  {'g', 8, 0, STORED},     {'G', 8, 1, STORED},
    {'a', 8, 0, INT64_MAX},  {'n', 0, 1, 191},        {'N', 0, 0, 255},
    {'A', 0, 0, 175},        {'L', 0, 0, 63},         {'P', 0, 0, 191},
    {'T', 0, 0, 255},        {'W', 0, 0, 2047},       {'S', 4, 0, 60000},
};

enum choice { LEAST, MOST, RANDOM };

/* What makes messages. */
static struct {
    uint8_t bytes[16384];
    size_t length;
    enum choice choice;
    uint64_t seed;
    int spoil; /* the letter or list with this number is made wrong; -1: none */
    int made;  /* letters and lists so far */
} maker;

static void add(const void *from, size_t bytes)
{
    assert_true(maker.length + bytes <= sizeof maker.bytes);
    memcpy(maker.bytes + maker.length, from, bytes);
    maker.length += bytes;
}

static uint64_t choose(uint64_t least, uint64_t most)
{
    if (maker.choice != RANDOM) {
        return maker.choice == LEAST ? least : most;
    }
    const uint64_t random = sl_hash_random(&maker.seed);
    return most - least == UINT64_MAX ? random : least + random % (most - least + 1);
}

/* False: every number of its bytes is right. */
static bool add_number(const struct field *field, bool spoil)
{
    uint64_t number = choose(field->least, field->most);
    const uint64_t room = field->bytes == 8 ? UINT64_MAX : UINT32_MAX;
    if (spoil) {
        number = field->most < room ? field->most + 1 : field->least - 1;
    }
    add(&number, field->bytes);
    return field->most < room || field->least > 0;
}

static void add_text(const struct field *field, bool spoil)
{
    const uint64_t length = spoil ? field->most + 1 : choose(field->least, field->most);
    for (uint64_t i = 0; i < length; i++) {
        const char byte = (char)('a' + sl_hash_random(&maker.seed) % 26);
        add(&byte, 1);
    }
    add("", 1);
}

/* Returns false if what was to be spoiled has no wrong value. */
static bool add_body(const char *format, const char *end)
{
    bool done = true;
    while (format < end) {
        const bool spoil = maker.made++ == maker.spoil;
        if (*format == '[') {
            char *items;
            const uint64_t least = strtoull(format + 1, &items, 10);
            const uint64_t most = strtoull(items + 1, &items, 10);
            int depth = 1;
            for (format++; depth > 0; format++) {
                depth += *format == '[' ? 1 : *format == ']' ? -1 : 0;
            }
            const uint64_t count = spoil ? most + 1 : choose(least, most);
            add(&count, 1);
            for (uint64_t i = 0; i < count; i++) {
                done &= add_body(items, format - 1);
            }
            continue;
        }
        const struct field *field = FIELDS;
        while (field->letter != *format) {
            field++;
        }
        format++;
        if (field->bytes > 0) {
            done &= add_number(field, spoil) || !spoil;
        } else {
            add_text(field, spoil);
        }
    }
    return done;
}

/* A format that has both begins with part and number of parts, or has them behind name and version:
 * the part is made small enough. */
static void fix_part(const struct format *format)
{
    const char *both = strstr(format->body, "pc");
    if (both == NULL) {
        return;
    }
    size_t at = 29;
    if (both != format->body) {
        at += strlen((const char *)maker.bytes + at) + 1 + 8;
    }
    uint32_t part, count;
    memcpy(&part, maker.bytes + at, 4);
    memcpy(&count, maker.bytes + at + 4, 4);
    if (part < 64 && count >= 1 && count <= 64) {
        part %= count;
        memcpy(maker.bytes + at, &part, 4);
    }
}

static bool has_answer(uint32_t kind)
{
    for (uint32_t i = 0; i < FORMAT_COUNT; i++) {
        if (FORMATS[i].kind == kind && FORMATS[i].answer == 1) {
            return true;
        }
    }
    return false;
}

static bool make(const struct format *format, enum choice choice, int spoil)
{
    const uint32_t kind = format->kind;
    const uint8_t is_answer = format->answer != 0;
    const int err = format->answer == 2 ? SL_ERR_NOT_FOUND : 0;
    maker.length = 0;
    maker.choice = choice;
    maker.spoil = spoil;
    maker.made = 0;
    add(&kind, sizeof kind);
    add(&is_answer, 1);
    add(&err, sizeof err);
    add(is_answer || has_answer(kind) ? "\x11\x12\x13\x14" : "\0\0\0\0", 4);
    add("\x21\x22\x23\x24\x25\x26\x27\x28"
        "\x31\x32\x33\x34\x35\x36\x37\x38",
        16);
    const bool done = add_body(format->body, format->body + strlen(format->body));
    fix_part(format);
    return done;
}

static struct sl_objects_message message;
static struct sl_reason reason;

static int decode(size_t bytes)
{
    /* Its own allocation, so that a sanitizer sees every byte too many. */
    uint8_t *exact = malloc(bytes + 1);
    assert_non_null(exact);
    memcpy(exact, maker.bytes, bytes);
    reason.text[0] = '\0';
    const int err = sl_objects_message_decode(exact, (uint32_t)bytes, &message, &reason);
    free(exact);
    assert_true((err == 0) == (reason.text[0] == '\0'));
    return err;
}

static void check_again(const struct format *format)
{
    uint8_t again[SL_OBJECTS_MESSAGE_BYTES];
    assert_int_equal(
        sl_objects_message_decode(maker.bytes, (uint32_t)maker.length, &message, &reason), 0);
    assert_int_equal(message.kind, format->kind);
    assert_int_equal(message.request,
                     format->answer != 0 || has_answer(format->kind) ? 0x14131211 : 0);
    assert_true(message.term == 0x2827262524232221ULL);
    assert_true(message.node == 0x3837363534333231ULL);
    assert_int_equal(sl_objects_message_encode(&message, again), maker.length);
    assert_memory_equal(again, maker.bytes, maker.length);
}

SL_CASE(message_decode__every_kind_as_in_the_protocol)
{
    maker.seed = 1;
    for (uint32_t i = 0; i < FORMAT_COUNT; i++) {
        for (int round = 0; round < 50; round++) {
            const enum choice choice = round == 0 ? LEAST : round == 1 ? MOST : RANDOM;
            make(&FORMATS[i], choice, -1);
            assert_true(maker.length <= SL_OBJECTS_MESSAGE_BYTES);
            check_again(&FORMATS[i]);
        }
    }
}

SL_CASE(message_decode__every_other_length_is_refused)
{
    for (uint32_t i = 0; i < FORMAT_COUNT; i++) {
        make(&FORMATS[i], RANDOM, -1);
        for (size_t bytes = 0; bytes < maker.length; bytes++) {
            assert_int_equal(decode(bytes), SL_ERR_PROTOCOL);
        }
        add("", 1);
        assert_int_equal(decode(maker.length), SL_ERR_PROTOCOL);
    }
    memset(maker.bytes + maker.length, 0, sizeof maker.bytes - maker.length);
    assert_int_equal(decode(SL_OBJECTS_MESSAGE_BYTES + 1), SL_ERR_PROTOCOL);
}

SL_CASE(message_decode__every_number_text_and_list_has_its_limits)
{
    uint32_t spoiled = 0;
    for (uint32_t i = 0; i < FORMAT_COUNT; i++) {
        for (int place = 0;; place++) {
            const bool is_wrong = make(&FORMATS[i], MOST, place);
            if (maker.made <= place) {
                break;
            }
            if (is_wrong && maker.length <= SL_OBJECTS_MESSAGE_BYTES) {
                assert_int_equal(decode(maker.length), SL_ERR_PROTOCOL);
                assert_non_null(strstr(reason.text, sl_objects_message_name(FORMATS[i].kind)));
                spoiled++;
            }
        }
    }
    assert_true(spoiled > 500);
}

SL_CASE(message_decode__other_kinds_and_answers_are_refused)
{
    static const struct format alive = {SL_OBJECTS_ALIVE, 0, "QILS"};
    for (uint32_t kind = 0; kind < 300; kind++) {
        for (int answer = 0; answer < 3; answer++) {
            bool is_known = kind == SL_OBJECTS_BATCH && answer == 0; /* any bytes */
            for (uint32_t i = 0; i < FORMAT_COUNT; i++) {
                /* Where there is an answer, there are errors. */
                is_known |= FORMATS[i].kind == kind && (FORMATS[i].answer > 0) == (answer > 0);
            }
            const struct format format = {kind, answer, answer == 2 ? "TQQ" : alive.body};
            make(&format, LEAST, -1);
            const int err = decode(maker.length);
            assert_true(is_known || err == SL_ERR_PROTOCOL);
            assert_true(!is_known || answer != 2 || err == 0);
        }
    }
    make(&alive, LEAST, -1);
    maker.bytes[4] = 2; /* is_answer */
    assert_int_equal(decode(maker.length), SL_ERR_PROTOCOL);
    static const struct format error = {SL_OBJECTS_ALIVE, 2, "TQQ"};
    make(&error, LEAST, -1);
    memset(maker.bytes + 5, 0x7f, 4); /* a positive error */
    assert_int_equal(decode(maker.length), SL_ERR_PROTOCOL);
    make(&alive, LEAST, -1);
    maker.bytes[8] = 0xff; /* an error that is no answer */
    assert_int_equal(decode(maker.length), SL_ERR_PROTOCOL);
}

SL_CASE(message_decode__a_part_is_below_the_number_of_parts)
{
    static const struct format store = {SL_OBJECTS_STORE, 0, "pcJ[1-1" RECORD "]"};
    for (uint8_t part = 0; part < 4; part++) {
        make(&store, LEAST, -1);
        maker.bytes[29] = part;
        maker.bytes[33] = 2;
        assert_int_equal(decode(maker.length), part < 2 ? 0 : SL_ERR_PROTOCOL);
        assert_true(part < 2 || strstr(reason.text, "`part`") != NULL);
    }
}

SL_CASE(message_decode__a_kind_without_answer_has_no_number_of_a_request)
{
    for (uint32_t i = 0; i < FORMAT_COUNT; i++) {
        make(&FORMATS[i], LEAST, -1);
        maker.bytes[9] = 1;
        const bool is_good = FORMATS[i].answer != 0 || has_answer(FORMATS[i].kind);
        assert_int_equal(decode(maker.length), is_good ? 0 : SL_ERR_PROTOCOL);
        assert_true(is_good || strstr(reason.text, "`request`") != NULL);
    }
}

SL_CASE(message_decode__names_the_member)
{
    static const struct format want = {SL_OBJECTS_WANT, 0, "nVpQQ"};
    make(&want, LEAST, 2);
    assert_int_equal(decode(maker.length), SL_ERR_PROTOCOL);
    assert_non_null(strstr(reason.text, "WANT"));
    assert_non_null(strstr(reason.text, "`part`"));
    make(&want, LEAST, -1);
    maker.bytes[29] = '@';
    assert_int_equal(decode(maker.length), SL_ERR_PROTOCOL);
    assert_non_null(strstr(reason.text, "`name`"));
}

/* The struct of each example in docs/protocol.md; it is static where others need it. */
static const struct sl_objects_message ATTACH = {
    .kind = SL_OBJECTS_ATTACH,
    .request = 1,
    .node = 0x1f2e3d4c5b6a7988,
    .attach = {.host = 7, .location = "rack-2", .spread_ms = 100},
};
static const struct sl_objects_message WANT = {
    .kind = SL_OBJECTS_WANT,
    .request = 5,
    .term = 3,
    .node = 0x1f2e3d4c5b6a7988,
    .name = "llama",
    .version = 12,
    .digest = {0x0706050403020100, 0x0f0e0d0c0b0a0908},
};
static const struct sl_objects_message HAVE = {
    .kind = SL_OBJECTS_WANT,
    .is_answer = true,
    .request = 5,
    .term = 3,
    .node = 0x42,
    .name = "llama",
    .version = 12,
    .have = {.range_count = 2,
             .ranges = {{0, 0x7f0000000000, 262144}, {262144, 0x7f0010000000, 1048576}}},
};
static const struct sl_objects_message REFUSED = {
    .kind = SL_OBJECTS_FIND,
    .is_answer = true,
    .err = SL_ERR_NOT_FOUND,
    .request = 6,
    .term = 3,
    .node = 0x42,
    .text = "llama has no version 2",
    .find = {.oldest = 9, .newest = 12},
};

static const struct {
    const char *name;
    const struct sl_objects_message *message;
} EXAMPLES[] = {{"objects attach", &ATTACH},
                {"objects want", &WANT},
                {"objects have", &HAVE},
                {"objects refused", &REFUSED}};

SL_CASE(message_encode__examples_of_the_page)
{
    for (size_t i = 0; i < sizeof EXAMPLES / sizeof EXAMPLES[0]; i++) {
        uint8_t bytes[SL_OBJECTS_MESSAGE_BYTES], shown[SL_OBJECTS_MESSAGE_BYTES];
        const uint32_t length = sl_objects_message_encode(EXAMPLES[i].message, bytes);
        assert_int_equal(sl_page_example(EXAMPLES[i].name, shown), length);
        assert_memory_equal(shown, bytes, length);
    }
}

SL_CASE(message_decode__members_are_those_that_were_sent)
{
    uint8_t bytes[SL_OBJECTS_MESSAGE_BYTES];
    const uint32_t length = sl_objects_message_encode(&HAVE, bytes);
    assert_int_equal(sl_objects_message_decode(bytes, length, &message, &reason), 0);
    assert_string_equal(message.name, "llama");
    assert_true(message.is_answer);
    assert_true(message.version == 12);
    assert_int_equal(message.have.range_count, 2);
    assert_memory_equal(message.have.ranges, HAVE.have.ranges, 2 * sizeof HAVE.have.ranges[0]);
    assert_int_equal(message.commit.record_count, 0);
    assert_int_equal(sl_objects_message_decode(bytes, sl_objects_message_encode(&REFUSED, bytes),
                                               &message, &reason),
                     0);
    assert_int_equal(message.err, SL_ERR_NOT_FOUND);
    assert_string_equal(message.text, "llama has no version 2");
    assert_true(message.find.oldest == 9);
    assert_true(message.find.newest == 12);
}

SL_CASE(message_encode__a_long_reason_is_truncated)
{
    uint8_t bytes[SL_OBJECTS_MESSAGE_BYTES];
    char text[1000];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    struct sl_objects_message refused = REFUSED;
    refused.text = text;
    const uint32_t length = sl_objects_message_encode(&refused, bytes);
    assert_int_equal(sl_objects_message_decode(bytes, length, &message, &reason), 0);
    assert_int_equal(strlen(message.text), SL_OBJECTS_TEXT_BYTES - 1);
    refused.text = NULL;
    assert_int_equal(sl_objects_message_decode(bytes, sl_objects_message_encode(&refused, bytes),
                                               &message, &reason),
                     0);
    assert_string_equal(message.text, "");
}

SL_CASE(message_decode__gives_the_record_that_was_sent)
{
    static struct sl_objects_message commit = {
        .kind = SL_OBJECTS_COMMIT,
        .is_answer = true,
        .commit.record_count = 1,
        .commit.record = {.name = "llama",
                          .version = 3,
                          .epoch = 2,
                          .origin = SL_ORIGIN_CALLER,
                          .keeper_count = 1,
                          .part_count = SL_OBJECTS_PARTS_MAX,
                          .keepers = {77}},
    };
    uint8_t bytes[SL_OBJECTS_MESSAGE_BYTES];
    const struct sl_objects_record *out = &message.commit.record;
    for (uint32_t i = 0; i < SL_OBJECTS_PARTS_MAX; i++) {
        commit.commit.record.parts[i] = (struct sl_objects_part){
            .digest = {i, 2 * i}, .bytes = 1000 + i, .holder = i, .manifest_bytes = 1 + i};
    }
    const uint32_t length = sl_objects_message_encode(&commit, bytes);
    assert_int_equal(sl_objects_message_decode(bytes, length, &message, &reason), 0);
    assert_int_equal(message.commit.record_count, 1);
    assert_string_equal(out->name, "llama");
    assert_string_equal(out->note, "");
    assert_true(out->version == 3);
    assert_true(out->epoch == 2);
    assert_int_equal(out->origin, SL_ORIGIN_CALLER);
    assert_true(out->keepers[0] == 77);
    assert_int_equal(out->part_count, SL_OBJECTS_PARTS_MAX);
    for (uint32_t i = 0; i < SL_OBJECTS_PARTS_MAX; i++) {
        assert_true(sl_hash_128_equal(out->parts[i].digest, commit.commit.record.parts[i].digest));
        assert_true(out->parts[i].bytes == 1000 + i);
        assert_true(out->parts[i].holder == i);
        assert_int_equal(out->parts[i].manifest_bytes, 1 + i);
    }
}

SL_CASE(name_is_valid__takes_no_blank_and_no_at)
{
    char name[SL_OBJECTS_NAME_BYTES + 1];
    assert_true(sl_objects_name_is_valid("model/llama-7b.v2~"));
    assert_false(sl_objects_name_is_valid(""));
    assert_false(sl_objects_name_is_valid("a b"));
    assert_false(sl_objects_name_is_valid("a@1"));
    assert_false(sl_objects_name_is_valid("a\n"));
    assert_true(sl_objects_name_is_valid("caf\xc3\xa9"));
    assert_false(sl_objects_name_is_valid("caf\xe9"));
    memset(name, 'n', sizeof name);
    name[SL_OBJECTS_NAME_BYTES - 1] = '\0';
    assert_true(sl_objects_name_is_valid(name));
    name[SL_OBJECTS_NAME_BYTES - 1] = 'n';
    name[SL_OBJECTS_NAME_BYTES] = '\0';
    assert_false(sl_objects_name_is_valid(name));
    assert_true(sl_objects_text_is_valid("", 1));
    assert_true(sl_objects_text_is_valid("a b", 4));
    assert_false(sl_objects_text_is_valid("a b", 3));
    assert_false(sl_objects_text_is_valid("a\x7f", 4));
}

static struct sl_objects_message batch_of(uint8_t *text, uint32_t *count)
{
    const struct sl_objects_message item = {
        .kind = SL_OBJECTS_HOLD, .name = "llama", .version = 7, .part = 1, .commit.blocks = 3};
    struct sl_objects_message batch = {
        .kind = SL_OBJECTS_BATCH, .request = 1, .term = 2, .node = 3, .batch.messages = text};
    for (*count = 0; sl_objects_message_batch(&batch, text, &item); ++*count) {
    }
    return batch;
}

SL_CASE(message_batch__has_what_fits_into_a_notice)
{
    uint8_t text[SL_OBJECTS_BATCH_BYTES];
    uint32_t count, left = 0;
    const struct sl_objects_message batch = batch_of(text, &count);
    assert_true(count > 50);
    maker.length = sl_objects_message_encode(&batch, maker.bytes);
    struct sl_objects_message taken, item;
    assert_int_equal(
        sl_objects_message_decode(maker.bytes, (uint32_t)maker.length, &taken, &reason), 0);
    for (; sl_objects_message_unbatch(&taken, &item, &reason) == 0; left++) {
        assert_int_equal(item.kind, SL_OBJECTS_HOLD);
        assert_string_equal(item.name, "llama");
        assert_int_equal(item.commit.blocks, 3);
    }
    assert_int_equal(left, count);
    assert_int_equal(taken.batch.bytes, 0);
}

SL_CASE(message_batch__that_is_cut_short_is_an_error)
{
    uint8_t text[SL_OBJECTS_BATCH_BYTES];
    uint32_t count;
    const struct sl_objects_message batch = batch_of(text, &count);
    for (uint32_t bytes = 1; bytes < batch.batch.bytes; bytes++) {
        struct sl_objects_message cut = batch, item;
        uint8_t *exact = malloc(bytes);
        int err = 0;
        assert_non_null(exact);
        memcpy(exact, text, bytes);
        cut.batch.messages = exact;
        cut.batch.bytes = bytes;
        for (uint32_t i = 0; err == 0 && i <= count; i++) {
            err = sl_objects_message_unbatch(&cut, &item, &reason);
        }
        assert_int_equal(err, bytes % (batch.batch.bytes / count) == 0 ? SL_ERR_NOT_FOUND
                                                                       : SL_ERR_PROTOCOL);
        free(exact);
    }
}
