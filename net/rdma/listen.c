#include "net/rdma/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/list.h"
#include "core/log.h"
#include "core/reason.h"
#include "net/rdma/access.h"
#include "net/rdma/address.h"
#include "net/rdma/conn.h"
#include "net/rdma/end.h"
#include "net/rdma/hello.h"

#define BACKLOG  1024
#define RETRY_NS SL_CLOCK_NS_PER_S /* after the removal of the listener's device */

/* The transports of a process may share an endpoint. The first to listen has the listener of
 * rdma_cm, and passes each connect request to the transport that the request names. */
struct sl_rdma_listener {
    struct sl_rdma *rdma;
    struct sl_rdma_listener *next;   /* of the transport */
    struct sl_rdma_listener *shared; /* the next in `all` */
    const struct sl_transport_events *events;
    void *ctx;
    bool is_first;             /* has the listener of rdma_cm */
    struct rdma_cm_id *id;     /* NULL: not the first, or the device is gone */
    struct ibv_context *verbs; /* of id; NULL: none, or of any device */
    struct sl_timer timer;
    struct sl_endpoint bound;
};

/* All listeners of the process. The lock protects the list, and `verbs`. A listener is removed by
 * its own thread. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sl_rdma_listener *all;

/* With the lock. */
static struct sl_rdma_listener *rdma_listen_find(const struct sl_endpoint *bound, uint32_t number)
{
    struct sl_rdma_listener *at = all;
    while (at != NULL &&
           (at->rdma->options.number != number || !sl_endpoint_same(&at->bound, bound))) {
        at = at->shared;
    }
    return at;
}

/* Connect requests */

static void rdma_listen_turn_away(struct sl_rdma *rdma, struct rdma_cm_id *id, const char *peer,
                                  enum sl_rdma_reason reason, const char *why)
{
    sl_transport_warn(&rdma->base, "%s: refused: %s", peer, why);
    sl_rdma_cm_reject(rdma->library, id, reason);
}

static void name_peer(struct rdma_cm_id *id, char *peer, size_t peer_bytes)
{
    struct sl_endpoint endpoint;
    if (sl_endpoint_from_sockaddr(&id->route.addr.dst_storage, &endpoint) != 0) {
        snprintf(peer, peer_bytes, "rdma://unknown:0");
        return;
    }
    endpoint.scheme = SL_ENDPOINT_RDMA;
    sl_endpoint_format(&endpoint, peer, peer_bytes);
}

/* Accepts the request, at the transport that shall own the connection. */
static void rdma_listen_take(const struct sl_rdma_listener *listener, struct rdma_cm_id *id,
                             const char *peer, const struct sl_rdma_hello *hello)
{
    struct sl_rdma *rdma = listener->rdma;
    if (sl_transport_is_full(&rdma->base)) {
        rdma_listen_turn_away(rdma, id, peer, SL_RDMA_FULL,
                              "as many connections are open as may be");
        return;
    }
    struct sl_rdma_conn *conn = sl_rdma_conn_new(rdma, listener->events, listener->ctx);
    if (conn == NULL) {
        rdma_listen_turn_away(rdma, id, peer, SL_RDMA_NO_MEMORY,
                              "no memory for another connection");
        return;
    }
    snprintf(conn->base.peer, sizeof conn->base.peer, "%s", peer);
    conn->accept_pending = true;
    conn->base.accepted = true;
    conn->phase = SL_RDMA_ACCEPTING;
    conn->link.id = id;
    id->context = conn;
    int err = sl_rdma_conn_make_queue_pair(conn);
    if (err == 0) {
        sl_rdma_hello_take(conn, hello);
        err = sl_rdma_access_accept(conn);
    }
    if (err == SL_ERR_CLOSED) {
        sl_rdma_conn_end(conn, err);
        return;
    }
    if (err != 0) {
        sl_rdma_cm_refuse(rdma->library, id, sl_rdma_cm_reason(err));
        sl_rdma_conn_refuse(conn, "it could not be accepted", err);
        return;
    }
    sl_rdma_conn_set_timer(conn, sl_transport_patience_ns(&rdma->base));
}

