/* Memory of sl_transfer_memory_create, of a peer on the same host, is read and written through
 * shared memory. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/clock.h"
#include "net/transfer/engine.h"
#include "net/transfer/segment.h"
#include "pair.h"

#define BYTES (16U << 20)

static struct pair pair;
static uint8_t *mapped; /* there */

static void await_buffers(uint32_t wanted)
{
    uint32_t count = UINT32_MAX;
    while (count != wanted) {
        assert_int_equal(sl_transfer_segment_buffers(pair.segment, NULL, 0, &count), 0);
    }
}

static void create(size_t bytes)
{
    void *memory;
    assert_int_equal(sl_transfer_memory_create(pair.there, bytes, -1, PAIR_ALL, &memory), 0);
    mapped = memory;
    await_buffers(2);
}

static void init(size_t bytes, const struct sl_transfer_options *options)
{
    pair_init(&pair, bytes, options);
    create(bytes);
}

static void setup(void)
{
    const struct sl_transfer_options options = {.name = "127.0.0.1:0"};
    init(BYTES, &options);
}

#define CASE(name) SL_CASE_WITH(name, setup(), pair_fini(&pair))

static struct sl_transfer_request request(enum sl_transfer_op op, size_t local, size_t remote,
                                          size_t bytes)
{
    struct sl_transfer_request made = pair_request(&pair, op, local, 0, bytes);
    made.remote = (uintptr_t)mapped + remote;
    return made;
}

static void move(enum sl_transfer_op op, size_t local, size_t remote, size_t bytes)
{
    const struct sl_transfer_request one = request(op, local, remote, bytes);
    if (pair_run(&pair, &one, 1, PAIR_TIMEOUT_MS) != 0) {
        fail_msg("%s", sl_transfer_last_error());
    }
}

/* All bytes moved through shared memory, both directions. */
static void expect_moved(uint64_t bytes)
{
    struct sl_transfer_info info;
    assert_int_equal(sl_transfer_segment_info(pair.segment, &info), 0);
    assert_int_equal(info.rail_count, 2);
    assert_int_equal(strncmp(info.rails[0].remote, "shm://", 6), 0);
    assert_int_equal(info.rails[0].bytes_read + info.rails[0].bytes_written, bytes);
    assert_int_equal(info.rails[1].bytes_read + info.rails[1].bytes_written, 0);
}

CASE(mapped__moves_every_length_at_every_alignment)
{
    static const size_t lengths[] = {
        1, 2, 7, 8, 63, 100, 4095, 16384, 16385, 65536, 100001, 1 << 20, (1 << 20) + 1, BYTES / 2};
    uint64_t all = 0;
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        for (size_t shift = 0; shift<8; shift += lengths[i]> 1 << 20 ? 5 : 1) {
            const size_t bytes = lengths[i];
            const uint32_t seed = (uint32_t)(i * 8 + shift);
            memset(pair.local.base, 1, bytes + 16);
            pair_fill(mapped + 7 - shift, bytes, seed);
            move(SL_TRANSFER_READ, 1 + shift, 7 - shift, bytes);
            pair_expect(pair.local.base + 1 + shift, bytes, seed);
            assert_int_equal(pair.local.base[shift], 1);
            assert_int_equal(pair.local.base[1 + shift + bytes], 1);

            memset(mapped, 2, bytes + 16);
            move(SL_TRANSFER_WRITE, 1 + shift, 1 + shift, bytes);
            pair_expect(mapped + 1 + shift, bytes, seed);
            assert_int_equal(mapped[shift], 2);
            assert_int_equal(mapped[1 + shift + bytes], 2);
            all += 2 * bytes;
        }
    }
    expect_moved(all);
}

SL_CASE(mapped__moves_64_mib_with_several_reactors_and_a_secret)
{
    enum { ALL = 64 << 20 };
    const struct sl_transfer_options options = {.name = "127.0.0.1:0",
                                                .reactor_count = 3,
                                                .secret = "0123456789abcdef",
                                                .secret_bytes = 16,
                                                .checksum = true};
    init(ALL, &options);
    pair_fill(pair.local.base, ALL, 5);
    move(SL_TRANSFER_WRITE, 0, 0, ALL);
    pair_expect(mapped, ALL, 5);
    memset(pair.local.base, 0, ALL);
    move(SL_TRANSFER_READ, 0, 0, ALL);
    pair_expect(pair.local.base, ALL, 5);
    pair_fini(&pair);
}

