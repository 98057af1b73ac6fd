/* How much comes through, by a clock that the test moves: senders and one receiver on links of 10
 * Gbit/s, some of whose packets are lost, or whose queue at the receiver holds few. Nothing takes
 * processor time, so that the figures say what the protocol makes of the network, the same in every
 * run. DPDK_FLOW_PRINT shows them. */
#include <stdio.h>
#include <stdlib.h>

#include "core/hash.h"
#include "net/dpdk/dpdk.h"
#include "net/dpdk/state.h"
#include "tests/support/unit.h"
#include "tests/support/wire_port.h"

#define SENDERS_MAX 8U
#define BYTE_PS     800U /* 10 Gbit/s */
#define DELAY_NS    (5 * SL_CLOCK_NS_PER_US)
#define TURN_NS     SL_CLOCK_NS_PER_US /* between two turns of a reactor, at least */
#define WARM_NS     (5 * SL_CLOCK_NS_PER_MS)

/* What is sent, and by what way. */
struct load {
    uint32_t senders, payload_bytes;
    uint32_t depth; /* frames of a sender that are not `sent` */
    uint32_t lost;  /* of 10000 packets */
    uint16_t queue_packets;
    uint64_t delay_ns; /* 0: DELAY_NS */
    uint64_t run_ns;
};

struct node {
    struct sl_reactor *reactor;
    struct sl_transport *transport;
    struct sl_wire_host *host;
    struct sl_conn *conn; /* a sender's */
    uint32_t queued;
};

/* Where a connection's frames come to. */
struct inlet {
    struct sl_conn *conn;
    uint8_t *sink;
};

static struct world {
    struct sl_clock clock;
    uint64_t now_ns, seed;
    struct sl_wire *wire;
    struct load load;
    struct node nodes[SENDERS_MAX + 1]; /* the last is the receiver */
    struct inlet inlets[SENDERS_MAX];
    uint32_t inlet_count;
    uint8_t *frame;
} world;

/* ---- The layer above --------------------------------------------------------------------------
 */

/* Of all frames, also of what has not been delivered. */
static uint32_t arrived_at(const struct inlet *inlet)
{
    return ((const struct sl_dpdk_conn *)inlet->conn)->grant.arrived;
}

static struct inlet *inlet_of(const struct sl_conn *conn)
{
    for (uint32_t i = 0; i < world.inlet_count; i++) {
        if (world.inlets[i].conn == conn) {
            return &world.inlets[i];
        }
    }
    fail();
    return NULL;
}

static void on_accepted(void *ctx, struct sl_conn *conn)
{
    conn->is_welcome = true;
    world.inlets[world.inlet_count++] =
        (struct inlet){.conn = conn, .sink = malloc(world.load.payload_bytes)};
}

static void on_connected(void *ctx, struct sl_conn *conn)
{
    ((struct node *)ctx)->conn = conn;
}

static void *on_sink(void *ctx, struct sl_conn *conn, const struct sl_frame *header)
{
    return inlet_of(conn)->sink;
}

static void on_received(void *ctx, struct sl_conn *conn, const struct sl_transport_message *message)
{
    if (message->token != NULL) {
        sl_transport_release(conn, message);
    }
}

static void on_sent(void *ctx, struct sl_conn *conn, void *cookie)
{
    ((struct node *)ctx)->queued--;
}

static void on_writable(void *ctx, struct sl_conn *conn)
{
}

static void on_closed(void *ctx, struct sl_conn *conn, int err)
{
    assert_int_equal(err, SL_ERR_CANCELLED);
}

static const struct sl_transport_events events = {.accepted = on_accepted,
                                                  .connected = on_connected,
                                                  .sink = on_sink,
                                                  .received = on_received,
                                                  .sent = on_sent,
                                                  .writable = on_writable,
                                                  .closed = on_closed};

static void send_some(struct node *node)
{
    const struct sl_transport_frame frame = {.head = world.frame,
                                             .head_bytes =
                                                 SL_FRAME_HEADER_BYTES + world.load.payload_bytes,
                                             .cookie = node};
    while (node->conn != NULL && node->queued < world.load.depth &&
           sl_transport_send_burst(node->conn, &frame, 1) == 1) {
        node->queued++;
    }
}

/* ---- The network ------------------------------------------------------------------------------
 */

static uint64_t clock_now_ns(void *ctx)
{
    return ((const struct world *)ctx)->now_ns;
}

