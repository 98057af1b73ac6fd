/* The two ends do the same: they count whole messages in what arrives on a connection, and owe one
 * for each. What a connection owes goes out in one send a turn. The client owes `depth` messages to
 * begin with, and keeps the times at which it let them go. */
#include <errno.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "bench/bare.h"
#include "bench/bare_peer.h"
#include "bench/now.h"
#include "core/assert.h"
#include "core/log.h"

#define SEND_BYTES_MAX   (256U << 10) /* of one send: its source stays in the second-level cache */
#define BUFFER_BYTES_MAX (64U << 10)
#define BUFFER_BYTES_MIN 64U
#define BUFFERS_SPARE    16U
#define WAIT_MS          100
#define PATIENCE_NS      (10 * SL_CLOCK_NS_PER_S) /* with the first reply, on a busy machine */
#define OF_SEND          1U /* in an operation's user_data, below the connection's number */

/* ---- io_uring: single issuer, deferred task running, multishot receives into provided buffers ---
 */

#define GROUP            0
#define SETUP_FLAGS                                                                                \
    (IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG |         \
     IORING_SETUP_SUBMIT_ALL | IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP)

struct ring {
    struct io_uring uring;
    struct io_uring_buf_ring *shared; /* with the kernel: which buffers it may fill */
    uint8_t *memory;                  /* buffer i at i * buffer_bytes */
    size_t shared_bytes, memory_bytes;
    uint32_t buffer_bytes, buffer_count;
    uint32_t returned; /* buffers that the kernel gets back at the next submit */
};

/* The buffer that a completion names, read already, is the kernel's again. */
static void ring_return(struct ring *ring, uint32_t cqe_flags)
{
    const uint32_t id = cqe_flags >> IORING_CQE_BUFFER_SHIFT;
    io_uring_buf_ring_add(ring->shared, ring->memory + (size_t)id * ring->buffer_bytes,
                          ring->buffer_bytes, (uint16_t)id,
                          io_uring_buf_ring_mask(ring->buffer_count), (int)ring->returned);
    ring->returned++;
}

static void ring_advance(struct ring *ring)
{
    io_uring_buf_ring_advance(ring->shared, (int)ring->returned);
    ring->returned = 0;
}

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

static int provide_buffers(struct ring *ring)
{
    ring->shared_bytes = ring->buffer_count * sizeof(struct io_uring_buf);
    ring->memory_bytes = (size_t)ring->buffer_count * ring->buffer_bytes;
    ring->shared = map(ring->shared_bytes);
    ring->memory = map(ring->memory_bytes);
    if (ring->shared == NULL || ring->memory == NULL) {
        return fail("memory for buffers", -ENOMEM);
    }
    struct io_uring_buf_reg registration = {
        .ring_addr = (uintptr_t)ring->shared, .ring_entries = ring->buffer_count, .bgid = GROUP};
    int err = io_uring_register_buf_ring(&ring->uring, &registration, 0);
    if (err != 0) {
        return fail("registering buffers", err);
    }
    io_uring_buf_ring_init(ring->shared);
    for (uint32_t i = 0; i < ring->buffer_count; i++) {
        ring_return(ring, i << IORING_CQE_BUFFER_SHIFT);
    }
    ring_advance(ring);
    return 0;
}

static void ring_fini(struct ring *ring)
{
    io_uring_queue_exit(&ring->uring);
    if (ring->shared != NULL) {
        (void)munmap(ring->shared, ring->shared_bytes);
    }
    if (ring->memory != NULL) {
        (void)munmap(ring->memory, ring->memory_bytes);
    }
}

static int ring_init(struct ring *ring, uint32_t entries, uint32_t completions,
                     uint32_t buffer_count, uint32_t buffer_bytes, const int *fds,
                     uint32_t fd_count)
{
    struct io_uring_params params = {.flags = SETUP_FLAGS, .cq_entries = completions};
    *ring = (struct ring){.buffer_bytes = buffer_bytes, .buffer_count = buffer_count};
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
        ring_fini(ring);
        return err;
    }
    return 0;
}

