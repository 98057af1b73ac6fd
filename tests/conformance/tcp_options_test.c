/* What only TCP has: its options, and the system's limits. */
#include "conformance.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/log.h"
#include "net/tcp/state.h"
#include "peer.h"
#include "reactor/ring.h"

/* A label of more than 63 bytes: refused without asking anybody. */
#define TOO_LONG_FOR_DNS                                                                           \
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.invalid"

static int open_with(struct sl_transport_options options)
{
    struct world *world = world_open(1, NULL);
    int err = node_open(&world->nodes[0], &options);
    world_close(world);
    return err;
}

SL_CASE(open__unknown_congestion_control)
{
    struct sl_transport_options unknown = {.congestion_control = "no-such-thing"};
    assert_int_equal(open_with(unknown), SL_ERR_INVALID);
}

SL_CASE(open__odd_buffers)
{
    struct sl_transport_options three = {.buffer_count = 3};
    struct sl_transport_options unaligned = {.buffer_bytes = 100};
    struct sl_transport_options many = {.buffer_count = 1U << 16};
    assert_int_equal(open_with(three), SL_ERR_INVALID);
    assert_int_equal(open_with(unaligned), SL_ERR_INVALID);
    assert_int_equal(open_with(many), SL_ERR_INVALID);
}

SL_CASE(open__stepped_reactor)
{
    struct sl_reactor_options options = {.name = "stepped", .core = -1, .stepped = true};
    struct sl_reactor *reactor;
    struct sl_transport *transport = NULL;
    assert_int_equal(sl_reactor_create(&options, &reactor), 0);
    assert_int_equal(sl_transport_open(conformance_target->ops, reactor, NULL, &transport),
                     SL_ERR_UNSUPPORTED);
    sl_reactor_destroy(&reactor);
}

/* The one that new sockets have is known for sure. */
SL_CASE(open__known_congestion_control)
{
    char name[16] = "";
    socklen_t bytes = sizeof name;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &bytes), 0);
    close(fd);
    struct sl_transport_options options = {.congestion_control = name};
    struct world *world = world_open(2, &options);
    struct peer *client = peer_connect(&world->nodes[1], &world->nodes[0].bound);
    uint32_t size = 100;
    peer_send_from_test(client, &size, 1);
    WAIT_UNTIL(node_peer(&world->nodes[0], 0)->received == 1);
    world_close(world);
}

struct listen_call {
    struct sl_endpoint endpoint, bound;
    int err;
};

static void run_listen(struct node *node, void *ctx)
{
    struct listen_call *call = ctx;
    call->err =
        sl_transport_listen(node->transport, &call->endpoint, &peer_events, node, &call->bound);
}

static void *close_later(void *fd)
{
    (void)usleep(20000);
    (void)close(*(int *)fd);
    return NULL;
}

/* As after the end of a process whose sockets the kernel has not closed yet. */
SL_CASE(listen__waits_for_an_address_in_use)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    pthread_t thread;
    assert_int_equal(bind(fd, (struct sockaddr *)&address, bytes), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &bytes), 0);
    assert_int_equal(listen(fd, 1), 0);
    struct world *world = world_open(1, NULL);
    struct listen_call call = {.endpoint = {.scheme = SL_ENDPOINT_TCP,
                                            .host = "127.0.0.1",
                                            .port = ntohs(address.sin_port)}};
    assert_int_equal(pthread_create(&thread, NULL, close_later, &fd), 0);
    node_run(&world->nodes[0], run_listen, &call);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(call.err, 0);
    world_close(world);
}

struct connect_call {
    struct sl_endpoint endpoint;
    int err;
};

static void run_connect(struct node *node, void *ctx)
{
    struct connect_call *call = ctx;
    struct sl_conn *conn = NULL;
    call->err = sl_transport_connect(node->transport, &call->endpoint, 0,
                                     node->peers[0]->conn->events, node, NULL, &conn);
    assert_null(conn);
}

