#include "net/rdma/connect.h"

#include <errno.h>

#include "core/reason.h"
#include "net/rdma/address.h"
#include "net/rdma/conn.h"
#include "net/rdma/end.h"
#include "net/rdma/hello.h"

#define BUSY_STATUS                                                                                \
    28 /* status of REJECTED: "consumer defined"; the kernel also uses it for a full backlog */
#define BUSY_RETRY_NS (5 * SL_CLOCK_NS_PER_MS)
#define BUSY_RETRIES  10U /* the pause doubles each time */
#define RETRIES       7U  /* retransmissions by the device */
#define ACK_NS_SHIFT  12U /* the device's timeout is 4.096 us times a power of two */
#define ACK_SHIFT_MAX 31U

static int rdma_connect_err_of(int error)
{
    switch (error) {
    case ECONNREFUSED:
        return SL_ERR_REFUSED;
    case ETIMEDOUT:
        return SL_ERR_DEADLINE;
    case ENODEV:
    case ENETUNREACH:
    case EHOSTUNREACH:
    case EADDRNOTAVAIL:
        return SL_ERR_NOT_FOUND;
    default:
        return sl_err_from_errno(error);
    }
}

/* Connecting */

/* All retransmissions together take no longer than the peer timeout. */
static void set_ack_timeout(struct sl_rdma_conn *conn)
{
    uint64_t each_ns = sl_transport_patience_ns(&conn->rdma->base) / (RETRIES + 1);
    uint8_t shift = 1;
    while (shift < ACK_SHIFT_MAX && (1ULL << (shift + 1 + ACK_NS_SHIFT)) <= each_ns) {
        shift++;
    }
    (void)conn->rdma->library->set_option(conn->link.id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT,
                                          &shift, sizeof shift);
}

static int rdma_connect_resolve(struct sl_rdma_conn *conn, struct sockaddr_storage *to)
{
    struct sl_reason reason;
    socklen_t bytes;
    int err = sl_endpoint_resolve(&conn->connect.endpoint, false, to, &bytes, &reason);
    if (err != 0) {
        sl_transport_warn(&conn->rdma->base, "cannot connect to %s: %s",
                          conn->connect.endpoint.host, reason.text);
    }
    return err;
}

/* RESOLVING. Ends the connection on an error. */
static void rdma_connect_begin(struct sl_rdma_conn *conn)
{
    struct sl_rdma *rdma = conn->rdma;
    const struct sl_rdma_library *library = rdma->library;
    struct sockaddr_storage to;
    int err = rdma_connect_resolve(conn, &to);
    if (err != 0) {
        sl_rdma_conn_end(conn, err);
        return;
    }
    if (library->create_id(rdma->cm, &conn->link.id, conn, RDMA_PS_TCP) != 0) {
        conn->link.id = NULL;
        sl_rdma_conn_end(conn, sl_err_from_errno(errno));
        return;
    }
    set_ack_timeout(conn);
    bool bound = conn->connect.local.ss_family != AF_UNSPEC;
    if (library->resolve_addr(conn->link.id, bound ? (struct sockaddr *)&conn->connect.local : NULL,
                              (struct sockaddr *)&to, (int)rdma->base.peer_timeout_ms) != 0) {
        sl_rdma_conn_end(conn, rdma_connect_err_of(errno));
    }
}

