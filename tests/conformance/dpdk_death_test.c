/* Processes are killed or stopped, and a cable is pulled: who was connected loses the connection in
 * time, and nothing else. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/hash.h"
#include "core/log.h"
#include "dpdk_real.h"
#include "spawner.h"
#include "tests/support/veth.h"

#define DEATHS      4
#define AT_ONCE     2 /* processes that live at the same time */
#define LIFE_US_MAX 100000
#define TIMEOUT_MS  3000 /* a thread that waits for a processor is not given up */
#define AWAY_US     300000

static struct conformance_target target;

struct order {
    struct sl_endpoint endpoint;
    uint64_t seed;
    uint32_t place; /* the address that it has */
};

/* Sends, and checks what is echoed, until it is killed. */
static void live(const void *given)
{
    const struct order *order = given;
    static char address[32];
    (void)snprintf(address, sizeof address, "10.0.0.%u", 10 + order->place);
    const struct dpdk_real_target real = {
        .name = "dpdk mortal",
        .devices = {{.name = "net_af_packet0", .arguments = "iface=cableb", .address = address}}};
    if (!dpdk_real_open(&real, &target)) {
        _exit(1);
    }
    conformance_target = &target;
    struct world *world = world_open(1, NULL);
    struct peer *peer = spawner_connect(&world->nodes[0], &order->endpoint);
    spawner_send(peer, order->seed, 50000);
}

static const struct sl_transport_options impatient = {.peer_timeout_ms = TIMEOUT_MS};

/* A server, and a peer of it that nothing befalls. */
static struct world *open_with_bystander(const struct sl_transport_options *options,
                                         struct peer **bystander)
{
    struct world *world = world_open(2, options);
    node_set_policy(&world->nodes[0], (struct policy){.echo = true});
    *bystander = peer_connect(&world->nodes[1], &world->nodes[0].bound);
    WAIT_UNTIL((*bystander)->open);
    (void)node_peer(&world->nodes[0], 0);
    return world;
}

static void serve(struct peer *bystander)
{
    static const uint32_t sizes[] = {20, 5000, 120000};
    const uint32_t before = bystander->received;
    peer_send_from_test(bystander, sizes, 3);
    WAIT_UNTIL(bystander->received == before + 3);
}

/* Those that come later have the addresses of those that died, which may be missed or not yet. */
SL_CASE(survivor__keeps_everything)
{
    struct peer *bystander;
    struct world *world = open_with_bystander(&impatient, &bystander);
    struct node *server = &world->nodes[0];
    uint64_t seed = 20260101;
    for (uint32_t i = 0; i < DEATHS; i += AT_ONCE) {
        pid_t pids[AT_ONCE];
        const uint32_t accepted = server->open_count;
        for (uint32_t k = 0; k < AT_ONCE; k++) {
            pids[k] = spawner_fork(&(struct order){
                .endpoint = server->bound, .seed = sl_hash_random(&seed), .place = k});
        }
        WAIT_UNTIL(server->open_count >= accepted + AT_ONCE);
        for (uint32_t k = 0; k < AT_ONCE; k++) {
            usleep((useconds_t)(sl_hash_random(&seed) % LIFE_US_MAX));
            assert_int_equal(kill(pids[k], SIGKILL), 0);
        }
        serve(bystander);
    }
    WAIT_UNTIL(server->closed_count == server->open_count - 1);
    for (uint32_t i = 1; i < server->peer_count; i++) {
        const int err = server->peers[i]->close_err;
        assert_true(err == SL_ERR_CLOSED || err == SL_ERR_DEADLINE);
    }
    serve(bystander);
    assert_int_equal(bystander->closed, 0);
    world_close(world);
}

