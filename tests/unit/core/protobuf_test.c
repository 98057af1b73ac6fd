#include <stdlib.h>
#include <string.h>

#include "core/protobuf.h"
#include "tests/support/unit.h"

struct item {
    uint64_t key;
    char name[8];
};

struct everything {
    uint32_t chosen; /* 20 or 21 */
    bool is_set, has_hash, has_item;
    uint32_t small;
    uint64_t large;
    int err;
    float weight;
    char text[8];
    char *owned_name;
    uint8_t hash[4];
    uint8_t data[4];
    uint32_t data_bytes;
    struct item item;
    uint32_t numbers[3], number_count;
    char names[2][8];
    uint32_t name_count;
    struct item *items;
    uint32_t item_count;
    uint32_t alternative;
};

static const char *item_misfit(const void *message)
{
    const struct item *item = message;
    return item->key == 13 ? "an unlucky key" : NULL;
}

/* clang-format off */
SL_PROTOBUF_TABLE(ITEM, "item", item_misfit,
    SL_FIELD_ANY(1, FIXED64, item, key),
    SL_FIELD_ANY(2, NAME, item, name));
SL_PROTOBUF_TABLE(ALTERNATIVE, "alternative", NULL,
    {.name = "value", .number = 1, .kind = SL_PROTOBUF_UINT, .bytes = sizeof(uint32_t), .most = 9});

static const struct sl_protobuf_field FIELDS[] = {
    SL_FIELD_ANY(1, BOOL, everything, is_set),
    SL_FIELD_RANGE(2, UINT, everything, small, 0, 100),
    SL_FIELD_ANY(3, UINT, everything, large),
    SL_FIELD_ANY(4, ERR, everything, err),
    SL_FIELD_ANY(5, FLOAT, everything, weight),
    SL_FIELD_ANY(6, TEXT, everything, text),
    {SL_FIELD(7, NAME, everything, owned_name), .bytes = 16, .flags = SL_FIELD_OWNED},
    SL_FIELD_OPTIONAL_OF(8, BYTES, everything, hash, has_hash, NULL),
    SL_FIELD_DATA(9, everything, data, data_bytes, 4, 0),
    SL_FIELD_OPTIONAL_OF(10, MESSAGE, everything, item, has_item, &ITEM),
    SL_FIELD_LIST(11, UINT, everything, numbers, number_count, 0, NULL),
    SL_FIELD_LIST(12, NAME, everything, names, name_count, 0, NULL),
    SL_FIELD_OWNED_LIST(13, everything, items, item_count, 0, 5, ITEM),
    SL_FIELD_MESSAGE(20, everything, alternative, ALTERNATIVE, SL_FIELD_ONE_OF),
    SL_FIELD_MESSAGE(21, everything, alternative, ALTERNATIVE, SL_FIELD_ONE_OF),
};
/* clang-format on */

static const struct sl_protobuf_type EVERYTHING = {
    .name = "everything",
    .fields = FIELDS,
    .field_count = sizeof FIELDS / sizeof FIELDS[0],
    .chosen_offset = 0,
};

/* Decodes bytes in a heap block of exactly their size; frees what was decoded unless it is asked
 * for. */
static int decode(const char *bytes, size_t byte_count, struct everything *out,
                  struct sl_reason *reason)
{
    struct everything decoded;
    memset(&decoded, 0, sizeof decoded);
    uint8_t *exact = malloc(byte_count + 1);
    memcpy(exact, bytes, byte_count);
    const int err = sl_protobuf_decode(&EVERYTHING, exact, byte_count, &decoded, reason);
    free(exact);
    if (err != 0 || out == NULL) {
        sl_protobuf_fini(&EVERYTHING, &decoded);
    }
    if (out != NULL) {
        memcpy(out, &decoded, sizeof decoded);
    }
    return err;
}

#define DECODE(bytes, out) decode((bytes), sizeof(bytes) - 1, (out), NULL)

static void assert_refused(const char *bytes, size_t byte_count, const char *why)
{
    struct sl_reason reason = {""};
    assert_int_equal(decode(bytes, byte_count, NULL, &reason), SL_ERR_PROTOCOL);
    assert_string_equal(reason.text, why);
}

#define REFUSES(bytes, why) assert_refused((bytes), sizeof(bytes) - 1, (why))

SL_CASE(protobuf_decode__returns_what_was_encoded)
{
    static struct item items[] = {
        {.key = 1, .name = "a"}, {.key = 2}, {.key = UINT64_MAX, .name = "c"}};
    static char owned_name[16] = "owned";
    static const struct everything message = {
        /* static: what lies between the members is zero, too */
        .chosen = 21,    .is_set = true,           .has_hash = true,     .has_item = true,
        .small = 100,    .large = UINT64_MAX,      .err = SL_ERR_IO,     .weight = -1.5F,
        .text = "t",     .owned_name = owned_name, .hash = {1, 2, 3, 4}, .data = {0, 9},
        .data_bytes = 2, .numbers = {0, 300, 1},   .number_count = 3,    .names = {"", "second"},
        .name_count = 2, .items = items,           .item_count = 3,      .alternative = 9,
    };
    uint8_t encoded[256];
    const size_t bytes = sl_protobuf_encode(&EVERYTHING, &message, NULL, 0);
    assert_int_equal(sl_protobuf_encode(&EVERYTHING, &message, encoded, bytes), bytes);
    struct everything decoded;
    assert_int_equal(decode((const char *)encoded, bytes, &decoded, NULL), 0);
    assert_string_equal(decoded.owned_name, "owned");
    assert_memory_equal(decoded.items, items, sizeof items);
    struct everything copy;
    memcpy(&copy, &decoded, sizeof copy);
    copy.owned_name = message.owned_name;
    copy.items = items;
    assert_memory_equal(&copy, &message, sizeof copy);
    sl_protobuf_fini(&EVERYTHING, &decoded);
    assert_null(decoded.items);
    assert_int_equal(decoded.item_count, 0);
    /* Zeros are not sent, but an alternative is. */
    assert_int_equal(
        sl_protobuf_encode(&EVERYTHING, &(struct everything){.weight = -0.0F}, NULL, 0), 0);
    assert_int_equal(sl_protobuf_encode(&EVERYTHING, &(struct everything){.chosen = 20}, NULL, 0),
                     3);
}

