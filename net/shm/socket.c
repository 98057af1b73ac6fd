#include "net/shm/socket.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "core/hash.h"
#include "net/base/fd.h"

#define FDS_MAX 4 /* descriptors in one packet; the kernel closes the others */

/* Abstract addresses have no owner or permissions, and belong to the network namespace. The user id
 * in the address avoids collisions of users; SO_PEERCRED enforces the separation. */
void sl_shm_socket_address(const struct sl_endpoint *endpoint, struct sockaddr_un *out,
                           socklen_t *out_bytes)
{
    char name[SL_LIMIT_ENDPOINT_BYTES + 64];
    int length = snprintf(name, sizeof name, "starling-%u/%s:%u", (unsigned)geteuid(),
                          endpoint->host, endpoint->port);
    if ((size_t)length > sizeof out->sun_path - 1) {
        uint64_t hash = sl_hash_bytes(endpoint->host, strlen(endpoint->host), 0);
        length = snprintf(name, sizeof name, "starling-%u/#%016llx:%u", (unsigned)geteuid(),
                          (unsigned long long)hash, endpoint->port);
    }
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(out->sun_path + 1, name, (size_t)length);
    *out_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

int sl_shm_socket_open(int *out_fd)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    fd = sl_fd_lift(fd);
    if (fd < 0) {
        return errno == ENOMEM || errno == ENOBUFS ? SL_ERR_NO_MEMORY : SL_ERR_IO;
    }
    *out_fd = fd;
    return 0;
}

int sl_shm_socket_watch(struct sl_shm *shm, int fd, void *what, bool is_listener)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = (uintptr_t)what | is_listener};
    return epoll_ctl(shm->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : SL_ERR_NO_MEMORY;
}

void sl_shm_socket_unwatch(struct sl_shm *shm, int fd)
{
    (void)epoll_ctl(shm->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
}

bool sl_shm_socket_is_ours(int fd, int *pid)
{
    struct ucred peer = {.uid = (uid_t)-1};
    socklen_t bytes = sizeof peer;
    bool known = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0;
    *pid = peer.pid;
    return known && peer.uid == geteuid();
}

int sl_shm_ctrl_msg_send(const struct sl_shm_conn *conn, struct sl_shm_ctrl_msg msg, int fd)
{
    msg.magic = SL_SHM_CTRL_MSG_MAGIC;
    msg.version = SL_SHM_CTRL_MSG_VERSION;
    struct iovec piece = {.iov_base = &msg, .iov_len = sizeof msg};
    _Alignas(struct cmsghdr) uint8_t control[CMSG_SPACE(sizeof fd)] = {0};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    if (fd >= 0) {
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(header), &fd, sizeof fd);
    }
    conn->shm->stats.send_calls++;
    if (sendmsg(conn->link.fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof msg) {
        return 0;
    }
    bool full = errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS || errno == EINTR ||
                errno == ETOOMANYREFS || errno == ENOMEM;
    return full ? SL_ERR_AGAIN : SL_ERR_CLOSED;
}

/* Keeps the first received descriptor, closes the others; returns their number. */
static uint32_t take_fds(struct msghdr *message, int *fd)
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
            if (count++ == 0) {
                *fd = one;
            } else {
                close(one);
            }
        }
    }
    return count;
}

static int check(const struct sl_shm_ctrl_msg *msg, ssize_t bytes, uint32_t fds, int flags)
{
    bool whole = bytes == (ssize_t)sizeof *msg && (flags & (MSG_TRUNC | MSG_CTRUNC)) == 0;
    if (!whole || msg->magic != SL_SHM_CTRL_MSG_MAGIC) {
        return SL_ERR_PROTOCOL;
    }
    if (msg->version != SL_SHM_CTRL_MSG_VERSION) {
        return SL_ERR_VERSION;
    }
    bool brings = msg->kind == SL_SHM_CTRL_MSG_HELLO || msg->kind == SL_SHM_CTRL_MSG_REGION ||
                  msg->kind == SL_SHM_CTRL_MSG_RMA_GIVE;
    return fds == (brings ? 1 : 0) ? 0 : SL_ERR_PROTOCOL;
}

int sl_shm_ctrl_msg_receive(int socket_fd, struct sl_shm_ctrl_msg *out, int *fd)
{
    struct sl_shm_ctrl_msg msg = {0};
    struct iovec piece = {.iov_base = &msg, .iov_len = sizeof msg};
    _Alignas(struct cmsghdr) uint8_t control[CMSG_SPACE(FDS_MAX * sizeof(int))];
    struct msghdr message = {.msg_iov = &piece,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
    ssize_t bytes = recvmsg(socket_fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (bytes < 0) {
        bool later = errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
        return later ? SL_ERR_AGAIN : SL_ERR_CLOSED;
    }
    *fd = -1;
    uint32_t fds = take_fds(&message, fd);
    int err = bytes == 0 && fds == 0 ? SL_ERR_CLOSED : check(&msg, bytes, fds, message.msg_flags);
    if (err != 0 && *fd >= 0) {
        close(*fd);
        *fd = -1;
    }
    *out = msg;
    return err;
}
