#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/list.h"
#include "core/log.h"
#include "net/rdma/internal.h"

#define BACKLOG  1024
#define RETRY_NS SL_CLOCK_NS_PER_S /* after the removal of the listener's device */

struct sl_rdma_listener {
    struct sl_rdma *rdma;
    struct sl_rdma_listener *next;
    const struct sl_transport_events *events;
    void *ctx;
    struct rdma_cm_id *id; /* NULL: the device is gone */
    struct sl_timer timer;
    struct sl_endpoint bound;
};

/* Connect requests */

static void turn_away(struct sl_rdma *rdma, struct rdma_cm_id *id, const char *peer,
                      enum sl_rdma_reason reason, const char *why)
{
    if (sl_rdma_may_log(rdma)) {
        sl_log_warn("%s: refused: %s", peer, why);
    }
    sl_rdma_cm_reject(rdma, id, reason);
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

static void take(struct sl_rdma_listener *listener, const struct sl_rdma_cm_event *event,
                 const char *peer)
{
    struct sl_rdma *rdma = listener->rdma;
    struct sl_rdma_conn *conn = sl_rdma_conn_new(rdma, listener->events, listener->ctx);
    if (conn == NULL) {
        turn_away(rdma, event->id, peer, SL_RDMA_NO_MEMORY, "no memory for another connection");
        return;
    }
    snprintf(conn->base.peer, sizeof conn->base.peer, "%s", peer);
    conn->accept_pending = true;
    conn->base.accepted = true;
    conn->phase = SL_RDMA_ACCEPTING;
    conn->link.id = event->id;
    event->id->context = conn;
    int err = sl_rdma_conn_make_queue_pair(conn);
    if (err == 0) {
        sl_rdma_conn_take_hello(conn, &event->hello);
        err = sl_rdma_access_accept(conn);
    }
    if (err == SL_ERR_CLOSED) {
        sl_rdma_conn_end(conn, err);
        return;
    }
    if (err != 0) {
        sl_rdma_cm_refuse(rdma, event->id, sl_rdma_cm_reason(err));
        sl_rdma_conn_refuse(conn, "it could not be accepted", err);
        return;
    }
    sl_rdma_conn_set_timer(conn, sl_rdma_patience_ns(rdma));
}

void sl_rdma_listen_request(struct sl_rdma_listener *listener, const struct sl_rdma_cm_event *event)
{
    struct sl_rdma *rdma = listener->rdma;
    char peer[SL_LIMIT_ENDPOINT_BYTES];
    name_peer(event->id, peer, sizeof peer);
    event->id->context = NULL;
    if (!event->has_hello) {
        turn_away(rdma, event->id, peer, SL_RDMA_NO_REASON, "what it said is not ours");
    } else if (event->hello.version != SL_RDMA_VERSION) {
        turn_away(rdma, event->id, peer, SL_RDMA_NO_REASON, "it is of another version");
    } else if (!sl_rdma_hello_is_sane(&event->hello, event->hello.is_move != 0)) {
        turn_away(rdma, event->id, peer, SL_RDMA_NOT_SANE,
                  "it gives no credit, or more than anybody has");
    } else if (event->hello.is_move != 0) {
        if (!sl_rdma_move_arrived(rdma, event->id, &event->hello)) {
            turn_away(rdma, event->id, peer, SL_RDMA_NO_TICKET,
                      "nobody waits for the connection that it goes on with");
        }
    } else if (rdma->stats.connections >= rdma->connections_max) {
        turn_away(rdma, event->id, peer, SL_RDMA_FULL, "as many connections are open as may be");
    } else {
        take(listener, event, peer);
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

static int find_address(struct sl_rdma *rdma, const struct sl_endpoint *endpoint,
                        struct sockaddr_storage *out)
{
    char reason[256];
    socklen_t bytes;
    int err = sl_endpoint_resolve(endpoint, true, out, &bytes, reason, sizeof reason);
    if (err != 0) {
        sl_log_error("cannot listen on %s: %s", endpoint->host, reason);
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
    return 0;
}

/* Opens the NIC when listening: missing memory is an error of the listener, not of each later
 * connect request. */
static int open_nic(struct sl_rdma_listener *listener)
{
    struct sl_rdma_nic *nic;
    int err = listener->id->verbs != NULL
                  ? sl_rdma_nic_get(listener->rdma, listener->id->verbs, &nic)
                  : 0;
    if (err != 0) {
        (void)listener->rdma->library->destroy_id(listener->id);
        listener->id = NULL;
    }
    return err;
}

static void on_timer(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_rdma_listener *listener = SL_CONTAINER_OF(timer, struct sl_rdma_listener, timer);
    struct sl_rdma *rdma = listener->rdma;
    struct sockaddr_storage address;
    if (find_address(rdma, &listener->bound, &address) != 0 || open_id(listener, &address) != 0) {
        sl_timer_arm(sl_reactor_timers(rdma->base.reactor), timer, now_ns + RETRY_NS);
        return;
    }
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
    (void)rdma->library->destroy_id(listener->id);
    listener->id = NULL;
    sl_timer_arm(sl_reactor_timers(rdma->base.reactor), &listener->timer,
                 sl_reactor_now_ns(rdma->base.reactor) + RETRY_NS);
}

static const char *advice(int err)
{
    return err == SL_ERR_NOT_FOUND ? "; no RDMA device has that address: starling-ps doctor lists "
                                     "those that there are"
                                   : "";
}

int sl_rdma_listen(struct sl_transport *transport, const struct sl_endpoint *endpoint,
                   const struct sl_transport_events *events, void *ctx, struct sl_endpoint *bound)
{
    struct sl_rdma *rdma = (struct sl_rdma *)transport;
    struct sockaddr_storage address;
    int err = find_address(rdma, endpoint, &address);
    if (err != 0) {
        return err;
    }
    struct sl_rdma_listener *listener = malloc(sizeof *listener);
    if (listener == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    *listener = (struct sl_rdma_listener){.rdma = rdma,
                                          .next = rdma->listeners,
                                          .events = events,
                                          .ctx = ctx,
                                          .timer.run = on_timer,
                                          .bound = *endpoint};
    err = open_id(listener, &address);
    if (err == 0) {
        err = open_nic(listener);
    }
    if (err != 0) {
        char text[SL_LIMIT_ENDPOINT_BYTES];
        sl_endpoint_format(endpoint, text, sizeof text);
        sl_log_error("cannot listen on %s: %s%s", text, sl_err_name(err), advice(err));
        free(listener);
        return err;
    }
    listener->bound.port = ntohs(rdma->library->get_src_port(listener->id));
    rdma->listeners = listener;
    *bound = listener->bound;
    return 0;
}

void sl_rdma_listen_close(struct sl_rdma *rdma)
{
    while (rdma->listeners != NULL) {
        struct sl_rdma_listener *listener = rdma->listeners;
        rdma->listeners = listener->next;
        if (sl_timer_armed(&listener->timer)) {
            sl_timer_disarm(sl_reactor_timers(rdma->base.reactor), &listener->timer);
        }
        if (listener->id != NULL) {
            (void)rdma->library->destroy_id(listener->id);
        }
        free(listener);
    }
}
