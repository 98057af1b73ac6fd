/* Processes are killed at random moments, with connections of theirs in any state: those that were
 * connected to them lose the connection, and nothing else. */

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/hash.h"
#include "core/log.h"
#include "net/transport_rma.h"
#include "spawner.h"

#define DEATHS      200
#define AT_ONCE     4 /* processes that live at the same time */
#define LIFE_US_MAX 6000
#define TIMEOUT_MS  400 /* of who is stopped */
#define RMA_BYTES   (4U << 20)
#define RMA_KEY     42

static struct conformance_target target = {
    .name = "shm death", .endpoint = "shm://conformance-death:0", .shakes_hands = true};

struct order {
    struct sl_endpoint endpoint;
    uint64_t seed;
    enum { SENDS, WRITES, IS_WRITTEN } work;
};

/* One-sided operations: memory for those of the peer, and a WRITE that is posted again and again.
 */
static struct {
    struct sl_conn *conn;
    struct sl_shared memory;
    uint8_t local[RMA_BYTES];
    atomic_uint added, removed, written, failed;
    atomic_int removed_err;
} rma;

static void on_added(void *ctx, uint64_t key, const struct sl_transport_rma_token *token, int err)
{
    sl_assert(err == 0);
    rma.added++;
}

static void on_removed(void *ctx, uint64_t key, int err)
{
    rma.removed_err = err;
    rma.removed++;
}

static void post_write(struct node *node, void *ctx)
{
    static const struct sl_transport_rma_token token = {.name = RMA_KEY,
                                                        .bytes = RMA_BYTES,
                                                        .access = SL_TRANSPORT_RMA_PEERS_READ |
                                                                  SL_TRANSPORT_RMA_PEERS_WRITE};
    const struct sl_transport_rma_op op = {
        .kind = SL_TRANSPORT_RMA_WRITE, .local = rma.local, .bytes = RMA_BYTES, .token = &token};
    sl_assert(sl_transport_rma_post(rma.conn, &op, 1) == 1);
}

static void on_completed(void *ctx, struct sl_conn *conn, void *cookie, int err)
{
    rma.written += err == 0;
    rma.failed += err != 0; /* it is not admitted yet */
    post_write(ctx, NULL);
}

static const struct sl_transport_rma_events rma_events = {
    .region_added = on_added, .region_removed = on_removed, .completed = on_completed};

static void open_rma(struct node *node, void *ctx)
{
    const struct peer *peer = ctx;
    memset(rma.local, 0x11, RMA_BYTES);
    rma.conn = peer->conn;
    sl_assert(sl_transport_rma_open(node->transport, &rma_events, node) == 0);
}

static void add_region(struct node *node, void *ctx)
{
    open_rma(node, ctx);
    rma.added = rma.removed = 0;
    sl_assert(sl_shared_create("rma", RMA_BYTES, SL_SHARED_WRITE, &rma.memory) == 0);
    sl_assert(sl_transport_rma_region_add(node->transport, RMA_KEY, rma.memory.base, RMA_BYTES,
                                          SL_TRANSPORT_RMA_PEERS_READ |
                                              SL_TRANSPORT_RMA_PEERS_WRITE) == 0);
    sl_assert(sl_transport_rma_admit(rma.conn) == 0);
}

static void remove_region(struct node *node, void *ctx)
{
    sl_transport_rma_region_remove(node->transport, RMA_KEY);
}

/* Works by its order until it is killed. */
static void live(const void *given)
{
    const struct order *order = given;
    struct world *world = world_open(2, NULL);
    struct peer *peer = peer_connect(&world->nodes[1], &order->endpoint);
    if (order->work == SENDS) {
        spawner_send(peer, order->seed, 150000);
    }
    WAIT_UNTIL(peer->open);
    if (order->work == WRITES) {
        node_run(peer->node, open_rma, peer);
        node_run(peer->node, post_write, NULL);
    } else {
        node_run(peer->node, add_region, peer);
    }
    for (;;) {
        pause();
    }
}

static uint32_t count_fds(void)
{
    uint32_t count = 0;
    for (int fd = 0; fd < 1024; fd++) {
        count += fcntl(fd, F_GETFD) >= 0;
    }
    return count;
}

