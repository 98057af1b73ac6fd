/* The server over two transports, of which one shares memory with its peers. */

#include <stdlib.h>
#include <string.h>

#include "core/hash.h"
#include "ps/server/shm.h"
#include "ps/server/state.h"
#include "stepped.h"
#include "tests/support/unit.h"

#define SPARSE   0
#define DENSE    3
#define ELEMENTS ((SL_LIMIT_FRAME_PAYLOAD_BYTES - 64) / 4 / 8 * 8) /* what one push can carry */

struct world {
    struct stepped stepped;
    struct stepped_peer path, other, far;
    float values[ELEMENTS];
    _Alignas(64) float reply_buffer[ELEMENTS];
};

static void setup(struct world *world, uint64_t seed)
{
    world->stepped.options.transports.shm = &sl_loop_shared_ops;
    stepped_start(&world->stepped, seed);
    assert_int_equal(sl_transport_memory_register(world->stepped.path, world->reply_buffer,
                                                  sizeof world->reply_buffer),
                     0);
    world->path.path = world->other.path = true;
    stepped_join(&world->path, &world->stepped, UINT32_MAX, 31);
    stepped_join(&world->other, &world->stepped, UINT32_MAX, 32);
    stepped_join(&world->far, &world->stepped, UINT32_MAX, 33);
    stepped_open_table(&world->path, SPARSE, SL_CONSISTENCY_ASP);
    stepped_open_spec(
        &world->path, DENSE,
        (struct sl_table_spec){.name = "dense", .kind = SL_TABLE_DENSE, .length = ELEMENTS});
    for (uint32_t i = 0; i < ELEMENTS; i++) {
        world->values[i] = (float)(i % 4096);
    }
}

/* The network asserts that every message was released, and the server's buffers that all are back.
 */
static void teardown(struct world *world)
{
    stepped_stop(&world->stepped);
}

static void free_rest(void *ctx)
{
    free(ctx);
}

/* The world's request, of which so many bytes lie elsewhere than its beginning. */
static void send_snapshot(struct world *world, struct stepped_peer *peer, uint64_t id,
                          uint32_t rest_bytes)
{
    const struct shard_request *request = &world->stepped.request;
    struct sl_outbox *outbox = &world->stepped.outbox;
    const uint32_t path_bytes = (uint32_t)request->bytes - rest_bytes;
    uint8_t *frame = sl_outbox_reserve(outbox, path_bytes);
    uint8_t *rest = malloc(rest_bytes);
    assert_non_null(frame);
    assert_non_null(rest);
    memcpy(frame + SL_FRAME_HEADER_BYTES, request->payload, path_bytes);
    memcpy(rest, request->payload + path_bytes, rest_bytes);
    const struct sl_frame header = {
        .type = SL_FRAME_REQUEST,
        .payload_bytes = (uint32_t)request->bytes,
        .request_id = id,
        .budget_us = STEPPED_BUDGET,
    };
    sl_outbox_commit(outbox, peer->link->conn, &peer->link->queue, &header, rest, rest_bytes,
                     free_rest, rest);
}

static void make_dense(struct world *world, uint8_t op, uint32_t count)
{
    struct shard_request *request = &world->stepped.request;
    shard_request_begin(request, 0);
    shard_request_dense(request, op, DENSE, 0, count,
                        op == SL_REQUEST_DENSE_PULL ? NULL : world->values);
}

static void make_push(struct world *world, uint8_t op, uint32_t key_count)
{
    struct stepped *stepped = &world->stepped;
    shard_request_begin(&stepped->request, 0);
    shard_request_push(&stepped->request, op, SPARSE, stepped->keys, key_count, stepped->gradients,
                       STEPPED_DIM);
}

static void expect_values(const struct world *world, const float *values, float times)
{
    for (uint32_t i = 0; i < ELEMENTS; i++) {
        assert_true(values[i] == times * world->values[i]);
    }
}

#define CASE(name) SL_CASE_USING(name, struct world, world, setup, teardown, 11)

/* Nobody is left behind, whichever way he came. */
static void on_drained(void *ctx)
{
    *(bool *)ctx = true;
}

