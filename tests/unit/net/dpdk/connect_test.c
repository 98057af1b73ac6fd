/* How connections begin, on a cable that loses, repeats and forges. */
#include <stdio.h>
#include <string.h>

#include "net/dpdk/neighbour_packet.h"
#include "net/dpdk/state.h"
#include "tests/support/unit.h"
#include "tests/unit/net/dpdk/hosts.h"

#define TIMEOUT_MS 10000U

static void expect_pair(struct hosts *hosts, struct link *client)
{
    struct node *server = &hosts->nodes[0];
    hosts_until(hosts, &client->opened, 1);
    hosts_until(hosts, &server->link_count, 1);
    link_send(client, 3, 100);
    hosts_until(hosts, &server->links[0].received, 3);
    hosts_until(hosts, &client->sent, 3);
    assert_int_equal(client->opened, 1);
    assert_int_equal(server->link_count, 1);
}

HOSTS_CASE(connect__both_netifs_open_once)
{
    struct link *client = hosts_pair(hosts);
    expect_pair(hosts, client);
    assert_int_equal(hosts->received[SL_DPDK_OPEN], 2);
    assert_int_equal(hosts->received[SL_DPDK_RETRY], 1);
    assert_int_equal(hosts->received[SL_DPDK_ACCEPT], 1);
    assert_string_equal(client->conn->peer, "dpdk://" ADDRESS_A ":4000");
    assert_string_equal(hosts->nodes[0].links[0].conn->peer, "dpdk://" ADDRESS_B ":4000");
    assert_int_equal(sl_dpdk_id_reactor(link_conn(client)->id), 0);
    assert_int_not_equal(link_conn(client)->id >> 8, link_conn(&hosts->nodes[0].links[0])->id >> 8);
}

/* The n-th packet of each kind is lost, for each n that there is, and several in a row. */
SL_CASE(connect__survives_the_loss_of_each_packet)
{
    static const uint32_t kinds[] = {NEIGHBOUR, SL_DPDK_OPEN, SL_DPDK_RETRY, SL_DPDK_ACCEPT};
    for (uint32_t i = 0; i < 4; i++) {
        for (uint32_t lost = 1; lost <= 4; lost++) {
            struct hosts hosts;
            hosts_open(&hosts, NULL);
            hosts.lose[kinds[i]] = lost;
            expect_pair(&hosts, hosts_pair(&hosts));
            assert_int_equal(hosts.lose[kinds[i]], 0);
            hosts_close(&hosts);
        }
    }
}

HOSTS_CASE(connect__nobody_is_there)
{
    struct link *client = node_connect(&hosts->nodes[2], "10.1.0.77", 4000);
    hosts_run_ms(hosts, TIMEOUT_MS - 100);
    assert_int_equal(client->closed, 0);
    hosts_until(hosts, &client->closed, 1);
    assert_int_equal(client->err, SL_ERR_DEADLINE);
    assert_int_equal(client->opened, 0);
}

/* The answers wait in the device while the thread that asked is stopped beyond the deadline: the
 * first ones, or those to a question that was asked often. */
SL_CASE(connect__a_stopped_thread_looks_before_it_gives_up)
{
    static const uint32_t kinds[] = {NEIGHBOUR, SL_DPDK_RETRY, SL_DPDK_ACCEPT};
    for (uint32_t i = 0; i < 6; i++) {
        const uint32_t kind = kinds[i / 2], lost = i % 2 * 6;
        struct hosts hosts;
        hosts_open(&hosts, NULL);
        hosts.lose[kind] = lost;
        node_listen(&hosts.nodes[0], 0);
        struct link *client = node_connect(&hosts.nodes[2], ADDRESS_A, hosts.nodes[0].bound.port);
        while (hosts.lose[kind] > 0 || hosts.last[FROM_A][kind].length == 0) { /* A has answered */
            hosts_step(&hosts, STEP_NS);
        }
        hosts_step(&hosts, 2ULL * TIMEOUT_MS * SL_CLOCK_NS_PER_MS);
        expect_pair(&hosts, client);
        hosts_close(&hosts);
    }
}

