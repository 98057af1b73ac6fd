#include "core/protobuf.h"

#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/bytes.h"
#include "core/err.h"

/* Wire types; groups (3 and 4) are not accepted. */
enum { WIRE_VARINT = 0, WIRE_8_BYTES = 1, WIRE_LENGTH = 2, WIRE_4_BYTES = 5 };

static uint32_t wire_of(const struct sl_protobuf_field *field)
{
    return field->kind == SL_PROTOBUF_FIXED64 ? WIRE_8_BYTES
           : field->kind == SL_PROTOBUF_FLOAT ? WIRE_4_BYTES
           : field->kind < SL_PROTOBUF_NAME   ? WIRE_VARINT
                                              : WIRE_LENGTH;
}

static bool is_number(const struct sl_protobuf_field *field)
{
    return field->kind < SL_PROTOBUF_NAME;
}

static bool has_flag(const struct sl_protobuf_field *field, enum sl_protobuf_flags flag)
{
    return (field->flags & (uint32_t)flag) != 0;
}

/* Returns a number as it is on the wire; the bits of a float, where -0 is 0. */
static uint64_t load_number(const struct sl_protobuf_field *field, const void *at)
{
    if (field->bytes == sizeof(uint64_t)) {
        uint64_t number;
        memcpy(&number, at, sizeof number);
        return number;
    }
    if (field->kind == SL_PROTOBUF_BOOL) {
        return *(const bool *)at;
    }
    uint32_t number;
    memcpy(&number, at, sizeof number);
    if (field->kind == SL_PROTOBUF_ERR) {
        number = 0 - number;
    }
    return field->kind == SL_PROTOBUF_FLOAT && number == 0x80000000 ? 0 : number;
}

static uint32_t load_u32(const void *base, uint32_t offset)
{
    uint32_t value;
    memcpy(&value, (const uint8_t *)base + offset, sizeof value);
    return value;
}

static void store_u32(void *base, uint32_t offset, uint32_t value)
{
    memcpy((uint8_t *)base + offset, &value, sizeof value);
}

/* Whether the field is to be encoded, checked or freed. */
static bool is_present(const struct sl_protobuf_type *type, const struct sl_protobuf_field *field,
                       const void *base)
{
    return has_flag(field, SL_FIELD_ONE_OF)
               ? load_u32(base, type->chosen_offset) == field->number
               : !has_flag(field, SL_FIELD_OPTIONAL) ||
                     *((const uint8_t *)base + field->count_offset) != 0;
}

static uint32_t item_count_of(const struct sl_protobuf_field *field, const void *base)
{
    return has_flag(field, SL_FIELD_REPEATED) ? load_u32(base, field->count_offset) : 1;
}

/* Returns the member, or what it points to, or an item of either. */
static uint8_t *item_at(const struct sl_protobuf_field *field, const void *base, uint32_t index)
{
    uint8_t *at = (uint8_t *)(uintptr_t)base + field->offset;
    if (has_flag(field, SL_FIELD_OWNED) || has_flag(field, SL_FIELD_VIEW)) {
        memcpy(&at, at, sizeof(void *));
    }
    return index == 0 ? at : at + (size_t)index * field->bytes;
}

/* Encode */

/* Writes from the end to the beginning, so that the length of a message is known when its head is
 * written. What does not fit is only counted. */
struct writer {
    uint8_t *to;
    size_t room, bytes;
};

static void protobuf_put(struct writer *writer, const void *from, size_t bytes)
{
    writer->bytes += bytes;
    if (writer->bytes <= writer->room && bytes != 0) {
        memcpy(writer->to + writer->room - writer->bytes, from, bytes);
    }
}

static void put_varint(struct writer *writer, uint64_t number)
{
    uint8_t encoded[10];
    size_t bytes = 0;
    for (; number >= 0x80; number >>= 7) {
        encoded[bytes++] = (uint8_t)(number | 0x80);
    }
    encoded[bytes++] = (uint8_t)number;
    protobuf_put(writer, encoded, bytes);
}