static bool tap(void *ctx, const uint8_t *bytes, uint32_t length)
{
    return sl_hash_random(&world.seed) % 10000 >= world.load.lost;
}

static void open_node(uint32_t i, bool is_receiver)
{
    struct node *node = &world.nodes[i];
    char address[32];
    (void)snprintf(address, sizeof address, "10.0.0.%u", i + 1);
    node->host = sl_wire_host_add(world.wire);
    (void)sl_wire_device_add(
        node->host, &(struct sl_wire_device_options){
                        .address = address,
                        .port_base = 4000,
                        .first_reactor = i,
                        .queue_packets = is_receiver ? world.load.queue_packets : (uint16_t)1024,
                        .drops = true,
                        .byte_ps = BYTE_PS});
    const struct sl_reactor_options options = {.name = "flow",
                                               .index = i,
                                               .core = -1,
                                               .stepped = true,
                                               .clock = &world.clock,
                                               .seed = 1 + i};
    const struct sl_transport_options transport = {.medium = sl_wire_host_medium(node->host)};
    assert_int_equal(sl_reactor_create(&options, &node->reactor), 0);
    assert_int_equal(sl_transport_open(&sl_dpdk_ops, node->reactor, &transport, &node->transport),
                     0);
}

static void open_all(void)
{
    char text[64];
    struct sl_endpoint endpoint, bound;
    struct node *receiver = &world.nodes[world.load.senders];
    for (uint32_t i = 0; i <= world.load.senders; i++) {
        open_node(i, i == world.load.senders);
    }
    (void)snprintf(text, sizeof text, "dpdk://10.0.0.%u:0", world.load.senders + 1);
    assert_int_equal(sl_endpoint_parse(text, &endpoint, NULL), 0);
    assert_int_equal(sl_transport_listen(receiver->transport, &endpoint, &events, NULL, &bound), 0);
    for (uint32_t i = 0; i < world.load.senders; i++) {
        struct sl_conn *conn;
        assert_int_equal(sl_transport_connect(world.nodes[i].transport, &bound, 0, &events,
                                              &world.nodes[i], NULL, &conn),
                         0);
    }
}

static void close_all(void)
{
    for (uint32_t i = 0; i <= world.load.senders; i++) {
        sl_transport_close(&world.nodes[i].transport);
        sl_reactor_destroy(&world.nodes[i].reactor);
        sl_wire_host_remove(&world.nodes[i].host);
    }
    for (uint32_t i = 0; i < world.inlet_count; i++) {
        free(world.inlets[i].sink);
    }
    sl_wire_destroy(&world.wire);
    free(world.frame);
}

/* To the next moment at which something happens. */
static void turn(void)
{
    uint64_t next_ns = sl_wire_next_ns(world.wire);
    for (uint32_t i = 0; i <= world.load.senders; i++) {
        const uint64_t due_ns = sl_reactor_next_ns(world.nodes[i].reactor);
        next_ns = due_ns < next_ns ? due_ns : next_ns;
    }
    const uint64_t least_ns = world.now_ns + TURN_NS, most_ns = world.now_ns + SL_CLOCK_NS_PER_MS;
    world.now_ns = next_ns < least_ns ? least_ns : next_ns < most_ns ? next_ns : most_ns;
    for (uint32_t i = 0; i <= world.load.senders; i++) {
        if (i < world.load.senders) {
            send_some(&world.nodes[i]);
        }
        (void)sl_reactor_turn(world.nodes[i].reactor, world.now_ns);
    }
}

struct yield {
    uint64_t checksum, least; /* bytes a second */
};

