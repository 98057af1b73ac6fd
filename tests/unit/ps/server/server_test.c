#include <string.h>

#include "fixture.h"
#include "tests/support/unit.h"

#define DIM       4
#define LONG_KEYS 100000 /* a push of them takes many slices, and 2.4 MB */

static struct shard_request request;
static uint64_t keys[LONG_KEYS];
static float gradients[LONG_KEYS * DIM];

/* Keys of the shard, each with a gradient of its own. */
static void fill_keys(uint32_t shard)
{
    server_fixture_keys(shard, keys, LONG_KEYS);
    server_fixture_gradients(gradients, LONG_KEYS);
}

static void setup(struct server_fixture *fixture)
{
    fixture->lease_ns = SL_CLOCK_NS_PER_MS;
    server_fixture_start(fixture, false);
    fill_keys(0);
}

static const float *rows_of(const struct peer *peer)
{
    return (const float *)(const void *)peer->payload;
}

static uint64_t send_pull(struct peer *peer, uint32_t clock, uint32_t key_count, uint32_t budget_us)
{
    shard_request_begin(&request, clock);
    shard_request_pull(&request, 0, keys, key_count);
    return peer_send_request(peer, &request, budget_us);
}

static uint64_t send_push(struct peer *peer, uint32_t clock, uint32_t key_count)
{
    shard_request_begin(&request, clock);
    shard_request_push(&request, SL_REQUEST_PUSH, 0, keys, key_count, gradients, DIM);
    return peer_send_request(peer, &request, LONG_US);
}

static uint64_t send_tick(struct peer *peer, uint32_t clock)
{
    shard_request_begin(&request, clock);
    shard_request_tick(&request);
    return peer_send_request(peer, &request, LONG_US);
}

#define CASE(name) SERVER_CASE(name, setup)

CASE(server_request__short_ones_are_answered_with_their_credit)
{
    struct peer *peer = peer_join_table(fixture, NOBODY, SL_CONSISTENCY_ASP);
    for (int round = 1; round < 4; round++) {
        uint64_t id = send_push(peer, 0, 10);
        uint64_t cost = sl_request_credit_bytes(request.bytes, 0);
        assert_int_equal(peer_receive_reply(peer, id), 0);
        assert_int_equal(peer->header.payload_bytes, 0);
        assert_int_equal(peer->header.credit_bytes, cost);
        assert_int_equal(peer->header.credit_requests, 1);
        id = send_pull(peer, 0, 10, LONG_US);
        cost = sl_request_credit_bytes(request.bytes, 10 * DIM * sizeof(float));
        assert_int_equal(peer_receive_reply(peer, id), 0);
        assert_int_equal(peer->header.payload_bytes, 10 * DIM * sizeof(float));
        assert_int_equal(peer->header.credit_bytes, cost);
        for (uint32_t i = 0; i < 10 * DIM; i++) {
            assert_true(rows_of(peer)[i] == (float)round * gradients[i]);
        }
    }
    peer_close(&peer);
}

CASE(server_request__long_ones_are_sliced_and_right)
{
    struct peer *peer = peer_join_table(fixture, NOBODY, SL_CONSISTENCY_ASP);
    uint64_t first = send_push(peer, 0, LONG_KEYS);
    (void)send_push(peer, 0, LONG_KEYS);
    (void)send_pull(peer, 0, LONG_KEYS, LONG_US);
    (void)send_pull(peer, 0, 1, LONG_US);
    for (uint64_t id = first; id < first + 2; id++) {
        assert_int_equal(peer_receive_reply(peer, id), 0);
    }
    assert_int_equal(peer_receive_reply(peer, first + 2), 0); /* in order */
    assert_int_equal(peer->header.payload_bytes, LONG_KEYS * DIM * sizeof(float));
    for (uint32_t i = 0; i < LONG_KEYS * DIM; i++) {
        assert_true(rows_of(peer)[i] == 2.0F * gradients[i]);
    }
    assert_int_equal(peer_receive_reply(peer, first + 3), 0);
    peer_close(&peer);
}

CASE(server_request__many_in_flight_are_answered_in_order)
{
    struct peer *peer = peer_join_table(fixture, NOBODY, SL_CONSISTENCY_ASP);
    for (int round = 0; round < 10; round++) {
        uint64_t first = peer->next_id;
        for (int i = 0; i < SL_LIMIT_CREDIT_REQUESTS; i++) {
            (void)send_pull(peer, 0, 1 + (uint32_t)i, LONG_US);
        }
        for (uint64_t id = first; id < peer->next_id; id++) {
            assert_int_equal(peer_receive_reply(peer, id), 0);
            assert_int_equal(peer->header.payload_bytes, (id - first + 1) * DIM * sizeof(float));
        }
    }
    peer_close(&peer);
}

#define BURST 200

/* Appends a pull to what is sent at once; every seventh ends with a key of the other shard. */
static size_t append_pull(const struct peer *peer, uint32_t at, uint8_t *to)
{
    uint64_t asked[3];
    uint64_t strange;
    server_fixture_keys(0, asked, 3);
    server_fixture_keys(1, &strange, 1);
    uint32_t key_count = at % 3 + 1;
    asked[key_count - 1] = at % 7 == 3 ? strange : asked[key_count - 1];
    shard_request_begin(&request, 0);
    shard_request_pull(&request, (uint16_t)(at / 5 % 2), asked, key_count);
    const struct sl_frame frame = {
        .type = SL_FRAME_REQUEST,
        .payload_bytes = (uint32_t)request.bytes,
        .request_id = peer->next_id + at,
        .budget_us = LONG_US,
    };
    sl_frame_encode(&frame, to);
    memcpy(to + SL_FRAME_HEADER_BYTES, request.payload, request.bytes);
    return SL_FRAME_HEADER_BYTES + request.bytes;
}