/* The head of a field, of whose value `bytes` bytes are written. */
static void put_head(struct writer *writer, const struct sl_protobuf_field *field, uint32_t wire,
                     size_t bytes)
{
    if (wire == WIRE_LENGTH) {
        put_varint(writer, bytes);
    }
    put_varint(writer, (uint64_t)field->number << 3 | wire);
}

static void put_message(struct writer *writer, const struct sl_protobuf_type *type,
                        const void *base);

static void put_number(struct writer *writer, const struct sl_protobuf_field *field, const void *at)
{
    const uint64_t number = load_number(field, at);
    if (wire_of(field) == WIRE_VARINT) {
        put_varint(writer, number);
    } else {
        protobuf_put(writer, &number, field->bytes);
    }
}

/* A number, or all of a list. */
static void put_numbers(struct writer *writer, const struct sl_protobuf_field *field,
                        const void *base)
{
    const bool is_list = has_flag(field, SL_FIELD_REPEATED);
    const size_t before = writer->bytes;
    if (is_list || load_number(field, item_at(field, base, 0)) != 0) {
        for (uint32_t i = item_count_of(field, base); i > 0; i--) {
            put_number(writer, field, item_at(field, base, i - 1));
        }
    }
    if (writer->bytes != before) {
        put_head(writer, field, is_list ? WIRE_LENGTH : wire_of(field), writer->bytes - before);
    }
}

/* An item of a kind that has a length. */
static void put_item(struct writer *writer, const struct sl_protobuf_field *field, const void *base,
                     const uint8_t *at)
{
    const size_t before = writer->bytes;
    if (field->kind == SL_PROTOBUF_MESSAGE) {
        put_message(writer, field->type, at);
    } else if (field->kind == SL_PROTOBUF_BYTES) {
        protobuf_put(writer, at, field->bytes);
    } else if (field->kind == SL_PROTOBUF_DATA) {
        const uint32_t count = load_u32(base, field->count_offset);
        sl_assert(count <= field->most);
        protobuf_put(writer, at, count);
    } else if (at != NULL) {
        const size_t length = strnlen((const char *)at, field->bytes);
        sl_assert(length < field->bytes);
        protobuf_put(writer, at, length);
    }
    if (writer->bytes != before || field->kind == SL_PROTOBUF_MESSAGE ||
        has_flag(field, SL_FIELD_REPEATED) || has_flag(field, SL_FIELD_ONE_OF)) {
        put_head(writer, field, WIRE_LENGTH, writer->bytes - before);
    }
}

static void put_message(struct writer *writer, const struct sl_protobuf_type *type,
                        const void *base)
{
    for (uint32_t i = type->field_count; i > 0; i--) {
        const struct sl_protobuf_field *field = &type->fields[i - 1];
        const uint32_t count = is_present(type, field, base) ? item_count_of(field, base) : 0;
        sl_assert(!has_flag(field, SL_FIELD_REPEATED) || count <= field->most);
        if (count != 0 && is_number(field)) {
            put_numbers(writer, field, base);
        }
        for (uint32_t k = is_number(field) ? 0 : count; k > 0; k--) {
            put_item(writer, field, base, item_at(field, base, k - 1));
        }
    }
}

size_t sl_protobuf_encode(const struct sl_protobuf_type *type, const void *message, uint8_t *to,
                          size_t room)
{
    struct writer writer = {.to = to, .room = room};
    put_message(&writer, type, message);
    if (writer.bytes < room) {
        memmove(to, to + room - writer.bytes, writer.bytes);
    }
    return writer.bytes;
}

/* Decode */

/* A field of a message that is decoded or checked. */
struct place {
    const struct sl_protobuf_type *type;
    const struct sl_protobuf_field *field;
    void *base;
    struct sl_reason *reason;
};

/* A value as it is on the wire. */
struct value {
    uint32_t wire;
    uint64_t number;       /* unless LENGTH */
    struct sl_bytes bytes; /* LENGTH */
};

