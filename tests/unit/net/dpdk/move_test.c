/* Hand-over from node 0 to node 1, while node 2 sends. */
#include "tests/support/unit.h"
#include "tests/unit/net/dpdk/hosts.h"

/* malloc gives nothing of this size; 0: it always does. The linker puts it before the real one. */
static size_t refused_bytes;

void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes)
{
    return bytes != 0 && bytes == refused_bytes ? NULL : __real_malloc(bytes);
}

static struct link *owned(struct hosts *hosts)
{
    return &hosts->nodes[1].links[0];
}

/* The first frame goes to node 0, which hands the connection over; the answers come from node 1. */
static struct link *begin(struct hosts *hosts, uint32_t frames, uint32_t payload_bytes)
{
    struct link *client = hosts_pair(hosts);
    hosts->nodes[0].owner = &hosts->nodes[1];
    hosts->nodes[1].echoes = true;
    client->received_last = 1; /* the first one has no answer */
    link_send(client, frames, payload_bytes);
    return client;
}

static void expect_echoes(struct hosts *hosts, struct link *client, uint32_t frames)
{
    hosts_until(hosts, &client->received, frames - 1);
    hosts_until(hosts, &client->sent, frames);
    assert_int_equal(hosts->nodes[0].links[0].went, 1);
    assert_int_equal(hosts->nodes[0].links[0].received, 1);
    assert_int_equal(hosts->nodes[1].link_count, 1);
    assert_int_equal(owned(hosts)->opened, 1);
}

/* Echoes are numbered anew by who answers: from the second on. */
SL_CASE(move__under_traffic)
{
    static const uint32_t sizes[] = {10, 3000, 20000};
    for (uint32_t i = 0; i < 3; i++) {
        struct hosts hosts;
        hosts_open(&hosts, NULL);
        struct link *client = begin(&hosts, 20, sizes[i]);
        hosts.nodes[0].links[0].made = 1;
        expect_echoes(&hosts, client, 20);
        assert_int_equal(link_conn(client)->there.port, PORT_BASE + 1);
        assert_int_equal(sl_dpdk_id_reactor(link_conn(client)->id_peers), 1);
        hosts_close(&hosts);
    }
}

/* Until the peer has heard of it, it is told again; what it sends meanwhile is passed on. */
SL_CASE(move__is_told_until_it_is_heard)
{
    for (uint32_t lost = 1; lost <= 5; lost++) {
        struct hosts hosts;
        hosts_open(&hosts, NULL);
        struct link *client = begin(&hosts, 8, 2000);
        hosts.nodes[0].links[0].made = 1;
        hosts.lose[SL_DPDK_MOVED] = lost;
        expect_echoes(&hosts, client, 8);
        assert_int_equal(hosts.lose[SL_DPDK_MOVED], 0);
        assert_true(node_dpdk(&hosts.nodes[0])->misrouted_sent > 0);
        assert_true(node_dpdk(&hosts.nodes[1])->misrouted_taken > 0);
        hosts_close(&hosts);
    }
}

/* It is told that there is no memory for it, not left to wait for nothing; however often that is
 * lost. */
SL_CASE(move__without_memory_is_told)
{
    for (uint32_t lost = 0; lost < 3; lost++) {
        struct hosts hosts;
        hosts_open(&hosts, NULL);
        struct link *client = begin(&hosts, 8, 2000);
        hosts.lose[SL_DPDK_RESET] = lost;
        refused_bytes = sizeof(struct sl_dpdk_conn);
        hosts_until(&hosts, &client->closed, 1);
        refused_bytes = 0;
        assert_int_equal(client->err, SL_ERR_CLOSED);
        assert_int_equal(hosts.nodes[1].link_count, 0);
        hosts_until(&hosts, &hosts.nodes[0].links[0].closed, 1); /* its owner's, on the new node */
        assert_int_equal(hosts.nodes[0].links[0].err, SL_ERR_NO_MEMORY);
        hosts_close(&hosts);
    }
}

SL_CASE(move__wherever_packets_arrive)
{
    const struct hosts_options options = {.device = {.steering = SL_WIRE_FIRST}};
    struct hosts hosts;
    hosts_open(&hosts, &options);
    struct link *client = begin(&hosts, 20, 5000);
    hosts.nodes[0].links[0].made = 1;
    expect_echoes(&hosts, client, 20);
    hosts_close(&hosts);
}

/* As memif's, of which there is one for each peer: it stays with the device that it came by. */
SL_CASE(move__where_two_devices_have_the_address)
{
    for (uint32_t i = 0; i < 4; i++) {
        const struct hosts_options options = {
            .device = {.steering = i < 2 ? SL_WIRE_STRAIGHT : SL_WIRE_FIRST},
            .has_twin_before = i % 2 == 0,
            .has_twin_behind = i % 2 != 0};
        struct hosts hosts;
        hosts_open(&hosts, &options);
        struct link *client = begin(&hosts, 20, 5000);
        hosts.nodes[0].links[0].made = 1;
        expect_echoes(&hosts, client, 20);
        hosts_close(&hosts);
    }
}

