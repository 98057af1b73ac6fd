/* How connections live and end, on a cable that loses, repeats and forges. */
#include "net/dpdk/dpdk.h"
#include "net/dpdk/state.h"
#include "tests/support/unit.h"
#include "tests/unit/net/dpdk/hosts.h"

#define TIMEOUT_MS 10000U

/* ---- Disconnect -------------------------------------------------------------------------------
 */

/* All that was taken arrives, and is reported, before both sides hear of the end: also when what
 * ends it is lost. */
SL_CASE(disconnect__delivers_all_before_the_end)
{
    static const uint32_t kinds[] = {SL_DPDK_ACK, SL_DPDK_BUNDLE, SL_DPDK_DATA, SL_DPDK_FIN,
                                     SL_DPDK_RESET};
    for (uint32_t i = 0; i < 5; i++) {
        for (uint32_t lost = 0; lost < 4; lost++) {
            struct hosts hosts;
            hosts_open(&hosts, NULL);
            struct link *client = hosts_pair(&hosts);
            link_send(client, 30, 100);
            link_send(client, 2, 30000);
            link_send(client, 2, 8000);
            hosts.lose[kinds[i]] = lost;
            sl_transport_disconnect(client->conn);
            const uint64_t begin_ns = hosts.now_ns;
            hosts_until(&hosts, &client->closed, 1);
            hosts_until(&hosts, &server_of(&hosts)->closed, 1);
            assert_int_equal(client->err, SL_OK);
            assert_int_equal(client->sent, 34);
            assert_int_equal(server_of(&hosts)->err, SL_ERR_CLOSED);
            assert_int_equal(server_of(&hosts)->received, 34);
            assert_true(hosts.now_ns - begin_ns <= 1100 * SL_CLOCK_NS_PER_MS);
            hosts_close(&hosts);
        }
    }
}

/* A peer that is gone does not keep it for longer than a second. */
HOSTS_CASE(disconnect__nobody_answers)
{
    struct link *client = hosts_pair(hosts);
    sl_wire_device_set_down(hosts->device_a, true);
    sl_transport_disconnect(client->conn);
    hosts_run_ms(hosts, 990);
    assert_int_equal(client->closed, 0);
    hosts_run_ms(hosts, 20);
    assert_int_equal(client->closed, 1);
    assert_int_equal(client->err, SL_OK);
}

/* What came before the end is delivered, however long the receiver has no memory for it. */
HOSTS_CASE(disconnect__waits_for_the_receivers_memory)
{
    struct link *client = hosts_pair(hosts), *server = server_of(hosts);
    hosts->nodes[0].refuses_sink = true;
    link_send(client, 2, 20000);
    sl_transport_disconnect(client->conn);
    hosts_until(hosts, &client->closed, 1);
    assert_int_equal(client->sent, 2);
    hosts_run_ms(hosts, 3 * TIMEOUT_MS);
    assert_int_equal(server->closed, 0);
    hosts->nodes[0].refuses_sink = false;
    hosts_until(hosts, &server->closed, 1);
    assert_int_equal(server->received, 2);
    assert_int_equal(server->err, SL_ERR_CLOSED);
}

/* The peer has said how much there is, and is gone before all of it has come. */
HOSTS_CASE(fin__and_the_tail_never_comes)
{
    struct link *client = hosts_pair(hosts), *server = server_of(hosts);
    hosts->lose[SL_DPDK_BUNDLE] = 1;
    link_send(client, 1, 100);
    sl_transport_disconnect(client->conn);
    hosts_until(hosts, &hosts->received[SL_DPDK_FIN], 1);
    hosts_step(hosts, STEP_NS);
    hosts_step(hosts, STEP_NS);
    assert_true(link_conn(server)->end.fin_received);
    sl_wire_device_set_down(hosts->device_b, true);
    hosts_run_ms(hosts, TIMEOUT_MS - 100);
    assert_int_equal(server->closed, 0);
    hosts_run_ms(hosts, TIMEOUT_MS);
    assert_int_equal(server->closed, 1);
    assert_int_equal(server->err, SL_ERR_DEADLINE);
}

/* Who ended speaks once more to a peer that has not heard of it. */
HOSTS_CASE(ended__tells_again)
{
    struct link *client = hosts_pair(hosts), *server = server_of(hosts);
    sl_transport_disconnect(client->conn);
    hosts->lose[SL_DPDK_FIN] = UINT32_MAX;
    hosts->lose[SL_DPDK_RESET] = 1;
    hosts_until(hosts, &client->closed, 1);
    assert_int_equal(server->closed, 0);
    hosts->lose[SL_DPDK_FIN] = 0;
    sl_transport_disconnect(server->conn);
    hosts_until(hosts, &server->closed, 1);
    assert_int_equal(server->err, SL_OK);
}