CASE(server_request__that_fails_among_good_ones_fails_degraded)
{
    static uint8_t bytes[BURST * 128];
    struct peer *peer = peer_join_table(fixture, NOBODY, SL_CONSISTENCY_ASP);
    peer_open_table(peer, 1, SL_CONSISTENCY_ASP);
    size_t count = 0;
    for (uint32_t at = 0; at < BURST; at++) {
        count += append_pull(peer, at, bytes + count);
    }
    peer_send_bytes(peer, bytes, count);
    for (uint32_t at = 0; at < BURST; at++) {
        int expected = at % 7 == 3 ? SL_ERR_WRONG_SHARD : 0;
        assert_int_equal(peer_receive_reply(peer, peer->next_id + at), expected);
        uint32_t key_count = at % 3 + 1;
        uint64_t reply_bytes = key_count * DIM * sizeof(float);
        uint64_t asked_bytes = sizeof(struct sl_request_prefix) +
                               sizeof(struct sl_request_section) + key_count * sizeof(uint64_t);
        assert_int_equal(peer->header.credit_requests, 1);
        assert_int_equal(peer->header.credit_bytes,
                         sl_request_credit_bytes(asked_bytes, reply_bytes));
        assert_true(expected != 0 || peer->header.payload_bytes == reply_bytes);
    }
    peer_close(&peer);
}

/* The first section is answered already when the second has to wait. */
CASE(server_parked__goes_on_in_the_middle)
{
    struct peer *peer = peer_join(fixture, 0, 0);
    struct peer *other = peer_join_table(fixture, 1, SL_CONSISTENCY_BSP);
    peer_open_table(peer, 1, SL_CONSISTENCY_ASP);
    shard_request_begin(&request, 1);
    shard_request_pull(&request, 1, keys, 7);
    shard_request_pull(&request, 0, keys, 5);
    uint64_t id = peer_send_request(peer, &request, LONG_US);
    (void)send_pull(peer, 0, 1, LONG_US);
    assert_int_equal(peer_receive_reply(peer, id + 1), 0);
    shard_request_begin(&request, 0);
    shard_request_push(&request, SL_REQUEST_PUSH, 0, keys, 5, gradients, DIM);
    shard_request_push(&request, SL_REQUEST_PUSH, 1, keys, 7, gradients, DIM);
    shard_request_tick(&request);
    (void)peer_send_request(peer, &request, LONG_US);
    assert_int_equal(peer_receive_reply(peer, id + 2), 0);
    (void)send_tick(other, 0);
    assert_int_equal(peer_receive_reply(other, 1), 0);
    assert_int_equal(peer_receive_reply(peer, id), 0);
    assert_int_equal(peer->header.payload_bytes, 12 * DIM * sizeof(float));
    for (uint32_t i = 0; i < 7 * DIM; i++) {
        assert_true(rows_of(peer)[i] == 0.0F); /* read before the push */
    }
    for (uint32_t i = 0; i < 5 * DIM; i++) {
        assert_true(rows_of(peer)[7 * DIM + i] == gradients[i]);
    }
    peer_close(&peer);
    peer_close(&other);
}

CASE(server_parked__who_changes_its_version_holds_nobody_up)
{
    struct peer *stays = peer_join(fixture, 0, 0);
    struct peer *goes = peer_join_table(fixture, 1, SL_CONSISTENCY_BSP);
    (void)send_tick(stays, 0);
    assert_int_equal(peer_receive_reply(stays, 1), 0);
    (void)send_pull(stays, 1, 10, LONG_US);
    /* Replies that it does not read are in the server's hands when its strange frame comes. */
    for (int i = 0; i < 10; i++) {
        (void)send_pull(goes, 0, LONG_KEYS, LONG_US);
    }
    uint8_t head[SL_FRAME_HEADER_BYTES];
    sl_frame_encode(&(struct sl_frame){.type = SL_FRAME_CONTROL}, head);
    head[offsetof(struct sl_frame, version)] = SL_FRAME_PROTOCOL_VERSION + 1;
    peer_send_bytes(goes, head, sizeof head);
    assert_int_equal(peer_receive_reply(stays, 2), 0);
    peer_expect_end_and_close(&goes);
    peer_close(&stays);
}

/* A long push to a table of ASP, then a pull that waits for clocks. */
static uint64_t send_push_and_wait(struct peer *peer, uint32_t budget_us)
{
    shard_request_begin(&request, 1);
    shard_request_push(&request, SL_REQUEST_PUSH, 1, keys, LONG_KEYS, gradients, DIM);
    shard_request_pull(&request, 0, keys, 1);
    return peer_send_request(peer, &request, budget_us);
}

CASE(server_parked__in_the_middle_after_its_deadline_is_answered)
{
    struct peer *peer = peer_join_table(fixture, 0, SL_CONSISTENCY_BSP);
    peer_open_table(peer, 1, SL_CONSISTENCY_ASP);
    uint64_t id = send_push_and_wait(peer, 1);
    assert_int_equal(peer_receive_reply(peer, id), SL_ERR_DEADLINE);
    peer_close(&peer);
}
