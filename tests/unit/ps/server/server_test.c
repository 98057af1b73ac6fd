#include <stdlib.h>
#include <string.h>

#include "fixture.h"
#include "tests/support/unit.h"

#define DIM       4
#define NOBODY    UINT32_MAX
#define LONG_US   (60U * 1000 * 1000)
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

static int setup(void **state)
{
    struct server_fixture *fixture = calloc(1, sizeof *fixture);
    assert_non_null(fixture);
    fixture->lease_ns = SL_CLOCK_NS_PER_MS;
    server_fixture_start(fixture, false);
    fill_keys(0);
    *state = fixture;
    return 0;
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

static struct sl_message_hello data_hello(uint32_t shard)
{
    return (struct sl_message_hello){
        .purpose = SL_MESSAGE_PURPOSE_DATA,
        .role = SL_MESSAGE_ROLE_CLIENT,
        .client_id = 12345,
        .shard = shard,
    };
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

CASE(server_request__errors_carry_text_and_leave_the_connection)
{
    struct peer *peer = peer_join(fixture, NOBODY, 1); /* not the shard of the keys */
    peer_open_table(peer, 0, SL_CONSISTENCY_ASP);
    uint64_t id = send_pull(peer, 0, 3, LONG_US);
    assert_int_equal(peer_receive_reply(peer, id), SL_ERR_WRONG_SHARD);
    assert_non_null(strstr((const char *)peer->payload, "shard 1, section 0"));
    assert_int_equal(peer->header.credit_bytes,
                     sl_request_credit_bytes(request.bytes, 3 * DIM * sizeof(float)));
    fill_keys(1);
    id = send_pull(peer, 0, 3, LONG_US);
    assert_int_equal(peer_receive_reply(peer, id), 0);
    peer_close(&peer);
}

CASE(server_request__malformed_ones_end_the_connection)
{
    struct peer *peer = peer_join(fixture, NOBODY, 0);
    uint64_t id = send_pull(peer, 0, 1, LONG_US); /* no such table */
    assert_int_equal(peer_receive_reply(peer, id), SL_ERR_NOT_FOUND);
    peer_expect_end_and_close(&peer);

    peer = peer_join_table(fixture, NOBODY, SL_CONSISTENCY_ASP);
    peer->next_id = 7; /* ids may leave gaps, but ascend */
    assert_int_equal(peer_receive_reply(peer, send_pull(peer, 0, 1, LONG_US)), 0);
    peer->next_id = 7;
    (void)send_pull(peer, 0, 1, LONG_US);
    peer_expect_end_and_close(&peer);

    peer = peer_join(fixture, NOBODY, 0);
    (void)send_pull(peer, 0, 1, 0); /* no time left */
    peer_expect_end_and_close(&peer);
}

CASE(server_request__half_a_frame_and_an_end_are_survived)
{
    struct peer *peer = peer_join_table(fixture, NOBODY, SL_CONSISTENCY_ASP);
    for (size_t part = 1; part < 2000000; part = part * 5 + 3) {
        struct peer *half = peer_join(fixture, NOBODY, 0);
        shard_request_begin(&request, 0);
        shard_request_push(&request, SL_REQUEST_PUSH, 0, keys, LONG_KEYS, gradients, DIM);
        uint8_t head[SL_FRAME_HEADER_BYTES];
        struct sl_frame frame = {
            .type = SL_FRAME_REQUEST,
            .payload_bytes = (uint32_t)request.bytes,
            .request_id = 1,
            .budget_us = LONG_US,
        };
        sl_frame_encode(&frame, head);
        peer_send_bytes(half, head, part < sizeof head ? part : sizeof head);
        peer_send_bytes(half, request.payload, part < sizeof head ? 0 : part - sizeof head);
        peer_close(&half);
    }
    struct peer *whole = peer_join(fixture, NOBODY, 0);
    (void)send_push(whole, 0, LONG_KEYS);
    peer_close(&whole); /* does not wait for the answer */
    uint64_t id = send_pull(peer, 0, 1, LONG_US);
    assert_int_equal(peer_receive_reply(peer, id), 0);
    peer_close(&peer);
}

CASE(server_request__checksums_are_checked_and_given)
{
    struct peer *peer = peer_connect(fixture);
    struct sl_message_hello hello = data_hello(0);
    hello.checksum = true;
    struct sl_message answer = peer_hello(peer, &hello);
    assert_int_equal(answer.kind, SL_MESSAGE_WELCOME);
    assert_true((peer->header.flags & SL_FRAME_CHECKSUM) != 0);
    peer_open_table(peer, 0, SL_CONSISTENCY_ASP);
    uint64_t id = send_pull(peer, 0, 100, LONG_US);
    assert_int_equal(peer_receive_reply(peer, id), 0);
    assert_true((peer->header.flags & SL_FRAME_CHECKSUM) != 0);

    shard_request_begin(&request, 0);
    shard_request_pull(&request, 0, keys, 2);
    uint8_t head[SL_FRAME_HEADER_BYTES];
    struct sl_frame frame = {
        .type = SL_FRAME_REQUEST,
        .payload_bytes = (uint32_t)request.bytes,
        .request_id = peer->next_id,
        .budget_us = LONG_US,
    };
    sl_frame_encode(&frame, head);
    sl_frame_seal(head, request.payload, request.bytes, NULL, 0);
    request.payload[request.bytes - 1] ^= 1;
    peer_send_bytes(peer, head, sizeof head);
    peer_send_bytes(peer, request.payload, request.bytes);
    peer_expect_end_and_close(&peer);
}

CASE(server_parked__pull_goes_on_when_the_other_worker_ticks)
{
    struct peer *first = peer_join(fixture, 0, 0);
    struct peer *second = peer_join_table(fixture, 1, SL_CONSISTENCY_BSP);
    peer_open_table(second, 0, SL_CONSISTENCY_BSP);
    (void)send_push(first, 0, 100);
    assert_int_equal(peer_receive_reply(first, 1), 0);
    (void)send_tick(first, 0);
    assert_int_equal(peer_receive_reply(first, 2), 0);
    (void)send_pull(first, 1, 100, LONG_US); /* waits */
    (void)send_pull(first, 0, 1, LONG_US);   /* passes it */
    assert_int_equal(peer_receive_reply(first, 4), 0);
    assert_int_equal(first->header.budget_us, 0);
    (void)send_push(second, 0, 100);
    (void)send_tick(second, 0);
    assert_int_equal(peer_receive_reply(second, 1), 0);
    assert_int_equal(peer_receive_reply(second, 2), 0);
    assert_int_equal(peer_receive_reply(first, 3), 0);
    assert_int_equal(first->header.budget_us, 1); /* the clock that all have finished */
    for (uint32_t i = 0; i < 100 * DIM; i++) {
        assert_true(rows_of(first)[i] == 2.0F * gradients[i]);
    }
    peer_close(&first);
    peer_close(&second);
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

/* A parked request that has yet to write: a later pull passes it, a later push does not. */
CASE(server_parked__who_writes_is_passed_by_readers_only)
{
    struct peer *peer = peer_join(fixture, 0, 0);
    struct peer *other = peer_join_table(fixture, 1, SL_CONSISTENCY_BSP);
    peer_open_table(peer, 1, SL_CONSISTENCY_ASP);
    (void)send_tick(peer, 0);
    assert_int_equal(peer_receive_reply(peer, 1), 0);
    shard_request_begin(&request, 1);
    shard_request_pull(&request, 0, keys, 1);
    shard_request_tick(&request);
    uint64_t waits = peer_send_request(peer, &request, LONG_US);
    uint64_t passes = send_pull(peer, 0, 2, LONG_US);
    assert_int_equal(peer_receive_reply(peer, passes), 0);
    uint64_t held = send_tick(peer, 2); /* right only behind the tick that waits */
    uint64_t behind = send_pull(peer, 0, 3, LONG_US);
    struct sl_message stats = {.kind = SL_MESSAGE_STATS_GET};
    peer_send_message(peer, &stats);
    peer_receive_message(peer, &stats); /* the server has had its turn with what came before */
    sl_message_fini(&stats);
    (void)send_tick(other, 0);
    assert_int_equal(peer_receive_reply(other, 1), 0);
    assert_int_equal(peer_receive_reply(peer, waits), 0);
    assert_int_equal(peer_receive_reply(peer, held), 0);
    assert_int_equal(peer_receive_reply(peer, behind), 0);
    peer_close(&peer);
    peer_close(&other);
}

CASE(server_parked__deadline_names_the_worker_waited_for)
{
    struct peer *peer = peer_join_table(fixture, 0, SL_CONSISTENCY_BSP);
    uint64_t id = send_pull(peer, 1, 10, 1000);
    assert_int_equal(peer_receive_reply(peer, id), SL_ERR_DEADLINE);
    assert_non_null(strstr((const char *)peer->payload, "worker/"));
    assert_int_equal(peer->header.credit_requests, 1);
    peer_close(&peer);
}

CASE(server_parked__more_than_the_credit_ends_the_connection)
{
    struct peer *peer = peer_join_table(fixture, 0, SL_CONSISTENCY_BSP);
    for (int i = 0; i < SL_LIMIT_CREDIT_REQUESTS + 1; i++) {
        (void)send_pull(peer, 1, 1, LONG_US);
    }
    peer_expect_end_and_close(&peer);
}

CASE(server_parked__who_leaves_holds_nobody_up)
{
    struct peer *stays = peer_join(fixture, 0, 0);
    struct peer *goes = peer_join_table(fixture, 1, SL_CONSISTENCY_BSP);
    (void)send_tick(stays, 0);
    assert_int_equal(peer_receive_reply(stays, 1), 0);
    (void)send_pull(stays, 1, 10, LONG_US);
    peer_leave(&goes);
    assert_int_equal(peer_receive_reply(stays, 2), 0);
    peer_close(&stays);
}

CASE(server_parked__tick_of_another_clock_is_an_error)
{
    struct peer *peer = peer_join(fixture, 0, 0);
    uint64_t id = send_tick(peer, 1);
    assert_int_equal(peer_receive_reply(peer, id), SL_ERR_PROTOCOL);
    assert_non_null(strstr((const char *)peer->payload, "worker/0"));
    peer_close(&peer);
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

CASE(server_stats__count_requests_and_rows)
{
    struct peer *peer = peer_join_table(fixture, NOBODY, SL_CONSISTENCY_ASP);
    (void)send_push(peer, 0, 50);
    assert_int_equal(peer_receive_reply(peer, 1), 0);
    struct sl_message message = {.kind = SL_MESSAGE_STATS_GET, .id = 8};
    peer_send_message(peer, &message);
    struct sl_message answer;
    peer_receive_message(peer, &answer);
    assert_int_equal(answer.kind, SL_MESSAGE_STATS);
    assert_int_equal(answer.stats.requests, 1);
    assert_int_equal(answer.stats.table_count, 1);
    assert_int_equal(answer.stats.tables[0].rows, 50);
    assert_int_equal(answer.stats.tables[0].pushed_rows, 50);
    assert_true(answer.stats.bytes_in > 50 * (8 + DIM * 4));
    sl_message_fini(&answer);
    peer_close(&peer);
}