/* Also when all that is lost is the answer. */
HOSTS_CASE(connect__nobody_listens)
{
    hosts->lose[SL_DPDK_REFUSE] = 2;
    struct link *client = node_connect(&hosts->nodes[2], ADDRESS_A, 4000);
    hosts_until(hosts, &client->closed, 1);
    assert_int_equal(client->err, SL_ERR_REFUSED);
    assert_int_equal(hosts->received[SL_DPDK_REFUSE], 3);
}

HOSTS_CASE(connect__more_than_the_limit, .transport = {.connections_max = 1})
{
    struct link *first = hosts_pair(hosts);
    const struct sl_endpoint *bound = &hosts->nodes[0].bound;
    struct sl_conn *conn;
    assert_int_equal(sl_transport_connect(hosts->nodes[2].transport, bound, 0, first->conn->events,
                                          &hosts->nodes[2], first, &conn),
                     SL_ERR_TOO_LARGE);
    struct link *second = node_connect(&hosts->nodes[1], bound->host, bound->port);
    hosts_until(hosts, &second->closed, 1);
    assert_int_equal(second->err, SL_ERR_REFUSED);
    expect_pair(hosts, first);
}

/* ---- Refusals ---------------------------------------------------------------------------------
 */

/* The version and the kind are of that place in every version. */
static void inject_as_version_3(struct hosts *hosts, uint32_t from, enum sl_dpdk_kind kind)
{
    struct packet *packet = &hosts->last[from][kind];
    packet->bytes[42 + 30] = (uint8_t)(0x30 | kind);
    packet->bytes[40] = packet->bytes[41] = 0;
    sl_dpdk_seal(packet->bytes, packet->length);
    hosts_repeat(hosts, from, kind);
}

static const uint8_t *hello_of(const struct hosts *hosts, uint32_t from, enum sl_dpdk_kind kind)
{
    return hosts->last[from][kind].bytes + 42 + SL_DPDK_HEADER_BYTES;
}

/* Who asks in another version hears at once that it is not ours, without a cookie, and in no more
 * bytes than he sent. */
SL_CASE(refuse__who_asks_in_another_version)
{
    for (uint32_t i = 0; i < 2; i++) {
        const struct hosts_options options = {
            .device = {.steering = i == 0 ? SL_WIRE_STRAIGHT : SL_WIRE_FIRST}};
        struct hosts hosts;
        hosts_open(&hosts, &options);
        struct link *client = hosts_pair(&hosts);
        inject_as_version_3(&hosts, FROM_B, SL_DPDK_OPEN);
        hosts_run_ms(&hosts, 1);
        assert_int_equal(hosts.received[SL_DPDK_REFUSE], 1);
        const struct packet *refuse = &hosts.last[FROM_A][SL_DPDK_REFUSE];
        assert_true(refuse->length <= hosts.last[FROM_B][SL_DPDK_OPEN].length);
        const uint8_t *said = hello_of(&hosts, FROM_A, SL_DPDK_REFUSE);
        assert_memory_equal(said, hello_of(&hosts, FROM_B, SL_DPDK_OPEN), 8);
        assert_int_equal(said[35], -SL_ERR_VERSION);
        expect_pair(&hosts, client);
        hosts_close(&hosts);
    }
}

HOSTS_CASE(refused__by_another_version)
{
    hosts->lose[SL_DPDK_REFUSE] = 1000;
    struct link *client = node_connect(&hosts->nodes[2], ADDRESS_A, 4000);
    hosts_run_ms(hosts, 5);
    assert_true(hosts->received[SL_DPDK_REFUSE] > 0);
    assert_int_equal(client->closed, 0);
    struct packet *packet = &hosts->last[FROM_A][SL_DPDK_REFUSE];
    packet->bytes[35] ^= 1; /* from another port */
    inject_as_version_3(hosts, FROM_A, SL_DPDK_REFUSE);
    hosts_run_ms(hosts, 1);
    assert_int_equal(client->closed, 0);
    packet->bytes[35] ^= 1;
    inject_as_version_3(hosts, FROM_A, SL_DPDK_REFUSE);
    hosts_run_ms(hosts, 1);
    assert_int_equal(client->closed, 1);
    assert_int_equal(client->err, SL_ERR_REFUSED);
}

