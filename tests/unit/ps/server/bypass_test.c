/* The server over three transports, of which one has a device that fetches and delivers by itself:
 * what RDMA asks of a server, without RDMA. */

#include <stdlib.h>
#include <string.h>

#include "ps/server/state.h"
#include "stepped.h"
#include "tests/support/unit.h"

#define SPARSE   0
#define DENSE    3
#define ELEMENTS ((SL_LIMIT_FRAME_PAYLOAD_BYTES - 64) / 4 / 8 * 8) /* what one push can carry */

struct world {
    struct stepped stepped;
    struct stepped_peer bypass, path, far;
    float values[ELEMENTS];
    _Alignas(64) float reply_buffer[ELEMENTS];
};

/* What the peers' device reads and writes, unless there is no memory to register it. */
static void register_peer(struct world *world)
{
    struct sl_transport *transport = world->stepped.bypass;
    struct sl_outbox *outbox = &world->stepped.outbox;
    const int err = world->stepped.network.registers_nothing ? SL_ERR_NO_MEMORY : 0;
    assert_int_equal(sl_outbox_register(outbox, transport), err);
    assert_int_equal(
        sl_transport_memory_register(transport, world->reply_buffer, sizeof world->reply_buffer),
        err);
    assert_int_equal(
        sl_transport_memory_register(transport, world->bypass.sink, sizeof world->bypass.sink),
        err);
}

static void setup(struct world *world, uint64_t seed, bool registers_nothing)
{
    world->stepped.options.transports.shm = registers_nothing ? NULL : &sl_loop_shared_ops;
    world->stepped.options.transports.bypass = &sl_loop_device_ops;
    world->stepped.options.transports.needs_bypass = true;
    world->stepped.registers_nothing = registers_nothing;
    stepped_start(&world->stepped, seed);
    register_peer(world);
    world->bypass.bypass = true;
    world->path.path = !registers_nothing; /* which cannot do without */
    stepped_join(&world->far, &world->stepped, UINT32_MAX, 31);
    stepped_join(&world->path, &world->stepped, UINT32_MAX, 32);
    stepped_join(&world->bypass, &world->stepped, UINT32_MAX, 33);
    stepped_open_table(&world->far, SPARSE, SL_CONSISTENCY_ASP);
    stepped_open_spec(
        &world->far, DENSE,
        (struct sl_table_spec){.name = "dense", .kind = SL_TABLE_DENSE, .length = ELEMENTS});
    for (uint32_t i = 0; i < ELEMENTS; i++) {
        world->values[i] = (float)(i % 4096);
    }
}

static void teardown(struct world *world)
{
    stepped_stop(&world->stepped);
}

static void send_dense(struct world *world, uint64_t id, uint8_t op, uint32_t count)
{
    struct shard_request *request = &world->stepped.request;
    shard_request_begin(request, 0);
    shard_request_dense(request, op, DENSE, 0, count,
                        op == SL_REQUEST_DENSE_PULL ? NULL : world->values);
    stepped_send(&world->bypass, id, STEPPED_BUDGET);
}

static void send_to_reply_buffer(struct world *world, uint64_t id, uint8_t op, uint32_t count)
{
    memset(world->reply_buffer, 0xff, sizeof world->reply_buffer);
    world->bypass.reply_buffer = world->reply_buffer;
    sl_outbox_set_reply_buffer(&world->stepped.outbox, world->reply_buffer,
                               sizeof world->reply_buffer);
    send_dense(world, id, op, count);
}

static void expect_landed(const struct world *world, uint32_t count, float times)
{
    for (uint32_t i = 0; i < count; i++) {
        assert_true(world->reply_buffer[i] == times * world->values[i]);
    }
}

static uint64_t copied_bytes(const struct world *world)
{
    return stepped_stats(world->stepped.bypass).copied_bytes +
           stepped_stats(world->stepped.server->host->transports.bypass).copied_bytes;
}

#define CASE(name) SL_CASE_USING(name, struct world, world, setup, teardown, 11, false)

