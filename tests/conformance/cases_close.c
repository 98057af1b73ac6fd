/* Every connection ends once, with the right error, and nothing is touched after that. */
#include "conformance.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/support/free_port.h"

#define BIG 200000

static void expect_closed(struct peer *peer, int err)
{
    WAIT_UNTIL(peer->closed == 1);
    assert_int_equal(peer->close_err, err);
}

WORLD_CASE(disconnect__sends_what_was_taken,
           world_open_unhurried(2, NULL)) /* or a slow machine has it cut off */
{
    struct peer *client = peer_connect(&world->nodes[1], &world->nodes[0].bound);
    WAIT_UNTIL(client->open);
    struct peer *server = node_peer(&world->nodes[0], 0);
    uint32_t sizes[50];
    for (uint32_t i = 0; i < 50; i++) {
        sizes[i] = i % 7 == 0 ? BIG : i;
    }
    peer_send_from_test(client, sizes, 50);
    peer_disconnect_from_test(client);
    expect_closed(client, SL_OK);
    expect_closed(server, SL_ERR_CLOSED);
    assert_int_equal(server->received, client->taken);
    assert_int_equal(client->sent, client->taken);
}

static uint32_t big_bytes(void)
{
    return many(SL_LIMIT_FRAME_PAYLOAD_BYTES, SL_LIMIT_FRAME_PAYLOAD_BYTES / 4);
}

static void disconnect_under_way(uint32_t who)
{
    struct world *world = world_open(2, NULL);
    struct policy echo = {.echo = true};
    node_set_policy(&world->nodes[0], echo);
    node_set_policy(&world->nodes[1], echo);
    struct peer *both[2];
    both[1] = peer_connect(&world->nodes[1], &world->nodes[0].bound);
    both[0] = node_peer(&world->nodes[0], 0);
    uint32_t sizes[40];
    for (uint32_t i = 0; i < 40; i++) {
        sizes[i] = i % 5 == 0 ? big_bytes() : i * 100;
    }
    peer_send_from_test(both[1], sizes, 40);
    WAIT_UNTIL(both[0]->received >= 10);
    peer_disconnect_from_test(both[who]);
    expect_closed(both[who], SL_OK);
    WAIT_UNTIL(both[1 - who]->closed == 1);
    /* What cannot be sent within a second is cut off, which TLS tells from an end. */
    int err = both[1 - who]->close_err;
    assert_true(err == SL_ERR_CLOSED || (conformance_target->tls != NULL && err == SL_ERR_IO));
    world_close(world);
}

SL_CASE(disconnect__mid_transfer_by_the_accepter)
{
    disconnect_under_way(0);
}

SL_CASE(disconnect__mid_transfer_by_the_connecter)
{
    disconnect_under_way(1);
}

WORLD_CASE(disconnect__by_both_at_once, world_open(2, NULL))
{
    node_set_policy(&world->nodes[0], (struct policy){.disconnect_at = 1});
    struct peer *client = peer_connect(&world->nodes[1], &world->nodes[0].bound);
    WAIT_UNTIL(client->open);
    uint32_t size = 100;
    peer_send_and_disconnect_from_test(client, &size, 1);
    struct peer *server = node_peer(&world->nodes[0], 0);
    expect_closed(client, SL_OK);
    WAIT_UNTIL(server->closed == 1);
}

/* From inside the upcall for one of many frames that arrived together: the rest is dropped. */
WORLD_CASE(disconnect__inside_received, world_open(2, NULL))
{
    node_set_policy(&world->nodes[0], (struct policy){.disconnect_at = 20});
    struct peer *client = peer_connect(&world->nodes[1], &world->nodes[0].bound);
    uint32_t sizes[60];
    for (uint32_t i = 0; i < 60; i++) {
        sizes[i] = 3 * i;
    }
    peer_send_from_test(client, sizes, 60);
    struct peer *server = node_peer(&world->nodes[0], 0);
    expect_closed(server, SL_OK);
    expect_closed(client, SL_ERR_CLOSED);
    assert_int_equal(server->received, 20);
}

WORLD_CASE(disconnect__inside_accepted, world_open(2, NULL))
{
    node_set_policy(&world->nodes[0], (struct policy){.disconnect_on_accept = true});
    struct peer *client = peer_connect(&world->nodes[1], &world->nodes[0].bound);
    expect_closed(client, SL_ERR_CLOSED);
    expect_closed(node_peer(&world->nodes[0], 0), SL_OK);
}

static atomic_bool is_held, may_go_on;

static void hold(struct node *node, void *ctx)
{
    sl_reactor_excuse_turn(node->reactor);
    is_held = true;
    while (!may_go_on) {
        (void)usleep(100);
    }
}

static void *hold_node(void *node)
{
    node_run(node, hold, NULL);
    return NULL;
}

