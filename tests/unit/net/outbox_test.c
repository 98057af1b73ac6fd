#include <stdlib.h>

#include "core/hash.h"
#include "net/outbox.h"
#include "tests/support/loop_transport.h"
#include "tests/support/resident.h"
#include "tests/support/stepped_pair.h"
#include "tests/support/unit.h"

#define MEMORY_BYTES (SL_OUTBOX_MEMORY_BYTES_MIN + 2 * SL_OUTBOX_BLOCK_BYTES)

/* One sender with an outbox, one receiver that checks that frames come whole and in order. */
struct fixture {
    struct sl_loop_network network;
    struct sl_stepped_pair pair;
    struct sl_endpoint bound;
    struct sl_outbox outbox;
    struct sl_outbox_queue queue;
    struct sl_conn *conn, *accepted;
    uint8_t *sink_memory;
    void *reply_buffer; /* that came with the frame received last */
    uint64_t committed, received, rests_given, rests_back;
    bool closed;
};

/* The payload of frame n is a function of n. */
static void fill(uint8_t *to, size_t from, size_t bytes, uint64_t n)
{
    for (size_t i = 0; i < bytes; i++) {
        to[i] = (uint8_t)((from + i) * 31 + n * 7);
    }
}

static void check_payload(const uint8_t *payload, size_t bytes, uint64_t n)
{
    for (size_t i = 0; i < bytes; i++) {
        assert_int_equal(payload[i], (uint8_t)(i * 31 + n * 7));
    }
}

static void on_accepted(void *ctx, struct sl_conn *conn)
{
    ((struct fixture *)ctx)->accepted = conn;
}

static void on_connected(void *ctx, struct sl_conn *conn)
{
}

static void *on_sink(void *ctx, struct sl_conn *conn, const struct sl_frame *header)
{
    struct fixture *fixture = ctx;
    fixture->sink_memory = malloc(header->payload_bytes);
    return fixture->sink_memory;
}

static void on_received(void *ctx, struct sl_conn *conn, const struct sl_transport_message *message)
{
    struct fixture *fixture = ctx;
    fixture->received++;
    fixture->reply_buffer = conn->reply_buffer;
    assert_int_equal(message->header.request_id, fixture->received);
    assert_int_equal(sl_frame_verify(&message->header, message->payload), SL_OK);
    check_payload(message->payload, message->header.payload_bytes, fixture->received);
    sl_transport_release(conn, message);
    free(fixture->sink_memory);
    fixture->sink_memory = NULL;
}

static void on_sent(void *ctx, struct sl_conn *conn, void *cookie)
{
    sl_outbox_sent(&((struct fixture *)ctx)->outbox, cookie);
}

static void on_writable(void *ctx, struct sl_conn *conn)
{
    struct fixture *fixture = ctx;
    sl_outbox_writable(&fixture->outbox, conn, &fixture->queue);
}

static void on_closed(void *ctx, struct sl_conn *conn, int err)
{
    struct fixture *fixture = ctx;
    if (conn == fixture->conn) {
        sl_outbox_closed(&fixture->outbox, conn, &fixture->queue);
        fixture->conn = NULL;
        fixture->closed = true;
    }
    free(fixture->sink_memory);
    fixture->sink_memory = NULL;
}

static const struct sl_transport_events events = {
    .accepted = on_accepted,
    .connected = on_connected,
    .sink = on_sink,
    .received = on_received,
    .sent = on_sent,
    .writable = on_writable,
    .closed = on_closed,
};

static bool is_open(void *ctx)
{
    struct fixture *fixture = ctx;
    return fixture->conn->state == SL_CONN_OPEN && fixture->accepted != NULL;
}

static void setup_over(struct fixture *fixture, const struct sl_transport_ops *ops, uint64_t seed,
                       bool checksum)
{
    *fixture = (struct fixture){0};
    sl_loop_network_init(&fixture->network, seed);
    sl_stepped_pair_init(&fixture->pair, ops, &fixture->network, &fixture->network);
    struct sl_endpoint endpoint = {.scheme = SL_ENDPOINT_TCP, .host = "127.0.0.1"};
    assert_int_equal(sl_transport_listen(fixture->pair.b.transport, &endpoint, &events, fixture,
                                         &fixture->bound),
                     SL_OK);
    assert_int_equal(sl_transport_connect(fixture->pair.a.transport, &fixture->bound, 0, &events,
                                          fixture, NULL, &fixture->conn),
                     SL_OK);
    assert_int_equal(sl_outbox_init(&fixture->outbox, MEMORY_BYTES, checksum), SL_OK);
    assert_true(sl_stepped_pair_until(&fixture->pair, 100, is_open, fixture));
}

