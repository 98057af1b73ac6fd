#include "net/http/observer.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/assert.h"
#include "core/clock.h"
#include "core/list.h"
#include "core/log.h"
#include "core/thread.h"
#include "net/http/daemon.h"
#include "net/http/http.h"
#include "reactor/mailbox.h"

#define THREAD      "observer"
#define EVENTS      64
#define ACCEPTS     64   /* a turn */
#define REFUSED_MAX 1024 /* connections beyond the limit, which have their reply */
#define REFUSED_NS  (2 * SL_CLOCK_NS_PER_S)
#define MAILS       256 /* a turn */

struct sl_observer {
    struct sl_observer_options options;
    struct sl_mailbox *mailbox;
    struct sl_mailbox_lane *end_lane; /* of the creating thread */
    pthread_t thread;
    bool is_running; /* the creating thread's */
    bool is_ending;

    int epoll;
    int listener;   /* -1: no HTTP */
    bool is_paused; /* the listener, until the next tick: no descriptor was left */
    struct sl_endpoint bound;
    struct sl_daemon *daemon; /* NULL: no HTTP */
    struct sl_list refused;   /* the oldest first */
    uint32_t refused_count;
};

/* A connection beyond the limit: its reply was sent, and it stays open until the peer has ended,
 * since closing it with unread bytes would reset it before the peer has read the reply. */
struct refused {
    struct sl_list_link link;
    int fd;
    uint64_t since_ns;
};

/* ---- connections beyond the limit ---- */

static int observer_watch(struct sl_observer *observer, int operation, int fd, uint32_t events,
                          void *key)
{
    struct epoll_event event = {.events = events, .data.ptr = key};
    return epoll_ctl(observer->epoll, operation, fd, &event) == 0 ? 0 : SL_ERR_IO;
}

static void end_refused(struct sl_observer *observer, struct refused *refused)
{
    sl_list_remove(&refused->link);
    observer->refused_count--;
    (void)close(refused->fd);
    free(refused);
}

static void refuse(struct sl_observer *observer, int fd, uint64_t now_ns)
{
    static const char reply[] = "HTTP/1.1 503 Service Unavailable\r\n"
                                "Content-Type: application/json\r\n"
                                "Connection: close\r\nRetry-After: 1\r\n\r\n"
                                "{\"error\":\"too many connections: 64 are accepted\"}";
    struct refused *refused = malloc(sizeof *refused);
    if (observer->options.listen->key == NULL) { /* else the peer does not expect plain text */
        (void)send(fd, reply, sizeof reply - 1, MSG_NOSIGNAL);
    }
    (void)shutdown(fd, SHUT_WR);
    if (refused == NULL || observer->refused_count == REFUSED_MAX ||
        observer_watch(observer, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLRDHUP, refused) != 0) {
        free(refused);
        (void)close(fd);
        return;
    }
    *refused = (struct refused){.fd = fd, .since_ns = now_ns};
    sl_list_append(&observer->refused, &refused->link);
    observer->refused_count++;
}

/* Discards bytes; ends when the peer has. */
static void drain_refused(struct sl_observer *observer, struct refused *refused)
{
    char bytes[4096];
    const ssize_t got = recv(refused->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
        end_refused(observer, refused);
    }
}

static void sweep_refused(struct sl_observer *observer, uint64_t now_ns)
{
    SL_LIST_FOREACH (link, &observer->refused) {
        struct refused *refused = SL_CONTAINER_OF(link, struct refused, link);
        if (now_ns - refused->since_ns >= REFUSED_NS) {
            end_refused(observer, refused);
        }
    }
}

/* ---- the loop ---- */

static void accept_some(struct sl_observer *observer, uint64_t now_ns)
{
    struct sockaddr_storage address;
    for (uint32_t i = 0; i < ACCEPTS; i++) {
        socklen_t bytes = sizeof address;
        const int fd = accept4(observer->listener, (struct sockaddr *)&address, &bytes,
                               SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0 && sl_daemon_connection_count(observer->daemon) < SL_OBSERVER_CONNECTIONS_MAX) {
            sl_daemon_add(observer->daemon, fd, &address, bytes);
        } else if (fd >= 0) {
            refuse(observer, fd, now_ns);
        } else if (errno == EAGAIN) {
            return;
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            observer->is_paused = true;
            (void)observer_watch(observer, EPOLL_CTL_MOD, observer->listener, 0,
                                 &observer->listener);
            return;
        }
    }
}

