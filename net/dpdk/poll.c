/* poll.c implements poll and flush: receives packets, dispatches them and sends packets. */
#include "net/dpdk/poll.h"

#include <string.h>

#include "core/list.h"
#include "net/dpdk/conn.h"
#include "net/dpdk/conn_table.h"
#include "net/dpdk/connect.h"
#include "net/dpdk/listen.h"
#include "net/dpdk/misrouted_packets.h"
#include "net/dpdk/neighbour_receive.h"
#include "net/dpdk/route.h"
#include "net/dpdk/send.h"
#include "net/dpdk/time_wait.h"

/* After this many packets answers are sent before more packets are handled, so that both sides work
 * in parallel. */
#define GROUP_PACKETS 8U
/* Limit for one port in a turn: its senders get acknowledgements while they may still send. */
#define POLL_PACKETS  64U
/* After this many bytes grants are sent before the end of the turn and before delivery: peers that
 * send long packets would wait for both. */
#define EARLY_BYTES   65536U

/* Receiving */

/* A packet with the id of a connection. Returns whether its memory was kept. */
static bool take_for(struct sl_dpdk_conn *conn, struct sl_dpdk_netif *netif,
                     struct sl_dpdk_packet *packet, const struct sl_dpdk_parsed *parsed)
{
    if (!sl_dpdk_route_is_from_peer(conn, netif, parsed)) {
        conn->dpdk->counts.spoofed++;
        return false;
    }
    if (conn->phase == SL_DPDK_ASKING || parsed->header.kind < SL_DPDK_DATA) {
        sl_dpdk_connect_take(conn->dpdk, netif, conn, parsed);
        return false;
    }
    return sl_dpdk_conn_take(conn, netif, packet, parsed);
}

/* A packet of class OURS for a local address. Returns whether its memory was kept. */
static bool poll_take(struct sl_dpdk *dpdk, struct sl_dpdk_netif *netif,
                      struct sl_dpdk_packet *packet, const struct sl_dpdk_parsed *parsed,
                      bool is_misrouted)
{
    const struct sl_dpdk_header *header = &parsed->header;
    if (header->kind == SL_DPDK_OPEN) {
        if (is_misrouted || !sl_dpdk_misrouted_packets_forward(dpdk, netif, packet, parsed)) {
            sl_dpdk_listen_take(dpdk, netif, parsed);
        }
        return false;
    }
    struct sl_dpdk_conn *conn = sl_dpdk_conn_table_find(dpdk, header->connection);
    if (conn != NULL) {
        return take_for(conn, netif, packet, parsed);
    }
    if (!is_misrouted && sl_dpdk_misrouted_packets_forward(dpdk, netif, packet, parsed)) {
        return false;
    }
    if (sl_dpdk_time_wait_take(dpdk, parsed)) {
        return false;
    }
    if (header->kind == SL_DPDK_ACCEPT) {
        sl_dpdk_connect_take(dpdk, netif, NULL, parsed);
    } else if (header->kind == SL_DPDK_PROBE) {
        sl_dpdk_connect_stranger(dpdk, netif, parsed);
    } else {
        dpdk->counts.not_ours++;
    }
    return false;
}

/* A packet of another version: OPEN is answered with REFUSE, and REFUSE ends a connect. False: it
 * is neither. */
static bool take_other(struct sl_dpdk *dpdk, struct sl_dpdk_netif *netif,
                       const struct sl_dpdk_packet *packet, const struct sl_dpdk_parsed *parsed,
                       bool is_misrouted)
{
    const struct sl_dpdk_header *header = &parsed->header;
    if (memcmp(&parsed->to.ip, &netif->info.self.ip, sizeof parsed->to.ip) != 0 ||
        parsed->body_bytes < SL_DPDK_HELLO_BYTES) {
        return false;
    }
    if (header->kind == SL_DPDK_OPEN && header->connection == 0) {
        sl_dpdk_listen_other(dpdk, netif, parsed);
        return true;
    }
    if (header->kind != SL_DPDK_REFUSE) {
        return false;
    }
    struct sl_dpdk_conn *conn = sl_dpdk_conn_table_find(dpdk, header->connection);
    if (conn != NULL) {
        return sl_dpdk_connect_take_other(conn, netif, parsed);
    }
    return !is_misrouted && sl_dpdk_misrouted_packets_forward(dpdk, netif, packet, parsed);
}

/* Returns whether the packet's memory was kept. */
static bool take_packet(struct sl_dpdk *dpdk, struct sl_dpdk_netif *netif,
                        struct sl_dpdk_packet *packet)
{
    struct sl_dpdk_parsed parsed;
    switch (sl_dpdk_parse(packet->bytes, packet->length, packet->checked, &parsed)) {
    case SL_DPDK_OURS:
        if (memcmp(&parsed.to.ip, &netif->info.self.ip, sizeof parsed.to.ip) == 0) {
            return poll_take(dpdk, netif, packet, &parsed, false);
        }
        dpdk->counts.not_ours++;
        return false;
    case SL_DPDK_NEIGHBOUR:
        sl_dpdk_neighbour_receive(dpdk, netif, packet->bytes, packet->length, packet);
        return false;
    case SL_DPDK_NOT_OURS:
        dpdk->counts.not_ours++;
        return false;
    case SL_DPDK_MALFORMED:
        if (parsed.version == 0 || !take_other(dpdk, netif, packet, &parsed, false)) {
            dpdk->counts.malformed++;
        }
        return false;
    }
    return false;
}

