#include "net/shm/handshake.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static int send_segment(struct sl_shm_conn *conn)
{
    struct sl_shm_link *link = &conn->link;
    int err = sl_shared_create("starling-shm", sizeof(struct sl_shm_segment), SL_SHARED_WRITE,
                               &link->memory);
    if (err != 0) {
        return err;
    }
    link->segment = (struct sl_shm_segment *)link->memory.base;
    struct sl_shm_ctrl_msg hello = {.kind = SL_SHM_CTRL_MSG_HELLO, .bytes = link->memory.bytes};
    return sl_shm_ctrl_msg_send(conn, hello, link->memory.fd);
}

int sl_shm_handshake_connect(struct sl_shm_conn *conn)
{
    if (connect(conn->link.fd, (struct sockaddr *)&conn->address, conn->address_bytes) != 0) {
        const bool is_full = errno == EAGAIN || errno == EINTR;
        const bool is_refused = errno == ECONNREFUSED || errno == ENOENT;
        return is_full ? SL_ERR_AGAIN : is_refused ? SL_ERR_REFUSED : SL_ERR_IO;
    }
    int pid;
    if (!sl_unix_socket_is_ours(conn->link.fd, &pid)) {
        sl_transport_warn(&conn->shm->base,
                          "%s: not connected, since process %d, which listens there, is of another "
                          "user",
                          conn->base.peer, pid);
        return SL_ERR_REFUSED;
    }
    int err = send_segment(conn);
    err = err != 0 ? err : sl_shm_socket_watch(conn->shm, conn->link.fd, conn, false);
    return err == SL_ERR_CLOSED ? SL_ERR_REFUSED : err;
}

/* After a migration some sent frames may still be unread: until they are consumed, the whole arena
 * counts as used. */
void sl_shm_handshake_attach(struct sl_shm_conn *conn)
{
    struct sl_shm_link *link = &conn->link;
    struct sl_shm_receive *receive = &conn->receive;
    struct sl_shm_send *send = &conn->send;
    receive->slots = link->segment->rings[1 - link->side];
    receive->head = receive->consumed = receive->published = link->received;
    send->slots = link->segment->rings[link->side];
    send->arena = link->segment->arenas[link->side];
    send->number = conn->notified = link->sent;
    send->consumed = send->refs_due = link->acknowledged;
    memset(send->arena_ends, 0, sizeof send->arena_ends);
    if (send->consumed != send->number) {
        send->arena_top = SL_SHM_ARENA_BYTES;
        send->arena_ends[(send->number - 1) % SL_SHM_SLOTS] = send->arena_top;
    }
    conn->phase = SL_SHM_LIVE;
    conn->busy = conn->ready = true;
}

static void accept_hello(struct sl_shm_conn *conn, const struct sl_shm_ctrl_msg *msg, int fd)
{
    struct sl_shm_link *link = &conn->link;
    int err = sl_shared_attach(fd, msg->bytes, sizeof(struct sl_shm_segment), SL_SHARED_WRITE,
                               &link->memory);
    if (err == 0 && link->memory.bytes != sizeof(struct sl_shm_segment)) {
        sl_shared_detach(&link->memory);
        sl_shm_fail(conn, SL_ERR_PROTOCOL, "the memory that it sent has another size");
        return;
    }
    if (err != 0) {
        close(fd);
        sl_shm_fail(conn, err, "the memory that it sent cannot be used");
        return;
    }
    link->segment = (struct sl_shm_segment *)link->memory.base;
    err = sl_shm_ctrl_msg_send(conn, (struct sl_shm_ctrl_msg){.kind = SL_SHM_CTRL_MSG_ACCEPT}, -1);
    if (err != 0) {
        sl_shm_fail(conn, SL_ERR_CLOSED, NULL);
        return;
    }
    sl_shm_handshake_attach(conn);
    conn->accept_pending = false;
    sl_conn_report_accepted(&conn->base);
}

void sl_shm_handshake_take(struct sl_shm_conn *conn, const struct sl_shm_ctrl_msg *msg, int fd)
{
    if (conn->accept_pending && msg->kind == SL_SHM_CTRL_MSG_HELLO) {
        accept_hello(conn, msg, fd);
    } else if (!conn->accept_pending && msg->kind == SL_SHM_CTRL_MSG_ACCEPT) {
        sl_shm_handshake_attach(conn);
        sl_conn_report_connected(&conn->base);
    } else {
        if (fd >= 0) {
            close(fd);
        }
        sl_shm_fail(conn, SL_ERR_PROTOCOL, "its first message is no handshake");
    }
}