/* A request on its way to another transport. */
struct request {
    struct rdma_cm_id *id;
    struct sl_rdma_channel *from; /* event channel of id until it migrates */
    const struct sl_rdma_library *library;
    struct sl_rdma_hello hello;
    struct sl_endpoint bound;
    char peer[SL_LIMIT_ENDPOINT_BYTES];
};

/* The transport, or its reactor, has ended. */
static void reject(void *ctx)
{
    struct request *request = ctx;
    sl_rdma_cm_reject(request->library, request->id, SL_RDMA_NO_TARGET);
    sl_rdma_cm_let_go(&request->from);
    free(request);
}

/* On the thread of the transport. migrate_id returns when all events of the id that the first
 * transport has read are acknowledged; later ones come here. */
static void rdma_listen_arrive(void *ctx, uint64_t a, uint64_t b)
{
    struct request *request = ctx;
    pthread_mutex_lock(&lock);
    const struct sl_rdma_listener *listener =
        rdma_listen_find(&request->bound, request->hello.target);
    pthread_mutex_unlock(&lock);
    if (listener == NULL || request->library->migrate_id(request->id, listener->rdma->cm) != 0) {
        reject(request);
        return;
    }
    sl_rdma_cm_let_go(&request->from);
    rdma_listen_take(listener, request->id, request->peer, &request->hello);
    free(request);
}

static void pass_on(const struct sl_rdma_listener *first, uint32_t reactor,
                    const struct sl_rdma_cm_event *event, const char *peer)
{
    struct sl_rdma *rdma = first->rdma;
    struct request *request = malloc(sizeof *request);
    if (request == NULL) {
        rdma_listen_turn_away(rdma, event->id, peer, SL_RDMA_NO_MEMORY,
                              "no memory for another connection");
        return;
    }
    *request = (struct request){.id = event->id,
                                .from = sl_rdma_cm_keep(rdma),
                                .library = rdma->library,
                                .hello = event->hello,
                                .bound = first->bound};
    memcpy(request->peer, peer, sizeof request->peer);
    if (reactor == sl_reactor_index(rdma->base.reactor)) {
        rdma_listen_arrive(request, 0, 0);
    } else {
        sl_reactor_post(
            rdma->base.reactor, reactor,
            (struct sl_mail){.run = rdma_listen_arrive, .ctx = request, .drop = reject});
    }
}

/* To the transport that the request names. */
static void direct(struct sl_rdma_listener *first, const struct sl_rdma_cm_event *event,
                   const char *peer)
{
    pthread_mutex_lock(&lock);
    const struct sl_rdma_listener *listener = rdma_listen_find(&first->bound, event->hello.target);
    const uint32_t reactor = listener != NULL ? sl_reactor_index(listener->rdma->base.reactor) : 0;
    pthread_mutex_unlock(&lock);
    if (listener == NULL) {
        rdma_listen_turn_away(first->rdma, event->id, peer, SL_RDMA_NO_TARGET,
                              "it names a shard that this process does not have");
    } else if (listener == first) {
        rdma_listen_take(first, event->id, peer, &event->hello);
    } else {
        pass_on(first, reactor, event, peer);
    }
}

void sl_rdma_listen_request(struct sl_rdma_listener *listener, const struct sl_rdma_cm_event *event)
{
    struct sl_rdma *rdma = listener->rdma;
    char peer[SL_LIMIT_ENDPOINT_BYTES];
    name_peer(event->id, peer, sizeof peer);
    event->id->context = NULL;
    if (!event->has_hello) {
        rdma_listen_turn_away(rdma, event->id, peer, SL_RDMA_NO_REASON, "what it said is not ours");
    } else if (event->hello.version != SL_RDMA_VERSION) {
        rdma_listen_turn_away(
            rdma, event->id, peer, SL_RDMA_NO_REASON,
            "it is of another version: both ends must run releases that go together");
    } else if (!sl_rdma_hello_is_sane(&event->hello)) {
        rdma_listen_turn_away(rdma, event->id, peer, SL_RDMA_NOT_SANE,
                              "it gives no credit, or more than anybody has");
    } else {
        direct(listener, event, peer);
    }
}

