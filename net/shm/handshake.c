/* Handshake: the connecting side creates the segment and sends it in HELLO; the other side attaches
 * it and answers ACCEPT. */
#include <errno.h>
#include <unistd.h>

#include "core/log.h"
#include "net/shm/internal.h"

#define RETRY_NS (2 * SL_CLOCK_NS_PER_MS)

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

static void go_on(struct sl_shm_conn *conn)
{
    int pid;
    if (!sl_shm_socket_is_ours(conn->link.fd, &pid)) {
        if (sl_shm_may_log(conn->shm)) {
            sl_log_warn("%s: not connected, since process %d, who listens there, is another user's",
                        conn->base.peer, pid);
        }
        sl_shm_conn_end(conn, SL_ERR_REFUSED);
        return;
    }
    conn->phase = SL_SHM_HANDSHAKE;
    int err = send_segment(conn);
    if (err == 0) {
        err = sl_shm_watch(conn->shm, conn->link.fd, conn, false);
    }
    if (err != 0) {
        sl_shm_conn_end(conn, err == SL_ERR_CLOSED ? SL_ERR_REFUSED : err);
    }
}

void sl_shm_handshake_connect(struct sl_shm_conn *conn)
{
    if (connect(conn->link.fd, (struct sockaddr *)&conn->address, conn->address_bytes) == 0) {
        go_on(conn);
    } else if (errno == EAGAIN || errno == EINTR) {
        struct sl_reactor *reactor = conn->shm->base.reactor;
        conn->phase = SL_SHM_RETRYING;
        sl_timer_arm(sl_reactor_timers(reactor), &conn->timer,
                     sl_reactor_now_ns(reactor) + RETRY_NS);
    } else {
        bool nobody = errno == ECONNREFUSED || errno == ENOENT;
        sl_shm_conn_end(conn, nobody ? SL_ERR_REFUSED : SL_ERR_IO);
    }
}

static void accept_hello(struct sl_shm_conn *conn, const struct sl_shm_ctrl_msg *msg, int fd)
{
    struct sl_shm_link *link = &conn->link;
    int err = sl_shared_attach(fd, msg->bytes, sizeof(struct sl_shm_segment), SL_SHARED_WRITE,
                               &link->memory);
    if (err == 0 && link->memory.bytes != sizeof(struct sl_shm_segment)) {
        sl_shared_detach(&link->memory);
        sl_shm_conn_refuse(conn, "the memory that it sent has another size", SL_ERR_PROTOCOL);
        return;
    }
    if (err != 0) {
        close(fd);
        sl_shm_conn_refuse(conn, "the memory that it sent cannot be used", err);
        return;
    }
    link->segment = (struct sl_shm_segment *)link->memory.base;
    err = sl_shm_ctrl_msg_send(conn, (struct sl_shm_ctrl_msg){.kind = SL_SHM_CTRL_MSG_ACCEPT}, -1);
    if (err != 0) {
        sl_shm_conn_end(conn, SL_ERR_CLOSED);
        return;
    }
    sl_shm_conn_attach(conn);
    conn->accept_pending = false;
    sl_conn_report_accepted(&conn->base);
}

void sl_shm_handshake_note(struct sl_shm_conn *conn, const struct sl_shm_ctrl_msg *msg, int fd)
{
    if (conn->accept_pending && msg->kind == SL_SHM_CTRL_MSG_HELLO) {
        accept_hello(conn, msg, fd);
    } else if (!conn->accept_pending && msg->kind == SL_SHM_CTRL_MSG_ACCEPT) {
        sl_shm_conn_attach(conn);
        sl_conn_report_connected(&conn->base);
    } else {
        if (fd >= 0) {
            close(fd);
        }
        sl_shm_conn_refuse(conn, "it said something else than hello", SL_ERR_PROTOCOL);
    }
}