CASE(server_bypass__serves_all_transports)
{
    struct stepped_peer *const peers[] = {&world->bypass, &world->path, &world->far};
    for (uint32_t i = 0; i < 3; i++) {
        stepped_push(peers[i], 1, SPARSE, 10);
        stepped_expect_ok(peers[i], 1);
    }
    for (uint32_t i = 0; i < 3; i++) {
        stepped_pull(peers[i], 2, 0, SPARSE);
        assert_true(stepped_reply(peers[i], 2)->value == 3);
    }
    const struct sl_server *server = world->stepped.server;
    struct sl_message answer = {.kind = SL_MESSAGE_STATS};
    assert_int_equal(sl_server_stats(server, &answer.stats), 0);
    assert_int_equal(answer.stats.requests, 6);
    assert_int_equal(answer.stats.bytes_in,
                     stepped_stats(server->host->transports.first).bytes_received +
                         stepped_stats(server->host->transports.shm).bytes_received +
                         stepped_stats(server->host->transports.bypass).bytes_received);
    assert_int_equal(answer.stats.bytes_out,
                     stepped_stats(server->host->transports.first).bytes_sent +
                         stepped_stats(server->host->transports.shm).bytes_sent +
                         stepped_stats(server->host->transports.bypass).bytes_sent);
    sl_message_fini(&answer);
}

TWO_CASE(server_listen__needs_the_transport)
{
    struct sl_endpoint endpoint = {.scheme = SL_ENDPOINT_RDMA, .host = "127.0.0.1"}, bound;
    struct sl_server *server = world->stepped.server;
    assert_false(sl_server_has_bypass(server));
    assert_int_equal(sl_server_listen(server, &endpoint, &bound), SL_ERR_UNSUPPORTED);
    endpoint.scheme = SL_ENDPOINT_SHM;
    assert_int_equal(sl_server_listen(server, &endpoint, &bound), SL_ERR_UNSUPPORTED);
}

static int open_nothing(struct sl_reactor *reactor, const struct sl_transport_options *options,
                        struct sl_transport **out)
{
    return SL_ERR_NOT_FOUND;
}

TWO_CASE(server_create__does_without_a_bypass_transport_that_is_not_needed)
{
    struct sl_transport_ops broken = sl_loop_device_ops;
    broken.open = open_nothing;
    struct sl_server_options options = world->stepped.server->options;
    options.transports.bypass = &broken;
    struct sl_server *server;
    assert_int_equal(sl_server_create(&options, &server), 0);
    assert_false(sl_server_has_bypass(server));
    sl_server_destroy(&server);
    options.transports.needs_bypass = true;
    assert_int_equal(sl_server_create(&options, &server), SL_ERR_NOT_FOUND);
}

/* A second shard, on the other reactor, gets the connections that name it: each keeps its kind. A
 * connection through the device has to be to the shard's own reactor. */
CASE(server_migrate__keeps_the_kind_of_the_connection)
{
    struct sl_server *first = world->stepped.server;
    struct sl_server *servers[2] = {first};
    struct sl_server_options options = first->options;
    options.reactor = world->stepped.pair.b.reactor;
    options.servers = servers;
    options.server_count = 2;
    options.local_index = 1;
    assert_int_equal(sl_server_create(&options, &servers[1]), 0);
    assert_int_equal(sl_server_set_shard(servers[1], 1, 2), 0);
    first->options.servers = servers;
    first->options.server_count = 2;
    struct stepped_peer *const peers[] = {&world->path, &world->far};
    struct sl_transport *const kinds[] = {servers[1]->host->transports.shm,
                                          servers[1]->host->transports.first};
    for (uint32_t i = 0; i < 2; i++) {
        peers[i]->hello.shard = peers[i]->shard = 1;
        const struct sl_message *welcome = stepped_again(peers[i]);
        assert_int_equal(welcome->kind, SL_MESSAGE_WELCOME);
        assert_int_equal(welcome->welcome.shard, 1);
        assert_int_equal(servers[1]->host->conn_count, i + 1);
        assert_ptr_equal(sl_server_conn_of(servers[1]->host->conns.head.next)->conn->transport,
                         kinds[i]);
        assert_int_equal(sl_server_conn_of(servers[1]->host->conns.head.next)->uses_shm,
                         peers[i]->path);
    }
    world->bypass.hello.shard = 1;
    const struct sl_message *refusal = stepped_again(&world->bypass);
    assert_int_equal(refusal->kind, SL_MESSAGE_ERROR);
    assert_int_equal(refusal->error.err, SL_ERR_REFUSED);
    assert_int_equal(servers[1]->host->conn_count, 2);
    first->options.server_count = 1;
    first->options.servers = &world->stepped.server;
    sl_server_destroy(&servers[1]);
}

