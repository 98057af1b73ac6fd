/* Encodes and decodes the messages between transfer engines. */
#include "net/session/message_transfer.h"

#include <stdlib.h>

#include "net/session/message_copy.h"
#include "net/session/message_read.h"
#include "net/session/message_write.h"

/* Encode */

/* The buffers of a message: 250 KiB of stack, only while such a message is packed. */
struct buffers {
    Starling__Buffer buffer[SL_MESSAGE_BUFFERS_MAX];
    Starling__Buffer *list[SL_MESSAGE_BUFFERS_MAX];
    Starling__Token token[SL_MESSAGE_BUFFERS_MAX][SL_MESSAGE_TOKENS_MAX];
    Starling__Token *token_list[SL_MESSAGE_BUFFERS_MAX][SL_MESSAGE_TOKENS_MAX];
};

static size_t message_transfer_pack(const struct sl_message *from, Starling__Control *control,
                                    uint8_t *to)
{
    control->id = from->id;
    control->body_case = (Starling__Control__BodyCase)from->kind;
    return to == NULL ? starling__control__get_packed_size(control)
                      : starling__control__pack(control, to);
}

static void build_buffers(const struct sl_message_buffers *from, struct buffers *to)
{
    sl_assert(from->count <= SL_MESSAGE_BUFFERS_MAX);
    for (uint32_t i = 0; i < from->count; i++) {
        const struct sl_message_buffer *buffer = &from->items[i];
        sl_assert(buffer->token_count <= SL_MESSAGE_TOKENS_MAX);
        for (uint32_t k = 0; k < buffer->token_count; k++) {
            Starling__Token *token = &to->token[i][k];
            *token = (Starling__Token)STARLING__TOKEN__INIT;
            token->endpoint = buffer->tokens[k].endpoint;
            token->token = binary(buffer->tokens[k].bytes, buffer->tokens[k].byte_count);
            to->token_list[i][k] = token;
        }
        to->buffer[i] = (Starling__Buffer)STARLING__BUFFER__INIT;
        to->buffer[i].key = buffer->key;
        to->buffer[i].address = buffer->address;
        to->buffer[i].bytes = buffer->bytes;
        to->buffer[i].access = buffer->access;
        to->buffer[i].location = text(buffer->location, sizeof buffer->location);
        to->buffer[i].tokens = to->token_list[i];
        to->buffer[i].n_tokens = buffer->token_count;
        to->list[i] = &to->buffer[i];
    }
}

/* noinline, so that `buffers` is not on the stack of the other messages. */
static size_t pack_segment(const struct sl_message *from, Starling__Control *control, uint8_t *to)
    __attribute__((noinline));
static size_t pack_added(const struct sl_message *from, Starling__Control *control, uint8_t *to)
    __attribute__((noinline));

static size_t pack_segment(const struct sl_message *from, Starling__Control *control, uint8_t *to)
{
    const struct sl_message_segment *segment = &from->segment;
    sl_assert(segment->endpoint_count <= SL_MESSAGE_ENDPOINTS_MAX);
    struct buffers buffers;
    Starling__Segment__Endpoint endpoints[SL_MESSAGE_ENDPOINTS_MAX];
    Starling__Segment__Endpoint *endpoint_list[SL_MESSAGE_ENDPOINTS_MAX];
    for (uint32_t i = 0; i < segment->endpoint_count; i++) {
        const struct sl_message_endpoint *endpoint = &segment->endpoints[i];
        endpoints[i] = (Starling__Segment__Endpoint)STARLING__SEGMENT__ENDPOINT__INIT;
        endpoints[i].endpoint = text(endpoint->endpoint, sizeof endpoint->endpoint);
        endpoints[i].device = text(endpoint->device, sizeof endpoint->device);
        endpoint_list[i] = &endpoints[i];
    }
    build_buffers(&segment->buffers, &buffers);
    Starling__Segment message = STARLING__SEGMENT__INIT;
    message.incarnation = segment->incarnation;
    message.host = text(segment->host, sizeof segment->host);
    message.endpoints = endpoint_list;
    message.n_endpoints = segment->endpoint_count;
    if (segment->matrix != NULL) {
        message.matrix = text(segment->matrix, SL_MESSAGE_MATRIX_BYTES);
    }
    message.buffers = buffers.list;
    message.n_buffers = segment->buffers.count;
    message.more = segment->more;
    control->segment = &message;
    return message_transfer_pack(from, control, to);
}

