#include "net/transport_impl.h"

#include "core/assert.h"
#include "core/list.h"
#include "core/shared.h"
#include "net/transport_now.h"

#define PEER_TIMEOUT_MS 10000U

const char sl_transport_coalesced;

static struct sl_transport *transport_of(struct sl_reactor_source *source)
{
    return SL_CONTAINER_OF(source, struct sl_transport, source);
}

static uint32_t source_poll(struct sl_reactor_source *source, uint32_t budget)
{
    struct sl_transport *transport = transport_of(source);
    uint32_t work = transport->ops->poll(transport, budget);
    if (work > 0 && transport->polled != NULL) {
        transport->polled(transport->polled_ctx);
    }
    return work;
}

static void source_flush(struct sl_reactor_source *source)
{
    struct sl_transport *transport = transport_of(source);
    transport->ops->flush(transport);
}

static bool source_arm(struct sl_reactor_source *source)
{
    struct sl_transport *transport = transport_of(source);
    return transport->ops->arm(transport);
}

static void assert_complete(const struct sl_transport_ops *ops)
{
    sl_assert(ops->scheme != NULL);
    sl_assert(ops->open != NULL);
    sl_assert(ops->close != NULL);
    sl_assert((ops->memory_register != NULL) == (ops->memory_unregister != NULL));
    sl_assert(ops->listen != NULL);
    sl_assert(ops->connect != NULL);
    sl_assert(ops->disconnect != NULL);
    sl_assert((ops->migrate != NULL) == ((ops->capabilities & SL_TRANSPORT_MIGRATES) != 0));
    sl_assert(ops->send_burst != NULL);
    sl_assert(ops->send_now == NULL || (ops->capabilities & SL_TRANSPORT_CHUNKS) != 0);
    sl_assert(ops->release != NULL);
    sl_assert(ops->flush != NULL);
    sl_assert(ops->poll != NULL);
    sl_assert(ops->arm != NULL);
}

static void assert_events(const struct sl_transport_events *events)
{
    sl_assert(events != NULL);
    sl_assert(events->sink != NULL);
    sl_assert(events->received != NULL);
    sl_assert(events->sent != NULL);
    sl_assert(events->writable != NULL);
    sl_assert(events->closed != NULL);
}

void sl_transport_init(struct sl_transport *transport, struct sl_reactor *reactor,
                       const struct sl_transport_options *options)
{
    transport->reactor = reactor;
    transport->connections_max =
        options->connections_max != 0 ? options->connections_max : SL_LIMIT_CONNECTIONS;
    transport->peer_timeout_ms =
        options->peer_timeout_ms != 0 ? options->peer_timeout_ms : PEER_TIMEOUT_MS;
}

int sl_transport_open(const struct sl_transport_ops *ops, struct sl_reactor *reactor,
                      const struct sl_transport_options *options, struct sl_transport **out)
{
    static const struct sl_transport_options defaults;
    assert_complete(ops);
    sl_assert(out != NULL);
    sl_reactor_assert_owner(reactor);
    sl_reactor_excuse_turn(reactor);
    struct sl_transport *transport;
    int err = ops->open(reactor, options != NULL ? options : &defaults, &transport);
    if (err != 0) {
        return err;
    }
    sl_assert(transport->reactor == reactor);
    transport->ops = ops;
    transport->cells =
        options != NULL && options->cells != NULL ? options->cells : &transport->own_cells;
    transport->in_upcall = false;
    transport->secure = options != NULL && options->tls != NULL;
    transport->source = (struct sl_reactor_source){
        .name = ops->scheme, .poll = source_poll, .flush = source_flush, .arm = source_arm};
    sl_reactor_add_source(reactor, &transport->source);
    *out = transport;
    return 0;
}

void sl_transport_close(struct sl_transport **transport)
{
    struct sl_transport *closing = *transport;
    if (closing == NULL) {
        return;
    }
    sl_reactor_assert_owner(closing->reactor);
    sl_assert(!closing->in_upcall);
    closing->is_closing = true;
    sl_reactor_remove_source(closing->reactor, &closing->source);
    closing->ops->close(&closing);
    *transport = NULL;
}

bool sl_transport_may_log(struct sl_transport *transport)
{
    return sl_log_limit_allows(&transport->log_limit, sl_reactor_now_ns(transport->reactor));
}

