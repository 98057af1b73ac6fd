/* Peers that stop, while others go on. The smallest server there is has 16 MiB for replies and as
 * much for requests. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ps/server_internal.h"
#include "server_fixture.h"

#define DIM       4
#define NOBODY    UINT32_MAX
#define LONG_US   (60U * 1000 * 1000)
#define LONG_KEYS 160000 /* pulled: a reply of 2.5 MB; pushed: a frame of 3.8 MB */

static struct shard_request request;
static uint64_t keys[LONG_KEYS];
static float gradients[LONG_KEYS * DIM];

static int setup(void **state)
{
    server_fixture_keys(0, keys, LONG_KEYS);
    return server_fixture_setup_least(state);
}

static struct peer *join(const struct server_fixture *fixture)
{
    struct peer *peer = peer_join(fixture, NOBODY, 0);
    peer_open_table(peer, 0, SL_CONSISTENCY_ASP);
    return peer;
}

static uint64_t send_pull(struct peer *peer, uint32_t key_count)
{
    shard_request_begin(&request, 0);
    shard_request_pull(&request, 0, keys, key_count);
    return peer_send_request(peer, &request, LONG_US);
}

/* The head of a long push. */
static void begin_push(struct peer *peer)
{
    shard_request_begin(&request, 0);
    shard_request_push(&request, SL_REQUEST_PUSH, 0, keys, LONG_KEYS, gradients, DIM);
    uint8_t head[SL_FRAME_HEADER_BYTES];
    sl_frame_encode(&(struct sl_frame){.type = SL_FRAME_REQUEST,
                                       .payload_bytes = (uint32_t)request.bytes,
                                       .request_id = 1,
                                       .budget_us = LONG_US},
                    head);
    peer_send_bytes(peer, head, sizeof head);
}

/* ---- On the server's reactor. The newest connection is the first. */

static uint32_t conn_count;
static bool newest_has_sink;

static void observe(struct server_fixture *fixture, uint32_t index)
{
    const struct sl_server *server = fixture->servers[index];
    conn_count = server->conn_count;
    newest_has_sink = server->conns != NULL && server->conns->sink != NULL;
}

/* Only the test looks from now on. */
static void stop_looking(struct server_fixture *fixture, uint32_t index)
{
    struct sl_server *server = fixture->servers[index];
    sl_server_watch(server);
    sl_timer_arm(sl_reactor_timers(server->options.reactor), &server->watch_timer,
                 sl_reactor_now_ns(server->options.reactor) + 3600 * SL_CLOCK_NS_PER_S);
}

static void look(struct server_fixture *fixture, uint32_t index)
{
    sl_server_watch_look(fixture->servers[index]);
    observe(fixture, index);
}

static void looks(struct server_fixture *fixture, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        server_fixture_run_on(fixture, 0, look);
    }
}

static void wait_for_sink(struct server_fixture *fixture)
{
    do {
        server_fixture_run_on(fixture, 0, observe);
    } while (!newest_has_sink);
}

/* ---- Who does not read ----------------------------------------------------------------------- */

static void server_watch__closes_who_does_not_read(void **state)
{
    struct server_fixture *fixture = *state;
    server_fixture_run_on(fixture, 0, stop_looking);
    struct peer *peer = join(fixture);
    for (int i = 0; i < 4; i++) {
        (void)send_pull(peer, LONG_KEYS);
    }
    uint32_t count = 0;
    do {
        looks(fixture, 1);
        count++;
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    } while (conn_count > 0);
    assert_true(count >= 10);
    peer_close(&peer);
}

static void server_watch__leaves_who_reads_slowly_or_has_nothing_to_read(void **state)
{
    struct server_fixture *fixture = *state;
    server_fixture_run_on(fixture, 0, stop_looking);
    struct peer *idle = join(fixture);
    struct peer *slow = join(fixture);
    for (int i = 0; i < 4; i++) {
        (void)send_pull(slow, LONG_KEYS);
    }
    for (uint64_t id = 1; id <= 4; id++) {
        looks(fixture, 4);
        assert_int_equal(peer_receive_reply(slow, id), 0);
    }
    looks(fixture, 30);
    assert_int_equal(conn_count, 2);
    peer_close(&slow);
    peer_close(&idle);
}

static void server_watch__stopped_readers_leave_room_for_others(void **state)
{
    enum { STOPPED = 3 };
    struct server_fixture *fixture = *state;
    struct peer *healthy = join(fixture);
    struct peer *stopped[STOPPED];
    for (int i = 0; i < STOPPED; i++) {
        stopped[i] = join(fixture);
        for (int k = 0; k < 4; k++) {
            (void)send_pull(stopped[i], LONG_KEYS);
        }
    }
    for (int i = 1; i <= 6; i++) {
        uint64_t id = send_pull(healthy, i == 6 ? LONG_KEYS : 10);
        assert_int_equal(peer_receive_reply(healthy, id), 0);
    }
    for (int i = 0; i < STOPPED; i++) {
        peer_close(&stopped[i]);
    }
    peer_close(&healthy);
}

/* ---- Who does not go on writing -------------------------------------------------------------- */

static void server_watch__closes_who_sends_a_frame_byte_by_byte(void **state)
{
    struct server_fixture *fixture = *state;
    server_fixture_run_on(fixture, 0, stop_looking);
    struct peer *peer = join(fixture);
    begin_push(peer);
    wait_for_sink(fixture);
    for (uint32_t i = 0; i < 9; i++) {
        peer_send_bytes(peer, request.payload + i, 1);
        looks(fixture, 1);
    }
    assert_true(newest_has_sink);
    looks(fixture, 1);
    peer_expect_end(peer);
    peer_close(&peer);
}

