#include "programs/serve/base/message.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "core/bytes.h"
#include "objects/catalogue/manifest.h"
#include "objects/catalogue/message.h"

/* A message passes through a function of its kind, which names its members in the order of the
 * wire. The same function encodes and decodes: it writes each member, or reads it. */
struct pass {
    bool is_decoding;
    struct sl_bytes in;
    struct sl_bytes_writer out;
    const char *wrong; /* the first member that is cut short or out of range; NULL: none */
};

static void base_message_check(struct pass *pass, const char *name, bool is_right)
{
    if (pass->wrong == NULL && (!is_right || pass->in.bad || pass->out.bad)) {
        pass->wrong = name;
    }
}

/* A number as in memory, little-endian. */
static void base_message_number(struct pass *pass, const char *name, void *member, uint32_t bytes,
                                uint64_t least, uint64_t most)
{
    if (pass->is_decoding) {
        sl_bytes_copy(&pass->in, member, bytes);
    } else {
        sl_bytes_put(&pass->out, member, bytes);
    }
    uint64_t value = 0;
    memcpy(&value, member, bytes);
    base_message_check(pass, name, value >= least && value <= most);
}

/* A text with its NUL, in an array of `bytes` bytes. */
static void text(struct pass *pass, const char *name, char *member, uint32_t bytes)
{
    if (pass->is_decoding) {
        const char *from = sl_bytes_text(&pass->in, bytes);
        memcpy(member, from, strlen(from) + 1);
    } else {
        const size_t length = strnlen(member, bytes - 1);
        sl_bytes_put(&pass->out, member, length);
        sl_bytes_put_u8(&pass->out, 0);
    }
    base_message_check(pass, name, true);
}