/* However a reply is made, and whatever a request pushes: the device fetches the one from where it
 * was made, and delivers the other where it waits. */
CASE(server_bypass__copies_nothing_that_is_long)
{
    const uint32_t counts[] = {5000, 30000, 100000, 250000, ELEMENTS};
    uint64_t id = 1;
    for (uint32_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        send_dense(world, id, SL_REQUEST_DENSE_PUSH, counts[i]);
        stepped_expect_ok(&world->bypass, id++);
        send_dense(world, id, SL_REQUEST_DENSE_PULL, counts[i]);
        stepped_expect_ok(&world->bypass, id);
        assert_int_equal(stepped_reply(&world->bypass, id++)->bytes, counts[i] * sizeof(float));
    }
    stepped_push(&world->bypass, id, SPARSE, STEPPED_KEYS);
    stepped_expect_ok(&world->bypass, id++);
    stepped_pull(&world->bypass, id, 0, SPARSE);
    stepped_expect_ok(&world->bypass, id++);
    stepped_turns(&world->stepped, 20);
    assert_int_equal(world->bypass.reply_count, id - 1);
    assert_int_equal(world->stepped.network.in_place_count, 0);
    assert_int_equal(copied_bytes(world), 0);
    assert_int_equal(world->stepped.server->host->memory.buffers.used_bytes, 0);
}

/* It is slower, and no more than that. */
SL_CASE_USING(server_bypass__works_with_memory_that_is_not_registered, struct world, world, setup,
              teardown, 12, true)
{
    send_dense(world, 1, SL_REQUEST_DENSE_PUSH, ELEMENTS);
    stepped_expect_ok(&world->bypass, 1);
    send_to_reply_buffer(world, 2, SL_REQUEST_DENSE_PULL, ELEMENTS);
    stepped_expect_ok(&world->bypass, 2);
    expect_landed(world, ELEMENTS, 1);
    assert_true(copied_bytes(world) >= 2 * ELEMENTS * sizeof(float));
}

/* One frame with the request's id answers it, so that the device knows what to write where; long
 * ones in parts are for streams of bytes. */
CASE(server_reply__of_any_size_is_one_frame_to_its_reply_buffer)
{
    const uint32_t counts[] = {5000, 30000, 100000, 250000, ELEMENTS};
    send_dense(world, 1, SL_REQUEST_DENSE_PUSH, ELEMENTS);
    stepped_expect_ok(&world->bypass, 1);
    uint64_t id = 2;
    for (uint32_t i = 0; i < sizeof counts / sizeof counts[0]; i++, id++) {
        const uint64_t frames =
            stepped_stats(world->stepped.server->host->transports.bypass).frames_sent;
        send_to_reply_buffer(world, id, SL_REQUEST_DENSE_PULL, counts[i]);
        stepped_expect_ok(&world->bypass, id);
        assert_int_equal(stepped_stats(world->stepped.server->host->transports.bypass).frames_sent,
                         frames + 1);
        assert_int_equal(stepped_reply(&world->bypass, id)->bytes, counts[i] * sizeof(float));
        assert_int_equal(world->stepped.network.landed_count, i + 1);
        expect_landed(world, counts[i], 1);
    }
    send_to_reply_buffer(world, id, SL_REQUEST_DENSE_PUSH_PULL, ELEMENTS);
    stepped_expect_ok(&world->bypass, id);
    expect_landed(world, ELEMENTS, 2);
    stepped_turns(&world->stepped, 50);
    assert_int_equal(world->bypass.reply_count, id);
    assert_int_equal(copied_bytes(world), 0);
}