static struct io_uring_sqe *ring_sqe(struct ring *ring)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&ring->uring);
    if (sqe == NULL) {
        (void)io_uring_submit(&ring->uring);
        sqe = io_uring_get_sqe(&ring->uring);
    }
    return sqe;
}

/* Flags in memory shared with the kernel: entering the kernel is worth while. */
static bool kernel_waits(const struct ring *ring)
{
    return (IO_URING_READ_ONCE(*ring->uring.sq.kflags) &
            (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)) != 0;
}

static int ring_turn(struct ring *ring, bool polling, uint32_t wait_ms)
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

/* ---- Connections ----------------------------------------------------------------------------- */

/* Messages that the client let go at one time. */
struct flight {
    uint64_t at_ns;
    uint32_t count;
};

struct conn {
    uint64_t owed_bytes; /* to send, those of a send under way too */
    uint32_t partial;    /* bytes of a message whose rest has not arrived */
    bool sending, listed;
    uint32_t first, last; /* of the client's flights: a ring of depth + 1 */
    struct flight *flights;
};

struct end {
    struct ring ring;
    struct conn *conns;
    uint32_t *listed; /* connections that owe, and send nothing at this moment */
    uint32_t conn_count, open_count, listed_count;
    uint32_t in_bytes, out_bytes; /* of a message */
    uint8_t *out;                 /* what is sent: its content means nothing */
    uint32_t out_max;             /* bytes in one send */
    int err;

    /* The client's. */
    uint32_t depth;
    uint64_t now_ns, from_ns; /* of this turn; from when on messages count */
    uint64_t counted;
    struct flight *flights; /* of all connections */
    struct sl_metric_histogram *latency;
};

/* ---- Messages -------------------------------------------------------------------------------- */

static void list(struct end *end, uint32_t index)
{
    struct conn *conn = &end->conns[index];
    if (!conn->listed && !conn->sending) {
        conn->listed = true;
        end->listed[end->listed_count++] = index;
    }
}

static void let_go(struct end *end, struct conn *conn, uint32_t count)
{
    conn->flights[conn->last] = (struct flight){.at_ns = end->now_ns, .count = count};
    conn->last = conn->last == end->depth ? 0 : conn->last + 1;
}

/* The oldest `count` messages of the connection have been answered. */
static void land(struct end *end, struct conn *conn, uint32_t count)
{
    const bool counts = end->now_ns >= end->from_ns;
    while (count > 0) {
        struct flight *flight = &conn->flights[conn->first];
        const uint32_t now = flight->count < count ? flight->count : count;
        if (counts) {
            sl_metric_record_many(end->latency, end->now_ns - flight->at_ns, now);
            end->counted += now;
        }
        count -= now;
        flight->count -= now;
        if (flight->count == 0) {
            conn->first = conn->first == end->depth ? 0 : conn->first + 1;
        }
    }
}

static void arrived(struct end *end, uint32_t index, uint32_t bytes)
{
    struct conn *conn = &end->conns[index];
    const uint32_t total = conn->partial + bytes;
    const uint32_t count = total / end->in_bytes;
    conn->partial = total % end->in_bytes;
    if (count == 0) {
        return;
    }
    if (end->latency != NULL) {
        land(end, conn, count);
        let_go(end, conn, count);
    }
    conn->owed_bytes += (uint64_t)count * end->out_bytes;
    list(end, index);
}

/* ---- Turns ----------------------------------------------------------------------------------- */

static struct io_uring_sqe *entry(struct end *end, uint32_t index, uint32_t kind)
{
    struct io_uring_sqe *sqe = ring_sqe(&end->ring);
    if (sqe == NULL) {
        sl_log_error("baseline: io_uring takes no more submissions");
        end->err = SL_ERR_IO;
        return NULL;
    }
    sqe->user_data = (uint64_t)index << 1 | kind;
    return sqe;
}

static void receive(struct end *end, uint32_t index)
{
    struct io_uring_sqe *sqe = entry(end, index, 0);
    if (sqe != NULL) {
        io_uring_prep_recv_multishot(sqe, (int)index, NULL, 0, 0);
        sqe->flags = IOSQE_BUFFER_SELECT | IOSQE_FIXED_FILE;
        sqe->buf_group = 0;
    }
}

