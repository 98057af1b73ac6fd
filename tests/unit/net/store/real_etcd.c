#include "real_etcd.h"

#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "net/transport.h"
#include "tests/support/free_port.h"
#include "tests/support/unit.h"

#define ARGS_MAX 32

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
    const uint16_t peer_port = free_port();
    etcd->port = free_port();
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
    char command[96];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", etcd->directory);
    assert_int_equal(system(command), 0);
}
