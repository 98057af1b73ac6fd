/* What is sent arrives: whole, in order, in the right memory, at the pace of the slower side. */
#include "conformance.h"

#include <unistd.h>

#include "core/hash.h"

#define RANDOM_FRAMES     24
#define MANY_CONNECTIONS  200
#define HOLD_BUFFERS      16
#define HOLD_BUFFER_BYTES 4096

/* A peer is not given up while the machine gives its thread no processor: then the test waits. */
static const struct sl_transport_options patient = {.peer_timeout_ms = 8 * WAIT_S * 1000};

static void set_echo(struct node *node, void *ctx)
{
    node->policy.echo = true;
}

static void set_hold(struct node *node, void *ctx)
{
    node->policy.hold = *(bool *)ctx;
}

static void set_refuse_sink(struct node *node, void *ctx)
{
    node->policy.refuse_sink = *(bool *)ctx;
}

static struct world *open_echo(const struct sl_transport_options *options)
{
    struct world *world = world_open(2, options);
    node_run(&world->nodes[0], set_echo, NULL);
    return world;
}

static void echo_and_wait(struct world *world, const uint32_t *sizes, uint32_t count)
{
    struct peer *peer = peer_connect(&world->nodes[1], &world->nodes[0].bound);
    peer_send_from_test(peer, sizes, count);
    WAIT_UNTIL(peer->received == count);
    WAIT_UNTIL(peer->sent == count);
    assert_int_equal(peer->taken, count);
    const bool sends_now =
        conformance_target->ops->send_now != NULL && conformance_target->tls == NULL;
    assert_int_equal(peer->sent_now > 0, sends_now);
}

WORLD_CASE(echo__every_small_size, open_echo(&patient))
{
    uint32_t sizes[200];
    for (uint32_t i = 0; i < 200; i++) {
        sizes[i] = i;
    }
    echo_and_wait(world, sizes, 200);
}

WORLD_CASE(echo__sizes_up_to_64_kib, open_echo(&patient))
{
    uint32_t sizes[160], count = 0;
    for (uint32_t bytes = 0; bytes <= 64U << 10; bytes += 509) {
        sizes[count++] = bytes;
    }
    static const uint32_t edges[] = {SL_LIMIT_INLINE_PAYLOAD_BYTES - 1,
                                     SL_LIMIT_INLINE_PAYLOAD_BYTES,
                                     SL_LIMIT_INLINE_PAYLOAD_BYTES + 1,
                                     (32U << 10) - SL_FRAME_HEADER_BYTES,
                                     32U << 10,
                                     64U << 10};
    for (size_t i = 0; i < sizeof edges / sizeof edges[0]; i++) {
        sizes[count++] = edges[i];
    }
    echo_and_wait(world, sizes, count);
}

/* Receive buffers so small that nearly every frame lies across several. */
WORLD_CASE(echo__tiny_buffers,
           open_echo(&(struct sl_transport_options){.buffer_count = 8, .buffer_bytes = 192}))
{
    uint32_t sizes[64];
    for (uint32_t i = 0; i < 64; i++) {
        sizes[i] = i * 37 % 3001;
    }
    sizes[63] = 40000;
    echo_and_wait(world, sizes, 64);
}

static void fill_random(uint64_t *seed, uint32_t *sizes, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        uint64_t random = sl_hash_random(seed);
        uint32_t limit = random % 4 == 0 ? SL_LIMIT_FRAME_PAYLOAD_BYTES : 100000;
        sizes[i] = (uint32_t)(random >> 8) % (limit + 1);
    }
    sizes[count - 1] = SL_LIMIT_FRAME_PAYLOAD_BYTES;
}

