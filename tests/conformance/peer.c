#include "peer.h"

#include <stdlib.h>
#include <string.h>

#include "net/transport_now.h"

#define BURST        16
#define SINK_GUARD   64
#define POISON_BYTE  0xd5
#define SLAB_OF_FIVE 3

/* A frame to send, in the three ways in which an upper layer may lay it out. */
struct outgoing {
    struct outgoing *next;
    struct node *slab; /* whose it lies in; NULL: the heap */
    struct sl_transport_frame frame;
    uint32_t number;
    size_t memory_bytes;
    uint8_t memory[];
};

/* Three of five in memory that the transport knows, if that matters to it, and long ones always
 * over RDMA; that memory begins anew when it is empty. */
static struct outgoing *get_outgoing(struct node *node, uint32_t number, size_t memory_bytes)
{
    size_t bytes = (sizeof(struct outgoing) + memory_bytes + 63) & ~(size_t)63;
    struct outgoing *outgoing;
    node->slab_used = node->slab_frames == 0 ? 0 : node->slab_used;
    const bool is_long =
        node_needs_registered() && memory_bytes > SL_TRANSPORT_UNREGISTERED_BYTES_MAX;
    if ((is_long || number % 5 < SLAB_OF_FIVE) && bytes <= node->slab.bytes - node->slab_used) {
        outgoing = (struct outgoing *)(node->slab.base + node->slab_used);
        node->slab_used += bytes;
        node->slab_frames++;
        outgoing->slab = node;
        return outgoing;
    }
    sl_assert(!is_long);
    outgoing = malloc(bytes);
    sl_assert(outgoing != NULL);
    outgoing->slab = NULL;
    return outgoing;
}

static void put_outgoing(struct outgoing *outgoing)
{
    if (outgoing->slab != NULL) {
        outgoing->slab->slab_frames--;
    } else {
        free(outgoing);
    }
}

static struct outgoing *make_frame(struct node *node, uint32_t number, uint32_t payload_bytes)
{
    static const uint32_t gap = 40; /* between head and payload, so that they do not touch */
    size_t memory_bytes = SL_FRAME_HEADER_BYTES + (size_t)payload_bytes + gap;
    struct outgoing *outgoing = get_outgoing(node, number, memory_bytes);
    uint32_t in_head = number % 3 == 0 ? payload_bytes : number % 3 == 1 ? 0 : payload_bytes / 2;
    struct sl_frame header = {.type = type_of(number),
                              .payload_bytes = payload_bytes,
                              .request_id = number,
                              .budget_us = 1};
    uint8_t *rest = outgoing->memory + SL_FRAME_HEADER_BYTES + in_head + gap;
    const uint8_t *content = content_of(number, payload_bytes);
    sl_frame_encode(&header, outgoing->memory);
    memcpy(outgoing->memory + SL_FRAME_HEADER_BYTES, content, in_head);
    memcpy(rest, content + in_head, payload_bytes - in_head);
    outgoing->next = NULL;
    outgoing->number = number;
    outgoing->memory_bytes = memory_bytes;
    outgoing->frame = (struct sl_transport_frame){
        .head = outgoing->memory,
        .head_bytes = SL_FRAME_HEADER_BYTES + in_head,
        .payload = in_head < payload_bytes ? rest : NULL,
        .payload_bytes = payload_bytes - in_head,
        .cookie = outgoing,
    };
    return outgoing;
}

static void append(struct outgoing **first, struct outgoing **last, struct outgoing *outgoing)
{
    outgoing->next = NULL;
    if (*first == NULL) {
        *first = outgoing;
    } else {
        (*last)->next = outgoing;
    }
    *last = outgoing;
}

static struct outgoing *pop(struct outgoing **first)
{
    struct outgoing *outgoing = *first;
    *first = outgoing->next;
    return outgoing;
}

/* Two of four frames are joined to the one before, where the transport does that and has not
 * reported it. */
static void choose_cookie(struct outgoing *outgoing, bool follows)
{
    bool joins = (conformance_target->ops->capabilities & SL_TRANSPORT_COALESCES) != 0;
    outgoing->frame.cookie =
        joins && follows && outgoing->number % 4 < 2 ? SL_TRANSPORT_COALESCED : (void *)outgoing;
}

/* Where all before it is sent, every second frame goes at once, as far as there is room: that
 * memory is changed behind the call, and the rest waits as a piece of its own. True: none waits. */
