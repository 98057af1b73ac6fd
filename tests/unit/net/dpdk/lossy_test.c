/* Two ends and a network between them that loses, doubles, reorders and corrupts, all from a seed:
 * what is sent arrives, once, in order, unchanged, and all memory comes back. DPDK_LOSSY_SEED
 * replays a run, DPDK_LOSSY_SEEDS and DPDK_LOSSY_FRAMES make more of them and longer ones. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/bytes.h"
#include "core/hash.h"
#include "core/log.h"
#include "net/dpdk/dpdk.h"
#include "tests/support/fault_port.h"
#include "tests/support/stepped_pair.h"
#include "tests/support/unit.h"
#include "tests/support/wire_port.h"

#define PATTERN_BYTES (SL_LIMIT_FRAME_PAYLOAD_BYTES + 65536U)
#define HELD_MAX      64U
#define RUN_FRAMES    20U

struct way {
    const char *faults;                /* what goes wrong: fault_port.h */
    uint16_t frame_bytes_max, packets; /* that a port lends */
    bool checksums, gathers;
    uint64_t delay_ns;
};

/* Frames that are one send, until it is `sent`. */
struct batch {
    struct batch *next;
    uint8_t *head, *payload;
    bool is_joined, is_lent; /* lent: the payload is the pattern's */
};

struct node {
    struct sl_transport *transport;
    struct sl_conn *conn;
    uint64_t seed;
    uint32_t made, frames_max, received;
    struct batch *first, *last; /* not sent yet */
    uint32_t batches, sent;
    bool is_full;
    uint8_t *sink; /* the next long payload is in it */
    struct sl_transport_message held[HELD_MAX];
    uint32_t held_count;
    int closed; /* 1 + the error's absolute value */
};

static struct net {
    struct sl_stepped_pair pair;
    struct sl_wire *wire;
    struct way way;
    uint64_t seed;
    struct node nodes[2];
} net;

static uint8_t *pattern;

static uint32_t random_below(uint64_t *seed, uint32_t bound)
{
    return (uint32_t)(sl_hash_random(seed) % bound);
}

/* ---- Frames -----------------------------------------------------------------------------------
 */

static uint32_t size_of(uint64_t *seed)
{
    static const uint32_t bounds[] = {64,   64,   300,   300,   300,   300,    1400,   1500,
                                      3000, 9000, 16500, 16500, 40000, 100000, 300000, 300000};
    if (random_below(seed, 200) == 0) {
        return random_below(seed, SL_LIMIT_FRAME_PAYLOAD_BYTES + 1);
    }
    return random_below(seed, bounds[random_below(seed, 16)] + 1);
}

static const uint8_t *content_of(uint32_t number)
{
    return pattern + number * 24 % 65536;
}

static void encode(uint8_t *to, uint32_t number, uint32_t payload_bytes)
{
    struct sl_frame frame = {
        .type = SL_FRAME_REQUEST, .request_id = number, .payload_bytes = payload_bytes};
    sl_frame_encode(&frame, to);
}

static struct batch *make_batch(struct node *node, uint32_t head_bytes, uint32_t payload_bytes)
{
    struct batch *batch = calloc(1, sizeof *batch);
    assert_non_null(batch);
    batch->head = malloc(head_bytes);
    batch->payload = payload_bytes > 0 ? malloc(payload_bytes) : NULL;
    assert_true(batch->head != NULL && (batch->payload != NULL || payload_bytes == 0));
    *(node->first == NULL ? &node->first : &node->last->next) = batch;
    node->last = batch;
    node->batches++;
    return batch;
}

static bool offer(struct node *node, struct batch *batch, uint32_t head_bytes,
                  uint32_t payload_bytes)
{
    struct sl_transport_frame frame = {.head = batch->head,
                                       .head_bytes = head_bytes,
                                       .payload = batch->payload,
                                       .payload_bytes = payload_bytes,
                                       .cookie = batch->is_joined ? SL_TRANSPORT_COALESCED : batch};
    return sl_transport_send_burst(node->conn, &frame, 1) == 1;
}

static void drop_batch(struct batch *batch)
{
    free(batch->head);
    free(batch->is_lent ? NULL : batch->payload);
    free(batch);
}

/* One that was not taken is made once more later. */
static void unmake_last(struct node *node)
{
    struct batch **at = &node->first, *before = NULL;
    while (*at != node->last) {
        before = *at;
        at = &(*at)->next;
    }
    drop_batch(*at);
    *at = NULL;
    node->last = before;
    node->batches--;
    node->is_full = true;
}