static size_t pack_added(const struct sl_message *from, Starling__Control *control, uint8_t *to)
{
    struct buffers buffers;
    build_buffers(&from->buffers, &buffers);
    Starling__BufferAdded message = STARLING__BUFFER_ADDED__INIT;
    message.buffers = buffers.list;
    message.n_buffers = from->buffers.count;
    control->buffer_added = &message;
    return message_transfer_pack(from, control, to);
}

/* Drops the const, as in text(). */
static uint64_t *keys(const struct sl_message_buffer_keys *from)
{
    sl_assert(from->count >= 1);
    sl_assert(from->count <= SL_MESSAGE_BUFFERS_MAX);
    return (uint64_t *)(uintptr_t)from->items;
}

static size_t pack_notice(const struct sl_message *from, Starling__Control *control, uint8_t *to)
{
    const struct sl_message_notice *notice = &from->notice;
    sl_assert(notice->byte_count <= SL_MESSAGE_NOTICE_BYTES);
    Starling__Notice message = STARLING__NOTICE__INIT;
    message.sequence = notice->sequence;
    message.sender = text(notice->sender, sizeof notice->sender);
    message.name = text(notice->name, sizeof notice->name);
    message.text = binary(notice->bytes, notice->byte_count);
    control->notice = &message;
    return message_transfer_pack(from, control, to);
}

size_t sl_message_transfer_pack(const struct sl_message *from, uint8_t *to)
{
    Starling__Control control = STARLING__CONTROL__INIT;
    Starling__SegmentGet segment_get = STARLING__SEGMENT_GET__INIT;
    Starling__BufferGone gone = STARLING__BUFFER_GONE__INIT;
    Starling__BufferReleased released = STARLING__BUFFER_RELEASED__INIT;
    Starling__NoticeTaken notice_taken = STARLING__NOTICE_TAKEN__INIT;
    Starling__Fence fence = STARLING__FENCE__INIT;
    Starling__Fenced fenced = STARLING__FENCED__INIT;
    switch (from->kind) {
    case SL_MESSAGE_SEGMENT_GET:
        segment_get.above = from->above;
        control.segment_get = &segment_get;
        break;
    case SL_MESSAGE_SEGMENT:
        return pack_segment(from, &control, to);
    case SL_MESSAGE_BUFFER_ADDED:
        return pack_added(from, &control, to);
    case SL_MESSAGE_BUFFER_GONE:
        gone.keys = keys(&from->keys);
        gone.n_keys = from->keys.count;
        control.buffer_gone = &gone;
        break;
    case SL_MESSAGE_BUFFER_RELEASED:
        released.keys = keys(&from->keys);
        released.n_keys = from->keys.count;
        control.buffer_released = &released;
        break;
    case SL_MESSAGE_NOTICE:
        return pack_notice(from, &control, to);
    case SL_MESSAGE_NOTICE_TAKEN:
        control.notice_taken = &notice_taken;
        break;
    case SL_MESSAGE_FENCE:
        fence.lane = from->fence.lane;
        fence.epoch = from->fence.epoch;
        control.fence = &fence;
        break;
    default:
        sl_assert(from->kind == SL_MESSAGE_FENCED);
        control.fenced = &fenced;
        break;
    }
    return message_transfer_pack(from, &control, to);
}

/* Decode */