/* It is known to be no other's address: he may hear more than he said. */
HOSTS_CASE(refuse__says_why, .transport = {.connections_max = 1})
{
    (void)hosts_pair(hosts);
    const struct sl_endpoint *bound = &hosts->nodes[0].bound;
    hosts->lose[SL_DPDK_REFUSE] = 0;
    struct link *second = node_connect(&hosts->nodes[1], bound->host, bound->port);
    hosts_until(hosts, &second->closed, 1);
    static const char why[] = "1 connections are open, which is the limit";
    const uint8_t *said = hello_of(hosts, FROM_A, SL_DPDK_REFUSE);
    assert_int_equal(said[35], -SL_ERR_TOO_LARGE);
    assert_memory_equal(said + SL_DPDK_HELLO_BYTES, why, sizeof why - 1);
    assert_int_equal(hosts->last[FROM_A][SL_DPDK_REFUSE].length,
                     42 + SL_DPDK_HEADER_BYTES + SL_DPDK_HELLO_BYTES + sizeof why - 1);
}

/* Within a process, through the switch: the packets come to who sent them, and are passed on. */
HOSTS_CASE(connect__to_another_reactor_of_the_process)
{
    node_listen(&hosts->nodes[0], 0);
    struct link *client = node_connect(&hosts->nodes[1], ADDRESS_A, hosts->nodes[0].bound.port);
    expect_pair(hosts, client);
    assert_true(node_dpdk(&hosts->nodes[1])->counts.misrouted_sent > 0);
    assert_true(node_dpdk(&hosts->nodes[0])->counts.misrouted_taken > 0);
}

HOSTS_CASE(connect__to_oneself)
{
    struct node *both = &hosts->nodes[2];
    node_listen(both, 0);
    struct link *client = node_connect(both, ADDRESS_B, both->bound.port);
    hosts_until(hosts, &client->opened, 1);
    hosts_until(hosts, &both->link_count, 2);
    link_send(client, 3, 2000);
    hosts_until(hosts, &both->links[1].received, 3);
}

/* Node 1 listens, and every packet comes by the queue of node 0. */
static struct link *pair_past_node_0(struct hosts *hosts)
{
    node_listen(&hosts->nodes[1], 0);
    struct link *client = node_connect_to(&hosts->nodes[2], ADDRESS_A, PORT_BASE, 1);
    hosts_until(hosts, &client->opened, 1);
    return client;
}

/* A reactor that is stopped for a while is sent no more than it can be expected to keep. */
HOSTS_CASE(misrouted__of_a_reactor_that_stands_still, .device = {.steering = SL_WIRE_FIRST})
{
    struct node *server = &hosts->nodes[1];
    struct link *client = pair_past_node_0(hosts);
    link_send(client, 1, 100);
    hosts_until(hosts, &server->links[0].received, 1);
    const struct sl_dpdk *passes = node_dpdk(&hosts->nodes[0]);
    struct sl_reactor *stopped = server->reactor;
    server->reactor = hosts->nodes[0].reactor;
    for (uint32_t i = 0; i < 5000; i++) {
        hosts_repeat(hosts, FROM_B, SL_DPDK_BUNDLE);
        if (i % 100 == 0) {
            hosts_step(hosts, STEP_NS);
        }
    }
    hosts_run_ms(hosts, 5);
    assert_in_range(passes->misrouted.out[1], 100, 1024);
    server->reactor = stopped;
    hosts_run_ms(hosts, 50);
    assert_int_equal(passes->misrouted.out[1], 0);
    link_send(client, 20, 3000);
    hosts_until(hosts, &server->links[0].received, 21);
}

