/* A connect names the transport of the peer process that shall own the connection. */
#include "conformance.h"
#include "peer.h"

#define CONNECTIONS 12
#define FRAMES      100

/* Skips the case on a transport that ignores the target. */
static struct world *open_targets(const struct sl_transport_options *options)
{
    if ((conformance_target->ops->capabilities & SL_TRANSPORT_MIGRATES) != 0) {
        skip();
    }
    return world_open(3, options);
}

static void listen_too(struct node *node, void *ctx)
{
    const struct sl_endpoint *first = ctx;
    sl_assert(sl_transport_listen(node->transport, first, &peer_events, node, &node->bound) == 0);
    sl_assert(sl_endpoint_same(first, &node->bound));
}

static void listen_too_late(struct node *node, void *ctx)
{
    struct sl_endpoint bound;
    int err = sl_transport_listen(node->transport, ctx, &peer_events, node, &bound);
    sl_assert(err == SL_ERR_IN_USE);
}

/* Nodes 0 and 1 listen on one endpoint, node 2 connects. */
static struct world *open_three(const struct sl_transport_options *options)
{
    struct world *world = open_targets(options);
    node_run(&world->nodes[1], listen_too, &world->nodes[0].bound);
    node_set_policy(&world->nodes[0], (struct policy){.echo = true});
    node_set_policy(&world->nodes[1], (struct policy){.echo = true});
    return world;
}

/* An OPEN that was sent twice may still be accepted if the target listens a moment later: so only
 * node 0 is checked. */
static void expect_refused(struct world *world, uint32_t target)
{
    const uint32_t before = world->nodes[0].peer_count;
    struct peer *peer = peer_connect_to(&world->nodes[2], &world->nodes[0].bound, target);
    WAIT_UNTIL(peer->closed == 1);
    assert_false(peer->open);
    assert_int_equal(peer->close_err, SL_ERR_REFUSED);
    assert_int_equal(world->nodes[0].peer_count, before);
}

WORLD_CASE(target__under_traffic, open_three(NULL))
{
    struct peer *peers[CONNECTIONS];
    uint32_t sizes[FRAMES];
    const uint32_t connections = many(CONNECTIONS, CONNECTIONS / 2);
    for (uint32_t i = 0; i < FRAMES; i++) {
        sizes[i] = i % 50 == 25 ? 150000 + i : i * 11 % 2000;
    }
    for (uint32_t i = 0; i < connections; i++) {
        peers[i] = peer_connect_to(&world->nodes[2], &world->nodes[0].bound, i % 3 == 0 ? 0 : 1);
        peer_send_from_test(peers[i], sizes, FRAMES);
    }
    for (uint32_t i = 0; i < connections; i++) {
        WAIT_UNTIL(peers[i]->received == FRAMES);
    }
    assert_int_equal(world->nodes[0].open_count, connections / 3);
    assert_int_equal(world->nodes[1].open_count, connections - connections / 3);
}

WORLD_CASE(target__that_does_not_listen_is_refused, open_targets(NULL))
{
    expect_refused(world, 1);
    node_run(&world->nodes[1], listen_too, &world->nodes[0].bound);
    node_run(&world->nodes[1], listen_too_late, &world->nodes[0].bound);
    expect_refused(world, 2);
    expect_refused(world, 300);
    expect_refused(world, UINT32_MAX);
    struct peer *peer = peer_connect_to(&world->nodes[2], &world->nodes[0].bound, 1);
    WAIT_UNTIL(peer->open && world->nodes[1].open_count >= 1);
    assert_int_equal(world->nodes[0].peer_count, 0);
}

static void close_transport(struct node *node, void *ctx)
{
    sl_transport_close(&node->transport);
}

/* With its reactor gone a target may also be silent. */
WORLD_CASE(target__that_has_closed,
           open_three(&(struct sl_transport_options){.peer_timeout_ms = 3000}))
{
    struct peer *before = peer_connect_to(&world->nodes[2], &world->nodes[0].bound, 1);
    WAIT_UNTIL(before->open && world->nodes[1].open_count == 1);
    node_run(&world->nodes[1], close_transport, NULL);
    WAIT_UNTIL(before->closed == 1);
    struct peer *after = peer_connect_to(&world->nodes[2], &world->nodes[0].bound, 1);
    WAIT_UNTIL(after->closed == 1);
    assert_false(after->open);
    assert_true(after->close_err == SL_ERR_REFUSED || after->close_err == SL_ERR_DEADLINE);
}

WORLD_CASE(target__then_either_side_disconnects, open_three(NULL))
{
    uint32_t size = 64;
    for (uint32_t i = 0; i < 4; i++) {
        struct peer *client = peer_connect_to(&world->nodes[2], &world->nodes[0].bound, 1);
        peer_send_from_test(client, &size, 1);
        struct peer *owner = node_peer(&world->nodes[1], i);
        struct peer *leaver = i % 2 == 0 ? client : owner;
        struct peer *other = i % 2 == 0 ? owner : client;
        WAIT_UNTIL(owner->open && client->open);
        peer_disconnect_from_test(leaver);
        WAIT_UNTIL(leaver->closed == 1 && other->closed == 1);
        assert_int_equal(leaver->close_err, SL_OK);
        assert_int_equal(other->close_err, SL_ERR_CLOSED);
    }
}

const char conformance_target_cases;