static void tick(struct sl_observer *observer, uint64_t now_ns)
{
    if (observer->daemon != NULL) {
        sl_daemon_sweep(observer->daemon, now_ns);
        sweep_refused(observer, now_ns);
    }
    if (observer->is_paused) {
        observer->is_paused = false;
        (void)observer_watch(observer, EPOLL_CTL_MOD, observer->listener, EPOLLIN,
                             &observer->listener);
    }
    if (observer->options.tick != NULL) {
        observer->options.tick(observer->options.ctx, now_ns);
    }
}

static void take_events(struct sl_observer *observer, const struct epoll_event *events, int count,
                        uint64_t now_ns)
{
    for (int i = 0; i < count; i++) {
        void *key = events[i].data.ptr;
        if (key == &observer->listener) {
            accept_some(observer, now_ns);
        } else if (key != &observer->daemon && key != &observer->mailbox) {
            drain_refused(observer, key);
        }
    }
}

static void *observer_run(void *arg)
{
    struct sl_observer *observer = arg;
    const struct sl_clock *clock = sl_clock_system();
    struct epoll_event events[EVENTS];
    uint64_t next_ns = 0;
    int daemon_ms = -1;
    while (!observer->is_ending) {
        uint64_t now_ns = sl_clock_now_ns(clock);
        if (now_ns >= next_ns) {
            tick(observer, now_ns);
            next_ns = now_ns + SL_OBSERVER_TICK_NS;
        }
        int ms = (int)((next_ns - now_ns) / SL_CLOCK_NS_PER_MS) + 1;
        ms = daemon_ms >= 0 && daemon_ms < ms ? daemon_ms : ms;
        ms = sl_mailbox_arm(observer->mailbox) ? ms : 0;
        const int count = epoll_wait(observer->epoll, events, EVENTS, ms);
        sl_mailbox_disarm(observer->mailbox);
        (void)sl_mailbox_drain(observer->mailbox, MAILS);
        now_ns = sl_clock_now_ns(clock);
        take_events(observer, events, count, now_ns);
        daemon_ms = observer->daemon != NULL ? sl_daemon_run(observer->daemon, now_ns) : -1;
    }
    return NULL;
}

static void on_end(void *ctx, uint64_t a, uint64_t b)
{
    ((struct sl_observer *)ctx)->is_ending = true;
}

/* ---- start and end ---- */

static int open_http(struct sl_observer *observer, struct sl_reason *reason)
{
    const struct sl_observer_listen *listen = observer->options.listen;
    struct sockaddr_storage address;
    socklen_t bytes = sizeof address;
    struct sl_reason why;
    observer->listener = sl_http_listen(&listen->endpoint, listen->source, &why);
    if (observer->listener < 0) {
        const int err = observer->listener;
        if (listen->is_default && err != SL_ERR_IN_USE) { /* a network without loopback */
            sl_log_warn("HTTP for operators is off: %s", why.text);
            observer->options.listen = NULL;
            return 0;
        }
        return sl_reason_fail(
            reason, err,
            "%.1024s; an address of this machine and a free port are accepted, "
            "port 0 for any, or off%s",
            why.text,
            err != SL_ERR_IN_USE
                ? ""
                : "; starling-launch gives the port of STARLING_HTTP to ps/0 alone");
    }
    if (getsockname(observer->listener, (struct sockaddr *)&address, &bytes) != 0 ||
        sl_endpoint_from_sockaddr(&address, &observer->bound) != 0) {
        return sl_reason_fail(reason, SL_ERR_IO, "%s: %s", listen->source, strerror(errno));
    }
    int err = sl_daemon_create(&observer->options, &observer->daemon, reason);
    if (err == 0 && (observer_watch(observer, EPOLL_CTL_ADD, observer->listener, EPOLLIN,
                                    &observer->listener) != 0 ||
                     observer_watch(observer, EPOLL_CTL_ADD, sl_daemon_fd(observer->daemon),
                                    EPOLLIN, &observer->daemon) != 0)) {
        err = sl_reason_fail(reason, SL_ERR_IO, "%s: %s", listen->source, strerror(errno));
    }
    return err;
}

