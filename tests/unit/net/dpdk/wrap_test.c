/* All numbers of 32 bits run over: packets, messages, granted bytes, places in queues. Connections
 * that begin near that point, on a cable that loses. */
#include "net/dpdk/receive_slots.h"
#include "net/dpdk/send_queue.h"
#include "tests/support/unit.h"
#include "tests/unit/net/dpdk/hosts.h"

/* So much before the end, so that each of them comes soon, and apart from the others. */
#define PACKETS_LEFT  40U
#define MESSAGES_LEFT 25U
#define BYTES_LEFT    100000U
#define FRAMES_LEFT   30U

static uint32_t before_the_end(uint32_t left)
{
    return UINT32_MAX - left + 1;
}

/* One direction of a connection on which all has been delivered and acknowledged. */
static void wind(struct sl_dpdk_conn *from, struct sl_dpdk_conn *to)
{
    struct sl_dpdk_sending *send = from->send;
    struct sl_dpdk_sent_packets *sent_packets = &from->sent_packets;
    assert_true(sl_dpdk_sent_packets_none(sent_packets));
    assert_int_equal(send->head, send->tail);
    assert_int_equal(to->receive->begun, 0);
    assert_int_equal(from->offered, to->grant.consumed);
    sent_packets->first = sent_packets->next = sent_packets->largest_acked =
        before_the_end(PACKETS_LEFT);
    sl_dpdk_received_packets_init(&to->received, sent_packets->next);
    send->message_first = send->message_next = before_the_end(MESSAGES_LEFT);
    to->receive->head = send->message_next;
    const uint32_t more = before_the_end(BYTES_LEFT) - from->offered;
    from->offered += more;
    from->granted_theirs += more;
    to->grant.granted += more;
    to->grant.advertised += more;
    to->grant.arrived += more;
    to->grant.consumed += more;
    send->head = send->done = send->tail = send->next.entry = before_the_end(FRAMES_LEFT);
    send->lost_head = send->lost_tail = before_the_end(5);
}

static struct link *pair_path_the_end(struct hosts *hosts)
{
    struct link *client = hosts_pair(hosts), *server = &hosts->nodes[0].links[0];
    link_send(client, 1, 100);
    link_send(server, 1, 100);
    hosts_until(hosts, &client->sent, 1);
    hosts_until(hosts, &server->sent, 1);
    hosts_run_ms(hosts, 50);
    wind(link_conn(client), link_conn(server));
    wind(link_conn(server), link_conn(client));
    return client;
}

static void expect_time_wait(const struct sl_dpdk_conn *conn)
{
    assert_true(conn->sent_packets.next < UINT32_MAX / 2);
    assert_true(conn->send->message_next < UINT32_MAX / 2);
    assert_true(conn->offered < UINT32_MAX / 2);
    assert_true(conn->received.next < UINT32_MAX / 2);
    assert_true(conn->grant.consumed < UINT32_MAX / 2);
    assert_true(conn->receive->head < UINT32_MAX / 2);
}

/* Every third packet or so of each kind is lost. */
static void exchange(struct hosts *hosts, struct link *client, bool loses)
{
    static const uint32_t kinds[] = {SL_DPDK_DATA, SL_DPDK_BUNDLE, SL_DPDK_ACK};
    static const uint32_t bytes[] = {10, 3000, 20000, 500};
    struct link *server = &hosts->nodes[0].links[0];
    for (uint32_t round = 0; round < 20; round++) {
        for (uint32_t i = 0; i < 4; i++) {
            link_send(client, 3, bytes[i]);
            link_send(server, 2, bytes[3 - i]);
            hosts_step(hosts, STEP_NS);
        }
        for (uint32_t i = 0; loses && i < 3; i++) {
            hosts->lose[kinds[i]] = 1 + round % 3;
        }
        hosts_run_ms(hosts, 5);
    }
    hosts_until(hosts, &client->sent, 241);
    hosts_until(hosts, &server->sent, 161);
    assert_int_equal(server->received, 241);
    assert_int_equal(client->received, 161);
}

SL_CASE(numbers__that_run_over)
{
    for (uint32_t loses = 0; loses < 2; loses++) {
        struct hosts hosts;
        hosts_open(&hosts, NULL);
        struct link *client = pair_path_the_end(&hosts);
        exchange(&hosts, client, loses != 0);
        expect_time_wait(link_conn(client));
        expect_time_wait(link_conn(&hosts.nodes[0].links[0]));
        hosts_close(&hosts);
    }
}

/* They run over while the connection waits for silence to end, and then it leaves. */
HOSTS_CASE(numbers__that_run_over_in_liveness)
{
    struct link *client = pair_path_the_end(hosts), *server = &hosts->nodes[0].links[0];
    link_send(client, 60, 3000);
    sl_wire_device_set_down(hosts->device_a, true);
    hosts_run_ms(hosts, 5000);
    sl_wire_device_set_down(hosts->device_a, false);
    hosts_until(hosts, &server->received, 61);
    sl_transport_disconnect(client->conn);
    hosts_until(hosts, &client->closed, 1);
    hosts_until(hosts, &server->closed, 1);
    assert_int_equal(client->sent, 61);
    assert_int_equal(client->err, SL_OK);
    assert_int_equal(server->err, SL_ERR_CLOSED);
}
