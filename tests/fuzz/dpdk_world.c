#include "tests/fuzz/dpdk_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "net/dpdk/dpdk.h"
#include "net/dpdk/wire.h"

#define VICTIM      "10.1.0.1"
#define FRIEND      "10.1.0.2"
#define STEP_NS     (200 * SL_CLOCK_NS_PER_US)
#define PATIENCE    4000U /* steps in which the friend must be answered */
#define LONG_BYTES  20000U
#define PACKETS     64U /* that a port lends: few, so that there is no room for some */
#define CONNECTIONS 6U

struct dpdk_world_frame {
    struct dpdk_world_frame *next;
    uint8_t head[SL_FRAME_HEADER_BYTES];
    uint8_t payload[];
};

static struct dpdk_world_link *add_link(struct dpdk_world_node *node, uint32_t peer)
{
    struct dpdk_world *world = node->world;
    sl_assert(world->link_count < DPDK_WORLD_LINKS);
    struct dpdk_world_link *link = &world->links[world->link_count++];
    *link = (struct dpdk_world_link){.node = node, .peer = peer};
    link->end = &link->first;
    return link;
}

/* From "dpdk://10.1.0.1N:port". */
static uint32_t peer_of(const struct sl_conn *conn)
{
    static const char before[] = "dpdk://10.1.0.1";
    if (strncmp(conn->peer, before, sizeof before - 1) != 0) {
        return DPDK_WORLD_PEERS;
    }
    const uint32_t peer = (uint32_t)(conn->peer[sizeof before - 1] - '0');
    sl_assert(peer < DPDK_WORLD_PEERS);
    return peer;
}

static bool is_friend(const struct dpdk_world_link *link)
{
    return link->peer == DPDK_WORLD_PEERS;
}

static void on_accepted(void *ctx, struct sl_conn *conn)
{
    struct dpdk_world_node *node = ctx;
    struct dpdk_world *world = node->world;
    struct dpdk_world_link *link = conn->user; /* it was handed over */
    if (link == NULL && world->link_count == DPDK_WORLD_LINKS) {
        sl_transport_disconnect(conn);
        return;
    }
    link = link != NULL ? link : add_link(node, peer_of(conn));
    link->node = node;
    link->conn = conn;
    conn->user = link;
    conn->is_welcome = is_friend(link) || world->policy.welcomes;
    if (!is_friend(link) && world->policy.disconnects) {
        sl_transport_disconnect(conn);
    }
}

static void on_connected(void *ctx, struct sl_conn *conn)
{
}

static void free_sink(struct dpdk_world_link *link)
{
    free(link->sink);
    link->sink = NULL;
}

/* Of exactly so many bytes. */
static void *on_sink(void *ctx, struct sl_conn *conn, const struct sl_frame *header)
{
    struct dpdk_world_node *node = ctx;
    struct dpdk_world_link *link = conn->user;
    if (link == NULL || (!is_friend(link) && node->world->policy.refuses_sink)) {
        return NULL;
    }
    free_sink(link);
    link->sink = malloc(header->payload_bytes);
    link->sink_bytes = header->payload_bytes;
    return link->sink;
}

void dpdk_world_send(struct dpdk_world_link *link, uint32_t payload_bytes)
{
    struct dpdk_world_frame *frame = malloc(sizeof *frame + payload_bytes);
    sl_assert(frame != NULL);
    const struct sl_frame header = {.type = SL_FRAME_REQUEST,
                                    .payload_bytes = payload_bytes,
                                    .request_id = link->made + 1U,
                                    .budget_us = 1};
    sl_frame_encode(&header, frame->head);
    for (uint32_t i = 0; i < payload_bytes; i++) {
        frame->payload[i] = dpdk_world_byte(link->peer, i);
    }
    const struct sl_transport_frame offered = {
        .head = frame->head, .head_bytes = SL_FRAME_HEADER_BYTES + payload_bytes, .cookie = frame};
    if (link->conn->state != SL_CONN_OPEN ||
        sl_transport_send_burst(link->conn, &offered, 1) == 0) {
        free(frame);
        return;
    }
    link->made++;
    frame->next = NULL;
    *link->end = frame;
    link->end = &frame->next;
}

