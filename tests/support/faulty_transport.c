#include "tests/support/faulty_transport.h"

#include <stdlib.h>

#include "core/assert.h"
#include "core/hash.h"
#include "core/list.h"

#define TURNS_MAX 32U
#define QUEUE     SL_LIMIT_TRANSFER_SLICES /* operations that wait; a power of two */
#define SHARES    1000U

struct op {
    struct sl_transport_rma_op op;
    struct sl_transport_rma_token token;
};

struct faulty_conn {
    struct sl_list_link link;          /* of `conns` */
    struct sl_transport_events events; /* those of `above`, but for `closed` */
    const struct sl_transport_events *above;
    struct sl_faulty_transport *faulty;
    struct sl_conn *base;
    uint64_t random;
    uint32_t late_turns, cut_turns; /* until it is over; 0: none */
    bool is_short;                  /* send_burst took fewer: `writable` is due */
    bool is_disconnected;           /* by the layer above */
    uint32_t head, tail;            /* of ops */
    struct op ops[QUEUE];
};

struct listener {
    struct sl_list_link link;          /* of `listeners` */
    struct sl_transport_events events; /* those of `above`, but for `accepted` */
    const struct sl_transport_events *above;
    struct sl_transport *transport;
};

/* Of all transports of a thread. */
static _Thread_local struct sl_list conns, listeners;

static struct sl_list *list_of(struct sl_list *list)
{
    if (list->head.next == NULL) {
        sl_list_init(list);
    }
    return list;
}

static struct sl_faulty_transport *faulty_of(const struct sl_transport *transport)
{
    return SL_CONTAINER_OF(transport->ops, struct sl_faulty_transport, ops);
}

static struct faulty_conn *conn_of(const struct sl_conn *base)
{
    return SL_CONTAINER_OF(base->events, struct faulty_conn, events);
}

static uint32_t below(struct faulty_conn *conn, uint32_t bound)
{
    return (uint32_t)(sl_hash_random(&conn->random) % bound);
}

static bool befalls(struct faulty_conn *conn, uint32_t share)
{
    return share > 0 && below(conn, SHARES) < share;
}

/* Faults */

static bool becomes_late(struct faulty_conn *conn)
{
    if (conn->late_turns == 0 && befalls(conn, conn->faulty->faults.late)) {
        conn->late_turns = 1 + below(conn, TURNS_MAX);
        conn->faulty->late_count++;
        return true;
    }
    return false;
}

static void cut_by_chance(struct faulty_conn *conn, uint32_t count)
{
    for (uint32_t i = 0; i < count && conn->cut_turns == 0; i++) {
        if (befalls(conn, conn->faulty->faults.cut)) {
            conn->cut_turns = 1 + below(conn, TURNS_MAX);
        }
    }
}

static void post_waiting(struct faulty_conn *conn)
{
    const struct sl_transport_rma_ops *inner = conn->faulty->inner->rma;
    while (conn->late_turns == 0 && conn->head != conn->tail && conn->base->state == SL_CONN_OPEN) {
        struct op *op = &conn->ops[conn->head % QUEUE];
        op->op.token = &op->token;
        if (inner->post(conn->base, &op->op, 1) == 0) {
            return; /* until a `completed` */
        }
        conn->head++;
    }
}

/* Once a turn. */
static uint32_t advance(struct faulty_conn *conn)
{
    struct sl_conn *base = conn->base;
    uint32_t work = 0;
    conn->late_turns -= conn->late_turns > 0 ? 1 : 0;
    if (conn->cut_turns > 0 && --conn->cut_turns == 0 && base->state == SL_CONN_OPEN) {
        conn->faulty->cut_count++;
        base->is_abrupt = true;
        conn->faulty->inner->disconnect(base);
        work++;
    }
    post_waiting(conn);
    if (conn->late_turns == 0 && conn->is_short && base->state == SL_CONN_OPEN) {
        conn->is_short = false;
        sl_conn_report_writable(base);
        work++;
    }
    return work;
}

/* Connections */

static void on_closed(void *ctx, struct sl_conn *base, int err)
{
    struct faulty_conn *conn = conn_of(base);
    const int reported = err == 0 && !conn->is_disconnected ? SL_ERR_IO : err;
    base->events = conn->above;
    sl_list_remove(&conn->link);
    free(conn);
    base->events->closed(ctx, base, reported);
}

static struct faulty_conn *conn_create(struct sl_faulty_transport *faulty,
                                       const struct sl_transport_events *above)
{
    struct faulty_conn *conn = calloc(1, sizeof *conn);
    sl_assert(conn != NULL);
    conn->events = *above;
    conn->events.closed = on_closed;
    conn->above = above;
    conn->faulty = faulty;
    conn->random = sl_hash_key(faulty->faults.seed + faulty->conn_count++);
    return conn;
}

static void conn_link(struct faulty_conn *conn, struct sl_conn *base)
{
    conn->base = base;
    base->events = &conn->events;
    sl_list_append(list_of(&conns), &conn->link);
}

