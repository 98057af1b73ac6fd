#include "net/tcp/buffers.h"

#include <stdlib.h>
#include <string.h>

#define BUFFER_COUNT_MAX 32768 /* the kernel's limit for a buffer ring */
#define HUGE_PAGE_BYTES  (2U << 20)
#define RING_ALIGN       4096 /* the kernel requires page alignment of the ring's entries */

static void offer(struct sl_tcp_buffers *buffers, struct sl_tcp_rx_buf *rx_buf)
{
    void *base = buffers->memory + (size_t)rx_buf->id * buffers->buffer_bytes;
    if (buffers->shared != NULL) {
        io_uring_buf_ring_add(buffers->shared, base, buffers->buffer_bytes, rx_buf->id,
                              io_uring_buf_ring_mask(buffers->buffer_count), 0);
        io_uring_buf_ring_advance(buffers->shared, 1);
    } else {
        struct io_uring_sqe *sqe = sl_ring_sqe(buffers->ring, NULL);
        io_uring_prep_provide_buffers(sqe, base, (int)buffers->buffer_bytes, 1, buffers->group,
                                      rx_buf->id);
    }
    buffers->offered++;
}

/* The mapping holds the ring's entries, then the buffers. Its huge pages are not touched ahead: a
 * worker with 16 reactors would then have 96 MB more from its start, also if it receives little (a
 * worker with one reactor: 7.4 MB resident at its start, 13.7 MB after 1,000 replies). The price is
 * that the first frame in each of the four pages waits until the kernel has cleared it, 0.2 to 2
 * ms. */
