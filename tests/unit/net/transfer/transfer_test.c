#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/clock.h"
#include "net/transfer/batch.h"
#include "net/transfer/segment.h"
#include "pair.h"
#include "tests/conformance/authority.h"

#define BYTES (16U << 20)

static struct pair pair;

#define CASE(name) SL_CASE_WITH(name, pair_init(&pair, BYTES, NULL), pair_fini(&pair))

CASE(batch__reads_and_writes_one_byte)
{
    pair.remote.base[7] = 42;
    pair_move(&pair, SL_TRANSFER_READ, 3, 7, 1);
    assert_int_equal(pair.local.base[3], 42);
    pair.local.base[5] = 43;
    pair_move(&pair, SL_TRANSFER_WRITE, 5, 9, 1);
    assert_int_equal(pair.remote.base[9], 43);
}

CASE(batch__moves_every_length_at_every_alignment)
{
    static const size_t lengths[] = {
        1,     2,     7,     8,      63,      100,           4095,           16383,
        16384, 16385, 65536, 100001, 1 << 20, (1 << 20) + 1, (4U << 20) + 5, BYTES / 2};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        for (size_t shift = 0; shift<8; shift += lengths[i]> 1 << 20 ? 5 : 1) {
            const size_t bytes = lengths[i];
            const uint32_t seed = (uint32_t)(i * 8 + shift);
            memset(pair.local.base, 1, bytes + 16);
            pair_fill(pair.remote.base + 7 - shift, bytes, seed);
            pair_move(&pair, SL_TRANSFER_READ, 1 + shift, 7 - shift, bytes);
            pair_expect(pair.local.base + 1 + shift, bytes, seed);
            assert_int_equal(pair.local.base[shift], 1);
            assert_int_equal(pair.local.base[1 + shift + bytes], 1);

            memset(pair.remote.base, 2, bytes + 16);
            pair_move(&pair, SL_TRANSFER_WRITE, 1 + shift, 1 + shift, bytes);
            pair_expect(pair.remote.base + 1 + shift, bytes, seed);
            assert_int_equal(pair.remote.base[shift], 2);
            assert_int_equal(pair.remote.base[1 + shift + bytes], 2);
        }
    }
}

SL_CASE(batch__moves_64_mib)
{
    enum { ALL = 64 << 20 };
    pair_init(&pair, ALL, NULL);
    pair_fill(pair.local.base, ALL, 5);
    pair_move(&pair, SL_TRANSFER_WRITE, 0, 0, ALL);
    pair_expect(pair.remote.base, ALL, 5);
    memset(pair.local.base, 0, ALL);
    pair_move(&pair, SL_TRANSFER_READ, 0, 0, ALL);
    pair_expect(pair.local.base, ALL, 5);
    pair_fini(&pair);
}

/* 64 KiB pieces at distances of 128 KiB there, and side by side here. */
/* The thread gets no port. */
static void *run_without_port(void *ctx)
{
    static uint8_t bytes[4096];
    const struct sl_transfer_memory memory = {
        .base = bytes, .bytes = sizeof bytes, .access = PAIR_ALL};
    void *made = NULL;
    assert_int_not_equal(sl_transfer_register(pair.here, &memory, 1), 0);
    assert_int_not_equal(sl_transfer_memory_create(pair.here, sizeof bytes, -1, PAIR_ALL, &made),
                         0);
    sl_transfer_segment_close(&pair.segment);
    return ctx;
}