WORLD_CASE(transfer__random_sizes_both_directions, world_open(2, &patient))
{
    struct peer *client = peer_connect(&world->nodes[1], &world->nodes[0].bound);
    struct peer *server = node_peer(&world->nodes[0], 0);
    uint64_t seed = 4711;
    uint32_t up[RANDOM_FRAMES], down[RANDOM_FRAMES];
    const uint32_t frames = many(RANDOM_FRAMES, RANDOM_FRAMES / 3);
    fill_random(&seed, up, frames);
    fill_random(&seed, down, frames);
    peer_send_from_test(client, up, frames);
    peer_send_from_test(server, down, frames);
    WAIT_UNTIL(client->received == frames && server->received == frames);
}

WORLD_CASE(echo__many_connections, open_echo(&patient))
{
    struct peer *peers[MANY_CONNECTIONS];
    uint32_t sizes[] = {0, 8, 64, 1000, 5000};
    const uint32_t count = many(MANY_CONNECTIONS, MANY_CONNECTIONS / 5);
    for (uint32_t i = 0; i < count; i++) {
        peers[i] = peer_connect(&world->nodes[1], &world->nodes[0].bound);
        peer_send_from_test(peers[i], sizes, 5);
    }
    for (uint32_t i = 0; i < count; i++) {
        WAIT_UNTIL(peers[i]->received == 5);
    }
    assert_int_equal(world->nodes[0].open_count, count);
}

/* The connection whose frame nobody has memory for waits; another one does not; and the reactor
 * sleeps meanwhile, if it may. */
WORLD_CASE(sink__refused_then_given, open_echo(NULL))
{
    struct node *server = &world->nodes[0];
    bool refuse = true;
    node_run(server, set_refuse_sink, &refuse);
    struct peer *longs = peer_connect(&world->nodes[1], &server->bound);
    uint32_t long_sizes[] = {100, 300000, 50, 20000, 7};
    peer_send_from_test(longs, long_sizes, 5);
    WAIT_UNTIL(server->sink_asked >= 1);
    struct peer *shorts = peer_connect(&world->nodes[1], &server->bound);
    uint32_t short_sizes[] = {1, 2, 3};
    peer_send_from_test(shorts, short_sizes, 3);
    WAIT_UNTIL(shorts->received == 3);
    WAIT_UNTIL(longs->received >= 1); /* a lossy medium may be later with it */
    assert_int_equal(longs->received, 1);
    struct sl_reactor_stats before, after;
    const uint64_t begun_ns = sl_clock_now_ns(sl_clock_system());
    sl_reactor_get_stats(server->reactor, &before);
    usleep(100000);
    sl_reactor_get_stats(server->reactor, &after);
    const uint64_t slept_ms = (sl_clock_now_ns(sl_clock_system()) - begun_ns) / SL_CLOCK_NS_PER_MS;
    if (!conformance_target->polling) {
        assert_true(after.turns - before.turns < 20 * slept_ms);
    }
    refuse = false;
    node_run(server, set_refuse_sink, &refuse);
    WAIT_UNTIL(longs->received == 5);
    assert_int_equal(server->long_received, 2);
}

static void set_sink_offset(struct node *node, void *ctx)
{
    node->policy.sink_offset = *(uint32_t *)ctx;
}

/* Long payloads are received at any address, in memory that the transport knows and in other. */
WORLD_CASE(sink__at_any_address, open_echo(NULL))
{
    static const uint32_t sizes[] = {
        SL_LIMIT_INLINE_PAYLOAD_BYTES + 1, 20001, 65536, 100003, 300000, 1U << 20};
    for (uint32_t i = 0; i < 8; i++) {
        uint32_t offset = (3 * i + 1) % 8;
        node_run(&world->nodes[0], set_sink_offset, &offset);
        node_run(&world->nodes[1], set_sink_offset, &offset);
        struct peer *peer = peer_connect(&world->nodes[1], &world->nodes[0].bound);
        peer_send_from_test(peer, sizes, 6);
        WAIT_UNTIL(peer->received == 6);
    }
}

