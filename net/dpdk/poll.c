/* What one turn does: packets in, what they lead to, packets out. */
#include <string.h>

#include "core/clock.h"
#include "net/dpdk/internal.h"

/* Packets after which answers leave before more are looked at: so that both sides work at once. */
#define GROUP_PACKETS 8U
/* Of a port, after which the turn ends: who sent them hears of it while it may still send. */
#define POLL_PACKETS  64U
/* Bytes after which grants go out before the turn ends, and before what came is delivered: peers
 * with long packets would wait for both. */
#define EARLY_BYTES   65536U
#define REFUSED_NS    (100 * SL_CLOCK_NS_PER_MS)

/* ---- Packets that leave -----------------------------------------------------------------------
 */

/* What is for the queue of the first packet is lost, as in any network. */
static void drop_refused(struct sl_dpdk_netif *side)
{
    const uint16_t queue = side->out[0].queue;
    struct sl_dpdk_packet lost[SL_DPDK_BURST + SL_DPDK_UNNUMBERED];
    uint32_t kept_count = 0, lost_count = 0;
    for (uint32_t i = 0; i < side->out_count; i++) {
        struct sl_dpdk_packet *packet = &side->out[i];
        if (packet->queue != queue) {
            side->out[kept_count++] = *packet;
            continue;
        }
        if (packet->pending != NULL) {
            --*packet->pending;
        }
        lost[lost_count++] = *packet;
    }
    side->out_count = kept_count;
    side->port->ops->release(side->port, lost, lost_count);
}

/* A queue that takes nothing for long has a peer that looks at it no more: what is for others shall
 * not wait for it, from then on until it takes something. */
static void note_refused(struct sl_dpdk *dpdk, struct sl_dpdk_netif *side)
{
    const uint64_t now_ns = sl_dpdk_now_ns(dpdk);
    if (side->is_stuck && side->stuck_queue == side->out[0].queue) {
        drop_refused(side);
    } else if (side->refused_since_ns == 0) {
        side->refused_since_ns = now_ns;
    } else if (now_ns - side->refused_since_ns >= REFUSED_NS) {
        side->is_stuck = true;
        side->stuck_queue = side->out[0].queue;
        side->refused_since_ns = 0;
        drop_refused(side);
    }
}

void sl_dpdk_send_out(struct sl_dpdk *dpdk, struct sl_dpdk_netif *side)
{
    const uint32_t count = side->out_count < SL_DPDK_BURST ? side->out_count : SL_DPDK_BURST;
    const uint32_t sent = side->port->ops->send(side->port, side->out, count);
    dpdk->stats.send_calls++;
    for (uint32_t i = 0; side->is_stuck && i < sent; i++) {
        side->is_stuck = side->out[i].queue != side->stuck_queue;
    }
    side->out_count -= sent;
    if (sent > 0) {
        memmove(side->out, side->out + sent, side->out_count * sizeof side->out[0]);
        side->refused_since_ns = 0;
    } else {
        note_refused(dpdk, side);
    }
}

static bool get(struct sl_dpdk_netif *side, uint32_t places, struct sl_dpdk_packet *out)
{
    if (side->out_count >= places) {
        return false;
    }
    if (side->spare_count == 0) {
        side->spare_count = side->port->ops->reserve(side->port, side->spare, SL_DPDK_BURST);
        if (side->spare_count == 0) {
            return false;
        }
    }
    *out = side->spare[--side->spare_count];
    return true;
}

bool sl_dpdk_get(struct sl_dpdk_netif *side, struct sl_dpdk_packet *out)
{
    return get(side, SL_DPDK_BURST, out);
}

bool sl_dpdk_get_unnumbered(struct sl_dpdk_netif *side, struct sl_dpdk_packet *out)
{
    return get(side, SL_DPDK_BURST + SL_DPDK_UNNUMBERED, out);
}

