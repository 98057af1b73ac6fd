/* One connection of the simulated network: how it is made, how frames leave and arrive, how it
 * ends. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/network_internal.h"

#define CLOSING_NS    SL_CLOCK_NS_PER_S /* that a disconnect may wait for what was taken */
#define RETRY_NS      (200 * SL_CLOCK_NS_PER_MS)
#define ASK_AGAIN_US  500   /* at most, before a receiver without room is asked for it again */
#define ASK_SLOWLY_US 50000 /* likewise, where frames take seconds */
#define PIECE_BYTES   (64U << 10) /* of a long payload, before those of others, on a shared link */
#define POISON        0xa5
#define DELIVERED_MAX 8 /* of one connection, in one poll */

static uint32_t frame_bytes(const struct sl_transport_frame *frame)
{
    return frame->head_bytes + frame->payload_bytes;
}

static uint64_t now_of(const struct sl_sim_conn *conn)
{
    return sl_sim_network_of(conn)->now_ns;
}

struct sl_sim_conn *sl_sim_conn_create(struct sl_sim_transport *transport,
                                       const struct sl_transport_events *events, void *ctx)
{
    struct sl_sim_conn *conn = calloc(1, sizeof *conn);
    sl_assert(conn != NULL);
    sl_conn_init(&conn->base, &transport->base, events, ctx);
    sl_cell_add(&transport->base.cells->connections, 1);
    conn->end_ns = conn->doom_ns = SL_CLOCK_NEVER;
    struct sl_sim_conn **end = &transport->conns;
    while (*end != NULL) {
        end = &(*end)->next;
    }
    *end = conn;
    return conn;
}

void sl_sim_conn_fail(struct sl_sim_conn *conn, int err)
{
    struct sl_sim_network *network = sl_sim_network_of(conn);
    sl_sim_part(conn);
    sl_sim_inbox_empty(conn);
    sl_sim_rma_close(conn);
    free(conn->making);
    conn->making = NULL;
    if (network->watch.ended != NULL) {
        network->watch.ended(network->watch.ctx, sl_sim_home(conn)->host->index, conn->pair,
                             conn->connector, err);
    }
    sl_cell_subtract(&sl_sim_home(conn)->base.cells->connections, 1);
    sl_conn_report_closed(&conn->base, err);
}

static struct sl_sim_listener *find_listener(const struct sl_sim_host *host, uint16_t port)
{
    struct sl_sim_listener *listener = host->listeners;
    while (listener != NULL && listener->port != port) {
        listener = listener->next;
    }
    return listener;
}

static uint32_t live_conns(const struct sl_sim_transport *transport)
{
    uint32_t count = 0;
    for (const struct sl_sim_conn *conn = transport->conns; conn != NULL; conn = conn->next) {
        count += !sl_sim_is_gone(conn);
    }
    return count;
}

static void connect_to(struct sl_sim_conn *conn, struct sl_sim_listener *listener)
{
    struct sl_sim_network *network = sl_sim_network_of(conn);
    struct sl_sim_conn *peer =
        sl_sim_conn_create(listener->transport, listener->events, listener->ctx);
    peer->arriving = true;
    peer->peer = conn;
    peer->pair = conn->pair;
    peer->remote = sl_sim_home(conn)->host->index;
    peer->rail = conn->rail;
    peer->settle_ns = network->now_ns + sl_sim_delay_ns(network);
    sl_sim_network_address(peer->remote, peer->base.peer, sizeof peer->base.peer);
    conn->peer = peer;
    sl_sim_wake(peer, peer->settle_ns);
    sl_conn_report_connected(&conn->base);
}