CASE(calls__leave_nothing_behind_if_the_thread_gets_no_port)
{
    struct rlimit before;
    pthread_t thread;
    struct sl_transfer_segment *segment = pair.segment;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    const struct rlimit none = {.rlim_cur = 0, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    assert_int_equal(pthread_create(&thread, NULL, run_without_port, NULL), 0);
    pthread_join(thread, NULL);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(pair.here->registered->count, 1);
    assert_ptr_equal(
        SL_CONTAINER_OF(sl_list_first(&pair.here->segments), struct sl_transfer_segment, link),
        segment);
}

CASE(batch__gathers_and_scatters_strided_blocks)
{
    enum { COUNT = 128, BLOCK = 64 << 10 };
    struct sl_transfer_request requests[COUNT];
    pair_fill(pair.remote.base, BYTES, 3);
    for (uint32_t i = 0; i < COUNT; i++) {
        requests[i] =
            pair_request(&pair, SL_TRANSFER_READ, i * BLOCK, (size_t)2 * i * BLOCK, BLOCK);
    }
    for (uint32_t round = 0; round < 20; round++) {
        memset(pair.local.base, 0, (size_t)COUNT * BLOCK);
        assert_int_equal(pair_run(&pair, requests, COUNT, PAIR_TIMEOUT_MS), 0);
        for (uint32_t i = 0; i < COUNT; i++) {
            assert_memory_equal(pair.local.base + i * BLOCK,
                                pair.remote.base + (size_t)2 * i * BLOCK, BLOCK);
        }
    }
    memset(pair.remote.base, 0, BYTES);
    for (uint32_t i = 0; i < COUNT; i++) {
        requests[i].op = SL_TRANSFER_WRITE;
    }
    assert_int_equal(pair_run(&pair, requests, COUNT, PAIR_TIMEOUT_MS), 0);
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_memory_equal(pair.local.base + i * BLOCK, pair.remote.base + (size_t)2 * i * BLOCK,
                            BLOCK);
        assert_int_equal(pair.remote.base[(size_t)2 * i * BLOCK + BLOCK], 0);
    }
}

CASE(batch__moves_thousands_of_small_pieces)
{
    enum { COUNT = 4096, STEP = 1000 };
    struct sl_transfer_request *requests = calloc(COUNT, sizeof *requests);
    struct sl_transfer_status status;
    pair_fill(pair.remote.base, BYTES, 9);
    for (uint32_t i = 0; i < COUNT; i++) {
        requests[i] = pair_request(&pair, SL_TRANSFER_READ, (size_t)i * STEP,
                                   (size_t)(COUNT - 1 - i) * STEP, i % STEP + 1);
    }
    assert_int_equal(pair_run(&pair, requests, COUNT, PAIR_TIMEOUT_MS), 0);
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_memory_equal(pair.local.base + (size_t)i * STEP,
                            pair.remote.base + (size_t)(COUNT - 1 - i) * STEP, i % STEP + 1);
        assert_int_equal(sl_transfer_batch_status(pair.batch, i, &status), 0);
        assert_int_equal(status.state, SL_TRANSFER_COMPLETED);
        assert_int_equal(status.bytes, i % STEP + 1);
    }
    free(requests);
}

CASE(batch__fails_an_invalid_request_by_itself)
{
    struct sl_transfer_status status;
    struct sl_transfer_request requests[] = {
        pair_request(&pair, SL_TRANSFER_READ, 0, 0, 100),
        pair_request(&pair, SL_TRANSFER_READ, 0, BYTES - 10, 11),   /* beyond the remote memory */
        pair_request(&pair, SL_TRANSFER_READ, BYTES - 10, 0, 11),   /* beyond the local memory */
        pair_request(&pair, SL_TRANSFER_WRITE, 200, BYTES + 1, 10), /* not registered */
        pair_request(&pair, SL_TRANSFER_WRITE, 300, 300, 10),
    };
    const uint32_t count = sizeof requests / sizeof requests[0];
    assert_int_equal(pair_run(&pair, requests, count, PAIR_TIMEOUT_MS), SL_ERR_INVALID);
    for (uint32_t i = 0; i < count; i++) {
        const bool is_valid = i == 0 || i == count - 1;
        assert_int_equal(sl_transfer_batch_status(pair.batch, i, &status), 0);
        assert_int_equal(status.state, is_valid ? SL_TRANSFER_COMPLETED : SL_TRANSFER_INVALID);
        assert_int_equal(status.bytes, is_valid ? requests[i].bytes : 0);
    }
    assert_string_equal(sl_transfer_batch_error(pair.batch, 0), "");
    assert_non_null(strstr(sl_transfer_batch_error(pair.batch, 2), "request 2"));
    assert_non_null(strstr(sl_transfer_batch_error(pair.batch, 2), "local memory"));
    assert_non_null(strstr(sl_transfer_batch_error(pair.batch, 3), sl_transfer_name(pair.there)));
}