static int protobuf_refuse(const struct place *place, const char *what)
{
    return sl_reason_fail(place->reason, SL_ERR_PROTOCOL, "%s.%s: %s", place->type->name,
                          place->field->name, what);
}

static bool is_printable(uint8_t c)
{
    return c >= 0x20 && c != 0x7f;
}

static uint64_t take_varint(struct sl_bytes *cursor)
{
    uint64_t number = 0;
    for (uint32_t shift = 0; shift < 70; shift += 7) {
        const uint8_t byte = sl_bytes_u8(cursor);
        number |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            return number;
        }
    }
    cursor->bad = true;
    return 0;
}

static struct value take_value(struct sl_bytes *cursor, uint32_t wire)
{
    struct value value = {.wire = wire};
    if (wire == WIRE_VARINT) {
        value.number = take_varint(cursor);
    } else if (wire == WIRE_8_BYTES) {
        value.number = sl_bytes_u64(cursor);
    } else if (wire == WIRE_4_BYTES) {
        value.number = sl_bytes_u32(cursor);
    } else if (wire == WIRE_LENGTH) {
        const uint64_t bytes = take_varint(cursor);
        value.bytes = sl_bytes_over(sl_bytes_take(cursor, bytes), bytes);
    } else {
        cursor->bad = true;
    }
    return value;
}

static void store_number(const struct sl_protobuf_field *field, uint64_t number, void *at)
{
    const uint32_t low = (uint32_t)number;
    if (field->bytes == sizeof number) {
        memcpy(at, &number, sizeof number);
    } else if (field->kind == SL_PROTOBUF_BOOL) {
        *(bool *)at = number != 0;
    } else if (field->kind == SL_PROTOBUF_ERR) {
        *(int *)at = low <= (uint32_t)-SL_ERR_CANCELLED ? -(int)low : SL_ERR_PROTOCOL;
    } else {
        memcpy(at, &low, sizeof low);
    }
}

static void set_present(const struct place *place, bool is_present)
{
    if (has_flag(place->field, SL_FIELD_OPTIONAL)) {
        memcpy((uint8_t *)place->base + place->field->count_offset, &is_present, sizeof is_present);
    }
}

/* Gives an owned member `bytes` bytes, and keeps what fits of those it had. NULL: no memory. */
static uint8_t *protobuf_resize(const struct place *place, size_t bytes)
{
    uint8_t *resized = realloc(item_at(place->field, place->base, 0), bytes);
    if (resized != NULL) {
        memcpy((uint8_t *)place->base + place->field->offset, &resized, sizeof resized);
    }
    return resized;
}

