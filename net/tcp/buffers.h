/* The receive buffers of one TCP transport, with reference counts. A sl_tcp_rx_buf is a piece of
 * received memory: a buffer of the ring that the kernel fills, a block in which a frame was
 * assembled, or data that came with a connection from another reactor. The last reference returns
 * it to its origin. Owner reactor. */
#ifndef SL_NET_TCP_BUFFERS_H
#define SL_NET_TCP_BUFFERS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/arena.h"
#include "core/assert.h"
#include "core/limits.h"
#include "core/pool.h"
#include "reactor/ring.h"

enum sl_tcp_rx_buf_kind {
    SL_TCP_RX_BUF_BUFFER,   /* of the ring; returned to the kernel */
    SL_TCP_RX_BUF_POOLED,   /* a staging block of the pool */
    SL_TCP_RX_BUF_OWNED,    /* a connection's own staging block */
    SL_TCP_RX_BUF_HEAP,     /* freed */
    SL_TCP_RX_BUF_UNPLACED, /* freed: a copy of bytes for which the receiver has no memory yet */
    SL_TCP_RX_BUF_EMPTY     /* for messages without a payload; nothing to free */
};

struct sl_tcp_rx_buf {
    struct sl_tcp_rx_buf *next; /* in a connection's queue of unparsed bytes */
    const uint8_t *at;          /* the unparsed bytes */
    uint32_t left;
    uint32_t refs;
    uint32_t bytes; /* of an UNPLACED block: its part of unplaced_bytes */
    uint16_t id;    /* buffer id of the kernel */
    uint8_t kind;
};

/* A block in which a frame's payload is assembled. */
struct sl_tcp_staging {
    struct sl_tcp_rx_buf rx_buf;
    _Alignas(64) uint8_t payload[SL_LIMIT_INLINE_PAYLOAD_BYTES];
};

struct sl_tcp_buffers {
    struct sl_ring *ring;
    struct sl_arena arena;
    /* The kernel's buffer ring; NULL: buffers are provided one by one. */
    struct io_uring_buf_ring *shared;
    uint8_t *memory;               /* buffer i is at i * buffer_bytes */
    struct sl_tcp_rx_buf *rx_bufs; /* one for each buffer */
    struct sl_pool staging;        /* of struct sl_tcp_staging */
    struct sl_tcp_rx_buf empty;
    uint32_t buffer_bytes, buffer_count;
    size_t unplaced_bytes, unplaced_bytes_max; /* of all UNPLACED blocks */
    /* Buffers that the kernel may fill, according to the completions seen. */
    uint32_t offered;
    uint16_t group;
};

/* buffer_count: a power of two up to 32768; buffer_bytes: a multiple of 64. Errors: NO_MEMORY,
 * INVALID. */
int sl_tcp_buffers_init(struct sl_tcp_buffers *buffers, struct sl_ring *ring, uint32_t buffer_count,
                        uint32_t buffer_bytes, size_t unplaced_bytes_max);
void sl_tcp_buffers_fini(struct sl_tcp_buffers *buffers);

/* Takes the buffer named by a completion, with one reference and `bytes` to parse. */
struct sl_tcp_rx_buf *sl_tcp_buffers_take(struct sl_tcp_buffers *buffers, uint32_t cqe_flags,
                                          uint32_t bytes);

/* Returns a staging block with one reference: `own` if it is free, else one of the pool; NULL if
 * the pool is empty. */
struct sl_tcp_staging *sl_tcp_buffers_stage(struct sl_tcp_buffers *buffers,
                                            struct sl_tcp_staging *own);

/* Allocates a heap block with `bytes` to parse and one reference; NULL without memory. */
struct sl_tcp_rx_buf *sl_tcp_buffers_heap(uint32_t bytes, uint8_t **payload);

/* Copies the unparsed bytes of rx_buf into a heap block and drops its reference. Returns NULL, and
 * leaves rx_buf unchanged, without memory or beyond unplaced_bytes_max. */
struct sl_tcp_rx_buf *sl_tcp_buffers_copy_unplaced(struct sl_tcp_buffers *buffers,
                                                   struct sl_tcp_rx_buf *rx_buf);

/* Frees a buffer whose last reference is dropped. */
void sl_tcp_buffers_put_last(struct sl_tcp_buffers *buffers, struct sl_tcp_rx_buf *rx_buf);

/* Drops one reference. */
static inline void sl_tcp_buffers_put(struct sl_tcp_buffers *buffers, struct sl_tcp_rx_buf *rx_buf)
{
    sl_assert(rx_buf->refs > 0);
    if (rx_buf->refs > 1) {
        rx_buf->refs--;
    } else {
        sl_tcp_buffers_put_last(buffers, rx_buf);
    }
}

#endif
