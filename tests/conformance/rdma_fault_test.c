/* Verbs that fail: what they were for ends with an error that says so, everything else goes on, and
 * so does the transport once they work again. */
#include "rdma_table.h"

#include <linux/capability.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/hash.h"
#include "core/log.h"

#define ROUNDS          8
#define LOCKED          "--locked" /* a process that may lock little memory */
#define LOW_LIMIT_BYTES 65536

static struct world *world;
static struct peer *bystander;
static struct sl_transport_options options;

static void open_with(uint32_t peer_timeout_ms)
{
    options = (struct sl_transport_options){.medium = rdma_table_get(),
                                            .peer_timeout_ms = peer_timeout_ms};
    world = world_open(3, &options);
    node_set_policy(&world->nodes[0], (struct policy){.echo = true});
    bystander = peer_connect(&world->nodes[2], &world->nodes[0].bound);
    WAIT_UNTIL(bystander->open);
    (void)node_peer(&world->nodes[0], 0);
}

static int open_world(void **state)
{
    open_with(0);
    return 0;
}

static int open_impatient_world(void **state)
{
    open_with(2000);
    return 0;
}

static void is_served(struct peer *peer, const uint32_t *sizes, uint32_t count)
{
    uint32_t before = peer->received;
    peer_send_from_test(peer, sizes, count);
    WAIT_UNTIL(peer->received == before + count || peer->closed != 0);
    assert_int_equal(peer->closed, 0);
}

static int close_world(void **state)
{
    static const uint32_t sizes[] = {10, 3000, 7};
    (void)rdma_table_get(); /* no faults any more */
    is_served(bystander, sizes, 3);
    world_close(world);
    return 0;
}

struct pair {
    struct peer *client, *server;
    uint32_t queue_pairs[2]; /* the server's, the client's */
};

static struct pair connect_pair(void)
{
    struct pair pair;
    uint32_t before = world->nodes[0].peer_count;
    pair.client = peer_connect(&world->nodes[1], &world->nodes[0].bound);
    pair.server = node_peer(&world->nodes[0], before);
    WAIT_UNTIL(pair.client->open);
    for (uint32_t i = 0; i < 2; i++) {
        pair.queue_pairs[i] = rdma_table_queue_pair_of(&world->nodes[i]);
        assert_int_not_equal(pair.queue_pairs[i], 0);
    }
    return pair;
}

static void expect_both_lost(const struct pair *pair)
{
    WAIT_UNTIL(pair->client->closed == 1 && pair->server->closed == 1);
    assert_int_not_equal(pair->client->close_err, SL_OK);
    assert_int_not_equal(pair->server->close_err, SL_OK);
}

static void expect_all_is_well(void)
{
    static const uint32_t sizes[] = {10, 40000, 7, 300000, SL_LIMIT_FRAME_PAYLOAD_BYTES};
    is_served(bystander, sizes, 5);
    struct pair pair = connect_pair();
    is_served(pair.client, sizes, 5);
    peer_disconnect_from_test(pair.client);
    WAIT_UNTIL(pair.client->closed == 1 && pair.server->closed == 1);
}

SL_CASE_WITH(queue_pair__breaks_under_traffic, open_world, close_world)
{
    uint64_t seed = 11;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        struct pair pair = connect_pair();
        uint32_t sizes[60];
        for (uint32_t i = 0; i < 60; i++) {
            uint64_t random = sl_hash_random(&seed);
            sizes[i] = (uint32_t)(random >> 8) % (random % 8 == 0 ? 2000000 : 3000);
        }
        peer_send_from_test(pair.client, sizes, 60);
        usleep((useconds_t)(sl_hash_random(&seed) % 30000));
        rdma_table_break(&world->nodes[round % 2], pair.queue_pairs[round % 2]);
        peer_send_from_test(pair.client, sizes, 60); /* if it had been through with those */
        expect_both_lost(&pair);
    }
    expect_all_is_well();
}

/* Nothing is posted, so that nothing fails: whoever looks after silent peers finds it. */
SL_CASE_WITH(queue_pair__breaks_while_idle, open_impatient_world, close_world)
{
    for (uint32_t round = 0; round < 2; round++) {
        struct pair pair = connect_pair();
        rdma_table_break(&world->nodes[round], pair.queue_pairs[round]);
        expect_both_lost(&pair);
    }
    expect_all_is_well();
}

/* Who connects hears of it at once; who accepts turns away, and no one above hears of that. */
SL_CASE_WITH(queue_pair__cannot_be_made, open_world, close_world)
{
    uint32_t before = world->nodes[0].peer_count;
    rdma_table_faults.no_queue_pair = true;
    struct peer *client = peer_connect(&world->nodes[1], &world->nodes[0].bound);
    WAIT_UNTIL(client->closed == 1);
    assert_int_equal(client->close_err, SL_ERR_NO_MEMORY);
    rdma_table_faults.no_queue_pair = false;
    assert_int_equal(world->nodes[0].peer_count, before);
    expect_all_is_well();
}