static void on_accepted(void *ctx, struct sl_conn *base)
{
    const struct listener *listener = SL_CONTAINER_OF(base->events, struct listener, events);
    conn_link(conn_create(faulty_of(base->transport), listener->above), base);
    listener->above->accepted(ctx, base);
}

static int faulty_listen(struct sl_transport *transport, const struct sl_endpoint *endpoint,
                         const struct sl_transport_events *events, void *ctx,
                         struct sl_endpoint *bound)
{
    struct listener *listener = calloc(1, sizeof *listener);
    sl_assert(listener != NULL);
    listener->events = *events;
    listener->events.accepted = on_accepted;
    listener->above = events;
    listener->transport = transport;
    sl_list_append(list_of(&listeners), &listener->link); /* until the transport closes */
    return faulty_of(transport)->inner->listen(transport, endpoint, &listener->events, ctx, bound);
}

static int faulty_connect(struct sl_transport *transport, const struct sl_endpoint *endpoint,
                          uint32_t target, const struct sl_transport_events *events, void *ctx,
                          struct sl_conn **out)
{
    struct sl_faulty_transport *faulty = faulty_of(transport);
    struct faulty_conn *conn = conn_create(faulty, events);
    const int err = faulty->inner->connect(transport, endpoint, target, &conn->events, ctx, out);
    if (err != 0) {
        free(conn);
        return err;
    }
    conn_link(conn, *out);
    return 0;
}

static void faulty_disconnect(struct sl_conn *base)
{
    struct faulty_conn *conn = conn_of(base);
    conn->is_disconnected = true;
    conn->faulty->inner->disconnect(base);
}

static uint32_t faulty_send_burst(struct sl_conn *base, const struct sl_transport_frame *frames,
                                  uint32_t count)
{
    struct faulty_conn *conn = conn_of(base);
    uint32_t most = conn->late_turns > 0 ? 0 : count;
    if (most > 0 && becomes_late(conn)) {
        most = below(conn, count);
    }
    conn->is_short = conn->is_short || most < count;
    cut_by_chance(conn, most);
    return most > 0 ? conn->faulty->inner->send_burst(base, frames, most) : 0;
}

static uint32_t faulty_post(struct sl_conn *base, const struct sl_transport_rma_op *ops,
                            uint32_t count)
{
    struct faulty_conn *conn = conn_of(base);
    uint32_t taken = 0;
    for (; taken < count && conn->tail - conn->head < QUEUE; taken++) {
        struct op *op = &conn->ops[conn->tail++ % QUEUE];
        *op = (struct op){.op = ops[taken], .token = *ops[taken].token};
        if (befalls(conn, conn->faulty->faults.fail)) {
            op->token.bytes = 0;
            conn->faulty->failed_count++;
        }
    }
    (void)becomes_late(conn);
    cut_by_chance(conn, taken);
    post_waiting(conn);
    return taken;
}

/* Transports */

static void faulty_close(struct sl_transport **transport)
{
    const struct sl_transport *closing = *transport;
    faulty_of(closing)->inner->close(transport);
    SL_LIST_FOREACH (link, list_of(&listeners)) {
        struct listener *listener = SL_CONTAINER_OF(link, struct listener, link);
        if (listener->transport == closing) {
            sl_list_remove(link);
            free(listener);
        }
    }
}

static uint32_t faulty_poll(struct sl_transport *transport, uint32_t budget)
{
    uint32_t work = faulty_of(transport)->inner->poll(transport, budget);
    SL_LIST_FOREACH (link, list_of(&conns)) {
        struct faulty_conn *conn = SL_CONTAINER_OF(link, struct faulty_conn, link);
        work += conn->base->transport == transport ? advance(conn) : 0;
    }
    return work;
}

static bool faulty_arm(struct sl_transport *transport)
{
    SL_LIST_FOREACH (link, list_of(&conns)) {
        const struct faulty_conn *conn = SL_CONTAINER_OF(link, struct faulty_conn, link);
        const bool is_due = conn->late_turns > 0 || conn->cut_turns > 0 ||
                            (conn->is_short && conn->base->state == SL_CONN_OPEN);
        if (conn->base->transport == transport && is_due) {
            return false;
        }
    }
    return faulty_of(transport)->inner->arm(transport);
}

void sl_faulty_transport_init(struct sl_faulty_transport *out, const struct sl_transport_ops *inner,
                              const struct sl_faults *faults)
{
    *out = (struct sl_faulty_transport){.ops = *inner, .inner = inner, .faults = *faults};
    out->ops.capabilities &= ~(uint32_t)SL_TRANSPORT_MIGRATES;
    out->ops.close = faulty_close;
    out->ops.listen = faulty_listen;
    out->ops.connect = faulty_connect;
    out->ops.disconnect = faulty_disconnect;
    out->ops.migrate = NULL;
    out->ops.send_burst = faulty_send_burst;
    out->ops.send_now = NULL; /* nothing of it could be late */
    out->ops.poll = faulty_poll;
    out->ops.arm = faulty_arm;
    if (inner->rma != NULL) {
        out->rma = *inner->rma;
        out->rma.post = faulty_post;
        out->ops.rma = &out->rma;
    }
}