/* The pieces fit together: no byte is another's, and none was never sent. */
static void check_payload(const struct dpdk_world *world, const struct dpdk_world_link *link,
                          const struct sl_transport_message *message)
{
    const uint32_t bytes = message->header.payload_bytes;
    if (message->token == NULL) {
        sl_assert(message->payload == link->sink && bytes == link->sink_bytes);
    } else {
        sl_assert(bytes <= SL_LIMIT_INLINE_PAYLOAD_BYTES);
    }
    if (!is_friend(link) && world->peers[link->peer].is_wild) {
        return;
    }
    for (uint32_t i = 0; i < bytes; i++) {
        sl_assert(message->payload[i] == dpdk_world_byte(link->peer, i));
    }
}

static void on_received(void *ctx, struct sl_conn *conn, const struct sl_transport_message *message)
{
    struct dpdk_world_node *node = ctx;
    struct dpdk_world *world = node->world;
    struct dpdk_world_link *link = conn->user;
    const uint32_t bytes = message->header.payload_bytes;
    sl_assert(link != NULL && link->conn == conn && conn->state == SL_CONN_OPEN);
    link->received++;
    sl_assert(!is_friend(link) || message->header.request_id == link->received);
    check_payload(world, link, message);
    if (message->token == NULL) {
        free_sink(link);
    }
    sl_transport_release(conn, message);
    if (is_friend(link)) {
        if (link != world->friends) {
            dpdk_world_send(link, bytes);
        }
        return;
    }
    conn->is_welcome = conn->is_welcome || world->policy.welcomes;
    if (world->policy.echoes) {
        dpdk_world_send(link, bytes);
    }
}

static void free_first(struct dpdk_world_link *link)
{
    struct dpdk_world_frame *frame = link->first;
    link->first = frame->next;
    link->end = link->first != NULL ? link->end : &link->first;
    free(frame);
}

static void on_sent(void *ctx, struct sl_conn *conn, void *cookie)
{
    struct dpdk_world_link *link = conn->user;
    sl_assert(link->first == cookie);
    link->sent++;
    free_first(link);
}

static void on_writable(void *ctx, struct sl_conn *conn)
{
}

