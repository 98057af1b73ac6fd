#include "tests/support/loop_transport.h"

#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/hash.h"

#define QUEUE_FRAMES 16 /* taken and not reported sent, of one connection */
#define PORT_FIRST   20000
#define REGIONS_MAX  16

struct loop_transport;

/* A frame on its way, whole. */
struct loop_message {
    struct loop_message *next;
    struct loop_transport *holder; /* delivered here and not released; NULL: on its way */
    uint8_t *rest;                 /* the frame's end, when it lies apart; else NULL */
    void *landing;
    uint32_t landing_bytes;
    uint32_t rest_bytes; /* not of `bytes` */
    uint32_t bytes;
    bool in_place;
    _Alignas(16) uint8_t data[];
};

struct loop_conn {
    struct sl_conn base;
    struct loop_conn *next;
    struct loop_conn *peer; /* NULL: none yet, or gone */
    struct sl_endpoint target;
    struct sl_transport_frame queue[QUEUE_FRAMES];
    uint32_t sent, carried, taken; /* counters, each <= the next <= sent + QUEUE_FRAMES */
    struct loop_message *inbox_first, *inbox_last;
    struct loop_message *part; /* a frame for the inbox that has come in part, or NULL */
    uint32_t part_have;
    bool arriving;    /* `accepted` is due */
    bool short_taken; /* `writable` is due */
    bool peer_ended;  /* nothing more comes */
    bool handed_over; /* lives on in another object */
};

struct sl_loop_listener {
    struct sl_loop_listener *next;
    struct loop_transport *transport;
    const struct sl_transport_events *events;
    void *ctx;
    uint16_t port;
};

struct loop_region {
    const uint8_t *base;
    size_t bytes;
};