/* Who comes back at the same address knows none of the connections, and says so to who asks. */
SL_CASE(restart__is_told_at_once)
{
    for (uint32_t i = 0; i < 2; i++) {
        const struct hosts_options options = {
            .device = {.steering = i == 0 ? SL_WIRE_STRAIGHT : SL_WIRE_FIRST}};
        struct hosts hosts;
        hosts_open(&hosts, &options);
        struct link *client = hosts_pair(&hosts);
        expect_alive(&hosts, client);
        hosts_restart_a(&hosts);
        link_send(client, 2, 5000);
        hosts_run_ms(&hosts, 20);
        assert_int_equal(client->closed, 1);
        assert_int_equal(client->err, SL_ERR_CLOSED);
        assert_int_equal(client->sent, 2); /* those before */
        hosts_close(&hosts);
    }
}

HOSTS_CASE(restart__of_a_peer_that_says_nothing)
{
    struct link *client = hosts_pair(hosts);
    hosts_restart_a(hosts);
    hosts_run_ms(hosts, TIMEOUT_MS / 2 + 100);
    assert_int_equal(client->closed, 1);
    assert_int_equal(client->err, SL_ERR_CLOSED);
}

SL_CASE(transport_close__is_told)
{
    for (uint32_t lost = 0; lost < 2; lost++) {
        struct hosts hosts;
        hosts_open(&hosts, NULL);
        struct link *client = hosts_pair(&hosts);
        hosts.lose[SL_DPDK_RESET] = lost;
        sl_transport_close(&hosts.nodes[0].transport);
        assert_int_equal(server_of(&hosts)->err, SL_ERR_CANCELLED);
        hosts_run_ms(&hosts, 5);
        assert_int_equal(client->closed, 1);
        assert_int_equal(client->err, SL_ERR_CLOSED);
        hosts_close(&hosts);
    }
}

/* ---- Forgeries --------------------------------------------------------------------------------
 */

static uint64_t spoofed_at(struct hosts *hosts, uint32_t node)
{
    return node_dpdk(&hosts->nodes[node])->counts.spoofed;
}

struct change {
    uint64_t id;
    uint32_t sequence, acknowledged, message;
    uint16_t behind;
    uint8_t kind;
    uint16_t body; /* bytes, where the kind does not say */
};

static void make(void *ctx, struct sl_dpdk_header *header)
{
    const struct change *change = ctx;
    header->connection = change->id;
    header->kind = change->kind;
    header->sequence = change->sequence;
    header->acknowledged = change->acknowledged;
    header->behind = change->behind;
    header->message = change->message;
    header->body_bytes = change->kind == SL_DPDK_RESET    ? 1
                         : change->kind == SL_DPDK_BUNDLE ? SL_FRAME_HEADER_BYTES
                         : change->kind == SL_DPDK_DATA   ? 8
                                                          : change->body;
}

/* From the client's address to the server: what it could say truthfully. */
static struct change truth(struct link *client, uint8_t kind)
{
    const struct sl_dpdk_conn *conn = link_conn(client);
    return (struct change){.id = conn->id_peers,
                           .sequence = conn->sent_packets.next,
                           .acknowledged = conn->received.next,
                           .kind = kind};
}

/* An acknowledgement of the client's is made into other packets: 42 bytes and a header. */
static void record_ack(struct hosts *hosts, struct link *client)
{
    link_send(server_of(hosts), 1, 10);
    hosts_until(hosts, &client->received, client->received + 1);
    hosts_run_ms(hosts, 50);
    assert_true(hosts->received[SL_DPDK_ACK] > 0);
}

HOSTS_CASE(spoofed__with_numbers_that_cannot_be)
{
    static const uint8_t kinds[] = {SL_DPDK_RESET, SL_DPDK_FIN,  SL_DPDK_PROBE,
                                    SL_DPDK_ACK,   SL_DPDK_DATA, SL_DPDK_BUNDLE};
    struct link *client = hosts_pair(hosts);
    record_ack(hosts, client);
    for (uint32_t i = 0; i < sizeof kinds; i++) {
        const uint64_t before = spoofed_at(hosts, 0);
        struct change change = truth(client, kinds[i]);
        change.acknowledged += 1; /* never sent */
        change.sequence += 1000;  /* which alone could be */
        hosts_forge(hosts, FROM_B, SL_DPDK_ACK, make, &change);
        change = truth(client, kinds[i]);
        change.acknowledged -= 1U << 30; /* long ago */
        hosts_forge(hosts, FROM_B, SL_DPDK_ACK, make, &change);
        change = truth(client, kinds[i]);
        change.sequence += 1U << 20; /* outside of the window */
        hosts_forge(hosts, FROM_B, SL_DPDK_ACK, make, &change);
        hosts_run_ms(hosts, 5);
        assert_int_equal(spoofed_at(hosts, 0), before + 3);
        expect_alive(hosts, client);
        record_ack(hosts, client);
    }
}