static void setup(struct fixture *fixture, uint64_t seed, bool checksum)
{
    setup_over(fixture, &sl_loop_transport_ops, seed, checksum);
}

static void teardown(struct fixture *fixture)
{
    sl_stepped_pair_fini(&fixture->pair);
    sl_loop_network_fini(&fixture->network);
    assert_int_equal(fixture->rests_given, fixture->rests_back);
    sl_outbox_fini(&fixture->outbox);
}

struct tail {
    struct fixture *fixture;
    uint8_t bytes[];
};

/* Spoils the memory, so that what is read after it was given back is noticed. */
static void tail_sent(void *ctx)
{
    struct tail *tail = ctx;
    tail->fixture->rests_back++;
    free(tail);
}

/* Commits one frame of near + far payload bytes; false when memory is short. */
static bool commit(struct fixture *fixture, uint32_t path_bytes, uint32_t far_bytes, uint8_t flags)
{
    uint8_t *room = sl_outbox_reserve(&fixture->outbox, path_bytes + 5);
    if (room == NULL) {
        return false;
    }
    assert_int_equal((uintptr_t)room % 8, 0);
    uint64_t n = ++fixture->committed;
    fill(room + SL_FRAME_HEADER_BYTES, 0, path_bytes, n);
    struct tail *tail = NULL;
    if (far_bytes != 0) {
        tail = malloc(sizeof *tail + far_bytes);
        tail->fixture = fixture;
        fill(tail->bytes, path_bytes, far_bytes, n);
        fixture->rests_given++;
    }
    struct sl_frame frame = {.type = SL_FRAME_REPLY,
                             .request_id = n,
                             .flags = flags,
                             .payload_bytes = path_bytes + far_bytes};
    sl_outbox_commit(&fixture->outbox, fixture->conn, &fixture->queue, &frame,
                     tail != NULL ? tail->bytes : NULL, far_bytes, tail != NULL ? tail_sent : NULL,
                     tail);
    return true;
}

static uint32_t random_bytes(uint64_t *seed)
{
    switch (sl_hash_random(seed) % 40) {
    case 0:
        return (uint32_t)(sl_hash_random(seed) % (1U << 20)); /* its own allocation */
    case 1:
    case 2:
        return (uint32_t)(sl_hash_random(seed) % (64U << 10));
    default:
        return (uint32_t)(sl_hash_random(seed) % 200);
    }
}

static bool all_received(void *ctx)
{
    struct fixture *fixture = ctx;
    return fixture->received == fixture->committed && fixture->queue.first == NULL;
}

SL_CASE(outbox_commit__delivers_random_frames_in_order)
{
    for (uint64_t seed = 1; seed <= 3; seed++) {
        struct fixture fixture;
        uint64_t random = seed;
        setup(&fixture, seed, seed % 2 == 0);
        for (int i = 0; i < 300; i++) {
            uint32_t far_bytes = sl_hash_random(&random) % 4 == 0 ? 1 + random_bytes(&random) : 0;
            while (!commit(&fixture, random_bytes(&random), far_bytes,
                           (uint8_t)(sl_hash_random(&random) % 2))) {
                sl_stepped_pair_turn(&fixture.pair, SL_CLOCK_NS_PER_MS);
            }
            if (sl_hash_random(&random) % 3 == 0) {
                sl_stepped_pair_turn(&fixture.pair, SL_CLOCK_NS_PER_MS);
            }
        }
        assert_true(sl_stepped_pair_until(&fixture.pair, 20000, all_received, &fixture));
        assert_int_equal(fixture.rests_given, fixture.rests_back);
        teardown(&fixture);
    }
}

