/* A connection moves from the reactor that accepted it to another, in mid-stream. */
#include "conformance.h"

#define CONNECTIONS 12
#define FRAMES      200

/* Skips the case on a transport that does not migrate. */
static struct world *open_migrating(uint32_t node_count, const struct sl_transport_options *options)
{
    if ((conformance_target->ops->capabilities & SL_TRANSPORT_MIGRATES) == 0) {
        skip();
    }
    return world_open(node_count, options);
}

/* Node 0 accepts, node 1 owns, node 2 connects. */
static struct world *open_three(const struct sl_transport_options *options)
{
    struct world *world = open_migrating(3, options);
    struct policy accepter = {.owner = &world->nodes[1]};
    struct policy owner = {.echo = true};
    node_set_policy(&world->nodes[0], accepter);
    node_set_policy(&world->nodes[1], owner);
    return world;
}

static void migrate_under_traffic(const struct sl_transport_options *options)
{
    struct world *world = open_three(options);
    struct peer *peers[CONNECTIONS];
    uint32_t sizes[FRAMES];
    const uint32_t connections = many(CONNECTIONS, CONNECTIONS / 2);
    for (uint32_t i = 0; i < FRAMES; i++) {
        sizes[i] = i % 50 == 25 ? 150000 + i : i * 11 % 2000;
    }
    for (uint32_t i = 0; i < connections; i++) {
        peers[i] = peer_connect(&world->nodes[2], &world->nodes[0].bound);
        peer_send_from_test(peers[i], sizes, FRAMES);
    }
    for (uint32_t i = 0; i < connections; i++) {
        WAIT_UNTIL(peers[i]->received == FRAMES - 1); /* all but the one that node 0 saw */
    }
    assert_int_equal(world->nodes[1].open_count, connections);
    world_close(world);
}

SL_CASE(migrate__under_traffic)
{
    migrate_under_traffic(NULL);
}

SL_CASE(migrate__with_tiny_buffers)
{
    struct sl_transport_options options = {.buffer_count = 16, .buffer_bytes = 320};
    migrate_under_traffic(&options);
}

/* The first frame is long, so that the receive in flight is into the sink's memory. */
WORLD_CASE(migrate__after_a_long_frame, open_three(NULL))
{
    struct peer *peer = peer_connect(&world->nodes[2], &world->nodes[0].bound);
    uint32_t sizes[] = {900000, 5, 900001, 0, 16384, 3};
    peer_send_from_test(peer, sizes, 6);
    WAIT_UNTIL(peer->received == 5);
}

/* The first owner may have given the kernel the number of bytes of the long frame that it waits
 * for. */
WORLD_CASE(migrate__between_a_long_frame_and_a_short_one, open_three(NULL))
{
    struct peer *peer = peer_connect(&world->nodes[2], &world->nodes[0].bound);
    uint32_t long_bytes = SL_LIMIT_FRAME_PAYLOAD_BYTES, short_bytes = 5;
    peer_send_from_test(peer, &long_bytes, 1);
    struct peer *owner = node_peer(&world->nodes[1], 0);
    WAIT_UNTIL(owner->open);
    peer_send_from_test(peer, &short_bytes, 1);
    WAIT_UNTIL(peer->received == 1);
}

WORLD_CASE(migrate__then_either_side_disconnects, open_three(NULL))
{
    uint32_t size = 64;
    for (uint32_t i = 0; i < 4; i++) {
        struct peer *client = peer_connect(&world->nodes[2], &world->nodes[0].bound);
        peer_send_from_test(client, &size, 1);
        struct peer *owner = node_peer(&world->nodes[1], i);
        struct peer *leaver = i % 2 == 0 ? client : owner;
        struct peer *other = i % 2 == 0 ? owner : client;
        WAIT_UNTIL(owner->open);
        peer_disconnect_from_test(leaver);
        WAIT_UNTIL(leaver->closed == 1 && other->closed == 1);
        assert_int_equal(leaver->close_err, SL_OK);
        assert_int_equal(other->close_err, SL_ERR_CLOSED);
    }
}

/* To the very reactor that it is on: a shard may well be owned by who accepts. */
WORLD_CASE(migrate__to_the_same_reactor, open_migrating(2, NULL))
{
    node_set_policy(&world->nodes[0], (struct policy){.owner = &world->nodes[0]});
    struct peer *client = peer_connect(&world->nodes[1], &world->nodes[0].bound);
    uint32_t size = 64;
    peer_send_from_test(client, &size, 1);
    struct peer *owner = node_peer(&world->nodes[0], 1);
    node_set_policy(&world->nodes[0], (struct policy){.echo = true});
    peer_send_from_test(client, &size, 1);
    WAIT_UNTIL(client->received == 1);
    assert_int_equal(owner->received, 1);
}

/* The peer is gone before the connection has arrived. */
WORLD_CASE(migrate__of_a_connection_that_ends, open_three(NULL))
{
    uint32_t sizes[] = {64, 100};
    for (uint32_t i = 0; i < 10; i++) {
        struct peer *client = peer_connect(&world->nodes[2], &world->nodes[0].bound);
        WAIT_UNTIL(client->open);
        peer_send_from_test(client, sizes, 2);
        peer_disconnect_from_test(client);
        struct peer *owner = node_peer(&world->nodes[1], i);
        WAIT_UNTIL(owner->closed == 1);
        assert_int_equal(owner->received, 1);
        assert_int_equal(owner->close_err, SL_ERR_CLOSED);
    }
}

/* A reactor that never accepts must not keep memory for every connection that it was ever given:
 * the first ones' serves the later ones. */
WORLD_CASE(migrate__reuses_the_memory_of_those_that_ended, open_three(NULL))
{
    enum { TIMES = 8 };
    const struct sl_conn *seen[TIMES];
    uint32_t seen_count = 0;
    uint32_t size = 64;
    for (uint32_t i = 0; i < TIMES; i++) {
        struct peer *client = peer_connect(&world->nodes[2], &world->nodes[0].bound);
        peer_send_from_test(client, &size, 1);
        struct peer *owner = node_peer(&world->nodes[1], i);
        WAIT_UNTIL(owner->open);
        uint32_t k = 0;
        while (k < seen_count && seen[k] != owner->handle) {
            k++;
        }
        seen[k] = owner->handle;
        seen_count += k == seen_count;
        peer_disconnect_from_test(client);
        WAIT_UNTIL(owner->closed == 1 && client->closed == 1);
    }
    assert_in_range(seen_count, 1, TIMES / 2);
}

const char conformance_migrate_cases;