static void send_one(struct node *node)
{
    uint64_t seed = node->seed;
    uint32_t bytes = size_of(&seed), payload = 0;
    switch (random_below(&seed, 3)) {
    case 0:
        payload = bytes;
        break;
    case 1:
        payload = random_below(&seed, bytes + 1);
        break;
    default:
        break;
    }
    bool joins = node->first != NULL && random_below(&seed, 3) == 0;
    struct batch *batch = make_batch(node, SL_FRAME_HEADER_BYTES + bytes - payload, payload);
    batch->is_joined = joins;
    encode(batch->head, node->made, bytes);
    memcpy(batch->head + SL_FRAME_HEADER_BYTES, content_of(node->made), bytes - payload);
    if (payload > 0 && net.way.gathers) {
        free(batch->payload);
        batch->is_lent = true;
        batch->payload = (uint8_t *)(uintptr_t)content_of(node->made) + bytes - payload;
    } else if (payload > 0) {
        memcpy(batch->payload, content_of(node->made) + bytes - payload, payload);
    }
    if (offer(node, batch, SL_FRAME_HEADER_BYTES + bytes - payload, payload)) {
        node->made++;
        node->seed = seed;
    } else {
        unmake_last(node);
    }
}

/* Several in a row. */
static void send_run(struct node *node)
{
    uint64_t seed = node->seed;
    uint32_t sizes[RUN_FRAMES], bytes = 0, at = 0;
    uint32_t count = 1 + random_below(&seed, RUN_FRAMES), unit = random_below(&seed, 2) * 7 + 1;
    for (uint32_t i = 0; i < count; i++) {
        sizes[i] = random_below(&seed, random_below(&seed, 8) == 0 ? 3000 : 100) / unit * unit;
        bytes += SL_FRAME_HEADER_BYTES + sizes[i];
    }
    struct batch *batch = make_batch(node, bytes, 0);
    for (uint32_t i = 0; i < count; i++) {
        encode(batch->head + at, node->made + i, sizes[i]);
        memcpy(batch->head + at + SL_FRAME_HEADER_BYTES, content_of(node->made + i), sizes[i]);
        at += SL_FRAME_HEADER_BYTES + sizes[i];
    }
    if (offer(node, batch, bytes, 0)) {
        node->made += count;
        node->seed = seed;
    } else {
        unmake_last(node);
    }
}

/* ---- The layer above --------------------------------------------------------------------------
 */

static void on_open(void *ctx, struct sl_conn *conn)
{
    ((struct node *)ctx)->conn = conn;
    conn->is_welcome = true;
}

static void *on_sink(void *ctx, struct sl_conn *conn, const struct sl_frame *header)
{
    struct node *node = ctx;
    assert_int_equal(header->request_id, node->received);
    assert_null(node->sink);
    if (random_below(&net.seed, 4) == 0) {
        return NULL;
    }
    node->sink = malloc(header->payload_bytes);
    return node->sink;
}

static void release_some(struct node *node, uint32_t count)
{
    while (node->held_count > count) {
        uint32_t i = random_below(&net.seed, node->held_count);
        sl_transport_release(node->conn, &node->held[i]);
        node->held[i] = node->held[--node->held_count];
    }
}

static void on_received(void *ctx, struct sl_conn *conn, const struct sl_transport_message *message)
{
    struct node *node = ctx;
    uint32_t number = node->received++;
    assert_int_equal(message->header.request_id, number);
    assert_memory_equal(message->payload, content_of(number), message->header.payload_bytes);
    if (message->token == NULL) {
        assert_ptr_equal(message->payload, node->sink);
        free(node->sink);
        node->sink = NULL;
    } else if (random_below(&net.seed, 8) == 0 && node->held_count < HELD_MAX) {
        node->held[node->held_count++] = *message;
    } else {
        sl_transport_release(conn, message);
    }
}

static void on_sent(void *ctx, struct sl_conn *conn, void *cookie)
{
    struct node *node = ctx;
    assert_ptr_equal(cookie, node->first);
    do {
        struct batch *batch = node->first;
        node->first = batch->next;
        drop_batch(batch);
        node->sent++;
    } while (node->first != NULL && node->first->is_joined);
}

static void on_writable(void *ctx, struct sl_conn *conn)
{
    ((struct node *)ctx)->is_full = false;
}