CASE(mapped__moves_private_memory_as_frames_beside_it)
{
    enum { COUNT = 64, STEP = 10000 };
    struct sl_transfer_request requests[COUNT];
    pair_fill(mapped, BYTES, 1);
    pair_fill(pair.remote.base, BYTES, 2);
    for (uint32_t i = 0; i < COUNT; i++) {
        const size_t at = (size_t)i * STEP;
        requests[i] = i % 2 == 0 ? request(SL_TRANSFER_READ, at, at, STEP - 1)
                                 : pair_request(&pair, SL_TRANSFER_READ, at, at, STEP - 1);
    }
    assert_int_equal(pair_run(&pair, requests, COUNT, PAIR_TIMEOUT_MS), 0);
    for (uint32_t i = 0; i < COUNT; i++) {
        const size_t at = (size_t)i * STEP;
        assert_memory_equal(pair.local.base + at, (i % 2 == 0 ? mapped : pair.remote.base) + at,
                            STEP - 1);
    }
    expect_moved(COUNT * (STEP - 1));
}

SL_CASE(frames__carry_private_memory_through_shared_memory)
{
    static const size_t lengths[] = {1,     63,    4096,          4097,   16384,
                                     16385, 65537, (1 << 20) + 1, 5000001};
    for (uint32_t round = 0; round < 2; round++) {
        const struct sl_transfer_options options = {.name = "127.0.0.1:0",
                                                    .endpoints = "shm://",
                                                    .slice_bytes = round == 0 ? 0 : 4U << 20,
                                                    .checksum = round > 0};
        uint64_t all = 0;
        pair_init(&pair, BYTES, &options);
        for (uint32_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
            pair_fill(pair.local.base + i, lengths[i], i);
            pair_move(&pair, SL_TRANSFER_WRITE, i, 3, lengths[i]);
            pair_expect(pair.remote.base + 3, lengths[i], i);
            pair_move(&pair, SL_TRANSFER_READ, BYTES / 2, 3, lengths[i]);
            pair_expect(pair.local.base + BYTES / 2, lengths[i], i);
            all += 2 * lengths[i];
        }
        expect_moved(all);
        pair_fini(&pair);
    }
}

CASE(mapped__fails_an_invalid_request_by_itself)
{
    const struct sl_transfer_request requests[] = {
        request(SL_TRANSFER_READ, 0, 0, 100),
        request(SL_TRANSFER_WRITE, 0, BYTES - 10, 11), /* beyond the memory */
        request(SL_TRANSFER_WRITE, 100, 200, 100),
    };
    struct sl_transfer_status status;
    assert_int_equal(pair_run(&pair, requests, 3, PAIR_TIMEOUT_MS), SL_ERR_INVALID);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(sl_transfer_batch_status(pair.batch, i, &status), 0);
        assert_int_equal(status.state, i == 1 ? SL_TRANSFER_INVALID : SL_TRANSFER_COMPLETED);
    }
}

CASE(mapped__keeps_to_the_access_of_the_memory)
{
    void *memory;
    assert_int_equal(
        sl_transfer_memory_create(pair.there, 5000, -1, SL_TRANSFER_PEERS_READ, &memory), 0);
    await_buffers(3);
    pair_fill(memory, 5000, 3);
    struct sl_transfer_request one = pair_request(&pair, SL_TRANSFER_READ, 0, 0, 5000);
    one.remote = (uintptr_t)memory;
    assert_int_equal(pair_run(&pair, &one, 1, PAIR_TIMEOUT_MS), 0);
    pair_expect(pair.local.base, 5000, 3);
    one.op = SL_TRANSFER_WRITE;
    assert_int_equal(pair_run(&pair, &one, 1, PAIR_TIMEOUT_MS), SL_ERR_INVALID);
    expect_moved(5000);
}

