#include "net/base/unix_socket.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "core/assert.h"
#include "net/base/fd.h"

socklen_t sl_unix_socket_address(const char *text, struct sockaddr_un *out)
{
    const size_t length = strlen(text);
    sl_assert(length < sizeof out->sun_path);
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(out->sun_path + 1, text, length);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
}

int sl_unix_socket_open(int *out_fd)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    fd = sl_fd_lift(fd);
    if (fd < 0) {
        return errno == ENOMEM || errno == ENOBUFS ? SL_ERR_NO_MEMORY : SL_ERR_IO;
    }
    *out_fd = fd;
    return 0;
}

bool sl_unix_socket_is_ours(int fd, int *pid)
{
    struct ucred peer = {.uid = (uid_t)-1};
    socklen_t bytes = sizeof peer;
    bool known = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0;
    *pid = peer.pid;
    return known && peer.uid == geteuid();
}

int sl_unix_socket_send(int fd, const void *packet, size_t bytes, const int *fds, uint32_t fd_count)
{
    struct iovec piece = {.iov_base = (void *)(uintptr_t)packet, .iov_len = bytes};
    _Alignas(struct cmsghdr)
        uint8_t control[CMSG_SPACE(SL_UNIX_SOCKET_FDS_MAX * sizeof(int))] = {0};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    sl_assert(fd_count <= SL_UNIX_SOCKET_FDS_MAX);
    if (fd_count > 0) {
        message.msg_control = control;
        message.msg_controllen = CMSG_SPACE(fd_count * sizeof fd);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(fd_count * sizeof fd);
        memcpy(CMSG_DATA(header), fds, fd_count * sizeof fd);
    }
    if (sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)bytes) {
        return 0;
    }
    bool full = errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS || errno == EINTR ||
                errno == ETOOMANYREFS || errno == ENOMEM;
    return full ? SL_ERR_AGAIN : SL_ERR_CLOSED;
}

/* Returns the number of descriptors; closes those that are more than fds_most. */
static uint32_t take_fds(struct msghdr *message, int *fds, uint32_t fds_most)
{
    uint32_t count = 0;
    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header != NULL;
         header = CMSG_NXTHDR(message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        size_t bytes = header->cmsg_len - CMSG_LEN(0);
        for (size_t at = 0; at + sizeof(int) <= bytes; at += sizeof(int)) {
            int one;
            memcpy(&one, CMSG_DATA(header) + at, sizeof one);
            if (count < fds_most) {
                fds[count] = one;
            } else {
                close(one);
            }
            count++;
        }
    }
    return count;
}

int sl_unix_socket_receive(int fd, void *packet, size_t bytes, int *fds, uint32_t fds_most,
                           uint32_t *fd_count)
{
    struct iovec piece = {.iov_base = packet, .iov_len = bytes};
    _Alignas(struct cmsghdr) uint8_t control[CMSG_SPACE(SL_UNIX_SOCKET_FDS_MAX * sizeof(int))];
    struct msghdr message = {.msg_iov = &piece,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
    const ssize_t got = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0) {
        const bool later = errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
        return later ? SL_ERR_AGAIN : SL_ERR_CLOSED;
    }
    const uint32_t count = take_fds(&message, fds, fds_most);
    if (got == (ssize_t)bytes && (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0 &&
        count <= fds_most) {
        *fd_count = count;
        return 0;
    }
    for (uint32_t i = 0; i < count && i < fds_most; i++) {
        close(fds[i]);
    }
    return got == 0 && count == 0 ? SL_ERR_CLOSED : SL_ERR_PROTOCOL;
}