static void send_all(struct end *end)
{
    for (uint32_t i = 0; i < end->listed_count; i++) {
        const uint32_t index = end->listed[i];
        struct conn *conn = &end->conns[index];
        struct io_uring_sqe *sqe = entry(end, index, OF_SEND);
        if (sqe == NULL) {
            return;
        }
        const uint64_t bytes = conn->owed_bytes < end->out_max ? conn->owed_bytes : end->out_max;
        io_uring_prep_send(sqe, (int)index, end->out, bytes, MSG_NOSIGNAL);
        sqe->flags = IOSQE_FIXED_FILE;
        conn->listed = false;
        conn->sending = true;
    }
    end->listed_count = 0;
}

static void on_send(struct end *end, uint32_t index, int32_t result)
{
    struct conn *conn = &end->conns[index];
    conn->sending = false;
    if (result <= 0) {
        return; /* the receive says why */
    }
    conn->owed_bytes -= (uint32_t)result;
    if (conn->owed_bytes > 0) {
        list(end, index);
    }
}

static void on_receive(struct end *end, uint32_t index, int32_t result, uint32_t flags)
{
    if (result > 0) {
        arrived(end, index, (uint32_t)result);
        ring_return(&end->ring, flags);
    } else if (result != -ENOBUFS) {
        end->open_count--;
        return;
    }
    if ((flags & IORING_CQE_F_MORE) == 0) {
        receive(end, index);
    }
}

static void turn(struct end *end, bool polling)
{
    int err = ring_turn(&end->ring, polling, WAIT_MS);
    if (err != 0) {
        end->err = err;
        return;
    }
    if (end->latency != NULL) {
        end->now_ns = sl_bench_now_ns();
    }
    struct io_uring_cqe *cqe;
    unsigned head;
    unsigned count = 0;
    io_uring_for_each_cqe(&end->ring.uring, head, cqe)
    {
        const uint32_t index = (uint32_t)(cqe->user_data >> 1);
        if ((cqe->user_data & OF_SEND) != 0) {
            on_send(end, index, cqe->res);
        } else {
            on_receive(end, index, cqe->res, cqe->flags);
        }
        count++;
    }
    if (count > 0) {
        io_uring_cq_advance(&end->ring.uring, count);
        ring_advance(&end->ring);
        send_all(end);
    }
}

/* ---- Ends ------------------------------------------------------------------------------------ */

static uint32_t power_of_two_from(uint32_t least)
{
    uint32_t power = 1;
    while (power < least) {
        power *= 2;
    }
    return power;
}

/* Receive buffers take all that can be under way on a connection, and no more, so that those of
 * small messages share cache lines' worth of memory that stays in the first-level cache. */
static int init_ring(struct end *end, const int *fds, uint32_t depth)
{
    const uint64_t wanted = (uint64_t)depth * end->in_bytes;
    uint32_t bytes = wanted < BUFFER_BYTES_MAX ? (uint32_t)wanted : BUFFER_BYTES_MAX;
    bytes = (bytes + BUFFER_BYTES_MIN - 1) / BUFFER_BYTES_MIN * BUFFER_BYTES_MIN;
    const uint32_t buffers = power_of_two_from(end->conn_count + BUFFERS_SPARE);
    const uint32_t entries = power_of_two_from(2 * end->conn_count + BUFFERS_SPARE);
    return ring_init(&end->ring, entries, 2 * entries, buffers, bytes, fds, end->conn_count);
}

static void end_fini(struct end *end)
{
    free(end->conns);
    free(end->listed);
    free(end->out);
    free(end->flights);
}