static uint32_t count_shared_mappings(void)
{
    uint32_t count = 0;
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "re");
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps) != NULL) {
        count += strstr(line, "/memfd:") != NULL;
    }
    fclose(maps);
    return count;
}

WORLD_CASE(survivor__keeps_everything, world_open(2, NULL))
{
    struct node *server = &world->nodes[0];
    node_set_policy(server, (struct policy){.echo = true});
    struct peer *bystander = peer_connect(&world->nodes[1], &server->bound);
    uint32_t sizes[] = {20, 5000, 120000};
    uint64_t seed = 20260101;
    for (uint32_t i = 1; i <= 5; i++) { /* by then both have lent what they ever will */
        peer_send_from_test(bystander, sizes, 3);
        WAIT_UNTIL(bystander->received == 3 * i);
    }
    uint32_t fds = count_fds(), mappings = count_shared_mappings();
    for (uint32_t i = 0; i < DEATHS; i += AT_ONCE) {
        pid_t pids[AT_ONCE];
        uint32_t accepted = server->open_count;
        for (uint32_t k = 0; k < AT_ONCE; k++) {
            pids[k] = spawner_fork(
                &(struct order){.endpoint = server->bound, .seed = sl_hash_random(&seed)});
        }
        bool may_die_young = i % (4 * AT_ONCE) == 0;
        WAIT_UNTIL(may_die_young || server->open_count >= accepted + AT_ONCE);
        for (uint32_t k = 0; k < AT_ONCE; k++) {
            usleep((useconds_t)(sl_hash_random(&seed) % (LIFE_US_MAX / AT_ONCE)));
            assert_int_equal(kill(pids[k], SIGKILL), 0);
        }
        uint32_t before = bystander->received;
        peer_send_from_test(bystander, sizes, 3);
        WAIT_UNTIL(bystander->received == before + 3);
    }
    WAIT_UNTIL(server->closed_count == server->open_count - 1);
    assert_int_equal(bystander->closed, 0);
    uint64_t deadline_ns = 0; /* those that were killed in the handshake are nobody's news */
    while ((count_fds() != fds || count_shared_mappings() != mappings) &&
           !wait_expired(&deadline_ns)) {
    }
    assert_int_equal(count_fds(), fds);
    assert_int_equal(count_shared_mappings(), mappings);
}

static bool thread_is_stopped(pid_t pid, const char *task)
{
    char path[64];
    char line[512] = "";
    (void)snprintf(path, sizeof path, "/proc/%d/task/%.16s/stat", (int)pid, task);
    FILE *file = fopen(path, "re");
    const bool is_read = file != NULL && fgets(line, sizeof line, file) != NULL;
    if (file != NULL) {
        fclose(file);
    }
    const char *state = strrchr(line, ')'); /* "pid (name) T ..." */
    return is_read && state != NULL && state[1] == ' ' && state[2] == 'T';
}

/* All of its threads: the one that a signal is sent to may wait for a processor, and the others go
 * on until it has had one. */
static bool is_stopped(pid_t pid)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *tasks = opendir(path);
    bool stopped = tasks != NULL;
    struct dirent *task;
    while (stopped && (task = readdir(tasks)) != NULL) {
        stopped = task->d_name[0] == '.' || thread_is_stopped(pid, task->d_name);
    }
    if (tasks != NULL) {
        closedir(tasks);
    }
    return stopped;
}

/* One that is stopped while something is unsent is given up; the others are not. Time passes only
 * from then on, so that nobody is given up who merely waits for a processor. */
