#include "net/http/listener.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/err.h"

#define BACKLOG     1024
#define EVENTS      64
#define ACCEPTS     64 /* a run */
#define REFUSED_MAX 1024
#define REFUSED_NS  (2 * SL_CLOCK_NS_PER_S)

struct refused {
    struct sl_list_link link;
    int fd;
    uint64_t since_ns;
};

static int listener_watch(struct sl_http_listener *listener, int operation, int fd, uint32_t events,
                          void *key)
{
    struct epoll_event event = {.events = events, .data.ptr = key};
    return epoll_ctl(listener->epoll, operation, fd, &event) == 0 ? 0 : SL_ERR_IO;
}

/* ---- refused connections ---- */

static void end_refused(struct sl_http_listener *listener, struct refused *refused)
{
    sl_list_remove(&refused->link);
    listener->refused_count--;
    (void)close(refused->fd);
    free(refused);
}

static void refuse(struct sl_http_listener *listener, int fd, uint64_t now_ns)
{
    static const char reply[] = "HTTP/1.1 503 Service Unavailable\r\n"
                                "Content-Type: application/json\r\n"
                                "Connection: close\r\nRetry-After: 1\r\n\r\n"
                                "{\"error\":\"too many connections\"}";
    struct refused *refused = malloc(sizeof *refused);
    if (!listener->is_tls) {
        (void)send(fd, reply, sizeof reply - 1, MSG_NOSIGNAL);
    }
    (void)shutdown(fd, SHUT_WR);
    if (refused == NULL || listener->refused_count == REFUSED_MAX ||
        listener_watch(listener, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLRDHUP, refused) != 0) {
        free(refused);
        (void)close(fd);
        return;
    }
    *refused = (struct refused){.fd = fd, .since_ns = now_ns};
    sl_list_append(&listener->refused, &refused->link);
    listener->refused_count++;
}

/* Discards bytes; ends when the peer has. */
static void drain_refused(struct sl_http_listener *listener, struct refused *refused)
{
    char bytes[4096];
    const ssize_t got = recv(refused->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
        end_refused(listener, refused);
    }
}

void sl_http_listener_sweep(struct sl_http_listener *listener, uint64_t now_ns)
{
    SL_LIST_EACH (struct refused, refused, link, &listener->refused) {
        if (now_ns - refused->since_ns >= REFUSED_NS) {
            end_refused(listener, refused);
        }
    }
    if (listener->is_paused && listener->socket >= 0) {
        listener->is_paused = false;
        (void)listener_watch(listener, EPOLL_CTL_MOD, listener->socket, EPOLLIN, listener);
    }
}

/* ---- connections ---- */

static void accept_some(struct sl_http_listener *listener, sl_http_listener_take_fn *take,
                        void *ctx, uint64_t now_ns)
{
    struct sockaddr_storage address;
    for (uint32_t i = 0; i < ACCEPTS; i++) {
        socklen_t bytes = sizeof address;
        const int fd = accept4(listener->socket, (struct sockaddr *)&address, &bytes,
                               SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0 && !take(ctx, fd, &address, bytes)) {
            refuse(listener, fd, now_ns);
        } else if (fd < 0 && errno == EAGAIN) {
            return;
        } else if (fd < 0 &&
                   (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
            listener->is_paused = true;
            (void)listener_watch(listener, EPOLL_CTL_MOD, listener->socket, 0, listener);
            return;
        }
    }
}

void sl_http_listener_run(struct sl_http_listener *listener, sl_http_listener_take_fn *take,
                          void *ctx, uint64_t now_ns)
{
    struct epoll_event events[EVENTS];
    const int count = epoll_wait(listener->epoll, events, EVENTS, 0);
    for (int i = 0; i < count; i++) {
        if (events[i].data.ptr == listener) {
            accept_some(listener, take, ctx, now_ns);
        } else {
            drain_refused(listener, events[i].data.ptr);
        }
    }
}

/* ---- start and end ---- */

int sl_http_listener_open(struct sl_http_listener *listener, const struct sl_endpoint *endpoint,
                          const char *source, struct sl_reason *reason)
{
    const int one = 1;
    struct sockaddr_storage address;
    socklen_t bytes;
    struct sl_reason why;
    *listener = (struct sl_http_listener){.epoll = -1, .socket = -1};
    sl_list_init(&listener->refused);
    const int err = sl_endpoint_resolve(endpoint, true, &address, &bytes, &why);
    if (err != 0) {
        return sl_reason_fail(reason, err, "%s: %.1024s", source, why.text);
    }
    listener->socket = socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (listener->socket < 0 ||
        setsockopt(listener->socket, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0 ||
        bind(listener->socket, (const struct sockaddr *)&address, bytes) != 0 ||
        listen(listener->socket, BACKLOG) != 0 ||
        getsockname(listener->socket, (struct sockaddr *)&address, &bytes) != 0 ||
        sl_endpoint_from_sockaddr(&address, &listener->bound) != 0 ||
        (listener->epoll = epoll_create1(EPOLL_CLOEXEC)) < 0 ||
        listener_watch(listener, EPOLL_CTL_ADD, listener->socket, EPOLLIN, listener) != 0) {
        const int cause = errno;
        sl_http_listener_close(listener);
        return sl_reason_fail(reason, sl_err_from_errno(cause), "%s: %s", source, strerror(cause));
    }
    return 0;
}

void sl_http_listener_quiesce(struct sl_http_listener *listener)
{
    if (listener->socket >= 0) {
        (void)close(listener->socket);
        listener->socket = -1;
    }
}

void sl_http_listener_close(struct sl_http_listener *listener)
{
    SL_LIST_EACH (struct refused, refused, link, &listener->refused) {
        end_refused(listener, refused);
    }
    sl_http_listener_quiesce(listener);
    if (listener->epoll >= 0) {
        (void)close(listener->epoll);
        listener->epoll = -1;
    }
}
