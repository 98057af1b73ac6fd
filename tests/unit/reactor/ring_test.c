#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/clock.h"
#include "reactor/ring.h"
#include "tests/support/unit.h"

#define ENTRIES 8
#define SKIPPED 77 /* to CTest */

struct counting_op {
    struct sl_ring_op op;
    struct sl_ring *ring;
    uint32_t completed;
    uint32_t again; /* as many times it submits a further NOP from inside */
    int32_t result;
};

static void nop(struct sl_ring *ring, struct sl_ring_op *op)
{
    io_uring_prep_nop(sl_ring_sqe(ring, op));
}

static void counting_complete(struct sl_ring_op *op, int32_t result, uint32_t cqe_flags)
{
    struct counting_op *counting = (struct counting_op *)op;
    counting->completed++;
    counting->result = result;
    if (counting->again > 0) {
        counting->again--;
        nop(counting->ring, op);
    }
}

/* Which of the setups the group of tests in progress runs with. */
static enum sl_ring_setup best;

static void setup(struct sl_ring *ring)
{
    assert_int_equal(sl_ring_init_at_best(ring, ENTRIES, best), 0);
}

#define IN_RING(name) SL_CASE_USING(name, struct sl_ring, ring, setup, sl_ring_fini)

IN_RING(init__setup_is_no_better_than_asked)
{
    assert_true(best == SL_RING_DEFERRED || !ring->deferred_taskrun);
    assert_true(best <= SL_RING_COOPERATIVE ||
                (ring->uring.flags & IORING_SETUP_TASKRUN_FLAG) == 0);
}

SL_CASE(init__no_descriptor_left)
{
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    struct rlimit none = {.rlim_cur = 0, .rlim_max = before.rlim_max};
    struct sl_ring ring;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    int err = sl_ring_init(&ring, ENTRIES);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(err, SL_ERR_IO);
}

static struct counting_op counting_op(struct sl_ring *ring)
{
    return (struct counting_op){.op.complete = counting_complete, .ring = ring};
}

IN_RING(reap__delivers_up_to_the_budget)
{
    struct counting_op op = counting_op(ring);
    for (int i = 0; i < 5; i++) {
        nop(ring, &op.op);
    }
    nop(ring, NULL);
    assert_int_equal(sl_ring_reap(ring, 100), 0);
    sl_ring_submit(ring);
    assert_int_equal(sl_ring_reap(ring, 2), 2);
    assert_int_equal(sl_ring_reap(ring, 100), 4);
    assert_int_equal(op.completed, 5);
    assert_int_equal(ring->completions, 6);
}

IN_RING(reap__idle_makes_no_system_call)
{
    uint64_t before = ring->submit_calls;
    for (int i = 0; i < 10; i++) {
        assert_int_equal(sl_ring_reap(ring, 100), 0);
        sl_ring_submit(ring);
    }
    assert_int_equal(ring->submit_calls, before);
}

IN_RING(sqe__more_than_the_queue_holds)
{
    struct counting_op op = counting_op(ring);
    /* More than the completion queue holds, too: the kernel keeps the rest. */
    uint32_t count = ENTRIES * 40;
    for (uint32_t i = 0; i < count; i++) {
        nop(ring, &op.op);
    }
    uint32_t reaped = 0;
    while (reaped < count) {
        sl_ring_submit(ring);
        uint32_t now = sl_ring_reap(ring, 7);
        assert_true(now > 0);
        reaped += now;
    }
    assert_int_equal(op.completed, count);
}

IN_RING(complete__may_submit)
{
    struct counting_op op = counting_op(ring);
    op.again = 100;
    nop(ring, &op.op);
    while (op.completed < 101) {
        sl_ring_wait(ring, SL_CLOCK_NEVER);
        sl_ring_reap(ring, 10);
    }
    assert_int_equal(op.result, 0);
}

IN_RING(wait__ends_with_the_timeout)
{
    uint64_t before_ns = sl_clock_now_ns(sl_clock_system());
    sl_ring_wait(ring, 2 * SL_CLOCK_NS_PER_MS);
    assert_true(sl_clock_now_ns(sl_clock_system()) - before_ns >= SL_CLOCK_NS_PER_MS);
    assert_int_equal(sl_ring_reap(ring, 1), 0);
}

IN_RING(wait__ends_with_a_completion)
{
    struct counting_op op = counting_op(ring);
    struct __kernel_timespec soon = {.tv_nsec = 1000000};
    io_uring_prep_timeout(sl_ring_sqe(ring, &op.op), &soon, 0, 0);
    sl_ring_wait(ring, SL_CLOCK_NEVER);
    assert_int_equal(sl_ring_reap(ring, 10), 1);
    assert_int_equal(op.completed, 1);
    assert_int_equal(op.result, -ETIME);
}

