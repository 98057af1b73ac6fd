#include "net/transfer/own_segment_info.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/shm/shm.h"
#include "net/transfer/memory.h"

int sl_transfer_own_segment_info_create(struct sl_transfer *engine)
{
    const struct sl_transfer_settings *settings = &engine->settings;
    const uint32_t most = SL_MESSAGE_ENDPOINTS_MAX / settings->endpoint_count; /* of one device */
    struct sl_transfer_own_segment_info *own_info = engine->own_info = calloc(1, sizeof *own_info);
    if (own_info == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    for (uint32_t device = 0; device < settings->endpoint_count; device++) {
        engine->ios[0].devices[device].list_index = (uint16_t)own_info->endpoint_count;
        for (uint32_t i = 0; i < settings->reactors.count && i < most; i++) {
            const struct sl_endpoint *endpoint = &engine->ios[i].devices[device].endpoint;
            if (endpoint->port == 0) {
                continue;
            }
            struct sl_message_endpoint *to = &own_info->endpoints[own_info->endpoint_count++];
            sl_endpoint_format(endpoint, to->endpoint, sizeof to->endpoint);
            (void)snprintf(to->device, sizeof to->device, "%.31s", settings->nic_names[device]);
            if (settings->endpoints[device].scheme == SL_ENDPOINT_SHM) {
                sl_shm_host(own_info->host);
            }
        }
    }
    return 0;
}

/* Adds the buffer, if peers may access it. */
static void add_buffer(const struct sl_transfer *engine, const struct sl_transfer_region *region,
                       struct sl_message_buffers *out)
{
    const struct sl_rma_memory *memory = &region->memory;
    if ((!memory->peers_read && !memory->peers_write) || region->pending_count > 0) {
        return;
    }
    out->items = engine->own_info->buffers;
    struct sl_message_buffer *added = &out->items[out->count++];
    *added = (struct sl_message_buffer){
        .key = memory->key,
        .address = (uintptr_t)memory->base,
        .bytes = memory->bytes,
        .access = (memory->peers_read ? SL_MESSAGE_BUFFER_READ : 0U) |
                  (memory->peers_write ? SL_MESSAGE_BUFFER_WRITE : 0U),
    };
    (void)snprintf(added->location, sizeof added->location, "%s", region->location);
    static_assert(SL_TRANSFER_SETTINGS_ENDPOINTS_MAX <= SL_MESSAGE_TOKENS_MAX, "one for each");
    for (uint32_t i = 0; i < engine->settings.endpoint_count; i++) {
        const struct sl_transfer_offer *offer = &region->offers[i];
        if (offer->is_added && offer->token.access != SL_TRANSPORT_RMA_LOCAL) {
            struct sl_message_token *token = &added->tokens[added->token_count++];
            token->endpoint = engine->ios[0].devices[i].list_index;
            token->byte_count = sizeof offer->token;
            memcpy(token->bytes, &offer->token, sizeof offer->token);
        }
    }
}

void sl_transfer_own_segment_info_page(const struct sl_transfer *engine, uint64_t above,
                                       struct sl_message_segment *out)
{
    const struct sl_transfer_table *table = engine->ios[0].table;
    *out = (struct sl_message_segment){.incarnation = engine->incarnation};
    if (above == 0) {
        out->endpoints = engine->own_info->endpoints;
        out->endpoint_count = engine->own_info->endpoint_count;
        out->matrix = engine->settings.matrix;
        memcpy(out->host, engine->own_info->host, sizeof out->host);
    }
    for (uint32_t i = 0; i < table->count && !out->more; i++) {
        if ((uintptr_t)table->by_address[i]->memory.base <= above) {
            continue;
        }
        out->more = out->buffers.count == SL_MESSAGE_BUFFERS_MAX;
        if (!out->more) {
            add_buffer(engine, table->by_address[i], &out->buffers);
        }
    }
}

uint32_t sl_transfer_own_segment_info_added(const struct sl_transfer *engine,
                                            struct sl_transfer_registration *const *items,
                                            uint32_t count, struct sl_message_buffers *out)
{
    uint32_t taken = 0;
    out->count = 0;
    while (taken < count && out->count < SL_MESSAGE_BUFFERS_MAX) {
        add_buffer(engine, &items[taken++]->regions[0], out);
    }
    return taken;
}
