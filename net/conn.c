#include "net/conn.h"

#include "core/assert.h"
#include "net/trace.h"
#include "net/transport_impl.h"

void sl_conn_init(struct sl_conn *conn, struct sl_transport *transport,
                  const struct sl_transport_events *events, void *ctx)
{
    sl_assert(transport != NULL);
    sl_assert(events != NULL);
    *conn = (struct sl_conn){
        .transport = transport,
        .events = events,
        .ctx = ctx,
        .state = SL_CONN_CONNECTING,
    };
}

bool sl_conn_fail(struct sl_conn *conn, int err, const char *text)
{
    sl_assert(err != 0);
    if (conn->failure == 0) {
        conn->failure = err;
        conn->failure_text = text;
    }
    if (conn->state != SL_CONN_CLOSED) {
        conn->state = SL_CONN_CLOSING;
    }
    return false;
}

void sl_conn_log_failure(struct sl_conn *conn)
{
    if (conn->failure_text != NULL) {
        sl_transport_warn(conn->transport, "%s: closed, since %s: %s", conn->peer,
                          conn->failure_text, sl_err_name(conn->failure));
        conn->failure_text = NULL;
    }
}

static bool net_conn_enter(struct sl_transport *transport)
{
    bool before = transport->in_upcall;
    transport->in_upcall = true;
    return before;
}

static void net_conn_leave(struct sl_transport *transport, bool before)
{
    transport->in_upcall = before;
}

static void report_open(struct sl_conn *conn, bool accepted)
{
    sl_assert(conn->state == SL_CONN_CONNECTING);
    conn->state = SL_CONN_OPEN;
    conn->accepted = accepted;
    if (sl_trace_wants(SL_VERBOSE_CONNECTIONS)) {
        sl_trace_connection(conn, accepted ? "accepted" : "made", "");
    }
    bool before = net_conn_enter(conn->transport);
    if (accepted) {
        conn->events->accepted(conn->ctx, conn);
    } else {
        conn->events->connected(conn->ctx, conn);
    }
    net_conn_leave(conn->transport, before);
}

void sl_conn_report_accepted(struct sl_conn *conn)
{
    report_open(conn, true);
}

void sl_conn_report_connected(struct sl_conn *conn)
{
    conn->is_welcome = true;
    report_open(conn, false);
}

void *sl_conn_ask_sink(struct sl_conn *conn, const struct sl_frame *header)
{
    sl_assert(conn->state == SL_CONN_OPEN);
    bool before = net_conn_enter(conn->transport);
    void *memory = conn->events->sink(conn->ctx, conn, header);
    net_conn_leave(conn->transport, before);
    sl_assert(memory != SL_TRANSPORT_IN_PLACE ||
              (conn->transport->ops->capabilities & SL_TRANSPORT_MAPS_MEMORY) != 0);
    return memory;
}

void sl_conn_report_received(struct sl_conn *conn, const struct sl_transport_message *message)
{
    sl_assert(conn->state == SL_CONN_OPEN);
    sl_assert(message->token == NULL || (uintptr_t)message->payload % 8 == 0);
    if (sl_trace_wants(SL_VERBOSE_MESSAGES)) {
        sl_trace_received(conn, &message->header);
    }
    bool before = net_conn_enter(conn->transport);
    conn->events->received(conn->ctx, conn, message);
    net_conn_leave(conn->transport, before);
}

void sl_conn_report_sent(struct sl_conn *conn, void *cookie)
{
    sl_assert(conn->state == SL_CONN_OPEN || conn->state == SL_CONN_CLOSING);
    bool before = net_conn_enter(conn->transport);
    conn->events->sent(conn->ctx, conn, cookie);
    net_conn_leave(conn->transport, before);
}

void sl_conn_report_writable(struct sl_conn *conn)
{
    sl_assert(conn->state == SL_CONN_OPEN);
    bool before = net_conn_enter(conn->transport);
    conn->events->writable(conn->ctx, conn);
    net_conn_leave(conn->transport, before);
}

void sl_conn_report_closed(struct sl_conn *conn, int err)
{
    sl_assert(conn->state != SL_CONN_CLOSED);
    if (sl_trace_wants(SL_VERBOSE_CONNECTIONS)) {
        sl_trace_connection(conn, "closed", sl_err_name(err));
    }
    conn->state = SL_CONN_CLOSED;
    struct sl_transport *transport = conn->transport;
    sl_transport_metrics_closed(transport->cells, err);
    bool before = net_conn_enter(transport);
    conn->events->closed(conn->ctx, conn, err);
    net_conn_leave(transport, before);
}
