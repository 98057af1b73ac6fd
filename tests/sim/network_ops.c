/* The simulated network's transports: the fourteen slots of net/transport.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/transport_impl.h"
#include "tests/sim/network_internal.h"

#define PEER_TIMEOUT_MS 10000

static struct sl_sim_transport *transport_of(struct sl_transport *transport)
{
    return (struct sl_sim_transport *)transport;
}

static struct sl_sim_conn *conn_of(struct sl_conn *conn)
{
    return (struct sl_sim_conn *)conn;
}

static int sim_open(struct sl_reactor *reactor, const struct sl_transport_options *options,
                    struct sl_transport **out)
{
    struct sl_sim_transport *transport = calloc(1, sizeof *transport);
    if (transport == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    sl_assert(options->medium != NULL);
    transport->host = options->medium;
    uint32_t default_ms = transport->host->network->options.peer_timeout_ms;
    uint32_t timeout_ms = options->peer_timeout_ms != 0 ? options->peer_timeout_ms
                          : default_ms != 0             ? default_ms
                                                        : PEER_TIMEOUT_MS;
    sl_transport_init(&transport->base, reactor, options);
    transport->reactor = reactor;
    transport->peer_timeout_ns = timeout_ms * SL_CLOCK_NS_PER_MS;
    transport->next = transport->host->transports;
    transport->host->transports = transport;
    *out = &transport->base;
    return SL_OK;
}

static void held_free(struct sl_sim_conn *conn)
{
    while (conn->held != NULL) {
        struct sl_sim_message *message = conn->held;
        conn->held = message->next_held;
        sl_sim_message_free(sl_sim_network_of(conn), message);
    }
}

static void conns_free(struct sl_sim_conn *conns)
{
    while (conns != NULL) {
        struct sl_sim_conn *next = conns->next;
        held_free(conns);
        free(conns);
        conns = next;
    }
}

static void listeners_close(struct sl_sim_transport *transport)
{
    struct sl_sim_listener **at = &transport->host->listeners;
    while (*at != NULL) {
        struct sl_sim_listener *listener = *at;
        if (listener->transport == transport) {
            *at = listener->next;
            free(listener);
        } else {
            at = &listener->next;
        }
    }
}

static void sim_close(struct sl_transport **closing)
{
    struct sl_sim_transport *transport = transport_of(*closing);
    listeners_close(transport);
    for (struct sl_sim_conn *conn = transport->conns; conn != NULL; conn = conn->next) {
        if (sl_sim_is_gone(conn)) {
            continue;
        }
        if (conn->arriving && !conn->moved) { /* nobody has heard of it: it just goes */
            sl_sim_part(conn);
            sl_sim_inbox_empty(conn);
            sl_sim_rma_close(conn);
        } else {
            sl_sim_conn_fail(conn, SL_ERR_CANCELLED);
        }
    }
    struct sl_sim_transport **at = &transport->host->transports;
    while (*at != transport) {
        at = &(*at)->next;
    }
    *at = transport->next;
    conns_free(transport->conns);
    conns_free(transport->buried);
    sl_sim_rma_free_regions(transport);
    free(transport);
    *closing = NULL;
}

static int sim_listen(struct sl_transport *base, const struct sl_endpoint *endpoint,
                      const struct sl_transport_events *events, void *ctx,
                      struct sl_endpoint *bound)
{
    struct sl_sim_transport *transport = transport_of(base);
    struct sl_sim_host *host = transport->host;
    uint16_t port = endpoint->port != 0 ? endpoint->port : host->port_next++;
    for (const struct sl_sim_listener *at = host->listeners; at != NULL; at = at->next) {
        if (at->port == port) {
            return SL_ERR_IN_USE;
        }
    }
    struct sl_sim_listener *listener = calloc(1, sizeof *listener);
    sl_assert(listener != NULL);
    *listener = (struct sl_sim_listener){.next = host->listeners,
                                         .transport = transport,
                                         .events = events,
                                         .ctx = ctx,
                                         .port = port};
    host->listeners = listener;
    *bound = *endpoint;
    bound->port = port;
    return SL_OK;
}

static int find_host(const struct sl_sim_network *network, const char *address, uint32_t *out,
                     uint32_t *rail)
{
    unsigned high, low;
    if (sscanf(address, "10.%u.%u.%u", rail, &high, &low) != 3 || *rail >= SL_SIM_RAILS_MAX ||
        high * 256 + low >= network->options.host_count) {
        return SL_ERR_NOT_FOUND;
    }
    *out = high * 256 + low;
    return SL_OK;
}

