#include "net/transfer/remote.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/array.h"
#include "net/transfer/rail.h"

static int reserve(struct sl_transfer_remote **remote, uint32_t count)
{
    if (*remote != NULL && count <= (*remote)->capacity) {
        return 0;
    }
    const uint32_t capacity = count * 2 + 16;
    struct sl_transfer_remote *larger =
        realloc(*remote, sizeof *larger + capacity * sizeof larger->buffers[0]);
    if (larger == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    larger->count = *remote != NULL ? larger->count : 0;
    larger->capacity = capacity;
    *remote = larger;
    return 0;
}

static bool is_apart(const struct sl_transfer_remote_buffer *low,
                     const struct sl_transfer_remote_buffer *high)
{
    return low->address + low->bytes <= high->address;
}

/* Or replaces: the tokens of a buffer may change. */
static void insert(struct sl_transfer_remote *remote, const struct sl_transfer_remote_buffer *added)
{
    uint32_t index = remote->count;
    while (index > 0 && remote->buffers[index - 1].address > added->address) {
        index--;
    }
    if (index > 0 && remote->buffers[index - 1].key == added->key &&
        remote->buffers[index - 1].address == added->address) {
        remote->buffers[index - 1] = *added;
        return;
    }
    if ((index > 0 && !is_apart(&remote->buffers[index - 1], added)) ||
        (index < remote->count && !is_apart(added, &remote->buffers[index]))) {
        return;
    }
    memmove(&remote->buffers[index + 1], &remote->buffers[index],
            (remote->count - index) * sizeof remote->buffers[0]);
    remote->buffers[index] = *added;
    remote->count++;
}

static void take_tokens(struct sl_transfer_remote_buffer *to, const struct sl_message_buffer *from,
                        const struct sl_endpoint *endpoints, uint32_t endpoint_count)
{
    for (uint32_t i = 0; i < from->token_count; i++) {
        const struct sl_message_token *token = &from->tokens[i];
        if (token->endpoint < endpoint_count && endpoints[token->endpoint].port != 0 &&
            token->byte_count == sizeof(struct sl_transport_rma_token)) {
            struct sl_transfer_remote_token *added = &to->tokens[to->token_count++];
            added->device = sl_rail_remote(endpoints, token->endpoint);
            memcpy(&added->token, token->bytes, sizeof added->token);
        }
    }
}

int sl_transfer_remote_add(struct sl_transfer_remote **remote,
                           const struct sl_message_buffers *buffers,
                           const struct sl_endpoint *endpoints, uint32_t endpoint_count)
{
    const uint32_t count = (*remote != NULL ? (*remote)->count : 0) + buffers->count;
    const int err = reserve(remote, count);
    for (uint32_t i = 0; err == 0 && i < buffers->count; i++) {
        const struct sl_message_buffer *from = &buffers->items[i];
        struct sl_transfer_remote_buffer to = {.address = from->address,
                                               .bytes = from->bytes,
                                               .key = from->key,
                                               .access = from->access};
        (void)snprintf(to.location, sizeof to.location, "%s", from->location);
        take_tokens(&to, from, endpoints, endpoint_count);
        insert(*remote, &to);
    }
    return err != 0 ? err : (*remote)->count > SL_LIMIT_TRANSFER_BUFFERS ? SL_ERR_TOO_LARGE : 0;
}

void sl_transfer_remote_remove(struct sl_transfer_remote *remote,
                               const struct sl_message_buffer_keys *keys)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < remote->count; i++) {
        bool is_gone = false;
        for (uint32_t k = 0; k < keys->count; k++) {
            is_gone = is_gone || keys->items[k] == remote->buffers[i].key;
        }
        if (!is_gone) {
            remote->buffers[kept++] = remote->buffers[i];
        }
    }
    remote->count = kept;
}

struct sl_transfer_remote *sl_transfer_remote_copy(const struct sl_transfer_remote *remote)
{
    const size_t bytes = sizeof *remote + remote->count * sizeof remote->buffers[0];
    struct sl_transfer_remote *copy = malloc(bytes);
    if (copy != NULL) {
        memcpy(copy, remote, bytes);
        copy->capacity = remote->count;
    }
    return copy;
}

const struct sl_transfer_remote_buffer *
sl_transfer_remote_find(const struct sl_transfer_remote *remote, uint64_t address)
{
    uint32_t above = 0;
    SL_ARRAY_BISECT(above, remote != NULL ? remote->count : 0, i,
                    remote->buffers[i].address <= address);
    return above > 0 ? &remote->buffers[above - 1] : NULL;
}

const struct sl_transport_rma_token *
sl_transfer_remote_token(const struct sl_transfer_remote_buffer *buffer, uint32_t device)
{
    for (uint32_t i = 0; i < buffer->token_count; i++) {
        if (buffer->tokens[i].device == device) {
            return &buffer->tokens[i].token;
        }
    }
    return NULL;
}
