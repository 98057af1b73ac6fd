/* What a hub shares with peers of this machine: memory from which they read what is sent, and into
 * which they write what was asked for. */
#include "core/assert.h"
#include "core/log.h"
#include "worker/hub.h"
#include "worker/wire_memory.h"

static bool is_sharing(const struct sl_transport *transport)
{
    return transport != NULL && (transport->ops->capabilities & SL_TRANSPORT_SHARES) != 0;
}

static void lend_by(struct sl_transport *transport, struct sl_hub_buffer *buffer)
{
    if (is_sharing(transport)) {
        int err = sl_transport_memory_register(transport, buffer->base, buffer->bytes);
        buffer->is_shared = buffer->is_shared && err == 0;
    }
}

static void share_outbox(struct sl_hub *hub, struct sl_transport *transport)
{
    int err = sl_outbox_init_shared(&hub->shared_outbox, SL_HUB_OUTBOX_BYTES,
                                    hub->options->hello.checksum, transport);
    hub->has_shared_outbox = err == 0;
    if (err != 0) {
        sl_log_warn("%s: outgoing frames are not in shared memory: %s",
                    sl_reactor_name(hub->reactor), sl_err_name(err));
    }
}

void sl_hub_share(struct sl_hub *hub, struct sl_transport *transport)
{
    if (!is_sharing(transport)) {
        return;
    }
    sl_assert(!hub->has_shared_outbox); /* there is one such transport */
    share_outbox(hub, transport);
    if (hub->options->wire != NULL) {
        const struct sl_shared *wire = sl_wire_memory_shared(hub->options->wire);
        /* Without it, bodies are copied. */
        (void)sl_transport_memory_register(transport, wire->base, wire->bytes);
    }
    for (uint32_t i = 0; i < hub->lent_count; i++) {
        lend_by(transport, &hub->lent[i]);
    }
}

bool sl_hub_lends(const struct sl_hub *hub, const void *at, uint64_t bytes)
{
    for (uint32_t i = 0; i < hub->lent_count; i++) {
        const struct sl_hub_buffer *buffer = &hub->lent[i];
        uintptr_t offset = (uintptr_t)at - (uintptr_t)buffer->base; /* huge when it is before */
        if (offset < buffer->bytes && bytes <= buffer->bytes - offset) {
            return buffer->is_shared;
        }
    }
    return false;
}

void sl_hub_lend(struct sl_call *call)
{
    struct sl_hub *hub = call->hub;
    sl_assert(hub->lent_count < SL_CLIENT_BUFFERS_MAX);
    struct sl_hub_buffer *buffer = &hub->lent[hub->lent_count++];
    *buffer = (struct sl_hub_buffer){
        .base = call->memory, .bytes = call->memory_bytes, .is_shared = true};
    for (uint32_t scheme = 0; scheme < SL_HUB_SCHEMES; scheme++) {
        lend_by(hub->transports[scheme], buffer);
    }
    sl_call_answer(call);
}

void sl_hub_take_back(struct sl_call *call)
{
    struct sl_hub *hub = call->hub;
    uint32_t index = 0;
    while (index < hub->lent_count && hub->lent[index].base != call->memory) {
        index++;
    }
    sl_assert(index < hub->lent_count);
    hub->lent[index] = hub->lent[--hub->lent_count];
    for (uint32_t scheme = 0; scheme < SL_HUB_SCHEMES; scheme++) {
        if (is_sharing(hub->transports[scheme])) {
            sl_transport_memory_unregister(hub->transports[scheme], call->memory);
        }
    }
    sl_call_answer(call);
}