CASE(server_drain__ends_connections_of_both)
{
    bool drained = false;
    make_dense(world, SL_REQUEST_DENSE_PUSH, ELEMENTS);
    stepped_send(&world->path, 1, STEPPED_BUDGET);
    stepped_turns(&world->stepped, 20);
    sl_server_drain(world->stepped.server, 60 * SL_CLOCK_NS_PER_S, on_drained, &drained);
    stepped_expect_ok(&world->path, 1);
    stepped_expect_end(&world->path);
    stepped_expect_end(&world->far);
    stepped_turns(&world->stepped, 50);
    assert_true(drained);
    assert_int_equal(world->stepped.server->host->conn_count, 0);
}

/* As many as come, one after the other, in one place or in two: each is carried out when it is
 * looked at, none is queued, and nothing of it is kept. */
CASE(server_push__is_read_in_its_place)
{
    const struct sl_server *server = world->stepped.server;
    const uint32_t count = 250000;
    make_dense(world, SL_REQUEST_DENSE_PUSH, count);
    for (uint64_t id = 1; id <= 16; id++) {
        if (id % 2 == 0) {
            stepped_send(&world->path, id, STEPPED_BUDGET);
        } else {
            send_snapshot(world, &world->path, id, count * sizeof(float));
        }
        if (id % 8 == 0) {
            while (world->path.reply_count < id) {
                stepped_turns(&world->stepped, 1);
                assert_int_equal(server->scheduler.runnable_count, 0);
                assert_int_equal(server->host->memory.buffers.used_bytes, 0);
            }
        }
    }
    assert_int_equal(world->stepped.network.in_place_count, 16);
    assert_int_equal(world->stepped.network.message_count, 0);
    make_dense(world, SL_REQUEST_DENSE_PULL, count);
    stepped_send(&world->far, 1, STEPPED_BUDGET);
    stepped_expect_ok(&world->far, 1);
    const float *values = (const float *)(const void *)world->far.sink;
    for (uint32_t i = 0; i < count; i++) {
        assert_true(values[i] == 16 * world->values[i]);
    }
}

/* Short ones stay as well, if they are long enough to be worth it. */
CASE(server_push__of_some_kilobytes_is_read_in_its_place)
{
    const uint32_t counts[] = {SL_SERVER_SHM_SINK_BYTES / sizeof(float), 2000, 100};
    for (uint64_t id = 1; id <= 6; id++) {
        const uint32_t count = counts[(id - 1) / 2];
        make_dense(world, SL_REQUEST_DENSE_PUSH_PULL, count);
        if (id % 2 == 0) {
            stepped_send(&world->path, id, STEPPED_BUDGET);
        } else {
            send_snapshot(world, &world->path, id, count * sizeof(float));
        }
        stepped_expect_ok(&world->path, id);
        assert_int_equal(world->stepped.server->host->memory.buffers.used_bytes, 0);
        assert_int_equal(world->stepped.network.in_place_count, id < 4 ? id : 4);
    }
    assert_int_equal(world->stepped.network.message_count, 0);
    make_dense(world, SL_REQUEST_DENSE_PULL, ELEMENTS);
    stepped_send(&world->far, 1, STEPPED_BUDGET);
    stepped_expect_ok(&world->far, 1);
    const float *values = (const float *)(const void *)world->far.sink;
    for (uint32_t i = 0; i < ELEMENTS; i++) {
        const float times = i < 100 ? 6 : i < counts[0] ? 4 : i < 2000 ? 2 : 0;
        assert_true(values[i] == times * world->values[i]);
    }
}

/* What takes several turns is not read where it may be gone in the next. */
CASE(server_push__of_several_turns_is_copied)
{
    make_dense(world, SL_REQUEST_DENSE_PUSH, ELEMENTS);
    stepped_send(&world->path, 1, STEPPED_BUDGET);
    stepped_expect_ok(&world->path, 1);
    assert_int_equal(world->stepped.network.in_place_count, 0);
    make_push(world, SL_REQUEST_PUSH, STEPPED_KEYS);
    stepped_send(&world->path, 2, STEPPED_BUDGET);
    while (world->stepped.server->scheduler.runnable_count == 0) {
        stepped_turns(&world->stepped, 1);
    }
    world->stepped.network.peers_are_malicious = true; /* it is too late */
    assert_int_equal(world->stepped.network.message_count, 0);
    stepped_expect_ok(&world->path, 2);
    assert_true(stepped_values(&world->stepped, SPARSE, STEPPED_KEYS) == 1);
}