WORLD_CASE(stopped__is_given_up,
           world_open_with_frozen_clock(2, &(struct sl_transport_options){
                                               .peer_timeout_ms = TIMEOUT_MS}))
{
    struct node *server = &world->nodes[0];
    node_set_policy(server, (struct policy){.echo = true});
    struct peer *bystander = peer_connect(&world->nodes[1], &server->bound);
    WAIT_UNTIL(bystander->open);
    pid_t pid = spawner_fork(&(struct order){.endpoint = server->bound, .seed = 7});
    struct peer *accepted = node_peer(server, 1);
    WAIT_UNTIL(accepted->received > 10);
    assert_int_equal(kill(pid, SIGSTOP), 0);
    WAIT_UNTIL(is_stopped(pid)); /* else it may take what is sent now, and all before it */
    uint32_t size = 2000;
    peer_send_from_test(accepted, &size, 1);
    uint64_t deadline_ns = 0;
    while (accepted->closed == 0 && !wait_expired(&deadline_ns)) {
        world_pass(world, TIMEOUT_MS / 4);
    }
    assert_int_equal(accepted->closed, 1);
    assert_int_equal(accepted->close_err, SL_ERR_DEADLINE);
    assert_int_equal(bystander->closed, 0);
    assert_int_equal(kill(pid, SIGKILL), 0);
}

/* It is killed in the middle of its WRITEs: the memory can be taken back, and is written no more.
 */
WORLD_CASE(writer__is_killed, world_open(1, NULL))
{
    struct node *server = &world->nodes[0];
    for (uint32_t i = 0; i < 5; i++) {
        pid_t pid = spawner_fork(&(struct order){.endpoint = server->bound, .work = WRITES});
        struct peer *accepted = node_peer(server, i);
        node_run(server, add_region, accepted);
        WAIT_UNTIL(((const volatile uint8_t *)rma.memory.base)[RMA_BYTES - 1] == 0x11);
        assert_int_equal(kill(pid, SIGKILL), 0);
        WAIT_UNTIL(accepted->closed == 1);
        memset(rma.memory.base, 0x22, RMA_BYTES);
        node_run(server, remove_region, NULL);
        WAIT_UNTIL(rma.removed == 1);
        assert_int_equal(rma.removed_err, 0);
        assert_int_equal(rma.memory.base[0], 0x22);
        assert_memory_equal(rma.memory.base, rma.memory.base + 1, RMA_BYTES - 1);
        sl_shared_destroy(&rma.memory);
    }
}

/* One that is stopped keeps the memory: its owner hears of that, and unmaps it. */
WORLD_CASE(writer__is_stopped, world_open(1, NULL))
{
    struct node *server = &world->nodes[0];
    pid_t pid = spawner_fork(&(struct order){.endpoint = server->bound, .work = WRITES});
    struct peer *accepted = node_peer(server, 0);
    node_run(server, add_region, accepted);
    WAIT_UNTIL(((const volatile uint8_t *)rma.memory.base)[0] == 0x11);
    assert_int_equal(kill(pid, SIGSTOP), 0);
    WAIT_UNTIL(is_stopped(pid));
    node_run(server, remove_region, NULL);
    WAIT_UNTIL(rma.removed == 1);
    assert_int_equal(rma.removed_err, SL_ERR_DEADLINE);
    assert_int_equal(accepted->closed, 0);
    sl_shared_destroy(&rma.memory);
    assert_int_equal(kill(pid, SIGKILL), 0);
    WAIT_UNTIL(accepted->closed == 1);
}

/* Its memory goes in the middle of WRITEs: the connection ends, and nothing else. */
WORLD_CASE(written__is_killed, world_open(1, NULL))
{
    struct node *server = &world->nodes[0];
    for (uint32_t i = 0; i < 5; i++) {
        pid_t pid = spawner_fork(&(struct order){.endpoint = server->bound, .work = IS_WRITTEN});
        struct peer *accepted = node_peer(server, i);
        rma.written = 0;
        node_run(server, open_rma, accepted);
        node_run(server, post_write, NULL);
        WAIT_UNTIL(rma.written > 3);
        assert_int_equal(kill(pid, SIGKILL), 0);
        WAIT_UNTIL(accepted->closed == 1);
        assert_int_equal(accepted->close_err, SL_ERR_CLOSED);
    }
}

int main(void)
{
    target.ops = sl_builtin_find(SL_ENDPOINT_SHM);
    conformance_target = &target;
    sl_log_setup(SL_LOG_OFF, target.name);
    if (!spawner_open(sizeof(struct order), live)) {
        return 1;
    }
    int failed = sl_unit_run("shm death", __FILE__);
    spawner_close();
    return failed;
}