CASE(batch_submit__checks_its_arguments)
{
    struct sl_transfer_status status;
    struct sl_transfer_request request = pair_request(&pair, SL_TRANSFER_READ, 0, 0, 100);
    assert_int_equal(sl_transfer_batch_status(pair.batch, 0, &status), 0);
    assert_int_equal(status.state, SL_TRANSFER_WAITING);
    assert_true(sl_transfer_batch_done(pair.batch));
    assert_int_equal(pair_run(&pair, &request, 1, 0), SL_ERR_INVALID);
    assert_int_equal(pair_run(&pair, &request, 1, SL_TRANSFER_TIMEOUT_MS_MAX + 1), SL_ERR_INVALID);
    assert_int_equal(pair_run(&pair, &request, 0, 100), SL_ERR_INVALID);
    assert_int_equal(pair_run(&pair, &request, 4097, 100), SL_ERR_TOO_LARGE);
    request.bytes = 0;
    assert_int_equal(pair_run(&pair, &request, 1, 100), SL_ERR_INVALID);
    request.bytes = UINT64_MAX;
    assert_int_equal(pair_run(&pair, &request, 1, 100), SL_ERR_INVALID);
    request = pair_request(&pair, SL_TRANSFER_READ, 0, 0, 100);
    request.segment = NULL;
    assert_int_equal(pair_run(&pair, &request, 1, 100), SL_ERR_INVALID);
}

CASE(batch_wait__returns_the_error_of_a_refused_submission)
{
    struct sl_transfer_status status;
    struct sl_transfer_request request = pair_request(&pair, SL_TRANSFER_READ, 0, 0, 100);
    assert_int_equal(sl_transfer_batch_submit(pair.batch, &request, 1, 0, NULL), SL_ERR_INVALID);
    assert_int_equal(sl_transfer_batch_wait(pair.batch), SL_ERR_INVALID);
    assert_non_null(strstr(sl_transfer_last_error(), "timeout_ms"));
    pair_move(&pair, SL_TRANSFER_READ, 0, 0, 100);
    request.segment = NULL;
    assert_int_equal(sl_transfer_batch_submit(pair.batch, &request, 1, 100, NULL), SL_ERR_INVALID);
    assert_int_equal(sl_transfer_batch_wait(pair.batch), SL_ERR_INVALID);
    assert_non_null(strstr(sl_transfer_last_error(), "segment"));
    assert_string_equal(sl_transfer_batch_error(pair.batch, 0), "");
    assert_int_equal(sl_transfer_batch_status(pair.batch, 0, &status), 0);
    assert_int_equal(status.state, SL_TRANSFER_WAITING);
    pair_move(&pair, SL_TRANSFER_READ, 0, 0, 100);
}