SL_CASE(stopped__is_given_up)
{
    struct peer *bystander;
    struct world *world = open_with_bystander(&impatient, &bystander);
    const pid_t pid = spawner_fork(&(struct order){.endpoint = world->nodes[0].bound, .seed = 7});
    struct peer *accepted = node_peer(&world->nodes[0], 1);
    WAIT_UNTIL(accepted->received > 0);
    assert_int_equal(kill(pid, SIGSTOP), 0);
    const uint32_t size = 2000;
    peer_send_from_test(accepted, &size, 1); /* its number is not what the other one expects */
    WAIT_UNTIL(accepted->closed == 1);
    assert_int_equal(accepted->close_err, SL_ERR_DEADLINE);
    assert_int_equal(bystander->closed, 0);
    assert_int_equal(kill(pid, SIGKILL), 0);
    serve(bystander);
    world_close(world);
}

/* In the transport's own time: the command that brings the link back may take seconds. */
SL_CASE(link__back_in_time)
{
    struct peer *peer;
    const uint32_t sizes[] = {100, 200000, 100};
    struct world *world = open_with_bystander(NULL, &peer);
    assert_true(veth_set_up("cable", 'a', false));
    peer_send_from_test(peer, sizes, 3);
    usleep(AWAY_US);
    assert_true(veth_set_up("cable", 'a', true));
    WAIT_UNTIL(peer->received == 3);
    assert_int_equal(peer->closed, 0);
    world_close(world);
}

/* What is written to stderr in between. */
static int log_begin(FILE **file)
{
    *file = tmpfile();
    assert_non_null(*file);
    const int kept = dup(STDERR_FILENO);
    assert_true(dup2(fileno(*file), STDERR_FILENO) >= 0);
    return kept;
}

static void log_end(FILE *file, int kept, const char *expected)
{
    char line[1024];
    bool found = false;
    assert_true(dup2(kept, STDERR_FILENO) >= 0);
    (void)close(kept);
    rewind(file);
    while (fgets(line, sizeof line, file) != NULL) {
        found = found || strstr(line, expected) != NULL;
    }
    (void)fclose(file);
    if (!found) {
        fail_msg("no line says \"%s\"", expected);
    }
}

SL_CASE(link__down_ends_by_the_timeout)
{
    FILE *lines;
    struct peer *peer;
    const uint32_t size = 1000;
    struct world *world = open_with_bystander(&impatient, &peer);
    sl_log_setup(SL_LOG_WARN, "dpdk death");
    int kept = log_begin(&lines);
    assert_true(veth_set_up("cable", 'a', false));
    peer_send_from_test(peer, &size, 1);
    WAIT_UNTIL(peer->closed == 1);
    log_end(lines, kept, "closed, since the link of net_af_packet1 is down");
    assert_int_equal(peer->close_err, SL_ERR_DEADLINE);
    kept = log_begin(&lines);
    struct peer *late = peer_connect(&world->nodes[1], &world->nodes[0].bound);
    WAIT_UNTIL(late->closed == 1);
    log_end(lines, kept, "no answer: the link of net_af_packet1 is down");
    sl_log_setup(SL_LOG_ERROR, "dpdk death");
    assert_int_equal(late->close_err, SL_ERR_DEADLINE);
    assert_false(late->open);
    assert_true(veth_set_up("cable", 'a', true));
    serve(spawner_connect(&world->nodes[1], &world->nodes[0].bound));
    world_close(world);
}

int main(void)
{
    static const struct dpdk_real_target real = {
        .name = "dpdk death",
        .devices = {
            {.name = "net_af_packet0", .arguments = "iface=cablea", .address = "10.0.0.1"},
            {.name = "net_af_packet1", .arguments = "iface=cableb", .address = "10.0.0.2"},
        }};
    const char *why = veth_enter();
    why = why != NULL ? why : veth_add("cable", 1, 1500);
    if (why != NULL) {
        fprintf(stderr, "skipped: %s\n", why);
        return SKIPPED;
    }
    if (!spawner_open(sizeof(struct order), live)) {
        return 1;
    }
    int failed = SKIPPED;
    if (dpdk_real_open(&real, &target)) {
        conformance_target = &target;
        failed = sl_unit_run("dpdk death", __FILE__);
    }
    spawner_close();
    return failed;
}
