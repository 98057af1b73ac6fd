/* poll.c implements poll and flush: receives packets, dispatches them and sends packets. */
#include <string.h>

#include "core/clock.h"
#include "core/list.h"
#include "net/dpdk/internal.h"

/* After this many packets answers are sent before more packets are handled, so that both sides work
 * in parallel. */
#define GROUP_PACKETS 8U
/* Limit for one port in a turn: its senders get acknowledgements while they may still send. */
#define POLL_PACKETS  64U
/* After this many bytes grants are sent before the end of the turn and before delivery: peers that
 * send long packets would wait for both. */
#define EARLY_BYTES   65536U
#define REFUSED_NS    (100 * SL_CLOCK_NS_PER_MS)

/* Sending */

/* Drops all packets for the queue of the first one, as a network may. */
static void drop_refused(struct sl_dpdk_netif *netif)
{
    const uint16_t queue = netif->out[0].queue;
    struct sl_dpdk_packet lost[SL_DPDK_BURST + SL_DPDK_UNNUMBERED];
    uint32_t kept_count = 0, lost_count = 0;
    for (uint32_t i = 0; i < netif->out_count; i++) {
        struct sl_dpdk_packet *packet = &netif->out[i];
        if (packet->queue != queue) {
            netif->out[kept_count++] = *packet;
            continue;
        }
        if (packet->pending != NULL) {
            --*packet->pending;
        }
        lost[lost_count++] = *packet;
    }
    netif->out_count = kept_count;
    netif->port->ops->release(netif->port, lost, lost_count);
}

/* A queue that accepts nothing for 100 ms has a peer that no longer reads it. From then on its
 * packets are dropped until it accepts one, so that packets for other queues do not wait. */
static void note_refused(struct sl_dpdk *dpdk, struct sl_dpdk_netif *netif)
{
    const uint64_t now_ns = sl_dpdk_now_ns(dpdk);
    if (netif->is_stuck && netif->stuck_queue == netif->out[0].queue) {
        drop_refused(netif);
    } else if (netif->refused_since_ns == 0) {
        netif->refused_since_ns = now_ns;
    } else if (now_ns - netif->refused_since_ns >= REFUSED_NS) {
        netif->is_stuck = true;
        netif->stuck_queue = netif->out[0].queue;
        netif->refused_since_ns = 0;
        drop_refused(netif);
    }
}

void sl_dpdk_send_out(struct sl_dpdk *dpdk, struct sl_dpdk_netif *netif)
{
    const uint32_t count = netif->out_count < SL_DPDK_BURST ? netif->out_count : SL_DPDK_BURST;
    const uint32_t sent = netif->port->ops->send(netif->port, netif->out, count);
    dpdk->stats.send_calls++;
    for (uint32_t i = 0; netif->is_stuck && i < sent; i++) {
        netif->is_stuck = netif->out[i].queue != netif->stuck_queue;
    }
    netif->out_count -= sent;
    if (sent > 0) {
        memmove(netif->out, netif->out + sent, netif->out_count * sizeof netif->out[0]);
        netif->refused_since_ns = 0;
    } else {
        note_refused(dpdk, netif);
    }
}

static bool get(struct sl_dpdk_netif *netif, uint32_t places, struct sl_dpdk_packet *out)
{
    if (netif->out_count >= places) {
        return false;
    }
    if (netif->spare_count == 0) {
        netif->spare_count = netif->port->ops->reserve(netif->port, netif->spare, SL_DPDK_BURST);
        if (netif->spare_count == 0) {
            return false;
        }
    }
    *out = netif->spare[--netif->spare_count];
    return true;
}

bool sl_dpdk_get(struct sl_dpdk_netif *netif, struct sl_dpdk_packet *out)
{
    return get(netif, SL_DPDK_BURST, out);
}

bool sl_dpdk_get_unnumbered(struct sl_dpdk_netif *netif, struct sl_dpdk_packet *out)
{
    return get(netif, SL_DPDK_BURST + SL_DPDK_UNNUMBERED, out);
}

void sl_dpdk_put(struct sl_dpdk *dpdk, struct sl_dpdk_netif *netif,
                 const struct sl_dpdk_packet *packet)
{
    sl_assert(netif->out_count < SL_DPDK_BURST + SL_DPDK_UNNUMBERED);
    netif->out[netif->out_count++] = *packet;
    if (netif->out_count >= SL_DPDK_BURST) {
        sl_dpdk_send_out(dpdk, netif);
    }
}