/* Open and close */

static int err_of(int error)
{
    switch (error) {
    case EADDRINUSE:
        return SL_ERR_IN_USE;
    case EADDRNOTAVAIL:
    case ENODEV:
        return SL_ERR_NOT_FOUND;
    default:
        return sl_err_from_errno(error);
    }
}

static int rdma_listen_find_address(struct sl_rdma *rdma, const struct sl_endpoint *endpoint,
                                    struct sockaddr_storage *out)
{
    struct sl_reason reason;
    socklen_t bytes;
    int err = sl_endpoint_resolve(endpoint, true, out, &bytes, &reason);
    if (err != 0) {
        sl_log_error("cannot listen on %s: %s", endpoint->host, reason.text);
        return err;
    }
    if (!sl_rdma_address_is_any(out)) {
        return 0;
    }
    struct sockaddr_storage chosen;
    err = sl_rdma_address_choose(rdma, endpoint, out, &chosen);
    if (err == 0 && chosen.ss_family == AF_INET) {
        ((struct sockaddr_in *)&chosen)->sin_port = htons(endpoint->port);
        *out = chosen;
    } else if (err == 0 && chosen.ss_family == AF_INET6) {
        ((struct sockaddr_in6 *)&chosen)->sin6_port = htons(endpoint->port);
        *out = chosen;
    }
    return err;
}

static void set_verbs(struct sl_rdma_listener *listener, struct ibv_context *verbs)
{
    pthread_mutex_lock(&lock);
    listener->verbs = verbs;
    pthread_mutex_unlock(&lock);
}

/* Does not log. */
static int open_id(struct sl_rdma_listener *listener, struct sockaddr_storage *address)
{
    struct sl_rdma *rdma = listener->rdma;
    const struct sl_rdma_library *library = rdma->library;
    struct rdma_cm_id *id;
    void *tag = sl_rdma_cm_listener_tag(listener);
    if (library->create_id(rdma->cm, &id, tag, RDMA_PS_TCP) != 0) {
        return sl_err_from_errno(errno);
    }
    if (library->bind_addr(id, (struct sockaddr *)address) != 0 ||
        library->listen(id, BACKLOG) != 0) {
        int err = err_of(errno);
        (void)library->destroy_id(id);
        return err;
    }
    listener->id = id;
    set_verbs(listener, id->verbs);
    return 0;
}

static void close_id(struct sl_rdma_listener *listener)
{
    if (listener->id != NULL) {
        set_verbs(listener, NULL);
        (void)listener->rdma->library->destroy_id(listener->id);
        listener->id = NULL;
    }
}

/* Opens the NIC when listening: missing memory is an error of the listener, not of each later
 * connect request. */
static int rdma_listen_open_nic(const struct sl_rdma_listener *listener)
{
    struct sl_rdma_nic *nic;
    return listener->verbs != NULL ? sl_rdma_nic_get(listener->rdma, listener->verbs, &nic) : 0;
}

static void rdma_listen_on_timer(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_rdma_listener *listener = SL_CONTAINER_OF(timer, struct sl_rdma_listener, timer);
    struct sl_rdma *rdma = listener->rdma;
    struct sockaddr_storage address;
    if (rdma_listen_find_address(rdma, &listener->bound, &address) != 0 ||
        open_id(listener, &address) != 0) {
        sl_reactor_arm(rdma->base.reactor, timer, RETRY_NS);
        return;
    }
    (void)rdma_listen_open_nic(listener); /* regions have tokens before peers connect */
    sl_log_info("rdma: listening on %s:%u again", listener->bound.host, listener->bound.port);
}