#define NUMBER(m, least, most)                                                                     \
    base_message_number(pass, #m, &message->m, sizeof message->m, (least), (most))
#define TEXT(m) text(pass, #m, message->m, sizeof message->m)
#define ANY     UINT64_MAX

static void model(struct pass *pass, char *name)
{
    text(pass, "model", name, SL_OBJECTS_NAME_BYTES);
    base_message_check(pass, "model", sl_objects_name_is_valid(name));
}

/* [address, + bytes) does not overflow. */
static void range(struct pass *pass, const char *name, uint64_t *address, uint64_t *bytes)
{
    base_message_number(pass, name, address, sizeof *address, 0, INT64_MAX);
    base_message_number(pass, name, bytes, sizeof *bytes, 0, INT64_MAX);
}

/* Whether the bytes are those of type and shape, and lie in `room` bytes. */
static bool tensor_fits(const struct sl_serve_tensor *tensor, uint64_t room)
{
    uint64_t bytes = sl_objects_type_bytes(tensor->type);
    if (bytes == 0 || tensor->rank > SL_OBJECTS_RANK_MAX) {
        return false;
    }
    for (uint32_t i = 0; i < tensor->rank; i++) {
        if (__builtin_mul_overflow(bytes, tensor->shape[i], &bytes)) {
            return false;
        }
    }
    return bytes == tensor->bytes && bytes <= room && tensor->offset % 64 == 0 &&
           tensor->offset <= room - bytes;
}

static void tensors(struct pass *pass, struct sl_serve_message *message, uint64_t room)
{
    NUMBER(tensor_count, 0, SL_SERVE_TENSORS_MAX);
    for (uint32_t i = 0; pass->wrong == NULL && i < message->tensor_count; i++) {
        struct sl_serve_tensor *tensor = &message->tensors[i];
        text(pass, "tensor.name", tensor->name, sizeof tensor->name);
        base_message_check(pass, "tensor.name", sl_serve_request_name_is_valid(tensor->name));
        base_message_number(pass, "tensor.type", &tensor->type, sizeof tensor->type, 0, UINT32_MAX);
        base_message_number(pass, "tensor.rank", &tensor->rank, sizeof tensor->rank, 0,
                            SL_OBJECTS_RANK_MAX);
        for (uint32_t j = 0; pass->wrong == NULL && j < tensor->rank; j++) {
            base_message_number(pass, "tensor.shape", &tensor->shape[j], sizeof tensor->shape[j], 0,
                                ANY);
        }
        base_message_number(pass, "tensor.offset", &tensor->offset, sizeof tensor->offset, 0, ANY);
        base_message_number(pass, "tensor.bytes", &tensor->bytes, sizeof tensor->bytes, 0, ANY);
        base_message_check(pass, "tensor", tensor_fits(tensor, room));
    }
}

static void join(struct pass *pass, struct sl_serve_message *message)
{
    NUMBER(incarnation, 1, ANY);
    TEXT(join.host);
    base_message_check(pass, "host",
                       sl_objects_text_is_valid(message->join.host, sizeof message->join.host));
    range(pass, "arena", &message->join.arena_address, &message->join.arena_bytes);
    NUMBER(join.batch_max, 1, UINT32_MAX);
}

static void base_message_leave(struct pass *pass, struct sl_serve_message *message)
{
    NUMBER(incarnation, 1, ANY);
}

static void base_message_load(struct pass *pass, struct sl_serve_message *message)
{
    NUMBER(request, 0, ANY);
    NUMBER(queue_count, 0, UINT32_MAX);
    NUMBER(queue_ns, 0, INT64_MAX);
    TEXT(current);
    base_message_check(pass, "current",
                       message->current[0] == '\0' || sl_objects_name_is_valid(message->current));
    NUMBER(load_count, 0, SL_SERVE_LOADS_MAX);
    for (uint32_t i = 0; pass->wrong == NULL && i < message->load_count; i++) {
        struct sl_serve_load *one = &message->loads[i];
        model(pass, one->model);
        base_message_number(pass, "version", &one->version, sizeof one->version, 1, ANY);
        base_message_number(pass, "bytes", &one->bytes, sizeof one->bytes, 0, INT64_MAX);
        base_message_number(pass, "resident_bytes", &one->resident_bytes,
                            sizeof one->resident_bytes, 0, one->bytes);
        uint64_t *const times[] = {&one->alpha_ns, &one->beta_ps, &one->batch_ns, &one->row_ns,
                                   &one->exposed_ns};
        for (uint32_t j = 0; j < sizeof times / sizeof times[0]; j++) {
            base_message_number(pass, "times", times[j], sizeof *times[j], 0, INT64_MAX);
        }
    }
}

static void base_message_infer(struct pass *pass, struct sl_serve_message *message)
{
    NUMBER(incarnation, 1, ANY);
    NUMBER(request, 1, ANY);
    NUMBER(request_kind, SL_SERVE_INFER, SL_SERVE_LOAD);
    model(pass, message->model);
    NUMBER(version, 0, ANY);
    NUMBER(deadline_us, 0, INT64_MAX / 1000);
    range(pass, "input", &message->input_address, &message->input_bytes);
    range(pass, "output", &message->output_address, &message->output_room);
    tensors(pass, message, message->input_bytes);
}

static void base_message_cancel(struct pass *pass, struct sl_serve_message *message)
{
    NUMBER(incarnation, 1, ANY);
    NUMBER(request, 1, ANY);
}

static void base_message_done(struct pass *pass, struct sl_serve_message *message)
{
    NUMBER(err, 0, ANY);
    base_message_check(pass, "err", message->err <= 0 && message->err > INT16_MIN);
    TEXT(text);
    NUMBER(version, 0, ANY);
    NUMBER(queue_us, 0, UINT32_MAX);
    NUMBER(load_us, 0, UINT32_MAX);
    NUMBER(compute_us, 0, UINT32_MAX);
    NUMBER(output_bytes, 0, INT64_MAX);
    tensors(pass, message, message->output_bytes);
}

static const struct kind {
    const char *name;
    void (*pass)(struct pass *pass, struct sl_serve_message *message);
} KINDS[SL_SERVE_MESSAGE_KINDS] = {
    [SL_SERVE_MESSAGE_JOIN] = {"JOIN", join},
    [SL_SERVE_MESSAGE_LEAVE] = {"LEAVE", base_message_leave},
    [SL_SERVE_MESSAGE_LOAD] = {"LOAD", base_message_load},
    [SL_SERVE_MESSAGE_INFER] = {"INFER", base_message_infer},
    [SL_SERVE_MESSAGE_CANCEL] = {"CANCEL", base_message_cancel},
    [SL_SERVE_MESSAGE_DONE] = {"DONE", base_message_done},
};

const char *sl_serve_message_name(uint32_t kind)
{
    return kind < SL_SERVE_MESSAGE_KINDS && KINDS[kind].name != NULL ? KINDS[kind].name : "unknown";
}

static void whole(struct pass *pass, struct sl_serve_message *message)
{
    NUMBER(kind, 1, SL_SERVE_MESSAGE_KINDS - 1);
    if (pass->wrong == NULL) {
        KINDS[message->kind].pass(pass, message);
    }
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
    struct sl_serve_message copy = *message; /* `whole` takes what it could write to */
    struct pass pass = {.out = sl_bytes_writer_over(to, SL_SERVE_MESSAGE_BYTES)};
    whole(&pass, &copy);
    if (pass.wrong != NULL) {
        return sl_reason_fail(reason, SL_ERR_INVALID, "%s cannot have this `%s`",
                              sl_serve_message_name(message->kind), pass.wrong);
    }
    if (message->tail != NULL && tail_bytes(message) > pass.out.left) {
        return sl_reason_fail(reason, SL_ERR_TOO_LARGE, "%s has no room for its tail",
                              sl_serve_message_name(message->kind));
    }
    if (message->tail != NULL) {
        sl_bytes_put(&pass.out, message->tail, tail_bytes(message));
    }
    return (int)(SL_SERVE_MESSAGE_BYTES - pass.out.left);
}

int sl_serve_message_decode(const void *bytes, uint32_t byte_count, struct sl_serve_message *out,
                            struct sl_reason *reason)
{
    struct pass pass = {.is_decoding = true, .in = sl_bytes_over(bytes, byte_count)};
    memset(out, 0, sizeof *out);
    whole(&pass, out);
    if (pass.wrong != NULL || byte_count > SL_SERVE_MESSAGE_BYTES) {
        return sl_reason_fail(reason, SL_ERR_PROTOCOL, "%s: `%s` is cut short or out of range",
                              sl_serve_message_name(out->kind),
                              pass.wrong != NULL ? pass.wrong : "length");
    }
    if (pass.in.left > 0 && pass.in.left != tail_bytes(out)) {
        return sl_reason_fail(reason, SL_ERR_PROTOCOL, "%s: %zu bytes behind it",
                              sl_serve_message_name(out->kind), pass.in.left);
    }
    out->tail = pass.in.left > 0 ? pass.in.next : NULL;
    return 0;
}