SL_CASE_WITH(post__fails, open_world, close_world)
{
    uint32_t sizes[] = {100, 20000, 8};
    for (uint32_t i = 0; i < 2; i++) {
        struct pair pair = connect_pair();
        is_served(pair.client, sizes, 3);
        rdma_table_faults.failing_queue_pair = pair.queue_pairs[i];
        peer_send_from_test(pair.client, sizes, 3);
        expect_both_lost(&pair);
        struct peer *failed = i == 0 ? pair.server : pair.client;
        assert_int_equal(failed->close_err, SL_ERR_IO);
        rdma_table_faults.failing_queue_pair = 0;
    }
    expect_all_is_well();
}

/* Fewer buffers for a while: slower, or the end of a connection; but no standstill. */
SL_CASE_WITH(post__of_receives_fails, open_world, close_world)
{
    struct pair pair = connect_pair();
    uint32_t sizes[200];
    for (uint32_t i = 0; i < 200; i++) {
        sizes[i] = i * 20;
    }
    rdma_table_faults.failing_receives = 20;
    peer_send_from_test(pair.client, sizes, 200);
    WAIT_UNTIL(pair.client->closed == 1 || pair.client->received == 200);
    rdma_table_faults.failing_receives = 0;
    (void)connect_pair(); /* posts what is free */
    expect_all_is_well();
}

static const uint32_t shorts[] = {10, 3000, 0}, longs[] = {300000, 20000, 5, 4000000};

static struct pair serve_shorts_and_send_longs(void)
{
    struct pair pair = connect_pair(), other = connect_pair();
    is_served(pair.client, shorts, 3);
    is_served(other.client, shorts, 3);
    is_served(bystander, shorts, 3);
    rdma_table_faults.no_memory = true;
    peer_send_from_test(pair.client, longs, 4);
    is_served(other.client, shorts, 3);
    is_served(bystander, shorts, 3);
    return pair;
}

/* What is not registered yet cannot be for a while. Short frames go all the same, long ones when
 * there is memory again. */
SL_CASE_WITH(memory__cannot_be_registered, open_world, close_world)
{
    struct pair pair = serve_shorts_and_send_longs();
    sleep(1);
    rdma_table_faults.no_memory = false;
    WAIT_UNTIL(pair.client->received == 7 || pair.client->closed != 0);
    assert_int_equal(pair.client->closed, 0);
    expect_all_is_well();
}

/* If that takes too long, their connection ends and says why; no other does. */
SL_CASE_WITH(memory__cannot_be_registered_for_long, open_impatient_world, close_world)
{
    struct pair pair = serve_shorts_and_send_longs();
    WAIT_UNTIL(pair.client->closed == 1 && pair.server->closed == 1);
    assert_true(pair.client->close_err == SL_ERR_NO_MEMORY ||
                pair.server->close_err == SL_ERR_NO_MEMORY);
    is_served(bystander, shorts, 3);
    rdma_table_faults.no_memory = false;
    expect_all_is_well();
}

static void no_sent(void *ctx, struct sl_conn *conn, void *cookie)
{
}

static void *no_sink(void *ctx, struct sl_conn *conn, const struct sl_frame *header)
{
    return NULL;
}

static void no_message(void *ctx, struct sl_conn *conn, const struct sl_transport_message *message)
{
    sl_transport_release(conn, message);
}

static void nothing(void *ctx, struct sl_conn *conn)
{
}

static void no_close(void *ctx, struct sl_conn *conn, int err)
{
}

static const struct sl_transport_events silent = {.accepted = nothing,
                                                  .connected = nothing,
                                                  .sink = no_sink,
                                                  .received = no_message,
                                                  .sent = no_sent,
                                                  .writable = nothing,
                                                  .closed = no_close};

/* Another transport on the reactor: opens, listens, and closes; the first error. */
static int open_and_listen_on(struct sl_reactor *reactor)
{
    struct sl_transport *transport = NULL;
    struct sl_endpoint endpoint, bound;
    char reason[256];
    sl_assert(sl_endpoint_parse(conformance_target->endpoint, &endpoint, reason, sizeof reason) ==
              0);
    int err = sl_transport_open(conformance_target->ops, reactor, &options, &transport);
    if (err == 0) {
        err = sl_transport_listen(transport, &endpoint, &silent, NULL, &bound);
        sl_transport_close(&transport);
    }
    return err;
}

