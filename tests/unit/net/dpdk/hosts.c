#include "tests/unit/net/dpdk/hosts.h"

#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "net/dpdk/dpdk.h"
#include "net/dpdk/state.h"

#define PATIENCE_NS (30 * SL_CLOCK_NS_PER_S)

/* ---- The layer above --------------------------------------------------------------------------
 */

struct frame {
    struct frame *next;
    uint8_t head[SL_FRAME_HEADER_BYTES];
    uint8_t payload[];
};

static struct link *add_link(struct node *node, struct sl_conn *conn)
{
    assert_true(node->link_count < LINKS);
    struct link *link = &node->links[node->link_count++];
    *link = (struct link){.node = node, .conn = conn};
    link->end = &link->first;
    return link;
}

static void on_accepted(void *ctx, struct sl_conn *conn)
{
    const struct link *before = conn->user; /* of the node that handed it over */
    struct link *link = add_link(ctx, conn);
    assert_true(conn->accepted);
    conn->is_welcome = !((struct node *)ctx)->has_strangers;
    link->opened++;
    link->made = before != NULL ? before->made : 0;
    link->received_last = before != NULL ? before->received_last : 0;
    conn->user = link;
}

static void on_connected(void *ctx, struct sl_conn *conn)
{
    struct link *link = conn->user;
    link->opened++;
}

static void *on_sink(void *ctx, struct sl_conn *conn, const struct sl_frame *header)
{
    struct node *node = ctx;
    assert_true(header->payload_bytes <= sizeof node->sink);
    return node->refuses_sink ? NULL : node->sink;
}

static void on_received(void *ctx, struct sl_conn *conn, const struct sl_transport_message *message)
{
    struct node *node = ctx;
    struct link *link = conn->user;
    const uint32_t bytes = message->header.payload_bytes;
    assert_ptr_equal(link->conn, conn);
    link->received++;
    link->received_last++;
    assert_int_equal(message->header.request_id, link->received_last);
    for (uint32_t i = 0; i < bytes; i++) {
        assert_int_equal(message->payload[i], (uint8_t)(link->received_last + i));
    }
    sl_transport_release(conn, message);
    if (node->echoes) {
        link_send(link, 1, bytes);
    }
}

static void free_first(struct link *link)
{
    struct frame *frame = link->first;
    link->first = frame->next;
    link->end = link->first != NULL ? link->end : &link->first;
    free(frame);
}

static void on_sent(void *ctx, struct sl_conn *conn, void *cookie)
{
    struct link *link = conn->user;
    assert_ptr_equal(link->first, cookie);
    link->sent++;
    free_first(link);
}

static void on_writable(void *ctx, struct sl_conn *conn)
{
}

