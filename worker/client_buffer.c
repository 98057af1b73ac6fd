/* Memory for a client's callers that a ps on this machine reads and writes where it lies. */
#include <starling.h>

#include <stdlib.h>
#include <sys/mman.h>

#include "core/assert.h"
#include "core/log.h"
#include "worker/client_internal.h"

static void *base_of(const struct sl_client_buffer *buffer)
{
    return buffer->shared.base != NULL ? buffer->shared.base : buffer->plain;
}

/* Where this system has no such memory, any will do. */
static int make(size_t bytes, struct sl_client_buffer *buffer)
{
    *buffer = (struct sl_client_buffer){.bytes = bytes};
    int err = sl_shared_create("starling-buffer", bytes, SL_SHARED_WRITE, &buffer->shared);
    if (err != SL_ERR_IO) {
        return err;
    }
    sl_log_warn("client: a buffer of %zu bytes is not in shared memory", bytes);
    void *plain = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    buffer->plain = plain == MAP_FAILED ? NULL : plain;
    return plain == MAP_FAILED ? SL_ERR_NO_MEMORY : 0;
}

static void unmake(struct sl_client_buffer *buffer)
{
    sl_shared_destroy(&buffer->shared);
    if (buffer->plain != NULL) {
        (void)munmap(buffer->plain, buffer->bytes);
    }
}

/* ---- The client's list */

struct listing {
    struct sl_client *client;
    struct sl_client_buffer buffer; /* to be added; or that was found */
    void *base;                     /* of the one to be found */
    struct sl_client_buffer *slot;  /* where it was */
};

static int add(void *ctx)
{
    struct listing *listing = ctx;
    for (uint32_t i = 0; i < SL_CLIENT_BUFFERS_MAX; i++) {
        struct sl_client_buffer *slot = &listing->client->buffers[i];
        if (base_of(slot) == NULL) {
            *slot = listing->buffer;
            return 0;
        }
    }
    return SL_ERR_TOO_LARGE;
}

static int find(void *ctx)
{
    struct listing *listing = ctx;
    for (uint32_t i = 0; i < SL_CLIENT_BUFFERS_MAX; i++) {
        struct sl_client_buffer *slot = &listing->client->buffers[i];
        if (base_of(slot) == listing->base) {
            listing->slot = slot;
            listing->buffer = *slot;
            return 0;
        }
    }
    return SL_ERR_NOT_FOUND;
}

/* The hubs have forgotten it: they have a place for another. */
static int take_out(void *ctx)
{
    struct listing *listing = ctx;
    *listing->slot = (struct sl_client_buffer){.plain = NULL};
    return 0;
}

void sl_client_buffer_destroy_all(struct sl_client *client)
{
    for (uint32_t i = 0; i < SL_CLIENT_BUFFERS_MAX; i++) {
        unmake(&client->buffers[i]);
    }
}

/* ---- For callers */

/* One hub after the other: each call is done when this returns. */
static void tell_hubs(struct sl_client *client, struct sl_port *port,
                      const struct sl_client_buffer *buffer, void (*run)(struct sl_call *call))
{
    for (uint32_t i = 0; i < client->hub_count && buffer->shared.base != NULL; i++) {
        struct sl_call call = {.hub = &client->hubs[i],
                               .run = run,
                               .memory = buffer->shared.base,
                               .memory_bytes = buffer->shared.bytes};
        sl_port_call(port, &call);
        while (!call.done) {
            sl_port_wait(port);
        }
    }
}

int sl_client_buffer_create(struct sl_client *client, size_t bytes, void **out)
{
    sl_assert(client != NULL);
    sl_assert(out != NULL);
    sl_assert(bytes > 0);
    struct sl_port *port;
    struct listing listing = {.client = client};
    int err = sl_port_here(client->ports, &port);
    if (err == 0) {
        err = make(bytes, &listing.buffer);
    }
    if (err != 0) {
        return err;
    }
    err = sl_port_set_locked(client->ports, add, &listing);
    if (err != 0) {
        unmake(&listing.buffer);
        return err;
    }
    tell_hubs(client, port, &listing.buffer, sl_hub_lend);
    *out = base_of(&listing.buffer);
    return 0;
}

void sl_client_buffer_free(struct sl_client *client, void **buffer)
{
    sl_assert(client != NULL);
    sl_assert(buffer != NULL);
    if (*buffer == NULL) {
        return;
    }
    struct sl_port *port;
    struct listing listing = {.client = client, .base = *buffer};
    int err = sl_port_here(client->ports, &port);
    sl_assert(err == 0); /* no memory for a thread that has never used the client, or not its own */
    err = sl_port_set_locked(client->ports, find, &listing);
    sl_assert(err == 0); /* it is a buffer of this client */
    tell_hubs(client, port, &listing.buffer, sl_hub_take_back);
    (void)sl_port_set_locked(client->ports, take_out, &listing);
    unmake(&listing.buffer);
    *buffer = NULL;
}
