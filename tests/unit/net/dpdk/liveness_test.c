/* Connections on which nothing comes: peers that are gone, paths that changed, and reactors that
 * sleep. */
#include <string.h>

#include "net/dpdk/neighbour_packet.h"
#include "tests/support/unit.h"
#include "tests/unit/net/dpdk/hosts.h"

#define TIMEOUT_MS 10000U

/* ---- Silence ----------------------------------------------------------------------------------
 */

HOSTS_CASE(liveness__of_a_peer_that_owes)
{
    struct link *client = hosts_pair(hosts);
    const uint64_t begin_ns = hosts->now_ns;
    sl_wire_device_set_down(hosts->device_a, true);
    hosts_until(hosts, &client->closed, 1);
    assert_int_equal(client->err, SL_ERR_DEADLINE);
    hosts_until(hosts, &server_of(hosts)->closed, 1);
    assert_int_equal(server_of(hosts)->err, SL_ERR_DEADLINE);
    assert_true(hosts->now_ns - begin_ns >= TIMEOUT_MS * SL_CLOCK_NS_PER_MS);
    assert_true(hosts->now_ns - begin_ns <= 2 * TIMEOUT_MS * SL_CLOCK_NS_PER_MS);
}

/* Whose process has gone with its link, which nobody else has. */
HOSTS_CASE(liveness__of_a_link_that_is_one_peers, .device = {.is_one_peers = true})
{
    struct link *client = hosts_pair(hosts);
    expect_alive(hosts, client);
    hosts_run_ms(hosts, 2 * TIMEOUT_MS);
    expect_alive(hosts, client);
    sl_wire_device_set_down(hosts->device_a, true);
    hosts_run_ms(hosts, 500);
    assert_int_equal(server_of(hosts)->closed, 1);
    assert_int_equal(server_of(hosts)->err, SL_ERR_DEADLINE);
    assert_int_equal(client->closed, 0); /* its own is up */
    sl_wire_device_set_down(hosts->device_b, true);
    hosts_run_ms(hosts, 500);
    assert_int_equal(client->closed, 1);
    assert_int_equal(client->err, SL_ERR_DEADLINE);
}

/* Its user has yet to take what it sent before. */
HOSTS_CASE(liveness__of_a_link_that_is_one_peers_who_had_said_goodbye,
           .device = {.is_one_peers = true})
{
    struct link *client = hosts_pair(hosts);
    expect_alive(hosts, client);
    hosts->nodes[0].refuses_sink = true;
    link_send(client, 1, 30000);
    hosts_run_ms(hosts, 200);
    sl_transport_disconnect(client->conn);
    hosts_run_ms(hosts, 200);
    sl_wire_device_set_down(hosts->device_a, true);
    sl_wire_device_set_down(hosts->device_b, true);
    hosts_run_ms(hosts, 500);
    assert_int_equal(client->closed, 1);
    assert_int_equal(client->err, SL_OK);
    assert_int_equal(server_of(hosts)->closed, 0);
    hosts->nodes[0].refuses_sink = false;
    hosts_until(hosts, &server_of(hosts)->received, 3);
    hosts_until(hosts, &server_of(hosts)->closed, 1);
    assert_int_equal(server_of(hosts)->err, SL_ERR_CLOSED);
}

HOSTS_CASE(liveness__of_a_peer_that_owes_nothing)
{
    struct link *client = hosts_pair(hosts);
    hosts_run_ms(hosts, 5 * TIMEOUT_MS);
    expect_alive(hosts, client);
    assert_true(hosts->received[SL_DPDK_PROBE] >= 10);
    assert_true(hosts->received[SL_DPDK_PROBE] <= 40);
}

/* The cable is cut for less than the timeout, with frames on their way. */
HOSTS_CASE(liveness__that_ends_in_time)
{
    struct link *client = hosts_pair(hosts);
    sl_wire_device_set_down(hosts->device_a, true);
    link_send(client, 10, 3000);
    hosts_run_ms(hosts, TIMEOUT_MS / 2);
    sl_wire_device_set_down(hosts->device_a, false);
    hosts_until(hosts, &server_of(hosts)->received, 10);
    hosts_until(hosts, &client->sent, 10);
    hosts_run_ms(hosts, 2 * TIMEOUT_MS);
    expect_alive(hosts, client);
}

/* Something on the way takes no packet as long as ours: what is short goes through. */
HOSTS_CASE(mtu__that_is_less_on_the_way)
{
    struct link *client = hosts_pair(hosts);
    hosts->lose_longer = 1400;
    expect_alive(hosts, client);
    hosts_run_ms(hosts, 2 * TIMEOUT_MS);
    expect_alive(hosts, client); /* nothing is too long yet */
    link_send(client, 1, 1392);
    hosts_run_ms(hosts, TIMEOUT_MS - 100);
    assert_int_equal(client->closed, 0);
    hosts_run_ms(hosts, TIMEOUT_MS);
    assert_int_equal(client->closed, 1);
    assert_int_equal(client->err, SL_ERR_DEADLINE);
    assert_int_equal(server_of(hosts)->closed, 1);
    assert_int_equal(server_of(hosts)->err, SL_ERR_CLOSED);
}

/* What is not acknowledged is so since the receiver has no room for it, for as long as it likes,
 * and many packets are lost besides. */
HOSTS_CASE(mtu__is_not_less_where_there_is_no_room, .device = {.packets = 4})
{
    struct link *client = hosts_pair(hosts);
    hosts->nodes[0].refuses_sink = true;
    link_send(client, 2, 30000);
    for (uint32_t i = 0; i < 5; i++) {
        hosts->lose[SL_DPDK_PROBE] = 6;
        hosts_run_ms(hosts, TIMEOUT_MS);
    }
    assert_int_equal(client->closed, 0);
    hosts->nodes[0].refuses_sink = false;
    hosts_until(hosts, &server_of(hosts)->received, 2);
}

