#include "reactor/ring.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/assert.h"
#include "core/clock.h"
#include "core/fork.h"
#include "core/limits.h"
#include "core/log.h"

#define COMPLETIONS_PER_ENTRY 4

/* Of one wait for the end of a watch. */
#define END_WAIT_NS           (100 * SL_CLOCK_NS_PER_MS)

/* How long a full submission queue may wait for a kernel without memory. */
#define ROOM_WAIT_NS          SL_CLOCK_NS_PER_S

/* Required from the kernel; all older than 5.19. */
#define FEATURES_NEEDED       (IORING_FEAT_NODROP | IORING_FEAT_EXT_ARG | IORING_FEAT_FAST_POLL)

static const unsigned setup_flags[] = {
    [SL_RING_DEFERRED] = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
                         IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_SUBMIT_ALL,
    [SL_RING_COOPERATIVE] =
        IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_SUBMIT_ALL,
    [SL_RING_PLAIN] = 0,
};

static int setup_failed(int system_errno)
{
    const char *reason = strerror(system_errno);
    if (system_errno == ENOSYS || system_errno == EPERM || system_errno == EINVAL) {
        sl_log_error("io_uring cannot be used here (%s): Starling needs Linux 5.19 or later, "
                     "kernel.io_uring_disabled = 0, and a container profile that allows io_uring",
                     reason);
        return SL_ERR_UNSUPPORTED;
    }
    sl_log_error("no io_uring could be made (%s): look at the limits on open files (ulimit -n), "
                 "locked memory (ulimit -l) and the control group's memory",
                 reason);
    return system_errno == ENOMEM ? SL_ERR_NO_MEMORY : SL_ERR_IO;
}

static int setup(struct sl_ring *ring, uint32_t entries, enum sl_ring_setup best)
{
    int err = -EINVAL;
    for (unsigned i = best; i <= SL_RING_PLAIN && err == -EINVAL; i++) {
        struct io_uring_params params = {
            .flags = setup_flags[i] | IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP,
            .cq_entries = entries * COMPLETIONS_PER_ENTRY,
        };
        err = io_uring_queue_init_params(entries, &ring->uring, &params);
    }
    if (err != 0) {
        return setup_failed(-err);
    }
    if ((ring->uring.features & FEATURES_NEEDED) != FEATURES_NEEDED) {
        io_uring_queue_exit(&ring->uring);
        return setup_failed(ENOSYS);
    }
    /* A ring holds the connections of its requests in flight: a forked child keeps none of it. */
    (void)io_uring_ring_dontfork(&ring->uring);
    sl_fork_register(ring->uring.ring_fd);
    ring->deferred_taskrun = (ring->uring.flags & IORING_SETUP_DEFER_TASKRUN) != 0;
    return 0;
}

/* A kernel with multishot receives fails at the invalid descriptor; without them, at the flag
 * before. */
static bool probe_multishot_recv(struct sl_ring *ring)
{
    struct io_uring_sqe *sqe = sl_ring_sqe(ring, NULL);
    io_uring_prep_recv_multishot(sqe, -1, NULL, 0, 0);
    io_uring_sqe_set_flags(sqe, IOSQE_BUFFER_SELECT);

    struct io_uring_cqe *cqe;
    if (io_uring_submit_and_wait(&ring->uring, 1) < 0 || io_uring_peek_cqe(&ring->uring, &cqe)) {
        return false;
    }
    bool known = cqe->res == -EBADF;
    io_uring_cqe_seen(&ring->uring, cqe);
    return known;
}

static bool probe_provided_buffer_rings(struct sl_ring *ring)
{
    enum { BUFFERS = 8, GROUP = UINT16_MAX };
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *memory = aligned_alloc(page, page);
    if (memory == NULL) {
        return false;
    }
    struct io_uring_buf_reg registration = {
        .ring_addr = (uintptr_t)memory,
        .ring_entries = BUFFERS,
        .bgid = GROUP,
    };
    bool known = io_uring_register_buf_ring(&ring->uring, &registration, 0) == 0;
    if (known) {
        io_uring_unregister_buf_ring(&ring->uring, GROUP);
    }
    free(memory);
    return known;
}

int sl_ring_init(struct sl_ring *ring, uint32_t entries)
{
    return sl_ring_init_at_best(ring, entries, SL_RING_DEFERRED);
}

int sl_ring_init_at_best(struct sl_ring *ring, uint32_t entries, enum sl_ring_setup best)
{
    sl_assert(entries > 0);
    sl_assert(best <= SL_RING_PLAIN);
    memset(ring, 0, sizeof *ring);
    int err = setup(ring, entries, best);
    if (err != 0) {
        return err;
    }
    (void)io_uring_register_ring_fd(&ring->uring); /* optional: calls are faster */
    ring->multishot_recv = probe_multishot_recv(ring);
    ring->provided_buffer_rings = probe_provided_buffer_rings(ring);
    return 0;
}

void sl_ring_fini(struct sl_ring *ring)
{
    sl_fork_unregister(ring->uring.ring_fd);
    io_uring_queue_exit(&ring->uring);
}

/* Transient errors: a signal, a kernel short of memory, completions to reap first, a timeout.
 * Others are bugs (EEXIST: another thread's ring; EINVAL). */
static bool passes(int err)
{
    return err >= 0 || err == -EINTR || err == -EAGAIN || err == -EBUSY || err == -ETIME;
}

static void reactor_ring_submit(struct sl_ring *ring)
{
    ring->submit_calls++;
    int err = io_uring_submit(&ring->uring);
    if (!passes(err)) {
        sl_log_error("io_uring_enter failed: %s", strerror(-err));
    }
    sl_assert(passes(err));
}