HOSTS_CASE(spoofed__with_another_id)
{
    struct link *client = hosts_pair(hosts);
    record_ack(hosts, client);
    struct change change = truth(client, SL_DPDK_RESET);
    const uint64_t not_ours = node_dpdk(&hosts->nodes[0])->counts.not_ours;
    change.id ^= 1ULL << 40;
    hosts_forge(hosts, FROM_B, SL_DPDK_ACK, make, &change);
    hosts_run_ms(hosts, 5);
    assert_int_equal(node_dpdk(&hosts->nodes[0])->counts.not_ours, not_ours + 1);
    expect_alive(hosts, client);
}

/* All of it is right, but for the address that it comes from. */
HOSTS_CASE(spoofed__from_another_address)
{
    struct link *client = hosts_pair(hosts);
    record_ack(hosts, client);
    struct change change = truth(client, SL_DPDK_RESET);
    struct packet *packet = &hosts->last[FROM_B][SL_DPDK_ACK];
    packet->bytes[35] ^= 1; /* the source's UDP port */
    packet->bytes[40] = packet->bytes[41] = 0;
    sl_dpdk_seal(packet->bytes, packet->length);
    hosts_forge(hosts, FROM_B, SL_DPDK_ACK, make, &change);
    hosts_run_ms(hosts, 5);
    assert_int_equal(spoofed_at(hosts, 0), 1);
    expect_alive(hosts, client);
}

/* A peer that asks for a connection unknown to this incarnation gets no answer. */
HOSTS_CASE(restart__an_id_of_this_life_is_not)
{
    struct link *client = hosts_pair(hosts);
    record_ack(hosts, client);
    const uint32_t resets = hosts->received[SL_DPDK_RESET];
    struct change change = truth(client, SL_DPDK_PROBE);
    change.body = 8;
    change.id ^= 1ULL << 40;
    hosts_forge(hosts, FROM_B, SL_DPDK_ACK, make, &change);
    hosts_run_ms(hosts, 5);
    assert_int_equal(hosts->received[SL_DPDK_RESET], resets);
    change.id ^= 1ULL << 12;
    hosts_forge(hosts, FROM_B, SL_DPDK_ACK, make, &change); /* of another life, but from nobody */
    hosts_run_ms(hosts, 5);
    assert_int_equal(hosts->received[SL_DPDK_RESET], resets);
    expect_alive(hosts, client);
}

/* The same with nothing wrong ends the connection: so the cases above test what they say. */
HOSTS_CASE(reset__that_is_right)
{
    struct link *client = hosts_pair(hosts);
    record_ack(hosts, client);
    struct change change = truth(client, SL_DPDK_RESET);
    hosts_forge(hosts, FROM_B, SL_DPDK_ACK, make, &change);
    hosts_until(hosts, &server_of(hosts)->closed, 1);
    assert_int_equal(server_of(hosts)->err, SL_ERR_CLOSED);
}

HOSTS_CASE(packets__that_come_twice)
{
    struct link *client = hosts_pair(hosts);
    hosts->nodes[0].echoes = true;
    for (uint32_t i = 1; i <= 20; i++) {
        link_send(client, 1, i * 100);
        hosts_until(hosts, &client->received, i);
        hosts_repeat(hosts, FROM_B, i < 15 ? SL_DPDK_BUNDLE : SL_DPDK_DATA);
        hosts_repeat(hosts, FROM_A, i < 15 ? SL_DPDK_BUNDLE : SL_DPDK_DATA);
    }
    hosts_run_ms(hosts, 5);
    assert_int_equal(client->received, 20);
    assert_int_equal(server_of(hosts)->received, 20);
}

