#include "objects/catalogue/message.h"

#include <string.h>

#include "core/assert.h"
#include "core/fields.h"
#include "objects/catalogue/manifest.h"

/* clang-format off */
#define INT(s, m, least, most) SL_FIELDS_RANGE(#m, sl_objects_##s, m, least, most)
#define ANY(s, m)              SL_FIELDS_ANY(#m, sl_objects_##s, m)
#define TEXT(s, m, bytes)      SL_FIELDS_POINTER(#m, sl_objects_##s, m, bytes, message_text_is_valid)
#define NAME(s, m)                                                                                 \
    SL_FIELDS_POINTER(#m, sl_objects_##s, m, SL_OBJECTS_NAME_BYTES, sl_objects_name_is_valid)
#define ITEMS(s, m, count, least, most, fields)                                                    \
    SL_FIELDS_ITEMS(#m, sl_objects_##s, m, count, 1, least, most, fields)
/* clang-format on */

static bool message_text_is_valid(const char *text)
{
    return sl_objects_text_is_valid(text, UINT32_MAX);
}

/* Bytes of a stored part, and so of every range of it. */
#define STORED_BYTES (SL_LIMIT_OBJECTS_IMAGE_BYTES + SL_OBJECTS_MANIFEST_BYTES)
#define ADDRESS_MAX  ((uint64_t)INT64_MAX) /* of memory: sums with lengths do not overflow */
#define ORIGIN_MAX   SL_ORIGIN_CALLER

SL_FIELDS_TABLE(PART, ANY(part, digest.low), ANY(part, digest.high),
                INT(part, bytes, 0, SL_LIMIT_OBJECTS_IMAGE_BYTES), ANY(part, holder),
                INT(part, manifest_bytes, 1, SL_OBJECTS_MANIFEST_BYTES));
SL_FIELDS_U64(NUMBER, "number");
SL_FIELDS_TABLE(PEER, ANY(peer, node), TEXT(peer, address, SL_OBJECTS_ADDRESS_BYTES));
SL_FIELDS_TABLE(RANGE, INT(range, offset, 0, STORED_BYTES), INT(range, address, 0, ADDRESS_MAX),
                INT(range, bytes, 1, STORED_BYTES));
SL_FIELDS_TABLE(ENTRY, NAME(entry, name), TEXT(entry, note, SL_OBJECTS_NOTE_BYTES),
                INT(entry, version, 1, UINT64_MAX), ANY(entry, bytes), ANY(entry, time_ms),
                ANY(entry, holders), INT(entry, part_count, 1, SL_OBJECTS_PARTS_MAX),
                INT(entry, origin, 0, ORIGIN_MAX));
SL_FIELDS_TABLE(FOLLOWER, TEXT(follower, address, SL_OBJECTS_ADDRESS_BYTES),
                TEXT(follower, location, SL_OBJECTS_LOCATION_BYTES), ANY(follower, node),
                ANY(follower, host), ANY(follower, version), ANY(follower, behind),
                ANY(follower, age_ms));
SL_FIELDS_TABLE(RECORD, NAME(record, name), TEXT(record, note, SL_OBJECTS_NOTE_BYTES),
                INT(record, version, 1, UINT64_MAX), ANY(record, epoch), ANY(record, time_ms),
                INT(record, origin, 0, ORIGIN_MAX),
                ITEMS(record, keepers, keeper_count, 0, SL_OBJECTS_KEEPERS_MAX, NUMBER),
                ITEMS(record, parts, part_count, 1, SL_OBJECTS_PARTS_MAX, PART));

/* Members of several kinds. */
#define M_TEXT          SL_FIELDS_POINTER("text", sl_objects_message, text, SL_OBJECTS_TEXT_BYTES, NULL)
#define M_NAME          NAME(message, name)
#define M_VERSION       INT(message, version, 1, UINT64_MAX)
#define M_NEWEST        ANY(message, version) /* 0: the newest, or none */
#define M_PART          INT(message, part, 0, SL_OBJECTS_PARTS_MAX - 1)
#define M_PART_COUNT    INT(message, part_count, 1, SL_OBJECTS_PARTS_MAX)
#define M_SPREAD        INT(message, attach.spread_ms, 0, SL_OBJECTS_SPREAD_MS_MAX)
#define M_RECORD(least) ITEMS(message, commit.record, commit.record_count, least, 1, RECORD)

SL_FIELDS_TABLE(HEADER, INT(message, kind, 1, SL_OBJECTS_KINDS - 1), INT(message, is_answer, 0, 1),
                ANY(message, err), ANY(message, request), ANY(message, term), ANY(message, node));
SL_FIELDS_TABLE(ERROR, M_TEXT, ANY(message, find.oldest), ANY(message, find.newest));
static const struct sl_field NOTHING[] = {{0}};
SL_FIELDS_TABLE(ATTACH, ANY(message, attach.host), ANY(message, attach.roles),
                TEXT(message, attach.location, SL_OBJECTS_LOCATION_BYTES), M_SPREAD);
SL_FIELDS_TABLE(LEASE, INT(message, attach.lease_ms, 1, UINT32_MAX), M_SPREAD);
SL_FIELDS_TABLE(BEGIN, M_NAME, M_NEWEST, M_PART, M_PART_COUNT,
                INT(message, begin.origin, 0, ORIGIN_MAX), ANY(message, begin.options));
SL_FIELDS_TABLE(BEGUN, M_VERSION, ANY(message, epoch), ANY(message, keepers.total),
                ITEMS(message, keepers.peers, keepers.count, 0, SL_OBJECTS_KEEPERS_MAX, PEER));
SL_FIELDS_TABLE(COMMIT, M_PART, M_PART_COUNT, M_RECORD(1));
SL_FIELDS_TABLE(COMMITTED, M_RECORD(1));
/* Of a name or version, and of a part of a version. */
SL_FIELDS_TABLE(OF_NAME, M_NAME, M_NEWEST);
SL_FIELDS_TABLE(OF_PART, M_NAME, M_VERSION, M_PART);
SL_FIELDS_TABLE(DROP, M_NAME, M_NEWEST, M_PART);
SL_FIELDS_TABLE(FIND, M_NAME, M_NEWEST, M_PART,
                ITEMS(message, find.bad, find.bad_count, 0, SL_OBJECTS_OTHERS_MAX, NUMBER));
SL_FIELDS_TABLE(NEWS, M_RECORD(0), M_PART, ANY(message, news.age_ms),
                ITEMS(message, news.parents, news.parent_count, 0, SL_OBJECTS_STRIPES, PEER),
                ITEMS(message, news.others, news.other_count, 0, SL_OBJECTS_OTHERS_MAX, PEER));
SL_FIELDS_TABLE(HOLD, M_NAME, M_VERSION, M_PART, ANY(message, commit.blocks), M_RECORD(0));
SL_FIELDS_TABLE(LIST_FROM, TEXT(message, list.prefix, SL_OBJECTS_NAME_BYTES),
                TEXT(message, name, SL_OBJECTS_NAME_BYTES), M_NEWEST);
SL_FIELDS_TABLE(LISTED, INT(message, list.more, 0, 1),
                ITEMS(message, list.entries, list.entry_count, 0, SL_OBJECTS_ENTRIES_MAX, ENTRY));
SL_FIELDS_TABLE(FOLLOWERS, M_NAME, ANY(message, followers.after));
SL_FIELDS_TABLE(FOLLOWING, ITEMS(message, followers.nodes, followers.count, 0,
                                 SL_OBJECTS_FOLLOWERS_MAX, FOLLOWER));
SL_FIELDS_TABLE(STORE, M_PART, M_PART_COUNT, INT(message, timeout_ms, 1, UINT32_MAX), M_RECORD(1));
SL_FIELDS_TABLE(PUT, M_PART, M_PART_COUNT, INT(message, timeout_ms, 1, UINT32_MAX),
                ANY(message, commit.publisher), M_RECORD(1));
SL_FIELDS_TABLE(PUT_DONE, M_RECORD(0));
SL_FIELDS_TABLE(OF_BYTES, M_NAME, M_VERSION, M_PART, ANY(message, digest.low),
                ANY(message, digest.high));
SL_FIELDS_TABLE(HAVE, M_NAME, M_VERSION, M_PART, ANY(message, have.rate),
                ITEMS(message, have.ranges, have.range_count, 0, SL_OBJECTS_RANGES_MAX, RANGE),
                ITEMS(message, have.manifest, have.manifest_words, 0, SL_OBJECTS_MANIFEST_WORDS_MAX,
                      NUMBER));
SL_FIELDS_TABLE(BATCH, {.name = "batch.messages",
                        .offset = offsetof(struct sl_objects_message, batch.messages),
                        .type = SL_FIELDS_REST,
                        .least = 1,
                        .most = SL_OBJECTS_BATCH_BYTES,
                        .count_offset = offsetof(struct sl_objects_message, batch.bytes)});
SL_FIELDS_TABLE(GONE, M_NAME, M_VERSION, M_PART, M_TEXT);

SL_FIELDS_TABLE(TABLES, M_NAME, M_VERSION, M_PART, M_PART_COUNT, ANY(message, epoch),
                INT(message, timeout_ms, 1, UINT32_MAX), ANY(message, tables.iterations),
                TEXT(message, tables.names, SL_OBJECTS_TABLES_BYTES), M_TEXT);
SL_FIELDS_TABLE(TABLES_DONE, ANY(message, tables.iterations), ANY(message, tables.shards),
                ANY(message, tables.shard_count));

static const struct kind {
    const char *name;
    const struct sl_field *request;
    const struct sl_field *answer; /* NULL: it has none */
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
    [SL_OBJECTS_PUT] = {"PUT", PUT, PUT_DONE},
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
static const struct sl_field *catalogue_message_body_of(const struct sl_objects_message *message)
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

uint32_t sl_objects_message_encode(const struct sl_objects_message *message, void *to)
{
    struct sl_bytes_writer writer = sl_bytes_writer_over(to, SL_OBJECTS_MESSAGE_BYTES);
    const char *wrong = sl_fields_put(&writer, HEADER, message);
    sl_assert(wrong == NULL);
    const struct sl_field *body = catalogue_message_body_of(message);
    sl_assert(body != NULL);
    wrong = find_misfit(message);
    sl_assert(wrong == NULL);
    wrong = sl_fields_put(&writer, body, message);
    sl_assert(wrong == NULL);
    return (uint32_t)(SL_OBJECTS_MESSAGE_BYTES - writer.left);
}

int sl_objects_message_decode(const void *bytes, uint32_t byte_count,
                              struct sl_objects_message *out, struct sl_reason *reason)
{
    struct sl_bytes cursor = sl_bytes_over(bytes, byte_count);
    memset(out, 0, sizeof *out);
    const char *wrong =
        byte_count > SL_OBJECTS_MESSAGE_BYTES ? "length" : sl_fields_take(&cursor, HEADER, out);
    const struct sl_field *body = wrong == NULL ? catalogue_message_body_of(out) : NULL;
    if (body == NULL) {
        return sl_reason_fail(reason, SL_ERR_PROTOCOL, "a message of kind %u is not known (%s)",
                              out->kind, wrong == NULL ? "body" : wrong);
    }
    wrong = sl_fields_take(&cursor, body, out);
    wrong = wrong == NULL ? find_misfit(out) : wrong;
    if (wrong != NULL) {
        return sl_reason_fail(reason, SL_ERR_PROTOCOL, "%s: `%s` is cut short or out of range",
                              sl_objects_message_name(out->kind), wrong);
    }
    return cursor.left == 0 ? 0
                            : sl_reason_fail(reason, SL_ERR_PROTOCOL, "%s: %zu bytes too many",
                                             sl_objects_message_name(out->kind), cursor.left);
}

uint32_t sl_objects_message_image_bytes(const struct sl_objects_message *message)
{
    const struct sl_objects_record *record = &message->commit.record;
    const struct sl_objects_part *part = &record->parts[0];
    const bool is_whole = message->commit.record_count == 1 && record->part_count == 1 &&
                          message->part == 0 && message->part_count <= 1;
    return (message->kind == SL_OBJECTS_PUT || message->kind == SL_OBJECTS_NEWS) && is_whole &&
                   part->bytes > 0 && part->manifest_bytes < SL_OBJECTS_IMAGE_BYTES &&
                   part->bytes <= SL_OBJECTS_IMAGE_BYTES - part->manifest_bytes
               ? part->manifest_bytes + (uint32_t)part->bytes
               : 0;
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
