/* memif's life as its users meet it: who is there first, who is killed and comes back, who is set
 * up otherwise. This process has three devices, and listens: two servers with one socket, and a
 * client of a socket that is another process's. Its peers are processes that are killed with -9. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conformance.h"
#include "core/hash.h"
#include "core/log.h"
#include "net/dpdk/dpdk.h"
#include "net/dpdk/module.h"
#include "nursery.h"

#define SKIPPED     77
#define DEATHS      4
#define LIFE_US_MAX 20000
#define KNOCKS      300

static char folder[] = "/tmp/starling-memif-XXXXXX";
static char path_of_ours[64], path_of_theirs[64], path_of_log[64];

static void *medium_open(uint32_t node_count);

static void medium_close(void *medium)
{
    (void)medium;
}

static struct conformance_target target = {.name = "dpdk memif death",
                                           .ops = &sl_dpdk_ops,
                                           .endpoint = "dpdk://0.0.0.0:0",
                                           .shakes_hands = true,
                                           .is_slow = true,
                                           .is_lossy = true,
                                           .medium_open = medium_open,
                                           .medium_close = medium_close};

/* ---- Devices ----------------------------------------------------------------------------------
 */

static char texts[3][160];
static struct sl_dpdk_device devices[3];
static struct sl_dpdk_options options = {.devices = devices};
static struct sl_dpdk_medium medium = {.ctx = &options};

static void *medium_open(uint32_t node_count)
{
    (void)node_count;
    return &medium;
}

static void add_device(const char *role, uint32_t id, const char *path, const char *address,
                       uint16_t queues)
{
    static const char *const names[] = {"net_memif0", "net_memif1", "net_memif2"};
    const uint32_t i = options.device_count++;
    (void)snprintf(texts[i], sizeof texts[i], "role=%s,id=%u,socket=%s,socket-abstract=no", role,
                   id, path);
    devices[i] = (struct sl_dpdk_device){
        .name = names[i], .arguments = texts[i], .address = address, .queues = queues};
}

static void load(void)
{
    const char *why;
    medium.ops = sl_dpdk_module_ports(&why);
    if (medium.ops == NULL) {
        fprintf(stderr, "skipped: %s\n", why);
        exit(SKIPPED);
    }
    conformance_target = &target;
}

/* ---- Who is killed ----------------------------------------------------------------------------
 */

struct order {
    bool is_server;
    uint32_t id;
    uint16_t queues;
    uint64_t seed;
};