CASE(mapped__takes_the_engines_own_segment)
{
    struct sl_transfer_segment *own;
    void *memory;
    assert_int_equal(sl_transfer_memory_create(pair.here, 5000, -1, PAIR_ALL, &memory), 0);
    assert_int_equal(
        sl_transfer_segment_open(pair.here, sl_transfer_name(pair.here), PAIR_TIMEOUT_MS, &own), 0);
    pair_fill(memory, 5000, 3);
    const struct sl_transfer_request one = {.op = SL_TRANSFER_READ,
                                            .local = pair.local.base,
                                            .segment = own,
                                            .remote = (uintptr_t)memory,
                                            .bytes = 5000};
    assert_int_equal(pair_run(&pair, &one, 1, PAIR_TIMEOUT_MS), 0);
    pair_expect(pair.local.base, 5000, 3);
    sl_transfer_segment_close(&own);
}

CASE(mapped__is_left_alone_by_a_batch_that_was_cancelled)
{
    const struct sl_transfer_request one = request(SL_TRANSFER_READ, 0, 0, BYTES);
    pair_fill(mapped, BYTES, 3);
    for (uint32_t round = 0; round < 20; round++) {
        assert_int_equal(sl_transfer_batch_submit(pair.batch, &one, 1, PAIR_TIMEOUT_MS, NULL), 0);
        (void)usleep(round * 100);
        sl_transfer_batch_cancel(pair.batch);
        const int err = sl_transfer_batch_wait(pair.batch);
        memset(pair.local.base, 0, BYTES);
        assert_true(err == 0 || err == SL_ERR_CANCELLED);
        (void)usleep(1000);
        for (uint32_t i = 0; i < BYTES; i += 101) {
            assert_int_equal(pair.local.base[i], 0);
        }
    }
    move(SL_TRANSFER_READ, 0, 0, BYTES);
    pair_expect(pair.local.base, BYTES, 3);
}

SL_CASE(mapped__is_not_used_where_endpoints_exclude_it)
{
    const struct sl_transfer_options options = {.name = "127.0.0.1:0",
                                                .endpoints = "tcp://127.0.0.1:0"};
    struct sl_transfer_info info;
    init(100000, &options);
    pair_fill(mapped, 100000, 3);
    move(SL_TRANSFER_READ, 0, 0, 100000);
    pair_expect(pair.local.base, 100000, 3);
    assert_int_equal(sl_transfer_segment_info(pair.segment, &info), 0);
    assert_int_equal(info.rail_count, 1);
    assert_int_equal(info.rails[0].bytes_read, 100000);
    pair_fini(&pair);
}

SL_CASE(mapped__keeps_to_the_limit_on_sent_bytes)
{
    const struct sl_transfer_options options = {
        .name = "127.0.0.1:0", .bytes_per_s_max = 50000000, .slice_bytes = 64 << 10};
    init(10000000, &options);
    const uint64_t begin_ns = sl_clock_now_ns(sl_clock_system());
    move(SL_TRANSFER_WRITE, 0, 0, 10000000);
    assert_true(sl_clock_now_ns(sl_clock_system()) - begin_ns >= 170 * SL_CLOCK_NS_PER_MS);
    pair_fini(&pair);
}

/* The connection is lost while bytes move: TCP moves the rest. */
static void break_here(struct sl_transfer_io *io, struct sl_transfer_call *call)
{
    sl_transfer_lane_break(&pair.segment->routes[0].lanes[0], "a test");
    sl_transfer_io_answer(call, 0, "broken");
}

CASE(mapped__goes_on_over_tcp_when_it_is_lost)
{
    const struct sl_transfer_request one = request(SL_TRANSFER_WRITE, 0, 0, BYTES);
    for (uint32_t round = 0; round < 20; round++) {
        pair_fill(pair.local.base, BYTES, round);
        assert_int_equal(sl_transfer_batch_submit(pair.batch, &one, 1, PAIR_TIMEOUT_MS, NULL), 0);
        (void)usleep(round * 100);
        struct sl_transfer_call call = {.run = break_here};
        assert_int_equal(sl_transfer_io_call(&pair.here->ios[0], &call), 0);
        assert_int_equal(sl_transfer_batch_wait(pair.batch), 0);
        pair_expect(mapped, BYTES, round);
    }
}

