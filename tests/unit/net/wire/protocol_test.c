/* docs/protocol.md says what travels, byte for byte: what the page shows is decoded, and encoded
 * again, to the same bytes. That its fields mean what it says, integration/protocol_test.py shows
 * with real processes. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/partition.h"
#include "net/rma/wire.h"
#include "net/session/message.h"
#include "net/wire/frame.h"
#include "net/wire/request.h"
#include "tests/support/unit.h"

#define LINE_BYTES  1024
#define BLOCK_BYTES 4096

/* Calls `check` with each line of the blocks that begin with this, and the rest of that first line.
 */
static void each_line(const char *info, void (*check)(const char *name, char *line))
{
    FILE *page = fopen(PROTOCOL_PAGE, "r");
    assert_non_null(page);
    char line[LINE_BYTES], name[LINE_BYTES] = "", begin[64];
    bool inside = false;
    uint32_t lines = 0;
    snprintf(begin, sizeof begin, "```%s", info);
    while (fgets(line, sizeof line, page) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "```", 3) == 0) {
            if (inside) {
                check(name, NULL);
            }
            inside = strncmp(line, begin, strlen(begin)) == 0;
            snprintf(name, sizeof name, "%s", line + (inside ? strlen(begin) : 0));
        } else if (inside) {
            check(name, line);
            lines++;
        }
    }
    fclose(page);
    assert_true(lines > 3);
}

/* Ours does not send what a table-ask leaves out. */
static void check_control(const char *name, const uint8_t *payload, uint32_t bytes)
{
    struct sl_message message;
    uint8_t again[BLOCK_BYTES];
    assert_int_equal(sl_message_decode(payload, bytes, &message), SL_OK);
    if (strcmp(name, "table-ask") != 0) {
        assert_int_equal(sl_message_encoded_bytes(&message), bytes);
        sl_message_encode(&message, again);
        assert_memory_equal(again, payload, bytes);
    }
    sl_message_fini(&message);
}

static void check_request(const uint8_t *payload, uint32_t bytes, uint32_t dim)
{
    struct sl_bytes cursor = sl_bytes_over(payload, bytes);
    struct sl_request_prefix prefix;
    assert_int_equal(sl_request_read_prefix(&cursor, &prefix), SL_OK);
    for (uint32_t s = 0; s < prefix.section_count; s++) {
        struct sl_request_section section;
        struct sl_request_view view;
        assert_int_equal(sl_request_read_section(&cursor, &section), SL_OK);
        assert_int_equal(sl_request_read_body(&cursor, &section, dim, &view), SL_OK);
    }
    assert_int_equal(cursor.left, 0);
}

static void check_slices(const uint8_t *payload, const struct sl_frame *frame)
{
    struct sl_bytes cursor = sl_bytes_over(payload, frame->payload_bytes);
    uint32_t count;
    assert_int_equal(sl_rma_wire_read_request(&cursor, frame->request_id, &count), SL_OK);
    for (uint32_t i = 0; i < count; i++) {
        struct sl_rma_wire_slice slice;
        assert_int_equal(sl_rma_wire_read_slice(&cursor, &slice), SL_OK);
    }
    assert_int_equal(cursor.left, 0);
}

static void check_reply(const char *name, const uint8_t *payload, const struct sl_frame *frame)
{
    struct sl_bytes cursor = sl_bytes_over(payload, frame->payload_bytes);
    uint32_t count;
    if (strcmp(name, "transfer-applied") == 0) {
        assert_int_equal(sl_rma_wire_read_applied(&cursor, &count), SL_OK);
    } else if (strcmp(name, "transfer-refused") == 0) {
        const char *text = sl_rma_wire_error_text(-(int)frame->status);
        assert_int_equal(frame->payload_bytes, strlen(text));
        assert_memory_equal(payload, text, frame->payload_bytes);
    }
}

static uint32_t shown[SL_FRAME_DATA + 1]; /* frames, by type */

static void check_frame(const char *name, const uint8_t *bytes, size_t length)
{
    struct sl_frame frame;
    uint8_t header[SL_FRAME_HEADER_BYTES];
    const uint8_t *payload = bytes + sizeof header;
    assert_true(length >= sizeof header);
    assert_int_equal(sl_frame_decode(bytes, &frame), SL_OK);
    assert_int_equal(length, sizeof header + frame.payload_bytes);
    assert_int_equal(sl_frame_verify(&frame, payload), SL_OK);
    sl_frame_encode(&frame, header);
    assert_memory_equal(header, bytes, sizeof header);
    if (frame.type == SL_FRAME_CONTROL) {
        check_control(name, payload, frame.payload_bytes);
    } else if (frame.type == SL_FRAME_REPLY) {
        check_reply(name, payload, &frame);
    } else if (strcmp(name, "transfer-request") == 0) {
        check_slices(payload, &frame);
    } else if (frame.type == SL_FRAME_REQUEST) {
        const uint32_t dim = strcmp(name, "kv-request") == 0             ? 4
                             : strcmp(name, "dense-assign-request") == 0 ? 0
                                                                         : 3;
        check_request(payload, frame.payload_bytes, dim);
    }
    shown[frame.type]++;
}

