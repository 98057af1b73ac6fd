#include "ps/server/shm.h"

#include <string.h>

#include "ps/server/state.h"

#define BYTES_PER_KEY 256 /* of the turn's budget: ps/shard/shard.h */
#define SPARE_KEYS    16

int sl_server_shm_begin(struct sl_server_host *host)
{
    if (host->memory.has_shm) {
        return 0;
    }
    const size_t quarter = host->options.buffer_bytes_max / 4;
    const size_t least = SL_OUTBOX_MEMORY_BYTES_MIN;
    int err = sl_outbox_init_shared(&host->memory.shm_replies, quarter < least ? least : quarter,
                                    host->options.checksum, host->transports.shm);
    if (err != 0) {
        return err;
    }
    err = sl_server_buffers_init_shared(&host->memory.shm_buffers, quarter, host->transports.shm);
    if (err != 0) {
        sl_transport_memory_unregister(host->transports.shm, host->memory.shm_replies.shared.base);
        sl_outbox_fini(&host->memory.shm_replies);
        return err;
    }
    host->memory.has_shm = true;
    return 0;
}

void sl_server_shm_fini(struct sl_server_host *host)
{
    if (host->memory.has_shm) {
        sl_server_buffers_fini(&host->memory.shm_buffers);
        sl_outbox_fini(&host->memory.shm_replies);
    }
}

struct head {
    struct sl_request_prefix prefix;
    struct sl_request_section section;
};

/* A payload in one or two parts, which its sender can change. */
struct pieces {
    const uint8_t *first, *tail;
    uint32_t first_bytes, tail_bytes;
};

/* Copies the part before the values if the request is a single push. Returns its size; 0: another
 * request. Validates only the copy, never the sender's memory. */
static uint32_t copy_structure(const struct pieces *from, uint8_t *copy)
{
    struct head head;
    if (from->first_bytes < sizeof head) {
        return 0;
    }
    memcpy(copy, from->first, sizeof head);
    memcpy(&head, copy, sizeof head);
    if (head.prefix.section_count != 1 || !sl_request_pushes(head.section.op)) {
        return 0;
    }
    const uint64_t more = sl_request_structure_bytes(&head.section);
    if (more > from->first_bytes - sizeof head) {
        return 0;
    }
    memcpy(copy + sizeof head, from->first + sizeof head, more);
    return (uint32_t)(sizeof head + more);
}

static void copy_whole(const struct pieces *from, uint8_t *copy)
{
    memcpy(copy, from->first, from->first_bytes);
    if (from->tail_bytes > 0) {
        memcpy(copy + from->first_bytes, from->tail, from->tail_bytes);
    }
}

/* Returns the values behind the structure; NULL: not contiguous, or not aligned to 8. */
static const uint8_t *values_of(const struct pieces *from, uint32_t structure_bytes)
{
    if (from->tail_bytes == 0) {
        return from->first + structure_bytes;
    }
    const bool out_of_line = structure_bytes == from->first_bytes && (uintptr_t)from->tail % 8 == 0;
    return out_of_line ? from->tail : NULL;
}

void sl_server_shm_read(struct sl_server_conn *conn, const struct sl_transport_message *message,
                        struct sl_server_incoming *out)
{
    const uint32_t bytes = message->header.payload_bytes;
    *out = (struct sl_server_incoming){
        .message = message,
        .payload = message->payload,
        .payload_bytes = bytes,
    };
    if (!conn->uses_shm || message->token == NULL || conn->sink.buffer == NULL) {
        return; /* already in memory of this process */
    }
    const uint32_t tail_bytes = conn->conn->tail == NULL ? 0 : conn->conn->tail_bytes;
    const struct pieces from = {.first = message->payload,
                                .tail = conn->conn->tail,
                                .first_bytes = bytes - tail_bytes,
                                .tail_bytes = tail_bytes};
    out->payload = conn->sink.buffer;
    const uint32_t structure_bytes = copy_structure(&from, conn->sink.buffer);
    const uint8_t *values = structure_bytes == 0 ? NULL : values_of(&from, structure_bytes);
    if (values == NULL) {
        copy_whole(&from, conn->sink.buffer);
        return;
    }
    out->payload_bytes = structure_bytes;
    out->values = values;
    out->values_bytes = bytes - structure_bytes;
}

uint64_t sl_server_shm_cost(const struct sl_shard_request *work)
{
    const uint8_t op = work->view.section.op;
    const bool copies = sl_flags_has(work->flags, SL_SHARD_IN_SECTION) &&
                        work->prefix.section_count == 1 &&
                        (op == SL_REQUEST_DENSE_PULL || op == SL_REQUEST_DENSE_PUSH_PULL ||
                         op == SL_REQUEST_KV_PULL || op == SL_REQUEST_KV_PUSH_PULL);
    const uint64_t pull_cost = work->cost - work->push_cost;
    return work->push_cost + (copies ? pull_cost / SL_SERVER_DENSE_PULL : pull_cost);
}

struct sl_server_buffers *sl_server_shm_buffers(struct sl_server_host *host,
                                                const struct sl_server_channel *channel)
{
    return channel != NULL && channel->conn->uses_shm ? &host->memory.shm_buffers
                                                      : &host->memory.buffers;
}

struct sl_server_buffers *sl_server_shm_owner(struct sl_server_host *host, const uint8_t *buffer)
{
    return sl_server_buffers_hold(&host->memory.buffers, buffer) ? &host->memory.buffers
                                                                 : &host->memory.shm_buffers;
}

bool sl_server_shm_is_late(const struct sl_server_conn *conn, uint32_t bytes)
{
    const uint32_t keys_left = conn->host->budget_left; /* all, if the turn has not started */
    const uint32_t keys = bytes / BYTES_PER_KEY;
    return keys_left < SL_LIMIT_TURN_COST && keys_left < keys + keys / 4 + SPARE_KEYS;
}

void sl_server_shm_take(struct sl_server_conn *conn, struct sl_server_incoming *incoming)
{
    if (incoming->values != NULL) {
        uint8_t *copy = conn->sink.buffer + incoming->payload_bytes;
        memcpy(copy, incoming->values, incoming->values_bytes);
        incoming->values = copy;
    }
}

void sl_server_shm_take_off(struct sl_server_request *request, bool goes_on)
{
    if (request->reply_buffer != NULL && request->reply != NULL && goes_on) {
        memcpy(request->reply, request->reply_buffer, request->work.reply_bytes);
    }
    request->reply_buffer = NULL;
}