/* Receiving */

bool sl_dpdk_take(struct sl_dpdk *dpdk, struct sl_dpdk_netif *netif, struct sl_dpdk_packet *packet,
                  const struct sl_dpdk_parsed *parsed, bool is_misrouted)
{
    const struct sl_dpdk_header *header = &parsed->header;
    if (header->kind == SL_DPDK_OPEN) {
        if (is_misrouted || !sl_dpdk_misrouted_forward(dpdk, netif, packet, parsed)) {
            sl_dpdk_listen_take(dpdk, netif, parsed);
        }
        return false;
    }
    struct sl_dpdk_conn *conn = sl_dpdk_conn_find(dpdk, header->connection);
    if (conn != NULL) {
        return sl_dpdk_conn_take(conn, netif, packet, parsed);
    }
    if (!is_misrouted && sl_dpdk_misrouted_forward(dpdk, netif, packet, parsed)) {
        return false;
    }
    if (sl_dpdk_time_wait_take(dpdk, parsed)) {
        return false;
    }
    if (header->kind == SL_DPDK_ACCEPT) {
        sl_dpdk_setup_take(dpdk, netif, NULL, parsed);
    } else if (header->kind == SL_DPDK_PROBE) {
        sl_dpdk_setup_stranger(dpdk, netif, parsed);
    } else {
        dpdk->not_ours++;
    }
    return false;
}

/* Returns whether the packet's memory was kept. */
static bool take_packet(struct sl_dpdk *dpdk, struct sl_dpdk_netif *netif,
                        struct sl_dpdk_packet *packet)
{
    struct sl_dpdk_parsed parsed;
    switch (sl_dpdk_parse(packet->bytes, packet->length, packet->checked, &parsed)) {
    case SL_DPDK_OURS:
        if (memcmp(&parsed.to.ip, &netif->info.self.ip, sizeof parsed.to.ip) == 0) {
            return sl_dpdk_take(dpdk, netif, packet, &parsed, false);
        }
        dpdk->not_ours++;
        return false;
    case SL_DPDK_NEIGHBOUR:
        sl_dpdk_route_neighbour(dpdk, netif, packet->bytes, packet->length, packet);
        return false;
    case SL_DPDK_NOT_OURS:
        dpdk->not_ours++;
        return false;
    case SL_DPDK_MALFORMED:
        if (parsed.version == 0 || !sl_dpdk_setup_other(dpdk, netif, packet, &parsed, false)) {
            dpdk->malformed++;
        }
        return false;
    }
    return false;
}

/* The turn */

static void flush_one(struct sl_dpdk_conn *conn)
{
    if (conn->phase == SL_DPDK_LIVE || conn->phase == SL_DPDK_DRAINING) {
        conn->pace_ns = sl_dpdk_send_flush(conn);
        sl_dpdk_conn_set_timer(conn);
    }
}

/* Sends the peer its new grant soon. */
static void tell_grant(void *ctx, struct sl_dpdk_grant *grant)
{
    (void)ctx;
    struct sl_dpdk_conn *conn = SL_CONTAINER_OF(grant, struct sl_dpdk_conn, grant);
    conn->ack_due = conn->ack_now = true;
    sl_dpdk_mark_dirty(conn);
}

static bool is_full(const struct sl_dpdk_conn *conn)
{
    return sl_dpdk_send_is_full(conn);
}

static bool tells(const struct sl_dpdk_conn *conn)
{
    return conn->ack_now;
}

/* Flushes the connections that match. The others wait for the end of the turn, so that more frames
 * may share a packet. */
static void flush_those(struct sl_dpdk *dpdk, bool (*are)(const struct sl_dpdk_conn *conn))
{
    SL_LIST_FOREACH (link, &dpdk->dirty) {
        struct sl_dpdk_conn *conn = SL_CONTAINER_OF(link, struct sl_dpdk_conn, dirty);
        if (are(conn)) {
            sl_list_remove(link);
            flush_one(conn);
        }
    }
}

static void send_all(struct sl_dpdk *dpdk, uint32_t least)
{
    for (uint32_t i = 0; i < dpdk->netif_count; i++) {
        if (dpdk->netifs[i].out_count >= least) {
            sl_dpdk_send_out(dpdk, &dpdk->netifs[i]);
        }
    }
}