static void on_closed(void *ctx, struct sl_conn *conn, int err)
{
    struct link *link = conn->user;
    assert_ptr_equal(link->conn, conn);
    link->conn = NULL;
    link->closed++;
    link->err = err;
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

void link_send(struct link *link, uint32_t count, uint32_t payload_bytes)
{
    for (uint32_t i = 0; i < count; i++) {
        struct frame *frame = malloc(sizeof *frame + payload_bytes);
        assert_non_null(frame);
        link->made++;
        frame->next = NULL;
        *link->end = frame;
        link->end = &frame->next;
        const struct sl_frame header = {.type = SL_FRAME_REQUEST,
                                        .payload_bytes = payload_bytes,
                                        .request_id = link->made,
                                        .budget_us = 1};
        sl_frame_encode(&header, frame->head);
        for (uint32_t k = 0; k < payload_bytes; k++) {
            frame->payload[k] = (uint8_t)(link->made + k);
        }
        const struct sl_transport_frame offered = {.head = frame->head,
                                                   .head_bytes =
                                                       SL_FRAME_HEADER_BYTES + payload_bytes,
                                                   .cookie = frame};
        assert_int_equal(sl_transport_send_burst(link->conn, &offered, 1), 1);
    }
}

/* ---- What is seen of the cable ----------------------------------------------------------------
 */

static uint32_t kind_of(const uint8_t *bytes, uint32_t length)
{
    struct sl_dpdk_parsed parsed;
    enum sl_dpdk_class class = sl_dpdk_parse(bytes, length, false, &parsed);
    assert_true(class == SL_DPDK_OURS || class == SL_DPDK_NEIGHBOUR);
    return class == SL_DPDK_OURS ? parsed.header.kind : NEIGHBOUR;
}

static bool tap(void *ctx, const uint8_t *bytes, uint32_t length)
{
    struct hosts *hosts = ctx;
    const uint32_t kind = kind_of(bytes, length);
    assert_true(kind < KINDS && length <= sizeof hosts->last[0][kind].bytes);
    hosts->received[kind]++;
    const uint32_t from = memcmp(bytes + 6, sl_wire_device_mac(hosts->device_b), 6) == 0;
    hosts->last[from][kind].length = length;
    memcpy(hosts->last[from][kind].bytes, bytes, length);
    if (hosts->lose_longer != 0 && length > hosts->lose_longer) {
        return false;
    }
    if (hosts->lose[kind] > 0) {
        hosts->lose[kind]--;
        return false;
    }
    return true;
}

void hosts_repeat(struct hosts *hosts, uint32_t from, enum sl_dpdk_kind kind)
{
    const struct packet *packet = &hosts->last[from][kind];
    assert_true(packet->length > 0);
    sl_wire_inject(hosts->wire, packet->bytes, packet->length, 0);
}

void hosts_forge(struct hosts *hosts, uint32_t from, enum sl_dpdk_kind kind,
                 void (*change)(void *ctx, struct sl_dpdk_header *header), void *ctx)
{
    struct packet packet = hosts->last[from][kind];
    struct sl_dpdk_parsed parsed;
    assert_int_equal(sl_dpdk_parse(packet.bytes, packet.length, false, &parsed), SL_DPDK_OURS);
    struct sl_dpdk_header header = parsed.header;
    struct sl_dpdk_route route;
    sl_dpdk_route_build(&route, packet.bytes + 6, packet.bytes, &parsed.from, &parsed.to);
    change(ctx, &header);
    header.flags = 0;
    const uint32_t before = sl_dpdk_route_bytes(&route);
    if (packet.length < before + header.body_bytes) { /* the rest of the body is zeros */
        memset(packet.bytes + packet.length, 0, before + header.body_bytes - packet.length);
    }
    packet.length = before + header.body_bytes;
    (void)sl_dpdk_write(packet.bytes, &route, &header);
    sl_dpdk_seal(packet.bytes, packet.length);
    assert_int_equal(sl_dpdk_parse(packet.bytes, packet.length, false, &parsed), SL_DPDK_OURS);
    sl_wire_inject(hosts->wire, packet.bytes, packet.length, 0);
}

/* ---- Hosts ------------------------------------------------------------------------------------
 */

static uint64_t now_ns(void *ctx)
{
    return ((const struct hosts *)ctx)->now_ns;
}

static void add_device(struct hosts *hosts, const struct hosts_options *options, bool is_b)
{
    struct sl_wire_device_options device = options->device;
    device.address = is_b ? ADDRESS_B : ADDRESS_A;
    device.port_base = PORT_BASE;
    device.reactors = is_b ? 1 : 2;
    device.queues = 2;
    if (is_b) {
        hosts->b = sl_wire_host_add(hosts->wire);
        hosts->device_b = sl_wire_device_add(hosts->b, &device);
        return;
    }
    hosts->a = sl_wire_host_add(hosts->wire);
    if (options->has_twin_before) {
        sl_wire_device_set_down(sl_wire_device_add(hosts->a, &device), true);
    }
    hosts->device_a = sl_wire_device_add(hosts->a, &device);
    if (options->has_twin_behind) {
        sl_wire_device_set_down(sl_wire_device_add(hosts->a, &device), true);
    }
}

static void open_node(struct hosts *hosts, uint32_t i)
{
    struct sl_reactor_options reactor = {.name = "node",
                                         .index = i % 2, /* of two groups */
                                         .core = -1,
                                         .stepped = true,
                                         .clock = &hosts->clock,
                                         .seed = 1 + i};
    assert_int_equal(sl_reactor_create(&reactor, &hosts->nodes[i].reactor), 0);
}

static void open_transport(struct hosts *hosts, uint32_t i)
{
    struct sl_transport_options transport = hosts->transport;
    struct sl_dpdk_medium *medium = sl_wire_host_medium(i == 2 ? hosts->b : hosts->a);
    struct sl_dpdk_fault_medium faulty;
    struct sl_dpdk_medium around = {.ops = &sl_dpdk_fault_ports, .ctx = &faulty};
    transport.medium = medium;
    if (hosts->faults != NULL) {
        faulty = (struct sl_dpdk_fault_medium){.inner = *medium, .faults = *hosts->faults};
        transport.medium = &around;
    }
    assert_int_equal(sl_transport_open(&sl_dpdk_ops, hosts->nodes[i].reactor, &transport,
                                       &hosts->nodes[i].transport),
                     0);
}

void hosts_open(struct hosts *hosts, const struct hosts_options *options)
{
    static const struct hosts_options defaults;
    options = options != NULL ? options : &defaults;
    sl_log_setup(SL_LOG_OFF, "hosts");
    *hosts = (struct hosts){.now_ns = 100 * SL_CLOCK_NS_PER_S};
    hosts->clock = (struct sl_clock){.now_ns = now_ns, .ctx = hosts};
    hosts->wire = sl_wire_create(
        &(struct sl_wire_options){.clock = &hosts->clock, .delay_ns = 5 * SL_CLOCK_NS_PER_US});
    sl_wire_set_tap(hosts->wire, tap, hosts);
    add_device(hosts, options, false);
    add_device(hosts, options, true);
    for (uint32_t i = 0; i < NODES; i++) {
        open_node(hosts, i);
    }
    struct sl_reactor *both[] = {hosts->nodes[0].reactor, hosts->nodes[1].reactor};
    assert_int_equal(sl_reactor_connect(both, 2), 0);
    assert_int_equal(sl_reactor_connect(&hosts->nodes[2].reactor, 1), 0);
    hosts->transport = options->transport;
    hosts->faults = options->faults;
    for (uint32_t i = 0; i < NODES; i++) {
        open_transport(hosts, i);
    }
}

void hosts_close(struct hosts *hosts)
{
    for (uint32_t i = 0; i < NODES; i++) {
        sl_transport_close(&hosts->nodes[i].transport);
    }
    for (uint32_t i = 0; i < NODES; i++) {
        sl_reactor_destroy(&hosts->nodes[i].reactor);
    }
    sl_wire_host_remove(&hosts->a);
    sl_wire_host_remove(&hosts->b);
    sl_wire_destroy(&hosts->wire);
}

void hosts_restart_a(struct hosts *hosts)
{
    sl_wire_device_set_down(hosts->device_a, true);
    for (uint32_t i = 0; i < 2; i++) {
        sl_transport_close(&hosts->nodes[i].transport);
    }
    sl_wire_device_set_down(hosts->device_a, false);
    for (uint32_t i = 0; i < 2; i++) {
        open_transport(hosts, i);
    }
}

void hosts_step(struct hosts *hosts, uint64_t step_ns)
{
    hosts->now_ns += step_ns;
    for (uint32_t i = 0; i < NODES; i++) {
        if (hosts->nodes[i].transport != NULL) {
            (void)sl_reactor_turn(hosts->nodes[i].reactor, hosts->now_ns);
        }
    }
}

void hosts_run_ms(struct hosts *hosts, uint32_t ms)
{
    const uint64_t end_ns = hosts->now_ns + ms * SL_CLOCK_NS_PER_MS;
    while (hosts->now_ns < end_ns) {
        hosts_step(hosts, STEP_NS);
    }
}

void hosts_until(struct hosts *hosts, const uint32_t *counter, uint32_t value)
{
    const uint64_t end_ns = hosts->now_ns + PATIENCE_NS;
    while (*counter != value && hosts->now_ns < end_ns) {
        hosts_step(hosts, STEP_NS);
    }
    assert_int_equal(*counter, value);
}

/* ---- Nodes ------------------------------------------------------------------------------------
 */

static struct sl_endpoint endpoint_of(const char *address, uint16_t port)
{
    struct sl_endpoint endpoint = {.scheme = SL_ENDPOINT_DPDK, .port = port};
    strncpy(endpoint.host, address, sizeof endpoint.host - 1);
    return endpoint;
}

void node_listen(struct node *node, uint16_t port)
{
    const struct sl_endpoint endpoint = endpoint_of("0.0.0.0", port);
    assert_int_equal(sl_transport_listen(node->transport, &endpoint, &events, node, &node->bound),
                     0);
}

struct link *node_connect_to(struct node *node, const char *address, uint16_t port, uint32_t target)
{
    const struct sl_endpoint endpoint = endpoint_of(address, port);
    struct link *link = add_link(node, NULL);
    assert_int_equal(
        sl_transport_connect(node->transport, &endpoint, target, &events, node, link, &link->conn),
        0);
    return link;
}

struct link *node_connect(struct node *node, const char *address, uint16_t port)
{
    return node_connect_to(node, address, port, 0);
}

struct sl_dpdk *node_dpdk(struct node *node)
{
    return (struct sl_dpdk *)node->transport;
}

struct sl_dpdk_conn *link_conn(struct link *link)
{
    assert_non_null(link->conn);
    return (struct sl_dpdk_conn *)link->conn;
}

struct link *hosts_pair(struct hosts *hosts)
{
    struct node *server = &hosts->nodes[0];
    node_listen(server, 0);
    struct link *link = node_connect(&hosts->nodes[2], server->bound.host, server->bound.port);
    hosts_until(hosts, &link->opened, 1);
    hosts_until(hosts, &server->link_count, 1);
    return link;
}

struct link *server_of(struct hosts *hosts)
{
    return &hosts->nodes[0].links[0];
}

void expect_alive(struct hosts *hosts, struct link *client)
{
    const uint32_t before = server_of(hosts)->received;
    link_send(client, 2, 64);
    hosts_until(hosts, &server_of(hosts)->received, before + 2);
    assert_int_equal(client->closed, 0);
}
