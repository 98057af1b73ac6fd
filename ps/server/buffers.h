/* Server buffers hold waiting requests and replies that take several turns: a buddy allocator
 * (Knowlton 1965) over one lazily mapped region. A parked request of a few keys takes one page, not
 * a whole frame. Blocks have 4 KiB to SL_LIMIT_FRAME_PAYLOAD_BYTES and are aligned to their size.
 * Owner reactor. */
#ifndef SL_PS_SERVER_BUFFERS_H
#define SL_PS_SERVER_BUFFERS_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "core/limits.h"
#include "core/shared.h"

#define SL_SERVER_BUFFERS_LEAST_BITS 12
#define SL_SERVER_BUFFERS_ORDERS     11
static_assert((1U << (SL_SERVER_BUFFERS_LEAST_BITS + SL_SERVER_BUFFERS_ORDERS - 1)) ==
                  SL_LIMIT_FRAME_PAYLOAD_BYTES,
              "the largest block holds the largest payload");

/* Value of `looks`: the memory was returned to the system. */
#define SL_SERVER_BUFFERS_COLD UINT8_MAX

struct sl_server_buffers_free;
struct sl_transport;

struct sl_server_buffers {
    struct sl_shared shared; /* of init_shared */
    uint8_t *mapping;
    size_t mapping_bytes;
    uint8_t *base; /* aligned to the largest block */
    size_t bytes;
    size_t used_bytes;
    uint8_t *map; /* [smallest blocks]: kind and order of the block that starts there; 0: none */
    /* [largest blocks]: consecutive checks that found it free, or SL_SERVER_BUFFERS_COLD */
    uint8_t *looks;
    bool is_registered; /* registered or shared: memory is never returned */
    struct sl_server_buffers_free *free[SL_SERVER_BUFFERS_ORDERS];
};

/* bytes: rounded down to whole largest blocks, at least one. Errors: NO_MEMORY. */
int sl_server_buffers_init(struct sl_server_buffers *buffers, size_t bytes);

/* Like init, with memory registered with a transport that has MAPS_MEMORY. Peers can read all of
 * it. Close the transport before fini. Errors: IO too. */
int sl_server_buffers_init_shared(struct sl_server_buffers *buffers, size_t bytes,
                                  struct sl_transport *transport);

/* Registers the memory with a transport that has REGISTERS. Close the transport before fini.
 * Errors: of sl_transport_memory_register; then the buffers work as before. */
int sl_server_buffers_register(struct sl_server_buffers *buffers, struct sl_transport *transport);

void sl_server_buffers_fini(struct sl_server_buffers *buffers);

/* Call once a second: returns memory of largest blocks that were free for some seconds to the
 * system, a few at a time; never of shared or registered buffers. False: none left to return. */
bool sl_server_buffers_give_back(struct sl_server_buffers *buffers);

/* Allocates 1 to SL_LIMIT_FRAME_PAYLOAD_BYTES bytes if afterwards at most used_bytes_max are in
 * use; else NULL. */
uint8_t *sl_server_buffers_get(struct sl_server_buffers *buffers, size_t bytes,
                               size_t used_bytes_max);
void sl_server_buffers_put(struct sl_server_buffers *buffers, uint8_t *buffer);

/* Returns true when the memory belongs to this region. */
static inline bool sl_server_buffers_hold(const struct sl_server_buffers *buffers,
                                          const uint8_t *memory)
{
    return (uintptr_t)memory - (uintptr_t)buffers->base < buffers->bytes;
}

/* Returns the size of the buffer's block. */
size_t sl_server_buffers_size(const struct sl_server_buffers *buffers, const uint8_t *buffer);

#endif