static void on_closed(void *ctx, struct sl_conn *conn, int err)
{
    const struct dpdk_world_node *node = ctx;
    struct dpdk_world_link *link = conn->user;
    if (link == NULL) {
        return;
    }
    sl_assert(!is_friend(link) || err == SL_ERR_CANCELLED || err == SL_ERR_CLOSED);
    sl_assert(!is_friend(link) || node->world->friends == NULL); /* it is we who end */
    link->conn = NULL;
    free_sink(link);
    while (link->first != NULL) {
        free_first(link);
    }
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

static bool is_numbered(uint8_t kind)
{
    return kind >= SL_DPDK_DATA && kind <= SL_DPDK_FIN;
}

static void hear_hello(struct dpdk_world_peer *peer, const struct sl_dpdk_parsed *parsed)
{
    struct sl_dpdk_hello hello;
    sl_assert(sl_dpdk_hello_decode(parsed->body, parsed->body_bytes, &hello) == 0);
    switch (parsed->header.kind) {
    case SL_DPDK_OPEN:
        peer->id_asking = hello.connection;
        peer->cookie = hello.cookie;
        peer->acknowledged = hello.sequence;
        peer->port_there = parsed->from.port;
        break;
    case SL_DPDK_RETRY:
        peer->cookie = hello.cookie;
        break;
    case SL_DPDK_ACCEPT:
        peer->id_there = hello.connection;
        peer->acknowledged = hello.sequence;
        peer->port_there = parsed->from.port;
        break;
    default:
        break;
    }
}

/* Who has not shown that it can be reached gets no more bytes than it has sent. */
static void hear(struct dpdk_world_peer *peer, const struct sl_dpdk_parsed *parsed, uint32_t length)
{
    const struct sl_dpdk_header *header = &parsed->header;
    peer->heard_bytes += length;
    peer->is_proved = peer->is_proved || header->kind == SL_DPDK_OPEN;
    sl_assert(peer->is_proved || peer->heard_bytes <= peer->said_bytes);
    if (header->kind <= SL_DPDK_REFUSE) {
        hear_hello(peer, parsed);
    }
    if (is_numbered(header->kind) && sl_dpdk_before(peer->acknowledged, header->sequence + 1)) {
        peer->acknowledged = header->sequence + 1;
    }
}

static bool tap(void *ctx, const uint8_t *bytes, uint32_t length)
{
    struct dpdk_world *world = ctx;
    struct sl_dpdk_parsed parsed;
    const enum sl_dpdk_class class = sl_dpdk_parse(bytes, length, false, &parsed);
    sl_assert(class == SL_DPDK_OURS || class == SL_DPDK_NEIGHBOUR);
    for (uint32_t i = 0; class == SL_DPDK_OURS && i < DPDK_WORLD_PEERS; i++) {
        struct dpdk_world_peer *peer = &world->peers[i];
        if (memcmp(&parsed.to.ip, &peer->at.ip, sizeof peer->at.ip) == 0) {
            hear(peer, &parsed, length);
        }
    }
    return true;
}

static uint64_t now_ns(void *ctx)
{
    return ((const struct dpdk_world *)ctx)->now_ns;
}

static struct sl_endpoint endpoint_of(const char *address, uint16_t port)
{
    struct sl_endpoint endpoint = {.scheme = SL_ENDPOINT_DPDK, .port = port};
    (void)snprintf(endpoint.host, sizeof endpoint.host, "%s", address);
    return endpoint;
}

static void open_peers(struct dpdk_world *world)
{
    for (uint32_t i = 0; i < DPDK_WORLD_PEERS; i++) {
        struct dpdk_world_peer *peer = &world->peers[i];
        *peer = (struct dpdk_world_peer){.id = 0x7700 + i, .port_there = DPDK_WORLD_PORT};
        const uint8_t mac[6] = {2, 0, 0, 0, 1, (uint8_t)i};
        const uint8_t ip[16] = {[10] = 0xff, [11] = 0xff, 10, 1, 0, (uint8_t)(10 + i)};
        memcpy(peer->mac, mac, sizeof mac);
        memcpy(&peer->at.ip, ip, sizeof ip);
        peer->at.port = (uint16_t)(5000 + i);
    }
}

static struct sl_wire_host *add_host(struct dpdk_world *world, bool is_friend,
                                     struct sl_wire_device **device)
{
    const struct sl_wire_device_options options = {.address = is_friend ? FRIEND : VICTIM,
                                                   .port_base = DPDK_WORLD_PORT,
                                                   .reactors = is_friend ? 1 : 2,
                                                   .queues = 2,
                                                   .queue_packets = PACKETS,
                                                   .packets = PACKETS,
                                                   .drops = true};
    struct sl_wire_host *host = sl_wire_host_add(world->wire);
    *device = sl_wire_device_add(host, &options);
    return host;
}

static void open_node(struct dpdk_world *world, uint32_t i)
{
    struct dpdk_world_node *node = &world->nodes[i];
    const struct sl_reactor_options reactor = {.name = "node",
                                               .index = i % 2,
                                               .core = -1,
                                               .stepped = true,
                                               .clock = &world->clock,
                                               .seed = 1 + i};
    *node = (struct dpdk_world_node){.world = world};
    sl_assert(sl_reactor_create(&reactor, &node->reactor) == 0);
}

static void open_transport(struct dpdk_world *world, uint32_t i)
{
    struct dpdk_world_node *node = &world->nodes[i];
    const struct sl_transport_options options = {
        .connections_max = CONNECTIONS,
        .medium = sl_wire_host_medium(i == 2 ? world->friend : world->victim)};
    sl_assert(sl_transport_open(&sl_dpdk_ops, node->reactor, &options, &node->transport) == 0);
    if (i < 2) {
        const struct sl_endpoint endpoint = endpoint_of("0.0.0.0", DPDK_WORLD_PORT);
        sl_assert(sl_transport_listen(node->transport, &endpoint, &events, node, &node->bound) ==
                  0);
    }
}

static struct dpdk_world_link *connect_to(struct dpdk_world_node *node, uint32_t peer,
                                          const char *address, uint16_t port)
{
    const struct sl_endpoint endpoint = endpoint_of(address, port);
    struct sl_conn *conn;
    if (node->world->link_count == DPDK_WORLD_LINKS) {
        return NULL;
    }
    struct dpdk_world_link *link = add_link(node, peer);
    if (sl_transport_connect(node->transport, &endpoint, 0, &events, node, link, &conn) == 0) {
        link->conn = conn;
    }
    return link;
}

void dpdk_world_ask(struct dpdk_world *world, const struct dpdk_world_peer *peer)
{
    char address[32];
    const uint32_t i = (uint32_t)(peer - world->peers);
    (void)snprintf(address, sizeof address, "10.1.0.%u", 10 + i);
    (void)connect_to(&world->nodes[0], i, address, peer->at.port);
}

struct dpdk_world_link *dpdk_world_link_of(struct dpdk_world *world,
                                           const struct dpdk_world_peer *peer)
{
    for (uint32_t i = world->link_count; i-- > 0;) {
        if (world->links[i].peer == (uint32_t)(peer - world->peers) &&
            world->links[i].conn != NULL) {
            return &world->links[i];
        }
    }
    return NULL;
}

void dpdk_world_turn(struct dpdk_world *world, uint64_t step_ns)
{
    world->now_ns += step_ns;
    for (uint32_t i = 0; i < DPDK_WORLD_NODES; i++) {
        (void)sl_reactor_turn(world->nodes[i].reactor, world->now_ns);
    }
}

void dpdk_world_inject(struct dpdk_world *world, struct dpdk_world_peer *peer, const uint8_t *bytes,
                       uint32_t length, uint16_t queue)
{
    peer->said_bytes += length;
    sl_wire_inject(world->wire, bytes, length, queue);
}

/* Each side's frames come back to it, short ones and one that is long. */
static void expect_friend_served(struct dpdk_world *world)
{
    struct dpdk_world_link *link = world->friends;
    sl_assert(link->conn != NULL);
    dpdk_world_send(link, 100);
    dpdk_world_send(link, LONG_BYTES);
    dpdk_world_send(link, 5000);
    for (uint32_t i = 0; i < PATIENCE && link->received < link->made; i++) {
        dpdk_world_turn(world, STEP_NS);
    }
    sl_assert(link->received == link->made);
}

void dpdk_world_open(struct dpdk_world *world)
{
    sl_log_setup(SL_LOG_OFF, "fuzz");
    *world = (struct dpdk_world){.now_ns = 100 * SL_CLOCK_NS_PER_S};
    world->clock = (struct sl_clock){.now_ns = now_ns, .ctx = world};
    world->wire = sl_wire_create(
        &(struct sl_wire_options){.clock = &world->clock, .delay_ns = 5 * SL_CLOCK_NS_PER_US});
    open_peers(world);
    sl_wire_set_tap(world->wire, tap, world);
    struct sl_wire_device *device;
    world->victim = add_host(world, false, &world->device);
    world->friend = add_host(world, true, &device);
    for (uint32_t i = 0; i < DPDK_WORLD_NODES; i++) {
        open_node(world, i);
    }
    struct sl_reactor *both[] = {world->nodes[0].reactor, world->nodes[1].reactor};
    sl_assert(sl_reactor_connect(both, 2) == 0);
    sl_assert(sl_reactor_connect(&world->nodes[2].reactor, 1) == 0);
    for (uint32_t i = 0; i < DPDK_WORLD_NODES; i++) {
        open_transport(world, i);
    }
    world->friends = connect_to(&world->nodes[2], DPDK_WORLD_PEERS, VICTIM, DPDK_WORLD_PORT);
    while (world->friends->conn->state != SL_CONN_OPEN) {
        dpdk_world_turn(world, STEP_NS);
    }
}

void dpdk_world_close(struct dpdk_world *world)
{
    expect_friend_served(world);
    world->friends = NULL;
    for (uint32_t i = 0; i < DPDK_WORLD_NODES; i++) {
        sl_transport_close(&world->nodes[i].transport);
    }
    for (uint32_t i = 0; i < DPDK_WORLD_NODES; i++) {
        sl_reactor_destroy(&world->nodes[i].reactor);
    }
    for (uint32_t i = 0; i < world->link_count; i++) {
        sl_assert(world->links[i].first == NULL && world->links[i].sink == NULL);
    }
    sl_wire_host_remove(&world->victim);
    sl_wire_host_remove(&world->friend);
    sl_wire_destroy(&world->wire);
}