static int open_mailbox(struct sl_observer *observer, struct sl_reason *reason)
{
    int err = sl_mailbox_create(&observer->mailbox);
    err = err != 0 ? err : sl_mailbox_lane_open(observer->mailbox, &observer->end_lane);
    if (err == 0 && (observer->epoll = epoll_create1(EPOLL_CLOEXEC)) < 0) {
        err = sl_err_from_errno(errno);
    }
    if (err == 0) {
        err = observer_watch(observer, EPOLL_CTL_ADD, sl_mailbox_fd(observer->mailbox), EPOLLIN,
                             &observer->mailbox);
    }
    return err == 0 ? 0
                    : sl_reason_fail(reason, err, "the observer cannot be created: %s",
                                     sl_err_name(err));
}

int sl_observer_create(const struct sl_observer_options *options, struct sl_observer **out,
                       struct sl_reason *reason)
{
    struct sl_observer *observer = calloc(1, sizeof *observer);
    if (observer == NULL) {
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "no memory for the observer");
    }
    observer->options = *options;
    observer->epoll = observer->listener = -1;
    sl_list_init(&observer->refused);
    int err = open_mailbox(observer, reason);
    if (err == 0 && options->listen != NULL) {
        err = open_http(observer, reason);
    }
    if (err != 0) {
        sl_observer_destroy(&observer);
        return err;
    }
    *out = observer;
    return 0;
}

int sl_observer_start(struct sl_observer *observer)
{
    sl_assert(!observer->is_running);
    const int failed = sl_thread_start(&observer->thread, THREAD, observer_run, observer);
    if (failed != 0) {
        sl_thread_log_failure(THREAD, failed);
    }
    observer->is_running = failed == 0;
    return failed == 0 ? 0 : SL_ERR_NO_MEMORY;
}

void sl_observer_stop(struct sl_observer *observer)
{
    if (observer->is_running) {
        const int err =
            sl_mailbox_post(observer->end_lane, (struct sl_mail){.run = on_end, .ctx = observer});
        sl_assert(err == 0); /* the only mail of this lane */
        (void)pthread_join(observer->thread, NULL);
        observer->is_running = false;
    }
    sl_daemon_destroy(&observer->daemon);
    SL_LIST_FOREACH (link, &observer->refused) {
        end_refused(observer, SL_CONTAINER_OF(link, struct refused, link));
    }
    if (observer->listener >= 0) {
        (void)close(observer->listener);
        observer->listener = -1;
    }
}

void sl_observer_destroy(struct sl_observer **to_destroy)
{
    struct sl_observer *observer = *to_destroy;
    if (observer == NULL) {
        return;
    }
    sl_observer_stop(observer);
    if (observer->epoll >= 0) {
        (void)close(observer->epoll);
    }
    if (observer->end_lane != NULL) {
        sl_mailbox_lane_close(&observer->end_lane);
    }
    if (observer->mailbox != NULL) {
        sl_mailbox_destroy(&observer->mailbox);
    }
    free(observer);
    *to_destroy = NULL;
}

void sl_observer_address(const struct sl_observer *observer, const char *any_host, char *text,
                         size_t bytes)
{
    char formatted[SL_LIMIT_ENDPOINT_BYTES] = "tcp://off";
    if (observer->options.listen != NULL) {
        struct sl_endpoint endpoint = observer->options.listen->endpoint;
        endpoint.port = observer->bound.port;
        if (any_host != NULL && sl_endpoint_is_any(&endpoint)) {
            (void)snprintf(endpoint.host, sizeof endpoint.host, "%s", any_host);
        }
        sl_endpoint_format(&endpoint, formatted, sizeof formatted);
    }
    (void)snprintf(text, bytes, "%s", formatted + strlen("tcp://"));
}

struct sl_mailbox *sl_observer_mailbox(struct sl_observer *observer)
{
    return observer->mailbox;
}
