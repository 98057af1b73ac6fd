#include "core/notify.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/err.h"
#include "core/format.h"

#define LINES_BYTES 512

static int send_lines(const char *address, const char *lines)
{
    const size_t length = strlen(address);
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    if ((address[0] != '/' && address[0] != '@') || length < 2 || length >= sizeof to.sun_path) {
        return SL_ERR_INVALID;
    }
    memcpy(to.sun_path, address, length);
    if (address[0] == '@') {
        to.sun_path[0] = '\0';
    }
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return sl_err_from_errno(errno);
    }
    const struct timeval wait = {.tv_sec = 1};
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
    const socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
    const ssize_t sent =
        sendto(fd, lines, strlen(lines), MSG_NOSIGNAL, (struct sockaddr *)&to, bytes);
    const int err = sent < 0 ? sl_err_from_errno(errno) : 0;
    (void)close(fd);
    return err;
}

int sl_notify_send(const char *format, ...)
{
    const char *address = getenv("NOTIFY_SOCKET");
    if (address == NULL || address[0] == '\0') {
        return 0;
    }
    char lines[LINES_BYTES];
    SL_FORMAT(lines, format);
    return send_lines(address, lines);
}
