#include "programs/serve/base/message.h"

#include <string.h>

#include "core/fields.h"
#include "objects/catalogue/manifest.h"
#include "objects/catalogue/message.h"

static bool host_is_valid(const char *text)
{
    return sl_objects_text_is_valid(text, SL_SERVE_LABEL_BYTES);
}

static bool current_is_valid(const char *text)
{
    return text[0] == '\0' || sl_objects_name_is_valid(text);
}

/* clang-format off */
#define INT(s, m, least, most) SL_FIELDS_RANGE(#m, sl_serve_##s, m, least, most)
#define ANY(s, m)              SL_FIELDS_ANY(#m, sl_serve_##s, m)
#define TEXT(s, m, is_valid)   SL_FIELDS_ARRAY(#m, sl_serve_##s, m, is_valid)
#define TIME(m)                INT(load, m, 0, INT64_MAX)
#define ITEMS(s, m, count, most, fields)                                                           \
    SL_FIELDS_ITEMS(#m, sl_serve_##s, m, count, sizeof(uint32_t), 0, most, fields)
/* [address, + bytes) does not overflow. */
#define AREA(address, bytes)   INT(message, address, 0, INT64_MAX), INT(message, bytes, 0, INT64_MAX)
/* Members of several kinds. */
#define M_INCARNATION          INT(message, incarnation, 1, UINT64_MAX)
#define M_REQUEST              INT(message, request, 1, UINT64_MAX)
#define M_TENSORS              ITEMS(message, tensors, tensor_count, SL_SERVE_TENSORS_MAX, TENSOR)
/* clang-format on */

SL_FIELDS_U64(EXTENT, "tensor.shape");
SL_FIELDS_TABLE(TENSOR,
                SL_FIELDS_ARRAY("tensor.name", sl_serve_tensor, name,
                                sl_serve_request_name_is_valid),
                SL_FIELDS_ANY("tensor.type", sl_serve_tensor, type),
                SL_FIELDS_ITEMS("tensor.rank", sl_serve_tensor, shape, rank, sizeof(uint32_t), 0,
                                SL_OBJECTS_RANK_MAX, EXTENT),
                SL_FIELDS_ANY("tensor.offset", sl_serve_tensor, offset),
                SL_FIELDS_ANY("tensor.bytes", sl_serve_tensor, bytes));
SL_FIELDS_TABLE(MODEL, TEXT(load, model, sl_objects_name_is_valid),
                INT(load, version, 1, UINT64_MAX), INT(load, bytes, 0, INT64_MAX),
                INT(load, resident_bytes, 0, INT64_MAX), TIME(alpha_ns), TIME(beta_ps),
                TIME(batch_ns), TIME(row_ns), TIME(exposed_ns));

SL_FIELDS_TABLE(KIND, INT(message, kind, 1, SL_SERVE_MESSAGE_KINDS - 1));
SL_FIELDS_TABLE(JOIN, M_INCARNATION, TEXT(message, join.host, host_is_valid),
                AREA(join.arena_address, join.arena_bytes),
                INT(message, join.batch_max, 1, UINT32_MAX));
SL_FIELDS_TABLE(LEAVE, M_INCARNATION);
SL_FIELDS_TABLE(LOAD, ANY(message, request), ANY(message, queue_count),
                INT(message, queue_ns, 0, INT64_MAX), TEXT(message, current, current_is_valid),
                ITEMS(message, loads, load_count, SL_SERVE_LOADS_MAX, MODEL));
SL_FIELDS_TABLE(INFER, M_INCARNATION, M_REQUEST,
                INT(message, request_kind, SL_SERVE_INFER, SL_SERVE_LOAD),
                TEXT(message, model, sl_objects_name_is_valid), ANY(message, version),
                INT(message, deadline_us, 0, INT64_MAX / 1000), AREA(input_address, input_bytes),
                AREA(output_address, output_room), M_TENSORS);
SL_FIELDS_TABLE(CANCEL, M_INCARNATION, M_REQUEST);
SL_FIELDS_TABLE(DONE, ANY(message, err), TEXT(message, text, NULL), ANY(message, version),
                ANY(message, queue_us), ANY(message, load_us), ANY(message, compute_us),
                INT(message, output_bytes, 0, INT64_MAX), M_TENSORS);

static const struct kind {
    const char *name;
    const struct sl_field *fields;
} KINDS[SL_SERVE_MESSAGE_KINDS] = {
    [SL_SERVE_MESSAGE_JOIN] = {"JOIN", JOIN},       [SL_SERVE_MESSAGE_LEAVE] = {"LEAVE", LEAVE},
    [SL_SERVE_MESSAGE_LOAD] = {"LOAD", LOAD},       [SL_SERVE_MESSAGE_INFER] = {"INFER", INFER},
    [SL_SERVE_MESSAGE_CANCEL] = {"CANCEL", CANCEL}, [SL_SERVE_MESSAGE_DONE] = {"DONE", DONE},
};

const char *sl_serve_message_name(uint32_t kind)
{
    return kind < SL_SERVE_MESSAGE_KINDS && KINDS[kind].name != NULL ? KINDS[kind].name : "unknown";
}

/* Whether the bytes are those of type and shape, and lie in `room` bytes. */
static bool tensor_fits(const struct sl_serve_tensor *tensor, uint64_t room)
{
    uint64_t bytes = sl_objects_type_bytes(tensor->type);
    for (uint32_t i = 0; i < tensor->rank; i++) {
        if (__builtin_mul_overflow(bytes, tensor->shape[i], &bytes)) {
            return false;
        }
    }
    return sl_objects_type_bytes(tensor->type) != 0 && bytes == tensor->bytes && bytes <= room &&
           tensor->offset % 64 == 0 && tensor->offset <= room - bytes;
}

/* Returns the name of a member that does not go with the others; NULL: all do. */
static const char *find_misfit(const struct sl_serve_message *message)
{
    const bool is_load = message->kind == SL_SERVE_MESSAGE_LOAD;
    const bool is_infer = message->kind == SL_SERVE_MESSAGE_INFER;
    const bool is_done = message->kind == SL_SERVE_MESSAGE_DONE;
    if (is_done && (message->err > 0 || message->err <= INT16_MIN)) {
        return "err";
    }
    for (uint32_t i = 0; is_load && i < message->load_count; i++) {
        if (message->loads[i].resident_bytes > message->loads[i].bytes) {
            return "resident_bytes";
        }
    }
    const uint64_t room = is_infer ? message->input_bytes : message->output_bytes;
    for (uint32_t i = 0; (is_infer || is_done) && i < message->tensor_count; i++) {
        if (!tensor_fits(&message->tensors[i], room)) {
            return "tensor";
        }
    }
    return NULL;
}

/* Length of the tail, if there is one. */
static uint64_t tail_bytes(const struct sl_serve_message *message)
{
    return message->kind == SL_SERVE_MESSAGE_INFER                       ? message->input_bytes
           : message->kind == SL_SERVE_MESSAGE_DONE && message->err == 0 ? message->output_bytes
                                                                         : 0;
}

int sl_serve_message_encode(const struct sl_serve_message *message, void *to,
                            struct sl_reason *reason)
{
    struct sl_bytes_writer writer = sl_bytes_writer_over(to, SL_SERVE_MESSAGE_BYTES);
    const char *wrong = sl_fields_put(&writer, KIND, message);
    wrong = wrong == NULL ? sl_fields_put(&writer, KINDS[message->kind].fields, message) : wrong;
    wrong = wrong == NULL ? find_misfit(message) : wrong;
    if (wrong != NULL) {
        return sl_reason_fail(reason, SL_ERR_INVALID, "%s cannot have this `%s`",
                              sl_serve_message_name(message->kind), wrong);
    }
    if (message->tail != NULL && tail_bytes(message) > writer.left) {
        return sl_reason_fail(reason, SL_ERR_TOO_LARGE, "%s has no room for its tail",
                              sl_serve_message_name(message->kind));
    }
    if (message->tail != NULL) {
        sl_bytes_put(&writer, message->tail, tail_bytes(message));
    }
    return (int)(SL_SERVE_MESSAGE_BYTES - writer.left);
}

int sl_serve_message_decode(const void *bytes, uint32_t byte_count, struct sl_serve_message *out,
                            struct sl_reason *reason)
{
    struct sl_bytes cursor = sl_bytes_over(bytes, byte_count);
    memset(out, 0, sizeof *out);
    const char *wrong =
        byte_count > SL_SERVE_MESSAGE_BYTES ? "length" : sl_fields_take(&cursor, KIND, out);
    wrong = wrong == NULL ? sl_fields_take(&cursor, KINDS[out->kind].fields, out) : wrong;
    wrong = wrong == NULL ? find_misfit(out) : wrong;
    if (wrong != NULL) {
        return sl_reason_fail(reason, SL_ERR_PROTOCOL, "%s: `%s` is cut short or out of range",
                              sl_serve_message_name(out->kind), wrong);
    }
    if (cursor.left > 0 && cursor.left != tail_bytes(out)) {
        return sl_reason_fail(reason, SL_ERR_PROTOCOL, "%s: %zu bytes behind it",
                              sl_serve_message_name(out->kind), cursor.left);
    }
    out->tail = cursor.left > 0 ? cursor.next : NULL;
    return 0;
}