CASE(segment_buffers__follow_what_the_peer_registers)
{
    struct sl_transfer_buffer buffers[4];
    uint32_t count = 0;
    uint8_t *more = malloc(1000);
    const struct sl_transfer_memory memory = {
        .base = more, .bytes = 1000, .location = "cpu:3", .access = SL_TRANSFER_PEERS_READ};
    assert_int_equal(sl_transfer_segment_buffers(pair.segment, buffers, 4, &count), 0);
    assert_int_equal(count, 1);
    assert_int_equal(buffers[0].address, (uintptr_t)pair.remote.base);
    assert_int_equal(buffers[0].bytes, BYTES);
    assert_int_equal(buffers[0].access, PAIR_ALL);

    assert_int_equal(sl_transfer_register(pair.there, &memory, 1), 0);
    while (count != 2) {
        assert_int_equal(sl_transfer_segment_buffers(pair.segment, buffers, 4, &count), 0);
    }
    const struct sl_transfer_buffer *added = &buffers[buffers[0].bytes == 1000 ? 0 : 1];
    assert_int_equal(added->address, (uintptr_t)more);
    assert_string_equal(added->location, "cpu:3");
    struct sl_transfer_request request = pair_request(&pair, SL_TRANSFER_WRITE, 0, 0, 10);
    request.remote = (uintptr_t)more;
    assert_int_equal(pair_run(&pair, &request, 1, PAIR_TIMEOUT_MS), SL_ERR_INVALID);
    assert_non_null(strstr(sl_transfer_last_error(), "writing"));
    request.op = SL_TRANSFER_READ;
    assert_int_equal(pair_run(&pair, &request, 1, PAIR_TIMEOUT_MS), 0);

    void *base = more;
    assert_int_equal(sl_transfer_unregister(pair.there, &base, 1, PAIR_TIMEOUT_MS), 0);
    while (count != 1) {
        assert_int_equal(sl_transfer_segment_buffers(pair.segment, buffers, 4, &count), 0);
    }
    assert_int_equal(pair_run(&pair, &request, 1, PAIR_TIMEOUT_MS), SL_ERR_INVALID);
    free(more);
}

CASE(destroy__closes_the_segments_of_peers)
{
    struct sl_transfer_info info;
    const struct sl_transfer_request request = pair_request(&pair, SL_TRANSFER_READ, 0, 0, BYTES);
    assert_int_equal(sl_transfer_batch_submit(pair.batch, &request, 1, PAIR_TIMEOUT_MS, NULL), 0);
    sl_transfer_destroy(&pair.there);
    const int err = sl_transfer_batch_wait(pair.batch);
    assert_true(err == 0 || err == SL_ERR_CLOSED);
    do {
        assert_int_equal(sl_transfer_segment_info(pair.segment, &info), 0);
    } while (info.state != SL_TRANSFER_SEGMENT_CLOSED);
    assert_int_equal(pair_run(&pair, &request, 1, PAIR_TIMEOUT_MS), SL_ERR_CLOSED);
    assert_non_null(strstr(sl_transfer_last_error(), "shut down"));
}

/* The initiator's own segment. */
CASE(segment_open__takes_the_engines_own_name)
{
    struct sl_transfer_segment *own;
    assert_int_equal(
        sl_transfer_segment_open(pair.here, sl_transfer_name(pair.here), PAIR_TIMEOUT_MS, &own), 0);
    struct sl_transfer_request request = {.op = SL_TRANSFER_READ,
                                          .local = pair.local.base,
                                          .segment = own,
                                          .remote = (uintptr_t)pair.local.base + 1000,
                                          .bytes = 1000};
    pair_fill(pair.local.base + 1000, 1000, 1);
    assert_int_equal(pair_run(&pair, &request, 1, PAIR_TIMEOUT_MS), 0);
    pair_expect(pair.local.base, 1000, 1);
    sl_transfer_segment_close(&own);
    assert_null(own);
}