/* Behind an odd number of values there is padding, of which nothing was said while the values were
 * where its sender has them. It may not count either when they have been copied. */
CASE(server_push__with_padding_of_any_kind_may_wait)
{
    struct shard_request *request = &world->stepped.request;
    const uint32_t count = 50001;
    for (uint64_t id = 1; id <= 4; id += 2) {
        make_push(world, SL_REQUEST_PUSH, STEPPED_KEYS); /* takes many turns */
        stepped_send(&world->path, id, STEPPED_BUDGET);
        make_dense(world, SL_REQUEST_DENSE_PUSH, count);
        memset(request->payload + request->bytes - sizeof(float), 7, sizeof(float));
        if (id == 1) {
            stepped_send(&world->path, id + 1, STEPPED_BUDGET);
        } else {
            send_snapshot(world, &world->path, id + 1, (count + 1) * sizeof(float));
        }
        stepped_expect_ok(&world->path, id);
        stepped_expect_ok(&world->path, id + 1);
    }
    make_dense(world, SL_REQUEST_DENSE_PULL, count);
    stepped_send(&world->far, 1, STEPPED_BUDGET);
    stepped_expect_ok(&world->far, 1);
    const float *values = (const float *)(const void *)world->far.sink;
    assert_true(values[count - 1] == 2 * world->values[count - 1]);
}

/* However it is cut into two, and whatever it is: all of it arrives. */
CASE(server_request__may_be_snapshot_anywhere)
{
    const uint32_t key_count = 5000;
    uint64_t seed = 3;
    for (uint64_t id = 1; id <= 40; id++) {
        make_push(world, SL_REQUEST_PUSH, key_count);
        if (id % 4 == 0) {
            shard_request_pull(&world->stepped.request, SPARSE, world->stepped.keys, 10);
        }
        uint32_t bytes = (uint32_t)world->stepped.request.bytes;
        uint32_t values_bytes = key_count * STEPPED_DIM * (uint32_t)sizeof(float);
        uint32_t rest_bytes =
            id % 4 == 1 ? values_bytes : 1 + (uint32_t)(sl_hash_random(&seed) % (bytes - 1));
        send_snapshot(world, &world->path, id, rest_bytes);
        stepped_expect_ok(&world->path, id);
        assert_true(stepped_values(&world->stepped, SPARSE, key_count) == (float)id);
    }
}

static uint64_t rows_of_sparse(const struct world *world)
{
    struct sl_message answer = {.kind = SL_MESSAGE_STATS};
    assert_int_equal(sl_server_stats(world->stepped.server, &answer.stats), 0);
    uint64_t rows = answer.stats.tables[0].rows;
    sl_message_fini(&answer);
    return rows;
}

/* A malicious peer that writes to a request while the server reads it spoils its values and nothing
 * else: every request is as valid as when it arrived, and names the same keys. */