/* What was probed must be what works: a multishot receive delivers twice from one submission. */
IN_RING(init__multishot_recv_is_what_it_says)
{
    if (!ring->multishot_recv || !ring->provided_buffer_rings) {
        skip();
    }
    enum { COUNT = 4, BYTES = 64, GROUP = 3 };
    static _Alignas(4096) uint8_t memory[4096];
    static uint8_t buffers[COUNT][BYTES];
    struct io_uring_buf_ring *buffer_ring = (struct io_uring_buf_ring *)memory;
    struct io_uring_buf_reg registration = {
        .ring_addr = (uintptr_t)memory, .ring_entries = COUNT, .bgid = GROUP};
    assert_int_equal(io_uring_register_buf_ring(&ring->uring, &registration, 0), 0);
    io_uring_buf_ring_init(buffer_ring);
    for (unsigned short i = 0; i < COUNT; i++) {
        io_uring_buf_ring_add(buffer_ring, buffers[i], BYTES, i, COUNT - 1, i);
    }
    io_uring_buf_ring_advance(buffer_ring, COUNT);

    int sockets[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    struct counting_op op = counting_op(ring);
    struct io_uring_sqe *sqe = sl_ring_sqe(ring, &op.op);
    io_uring_prep_recv_multishot(sqe, sockets[0], NULL, 0, 0);
    io_uring_sqe_set_flags(sqe, IOSQE_BUFFER_SELECT);
    sqe->buf_group = GROUP;
    for (uint32_t i = 1; i <= 2; i++) {
        assert_int_equal(write(sockets[1], "starling", 8), 8);
        while (op.completed < i) {
            sl_ring_wait(ring, SL_CLOCK_NS_PER_S);
            assert_true(sl_ring_reap(ring, 10) > 0);
        }
        assert_int_equal(op.result, 8);
    }
    close(sockets[1]);
    while (op.completed < 3) {
        sl_ring_wait(ring, SL_CLOCK_NS_PER_S);
        assert_true(sl_ring_reap(ring, 10) > 0);
    }
    assert_int_equal(op.result, 0);
    close(sockets[0]);
    assert_int_equal(io_uring_unregister_buf_ring(&ring->uring, GROUP), 0);
}

static uint32_t readable_count;

static void readable(struct sl_ring_watch *watch)
{
    uint64_t count;
    readable_count++;
    assert_int_equal(read(watch->fd, &count, sizeof count), sizeof count);
}

static void expect_wakeups(struct sl_ring *ring, int fd)
{
    uint64_t one = 1;
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(write(fd, &one, sizeof one), sizeof one);
        sl_ring_wait(ring, SL_CLOCK_NS_PER_S);
        sl_ring_reap(ring, 10);
    }
    assert_int_equal(readable_count, 3);
    sl_ring_wait(ring, SL_CLOCK_NS_PER_MS);
    assert_int_equal(sl_ring_reap(ring, 10), 0);
}

IN_RING(watch__every_write_wakes)
{
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct sl_ring_watch watch;
    readable_count = 0;
    sl_ring_watch(ring, &watch, fd, readable);
    expect_wakeups(ring, fd);
    close(fd);
}

/* Drives the operation's completion as a kernel without multishot polls would, before anything was
 * submitted for it: the submission that the watch made is turned into one that does nothing. */
IN_RING(watch__falls_back_to_single_polls)
{
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct sl_ring_watch watch;
    readable_count = 0;
    sl_ring_watch(ring, &watch, fd, readable);
    struct io_uring_sqe *queued = &ring->uring.sq.sqes[(ring->uring.sq.sqe_tail - 1) % ENTRIES];
    assert_int_equal(queued->opcode, IORING_OP_POLL_ADD);
    io_uring_prep_nop(queued);
    io_uring_sqe_set_data(queued, NULL);
    watch.op.complete(&watch.op, -EINVAL, 0);
    assert_false(watch.multishot);
    sl_ring_submit(ring);
    assert_int_equal(sl_ring_reap(ring, 10), 1);
    expect_wakeups(ring, fd);
    close(fd);
}

static void count_only(struct sl_ring_watch *watch)
{
    readable_count++;
}

IN_RING(watch_level__runs_until_it_is_read_and_ends)
{
    int fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
    struct sl_ring_watch watch;
    readable_count = 0;
    sl_ring_watch_level(ring, &watch, fd, count_only);
    while (readable_count < 3) {
        sl_ring_submit(ring);
        sl_ring_reap(ring, 1);
    }
    sl_ring_watch_end(&watch);
    assert_false(watch.in_flight);
    const uint32_t count = readable_count;
    sl_ring_submit(ring);
    sl_ring_reap(ring, 10);
    assert_int_equal(readable_count, count);
    close(fd);
}

static const char *next_setup(uint32_t n)
{
    static const char *const names[] = {[SL_RING_DEFERRED] = "deferred",
                                        [SL_RING_COOPERATIVE] = "cooperative",
                                        [SL_RING_PLAIN] = "plain"};
    best = (enum sl_ring_setup)(SL_RING_DEFERRED + n);
    return best <= SL_RING_PLAIN ? names[best] : NULL;
}

SL_UNIT_WAYS(next_setup);

SL_UNIT_SETUP()
{
    struct sl_ring ring;
    if (sl_ring_init(&ring, ENTRIES) == SL_ERR_UNSUPPORTED) {
        exit(SKIPPED);
    }
    sl_ring_fini(&ring);
}
