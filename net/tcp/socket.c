#include "net/tcp/socket.h"

#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/text_file.h"
#include "net/base/fd.h"

#define LISTEN_BACKLOG  4096
#define KEEPALIVE_COUNT 3
#define STATE_CLOSE     7 /* TCP_CLOSE, which no usable header defines */
#define BIND_TRIES      100
#define BIND_PAUSE_NS   5000000 /* 5 ms */

static int set_int(int fd, int level, int option, int value)
{
    return setsockopt(fd, level, option, &value, sizeof value);
}

bool sl_tcp_socket_set_low(int fd, uint32_t bytes)
{
    return set_int(fd, SOL_SOCKET, SO_RCVLOWAT, (int)bytes) == 0;
}

void sl_tcp_socket_set_patience(int fd, uint32_t timeout_ms)
{
    (void)set_int(fd, IPPROTO_TCP, TCP_USER_TIMEOUT,
                  timeout_ms < INT32_MAX ? (int)timeout_ms : INT32_MAX);
}

/* Failures are ignored: no option is needed for correctness. TCP_USER_TIMEOUT also limits
 * unanswered keep-alives: probes start after half of it, and follow every quarter, in whole
 * seconds. */
void sl_tcp_socket_tune(const struct sl_tcp *tcp, int fd)
{
    int quarter_s = (int)(tcp->base.peer_timeout_ms / 4000);
    (void)set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    (void)set_int(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    (void)set_int(fd, IPPROTO_TCP, TCP_KEEPIDLE, quarter_s > 0 ? 2 * quarter_s : 1);
    (void)set_int(fd, IPPROTO_TCP, TCP_KEEPINTVL, quarter_s > 0 ? quarter_s : 1);
    (void)set_int(fd, IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_COUNT);
    sl_tcp_socket_set_patience(fd, tcp->base.peer_timeout_ms);
}

bool sl_tcp_socket_progress(int fd, struct sl_tcp_progress *out)
{
    struct tcp_info info = {0};
    socklen_t bytes = sizeof info;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) {
        return false;
    }
    *out = (struct sl_tcp_progress){
        .received = info.tcpi_bytes_received,
        .acked = info.tcpi_bytes_acked,
        .since_ack_ms = info.tcpi_last_ack_recv,
        .all_arrived = info.tcpi_unacked == 0 && info.tcpi_notsent_bytes == 0,
        /* Unsent data with nothing in flight: the window is closed. */
        .window_closed =
            info.tcpi_unacked == 0 ? info.tcpi_notsent_bytes > 0 : info.tcpi_snd_wnd == 0,
        .over = info.tcpi_state == STATE_CLOSE,
    };
    return true;
}

int sl_tcp_socket_err(int system_errno)
{
    switch (system_errno) {
    case EHOSTUNREACH: /* last ICMP error when the timeout expired */
    case ENETUNREACH:
    case EHOSTDOWN:
    case ENETDOWN:
        return SL_ERR_DEADLINE;
    default:
        return sl_err_from_errno(system_errno);
    }
}

int sl_tcp_socket_end_err(int fd)
{
    int error = 0;
    socklen_t bytes = sizeof error;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0 || error == 0) {
        return SL_ERR_CLOSED;
    }
    return sl_tcp_socket_err(error);
}

static int tcp_socket_set_congestion(int fd, const char *name)
{
    return setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name));
}

int sl_tcp_socket_open(const struct sl_tcp *tcp, int family, int *out_fd)
{
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP);
    fd = sl_fd_lift(fd);
    if (fd < 0) {
        return sl_err_from_errno(errno);
    }
    if (tcp->congestion[0] != '\0' && tcp_socket_set_congestion(fd, tcp->congestion) != 0) {
        const int err = sl_err_from_errno(errno);
        close(fd);
        return err;
    }
    sl_tcp_socket_tune(tcp, fd);
    *out_fd = fd;
    return 0;
}

/* The sockets of a killed process outlive it by some milliseconds: the kernel closes them when it
 * has taken down the process's io_uring rings. The next process at the address waits for that. */
static int bind_when_free(int fd, const struct sockaddr_storage *address, socklen_t bytes)
{
    int result = bind(fd, (const struct sockaddr *)address, bytes);
    for (uint32_t i = 1; result != 0 && errno == EADDRINUSE && i < BIND_TRIES; i++) {
        (void)nanosleep(&(struct timespec){.tv_nsec = BIND_PAUSE_NS}, NULL);
        result = bind(fd, (const struct sockaddr *)address, bytes);
    }
    return result;
}

int sl_tcp_socket_listen(const struct sl_tcp *tcp, const struct sockaddr_storage *address,
                         socklen_t address_bytes, int *out_fd)
{
    int fd;
    int err = sl_tcp_socket_open(tcp, address->ss_family, &fd);
    if (err != 0) {
        return err;
    }
    if (set_int(fd, SOL_SOCKET, SO_REUSEADDR, 1) != 0 ||
        (address->ss_family == AF_INET6 && set_int(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1) != 0) ||
        bind_when_free(fd, address, address_bytes) != 0 || listen(fd, LISTEN_BACKLOG) != 0) {
        const int why = errno;
        close(fd);
        errno = why;
        return why == EADDRNOTAVAIL ? SL_ERR_NOT_FOUND : sl_err_from_errno(why);
    }
    *out_fd = fd;
    return 0;
}

int sl_tcp_socket_bind(int fd, const char *local)
{
    struct sl_endpoint from = {.scheme = SL_ENDPOINT_TCP};
    struct sockaddr_storage address;
    socklen_t bytes;
    (void)snprintf(from.host, sizeof from.host, "%s", local);
    (void)set_int(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1); /* else it runs out of ports early */
    return sl_endpoint_resolve(&from, true, &address, &bytes, NULL) == 0 &&
                   bind(fd, (const struct sockaddr *)&address, bytes) == 0
               ? 0
               : SL_ERR_NOT_FOUND;
}

int sl_tcp_socket_check_congestion(const char *name)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP);
    if (fd < 0) {
        return sl_err_from_errno(errno);
    }
    int failed = tcp_socket_set_congestion(fd, name) != 0 ? errno : 0;
    close(fd);
    if (failed == 0) {
        return 0;
    }
    char available[256];
    const bool is_known = sl_text_file_line("/proc/sys/net/ipv4/tcp_available_congestion_control",
                                            available, sizeof available);
    sl_log_error(
        "tcp: congestion control \"%s\" (STARLING_TCP_CONGESTION, or congestion_control of "
        "the client's options) cannot be used: %s; this system has: %s%s",
        name, strerror(failed), is_known ? available : "unknown",
        failed == EPERM ? " (some of them for root only)" : "");
    return SL_ERR_INVALID;
}

int sl_tcp_socket_name(int fd, bool of_peer, struct sl_endpoint *out)
{
    struct sockaddr_storage address;
    socklen_t bytes = sizeof address;
    int failed = of_peer ? getpeername(fd, (struct sockaddr *)&address, &bytes)
                         : getsockname(fd, (struct sockaddr *)&address, &bytes);
    if (failed != 0) {
        return SL_ERR_IO;
    }
    return sl_endpoint_from_sockaddr(&address, out);
}

bool sl_tcp_socket_is_own_peer(int fd)
{
    struct sl_endpoint here, there;
    return sl_tcp_socket_name(fd, false, &here) == 0 && sl_tcp_socket_name(fd, true, &there) == 0 &&
           here.port == there.port && strcmp(here.host, there.host) == 0;
}
