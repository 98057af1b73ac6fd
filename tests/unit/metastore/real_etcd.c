#include "real_etcd.h"

#include <stddef.h>

#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "net/transport.h"
#include "tests/support/unit.h"

#define ARGS_MAX   32
#define PORT_FIRST 3000 /* tests/integration/harness.py has the same, and says why */
#define PORT_COUNT 7000

/* As tests/support/etcd.py has found it; or Debian's. */
static const char *program(void)
{
    const char *named = getenv("STARLING_ETCD");
    return named != NULL ? named : "/usr/bin/etcd";
}

int real_etcd_listen(uint16_t *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000001)};
    socklen_t bytes = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, bytes), 0);
    assert_int_equal(listen(fd, 8), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &bytes), 0);
    *port = ntohs(address.sin_port);
    return fd;
}

/* A socket that stands for the port until it is closed, for all tests on this machine; or -1 where
 * another has it. */
static int claim(uint16_t port)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const int length =
        snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "starling-test-port-%u", port);
    const size_t bytes = offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length;
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    if (bind(fd, (struct sockaddr *)&address, (socklen_t)bytes) == 0) {
        return fd;
    }
    (void)close(fd);
    return -1;
}

static bool is_free(uint16_t port)
{
    const struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    const bool can_bind = bind(fd, (const struct sockaddr *)&address, sizeof address) == 0;
    (void)close(fd);
    return can_bind;
}

/* A port that nobody listens at, and its claim. */
static int claim_any(uint16_t *port)
{
    uint32_t start;
    assert_int_equal(getrandom(&start, sizeof start, 0), sizeof start);
    start %= PORT_COUNT;
    for (uint32_t i = 0; i < PORT_COUNT; i++) {
        *port = (uint16_t)(PORT_FIRST + (start + i) % PORT_COUNT);
        const int fd = claim(*port);
        if (fd >= 0 && is_free(*port)) {
            return fd;
        }
        if (fd >= 0) {
            (void)close(fd);
        }
    }
    fail_msg("no free port");
    return -1;
}

struct arguments {
    const char *list[ARGS_MAX];
    uint32_t count;
};

static void add(struct arguments *arguments, const char *name, const char *value)
{
    assert_true(arguments->count + 3 <= ARGS_MAX); /* and the NULL behind them */
    arguments->list[arguments->count++] = name;
    arguments->list[arguments->count++] = value;
}

static void exec_etcd(const char *directory, uint16_t port, uint16_t peer_port,
                      const struct sl_transport_tls *tls)
{
    char client[64];
    char peer[64];
    char cluster[80];
    (void)snprintf(client, sizeof client, "http%s://127.0.0.1:%u", tls != NULL ? "s" : "", port);
    (void)snprintf(peer, sizeof peer, "http://127.0.0.1:%u", peer_port);
    (void)snprintf(cluster, sizeof cluster, "default=%s", peer);
    struct arguments arguments = {.list = {program()}, .count = 1};
    add(&arguments, "--data-dir", directory);
    add(&arguments, "--listen-client-urls", client);
    add(&arguments, "--advertise-client-urls", client);
    add(&arguments, "--listen-peer-urls", peer);
    add(&arguments, "--initial-advertise-peer-urls", peer);
    add(&arguments, "--initial-cluster", cluster);
    add(&arguments, "--log-level", "error");
    if (tls != NULL) {
        add(&arguments, "--cert-file", tls->certificate);
        add(&arguments, "--key-file", tls->key);
        add(&arguments, "--trusted-ca-file", tls->authority);
        arguments.list[arguments.count++] = "--client-cert-auth";
    }
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)freopen("/dev/null", "w", stdout);
    (void)freopen("/dev/null", "w", stderr);
    (void)execv(program(), (char *const *)(uintptr_t)arguments.list);
    _exit(127);
}

bool real_etcd_start(struct real_etcd *etcd, const struct sl_transport_tls *tls)
{
    *etcd = (struct real_etcd){.directory = "/tmp/starling-etcd-XXXXXX"};
    if (access(program(), X_OK) != 0) {
        print_message("skipped: %s is not there: apt-get install etcd-server\n", program());
        return false;
    }
    uint16_t peer_port;
    etcd->claims[0] = claim_any(&etcd->port);
    etcd->claims[1] = claim_any(&peer_port);
    assert_non_null(mkdtemp(etcd->directory));
    etcd->pid = fork();
    assert_true(etcd->pid >= 0);
    if (etcd->pid == 0) {
        exec_etcd(etcd->directory, etcd->port, peer_port, tls);
    }
    return true;
}

void real_etcd_stop(struct real_etcd *etcd)
{
    (void)kill(etcd->pid, SIGKILL);
    (void)waitpid(etcd->pid, NULL, 0);
    (void)close(etcd->claims[0]);
    (void)close(etcd->claims[1]);
    char command[96];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", etcd->directory);
    assert_int_equal(system(command), 0);
}