/* Commits up to a run's most frames at once; false when memory is short. */
static bool commit_run(struct fixture *fixture, uint32_t count, uint64_t *seed)
{
    uint8_t *room = sl_outbox_reserve_run(&fixture->outbox, SL_OUTBOX_RUN_BYTES_MAX, count);
    if (room == NULL) {
        return false;
    }
    uint32_t run_bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t n = ++fixture->committed;
        uint32_t bytes = (uint32_t)(sl_hash_random(seed) % 120 * 8);
        fill(room + run_bytes + SL_FRAME_HEADER_BYTES, 0, bytes, n);
        sl_frame_encode(
            &(struct sl_frame){.type = SL_FRAME_REPLY, .request_id = n, .payload_bytes = bytes},
            room + run_bytes);
        run_bytes += SL_FRAME_HEADER_BYTES + bytes;
    }
    assert_true(run_bytes <= SL_OUTBOX_RUN_BYTES_MAX);
    sl_outbox_commit_run(&fixture->outbox, fixture->conn, &fixture->queue, run_bytes,
                         sl_hash_random(seed) % 2 == 0);
    return true;
}

/* Whether the transport takes them in one piece, or one by one. */
SL_CASE(outbox_commit_run__delivers_frames_in_order)
{
    struct sl_transport_ops one_by_one = sl_loop_transport_ops;
    one_by_one.capabilities &= ~(uint32_t)SL_TRANSPORT_MULTI_FRAME;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        struct fixture fixture;
        uint64_t random = seed;
        bool streams = seed % 2 == 0;
        setup_over(&fixture, streams ? &sl_loop_transport_ops : &one_by_one, seed, seed % 3 == 0);
        for (int i = 0; i < 200; i++) {
            uint32_t count = (uint32_t)(sl_hash_random(&random) % SL_OUTBOX_RUN_FRAMES_MAX + 1);
            while (!(sl_hash_random(&random) % 3 == 0 ? commit(&fixture, 16, 0, 0)
                                                      : commit_run(&fixture, count, &random))) {
                sl_stepped_pair_turn(&fixture.pair, SL_CLOCK_NS_PER_MS);
            }
            uint32_t waiting = fixture.queue.count;
            if (commit_run(&fixture, 2, &random)) {
                assert_int_equal(fixture.queue.count - waiting, streams ? 1 : 2);
            }
        }
        assert_true(sl_stepped_pair_until(&fixture.pair, 40000, all_received, &fixture));
        teardown(&fixture);
    }
}

/* One part of the next frame, from so far on; false when memory is short. */
static bool commit_part(struct fixture *fixture, uint32_t payload_bytes, uint32_t from,
                        uint32_t bytes, uint64_t n)
{
    uint32_t header_bytes = from == 0 ? SL_FRAME_HEADER_BYTES : 0;
    uint8_t *room = sl_outbox_reserve_run(&fixture->outbox, header_bytes + bytes, 1);
    if (room == NULL) {
        return false;
    }
    if (from == 0) {
        sl_frame_encode(&(struct sl_frame){.type = SL_FRAME_REPLY,
                                           .request_id = n,
                                           .payload_bytes = payload_bytes},
                        room);
    }
    fill(room + header_bytes, from, bytes, n);
    sl_outbox_commit_part(&fixture->outbox, fixture->conn, &fixture->queue, header_bytes + bytes,
                          from + bytes < payload_bytes);
    return true;
}

/* Whole frames that are committed between the parts of one come behind it. */
SL_CASE(outbox_commit_part__others_wait_for_the_last)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct fixture fixture;
        uint64_t random = seed;
        setup(&fixture, seed, false);
        for (int i = 0; i < 30; i++) {
            uint32_t payload_bytes = (uint32_t)(sl_hash_random(&random) % 40000 * 8 + 8);
            uint64_t n = ++fixture.committed;
            for (uint32_t from = 0; from < payload_bytes;) {
                uint32_t left = payload_bytes - from;
                uint32_t bytes = (uint32_t)(sl_hash_random(&random) % 8000 * 8 + 8);
                bytes = bytes < left ? bytes : left;
                while (!commit_part(&fixture, payload_bytes, from, bytes, n)) {
                    sl_stepped_pair_turn(&fixture.pair, SL_CLOCK_NS_PER_MS);
                }
                from += bytes;
                if (sl_hash_random(&random) % 4 == 0) {
                    uint32_t waiting = fixture.queue.count;
                    bool added = commit(&fixture, random_bytes(&random) % 500, 100, 0);
                    assert_int_equal(fixture.queue.count - waiting, added ? 1 : 0);
                }
                sl_stepped_pair_turn(&fixture.pair, SL_CLOCK_NS_PER_MS);
                assert_true(from == payload_bytes || fixture.received < n);
            }
        }
        assert_true(sl_stepped_pair_until(&fixture.pair, 40000, all_received, &fixture));
        teardown(&fixture);
    }
}

