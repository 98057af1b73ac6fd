#include "net/tcp/listen.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/reason.h"
#include "net/base/fd.h"
#include "net/tcp/conn.h"
#include "net/tcp/socket.h"

#define RETRY_NS (100 * SL_CLOCK_NS_PER_MS) /* when the process is out of descriptors */

struct sl_tcp_listener {
    struct sl_ring_op op;
    struct sl_tcp *tcp;
    struct sl_tcp_listener *next;
    const struct sl_transport_events *events;
    void *ctx;
    struct sl_timer timer;
    int fd;
    bool in_flight;
    bool multishot;
};

static void tcp_listen_arm(struct sl_tcp_listener *listener)
{
    struct io_uring_sqe *sqe = sl_ring_sqe(listener->tcp->ring, &listener->op);
    if (listener->multishot) {
        io_uring_prep_multishot_accept(sqe, listener->fd, NULL, NULL, SOCK_CLOEXEC);
    } else {
        io_uring_prep_accept(sqe, listener->fd, NULL, NULL, SOCK_CLOEXEC);
    }
    listener->in_flight = true;
    listener->tcp->ops_in_flight++;
}

static void tcp_listen_on_timer(struct sl_timer *timer, uint64_t now_ns)
{
    tcp_listen_arm(SL_CONTAINER_OF(timer, struct sl_tcp_listener, timer));
}

static void take(struct sl_tcp_listener *listener, int fd)
{
    struct sl_tcp *tcp = listener->tcp;
    struct sl_endpoint peer;
    fd = sl_fd_lift(fd);
    if (fd < 0) {
        return;
    }
    if (tcp->base.is_closing || sl_tcp_socket_name(fd, true, &peer) != 0) {
        close(fd); /* the peer is gone already */
        return;
    }
    char text[SL_LIMIT_ENDPOINT_BYTES];
    sl_endpoint_format(&peer, text, sizeof text);
    if (sl_transport_is_full(&tcp->base)) {
        sl_transport_warn(&tcp->base, "%s refused: %u connections are open, which is the limit",
                          text, tcp->base.connections_max);
        close(fd);
        return;
    }
    sl_tcp_socket_tune(tcp, fd);
    if (sl_tcp_conn_accept(tcp, fd, text, listener->events, listener->ctx) != 0) {
        sl_transport_warn(&tcp->base, "%s refused: no memory for another connection", text);
        close(fd);
    }
}

/* Accepts again at once; after a pause if resources are short, when the next accept would fail,
 * too. */
static void handle_error(struct sl_tcp_listener *listener, int error)
{
    struct sl_tcp *tcp = listener->tcp;
    if (error == EINVAL && listener->multishot) {
        listener->multishot = false;
        tcp_listen_arm(listener);
        return;
    }
    if (error != EMFILE && error != ENFILE && error != ENOBUFS && error != ENOMEM) {
        tcp_listen_arm(listener);
        return;
    }
    sl_transport_warn(&tcp->base, "tcp: cannot accept a connection: %s; retrying", strerror(error));
    sl_reactor_arm(tcp->base.reactor, &listener->timer, RETRY_NS);
}

static void on_accept(struct sl_ring_op *op, int32_t result, uint32_t cqe_flags)
{
    struct sl_tcp_listener *listener = (struct sl_tcp_listener *)op;
    if ((cqe_flags & IORING_CQE_F_MORE) == 0) {
        listener->in_flight = false;
        listener->tcp->ops_in_flight--;
    }
    if (result >= 0) {
        take(listener, result);
    }
    if (listener->in_flight || listener->tcp->base.is_closing) {
        return;
    }
    if (result < 0) {
        handle_error(listener, -result);
    } else {
        tcp_listen_arm(listener);
    }
}

/* Resolves, binds and listens; *bound is the bound endpoint. */
static int open_socket(struct sl_tcp *tcp, const struct sl_endpoint *endpoint,
                       struct sl_endpoint *bound, int *out_fd)
{
    struct sl_reason reason;
    char text[SL_LIMIT_ENDPOINT_BYTES];
    sl_endpoint_format(endpoint, text, sizeof text);
    struct sockaddr_storage address;
    socklen_t address_bytes;
    int err = sl_endpoint_resolve(endpoint, true, &address, &address_bytes, &reason);
    if (err != 0) {
        sl_log_error("cannot listen on %s: %s", text, reason.text);
        return err;
    }
    int fd;
    err = sl_tcp_socket_listen(tcp, &address, address_bytes, &fd);
    if (err != 0) {
        const int why = errno;
        sl_log_error("cannot listen on %s: %s", text,
                     err == SL_ERR_NOT_FOUND ? "this machine does not have that address"
                                             : strerror(why));
        return err;
    }
    err = sl_tcp_socket_name(fd, false, bound);
    if (err != 0) {
        close(fd);
        return err;
    }
    *out_fd = fd;
    return 0;
}

int sl_tcp_listen_open(struct sl_transport *transport, const struct sl_endpoint *endpoint,
                       const struct sl_transport_events *events, void *ctx,
                       struct sl_endpoint *bound)
{
    struct sl_tcp *tcp = (struct sl_tcp *)transport;
    struct sl_tcp_listener *listener = malloc(sizeof *listener);
    if (listener == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    int fd;
    int err = open_socket(tcp, endpoint, bound, &fd);
    if (err != 0) {
        free(listener);
        return err;
    }
    /* Kernels without multishot receive may lack multishot accept, too. */
    *listener = (struct sl_tcp_listener){.op.complete = on_accept,
                                         .tcp = tcp,
                                         .next = tcp->listeners,
                                         .events = events,
                                         .ctx = ctx,
                                         .timer.run = tcp_listen_on_timer,
                                         .fd = fd,
                                         .multishot = tcp->ring->multishot_recv};
    tcp->listeners = listener;
    tcp_listen_arm(listener);
    return 0;
}

void sl_tcp_listen_stop(struct sl_tcp *tcp)
{
    for (struct sl_tcp_listener *listener = tcp->listeners; listener != NULL;
         listener = listener->next) {
        sl_reactor_disarm(tcp->base.reactor, &listener->timer);
        if (listener->in_flight) {
            sl_ring_cancel(tcp->ring, &listener->op);
        }
    }
}

void sl_tcp_listen_free(struct sl_tcp *tcp)
{
    while (tcp->listeners != NULL) {
        struct sl_tcp_listener *listener = tcp->listeners;
        tcp->listeners = listener->next;
        close(listener->fd);
        free(listener);
    }
}