static int sim_connect(struct sl_transport *base, const struct sl_endpoint *endpoint,
                       uint32_t target, const struct sl_transport_events *events, void *ctx,
                       struct sl_conn **out)
{
    struct sl_sim_transport *transport = transport_of(base);
    struct sl_sim_network *network = transport->host->network;
    uint32_t remote, rail;
    if (find_host(network, endpoint->host, &remote, &rail) != 0) {
        return SL_ERR_NOT_FOUND;
    }
    struct sl_sim_conn *conn = sl_sim_conn_create(transport, events, ctx);
    conn->target = *endpoint;
    conn->connector = true;
    conn->remote = remote;
    conn->rail = rail;
    conn->pair = network->pair_count++;
    conn->settle_ns = network->now_ns;
    if (!transport->host->dead) {
        conn->settle_ns += sl_sim_delay_ns(network) + sl_sim_delay_ns(network);
    }
    conn->settle_until_ns = network->now_ns + transport->peer_timeout_ns;
    sl_endpoint_format(endpoint, conn->base.peer, sizeof conn->base.peer);
    *out = &conn->base;
    return SL_OK;
}

static void sim_disconnect(struct sl_conn *base)
{
    struct sl_sim_conn *conn = conn_of(base);
    if (base->state == SL_CONN_CONNECTING) {
        conn->end_ns = conn->settle_ns = 0;
    }
    const struct sl_sim_network *network = sl_sim_network_of(conn);
    if (!conn->connector && conn->peer != NULL && network->watch.cut_off != NULL &&
        (conn->landed_bytes > 0 || conn->peer->landed_bytes > 0)) {
        network->watch.cut_off(network->watch.ctx, base->peer);
    }
    conn->due_ns = 0;
    base->state = SL_CONN_CLOSING; /* poll does the rest */
}

static void move(struct sl_sim_conn *conn, struct sl_sim_conn *moved)
{
    struct sl_sim_network *network = sl_sim_network_of(conn);
    moved->arriving = moved->moved = true;
    moved->settle_ns = network->now_ns + SL_CLOCK_NS_PER_US * sl_sim_below(&network->random, 100);
    moved->pair = conn->pair;
    moved->remote = conn->remote;
    moved->rail = conn->rail;
    moved->peer = conn->peer;
    if (moved->peer != NULL) {
        moved->peer->peer = moved;
    }
    moved->inbox_first = conn->inbox_first;
    moved->inbox_last = conn->inbox_last;
    moved->inbox_bytes = conn->inbox_bytes;
    moved->last_arrival_ns = conn->last_arrival_ns;
    moved->wire_free_ns = conn->wire_free_ns;
    moved->end_ns = conn->end_ns;
    moved->end_err = conn->end_err;
    moved->reset = conn->reset;
    moved->doom_ns = conn->doom_ns;
    memcpy(moved->base.peer, conn->base.peer, sizeof moved->base.peer);
    conn->inbox_first = conn->inbox_last = NULL;
    conn->peer = NULL;
    conn->handed_over = true;
    sl_cell_subtract(&sl_sim_home(conn)->base.cells->connections, 1);
}

static int sim_migrate(struct sl_conn *base, struct sl_transport *to,
                       const struct sl_transport_events *events, void *ctx, void *user)
{
    struct sl_sim_conn *conn = conn_of(base);
    sl_assert(conn->sent == conn->taken);
    sl_assert(conn->making == NULL);
    sl_assert(conn->held == NULL);
    struct sl_sim_conn *moved = sl_sim_conn_create(transport_of(to), events, ctx);
    moved->base.user = user;
    move(conn, moved);
    return SL_OK;
}

static void take(struct sl_sim_conn *conn, const struct sl_transport_frame *frame)
{
    struct sl_sim_network *network = sl_sim_network_of(conn);
    uint32_t bytes = frame->head_bytes + frame->payload_bytes;
    if (conn->base.transport->ops->rma != NULL && !conn->is_admitted &&
        bytes > SL_LIMIT_INLINE_PAYLOAD_BYTES) {
        network->watch.breach(network->watch.ctx, "a long frame to a peer that is not admitted");
    }
    uint64_t begin_ns = conn->wire_free_ns > network->now_ns ? conn->wire_free_ns : network->now_ns;
    uint64_t hash = sl_hash_bytes(frame->head, frame->head_bytes, 0);
    conn->wire_free_ns = begin_ns + bytes * SL_CLOCK_NS_PER_US / network->options.bytes_per_us;
    conn->queue[conn->taken++ % SL_SIM_QUEUE_FRAMES] = (struct sl_sim_outgoing){
        .frame = *frame,
        .hash = sl_hash_bytes(frame->payload, frame->payload_bytes, hash),
        .leave_ns = conn->wire_free_ns,
        .sent_ns = conn->wire_free_ns + SL_CLOCK_NS_PER_US * sl_sim_below(&network->random, 20),
    };
    if (network->meter.costs != NULL) {
        conn->queue[(conn->taken - 1) % SL_SIM_QUEUE_FRAMES].sent_ns = network->now_ns;
        sl_sim_conn_carry(conn);
    }
}