void sl_dpdk_put(struct sl_dpdk *dpdk, struct sl_dpdk_netif *side,
                 const struct sl_dpdk_packet *packet)
{
    sl_assert(side->out_count < SL_DPDK_BURST + SL_DPDK_UNNUMBERED);
    side->out[side->out_count++] = *packet;
    if (side->out_count >= SL_DPDK_BURST) {
        sl_dpdk_send_out(dpdk, side);
    }
}

/* ---- Packets that arrive ----------------------------------------------------------------------
 */

bool sl_dpdk_take(struct sl_dpdk *dpdk, struct sl_dpdk_netif *side, struct sl_dpdk_packet *packet,
                  const struct sl_dpdk_parsed *parsed, bool is_stray)
{
    const struct sl_dpdk_header *header = &parsed->header;
    if (header->kind == SL_DPDK_OPEN) {
        if (is_stray || !sl_dpdk_misrouted_forward(dpdk, side, packet, parsed)) {
            sl_dpdk_listen_take(dpdk, side, parsed);
        }
        return false;
    }
    struct sl_dpdk_conn *conn = sl_dpdk_conn_find(dpdk, header->connection);
    if (conn != NULL) {
        return sl_dpdk_conn_take(conn, side, packet, parsed);
    }
    if (!is_stray && sl_dpdk_misrouted_forward(dpdk, side, packet, parsed)) {
        return false;
    }
    if (sl_dpdk_time_wait_take(dpdk, side, packet, parsed)) {
        return false;
    }
    if (header->kind == SL_DPDK_ACCEPT) {
        sl_dpdk_setup_take(dpdk, side, NULL, parsed);
    } else if (header->kind == SL_DPDK_PROBE) {
        sl_dpdk_setup_stranger(dpdk, side, parsed);
    } else {
        dpdk->foreign++;
    }
    return false;
}

/* Returns whether the packet's memory was kept. */
static bool take_packet(struct sl_dpdk *dpdk, struct sl_dpdk_netif *side,
                        struct sl_dpdk_packet *packet)
{
    struct sl_dpdk_parsed parsed;
    switch (sl_dpdk_parse(packet->bytes, packet->length, packet->checked, &parsed)) {
    case SL_DPDK_OURS:
        if (memcmp(&parsed.to.ip, &side->facts.self.ip, sizeof parsed.to.ip) == 0) {
            return sl_dpdk_take(dpdk, side, packet, &parsed, false);
        }
        dpdk->foreign++;
        return false;
    case SL_DPDK_NEIGHBOUR:
        sl_dpdk_route_neighbour(dpdk, side, packet->bytes, packet->length, packet);
        return false;
    case SL_DPDK_NOT_OURS:
        dpdk->foreign++;
        return false;
    case SL_DPDK_MALFORMED:
        if (parsed.version == 0 || !sl_dpdk_setup_other(dpdk, side, packet, &parsed, false)) {
            dpdk->broken++;
        }
        return false;
    }
    return false;
}

/* ---- The turn ---------------------------------------------------------------------------------
 */

static void flush_one(struct sl_dpdk_conn *conn)
{
    if (conn->life == SL_DPDK_LIVE || conn->life == SL_DPDK_DRAINING) {
        conn->pace_ns = sl_dpdk_send_flush(conn);
        sl_dpdk_conn_set_timer(conn);
    }
}