static bool send_now(struct peer *peer)
{
    struct outgoing *outgoing = peer->first_waiting;
    struct sl_transport_frame *frame = &outgoing->frame;
    const bool is_whole = frame->head == outgoing->memory;
    if (!sl_transport_sends_now(peer->conn) || peer->first_taken != NULL || !is_whole ||
        outgoing->number % 2 == 0) {
        return false;
    }
    const struct iovec parts[] = {
        {.iov_base = outgoing->memory, .iov_len = frame->head_bytes},
        {.iov_base = (void *)(uintptr_t)frame->payload, .iov_len = frame->payload_bytes}};
    peer->node->calling = true;
    const uint32_t bytes = sl_transport_send_now(peer->conn, parts, frame->payload != NULL ? 2 : 1);
    peer->node->calling = false;
    const uint32_t of_head = bytes < frame->head_bytes ? bytes : frame->head_bytes;
    const uint32_t of_payload = bytes - of_head;
    memset(parts[0].iov_base, POISON_BYTE, of_head);
    if (of_payload > 0) {
        memset(parts[1].iov_base, POISON_BYTE, of_payload);
    }
    frame->head = outgoing->memory + of_head;
    frame->head_bytes -= of_head;
    if (frame->head_bytes == 0) {
        frame->head = frame->payload == NULL ? NULL : (const uint8_t *)frame->payload + of_payload;
        frame->head_bytes = frame->payload_bytes - of_payload;
        frame->payload = NULL;
        frame->payload_bytes = 0;
    }
    if (frame->head_bytes > 0) {
        return false;
    }
    put_outgoing(pop(&peer->first_waiting));
    peer->taken++;
    peer->sent++;
    peer->sent_now++;
    return true;
}

/* Offers what waits, a burst at a time, until the transport takes fewer than it was offered. */
static void pump(struct peer *peer)
{
    while (peer->conn != NULL && peer->first_waiting != NULL) {
        if (send_now(peer)) {
            continue;
        }
        struct sl_transport_frame burst[BURST];
        uint32_t count = 0;
        for (struct outgoing *outgoing = peer->first_waiting; outgoing != NULL && count < BURST;
             outgoing = outgoing->next) {
            choose_cookie(outgoing, count > 0 || peer->first_taken != NULL);
            burst[count++] = outgoing->frame;
        }
        peer->node->calling = true;
        uint32_t took = sl_transport_send_burst(peer->conn, burst, count);
        peer->node->calling = false;
        sl_assert(took <= count);
        peer->taken += took;
        for (uint32_t i = 0; i < took; i++) {
            append(&peer->first_taken, &peer->last_taken, pop(&peer->first_waiting));
        }
        if (took < count) {
            peer->shorts++;
            return;
        }
    }
}

void peer_send(struct peer *peer, const uint32_t *sizes, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        peer->made++;
        append(&peer->first_waiting, &peer->last_waiting,
               make_frame(peer->node, peer->made, sizes[i]));
    }
    pump(peer);
}

static struct peer *peer_create(struct node *node)
{
    sl_assert(node->peer_count < PEERS_MAX);
    struct peer *peer = calloc(1, sizeof *peer);
    sl_assert(peer != NULL);
    peer->node = node;
    node->peers[node->peer_count] = peer;
    node->peer_count++;
    node->open_count++;
    return peer;
}

/* For every second peer in memory that the transport knows, while there is some; at no round
 * address. */
static uint8_t *make_sink(struct peer *peer)
{
    static const size_t stride = SL_LIMIT_FRAME_PAYLOAD_BYTES + 1000;
    struct node *node = peer->node;
    if (peer->sink != NULL) {
        return peer->sink;
    }
    if (node->peer_count % 2 == 1 && node->sinks.bytes - node->sinks_used >= stride) {
        peer->sink = node->sinks.base + node->sinks_used;
        node->sinks_used += stride;
    } else {
        peer->sink_memory =
            malloc(SL_LIMIT_FRAME_PAYLOAD_BYTES + SINK_GUARD + node->policy.sink_offset);
        sl_assert(peer->sink_memory != NULL);
        peer->sink = peer->sink_memory;
    }
    peer->sink += node->policy.sink_offset;
    return peer->sink;
}

static void check_poison(const uint8_t *memory, size_t bytes)
{
    /* All bytes are alike if the first is right and each is the same as the one before it. */
    sl_assert(bytes == 0 || memory[0] == POISON_BYTE);
    sl_assert(bytes < 2 || memcmp(memory, memory + 1, bytes - 1) == 0);
}

static void free_outgoing(struct outgoing *outgoing, bool poisoned)
{
    while (outgoing != NULL) {
        struct outgoing *next = outgoing->next;
        if (poisoned) {
            check_poison(outgoing->memory, outgoing->memory_bytes);
        }
        put_outgoing(outgoing);
        outgoing = next;
    }
}

void peer_destroy(struct peer *peer)
{
    sl_assert(peer->closed + peer->handed_over == 1);
    free_outgoing(peer->first_taken, true);
    free_outgoing(peer->first_waiting, false);
    if (peer->sink_named) {
        check_poison(peer->sink, SL_LIMIT_FRAME_PAYLOAD_BYTES);
    }
    free(peer->sink_memory);
    free(peer);
}