CASE(batch_cancel__ends_it_and_leaves_the_memory_alone)
{
    struct sl_transfer_request request = pair_request(&pair, SL_TRANSFER_READ, 0, 0, BYTES);
    struct sl_transfer_status status;
    pair_fill(pair.remote.base, BYTES, 3);
    for (uint32_t round = 0; round < 20; round++) {
        memset(pair.local.base, 0, BYTES / 16);
        assert_int_equal(sl_transfer_batch_submit(pair.batch, &request, 1, PAIR_TIMEOUT_MS, NULL),
                         0);
        assert_int_equal(sl_transfer_batch_submit(pair.batch, &request, 1, PAIR_TIMEOUT_MS, NULL),
                         SL_ERR_AGAIN);
        sl_transfer_batch_cancel(pair.batch);
        const int err = sl_transfer_batch_wait(pair.batch);
        assert_int_equal(sl_transfer_batch_status(pair.batch, 0, &status), 0);
        assert_int_equal(status.state, err == 0 ? SL_TRANSFER_COMPLETED : SL_TRANSFER_CANCELLED);
        assert_int_equal(err, err == 0 ? 0 : SL_ERR_CANCELLED);
    }
    pair_move(&pair, SL_TRANSFER_READ, 0, 0, BYTES);
    pair_expect(pair.local.base, BYTES, 3);
}

static atomic_bool is_held, is_cancelling;

static void hold_reactor(void *ctx, uint64_t a, uint64_t b)
{
    sl_reactor_excuse_turn(sl_reactor_running());
    atomic_store(&is_held, true);
    while (!atomic_load(&is_cancelling)) {
        (void)usleep(100);
    }
    (void)usleep(100000); /* the mail is being posted */
}

static void *submit_read(void *ctx)
{
    const struct sl_transfer_request request = pair_request(&pair, SL_TRANSFER_READ, 0, 0, BYTES);
    assert_int_equal(sl_transfer_batch_submit(pair.batch, &request, 1, PAIR_TIMEOUT_MS, NULL), 0);
    return NULL;
}

CASE(batch_cancel__may_overtake_the_start)
{
    struct sl_port *port;
    pthread_t thread;
    assert_int_equal(sl_port_here(pair.here->ports, &port), 0);
    assert_int_equal(sl_mailbox_post(port->lanes[pair.batch->call.io->index].to,
                                     (struct sl_mail){.run = hold_reactor}),
                     0);
    while (!atomic_load(&is_held)) {
        (void)usleep(100);
    }
    /* The held reactor reads on in this thread's lane, and in that of the other thread later. */
    assert_int_equal(pthread_create(&thread, NULL, submit_read, NULL), 0);
    pthread_join(thread, NULL);
    atomic_store(&is_cancelling, true);
    sl_transfer_batch_cancel(pair.batch);
    assert_int_equal(sl_transfer_batch_wait(pair.batch), SL_ERR_CANCELLED);
    pair_move(&pair, SL_TRANSFER_READ, 0, 0, BYTES);
}

CASE(batch_free__ends_a_batch_that_runs)
{
    struct sl_transfer_request request = pair_request(&pair, SL_TRANSFER_WRITE, 0, 0, BYTES);
    struct sl_transfer_batch *batch;
    assert_int_equal(sl_transfer_batch_create(pair.here, 1, &batch), 0);
    assert_int_equal(sl_transfer_batch_submit(batch, &request, 1, PAIR_TIMEOUT_MS, NULL), 0);
    sl_transfer_batch_free(&batch);
    assert_null(batch);
}

/* Every batch gets its share, and none is lost. */
CASE(batch__runs_beside_others)
{
    enum { COUNT = 64 };
    struct sl_transfer_batch *batches[COUNT];
    pair_fill(pair.remote.base, BYTES, 4);
    for (uint32_t i = 0; i < COUNT; i++) {
        const struct sl_transfer_request request = pair_request(
            &pair, SL_TRANSFER_READ, i * (BYTES / COUNT), i * (BYTES / COUNT), BYTES / COUNT - i);
        assert_int_equal(sl_transfer_batch_create(pair.here, 1, &batches[i]), 0);
        assert_int_equal(sl_transfer_batch_submit(batches[i], &request, 1, PAIR_TIMEOUT_MS, NULL),
                         0);
    }
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_int_equal(sl_transfer_batch_wait(batches[i]), 0);
        assert_memory_equal(pair.local.base + i * (BYTES / COUNT),
                            pair.remote.base + i * (BYTES / COUNT), BYTES / COUNT - i);
        sl_transfer_batch_free(&batches[i]);
    }
}