static bool read_tokens(const Starling__Buffer *from, struct sl_message_buffer *to)
{
    if (!holds(from->n_tokens <= SL_MESSAGE_TOKENS_MAX, "buffer: too many tokens")) {
        return false;
    }
    to->token_count = (uint32_t)from->n_tokens;
    for (uint32_t i = 0; i < to->token_count; i++) {
        const Starling__Token *token = from->tokens[i];
        if (!holds(token->token.len <= SL_MESSAGE_TOKEN_BYTES, "buffer: a token is too long") ||
            !holds(token->endpoint < SL_MESSAGE_ENDPOINTS_MAX,
                   "buffer: a token's endpoint over the limit")) {
            return false;
        }
        to->tokens[i].endpoint = (uint16_t)token->endpoint;
        to->tokens[i].byte_count = (uint8_t)token->token.len;
        if (token->token.len > 0) {
            memcpy(to->tokens[i].bytes, token->token.data, token->token.len);
        }
    }
    return true;
}

static bool read_buffer(const struct sl_message_memory *memory, const Starling__Buffer *from,
                        struct sl_message_buffer *to)
{
    SL_MESSAGE_COPY_BUFFER
    return holds(from->address != 0 && from->bytes != 0 &&
                     from->bytes <= UINT64_MAX - from->address,
                 "buffer: a range that is empty or overflows") &&
           holds(from->access <= (SL_MESSAGE_BUFFER_READ | SL_MESSAGE_BUFFER_WRITE),
                 "buffer: unknown access") &&
           copy_text(memory, from->location, TEXT_NAME, to->location, sizeof to->location) &&
           read_tokens(from, to);
}

