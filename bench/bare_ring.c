#include "bench/bare_ring.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "core/log.h"

#define GROUP      0
#define HUGE_BYTES ((size_t)2 << 20)
#define SETUP_FLAGS                                                                                \
    (IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG |         \
     IORING_SETUP_SUBMIT_ALL | IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP)

static int fail(const char *what, int err)
{
    sl_log_error("baseline: %s: %s (the baselines need io_uring of Linux 6.1 or later)", what,
                 strerror(-err));
    return err == -EINVAL || err == -ENOSYS || err == -EPERM ? SL_ERR_UNSUPPORTED
                                                             : sl_err_from_errno(-err);
}

static void *map(size_t bytes)
{
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    return base == MAP_FAILED ? NULL : base;
}

static int provide_buffers(struct sl_bench_bare_ring *ring)
{
    ring->shared_bytes = ring->buffer_count * sizeof(struct io_uring_buf);
    ring->memory_bytes = (size_t)ring->buffer_count * ring->buffer_bytes;
    ring->shared = map(ring->shared_bytes);
    ring->memory = map(ring->memory_bytes);
    if (ring->shared == NULL || ring->memory == NULL) {
        return fail("memory for buffers", -ENOMEM);
    }
    struct io_uring_buf_reg registration = {
        .ring_addr = (uintptr_t)ring->shared,
        .ring_entries = ring->buffer_count,
        .bgid = GROUP,
    };
    int err = io_uring_register_buf_ring(&ring->uring, &registration, 0);
    if (err != 0) {
        return fail("registering buffers", err);
    }
    io_uring_buf_ring_init(ring->shared);
    for (uint32_t i = 0; i < ring->buffer_count; i++) {
        sl_bench_bare_ring_return(ring, i << IORING_CQE_BUFFER_SHIFT);
    }
    sl_bench_bare_ring_advance(ring);
    return 0;
}

int sl_bench_bare_ring_init(struct sl_bench_bare_ring *ring, uint32_t entries, uint32_t completions,
                            uint32_t buffer_count, uint32_t buffer_bytes, const int *fds,
                            uint32_t fd_count)
{
    struct io_uring_params params = {.flags = SETUP_FLAGS, .cq_entries = completions};
    *ring = (struct sl_bench_bare_ring){.buffer_bytes = buffer_bytes, .buffer_count = buffer_count};
    int err = io_uring_queue_init_params(entries, &ring->uring, &params);
    if (err != 0) {
        return fail("io_uring_setup", err);
    }
    err = provide_buffers(ring);
    if (err == 0 && (err = io_uring_register_files(&ring->uring, fds, fd_count)) != 0) {
        err = fail("registering sockets", err);
    }
    if (err == 0 && (err = io_uring_register_ring_fd(&ring->uring)) != 1) {
        err = fail("registering the ring", err);
    }
    if (err < 0) {
        sl_bench_bare_ring_fini(ring);
        return err;
    }
    return 0;
}

void sl_bench_bare_ring_fini(struct sl_bench_bare_ring *ring)
{
    io_uring_queue_exit(&ring->uring);
    if (ring->shared != NULL) {
        (void)munmap(ring->shared, ring->shared_bytes);
    }
    if (ring->memory != NULL) {
        (void)munmap(ring->memory, ring->memory_bytes);
    }
}

struct io_uring_sqe *sl_bench_bare_ring_sqe(struct sl_bench_bare_ring *ring)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&ring->uring);
    if (sqe == NULL) {
        (void)io_uring_submit(&ring->uring);
        sqe = io_uring_get_sqe(&ring->uring);
    }
    return sqe;
}

/* What says, in memory shared with the kernel, that entering it would be worth while. */
static bool kernel_waits(const struct sl_bench_bare_ring *ring)
{
    return (IO_URING_READ_ONCE(*ring->uring.sq.kflags) &
            (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)) != 0;
}

int sl_bench_bare_ring_turn(struct sl_bench_bare_ring *ring, bool polling, uint32_t wait_ms)
{
    int err = 0;
    if (polling) {
        if (io_uring_sq_ready(&ring->uring) > 0 || kernel_waits(ring)) {
            err = io_uring_submit_and_get_events(&ring->uring);
        }
    } else {
        struct __kernel_timespec timeout = {.tv_nsec = wait_ms * 1000000LL};
        struct io_uring_cqe *cqe;
        err = io_uring_submit_and_wait_timeout(&ring->uring, &cqe, 1, &timeout, NULL);
    }
    if (err < 0 && err != -ETIME && err != -EINTR && err != -EAGAIN && err != -EBUSY) {
        return fail("io_uring_enter", err);
    }
    return 0;
}
