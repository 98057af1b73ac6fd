/* Client buffers: memory that servers on this machine, or an RDMA device, access directly. */
#include <starling.h>

#include <stdlib.h>
#include <sys/mman.h>

#include "core/assert.h"
#include "core/log.h"
#include "worker/client_internal.h"

/* Falls back to private memory if the system has no shared memory. */
static int make(size_t bytes, struct sl_client_buffer *buffer)
{
    *buffer = (struct sl_client_buffer){.bytes = bytes};
    int err = sl_shared_create("starling-buffer", bytes, SL_SHARED_WRITE, &buffer->shared);
    if (err == 0) {
        buffer->base = buffer->shared.base;
        buffer->bytes = buffer->shared.bytes;
    }
    if (err != SL_ERR_IO) {
        return err;
    }
    sl_log_warn("client: a buffer of %zu bytes is not in shared memory", bytes);
    void *plain = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    buffer->base = plain == MAP_FAILED ? NULL : plain;
    return plain == MAP_FAILED ? SL_ERR_NO_MEMORY : 0;
}

static void unmake(struct sl_client_buffer *buffer)
{
    if (buffer->base == NULL || buffer->is_callers) {
        return;
    }
    if (buffer->shared.base != NULL) {
        sl_shared_destroy(&buffer->shared);
    } else {
        (void)munmap(buffer->base, buffer->bytes);
    }
}

/* The client's list */

struct listing {
    struct sl_client *client;
    struct sl_client_buffer buffer; /* to add, or found */
    void *base;                     /* to find */
    struct sl_client_buffer *slot;  /* of the buffer found */
};

static bool overlap(const struct sl_client_buffer *a, const struct sl_client_buffer *b)
{
    uintptr_t a_base = (uintptr_t)a->base, b_base = (uintptr_t)b->base;
    return a->base != NULL && b->base != NULL && a_base < b_base + b->bytes &&
           b_base < a_base + a->bytes;
}

static int add(void *ctx)
{
    struct listing *listing = ctx;
    struct sl_client_buffer *buffers = listing->client->buffers, *free_slot = NULL;
    for (uint32_t i = 0; i < SL_CLIENT_BUFFERS_MAX; i++) {
        if (overlap(&buffers[i], &listing->buffer)) {
            return SL_ERR_EXISTS;
        }
        free_slot = free_slot == NULL && buffers[i].base == NULL ? &buffers[i] : free_slot;
    }
    if (free_slot == NULL) {
        return SL_ERR_TOO_LARGE;
    }
    *free_slot = listing->buffer;
    return 0;
}

static int find(void *ctx)
{
    struct listing *listing = ctx;
    for (uint32_t i = 0; i < SL_CLIENT_BUFFERS_MAX; i++) {
        struct sl_client_buffer *slot = &listing->client->buffers[i];
        if (slot->base == listing->base) {
            listing->slot = slot;
            listing->buffer = *slot;
            return 0;
        }
    }
    return SL_ERR_NOT_FOUND;
}

/* Frees the slot, once no client_io uses the buffer. */
static int take_out(void *ctx)
{
    struct listing *listing = ctx;
    *listing->slot = (struct sl_client_buffer){.base = NULL};
    return 0;
}

void sl_client_buffer_destroy_all(struct sl_client *client)
{
    for (uint32_t i = 0; i < SL_CLIENT_BUFFERS_MAX; i++) {
        unmake(&client->buffers[i]);
    }
}

/* The public functions */

/* Runs one client_io after the other and waits for each. */
static void tell_ios(struct sl_client *client, struct sl_thread_ctx *thread_ctx,
                     const struct sl_client_buffer *buffer, void (*run)(struct sl_control_op *op))
{
    for (uint32_t i = 0; i < client->io_count; i++) {
        struct sl_control_op op = {.io = &client->ios[i],
                                   .run = run,
                                   .memory = buffer->base,
                                   .memory_bytes = buffer->bytes,
                                   .memory_is_shared = buffer->shared.base != NULL};
        sl_thread_ctx_call(thread_ctx, &op);
        while (!op.done) {
            sl_thread_ctx_wait(thread_ctx);
        }
    }
}

static int lend(struct sl_client *client, struct sl_thread_ctx *thread_ctx, struct listing *listing)
{
    int err = sl_thread_ctx_set_locked(client->thread_ctxs, add, listing);
    if (err == 0) {
        tell_ios(client, thread_ctx, &listing->buffer, sl_client_io_export);
    }
    return err;
}

static void take_back(struct sl_client *client, void *base, bool is_callers)
{
    struct sl_thread_ctx *thread_ctx;
    struct listing listing = {.client = client, .base = base};
    int err = sl_thread_ctx_here(client->thread_ctxs, &thread_ctx);
    sl_assert(err == 0); /* out of memory for a thread's first call, or not the driving thread */
    err = sl_thread_ctx_set_locked(client->thread_ctxs, find, &listing);
    sl_assert(err == 0); /* it is a buffer of this client */
    sl_assert(listing.buffer.is_callers == is_callers);
    tell_ios(client, thread_ctx, &listing.buffer, sl_client_io_unexport);
    (void)sl_thread_ctx_set_locked(client->thread_ctxs, take_out, &listing);
    unmake(&listing.buffer);
}

int sl_client_buffer_create(struct sl_client *client, size_t bytes, void **out)
{
    sl_assert(client != NULL);
    sl_assert(out != NULL);
    sl_assert(bytes > 0);
    struct sl_thread_ctx *thread_ctx;
    struct listing listing = {.client = client};
    int err = sl_thread_ctx_here(client->thread_ctxs, &thread_ctx);
    if (err == 0) {
        err = make(bytes, &listing.buffer);
    }
    if (err != 0) {
        return err;
    }
    err = lend(client, thread_ctx, &listing);
    if (err != 0) {
        unmake(&listing.buffer);
        return err;
    }
    *out = listing.buffer.base;
    return 0;
}

void sl_client_buffer_free(struct sl_client *client, void **buffer)
{
    sl_assert(client != NULL);
    sl_assert(buffer != NULL);
    if (*buffer != NULL) {
        take_back(client, *buffer, false);
        *buffer = NULL;
    }
}

int sl_client_buffer_register(struct sl_client *client, void *base, size_t bytes)
{
    sl_assert(client != NULL);
    sl_assert(base != NULL);
    sl_assert(bytes > 0);
    sl_assert(bytes <= UINTPTR_MAX - (uintptr_t)base);
    struct sl_thread_ctx *thread_ctx;
    struct listing listing = {.client = client,
                              .buffer = {.base = base, .bytes = bytes, .is_callers = true}};
    int err = sl_thread_ctx_here(client->thread_ctxs, &thread_ctx);
    return err == 0 ? lend(client, thread_ctx, &listing) : err;
}

void sl_client_buffer_unregister(struct sl_client *client, void *base)
{
    sl_assert(client != NULL);
    sl_assert(base != NULL);
    take_back(client, base, true);
}
