#include "tests/support/fault_transport.h"

#include <stdlib.h>

#include "core/assert.h"
#include "core/hash.h"
#include "tests/support/fault_transport_internal.h"

#define PEER_TIMEOUT_MS 10000 /* unless the options say otherwise */

static void wake(struct sl_timer *timer, uint64_t now_ns)
{
    (void)timer;
    (void)now_ns; /* it is enough that there is a turn: poll delivers */
}

static int fault_open(struct sl_reactor *reactor, const struct sl_transport_options *options,
                      struct sl_transport **out)
{
    const struct sl_fault_plan *plan = options->medium;
    sl_assert(plan != NULL);
    sl_assert(plan->inner != NULL);
    struct sl_fault_transport *fault = calloc(1, sizeof *fault);
    if (fault == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    fault->plan = plan;
    fault->reactor = reactor;
    fault->random_state = sl_hash_key(plan->seed + sl_reactor_index(reactor));
    fault->wake.run = wake;
    uint64_t timeout_ms =
        options->peer_timeout_ms != 0 ? options->peer_timeout_ms : PEER_TIMEOUT_MS;
    fault->peer_timeout_ns = timeout_ms * SL_CLOCK_NS_PER_MS;
    struct sl_transport_options inner_options = *options;
    inner_options.medium = plan->inner_medium;
    int err = sl_transport_open(plan->inner, reactor, &inner_options, &fault->inner);
    if (err != SL_OK) {
        free(fault);
        return err;
    }
    *out = &fault->base;
    return SL_OK;
}

static void conns_free(struct sl_fault_conn *conn)
{
    while (conn != NULL) {
        struct sl_fault_conn *next = conn->next;
        free(conn);
        conn = next;
    }
}

static void fault_close(struct sl_transport **transport)
{
    struct sl_fault_transport *fault = sl_fault_of(*transport);
    for (struct sl_fault_conn *conn = fault->conns; conn != NULL; conn = conn->next) {
        sl_fault_conn_drop_held(conn);
        conn->end_err = SL_ERR_CANCELLED;
        if (conn->inner_closed && conn->base.state != SL_CONN_CLOSED) {
            sl_fault_conn_report_closed(conn, SL_ERR_CANCELLED);
        }
    }
    sl_transport_close(&fault->inner);
    sl_timer_disarm(sl_reactor_timers(fault->reactor), &fault->wake);
    while (fault->listeners != NULL) {
        struct sl_fault_listener *listener = fault->listeners;
        fault->listeners = listener->next;
        free(listener);
    }
    conns_free(fault->conns);
    conns_free(fault->buried);
    free(fault);
    *transport = NULL;
}

static int fault_memory_register(struct sl_transport *transport, void *base, size_t bytes)
{
    return sl_transport_memory_register(sl_fault_of(transport)->inner, base, bytes);
}

static void fault_memory_unregister(struct sl_transport *transport, void *base)
{
    sl_transport_memory_unregister(sl_fault_of(transport)->inner, base);
}

static int fault_listen(struct sl_transport *transport, const struct sl_endpoint *endpoint,
                        const struct sl_transport_events *events, void *ctx,
                        struct sl_endpoint *bound)
{
    struct sl_fault_transport *fault = sl_fault_of(transport);
    struct sl_fault_listener *listener = malloc(sizeof *listener);
    if (listener == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    *listener = (struct sl_fault_listener){.fault = fault, .events = events, .ctx = ctx};
    int err = sl_transport_listen(fault->inner, endpoint, &sl_fault_conn_events, listener, bound);
    if (err != SL_OK) {
        free(listener);
        return err;
    }
    listener->next = fault->listeners;
    fault->listeners = listener;
    return SL_OK;
}

static int fault_connect(struct sl_transport *transport, const struct sl_endpoint *endpoint,
                         const struct sl_transport_events *events, void *ctx, struct sl_conn **out)
{
    struct sl_fault_transport *fault = sl_fault_of(transport);
    struct sl_fault_conn *conn = sl_fault_conn_create(fault, events, ctx);
    if (conn == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    struct sl_conn *inner;
    int err =
        sl_transport_connect(fault->inner, endpoint, &sl_fault_conn_events, NULL, conn, &inner);
    if (err != SL_OK) {
        free(conn);
        return err;
    }
    sl_fault_conn_link(conn, inner);
    *out = &conn->base;
    return SL_OK;
}

static void fault_disconnect(struct sl_conn *base)
{
    struct sl_fault_conn *conn = sl_fault_conn_of(base);
    base->state = SL_CONN_CLOSING;
    conn->end_err = conn->end_err == SL_ERR_CLOSED ? SL_OK : conn->end_err;
    if (!conn->inner_closed) {
        sl_transport_disconnect(conn->inner);
    }
}

static int fault_migrate(struct sl_conn *base, struct sl_transport *to,
                         const struct sl_transport_events *events, void *ctx, void *user)
{
    struct sl_fault_conn *conn = sl_fault_conn_of(base);
    sl_assert(conn->held_first == NULL);
    struct sl_fault_conn *moved = sl_fault_conn_create(sl_fault_of(to), events, ctx);
    if (moved == NULL) {
        sl_fault_conn_break(conn);
        return SL_ERR_NO_MEMORY;
    }
    moved->base.user = user;
    int err = sl_transport_migrate(conn->inner, sl_fault_of(to)->inner, &sl_fault_conn_events, NULL,
                                   moved);
    if (err != SL_OK) {
        free(moved);
        return err;
    }
    base->state = SL_CONN_CLOSED; /* here it is gone, without a `closed` */
    return SL_OK;
}

static void fault_release(struct sl_conn *conn, const struct sl_transport_message *message)
{
    sl_transport_release(sl_fault_conn_of(conn)->inner, message);
}

static void fault_flush(struct sl_transport *transport)
{
    (void)transport; /* the wrapped one has a turn of its own */
}

static bool writable_is_due(const struct sl_fault_conn *conn)
{
    return conn->short_taken && conn->base.state == SL_CONN_OPEN &&
           sl_fault_queue_count(conn) < SL_FAULT_QUEUE_FRAMES;
}

static bool end_is_due(const struct sl_fault_conn *conn)
{
    return conn->inner_closed && conn->base.state != SL_CONN_CLOSED &&
           (conn->held_first == NULL || conn->base.state == SL_CONN_CLOSING);
}

static uint32_t conn_poll(struct sl_fault_conn *conn)
{
    uint32_t events = sl_fault_conn_report_sent(conn);
    events += sl_fault_conn_deliver_held(conn);
    events += sl_fault_conn_notice_cut(conn);
    if (writable_is_due(conn)) {
        conn->short_taken = false;
        sl_conn_report_writable(&conn->base);
        events++;
    }
    if (end_is_due(conn)) {
        sl_fault_conn_report_closed(conn, SL_OK);
        events++;
    }
    return events;
}

static void bury_closed(struct sl_fault_transport *fault)
{
    struct sl_fault_conn **at = &fault->conns;
    while (*at != NULL) {
        struct sl_fault_conn *conn = *at;
        if (conn->base.state == SL_CONN_CLOSED) {
            *at = conn->next;
            conn->next = fault->buried;
            fault->buried = conn;
        } else {
            at = &conn->next;
        }
    }
}

static uint32_t fault_poll(struct sl_transport *transport, uint32_t budget)
{
    (void)budget; /* what it has to deliver came through the wrapped one's budget */
    struct sl_fault_transport *fault = sl_fault_of(transport);
    uint32_t events = 0;
    for (struct sl_fault_conn *conn = fault->conns; conn != NULL; conn = conn->next) {
        if (conn->base.state == SL_CONN_OPEN || conn->base.state == SL_CONN_CLOSING) {
            events += conn_poll(conn);
        }
    }
    bury_closed(fault);
    return events;
}

/* Held messages have a timer; everything else that is due is due now. */
static bool fault_arm(struct sl_transport *transport)
{
    for (struct sl_fault_conn *conn = sl_fault_of(transport)->conns; conn != NULL;
         conn = conn->next) {
        bool sent_due = sl_fault_queue_count(conn) != 0 &&
                        conn->queue[conn->first % SL_FAULT_QUEUE_FRAMES].pending == 0;
        if (conn->base.state == SL_CONN_CLOSED || sent_due || end_is_due(conn) ||
            writable_is_due(conn)) {
            return false;
        }
    }
    return true;
}

static void fault_stats(const struct sl_transport *transport, struct sl_transport_stats *out)
{
    sl_transport_get_stats(sl_fault_of(transport)->inner, out);
}

const struct sl_transport_ops sl_fault_ops = {
    .scheme = "fault",
    .capabilities = SL_TRANSPORT_MIGRATES,
    .open = fault_open,
    .close = fault_close,
    .memory_register = fault_memory_register,
    .memory_unregister = fault_memory_unregister,
    .listen = fault_listen,
    .connect = fault_connect,
    .disconnect = fault_disconnect,
    .migrate = fault_migrate,
    .send_burst = sl_fault_conn_send_burst,
    .release = fault_release,
    .flush = fault_flush,
    .poll = fault_poll,
    .arm = fault_arm,
    .stats = fault_stats,
};

void sl_fault_get_counts(const struct sl_transport *transport, struct sl_fault_counts *out)
{
    sl_assert(transport->ops == &sl_fault_ops);
    *out = sl_fault_of(transport)->counts;
}
