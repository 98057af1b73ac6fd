/* Draining with requests that are in the queue, rather than parked or answered. */

#include <time.h>

#include "fixture.h"
#include "tests/support/unit.h"

#define DIM          4
#define LONG_KEYS    100000 /* a push of them takes many slices, and 2.4 MB */
#define FRAME_FLOATS (SL_LIMIT_FRAME_PAYLOAD_BYTES / sizeof(float))

static struct shard_request request;
static uint64_t keys[LONG_KEYS];
static float gradients[LONG_KEYS * DIM];

static void setup(struct server_fixture *fixture)
{
    server_fixture_keys(0, keys, LONG_KEYS);
    server_fixture_setup_least(fixture);
}

static void post_drained(void *ctx)
{
    struct server_fixture *fixture = ctx;
    sem_post(&fixture->drained);
}

static void drain(struct server_fixture *fixture, uint32_t index)
{
    sl_server_drain(fixture->servers[index], 240 * SL_CLOCK_NS_PER_S, post_drained, fixture);
}

static void expect_drained(struct server_fixture *fixture)
{
    struct timespec end;
    (void)clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += 120; /* less than the drain's own timeout */
    assert_int_equal(sem_timedwait(&fixture->drained, &end), 0);
}

static void expect_goodbye(struct peer *peer)
{
    struct sl_message message;
    peer_receive_message(peer, &message);
    assert_int_equal(message.kind, SL_MESSAGE_GOODBYE);
    peer_expect_end(peer);
}

static uint64_t request_count(const struct server_fixture *fixture)
{
    struct sl_message message = {.kind = SL_MESSAGE_STATS};
    assert_int_equal(sl_server_stats(fixture->servers[0], &message.stats), 0);
    uint64_t count = message.stats.requests;
    sl_message_fini(&message);
    return count;
}

static bool drained_in_time;

static void drain_when_begun(struct server_fixture *fixture, uint32_t index)
{
    if (!drained_in_time && request_count(fixture) > 0) {
        drained_in_time = true;
        drain(fixture, index);
    }
}

#define CASE(name) SERVER_CASE(name, setup)

/* It is in the middle of a push when the drain begins, and comes to wait for clocks afterwards. */
CASE(server_drain__who_would_wait_for_clocks_is_cancelled)
{
    struct peer *peer = peer_join_table(fixture, 0, SL_CONSISTENCY_BSP);
    peer_open_table(peer, 1, SL_CONSISTENCY_ASP);
    shard_request_begin(&request, 1);
    shard_request_push(&request, SL_REQUEST_PUSH, 1, keys, LONG_KEYS, gradients, DIM);
    shard_request_pull(&request, 0, keys, 1);
    uint64_t id = peer_send_request(peer, &request, LONG_US);
    for (drained_in_time = false; !drained_in_time;) {
        server_fixture_run_on(fixture, 0, drain_when_begun);
    }
    assert_int_equal(peer_receive_reply(peer, id), SL_ERR_CANCELLED);
    expect_goodbye(peer);
    expect_drained(fixture);
    peer_close(&peer);
}

/* Returns when everything that the peer has sent has been received. True: its request was answered
 * before that. */
static bool sync_behind_request(struct peer *peer)
{
    struct sl_message message = {.kind = SL_MESSAGE_STATS_GET};
    peer_send_message(peer, &message);
    assert_true(peer_receive(peer));
    const bool is_answered = peer->header.type == SL_FRAME_REPLY;
    if (is_answered) {
        assert_true(peer_receive(peer));
    }
    assert_int_equal(peer->header.type, SL_FRAME_CONTROL);
    return is_answered;
}

/* Peers that send the beginning of a long frame, and no more, hold the server's memory; a request
 * that needs it is given up in the drain. Then nothing is left to wait for. */
CASE(server_drain__ends_when_the_last_request_is_late)
{
    enum { HOLDERS = 3 };
    struct peer *peer = peer_join(fixture, NOBODY, 0);
    struct sl_message message = {
        .kind = SL_MESSAGE_TABLE_OPEN,
        .table_open.spec = {.name = "dense",
                            .kind = SL_TABLE_DENSE,
                            .length = (uint64_t)SERVER_COUNT * FRAME_FLOATS,
                            .optimizer = sl_optimizer_defaults(SL_OPTIMIZER_SUM)},
    };
    peer_send_message(peer, &message);
    peer_receive_message(peer, &message);
    assert_int_equal(message.kind, SL_MESSAGE_TABLE_OPENED);
    struct peer *holders[HOLDERS];
    for (int i = 0; i < HOLDERS; i++) {
        holders[i] = peer_join(fixture, NOBODY, 0);
        uint8_t head[SL_FRAME_HEADER_BYTES];
        sl_frame_encode(&(struct sl_frame){.type = SL_FRAME_REQUEST,
                                           .payload_bytes = SL_LIMIT_FRAME_PAYLOAD_BYTES,
                                           .request_id = 1,
                                           .budget_us = LONG_US},
                        head);
        peer_send_bytes(holders[i], head, sizeof head);
        peer_send_bytes(holders[i], gradients, 1000);
    }
    shard_request_begin(&request, 0);
    shard_request_dense(&request, SL_REQUEST_DENSE_PULL, 0, 0, FRAME_FLOATS, NULL);
    uint64_t id = peer_send_request(peer, &request, 300000);
    const bool is_answered = sync_behind_request(peer); /* the holders or this test are slow */
    server_fixture_run_on(fixture, 0, drain);
    if (!is_answered) {
        (void)peer_receive_reply(peer, id);
    }
    expect_goodbye(peer);
    for (int i = 0; i < HOLDERS; i++) {
        expect_goodbye(holders[i]);
        peer_close(&holders[i]);
    }
    expect_drained(fixture);
    peer_close(&peer);
}