/* What comes for a reactor that has no transport yet is lost, and later ones are not. */
HOSTS_CASE(misrouted__before_there_is_a_transport, .device = {.steering = SL_WIRE_FIRST})
{
    struct node *server = &hosts->nodes[1];
    struct link *client = pair_past_node_0(hosts);
    link_send(client, 1, 100);
    hosts_until(hosts, &server->links[0].received, 1);
    const struct sl_dpdk *passes = node_dpdk(&hosts->nodes[0]);
    sl_transport_close(&server->transport);
    const uint64_t before = passes->counts.misrouted_sent;
    for (uint32_t i = 0; i < 2000; i++) {
        hosts_repeat(hosts, FROM_B, SL_DPDK_BUNDLE);
        if (i % 100 == 0) {
            hosts_step(hosts, STEP_NS);
            (void)sl_reactor_turn(server->reactor, hosts->now_ns);
        }
    }
    hosts_run_ms(hosts, 5);
    (void)sl_reactor_turn(server->reactor, hosts->now_ns);
    hosts_run_ms(hosts, 5);
    assert_true(passes->counts.misrouted_sent - before > 1024);
    assert_int_equal(passes->misrouted.out[1], 0);
}

/* They wait for their turn in such numbers that, were they the port's packets, none would be left
 * for an answer to leave by. */
HOSTS_CASE(misrouted__that_wait_keep_nothing_from_being_sent,
           .device = {.steering = SL_WIRE_FIRST, .frame_bytes_max = 622, .packets = 2048}, )
{
    struct node *server = &hosts->nodes[1];
    struct link *client = pair_past_node_0(hosts);
    server->refuses_sink = true;
    hosts->lose[SL_DPDK_DATA] = 1; /* so that all that is granted comes before it is known */
    link_send(client, 40, 30000);
    hosts_run_ms(hosts, 30000);
    assert_int_equal(client->closed, 0);
    server->refuses_sink = false;
    hosts_until(hosts, &server->links[0].received, 40);
    hosts_until(hosts, &client->sent, 40);
}

/* All reactors of a device hear what neighbours answer, and none what they ask each other. */
HOSTS_CASE(misrouted__of_neighbours, .device = {.steering = SL_WIRE_FIRST})
{
    const struct sl_dpdk *hears = node_dpdk(&hosts->nodes[0]);
    const struct sl_dpdk_self *a = &hears->netifs[0].info.self;
    const struct sl_dpdk_self *b = &node_dpdk(&hosts->nodes[2])->netifs[0].info.self;
    struct sl_dpdk_neighbour_said said = {.asks = true, .tells = true, .who = a->ip};
    uint8_t packet[SL_DPDK_NEIGHBOUR_BYTES];
    struct in6_addr other = a->ip;
    other.s6_addr[15] = 77;
    sl_wire_inject(hosts->wire, packet, sl_dpdk_neighbour_ask(b, &other, packet), 0);
    hosts_run_ms(hosts, 1);
    assert_int_equal(hears->counts.misrouted_sent, 0);
    memcpy(said.mac, a->mac, sizeof said.mac);
    sl_wire_inject(hosts->wire, packet, sl_dpdk_neighbour_answer(b, &said, packet), 0);
    hosts_run_ms(hosts, 1);
    assert_int_equal(hears->counts.misrouted_sent, 1);
    sl_wire_inject(hosts->wire, packet, sl_dpdk_neighbour_ask(b, &b->ip, packet), 0);
    hosts_run_ms(hosts, 1);
    assert_int_equal(hears->counts.misrouted_sent, 2);
}