/* The way there and back has been gone: what did it find? */
static void try_connect(struct sl_sim_conn *conn)
{
    struct sl_sim_network *network = sl_sim_network_of(conn);
    const struct sl_sim_host *host = &network->hosts[conn->remote];
    struct sl_sim_listener *listener = find_listener(host, conn->target.port);
    bool silent = sl_sim_is_cut(conn) || sl_sim_is_deaf(conn) || (host->dead && host->silent);
    if (sl_sim_home(conn)->host->dead) {
        sl_sim_conn_fail(conn, SL_ERR_REFUSED);
    } else if (silent && network->now_ns >= conn->settle_until_ns) {
        sl_sim_conn_fail(conn, SL_ERR_DEADLINE);
    } else if (silent) {
        conn->settle_ns = network->now_ns + RETRY_NS;
    } else if (host->dead || host->refuses || listener == NULL ||
               live_conns(listener->transport) >= listener->transport->base.connections_max ||
               sl_sim_chance(&network->random, network->options.connect_fail_permille)) {
        sl_sim_conn_fail(conn, SL_ERR_REFUSED);
    } else {
        connect_to(conn, listener);
    }
}

static uint32_t settle(struct sl_sim_conn *conn)
{
    if (conn->arriving && !conn->moved && conn->end_ns <= now_of(conn)) {
        /* Nobody has heard of it: it just goes. */
        sl_sim_part(conn);
        sl_sim_inbox_empty(conn);
        sl_sim_rma_close(conn);
        conn->handed_over = true;
        sl_cell_subtract(&sl_sim_home(conn)->base.cells->connections, 1);
        return 1;
    }
    if (conn->settle_ns > now_of(conn)) {
        return 0;
    }
    if (conn->arriving) {
        conn->arriving = false;
        sl_conn_report_accepted(&conn->base);
    } else {
        try_connect(conn);
    }
    return 1;
}

static void tell_watch(struct sl_sim_conn *conn, const uint8_t *data, bool delivered)
{
    struct sl_sim_network *network = sl_sim_network_of(conn);
    struct sl_sim_frame frame = {.pair = conn->pair,
                                 .by_connector = conn->connector != delivered,
                                 .delivered = delivered,
                                 .from = sl_sim_home(conn)->host->index,
                                 .to = conn->remote,
                                 .payload = data + SL_FRAME_HEADER_BYTES};
    if (network->watch.frame != NULL && sl_frame_decode(data, &frame.header) == 0) {
        network->watch.frame(network->watch.ctx, &frame);
    }
}

static bool has_costs(const struct sl_sim_network *network)
{
    return network->meter.costs != NULL;
}

/* The frame leaves when the turn has come to it, and passes the links of both hosts in order.
 * Returns when it arrives. */
static uint64_t pass_links(struct sl_sim_conn *conn, const struct sl_sim_message *message)
{
    struct sl_sim_network *network = sl_sim_network_of(conn);
    const struct sl_sim_costs *costs = network->meter.costs;
    struct sl_sim_host *from = sl_sim_home(conn)->host, *to = &network->hosts[conn->remote];
    const double wire_ns = message->bytes / costs->bandwidth;
    sl_sim_meter_frame(&network->meter, from->index, true, message->data, message->bytes,
                       &conn->sent_turn);
    const double ready_ns = (double)network->now_ns + network->meter.spent_ns;
    from->out_free_ns = fmax(from->out_free_ns, ready_ns) + wire_ns;
    to->in_free_ns = fmax(to->in_free_ns + wire_ns, from->out_free_ns + costs->latency);
    return (uint64_t)to->in_free_ns;
}

/* A whole frame sets out for the peer, if there is one yet. */
static void post(struct sl_sim_conn *conn, struct sl_sim_message *message)
{
    struct sl_sim_network *network = sl_sim_network_of(conn);
    struct sl_sim_conn *peer = conn->peer;
    sl_cell_add(&sl_sim_home(conn)->base.cells->frames_sent, 1);
    tell_watch(conn, message->data, false);
    if (peer == NULL || peer->base.state == SL_CONN_CLOSED) {
        free(message);
        return;
    }
    uint64_t arrival_ns =
        has_costs(network) ? pass_links(conn, message) : network->now_ns + sl_sim_delay_ns(network);
    if (arrival_ns <= peer->last_arrival_ns) {
        arrival_ns = peer->last_arrival_ns + 1;
    }
    if (sl_sim_is_cut(conn)) {
        arrival_ns = SL_CLOCK_NEVER;
    } else {
        peer->last_arrival_ns = arrival_ns;
        sl_sim_wake(peer, arrival_ns);
    }
    message->arrival_ns = arrival_ns;
    network->message_count++;
    peer->inbox_bytes += message->bytes;
    *(peer->inbox_last == NULL ? &peer->inbox_first : &peer->inbox_last->next) = message;
    peer->inbox_last = message;
}

