/* The server when its memory is short: as little as it does with. */

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
    server_fixture_gradients(gradients, LONG_KEYS);
    server_fixture_setup_least(fixture);
}

static const float *rows_of(const struct peer *peer)
{
    return (const float *)(const void *)peer->payload;
}

#define CASE(name) SERVER_CASE(name, setup)

/* More long requests than the buffers of the smallest server hold, from several connections. */
CASE(server_request__short_memory_is_backpressure)
{
    enum { PEERS = 6, EACH = 4 };
    struct peer *peers[PEERS];
    for (int i = 0; i < PEERS; i++) {
        peers[i] = peer_join(fixture, NOBODY, 0);
        peer_open_table(peers[i], 0, SL_CONSISTENCY_ASP);
    }
    for (int round = 0; round < EACH; round++) {
        for (int i = 0; i < PEERS; i++) {
            shard_request_begin(&request, 0);
            shard_request_push(&request, SL_REQUEST_PUSH, 0, keys, LONG_KEYS, gradients, DIM);
            (void)peer_send_request(peers[i], &request, LONG_US);
        }
    }
    for (int i = 0; i < PEERS; i++) {
        for (uint64_t id = 1; id <= EACH; id++) {
            assert_int_equal(peer_receive_reply(peers[i], id), 0);
        }
    }
    shard_request_begin(&request, 0);
    shard_request_pull(&request, 0, keys, 10);
    uint64_t id = peer_send_request(peers[0], &request, LONG_US);
    assert_int_equal(peer_receive_reply(peers[0], id), 0);
    for (uint32_t i = 0; i < 10 * DIM; i++) {
        assert_true(rows_of(peers[0])[i] == (float)(PEERS * EACH) * gradients[i]);
    }
    for (int i = 0; i < PEERS; i++) {
        peer_close(&peers[i]);
    }
}

/* Returns when so many rows have been pushed to table 1. */
static void wait_for_pushes(uint64_t row_count, const struct server_fixture *fixture)
{
    struct peer *peer = peer_join(fixture, NOBODY, 0);
    uint64_t pushed;
    do {
        struct sl_message message = {.kind = SL_MESSAGE_STATS_GET};
        peer_send_message(peer, &message);
        peer_receive_message(peer, &message);
        assert_int_equal(message.kind, SL_MESSAGE_STATS);
        pushed = message.stats.tables[1].pushed_rows;
        sl_message_fini(&message);
    } while (pushed < row_count);
    peer_close(&peer);
}

/* The smallest server has room for two frames of those who wait for clocks. What they have done
 * already, and the replies that they will need, are not counted. */
CASE(server_parked__in_the_middle_keeps_only_what_is_left)
{
    enum { PEERS = 4 };
    struct peer *peers[PEERS];
    for (int i = 0; i < PEERS; i++) {
        peers[i] = peer_join(fixture, 2 + (uint32_t)i, 0);
        peer_open_table(peers[i], 0, SL_CONSISTENCY_BSP);
        peer_open_table(peers[i], 1, SL_CONSISTENCY_ASP);
        peer_join_clock(peers[i], 1);
        shard_request_begin(&request, 1);
        shard_request_push(&request, SL_REQUEST_PUSH, 1, keys, LONG_KEYS, gradients, DIM);
        shard_request_pull(&request, 0, keys, LONG_KEYS);
        (void)peer_send_request(peers[i], &request, LONG_US);
    }
    wait_for_pushes(PEERS * (uint64_t)LONG_KEYS, fixture);
    for (uint32_t worker = 0; worker < 2; worker++) {
        struct peer *peer = peer_join(fixture, worker, 0);
        shard_request_begin(&request, 0);
        shard_request_tick(&request);
        uint64_t id = peer_send_request(peer, &request, LONG_US);
        assert_int_equal(peer_receive_reply(peer, id), 0);
        peer_close(&peer);
    }
    for (int i = 0; i < PEERS; i++) {
        assert_int_equal(peer_receive_reply(peers[i], 1), 0);
        assert_int_equal(peers[i]->header.payload_bytes, LONG_KEYS * DIM * sizeof(float));
    }
    shard_request_begin(&request, 0);
    shard_request_pull(&request, 1, keys, 10);
    uint64_t id = peer_send_request(peers[0], &request, LONG_US);
    assert_int_equal(peer_receive_reply(peers[0], id), 0);
    for (uint32_t i = 0; i < 10 * DIM; i++) {
        assert_true(rows_of(peers[0])[i] == PEERS * gradients[i]);
    }
    for (int i = 0; i < PEERS; i++) {
        peer_close(&peers[i]);
    }
}

static void open_spec(struct peer *peer, uint32_t id, const struct sl_table_spec *spec)
{
    struct sl_message message = {.kind = SL_MESSAGE_TABLE_OPEN,
                                 .table_open = {.spec = *spec, .table_id = id}};
    message.table_open.spec.optimizer = sl_optimizer_defaults(SL_OPTIMIZER_SUM);
    peer_send_message(peer, &message);
    struct sl_message answer;
    peer_receive_message(peer, &answer);
    assert_int_equal(answer.kind, SL_MESSAGE_TABLE_OPENED);
}

/* The smallest server has four blocks of a frame's length for requests and replies in the making.
 */
CASE(server_queue__who_lacks_memory_holds_nobody_up)
{
    enum { HOLDERS = 2 }; /* of three blocks, until worker/0 and worker/1 tick */
    struct peer *holders[HOLDERS];
    for (uint32_t i = 0; i < HOLDERS; i++) {
        holders[i] = peer_join(fixture, 2 + i, 0);
        peer_open_table(holders[i], 0, SL_CONSISTENCY_BSP);
        peer_join_clock(holders[i], 1);
        shard_request_begin(&request, 1);
        shard_request_push(&request, SL_REQUEST_PUSH_PULL, 0, keys, LONG_KEYS, gradients, DIM);
        (void)peer_send_request(holders[i], &request, LONG_US);
        if (i == 0) {
            (void)peer_send_request(holders[i], &request, LONG_US);
        }
        peer_sync(holders[i]);
    }
    struct peer *lacking = peer_join(fixture, NOBODY, 0);
    open_spec(lacking, 2,
              &(struct sl_table_spec){.name = "dense",
                                      .kind = SL_TABLE_DENSE,
                                      .length = (uint64_t)SERVER_COUNT * FRAME_FLOATS});
    open_spec(lacking, 3, &(struct sl_table_spec){.name = "wide", .dim = SL_LIMIT_DIM});
    shard_request_begin(&request, 0);
    shard_request_dense(&request, SL_REQUEST_DENSE_PULL, 2, 0, FRAME_FLOATS, NULL);
    (void)peer_send_request(lacking, &request, LONG_US);
    peer_sync(lacking);

    struct peer *modest = peer_join(fixture, NOBODY, 0);
    uint32_t bag_end = 200; /* of such rows as take several turns */
    shard_request_begin(&request, 0);
    shard_request_pooled(&request, 3, keys, bag_end, &bag_end, 1);
    uint64_t id = peer_send_request(modest, &request, LONG_US / 6); /* before others give up */
    assert_int_equal(peer_receive_reply(modest, id), 0);

    for (int i = 0; i < HOLDERS; i++) {
        peer_close(&holders[i]); /* gives back what the other waits for */
    }
    assert_int_equal(peer_receive_reply(lacking, 1), 0);
    peer_close(&lacking);
    peer_close(&modest);
}