HOSTS_CASE(listen__ports_are_the_reactors)
{
    node_listen(&hosts->nodes[1], 0);
    struct sl_endpoint other = hosts->nodes[1].bound, bound;
    struct link *link = node_connect_to(&hosts->nodes[2], ADDRESS_A, other.port, 1);
    assert_int_equal(other.port, PORT_BASE);
    assert_int_equal(sl_transport_listen(hosts->nodes[1].transport, &other, link->conn->events,
                                         &hosts->nodes[1], &bound),
                     SL_ERR_IN_USE);
    other.port = PORT_BASE + 1;
    assert_int_equal(sl_transport_listen(hosts->nodes[1].transport, &other, link->conn->events,
                                         &hosts->nodes[1], &bound),
                     SL_ERR_INVALID);
    other.port = 0;
    assert_int_equal(sl_transport_listen(hosts->nodes[1].transport, &other, link->conn->events,
                                         &hosts->nodes[1], &bound),
                     0);
    assert_int_equal(bound.port, PORT_BASE + 2);
    (void)snprintf(other.host, sizeof other.host, "10.9.9.9");
    assert_int_equal(sl_transport_listen(hosts->nodes[1].transport, &other, link->conn->events,
                                         &hosts->nodes[1], &bound),
                     SL_ERR_NOT_FOUND);
}

/* ---- The reactor that is named ----------------------------------------------------------------
 */

static void expect_at_node_1(const struct hosts_options *options)
{
    struct hosts hosts;
    hosts_open(&hosts, options);
    node_listen(&hosts.nodes[0], 0);
    node_listen(&hosts.nodes[1], hosts.nodes[0].bound.port);
    hosts.nodes[1].echoes = true;
    struct link *client = node_connect_to(&hosts.nodes[2], ADDRESS_A, PORT_BASE, 1);
    hosts_until(&hosts, &client->opened, 1);
    link_send(client, 20, 5000);
    hosts_until(&hosts, &client->received, 20);
    hosts_until(&hosts, &client->sent, 20);
    assert_int_equal(hosts.nodes[0].link_count, 0);
    assert_int_equal(hosts.nodes[1].link_count, 1);
    assert_int_equal(sl_dpdk_id_reactor(link_conn(client)->id_peers), 1);
    assert_int_equal(link_conn(client)->path.there.port, PORT_BASE + 1);
    assert_true(options->device.steering != SL_WIRE_FIRST ||
                node_dpdk(&hosts.nodes[0])->counts.misrouted_sent > 20);
    hosts_close(&hosts);
}

SL_CASE(target__wherever_packets_arrive)
{
    expect_at_node_1(&(struct hosts_options){.device = {.steering = SL_WIRE_STRAIGHT}});
    expect_at_node_1(&(struct hosts_options){.device = {.steering = SL_WIRE_FIRST}});
}

/* As memif's, of which there is one for each peer: it stays with the device that it came by. */
SL_CASE(target__where_two_devices_have_the_address)
{
    for (uint32_t i = 0; i < 4; i++) {
        expect_at_node_1(&(struct hosts_options){
            .device = {.steering = i < 2 ? SL_WIRE_STRAIGHT : SL_WIRE_FIRST},
            .has_twin_before = i % 2 == 0,
            .has_twin_behind = i % 2 != 0});
    }
}

HOSTS_CASE(target__that_has_no_listener)
{
    static const uint32_t targets[] = {1, 2, UINT16_MAX - PORT_BASE, UINT16_MAX, UINT32_MAX};
    node_listen(&hosts->nodes[0], 0);
    for (uint32_t i = 0; i < sizeof targets / sizeof targets[0]; i++) {
        struct link *client = node_connect_to(&hosts->nodes[2], ADDRESS_A, PORT_BASE, targets[i]);
        hosts_until(hosts, &client->closed, 1);
        assert_int_equal(client->err, SL_ERR_REFUSED);
    }
    assert_int_equal(hosts->nodes[0].link_count, 0);
}

/* ---- What is asked again, or by another -------------------------------------------------------
 */

HOSTS_CASE(open__asked_again)
{
    struct link *client = hosts_pair(hosts);
    for (uint32_t i = 0; i < 3; i++) {
        hosts_repeat(hosts, FROM_B, SL_DPDK_OPEN);
        hosts_run_ms(hosts, 5);
    }
    assert_int_equal(hosts->received[SL_DPDK_ACCEPT], 4);
    expect_pair(hosts, client);
}