/* Room for the frame that begins here. */
static struct sl_sim_message *message_make(const uint8_t *head)
{
    struct sl_frame header;
    int err = sl_frame_decode(head, &header);
    sl_assert(err == 0); /* what ours send is well-formed */
    uint32_t bytes = SL_FRAME_HEADER_BYTES + header.payload_bytes;
    struct sl_sim_message *message = aligned_alloc(16, (sizeof *message + bytes + 15) / 16 * 16);
    sl_assert(message != NULL);
    *message = (struct sl_sim_message){.bytes = bytes};
    return message;
}

/* More of what is sent; what does not go on with a frame begins with a whole header. */
static void carry_bytes(struct sl_sim_conn *conn, const uint8_t *bytes, uint32_t count)
{
    for (uint32_t more; count > 0; bytes += more, count -= more) {
        if (conn->making == NULL) {
            sl_assert(count >= SL_FRAME_HEADER_BYTES);
            conn->making = message_make(bytes);
            conn->made_bytes = 0;
        }
        struct sl_sim_message *message = conn->making;
        uint32_t left = message->bytes - conn->made_bytes;
        more = count < left ? count : left;
        memcpy(message->data + conn->made_bytes, bytes, more);
        conn->made_bytes += more;
        if (more == left) {
            conn->making = NULL;
            post(conn, message);
        }
    }
}

void sl_sim_conn_carry(struct sl_sim_conn *conn)
{
    const struct sl_sim_outgoing *out = &conn->queue[conn->carried++ % SL_SIM_QUEUE_FRAMES];
    const struct sl_transport_frame *frame = &out->frame;
    sl_cell_add(&sl_sim_home(conn)->base.cells->bytes_sent, frame_bytes(frame));
    uint64_t hash = sl_hash_bytes(frame->head, frame->head_bytes, 0);
    sl_assert(sl_sim_network_of(conn)->options.is_one_sided ||
              out->hash == sl_hash_bytes(frame->payload, frame->payload_bytes, hash));
    carry_bytes(conn, frame->head, frame->head_bytes);
    carry_bytes(conn, frame->payload, frame->payload_bytes);
}

static bool window_is_open(const struct sl_sim_conn *conn)
{
    return conn->peer == NULL ||
           conn->peer->inbox_bytes < sl_sim_network_of(conn)->options.window_bytes;
}

/* Over a shared link what was sent counts as sent when it has landed. */
static bool is_underway(const struct sl_sim_conn *conn)
{
    if (conn->peer == NULL || !sl_sim_is_slow(sl_sim_network_of(conn))) {
        return false;
    }
    const struct sl_sim_message *message = conn->peer->inbox_first;
    while (message != NULL &&
           message->bytes <= SL_FRAME_HEADER_BYTES + SL_LIMIT_INLINE_PAYLOAD_BYTES) {
        message = message->next;
    }
    return message != NULL;
}

uint32_t sl_sim_conn_carry_now(struct sl_sim_conn *conn, const struct iovec *parts, uint32_t count)
{
    struct sl_sim_network *network = sl_sim_network_of(conn);
    const bool is_metered = network->meter.costs != NULL; /* then links carry all at once */
    const bool is_busy = conn->wire_free_ns > network->now_ns && !is_metered;
    if (conn->sent != conn->taken || is_busy || is_underway(conn) || !window_is_open(conn)) {
        return 0;
    }
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        bytes += parts[i].iov_len;
    }
    /* Cut anywhere, but not in a header. */
    if (!is_metered && !sl_sim_chance(&network->random, 300)) {
        bytes = sl_sim_below(&network->random, bytes);
    }
    if (conn->making == NULL && bytes < SL_FRAME_HEADER_BYTES) {
        return 0;
    }
    uint64_t left = bytes;
    for (uint32_t i = 0; left > 0; i++) {
        const uint64_t more = left < parts[i].iov_len ? left : parts[i].iov_len;
        carry_bytes(conn, parts[i].iov_base, (uint32_t)more);
        left -= more;
    }
    sl_cell_add(&sl_sim_home(conn)->base.cells->bytes_sent, bytes);
    conn->wire_free_ns =
        network->now_ns + bytes * SL_CLOCK_NS_PER_US / network->options.bytes_per_us;
    return (uint32_t)bytes;
}

