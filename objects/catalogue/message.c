#include "objects/catalogue/message.h"

#include <stddef.h>
#include <string.h>

#include "core/assert.h"
#include "core/bytes.h"
#include "objects/catalogue/manifest.h"

/* A struct's members are encoded in the order of a list of fields, which ends with END:
 * - NUMBER: as in memory, little-endian, between `least` and `most`;
 * - NAME, TEXT: with its NUL, of at most `most` bytes; CUT: a longer text is truncated when sent;
 * - LIST: the number of items, u8, between `least` and `most`; then the fields of each item;
 * - REST: all bytes that are left, at most `most`. */
enum field_type { END, NUMBER, NAME, TEXT, CUT, LIST, REST };

struct field {
    const char *name;
    uint32_t offset, bytes; /* of the member; LIST: bytes of an item */
    enum field_type type;
    uint64_t least, most;
    uint32_t count_offset; /* LIST, REST: of the u32 with the number of items */
    const struct field *items;
};

/* clang-format off */
#define AT(s, m)                    #m, offsetof(struct sl_objects_##s, m)
#define BYTES(s, m)                 sizeof(((struct sl_objects_##s *)NULL)->m)
#define INT(s, m, least, most)      {AT(s, m), BYTES(s, m), NUMBER, (least), (most), 0, NULL}
#define ANY(s, m)                   INT(s, m, 0, UINT64_MAX)
#define STRING(s, m, type, bytes)   {AT(s, m), 0, type, 0, (bytes), 0, NULL}
#define ITEMS(s, m, count, least, most, fields)                                                    \
    {AT(s, m), BYTES(s, m) / (most), LIST, (least), (most), offsetof(struct sl_objects_##s, count), fields}
/* clang-format on */

/* Bytes of a stored part, and so of every range of it. */
#define STORED_BYTES (SL_LIMIT_OBJECTS_IMAGE_BYTES + SL_OBJECTS_MANIFEST_BYTES)
#define ADDRESS_MAX  ((uint64_t)INT64_MAX) /* of memory: sums with lengths do not overflow */
#define ORIGIN_MAX   SL_ORIGIN_CALLER

static const struct field PART[] = {ANY(part, digest.low),
                                    ANY(part, digest.high),
                                    INT(part, bytes, 0, SL_LIMIT_OBJECTS_IMAGE_BYTES),
                                    ANY(part, holder),
                                    INT(part, manifest_bytes, 1, SL_OBJECTS_MANIFEST_BYTES),
                                    {0}};
static const struct field NODE[] = {{"node", 0, sizeof(uint64_t), NUMBER, 0, UINT64_MAX, 0, NULL},
                                    {0}};
static const struct field PEER[] = {
    ANY(peer, node), STRING(peer, address, TEXT, SL_OBJECTS_ADDRESS_BYTES), {0}};
static const struct field RANGE[] = {INT(range, offset, 0, STORED_BYTES),
                                     INT(range, address, 0, ADDRESS_MAX),
                                     INT(range, bytes, 1, STORED_BYTES),
                                     {0}};
static const struct field ENTRY[] = {STRING(entry, name, NAME, SL_OBJECTS_NAME_BYTES),
                                     STRING(entry, note, TEXT, SL_OBJECTS_NOTE_BYTES),
                                     INT(entry, version, 1, UINT64_MAX),
                                     ANY(entry, bytes),
                                     ANY(entry, time_ms),
                                     ANY(entry, holders),
                                     INT(entry, part_count, 1, SL_OBJECTS_PARTS_MAX),
                                     INT(entry, origin, 0, ORIGIN_MAX),
                                     {0}};
static const struct field FOLLOWER[] = {STRING(follower, address, TEXT, SL_OBJECTS_ADDRESS_BYTES),
                                        STRING(follower, location, TEXT, SL_OBJECTS_LOCATION_BYTES),
                                        ANY(follower, node),
                                        ANY(follower, host),
                                        ANY(follower, version),
                                        ANY(follower, behind),
                                        ANY(follower, age_ms),
                                        {0}};
static const struct field RECORD[] = {
    STRING(record, name, NAME, SL_OBJECTS_NAME_BYTES),
    STRING(record, note, TEXT, SL_OBJECTS_NOTE_BYTES),
    INT(record, version, 1, UINT64_MAX),
    ANY(record, epoch),
    ANY(record, time_ms),
    INT(record, origin, 0, ORIGIN_MAX),
    ITEMS(record, keepers, keeper_count, 0, SL_OBJECTS_KEEPERS_MAX, NODE),
    ITEMS(record, parts, part_count, 1, SL_OBJECTS_PARTS_MAX, PART),
    {0}};

/* Members of several kinds. */
#define M_TEXT          STRING(message, text, CUT, SL_OBJECTS_TEXT_BYTES)
#define M_NAME          STRING(message, name, NAME, SL_OBJECTS_NAME_BYTES)
#define M_VERSION       INT(message, version, 1, UINT64_MAX)
#define M_NEWEST        ANY(message, version) /* 0: the newest, or none */
#define M_PART          INT(message, part, 0, SL_OBJECTS_PARTS_MAX - 1)
#define M_PART_COUNT    INT(message, part_count, 1, SL_OBJECTS_PARTS_MAX)
#define M_RECORD(least) ITEMS(message, commit.record, commit.record_count, least, 1, RECORD)

static const struct field HEADER[] = {INT(message, kind, 1, SL_OBJECTS_KINDS - 1),
                                      INT(message, is_answer, 0, 1),
                                      ANY(message, err),
                                      ANY(message, request),
                                      ANY(message, term),
                                      ANY(message, node),
                                      {0}};
static const struct field ERROR[] = {
    M_TEXT, ANY(message, find.oldest), ANY(message, find.newest), {0}};
static const struct field NOTHING[] = {{0}};
static const struct field ATTACH[] = {
    ANY(message, attach.host),
    ANY(message, attach.roles),
    STRING(message, attach.location, TEXT, SL_OBJECTS_LOCATION_BYTES),
    {0}};
static const struct field LEASE[] = {INT(message, attach.lease_ms, 1, UINT32_MAX), {0}};
static const struct field BEGIN[] = {M_NAME,
                                     M_NEWEST,
                                     M_PART,
                                     M_PART_COUNT,
                                     INT(message, begin.origin, 0, ORIGIN_MAX),
                                     ANY(message, begin.options),
                                     {0}};
static const struct field BEGUN[] = {
    M_VERSION,
    ANY(message, epoch),
    ANY(message, keepers.total),
    ITEMS(message, keepers.peers, keepers.count, 0, SL_OBJECTS_KEEPERS_MAX, PEER),
    {0}};
static const struct field COMMIT[] = {M_PART, M_PART_COUNT, M_RECORD(1), {0}};
static const struct field COMMITTED[] = {M_RECORD(1), {0}};
/* Of a name or version, and of a part of a version. */
static const struct field OF_NAME[] = {M_NAME, M_NEWEST, {0}};
static const struct field OF_PART[] = {M_NAME, M_VERSION, M_PART, {0}};
static const struct field DROP[] = {M_NAME, M_NEWEST, M_PART, {0}};
static const struct field FIND[] = {
    M_NAME,
    M_NEWEST,
    M_PART,
    ITEMS(message, find.bad, find.bad_count, 0, SL_OBJECTS_OTHERS_MAX, NODE),
    {0}};
static const struct field NEWS[] = {
    M_RECORD(0),
    M_PART,
    ANY(message, news.age_ms),
    ITEMS(message, news.parents, news.parent_count, 0, SL_OBJECTS_STRIPES, PEER),
    ITEMS(message, news.others, news.other_count, 0, SL_OBJECTS_OTHERS_MAX, PEER),
    {0}};
static const struct field HOLD[] = {M_NAME,      M_VERSION, M_PART, ANY(message, commit.blocks),
                                    M_RECORD(0), {0}};
static const struct field LIST_FROM[] = {STRING(message, list.prefix, TEXT, SL_OBJECTS_NAME_BYTES),
                                         STRING(message, name, TEXT, SL_OBJECTS_NAME_BYTES),
                                         M_NEWEST,
                                         {0}};
static const struct field LISTED[] = {
    INT(message, list.more, 0, 1),
    ITEMS(message, list.entries, list.entry_count, 0, SL_OBJECTS_ENTRIES_MAX, ENTRY),
    {0}};
static const struct field FOLLOWERS[] = {M_NAME, ANY(message, followers.after), {0}};
static const struct field FOLLOWING[] = {
    ITEMS(message, followers.nodes, followers.count, 0, SL_OBJECTS_FOLLOWERS_MAX, FOLLOWER), {0}};
static const struct field STORE[] = {
    M_PART, M_PART_COUNT, INT(message, timeout_ms, 1, UINT32_MAX), M_RECORD(1), {0}};
static const struct field OF_BYTES[] = {
    M_NAME, M_VERSION, M_PART, ANY(message, digest.low), ANY(message, digest.high), {0}};
static const struct field HAVE[] = {
    M_NAME,
    M_VERSION,
    M_PART,
    ANY(message, have.rate),
    ITEMS(message, have.ranges, have.range_count, 0, SL_OBJECTS_RANGES_MAX, RANGE),
    {0}};
static const struct field BATCH[] = {{AT(message, batch.messages), 1, REST, 1,
                                      SL_OBJECTS_BATCH_BYTES,
                                      offsetof(struct sl_objects_message, batch.bytes), NULL},
                                     {0}};
static const struct field GONE[] = {M_NAME, M_VERSION, M_PART, M_TEXT, {0}};

static const struct field TABLES[] = {M_NAME,
                                      M_VERSION,
                                      M_PART,
                                      M_PART_COUNT,
                                      ANY(message, epoch),
                                      INT(message, timeout_ms, 1, UINT32_MAX),
                                      ANY(message, tables.iterations),
                                      STRING(message, tables.names, TEXT, SL_OBJECTS_TABLES_BYTES),
                                      M_TEXT,
                                      {0}};
static const struct field TABLES_DONE[] = {ANY(message, tables.iterations),
                                           ANY(message, tables.shards),
                                           ANY(message, tables.shard_count),
                                           {0}};

static const struct kind {
    const char *name;
    const struct field *request;
    const struct field *answer; /* NULL: it has none */
} KINDS[SL_OBJECTS_KINDS] = {
    [SL_OBJECTS_ATTACH] = {"ATTACH", ATTACH, LEASE},
    [SL_OBJECTS_ALIVE] = {"ALIVE", ATTACH, LEASE},
    [SL_OBJECTS_BEGIN] = {"BEGIN", BEGIN, BEGUN},
    [SL_OBJECTS_COMMIT] = {"COMMIT", COMMIT, COMMITTED},
    [SL_OBJECTS_FOLLOW] = {"FOLLOW", OF_NAME, NEWS},
    [SL_OBJECTS_FIND] = {"FIND", FIND, NEWS},
    [SL_OBJECTS_NEWS] = {"NEWS", NEWS, NOTHING},
    [SL_OBJECTS_HOLD] = {"HOLD", HOLD, NULL},
    [SL_OBJECTS_DROP] = {"DROP", DROP, NULL},
    [SL_OBJECTS_LIST] = {"LIST", LIST_FROM, LISTED},
    [SL_OBJECTS_REMOVE] = {"REMOVE", OF_NAME, NOTHING},
    [SL_OBJECTS_TABLES] = {"TABLES", TABLES, TABLES_DONE},
    [SL_OBJECTS_RETIRE] = {"RETIRE", OF_BYTES, NULL},
    [SL_OBJECTS_DETACH] = {"DETACH", NOTHING, NOTHING},
    [SL_OBJECTS_USE] = {"USE", OF_NAME, NULL},
    [SL_OBJECTS_FOLLOWERS] = {"FOLLOWERS", FOLLOWERS, FOLLOWING},
    [SL_OBJECTS_BATCH] = {"BATCH", BATCH, NOTHING},
    [SL_OBJECTS_STORE] = {"STORE", STORE, NOTHING},
    [SL_OBJECTS_WANT] = {"WANT", OF_BYTES, HAVE},
    [SL_OBJECTS_DONE] = {"DONE", OF_PART, NULL},
    [SL_OBJECTS_HAVE] = {"HAVE", HAVE, NULL},
    [SL_OBJECTS_GONE] = {"GONE", GONE, NULL},
};

bool sl_objects_text_is_valid(const char *text, uint32_t bytes)
{
    const size_t length = strnlen(text, bytes);
    for (size_t i = 0; i < length; i++) {
        if ((uint8_t)text[i] < ' ' || text[i] == 0x7f) {
            return false;
        }
    }
    return length < bytes;
}

/* RFC 3629: the shortest form of a code point that is no surrogate and at most U+10FFFF. */
bool sl_objects_text_is_utf8(const char *text)
{
    for (const uint8_t *at = (const uint8_t *)text; *at != '\0';) {
        const uint32_t more = *at < 0x80 ? 0 : *at < 0xe0 ? 1 : *at < 0xf0 ? 2 : 3;
        uint32_t point = more == 0 ? *at : *at & (0x3fU >> more);
        static const uint32_t LEAST[] = {0, 0x80, 0x800, 0x10000};
        if ((*at >= 0x80 && *at < 0xc2) || *at > 0xf4) {
            return false;
        }
        at++;
        for (uint32_t i = 0; i < more; i++, at++) {
            if ((*at & 0xc0) != 0x80) {
                return false;
            }
            point = point << 6 | (*at & 0x3fU);
        }
        if (point < LEAST[more] || point > 0x10ffff || (point >= 0xd800 && point < 0xe000)) {
            return false;
        }
    }
    return true;
}

bool sl_objects_name_is_valid(const char *name)
{
    return sl_objects_text_is_valid(name, SL_OBJECTS_NAME_BYTES) && name[0] != '\0' &&
           strpbrk(name, " @") == NULL && sl_objects_text_is_utf8(name);
}

const char *sl_objects_message_name(uint32_t kind)
{
    return kind < SL_OBJECTS_KINDS && KINDS[kind].name != NULL ? KINDS[kind].name : "unknown";
}

/* The list of fields of a body; NULL: no such message. */
static const struct field *catalogue_message_body_of(const struct sl_objects_message *message)
{
    const struct kind *kind = &KINDS[message->kind];
    if (message->err != 0) {
        return message->err < 0 && message->err > INT16_MIN && message->is_answer &&
                       kind->answer != NULL
                   ? ERROR
                   : NULL;
    }
    return message->is_answer ? kind->answer : kind->request;
}

static bool text_fits(const struct field *field, const char *text)
{
    return field->type == CUT ||
           (field->type == NAME ? sl_objects_name_is_valid(text)
                                : sl_objects_text_is_valid(text, (uint32_t)field->most));
}

static bool number_fits(const struct field *field, uint64_t number)
{
    return number >= field->least && number <= field->most;
}

/* Returns the name of a member that does not go with the others; NULL: all do. */
static const char *find_misfit(const struct sl_objects_message *message)
{
    const bool wants_answer = !message->is_answer && message->request != 0;
    if (wants_answer && KINDS[message->kind].answer == NULL) {
        return "request";
    }
    /* Kinds that have no number of parts have 0. */
    return message->part_count == 0 || message->part < message->part_count ? NULL : "part";
}

/* Encode */

static void put(struct sl_bytes_writer *writer, const struct field *field, const void *base)
{
    for (; field->type != END; field++) {
        const uint8_t *at = (const uint8_t *)base + field->offset;
        if (field->type == NUMBER) {
            uint64_t number = 0;
            memcpy(&number, at, field->bytes);
            sl_assert(number_fits(field, number));
            sl_bytes_put(writer, at, field->bytes);
        } else if (field->type == LIST) {
            uint32_t count;
            memcpy(&count, (const uint8_t *)base + field->count_offset, sizeof count);
            sl_assert(number_fits(field, count));
            sl_bytes_put_u8(writer, (uint8_t)count);
            for (uint32_t i = 0; i < count; i++) {
                put(writer, field->items, at + i * field->bytes);
            }
        } else if (field->type == REST) {
            const void *rest;
            uint32_t count;
            memcpy(&rest, at, sizeof rest);
            memcpy(&count, (const uint8_t *)base + field->count_offset, sizeof count);
            sl_assert(number_fits(field, count));
            sl_bytes_put(writer, rest, count);
        } else {
            const char *text;
            memcpy(&text, at, sizeof text);
            text = text == NULL ? "" : text;
            sl_assert(text_fits(field, text));
            sl_bytes_put(writer, text, strnlen(text, field->most - 1));
            sl_bytes_put_u8(writer, 0);
        }
    }
}

uint32_t sl_objects_message_encode(const struct sl_objects_message *message, void *to)
{
    struct sl_bytes_writer writer = sl_bytes_writer_over(to, SL_OBJECTS_MESSAGE_BYTES);
    put(&writer, HEADER, message);
    const struct field *body = catalogue_message_body_of(message);
    sl_assert(body != NULL);
    sl_assert(find_misfit(message) == NULL);
    put(&writer, body, message);
    sl_assert(!writer.bad);
    return (uint32_t)(SL_OBJECTS_MESSAGE_BYTES - writer.left);
}

/* Decode */

/* Returns the name of the first field that is wrong or cut short; NULL: all are right. */
static const char *take(struct sl_bytes *cursor, const struct field *field, void *base)
{
    for (; field->type != END; field++) {
        uint8_t *at = (uint8_t *)base + field->offset;
        bool fits;
        if (field->type == NUMBER) {
            uint64_t number = 0;
            sl_bytes_copy(cursor, &number, field->bytes);
            fits = number_fits(field, number);
            memcpy(at, &number, fits ? field->bytes : 0);
        } else if (field->type == LIST) {
            const uint32_t count = sl_bytes_u8(cursor);
            fits = number_fits(field, count);
            memcpy((uint8_t *)base + field->count_offset, &count, fits ? sizeof count : 0);
            for (uint32_t i = 0; i < count && fits; i++) {
                const char *wrong = take(cursor, field->items, at + i * field->bytes);
                if (wrong != NULL) {
                    return wrong;
                }
            }
        } else if (field->type == REST) {
            const uint32_t count = (uint32_t)cursor->left;
            const uint8_t *rest = sl_bytes_take(cursor, count);
            fits = number_fits(field, count);
            memcpy(at, &rest, sizeof rest);
            memcpy((uint8_t *)base + field->count_offset, &count, sizeof count);
        } else {
            const char *text = sl_bytes_text(cursor, field->most);
            fits = text_fits(field, text);
            memcpy(at, &text, sizeof text);
        }
        if (!fits || cursor->bad) {
            return field->name;
        }
    }
    return NULL;
}

int sl_objects_message_decode(const void *bytes, uint32_t byte_count,
                              struct sl_objects_message *out, struct sl_reason *reason)
{
    struct sl_bytes cursor = sl_bytes_over(bytes, byte_count);
    memset(out, 0, sizeof *out);
    const char *wrong =
        byte_count > SL_OBJECTS_MESSAGE_BYTES ? "length" : take(&cursor, HEADER, out);
    const struct field *body = wrong == NULL ? catalogue_message_body_of(out) : NULL;
    if (body == NULL) {
        return sl_reason_fail(reason, SL_ERR_PROTOCOL, "a message of kind %u is not known (%s)",
                              out->kind, wrong == NULL ? "body" : wrong);
    }
    wrong = take(&cursor, body, out);
    wrong = wrong == NULL ? find_misfit(out) : wrong;
    if (wrong != NULL) {
        return sl_reason_fail(reason, SL_ERR_PROTOCOL, "%s: `%s` is cut short or out of range",
                              sl_objects_message_name(out->kind), wrong);
    }
    return cursor.left == 0 ? 0
                            : sl_reason_fail(reason, SL_ERR_PROTOCOL, "%s: %zu bytes too many",
                                             sl_objects_message_name(out->kind), cursor.left);
}

/* Batches */

bool sl_objects_message_batch(struct sl_objects_message *batch,
                              uint8_t text[SL_OBJECTS_BATCH_BYTES],
                              const struct sl_objects_message *message)
{
    uint8_t encoded[SL_OBJECTS_MESSAGE_BYTES];
    const uint32_t bytes = sl_objects_message_encode(message, encoded);
    struct sl_bytes_writer writer = sl_bytes_writer_over(
        text + batch->batch.bytes, SL_OBJECTS_BATCH_BYTES - batch->batch.bytes);
    sl_bytes_put_u16(&writer, (uint16_t)bytes);
    sl_bytes_put(&writer, encoded, bytes);
    batch->batch.bytes += writer.bad ? 0 : bytes + (uint32_t)sizeof(uint16_t);
    return !writer.bad;
}

int sl_objects_message_unbatch(struct sl_objects_message *batch, struct sl_objects_message *out,
                               struct sl_reason *reason)
{
    struct sl_bytes cursor = sl_bytes_over(batch->batch.messages, batch->batch.bytes);
    if (batch->batch.bytes == 0) {
        return SL_ERR_NOT_FOUND;
    }
    const uint16_t bytes = sl_bytes_u16(&cursor);
    const void *message = sl_bytes_take(&cursor, bytes);
    if (cursor.bad) {
        return sl_reason_fail(reason, SL_ERR_PROTOCOL, "BATCH: a message is cut short");
    }
    batch->batch.messages += bytes + sizeof bytes;
    batch->batch.bytes = (uint32_t)cursor.left;
    return sl_objects_message_decode(message, bytes, out, reason);
}
