#include "tests/support/loop_transport.h"

#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "net/transport_impl.h"
#include "tests/support/loop_message.h"

#define PORT_FIRST 20000

struct sl_loop_listener {
    struct sl_loop_listener *next;
    struct loop_transport *transport;
    const struct sl_transport_events *events;
    void *ctx;
    uint16_t port;
};

void sl_loop_network_init(struct sl_loop_network *network, uint64_t seed)
{
    *network = (struct sl_loop_network){.random_state = seed, .port_next = PORT_FIRST};
}

void sl_loop_network_fini(struct sl_loop_network *network)
{
    sl_assert(network->listeners == NULL);
    sl_assert(network->message_count == 0);
}
static struct loop_conn *conn_create(struct loop_transport *loop,
                                     const struct sl_transport_events *events, void *ctx)
{
    struct loop_conn *conn = calloc(1, sizeof *conn);
    sl_assert(conn != NULL);
    sl_conn_init(&conn->base, &loop->base, events, ctx);
    sl_cell_add(&loop->base.cells->connections, 1);
    struct loop_conn **end = &loop->conns;
    while (*end != NULL) {
        end = &(*end)->next;
    }
    *end = conn;
    return conn;
}

static void part(struct loop_conn *conn)
{
    if (conn->peer != NULL) {
        conn->peer->peer_ended = true;
        conn->peer->peer = NULL;
        conn->peer = NULL;
    }
}

static void conn_fail(struct loop_conn *conn, int err)
{
    part(conn);
    sl_loop_message_empty_inbox(conn);
    sl_cell_subtract(&home_of(conn)->base.cells->connections, 1);
    sl_conn_report_closed(&conn->base, err);
}

static struct sl_loop_listener *find_listener(struct sl_loop_network *network, uint16_t port)
{
    struct sl_loop_listener *listener = network->listeners;
    while (listener != NULL && listener->port != port) {
        listener = listener->next;
    }
    return listener;
}

static void try_connect(struct loop_conn *conn)
{
    struct sl_loop_listener *listener = find_listener(home_of(conn)->network, conn->target.port);
    if (listener == NULL) {
        conn_fail(conn, SL_ERR_REFUSED);
        return;
    }
    struct loop_conn *peer = conn_create(listener->transport, listener->events, listener->ctx);
    peer->arriving = true;
    peer->peer = conn;
    conn->peer = peer;
    sl_conn_report_connected(&conn->base);
}

/* Ends what is to end; true when the connection is closed now. */
static bool end_if_due(struct loop_conn *conn)
{
    if (conn->base.state == SL_CONN_CLOSING) {
        sl_loop_message_empty_inbox(conn);
        if (conn->peer == NULL || conn->carried == conn->taken) {
            conn_fail(conn, SL_OK);
        }
    } else if (conn->peer_ended && conn->inbox_first == NULL) {
        conn_fail(conn, SL_ERR_CLOSED);
    }
    return conn->base.state == SL_CONN_CLOSED;
}

static uint32_t report_sent(struct loop_conn *conn)
{
    uint32_t count = some_of(home_of(conn)->network, conn->carried - conn->sent);
    for (uint32_t i = 0; i < count; i++) {
        void *cookie = conn->queue[conn->sent++ % LOOP_QUEUE_FRAMES].cookie;
        sl_conn_report_sent(&conn->base, cookie);
    }
    return count;
}

static uint32_t deliver_some(struct loop_conn *conn)
{
    uint32_t done = 0;
    uint32_t most = some_of(home_of(conn)->network, 8);
    while (done < most && conn->inbox_first != NULL && conn->base.state == SL_CONN_OPEN &&
           !conn->handed_over) {
        int result = sl_loop_message_deliver(conn);
        if (result < 0) {
            conn_fail(conn, result);
        }
        if (result <= 0) {
            break;
        }
        done++;
    }
    return done;
}

/* One connection's share of a poll; upcalls may close it or hand it over at any point. */
static uint32_t conn_poll(struct loop_conn *conn)
{
    uint32_t events = 0;
    if (conn->base.state == SL_CONN_CONNECTING) {
        if (conn->arriving) {
            conn->arriving = false;
            sl_conn_report_accepted(&conn->base);
        } else {
            try_connect(conn);
        }
        return 1;
    }
    events += report_sent(conn);
    if (conn->short_taken && conn->base.state == SL_CONN_OPEN &&
        conn->taken - conn->sent < LOOP_QUEUE_FRAMES) {
        conn->short_taken = false;
        sl_conn_report_writable(&conn->base);
        events++;
    }
    events += deliver_some(conn);
    if (!conn->handed_over && conn->base.state != SL_CONN_CLOSED && end_if_due(conn)) {
        events++;
    }
    return events;
}