void sl_dpdk_poll_take_misrouted(struct sl_dpdk *dpdk, struct sl_dpdk_netif *netif,
                                 struct sl_dpdk_packet *packet, bool for_neighbours)
{
    struct sl_dpdk_parsed parsed;
    if (for_neighbours) {
        sl_dpdk_neighbour_receive(dpdk, netif, packet->bytes, packet->length, NULL);
        return;
    }
    dpdk->counts.misrouted_taken++;
    if (packet->length > netif->info.frame_bytes_max) {
        return;
    }
    if (sl_dpdk_parse(packet->bytes, packet->length, true, &parsed) == SL_DPDK_OURS) {
        (void)poll_take(dpdk, netif, packet, &parsed, true);
    } else if (parsed.version != 0) {
        (void)take_other(dpdk, netif, packet, &parsed, true);
    }
}

/* The turn */

static void flush_one(struct sl_dpdk_conn *conn)
{
    if (conn->phase == SL_DPDK_LIVE || conn->phase == SL_DPDK_DRAINING) {
        conn->due.pace_ns = sl_dpdk_send_flush(conn);
        sl_dpdk_conn_set_timer(conn);
    }
}

/* Sends the peer its new grant soon. */
static void tell_grant(void *ctx, struct sl_dpdk_grant *grant)
{
    struct sl_dpdk_conn *conn = SL_CONTAINER_OF(grant, struct sl_dpdk_conn, grant);
    conn->ack = SL_DPDK_ACK_DUE_NOW;
    sl_dpdk_mark_dirty(conn);
}

static bool tells(const struct sl_dpdk_conn *conn)
{
    return conn->ack == SL_DPDK_ACK_DUE_NOW;
}

/* Flushes the connections that match. The others wait for the end of the turn, so that more frames
 * may share a packet. */
static void flush_those(struct sl_dpdk *dpdk, bool (*are)(const struct sl_dpdk_conn *conn))
{
    SL_LIST_EACH (struct sl_dpdk_conn, conn, dirty, &dpdk->dirty) {
        if (are(conn)) {
            sl_list_remove(&conn->dirty);
            flush_one(conn);
        }
    }
}

static void send_all(struct sl_dpdk *dpdk, uint32_t least)
{
    for (uint32_t i = 0; i < dpdk->netif_count; i++) {
        if (dpdk->netifs[i].out_count >= least) {
            sl_dpdk_netif_send(dpdk, &dpdk->netifs[i]);
        }
    }
}

static void tell_early(struct sl_dpdk *dpdk)
{
    dpdk->bytes_since_grants = 0;
    sl_dpdk_grants_deal(&dpdk->grants, tell_grant, dpdk);
    flush_those(dpdk, tells);
    send_all(dpdk, 1);
}

static uint32_t poll_visit_ready(struct sl_dpdk *dpdk)
{
    uint32_t work = 0;
    struct sl_list visits; /* a connection that is marked again waits for the next poll */
    sl_list_init(&visits);
    sl_list_append_all(&visits, &dpdk->ready);
    dpdk->awake = false;
    SL_LIST_TAKE (struct sl_dpdk_conn, conn, ready, &visits) {
        work += sl_dpdk_conn_visit(conn) ? 1 : 0;
    }
    return work;
}

/* Handles the consequences of the last packets before the next group. */
static uint32_t end_group(struct sl_dpdk *dpdk)
{
    uint32_t work = 0;
    if (dpdk->bytes_since_grants >= EARLY_BYTES) {
        tell_early(dpdk);
    }
    if (!sl_list_empty(&dpdk->ready)) {
        work = poll_visit_ready(dpdk);
    }
    flush_those(dpdk, sl_dpdk_send_is_full);
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
        dpdk->bytes_since_grants += packets[i].length;
        if (!take_packet(dpdk, netif, &packets[i])) {
            packets[done++] = packets[i];
        }
    }
    if (done > 0) {
        netif->port->ops->release(netif->port, packets, done);
    }
    sl_cell_add(&dpdk->base.cells->receive_calls, count > 0);
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

/* POLL_PACKETS is smaller than any budget. */
uint32_t sl_dpdk_poll(struct sl_transport *transport, uint32_t budget)
{
    struct sl_dpdk *dpdk = (struct sl_dpdk *)transport;
    uint32_t work = 0;
    for (uint32_t i = 0; i < dpdk->netif_count; i++) {
        work += poll_netif(dpdk, &dpdk->netifs[i]);
    }
    if (dpdk->bytes_since_grants >= EARLY_BYTES) {
        tell_early(dpdk);
    }
    if (!sl_list_empty(&dpdk->ready)) {
        work += poll_visit_ready(dpdk);
    } else {
        dpdk->awake = false; /* the connection that set it is gone */
    }
    if (work > 0) {
        dpdk->idle.ns = SL_DPDK_IDLE_NS_MIN;
    }
    return work;
}

static void flush_dirty(struct sl_dpdk *dpdk)
{
    struct sl_list flushes; /* a connection that is marked again waits for the next flush */
    sl_list_init(&flushes);
    sl_list_append_all(&flushes, &dpdk->dirty);
    SL_LIST_TAKE (struct sl_dpdk_conn, conn, dirty, &flushes) {
        flush_one(conn);
    }
}

void sl_dpdk_flush(struct sl_transport *transport)
{
    struct sl_dpdk *dpdk = (struct sl_dpdk *)transport;
    dpdk->bytes_since_grants = 0;
    sl_dpdk_grants_deal(&dpdk->grants, tell_grant, dpdk);
    if (!sl_list_empty(&dpdk->dirty)) {
        flush_dirty(dpdk);
    }
    send_all(dpdk, 1);
}