/* Sends, and checks what is echoed, until it is killed. */
static void live(const void *given)
{
    const struct order *order = given;
    char address[32], reason[128];
    struct sl_endpoint endpoint;
    (void)snprintf(address, sizeof address, "10.0.%u.%u", 1 + order->is_server, 1 + order->id);
    add_device(order->is_server ? "server" : "client", order->id,
               order->is_server ? path_of_theirs : path_of_ours, address, order->queues);
    const int fd = open(path_of_log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (fd < 0 || dup2(fd, STDERR_FILENO) < 0 ||
        sl_endpoint_parse("dpdk://10.0.0.1:9200", &endpoint, reason, sizeof reason) != 0) {
        _exit(1);
    }
    sl_log_setup(SL_LOG_WARN, "child");
    load();
    struct world *world = world_open(1, NULL);
    struct peer *peer = nursery_connect(&world->nodes[0], &endpoint);
    nursery_send(peer, order->seed, 150000);
}

/* ---- Who survives -----------------------------------------------------------------------------
 */

static uint64_t seed = 20260101;

static pid_t bear(struct order order)
{
    order.seed = sl_hash_random(&seed);
    return nursery_bear(&order);
}

static void kill_now(pid_t pid)
{
    assert_int_equal(kill(pid, SIGKILL), 0);
}

static struct world *open_echo(void)
{
    struct world *world = world_open(1, NULL);
    node_set_policy(&world->nodes[0], (struct policy){.echo = true});
    return world;
}

/* Each is served while it lives, whatever became of the one before. */
static void serve_and_kill(struct node *server, struct order order, uint32_t deaths)
{
    for (uint32_t i = 0; i < deaths; i++) {
        const uint32_t before = server->open_count;
        const pid_t pid = bear(order);
        WAIT_UNTIL(server->open_count > before);
        struct peer *accepted = node_peer(server, before);
        WAIT_UNTIL(accepted->received > 20 || accepted->closed == 1);
        assert_int_equal(accepted->closed, 0);
        usleep((useconds_t)(sl_hash_random(&seed) % LIFE_US_MAX));
        kill_now(pid);
    }
}

static void clients__are_killed_and_others_live(void **state)
{
    (void)state;
    struct world *world = open_echo();
    struct node *server = &world->nodes[0];
    const pid_t other = bear((struct order){.id = 1, .queues = 1});
    WAIT_UNTIL(server->open_count == 1);
    struct peer *bystander = node_peer(server, 0);
    serve_and_kill(server, (struct order){.id = 0, .queues = 1}, DEATHS);
    const uint32_t before = bystander->received;
    WAIT_UNTIL(bystander->received > before + 100 || bystander->closed == 1);
    assert_int_equal(bystander->closed, 0);
    kill_now(other);
    world_close(world);
}

/* The first is not there when this process begins; what they leave behind is a socket's file. */
static void servers__are_killed_and_come_back(void **state)
{
    (void)state;
    struct world *world = open_echo();
    serve_and_kill(&world->nodes[0], (struct order){.is_server = true, .queues = 1}, DEATHS / 2);
    world_close(world);
}

/* Its link tells, long before its silence would. */
static void clients__that_are_killed_are_known_to_be_gone(void **state)
{
    (void)state;
    static const struct sl_transport_options patience = {.peer_timeout_ms = 3600000};
    struct world *world = world_open(1, &patience);
    struct node *server = &world->nodes[0];
    node_set_policy(server, (struct policy){.echo = true});
    const pid_t other = bear((struct order){.id = 1, .queues = 1});
    const pid_t pid = bear((struct order){.id = 0, .queues = 1});
    WAIT_UNTIL(server->open_count == 2);
    struct peer *peers[] = {node_peer(server, 0), node_peer(server, 1)};
    WAIT_UNTIL(peers[0]->received > 20 && peers[1]->received > 20);
    kill_now(pid);
    WAIT_UNTIL(peers[0]->closed + peers[1]->closed == 1);
    struct peer *bystander = peers[peers[0]->closed];
    const uint32_t before = bystander->received;
    WAIT_UNTIL(bystander->received > before + 100 || bystander->closed == 1);
    assert_int_equal(bystander->closed, 0);
    kill_now(other);
    WAIT_UNTIL(bystander->closed == 1);
    world_close(world);
}

static void knock_with(int fd)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    memcpy(to.sun_path, path_of_ours, strlen(path_of_ours));
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
}

static int knock(void)
{
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    knock_with(fd);
    return fd;
}

/* Of these DPDK's driver, which they do not reach, would end the process. */
static void knocks__are_nothing(void **state)
{
    (void)state;
    struct world *world = open_echo();
    for (uint32_t i = 0; i < KNOCKS; i++) {
        uint8_t bytes[128];
        uint64_t random[16];
        for (uint32_t k = 0; k < 16; k++) {
            random[k] = sl_hash_random(&seed);
        }
        memcpy(bytes, random, sizeof bytes);
        bytes[0] = (uint8_t)(i % 10);
        bytes[1] = 0;
        const int fd = knock();
        if (i % 2 == 0) {
            (void)send(fd, bytes, i % 16 == 0 ? 100 : sizeof bytes, MSG_NOSIGNAL);
        }
        close(fd);
    }
    serve_and_kill(&world->nodes[0], (struct order){.id = 0, .queues = 1}, 1);
    world_close(world);
}

/* A process could run out of them else. */
static void descriptors__that_nobody_wants_are_closed(void **state)
{
    (void)state;
    struct world *world = open_echo();
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    uint8_t bytes[128] = {4}; /* a region */
    const int sent[2] = {ends[1], ends[1]};
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof sent)];
    } control = {.header = {.cmsg_level = SOL_SOCKET,
                            .cmsg_type = SCM_RIGHTS,
                            .cmsg_len = CMSG_LEN(sizeof sent)}};
    memcpy(CMSG_DATA(&control.header), sent, sizeof sent);
    struct iovec part = {.iov_base = bytes, .iov_len = sizeof bytes};
    const struct msghdr message = {.msg_iov = &part,
                                   .msg_iovlen = 1,
                                   .msg_control = control.bytes,
                                   .msg_controllen = sizeof control.bytes};
    const int fd = knock();
    assert_int_equal(sendmsg(fd, &message, MSG_NOSIGNAL), sizeof bytes);
    close(ends[1]);
    WAIT_UNTIL(read(ends[0], bytes, 1) == 0);
    close(fd);
    close(ends[0]);
    world_close(world);
}

static bool is_memifs_thread(const char *task)
{
    char path[64], name[32] = "";
    (void)snprintf(path, sizeof path, "/proc/self/task/%.16s/comm", task);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        (void)!read(fd, name, sizeof name - 1);
        close(fd);
    }
    return strcmp(name, "dpdk-memif\n") == 0;
}

