#include "tests/sim/dpdk.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/dpdk/dpdk.h"
#include "net/dpdk/end.h"
#include "net/dpdk/send_queue.h"
#include "tests/sim/ether_internal.h"

/* The frames of one direction of a connection. */
struct flow {
    uint32_t *sums; /* of each that was taken */
    uint32_t taken, capacity, delivered;
};

/* A connection, from the first connect on: both of its ends. */
struct pair {
    struct pair *next;
    uint64_t number, id;  /* the connector's */
    struct flow flows[2]; /* [by the connector] */
    uint32_t hosts[2];    /* likewise; the acceptor's since it has accepted */
};

/* What was taken with one send, until it is `sent`. */
struct taken {
    struct sl_transport_frame frame;
    uint32_t sum;
};

/* One end, or a listener: the ctx of its upcalls. */
struct end {
    struct end *next, *previous;
    struct sl_sim_network *network;
    uint32_t host;
    const struct sl_transport_events *events; /* of the layer above */
    void *ctx;
    struct pair *pair; /* NULL: a listener; or it is arriving, or a stranger's */
    bool connector;
    struct taken *queue; /* [capacity], from first on */
    uint32_t first, count, capacity;
    bool breaks;
    bool is_strangers; /* whose frames nobody has noted: strangers.h */
};

/* A transport that is open. */
struct home {
    struct home *next;
    struct sl_transport *transport;
    uint32_t host;
};

struct sl_sim_dpdk {
    struct sl_sim_network *network;
    uint64_t random;
    uint64_t pair_count;
    struct pair *pairs; /* the newest first */
    struct end *ends;
    struct home *homes;
};

static void *grown(void *items, uint32_t count, uint32_t *capacity, size_t item_bytes)
{
    if (count < *capacity) {
        return items;
    }
    *capacity = *capacity == 0 ? 16 : 2 * *capacity;
    items = realloc(items, *capacity * item_bytes);
    sl_assert(items != NULL);
    return items;
}

static struct sl_sim_network *network_of(const struct sl_transport *transport, uint32_t *host)
{
    const struct sl_dpdk_port *port = ((const struct sl_dpdk *)transport)->netifs[0].port;
    *host = sl_sim_ether_host(port);
    return sl_sim_ether_network(port);
}

static void complain(const struct end *end, const char *what, uint32_t number)
{
    char text[160];
    const struct sl_sim_watch *watch = &end->network->watch;
    (void)snprintf(text, sizeof text, "connection %" PRIu64 ", frame %u, host %u (%s): %s",
                   end->pair->number, number, end->host, end->connector ? "connector" : "acceptor",
                   what);
    watch->breach(watch->ctx, text);
}

static struct end *end_make(struct sl_sim_network *network, uint32_t host,
                            const struct sl_transport_events *events, void *ctx)
{
    struct sl_sim_dpdk *dpdk = network->dpdk;
    struct end *end = calloc(1, sizeof *end);
    sl_assert(end != NULL);
    *end = (struct end){
        .next = dpdk->ends, .network = network, .host = host, .events = events, .ctx = ctx};
    if (end->next != NULL) {
        end->next->previous = end;
    }
    dpdk->ends = end;
    return end;
}

static void end_free(struct end *end)
{
    *(end->previous != NULL ? &end->previous->next : &end->network->dpdk->ends) = end->next;
    if (end->next != NULL) {
        end->next->previous = end->previous;
    }
    free(end->queue);
    free(end);
}

static struct pair *pair_make(struct sl_sim_dpdk *dpdk, uint64_t id)
{
    struct pair *pair = calloc(1, sizeof *pair);
    sl_assert(pair != NULL);
    *pair = (struct pair){.next = dpdk->pairs, .number = dpdk->pair_count++, .id = id};
    dpdk->pairs = pair;
    return pair;
}

static struct pair *pair_find(const struct sl_sim_dpdk *dpdk, uint64_t id)
{
    struct pair *pair = dpdk->pairs;
    while (pair != NULL && pair->id != id) {
        pair = pair->next;
    }
    return pair;
}

static uint32_t sum_of(const struct sl_transport_frame *frame)
{
    return sl_hash_crc32c(sl_hash_crc32c(0, frame->head, frame->head_bytes), frame->payload,
                          frame->payload_bytes);
}

static void tell_watch(const struct end *end, const struct sl_frame *header, const uint8_t *payload,
                       bool delivered)
{
    const struct sl_sim_watch *watch = &end->network->watch;
    const struct sl_sim_frame frame = {.pair = end->pair->number,
                                       .by_connector = end->connector != delivered,
                                       .delivered = delivered,
                                       .from = end->host,
                                       .to = end->pair->hosts[!end->connector],
                                       .header = *header,
                                       .payload = payload};
    watch->frame(watch->ctx, &frame);
}