SL_CASE(server_push__of_a_malicious_peer_spoils_only_values)
{
    for (uint64_t seed = 1; seed <= 6; seed++) {
        struct world *world = calloc(1, sizeof *world);
        setup(world, seed);
        uint64_t random = seed;
        world->stepped.network.peers_are_malicious = true;
        for (uint64_t id = 1; id <= 30; id++) {
            const uint64_t what = sl_hash_random(&random);
            if (what % 3 == 0) {
                make_dense(world, SL_REQUEST_DENSE_PUSH_PULL, ELEMENTS / 4);
            } else {
                make_push(world, what % 2 == 0 ? SL_REQUEST_PUSH : SL_REQUEST_PUSH_PULL,
                          100 + (uint32_t)(what / 8 % (STEPPED_KEYS - 100)));
            }
            for (uint64_t more = what / 64 % 3; more > 0 && what % 5 == 0; more--) {
                shard_request_pull(&world->stepped.request, SPARSE, world->stepped.keys, 3000);
            }
            struct stepped_peer *peer = id % 2 == 0 ? &world->path : &world->other;
            if (what / 1024 % 2 == 0) {
                send_snapshot(world, peer, id,
                              (uint32_t)(8 + what / 4096 % (world->stepped.request.bytes / 2)));
            } else {
                stepped_send(peer, id, STEPPED_BUDGET);
            }
        }
        for (uint64_t id = 1; id <= 30; id++) {
            stepped_expect_ok(id % 2 == 0 ? &world->path : &world->other, id);
        }
        assert_true(rows_of_sparse(world) <= STEPPED_KEYS);
        stepped_turns(&world->stepped, 50);
        assert_int_equal(world->stepped.network.message_count, 0);
        teardown(world);
        free(world);
    }
}

/* Some turns after it has sent a long push its connection is gone: what had begun is finished, the
 * client finds out what, and what was left in its place is given back when nobody reads it. */
CASE(server_push__outlives_the_connection_of_its_values)
{
    for (uint64_t id = 1; id <= 40; id++) {
        make_push(world, SL_REQUEST_PUSH, STEPPED_KEYS);
        stepped_send(&world->path, id, STEPPED_BUDGET);
        stepped_turns(&world->stepped, (uint32_t)id % 20);
        stepped_break(&world->path);
        assert_int_equal(stepped_again(&world->path)->kind, SL_MESSAGE_WELCOME);
        stepped_send(&world->path, id, STEPPED_BUDGET);
        stepped_expect_ok(&world->path, id);
        assert_true(stepped_values(&world->stepped, SPARSE, STEPPED_KEYS) == (float)id);
        assert_int_equal(world->stepped.network.message_count, 0);
    }
}

/* The server may end while it reads. */
SL_CASE(server_destroy__forgets_what_is_in_its_place)
{
    for (uint32_t turns = 0; turns < 24; turns += 3) {
        struct world *world = calloc(1, sizeof *world);
        setup(world, 1 + turns);
        make_push(world, SL_REQUEST_PUSH, STEPPED_KEYS);
        stepped_send(&world->path, 1, STEPPED_BUDGET);
        stepped_turns(&world->stepped, turns);
        teardown(world);
        free(world);
    }
}

/* Replies, however they are made, are sent from where the peer can read them. */
CASE(server_reply__is_copied_by_nobody)
{
    const uint32_t counts[] = {1000, 5000, 30000, 100000, ELEMENTS};
    make_dense(world, SL_REQUEST_DENSE_PUSH, ELEMENTS);
    stepped_send(&world->path, 1, STEPPED_BUDGET);
    stepped_expect_ok(&world->path, 1);
    stepped_turns(&world->stepped, 20);
    const uint64_t copied = stepped_stats(world->stepped.server->host->transports.shm).copied_bytes;
    uint64_t id = 2;
    for (uint32_t i = 0; i < sizeof counts / sizeof counts[0]; i++, id++) {
        make_dense(world, SL_REQUEST_DENSE_PULL, counts[i]);
        stepped_send(&world->path, id, STEPPED_BUDGET);
        stepped_expect_ok(&world->path, id);
    }
    expect_values(world, (const float *)(const void *)world->path.sink, 1);
    stepped_turns(&world->stepped, 20);
    assert_int_equal(stepped_stats(world->stepped.server->host->transports.shm).copied_bytes,
                     copied);
}

static void pull_to_reply_buffer(struct world *world, uint64_t id, uint8_t op, uint32_t count,
                                 uint32_t reply_buffer_bytes)
{
    make_dense(world, op, count);
    sl_outbox_set_reply_buffer(&world->stepped.outbox, world->reply_buffer, reply_buffer_bytes);
    stepped_send(&world->path, id, STEPPED_BUDGET);
}