struct loop_transport {
    struct sl_transport base;
    struct loop_region regions[REGIONS_MAX];
    struct sl_loop_network *network;
    struct loop_conn *conns, *buried; /* buried: closed, their memory still named by messages */
    struct loop_message *held;
    struct sl_transport_stats stats;
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

static struct loop_transport *loop_of(struct sl_transport *transport)
{
    return (struct loop_transport *)transport;
}

static struct loop_conn *conn_of(struct sl_conn *conn)
{
    return (struct loop_conn *)conn;
}

static struct loop_transport *home_of(const struct loop_conn *conn)
{
    return loop_of(conn->base.transport);
}

/* 0 to count, as the seed has it. */
static uint32_t some_of(struct sl_loop_network *network, uint32_t count)
{
    return (uint32_t)(sl_hash_random(&network->random_state) % ((uint64_t)count + 1));
}

/* ---- Messages -------------------------------------------------------------------------------- */

static void message_free(struct sl_loop_network *network, struct loop_message *message)
{
    network->message_count--;
    free(message->rest);
    free(message);
}

static void inbox_empty(struct loop_conn *conn)
{
    while (conn->inbox_first != NULL) {
        struct loop_message *message = conn->inbox_first;
        conn->inbox_first = message->next;
        message_free(home_of(conn)->network, message);
    }
    conn->inbox_last = NULL;
    if (conn->part != NULL) {
        message_free(home_of(conn)->network, conn->part);
        conn->part = NULL;
    }
}

static void inbox_append(struct loop_conn *conn, struct loop_message *message)
{
    if (conn->inbox_last == NULL) {
        conn->inbox_first = message;
    } else {
        conn->inbox_last->next = message;
    }
    conn->inbox_last = message;
}

/* Room for the frame whose header is here. */
static struct loop_message *message_make(struct loop_conn *peer, const uint8_t *head)
{
    uint32_t payload_bytes;
    memcpy(&payload_bytes, head, sizeof payload_bytes);
    uint32_t bytes = SL_FRAME_HEADER_BYTES + payload_bytes;
    struct loop_message *message = aligned_alloc(16, (sizeof *message + bytes + 15) / 16 * 16);
    sl_assert(message != NULL);
    *message = (struct loop_message){.bytes = bytes};
    home_of(peer)->network->message_count++;
    return message;
}

/* More of the stream: frames, whole or in parts. A header is never cut. */
static void carry_bytes(struct loop_conn *peer, const uint8_t *bytes, uint32_t count)
{
    for (uint32_t more; count > 0; bytes += more, count -= more) {
        if (peer->part == NULL) {
            peer->part = message_make(peer, bytes);
            peer->part_have = 0;
        }
        uint32_t left = peer->part->bytes - peer->part_have;
        more = count < left ? count : left;
        memcpy(peer->part->data + peer->part_have, bytes, more);
        peer->part_have += more;
        if (more == left) {
            inbox_append(peer, peer->part);
            peer->part = NULL;
        }
    }
}

static bool shares(const struct loop_conn *conn)
{
    return (conn->base.transport->ops->capabilities & SL_TRANSPORT_SHARES) != 0;
}

static bool is_registered(const struct loop_transport *loop, const uint8_t *at, size_t bytes)
{
    for (uint32_t i = 0; i < REGIONS_MAX; i++) {
        const struct loop_region *region = &loop->regions[i];
        if (region->base != NULL && at >= region->base &&
            at + bytes <= region->base + region->bytes) {
            return true;
        }
    }
    return false;
}

/* A frame between those who share memory. */
static void carry_shared(struct loop_conn *conn, const struct sl_transport_frame *frame)
{
    struct loop_conn *peer = conn->peer;
    struct loop_transport *loop = home_of(conn);
    const void *parts[] = {frame->head, frame->payload};
    const uint32_t part_bytes[] = {frame->head_bytes, frame->payload_bytes};
    for (uint32_t i = 0; i < 2; i++) {
        const bool is_there = is_registered(loop, parts[i], part_bytes[i]) ||
                              is_registered(home_of(peer), parts[i], part_bytes[i]);
        loop->stats.copied_bytes += is_there ? 0 : part_bytes[i];
    }
    struct loop_message *message = message_make(peer, frame->head);
    memcpy(message->data, frame->head, frame->head_bytes);
    message->landing = frame->landing;
    message->landing_bytes = frame->landing_bytes;
    if (message->bytes > SL_FRAME_HEADER_BYTES + SL_LIMIT_INLINE_PAYLOAD_BYTES &&
        frame->payload_bytes > 0) {
        message->rest = aligned_alloc(16, (frame->payload_bytes + 15) / 16 * 16);
        sl_assert(message->rest != NULL);
        message->rest_bytes = frame->payload_bytes;
        message->bytes -= frame->payload_bytes;
    }
    if (frame->payload_bytes > 0) {
        memcpy(message->rest != NULL ? message->rest : message->data + frame->head_bytes,
               frame->payload, frame->payload_bytes);
    }
    inbox_append(peer, message);
}

/* Copies the oldest frame, or frames in one piece, that was taken and not carried to the peer, as
 * it stands now. */
static void carry_one(struct loop_conn *conn)
{
    const struct sl_transport_frame *frame = &conn->queue[conn->carried++ % QUEUE_FRAMES];
    struct loop_conn *peer = conn->peer;
    home_of(conn)->stats.bytes_sent += frame->head_bytes + frame->payload_bytes;
    home_of(conn)->stats.frames_sent++;
    if (peer == NULL || peer->base.state == SL_CONN_CLOSED) {
        return;
    }
    if (shares(conn)) {
        carry_shared(conn, frame);
        return;
    }
    carry_bytes(peer, frame->head, frame->head_bytes);
    carry_bytes(peer, frame->payload, frame->payload_bytes);
}

/* Delivers the message, with what the connection says of it. */
static void report_received(struct loop_conn *conn, const struct loop_message *message,
                            const struct sl_transport_message *received)
{
    conn->base.landing = message->landing;
    conn->base.landing_bytes = message->landing_bytes;
    conn->base.rest = message->in_place ? message->rest : NULL;
    conn->base.rest_bytes = message->in_place ? message->rest_bytes : 0;
    sl_conn_report_received(&conn->base, received);
    conn->base.landing = NULL;
    conn->base.rest = NULL;
    conn->base.landing_bytes = conn->base.rest_bytes = 0;
}

static void inbox_pop(struct loop_conn *conn)
{
    conn->inbox_first = conn->inbox_first->next;
    if (conn->inbox_first == NULL) {
        conn->inbox_last = NULL;
    }
}

/* Hands the memory of a message to the receiver, until it is released. */
static void deliver_held(struct loop_conn *conn, struct loop_message *message,
                         const struct sl_frame *header)
{
    struct loop_transport *loop = home_of(conn);
    inbox_pop(conn);
    message->holder = loop;
    message->next = loop->held;
    loop->held = message;
    struct sl_transport_message received = {
        .header = *header, .payload = message->data + SL_FRAME_HEADER_BYTES, .token = message};
    report_received(conn, message, &received);
}

/* False when the receiver has nowhere to put a long message yet. */
static bool deliver_into_sink(struct loop_conn *conn, struct loop_message *message,
                              const struct sl_frame *header)
{
    uint8_t *memory = sl_conn_ask_sink(&conn->base, header);
    if (memory == NULL || conn->base.state != SL_CONN_OPEN) {
        return false;
    }
    if (memory == SL_TRANSPORT_IN_PLACE) {
        message->in_place = true;
        home_of(conn)->network->in_place_count++;
        deliver_held(conn, message, header);
        return true;
    }
    const uint32_t first_bytes = message->bytes - SL_FRAME_HEADER_BYTES;
    memcpy(memory, message->data + SL_FRAME_HEADER_BYTES, first_bytes);
    if (message->rest_bytes > 0) {
        memcpy(memory + first_bytes, message->rest, message->rest_bytes);
    }
    inbox_pop(conn);
    struct sl_transport_message received = {.header = *header, .payload = memory};
    report_received(conn, message, &received);
    message_free(home_of(conn)->network, message);
    return true;
}

static void conn_fail(struct loop_conn *conn, int err);

static bool deliver_one(struct loop_conn *conn)
{
    struct loop_message *message = conn->inbox_first;
    struct sl_frame header;
    int err = message->bytes < SL_FRAME_HEADER_BYTES ? SL_ERR_CLOSED
                                                     : sl_frame_decode(message->data, &header);
    if (err == SL_ERR_VERSION && header.payload_bytes <= SL_LIMIT_INLINE_PAYLOAD_BYTES) {
        err = SL_OK; /* for the upper layer to answer in words */
    }
    if (err == SL_OK &&
        header.payload_bytes != message->bytes + message->rest_bytes - SL_FRAME_HEADER_BYTES) {
        err = SL_ERR_CLOSED; /* a stream would wait for the rest until its end */
    }
    if (err != SL_OK) {
        conn_fail(conn, err);
        return false;
    }
    home_of(conn)->stats.bytes_received += message->bytes + message->rest_bytes;
    home_of(conn)->stats.frames_received++;
    if (header.payload_bytes > SL_LIMIT_INLINE_PAYLOAD_BYTES) {
        return deliver_into_sink(conn, message, &header);
    }
    deliver_held(conn, message, &header);
    return true;
}

/* ---- Connections ----------------------------------------------------------------------------- */

static struct loop_conn *conn_create(struct loop_transport *loop,
                                     const struct sl_transport_events *events, void *ctx)
{
    struct loop_conn *conn = calloc(1, sizeof *conn);
    sl_assert(conn != NULL);
    sl_conn_init(&conn->base, &loop->base, events, ctx);
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
    inbox_empty(conn);
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
        inbox_empty(conn);
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
        void *cookie = conn->queue[conn->sent++ % QUEUE_FRAMES].cookie;
        sl_conn_report_sent(&conn->base, cookie);
    }
    return count;
}