static int loop_open(struct sl_reactor *reactor, const struct sl_transport_options *options,
                     struct sl_transport **out)
{
    sl_assert(options->medium != NULL);
    struct loop_transport *loop = calloc(1, sizeof *loop);
    if (loop == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    sl_transport_init(&loop->base, reactor, options);
    loop->network = options->medium;
    *out = &loop->base;
    return SL_OK;
}

static void unlisten(struct loop_transport *loop)
{
    struct sl_loop_listener **at = &loop->network->listeners;
    while (*at != NULL) {
        struct sl_loop_listener *listener = *at;
        if (listener->transport == loop) {
            *at = listener->next;
            free(listener);
        } else {
            at = &listener->next;
        }
    }
}

static void conns_free(struct loop_conn *conn)
{
    while (conn != NULL) {
        struct loop_conn *next = conn->next;
        free(conn);
        conn = next;
    }
}

static void loop_close(struct sl_transport **transport)
{
    struct loop_transport *loop = loop_of(*transport);
    unlisten(loop);
    for (struct loop_conn *conn = loop->conns; conn != NULL; conn = conn->next) {
        if (conn->base.state != SL_CONN_CLOSED && !conn->handed_over) {
            if (conn->arriving) { /* nobody has heard of it: it just goes */
                part(conn);
                sl_loop_message_empty_inbox(conn);
            } else {
                conn_fail(conn, SL_ERR_CANCELLED);
            }
        }
    }
    while (loop->held != NULL) {
        sl_loop_message_release(loop->held);
    }
    conns_free(loop->conns);
    conns_free(loop->buried);
    free(loop);
    *transport = NULL;
}

static int loop_memory_register(struct sl_transport *transport, void *base, size_t bytes)
{
    struct loop_transport *loop = loop_of(transport);
    for (uint32_t i = 0; i < LOOP_REGIONS_MAX && !loop->network->registers_nothing; i++) {
        if (loop->regions[i].base == NULL) {
            loop->regions[i] = (struct loop_region){.base = base, .bytes = bytes};
            return SL_OK;
        }
    }
    return SL_ERR_NO_MEMORY;
}

static void loop_memory_unregister(struct sl_transport *transport, void *base)
{
    struct loop_transport *loop = loop_of(transport);
    for (uint32_t i = 0; i < LOOP_REGIONS_MAX; i++) {
        if (loop->regions[i].base == base) {
            loop->regions[i] = (struct loop_region){0};
        }
    }
}

static int loop_listen(struct sl_transport *transport, const struct sl_endpoint *endpoint,
                       const struct sl_transport_events *events, void *ctx,
                       struct sl_endpoint *bound)
{
    struct sl_loop_network *network = loop_of(transport)->network;
    uint16_t port = endpoint->port != 0 ? endpoint->port : network->port_next++;
    if (find_listener(network, port) != NULL) {
        return SL_ERR_IN_USE;
    }
    struct sl_loop_listener *listener = calloc(1, sizeof *listener);
    if (listener == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    *listener = (struct sl_loop_listener){.next = network->listeners,
                                          .transport = loop_of(transport),
                                          .events = events,
                                          .ctx = ctx,
                                          .port = port};
    network->listeners = listener;
    *bound = *endpoint;
    bound->port = port;
    return SL_OK;
}

static int loop_connect(struct sl_transport *transport, const struct sl_endpoint *endpoint,
                        uint32_t target, const struct sl_transport_events *events, void *ctx,
                        struct sl_conn **out)
{
    struct loop_conn *conn = conn_create(loop_of(transport), events, ctx);
    conn->target = *endpoint;
    sl_endpoint_format(endpoint, conn->base.peer, sizeof conn->base.peer);
    *out = &conn->base;
    return SL_OK;
}

static void loop_disconnect(struct sl_conn *conn)
{
    conn->state = SL_CONN_CLOSING; /* poll does the rest */
}

static int loop_migrate(struct sl_conn *base, struct sl_transport *to,
                        const struct sl_transport_events *events, void *ctx, void *user)
{
    struct loop_conn *conn = conn_of(base);
    sl_assert(conn->sent == conn->taken);
    struct loop_conn *moved = conn_create(loop_of(to), events, ctx);
    moved->base.user = user;
    moved->arriving = true;
    moved->peer = conn->peer;
    memcpy(moved->reply_buffers, conn->reply_buffers, sizeof moved->reply_buffers);
    moved->peer_ended = conn->peer_ended;
    if (moved->peer != NULL) {
        moved->peer->peer = moved;
    }
    moved->inbox_first = conn->inbox_first;
    moved->inbox_last = conn->inbox_last;
    conn->inbox_first = conn->inbox_last = NULL;
    conn->peer = NULL;
    conn->handed_over = true;
    sl_cell_subtract(&home_of(conn)->base.cells->connections, 1);
    return SL_OK;
}

static uint32_t loop_send_burst(struct sl_conn *base, const struct sl_transport_frame *frames,
                                uint32_t count)
{
    struct loop_conn *conn = conn_of(base);
    if (base->state != SL_CONN_OPEN) {
        return 0;
    }
    uint32_t room = LOOP_QUEUE_FRAMES - (conn->taken - conn->sent);
    uint32_t taken = count < room ? count : room;
    struct sl_loop_network *network = home_of(conn)->network;
    if (some_of(network, 7) == 0) {
        taken = some_of(network, taken);
    }
    for (uint32_t i = 0; i < taken; i++) {
        conn->queue[conn->taken++ % LOOP_QUEUE_FRAMES] = frames[i];
    }
    conn->short_taken = conn->short_taken || taken < count;
    return taken;
}

/* Some of it, cut anywhere. */
static uint32_t loop_send_now(struct sl_conn *base, const struct iovec *parts, uint32_t count)
{
    struct loop_conn *conn = conn_of(base);
    if (base->state != SL_CONN_OPEN || conn->sent != conn->taken) {
        return 0;
    }
    uint32_t bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        bytes += (uint32_t)parts[i].iov_len;
    }
    struct sl_loop_network *network = home_of(conn)->network;
    const uint32_t taken = some_of(network, 3) == 0 ? bytes : some_of(network, bytes);
    uint32_t left = taken;
    for (uint32_t i = 0; left > 0; i++) {
        const uint32_t more = left < parts[i].iov_len ? left : (uint32_t)parts[i].iov_len;
        sl_loop_message_carry_now(conn, parts[i].iov_base, more);
        left -= more;
    }
    return taken;
}

static void loop_release(struct sl_conn *conn, const struct sl_transport_message *message)
{
    sl_loop_message_release(message->token);
}

static void loop_flush(struct sl_transport *transport)
{
    struct loop_transport *loop = loop_of(transport);
    for (struct loop_conn *conn = loop->conns; conn != NULL; conn = conn->next) {
        if (conn->base.state == SL_CONN_CLOSED || conn->handed_over) {
            continue;
        }
        uint32_t count = some_of(loop->network, conn->taken - conn->carried);
        while (count-- > 0) {
            sl_loop_message_carry(conn);
        }
    }
}

/* Closed connections leave the list; their memory stays for who still names it. */
static void bury_closed(struct loop_transport *loop)
{
    struct loop_conn **at = &loop->conns;
    while (*at != NULL) {
        struct loop_conn *conn = *at;
        if (conn->base.state == SL_CONN_CLOSED || conn->handed_over) {
            *at = conn->next;
            conn->next = loop->buried;
            loop->buried = conn;
        } else {
            at = &conn->next;
        }
    }
}
static uint32_t loop_poll(struct sl_transport *transport, uint32_t budget)
{
    (void)budget; /* a test's handful of events */
    struct loop_transport *loop = loop_of(transport);
    if (loop->network->peers_are_malicious) {
        sl_loop_message_spoil(loop);
    }
    uint32_t events = 0;
    for (struct loop_conn *conn = loop->conns; conn != NULL; conn = conn->next) {
        if (conn->base.state != SL_CONN_CLOSED && !conn->handed_over) {
            events += conn_poll(conn);
        }
    }
    bury_closed(loop);
    return events;
}

static bool loop_arm(struct sl_transport *transport)
{
    for (struct loop_conn *conn = loop_of(transport)->conns; conn != NULL; conn = conn->next) {
        if (conn->base.state != SL_CONN_OPEN || conn->sent != conn->taken || conn->peer_ended ||
            conn->inbox_first != NULL || conn->short_taken) {
            return false;
        }
    }
    return true;
}

#define LOOP_OPS                                                                                   \
    .open = loop_open, .close = loop_close, .memory_register = loop_memory_register,               \
    .memory_unregister = loop_memory_unregister, .listen = loop_listen, .connect = loop_connect,   \
    .disconnect = loop_disconnect, .send_burst = loop_send_burst, .release = loop_release,         \
    .flush = loop_flush, .poll = loop_poll, .arm = loop_arm

const struct sl_transport_ops sl_loop_transport_ops = {
    LOOP_OPS,
    .scheme = "loop",
    .capabilities = SL_TRANSPORT_MIGRATES | SL_TRANSPORT_MULTI_FRAME | SL_TRANSPORT_CHUNKS,
    .send_now = loop_send_now,
    .migrate = loop_migrate,
};

const struct sl_transport_ops sl_loop_shared_ops = {
    LOOP_OPS,
    .scheme = "loop-shared",
    .capabilities = SL_TRANSPORT_MIGRATES | SL_TRANSPORT_MAPS_MEMORY | SL_TRANSPORT_DIRECT_REPLIES,
    .migrate = loop_migrate,
};

const struct sl_transport_ops sl_loop_device_ops = {
    LOOP_OPS,
    .scheme = "loop-device",
    .capabilities = SL_TRANSPORT_MULTI_FRAME | SL_TRANSPORT_REGISTERS | SL_TRANSPORT_DIRECT_REPLIES,
};