static bool is_closed(void *ctx)
{
    return ((struct fixture *)ctx)->closed;
}

SL_CASE(outbox_closed__gives_back_what_was_not_sent)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct fixture fixture;
        setup(&fixture, seed, false);
        for (int i = 0; i < 100; i++) {
            assert_true(commit(&fixture, 40, 8, 0));
        }
        for (uint64_t turn = 0; turn < seed; turn++) {
            sl_stepped_pair_turn(&fixture.pair, SL_CLOCK_NS_PER_MS);
        }
        sl_transport_disconnect(fixture.accepted);
        assert_true(sl_stepped_pair_until(&fixture.pair, 1000, is_closed, &fixture));
        assert_int_equal(fixture.rests_given, fixture.rests_back);
        assert_null(fixture.queue.first);
        teardown(&fixture);
    }
}

#define OUTBOX_CASE(name, ...)                                                                     \
    SL_CASE_USING(name, struct fixture, fixture, setup, teardown, __VA_ARGS__)

OUTBOX_CASE(outbox_closed__gives_back_what_waits_for_a_last_part, 1, false)
{
    assert_true(commit_part(fixture, 1000, 0, 500 / 8 * 8, ++fixture->committed));
    assert_true(commit(fixture, 40, 8, 0));
    sl_stepped_pair_turn(&fixture->pair, SL_CLOCK_NS_PER_MS);
    assert_int_equal(fixture->rests_back, 0);
    sl_transport_disconnect(fixture->accepted);
    assert_true(sl_stepped_pair_until(&fixture->pair, 1000, is_closed, fixture));
    assert_int_equal(fixture->rests_back, 1);
    assert_false(fixture->queue.is_open);
}

OUTBOX_CASE(outbox_reserve__is_null_while_memory_is_short, 3, false)
{
    const uint32_t sizes[] = {100000, 1000000, 3000, SL_LIMIT_FRAME_PAYLOAD_BYTES - 5};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        int count = 0;
        while (commit(fixture, sizes[i], 0, 0)) {
            assert_true(++count < 100000);
        }
        assert_true(count > 0);
        assert_true(fixture->outbox.units_used <= fixture->outbox.unit_count);
        assert_true(sl_stepped_pair_until(&fixture->pair, 200000, all_received, fixture));
    }
}

static size_t resident_of(const struct fixture *fixture)
{
    return resident_bytes(fixture->outbox.base, fixture->outbox.bytes);
}

/* Frames in all of the memory; they are sent, and nothing follows; then again. */
OUTBOX_CASE(outbox_give_back__memory_that_nothing_uses, 9, false)
{
    assert_false(sl_outbox_give_back(&fixture->outbox)); /* nothing has been touched */
    for (int round = 0; round < 2; round++) {
        while (commit(fixture, 3000, 0, 0)) {
        }
        while (commit(fixture, 1000000, 0, 0)) {
        }
        const size_t full = resident_of(fixture);
        assert_true(full > MEMORY_BYTES / 4 * 3);
        for (int look = 0; look < 50; look++) {
            assert_true(sl_outbox_give_back(&fixture->outbox));
        }
        assert_int_equal(resident_of(fixture), full); /* all of it is in use */
        assert_true(sl_stepped_pair_until(&fixture->pair, 200000, all_received, fixture));
        for (int look = 0; look < 50; look++) {
            (void)sl_outbox_give_back(&fixture->outbox);
        }
        assert_false(sl_outbox_give_back(&fixture->outbox));
        /* One block is being filled; of each other, a page. */
        assert_true(resident_of(fixture) <=
                    SL_OUTBOX_BLOCK_BYTES + fixture->outbox.block_count * (size_t)4096);
    }
}