static int store_text(const struct place *place, const struct sl_bytes *from, uint8_t *at)
{
    const struct sl_protobuf_field *field = place->field;
    if (from->left >= field->bytes || (from->left != 0 && memchr(from->next, 0, from->left))) {
        return protobuf_refuse(place, "too long, or has a NUL inside");
    }
    if (at == NULL && from->left == 0) {
        return 0;
    }
    at = at == NULL ? protobuf_resize(place, field->bytes) : at;
    if (at == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    for (size_t i = 0; i < from->left; i++) {
        const bool is_kept = field->kind == SL_PROTOBUF_NAME || is_printable(from->next[i]);
        at[i] = is_kept ? from->next[i] : '?';
    }
    memset(at + from->left, 0, field->bytes - from->left);
    return 0;
}

static int store_bytes(const struct place *place, const struct sl_bytes *from, uint8_t *at)
{
    const struct sl_protobuf_field *field = place->field;
    const bool is_data = field->kind == SL_PROTOBUF_DATA;
    const bool is_none = has_flag(field, SL_FIELD_OPTIONAL) && from->left == 0;
    if (is_data ? from->left > field->most : from->left != field->bytes && !is_none) {
        return protobuf_refuse(place, "of another length");
    }
    if (has_flag(field, SL_FIELD_VIEW)) {
        memcpy((uint8_t *)place->base + field->offset, &from->next, sizeof(void *));
        store_u32(place->base, field->count_offset, (uint32_t)from->left);
        return 0;
    }
    at = has_flag(field, SL_FIELD_OWNED) ? protobuf_resize(place, from->left + 1) : at;
    if (at == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    if (from->left != 0) {
        memcpy(at, from->next, from->left);
    }
    if (is_data) {
        store_u32(place->base, field->count_offset, (uint32_t)from->left);
    }
    set_present(place, !is_none);
    return 0;
}

static int decode_fields(const struct sl_protobuf_type *type, struct sl_bytes cursor, void *base,
                         struct sl_reason *reason);

static int store_item(const struct place *place, const struct value *value, uint8_t *at)
{
    switch (place->field->kind) {
    case SL_PROTOBUF_NAME:
    case SL_PROTOBUF_TEXT:
        return store_text(place, &value->bytes, at);
    case SL_PROTOBUF_BYTES:
    case SL_PROTOBUF_DATA:
        return store_bytes(place, &value->bytes, at);
    case SL_PROTOBUF_MESSAGE:
        set_present(place, true);
        return decode_fields(place->field->type, value->bytes, at, place->reason);
    default:
        store_number(place->field, value->number, at);
        return 0;
    }
}

/* Appends to a list. Owned ones grow to powers of two. */
static int add_item(const struct place *place, const struct value *value)
{
    const struct sl_protobuf_field *field = place->field;
    const uint32_t count = load_u32(place->base, field->count_offset);
    if (count >= field->most) {
        return protobuf_refuse(place, "too many");
    }
    if (has_flag(field, SL_FIELD_OWNED) && (count & (count - 1)) == 0 &&
        protobuf_resize(place, (count == 0 ? 1 : 2 * (size_t)count) * field->bytes) == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    uint8_t *at = item_at(field, place->base, count);
    memset(at, 0, field->bytes);
    store_u32(place->base, field->count_offset, count + 1);
    return store_item(place, value, at);
}

static int add_packed(const struct place *place, struct sl_bytes cursor)
{
    int err = 0;
    while (err == 0 && cursor.left > 0) {
        const struct value value = take_value(&cursor, wire_of(place->field));
        err = cursor.bad ? protobuf_refuse(place, "cut short") : add_item(place, &value);
    }
    return err;
}

static int store_field(const struct place *place, const struct value *value)
{
    const struct sl_protobuf_field *field = place->field;
    const bool is_list = has_flag(field, SL_FIELD_REPEATED);
    if (has_flag(field, SL_FIELD_ONE_OF)) {
        if (load_u32(place->base, place->type->chosen_offset) != 0) {
            return protobuf_refuse(place, "a second one of alternatives");
        }
        store_u32(place->base, place->type->chosen_offset, field->number);
    }
    if (is_list && is_number(field) && value->wire == WIRE_LENGTH) {
        return add_packed(place, value->bytes);
    }
    if (value->wire != wire_of(field)) {
        return protobuf_refuse(place, "of another type");
    }
    return is_list ? add_item(place, value)
                   : store_item(place, value, item_at(field, place->base, 0));
}

static int decode_fields(const struct sl_protobuf_type *type, struct sl_bytes cursor, void *base,
                         struct sl_reason *reason)
{
    struct place place = {.type = type, .base = base, .reason = reason};
    uint64_t seen = 0;
    uint32_t at = 0;
    int err = 0;
    while (err == 0 && cursor.left > 0) {
        const uint64_t tag = take_varint(&cursor);
        const struct value value = take_value(&cursor, tag & 7);
        if (cursor.bad || tag >> 3 == 0 || tag > UINT32_MAX) {
            return sl_reason_fail(reason, SL_ERR_PROTOCOL, "%s: cut short", type->name);
        }
        /* Fields ascend as a rule: the search begins at the last one. */
        uint32_t left = type->field_count;
        for (; left > 0 && type->fields[at].number != tag >> 3; left--) {
            at = at + 1 < type->field_count ? at + 1 : 0;
        }
        if (left > 0) {
            place.field = &type->fields[at];
            err = store_field(&place, &value);
            seen |= (uint64_t)1 << at;
        }
    }
    for (uint32_t i = 0; err == 0 && i < type->field_count; i++) {
        place.field = &type->fields[i];
        if (has_flag(place.field, SL_FIELD_REQUIRED) && (seen >> i & 1) == 0) {
            err = protobuf_refuse(&place, "absent");
        }
    }
    return err;
}

int sl_protobuf_decode(const struct sl_protobuf_type *type, const void *from, size_t bytes,
                       void *out, struct sl_reason *reason)
{
    const int err = decode_fields(type, sl_bytes_over(from, bytes), out, reason);
    return err == 0 ? sl_protobuf_check(type, out, reason) : err;
}

/* Check */

static bool is_name(const struct sl_protobuf_field *field, const uint8_t *text)
{
    const size_t length = text == NULL ? 0 : strnlen((const char *)text, field->bytes);
    for (size_t i = 0; i < length; i++) {
        if (!is_printable(text[i]) || text[i] >= 0x80) {
            return false;
        }
    }
    return length >= field->least && length < field->bytes;
}

static int check_field(const struct place *place)
{
    const struct sl_protobuf_field *field = place->field;
    const bool is_list = has_flag(field, SL_FIELD_REPEATED);
    if (is_list || is_number(field) || field->kind == SL_PROTOBUF_DATA) {
        const uint64_t number = is_number(field) && !is_list
                                    ? load_number(field, item_at(field, place->base, 0))
                                    : load_u32(place->base, field->count_offset);
        if (number < field->least || number > field->most) {
            return protobuf_refuse(place, "outside its range");
        }
    }
    int err = 0;
    for (uint32_t i = item_count_of(field, place->base); i > 0 && err == 0; i--) {
        const uint8_t *at = item_at(field, place->base, i - 1);
        if (field->kind == SL_PROTOBUF_NAME && !is_name(field, at)) {
            err = protobuf_refuse(place, "not a name of printable ASCII");
        } else if (field->kind == SL_PROTOBUF_MESSAGE) {
            err = sl_protobuf_check(field->type, at, place->reason);
        }
    }
    return err;
}

int sl_protobuf_check(const struct sl_protobuf_type *type, const void *message,
                      struct sl_reason *reason)
{
    struct place place = {.type = type, .base = (void *)(uintptr_t)message, .reason = reason};
    for (uint32_t i = 0; i < type->field_count; i++) {
        place.field = &type->fields[i];
        const int err = is_present(type, place.field, message) ? check_field(&place) : 0;
        if (err != 0) {
            return err;
        }
    }
    const char *misfit = type->find_misfit == NULL ? NULL : type->find_misfit(message);
    return misfit == NULL ? 0
                          : sl_reason_fail(reason, SL_ERR_PROTOCOL, "%s: %s", type->name, misfit);
}

void sl_protobuf_fini(const struct sl_protobuf_type *type, void *message)
{
    for (uint32_t i = 0; i < type->field_count; i++) {
        const struct sl_protobuf_field *field = &type->fields[i];
        uint8_t *items = item_at(field, message, 0);
        if (!is_present(type, field, message) || items == NULL) {
            continue;
        }
        if (field->kind == SL_PROTOBUF_MESSAGE && !has_flag(field, SL_FIELD_REPEATED)) {
            sl_protobuf_fini(field->type, items);
        }
        if (has_flag(field, SL_FIELD_OWNED)) {
            free(items);
            memset((uint8_t *)message + field->offset, 0, sizeof(void *));
            if (field->kind != SL_PROTOBUF_NAME) {
                store_u32(message, field->count_offset, 0);
            }
        }
    }
}
