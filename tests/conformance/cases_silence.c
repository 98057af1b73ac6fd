/* A peer that says nothing more, though it owes something, is closed in time; one that owes
 * nothing, or that we keep waiting, is not. Time passes only as the cases say. */
#include "conformance.h"

#include <stdlib.h>
#include <unistd.h>

/* Long, since the kernel has a part in it and goes by its own clock. */
#define TIMEOUT_MS 30000
#define QUARTER_MS (TIMEOUT_MS / 4)
#define LONG_BYTES 300000

static const struct sl_transport_options patient = {.peer_timeout_ms = TIMEOUT_MS};

/* Lets time pass until the peer is closed; returns how many quarters of the timeout that took. What
 * the peer sent before may still be on its way, so that many more may go by than needed. */
static uint32_t quarters_until_closed(struct world *world, struct peer *peer)
{
    uint32_t quarters = 0;
    uint64_t deadline_ns = 0;
    while (peer->closed == 0) {
        world_pass(world, QUARTER_MS);
        quarters++;
        if (wait_expired(&deadline_ns)) {
            fail_msg("a silent peer was never closed");
        }
    }
    return quarters;
}

/* Sends the first `cut` bytes of a frame, and no more. */
static void fall_silent_in_a_frame(uint32_t payload_bytes, uint32_t cut)
{
    struct raw raw = raw_open(world_open_with_frozen_clock(2, &patient));
    uint8_t *frame = malloc(FRAME_BYTES(payload_bytes));
    raw_make_frame(frame, 1, payload_bytes);
    raw_write(raw.fd, frame, cut);
    assert_true(quarters_until_closed(raw.world, raw.accepted) >= TIMEOUT_MS / QUARTER_MS);
    assert_int_equal(raw.accepted->close_err, SL_ERR_DEADLINE);
    assert_int_equal(raw.accepted->received, 0);
    assert_int_equal(raw.bystander->closed, 0); /* it owes nothing, and has said nothing either */
    free(frame);
    raw_close(&raw);
}

SL_CASE(silence__in_a_header)
{
    fall_silent_in_a_frame(100, 10);
}

SL_CASE(silence__after_a_header)
{
    fall_silent_in_a_frame(100, SL_FRAME_HEADER_BYTES);
}

SL_CASE(silence__in_a_short_payload)
{
    fall_silent_in_a_frame(9000, FRAME_BYTES(5000));
}

SL_CASE(silence__on_the_way_into_a_sink)
{
    fall_silent_in_a_frame(LONG_BYTES, FRAME_BYTES(LONG_BYTES / 2));
}

SL_CASE(silence__just_before_the_end)
{
    fall_silent_in_a_frame(LONG_BYTES, FRAME_BYTES(LONG_BYTES - 1));
}

/* Many fall silent and are closed; their memory serves those that come after them. */
SL_CASE(silence__gives_the_memory_back)
{
    enum { CONNECTIONS = 12 };
    struct sl_transport_options options = {
        .peer_timeout_ms = TIMEOUT_MS, .buffer_count = 8, .buffer_bytes = 4096};
    struct raw raw = raw_open(world_open_with_frozen_clock(2, &options));
    struct node *server = &raw.world->nodes[0];
    uint8_t frame[FRAME_BYTES(9000)];
    raw_make_frame(frame, 1, 9000);
    int fds[CONNECTIONS];
    for (uint32_t round = 0; round < 2; round++) {
        uint32_t before = server->peer_count;
        for (uint32_t i = 0; i < CONNECTIONS; i++) {
            fds[i] = conformance_target->connect_raw(&server->bound);
            assert_true(fds[i] >= 0);
            raw_write(fds[i], frame, FRAME_BYTES(7000));
        }
        WAIT_UNTIL(server->peer_count == before + CONNECTIONS);
        for (uint32_t i = 0; i < CONNECTIONS; i++) {
            struct peer *silent = node_peer(server, before + i);
            (void)quarters_until_closed(raw.world, silent);
            assert_int_equal(silent->close_err, SL_ERR_DEADLINE);
            close(fds[i]);
        }
    }
    raw_close(&raw);
}