static void on_closed(void *ctx, struct sl_conn *conn, int err)
{
    struct node *node = ctx;
    node->closed = 1 - err;
    while (node->first != NULL) {
        struct batch *batch = node->first;
        node->first = batch->next;
        drop_batch(batch);
    }
    free(node->sink);
    node->sink = NULL;
}

static const struct sl_transport_events events = {.accepted = on_open,
                                                  .connected = on_open,
                                                  .sink = on_sink,
                                                  .received = on_received,
                                                  .sent = on_sent,
                                                  .writable = on_writable,
                                                  .closed = on_closed};

/* ---- A run ------------------------------------------------------------------------------------
 */

static uint64_t lesser(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* To the next moment at which something happens, but not far. */
static void turn(void)
{
    uint64_t now_ns = net.pair.now_ns, next_ns = now_ns + SL_CLOCK_NS_PER_MS;
    next_ns = lesser(next_ns, sl_reactor_next_ns(net.pair.a.reactor));
    next_ns = lesser(next_ns, sl_reactor_next_ns(net.pair.b.reactor));
    next_ns = lesser(next_ns, sl_wire_next_ns(net.wire));
    uint64_t step_ns = next_ns > now_ns ? next_ns - now_ns : 0;
    sl_stepped_pair_turn(&net.pair, step_ns > 500 ? step_ns : 500);
}

static void act(struct node *node)
{
    if (node->conn == NULL) {
        return;
    }
    uint32_t burst = 1 + random_below(&net.seed, 30);
    for (uint32_t i = 0; i < burst && node->made < node->frames_max && !node->is_full; i++) {
        (random_below(&node->seed, 4) == 0 ? send_run : send_one)(node);
    }
    if (random_below(&net.seed, 3) == 0) {
        release_some(node, random_below(&net.seed, HELD_MAX));
    }
}

static bool is_done(void)
{
    const struct node *a = &net.nodes[0], *b = &net.nodes[1];
    return a->made >= a->frames_max && b->made >= b->frames_max && a->received == b->made &&
           b->received == a->made && a->sent == a->batches && b->sent == b->batches;
}

static struct sl_wire_device *add_device(struct sl_wire_host *host, const char *address,
                                         uint32_t reactor)
{
    struct sl_wire_device_options options = {.address = address,
                                             .port_base = 4000,
                                             .first_reactor = reactor,
                                             .frame_bytes_max = net.way.frame_bytes_max,
                                             .packets = net.way.packets,
                                             .tx_checksum = net.way.checksums,
                                             .tx_gather = net.way.gathers};
    return sl_wire_device_add(host, &options);
}

static void open_connection(void)
{
    struct sl_endpoint endpoint, bound;
    struct sl_conn *conn;
    assert_int_equal(sl_endpoint_parse("dpdk://10.0.0.1:0", &endpoint, NULL), 0);
    assert_int_equal(
        sl_transport_listen(net.pair.a.transport, &endpoint, &events, &net.nodes[0], &bound), 0);
    assert_int_equal(
        sl_transport_connect(net.pair.b.transport, &bound, 0, &events, &net.nodes[1], NULL, &conn),
        0);
}

static uint32_t frames_of_environment(uint32_t frames)
{
    const char *text = getenv("DPDK_LOSSY_FRAMES");
    return text != NULL ? (uint32_t)strtoul(text, NULL, 10) : frames;
}

static void run(uint64_t seed, const struct way *way, uint32_t frames)
{
    struct sl_dpdk_faults faults;
    struct sl_dpdk_fault_medium faulty[2];
    struct sl_dpdk_medium media[2];
    memset(&net, 0, sizeof net);
    net.way = *way;
    net.seed = seed;
    net.wire = sl_wire_create(
        &(struct sl_wire_options){.clock = &net.pair.clock, .delay_ns = way->delay_ns});
    assert_int_equal(sl_dpdk_faults_parse(way->faults, &faults, NULL), 0);
    faults.seed = seed;
    struct sl_wire_host *hosts[] = {sl_wire_host_add(net.wire), sl_wire_host_add(net.wire)};
    struct sl_wire_device *devices[] = {add_device(hosts[0], "10.0.0.1", 0),
                                        add_device(hosts[1], "10.0.0.2", 1)};
    for (uint32_t i = 0; i < 2; i++) {
        faulty[i] = (struct sl_dpdk_fault_medium){.inner = *sl_wire_host_medium(hosts[i]),
                                                  .faults = faults};
        media[i] = (struct sl_dpdk_medium){.ops = &sl_dpdk_fault_ports, .ctx = &faulty[i]};
    }
    sl_stepped_pair_init(&net.pair, &sl_dpdk_ops, &media[0], &media[1]);
    for (uint32_t i = 0; i < 2; i++) {
        net.nodes[i].seed = seed + 1 + i;
        net.nodes[i].frames_max = frames_of_environment(frames);
    }
    struct sl_transport *transports[] = {net.pair.a.transport, net.pair.b.transport};
    for (uint32_t i = 0; i < 2 && way->gathers; i++) {
        assert_int_equal(sl_transport_memory_register(transports[i], pattern, PATTERN_BYTES), 0);
    }
    open_connection();
    uint32_t turns = 0;
    while (!is_done()) {
        act(&net.nodes[0]);
        act(&net.nodes[1]);
        turn();
        if (net.nodes[0].closed != 0 || net.nodes[1].closed != 0 || ++turns > 20000000) {
            fail_msg(
                "seed %llu: closed %d %d, received %u of %u, %u of %u, sent %u of %u, %u of %u",
                (unsigned long long)seed, net.nodes[0].closed, net.nodes[1].closed,
                net.nodes[0].received, net.nodes[1].made, net.nodes[1].received, net.nodes[0].made,
                net.nodes[0].sent, net.nodes[0].batches, net.nodes[1].sent, net.nodes[1].batches);
        }
    }
    release_some(&net.nodes[0], 0); /* what the other has is freed by close */
    sl_stepped_pair_fini(&net.pair);
    assert_int_equal(sl_wire_device_held(devices[0]), 0);
    assert_int_equal(sl_wire_device_held(devices[1]), 0);
    sl_wire_host_remove(&hosts[0]);
    sl_wire_host_remove(&hosts[1]);
    sl_wire_destroy(&net.wire);
}

static void run_seeds(const struct way *way, uint32_t count, uint32_t frames)
{
    const char *text = getenv("DPDK_LOSSY_SEED");
    if (text != NULL) {
        run(strtoull(text, NULL, 10), way, frames);
        return;
    }
    const char *seeds = getenv("DPDK_LOSSY_SEEDS");
    count = seeds != NULL ? (uint32_t)strtoul(seeds, NULL, 10) : count;
    for (uint64_t seed = 1; seed <= count; seed++) {
        run(seed * 7919, way, frames);
    }
}

SL_CASE(lossy__nothing_goes_wrong)
{
    run_seeds(&(struct way){.faults = "loss=0", .delay_ns = 5000}, 2, 1500);
}

SL_CASE(lossy__some_of_all)
{
    run_seeds(&(struct way){.faults = "loss=0.01,duplicate=0.005,reorder=0.02,corrupt=0.005",
                            .delay_ns = 5000},
              2, 1000);
}

SL_CASE(lossy__much_is_lost)
{
    run_seeds(&(struct way){.faults = "loss=0.2", .delay_ns = 20000}, 2, 300);
}

SL_CASE(lossy__order_is_lost)
{
    run_seeds(&(struct way){.faults = "duplicate=0.05,reorder=0.3", .delay_ns = 5000}, 2, 500);
}

SL_CASE(lossy__jumbo_frames_and_checksums_by_the_device)
{
    run_seeds(&(struct way){.faults = "loss=0.01,duplicate=0.01,reorder=0.01",
                            .delay_ns = 5000,
                            .frame_bytes_max = 9014,
                            .checksums = true},
              2, 1000);
}

SL_CASE(lossy__from_where_it_lies)
{
    run_seeds(&(struct way){.faults = "loss=0.01,duplicate=0.01,reorder=0.01",
                            .delay_ns = 5000,
                            .checksums = true,
                            .gathers = true},
              2, 1000);
}

/* Ports that lend hardly more packets than one turn takes: what must wait has no room. */
SL_CASE(lossy__few_packets_may_wait)
{
    run_seeds(&(struct way){.faults = "loss=0.01,reorder=0.05", .delay_ns = 5000, .packets = 48}, 2,
              500);
}

static int make_pattern(void **state)
{
    uint64_t seed = 1;
    pattern = malloc(PATTERN_BYTES);
    for (uint32_t i = 0; pattern != NULL && i < PATTERN_BYTES; i += 8) {
        uint64_t random = sl_hash_random(&seed);
        memcpy(pattern + i, &random, sizeof random);
    }
    return pattern == NULL ? -1 : 0;
}

static int free_pattern(void **state)
{
    free(pattern);
    return 0;
}

SL_UNIT_GROUP(make_pattern, free_pattern);