static void run_open_and_listen(struct node *node, void *ctx)
{
    *(int *)ctx = open_and_listen_on(node->reactor);
}

static int open_and_listen(void)
{
    int err = 1;
    node_run(&world->nodes[2], run_open_and_listen, &err);
    return err;
}

SL_CASE_WITH(listen__without_memory_or_queues, open_world, close_world)
{
    rdma_table_faults.no_memory = true;
    assert_int_equal(open_and_listen(), SL_ERR_NO_MEMORY);
    rdma_table_faults.no_memory = false;
    rdma_table_faults.no_completions = true;
    assert_int_equal(open_and_listen(), SL_ERR_NO_MEMORY);
    rdma_table_faults.no_completions = false;
    rdma_table_faults.no_shared_queue = true;
    assert_int_equal(open_and_listen(), SL_ERR_UNSUPPORTED);
    rdma_table_faults.no_shared_queue = false;
    assert_int_equal(open_and_listen(), 0);
    expect_all_is_well();
}

/* Root's processes know no limit while they have the capability for it. */
static int lower_the_limit(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];
    const struct rlimit low = {.rlim_cur = LOW_LIMIT_BYTES, .rlim_max = LOW_LIMIT_BYTES};
    if (setrlimit(RLIMIT_MEMLOCK, &low) != 0 || syscall(SYS_capget, &header, data) != 0) {
        return -1;
    }
    data[0].effective &= ~(1U << CAP_IPC_LOCK);
    return (int)syscall(SYS_capset, &header, data);
}

static int start_listening(void *ctx)
{
    return open_and_listen_on(ctx);
}

/* A process of its own, since what was opened with other rights does not work any more. Its status
 * is the error. */
static int play_locked(void)
{
    const struct sl_reactor_options reactor_options = {.core = -1, .name = "locked"};
    struct sl_reactor *reactor;
    if (lower_the_limit() != 0 || sl_reactor_create(&reactor_options, &reactor) != 0) {
        return 1;
    }
    int err = sl_reactor_start(reactor, start_listening, reactor);
    if (err == 0) {
        sl_reactor_stop(reactor);
    }
    sl_reactor_join(reactor);
    sl_reactor_destroy(&reactor);
    return -err;
}

/* The system's own refusal: no more memory may be locked (ulimit -l). */
SL_CASE_WITH(listen__with_a_low_limit_of_locked_memory, open_world, close_world)
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        execl("/proc/self/exe", "locked", LOCKED, NULL);
        _exit(1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), -SL_ERR_NO_MEMORY);
    expect_all_is_well();
}

#define ROOM  2047U /* completions, some 140 for each connection */
#define ASKED 20U

/* Who does not fit is told, and does not disturb the others; when one leaves there is room again.
 */
SL_CASE(connections__more_than_there_is_room_for)
{
    static const uint32_t sizes[] = {10, 3000, 40000};
    options = (struct sl_transport_options){.medium = rdma_table_get()};
    rdma_table_faults.most_completions = ROOM;
    world = world_open(3, &options);
    node_set_policy(&world->nodes[0], (struct policy){.echo = true});
    struct peer *peers[ASKED], *last = NULL;
    uint32_t open = 0;
    for (uint32_t i = 0; i < ASKED; i++) {
        peers[i] = peer_connect(&world->nodes[1 + i % 2], &world->nodes[0].bound);
        WAIT_UNTIL(peers[i]->open || peers[i]->closed != 0);
        if (peers[i]->closed != 0) {
            assert_int_equal(peers[i]->close_err, SL_ERR_REFUSED);
            continue;
        }
        open++;
        last = peers[i];
    }
    assert_in_range(open, 8, 14);
    for (uint32_t i = 0; i < ASKED; i++) {
        if (peers[i]->closed == 0) {
            is_served(peers[i], sizes, 3);
        }
    }
    struct peer *served = node_peer(&world->nodes[0], open - 1);
    peer_disconnect_from_test(last);
    WAIT_UNTIL(last->closed == 1 && served->closed == 1);
    struct peer *late = peer_connect(last->node, &world->nodes[0].bound);
    WAIT_UNTIL(late->open || late->closed != 0);
    is_served(late, sizes, 3);
    world_close(world);
}

int main(int argc, char **argv)
{
    static struct conformance_target target;
    if (!rdma_target_init(&target, "rdma fault", "RDMA_IP")) {
        return SKIPPED;
    }
    if (getenv("STARLING_LOG") == NULL) {
        sl_log_setup(SL_LOG_OFF, target.name); /* all that it says is expected */
    }
    if (argc > 1 && strcmp(argv[1], LOCKED) == 0) {
        return play_locked();
    }
    return sl_unit_run("rdma fault", __FILE__);
}
