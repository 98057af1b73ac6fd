#include "net/session/message.h"

#include <inttypes.h>
#include <stdio.h>

#include "core/assert.h"
#include "core/log.h"
#include "net/session/message_table.h"

size_t sl_message_encoded_bytes(const struct sl_message *message)
{
    return sl_protobuf_encode(&sl_message_table, message, NULL, 0);
}

void sl_message_encode(const struct sl_message *message, uint8_t *to)
{
    sl_assert(to != NULL);
    (void)sl_protobuf_encode(&sl_message_table, message, to, sl_message_encoded_bytes(message));
}

int sl_message_decode(const uint8_t *from, size_t bytes, struct sl_message *out)
{
    sl_assert(from != NULL || bytes == 0);
    sl_assert(out != NULL);
    struct sl_message message = {0};
    struct sl_reason reason = {"empty or too long"};
    int err = SL_ERR_PROTOCOL;
    if (bytes != 0 && bytes <= SL_LIMIT_CONTROL_PAYLOAD_BYTES) {
        err = sl_protobuf_decode(&sl_message_table, from, bytes, &message, &reason);
    }
    if (err != SL_OK) {
        sl_log_debug("control message refused: %s", reason.text);
        sl_message_fini(&message);
        return err;
    }
    if (message.kind == SL_MESSAGE_ERROR && message.error.err == 0) {
        message.error.err = SL_ERR_PROTOCOL; /* 0 is no error's code */
    }
    *out = message;
    return SL_OK;
}

void sl_message_fini(struct sl_message *message)
{
    sl_assert(message != NULL);
    sl_protobuf_fini(&sl_message_table, message);
}

const struct sl_message_ps *sl_message_cluster_find_ps(const struct sl_message_cluster *cluster,
                                                       uint32_t task)
{
    for (uint32_t i = 0; i < cluster->ps_count; i++) {
        if (cluster->ps[i].task_index == task) {
            return &cluster->ps[i];
        }
    }
    return NULL;
}

void sl_message_hello_name(const struct sl_message_hello *hello, char name[SL_MESSAGE_NAME_BYTES])
{
    if (hello->beside == SL_MESSAGE_BESIDE_SCHEDULER) {
        (void)snprintf(name, SL_MESSAGE_NAME_BYTES, "the client of the scheduler");
        return;
    }
    if (hello->beside != 0) {
        (void)snprintf(name, SL_MESSAGE_NAME_BYTES, "the client of ps/%u",
                       hello->beside - SL_MESSAGE_BESIDE_PS);
        return;
    }
    if (hello->role == SL_MESSAGE_ROLE_CLIENT) {
        (void)snprintf(name, SL_MESSAGE_NAME_BYTES, "client %016" PRIx64, hello->client_id);
        return;
    }
    const char *role = hello->role == SL_MESSAGE_ROLE_PS ? "ps" : "worker";
    if (hello->any_task) {
        (void)snprintf(name, SL_MESSAGE_NAME_BYTES, "a %s", role);
    } else {
        (void)snprintf(name, SL_MESSAGE_NAME_BYTES, "%s/%u", role, hello->task_index);
    }
}