/* Small pulls that arrive together are answered in one piece of several frames. Their reply buffers
 * are given back though nothing is written there: the device remembers no more than a few. */
CASE(server_pulls__of_one_run_are_answered_each)
{
    struct stepped *stepped = &world->stepped;
    const uint64_t count = 400;
    stepped_push(&world->bypass, 1, SPARSE, 10);
    stepped_expect_ok(&world->bypass, 1);
    const uint64_t frames = stepped_stats(stepped->server->host->transports.bypass).frames_sent;
    for (uint64_t id = 2; id <= count; id++) {
        shard_request_begin(&stepped->request, 0);
        shard_request_pull(&stepped->request, SPARSE, stepped->keys, 10);
        sl_outbox_set_reply_buffer(&stepped->outbox, world->reply_buffer,
                                   sizeof world->reply_buffer);
        stepped_send(&world->bypass, id, STEPPED_BUDGET);
        if (id % 8 == 0) {
            stepped_expect_ok(&world->bypass, id);
        }
    }
    stepped_expect_ok(&world->bypass, count);
    assert_int_equal(world->bypass.reply_count, count);
    assert_true(stepped_stats(stepped->server->host->transports.bypass).frames_sent - frames <
                count - 1);
    assert_int_equal(stepped->network.landed_count, 0);
}

/* What cannot be carried out is answered in words, which lie elsewhere. */
CASE(server_reply__of_an_error_leaves_the_reply_buffer_alone)
{
    struct stepped *stepped = &world->stepped;
    memset(world->reply_buffer, 0xff, sizeof world->reply_buffer);
    shard_request_begin(&stepped->request, 0);
    shard_request_dense(&stepped->request, SL_REQUEST_DENSE_PUSH_PULL, DENSE, 0, ELEMENTS,
                        world->values);
    sl_server_drain(stepped->server, 60 * SL_CLOCK_NS_PER_S, NULL, NULL);
    sl_outbox_set_reply_buffer(&stepped->outbox, world->reply_buffer, sizeof world->reply_buffer);
    stepped_send(&world->bypass, 1, STEPPED_BUDGET);
    assert_int_equal(stepped_reply(&world->bypass, 1)->status, SL_ERR_CANCELLED);
    assert_true(world->reply_buffer[0] != world->reply_buffer[0]); /* not a number still */
    assert_int_equal(stepped->network.landed_count, 0);
}

/* The reply buffer is lost with its connection; the whole answer goes to the buffer of the next
 * one. */
CASE(server_reply__is_whole_after_its_reply_buffer_was_lost)
{
    for (uint64_t id = 1; id <= 40; id++) {
        send_to_reply_buffer(world, id, SL_REQUEST_DENSE_PUSH_PULL, ELEMENTS);
        stepped_turns(&world->stepped, (uint32_t)id % 30);
        stepped_break(&world->bypass);
        assert_int_equal(stepped_again(&world->bypass)->kind, SL_MESSAGE_WELCOME);
        send_to_reply_buffer(world, id, SL_REQUEST_DENSE_PUSH_PULL, ELEMENTS);
        stepped_expect_ok(&world->bypass, id);
        expect_landed(world, ELEMENTS, (float)id);
        assert_int_equal(world->stepped.network.message_count, 0);
    }
}

SL_CASE(server_destroy__ends_what_a_device_has_begun)
{
    for (uint32_t turns = 0; turns < 24; turns += 3) {
        struct world *world = calloc(1, sizeof *world);
        setup(world, 1 + turns, false);
        send_to_reply_buffer(world, 1, SL_REQUEST_DENSE_PUSH_PULL, ELEMENTS);
        stepped_turns(&world->stepped, turns);
        teardown(world);
        free(world);
    }
}
