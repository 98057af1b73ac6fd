/* Registered memory at devices with one-sided operations. The device is shared memory, or one that
 * answers when a test lets it. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "net/shm/shm.h"
#include "net/transfer/engine.h"
#include "net/transfer/memory.h"
#include "pair.h"

#define BYTES 5000

static struct sl_transport_ops device_ops;
static struct sl_transport_rma_ops device_rma;

static const struct sl_transport_ops *find_transport(enum sl_endpoint_scheme scheme)
{
    return scheme == SL_ENDPOINT_SHM ? &device_ops : sl_builtin_find(scheme);
}

/* An engine whose second device is device_ops. */
static struct sl_transfer *create(uint32_t reactor_count)
{
    const struct sl_transfer_options options = {.name = "127.0.0.1:0",
                                                .reactor_count = reactor_count};
    const struct sl_transfer_setup setup = {.find_transport = find_transport};
    struct sl_transfer *made;
    assert_int_equal(sl_transfer_create_with(&options, &setup, &made), 0);
    return made;
}

static const struct sl_transfer_offer *offer(const struct sl_transfer *transfer, uint32_t index,
                                             uint32_t reactor)
{
    const struct sl_transfer_registration *registration = SL_CONTAINER_OF(
        transfer->registered->by_address[index], struct sl_transfer_registration, regions);
    return &registration->regions[reactor].offers[1];
}

SL_CASE(region__has_the_access_of_peers_at_the_first_reactor)
{
    device_ops = sl_shm_ops;
    struct sl_transfer *transfer = create(2);
    static const unsigned accesses[] = {PAIR_ALL, SL_TRANSFER_PEERS_READ, SL_TRANSFER_PEERS_WRITE,
                                        SL_TRANSFER_LOCAL};
    for (uint32_t i = 0; i < 4; i++) {
        const bool is_offered = (accesses[i] & SL_TRANSFER_PEERS_READ) != 0;
        void *memory;
        assert_int_equal(sl_transfer_memory_create(transfer, BYTES, -1, accesses[i], &memory), 0);
        assert_int_equal(offer(transfer, 0, 0)->is_added, is_offered);
        assert_int_equal(offer(transfer, 0, 0)->token.access, is_offered ? accesses[i] : 0);
        assert_false(offer(transfer, 0, 1)->is_added);
        assert_int_equal(sl_transfer_memory_free(transfer, &memory, PAIR_TIMEOUT_MS), 0);
    }
    sl_transfer_destroy(&transfer);
}

/* As RDMA does. */
SL_CASE(region__is_local_memory_of_a_device_that_accesses_memory)
{
    static uint8_t memory[2][BYTES];
    const struct sl_transfer_memory ranges[] = {
        {.base = memory[0], .bytes = BYTES},
        {.base = memory[1], .bytes = BYTES, .access = SL_TRANSFER_PEERS_WRITE}};
    void *const bases[] = {memory[0], memory[1]};
    device_ops = sl_shm_ops;
    device_ops.capabilities |= SL_TRANSPORT_REGISTERS;
    struct sl_transfer *transfer = create(2);
    assert_int_equal(sl_transfer_register(transfer, ranges, 2), 0);
    for (uint32_t i = 0; i < 4; i++) {
        assert_true(offer(transfer, i / 2, i % 2)->is_added);
        assert_int_equal(offer(transfer, i / 2, i % 2)->token.access, SL_TRANSPORT_RMA_LOCAL);
    }
    assert_int_equal(sl_transfer_unregister(transfer, bases, 2, PAIR_TIMEOUT_MS), 0);
    assert_int_equal(sl_transfer_register(transfer, ranges, 2), 0);
    sl_transfer_destroy(&transfer);
}

/* A device that has no memory for a region at first, which it says some time later. It has it when
 * the test lets it. One region at a time. */
static struct {
    _Atomic uint64_t key; /* of the region that it does not have */
    struct sl_transport *transport;
    void *base;
    size_t bytes;
    unsigned access;
    bool is_answered, is_leaving;
} late;
static _Atomic bool may_answer, has_room;
static atomic_uint post_count;

static int add_later(struct sl_transport *transport, uint64_t key, void *base, size_t bytes,
                     unsigned access)
{
    late.transport = transport;
    late.base = base;
    late.bytes = bytes;
    late.access = access;
    late.is_answered = late.is_leaving = false;
    late.key = key;
    return 0;
}

static void remove_later(struct sl_transport *transport, uint64_t key)
{
    if (late.key == key) {
        assert_true(late.is_answered);
        late.is_leaving = true;
    } else {
        sl_shm_ops.rma->region_remove(transport, key);
    }
}

