/* Sockets and the control messages on them. Owner reactor. */
#ifndef SL_NET_SHM_SOCKET_H
#define SL_NET_SHM_SOCKET_H

#include "net/base/unix_socket.h"
#include "net/shm/state.h"

enum sl_shm_ctrl_msg_kind {
    SL_SHM_CTRL_MSG_HELLO = 1,    /* from the connecting side, with the segment */
    SL_SHM_CTRL_MSG_ACCEPT = 2,   /* the answer */
    SL_SHM_CTRL_MSG_REGION = 3,   /* exports memory; brings its descriptor */
    SL_SHM_CTRL_MSG_WITHDRAW = 4, /* ends the export */
    SL_SHM_CTRL_MSG_WAKE = 5,
    SL_SHM_CTRL_MSG_PING = 6, /* the receiver's reactor answers with PONG */
    SL_SHM_CTRL_MSG_PONG = 7,
    /* One-sided operations; each but GIVE names a region by its key. */
    SL_SHM_CTRL_MSG_RMA_ASK = 8,       /* the receiver answers with GIVE or WITHDRAW */
    SL_SHM_CTRL_MSG_RMA_GIVE = 9,      /* brings the memory's descriptor */
    SL_SHM_CTRL_MSG_RMA_WITHDRAW = 10, /* the receiver unmaps it, and answers with UNMAPPED */
    SL_SHM_CTRL_MSG_RMA_UNMAPPED = 11
};

#define SL_SHM_CTRL_MSG_MAGIC   0x4d53534cU /* "LSSM" in memory order */
#define SL_SHM_CTRL_MSG_VERSION 2

/* A control message: one packet on the socket. */
struct sl_shm_ctrl_msg {
    uint32_t magic;
    uint16_t version;
    uint16_t kind;
    uint32_t region; /* REGION, WITHDRAW: name of the region */
    uint32_t access; /* REGION, RMA_GIVE: sl_shared_access */
    uint64_t bytes;  /* HELLO, REGION, RMA_GIVE: size of the memory; other RMA_*: the key */
};
static_assert(sizeof(struct sl_shm_ctrl_msg) == 24, "control message size");

/* Computes the abstract socket address of an endpoint, for this user. */
void sl_shm_socket_address(const struct sl_endpoint *endpoint, struct sockaddr_un *out,
                           socklen_t *out_bytes);

/* Adds fd to epoll. `what` is a connection or listener; the lowest bit of the event's data marks a
 * listener. Errors: NO_MEMORY. */
int sl_shm_socket_watch(struct sl_shm *shm, int fd, void *what, bool is_listener);
void sl_shm_socket_unwatch(struct sl_shm *shm, int fd);

/* Sends a control message, with descriptor fd unless -1. Errors: AGAIN (the peer does not read),
 * CLOSED. */
int sl_shm_ctrl_msg_send(const struct sl_shm_conn *conn, struct sl_shm_ctrl_msg msg, int fd);

/* Receives a control message; *fd is -1 or owned by the caller. Errors: AGAIN (none), CLOSED,
 * PROTOCOL, VERSION. */
int sl_shm_ctrl_msg_receive(int socket_fd, struct sl_shm_ctrl_msg *out, int *fd);

#endif