/* in, out: bytes of a message that arrives, that goes. */
static int end_init(struct end *end, const int *fds, uint32_t count, uint32_t depth, uint32_t in,
                    uint32_t out)
{
    const uint64_t most = (uint64_t)depth * out;
    *end = (struct end){
        .conn_count = count,
        .open_count = count,
        .in_bytes = in,
        .out_bytes = out,
        .out_max = most < SEND_BYTES_MAX ? (uint32_t)most : SEND_BYTES_MAX,
        .depth = depth,
        .conns = calloc(count, sizeof(struct conn)),
        .listed = calloc(count, sizeof(uint32_t)),
        .flights = calloc((size_t)count * (depth + 1), sizeof(struct flight)),
    };
    end->out = malloc(end->out_max);
    if (end->conns == NULL || end->listed == NULL || end->flights == NULL || end->out == NULL) {
        end_fini(end);
        sl_log_error("baseline: no memory");
        return SL_ERR_NO_MEMORY;
    }
    memset(end->out, 1, end->out_max); /* or all of it would be one page, the system's of zeros */
    int err = init_ring(end, fds, depth);
    if (err != 0) {
        end_fini(end);
        return err;
    }
    for (uint32_t i = 0; i < count; i++) {
        end->conns[i].flights = end->flights + (size_t)i * (depth + 1);
        receive(end, i);
    }
    return 0;
}

static void end_close(struct end *end)
{
    ring_fini(&end->ring);
    end_fini(end);
}

static int serve(const void *ctx, const int *fds, uint32_t count)
{
    const struct sl_bench_bare_echo *options = ctx;
    struct end end;
    int err =
        end_init(&end, fds, count, options->depth, options->request_bytes, options->reply_bytes);
    if (err != 0) {
        return err;
    }
    while (end.open_count > 0 && end.err == 0) {
        turn(&end, options->polling);
    }
    end_close(&end);
    return end.err;
}

/* Lets the first messages go, and goes on until the time is over, and one reply has come. */
static int ask(struct end *end, const struct sl_bench_bare_echo *options,
               const struct sl_bench_common *common, double *requests_per_s)
{
    end->now_ns = sl_bench_now_ns();
    end->from_ns = end->now_ns + sl_bench_ns(common->warm_up);
    const uint64_t until_ns = end->from_ns + sl_bench_ns(common->seconds);
    for (uint32_t i = 0; i < end->conn_count; i++) {
        let_go(end, &end->conns[i], options->depth);
        end->conns[i].owed_bytes = (uint64_t)options->depth * options->request_bytes;
        list(end, i);
    }
    send_all(end);
    while (end->err == 0 && end->now_ns < (end->counted > 0 ? until_ns : until_ns + PATIENCE_NS)) {
        turn(end, options->polling);
        if (end->open_count < end->conn_count) {
            sl_log_error("baseline: the other end closed a connection");
            return SL_ERR_IO;
        }
    }
    if (end->err == 0 && end->counted == 0) {
        sl_log_error("baseline: no reply within %.3g s", common->seconds + PATIENCE_NS / 1e9);
        return SL_ERR_DEADLINE;
    }
    *requests_per_s = (double)end->counted * 1e9 / (double)(end->now_ns - end->from_ns);
    return end->err;
}

static int measure(const struct sl_bench_bare_echo *options, const struct sl_bench_common *common,
                   const int *fds, double *requests_per_s, struct sl_metric_histogram *latency)
{
    struct end end;
    int err = end_init(&end, fds, options->connections, options->depth, options->reply_bytes,
                       options->request_bytes);
    if (err != 0) {
        return err;
    }
    sl_metric_init(latency);
    end.latency = latency;
    err = ask(&end, options, common, requests_per_s);
    end_close(&end);
    return err;
}

int sl_bench_bare_echo_run(const struct sl_bench_bare_echo *options,
                           const struct sl_bench_common *common, double *requests_per_s,
                           struct sl_metric_histogram *latency)
{
    sl_assert(options->depth >= 1);
    sl_assert(options->request_bytes >= 1);
    sl_assert(options->request_bytes <= SL_BENCH_BARE_MESSAGE_BYTES_MAX);
    sl_assert(options->reply_bytes >= 1);
    sl_assert(options->reply_bytes <= SL_BENCH_BARE_MESSAGE_BYTES_MAX);
    struct sl_bench_bare_peer peer;
    int err = sl_bench_bare_peer_start(&peer, options->connections, options->congestion, common,
                                       serve, options);
    if (err != 0) {
        return err;
    }
    err = measure(options, common, peer.fds, requests_per_s, latency);
    const int ended = sl_bench_bare_peer_end(&peer);
    return err != 0 ? err : ended;
}
