#include "worker/client/client_io_memory.h"

#include <assert.h>

#include "core/assert.h"
#include "core/log.h"
#include "worker/client/send_arena.h"

static_assert(SL_CLIENT_IO_SCHEMES <= 8, "a bit for each in a byte");

static bool client_io_memory_has(const struct sl_transport *transport, uint32_t capability)
{
    return transport != NULL && (transport->ops->capabilities & capability) != 0;
}

/* A failure is harmless: a transport copies memory that it does not know. */
static bool client_io_memory_register_memory(struct sl_transport *transport, void *base,
                                             size_t bytes)
{
    return sl_transport_memory_register(transport, base, bytes) == 0;
}

/* Memory of the client_io */

static void make_shared_outbox(struct sl_client_io *io, struct sl_transport *transport)
{
    sl_assert(!io->memory.has_shared_outbox); /* only one transport maps memory */
    int err = sl_outbox_init_shared(&io->memory.shared_outbox, SL_CLIENT_IO_OUTBOX_BYTES,
                                    io->options->hello.checksum, transport);
    io->memory.has_shared_outbox = err == 0;
    if (err != 0) {
        sl_log_warn("%s: outgoing frames are not in shared memory: %s",
                    sl_reactor_name(io->reactor), sl_err_name(err));
    }
}

static void register_own_memory(struct sl_client_io *io, struct sl_transport *transport)
{
    (void)sl_outbox_register(&io->memory.outbox, transport);
    if (io->memory.has_buffers) {
        const struct sl_pool *buffers = &io->memory.buffers;
        (void)client_io_memory_register_memory(transport, buffers->base,
                                               buffers->block_bytes * buffers->block_count);
    }
}

/* Memory of the client */

static void export_over(struct sl_client_io *io, uint32_t scheme,
                        struct sl_client_io_buffer *buffer)
{
    struct sl_transport *transport = io->transports[scheme];
    bool suits = client_io_memory_has(transport, SL_TRANSPORT_REGISTERS) ||
                 (client_io_memory_has(transport, SL_TRANSPORT_MAPS_MEMORY) && buffer->is_shared);
    if (suits && client_io_memory_register_memory(transport, buffer->base, buffer->bytes)) {
        buffer->registered_with |= (uint8_t)(1U << scheme);
    }
}

void sl_client_io_register_memory(struct sl_client_io *io, enum sl_endpoint_scheme scheme)
{
    struct sl_transport *transport = io->transports[scheme];
    if (client_io_memory_has(transport, SL_TRANSPORT_MAPS_MEMORY)) {
        make_shared_outbox(io, transport);
    } else if (client_io_memory_has(transport, SL_TRANSPORT_REGISTERS)) {
        register_own_memory(io, transport);
    } else {
        return;
    }
    if (io->options->send_arena != NULL) {
        const struct sl_shared *shared = sl_send_arena_shared(io->options->send_arena);
        (void)client_io_memory_register_memory(transport, shared->base, shared->bytes);
    }
    for (uint32_t i = 0; i < io->export_count; i++) {
        export_over(io, scheme, &io->exports[i]);
    }
}

static bool client_io_memory_holds(const uint8_t *base, size_t base_bytes, const void *at,
                                   uint64_t bytes)
{
    const uintptr_t offset = (uintptr_t)at - (uintptr_t)base; /* huge when it is before */
    return offset < base_bytes && bytes <= base_bytes - offset;
}

bool sl_client_io_has_exported(const struct sl_client_io *io, enum sl_endpoint_scheme scheme,
                               const void *at, uint64_t bytes)
{
    for (uint32_t i = 0; i < io->export_count; i++) {
        const struct sl_client_io_buffer *buffer = &io->exports[i];
        if (client_io_memory_holds(buffer->base, buffer->bytes, at, bytes)) {
            return (buffer->registered_with & 1U << scheme) != 0;
        }
    }
    return false;
}

bool sl_client_io_has_registered(const struct sl_client_io *io, enum sl_endpoint_scheme scheme,
                                 const void *at, uint64_t bytes)
{
    const struct sl_send_arena *arena = io->options->send_arena;
    return (arena != NULL &&
            client_io_memory_holds(sl_send_arena_shared(arena)->base,
                                   sl_send_arena_shared(arena)->bytes, at, bytes)) ||
           sl_client_io_has_exported(io, scheme, at, bytes);
}

void sl_client_io_export(struct sl_control_op *op)
{
    struct sl_client_io *io = op->io;
    sl_assert(io->export_count < SL_CLIENT_BUFFERS_MAX);
    struct sl_client_io_buffer *buffer = &io->exports[io->export_count++];
    *buffer = (struct sl_client_io_buffer){
        .base = op->buffer.memory, .bytes = op->buffer.bytes, .is_shared = op->buffer.is_shared};
    for (uint32_t scheme = 0; scheme < SL_CLIENT_IO_SCHEMES; scheme++) {
        export_over(io, scheme, buffer);
    }
    sl_control_op_answer(op);
}

void sl_client_io_unexport(struct sl_control_op *op)
{
    struct sl_client_io *io = op->io;
    uint32_t index = 0;
    while (index < io->export_count && io->exports[index].base != op->buffer.memory) {
        index++;
    }
    sl_assert(index < io->export_count);
    for (uint32_t scheme = 0; scheme < SL_CLIENT_IO_SCHEMES; scheme++) {
        if ((io->exports[index].registered_with & 1U << scheme) != 0) {
            sl_transport_memory_unregister(io->transports[scheme], op->buffer.memory);
        }
    }
    io->exports[index] = io->exports[--io->export_count];
    sl_control_op_answer(op);
}