static uint32_t deliver_some(struct loop_conn *conn)
{
    uint32_t done = 0;
    uint32_t most = some_of(home_of(conn)->network, 8);
    while (done < most && conn->inbox_first != NULL && conn->base.state == SL_CONN_OPEN &&
           !conn->handed_over && deliver_one(conn)) {
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
        conn->taken - conn->sent < QUEUE_FRAMES) {
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

/* ---- The fourteen slots ---------------------------------------------------------------------- */

static int loop_open(struct sl_reactor *reactor, const struct sl_transport_options *options,
                     struct sl_transport **out)
{
    (void)reactor;
    sl_assert(options->medium != NULL);
    struct loop_transport *loop = calloc(1, sizeof *loop);
    if (loop == NULL) {
        return SL_ERR_NO_MEMORY;
    }
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
                inbox_empty(conn);
            } else {
                conn_fail(conn, SL_ERR_CANCELLED);
            }
        }
    }
    while (loop->held != NULL) {
        struct loop_message *message = loop->held;
        loop->held = message->next;
        message_free(loop->network, message);
    }
    conns_free(loop->conns);
    conns_free(loop->buried);
    free(loop);
    *transport = NULL;
}

static int loop_memory_register(struct sl_transport *transport, void *base, size_t bytes)
{
    struct loop_transport *loop = loop_of(transport);
    for (uint32_t i = 0; i < REGIONS_MAX; i++) {
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
    for (uint32_t i = 0; i < REGIONS_MAX; i++) {
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
                        const struct sl_transport_events *events, void *ctx, struct sl_conn **out)
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

static int loop_hand_over(struct sl_conn *base, struct sl_transport *to,
                          const struct sl_transport_events *events, void *ctx, void *user)
{
    struct loop_conn *conn = conn_of(base);
    sl_assert(conn->sent == conn->taken);
    struct loop_conn *moved = conn_create(loop_of(to), events, ctx);
    moved->base.user = user;
    moved->arriving = true;
    moved->peer = conn->peer;
    moved->peer_ended = conn->peer_ended;
    if (moved->peer != NULL) {
        moved->peer->peer = moved;
    }
    moved->inbox_first = conn->inbox_first;
    moved->inbox_last = conn->inbox_last;
    conn->inbox_first = conn->inbox_last = NULL;
    conn->peer = NULL;
    conn->handed_over = true;
    return SL_OK;
}

static uint32_t loop_send_burst(struct sl_conn *base, const struct sl_transport_frame *frames,
                                uint32_t count)
{
    struct loop_conn *conn = conn_of(base);
    if (base->state != SL_CONN_OPEN) {
        return 0;
    }
    uint32_t room = QUEUE_FRAMES - (conn->taken - conn->sent);
    uint32_t taken = count < room ? count : room;
    struct sl_loop_network *network = home_of(conn)->network;
    if (some_of(network, 7) == 0) {
        taken = some_of(network, taken);
    }
    for (uint32_t i = 0; i < taken; i++) {
        conn->queue[conn->taken++ % QUEUE_FRAMES] = frames[i];
    }
    conn->short_taken = conn->short_taken || taken < count;
    return taken;
}

static void loop_release(struct sl_conn *conn, const struct sl_transport_message *message)
{
    (void)conn;
    struct loop_message *releasing = message->token;
    struct loop_message **at = &releasing->holder->held;
    while (*at != releasing) {
        sl_assert(*at != NULL); /* released twice */
        at = &(*at)->next;
    }
    *at = releasing->next;
    message_free(releasing->holder->network, releasing);
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
            carry_one(conn);
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

static void spoil(struct sl_loop_network *network, uint8_t *bytes, uint32_t count)
{
    for (uint32_t i = 0; count > 0 && i < 64; i++) {
        bytes[some_of(network, count - 1)] = (uint8_t)sl_hash_random(&network->random_state);
    }
}

/* The senders of what is read in its place write to it. */
static void go_mad(struct loop_transport *loop)
{
    for (struct loop_message *message = loop->held; message != NULL; message = message->next) {
        if (message->in_place) {
            spoil(loop->network, message->data, message->bytes);
            spoil(loop->network, message->rest, message->rest_bytes);
        }
    }
}

static uint32_t loop_poll(struct sl_transport *transport, uint32_t budget)
{
    (void)budget; /* a test's handful of events */
    struct loop_transport *loop = loop_of(transport);
    if (loop->network->peers_are_mad) {
        go_mad(loop);
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

static void loop_stats(const struct sl_transport *transport, struct sl_transport_stats *out)
{
    const struct loop_transport *loop = (const struct loop_transport *)transport;
    *out = loop->stats;
    for (struct loop_conn *conn = loop->conns; conn != NULL; conn = conn->next) {
        out->connections += !conn->handed_over && conn->base.state != SL_CONN_CLOSED;
    }
}

const struct sl_transport_ops sl_loop_transport_ops = {
    .scheme = "loop",
    .capabilities = SL_TRANSPORT_HANDS_OVER | SL_TRANSPORT_STREAMS | SL_TRANSPORT_PARTS,
    .open = loop_open,
    .close = loop_close,
    .memory_register = loop_memory_register,
    .memory_unregister = loop_memory_unregister,
    .listen = loop_listen,
    .connect = loop_connect,
    .disconnect = loop_disconnect,
    .hand_over = loop_hand_over,
    .send_burst = loop_send_burst,
    .release = loop_release,
    .flush = loop_flush,
    .poll = loop_poll,
    .arm = loop_arm,
    .stats = loop_stats,
};

const struct sl_transport_ops sl_loop_shared_ops = {
    .scheme = "loop-shared",
    .capabilities = SL_TRANSPORT_HANDS_OVER | SL_TRANSPORT_SHARES | SL_TRANSPORT_ONE_SIDED,
    .open = loop_open,
    .close = loop_close,
    .memory_register = loop_memory_register,
    .memory_unregister = loop_memory_unregister,
    .listen = loop_listen,
    .connect = loop_connect,
    .disconnect = loop_disconnect,
    .hand_over = loop_hand_over,
    .send_burst = loop_send_burst,
    .release = loop_release,
    .flush = loop_flush,
    .poll = loop_poll,
    .arm = loop_arm,
    .stats = loop_stats,
};
