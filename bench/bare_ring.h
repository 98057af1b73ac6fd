/* io_uring as the baselines use it: single issuer, deferred task running, registered ring and
 * sockets, multishot receives into a ring of provided buffers. One thread, the one that makes it.
 */
#ifndef SL_BENCH_BARE_RING_H
#define SL_BENCH_BARE_RING_H

#include <liburing.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/err.h"

struct sl_bench_bare_ring {
    struct io_uring uring;
    struct io_uring_buf_ring *shared; /* with the kernel: which buffers it may fill */
    uint8_t *memory;                  /* buffer i at i * buffer_bytes */
    size_t shared_bytes, memory_bytes;
    uint32_t buffer_bytes, buffer_count;
    uint32_t returned; /* buffers that the kernel gets back at the next submit */
};

/* entries: of the submission queue; completions: of the other. buffer_count: a power of two up to
 * 32768. The sockets are fixed files from 0 on. Errors, logged: UNSUPPORTED (needs Linux 6.1),
 * NO_MEMORY, IO. */
int sl_bench_bare_ring_init(struct sl_bench_bare_ring *ring, uint32_t entries, uint32_t completions,
                            uint32_t buffer_count, uint32_t buffer_bytes, const int *fds,
                            uint32_t fd_count);
void sl_bench_bare_ring_fini(struct sl_bench_bare_ring *ring);

/* A free entry; submits what is queued when there is none. NULL: the kernel takes no more. */
struct io_uring_sqe *sl_bench_bare_ring_sqe(struct sl_bench_bare_ring *ring);

/* Submits what is queued; where nothing has completed, spins, or sleeps for at most wait_ms.
 * Errors, logged: IO. */
int sl_bench_bare_ring_turn(struct sl_bench_bare_ring *ring, bool polling, uint32_t wait_ms);

/* The buffer that a completion names, read already, is the kernel's again. */
static inline void sl_bench_bare_ring_return(struct sl_bench_bare_ring *ring, uint32_t cqe_flags)
{
    const uint32_t id = cqe_flags >> IORING_CQE_BUFFER_SHIFT;
    io_uring_buf_ring_add(ring->shared, ring->memory + (size_t)id * ring->buffer_bytes,
                          ring->buffer_bytes, (uint16_t)id,
                          io_uring_buf_ring_mask(ring->buffer_count), (int)ring->returned);
    ring->returned++;
}

static inline void sl_bench_bare_ring_advance(struct sl_bench_bare_ring *ring)
{
    io_uring_buf_ring_advance(ring->shared, (int)ring->returned);
    ring->returned = 0;
}

#endif
