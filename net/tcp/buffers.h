/* The receive memory of one TCP transport, and who still reads it. A hold is one piece of received
 * memory with a count of its users: a buffer of the ring that the kernel fills, a block in which a
 * frame was assembled, or what came along with a connection from another reactor. It goes back to
 * where it came from with its last user. Owner reactor. */
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
    SL_TCP_RX_BUF_BUFFER, /* goes back to the kernel */
    SL_TCP_RX_BUF_POOLED, /* a staging block of the pool */
    SL_TCP_RX_BUF_OWNED,  /* the staging block that every connection has of its own */
    SL_TCP_RX_BUF_HEAP,   /* freed */
    SL_TCP_RX_BUF_ASIDE,  /* freed; its bytes count in unplaced_bytes */
    SL_TCP_RX_BUF_EMPTY   /* of messages without a payload; nothing to give back */
};

struct sl_tcp_rx_buf {
    struct sl_tcp_rx_buf *next; /* in a connection's queue of bytes to parse */
    const uint8_t *at;          /* what of it is not parsed yet */
    uint32_t left;
    uint32_t refs;
    uint32_t bytes; /* ASIDE: its part of unplaced_bytes */
    uint16_t id;    /* of the buffer, to the kernel */
    uint8_t kind;
};

/* A block in which a frame's payload is put together. */
struct sl_tcp_staging {
    struct sl_tcp_rx_buf rx_buf;
    _Alignas(64) uint8_t payload[SL_LIMIT_INLINE_PAYLOAD_BYTES];
};

struct sl_tcp_buffers {
    struct sl_ring *ring;
    struct sl_arena arena;
    struct io_uring_buf_ring *shared; /* with the kernel; NULL: buffers are provided one by one */
    uint8_t *memory;                  /* buffer i at i * buffer_bytes */
    struct sl_tcp_rx_buf *rx_bufs;    /* one for each buffer */
    struct sl_pool staging;           /* of struct sl_tcp_staging */
    struct sl_tcp_rx_buf empty;
    uint32_t buffer_bytes, buffer_count;
    size_t unplaced_bytes, unplaced_bytes_max; /* of all blocks that were set aside */
    uint32_t offered; /* buffers that the kernel may fill, as far as its completions say */
    uint16_t group;
};

/* buffer_count: a power of two up to 32768; buffer_bytes: a multiple of 64. Errors: NO_MEMORY,
 * INVALID. */
int sl_tcp_buffers_init(struct sl_tcp_buffers *buffers, struct sl_ring *ring, uint32_t buffer_count,
                        uint32_t buffer_bytes, size_t unplaced_bytes_max);
void sl_tcp_buffers_fini(struct sl_tcp_buffers *buffers);

/* The buffer that a completion names, with one user and `bytes` to parse. */
struct sl_tcp_rx_buf *sl_tcp_buffers_take(struct sl_tcp_buffers *buffers, uint32_t cqe_flags,
                                          uint32_t bytes);

/* A staging block with one user: `own` when it is free, else one of the pool; NULL when that is
 * empty. */
struct sl_tcp_staging *sl_tcp_buffers_stage(struct sl_tcp_buffers *buffers,
                                            struct sl_tcp_staging *own);

/* A heap block of `bytes`, all to be parsed, with one user; NULL without memory. */
struct sl_tcp_rx_buf *sl_tcp_buffers_heap(uint32_t bytes, uint8_t **payload);

/* The bytes of `hold` that are not parsed, in a heap block instead; takes the user of `hold`. NULL,
 * and `hold` stays as it is: without memory, or beyond unplaced_bytes_max. */
struct sl_tcp_rx_buf *sl_tcp_buffers_set_aside(struct sl_tcp_buffers *buffers,
                                               struct sl_tcp_rx_buf *rx_buf);

/* The last user has gone. */
void sl_tcp_buffers_put_last(struct sl_tcp_buffers *buffers, struct sl_tcp_rx_buf *rx_buf);

/* One user less. */
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