SL_CASE(engine__moves_with_several_reactors_a_secret_and_checksums)
{
    const struct sl_transfer_options options = {.name = "127.0.0.1:0",
                                                .endpoints = "tcp://127.0.0.1:0",
                                                .reactor_count = 3,
                                                .lanes = 3,
                                                .slice_bytes = 64 << 10,
                                                .secret = "0123456789abcdef",
                                                .secret_bytes = 16,
                                                .checksum = true};
    struct sl_transfer_batch *batches[6];
    pair_init(&pair, 6 << 20, &options);
    pair_fill(pair.local.base, 6 << 20, 8);
    for (uint32_t i = 0; i < 6; i++) {
        const struct sl_transfer_request request =
            pair_request(&pair, SL_TRANSFER_WRITE, i << 20, i << 20, 1 << 20);
        assert_int_equal(sl_transfer_batch_create(pair.here, 1, &batches[i]), 0);
        assert_int_equal(sl_transfer_batch_submit(batches[i], &request, 1, PAIR_TIMEOUT_MS, NULL),
                         0);
    }
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(sl_transfer_batch_wait(batches[i]), 0);
        sl_transfer_batch_free(&batches[i]);
    }
    pair_expect(pair.remote.base, 6 << 20, 8);
    pair_fini(&pair);
}

CASE(segment_info__counts_bytes_by_rail)
{
    struct sl_transfer_info info;
    pair_move(&pair, SL_TRANSFER_READ, 0, 0, 3000000);
    pair_move(&pair, SL_TRANSFER_WRITE, 0, 0, 1000000);
    assert_int_equal(sl_transfer_segment_info(pair.segment, &info), 0);
    assert_string_equal(info.name, sl_transfer_name(pair.there));
    assert_int_equal(info.state, SL_TRANSFER_SEGMENT_OPEN);
    assert_int_equal(info.rail_count, 1);
    assert_string_equal(info.rails[0].local, "127.0.0.1");
    assert_int_equal(strncmp(info.rails[0].remote, "tcp://127.0.0.1:", 16), 0);
    assert_int_equal(info.rails[0].state, SL_TRANSFER_RAIL_UP);
    assert_int_equal(info.rails[0].bytes_read, 3000000);
    assert_int_equal(info.rails[0].bytes_written, 1000000);
    assert_int_equal(info.rails[0].failures, 0);
}

static uint64_t now_ms(void)
{
    return sl_clock_now_ns(sl_clock_system()) / SL_CLOCK_NS_PER_MS;
}

/* 10 MB at 50 MB/s. The first slices may leave at once. */
SL_CASE(engine__keeps_to_its_limit_on_sent_bytes)
{
    const struct sl_transfer_options options = {.name = "127.0.0.1:0",
                                                .endpoints = "tcp://127.0.0.1:0",
                                                .bytes_per_s_max = 50000000,
                                                .slice_bytes = 64 << 10};
    pair_init(&pair, 10000000, &options);
    for (uint32_t op = SL_TRANSFER_READ; op <= SL_TRANSFER_WRITE; op++) {
        const uint64_t begin_ms = now_ms();
        pair_move(&pair, (enum sl_transfer_op)op, 0, 0, 10000000);
        assert_true(now_ms() - begin_ms >= 170);
    }
    pair_fini(&pair);
}

struct count_call {
    struct sl_transfer_call call;
    uint32_t count;
    struct sl_transport_stats stats; /* of the first device */
};

static void count_here(struct sl_transfer_io *io, struct sl_transfer_call *call)
{
    struct count_call *count = SL_CONTAINER_OF(call, struct count_call, call);
    SL_LIST_FOREACH (link, &io->guests) {
        count->count++;
    }
    sl_transport_get_stats(io->devices[0].transport, &count->stats);
    sl_transfer_io_answer(call, 0, "counted");
}