int sl_transport_memory_register(struct sl_transport *transport, void *base, size_t bytes)
{
    sl_reactor_assert_owner(transport->reactor);
    sl_assert(base != NULL);
    sl_assert(bytes > 0);
    if ((transport->ops->capabilities & SL_TRANSPORT_REGISTERS) != 0) {
        sl_shared_pin(base, bytes);
    }
    return transport->ops->memory_register != NULL
               ? transport->ops->memory_register(transport, base, bytes)
               : 0;
}

void sl_transport_memory_unregister(struct sl_transport *transport, void *base)
{
    sl_reactor_assert_owner(transport->reactor);
    if (transport->ops->memory_unregister != NULL) {
        transport->ops->memory_unregister(transport, base);
    }
}

int sl_transport_listen(struct sl_transport *transport, const struct sl_endpoint *endpoint,
                        const struct sl_transport_events *events, void *ctx,
                        struct sl_endpoint *bound)
{
    sl_reactor_assert_owner(transport->reactor);
    assert_events(events);
    sl_assert(events->accepted != NULL);
    struct sl_endpoint chosen;
    return transport->ops->listen(transport, endpoint, events, ctx,
                                  bound != NULL ? bound : &chosen);
}

int sl_transport_connect(struct sl_transport *transport, const struct sl_endpoint *endpoint,
                         uint32_t target, const struct sl_transport_events *events, void *ctx,
                         void *user, struct sl_conn **out)
{
    sl_reactor_assert_owner(transport->reactor);
    assert_events(events);
    sl_assert(events->connected != NULL);
    sl_assert(out != NULL);
    if (transport->is_closing) {
        return SL_ERR_CLOSED;
    }
    if (sl_transport_is_full(transport)) {
        return SL_ERR_TOO_LARGE;
    }
    struct sl_conn *conn;
    int err = transport->ops->connect(transport, endpoint, target, events, ctx, &conn);
    if (err != 0) {
        return err;
    }
    conn->user = user;
    *out = conn;
    return 0;
}

void sl_transport_disconnect(struct sl_conn *conn)
{
    sl_reactor_assert_owner(conn->transport->reactor);
    sl_assert(conn->state != SL_CONN_CLOSED);
    conn->transport->ops->disconnect(conn);
}

int sl_transport_migrate(struct sl_conn *conn, struct sl_transport *to,
                         const struct sl_transport_events *events, void *ctx, void *user)
{
    sl_reactor_assert_owner(conn->transport->reactor);
    sl_assert(conn->transport->in_upcall);
    sl_assert(conn->state == SL_CONN_OPEN);
    sl_assert(conn->accepted);
    sl_assert((to->ops->capabilities & SL_TRANSPORT_MIGRATES) != 0);
    sl_assert(to->ops == conn->transport->ops);
    assert_events(events);
    sl_assert(events->accepted != NULL);
    return conn->transport->ops->migrate(conn, to, events, ctx, user);
}

uint32_t sl_transport_send_now(struct sl_conn *conn, const struct iovec *parts, uint32_t count)
{
    sl_reactor_assert_owner(conn->transport->reactor);
    sl_assert(conn->state != SL_CONN_CLOSED);
    sl_assert(sl_transport_sends_now(conn));
    const uint32_t bytes = conn->transport->ops->send_now(conn, parts, count);
    if (bytes > 0 && sl_trace_wants(SL_VERBOSE_MESSAGES)) {
        const uint32_t first = (uint32_t)parts[0].iov_len;
        const uint32_t head_bytes = bytes < first ? bytes : first;
        const struct sl_transport_frame sent = {.head = parts[0].iov_base,
                                                .head_bytes = head_bytes,
                                                .payload_bytes = bytes - head_bytes};
        sl_trace_sent(conn, &sent, 1);
    }
    return bytes;
}

void sl_transport_get_stats(const struct sl_transport *transport, struct sl_transport_stats *out)
{
    sl_reactor_assert_owner(transport->reactor);
    const struct sl_transport_cells *cells = transport->cells;
    *out = (struct sl_transport_stats){
        .bytes_sent = sl_cell_get(&cells->bytes_sent),
        .bytes_received = sl_cell_get(&cells->bytes_received),
        .frames_sent = sl_cell_get(&cells->frames_sent),
        .frames_received = sl_cell_get(&cells->frames_received),
        .send_calls = sl_cell_get(&cells->send_calls),
        .receive_calls = sl_cell_get(&cells->receive_calls),
        .copied_bytes = sl_cell_get(&cells->copied_bytes),
        .connections = sl_cell_get(&cells->connections),
    };
}