/* Many connections wait for memory, with more received than there are buffers. */
WORLD_CASE(sink__refused_on_many_connections,
           open_echo(&(struct sl_transport_options){.buffer_count = 8, .buffer_bytes = 4096}))
{
    bool refuse = true;
    node_run(&world->nodes[0], set_refuse_sink, &refuse);
    struct peer *peers[20];
    uint32_t sizes[] = {3000, 60000, 10, 35000, 16000};
    const uint32_t count = many(20, 10);
    for (uint32_t i = 0; i < count; i++) {
        peers[i] = peer_connect(&world->nodes[1], &world->nodes[0].bound);
        peer_send_from_test(peers[i], sizes, 5);
    }
    WAIT_UNTIL(world->nodes[0].sink_asked >= 1);
    refuse = false;
    node_run(&world->nodes[0], set_refuse_sink, &refuse);
    for (uint32_t i = 0; i < count; i++) {
        WAIT_UNTIL(peers[i]->received == 5);
    }
}

/* More connections wait for memory than there are receive buffers. A connection that came before
 * them, and one that comes after them, are served meanwhile. */
SL_CASE(sink__refused_to_many_leaves_short_frames_alone)
{
    enum { BUFFERS = 32, CONNECTIONS = 48, FEW = 12 };
    /* Over packets only what has a place to wait is known: half of what the device lends. */
    const bool is_packets = conformance_target->is_lossy || conformance_target->medium_open != NULL;
    const uint32_t count = is_packets ? FEW : many(CONNECTIONS, FEW);
    struct sl_transport_options options = {.buffer_count = count > BUFFERS ? BUFFERS : 0};
    struct world *world = open_echo(&options);
    struct node *server = &world->nodes[0], *client = &world->nodes[1];
    struct peer *peers[CONNECTIONS];
    uint32_t long_bytes = 300000, short_bytes[] = {64, 0, 9000};
    struct peer *early = peer_connect(client, &server->bound);
    (void)node_peer(server, 0);
    bool refuse = true;
    node_run(server, set_refuse_sink, &refuse);
    for (uint32_t i = 0; i < count; i++) {
        peers[i] = peer_connect(client, &server->bound);
        peer_send_from_test(peers[i], &long_bytes, 1);
    }
    for (uint32_t i = 1; i <= count; i++) {
        WAIT_UNTIL(node_peer(server, i)->sink_refused);
    }
    struct peer *late = peer_connect(client, &server->bound);
    for (uint32_t i = 1; i <= 20; i++) {
        peer_send_from_test(early, short_bytes, 3);
        peer_send_from_test(late, short_bytes, 3);
        WAIT_UNTIL(early->received == 3 * i);
        WAIT_UNTIL(late->received == 3 * i);
    }
    refuse = false;
    node_run(server, set_refuse_sink, &refuse);
    for (uint32_t i = 0; i < count; i++) {
        WAIT_UNTIL(peers[i]->received == 1);
    }
    world_close(world);
}

/* A receiver that takes nothing: the sender's queue fills, and stays within its limit; then all
 * goes on where it stopped. */
WORLD_CASE(send_burst__short_then_writable, world_open(2, NULL))
{
    enum { FRAMES = 2500 };
    static uint32_t sizes[FRAMES];
    const uint32_t frames = many(FRAMES, FRAMES / 2);
    struct node *server = &world->nodes[0];
    bool refuse = true;
    node_run(server, set_refuse_sink, &refuse);
    struct peer *peer = peer_connect(&world->nodes[1], &server->bound);
    for (uint32_t i = 0; i < frames; i++) {
        sizes[i] = i % 2 == 0 ? 17000 : 24;
    }
    peer_send_from_test(peer, sizes, frames);
    WAIT_UNTIL(peer->shorts > 0);
    WAIT_UNTIL(server->sink_asked >= 1);
    assert_true(peer->taken < frames);
    refuse = false;
    node_run(server, set_refuse_sink, &refuse);
    WAIT_UNTIL(node_peer(server, 0)->received == frames);
    WAIT_UNTIL(peer->sent == frames);
    assert_true(peer->writables > 0);
}