/* What is no message of ours ends the connection on both sides. */
HOSTS_CASE(peer__that_is_malicious)
{
    struct link *client = hosts_pair(hosts);
    record_ack(hosts, client);
    struct change change = truth(client, SL_DPDK_BUNDLE);
    hosts_forge(hosts, FROM_B, SL_DPDK_ACK, make, &change);
    hosts_until(hosts, &server_of(hosts)->closed, 1);
    assert_int_equal(server_of(hosts)->err, SL_ERR_PROTOCOL);
    hosts_until(hosts, &client->closed, 1);
    assert_int_equal(client->err, SL_ERR_CLOSED);
}

/* It would be waited for in vain. */
SL_CASE(fin__of_what_cannot_be)
{
    static const uint32_t messages[] = {UINT32_MAX, 2000, 1U << 31};
    for (uint32_t i = 0; i < 3; i++) {
        struct hosts hosts;
        hosts_open(&hosts, NULL);
        struct link *client = hosts_pair(&hosts);
        record_ack(&hosts, client);
        struct change change = truth(client, SL_DPDK_FIN);
        change.message = messages[i];
        hosts_forge(&hosts, FROM_B, SL_DPDK_ACK, make, &change);
        hosts_run_ms(&hosts, 5);
        assert_int_equal(server_of(&hosts)->closed, 1);
        assert_int_equal(server_of(&hosts)->err, SL_ERR_PROTOCOL);
        hosts_close(&hosts);
    }
}

/* ---- Open -------------------------------------------------------------------------------------
 */

/* On the reactor of index 1, by devices like these. */
static int try_open(const struct sl_wire_device_options *devices, uint32_t count)
{
    const struct sl_reactor_options options = {
        .name = "open", .index = 1, .core = -1, .stepped = true};
    struct sl_wire *wire = sl_wire_create(&(struct sl_wire_options){.clock = NULL});
    struct sl_wire_host *host = sl_wire_host_add(wire);
    struct sl_reactor *reactor;
    struct sl_transport *transport;
    for (uint32_t i = 0; i < count; i++) {
        (void)sl_wire_device_add(host, &devices[i]);
    }
    const struct sl_transport_options medium = {.medium = sl_wire_host_medium(host)};
    assert_int_equal(sl_reactor_create(&options, &reactor), 0);
    const int err = sl_transport_open(&sl_dpdk_ops, reactor, &medium, &transport);
    if (err == 0) {
        sl_transport_close(&transport);
    }
    sl_reactor_destroy(&reactor);
    sl_wire_host_remove(&host);
    sl_wire_destroy(&wire);
    return err;
}

SL_CASE(open__ports_beyond_the_last)
{
    struct sl_wire_device_options device = {
        .address = ADDRESS_A, .port_base = 65532, .reactors = 4, .queues = 4};
    assert_int_equal(try_open(&device, 1), 0);
    device.port_base++;
    assert_int_equal(try_open(&device, 1), SL_ERR_INVALID);
}

SL_CASE(open__devices_of_other_reactors)
{
    struct sl_wire_device_options devices[] = {
        {.address = ADDRESS_A, .port_base = PORT_BASE, .reactors = 2, .queues = 2},
        {.address = ADDRESS_B, .port_base = PORT_BASE, .reactors = 2, .queues = 2}};
    assert_int_equal(try_open(devices, 2), 0);
    devices[1].first_reactor = 1;
    assert_int_equal(try_open(devices, 2), SL_ERR_INVALID);
    devices[1].first_reactor = 0;
    devices[1].reactors = devices[1].queues = 3;
    assert_int_equal(try_open(devices, 2), SL_ERR_INVALID);
}

/* Who asks is answered although all that can be sent waits for a peer that takes nothing now. */
HOSTS_CASE(open__of_one_whose_queue_is_full, .device = {.queue_packets = 4})
{
    struct link *client = hosts_pair(hosts);
    expect_alive(hosts, client);
    struct node *server = &hosts->nodes[0], *stands = &hosts->nodes[2];
    struct sl_reactor *stopped = stands->reactor;
    stands->reactor = server->reactor;
    link_send(server_of(hosts), 300, 1392);
    for (uint32_t i = 0; i < 20; i++) {
        hosts_step(hosts, STEP_NS);
    }
    assert_int_equal(node_dpdk(server)->netifs[0].out_count, SL_DPDK_BURST);
    const uint32_t before = hosts->received[SL_DPDK_ACCEPT];
    hosts_repeat(hosts, FROM_B, SL_DPDK_OPEN);
    hosts_step(hosts, STEP_NS);
    stands->reactor = stopped;
    hosts_until(hosts, &client->received, 300);
    assert_true(hosts->received[SL_DPDK_ACCEPT] > before);
}