static void disconnect_at_once(struct node *node, void *ctx)
{
    struct sl_conn *conn = ((struct peer *)ctx)->conn;
    conn->is_abrupt = true;
    sl_transport_disconnect(conn);
}

static bool ends_at_once(void)
{
    return strncmp(conformance_target->endpoint, "rdma:", 5) != 0 &&
           strncmp(conformance_target->endpoint, "dpdk:", 5) != 0;
}

/* The peer reads nothing, and no timer runs. */
static void disconnect_from_idle_peer(bool is_closing)
{
    if (!ends_at_once()) {
        skip();
    }
    pthread_t thread;
    uint32_t sizes[50];
    struct world *world = world_open_with_frozen_clock(2, NULL);
    struct peer *client = peer_connect(&world->nodes[1], &world->nodes[0].bound);
    WAIT_UNTIL(client->open);
    struct peer *server = node_peer(&world->nodes[0], 0);
    is_held = may_go_on = false;
    assert_int_equal(pthread_create(&thread, NULL, hold_node, &world->nodes[0]), 0);
    WAIT_UNTIL(is_held);
    for (uint32_t i = 0; i < 50; i++) {
        sizes[i] = BIG;
    }
    peer_send_from_test(client, sizes, 50);
    if (is_closing) {
        peer_disconnect_from_test(client);
    }
    node_run(client->node, disconnect_at_once, client);
    expect_closed(client, SL_OK);
    may_go_on = true;
    pthread_join(thread, NULL);
    WAIT_UNTIL(server->closed == 1);
    world_close(world);
}

SL_CASE(disconnect__at_once)
{
    disconnect_from_idle_peer(false);
}

SL_CASE(disconnect__at_once_while_closing)
{
    disconnect_from_idle_peer(true);
}

WORLD_CASE(disconnect__while_connecting, world_open(2, NULL))
{
    for (uint32_t i = 0; i < 20; i++) {
        struct peer *client = peer_connect(&world->nodes[1], &world->nodes[0].bound);
        peer_disconnect_from_test(client);
        expect_closed(client, SL_OK);
    }
}

/* The peer reads nothing, so a part of what was taken can never be sent: it is given back. */
WORLD_CASE(closed__gives_back_what_was_not_sent, world_open(2, NULL))
{
    node_set_policy(&world->nodes[0], (struct policy){.refuse_sink = true});
    struct peer *client = peer_connect(&world->nodes[1], &world->nodes[0].bound);
    uint32_t sizes[12]; /* more than all buffers on the way hold */
    for (uint32_t i = 0; i < 12; i++) {
        sizes[i] = SL_LIMIT_FRAME_PAYLOAD_BYTES;
    }
    peer_send_from_test(client, sizes, 12);
    WAIT_UNTIL(world->nodes[0].sink_asked >= 1);
    peer_disconnect_from_test(client);
    expect_closed(client, SL_OK);
    assert_true(client->given_back > 0);
    assert_int_equal(client->sent + client->given_back, client->taken);
}

WORLD_CASE(connect__refused, world_open(2, NULL))
{
    struct sl_endpoint nobody = world->nodes[0].bound;
    nobody.port =
        conformance_target->medium_open != NULL ? (uint16_t)(nobody.port + 100) : free_port();
    struct peer *client = peer_connect(&world->nodes[1], &nobody);
    expect_closed(client, SL_ERR_REFUSED);
    assert_false(client->open);
}

struct listen_call {
    struct sl_endpoint endpoint, bound;
    int err;
};

static void run_listen(struct node *node, void *ctx)
{
    struct listen_call *call = ctx;
    static const struct sl_transport_events *events;
    events = node->peers[0]->conn->events;
    call->err = sl_transport_listen(node->transport, &call->endpoint, events, node, &call->bound);
}

WORLD_CASE(listen__again_and_in_use, world_open(2, NULL))
{
    struct node *server = &world->nodes[0];
    struct peer *first = peer_connect(&world->nodes[1], &server->bound);
    WAIT_UNTIL(first->open);
    (void)node_peer(server, 0);
    struct listen_call call = {.endpoint = server->bound};
    node_run(server, run_listen, &call);
    assert_int_equal(call.err, SL_ERR_IN_USE);
    call.endpoint.port = 0;
    node_run(server, run_listen, &call);
    assert_int_equal(call.err, 0);
    assert_int_not_equal(call.bound.port, server->bound.port);
    struct peer *second = peer_connect(&world->nodes[1], &call.bound);
    WAIT_UNTIL(second->open);
}

SL_CASE(listen__turns_away_more_than_the_limit)
{
    struct sl_transport_options options = {.connections_max = 2};
    struct world *world = world_open(2, &options);
    struct world *others = world_open(2, NULL);
    struct peer *peers[3];
    for (uint32_t i = 0; i < 3; i++) {
        peers[i] = peer_connect(&others->nodes[1], &world->nodes[0].bound);
        WAIT_UNTIL(peers[i]->open || i == 2);
    }
    /* With a handshake it is not even open before. */
    bool shakes_hands = conformance_target->shakes_hands || conformance_target->tls != NULL;
    expect_closed(peers[2], shakes_hands ? SL_ERR_REFUSED : SL_ERR_CLOSED);
    assert_int_equal(world->nodes[0].open_count, 2);
    world_close(others);
    world_close(world);
}