static void release_strided(struct node *node, void *ctx)
{
    uint32_t stride = *(uint32_t *)ctx;
    for (uint32_t i = 0; i < node->peer_count; i++) {
        peer_release_held(node->peers[i], stride);
    }
}

WORLD_CASE(release__late_and_out_of_order, open_echo(NULL))
{
    struct node *server = &world->nodes[0];
    bool hold = true;
    node_run(server, set_hold, &hold);
    struct peer *peer = peer_connect(&world->nodes[1], &server->bound);
    uint32_t sizes[100];
    for (uint32_t i = 0; i < 100; i++) {
        sizes[i] = i * 13;
    }
    for (uint32_t round = 1; round <= 4; round++) {
        peer_send_from_test(peer, sizes, 100);
        WAIT_UNTIL(peer->received == round * 100);
        node_run(server, release_strided, &round);
    }
}

/* All buffers are held by messages: everybody waits, nothing is lost, nobody spins. */
WORLD_CASE(release__after_all_buffers_were_held,
           open_echo(&(struct sl_transport_options){.buffer_count = HOLD_BUFFERS,
                                                    .buffer_bytes = HOLD_BUFFER_BYTES}))
{
    struct node *server = &world->nodes[0];
    bool hold = true;
    node_run(server, set_hold, &hold);
    struct peer *peers[3 * HOLD_BUFFERS];
    uint32_t size = 64;
    for (uint32_t i = 0; i < 3 * HOLD_BUFFERS; i++) {
        peers[i] = peer_connect(&world->nodes[1], &server->bound);
        WAIT_UNTIL(peers[i]->open || peers[i]->closed);
        assert_string_equal(sl_err_name(peers[i]->close_err), sl_err_name(0));
        peer_send_from_test(peers[i], &size, 1);
    }
    for (uint32_t i = 0; i < HOLD_BUFFERS / 2; i++) {
        WAIT_UNTIL(peers[i]->received == 1);
    }
    hold = false;
    node_run(server, set_hold, &hold);
    uint32_t stride = 1;
    node_run(server, release_strided, &stride);
    for (uint32_t i = 0; i < 3 * HOLD_BUFFERS; i++) {
        WAIT_UNTIL(peers[i]->received == 1);
    }
}

/* Releases what a node holds in the last step of a turn that did nothing, after the transport's:
 * what follows is that the reactor asks whether it may sleep. */
struct late_releaser {
    struct sl_reactor_source source;
    struct node *node;
    bool due, asked;
};

static uint32_t no_work(struct sl_reactor_source *source, uint32_t budget)
{
    return 0;
}

static void release_in_flush(struct sl_reactor_source *source)
{
    struct late_releaser *releaser = (struct late_releaser *)source;
    if (releaser->due && (releaser->asked || conformance_target->polling)) {
        releaser->due = false;
        uint32_t stride = 1;
        release_strided(releaser->node, &stride);
    }
}

/* Asks for one more turn, which finds nothing to do. */
static bool arm_releaser(struct sl_reactor_source *source)
{
    struct late_releaser *releaser = (struct late_releaser *)source;
    bool first = releaser->due && !releaser->asked;
    releaser->asked = releaser->due;
    return !first;
}

static void add_releaser(struct node *node, void *ctx)
{
    struct late_releaser *releaser = ctx;
    releaser->node = node;
    sl_reactor_add_source(node->reactor, &releaser->source);
}

static void make_release_due(struct node *node, void *ctx)
{
    struct late_releaser *releaser = ctx;
    node->policy.hold = false;
    releaser->due = true;
}

static void remove_releaser(struct node *node, void *ctx)
{
    struct late_releaser *releaser = ctx;
    sl_reactor_remove_source(node->reactor, &releaser->source);
}