/* Memory is freed while it is used. */
CASE(memory_free__ends_all_requests)
{
    for (uint32_t round = 0; round < 10; round++) {
        const struct sl_transfer_request one =
            request(round % 2 == 0 ? SL_TRANSFER_READ : SL_TRANSFER_WRITE, 0, 0, BYTES);
        void *memory = mapped;
        assert_int_equal(pair_run(&pair, &one, 1, PAIR_TIMEOUT_MS), 0);
        assert_int_equal(sl_transfer_batch_submit(pair.batch, &one, 1, PAIR_TIMEOUT_MS, NULL), 0);
        assert_int_equal(sl_transfer_unregister(pair.there, &memory, 1, 1000), SL_ERR_NOT_FOUND);
        assert_int_equal(sl_transfer_memory_free(pair.there, &memory, PAIR_TIMEOUT_MS), 0);
        assert_null(memory);
        (void)sl_transfer_batch_wait(pair.batch);
        assert_int_not_equal(pair_run(&pair, &one, 1, PAIR_TIMEOUT_MS), 0);
        await_buffers(1);
        create(BYTES);
    }
}

/* Other processes. They are started before this one has threads. */

struct child {
    pid_t pid;
    int in, out;
};

struct place {
    char name[SL_TRANSFER_NAME_BYTES];
    uint64_t address;
};

static struct child start(void (*run)(int in, int out))
{
    int to[2], from[2];
    assert_int_equal(pipe(to), 0);
    assert_int_equal(pipe(from), 0);
    struct child child = {.in = to[1], .out = from[0]};
    child.pid = fork();
    if (child.pid == 0) {
        run(to[0], from[1]);
        _exit(1);
    }
    close(to[0]);
    close(from[1]);
    return child;
}

static void stop(const struct child *child)
{
    int status;
    assert_int_equal(kill(child->pid, SIGSTOP), 0);
    assert_int_equal(waitpid(child->pid, &status, WUNTRACED), child->pid);
    assert_true(WIFSTOPPED(status));
}

static void end(const struct child *child)
{
    (void)kill(child->pid, SIGKILL);
    (void)waitpid(child->pid, NULL, 0);
    close(child->in);
    close(child->out);
}

static void put(int fd, const void *bytes, size_t count)
{
    if (write(fd, bytes, count) != (ssize_t)count) {
        _exit(1);
    }
}

static void serve(int in, int out)
{
    const struct sl_transfer_options options = {.name = "127.0.0.1:0"};
    struct place place = {.address = 0};
    struct sl_transfer *transfer;
    void *memory;
    if (sl_transfer_create(&options, &transfer) == 0 &&
        sl_transfer_memory_create(transfer, BYTES, -1, PAIR_ALL, &memory) == 0) {
        pair_fill(memory, BYTES, 7);
        (void)strncpy(place.name, sl_transfer_name(transfer), sizeof place.name - 1);
        place.address = (uintptr_t)memory;
        put(out, &place, sizeof place);
        for (;;) {
            (void)pause();
        }
    }
}

struct initiator {
    struct sl_transfer *transfer;
    struct sl_transfer_segment *segment;
    struct sl_transfer_batch *batch;
    struct sl_transfer_request request;
};

static int initiate(const struct place *place, uint8_t *local, struct initiator *out)
{
    const struct sl_transfer_options options = {.name = "127.0.0.1:0"};
    const struct sl_transfer_memory memory = {.base = local, .bytes = BYTES};
    int err = sl_transfer_create(&options, &out->transfer);
    err = err != 0 ? err : sl_transfer_register(out->transfer, &memory, 1);
    err = err != 0 ? err
                   : sl_transfer_segment_open(out->transfer, place->name, PAIR_TIMEOUT_MS,
                                              &out->segment);
    err = err != 0 ? err : sl_transfer_batch_create(out->transfer, 1, &out->batch);
    out->request = (struct sl_transfer_request){
        .local = local, .segment = out->segment, .remote = place->address, .bytes = BYTES};
    return err;
}

static int run(struct initiator *initiator, enum sl_transfer_op op, uint32_t timeout_ms)
{
    initiator->request.op = op;
    const int err =
        sl_transfer_batch_submit(initiator->batch, &initiator->request, 1, timeout_ms, NULL);
    return err != 0 ? err : sl_transfer_batch_wait(initiator->batch);
}