static void tell_early(struct sl_dpdk *dpdk)
{
    dpdk->untold_bytes = 0;
    sl_dpdk_grants_deal(&dpdk->grants, tell_grant, dpdk);
    flush_those(dpdk, tells);
    send_all(dpdk, 1);
}

static uint32_t visit_ready(struct sl_dpdk *dpdk)
{
    uint32_t work = 0;
    struct sl_list visits; /* a connection that is marked again waits for the next poll */
    sl_list_init(&visits);
    sl_list_append_all(&visits, &dpdk->ready);
    dpdk->awake = false;
    struct sl_list_link *link;
    while ((link = sl_list_pop(&visits)) != NULL) {
        work += sl_dpdk_conn_visit(SL_CONTAINER_OF(link, struct sl_dpdk_conn, ready)) ? 1 : 0;
    }
    return work;
}

/* Handles the consequences of the last packets before the next group. */
static uint32_t end_group(struct sl_dpdk *dpdk)
{
    uint32_t work = 0;
    if (dpdk->untold_bytes >= EARLY_BYTES) {
        tell_early(dpdk);
    }
    if (!sl_list_empty(&dpdk->ready)) {
        work = visit_ready(dpdk);
    }
    flush_those(dpdk, is_full);
    send_all(dpdk, GROUP_PACKETS);
    return work;
}

static uint32_t take_burst(struct sl_dpdk *dpdk, struct sl_dpdk_netif *netif,
                           struct sl_dpdk_packet *packets, uint32_t count)
{
    uint32_t done = 0, work = count;
    for (uint32_t i = 0; i < count; i++) {
        if (i > 0 && i % GROUP_PACKETS == 0) {
            work += end_group(dpdk);
        }
        dpdk->untold_bytes += packets[i].length;
        if (!take_packet(dpdk, netif, &packets[i])) {
            packets[done++] = packets[i];
        }
    }
    if (done > 0) {
        netif->port->ops->release(netif->port, packets, done);
    }
    dpdk->stats.receive_calls += count > 0;
    return work;
}

static uint32_t poll_netif(struct sl_dpdk *dpdk, struct sl_dpdk_netif *netif)
{
    struct sl_dpdk_packet packets[SL_DPDK_BURST];
    uint32_t work = 0, count = SL_DPDK_BURST;
    for (uint32_t taken = 0; count == SL_DPDK_BURST && taken < POLL_PACKETS; taken += count) {
        count = netif->port->ops->receive(netif->port, packets, SL_DPDK_BURST);
        work += take_burst(dpdk, netif, packets, count);
    }
    return work;
}

uint32_t sl_dpdk_poll(struct sl_transport *transport, uint32_t budget)
{
    struct sl_dpdk *dpdk = (struct sl_dpdk *)transport;
    uint32_t work = 0;
    (void)budget; /* POLL_PACKETS is smaller */
    for (uint32_t i = 0; i < dpdk->netif_count; i++) {
        work += poll_netif(dpdk, &dpdk->netifs[i]);
    }
    if (dpdk->untold_bytes >= EARLY_BYTES) {
        tell_early(dpdk);
    }
    if (!sl_list_empty(&dpdk->ready)) {
        work += visit_ready(dpdk);
    } else {
        dpdk->awake = false; /* the connection that set it is gone */
    }
    if (work > 0) {
        dpdk->idle_ns = SL_DPDK_IDLE_NS_MIN;
    }
    return work;
}

static void flush_dirty(struct sl_dpdk *dpdk)
{
    struct sl_list flushes; /* a connection that is marked again waits for the next flush */
    sl_list_init(&flushes);
    sl_list_append_all(&flushes, &dpdk->dirty);
    struct sl_list_link *link;
    while ((link = sl_list_pop(&flushes)) != NULL) {
        flush_one(SL_CONTAINER_OF(link, struct sl_dpdk_conn, dirty));
    }
}

void sl_dpdk_flush(struct sl_transport *transport)
{
    struct sl_dpdk *dpdk = (struct sl_dpdk *)transport;
    dpdk->untold_bytes = 0;
    sl_dpdk_grants_deal(&dpdk->grants, tell_grant, dpdk);
    if (!sl_list_empty(&dpdk->dirty)) {
        flush_dirty(dpdk);
    }
    send_all(dpdk, 1);
}