/* Before or after what breaks it has arrived. */
void sl_sim_break_by_chance(struct sl_sim_conn *conn)
{
    struct sl_sim_network *network = sl_sim_network_of(conn);
    if (network->options.break_per_10000 != 0 && conn->peer != NULL &&
        sl_sim_below(&network->random, 10000) < network->options.break_per_10000) {
        sl_sim_break_pair(conn, sl_sim_chance(&network->random, 200) ? 20000 : 500);
    }
}

static bool may_carry(const struct sl_sim_conn *conn)
{
    return conn->carried != conn->taken && window_is_open(conn);
}

static void carry_due(struct sl_sim_conn *conn)
{
    while (may_carry(conn) &&
           conn->queue[conn->carried % SL_SIM_QUEUE_FRAMES].leave_ns <= now_of(conn)) {
        sl_sim_conn_carry(conn);
        sl_sim_break_by_chance(conn);
    }
}

static uint32_t report_sent(struct sl_sim_conn *conn)
{
    uint32_t count = 0;
    if (is_underway(conn)) {
        return 0;
    }
    while (conn->sent != conn->carried && conn->base.state != SL_CONN_CLOSED &&
           conn->queue[conn->sent % SL_SIM_QUEUE_FRAMES].sent_ns <= now_of(conn)) {
        void *cookie = conn->queue[conn->sent++ % SL_SIM_QUEUE_FRAMES].frame.cookie;
        sl_conn_report_sent(&conn->base, cookie);
        count++;
    }
    return count;
}

static bool has_room(const struct sl_sim_conn *conn)
{
    return conn->taken - conn->sent < SL_SIM_QUEUE_FRAMES;
}

static struct sl_sim_message *inbox_pop(struct sl_sim_conn *conn)
{
    struct sl_sim_message *message = conn->inbox_first;
    bool was_shut = conn->inbox_bytes >= sl_sim_network_of(conn)->options.window_bytes;
    conn->inbox_first = message->next;
    conn->inbox_bytes -= message->bytes;
    if (conn->inbox_first == NULL) {
        conn->inbox_last = NULL;
    }
    if (was_shut && conn->peer != NULL) {
        sl_sim_wake(conn->peer, now_of(conn)); /* the window has opened */
    }
    return message;
}

/* Hands the memory of a message to the receiver, until it is released. */
static void deliver_held(struct sl_sim_conn *conn, const struct sl_frame *header)
{
    struct sl_sim_message *message = inbox_pop(conn);
    message->holder = conn;
    message->prev_held = NULL;
    message->next_held = conn->held;
    if (conn->held != NULL) {
        conn->held->prev_held = message;
    }
    conn->held = message;
    struct sl_transport_message received = {
        .header = *header, .payload = message->data + SL_FRAME_HEADER_BYTES, .token = message};
    sl_conn_report_received(&conn->base, &received);
}

static bool ask_for_sink(struct sl_sim_conn *conn, const struct sl_frame *header)
{
    struct sl_sim_network *network = sl_sim_network_of(conn);
    if (conn->landed_ns > network->now_ns) {
        return false; /* it has just been asked */
    }
    uint8_t *memory = sl_conn_ask_sink(&conn->base, header);
    const uint64_t most_us = sl_sim_is_slow(network) ? ASK_SLOWLY_US : ASK_AGAIN_US;
    const uint64_t us =
        has_costs(network) ? memory == NULL : sl_sim_between(&network->random, 1, most_us);
    conn->landed_ns = network->now_ns + SL_CLOCK_NS_PER_US * us;
    if (memory == NULL || conn->base.state != SL_CONN_OPEN) {
        return false;
    }
    conn->sink = memory;
    if (!network->options.is_one_sided) {
        memset(memory, POISON, header->payload_bytes);
    }
    return true;
}