WORLD_CASE(connect__unknown_name, world_open(2, NULL))
{
    struct peer *client = peer_connect(&world->nodes[1], &world->nodes[0].bound);
    WAIT_UNTIL(client->open);
    struct connect_call call = {
        .endpoint = {.scheme = SL_ENDPOINT_TCP, .host = TOO_LONG_FOR_DNS, .port = 1}};
    node_run(&world->nodes[1], run_connect, &call);
    assert_int_equal(call.err, SL_ERR_NOT_FOUND);
}

WORLD_CASE(connect__comes_from_the_local_address, world_open(2, NULL))
{
    struct sl_endpoint endpoint = world->nodes[0].bound;
    (void)snprintf(endpoint.device, sizeof endpoint.device, "%s", "127.0.0.5");
    struct peer *client = peer_connect(&world->nodes[1], &endpoint);
    WAIT_UNTIL(client->open);
    const struct peer *server = node_peer(&world->nodes[0], 0);
    WAIT_UNTIL(server->open);
    assert_non_null(strstr(server->conn->peer, "127.0.0.5"));
}

WORLD_CASE(connect__refuses_an_address_that_is_not_local, world_open(2, NULL))
{
    struct peer *client = peer_connect(&world->nodes[1], &world->nodes[0].bound);
    WAIT_UNTIL(client->open);
    struct connect_call call = {.endpoint = world->nodes[0].bound};
    (void)snprintf(call.endpoint.device, sizeof call.endpoint.device, "%s", "203.0.113.1");
    node_run(&world->nodes[1], run_connect, &call);
    assert_int_equal(call.err, SL_ERR_NOT_FOUND);
    (void)snprintf(call.endpoint.device, sizeof call.endpoint.device, "%s", "::1");
    node_run(&world->nodes[1], run_connect, &call);
    assert_int_equal(call.err, SL_ERR_NOT_FOUND);
}

static void single_shot(struct sl_reactor *reactor)
{
    sl_reactor_ring(reactor)->multishot_recv = false;
}

static int connect_to(const struct node *server, int fd)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(server->bound.port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    return connect(fd, (struct sockaddr *)&address, sizeof address);
}

/* No descriptor is left for those whom the kernel has already let in: they are accepted when there
 * is one again, and the reactor does not go round in circles until then. The kernel reads the limit
 * when an accept is armed, so that one of them may still have come in under the old one. */
WORLD_CASE(accept__out_of_descriptors, world_open(1, NULL))
{
    enum { CONNECTIONS = 3 };
    struct node *server = &world->nodes[0];
    int fds[CONNECTIONS];
    for (uint32_t i = 0; i < CONNECTIONS; i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    }
    int lowest_free = fcntl(0, F_DUPFD_CLOEXEC, 0);
    close(lowest_free);
    struct rlimit before, none;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = (rlim_t)lowest_free;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    int connected = 0;
    for (uint32_t i = 0; i < CONNECTIONS; i++) {
        connected |= connect_to(server, fds[i]);
    }
    usleep(50000);
    uint32_t accepted_meanwhile = server->open_count;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(connected, 0);
    assert_true(accepted_meanwhile <= 1);
    WAIT_UNTIL(server->open_count == CONNECTIONS);
    struct sl_reactor_stats stats;
    sl_reactor_get_stats(server->reactor, &stats);
    assert_true(stats.turns < 5000);
    for (uint32_t i = 0; i < CONNECTIONS; i++) {
        close(fds[i]);
    }
    WAIT_UNTIL(server->closed_count == CONNECTIONS);
}

/* A program that was started without a standard input, say, must not have sockets in its place. */
WORLD_CASE(descriptors__none_of_the_standard_ones, world_open(2, NULL))
{
    int kept = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
    close(STDIN_FILENO);
    struct peer *client = peer_connect(&world->nodes[1], &world->nodes[0].bound);
    WAIT_UNTIL(client->open);
    (void)node_peer(&world->nodes[0], 0);
    int used = fcntl(STDIN_FILENO, F_GETFD);
    if (kept >= 0) {
        dup2(kept, STDIN_FILENO);
        close(kept);
    }
    assert_int_equal(used, -1);
}

