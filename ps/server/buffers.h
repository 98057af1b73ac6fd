/* Memory of one server for requests that must wait and for replies that take several turns: a
 * buddy allocator (Knowlton 1965) over one lazily mapped region, so that a parked request of a few
 * keys costs a page and not a whole frame. Blocks of 4 KiB to SL_LIMIT_FRAME_PAYLOAD_BYTES, aligned
 * to their size. Owner reactor. */
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

/* Its memory is the system's. */
#define SL_SERVER_BUFFERS_COLD UINT8_MAX

struct sl_server_buffers_free;
struct sl_transport;

struct sl_server_buffers {
    struct sl_shared shared; /* the mapping, when it is shared */
    uint8_t *mapping;
    size_t mapping_bytes;
    uint8_t *base; /* aligned to the largest block */
    size_t bytes;
    size_t used_bytes;
    uint8_t *map; /* of each least block: what begins there */
    uint8_t
        *looks; /* of each largest block: that found it free in a row, or SL_SERVER_BUFFERS_COLD */
    bool is_registered; /* the memory is, or is shared: all of it stays */
    struct sl_server_buffers_free *free[SL_SERVER_BUFFERS_ORDERS];
};

/* bytes: rounded down to whole largest blocks, at least one. Errors: NO_MEMORY. */
int sl_server_buffers_init(struct sl_server_buffers *buffers, size_t bytes);

/* As above, in memory that is registered with a transport that SHARES, and must be closed before
 * fini. Peers can read all of it. Errors: IO too. */
int sl_server_buffers_init_shared(struct sl_server_buffers *buffers, size_t bytes,
                                  struct sl_transport *transport);

/* Registers the memory with a transport that REGISTERS, which must be closed before fini. Errors:
 * those of sl_transport_memory_register; then it works as before. */
int sl_server_buffers_register(struct sl_server_buffers *buffers, struct sl_transport *transport);

void sl_server_buffers_fini(struct sl_server_buffers *buffers);

/* To be called once a second: largest blocks that have been free for some seconds go back to the
 * system, a few at a time; not those of memory that is shared or registered. False: there is none
 * to give back. */
bool sl_server_buffers_give_back(struct sl_server_buffers *buffers);

/* Room for `bytes`, 1 to SL_LIMIT_FRAME_PAYLOAD_BYTES, while no more than `used_bytes_max` are in
 * use afterwards; NULL when there is none. */
uint8_t *sl_server_buffers_get(struct sl_server_buffers *buffers, size_t bytes,
                               size_t used_bytes_max);
void sl_server_buffers_put(struct sl_server_buffers *buffers, uint8_t *buffer);

/* True when the memory is of this region. */
static inline bool sl_server_buffers_hold(const struct sl_server_buffers *buffers,
                                          const uint8_t *memory)
{
    return (uintptr_t)memory - (uintptr_t)buffers->base < buffers->bytes;
}

/* What the buffer takes of the region. */
size_t sl_server_buffers_size(const struct sl_server_buffers *buffers, const uint8_t *buffer);

#endif