/* Over a shared link a payload lands piece by piece, in turn with those of others. True: all of it
 * has; else landed_ns is when the next piece will have. */
static bool has_landed(struct sl_sim_conn *conn, uint32_t payload_bytes)
{
    struct sl_sim_network *network = sl_sim_network_of(conn);
    uint64_t *free_ns = &network->link_free_ns[conn->connector];
    if (conn->piece_bytes > 0 && conn->peer != NULL) {
        conn->peer->base.taken_bytes += conn->piece_bytes;
    }
    conn->landed_bytes += conn->piece_bytes;
    conn->piece_bytes = 0;
    const uint32_t left = payload_bytes - conn->landed_bytes;
    if (left == 0 || !sl_sim_is_slow(network)) {
        conn->landed_bytes = 0;
        return true;
    }
    conn->piece_bytes = left < PIECE_BYTES ? left : PIECE_BYTES;
    *free_ns = (*free_ns > network->now_ns ? *free_ns : network->now_ns) +
               conn->piece_bytes * SL_CLOCK_NS_PER_MS / network->options.link_bytes_per_ms;
    conn->landed_ns = *free_ns;
    return false;
}

static void assert_poison(const uint8_t *memory, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++) {
        sl_assert(memory[i] == POISON); /* written by others while it was the transport's */
    }
}

/* A long payload goes into memory that the receiver names, and takes a while. */
static bool deliver_into_sink(struct sl_sim_conn *conn, const struct sl_frame *header)
{
    if (conn->sink == NULL && !ask_for_sink(conn, header)) {
        return false;
    }
    if (conn->landed_ns > now_of(conn) || !has_landed(conn, header->payload_bytes)) {
        return false;
    }
    uint8_t *memory = conn->sink;
    conn->sink = NULL;
    conn->landed_ns = 0;
    if (!sl_sim_network_of(conn)->options.is_one_sided) {
        assert_poison(memory, header->payload_bytes);
    }
    struct sl_sim_message *message = inbox_pop(conn);
    if (conn->peer != NULL) {
        sl_sim_wake(conn->peer, now_of(conn)); /* what was sent counts as sent from now on */
    }
    memcpy(memory, message->data + SL_FRAME_HEADER_BYTES, header->payload_bytes);
    sl_sim_message_free(sl_sim_network_of(conn), message);
    struct sl_transport_message received = {.header = *header, .payload = memory};
    sl_conn_report_received(&conn->base, &received);
    return true;
}

/* False when nothing more can be delivered now. */
static bool deliver_one(struct sl_sim_conn *conn)
{
    struct sl_sim_message *message = conn->inbox_first;
    struct sl_frame header;
    int err = sl_frame_decode(message->data, &header);
    sl_assert(err == 0); /* what ours send is well-formed */
    sl_assert(header.payload_bytes == message->bytes - SL_FRAME_HEADER_BYTES);
    if (conn->sink == NULL && conn->landed_ns == 0) {
        sl_cell_add(&sl_sim_home(conn)->base.cells->bytes_received, message->bytes);
        sl_cell_add(&sl_sim_home(conn)->base.cells->frames_received, 1);
        tell_watch(conn, message->data, true);
        sl_sim_meter_frame(&sl_sim_network_of(conn)->meter, sl_sim_home(conn)->host->index, false,
                           message->data, message->bytes, &conn->received_turn);
    }
    if (header.payload_bytes > SL_LIMIT_INLINE_PAYLOAD_BYTES) {
        return deliver_into_sink(conn, &header);
    }
    deliver_held(conn, &header);
    return true;
}

static bool has_arrived(const struct sl_sim_conn *conn)
{
    return conn->inbox_first != NULL && conn->inbox_first->arrival_ns <= now_of(conn);
}

