#include <errno.h>
#include <linux/tcp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "bench/now.h"
#include "bench/staleness.h"

#define BACKLOG 1024

int sl_bench_staleness_listen(bool is_distributed, int *fd, char address[256])
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr =
                                 htonl(is_distributed ? INADDR_ANY : INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    char host[200] = "127.0.0.1";
    *fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (*fd < 0 || bind(*fd, (struct sockaddr *)&at, sizeof at) != 0 || listen(*fd, BACKLOG) != 0 ||
        getsockname(*fd, (struct sockaddr *)&at, &length) != 0 ||
        (is_distributed && gethostname(host, sizeof host) != 0)) {
        sl_log_error("the trainer cannot listen: %s", strerror(errno));
        return SL_ERR_IO;
    }
    (void)snprintf(address, 256, "%s:%u", host, ntohs(at.sin_port));
    return 0;
}

int sl_bench_staleness_connect(const char *address, int *fd)
{
    const struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    char host[256];
    (void)snprintf(host, sizeof host, "%s", address);
    char *colon = strrchr(host, ':');
    if (colon != NULL) {
        *colon = '\0';
    }
    *fd = colon != NULL && getaddrinfo(host, colon + 1, &hints, &found) == 0
              ? socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)
              : -1;
    const bool is_connected = *fd >= 0 && connect(*fd, found->ai_addr, found->ai_addrlen) == 0;
    if (found != NULL) {
        freeaddrinfo(found);
    }
    if (!is_connected) {
        sl_log_error("--trainer=%s: cannot connect: %s", address, strerror(errno));
        return SL_ERR_IO;
    }
    return setsockopt(*fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)) == 0 ? 0 : SL_ERR_IO;
}

static int write_all(int fd, const void *from, uint64_t bytes)
{
    const uint8_t *at = from;
    while (bytes > 0) {
        const ssize_t wrote = send(fd, at, bytes, MSG_NOSIGNAL);
        if (wrote <= 0) {
            return SL_ERR_CLOSED;
        }
        at += wrote;
        bytes -= (uint64_t)wrote;
    }
    return 0;
}

int sl_bench_staleness_send(int fd, const struct sl_bench_staleness_message *message,
                            const void *payload)
{
    const int err = write_all(fd, message, sizeof *message);
    return err != 0 ? err : write_all(fd, payload, message->bytes);
}

int sl_bench_staleness_read(int fd, void *to, uint64_t bytes)
{
    uint8_t *at = to;
    while (bytes > 0) {
        const ssize_t got = recv(fd, at, bytes, 0);
        if (got <= 0) {
            return SL_ERR_CLOSED;
        }
        at += got;
        bytes -= (uint64_t)got;
    }
    return 0;
}

int sl_bench_staleness_receive(int fd, struct sl_bench_staleness_message *message)
{
    return sl_bench_staleness_read(fd, message, sizeof *message);
}

void sl_bench_staleness_sleep(const struct sl_bench_staleness *run, uint64_t *due_ns)
{
    const uint64_t now_ns = sl_bench_now_ns();
    *due_ns += sl_bench_ns(run->options.pull_frequency);
    if (*due_ns > now_ns) {
        sl_bench_sleep_ns(*due_ns - now_ns);
    } else {
        *due_ns = now_ns;
    }
}

uint64_t sl_bench_tcp_bytes_sent(void)
{
    uint64_t bytes = 0;
    for (int fd = 0; fd < 4096; fd++) {
        struct tcp_info info = {0};
        socklen_t length = sizeof info;
        if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0) {
            bytes += info.tcpi_bytes_acked;
        }
    }
    return bytes;
}
