#include "objects/node/local.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "core/log.h"
#include "net/base/fd.h"
#include "net/base/unix_socket.h"
#include "objects/node/node.h"
#include "reactor/ring.h"

#define BACKLOG  1024
#define EVENTS   64                         /* of one turn */
#define RETRY_NS (100 * SL_CLOCK_NS_PER_MS) /* when the process is out of descriptors */

struct reader {
    struct sl_list_link link; /* of local->readers */
    struct sl_objects_local *local;
    struct sl_objects_session *session;
    int fd, pid;
    bool has_greeted;
};

struct sl_objects_local {
    struct sl_objects *node;
    int fd, epoll_fd;
    struct sl_ring_watch watch;
    struct sl_timer retry;
    struct sl_list readers;
    uint32_t reader_count;
    struct sl_log_limit log_limit; /* for lines about those that cannot read */
};

/* what NULL: the listening socket. */
static int watch(struct sl_objects_local *local, int fd, struct reader *what)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = what};
    return epoll_ctl(local->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : SL_ERR_NO_MEMORY;
}

static bool node_local_may_log(struct sl_objects_local *local)
{
    return sl_log_limit_allows(&local->log_limit, sl_reactor_now_ns(local->node->reactor));
}

/* Readers */

static void end_reader(struct reader *reader)
{
    sl_list_remove(&reader->link);
    reader->local->reader_count--;
    sl_objects_session_destroy(&reader->session);
    (void)close(reader->fd);
    free(reader);
}

/* A reader that does not take its answers, or has ended, is ended by the next event. */
static void node_local_answered(void *ctx, const struct sl_objects_session_answer *answer,
                                const int *fds)
{
    const struct reader *reader = ctx;
    if (sl_unix_socket_send(reader->fd, answer, sizeof *answer, fds, answer->fd_count) != 0) {
        (void)shutdown(reader->fd, SHUT_RDWR);
    }
}

static void receive(struct reader *reader)
{
    struct sl_objects_session_request request;
    uint32_t fd_count;
    int err = sl_unix_socket_receive(reader->fd, &request, sizeof request, NULL, 0, &fd_count);
    if (err == SL_ERR_AGAIN) {
        return;
    }
    if (err == 0 && !reader->has_greeted && request.kind != SL_OBJECTS_SESSION_HELLO) {
        err = SL_ERR_PROTOCOL;
    }
    if (err == 0) {
        reader->has_greeted = true;
        err = sl_objects_session_request(reader->session, &request);
    }
    if (err != 0) {
        if (err != SL_ERR_CLOSED) {
            sl_log_debug("objects: process %d has sent something else than a request; its session "
                         "ends",
                         reader->pid);
        }
        end_reader(reader);
    }
}

static void add_reader(struct sl_objects_local *local, int fd)
{
    struct reader *made = NULL;
    int pid;
    fd = sl_fd_lift(fd);
    if (fd < 0) {
        return;
    }
    const char *why = !sl_unix_socket_is_ours(fd, &pid)                 ? "it is another user's"
                      : local->reader_count >= SL_LIMIT_OBJECTS_READERS ? "there are too many"
                                                                        : NULL;
    if (why == NULL) {
        made = calloc(1, sizeof *made);
        why = made == NULL || sl_objects_session_create(local->node, pid, node_local_answered, made,
                                                        &made->session) != 0
                  ? "out of memory"
                  : NULL;
    }
    if (why != NULL) {
        if (node_local_may_log(local)) {
            sl_log_warn("objects: process %d cannot read here: %s", pid, why);
        }
        (void)close(fd);
        free(made);
        return;
    }
    made->local = local;
    made->fd = fd;
    made->pid = pid;
    local->reader_count++;
    sl_list_append(&local->readers, &made->link);
    if (watch(local, fd, made) != 0) {
        end_reader(made);
    }
}

/* Listening */

static void retry(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_objects_local *local = SL_CONTAINER_OF(timer, struct sl_objects_local, retry);
    if (watch(local, local->fd, NULL) != 0) {
        sl_reactor_arm(local->node->reactor, timer, RETRY_NS);
    }
}

static void accept_reader(struct sl_objects_local *local)
{
    const int fd = accept4(local->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
        add_reader(local, fd);
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        if (node_local_may_log(local)) {
            sl_log_warn("objects: cannot accept a reader: out of descriptors or memory; retrying");
        }
        (void)epoll_ctl(local->epoll_fd, EPOLL_CTL_DEL, local->fd, NULL);
        sl_reactor_arm(local->node->reactor, &local->retry, RETRY_NS);
    }
}

static void node_local_readable(struct sl_ring_watch *ring_watch)
{
    struct sl_objects_local *local = SL_CONTAINER_OF(ring_watch, struct sl_objects_local, watch);
    struct epoll_event events[EVENTS];
    const int count = epoll_wait(local->epoll_fd, events, EVENTS, 0);
    for (int i = 0; i < count; i++) {
        if (events[i].data.ptr == NULL) {
            accept_reader(local);
        } else {
            receive(events[i].data.ptr);
        }
    }
}

static int listen_at(struct sl_objects_local *local, const char *name)
{
    struct sockaddr_un address;
    const socklen_t bytes = sl_objects_local_address(name, &address);
    int err = sl_unix_socket_open(&local->fd);
    if (err != 0) {
        return err;
    }
    local->epoll_fd = sl_fd_lift(epoll_create1(EPOLL_CLOEXEC));
    if (bind(local->fd, (const struct sockaddr *)&address, bytes) != 0) {
        return errno == EADDRINUSE ? SL_ERR_IN_USE : SL_ERR_IO;
    }
    return listen(local->fd, BACKLOG) != 0 || local->epoll_fd < 0 ? SL_ERR_IO
                                                                  : watch(local, local->fd, NULL);
}

int sl_objects_local_open(struct sl_objects *node, const char *name)
{
    struct sl_ring *ring = sl_reactor_ring(node->reactor);
    struct sl_objects_local *made = ring != NULL ? calloc(1, sizeof *made) : NULL;
    if (made == NULL) {
        return ring != NULL ? SL_ERR_NO_MEMORY : SL_ERR_UNSUPPORTED;
    }
    made->node = node;
    made->fd = made->epoll_fd = -1;
    made->retry.run = retry;
    sl_list_init(&made->readers);
    node->local = made;
    const int err = listen_at(made, name);
    if (err != 0) {
        sl_objects_local_close(node);
        return err;
    }
    sl_ring_watch_level(ring, &made->watch, made->epoll_fd, node_local_readable);
    return 0;
}

void sl_objects_local_close(struct sl_objects *node)
{
    struct sl_objects_local *gone = node->local;
    node->local = NULL;
    if (gone == NULL) {
        return;
    }
    if (gone->watch.ring != NULL) {
        sl_ring_watch_end(&gone->watch);
    }
    SL_LIST_EACH (struct reader, reader, link, &gone->readers) {
        end_reader(reader);
    }
    sl_reactor_disarm(node->reactor, &gone->retry);
    (void)(gone->fd >= 0 && close(gone->fd));
    (void)(gone->epoll_fd >= 0 && close(gone->epoll_fd));
    free(gone);
}