/* Somebody listens, and lets nobody in: what is full of connections answers no more. */
static int listen_full(struct sl_endpoint *out, int *out_filler)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    *out_filler = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, bytes), 0);
    assert_int_equal(listen(listener, 0), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &bytes), 0);
    assert_int_equal(connect(*out_filler, (struct sockaddr *)&address, bytes), 0);
    *out = (struct sl_endpoint){
        .scheme = SL_ENDPOINT_TCP, .host = "127.0.0.1", .port = ntohs(address.sin_port)};
    return listener;
}

/* A client that gives up after 60 s, and a peer that never answers it. */
struct unanswered {
    struct world *world;
    struct peer *client;
    int listener, filler;
};

static struct unanswered unanswered_open(void)
{
    struct sl_transport_options options = {.peer_timeout_ms = 60000};
    struct unanswered it = {.world = world_open_with_frozen_clock(2, &options)};
    struct sl_endpoint full;
    it.listener = listen_full(&full, &it.filler);
    it.client = peer_connect(&it.world->nodes[1], &full);
    return it;
}

static void unanswered_close(struct unanswered *it)
{
    close(it->filler);
    close(it->listener);
    world_close(it->world);
}

SL_CASE(connect__unanswered)
{
    struct unanswered it = unanswered_open();
    for (uint32_t passed_ms = 0; passed_ms < 45000; passed_ms += 15000) {
        assert_int_equal(it.client->closed, 0);
        world_pass(it.world, 15000);
    }
    assert_int_equal(it.client->closed, 0);
    world_pass(it.world, 20000);
    WAIT_UNTIL(it.client->closed == 1);
    assert_int_equal(it.client->close_err, SL_ERR_DEADLINE);
    assert_false(it.client->open);
    unanswered_close(&it);
}

/* We were stopped in the meantime: what the peer answered has yet to be seen. */
SL_CASE(connect__stopped_is_not_the_peers_silence)
{
    struct unanswered it = unanswered_open();
    world_pass(it.world, 600000);
    assert_int_equal(it.client->closed, 0);
    for (uint32_t i = 0; i < 3; i++) {
        world_pass(it.world, 15000);
    }
    WAIT_UNTIL(it.client->closed == 1);
    assert_int_equal(it.client->close_err, SL_ERR_DEADLINE);
    unanswered_close(&it);
}

/* Sends to a server that has no memory for more, and says so for several times the timeout. Returns
 * whether the client went on waiting, and sent all afterwards. */
static bool waits_for_the_window(uint32_t timeout_ms)
{
    enum { FRAMES = 96, FRAME_PAYLOAD_BYTES = 256 << 10 };
    struct sl_transport_options options = {.peer_timeout_ms = timeout_ms};
    struct world *world = world_open(2, &options);
    struct node *server = &world->nodes[0];
    node_set_policy(server, (struct policy){.echo = true, .refuse_sink = true});
    struct peer *client = peer_connect(&world->nodes[1], &server->bound);
    uint32_t sizes[FRAMES];
    for (uint32_t i = 0; i < FRAMES; i++) {
        sizes[i] = FRAME_PAYLOAD_BYTES;
    }
    peer_send_from_test(client, sizes, FRAMES);
    WAIT_UNTIL(server->sink_asked >= 1 || client->closed != 0);
    usleep(timeout_ms * 2500);
    node_set_policy(server, (struct policy){.echo = true});
    WAIT_UNTIL(client->received == FRAMES || client->closed != 0 || server->closed_count != 0);
    const bool waits = client->received == FRAMES;
    world_close(world);
    return waits;
}

/* A closed window is no silence, by the kernel's own clock too. The frames are short enough that to
 * check one takes no time to speak of, else either side would be silent in the middle of one. A
 * process that stood still for about as long as the timeout may be closed: then a longer one
 * counts.
 */
