/* Processes are killed or stopped at random moments, with connections of theirs in any state: those
 * that were connected to them lose the connection in time, and nothing else. */
#include "rdma.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "core/hash.h"
#include "net/transport_rma.h"
#include "spawner.h"

#define DEATHS      48
#define AT_ONCE     4 /* processes that live at the same time */
#define LIFE_US_MAX 200000
#define FLOOD       3000
#define RMA_BYTES   (1U << 20)

static struct conformance_target target;

struct order {
    struct sl_endpoint endpoint;
    uint64_t seed;
    bool only_answers, only_writes;
    struct sl_transport_rma_token token; /* only_writes: of memory to write to */
};

/* One-sided operations: memory, and a WRITE that is posted again and again. */
static struct {
    _Alignas(4096) uint8_t memory[RMA_BYTES];
    struct sl_transport_rma_token ours, theirs;
    atomic_uint added, removed;
} rma;

static void on_added(void *ctx, uint64_t key, const struct sl_transport_rma_token *token, int err)
{
    sl_assert(err == 0);
    rma.ours = *token;
    rma.added++;
}

static void on_removed(void *ctx, uint64_t key, int err)
{
    sl_assert(err == 0);
    rma.removed++;
}

static void post_write(struct node *node, void *ctx)
{
    const struct sl_transport_rma_op op = {.kind = SL_TRANSPORT_RMA_WRITE,
                                           .local = rma.memory,
                                           .bytes = RMA_BYTES,
                                           .token = &rma.theirs};
    sl_assert(sl_transport_rma_post(ctx, &op, 1) == 1);
}

static void on_completed(void *ctx, struct sl_conn *conn, void *cookie, int err)
{
    sl_assert(err == 0);
    post_write(NULL, conn);
}

static const struct sl_transport_rma_events rma_events = {
    .region_added = on_added, .region_removed = on_removed, .completed = on_completed};

static void add_region(struct node *node, void *ctx)
{
    const unsigned access = *(const unsigned *)ctx;
    sl_assert(sl_transport_rma_open(node->transport, &rma_events, NULL) == 0);
    sl_assert(sl_transport_rma_region_add(node->transport, 1, rma.memory, RMA_BYTES, access) == 0);
}

static void remove_region(struct node *node, void *ctx)
{
    sl_transport_rma_region_remove(node->transport, 1);
}

static void admit(struct node *node, void *ctx)
{
    sl_assert(sl_transport_rma_admit(ctx) == 0);
}

static _Noreturn void write_for_ever(const struct order *order)
{
    unsigned access = SL_TRANSPORT_RMA_LOCAL;
    struct world *world = world_open(2, NULL);
    memset(rma.memory, 0x11, RMA_BYTES);
    rma.theirs = order->token;
    node_run(&world->nodes[1], add_region, &access);
    WAIT_UNTIL(rma.added == 1);
    struct peer *peer = spawner_connect(&world->nodes[1], &order->endpoint);
    WAIT_UNTIL(peer->received == 1); /* it is admitted */
    node_run(&world->nodes[1], post_write, peer->conn);
    for (;;) {
        pause();
    }
}

/* Sends, and checks what is echoed; or echoes. */
static void live(const void *given)
{
    const struct order *order = given;
    if (order->only_writes) {
        write_for_ever(order);
    }
    struct world *world = world_open(2, NULL);
    node_set_policy(&world->nodes[1], (struct policy){.echo = order->only_answers});
    struct peer *peer = spawner_connect(&world->nodes[1], &order->endpoint);
    while (order->only_answers) {
        pause();
    }
    spawner_send(peer, order->seed, 150000);
}

static const char *const kinds[] = {"pd", "cq", "qp", "cm_id", "mr", "srq"};
#define KINDS (sizeof kinds / sizeof kinds[0])

static void count_objects(uint32_t counts[KINDS])
{
    for (size_t i = 0; i < KINDS; i++) {
        counts[i] = rdma_count_objects(kinds[i]);
    }
}