/* The transport is closed with a bit of everything in flight. */
static void close_in_flight(uint32_t first)
{
    struct world *world = world_open(2, NULL);
    struct policy echo = {.echo = true}, refuse = {.echo = true, .refuse_sink = true};
    node_set_policy(&world->nodes[0], refuse);
    node_set_policy(&world->nodes[1], echo);
    uint32_t big[6], small[40];
    for (uint32_t i = 0; i < 6; i++) {
        big[i] = big_bytes() - i;
    }
    for (uint32_t i = 0; i < 40; i++) {
        small[i] = 16 * i;
    }
    struct peer *stalled = peer_connect(&world->nodes[1], &world->nodes[0].bound);
    peer_send_from_test(stalled, big, 6);
    WAIT_UNTIL(world->nodes[0].sink_asked >= 1);
    node_set_policy(&world->nodes[0], echo);
    struct peer *peers[16];
    for (uint32_t i = 0; i < many(16, 8); i++) {
        peers[i] = peer_connect(&world->nodes[1], &world->nodes[0].bound);
        if (i % 4 == 0) {
            peer_send_from_test(peers[i], big, 2);
        }
        peer_send_from_test(peers[i], small, 40);
    }
    /* Where no kernel answers for who is gone, a handshake that is not over waits its patience out.
     */
    for (uint32_t i = 0; i < many(16, 8) && conformance_target->shakes_hands; i++) {
        WAIT_UNTIL(peers[i]->open);
    }
    peer_disconnect_from_test(peers[3]);
    peer_disconnect_from_test(peers[4]);
    WAIT_UNTIL(peers[1]->received > 0);
    sl_reactor_stop(world->nodes[first].reactor);
    sl_reactor_join(world->nodes[first].reactor);
    struct node *left = &world->nodes[1 - first];
    WAIT_UNTIL(left->closed_count == left->open_count);
    for (uint32_t i = 0; i < world->nodes[first].peer_count; i++) {
        int err = world->nodes[first].peers[i]->close_err;
        assert_true(err == SL_ERR_CANCELLED || err == SL_OK || err == SL_ERR_CLOSED);
    }
    world_close(world);
}

SL_CASE(transport_close__on_the_accepting_side)
{
    close_in_flight(0);
}

SL_CASE(transport_close__on_the_connecting_side)
{
    close_in_flight(1);
}

/* A peer that closes only when it has read our end must be told of it: it would wait for us, and we
 * for it. No time passes, so that no timer helps. */
SL_CASE(disconnect__says_that_nothing_follows)
{
    struct raw raw = raw_open(world_open_with_frozen_clock(2, NULL));
    node_set_policy(&raw.world->nodes[0], (struct policy){.echo = true, .disconnect_at = 1});
    uint8_t frame[FRAME_BYTES(40)], answer[FRAME_BYTES(40)], byte;
    raw_make_frame(frame, 1, 40);
    raw_write(raw.fd, frame, sizeof frame);
    raw_read(raw.fd, answer, sizeof answer);
    assert_int_equal(TEMP_FAILURE_RETRY(recv(raw.fd, &byte, 1, 0)), 0);
    assert_int_equal(raw.accepted->closed, 0);
    shutdown(raw.fd, SHUT_WR);
    expect_closed(raw.accepted, SL_OK);
    node_set_policy(&raw.world->nodes[0], (struct policy){.echo = true});
    raw_close(&raw);
}

/* How long a disconnect may take is measured by connection, not by the memory that it lies in. */
WORLD_CASE(disconnect__its_timer_ends_with_it, world_open_with_frozen_clock(2, NULL))
{
    node_set_policy(&world->nodes[0], (struct policy){.echo = true});
    struct peer *clients[5];
    for (uint32_t i = 0; i < 5; i++) {
        clients[i] = peer_connect(&world->nodes[1], &world->nodes[0].bound);
        WAIT_UNTIL(clients[i]->open);
        if (i < 4) {
            peer_disconnect_from_test(i % 2 == 0 ? clients[i] : node_peer(&world->nodes[0], i));
            WAIT_UNTIL(clients[i]->closed == 1 && node_peer(&world->nodes[0], i)->closed == 1);
        }
    }
    world_pass(world, 1500);
    world_pass(world, 1500);
    uint32_t size = 100;
    peer_send_from_test(clients[4], &size, 1);
    WAIT_UNTIL(clients[4]->received == 1);
    assert_int_equal(clients[4]->closed, 0);
}

const char conformance_close_cases;
