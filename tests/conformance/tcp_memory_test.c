/* Memory that TCP keeps for closed connections and for received parts of frames. */
#include "tcp.h"

#include <unistd.h>

#include "core/log.h"
#include "net/tcp/state.h"

struct spares {
    uint32_t count;
};

static void count_spares(struct node *node, void *ctx)
{
    struct spares *spares = ctx;
    spares->count = 0;
    for (const struct sl_tcp_conn *conn = ((struct sl_tcp *)node->transport)->spare; conn != NULL;
         conn = conn->spare_next) {
        spares->count++;
    }
}

/* After many connections have closed, the transport keeps memory for at most SL_TCP_SPARES. */
WORLD_CASE(close__gives_memory_back, world_open(1, NULL))
{
    enum { CONNECTIONS = 400 };
    struct node *server = &world->nodes[0];
    static int fds[CONNECTIONS];
    for (uint32_t i = 0; i < CONNECTIONS; i++) {
        fds[i] = tcp_connect_raw(&server->bound);
    }
    WAIT_UNTIL(server->open_count == CONNECTIONS);
    for (uint32_t i = 0; i < CONNECTIONS; i++) {
        close(fds[i]);
    }
    WAIT_UNTIL(server->closed_count == CONNECTIONS);
    struct spares spares;
    node_run(server, count_spares, &spares); /* in a turn after the last `closed` */
    assert_in_range(spares.count, 1, SL_TCP_SPARES);
}

static void release_all(struct node *node, void *ctx)
{
    for (uint32_t i = 0; i < node->peer_count; i++) {
        peer_release_held(node->peers[i], 1);
    }
}

/* A message refers to its connection until it is released, so the connection outlives it. */
WORLD_CASE(close__keeps_connections_of_messages,
           world_open(2, &(struct sl_transport_options){.buffer_count = 1024}))
{
    enum { CONNECTIONS = 300 };
    struct node *server = &world->nodes[0];
    node_set_policy(server, (struct policy){.hold = true});
    static struct peer *clients[CONNECTIONS];
    const uint32_t size = 3000;
    for (uint32_t i = 0; i < CONNECTIONS; i++) {
        clients[i] = peer_connect(&world->nodes[1], &server->bound);
        peer_send_from_test(clients[i], &size, 1);
    }
    for (uint32_t i = 0; i < CONNECTIONS; i++) {
        struct peer *accepted = node_peer(server, i);
        WAIT_UNTIL(accepted->received == 1);
    }
    for (uint32_t i = 0; i < CONNECTIONS; i++) {
        peer_disconnect_from_test(clients[i]);
    }
    WAIT_UNTIL(server->closed_count == CONNECTIONS);
    node_run(server, release_all, NULL);
}

/* Sets the counter of used bytes so that *ctx bytes remain. */
static void leave_room(struct node *node, void *ctx)
{
    struct sl_tcp_buffers *buffers = &((struct sl_tcp *)node->transport)->buffers;
    buffers->unplaced_bytes = buffers->unplaced_bytes_max - *(const size_t *)ctx;
}

static void leave_all(struct node *node, void *ctx)
{
    ((struct sl_tcp *)node->transport)->buffers.unplaced_bytes = 0;
}

static void read_unplaced_bytes(struct node *node, void *ctx)
{
    *(size_t *)ctx = ((struct sl_tcp *)node->transport)->buffers.unplaced_bytes;
}

/* A connection is closed with NO_MEMORY when the received part of its frame exceeds the remaining
 * memory; other connections continue. */
WORLD_CASE(sink__refused_beyond_the_memory_for_parts, world_open(2, NULL))
{
    enum { LONG_BYTES = 100000, PART_BYTES = FRAME_BYTES(200) };
    static uint8_t frame[FRAME_BYTES(LONG_BYTES)], answer[FRAME_BYTES(LONG_BYTES)];
    struct node *server = &world->nodes[0];
    node_set_policy(server, (struct policy){.echo = true, .refuse_sink = true});
    size_t room_bytes = 100, unplaced_bytes;
    node_run(server, leave_room, &room_bytes);
    raw_make_frame(frame, 1, LONG_BYTES);
    int refused = tcp_connect_raw(&server->bound);
    raw_write(refused, frame, PART_BYTES);
    WAIT_UNTIL(node_peer(server, 0)->closed == 1);
    assert_int_equal(node_peer(server, 0)->close_err, SL_ERR_NO_MEMORY);
    node_run(server, leave_all, NULL);
    int waiting = tcp_connect_raw(&server->bound);
    raw_write(waiting, frame, PART_BYTES);
    WAIT_UNTIL(node_peer(server, 1)->sink_refused);
    struct peer *bystander = peer_connect(&world->nodes[1], &server->bound);
    uint32_t size = 100;
    peer_send_from_test(bystander, &size, 1);
    WAIT_UNTIL(bystander->received == 1);
    node_run(server, read_unplaced_bytes, &unplaced_bytes);
    assert_int_equal(unplaced_bytes, PART_BYTES - SL_FRAME_HEADER_BYTES);
    node_set_policy(server, (struct policy){.echo = true});
    raw_write(waiting, frame + PART_BYTES, sizeof frame - PART_BYTES);
    raw_read(waiting, answer, sizeof answer);
    assert_memory_equal(answer, frame, sizeof frame);
    node_run(server, read_unplaced_bytes, &unplaced_bytes);
    assert_int_equal(unplaced_bytes, 0);
    close(refused);
    close(waiting);
}

static void read_stats(struct node *node, void *ctx)
{
    sl_transport_get_stats(node->transport, ctx);
}

/* The header of the next long frame is received together with the end of one, so that nothing of
 * the next one has to be copied. */
WORLD_CASE(long_frames__are_received_in_place, world_open(1, NULL))
{
    enum { LONG_BYTES = 33000, FRAMES = 2, BEGUN_BYTES = SL_FRAME_HEADER_BYTES + 1 };
    static uint8_t frames[FRAMES * FRAME_BYTES(LONG_BYTES)], answers[sizeof frames];
    struct node *server = &world->nodes[0];
    node_set_policy(server, (struct policy){.echo = true});
    for (uint32_t i = 0; i < FRAMES; i++) {
        raw_make_frame(frames + i * FRAME_BYTES(LONG_BYTES), i + 1, LONG_BYTES);
    }
    const int fd = tcp_connect_raw(&server->bound);
    struct sl_transport_stats stats = {0};
    raw_write(fd, frames, BEGUN_BYTES);
    uint64_t deadline_ns = 0;
    while (stats.bytes_received < BEGUN_BYTES && !wait_expired(&deadline_ns)) {
        node_run(server, read_stats, &stats);
    }
    raw_write(fd, frames + BEGUN_BYTES, sizeof frames - BEGUN_BYTES);
    raw_read(fd, answers, sizeof answers);
    assert_memory_equal(answers, frames, sizeof frames);
    node_run(server, read_stats, &stats);
    assert_int_equal(stats.copied_bytes, 1);
    close(fd);
}

int main(void)
{
    sl_log_setup(SL_LOG_OFF, "tcp memory");
    struct conformance_target target = {
        .name = "tcp memory",
        .ops = sl_builtin_find(SL_ENDPOINT_TCP),
        .endpoint = "127.0.0.1:0",
    };
    conformance_target = &target;
    return sl_unit_run("tcp memory", __FILE__);
}
