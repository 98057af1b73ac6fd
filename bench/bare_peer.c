#include "bench/bare_peer.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bench/child.h"
#include "core/assert.h"
#include "core/log.h"

#define END_WAIT_MS       20000
#define DESCRIPTORS_SPARE 64 /* of this process beside the connections */

int sl_bench_bare_fail(const char *what)
{
    const int system_errno = errno;
    sl_log_error("baseline: %s: %s", what, strerror(system_errno));
    return sl_err_from_errno(system_errno);
}

/* ---- Sockets --------------------------------------------------------------------------------- */

static int set_int(int fd, int level, int option, int value)
{
    return setsockopt(fd, level, option, &value, sizeof value);
}

/* A connection that is closed leaves nothing behind: thousands are made in a few minutes, and would
 * use up the local ports while each waits out its last minute. */
static int tune(int fd, const char *congestion)
{
    const struct linger none = {.l_onoff = 1};
    if (set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1) != 0 ||
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none) != 0) {
        return sl_bench_bare_fail("setsockopt");
    }
    if (congestion != NULL && setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, congestion,
                                         (socklen_t)strlen(congestion)) != 0) {
        sl_log_error("baseline: congestion control %s: %s", congestion, strerror(errno));
        return SL_ERR_INVALID;
    }
    return 0;
}

static int open_socket(const char *congestion, int *out_fd)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return sl_bench_bare_fail("socket");
    }
    int err = tune(fd, congestion);
    if (err != 0) {
        close(fd);
        return err;
    }
    *out_fd = fd;
    return 0;
}

static int open_listener(const char *congestion, int *out_fd, struct sockaddr_in *address)
{
    socklen_t bytes = sizeof *address;
    *address =
        (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int err = open_socket(congestion, out_fd);
    if (err != 0) {
        return err;
    }
    if (bind(*out_fd, (struct sockaddr *)address, sizeof *address) != 0 ||
        listen(*out_fd, SL_BENCH_BARE_CONNECTIONS_MAX) != 0 ||
        getsockname(*out_fd, (struct sockaddr *)address, &bytes) != 0) {
        err = sl_bench_bare_fail("listening on loopback");
        close(*out_fd);
    }
    return err;
}

static void raise_descriptor_limit(uint32_t connections)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < connections + DESCRIPTORS_SPARE) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/* ---- The process ----------------------------------------------------------------------------- */

static int accept_all(int listener, const char *congestion, int *fds, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        fds[i] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fds[i] < 0) {
            return sl_bench_bare_fail("accept");
        }
        int err = tune(fds[i], congestion);
        if (err != 0) {
            return err;
        }
    }
    return 0;
}

static int connect_all(struct sl_bench_bare_peer *peer, const struct sockaddr_in *address,
                       const char *congestion)
{
    for (uint32_t i = 0; i < peer->count; i++) {
        int err = open_socket(congestion, &peer->fds[i]);
        if (err != 0) {
            return err;
        }
        if (connect(peer->fds[i], (const struct sockaddr *)address, sizeof *address) != 0) {
            return sl_bench_bare_fail("connect");
        }
    }
    return 0;
}

int sl_bench_bare_peer_start(struct sl_bench_bare_peer *peer, uint32_t connections,
                             const char *congestion, const struct sl_bench_common *common,
                             sl_bench_bare_serve_fn serve, const void *ctx)
{
    sl_assert(connections >= 1);
    sl_assert(connections <= SL_BENCH_BARE_CONNECTIONS_MAX);
    *peer = (struct sl_bench_bare_peer){.pid = -1, .count = connections};
    peer->fds = malloc(connections * sizeof *peer->fds);
    if (peer->fds == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    memset(peer->fds, -1, connections * sizeof *peer->fds);
    raise_descriptor_limit(connections);
    struct sockaddr_in address;
    int listener;
    int err = open_listener(congestion, &listener, &address);
    if (err != 0) {
        (void)sl_bench_bare_peer_end(peer);
        return err;
    }
    peer->pid = sl_bench_fork_process(common->server_core);
    if (peer->pid == 0) {
        err = accept_all(listener, congestion, peer->fds, connections);
        close(listener);
        _exit((err != 0 ? err : serve(ctx, peer->fds, connections)) != 0);
    }
    err = peer->pid < 0 ? SL_ERR_IO : connect_all(peer, &address, congestion);
    err = err != 0 ? err : sl_bench_pin_begin(common->client_core, &peer->before);
    close(listener);
    if (err != 0) {
        (void)sl_bench_bare_peer_end(peer);
    }
    return err;
}

/* ---- Its end --------------------------------------------------------------------------------- */

int sl_bench_bare_peer_end(struct sl_bench_bare_peer *peer)
{
    int err = 0;
    for (uint32_t i = 0; i < peer->count && peer->fds[i] >= 0; i++) {
        close(peer->fds[i]);
    }
    free(peer->fds);
    peer->fds = NULL;
    if (peer->pid > 0) {
        pid_t pid = peer->pid;
        if (sl_bench_child_wait(&pid, END_WAIT_MS) != 0) {
            sl_log_error("baseline: the process at the other end failed");
            err = SL_ERR_IO;
        }
        peer->pid = -1;
    }
    sl_bench_pin_end(&peer->before);
    return err;
}