/* One of the whole frames in what was taken: its sum, and the bytes that it has there. */
static uint32_t split(const struct sl_transport_frame *taken, uint32_t at, struct sl_frame *header,
                      uint32_t *sum)
{
    const uint8_t *head = taken->head;
    sl_assert(taken->head_bytes - at >= SL_FRAME_HEADER_BYTES);
    int err = sl_frame_decode(head + at, header);
    sl_assert(err == 0); /* what ours send is well-formed */
    const uint32_t bytes = SL_FRAME_HEADER_BYTES + header->payload_bytes;
    const uint32_t near = taken->head_bytes - at < bytes ? taken->head_bytes - at : bytes;
    *sum = sl_hash_crc32c(0, head + at, near);
    if (near < bytes) {
        sl_assert(bytes - near == taken->payload_bytes); /* it is the last of them */
        *sum = sl_hash_crc32c(*sum, taken->payload, bytes - near);
    }
    return bytes;
}

static void note_taken(struct end *end, const struct sl_transport_frame *taken)
{
    struct flow *flow = &end->pair->flows[end->connector];
    const uint32_t bytes = taken->head_bytes + taken->payload_bytes;
    for (uint32_t at = 0; at < bytes;) {
        struct sl_frame header;
        flow->sums = grown(flow->sums, flow->taken, &flow->capacity, sizeof *flow->sums);
        at += split(taken, at, &header, &flow->sums[flow->taken]);
        flow->taken++;
        tell_watch(end, &header, NULL, false);
    }
    if (end->first + end->count == end->capacity && end->first > 0) {
        memmove(end->queue, end->queue + end->first, end->count * sizeof *end->queue);
        end->first = 0;
    }
    end->queue = grown(end->queue, end->first + end->count, &end->capacity, sizeof *end->queue);
    end->queue[end->first + end->count++] = (struct taken){.frame = *taken, .sum = sum_of(taken)};
}

/* The listener's ctx until now: from here on it has its own. */
static struct end *arrive(struct sl_conn *conn)
{
    struct end *end = conn->ctx;
    const struct sl_dpdk_conn *inner = (const struct sl_dpdk_conn *)conn;
    struct end *own = end_make(end->network, end->host, end->events, end->ctx);
    own->pair = pair_find(end->network->dpdk, inner->id_peers);
    conn->ctx = own;
    if (own->pair == NULL) { /* nobody of ours has asked for it */
        sl_assert(end->network->options.ether.strangers > 0);
        own->is_strangers = true;
        return own;
    }
    own->pair->hosts[false] = own->host;
    return own;
}

static void on_accepted(void *ctx, struct sl_conn *conn)
{
    const struct end *end = arrive(conn);
    end->events->accepted(end->ctx, conn);
}

static void on_connected(void *ctx, struct sl_conn *conn)
{
    const struct end *end = ctx;
    end->events->connected(end->ctx, conn);
}

static void *on_sink(void *ctx, struct sl_conn *conn, const struct sl_frame *header)
{
    const struct end *end = ctx;
    return end->events->sink(end->ctx, conn, header);
}

static void check_received(const struct end *end, const struct sl_transport_message *message)
{
    struct flow *flow = &end->pair->flows[!end->connector];
    uint32_t sum = sl_hash_crc32c(0, &message->header, sizeof message->header);
    sum = sl_hash_crc32c(sum, message->payload, message->header.payload_bytes);
    const uint32_t number = flow->delivered++;
    if (number >= flow->taken) {
        complain(end, "nobody has sent it", number);
    } else if (flow->sums[number] != sum) {
        complain(end, "it is not what was sent", number);
    }
    tell_watch(end, &message->header, message->payload, true);
}

static void on_received(void *ctx, struct sl_conn *conn, const struct sl_transport_message *message)
{
    const struct end *end = ctx;
    /* What is not in a sink lies in memory for short frames. */
    sl_assert(message->token == NULL ||
              message->header.payload_bytes <= SL_LIMIT_INLINE_PAYLOAD_BYTES);
    if (!end->is_strangers) {
        check_received(end, message);
    }
    end->events->received(end->ctx, conn, message);
}

/* It, and those that go with it. */
static void check_sent(struct end *end, const void *cookie)
{
    bool is_next = end->count > 0 && end->queue[end->first].frame.cookie == cookie;
    if (!is_next) {
        complain(end, "another is said to be sent", 0);
    }
    do {
        if (end->count == 0) {
            break;
        }
        const struct taken *taken = &end->queue[end->first];
        sl_assert(sum_of(&taken->frame) == taken->sum); /* left alone meanwhile */
        end->first++;
        end->count--;
    } while (end->count > 0 && end->queue[end->first].frame.cookie == SL_TRANSPORT_COALESCED);
}