void sl_rdma_listen_lost(struct sl_rdma_listener *listener)
{
    struct sl_rdma *rdma = listener->rdma;
    if (listener->id == NULL) {
        return;
    }
    sl_log_warn("rdma: the device of %s:%u was removed; listening again when there is one",
                listener->bound.host, listener->bound.port);
    sl_rdma_nic_remove(rdma, listener->id->verbs);
    close_id(listener);
    sl_reactor_arm(rdma->base.reactor, &listener->timer, RETRY_NS);
}

static const char *advice(int err)
{
    return err == SL_ERR_NOT_FOUND ? "; no RDMA device has that address: starling-ps doctor lists "
                                     "those that there are"
                                   : "";
}

/* Whether another transport of this process listens there already. Errors: IN_USE, if one with
 * this number does. */
static int join_first(struct sl_rdma_listener *listener, bool *joined)
{
    pthread_mutex_lock(&lock);
    const struct sl_rdma_listener *first = all;
    while (first != NULL &&
           (!first->is_first || !sl_endpoint_same(&first->bound, &listener->bound))) {
        first = first->shared;
    }
    const bool is_taken =
        rdma_listen_find(&listener->bound, listener->rdma->options.number) != NULL;
    *joined = first != NULL && listener->bound.port != 0;
    listener->verbs = *joined ? first->verbs : NULL;
    pthread_mutex_unlock(&lock);
    return *joined && is_taken ? SL_ERR_IN_USE : 0;
}

static int begin(struct sl_rdma_listener *listener)
{
    struct sl_rdma *rdma = listener->rdma;
    struct sockaddr_storage address;
    bool joined;
    int err = join_first(listener, &joined);
    if (err == 0 && !joined) {
        err = rdma_listen_find_address(rdma, &listener->bound, &address);
        if (err != 0) {
            return err; /* logged */
        }
        err = open_id(listener, &address);
        listener->is_first = true;
    }
    if (err == 0) {
        err = rdma_listen_open_nic(listener);
    }
    if (err != 0) {
        char text[SL_LIMIT_ENDPOINT_BYTES];
        sl_endpoint_format(&listener->bound, text, sizeof text);
        sl_log_error("cannot listen on %s: %s%s", text, sl_err_name(err), advice(err));
        close_id(listener);
    } else if (!joined) {
        listener->bound.port = ntohs(rdma->library->get_src_port(listener->id));
    }
    return err;
}

int sl_rdma_listen(struct sl_transport *transport, const struct sl_endpoint *endpoint,
                   const struct sl_transport_events *events, void *ctx, struct sl_endpoint *bound)
{
    struct sl_rdma *rdma = (struct sl_rdma *)transport;
    struct sl_rdma_listener *listener = malloc(sizeof *listener);
    if (listener == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    *listener = (struct sl_rdma_listener){.rdma = rdma,
                                          .next = rdma->listeners,
                                          .events = events,
                                          .ctx = ctx,
                                          .timer.run = rdma_listen_on_timer,
                                          .bound = *endpoint};
    int err = begin(listener);
    if (err != 0) {
        free(listener);
        return err;
    }
    rdma->listeners = listener;
    pthread_mutex_lock(&lock);
    listener->shared = all;
    all = listener;
    pthread_mutex_unlock(&lock);
    *bound = listener->bound;
    return 0;
}

static void leave_all(const struct sl_rdma_listener *listener)
{
    pthread_mutex_lock(&lock);
    struct sl_rdma_listener **at = &all;
    while (*at != listener) {
        at = &(*at)->shared;
    }
    *at = listener->shared;
    pthread_mutex_unlock(&lock);
}

void sl_rdma_listen_close(struct sl_rdma *rdma)
{
    while (rdma->listeners != NULL) {
        struct sl_rdma_listener *listener = rdma->listeners;
        rdma->listeners = listener->next;
        sl_reactor_disarm(rdma->base.reactor, &listener->timer);
        leave_all(listener);
        close_id(listener);
        free(listener);
    }
}