static struct count_call count_all(struct sl_transfer *transfer)
{
    struct count_call count = {.call = {.run = count_here}};
    assert_int_equal(sl_transfer_io_call(&transfer->ios[0], &count.call), 0);
    return count;
}

static uint32_t count_connections(struct sl_transfer *transfer)
{
    return count_all(transfer).count;
}

/* A full lane does not ask for one slice with each answer. */
SL_CASE(lane__asks_for_many_slices_at_once)
{
    enum { SLICE = 65536, ALL = 1024 * SLICE };
    const struct sl_transfer_options options = {
        .name = "127.0.0.1:0", .endpoints = "tcp://127.0.0.1:0", .slice_bytes = SLICE};
    pair_init(&pair, ALL, &options);
    pair_move(&pair, SL_TRANSFER_READ, 0, 0, 4 * SLICE); /* small ones would shorten a lane */
    const uint64_t before = count_all(pair.there).stats.frames_received;
    pair_move(&pair, SL_TRANSFER_READ, 0, 0, ALL);
    assert_in_range(count_all(pair.there).stats.frames_received - before, 4, 32);
    pair_fini(&pair);
}

SL_CASE(lane__is_closed_when_it_was_idle_and_opened_again)
{
    const struct sl_transfer_options options = {
        .name = "127.0.0.1:0", .endpoints = "tcp://127.0.0.1:0", .stall_ms = 50};
    struct sl_transfer_info info;
    pair_init(&pair, 1000, &options);
    pair.here->settings.idle_ns = 1; /* read by the reactor when it looks for idle lanes */
    for (uint32_t round = 1; round <= 3; round++) {
        pair_move(&pair, SL_TRANSFER_WRITE, 0, 0, 1000);
        while (count_connections(pair.there) > 1) { /* one is for control messages */
            (void)usleep(1000);
        }
        assert_int_equal(sl_transfer_segment_info(pair.segment, &info), 0);
        assert_int_equal(info.rails[0].bytes_written, 1000 * round);
    }
    pair_fini(&pair);
}

/* Which switches RDMA off. */
SL_CASE(engine__moves_over_tls)
{
    struct sl_transfer_info info;
    authority_make();
    const struct sl_transport_tls *files = authority_files(AUTHORITY_NODE);
    const struct sl_transport_tls *others = authority_files(AUTHORITY_STRANGER);
    struct sl_transfer_options options = {.name = "127.0.0.1:0",
                                          .endpoints = "tcp://127.0.0.1:0,rdma://10.0.0.1:0",
                                          .tls_certificate = files->certificate,
                                          .tls_key = files->key,
                                          .tls_authority = files->authority};
    struct sl_transfer *stranger;
    struct sl_transfer_segment *segment = NULL;
    pair_init(&pair, 5 << 20, &options);
    assert_int_equal(sl_transfer_segment_info(pair.segment, &info), 0);
    assert_int_equal(info.rail_count, 1);
    pair_fill(pair.local.base, 5 << 20, 6);
    pair_move(&pair, SL_TRANSFER_WRITE, 3, 5, (4 << 20) + 77);
    memset(pair.local.base, 0, 5 << 20);
    pair_move(&pair, SL_TRANSFER_READ, 0, 2, (4 << 20) + 80);
    for (uint32_t i = 0; i < (4 << 20) + 77; i++) {
        assert_int_equal(pair.local.base[i + 3], pair.remote.base[i + 5]);
    }
    options.tls_certificate = others->certificate;
    options.tls_key = others->key;
    options.tls_authority = others->authority;
    assert_int_equal(sl_transfer_create(&options, &stranger), 0);
    assert_int_not_equal(
        sl_transfer_segment_open(stranger, sl_transfer_name(pair.there), 500, &segment), 0);
    assert_null(segment);
    sl_transfer_destroy(&stranger);
    pair_fini(&pair);
}
