/* Messages and records whose fields have no tags: both sides have the same table, which lists the
 * members of a struct in the order of the wire. One encoder and one decoder serve all tables, and
 * check the same limits. Pure functions; any thread; no allocation. */
#ifndef SL_CORE_FIELDS_H
#define SL_CORE_FIELDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/bytes.h"

enum sl_fields_type {
    /* As in memory, little-endian: the first `bytes` bytes of the member, from `least` to `most`.
     */
    SL_FIELDS_NUMBER,
    /* With its NUL, of at most `most` bytes. Without `is_valid` a longer text is truncated when it
     * is sent. */
    SL_FIELDS_TEXT,
    SL_FIELDS_LIST, /* the fields of each item; a NUMBER before has the count */
    SL_FIELDS_REST, /* all bytes that are left: `least` to `most` */
};

/* A row of a table. The last row has no name. */
struct sl_field {
    const char *name; /* for errors */
    enum sl_fields_type type;
    uint32_t offset, bytes; /* of the member; LIST: of an item; TEXT: of the array, 0: a pointer */
    uint64_t least, most;   /* LIST: of the count */
    uint32_t count_offset;  /* LIST, REST: of the uint32_t with the number of items, or bytes */
    bool (*is_valid)(const char *text); /* TEXT; NULL: any text is */
    const struct sl_field *items;       /* LIST */
};

/* clang-format off */
#define SL_FIELDS_BYTES(tag, member) sizeof(((struct tag *)NULL)->member)
#define SL_FIELDS_RANGE(name_, tag, member, least_, most_)                                         \
    {.name = (name_), .type = SL_FIELDS_NUMBER, .offset = offsetof(struct tag, member),            \
     .bytes = SL_FIELDS_BYTES(tag, member), .least = (least_), .most = (most_)}
#define SL_FIELDS_ANY(name, tag, member) SL_FIELDS_RANGE(name, tag, member, 0, UINT64_MAX)
/* Of a char pointer, and of a char array. A decoded pointer points into the decoded bytes. */
#define SL_FIELDS_POINTER(name_, tag, member, most_, is_valid_)                                    \
    {.name = (name_), .type = SL_FIELDS_TEXT, .offset = offsetof(struct tag, member),              \
     .most = (most_), .is_valid = (is_valid_)}
#define SL_FIELDS_ARRAY(name_, tag, member, is_valid_)                                             \
    {.name = (name_), .type = SL_FIELDS_TEXT, .offset = offsetof(struct tag, member),              \
     .bytes = SL_FIELDS_BYTES(tag, member), .most = SL_FIELDS_BYTES(tag, member),                  \
     .is_valid = (is_valid_)}
/* Two rows, of which the first has the count, in count_bytes bytes. `most` items fill the array. */
#define SL_FIELDS_ITEMS(name_, tag, member, count, count_bytes, least_, most_, fields)             \
    {.name = (name_), .type = SL_FIELDS_NUMBER, .offset = offsetof(struct tag, count),             \
     .bytes = (count_bytes), .least = (least_), .most = (most_)},                                  \
    {.name = (name_), .type = SL_FIELDS_LIST, .offset = offsetof(struct tag, member),              \
     .bytes = SL_FIELDS_BYTES(tag, member) / (most_), .least = (least_), .most = (most_),          \
     .count_offset = offsetof(struct tag, count), .items = (fields)}
/* Defines a table, and that of an item that is a uint64_t. */
#define SL_FIELDS_TABLE(table, ...) static const struct sl_field table[] = {__VA_ARGS__, {0}}
#define SL_FIELDS_U64(table, name_)                                                                \
    SL_FIELDS_TABLE(table, {.name = (name_), .bytes = sizeof(uint64_t), .most = UINT64_MAX})
/* clang-format on */

/* Writes the members of the struct `from`. Returns NULL, or the name of the first one that decoding
 * would refuse, or that does not fit: then what was written is of no use. A NULL text is sent as
 * "". */
const char *sl_fields_put(struct sl_bytes_writer *writer, const struct sl_field *field,
                          const void *from);

/* Fills in the members of the struct `to`, which was zeroed. Returns NULL, or the name of the first
 * one that is cut short or out of range. Further bytes may follow. */
const char *sl_fields_take(struct sl_bytes *cursor, const struct sl_field *field, void *to);

#endif
