/* Peers that stop, while others go on. The smallest server there is has 16 MiB for replies and as
 * much for requests. */

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>

#include "fixture.h"
#include "ps/server/request.h"
#include "ps/server/state.h"
#include "tests/support/unit.h"

#define DIM       4
#define LONG_KEYS 160000 /* pulled: a reply of 2.5 MB; pushed: a frame of 3.8 MB */

static struct shard_request request;
static uint64_t keys[LONG_KEYS];
static float gradients[LONG_KEYS * DIM];

/* The transport closes a peer that stops in a frame after less than the usual 10 s. */
#define SHORT_MS  2000

/* The transport notes what peers have taken every 2 s. The system closes a peer that takes nothing
 * for 8 s: longer than this process may stand still. */
#define LONGER_MS 8000

/* peer_timeout_ms 0: the default. */
static void setup(struct server_fixture *fixture, uint32_t peer_timeout_ms)
{
    server_fixture_keys(0, keys, LONG_KEYS);
    fixture->options.transports.options.peer_timeout_ms = peer_timeout_ms;
    server_fixture_setup_least(fixture);
}

static struct peer *join(const struct server_fixture *fixture)
{
    struct peer *peer = peer_join_table(fixture, NOBODY, SL_CONSISTENCY_ASP);
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

static uint32_t conn_count;
static bool newest_has_sink;

static void observe(struct server_fixture *fixture, uint32_t index)
{
    const struct sl_server *server = fixture->servers[index];
    conn_count = server->host->conn_count;
    newest_has_sink = !sl_list_empty(&server->host->conns) &&
                      sl_server_conn_of(server->host->conns.head.next)->sink.buffer != NULL &&
                      sl_server_conn_of(server->host->conns.head.next)->conn->state == SL_CONN_OPEN;
}

/* Only the test looks from now on. */
static void stop_looking(struct server_fixture *fixture, uint32_t index)
{
    struct sl_server *server = fixture->servers[index];
    sl_timer_arm(sl_reactor_timers(server->options.reactor), &server->host->admission.timer,
                 sl_reactor_now_ns(server->options.reactor) + 3600 * SL_CLOCK_NS_PER_S);
}

static void look(struct server_fixture *fixture, uint32_t index)
{
    sl_server_admission_check(fixture->servers[index]->host);
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
    server_fixture_run_on(fixture, 0, observe);
    while (!newest_has_sink) {
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        server_fixture_run_on(fixture, 0, observe);
    }
}

#define CASE(name) SERVER_CASE(name, setup, 0)

CASE(server_watch__closes_who_does_not_read)
{
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

CASE(server_watch__leaves_who_reads_slowly_or_has_nothing_to_read)
{
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

static uint64_t taken_bytes;

static void observe_taken(struct server_fixture *fixture, uint32_t index)
{
    observe(fixture, index);
    taken_bytes =
        conn_count == 0
            ? 0
            : sl_server_conn_of(fixture->servers[index]->host->conns.head.next)->conn->taken_bytes;
}

/* Returns when the transport has seen that the peer has taken more. */
static void wait_for_progress(struct server_fixture *fixture, uint64_t before)
{
    do {
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        server_fixture_run_on(fixture, 0, observe_taken);
    } while (taken_bytes == before && conn_count > 0);
}

/* None of its replies is complete for longer than a peer may stop reading. */
SERVER_CASE(server_watch__leaves_who_takes_long_replies_slowly, setup, LONGER_MS)
{
    enum { PARTS = 3, PART_BYTES = 250000 }; /* of a reply of 2.5 MB */
    static uint8_t part[PART_BYTES];
    server_fixture_run_on(fixture, 0, stop_looking);
    struct peer *slow = join(fixture);
    const int room_bytes = 65536; /* so that the system takes little that the peer does not */
    assert_int_equal(setsockopt(slow->fd, SOL_SOCKET, SO_RCVBUF, &room_bytes, sizeof room_bytes),
                     0);
    for (int i = 0; i < 4; i++) {
        (void)send_pull(slow, LONG_KEYS);
    }
    for (int i = 0; i < PARTS; i++) {
        const uint64_t before = taken_bytes;
        for (size_t bytes = 0; bytes < PART_BYTES;) {
            const ssize_t more = recv(slow->fd, part, PART_BYTES - bytes, 0);
            assert_true(more > 0 || (more < 0 && errno == EINTR)); /* it was stopped */
            bytes += more > 0 ? (size_t)more : 0;
        }
        wait_for_progress(fixture, before);
        looks(fixture, 4);
    }
    assert_int_equal(conn_count, 1);
    do {
        looks(fixture, 1);
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    } while (conn_count > 0);
    peer_close(&slow);
}

/* Time passes for the server only while nothing arrives. */
static void wait_for_reply(struct server_fixture *fixture, struct peer *peer, uint64_t id)
{
    struct pollfd readable = {.fd = peer->fd, .events = POLLIN};
    while (poll(&readable, 1, 1) <= 0) {
        looks(fixture, 1);
    }
    assert_int_equal(peer_receive_reply(peer, id), 0);
}

CASE(server_watch__stopped_readers_leave_room_for_others)
{
    enum { STOPPED = 3 };
    struct peer *healthy = join(fixture);
    struct peer *stopped[STOPPED];
    for (int i = 0; i < STOPPED; i++) {
        stopped[i] = join(fixture);
        for (int k = 0; k < 4; k++) {
            (void)send_pull(stopped[i], LONG_KEYS);
        }
    }
    server_fixture_run_on(fixture, 0, stop_looking);
    for (int i = 1; i <= 6; i++) {
        uint64_t id = send_pull(healthy, i == 6 ? LONG_KEYS : 10);
        wait_for_reply(fixture, healthy, id);
    }
    for (int i = 0; i < STOPPED; i++) {
        peer_close(&stopped[i]);
    }
    peer_close(&healthy);
}

CASE(server_watch__closes_who_sends_a_frame_byte_by_byte)
{
    server_fixture_run_on(fixture, 0, stop_looking);
    struct peer *peer = join(fixture);
    begin_push(peer);
    wait_for_sink(fixture);
    for (uint32_t i = 0; i < 599; i++) {
        peer_send_bytes(peer, request.payload + i, 1);
        looks(fixture, 1);
    }
    assert_true(newest_has_sink);
    looks(fixture, 1);
    peer_expect_end_and_close(&peer);
}

/* Three clients push at once, over a link on which that takes longer than a peer may be silent. */
CASE(server_watch__leaves_frames_that_come_slowly)
{
    enum { CLIENTS = 3, PARTS = 40 };
    server_fixture_run_on(fixture, 0, stop_looking);
    struct peer *peers[CLIENTS];
    for (int i = 0; i < CLIENTS; i++) {
        peers[i] = join(fixture);
        begin_push(peers[i]);
        wait_for_sink(fixture);
    }
    const size_t part_bytes = request.bytes / PARTS;
    for (size_t part = 0; part < PARTS; part++) {
        const size_t last_bytes = request.bytes - part * part_bytes;
        for (int i = 0; i < CLIENTS; i++) {
            peer_send_bytes(peers[i], request.payload + part * part_bytes,
                            part + 1 < PARTS ? part_bytes : last_bytes);
        }
        looks(fixture, 1);
    }
    for (int i = 0; i < CLIENTS; i++) {
        assert_int_equal(peer_receive_reply(peers[i], 1), 0);
        peer_close(&peers[i]);
    }
}

SERVER_CASE(server_watch__frames_that_stop_do_not_keep_others_out, setup, SHORT_MS)
{
    enum { STOPPED = 6 }; /* there is room for three */
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
    assert_true(!newest_has_sink || conn_count <= STOPPED); /* unless one is closed already */
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
    struct sl_server_conn *other = sl_server_conn_of(server->host->conns.head.next);
    struct sl_server_conn *conn = sl_server_conn_of(other->link.next);
    uint8_t *sinks[4];
    sinks[0] = sl_server_admission_sink(conn, SL_LIMIT_FRAME_PAYLOAD_BYTES);
    assert_non_null(sinks[0]);
    conn->sink.long_requests = 1;
    sinks[1] = sl_server_admission_sink(conn, SL_LIMIT_FRAME_PAYLOAD_BYTES);
    assert_non_null(sinks[1]);
    assert_null(sl_server_admission_sink(conn, SL_LIMIT_FRAME_PAYLOAD_BYTES));
    assert_false(sl_list_linked(&conn->sink.link));
    conn->sink.long_requests = 0;
    sinks[2] = sl_server_admission_sink(conn, SL_LIMIT_FRAME_PAYLOAD_BYTES);
    assert_non_null(sinks[2]);
    assert_null(sl_server_admission_sink(conn, SL_LIMIT_FRAME_PAYLOAD_BYTES));
    assert_true(sl_list_linked(&conn->sink.link));
    for (int i = 0; i < 3; i++) {
        sl_server_buffers_put(&server->host->memory.buffers, sinks[i]);
    }
    assert_null(sl_server_admission_sink(other, 20000)); /* not before the first */
    sinks[3] = sl_server_admission_sink(conn, SL_LIMIT_FRAME_PAYLOAD_BYTES);
    assert_non_null(sinks[3]);
    sl_server_buffers_put(&server->host->memory.buffers, sinks[3]);
    sinks[3] = sl_server_admission_sink(other, 20000);
    assert_non_null(sinks[3]);
    sl_server_buffers_put(&server->host->memory.buffers, sinks[3]);
}

CASE(server_watch__one_connection_does_not_take_all_the_room)
{
    struct peer *first = join(fixture);
    struct peer *second = join(fixture);
    server_fixture_run_on(fixture, 0, share);
    peer_close(&first);
    peer_close(&second);
}

/* All that clients may have is in use, and one waits for more: a member's message and a primary's
 * entry find room, or are the next that do. */
static void overtake(struct server_fixture *fixture, uint32_t index)
{
    struct sl_server *server = fixture->servers[index];
    struct sl_server_conn *conn = sl_server_conn_of(server->host->conns.head.next);
    struct sl_server_conn *client = sl_server_conn_of(conn->link.next);
    uint8_t *sinks[4];
    for (int i = 0; i < 3; i++) {
        sinks[i] = sl_server_admission_sink(client, SL_LIMIT_FRAME_PAYLOAD_BYTES);
        assert_non_null(sinks[i]);
    }
    assert_null(sl_server_admission_sink(client, SL_LIMIT_FRAME_PAYLOAD_BYTES));
    conn->kind = SL_SERVER_CONN_CONTROL;
    sinks[3] = sl_server_admission_sink(conn, SL_LIMIT_CONTROL_PAYLOAD_BYTES);
    assert_non_null(sinks[3]);
    sl_server_buffers_put(&server->host->memory.buffers, sinks[3]);
    conn->kind = SL_SERVER_CONN_PRIMARY;
    assert_null(sl_server_admission_sink(conn, SL_LIMIT_FRAME_PAYLOAD_BYTES));
    sl_server_buffers_put(&server->host->memory.buffers, sinks[2]);
    assert_null(sl_server_admission_sink(client, SL_LIMIT_FRAME_PAYLOAD_BYTES));
    sinks[2] = sl_server_admission_sink(conn, SL_LIMIT_FRAME_PAYLOAD_BYTES);
    assert_non_null(sinks[2]);
    for (int i = 0; i < 3; i++) {
        sl_server_buffers_put(&server->host->memory.buffers, sinks[i]);
    }
    sinks[0] = sl_server_admission_sink(client, SL_LIMIT_FRAME_PAYLOAD_BYTES);
    assert_non_null(sinks[0]);
    sl_server_buffers_put(&server->host->memory.buffers, sinks[0]);
    conn->kind = SL_SERVER_CONN_DATA;
}

CASE(server_watch__clients_do_not_keep_members_waiting)
{
    struct peer *first = join(fixture);
    struct peer *second = join(fixture);
    server_fixture_run_on(fixture, 0, overtake);
    peer_close(&first);
    peer_close(&second);
}

/* While long requests wait for each other, readers of replies have all their time; not while
 * replies hold the memory. */
static void hurry(struct server_fixture *fixture, uint32_t index)
{
    struct sl_server *server = fixture->servers[index];
    struct sl_server_conn *conn = sl_server_conn_of(server->host->conns.head.next);
    const size_t reply_bytes = server->host->admission.reply_bytes;
    uint8_t *sinks[3];
    for (int i = 0; i < 3; i++) {
        sinks[i] = sl_server_admission_sink(conn, SL_LIMIT_FRAME_PAYLOAD_BYTES);
        assert_non_null(sinks[i]);
    }
    server->host->admission.is_short = false;
    assert_null(sl_server_admission_sink(conn, SL_LIMIT_FRAME_PAYLOAD_BYTES));
    assert_false(server->host->admission.is_short);
    server->host->admission.reply_bytes = server->host->memory.buffers.bytes / 4;
    assert_null(sl_server_admission_sink(conn, SL_LIMIT_FRAME_PAYLOAD_BYTES));
    assert_true(server->host->admission.is_short);
    server->host->admission.reply_bytes = reply_bytes;
    for (int i = 0; i < 3; i++) {
        sl_server_buffers_put(&server->host->memory.buffers, sinks[i]);
    }
}

CASE(server_watch__long_requests_that_wait_hurry_no_reader)
{
    struct peer *peer = join(fixture);
    server_fixture_run_on(fixture, 0, hurry);
    peer_close(&peer);
}

/* The first who waits for room is closed, but has not ended yet. */
static void close_the_first(struct server_fixture *fixture, uint32_t index)
{
    struct sl_server *server = fixture->servers[index];
    struct sl_server_conn *other = sl_server_conn_of(server->host->conns.head.next);
    struct sl_server_conn *first = sl_server_conn_of(other->link.next);
    uint8_t *sinks[3];
    for (int i = 0; i < 3; i++) {
        sinks[i] = sl_server_admission_sink(other, SL_LIMIT_FRAME_PAYLOAD_BYTES);
        assert_non_null(sinks[i]);
    }
    assert_null(sl_server_admission_sink(first, SL_LIMIT_FRAME_PAYLOAD_BYTES));
    for (int i = 0; i < 3; i++) {
        sl_server_buffers_put(&server->host->memory.buffers, sinks[i]);
    }
    assert_null(sl_server_admission_sink(other, 20000));
    sl_transport_disconnect(first->conn);
    sinks[0] = sl_server_admission_sink(other, 20000);
    assert_non_null(sinks[0]);
    assert_false(sl_list_linked(&first->sink.link));
    sl_server_buffers_put(&server->host->memory.buffers, sinks[0]);
}

CASE(server_watch__who_is_being_closed_keeps_nobody_waiting)
{
    struct peer *first = join(fixture);
    struct peer *second = join(fixture);
    server_fixture_run_on(fixture, 0, close_the_first);
    peer_close(&first);
    peer_close(&second);
}