/* The answer is lost for so long that the cookie is stale: the new one leads to the same. */
HOSTS_CASE(open__asked_again_with_another_cookie)
{
    node_listen(&hosts->nodes[0], 0);
    struct link *client = node_connect(&hosts->nodes[2], ADDRESS_A, PORT_BASE);
    hosts->lose[SL_DPDK_ACCEPT] = 1000;
    hosts_run_ms(hosts, TIMEOUT_MS - 1000);
    assert_true(hosts->received[SL_DPDK_RETRY] > 1);
    hosts->lose[SL_DPDK_ACCEPT] = 0;
    expect_pair(hosts, client);
}

/* Nor does the same question make a second connection when the first has ended. */
HOSTS_CASE(open__asked_again_after_the_end)
{
    struct link *client = hosts_pair(hosts);
    sl_transport_disconnect(client->conn);
    hosts_until(hosts, &hosts->nodes[0].links[0].closed, 1);
    hosts_repeat(hosts, FROM_B, SL_DPDK_OPEN);
    hosts_run_ms(hosts, 100);
    assert_int_equal(hosts->received[SL_DPDK_ACCEPT], 1);
    assert_int_equal(hosts->received[SL_DPDK_REFUSE], 1);
    assert_int_equal(hosts->nodes[0].link_count, 1);
}

/* A cookie is good for some seconds; who has an old one gets a new one. */
HOSTS_CASE(open__with_a_stale_cookie)
{
    struct link *client = hosts_pair(hosts);
    hosts_run_ms(hosts, 9000);
    hosts_repeat(hosts, FROM_B, SL_DPDK_OPEN);
    hosts_run_ms(hosts, 100);
    assert_int_equal(hosts->received[SL_DPDK_RETRY], 2);
    assert_int_equal(hosts->received[SL_DPDK_ACCEPT], 1);
    expect_pair(hosts, client);
}

/* Who gave up before the answer came tells the other, who else would wait for long. */
HOSTS_CASE(accept__nobody_wants_it_any_more)
{
    node_listen(&hosts->nodes[0], 0);
    struct link *client = node_connect(&hosts->nodes[2], ADDRESS_A, PORT_BASE);
    hosts->lose[SL_DPDK_ACCEPT] = 1;
    hosts_until(hosts, &hosts->lose[SL_DPDK_ACCEPT], 0);
    sl_transport_disconnect(client->conn);
    hosts_until(hosts, &client->closed, 1);
    assert_int_equal(client->err, SL_OK);
    hosts_repeat(hosts, FROM_A, SL_DPDK_ACCEPT);
    hosts_until(hosts, &hosts->nodes[0].links[0].closed, 1);
    assert_int_equal(hosts->nodes[0].links[0].err, SL_ERR_CLOSED);
}

/* From the wrong address, with all else right. */
HOSTS_CASE(accept__spoofed)
{
    node_listen(&hosts->nodes[0], 0);
    struct link *client = node_connect(&hosts->nodes[2], ADDRESS_A, PORT_BASE);
    hosts->lose[SL_DPDK_ACCEPT] = 1;
    hosts_until(hosts, &hosts->lose[SL_DPDK_ACCEPT], 0);
    struct packet *packet = &hosts->last[FROM_A][SL_DPDK_ACCEPT];
    packet->bytes[35] ^= 1; /* the source's UDP port */
    packet->bytes[40] = packet->bytes[41] = 0;
    sl_dpdk_seal(packet->bytes, packet->length);
    hosts_repeat(hosts, FROM_A, SL_DPDK_ACCEPT);
    hosts_step(hosts, STEP_NS);
    hosts_step(hosts, STEP_NS);
    assert_int_equal(client->opened, 0);
    assert_int_equal(node_dpdk(&hosts->nodes[2])->counts.spoofed, 1);
    expect_pair(hosts, client);
}