static uint64_t copied_bytes(const struct fixture *fixture)
{
    struct sl_transport_stats stats;
    sl_transport_get_stats(fixture->pair.a.transport, &stats);
    return stats.copied_bytes;
}

/* Blocks and long frames lie where the peer can read them. */
SL_CASE(outbox_init_shared__sends_without_a_copy)
{
    struct fixture fixture;
    uint64_t random = 7;
    setup_over(&fixture, &sl_loop_shared_ops, 7, false);
    assert_true(commit(&fixture, 100, 0, 0));
    assert_true(sl_stepped_pair_until(&fixture.pair, 1000, all_received, &fixture));
    assert_true(copied_bytes(&fixture) > 100);
    sl_outbox_fini(&fixture.outbox);
    const uint64_t before = copied_bytes(&fixture);
    assert_int_equal(
        sl_outbox_init_shared(&fixture.outbox, MEMORY_BYTES, false, fixture.pair.a.transport),
        SL_OK);
    for (int i = 0; i < 300; i++) {
        while (!commit(&fixture, random_bytes(&random), 0, 0)) {
            sl_stepped_pair_turn(&fixture.pair, SL_CLOCK_NS_PER_MS);
        }
    }
    assert_true(sl_stepped_pair_until(&fixture.pair, 20000, all_received, &fixture));
    assert_int_equal(copied_bytes(&fixture), before);
    teardown(&fixture);
}

/* What lies in memory that a device can reach is fetched from there; `rest` is its owner's. */
SL_CASE(outbox_register__sends_without_a_copy)
{
    const uint32_t long_bytes = SL_LIMIT_INLINE_PAYLOAD_BYTES + 8;
    struct fixture fixture;
    uint64_t random = 9;
    setup_over(&fixture, &sl_loop_device_ops, 9, false);
    assert_true(commit(&fixture, long_bytes, 0, 0));
    assert_true(sl_stepped_pair_until(&fixture.pair, 1000, all_received, &fixture));
    const uint64_t before = copied_bytes(&fixture);
    assert_true(before >= long_bytes);
    assert_int_equal(sl_outbox_register(&fixture.outbox, fixture.pair.a.transport), SL_OK);
    for (int i = 0; i < 300; i++) {
        while (!commit(&fixture, random_bytes(&random), 0, 0)) {
            sl_stepped_pair_turn(&fixture.pair, SL_CLOCK_NS_PER_MS);
        }
    }
    assert_true(sl_stepped_pair_until(&fixture.pair, 20000, all_received, &fixture));
    assert_int_equal(copied_bytes(&fixture), before);
    assert_true(commit(&fixture, 8, long_bytes, 0));
    assert_true(sl_stepped_pair_until(&fixture.pair, 1000, all_received, &fixture));
    assert_int_equal(copied_bytes(&fixture), before + long_bytes);
    teardown(&fixture);
}

SL_CASE(outbox_set_reply_buffer__goes_with_the_next_frame_only)
{
    struct fixture fixture;
    uint64_t reply_buffer[8];
    setup_over(&fixture, &sl_loop_shared_ops, 8, false);
    for (int i = 0; i < 20; i++) {
        const bool wants = i % 3 == 0;
        if (wants) {
            sl_outbox_set_reply_buffer(&fixture.outbox, reply_buffer, sizeof reply_buffer);
        }
        assert_true(commit(&fixture, 40, i % 2 == 0 ? 8 : 0, 0));
        assert_true(sl_stepped_pair_until(&fixture.pair, 1000, all_received, &fixture));
        assert_ptr_equal(fixture.reply_buffer, wants ? reply_buffer : NULL);
    }
    teardown(&fixture);
}

SL_CASE(outbox_init__wants_room_for_the_longest_frame)
{
    struct sl_outbox outbox;
    assert_int_equal(sl_outbox_init(&outbox, SL_OUTBOX_MEMORY_BYTES_MIN - 1, false),
                     SL_ERR_INVALID);
    assert_int_equal(sl_outbox_init(&outbox, SL_OUTBOX_MEMORY_BYTES_MIN, false), SL_OK);
    assert_non_null(sl_outbox_reserve(&outbox, SL_LIMIT_FRAME_PAYLOAD_BYTES));
    sl_outbox_abandon(&outbox);
    sl_outbox_fini(&outbox);
}
