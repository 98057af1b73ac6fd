#include "net/shm/listen.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "net/base/fd.h"
#include "net/shm/conn.h"
#include "net/shm/socket.h"

#define BACKLOG        1024
#define ACCEPTS_A_TURN 64
#define RETRY_NS       (100 * SL_CLOCK_NS_PER_MS) /* when the process is out of descriptors */
#define PORT_FIRST     32768U                     /* of ports chosen for port 0 */
#define PORT_COUNT     (65536U - PORT_FIRST)

struct sl_shm_listener {
    struct sl_shm *shm;
    struct sl_shm_listener *next;
    const struct sl_transport_events *events;
    void *ctx;
    struct sl_timer timer;
    int fd;
};

static void shm_listen_on_timer(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_shm_listener *listener = SL_CONTAINER_OF(timer, struct sl_shm_listener, timer);
    if (sl_shm_socket_watch(listener->shm, listener->fd, listener, true) != 0) {
        sl_reactor_arm(listener->shm->base.reactor, timer, RETRY_NS);
    }
}

/* Stops accepting for a while if resources are short. */
static void handle_error(struct sl_shm_listener *listener, int error)
{
    struct sl_shm *shm = listener->shm;
    if (error != EMFILE && error != ENFILE && error != ENOBUFS && error != ENOMEM) {
        return;
    }
    sl_transport_warn(&shm->base, "shm: cannot accept a connection: %s; retrying", strerror(error));
    sl_shm_socket_unwatch(shm, listener->fd);
    sl_reactor_arm(shm->base.reactor, &listener->timer, RETRY_NS);
}

static void turn_away(struct sl_shm *shm, int fd, int pid, const char *why)
{
    sl_transport_warn(&shm->base, "shm: process %d refused: %s", pid, why);
    close(fd);
}

static void take(struct sl_shm_listener *listener, int fd)
{
    struct sl_shm *shm = listener->shm;
    int pid;
    fd = sl_fd_lift(fd);
    if (fd < 0) {
        return;
    }
    if (!sl_unix_socket_is_ours(fd, &pid)) {
        turn_away(shm, fd, pid, "it is another user's");
        return;
    }
    if (sl_transport_is_full(&shm->base)) {
        turn_away(shm, fd, pid, "as many connections are open as may be");
        return;
    }
    struct sl_shm_conn *conn = sl_shm_conn_create(shm, fd, 1, listener->events, listener->ctx);
    if (conn == NULL) {
        turn_away(shm, fd, pid, "no memory for another connection");
        return;
    }
    conn->accept_pending = true;
    snprintf(conn->base.peer, sizeof conn->base.peer, "shm://process-%d", pid);
}

void sl_shm_listen_accept(struct sl_shm_listener *listener)
{
    for (uint32_t i = 0; i < ACCEPTS_A_TURN; i++) {
        int fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            handle_error(listener, errno);
            return;
        }
        take(listener, fd);
    }
}

/* Binds to the first free port after a random one. */
static int bind_any(struct sl_shm *shm, int fd, struct sl_endpoint *endpoint)
{
    uint32_t start = (uint32_t)sl_reactor_random(shm->base.reactor);
    for (uint32_t i = 0; i < PORT_COUNT; i++) {
        struct sockaddr_un address;
        socklen_t bytes;
        endpoint->port = (uint16_t)(PORT_FIRST + (start + i) % PORT_COUNT);
        sl_shm_socket_address(endpoint, &address, &bytes);
        if (bind(fd, (struct sockaddr *)&address, bytes) == 0) {
            return 0;
        }
        if (errno != EADDRINUSE) {
            return errno;
        }
    }
    return EADDRINUSE;
}

static int bind_one(int fd, const struct sl_endpoint *endpoint)
{
    struct sockaddr_un address;
    socklen_t bytes;
    sl_shm_socket_address(endpoint, &address, &bytes);
    return bind(fd, (struct sockaddr *)&address, bytes) == 0 ? 0 : errno;
}

static int open_socket(struct sl_shm *shm, struct sl_endpoint *endpoint, int *out_fd)
{
    int fd;
    int err = sl_unix_socket_open(&fd);
    if (err != 0) {
        return err;
    }
    int error = endpoint->port == 0 ? bind_any(shm, fd, endpoint) : bind_one(fd, endpoint);
    if (error == 0 && listen(fd, BACKLOG) != 0) {
        error = errno;
    }
    if (error != 0) {
        close(fd);
        return error == EADDRINUSE ? SL_ERR_IN_USE : SL_ERR_IO;
    }
    *out_fd = fd;
    return 0;
}

int sl_shm_listen_open(struct sl_transport *transport, const struct sl_endpoint *endpoint,
                       const struct sl_transport_events *events, void *ctx,
                       struct sl_endpoint *bound)
{
    struct sl_shm *shm = (struct sl_shm *)transport;
    struct sl_shm_listener *listener = malloc(sizeof *listener);
    if (listener == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    struct sl_endpoint chosen = *endpoint;
    int fd;
    int err = open_socket(shm, &chosen, &fd);
    if (err != 0) {
        char text[SL_LIMIT_ENDPOINT_BYTES];
        sl_endpoint_format(endpoint, text, sizeof text);
        sl_log_error("cannot listen on %s: %s", text, sl_err_name(err));
        free(listener);
        return err;
    }
    *listener = (struct sl_shm_listener){.shm = shm,
                                         .next = shm->listeners,
                                         .events = events,
                                         .ctx = ctx,
                                         .timer.run = shm_listen_on_timer,
                                         .fd = fd};
    if (sl_shm_socket_watch(shm, fd, listener, true) != 0) {
        close(fd);
        free(listener);
        return SL_ERR_NO_MEMORY;
    }
    shm->listeners = listener;
    *bound = chosen;
    return 0;
}

void sl_shm_listen_close(struct sl_shm *shm)
{
    while (shm->listeners != NULL) {
        struct sl_shm_listener *listener = shm->listeners;
        shm->listeners = listener->next;
        sl_reactor_disarm(shm->base.reactor, &listener->timer);
        close(listener->fd);
        free(listener);
    }
}