/* Whether work waits for this thread to enter the kernel. Reads shared memory, no system call. */
static bool kernel_waits(const struct sl_ring *ring)
{
    return (IO_URING_READ_ONCE(*ring->uring.sq.kflags) &
            (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)) != 0;
}

static struct io_uring_sqe *sqe_after_making_room(struct sl_ring *ring)
{
    uint64_t until_ns = sl_clock_now_ns(sl_clock_system()) + ROOM_WAIT_NS;
    for (;;) {
        reactor_ring_submit(ring);
        struct io_uring_sqe *sqe = io_uring_get_sqe(&ring->uring);
        if (sqe != NULL) {
            return sqe;
        }
        sl_assert(sl_clock_now_ns(sl_clock_system()) < until_ns);
        sched_yield();
    }
}

struct io_uring_sqe *sl_ring_sqe(struct sl_ring *ring, struct sl_ring_op *op)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&ring->uring);
    if (sqe == NULL) {
        sqe = sqe_after_making_room(ring);
    }
    io_uring_sqe_set_data(sqe, op);
    return sqe;
}

bool sl_ring_has_to_submit(const struct sl_ring *ring)
{
    return io_uring_sq_ready(&ring->uring) != 0 || kernel_waits(ring);
}

void sl_ring_submit(struct sl_ring *ring)
{
    if (sl_ring_has_to_submit(ring)) {
        reactor_ring_submit(ring);
    }
}

uint32_t sl_ring_reap(struct sl_ring *ring, uint32_t budget)
{
    if (kernel_waits(ring)) {
        ring->submit_calls++;
        io_uring_get_events(&ring->uring);
    }
    uint32_t delivered = 0;
    struct io_uring_cqe *cqe;
    while (delivered < budget && io_uring_cq_ready(&ring->uring) != 0 &&
           io_uring_peek_cqe(&ring->uring, &cqe) == 0) {
        struct sl_ring_op *op = io_uring_cqe_get_data(cqe);
        int32_t result = cqe->res;
        uint32_t flags = cqe->flags;
        /* Released first: `complete` may submit and so bring new completions. */
        io_uring_cqe_seen(&ring->uring, cqe);
        if (op != NULL) {
            op->complete(op, result, flags);
        }
        delivered++;
    }
    ring->completions += delivered;
    return delivered;
}

void sl_ring_wait(struct sl_ring *ring, uint64_t timeout_ns)
{
    struct __kernel_timespec timeout = {
        .tv_sec = (int64_t)(timeout_ns / SL_CLOCK_NS_PER_S),
        .tv_nsec = (long long)(timeout_ns % SL_CLOCK_NS_PER_S),
    };
    struct io_uring_cqe *cqe;
    ring->submit_calls++;
    int err = io_uring_submit_and_wait_timeout(
        &ring->uring, &cqe, 1, timeout_ns == SL_CLOCK_NEVER ? NULL : &timeout, NULL);
    if (!passes(err)) {
        sl_log_error("io_uring_enter failed: %s", strerror(-err));
    }
    sl_assert(passes(err));
}

void sl_ring_cancel(struct sl_ring *ring, struct sl_ring_op *op)
{
    io_uring_prep_cancel(sl_ring_sqe(ring, NULL), op, 0);
}

static void watch_submit(struct sl_ring_watch *watch)
{
    watch->in_flight = true;
    struct io_uring_sqe *sqe = sl_ring_sqe(watch->ring, &watch->op);
    if (watch->multishot) {
        io_uring_prep_poll_multishot(sqe, watch->fd, POLLIN);
    } else {
        io_uring_prep_poll_add(sqe, watch->fd, POLLIN);
    }
}

static void watch_complete(struct sl_ring_op *op, int32_t result, uint32_t cqe_flags)
{
    struct sl_ring_watch *watch = (struct sl_ring_watch *)op;
    watch->in_flight = (cqe_flags & IORING_CQE_F_MORE) != 0;
    if (watch->ending) {
        return;
    }
    if (result >= 0) {
        watch->readable(watch);
    } else {
        /* The only failure that is no bug: the kernel has no multishot poll. */
        sl_assert(result == -EINVAL && watch->multishot);
        watch->multishot = false;
    }
    if (!watch->in_flight) {
        watch_submit(watch);
    }
}

static void watch_begin(struct sl_ring *ring, struct sl_ring_watch *watch, int fd, bool multishot,
                        void (*readable)(struct sl_ring_watch *watch))
{
    *watch = (struct sl_ring_watch){
        .op.complete = watch_complete,
        .ring = ring,
        .readable = readable,
        .fd = fd,
        .multishot = multishot,
    };
    watch_submit(watch);
}

void sl_ring_watch(struct sl_ring *ring, struct sl_ring_watch *watch, int fd,
                   void (*readable)(struct sl_ring_watch *watch))
{
    watch_begin(ring, watch, fd, true, readable);
}

void sl_ring_watch_level(struct sl_ring *ring, struct sl_ring_watch *watch, int fd,
                         void (*readable)(struct sl_ring_watch *watch))
{
    watch_begin(ring, watch, fd, false, readable);
}

void sl_ring_watch_end(struct sl_ring_watch *watch)
{
    watch->ending = true;
    if (watch->in_flight) {
        sl_ring_cancel(watch->ring, &watch->op);
    }
    while (watch->in_flight) {
        if (sl_ring_reap(watch->ring, SL_LIMIT_TURN_EVENTS) == 0) {
            sl_ring_wait(watch->ring, END_WAIT_NS);
        }
    }
}
