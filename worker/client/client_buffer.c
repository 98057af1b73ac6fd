#include "worker/client/client_buffer.h"

#include <starling.h>

#include <sys/mman.h>

#include "core/assert.h"
#include "core/log.h"
#include "core/reason.h"
#include "worker/client/client_internal.h"
#include "worker/client/client_io_memory.h"

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

static void client_buffer_unmake(struct sl_client_buffer *buffer)
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

static bool overlap(const struct sl_client_buffer *a, const struct sl_client_buffer *b)
{
    uintptr_t a_base = (uintptr_t)a->base, b_base = (uintptr_t)b->base;
    return a->base != NULL && b->base != NULL && a_base < b_base + b->bytes &&
           b_base < a_base + a->bytes;
}

/* Under the lock. Errors: EXISTS, TOO_LARGE. */
static int add(struct sl_client *client, const struct sl_client_buffer *buffer)
{
    struct sl_client_buffer *free_slot = NULL;
    for (uint32_t i = 0; i < SL_CLIENT_BUFFERS_MAX; i++) {
        struct sl_client_buffer *slot = &client->buffers[i];
        if (overlap(slot, buffer)) {
            return sl_reason_report(SL_ERR_EXISTS,
                                    "buffer: %zu bytes at %p overlap a buffer of %zu bytes at %p",
                                    buffer->bytes, buffer->base, slot->bytes, slot->base);
        }
        free_slot = free_slot == NULL && slot->base == NULL ? slot : free_slot;
    }
    if (free_slot == NULL) {
        return sl_reason_report(SL_ERR_TOO_LARGE, "buffer: the client has %d buffers already",
                                SL_CLIENT_BUFFERS_MAX);
    }
    *free_slot = *buffer;
    return 0;
}

/* Under the lock. It is a buffer of this client. */
static struct sl_client_buffer *find(struct sl_client *client, const void *base)
{
    uint32_t i = 0;
    while (i < SL_CLIENT_BUFFERS_MAX && client->buffers[i].base != base) {
        i++;
    }
    sl_assert(i < SL_CLIENT_BUFFERS_MAX);
    return &client->buffers[i];
}

void sl_client_buffer_destroy_all(struct sl_client *client)
{
    for (uint32_t i = 0; i < SL_CLIENT_BUFFERS_MAX; i++) {
        client_buffer_unmake(&client->buffers[i]);
    }
}

/* The public functions */

/* Runs one client_io after the other and waits for each. */
static void run_on_ios(struct sl_client *client, struct sl_port *port,
                       const struct sl_client_buffer *buffer, void (*run)(struct sl_control_op *op))
{
    for (uint32_t i = 0; i < client->io_count; i++) {
        struct sl_control_op op = {.io = &client->ios[i],
                                   .run = run,
                                   .buffer = {.memory = buffer->base,
                                              .bytes = buffer->bytes,
                                              .is_shared = buffer->shared.base != NULL}};
        sl_control_op_run(&op, port);
    }
}

static int export_buffer(struct sl_client *client, struct sl_port *port,
                         const struct sl_client_buffer *buffer)
{
    sl_port_set_lock(client->ports);
    int err = add(client, buffer);
    sl_port_set_unlock(client->ports);
    if (err == 0) {
        run_on_ios(client, port, buffer, sl_client_io_export);
    }
    return err;
}

/* Takes the buffer out of its slot once no client_io uses it. In a forked child returns none. */
static struct sl_client_buffer unexport_buffer(struct sl_client *client, const void *base,
                                               bool is_callers)
{
    struct sl_port *port;
    int err = sl_port_here(client->ports, &port);
    if (err == SL_ERR_FORKED) {
        return (struct sl_client_buffer){.base = NULL};
    }
    sl_assert(err == 0); /* out of memory for a thread's first call, or not the driving thread */
    sl_port_set_lock(client->ports);
    struct sl_client_buffer *slot = find(client, base);
    struct sl_client_buffer buffer = *slot;
    sl_port_set_unlock(client->ports);
    sl_assert(buffer.is_callers == is_callers);
    run_on_ios(client, port, &buffer, sl_client_io_unexport);
    sl_port_set_lock(client->ports);
    *slot = (struct sl_client_buffer){.base = NULL};
    sl_port_set_unlock(client->ports);
    return buffer;
}

int sl_client_buffer_create(struct sl_client *client, size_t bytes, void **out)
{
    sl_assert(client != NULL);
    sl_assert(out != NULL);
    sl_assert(bytes > 0);
    struct sl_port *port;
    struct sl_client_buffer buffer;
    int err = sl_port_here(client->ports, &port);
    if (err != 0) {
        return err;
    }
    err = make(bytes, &buffer);
    if (err != 0) {
        return sl_reason_report(err, "buffer: no memory for %zu bytes", bytes);
    }
    err = export_buffer(client, port, &buffer);
    if (err != 0) {
        client_buffer_unmake(&buffer);
        return err;
    }
    *out = buffer.base;
    return 0;
}

void sl_client_buffer_free(struct sl_client *client, void **buffer)
{
    sl_assert(client != NULL);
    sl_assert(buffer != NULL);
    if (*buffer != NULL) {
        struct sl_client_buffer freed = unexport_buffer(client, *buffer, false);
        client_buffer_unmake(&freed);
        *buffer = NULL;
    }
}

void sl_client_buffer_keep(struct sl_client *client, const void *buffer)
{
    sl_assert(client != NULL);
    sl_assert(buffer != NULL);
    struct sl_client_buffer kept = unexport_buffer(client, buffer, false);
    if (kept.shared.base != NULL) {
        sl_shared_keep(&kept.shared);
    }
}

int sl_client_buffer_register(struct sl_client *client, void *base, size_t bytes)
{
    sl_assert(client != NULL);
    sl_assert(base != NULL);
    sl_assert(bytes > 0);
    sl_assert(bytes <= UINTPTR_MAX - (uintptr_t)base);
    struct sl_port *port;
    const struct sl_client_buffer buffer = {.base = base, .bytes = bytes, .is_callers = true};
    int err = sl_port_here(client->ports, &port);
    return err == 0 ? export_buffer(client, port, &buffer) : err;
}

void sl_client_buffer_unregister(struct sl_client *client, void *base)
{
    sl_assert(client != NULL);
    sl_assert(base != NULL);
    (void)unexport_buffer(client, base, true);
}