/* Its peer may send more, and shall know of it soon. */
static void tell_grant(void *ctx, struct sl_dpdk_grant *grant)
{
    (void)ctx;
    struct sl_dpdk_conn *conn =
        (struct sl_dpdk_conn *)((char *)grant - offsetof(struct sl_dpdk_conn, grant));
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

/* The rest may find company until the turn ends. */
static void flush_those(struct sl_dpdk *dpdk, bool (*are)(const struct sl_dpdk_conn *conn))
{
    for (struct sl_dpdk_conn **at = &dpdk->dirty; *at != NULL;) {
        struct sl_dpdk_conn *conn = *at;
        if (!are(conn)) {
            at = &conn->dirty_next;
            continue;
        }
        *at = conn->dirty_next;
        conn->dirty = false;
        flush_one(conn);
    }
}

static void send_all(struct sl_dpdk *dpdk, uint32_t least)
{
    for (uint32_t i = 0; i < dpdk->side_count; i++) {
        if (dpdk->sides[i].out_count >= least) {
            sl_dpdk_send_out(dpdk, &dpdk->sides[i]);
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
    struct sl_dpdk_conn *list = dpdk->ready;
    dpdk->ready = NULL;
    dpdk->awake = false;
    while (list != NULL) {
        struct sl_dpdk_conn *conn = list;
        list = conn->ready_next;
        conn->ready = false;
        work += sl_dpdk_conn_visit(conn) ? 1 : 0;
    }
    return work;
}

/* What has come leads to more before the next is looked at. */
static uint32_t end_group(struct sl_dpdk *dpdk)
{
    uint32_t work = 0;
    if (dpdk->untold_bytes >= EARLY_BYTES) {
        tell_early(dpdk);
    }
    if (dpdk->ready != NULL) {
        work = visit_ready(dpdk);
    }
    flush_those(dpdk, is_full);
    send_all(dpdk, GROUP_PACKETS);
    return work;
}

static uint32_t take_burst(struct sl_dpdk *dpdk, struct sl_dpdk_netif *side,
                           struct sl_dpdk_packet *packets, uint32_t count)
{
    uint32_t done = 0, work = count;
    for (uint32_t i = 0; i < count; i++) {
        if (i > 0 && i % GROUP_PACKETS == 0) {
            work += end_group(dpdk);
        }
        dpdk->untold_bytes += packets[i].length;
        if (!take_packet(dpdk, side, &packets[i])) {
            packets[done++] = packets[i];
        }
    }
    if (done > 0) {
        side->port->ops->release(side->port, packets, done);
    }
    dpdk->stats.receive_calls += count > 0;
    return work;
}

static uint32_t poll_side(struct sl_dpdk *dpdk, struct sl_dpdk_netif *side)
{
    struct sl_dpdk_packet packets[SL_DPDK_BURST];
    uint32_t work = 0, count = SL_DPDK_BURST;
    for (uint32_t taken = 0; count == SL_DPDK_BURST && taken < POLL_PACKETS; taken += count) {
        count = side->port->ops->receive(side->port, packets, SL_DPDK_BURST);
        work += take_burst(dpdk, side, packets, count);
    }
    return work;
}

uint32_t sl_dpdk_poll(struct sl_transport *transport, uint32_t budget)
{
    struct sl_dpdk *dpdk = (struct sl_dpdk *)transport;
    uint32_t work = sl_dpdk_move_close_lost(dpdk, SL_ERR_NO_MEMORY);
    (void)budget; /* POLL_PACKETS are less */
    for (uint32_t i = 0; i < dpdk->side_count; i++) {
        work += poll_side(dpdk, &dpdk->sides[i]);
    }
    if (dpdk->untold_bytes >= EARLY_BYTES) {
        tell_early(dpdk);
    }
    if (dpdk->ready != NULL) {
        work += visit_ready(dpdk);
    } else {
        dpdk->awake = false; /* whoever was to be visited is gone */
    }
    if (work > 0) {
        dpdk->idle_ns = SL_DPDK_IDLE_NS_MIN;
    }
    return work;
}

static void flush_dirty(struct sl_dpdk *dpdk)
{
    struct sl_dpdk_conn *list = dpdk->dirty;
    dpdk->dirty = NULL;
    while (list != NULL) {
        struct sl_dpdk_conn *conn = list;
        list = conn->dirty_next;
        conn->dirty = false;
        flush_one(conn);
    }
}

void sl_dpdk_flush(struct sl_transport *transport)
{
    struct sl_dpdk *dpdk = (struct sl_dpdk *)transport;
    dpdk->untold_bytes = 0;
    sl_dpdk_grants_deal(&dpdk->grants, tell_grant, dpdk);
    if (dpdk->dirty != NULL) {
        flush_dirty(dpdk);
    }
    send_all(dpdk, 1);
}