int sl_rdma_connect(struct sl_transport *transport, const struct sl_endpoint *endpoint,
                    uint32_t target, const struct sl_transport_events *events, void *ctx,
                    struct sl_conn **out)
{
    struct sl_rdma *rdma = (struct sl_rdma *)transport;
    struct sl_rdma_conn *conn = sl_rdma_conn_new(rdma, events, ctx);
    if (conn == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    sl_endpoint_format(endpoint, conn->base.peer, sizeof conn->base.peer);
    conn->connect.endpoint = *endpoint;
    conn->connect.target = target;
    *out = &conn->base;
    struct sockaddr_storage to;
    int err = rdma_connect_resolve(conn, &to);
    if (err == 0) {
        err = sl_rdma_address_choose(rdma, endpoint, &to, &conn->connect.local);
    }
    if (err != 0) {
        sl_rdma_conn_end(conn, err);
        return 0;
    }
    sl_rdma_conn_set_timer(conn, sl_transport_patience_ns(&rdma->base));
    rdma_connect_begin(conn);
    return 0;
}

bool sl_rdma_connect_visit(struct sl_rdma_conn *conn)
{
    const bool is_due = conn->link.id == NULL && !sl_timer_armed(&conn->timer);
    if (is_due) {
        sl_rdma_conn_set_timer(conn, sl_transport_patience_ns(&conn->rdma->base));
        rdma_connect_begin(conn);
    }
    return is_due;
}

/* Events of rdma_cm */

static void resolved(struct sl_rdma_conn *conn)
{
    const struct sl_rdma *rdma = conn->rdma;
    if (rdma->library->resolve_route(conn->link.id, (int)rdma->base.peer_timeout_ms) != 0) {
        sl_rdma_conn_end(conn, rdma_connect_err_of(errno));
    }
}

static void routed(struct sl_rdma_conn *conn)
{
    int err = sl_rdma_conn_make_queue_pair(conn);
    if (err != 0) {
        sl_rdma_conn_end(conn, err);
        return;
    }
    struct sl_rdma_hello hello;
    struct rdma_conn_param param = sl_rdma_hello_param(conn, &hello);
    if (conn->rdma->library->connect(conn->link.id, &param) != 0) {
        sl_rdma_conn_end(conn, rdma_connect_err_of(errno));
    }
}

static void established(struct sl_rdma_conn *conn, const struct sl_rdma_cm_event *event)
{
    if (!event->has_hello || event->hello.version != SL_RDMA_VERSION) {
        sl_rdma_conn_refuse(conn, "what it answered is not ours",
                            event->has_hello ? SL_ERR_VERSION : SL_ERR_PROTOCOL);
        return;
    }
    if (!sl_rdma_hello_is_sane(&event->hello)) {
        sl_rdma_conn_refuse(conn, "it gives no credit, or more than anybody has", SL_ERR_PROTOCOL);
        return;
    }
    sl_rdma_hello_take(conn, &event->hello);
    sl_rdma_conn_established(conn);
}

static void say_why(struct sl_rdma_conn *conn, uint32_t reason)
{
    static const char *const words[] = {
        [SL_RDMA_FULL] = "as many connections are open there as may be",
        [SL_RDMA_DEVICE_FULL] = "the queues of its device have no room for another connection",
        [SL_RDMA_NO_MEMORY] = "it has no memory for another connection",
        [SL_RDMA_NO_TARGET] = "it has no such shard: both ends must be of one release",
        [SL_RDMA_NOT_SANE] = "it takes no such credit"};
    const char *why = reason < sizeof words / sizeof words[0] ? words[reason] : NULL;
    sl_transport_warn(&conn->rdma->base, "%s: refused the connection: %s", conn->base.peer,
                      why != NULL ? why : "it did not say why");
}

/* A rejection without private data comes from the kernel: the listener's backlog was full. */
static void rejected(struct sl_rdma_conn *conn, const struct sl_rdma_cm_event *event)
{
    bool busy = !event->has_hello && event->status == BUSY_STATUS;
    if (busy && conn->connect.attempts < BUSY_RETRIES) {
        sl_rdma_conn_drop_link(conn);
        sl_rdma_conn_set_timer(conn, BUSY_RETRY_NS << conn->connect.attempts);
        conn->connect.attempts++;
        return;
    }
    if (event->has_hello && event->hello.version != SL_RDMA_VERSION) {
        sl_rdma_conn_refuse(conn, "it is of another version", SL_ERR_VERSION);
        return;
    }
    if (event->has_hello) {
        say_why(conn, event->hello.limit);
    }
    sl_rdma_conn_end(conn, SL_ERR_REFUSED);
}

/* The accepting side may end the connection before it gets ESTABLISHED: the kernel then reports
 * REJECTED. It also gets an error event if the connecting side gives up first. */
static void after(struct sl_rdma_conn *conn, const struct sl_rdma_cm_event *event)
{
    if (event->type == RDMA_CM_EVENT_REJECTED) {
        sl_rdma_conn_disconnected(conn);
    } else if (event->type == RDMA_CM_EVENT_CONNECT_ERROR ||
               event->type == RDMA_CM_EVENT_UNREACHABLE) {
        sl_rdma_conn_end(conn, SL_ERR_DEADLINE);
    }
}

void sl_rdma_connect_event(struct sl_rdma_conn *conn, const struct sl_rdma_cm_event *event)
{
    if (conn->phase != SL_RDMA_RESOLVING) {
        after(conn, event);
        return;
    }
    switch (event->type) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
        resolved(conn);
        return;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
        routed(conn);
        return;
    case RDMA_CM_EVENT_ESTABLISHED:
        established(conn, event);
        return;
    case RDMA_CM_EVENT_REJECTED:
        rejected(conn, event);
        return;
    case RDMA_CM_EVENT_UNREACHABLE:
        sl_rdma_conn_end(conn, SL_ERR_DEADLINE);
        return;
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
    case RDMA_CM_EVENT_CONNECT_ERROR:
        sl_rdma_conn_end(conn, rdma_connect_err_of(-event->status));
        return;
    default:
        return;
    }
}