SL_CASE(protobuf_decode__takes_what_other_encoders_send)
{
    struct everything decoded;
    /* Unknown fields of each wire type, one inside an item; an unpacked list, and a packed one. */
    assert_int_equal(DECODE("\xf0\x06\x01\xf1\x06"
                            "12345678"
                            "\xf5\x06"
                            "1234"
                            "\xf2\x06\x01x"
                            "\x52\x04\x18\x01\x10\x00",
                            NULL),
                     SL_ERR_PROTOCOL); /* field 2 of an item is a name */
    assert_int_equal(DECODE("\xf0\x06\x01\xf1\x06"
                            "12345678"
                            "\xf5\x06"
                            "1234"
                            "\xf2\x06\x01x"
                            "\x52\x02\x18\x01"
                            "\x58\x05\x5a\x02\x06\x07",
                            &decoded),
                     0);
    assert_true(decoded.has_item);
    assert_int_equal(decoded.number_count, 3);
    assert_int_equal(decoded.numbers[0] * 100 + decoded.numbers[1] * 10 + decoded.numbers[2], 567);
    /* The last one counts. A long number of 32 bits is cut. */
    assert_int_equal(DECODE("\x32\x03"
                            "one"
                            "\x32\x01"
                            "2"
                            "\x10\x01\x10\x82\x80\x80\x80\x80\x01",
                            &decoded),
                     0);
    assert_string_equal(decoded.text, "2");
    assert_int_equal(decoded.small, 2);
}

SL_CASE(protobuf_decode__names_what_is_wrong)
{
    REFUSES("\x10\x65", "everything.small: outside its range");
    REFUSES("\x15\x65\x00\x00\x00", "everything.small: of another type");
    REFUSES("\x32\x08"
            "12345678",
            "everything.text: too long, or has a NUL inside");
    REFUSES("\x32\x03"
            "1\0"
            "2",
            "everything.text: too long, or has a NUL inside");
    REFUSES("\x3a\x01\n", "everything.owned_name: not a name of printable ASCII");
    REFUSES("\x42\x03"
            "123",
            "everything.hash: of another length");
    REFUSES("\x4a\x05"
            "12345",
            "everything.data: of another length");
    REFUSES("\x52\x09\x09\x0d\0\0\0\0\0\0\0", "item: an unlucky key");
    REFUSES("\x5a\x04\x01\x02\x03\x04", "everything.numbers: too many");
    REFUSES("\x5a\x01\x80", "everything.numbers: cut short");
    REFUSES("\x6a\0\x6a\0\x6a\0\x6a\0\x6a\0\x6a\0", "everything.items: too many");
    REFUSES("\xa2\x01\0\xaa\x01\0", "everything.alternative: a second one of alternatives");
    REFUSES("\x32\x05"
            "12",
            "everything: cut short");
    REFUSES("\x08", "everything: cut short");
    REFUSES("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "everything: cut short");
    REFUSES("\x0b", "everything: cut short");     /* a group */
    REFUSES("\x02\x00", "everything: cut short"); /* field 0 */
}

SL_CASE(protobuf_decode__knows_errors_and_empty_fields)
{
    struct everything decoded;
    assert_int_equal(DECODE("\x20\x03\x32\x02\n\x7f\x42\x00\x3a\x00", &decoded), 0);
    assert_int_equal(decoded.err, SL_ERR_DEADLINE);
    assert_string_equal(decoded.text, "??");
    assert_false(decoded.has_hash);
    assert_null(decoded.owned_name);
    assert_int_equal(DECODE("\x20\x7f", &decoded), 0);
    assert_int_equal(decoded.err, SL_ERR_PROTOCOL);
}

SL_CASE(protobuf_check__finds_what_decoding_refuses)
{
    struct sl_reason reason;
    struct everything message = {.small = 100};
    assert_int_equal(sl_protobuf_check(&EVERYTHING, &message, &reason), 0);
    message.small++;
    assert_int_equal(sl_protobuf_check(&EVERYTHING, &message, &reason), SL_ERR_PROTOCOL);
    message.small = 0;
    message.item.key = 13;
    assert_int_equal(sl_protobuf_check(&EVERYTHING, &message, &reason), 0); /* not present */
    message.has_item = true;
    assert_int_equal(sl_protobuf_check(&EVERYTHING, &message, &reason), SL_ERR_PROTOCOL);
}