static uint32_t poll_later(struct sl_transport *transport, uint32_t budget)
{
    const uint64_t key = late.key;
    if (key == 0 || late.transport != transport) {
        return sl_shm_ops.poll(transport, budget);
    }
    if (late.is_leaving) {
        late.key = 0;
        sl_transport_rma_report_removed(transport, key, 0);
    } else if (may_answer && !late.is_answered) {
        late.is_answered = true;
        sl_transport_rma_report_added(transport, key, NULL, SL_ERR_NO_MEMORY);
    } else if (has_room && late.is_answered) {
        late.key = 0;
        assert_int_equal(
            sl_shm_ops.rma->region_add(transport, key, late.base, late.bytes, late.access), 0);
    }
    return sl_shm_ops.poll(transport, budget);
}

static uint32_t post_counted(struct sl_conn *conn, const struct sl_transport_rma_op *ops,
                             uint32_t count)
{
    post_count += count;
    return sl_shm_ops.rma->post(conn, ops, count);
}

static bool never_arm(struct sl_transport *transport)
{
    return false;
}

static void make_late(void)
{
    device_ops = sl_shm_ops;
    device_rma = *sl_shm_ops.rma;
    device_rma.region_add = add_later;
    device_rma.region_remove = remove_later;
    device_rma.post = post_counted;
    device_ops.rma = &device_rma;
    device_ops.poll = poll_later;
    device_ops.arm = never_arm;
    may_answer = has_room = false;
    late.key = 0;
}

static uint8_t slow[BYTES];

static void *register_slow(void *transfer)
{
    const struct sl_transfer_memory range = {.base = slow, .bytes = BYTES, .access = PAIR_ALL};
    assert_int_equal(sl_transfer_register(transfer, &range, 1), 0);
    return NULL;
}

SL_CASE(region__is_waited_for_and_may_fail)
{
    pthread_t thread;
    void *const base = slow;
    struct sl_transfer_segment *own;
    uint32_t count;
    make_late();
    struct sl_transfer *transfer = create(1);
    assert_int_equal(
        sl_transfer_segment_open(transfer, sl_transfer_name(transfer), PAIR_TIMEOUT_MS, &own), 0);
    assert_int_equal(pthread_create(&thread, NULL, register_slow, transfer), 0);
    while (late.key == 0) {
        (void)usleep(100);
    }
    /* Neither announced yet, nor to be unregistered. */
    assert_int_equal(sl_transfer_segment_buffers(own, NULL, 0, &count), 0);
    assert_int_equal(count, 0);
    assert_int_equal(sl_transfer_unregister(transfer, &base, 1, PAIR_TIMEOUT_MS), SL_ERR_INVALID);
    may_answer = true;
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_false(offer(transfer, 0, 0)->is_added);
    while (count == 0) {
        assert_int_equal(sl_transfer_segment_buffers(own, NULL, 0, &count), 0);
    }
    assert_int_equal(sl_transfer_unregister(transfer, &base, 1, PAIR_TIMEOUT_MS), 0);
    sl_transfer_destroy(&transfer);
}

/* Peers learn the token of a region that the device has only later: it moves as frames until then.
 */
SL_CASE(region__is_announced_again_with_a_later_token)
{
    static uint8_t local[BYTES];
    const struct sl_transfer_memory range = {.base = local, .bytes = BYTES};
    struct sl_transfer_segment *segment;
    struct sl_transfer_batch *batch;
    void *memory;
    make_late();
    may_answer = true;
    struct sl_transfer *there = create(2), *here = create(2);
    assert_int_equal(sl_transfer_memory_create(there, BYTES, -1, PAIR_ALL, &memory), 0);
    assert_int_equal(
        sl_transfer_segment_open(here, sl_transfer_name(there), PAIR_TIMEOUT_MS, &segment), 0);
    assert_int_equal(sl_transfer_register(here, &range, 1), 0);
    assert_int_equal(sl_transfer_batch_create(here, 1, &batch), 0);
    const struct sl_transfer_request one = {.op = SL_TRANSFER_READ,
                                            .local = local,
                                            .segment = segment,
                                            .remote = (uintptr_t)memory,
                                            .bytes = BYTES};
    for (uint32_t round = 0; round < 20 || post_count == 0; round++) {
        assert_true(round < 5000);
        has_room = round >= 10;
        pair_fill(memory, BYTES, round);
        assert_int_equal(sl_transfer_batch_submit(batch, &one, 1, PAIR_TIMEOUT_MS, NULL), 0);
        assert_int_equal(sl_transfer_batch_wait(batch), 0);
        pair_expect(local, BYTES, round);
        assert_true(has_room || post_count == 0);
    }
    sl_transfer_batch_free(&batch);
    sl_transfer_segment_close(&segment);
    sl_transfer_destroy(&here);
    assert_int_equal(sl_transfer_memory_free(there, &memory, PAIR_TIMEOUT_MS), 0);
    sl_transfer_destroy(&there);
}

/* A peer that connects to a device and says nothing more. */
struct stranger {
    struct sl_reactor *reactor;
    struct sl_transport *transport;
    struct sl_conn *conn;
    uint8_t local[BYTES];
    bool is_added, is_connected, is_closed;
    uint32_t failure_count;
};