static int map_memory(struct sl_tcp_buffers *buffers, uint8_t **out_entries)
{
    size_t entries_bytes = buffers->buffer_count * sizeof(struct io_uring_buf);
    entries_bytes = (entries_bytes + RING_ALIGN - 1) / RING_ALIGN * RING_ALIGN;
    size_t total = entries_bytes + (size_t)buffers->buffer_count * buffers->buffer_bytes;
    sl_arena_init(&buffers->arena, total, 0, total >= HUGE_PAGE_BYTES);
    uint8_t *base = sl_arena_map(&buffers->arena);
    if (base == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    *out_entries = base;
    buffers->memory = base + entries_bytes;
    return 0;
}

/* A kernel with buffer rings may still refuse one (limit on locked memory): then buffers are
 * provided one by one. */
static void register_ring(struct sl_tcp_buffers *buffers, uint8_t *entries)
{
    struct io_uring_buf_reg registration = {
        .ring_addr = (uintptr_t)entries,
        .ring_entries = buffers->buffer_count,
        .bgid = buffers->group,
    };
    if (io_uring_register_buf_ring(&buffers->ring->uring, &registration, 0) == 0) {
        buffers->shared = (struct io_uring_buf_ring *)entries;
        io_uring_buf_ring_init(buffers->shared);
    }
}

int sl_tcp_buffers_init(struct sl_tcp_buffers *buffers, struct sl_ring *ring, uint32_t buffer_count,
                        uint32_t buffer_bytes, size_t unplaced_bytes_max)
{
    if (buffer_count == 0 || buffer_count > BUFFER_COUNT_MAX ||
        (buffer_count & (buffer_count - 1)) != 0 || buffer_bytes == 0 || buffer_bytes % 64 != 0 ||
        buffer_bytes > INT32_MAX) {
        return SL_ERR_INVALID;
    }
    *buffers = (struct sl_tcp_buffers){
        .ring = ring,
        .buffer_count = buffer_count,
        .buffer_bytes = buffer_bytes,
        .unplaced_bytes_max = unplaced_bytes_max,
    };
    buffers->empty = (struct sl_tcp_rx_buf){.refs = 1, .kind = SL_TCP_RX_BUF_EMPTY};
    int err = sl_pool_init(&buffers->staging, sizeof(struct sl_tcp_staging), buffer_count);
    if (err != 0) {
        return err;
    }
    buffers->rx_bufs = calloc(buffer_count, sizeof *buffers->rx_bufs);
    uint8_t *entries = NULL;
    if (buffers->rx_bufs == NULL || map_memory(buffers, &entries) != 0) {
        sl_tcp_buffers_fini(buffers);
        return SL_ERR_NO_MEMORY;
    }
    buffers->group = ring->buffer_groups++;
    if (ring->provided_buffer_rings) {
        register_ring(buffers, entries);
    }
    for (uint32_t i = 0; i < buffer_count; i++) {
        buffers->rx_bufs[i].kind = SL_TCP_RX_BUF_BUFFER;
        buffers->rx_bufs[i].id = (uint16_t)i;
        offer(buffers, &buffers->rx_bufs[i]);
    }
    return 0;
}

/* Buffers provided one by one stay registered with the kernel, but nothing receives into their
 * group any more. */
void sl_tcp_buffers_fini(struct sl_tcp_buffers *buffers)
{
    if (buffers->shared != NULL) {
        io_uring_unregister_buf_ring(&buffers->ring->uring, buffers->group);
    }
    sl_arena_fini(&buffers->arena);
    free(buffers->rx_bufs);
    sl_pool_fini(&buffers->staging);
}

struct sl_tcp_rx_buf *sl_tcp_buffers_take(struct sl_tcp_buffers *buffers, uint32_t cqe_flags,
                                          uint32_t bytes)
{
    uint32_t id = cqe_flags >> IORING_CQE_BUFFER_SHIFT;
    sl_assert(id < buffers->buffer_count);
    sl_assert(bytes <= buffers->buffer_bytes);
    struct sl_tcp_rx_buf *rx_buf = &buffers->rx_bufs[id];
    sl_assert(rx_buf->refs == 0);
    rx_buf->refs = 1;
    rx_buf->next = NULL;
    rx_buf->at = buffers->memory + (size_t)id * buffers->buffer_bytes;
    rx_buf->left = bytes;
    buffers->offered--;
    return rx_buf;
}

struct sl_tcp_staging *sl_tcp_buffers_stage(struct sl_tcp_buffers *buffers,
                                            struct sl_tcp_staging *own)
{
    if (own->rx_buf.refs == 0) {
        own->rx_buf.refs = 1;
        return own;
    }
    struct sl_tcp_staging *staging = sl_pool_get(&buffers->staging);
    if (staging != NULL) {
        staging->rx_buf = (struct sl_tcp_rx_buf){.refs = 1, .kind = SL_TCP_RX_BUF_POOLED};
    }
    return staging;
}

struct sl_tcp_rx_buf *sl_tcp_buffers_heap(uint32_t bytes, uint8_t **payload)
{
    struct sl_tcp_rx_buf *rx_buf = malloc(sizeof *rx_buf + bytes);
    if (rx_buf == NULL) {
        return NULL;
    }
    *payload = (uint8_t *)(rx_buf + 1);
    *rx_buf = (struct sl_tcp_rx_buf){
        .at = *payload, .left = bytes, .refs = 1, .kind = SL_TCP_RX_BUF_HEAP};
    return rx_buf;
}

struct sl_tcp_rx_buf *sl_tcp_buffers_copy_unplaced(struct sl_tcp_buffers *buffers,
                                                   struct sl_tcp_rx_buf *rx_buf)
{
    sl_assert(rx_buf->left > 0);
    uint8_t *to;
    struct sl_tcp_rx_buf *unplaced =
        rx_buf->left > buffers->unplaced_bytes_max - buffers->unplaced_bytes
            ? NULL
            : sl_tcp_buffers_heap(rx_buf->left, &to);
    if (unplaced == NULL) {
        return NULL;
    }
    memcpy(to, rx_buf->at, rx_buf->left);
    unplaced->kind = SL_TCP_RX_BUF_UNPLACED;
    unplaced->bytes = rx_buf->left;
    buffers->unplaced_bytes += rx_buf->left;
    sl_tcp_buffers_put(buffers, rx_buf);
    return unplaced;
}

void sl_tcp_buffers_put_last(struct sl_tcp_buffers *buffers, struct sl_tcp_rx_buf *rx_buf)
{
    if (rx_buf->kind == SL_TCP_RX_BUF_EMPTY) {
        return; /* its reference is permanent */
    }
    rx_buf->refs = 0;
    switch (rx_buf->kind) {
    case SL_TCP_RX_BUF_BUFFER:
        offer(buffers, rx_buf);
        break;
    case SL_TCP_RX_BUF_POOLED:
        sl_pool_put(&buffers->staging, rx_buf);
        break;
    case SL_TCP_RX_BUF_UNPLACED:
        buffers->unplaced_bytes -= rx_buf->bytes;
        free(rx_buf);
        break;
    case SL_TCP_RX_BUF_HEAP:
        free(rx_buf);
        break;
    default: /* OWNED: the connection checks refs */
        break;
    }
}