static void on_sent(void *ctx, struct sl_conn *conn, void *cookie)
{
    struct end *end = ctx;
    if (!end->is_strangers) {
        check_sent(end, cookie);
    }
    end->events->sent(end->ctx, conn, cookie);
}

static void on_writable(void *ctx, struct sl_conn *conn)
{
    const struct end *end = ctx;
    end->events->writable(end->ctx, conn);
}

static void tell_closed(const struct end *end, int err)
{
    const struct sl_sim_watch *watch = &end->network->watch;
    watch->ended(watch->ctx, end->host, end->pair->number, end->connector, err);
    if (err == SL_ERR_PROTOCOL) {
        complain(end, "its peer is said to have broken the protocol", 0);
    }
}

static void on_closed(void *ctx, struct sl_conn *conn, int err)
{
    struct end *end = ctx;
    if (!end->is_strangers) {
        tell_closed(end, err);
    }
    end->events->closed(end->ctx, conn, err);
    end_free(end);
}

static const struct sl_transport_events watched = {
    .accepted = on_accepted,
    .connected = on_connected,
    .sink = on_sink,
    .received = on_received,
    .sent = on_sent,
    .writable = on_writable,
    .closed = on_closed,
};

static int open_one(struct sl_reactor *reactor, const struct sl_transport_options *options,
                    struct sl_transport **out)
{
    struct sl_transport_options own = *options;
    const struct sl_dpdk_medium *medium = options->medium;
    const struct sl_sim_device *device = medium->ctx;
    struct sl_sim_network *network = device->ether->network;
    if (own.peer_timeout_ms == 0) {
        own.peer_timeout_ms = network->options.peer_timeout_ms;
    }
    int err = sl_dpdk_ops.open(reactor, &own, out);
    sl_assert(err == 0);
    struct home *home = calloc(1, sizeof *home);
    sl_assert(home != NULL);
    *home = (struct home){.next = network->dpdk->homes, .transport = *out, .host = device->host};
    network->dpdk->homes = home;
    return SL_OK;
}

static void close_one(struct sl_transport **transport)
{
    uint32_t host;
    struct home **at = &network_of(*transport, &host)->dpdk->homes;
    while ((*at)->transport != *transport) {
        at = &(*at)->next;
    }
    struct home *gone = *at;
    *at = gone->next;
    free(gone);
    sl_dpdk_ops.close(transport);
}

static int listen_on(struct sl_transport *transport, const struct sl_endpoint *endpoint,
                     const struct sl_transport_events *events, void *ctx, struct sl_endpoint *bound)
{
    uint32_t host;
    struct sl_sim_network *network = network_of(transport, &host);
    struct end *end = end_make(network, host, events, ctx);
    int err = sl_dpdk_ops.listen(transport, endpoint, &watched, end, bound);
    if (err != 0) {
        end_free(end);
    }
    return err;
}

static int connect_to(struct sl_transport *transport, const struct sl_endpoint *endpoint,
                      uint32_t target, const struct sl_transport_events *events, void *ctx,
                      struct sl_conn **out)
{
    uint32_t host;
    struct sl_sim_network *network = network_of(transport, &host);
    struct end *end = end_make(network, host, events, ctx);
    int err = sl_dpdk_ops.connect(transport, endpoint, target, &watched, end, out);
    if (err != 0) {
        end_free(end);
        return err;
    }
    struct sl_dpdk_conn *conn = (struct sl_dpdk_conn *)*out;
    end->pair = pair_make(network->dpdk, conn->id);
    end->pair->hosts[true] = end->host;
    end->connector = true;
    if (network->hosts[host].dead ||
        sl_sim_chance(&network->dpdk->random, network->options.connect_fail_permille)) {
        sl_dpdk_conn_end(conn, SL_ERR_REFUSED, false);
    }
    return SL_OK;
}

/* As when the queue is full. */
static uint32_t take_part(struct sl_conn *base, const struct sl_transport_frame *frames,
                          uint32_t count)
{
    struct sl_dpdk_conn *conn = (struct sl_dpdk_conn *)base;
    const uint32_t taken = sl_dpdk_ops.send_burst(base, frames, count);
    if (base->state == SL_CONN_OPEN) {
        conn->send->wants_room = true;
        sl_dpdk_mark_ready(conn);
    }
    return taken;
}