static uint32_t sim_send_burst(struct sl_conn *base, const struct sl_transport_frame *frames,
                               uint32_t count)
{
    struct sl_sim_conn *conn = conn_of(base);
    struct sl_sim_network *network = sl_sim_network_of(conn);
    if (base->state != SL_CONN_OPEN) {
        return 0;
    }
    conn->due_ns = 0;
    uint32_t room = SL_SIM_QUEUE_FRAMES - (conn->taken - conn->sent);
    uint32_t taken = count < room ? count : room;
    if (sl_sim_chance(&network->random, network->options.short_permille)) {
        taken = sl_sim_below(&network->random, taken + 1ULL);
    }
    for (uint32_t i = 0; i < taken; i++) {
        take(conn, &frames[i]);
    }
    conn->short_taken = conn->short_taken || taken < count;
    return taken;
}

static uint32_t sim_send_now(struct sl_conn *base, const struct iovec *parts, uint32_t count)
{
    struct sl_sim_conn *conn = conn_of(base);
    return base->state == SL_CONN_OPEN ? sl_sim_conn_carry_now(conn, parts, count) : 0;
}

static void sim_release(struct sl_conn *base, const struct sl_transport_message *received)
{
    struct sl_sim_conn *conn = conn_of(base);
    struct sl_sim_message *message = received->token;
    sl_assert(message->holder == conn);
    if (message->prev_held != NULL) {
        message->prev_held->next_held = message->next_held;
    } else {
        sl_assert(conn->held == message); /* else it was released before */
        conn->held = message->next_held;
    }
    if (message->next_held != NULL) {
        message->next_held->prev_held = message->prev_held;
    }
    sl_sim_message_free(sl_sim_network_of(conn), message);
}

static void sim_flush(struct sl_transport *transport)
{
    (void)transport; /* what was taken leaves in poll, when the wire has carried it */
}

/* Closed connections leave the list; those that messages still name stay until these are released.
 */
static void bury_gone(struct sl_sim_transport *transport)
{
    struct sl_sim_conn **at = &transport->conns;
    while (*at != NULL) {
        struct sl_sim_conn *conn = *at;
        if (sl_sim_is_gone(conn)) {
            *at = conn->next;
            conn->next = transport->buried;
            transport->buried = conn;
        } else {
            at = &conn->next;
        }
    }
    at = &transport->buried;
    while (*at != NULL) {
        struct sl_sim_conn *conn = *at;
        if (conn->held == NULL) {
            *at = conn->next;
            free(conn);
        } else {
            at = &conn->next;
        }
    }
}

static uint32_t sim_poll(struct sl_transport *base, uint32_t budget)
{
    struct sl_sim_transport *transport = transport_of(base);
    uint32_t events = sl_sim_rma_report_regions(transport);
    for (struct sl_sim_conn *conn = transport->conns; conn != NULL && events < budget;
         conn = conn->next) {
        if (!sl_sim_is_gone(conn) && conn->due_ns <= transport->host->network->now_ns) {
            conn->due_ns = 0;
            events += sl_sim_conn_poll(conn);
        }
    }
    bury_gone(transport);
    return events;
}

static bool sim_arm(struct sl_transport *base)
{
    return true; /* the simulation asks sl_sim_network_next */
}

#define SIM_OPS                                                                                    \
    .open = sim_open, .close = sim_close, .listen = sim_listen, .connect = sim_connect,            \
    .disconnect = sim_disconnect, .send_burst = sim_send_burst, .release = sim_release,            \
    .flush = sim_flush, .poll = sim_poll, .arm = sim_arm

const struct sl_transport_ops sl_sim_transport_ops = {
    SIM_OPS,
    .scheme = "sim",
    .capabilities = SL_TRANSPORT_MIGRATES | SL_TRANSPORT_CHUNKS,
    .send_now = sim_send_now,
    .migrate = sim_migrate,
};

const struct sl_transport_ops sl_sim_device_ops = {
    SIM_OPS,
    .scheme = "sim-device",
    .capabilities = SL_TRANSPORT_CHUNKS | SL_TRANSPORT_REGISTERS,
    .rma = &sl_sim_rma_ops,
};