static int read_buffers(const struct sl_message_memory *memory, Starling__Buffer *const *from,
                        size_t count, struct sl_message_buffers *to)
{
    if (!holds(count <= SL_MESSAGE_BUFFERS_MAX, "too many buffers")) {
        return SL_ERR_PROTOCOL;
    }
    to->items = calloc(count + 1, sizeof *to->items);
    if (to->items == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    to->count = (uint32_t)count;
    for (size_t i = 0; i < count; i++) {
        if (!read_buffer(memory, from[i], &to->items[i]) ||
            !holds(i == 0 ||
                       to->items[i].address >= to->items[i - 1].address + to->items[i - 1].bytes,
                   "buffers that overlap, or do not ascend")) {
            return SL_ERR_PROTOCOL;
        }
    }
    return 0;
}

static int read_matrix(const struct sl_message_memory *memory, const char *from, char **to)
{
    if (from[0] == '\0') {
        return 0;
    }
    *to = malloc(SL_MESSAGE_MATRIX_BYTES);
    if (*to == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    return copy_text(memory, from, TEXT_NAME, *to, SL_MESSAGE_MATRIX_BYTES) ? 0 : SL_ERR_PROTOCOL;
}

/* The endpoints are not parsed: a peer ignores those of schemes that it does not have. */
static int read_endpoints(const struct sl_message_memory *memory, const Starling__Segment *from,
                          struct sl_message_segment *to)
{
    if (!holds(from->n_endpoints <= SL_MESSAGE_ENDPOINTS_MAX, "segment: too many endpoints")) {
        return SL_ERR_PROTOCOL;
    }
    to->endpoints = calloc(from->n_endpoints + 1, sizeof *to->endpoints);
    if (to->endpoints == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    to->endpoint_count = (uint32_t)from->n_endpoints;
    for (uint32_t i = 0; i < to->endpoint_count; i++) {
        struct sl_message_endpoint *endpoint = &to->endpoints[i];
        if (!copy_text(memory, from->endpoints[i]->endpoint, TEXT_NAME, endpoint->endpoint,
                       sizeof endpoint->endpoint) ||
            !copy_text(memory, from->endpoints[i]->device, TEXT_NAME, endpoint->device,
                       sizeof endpoint->device) ||
            !holds(endpoint->endpoint[0] != '\0', "segment: an empty endpoint")) {
            return SL_ERR_PROTOCOL;
        }
    }
    return 0;
}

static int read_segment(const struct sl_message_memory *memory, const Starling__Segment *from,
                        struct sl_message_segment *to)
{
    to->incarnation = from->incarnation;
    to->more = from->more != 0;
    if (!copy_text(memory, from->host, TEXT_NAME, to->host, sizeof to->host) ||
        !holds(!to->more || from->n_buffers != 0, "segment: more buffers after none")) {
        return SL_ERR_PROTOCOL;
    }
    int err = read_endpoints(memory, from, to);
    if (err == 0) {
        err = read_matrix(memory, from->matrix, &to->matrix);
    }
    return err == 0 ? read_buffers(memory, from->buffers, from->n_buffers, &to->buffers) : err;
}

static bool read_keys(const uint64_t *from, size_t count, struct sl_message_buffer_keys *to)
{
    if (!holds(count >= 1 && count <= SL_MESSAGE_BUFFERS_MAX, "no keys, or too many")) {
        return false;
    }
    memcpy(to->items, from, count * sizeof *from);
    to->count = (uint32_t)count;
    return true;
}

static bool read_notice(const struct sl_message_memory *memory, const Starling__Notice *from,
                        struct sl_message_notice *to)
{
    to->sequence = from->sequence;
    to->byte_count = (uint32_t)from->text.len;
    if (!holds(from->sequence != 0, "notice: no sequence number") ||
        !holds(from->text.len <= SL_MESSAGE_NOTICE_BYTES, "notice: the text is too long") ||
        !copy_text(memory, from->sender, TEXT_NAME, to->sender, sizeof to->sender) ||
        !copy_text(memory, from->name, TEXT_NAME, to->name, sizeof to->name)) {
        return false;
    }
    if (from->text.len > 0) {
        memcpy(to->bytes, from->text.data, from->text.len);
    }
    return true;
}

static int checked(bool valid)
{
    return valid ? 0 : SL_ERR_PROTOCOL;
}

int sl_message_transfer_read(const struct sl_message_memory *memory, const Starling__Control *from,
                             struct sl_message *to)
{
    switch (from->body_case) {
    case STARLING__CONTROL__BODY_SEGMENT_GET:
        to->above = from->segment_get->above;
        return 0;
    case STARLING__CONTROL__BODY_SEGMENT:
        return read_segment(memory, from->segment, &to->segment);
    case STARLING__CONTROL__BODY_BUFFER_ADDED:
        return read_buffers(memory, from->buffer_added->buffers, from->buffer_added->n_buffers,
                            &to->buffers);
    case STARLING__CONTROL__BODY_BUFFER_GONE:
        return checked(read_keys(from->buffer_gone->keys, from->buffer_gone->n_keys, &to->keys));
    case STARLING__CONTROL__BODY_BUFFER_RELEASED:
        return checked(
            read_keys(from->buffer_released->keys, from->buffer_released->n_keys, &to->keys));
    case STARLING__CONTROL__BODY_NOTICE:
        return checked(read_notice(memory, from->notice, &to->notice));
    case STARLING__CONTROL__BODY_FENCE:
        to->fence.lane = from->fence->lane;
        to->fence.epoch = from->fence->epoch;
        return checked(holds(to->fence.lane != 0 && to->fence.epoch != 0, "fence: no lane"));
    case STARLING__CONTROL__BODY_NOTICE_TAKEN:
    case STARLING__CONTROL__BODY_FENCED:
        return 0;
    default:
        return checked(holds(false, "no body, or one of a kind that is not known"));
    }
}

void sl_message_transfer_fini(struct sl_message *message)
{
    struct sl_message_buffers *buffers = &message->buffers;
    if (message->kind == SL_MESSAGE_SEGMENT) {
        free(message->segment.endpoints);
        free(message->segment.matrix);
        message->segment.endpoints = NULL;
        message->segment.endpoint_count = 0;
        message->segment.matrix = NULL;
        buffers = &message->segment.buffers;
    } else if (message->kind != SL_MESSAGE_BUFFER_ADDED) {
        return;
    }
    free(buffers->items);
    *buffers = (struct sl_message_buffers){0};
}