static void server_watch__frames_that_stop_do_not_keep_others_out(void **state)
{
    enum { STOPPED = 6 }; /* there is room for three */
    struct server_fixture *fixture = *state;
    server_fixture_run_on(fixture, 0, stop_looking);
    struct peer *stopped[STOPPED];
    for (int i = 0; i < STOPPED; i++) {
        stopped[i] = join(fixture);
        begin_push(stopped[i]);
        if (i < 3) {
            wait_for_sink(fixture);
        }
    }
    struct peer *healthy = join(fixture);
    begin_push(healthy);
    server_fixture_run_on(fixture, 0, observe);
    assert_false(newest_has_sink);
    do {
        looks(fixture, 1);
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    } while (!newest_has_sink);
    peer_send_bytes(healthy, request.payload, request.bytes);
    assert_int_equal(peer_receive_reply(healthy, 1), 0);
    for (int i = 0; i < STOPPED; i++) {
        peer_close(&stopped[i]);
    }
    peer_close(&healthy);
}

/* A connection with a long request in memory leaves the second half of the room to others; who has
 * none, and finds no room, is the next to get some. */
static void share(struct server_fixture *fixture, uint32_t index)
{
    struct sl_server *server = fixture->servers[index];
    struct sl_server_conn *other = server->conns;
    struct sl_server_conn *conn = other->next;
    uint8_t *sinks[4];
    sinks[0] = sl_server_watch_sink(conn, SL_LIMIT_FRAME_PAYLOAD_BYTES);
    assert_non_null(sinks[0]);
    conn->long_requests = 1;
    sinks[1] = sl_server_watch_sink(conn, SL_LIMIT_FRAME_PAYLOAD_BYTES);
    assert_non_null(sinks[1]);
    assert_null(sl_server_watch_sink(conn, SL_LIMIT_FRAME_PAYLOAD_BYTES));
    assert_false(conn->waits_for_sink);
    conn->long_requests = 0;
    sinks[2] = sl_server_watch_sink(conn, SL_LIMIT_FRAME_PAYLOAD_BYTES);
    assert_non_null(sinks[2]);
    assert_null(sl_server_watch_sink(conn, SL_LIMIT_FRAME_PAYLOAD_BYTES));
    assert_true(conn->waits_for_sink);
    for (int i = 0; i < 3; i++) {
        sl_server_buffers_put(&server->buffers, sinks[i]);
    }
    assert_null(sl_server_watch_sink(other, 20000)); /* not before the first */
    sinks[3] = sl_server_watch_sink(conn, SL_LIMIT_FRAME_PAYLOAD_BYTES);
    assert_non_null(sinks[3]);
    sl_server_buffers_put(&server->buffers, sinks[3]);
    sinks[3] = sl_server_watch_sink(other, 20000);
    assert_non_null(sinks[3]);
    sl_server_buffers_put(&server->buffers, sinks[3]);
}

static void server_watch__one_connection_does_not_take_all_the_room(void **state)
{
    struct server_fixture *fixture = *state;
    struct peer *first = join(fixture);
    struct peer *second = join(fixture);
    server_fixture_run_on(fixture, 0, share);
    peer_close(&first);
    peer_close(&second);
}

/* The first who waits for room is closed, but has not ended yet. */
static void close_the_first(struct server_fixture *fixture, uint32_t index)
{
    struct sl_server *server = fixture->servers[index];
    struct sl_server_conn *other = server->conns;
    struct sl_server_conn *first = other->next;
    uint8_t *sinks[3];
    for (int i = 0; i < 3; i++) {
        sinks[i] = sl_server_watch_sink(other, SL_LIMIT_FRAME_PAYLOAD_BYTES);
        assert_non_null(sinks[i]);
    }
    assert_null(sl_server_watch_sink(first, SL_LIMIT_FRAME_PAYLOAD_BYTES));
    for (int i = 0; i < 3; i++) {
        sl_server_buffers_put(&server->buffers, sinks[i]);
    }
    assert_null(sl_server_watch_sink(other, 20000));
    sl_transport_disconnect(first->conn);
    sinks[0] = sl_server_watch_sink(other, 20000);
    assert_non_null(sinks[0]);
    assert_false(first->waits_for_sink);
    sl_server_buffers_put(&server->buffers, sinks[0]);
}

static void server_watch__who_is_being_closed_keeps_nobody_waiting(void **state)
{
    struct server_fixture *fixture = *state;
    struct peer *first = join(fixture);
    struct peer *second = join(fixture);
    server_fixture_run_on(fixture, 0, close_the_first);
    peer_close(&first);
    peer_close(&second);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, server_fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(server_watch__closes_who_does_not_read),
        CASE(server_watch__leaves_who_reads_slowly_or_has_nothing_to_read),
        CASE(server_watch__stopped_readers_leave_room_for_others),
        CASE(server_watch__closes_who_sends_a_frame_byte_by_byte),
        CASE(server_watch__frames_that_stop_do_not_keep_others_out),
        CASE(server_watch__one_connection_does_not_take_all_the_room),
        CASE(server_watch__who_is_being_closed_keeps_nobody_waiting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