struct peer *node_peer(struct node *node, uint32_t n)
{
    WAIT_UNTIL(node->peer_count > n);
    return node->peers[n];
}

static struct peer *peer_of(void *ctx, struct sl_conn *conn)
{
    struct node *node = ctx;
    struct peer *peer = conn->user;
    sl_assert(!node->calling);
    sl_reactor_assert_owner(node->reactor);
    sl_assert(peer->node == node);
    sl_assert(peer->conn == conn);
    sl_assert(peer->closed == 0);
    return peer;
}

static void on_accepted(void *ctx, struct sl_conn *conn)
{
    struct node *node = ctx;
    sl_assert(!node->calling);
    sl_reactor_assert_owner(node->reactor);
    sl_assert(conn->accepted);
    sl_assert(conn->state == SL_CONN_OPEN);
    sl_assert(conn->peer[0] != '\0');
    conn->is_welcome = !node->policy.strangers;
    struct peer *before = conn->user; /* of the node that handed it over */
    struct peer *peer = peer_create(node);
    if (before != NULL) {
        peer->expected = before->expected;
        peer->made = before->made;
    }
    peer->conn = peer->handle = conn;
    conn->user = peer;
    peer->open = true;
    if (node->policy.disconnect_on_accept) {
        sl_transport_disconnect(conn);
    }
}

static void on_connected(void *ctx, struct sl_conn *conn)
{
    struct peer *peer = peer_of(ctx, conn);
    sl_assert(!conn->accepted);
    sl_assert(conn->state == SL_CONN_OPEN);
    peer->handle = conn;
    peer->open = true;
    pump(peer);
}

/* Some that were not made in a slab: those are their maker's again when his connection ends, which
 * may be while they are read here. */
static bool is_read_in_place(uint32_t number)
{
    return number % 5 >= SLAB_OF_FIVE && number % 2 == 0;
}

static void *on_sink(void *ctx, struct sl_conn *conn, const struct sl_frame *header)
{
    struct peer *peer = peer_of(ctx, conn);
    sl_assert(header->payload_bytes > SL_LIMIT_INLINE_PAYLOAD_BYTES);
    sl_assert(!peer->sink_named);
    peer->node->sink_asked++;
    if (peer->node->policy.refuse_sink) {
        peer->sink_refused = true;
        return NULL;
    }
    bool shares = (conformance_target->ops->capabilities & SL_TRANSPORT_MAPS_MEMORY) != 0;
    if (shares && is_read_in_place((uint32_t)header->request_id)) {
        return SL_TRANSPORT_IN_PLACE;
    }
    uint8_t *sink = make_sink(peer);
    memset(sink + header->payload_bytes, POISON_BYTE, SINK_GUARD);
    peer->sink_named = true;
    return sink;
}

static void migrate(struct peer *peer)
{
    struct sl_conn *conn = peer->conn;
    struct node *owner = peer->node->policy.owner;
    peer->conn = NULL;
    peer->handed_over = 1;
    peer->node->closed_count++; /* as far as this node is concerned */
    sl_assert(sl_transport_migrate(conn, owner->transport, &peer_events, owner, peer) == 0);
}

static void check_message(struct peer *peer, const struct sl_transport_message *message)
{
    uint32_t number = (uint32_t)message->header.request_id;
    uint32_t bytes = message->header.payload_bytes;
    peer->expected++;
    sl_assert(number == peer->expected);
    sl_assert(message->header.type == type_of(number));
    sl_assert(memcmp(message->payload, content_of(number, bytes), bytes) == 0);
    if (message->token == NULL) {
        sl_assert(peer->sink_named);
        sl_assert(message->payload == peer->sink);
        check_poison(peer->sink + bytes, SINK_GUARD);
        memset(peer->sink, POISON_BYTE, bytes);
        peer->sink_named = false;
        peer->node->long_received++;
    } else if (bytes > SL_LIMIT_INLINE_PAYLOAD_BYTES) {
        sl_assert(is_read_in_place(number) && !peer->sink_named);
        peer->node->long_received++;
    }
}

static void on_received(void *ctx, struct sl_conn *conn, const struct sl_transport_message *message)
{
    struct peer *peer = peer_of(ctx, conn);
    struct node *node = peer->node;
    const struct policy *policy = &node->policy;
    sl_assert(conn->state == SL_CONN_OPEN);
    check_message(peer, message);
    if (policy->hold && message->token != NULL) {
        sl_assert(peer->held_count < HELD_MAX);
        peer->held[peer->held_count++] = *message;
    } else {
        sl_transport_release(conn, message);
    }
    peer->received++;
    if (policy->owner != NULL) {
        migrate(peer);
        return;
    }
    if (policy->echo) {
        peer_send(peer, &message->header.payload_bytes, 1);
    }
    if (policy->disconnect_at != 0 && policy->disconnect_at == peer->expected) {
        sl_transport_disconnect(conn);
    }
}