static struct yield measure(const struct load *load)
{
    struct yield yield = {.least = UINT64_MAX};
    uint32_t before[SENDERS_MAX] = {0};
    world = (struct world){.now_ns = SL_CLOCK_NS_PER_S, .seed = 7, .load = *load};
    world.clock = (struct sl_clock){.now_ns = clock_now_ns, .ctx = &world};
    world.wire = sl_wire_create(&(struct sl_wire_options){
        .clock = &world.clock, .delay_ns = load->delay_ns != 0 ? load->delay_ns : DELAY_NS});
    world.frame = calloc(1, SL_FRAME_HEADER_BYTES + load->payload_bytes);
    const struct sl_frame header = {.type = SL_FRAME_REQUEST, .payload_bytes = load->payload_bytes};
    sl_frame_encode(&header, world.frame);
    open_all();
    sl_wire_set_tap(world.wire, tap, NULL);
    const uint64_t from_ns = world.now_ns + WARM_NS, to_ns = from_ns + load->run_ns;
    while (world.now_ns < from_ns) {
        turn();
    }
    assert_int_equal(world.inlet_count, load->senders);
    for (uint32_t i = 0; i < load->senders; i++) {
        before[i] = arrived_at(&world.inlets[i]);
    }
    while (world.now_ns < to_ns) {
        turn();
    }
    const uint64_t took_ns = world.now_ns - from_ns;
    for (uint32_t i = 0; i < load->senders; i++) {
        const uint64_t bytes = arrived_at(&world.inlets[i]) - before[i];
        const uint64_t rate = bytes * SL_CLOCK_NS_PER_S / took_ns;
        yield.checksum += rate;
        yield.least = rate < yield.least ? rate : yield.least;
    }
    sl_wire_set_tap(world.wire, NULL, NULL);
    close_all();
    if (getenv("DPDK_FLOW_PRINT") != NULL) {
        print_message("%u senders, %u bytes, depth %u, lost %u of 10000, queue %u: %llu MB/s, "
                      "least %llu\n",
                      load->senders, load->payload_bytes, load->depth, load->lost,
                      load->queue_packets, (unsigned long long)(yield.checksum / 1000000),
                      (unsigned long long)(yield.least / 1000000));
    }
    return yield;
}

/* ---- What is lost -----------------------------------------------------------------------------
 */

static void expect_loss(uint32_t payload_bytes, uint32_t depth, uint32_t lost, uint64_t percent)
{
    struct load load = {.senders = 1,
                        .payload_bytes = payload_bytes,
                        .depth = depth,
                        .queue_packets = 1024,
                        .run_ns = 20 * SL_CLOCK_NS_PER_MS};
    const uint64_t whole = measure(&load).checksum;
    load.lost = lost;
    assert_true(measure(&load).checksum >= whole * percent / 100);
}

SL_CASE(loss__one_frame_at_a_time)
{
    expect_loss(10000, 1, 100, 70);
    expect_loss(10000, 1, 500, 30);
}

SL_CASE(loss__bulk)
{
    expect_loss(1U << 20, 4, 1, 95);
    expect_loss(1U << 20, 4, 100, 80);
    expect_loss(1U << 20, 4, 500, 50);
}

/* ---- A longer way -----------------------------------------------------------------------------
 */

/* What is on its way in a round trip is more than goes unasked: the next frame is granted before
 * the one before it has ended. */
SL_CASE(grants__keep_a_longer_way_full)
{
    static const uint32_t sizes[] = {10000, 100000, 1U << 20};
    for (uint32_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const struct load load = {.senders = 1,
                                  .payload_bytes = sizes[i],
                                  .depth = (2U << 20) / sizes[i],
                                  .queue_packets = 1024,
                                  .delay_ns = 50 * SL_CLOCK_NS_PER_US,
                                  .run_ns = 20 * SL_CLOCK_NS_PER_MS};
        assert_true(measure(&load).checksum >= 1189 * 9 / 10 * 1000000ULL);
    }
}

/* ---- Many to one ------------------------------------------------------------------------------
 */

static void expect_incast(uint32_t payload_bytes, uint16_t queue_packets)
{
    struct load load = {.senders = 1,
                        .payload_bytes = payload_bytes,
                        .depth = 4,
                        .queue_packets = queue_packets,
                        .run_ns = 20 * SL_CLOCK_NS_PER_MS};
    const uint64_t alone = measure(&load).checksum;
    load.senders = SENDERS_MAX;
    const struct yield yield = measure(&load);
    assert_true(yield.checksum >= alone * 9 / 10);
    assert_true(yield.least >= yield.checksum / SENDERS_MAX / 2);
}

SL_CASE(incast__of_long_frames)
{
    expect_incast(1U << 20, 1024);
    expect_incast(1U << 20, 256);
    expect_incast(1U << 20, 64);
}

/* What is blind of all of them together is more than the queue holds. */
SL_CASE(incast__of_little_more_than_goes_unscheduled)
{
    expect_incast(100000, 256);
    expect_incast(100000, 64);
}

SL_CASE(incast__of_what_goes_unscheduled)
{
    expect_incast(10000, 256);
    expect_incast(10000, 64);
}