/* ---- Another Ethernet address -----------------------------------------------------------------
 */

static const uint8_t other_mac[6] = {2, 9, 9, 9, 9, 9};

/* The peer's address is another card's now, which speaks first. */
HOSTS_CASE(mac__that_changes_while_the_peer_speaks)
{
    struct link *client = hosts_pair(hosts);
    expect_alive(hosts, client);
    hosts_run_ms(hosts, 1100);
    hosts->lose[SL_DPDK_BUNDLE] = 1;
    link_send(server_of(hosts), 1, 10);
    hosts_run_ms(hosts, 1);
    struct packet packet = hosts->last[FROM_A][SL_DPDK_BUNDLE];
    memcpy(packet.bytes + 6, other_mac, sizeof other_mac);
    sl_wire_inject(hosts->wire, packet.bytes, packet.length, 0);
    hosts_until(hosts, &client->received, 1);
    link_send(client, 1, 10);
    hosts_step(hosts, STEP_NS);
    assert_memory_equal(hosts->last[FROM_B][SL_DPDK_BUNDLE].bytes, other_mac, sizeof other_mac);
}

/* It says nothing: it is asked for, though it was heard of not long ago. */
HOSTS_CASE(mac__that_changes_in_liveness)
{
    struct link *client = hosts_pair(hosts);
    expect_alive(hosts, client);
    sl_wire_device_set_down(hosts->device_a, true);
    const uint32_t asked = hosts->received[NEIGHBOUR];
    link_send(client, 1, 10);
    hosts_run_ms(hosts, TIMEOUT_MS * 3 / 4 + 100);
    assert_true(hosts->received[NEIGHBOUR] > asked);
    struct sl_dpdk_self self = link_conn(server_of(hosts))->path.netif->info.self;
    const struct sl_dpdk_self *asker = &link_conn(client)->path.netif->info.self;
    struct sl_dpdk_neighbour_said said = {.asks = true, .tells = true, .who = asker->ip};
    uint8_t answer[SL_DPDK_NEIGHBOUR_BYTES];
    memcpy(self.mac, other_mac, sizeof self.mac);
    memcpy(said.mac, asker->mac, sizeof said.mac);
    sl_wire_inject(hosts->wire, answer, sl_dpdk_neighbour_answer(&self, &said, answer), 0);
    hosts_run_ms(hosts, 300);
    assert_memory_equal(hosts->last[FROM_B][SL_DPDK_PROBE].bytes, other_mac, sizeof other_mac);
    assert_int_equal(client->closed, 0);
}

/* This thread was stopped for long: nobody was silent. */
HOSTS_CASE(liveness__of_our_own)
{
    struct link *client = hosts_pair(hosts);
    link_send(client, 1, 100);
    hosts_step(hosts, 100 * TIMEOUT_MS * SL_CLOCK_NS_PER_MS);
    hosts_run_ms(hosts, 100);
    expect_alive(hosts, client);
}

/* ---- Sleep ------------------------------------------------------------------------------------
 */

static uint64_t sleeps_ns(struct hosts *hosts, uint32_t node)
{
    const uint64_t next_ns = sl_reactor_next_ns(hosts->nodes[node].reactor);
    return next_ns > hosts->now_ns ? next_ns - hosts->now_ns : 0;
}

/* A port that wakes nobody is looked at soon after something came, and each millisecond at last.
 */
HOSTS_CASE(idle__is_looked_at_more_and_more_rarely)
{
    struct link *client = hosts_pair(hosts);
    expect_alive(hosts, client);
    hosts_step(hosts, STEP_NS);
    uint64_t before_ns = 0;
    for (uint32_t i = 0; i < 8; i++) {
        const uint64_t ns = sleeps_ns(hosts, 0);
        assert_true(ns >= before_ns);
        assert_in_range(ns, 1, SL_CLOCK_NS_PER_MS);
        before_ns = ns;
        hosts_step(hosts, ns);
    }
    assert_int_equal(before_ns, SL_CLOCK_NS_PER_MS);
}

HOSTS_CASE(idle__a_port_that_wakes_is_not_looked_at, .device = {.rx_interrupt = true})
{
    struct link *client = hosts_pair(hosts);
    expect_alive(hosts, client);
    hosts_run_ms(hosts, 500);
    assert_true(sleeps_ns(hosts, 1) > 100 * SL_CLOCK_NS_PER_MS);
    assert_true(sleeps_ns(hosts, 0) > 100 * SL_CLOCK_NS_PER_MS);
}

/* A peer's queue that takes nothing keeps nobody from others. */
HOSTS_CASE(queue__that_is_full_for_ever, .device = {.queue_packets = 8})
{
    struct link *client = hosts_pair(hosts);
    node_listen(&hosts->nodes[1], 0);
    struct link *other = node_connect_to(&hosts->nodes[2], ADDRESS_A, PORT_BASE, 1);
    hosts_until(hosts, &other->opened, 1);
    struct sl_reactor *stopped = hosts->nodes[0].reactor;
    hosts->nodes[0].reactor = hosts->nodes[1].reactor; /* gets no turns from now on */
    link_send(client, 20, 8000);
    hosts_run_ms(hosts, 200);
    link_send(other, 5, 100);
    hosts_until(hosts, &hosts->nodes[1].links[0].received, 5);
    hosts->nodes[0].reactor = stopped;
    hosts_until(hosts, &server_of(hosts)->received, 20);
    hosts_until(hosts, &client->sent, 20);
}