static void on_sent(void *ctx, struct sl_conn *conn, void *cookie)
{
    struct peer *peer = peer_of(ctx, conn);
    sl_assert(peer->first_taken == cookie);
    do {
        put_outgoing(pop(&peer->first_taken));
        peer->sent++;
    } while (peer->first_taken != NULL &&
             peer->first_taken->frame.cookie == SL_TRANSPORT_COALESCED);
}

static void on_writable(void *ctx, struct sl_conn *conn)
{
    struct peer *peer = peer_of(ctx, conn);
    peer->writables++;
    pump(peer);
}

/* Poisons all that was the transport's until now; peer_destroy looks whether it stayed so. */
static void on_closed(void *ctx, struct sl_conn *conn, int err)
{
    struct peer *peer = peer_of(ctx, conn);
    sl_assert(conn->state == SL_CONN_CLOSED);
    uint32_t given_back = 0;
    for (struct outgoing *outgoing = peer->first_taken; outgoing != NULL;
         outgoing = outgoing->next) {
        memset(outgoing->memory, POISON_BYTE, outgoing->memory_bytes);
        given_back++;
    }
    sl_assert(peer->sent + given_back == peer->taken);
    if (peer->sink_named) {
        memset(peer->sink, POISON_BYTE, SL_LIMIT_FRAME_PAYLOAD_BYTES);
    }
    peer->given_back = given_back;
    peer->close_err = err;
    peer->conn = NULL;
    peer->closed++;
    peer->node->closed_count++;
}

const struct sl_transport_events peer_events = {
    .accepted = on_accepted,
    .connected = on_connected,
    .sink = on_sink,
    .received = on_received,
    .sent = on_sent,
    .writable = on_writable,
    .closed = on_closed,
};

struct connect_call {
    const struct sl_endpoint *endpoint;
    uint32_t target;
    struct peer *peer;
};

static void run_connect(struct node *node, void *ctx)
{
    struct connect_call *call = ctx;
    call->peer = peer_create(node);
    node->calling = true;
    int err = sl_transport_connect(node->transport, call->endpoint, call->target, &peer_events,
                                   node, call->peer, &call->peer->conn);
    node->calling = false;
    sl_assert(err == 0);
}

struct peer *peer_connect_to(struct node *node, const struct sl_endpoint *endpoint, uint32_t target)
{
    struct connect_call call = {.endpoint = endpoint, .target = target};
    node_run(node, run_connect, &call);
    return call.peer;
}

struct peer *peer_connect(struct node *node, const struct sl_endpoint *endpoint)
{
    return peer_connect_to(node, endpoint, 0);
}

struct send_call {
    struct peer *peer;
    const uint32_t *sizes;
    uint32_t count;
};

static void run_send(struct node *node, void *ctx)
{
    struct send_call *call = ctx;
    peer_send(call->peer, call->sizes, call->count);
}

void peer_send_from_test(struct peer *peer, const uint32_t *sizes, uint32_t count)
{
    struct send_call call = {peer, sizes, count};
    node_run(peer->node, run_send, &call);
}

static void run_disconnect(struct node *node, void *ctx)
{
    struct peer *peer = ctx;
    if (peer->conn != NULL) {
        node->calling = true;
        sl_transport_disconnect(peer->conn);
        sl_transport_disconnect(peer->conn); /* idempotent */
        node->calling = false;
    }
}

void peer_disconnect_from_test(struct peer *peer)
{
    node_run(peer->node, run_disconnect, peer);
}

static void run_send_and_disconnect(struct node *node, void *ctx)
{
    struct send_call *call = ctx;
    run_send(node, call);
    run_disconnect(node, call->peer);
}

void peer_send_and_disconnect_from_test(struct peer *peer, const uint32_t *sizes, uint32_t count)
{
    struct send_call call = {peer, sizes, count};
    node_run(peer->node, run_send_and_disconnect, &call);
}

void peer_release_held(struct peer *peer, uint32_t stride)
{
    for (uint32_t start = 0; start < stride; start++) {
        for (uint32_t i = start; i < peer->held_count; i += stride) {
            const struct sl_transport_message *message = &peer->held[i];
            uint32_t number = (uint32_t)message->header.request_id;
            uint32_t bytes = message->header.payload_bytes;
            sl_assert(memcmp(message->payload, content_of(number, bytes), bytes) == 0);
            sl_transport_release(peer->handle, message);
        }
    }
    peer->held_count = 0;
}