static uint32_t deliver_some(struct sl_sim_conn *conn)
{
    uint32_t done = 0;
    struct sl_sim_network *network = sl_sim_network_of(conn);
    uint32_t most = has_costs(network) ? SL_LIMIT_TURN_EVENTS
                                       : 1 + sl_sim_below(&network->random, DELIVERED_MAX);
    while (done < most && conn->base.state == SL_CONN_OPEN && !conn->handed_over &&
           has_arrived(conn) && deliver_one(conn)) {
        done++;
    }
    return done;
}

static bool close_if_due(struct sl_sim_conn *conn)
{
    uint64_t now_ns = now_of(conn);
    if (conn->doom_ns <= now_ns) {
        sl_sim_conn_fail(conn, SL_ERR_DEADLINE);
        return true;
    }
    if (conn->base.state == SL_CONN_CLOSING) {
        sl_sim_inbox_empty(conn);
        bool all_gone =
            conn->carried == conn->taken || conn->end_ns <= now_ns || conn->base.is_abrupt;
        if (all_gone || now_ns >= conn->closing_until_ns) {
            sl_sim_conn_fail(conn, SL_OK);
            return true;
        }
        return false;
    }
    if (conn->end_ns <= now_ns && (conn->reset || conn->inbox_first == NULL)) {
        sl_sim_conn_fail(conn, conn->end_err);
        return true;
    }
    return false;
}

uint32_t sl_sim_conn_poll(struct sl_sim_conn *conn)
{
    uint32_t events = 0;
    if (conn->base.state == SL_CONN_CLOSING && conn->closing_until_ns == 0) {
        conn->closing_until_ns = now_of(conn) + CLOSING_NS;
    }
    if (conn->base.state == SL_CONN_CONNECTING) {
        return settle(conn);
    }
    if (conn->reset && conn->end_ns <= now_of(conn) && close_if_due(conn)) {
        return 1;
    }
    carry_due(conn);
    events += report_sent(conn);
    if (conn->short_taken && conn->base.state == SL_CONN_OPEN && has_room(conn)) {
        conn->short_taken = false;
        sl_conn_report_writable(&conn->base);
        events++;
    }
    if (!sl_sim_is_gone(conn)) {
        events += deliver_some(conn);
    }
    if (!sl_sim_is_gone(conn)) {
        events += sl_sim_rma_report(conn);
    }
    if (!sl_sim_is_gone(conn) && close_if_due(conn)) {
        events++;
    }
    return events;
}

static uint64_t sooner(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t delivery_next(const struct sl_sim_conn *conn)
{
    if (conn->inbox_first == NULL) {
        return conn->end_ns;
    }
    uint64_t arrival_ns = conn->inbox_first->arrival_ns;
    uint64_t next_ns = conn->landed_ns > arrival_ns ? conn->landed_ns : arrival_ns;
    return conn->reset ? sooner(next_ns, conn->end_ns) : next_ns;
}

uint64_t sl_sim_conn_next(const struct sl_sim_conn *conn)
{
    if (conn->base.state == SL_CONN_CONNECTING) {
        bool vanishes = conn->arriving && !conn->moved;
        return vanishes ? sooner(conn->settle_ns, conn->end_ns) : conn->settle_ns;
    }
    uint64_t next_ns = conn->doom_ns;
    if (conn->base.state == SL_CONN_CLOSING) {
        /* Its next poll begins the wait; what follows is known then. */
        next_ns = sooner(next_ns, conn->closing_until_ns);
        next_ns = sooner(next_ns, conn->end_ns);
    } else {
        next_ns = sooner(next_ns, delivery_next(conn));
        next_ns = sooner(next_ns, sl_sim_rma_next(conn));
        next_ns = conn->short_taken && has_room(conn) ? now_of(conn) : next_ns;
    }
    if (may_carry(conn)) {
        next_ns = sooner(next_ns, conn->queue[conn->carried % SL_SIM_QUEUE_FRAMES].leave_ns);
    }
    if (conn->sent != conn->carried && !is_underway(conn)) {
        next_ns = sooner(next_ns, conn->queue[conn->sent % SL_SIM_QUEUE_FRAMES].sent_ns);
    }
    return next_ns;
}