static void read_stats(struct node *node, void *ctx)
{
    sl_transport_get_stats(node->transport, ctx);
}

static void wait_for_bytes(struct node *node, uint64_t bytes)
{
    struct sl_transport_stats stats = {0};
    uint64_t deadline_ns = 0;
    while (stats.bytes_received < bytes && !wait_expired(&deadline_ns)) {
        node_run(node, read_stats, &stats);
    }
    assert_int_equal(stats.bytes_received, bytes);
}

/* A little now and then is slow, but no silence. */
SL_CASE(slow__is_not_silent)
{
    struct raw raw = raw_open(world_open_with_frozen_clock(2, &patient));
    uint8_t frame[FRAME_BYTES(40)], answer[FRAME_BYTES(40)];
    raw_make_frame(frame, 1, 40);
    for (size_t i = 0; i < sizeof frame; i++) {
        raw_write(raw.fd, frame + i, 1);
        wait_for_bytes(&raw.world->nodes[0], i + 1);
        world_pass(raw.world, QUARTER_MS);
        world_pass(raw.world, QUARTER_MS);
    }
    raw_read(raw.fd, answer, sizeof answer);
    assert_memory_equal(answer, frame, sizeof answer);
    assert_int_equal(raw.accepted->closed, 0);
    raw_close(&raw);
}

/* We were stopped, and looked at nobody: what the peer sent in the meantime has yet to be seen. */
SL_CASE(stopped__is_not_the_peers_silence)
{
    struct raw raw = raw_open(world_open_with_frozen_clock(2, &patient));
    uint8_t *frame = malloc(FRAME_BYTES(LONG_BYTES)), *answer = malloc(FRAME_BYTES(LONG_BYTES));
    raw_make_frame(frame, 1, LONG_BYTES);
    raw_write(raw.fd, frame, FRAME_BYTES(5000));
    wait_for_bytes(&raw.world->nodes[0], FRAME_BYTES(5000));
    world_pass(raw.world, QUARTER_MS);
    world_pass(raw.world, 10 * TIMEOUT_MS);
    raw_write(raw.fd, frame + FRAME_BYTES(5000), LONG_BYTES - 5000);
    raw_read(raw.fd, answer, FRAME_BYTES(LONG_BYTES));
    assert_memory_equal(answer, frame, FRAME_BYTES(LONG_BYTES));
    assert_int_equal(raw.accepted->closed, 0);
    free(frame);
    free(answer);
    raw_close(&raw);
}

/* It is we who have no memory, for as long as it takes. */
WORLD_CASE(sink__refused_is_not_the_peers_silence, world_open_with_frozen_clock(2, &patient))
{
    struct node *server = &world->nodes[0];
    node_set_policy(server, (struct policy){.echo = true, .refuse_sink = true});
    struct peer *client = peer_connect(&world->nodes[1], &server->bound);
    uint32_t sizes[] = {LONG_BYTES, 100, 20000, SL_LIMIT_FRAME_PAYLOAD_BYTES};
    peer_send_from_test(client, sizes, 4);
    WAIT_UNTIL(server->sink_asked >= 1);
    for (uint32_t i = 0; i < 40; i++) {
        world_pass(world, QUARTER_MS);
    }
    assert_int_equal(client->closed, 0);
    assert_int_equal(server->closed_count, 0);
    node_set_policy(server, (struct policy){.echo = true});
    WAIT_UNTIL(client->received == 4);
}

WORLD_CASE(idle__is_not_silence, world_open_with_frozen_clock(2, &patient))
{
    struct node *server = &world->nodes[0];
    node_set_policy(server, (struct policy){.echo = true});
    struct peer *client = peer_connect(&world->nodes[1], &server->bound);
    uint32_t sizes[] = {64, LONG_BYTES};
    for (uint32_t round = 1; round <= 3; round++) {
        peer_send_from_test(client, sizes, 2);
        WAIT_UNTIL(client->received == 2 * round);
        for (uint32_t i = 0; i < 20; i++) {
            world_pass(world, QUARTER_MS);
        }
    }
    assert_int_equal(client->closed, 0);
    assert_int_equal(server->closed_count, 0);
}

const char conformance_silence_cases;