/* A stopped target is idle indeed; a killed one ends the batch. */
SL_CASE(mapped__needs_no_turn_of_the_target_but_its_life)
{
    uint8_t *local = calloc(1, BYTES);
    struct initiator initiator;
    struct place place;
    const struct child child = start(serve);
    assert_int_equal(read(child.out, &place, sizeof place), sizeof place);
    assert_int_equal(initiate(&place, local, &initiator), 0);
    assert_int_equal(run(&initiator, SL_TRANSFER_READ, PAIR_TIMEOUT_MS), 0);
    pair_expect(local, BYTES, 7);
    stop(&child);
    pair_fill(local, BYTES, 8);
    assert_int_equal(run(&initiator, SL_TRANSFER_WRITE, PAIR_TIMEOUT_MS), 0);
    memset(local, 0, BYTES);
    assert_int_equal(run(&initiator, SL_TRANSFER_READ, PAIR_TIMEOUT_MS), 0);
    pair_expect(local, BYTES, 8);

    initiator.request.op = SL_TRANSFER_READ;
    assert_int_equal(sl_transfer_batch_submit(initiator.batch, &initiator.request, 1, 60000, NULL),
                     0);
    (void)kill(child.pid, SIGKILL);
    const int err = sl_transfer_batch_wait(initiator.batch);
    assert_true(err == 0 || err == SL_ERR_CLOSED);
    assert_int_equal(waitpid(child.pid, NULL, 0), child.pid);
    assert_int_equal(run(&initiator, SL_TRANSFER_WRITE, 60000), SL_ERR_CLOSED);
    sl_transfer_destroy(&initiator.transfer);
    end(&child);
    free(local);
}

/* Before the memory is mapped, the target has to answer. */
SL_CASE(mapped__is_over_in_time_when_the_target_is_stopped)
{
    uint8_t *local = calloc(1, BYTES);
    struct initiator initiator;
    struct place place;
    const struct child child = start(serve);
    assert_int_equal(read(child.out, &place, sizeof place), sizeof place);
    assert_int_equal(initiate(&place, local, &initiator), 0);
    stop(&child);
    uint64_t least_ms = UINT64_MAX;
    for (uint32_t i = 0; i < 50 && least_ms > 250; i++) {
        const uint64_t begin_ns = sl_clock_now_ns(sl_clock_system());
        assert_int_equal(run(&initiator, SL_TRANSFER_WRITE, 200), SL_ERR_DEADLINE);
        const uint64_t ms = (sl_clock_now_ns(sl_clock_system()) - begin_ns) / SL_CLOCK_NS_PER_MS;
        least_ms = ms < least_ms ? ms : least_ms;
    }
    assert_in_range(least_ms, 200, 250);
    (void)kill(child.pid, SIGCONT);
    assert_int_equal(run(&initiator, SL_TRANSFER_READ, PAIR_TIMEOUT_MS), 0);
    sl_transfer_destroy(&initiator.transfer);
    end(&child);
    free(local);
}

/* Maps the memory at the place that it is told, and keeps it. */
static void map(int in, int out)
{
    struct place place;
    struct initiator initiator;
    if (read(in, &place, sizeof place) == sizeof place &&
        initiate(&place, calloc(1, BYTES), &initiator) == 0 &&
        run(&initiator, SL_TRANSFER_READ, PAIR_TIMEOUT_MS) == 0) {
        put(out, "", 1);
        for (;;) {
            (void)pause();
        }
    }
}

SL_CASE(memory_free__does_not_wait_for_a_stopped_peer)
{
    const struct child child = start(map);
    const struct sl_transfer_options options = {.name = "127.0.0.1:0"};
    struct sl_transfer *transfer;
    struct place place = {.address = 0};
    char byte;
    void *memory;
    assert_int_equal(sl_transfer_create(&options, &transfer), 0);
    assert_int_equal(sl_transfer_memory_create(transfer, BYTES, -1, PAIR_ALL, &memory), 0);
    (void)strncpy(place.name, sl_transfer_name(transfer), sizeof place.name - 1);
    place.address = (uintptr_t)memory;
    put(child.in, &place, sizeof place);
    assert_int_equal(read(child.out, &byte, 1), 1);
    stop(&child);
    assert_int_equal(sl_transfer_memory_free(transfer, &memory, 100), SL_ERR_DEADLINE);
    assert_non_null(memory);
    assert_int_equal(sl_transfer_memory_free(transfer, &memory, PAIR_TIMEOUT_MS), 0);
    assert_null(memory);
    sl_transfer_destroy(&transfer);
    end(&child);
}
