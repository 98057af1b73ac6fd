#include "tcp.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

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
