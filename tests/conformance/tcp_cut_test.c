/* The cable is cut: packets are lost, and neither side gets an error. Two network namespaces, one a
 * reactor, with a pair of virtual interfaces between them; the cut gives each side a wrong address
 * of the other's interface, so that its packets are lost in silence. */
#include "conformance.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/log.h"

#define TIMEOUT_MS 3000 /* nobody is taken for gone because the machine is busy */
#define LONG_BYTES 3000000

static int namespaces[2] = {-1, -1}; /* of node 0, and of all others */

/* Runs a command; its words are not shown. */
__attribute__((format(printf, 1, 2))) static bool run(const char *format, ...)
{
    char command[256], quiet[300];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(command, sizeof command, format, arguments);
    va_end(arguments);
    snprintf(quiet, sizeof quiet, "%s >/dev/null 2>&1", command);
    return system(quiet) == 0;
}

static bool enter(int side)
{
    return setns(namespaces[side], CLONE_NEWNET) == 0;
}

static bool make_namespace(int side)
{
    namespaces[side] =
        unshare(CLONE_NEWNET) == 0 ? open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC) : -1;
    return namespaces[side] >= 0;
}

/* A process that stays in the other namespace, which was the last to be made and so is ours when it
 * is forked, for as long as ip needs to find it by. */
static bool connect_namespaces(void)
{
    pid_t child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    bool linked = enter(0) && run("ip link add cut0 type veth peer name cut1 netns %d", (int)child);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    return linked;
}

static bool configure(int side)
{
    return enter(side) && run("ip link set lo up") &&
           run("ip addr add 10.77.0.%d/24 dev cut%d", side + 1, side) &&
           run("ip link set cut%d up", side);
}

/* NULL, or why there can be no such network here. */
static const char *make_network(void)
{
    if (geteuid() != 0) {
        return "not root";
    }
    if (!run("ip -V")) {
        return "no ip command (iproute2)";
    }
    if (!make_namespace(0) || !make_namespace(1)) {
        return "no network namespaces";
    }
    if (!connect_namespaces() || !configure(0) || !configure(1)) {
        return "no virtual interfaces";
    }
    return NULL;
}

static void cut(void)
{
    for (int side = 0; side < 2; side++) {
        assert_true(enter(side));
        assert_true(run("ip neigh replace 10.77.0.%d lladdr 02:00:00:00:00:01 dev cut%d "
                        "nud permanent",
                        2 - side, side));
    }
}

/* On the reactor's thread: everything that it opens from now on is in its side's network. */
static void take_side(struct sl_reactor *reactor)
{
    sl_assert(enter(sl_reactor_index(reactor) == 0 ? 0 : 1));
}

static void expect_gone(struct peer *peer)
{
    WAIT_UNTIL(peer->closed == 1);
    assert_int_equal(peer->close_err, SL_ERR_DEADLINE);
}

/* An idle connection, one with data on its way, one in the middle of a frame that has no end, and
 * one that is only being made. */
WORLD_CASE(cut__is_noticed_by_everybody,
           world_open(2, &(struct sl_transport_options){.peer_timeout_ms = TIMEOUT_MS}))
{
    struct node *server = &world->nodes[0], *client = &world->nodes[1];
    node_set_policy(server, (struct policy){.echo = true});
    struct peer *idle = peer_connect(client, &server->bound);
    struct peer *busy = peer_connect(client, &server->bound);
    uint32_t sizes[] = {100, LONG_BYTES, LONG_BYTES, LONG_BYTES, LONG_BYTES, LONG_BYTES};
    peer_send_from_test(idle, sizes, 1);
    peer_send_from_test(busy, sizes, 2);
    WAIT_UNTIL(idle->received == 1 && busy->received == 2);
    cut();
    peer_send_from_test(busy, sizes, 6);
    struct peer *late = peer_connect(client, &server->bound);
    expect_gone(late);
    expect_gone(busy);
    expect_gone(idle);
    assert_true(busy->given_back > 0);
    expect_gone(node_peer(server, 0));
    expect_gone(node_peer(server, 1));
}

int main(void)
{
    const char *reason = make_network();
    if (reason != NULL) {
        fprintf(stderr, "skipped: a cable can only be cut in a network of our own: %s\n", reason);
        return SKIPPED;
    }
    sl_log_setup(SL_LOG_OFF, "tcp cut");
    struct conformance_target target = {
        .name = "tcp cut",
        .ops = sl_builtin_find(SL_ENDPOINT_TCP),
        .endpoint = "10.77.0.1:0",
        .cripple = take_side,
    };
    conformance_target = &target;
    return sl_unit_run("tcp cut", __FILE__);
}