/* As many as before; the device may take a moment. */
static void expect_objects(const uint32_t before[KINDS])
{
    uint64_t deadline_ns = 0;
    for (size_t i = 0; i < KINDS; i++) {
        while (rdma_count_objects(kinds[i]) != before[i]) {
            if (wait_expired(&deadline_ns)) {
                fail_msg("%u objects of kind %s, before %u", rdma_count_objects(kinds[i]), kinds[i],
                         before[i]);
            }
        }
    }
}

static void kill_some(struct world *world, struct peer *bystander, uint64_t *seed, bool die_young)
{
    static const uint32_t sizes[] = {20, 5000, 120000};
    struct node *server = &world->nodes[0];
    pid_t pids[AT_ONCE];
    uint32_t accepted = server->open_count;
    for (uint32_t k = 0; k < AT_ONCE; k++) {
        pids[k] =
            spawner_fork(&(struct order){.endpoint = server->bound, .seed = sl_hash_random(seed)});
    }
    WAIT_UNTIL(die_young || server->open_count >= accepted + AT_ONCE);
    for (uint32_t k = 0; k < AT_ONCE; k++) {
        usleep((useconds_t)(sl_hash_random(seed) % (LIFE_US_MAX / AT_ONCE)));
        assert_int_equal(kill(pids[k], SIGKILL), 0);
    }
    uint32_t before = bystander->received;
    peer_send_from_test(bystander, sizes, 3);
    WAIT_UNTIL(bystander->received == before + 3);
}

SL_CASE(survivor__keeps_everything)
{
    uint32_t before[KINDS];
    count_objects(before);
    struct world *world = world_open(2, NULL);
    struct node *server = &world->nodes[0];
    node_set_policy(server, (struct policy){.echo = true});
    struct peer *bystander = peer_connect(&world->nodes[1], &server->bound);
    WAIT_UNTIL(bystander->open);
    uint32_t fds = rdma_count_fds();
    uint32_t queue_pairs = rdma_count_objects("qp"), ids = rdma_count_objects("cm_id");
    uint64_t seed = 20260101;
    for (uint32_t i = 0; i < DEATHS; i += AT_ONCE) {
        kill_some(world, bystander, &seed, i % (4 * AT_ONCE) == 0);
    }
    WAIT_UNTIL(server->closed_count == server->open_count - 1);
    for (uint32_t i = 1; i < server->peer_count; i++) {
        int err = server->peers[i]->close_err;
        assert_true(err == SL_ERR_CLOSED || err == SL_ERR_DEADLINE || err == SL_ERR_IO);
    }
    assert_int_equal(bystander->closed, 0);
    uint64_t deadline_ns = 0; /* those that were killed in the handshake are nobody's news */
    while ((rdma_count_fds() != fds || rdma_count_objects("qp") != queue_pairs ||
            rdma_count_objects("cm_id") != ids) &&
           !wait_expired(&deadline_ns)) {
    }
    assert_int_equal(rdma_count_fds(), fds);
    assert_int_equal(rdma_count_objects("qp"), queue_pairs);
    assert_int_equal(rdma_count_objects("cm_id"), ids);
    world_close(world);
    expect_objects(before);
}

static pid_t fork_and_stop(struct world *world, bool only_answers, struct peer **accepted)
{
    struct node *server = &world->nodes[0];
    uint32_t before = server->peer_count;
    pid_t pid = spawner_fork(
        &(struct order){.endpoint = server->bound, .seed = 7, .only_answers = only_answers});
    *accepted = node_peer(server, before);
    WAIT_UNTIL((*accepted)->open);
    if (only_answers) {
        uint32_t size = 10;
        peer_send_from_test(*accepted, &size, 1);
    }
    WAIT_UNTIL((*accepted)->received > 0);
    assert_int_equal(kill(pid, SIGSTOP), 0);
    return pid;
}

