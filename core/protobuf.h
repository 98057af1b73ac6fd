/* Protobuf messages (proto3) as plain C structs. A table describes each message: the number, the
 * kind, the place in the struct and the limits of every field. One encoder and one decoder serve
 * all tables.
 *
 * Any bytes may be decoded: time is linear in their number, memory is bounded by the limits of the
 * lists, and fields without a row are skipped. Where a field that is not repeated occurs twice, the
 * later one counts. A field of another wire type is refused, and so is a second alternative of a
 * oneof. Encoding writes fields by ascending number, and no zeros. Any thread; only
 * decoding allocates, and only what SL_FIELD_OWNED says. */
#ifndef SL_CORE_PROTOBUF_H
#define SL_CORE_PROTOBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/reason.h"

enum sl_protobuf_kind {
    SL_PROTOBUF_BOOL,
    SL_PROTOBUF_UINT,    /* uint32, uint64, an enum: a member of 4 or 8 bytes */
    SL_PROTOBUF_ERR,     /* uint32; the int is 0 or negative: an sl_err; PROTOCOL if not known */
    SL_PROTOBUF_FIXED64, /* uint64_t */
    SL_PROTOBUF_FLOAT,
    SL_PROTOBUF_NAME,    /* string of printable ASCII, with NUL in a char array; repeated: arrays */
    SL_PROTOBUF_TEXT,    /* string; control characters are decoded as '?' */
    SL_PROTOBUF_BYTES,   /* bytes; fills its array, or is refused */
    SL_PROTOBUF_DATA,    /* bytes; up to `most`, with a count */
    SL_PROTOBUF_MESSAGE, /* of another table, as a struct */
};

enum sl_protobuf_flags {
    SL_FIELD_REPEATED = 1, /* an array of items, with a count */
    /* REPEATED, DATA, NAME: the member is a pointer, decoded to memory of malloc. A list without
     * items and a name "" are NULL. sl_protobuf_fini frees it. Items of lists own nothing. */
    SL_FIELD_OWNED = 2,
    /* MESSAGE, BYTES: present if the bool at count_offset is set. BYTES: an empty one is not. */
    SL_FIELD_OPTIONAL = 4,
    SL_FIELD_REQUIRED = 8, /* refused if absent */
    SL_FIELD_ONE_OF = 16,  /* present if the type's member `chosen` has its number */
    SL_FIELD_VIEW = 32,    /* DATA: the member is a pointer, decoded to the place in the message */
};

struct sl_protobuf_type;

struct sl_protobuf_field {
    const char *name; /* for errors */
    uint32_t number;
    enum sl_protobuf_kind kind;
    uint32_t flags;
    uint32_t offset, bytes; /* of the member; REPEATED, NAME and DATA: of an item */
    uint32_t count_offset;  /* REPEATED, DATA: of the uint32_t count; OPTIONAL: of the bool */
    /* Accepted range: of a number that is not repeated; of a count; of the bytes of one name. */
    uint64_t least, most;
    const struct sl_protobuf_type *type; /* MESSAGE */
};

struct sl_protobuf_type {
    const char *name;                       /* for errors */
    const struct sl_protobuf_field *fields; /* by ascending number; at most 64 */
    uint32_t field_count;
    uint32_t chosen_offset; /* of the uint32_t or enum with the number of the ONE_OF; 0: none */
    /* Checks what no row says, and returns what is wrong, or NULL. Numbers and counts are in their
     * ranges, and the messages inside were checked before. NULL: nothing to check. */
    const char *(*find_misfit)(const void *message);
};

/* Rows of a table, for `member` of `struct tag`. ANY: a number of any value, or a text. */
/* clang-format off */
#define SL_FIELD(number_, kind_, tag, member)                                                      \
    .name = #member, .number = (number_), .kind = SL_PROTOBUF_##kind_,                             \
    .offset = offsetof(struct tag, member)
#define SL_FIELD_BYTES(tag, member) .bytes = sizeof(((struct tag *)NULL)->member)
#define SL_FIELD_ANY(number, kind, tag, member)                                                    \
    {SL_FIELD(number, kind, tag, member), SL_FIELD_BYTES(tag, member), .most = UINT64_MAX}
#define SL_FIELD_RANGE(number, kind, tag, member, least_, most_)                                   \
    {SL_FIELD(number, kind, tag, member), SL_FIELD_BYTES(tag, member), .least = (least_), .most = (most_)}
#define SL_FIELD_MESSAGE(number, tag, member, type_, flags_)                                       \
    {SL_FIELD(number, MESSAGE, tag, member), .type = &(type_), .flags = (flags_)}
/* `count`, or `has`, is another member. LIST: of an array; OWNED_LIST: of a pointer to structs. */
#define SL_FIELD_LIST(number, kind, tag, member, count, least_, type_)                             \
    {SL_FIELD(number, kind, tag, member), SL_FIELD_BYTES(tag, member[0]), .least = (least_),       \
     .most = sizeof(((struct tag *)NULL)->member) / sizeof(((struct tag *)NULL)->member[0]),       \
     .count_offset = offsetof(struct tag, count), .flags = SL_FIELD_REPEATED, .type = (type_)}
#define SL_FIELD_OWNED_LIST(number, tag, member, count, least_, most_, type_)                      \
    {SL_FIELD(number, MESSAGE, tag, member), SL_FIELD_BYTES(tag, member[0]), .least = (least_),    \
     .most = (most_), .count_offset = offsetof(struct tag, count),                                 \
     .flags = SL_FIELD_REPEATED | SL_FIELD_OWNED, .type = &(type_)}
#define SL_FIELD_DATA(number, tag, member, count, most_, flags_)                                   \
    {SL_FIELD(number, DATA, tag, member), .most = (most_),                                         \
     .count_offset = offsetof(struct tag, count), .flags = (flags_)}
#define SL_FIELD_OPTIONAL_OF(number, kind, tag, member, has, type_)                                \
    {SL_FIELD(number, kind, tag, member), SL_FIELD_BYTES(tag, member),                             \
     .count_offset = offsetof(struct tag, has), .flags = SL_FIELD_OPTIONAL, .type = (type_)}
/* Defines a table: its rows, and the static const struct sl_protobuf_type `table`. */
#define SL_PROTOBUF_TABLE(table, name_, find_misfit_, ...)                                         \
    static const struct sl_protobuf_field table##_FIELDS[] = {__VA_ARGS__};                        \
    static const struct sl_protobuf_type table = {                                                 \
        .name = (name_), .fields = table##_FIELDS, .find_misfit = (find_misfit_),                  \
        .field_count = sizeof table##_FIELDS / sizeof table##_FIELDS[0]}
/* clang-format on */

/* Returns the bytes of the encoded message, and writes it to to[room] if it fits. Asserts that
 * counts are within limits and that strings end with NUL; does not check more. */
size_t sl_protobuf_encode(const struct sl_protobuf_type *type, const void *message, uint8_t *to,
                          size_t room);

/* Decodes and checks a message. *out must be zeroed, and needs sl_protobuf_fini, on error too.
 * Errors: PROTOCOL, with a reason that names the field; NO_MEMORY. */
int sl_protobuf_decode(const struct sl_protobuf_type *type, const void *from, size_t bytes,
                       void *out, struct sl_reason *reason);

/* Checks ranges, counts and names of a message, as decoding does. Errors: PROTOCOL, with a reason
 * that names the field. */
int sl_protobuf_check(const struct sl_protobuf_type *type, const void *message,
                      struct sl_reason *reason);

/* Frees what the message owns, and clears it. */
void sl_protobuf_fini(const struct sl_protobuf_type *type, void *message);

#endif