SL_CASE(window__closed_for_long)
{
    assert_true(waits_for_the_window(4000) || waits_for_the_window(16000));
}

static void read_stats(struct node *node, void *ctx)
{
    sl_transport_get_stats(node->transport, ctx);
}

enum { LONG_FRAMES = 4 };

/* Sends frames as long as can be, after a short one of another connection's or without, while the
 * reactors' time stands still; returns how often the server asked for bytes. */
static uint64_t receive_calls_of_long_frames(bool short_one_before)
{
    struct world *world = world_open_with_frozen_clock(2, NULL);
    struct node *server = &world->nodes[0];
    node_set_policy(server, (struct policy){.echo = true});
    struct peer *other = peer_connect(&world->nodes[1], &server->bound);
    uint32_t size = short_one_before ? 64 : 0;
    peer_send_from_test(other, &size, 1);
    WAIT_UNTIL(other->received == 1);
    struct peer *client = peer_connect(&world->nodes[1], &server->bound);
    uint32_t sizes[LONG_FRAMES];
    for (uint32_t i = 0; i < LONG_FRAMES; i++) {
        sizes[i] = SL_LIMIT_FRAME_PAYLOAD_BYTES;
    }
    peer_send_from_test(client, sizes, LONG_FRAMES);
    WAIT_UNTIL(client->received == LONG_FRAMES);
    struct sl_transport_stats stats;
    node_run(server, read_stats, &stats);
    world_close(world);
    return stats.receive_calls;
}

/* A receive of megabytes would keep short frames of others waiting. */
SL_CASE(long_frames__in_slices_beside_short_ones)
{
    uint64_t slices = LONG_FRAMES * (SL_LIMIT_FRAME_PAYLOAD_BYTES / (64U << 10));
    assert_true(receive_calls_of_long_frames(false) < slices / 2);
    assert_true(receive_calls_of_long_frames(true) > slices / 2);
}

/* Looks at what its reactor is about to ask the kernel for. */
struct order {
    struct sl_reactor_source source;
    struct sl_ring *ring;
    uint32_t slices, sends_behind; /* receives of slices; and sends that come after one */
};

static bool receives_slice(const struct io_uring_sqe *sqe)
{
    return sqe->opcode == IORING_OP_RECV && (sqe->flags & IOSQE_BUFFER_SELECT) == 0 &&
           sqe->len == 64U << 10;
}

static void look_at_order(struct sl_reactor_source *source)
{
    struct order *order = (struct order *)source;
    struct io_uring *uring = &order->ring->uring;
    const uint32_t count = io_uring_sq_ready(uring);
    const uint32_t first = uring->sq.sqe_tail - count;
    bool behind = false;
    for (uint32_t i = 0; i < count; i++) {
        const struct io_uring_sqe *sqe = &uring->sq.sqes[(first + i) & uring->sq.ring_mask];
        const bool sends = sqe->opcode == IORING_OP_SEND || sqe->opcode == IORING_OP_SENDMSG;
        order->slices += receives_slice(sqe);
        order->sends_behind += behind && sends;
        behind = behind || receives_slice(sqe);
    }
}

static uint32_t poll_nothing(struct sl_reactor_source *source, uint32_t budget)
{
    return 0;
}

static void add_order(struct node *node, void *ctx)
{
    struct order *order = ctx;
    order->ring = sl_reactor_ring(node->reactor);
    sl_reactor_add_source(node->reactor, &order->source);
}