/* One that is stopped while something is unsent is given up; the others are not. */
WORLD_CASE(stopped__is_given_up,
           world_open(2, &(struct sl_transport_options){.peer_timeout_ms = 3000}))
{
    struct node *server = &world->nodes[0];
    node_set_policy(server, (struct policy){.echo = true});
    struct peer *bystander = peer_connect(&world->nodes[1], &server->bound);
    WAIT_UNTIL(bystander->open);
    (void)node_peer(server, 0);
    struct peer *accepted;
    pid_t pid = fork_and_stop(world, false, &accepted);
    uint32_t size = 2000;
    peer_send_from_test(accepted, &size, 1); /* its number is not what the other one expects */
    WAIT_UNTIL(accepted->closed == 1);
    assert_int_equal(accepted->close_err, SL_ERR_DEADLINE);
    assert_int_equal(bystander->closed, 0);
    assert_int_equal(kill(pid, SIGKILL), 0);
}

/* Credits, not the device's retries, keep a sender from what its receiver has no buffers for. */
WORLD_CASE(stopped__is_not_flooded,
           world_open(2, &(struct sl_transport_options){.peer_timeout_ms = 4 * WAIT_S * 1000}))
{
    static uint32_t sizes[FLOOD];
    struct peer *accepted;
    pid_t pid = fork_and_stop(world, true, &accepted);
    uint64_t refused = rdma_read_counter("rcvd_rnr_err");
    for (uint32_t i = 0; i < FLOOD; i++) {
        sizes[i] = i % 8 == 0 ? 1500 + i : i % 100;
    }
    peer_send_from_test(accepted, sizes, FLOOD);
    WAIT_UNTIL(accepted->shorts > 0);
    usleep(500000);
    assert_true(accepted->sent < FLOOD);
    assert_int_equal(accepted->closed, 0);
    assert_in_range(rdma_read_counter("rcvd_rnr_err") - refused, 0, 3);
    assert_int_equal(kill(pid, SIGCONT), 0);
    WAIT_UNTIL(accepted->received == FLOOD + 1);
    assert_int_equal(accepted->sent, FLOOD + 1);
    assert_in_range(rdma_read_counter("rcvd_rnr_err") - refused, 0, 3);
    assert_int_equal(kill(pid, SIGKILL), 0);
    WAIT_UNTIL(accepted->closed == 1);
}

/* A process is killed in the middle of its one-sided WRITEs: they end with its connection. */
WORLD_CASE(writer__is_killed, world_open(1, NULL))
{
    unsigned access = SL_TRANSPORT_RMA_PEERS_READ | SL_TRANSPORT_RMA_PEERS_WRITE;
    const uint32_t size = 10;
    struct node *server = &world->nodes[0];
    node_run(server, add_region, &access);
    WAIT_UNTIL(rma.added == 1);
    for (uint32_t i = 0; i < 3; i++) {
        memset(rma.memory, 0x22, RMA_BYTES);
        pid_t pid = spawner_fork(
            &(struct order){.endpoint = server->bound, .only_writes = true, .token = rma.ours});
        struct peer *accepted = node_peer(server, i);
        WAIT_UNTIL(accepted->open);
        node_run(server, admit, accepted->conn);
        peer_send_from_test(accepted, &size, 1);
        WAIT_UNTIL(((const volatile uint8_t *)rma.memory)[RMA_BYTES - 1] == 0x11);
        assert_int_equal(kill(pid, SIGKILL), 0);
        WAIT_UNTIL(accepted->closed == 1);
    }
    memset(rma.memory, 0x22, RMA_BYTES);
    node_run(server, remove_region, NULL);
    WAIT_UNTIL(rma.removed == 1);
    assert_int_equal(rma.memory[0], 0x22);
    assert_memory_equal(rma.memory, rma.memory + 1, RMA_BYTES - 1);
}

int main(void)
{
    if (!rdma_target_init(&target, "rdma death", "RDMA_IP")) {
        return SKIPPED;
    }
    if (!spawner_open(sizeof(struct order), live)) {
        return 1;
    }
    int failed = sl_unit_run("rdma death", __FILE__);
    spawner_close();
    return failed;
}