/* Lines of an offset, a colon, and bytes in hex; a frame, but for what is hashed. */
static void read_hex(const char *name, char *line)
{
    static _Alignas(8) uint8_t bytes[BLOCK_BYTES];
    static size_t length;
    if (line == NULL) {
        if (strncmp(name, "hashed", 6) != 0) {
            check_frame(name, bytes, length);
        }
        length = 0;
        return;
    }
    char *at = line, *end;
    assert_int_equal(strtoul(at, &at, 16), length);
    assert_int_equal(*at++, ':');
    for (unsigned long byte; byte = strtoul(at, &end, 16), end != at; at = end) {
        assert_true(byte <= 0xff && length < BLOCK_BYTES);
        bytes[length++] = (uint8_t)byte;
    }
}

SL_CASE(protocol_page__shows_frames_as_they_are)
{
    each_line("hex ", read_hex);
    assert_true(shown[SL_FRAME_CONTROL] > 20);
    assert_int_equal(shown[SL_FRAME_REQUEST], 11);
    assert_int_equal(shown[SL_FRAME_REPLY], 10);
    assert_int_equal(shown[SL_FRAME_CREDIT], 1);
    assert_int_equal(shown[SL_FRAME_DATA], 1);
}

static const uint32_t shard_counts[4] = {2, 3, 7, 4096};

static void check_owners(const char *name, char *line)
{
    if (line == NULL) {
        return;
    }
    const uint64_t key = strtoull(line, &line, 10);
    assert_true(strtoull(line, &line, 16) == sl_hash_key(key));
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(strtoul(line, &line, 10), sl_partition_owner(key, shard_counts[i]));
    }
}

static void check_kv_owners(const char *name, char *line)
{
    if (line == NULL) {
        return;
    }
    const uint64_t key = strtoull(line, &line, 10);
    for (size_t i = 0; i < 4; i++) {
        const uint32_t owner = (uint32_t)strtoul(line, &line, 10);
        assert_int_equal(owner, sl_partition_kv_owner(key, shard_counts[i]));
        assert_true(sl_partition_kv_first(owner, shard_counts[i]) <= key);
    }
}

static void check_ranges(const char *name, char *line)
{
    uint64_t length, first, end;
    uint32_t count, table_id, shard, range;
    if (line == NULL) {
        return;
    }
    assert_int_equal(sscanf(line, "%" SCNu64 " %u %u %u %u %" SCNu64 " %" SCNu64, &length, &count,
                            &table_id, &shard, &range, &first, &end),
                     7);
    assert_int_equal(range, sl_partition_range_of_shard(table_id, shard, count));
    assert_int_equal(shard, sl_partition_shard_of_range(table_id, range, count));
    assert_true(first == sl_partition_range_start(length, count, range));
    assert_true(end == sl_partition_range_start(length, count, range + 1));
}

SL_CASE(protocol_page__tells_the_owners)
{
    each_line("partition", check_owners);
    each_line("kv-partition", check_kv_owners);
    each_line("ranges", check_ranges);
}

static char fields[1 << 16]; /* of the page: its lines up to the semicolon */
static size_t fields_used;

static void take_field(const char *name, char *line)
{
    if (line != NULL && strchr(line, ';') != NULL) {
        fields_used += (size_t)snprintf(fields + fields_used, sizeof fields - fields_used, "%.*s\n",
                                        (int)strcspn(line, ";"), line);
    }
}

/* The messages of the page and control.proto are the same, comments apart. */
SL_CASE(protocol_page__lists_every_field)
{
    each_line("proto", take_field);
    FILE *proto = fopen(CONTROL_PROTO, "r");
    assert_non_null(proto);
    char line[LINE_BYTES];
    uint32_t count = 0;
    while (fgets(line, sizeof line, proto) != NULL) {
        line[strcspn(line, ";")] = '\0';
        if (strncmp(line, "  ", 2) != 0 || strchr(line, '=') == NULL ||
            strstr(line, "//") != NULL || strstr(line, "_UNSET") != NULL ||
            strstr(line, "PURPOSE_") != NULL || strstr(line, "ROLE_") != NULL) {
            continue;
        }
        char whole[LINE_BYTES + 1];
        snprintf(whole, sizeof whole, "%s\n", line);
        if (strstr(fields, whole) == NULL) {
            fail_msg("the page lacks: %s", line);
        }
        count++;
    }
    fclose(proto);
    assert_true(count > 60);
}
