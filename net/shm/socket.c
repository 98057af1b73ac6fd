#include "net/shm/socket.h"

#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "core/hash.h"

/* Abstract addresses belong to the network namespace. The user id in the address avoids collisions
 * of users; SO_PEERCRED enforces the separation. */
void sl_shm_socket_address(const struct sl_endpoint *endpoint, struct sockaddr_un *out,
                           socklen_t *out_bytes)
{
    char name[SL_LIMIT_ENDPOINT_BYTES + 64];
    int length = snprintf(name, sizeof name, "starling-%u/%s:%u", (unsigned)geteuid(),
                          endpoint->host, endpoint->port);
    if ((size_t)length > sizeof out->sun_path - 1) {
        uint64_t hash = sl_hash_bytes(endpoint->host, strlen(endpoint->host), 0);
        (void)snprintf(name, sizeof name, "starling-%u/#%016llx:%u", (unsigned)geteuid(),
                       (unsigned long long)hash, endpoint->port);
    }
    *out_bytes = sl_unix_socket_address(name, out);
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

int sl_shm_ctrl_msg_send(const struct sl_shm_conn *conn, struct sl_shm_ctrl_msg msg, int fd)
{
    msg.magic = SL_SHM_CTRL_MSG_MAGIC;
    msg.version = SL_SHM_CTRL_MSG_VERSION;
    sl_cell_add(&conn->shm->base.cells->send_calls, 1);
    return sl_unix_socket_send(conn->link.fd, &msg, sizeof msg, &fd, fd >= 0 ? 1 : 0);
}

static int check(const struct sl_shm_ctrl_msg *msg, uint32_t fds)
{
    if (msg->magic != SL_SHM_CTRL_MSG_MAGIC) {
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
    uint32_t fds = 0;
    *fd = -1;
    int err = sl_unix_socket_receive(socket_fd, &msg, sizeof msg, fd, 1, &fds);
    err = err != 0 ? err : check(&msg, fds);
    if (err != 0 && fds > 0) {
        close(*fd);
    }
    *fd = err != 0 || fds == 0 ? -1 : *fd;
    *out = msg;
    return err;
}