SL_CASE(move__to_the_same_reactor)
{
    struct hosts hosts;
    hosts_open(&hosts, NULL);
    struct link *client = hosts_pair(&hosts);
    const uint64_t id = link_conn(client)->id_peers;
    hosts.nodes[0].owner = &hosts.nodes[0];
    link_send(client, 1, 100);
    hosts_until(&hosts, &hosts.nodes[0].link_count, 2);
    hosts.nodes[0].owner = NULL;
    link_send(client, 5, 3000);
    hosts_until(&hosts, &hosts.nodes[0].links[1].received, 5);
    assert_int_equal(link_conn(client)->id_peers, id);
    assert_int_equal(hosts.received[SL_DPDK_MOVED], 0);
    hosts_close(&hosts);
}

SL_CASE(move__then_either_netif_leaves)
{
    for (uint32_t i = 0; i < 2; i++) {
        struct hosts hosts;
        hosts_open(&hosts, NULL);
        struct link *client = begin(&hosts, 1, 100);
        hosts_until(&hosts, &hosts.nodes[1].link_count, 1);
        struct link *leaver = i == 0 ? client : owned(&hosts);
        struct link *other = i == 0 ? owned(&hosts) : client;
        sl_transport_disconnect(leaver->conn);
        hosts_until(&hosts, &leaver->closed, 1);
        hosts_until(&hosts, &other->closed, 1);
        assert_int_equal(leaver->err, SL_OK);
        assert_int_equal(other->err, SL_ERR_CLOSED);
        hosts_close(&hosts);
    }
}

/* Whose end the peer hears of before it has heard where the connection went. */
SL_CASE(move__ends_before_it_is_heard)
{
    struct hosts hosts;
    hosts_open(&hosts, NULL);
    struct link *client = begin(&hosts, 1, 100);
    hosts.lose[SL_DPDK_MOVED] = UINT32_MAX;
    hosts_until(&hosts, &hosts.nodes[1].link_count, 1);
    sl_dpdk_conn_end(link_conn(owned(&hosts)), SL_ERR_IO, true);
    hosts_run_ms(&hosts, 5);
    assert_int_equal(client->closed, 1);
    assert_int_equal(client->err, SL_ERR_CLOSED);
    hosts_close(&hosts);
}

/* The reactor that it was sent to has ended: nothing is left behind. */
SL_CASE(move__nobody_takes_it)
{
    struct hosts hosts;
    hosts_open(&hosts, NULL);
    struct link *client = hosts_pair(&hosts);
    hosts.nodes[0].owner = &hosts.nodes[1];
    link_send(client, 10, 2000);
    const uint32_t step = 3; /* until it is on its way */
    struct sl_reactor *stopped = hosts.nodes[1].reactor;
    hosts.nodes[1].reactor = hosts.nodes[2].reactor;
    while (hosts.nodes[0].links[0].went == 0) {
        hosts_step(&hosts, STEP_NS);
    }
    for (uint32_t i = 0; i < step; i++) {
        hosts_step(&hosts, STEP_NS);
    }
    hosts.nodes[1].reactor = stopped;
    hosts_close(&hosts);
}

/* ---- What is said by who must not -------------------------------------------------------------
 */

static void from_who_connected(void *ctx, struct sl_dpdk_header *header)
{
    const struct sl_dpdk_conn *conn = ctx;
    header->connection = conn->id_peers;
    header->kind = SL_DPDK_MOVED;
    header->sequence = conn->sent_packets.next;
    header->acknowledged = conn->received.next;
    header->behind = 0;
}

SL_CASE(moved__by_who_connected)
{
    struct hosts hosts;
    hosts_open(&hosts, NULL);
    struct link *client = hosts_pair(&hosts);
    hosts_forge(&hosts, FROM_B, SL_DPDK_OPEN, from_who_connected, link_conn(client));
    hosts_until(&hosts, &hosts.nodes[0].links[0].closed, 1);
    assert_int_equal(hosts.nodes[0].links[0].err, SL_ERR_PROTOCOL);
    hosts_close(&hosts);
}

static void with_an_old_number(void *ctx, struct sl_dpdk_header *header)
{
    const struct sl_dpdk_conn *conn = ctx;
    header->connection = conn->id;
    header->kind = SL_DPDK_MOVED;
    header->sequence = conn->received.next - 70000;
    header->acknowledged = conn->sent_packets.next;
}

/* From the right address, with the right id, and a number that was used long ago. */
SL_CASE(moved__with_an_old_number)
{
    struct hosts hosts;
    hosts_open(&hosts, NULL);
    struct link *client = hosts_pair(&hosts);
    hosts_forge(&hosts, FROM_A, SL_DPDK_ACCEPT, with_an_old_number, link_conn(client));
    hosts_run_ms(&hosts, 5);
    assert_int_equal(node_dpdk(&hosts.nodes[2])->spoofed, 1);
    assert_int_equal(link_conn(client)->there.port, PORT_BASE);
    link_send(client, 2, 100);
    hosts_until(&hosts, &hosts.nodes[0].links[0].received, 2);
    hosts_close(&hosts);
}