static uint32_t send_burst(struct sl_conn *conn, const struct sl_transport_frame *frames,
                           uint32_t count)
{
    struct end *end = conn->ctx;
    const struct sl_sim_network_options *options = &end->network->options;
    uint64_t *random = &end->network->dpdk->random;
    const bool is_short = count > 0 && sl_sim_chance(random, options->short_permille / 4);
    const uint32_t taken = is_short ? take_part(conn, frames, sl_sim_below(random, count))
                                    : sl_dpdk_ops.send_burst(conn, frames, count);
    for (uint32_t i = 0; i < taken && !end->is_strangers; i++) {
        note_taken(end, &frames[i]);
        end->breaks = end->breaks || (options->break_per_10000 != 0 &&
                                      sl_sim_below(random, 10000) < options->break_per_10000);
    }
    return taken;
}

/* Returns whether the peer is told, and hears it for sure. */
static bool break_one(struct sl_sim_dpdk *dpdk, struct sl_dpdk_conn *conn)
{
    const struct sl_sim_ether_options *ether = &dpdk->network->options.ether;
    const bool is_told = sl_sim_chance(&dpdk->random, 500);
    sl_dpdk_conn_end(conn, sl_sim_chance(&dpdk->random, 500) ? SL_ERR_CLOSED : SL_ERR_IO, is_told);
    return is_told && ether->lost == 0 && ether->corrupted == 0;
}

/* With any frame, before or after it has left. */
static void flush(struct sl_transport *transport)
{
    struct sl_dpdk *inner = (struct sl_dpdk *)transport;
    uint32_t host;
    struct sl_sim_dpdk *dpdk = network_of(transport, &host)->dpdk;
    const bool leaves = sl_sim_chance(&dpdk->random, 500);
    if (leaves) {
        sl_dpdk_ops.flush(transport);
    }
    SL_LIST_EACH (struct sl_dpdk_conn, conn, alive, &inner->liveness.conns) {
        struct end *end = conn->base.ctx;
        if (end->breaks && conn->phase == SL_DPDK_LIVE) {
            end->breaks = false;
            (void)break_one(dpdk, conn);
        }
    }
    if (!leaves) {
        sl_dpdk_ops.flush(transport);
    }
}

bool sl_sim_dpdk_break(struct sl_sim_dpdk *dpdk, uint32_t host, bool all)
{
    bool all_hear = true;
    uint32_t seen = 0;
    for (struct home *home = dpdk->homes; home != NULL; home = home->next) {
        struct sl_dpdk *inner = (struct sl_dpdk *)home->transport;
        SL_LIST_EACH (struct sl_dpdk_conn, conn, alive, &inner->liveness.conns) {
            seen += home->host == host && conn->phase == SL_DPDK_LIVE;
        }
    }
    const uint32_t chosen = seen > 0 ? sl_sim_below(&dpdk->random, seen) : 0;
    seen = 0;
    for (struct home *home = dpdk->homes; home != NULL; home = home->next) {
        struct sl_dpdk *inner = (struct sl_dpdk *)home->transport;
        SL_LIST_EACH (struct sl_dpdk_conn, conn, alive, &inner->liveness.conns) {
            if (home->host == host && conn->phase == SL_DPDK_LIVE && (seen++ == chosen || all)) {
                all_hear = break_one(dpdk, conn) && all_hear;
            }
        }
    }
    const struct sl_sim_watch *watch = &dpdk->network->watch;
    watch->wake(watch->ctx, host, dpdk->network->now_ns);
    return all_hear;
}

struct sl_sim_dpdk *sl_sim_dpdk_create(struct sl_sim_network *network)
{
    struct sl_sim_dpdk *dpdk = calloc(1, sizeof *dpdk);
    sl_assert(dpdk != NULL);
    dpdk->network = network;
    dpdk->random = sl_hash_key(network->options.seed ^ 0xd9d1U);
    return dpdk;
}

void sl_sim_dpdk_destroy(struct sl_sim_dpdk **dpdk)
{
    struct sl_sim_dpdk *gone = *dpdk;
    sl_assert(gone->homes == NULL);
    while (gone->ends != NULL) {
        end_free(gone->ends); /* listeners, and what nobody heard of */
    }
    while (gone->pairs != NULL) {
        struct pair *pair = gone->pairs;
        gone->pairs = pair->next;
        free(pair->flows[0].sums);
        free(pair->flows[1].sums);
        free(pair);
    }
    free(gone);
    *dpdk = NULL;
}

const struct sl_transport_ops *sl_sim_dpdk_ops(void)
{
    static struct sl_transport_ops ops;
    ops = sl_dpdk_ops;
    ops.open = open_one;
    ops.close = close_one;
    ops.listen = listen_on;
    ops.connect = connect_to;
    ops.send_burst = send_burst;
    ops.flush = flush;
    return &ops;
}
