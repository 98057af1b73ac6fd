/* The tables of the codec say what control.proto and report.proto say. */
#include <string.h>

#include "control.pb-c.h"
#include "net/session/message_table.h"
#include "report.pb-c.h"
#include "tests/support/unit.h"

/* The type of a row as protobuf-c names it. Enums are numbers. */
static ProtobufCType type_of(const struct sl_protobuf_field *row)
{
    static const ProtobufCType types[] = {
        [SL_PROTOBUF_BOOL] = PROTOBUF_C_TYPE_BOOL,
        [SL_PROTOBUF_ERR] = PROTOBUF_C_TYPE_UINT32,
        [SL_PROTOBUF_FIXED64] = PROTOBUF_C_TYPE_FIXED64,
        [SL_PROTOBUF_FLOAT] = PROTOBUF_C_TYPE_FLOAT,
        [SL_PROTOBUF_NAME] = PROTOBUF_C_TYPE_STRING,
        [SL_PROTOBUF_TEXT] = PROTOBUF_C_TYPE_STRING,
        [SL_PROTOBUF_BYTES] = PROTOBUF_C_TYPE_BYTES,
        [SL_PROTOBUF_DATA] = PROTOBUF_C_TYPE_BYTES,
        [SL_PROTOBUF_MESSAGE] = PROTOBUF_C_TYPE_MESSAGE,
    };
    if (row->kind == SL_PROTOBUF_UINT) {
        assert_true(row->bytes == sizeof(uint32_t) || row->bytes == sizeof(uint64_t));
        return row->bytes == sizeof(uint64_t) ? PROTOBUF_C_TYPE_UINT64 : PROTOBUF_C_TYPE_UINT32;
    }
    return types[row->kind];
}

/* Members whose names differ from those of the fields. A row has the name of its member: so no row
 * can stand for another member of the same type. */
static bool is_named(const char *field, const char *member)
{
    static const char *const others[][2] = {
        {"code", "err"},
        {"a", "low"},
        {"b", "high"},
        {"ask", "asks"},
        {"leave", "leaves"},
        {"base_number", "base"},
        {"number", "checkpoint_number"},
        {"complete", "complete.items"},
        {"unfinished", "unfinished.items"},
        {"dropped", "dropped.items"},
        {"token", "bytes"},
        {"text", "bytes"},
        {"name", "table_name"},
        {"keys", "items"},
        {"from", "table_id"},
        {"what", "why"},
        {"buffers", "items"},
        {"moves", "items"},
        {"buffers", "buffers.items"},
    };
    bool is_other = false;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        is_other |= strcmp(field, others[i][0]) == 0 && strcmp(member, others[i][1]) == 0;
    }
    return is_other || strcmp(field, member) == 0;
}

static void assert_matches(const ProtobufCMessageDescriptor *message,
                           const struct sl_protobuf_type *table)
{
    assert_int_equal(message->n_fields, table->field_count);
    for (uint32_t i = 0; i < table->field_count; i++) {
        const ProtobufCFieldDescriptor *field = &message->fields[i];
        const struct sl_protobuf_field *row = &table->fields[i];
        const bool is_repeated = field->label == PROTOBUF_C_LABEL_REPEATED;
        const ProtobufCType type =
            field->type == PROTOBUF_C_TYPE_ENUM ? PROTOBUF_C_TYPE_UINT32 : field->type;
        const bool is_body = (row->flags & SL_FIELD_ONE_OF) != 0;
        if (field->id != row->number || type != type_of(row) ||
            !(is_body || is_named(field->name, row->name))) {
            fail_msg("%s.%s is not %s.%s", message->name, field->name, table->name, row->name);
        }
        assert_int_equal(is_repeated, (row->flags & SL_FIELD_REPEATED) != 0);
        assert_int_equal((field->flags & PROTOBUF_C_FIELD_FLAG_PACKED) != 0,
                         is_repeated && row->kind < SL_PROTOBUF_NAME);
        assert_int_equal((field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) != 0, is_body);
        if (row->kind == SL_PROTOBUF_MESSAGE) {
            assert_matches(field->descriptor, row->type);
        }
    }
}

SL_CASE(message_table__is_control_proto)
{
    assert_matches(&starling__control__descriptor, &sl_message_table);
}

SL_CASE(message_table__is_report_proto)
{
    assert_matches(&starling__report__descriptor, sl_message_table_report);
}