CASE(server_reply__is_made_where_it_shall_lie)
{
    const uint32_t counts[] = {6000, 30000, 100000, ELEMENTS};
    make_dense(world, SL_REQUEST_DENSE_PUSH, ELEMENTS);
    stepped_send(&world->path, 1, STEPPED_BUDGET);
    stepped_expect_ok(&world->path, 1);
    stepped_turns(&world->stepped, 20);
    const uint64_t copied = stepped_stats(world->stepped.server->host->transports.shm).copied_bytes;
    uint64_t id = 2;
    for (uint32_t i = 0; i < sizeof counts / sizeof counts[0]; i++, id++) {
        const uint32_t bytes = counts[i] * (uint32_t)sizeof(float);
        memset(world->reply_buffer, 0xff, sizeof world->reply_buffer);
        pull_to_reply_buffer(world, id, SL_REQUEST_DENSE_PULL, counts[i], bytes);
        stepped_expect_ok(&world->path, id);
        assert_int_equal(stepped_reply(&world->path, id)->bytes, bytes);
        assert_memory_equal(world->reply_buffer, world->values, bytes);
        assert_memory_equal(world->path.sink, world->values, bytes);
    }
    stepped_turns(&world->stepped, 20);
    assert_int_equal(stepped_stats(world->stepped.server->host->transports.shm).copied_bytes,
                     copied);
    assert_int_equal(world->stepped.server->host->memory.buffers.used_bytes, 0);
    assert_int_equal(world->stepped.server->host->memory.shm_buffers.used_bytes, 0);
}

CASE(server_reply__lies_elsewhere_when_the_reply_buffer_is_of_another_size)
{
    memset(world->reply_buffer, 0xff, sizeof world->reply_buffer);
    for (uint64_t id = 1; id <= 2; id++) {
        pull_to_reply_buffer(world, id, SL_REQUEST_DENSE_PULL, 20000, id == 1 ? 80008 : 79992);
        stepped_expect_ok(&world->path, id);
        assert_int_equal(stepped_reply(&world->path, id)->bytes, 20000 * sizeof(float));
        assert_true(world->reply_buffer[0] != world->reply_buffer[0]); /* not a number still */
    }
}

/* The reply buffer is lost with its connection, wherever the answer was; the buffer of the next
 * connection gets the whole answer, also the part that had been computed. */
CASE(server_reply__is_whole_after_its_reply_buffer_was_taken_off)
{
    const uint32_t floats = STEPPED_KEYS * STEPPED_DIM;
    for (uint64_t id = 1; id <= 60; id++) {
        make_push(world, SL_REQUEST_PUSH_PULL, STEPPED_KEYS);
        sl_outbox_set_reply_buffer(&world->stepped.outbox, world->reply_buffer,
                                   floats * sizeof(float));
        stepped_send(&world->path, id, STEPPED_BUDGET);
        stepped_turns(&world->stepped, (uint32_t)id);
        assert_int_equal(stepped_again(&world->path)->kind, SL_MESSAGE_WELCOME);
        memset(world->reply_buffer, 0xff, sizeof world->reply_buffer);
        stepped_send(&world->path, id, STEPPED_BUDGET);
        stepped_expect_ok(&world->path, id);
        const float *rows = (const float *)(const void *)world->path.sink;
        for (uint32_t i = 0; i < floats; i++) {
            assert_true(rows[i] == (float)id);
        }
    }
}

/* Likewise of one that comes later. */
CASE(server_reply__is_whole_after_its_reply_buffer_was_lost)
{
    for (uint64_t id = 1; id <= 60; id++) {
        pull_to_reply_buffer(world, id, SL_REQUEST_DENSE_PUSH_PULL, ELEMENTS,
                             sizeof world->reply_buffer);
        stepped_turns(&world->stepped, (uint32_t)id % 30);
        stepped_break(&world->path);
        memset(world->reply_buffer, 0xff, sizeof world->reply_buffer);
        assert_int_equal(stepped_again(&world->path)->kind, SL_MESSAGE_WELCOME);
        stepped_send(&world->path, id, STEPPED_BUDGET);
        stepped_expect_ok(&world->path, id);
        expect_values(world, (const float *)(const void *)world->path.sink, (float)id);
        assert_int_equal(world->stepped.network.message_count, 0);
    }
}