static void stranger_added(void *ctx, uint64_t key, const struct sl_transport_rma_token *token,
                           int err)
{
    ((struct stranger *)ctx)->is_added = true;
}

static void stranger_removed(void *ctx, uint64_t key, int err)
{
}

static void stranger_completed(void *ctx, struct sl_conn *conn, void *cookie, int err)
{
    assert_int_not_equal(err, 0);
    ((struct stranger *)ctx)->failure_count++;
}

static void stranger_connected(void *ctx, struct sl_conn *conn)
{
    ((struct stranger *)ctx)->is_connected = true;
}

static void stranger_closed(void *ctx, struct sl_conn *conn, int err)
{
    ((struct stranger *)ctx)->is_closed = true;
}

static void stranger_received(void *ctx, struct sl_conn *conn,
                              const struct sl_transport_message *message)
{
    sl_transport_release(conn, message);
}

static void ignore(void *ctx, struct sl_conn *conn)
{
}

static void ignore_sent(void *ctx, struct sl_conn *conn, void *cookie)
{
}

static void *no_sink(void *ctx, struct sl_conn *conn, const struct sl_frame *header)
{
    return NULL;
}

static const struct sl_transport_rma_events stranger_rma = {.region_added = stranger_added,
                                                            .region_removed = stranger_removed,
                                                            .completed = stranger_completed};
static const struct sl_transport_events stranger_events = {.accepted = ignore,
                                                           .connected = stranger_connected,
                                                           .sink = no_sink,
                                                           .received = stranger_received,
                                                           .sent = ignore_sent,
                                                           .writable = ignore,
                                                           .closed = stranger_closed};

static void stranger_connect(struct stranger *stranger, const struct sl_transfer_device *device)
{
    const struct sl_reactor_options options = {.name = "stranger", .core = -1};
    *stranger = (struct stranger){0};
    assert_int_equal(sl_reactor_create(&options, &stranger->reactor), 0);
    assert_int_equal(sl_reactor_attach(stranger->reactor), 0);
    assert_int_equal(sl_transport_open(sl_builtin_find(device->scheme), stranger->reactor, NULL,
                                       &stranger->transport),
                     0);
    assert_int_equal(sl_transport_rma_open(stranger->transport, &stranger_rma, stranger), 0);
    assert_int_equal(sl_transport_connect(stranger->transport, &device->endpoint, 0,
                                          &stranger_events, stranger, NULL, &stranger->conn),
                     0);
    while (!stranger->is_connected) {
        sl_reactor_drive_once(stranger->reactor);
    }
    stranger->is_added = sl_transport_rma_region_add(stranger->transport, 1, stranger->local, BYTES,
                                                     SL_TRANSPORT_RMA_LOCAL) != 0;
    while (!stranger->is_added) { /* shared memory needs no such region */
        sl_reactor_drive_once(stranger->reactor);
    }
}

/* Before the peer is welcome, though it has the token. STARLING_TEST_ENDPOINTS: over RDMA. */
SL_CASE(region__is_out_of_reach_of_a_peer_without_a_welcome)
{
    static struct stranger stranger;
    const char *endpoints = getenv("STARLING_TEST_ENDPOINTS");
    const struct sl_transfer_options options = {.name = "127.0.0.1:0",
                                                .endpoints =
                                                    endpoints != NULL ? endpoints : "shm://",
                                                .insecure = true};
    struct sl_transfer *transfer;
    void *memory;
    assert_int_equal(sl_transfer_create(&options, &transfer), 0);
    assert_int_equal(sl_transfer_memory_create(transfer, BYTES, -1, PAIR_ALL, &memory), 0);
    pair_fill(memory, BYTES, 1);
    assert_true(offer(transfer, 0, 0)->is_added);
    const struct sl_transport_rma_token token = offer(transfer, 0, 0)->token;
    stranger_connect(&stranger, &transfer->ios[0].devices[1]);
    const struct sl_transport_rma_op ops[] = {
        {.kind = SL_TRANSPORT_RMA_WRITE, .bytes = 100, .local = stranger.local, .token = &token},
        {.kind = SL_TRANSPORT_RMA_READ, .bytes = 100, .local = stranger.local, .token = &token}};
    assert_int_equal(sl_transport_rma_post(stranger.conn, ops, 2), 2);
    while (!stranger.is_closed && stranger.failure_count < 2) {
        sl_reactor_drive_once(stranger.reactor);
    }
    pair_expect(memory, BYTES, 1);
    for (uint32_t i = 0; i < BYTES; i++) {
        assert_int_equal(stranger.local[i], 0);
    }
    sl_transport_close(&stranger.transport);
    sl_reactor_detach(stranger.reactor);
    sl_reactor_destroy(&stranger.reactor);
    assert_int_equal(sl_transfer_memory_free(transfer, &memory, PAIR_TIMEOUT_MS), 0);
    sl_transfer_destroy(&transfer);
}