/* Those that wait for a buffer are served though nothing else would wake the reactor. */
SL_CASE(release__as_the_last_thing_in_a_turn)
{
    /* A timeout so long that no sweep wakes the reactor either. */
    struct sl_transport_options options = {.buffer_count = HOLD_BUFFERS,
                                           .buffer_bytes = HOLD_BUFFER_BYTES,
                                           .peer_timeout_ms = 8 * WAIT_S * 1000};
    struct world *world = open_echo(&options);
    struct node *server = &world->nodes[0];
    struct late_releaser releaser = {
        .source = {
            .name = "releaser", .poll = no_work, .flush = release_in_flush, .arm = arm_releaser}};
    node_run(server, add_releaser, &releaser);
    bool hold = true;
    node_run(server, set_hold, &hold);
    struct peer *peers[2 * HOLD_BUFFERS];
    uint32_t size = 64;
    for (uint32_t i = 0; i < 2 * HOLD_BUFFERS; i++) {
        peers[i] = peer_connect(&world->nodes[1], &server->bound);
        WAIT_UNTIL(peers[i]->open);
        peer_send_from_test(peers[i], &size, 1);
    }
    for (uint32_t i = 0; i < HOLD_BUFFERS / 2; i++) {
        WAIT_UNTIL(peers[i]->received == 1);
    }
    usleep(20000); /* nothing more is going to happen, and the reactor sleeps */
    node_run(server, make_release_due, &releaser);
    for (uint32_t i = 0; i < 2 * HOLD_BUFFERS; i++) {
        WAIT_UNTIL(peers[i]->received == 1);
    }
    node_run(server, remove_releaser, &releaser);
    world_close(world);
}

/* A message may be read, and be released, after its connection's end. */
WORLD_CASE(release__after_closed, world_open(2, NULL))
{
    struct node *server = &world->nodes[0];
    bool hold = true;
    node_run(server, set_hold, &hold);
    struct peer *peer = peer_connect(&world->nodes[1], &server->bound);
    uint32_t sizes[] = {100, 15000, 15001, 8, 16000, 77};
    peer_send_from_test(peer, sizes, 6);
    struct peer *accepted = node_peer(server, 0);
    WAIT_UNTIL(accepted->received == 6);
    peer_disconnect_from_test(peer);
    WAIT_UNTIL(accepted->closed == 1);
    struct peer *next = peer_connect(&world->nodes[1], &server->bound);
    peer_send_from_test(next, sizes, 6);
    WAIT_UNTIL(node_peer(server, 1)->received == 6);
    uint32_t stride = 2;
    node_run(server, release_strided, &stride);
}

/* Nothing but the transport's own wake-ups makes these go round: the test only looks. */
WORLD_CASE(wake__from_sleep, open_echo(NULL))
{
    struct peer *peer = peer_connect(&world->nodes[1], &world->nodes[0].bound);
    uint32_t sizes[] = {64};
    for (uint32_t i = 1; i <= 10; i++) {
        peer_send_from_test(peer, sizes, 1);
        WAIT_UNTIL(peer->received == i);
        usleep(3000);
    }
    if (!conformance_target->polling) {
        struct sl_reactor_stats stats;
        sl_reactor_get_stats(world->nodes[0].reactor, &stats);
        assert_true(stats.sleeps > 0);
    }
}

static void read_stats(struct node *node, void *ctx)
{
    sl_transport_get_stats(node->transport, ctx);
}

WORLD_CASE(stats__count_what_travelled, open_echo(NULL))
{
    uint32_t sizes[] = {0, 100, 30000};
    echo_and_wait(world, sizes, 3);
    struct sl_transport_stats client, server;
    node_run(&world->nodes[1], read_stats, &client);
    node_run(&world->nodes[0], read_stats, &server);
    uint64_t bytes = 3 * SL_FRAME_HEADER_BYTES + 30100;
    assert_int_equal(client.bytes_sent, bytes);
    assert_int_equal(client.bytes_received, bytes);
    assert_int_equal(server.bytes_received, bytes);
    assert_int_equal(client.frames_sent, 3);
    assert_int_equal(server.frames_received, 3);
    assert_int_equal(server.connections, 1);
}

const char conformance_transfer_cases;
