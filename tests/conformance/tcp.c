#include "tcp.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "core/log.h"

int tcp_connect_raw(const struct sl_endpoint *endpoint)
{
    struct sockaddr_storage address;
    socklen_t bytes;
    if (sl_endpoint_resolve(endpoint, false, &address, &bytes, NULL) != 0) {
        return -1;
    }
    int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval patience = {.tv_sec = WAIT_S};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (connect(fd, (struct sockaddr *)&address, bytes) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

bool tcp_can_listen(const char *text)
{
    struct sl_endpoint endpoint;
    struct sockaddr_storage address;
    socklen_t bytes;
    if (sl_endpoint_parse(text, &endpoint, NULL) != 0 ||
        sl_endpoint_resolve(&endpoint, true, &address, &bytes, NULL) != 0) {
        return false;
    }
    int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool can = fd >= 0 && bind(fd, (struct sockaddr *)&address, bytes) == 0;
    close(fd);
    return can;
}

int tcp_run(const char *name, const char *endpoint, bool polling,
            void (*cripple)(struct sl_reactor *reactor))
{
    if (!tcp_can_listen(endpoint)) {
        return SKIPPED;
    }
    sl_log_setup(SL_LOG_ERROR, name);
    struct conformance_target target = {
        .name = name,
        .ops = sl_builtin_find(SL_ENDPOINT_TCP),
        .endpoint = endpoint,
        .polling = polling,
        .cripple = cripple,
        .connect_raw = tcp_connect_raw,
    };
    return conformance_run(&target) == 0 ? 0 : 1;
}