/* What the kernel says of the thread that listens. */
static int open_status(void)
{
    int fd = -1;
    char path[64];
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    for (const struct dirent *task; fd < 0 && (task = readdir(tasks)) != NULL;) {
        if (is_memifs_thread(task->d_name)) {
            (void)snprintf(path, sizeof path, "/proc/self/task/%.16s/status", task->d_name);
            fd = open(path, O_RDONLY | O_CLOEXEC);
        }
    }
    closedir(tasks);
    assert_true(fd >= 0);
    return fd;
}

/* How often it has waited for something. */
static unsigned long waits_of(int status)
{
    char text[4096];
    const ssize_t bytes = pread(status, text, sizeof text - 1, 0);
    assert_true(bytes > 0);
    text[bytes] = '\0';
    const char *at = strstr(text, "\nvoluntary_ctxt_switches:");
    assert_non_null(at);
    return strtoul(strchr(at, ':') + 1, NULL, 10);
}

/* Who knocks then is let in when there are some again, and the thread waits until then. */
static void descriptors__that_are_used_up(void **state)
{
    (void)state;
    struct world *world = open_echo();
    struct rlimit usual, few;
    const int status = open_status();
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    const int next = dup(fd);
    assert_true(next >= 0);
    close(next);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &usual), 0);
    few = (struct rlimit){.rlim_cur = (rlim_t)next, .rlim_max = usual.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    knock_with(fd);
    const unsigned long before = waits_of(status);
    WAIT_UNTIL(waits_of(status) >= before + 100);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &usual), 0);
    uint8_t hello[128];
    assert_int_equal(recv(fd, hello, sizeof hello, 0), sizeof hello);
    close(fd);
    close(status);
    serve_and_kill(&world->nodes[0], (struct order){.id = 0, .queues = 1}, 1);
    world_close(world);
}

static bool has_said(const char *words)
{
    static char text[65536];
    const int fd = open(path_of_log, O_RDONLY);
    const ssize_t bytes = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
    if (fd >= 0) {
        close(fd);
    }
    text[bytes > 0 ? bytes : 0] = '\0';
    return strstr(text, words) != NULL;
}

static void queues__that_differ_are_refused(void **state)
{
    (void)state;
    struct world *world = open_echo();
    const pid_t other = bear((struct order){.id = 0, .queues = 2});
    WAIT_UNTIL(has_said("queues differ: the client has 2 and 2, the server 1 each way"));
    assert_int_equal(world->nodes[0].open_count, 0);
    kill_now(other);
    serve_and_kill(&world->nodes[0], (struct order){.id = 0, .queues = 1}, 1);
    world_close(world);
}

static void ids__unknown_are_refused(void **state)
{
    (void)state;
    struct world *world = open_echo();
    const pid_t other = bear((struct order){.id = 7, .queues = 1});
    WAIT_UNTIL(has_said("no device with this id here"));
    kill_now(other);
    world_close(world);
}

static int run_all(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(clients__are_killed_and_others_live),
        cmocka_unit_test(clients__that_are_killed_are_known_to_be_gone),
        cmocka_unit_test(servers__are_killed_and_come_back),
        cmocka_unit_test(knocks__are_nothing),
        cmocka_unit_test(descriptors__that_nobody_wants_are_closed),
        cmocka_unit_test(descriptors__that_are_used_up),
        cmocka_unit_test(queues__that_differ_are_refused),
        cmocka_unit_test(ids__unknown_are_refused),
    };
    add_device("server", 0, path_of_ours, "10.0.0.1", 1);
    add_device("server", 1, path_of_ours, "10.0.0.1", 1);
    add_device("client", 0, path_of_theirs, "10.0.0.1", 1);
    sl_log_setup(SL_LOG_OFF, target.name);
    load();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    if (mkdtemp(folder) == NULL) {
        return 1;
    }
    (void)snprintf(path_of_ours, sizeof path_of_ours, "%s/ours", folder);
    (void)snprintf(path_of_theirs, sizeof path_of_theirs, "%s/theirs", folder);
    (void)snprintf(path_of_log, sizeof path_of_log, "%s/log", folder);
    if (!nursery_open(sizeof(struct order), live)) {
        return 1;
    }
    const int failed = run_all();
    nursery_close();
    (void)unlink(path_of_ours);
    (void)unlink(path_of_theirs);
    (void)unlink(path_of_log);
    (void)rmdir(folder);
    return failed;
}