/* Or a short answer would leave only when the slice has been copied. */
SL_CASE(long_frames__slices_are_received_after_short_ones_are_sent)
{
    enum { ROUNDS = 20, SHORT_FRAMES = 50 };
    struct order order = {
        .source = {.name = "order", .poll = poll_nothing, .flush = look_at_order}};
    struct world *world = world_open_with_frozen_clock(2, NULL);
    struct node *server = &world->nodes[0];
    node_set_policy(server, (struct policy){.echo = true});
    struct peer *other = peer_connect(&world->nodes[1], &server->bound);
    struct peer *client = peer_connect(&world->nodes[1], &server->bound);
    uint32_t short_sizes[SHORT_FRAMES], long_sizes[LONG_FRAMES];
    for (uint32_t i = 0; i < SHORT_FRAMES; i++) {
        short_sizes[i] = 64;
    }
    for (uint32_t i = 0; i < LONG_FRAMES; i++) {
        long_sizes[i] = SL_LIMIT_FRAME_PAYLOAD_BYTES;
    }
    peer_send_from_test(other, short_sizes, SHORT_FRAMES);
    WAIT_UNTIL(other->received == SHORT_FRAMES);
    node_run(server, add_order, &order);
    peer_send_from_test(client, long_sizes, LONG_FRAMES);
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        peer_send_from_test(other, short_sizes, SHORT_FRAMES);
        WAIT_UNTIL(other->received == (round + 1) * SHORT_FRAMES);
    }
    WAIT_UNTIL(client->received == LONG_FRAMES);
    world_close(world);
    assert_true(order.slices > 0);
    assert_int_equal(order.sends_behind, 0);
}

static uint32_t count_descriptors(void)
{
    uint32_t count = 0;
    for (int fd = 0; fd < 1024; fd++) {
        count += fcntl(fd, F_GETFD) >= 0;
    }
    return count;
}

/* Holds its reactor up in a turn, after the mail was read. */
struct blocker {
    struct sl_reactor_source source;
    sem_t entered, leave;
    bool done;
};

static uint32_t block(struct sl_reactor_source *source, uint32_t budget)
{
    struct blocker *blocker = (struct blocker *)source;
    if (!blocker->done) {
        blocker->done = true;
        sem_post(&blocker->entered);
        while (sem_wait(&blocker->leave) != 0) {
        }
    }
    return 0;
}

static void add_blocker(struct node *node, void *ctx)
{
    sl_reactor_add_source(node->reactor, ctx);
}

SL_CASE(migrate__to_a_reactor_that_ends)
{
    uint32_t descriptors_before = count_descriptors();
    struct world *world = world_open(3, NULL);
    struct node *owner = &world->nodes[1];
    node_set_policy(&world->nodes[0], (struct policy){.owner = owner});
    struct blocker blocker = {.source = {.name = "blocker", .poll = block}};
    sem_init(&blocker.entered, 0, 0);
    sem_init(&blocker.leave, 0, 0);
    node_run(owner, add_blocker, &blocker);
    while (sem_wait(&blocker.entered) != 0) {
    }
    struct peer *client = peer_connect(&world->nodes[2], &world->nodes[0].bound);
    uint32_t sizes[] = {64, 64};
    peer_send_from_test(client, sizes, 2);
    WAIT_UNTIL(node_peer(&world->nodes[0], 0)->handed_over == 1);
    struct sl_transport_stats stats;
    do { /* its last receive has ended, and it is in the mail */
        usleep(1000);
        node_run(&world->nodes[0], read_stats, &stats);
    } while (stats.connections > 0);
    node_set_policy(&world->nodes[0], (struct policy){0}); /* and all that was in earlier turns */
    sl_reactor_stop(owner->reactor);
    sem_post(&blocker.leave);
    sl_reactor_join(owner->reactor);
    assert_int_equal(owner->peer_count, 0);
    world_close(world);
    sem_destroy(&blocker.entered);
    sem_destroy(&blocker.leave);
    assert_int_equal(count_descriptors(), descriptors_before);
}

int main(void)
{
    sl_log_setup(SL_LOG_OFF, "tcp options");
    struct conformance_target target = {
        .name = "tcp options",
        .ops = sl_builtin_find(SL_ENDPOINT_TCP),
        .endpoint = "127.0.0.1:0",
        .cripple = single_shot,
    };
    conformance_target = &target;
    return sl_unit_run("tcp options", __FILE__);
}
