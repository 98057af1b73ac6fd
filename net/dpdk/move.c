/* Migrates a connection: posts its state to the other reactor, where it gets a new id, and notifies
 * the peer with MOVED. Packets that still arrive here under the old id are forwarded after that
 * mail. */
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "net/dpdk/internal.h"

struct sl_dpdk_move {
    struct sl_dpdk_move *next; /* in the list of connections without memory */
    struct sl_transport *to;
    const struct sl_transport_events *events;
    void *ctx, *user;
    uint64_t id; /* on the new reactor */
    int err;     /* the error that ends it there; 0: none */
    char device[SL_DPDK_NAME_BYTES];
    struct sl_dpdk_conn was;
    struct sl_dpdk_sending *sending;
    struct sl_dpdk_receiving *receiving;
};

/* Frees a migration, also when the target reactor has ended. */
static void drop(void *ctx)
{
    struct sl_dpdk_move *move = ctx;
    sl_dpdk_sent_packets_close(&move->was.sent_packets);
    if (move->sending != NULL) {
        sl_dpdk_send_drop(move->sending);
    }
    if (move->receiving != NULL) {
        sl_dpdk_receive_drop(move->receiving);
    }
    free(move);
}

int sl_dpdk_move_migrate(struct sl_conn *base, struct sl_transport *to,
                         const struct sl_transport_events *events, void *ctx, void *user)
{
    struct sl_dpdk_conn *conn = (struct sl_dpdk_conn *)base;
    sl_assert(conn->phase == SL_DPDK_LIVE);
    const char *device = conn->netif->info.name;
    if (sl_dpdk_netif_like((struct sl_dpdk *)to, device, &conn->here.ip) == NULL) {
        sl_dpdk_conn_end(conn, SL_ERR_UNSUPPORTED, true);
        return SL_ERR_UNSUPPORTED;
    }
    struct sl_dpdk_move *move = calloc(1, sizeof *move);
    if (move == NULL) {
        sl_dpdk_conn_end(conn, SL_ERR_NO_MEMORY, true);
        return SL_ERR_NO_MEMORY;
    }
    move->to = to;
    move->events = events;
    move->ctx = ctx;
    move->user = user;
    memcpy(move->device, device, sizeof move->device);
    conn->move = move;
    conn->phase = SL_DPDK_LEAVING;
    base->state = SL_CONN_CLOSED;
    sl_dpdk_mark_ready(conn);
    return 0;
}

/* The accepting side: departure */

static void arrive(void *ctx, uint64_t a, uint64_t b);

void sl_dpdk_move_depart(struct sl_dpdk_conn *conn)
{
    struct sl_dpdk *dpdk = conn->dpdk;
    struct sl_dpdk_move *move = conn->move;
    struct sl_reactor *from = dpdk->base.reactor, *to = move->to->reactor;
    const bool stays = move->to == &dpdk->base;
    move->sending = sl_dpdk_send_leave(conn);
    move->receiving = sl_dpdk_receive_leave(conn);
    if (move->sending == NULL || move->receiving == NULL) {
        move->err = SL_ERR_NO_MEMORY;
    }
    move->id =
        stays ? conn->id : sl_dpdk_conn_id((struct sl_dpdk *)move->to, sl_dpdk_conn_random(dpdk));
    move->was = *conn;
    conn->sent_packets = (struct sl_dpdk_sent_packets){0};
    if (!stays) {
        sl_dpdk_time_wait_went(dpdk, conn->id, move->id);
    }
    sl_dpdk_conn_drop(conn);
    if (stays) {
        arrive(move, 0, 0);
    } else {
        sl_reactor_post(from, sl_reactor_index(to),
                        (struct sl_mail){.run = arrive, .ctx = move, .drop = drop});
    }
}

/* The accepting side: arrival */

/* Keeps the Ethernet address of the next hop. */
static void set_way(struct sl_dpdk_conn *conn, const struct sl_dpdk_move *move)
{
    const struct sl_dpdk_conn *was = &move->was;
    struct sl_dpdk *dpdk = conn->dpdk;
    uint8_t mac[6];
    memcpy(mac, was->route.outer, sizeof mac);
    conn->netif = sl_dpdk_netif_like(dpdk, move->device, &was->here.ip);
    conn->here = was->here;
    if (conn->id != was->id) {
        conn->here.port = dpdk->port;
    }
    conn->there = was->there;
    conn->queues_peers = was->queues_peers;
    sl_dpdk_route_set(conn, mac);
}

static void take_state(struct sl_dpdk_conn *conn, struct sl_dpdk_conn *was)
{
    conn->inbound = was->inbound;
    conn->id_peers = was->id_peers;
    conn->body_max = was->body_max;
    conn->first_sequence = was->first_sequence;
    conn->sent_packets = was->sent_packets;
    conn->received = was->received;
    conn->rate = was->rate;
    conn->granted_theirs = was->granted_theirs;
    conn->offered = was->offered;
    conn->fin_received = was->fin_received;
    conn->fin_message = was->fin_message;
    conn->reset_received = was->reset_received;
    was->sent_packets = (struct sl_dpdk_sent_packets){0};
    memcpy(conn->base.peer, was->base.peer, sizeof conn->base.peer);
    sl_dpdk_grant_adopt(&conn->dpdk->grants, &conn->grant, &was->grant);
}

static void take_parts(struct sl_dpdk_conn *conn, struct sl_dpdk_move *move)
{
    int err = move->err;
    if (err == 0) {
        sl_dpdk_send_arrive(conn, move->sending);
        err = sl_dpdk_receive_arrive(conn, move->receiving);
        move->sending = NULL;
        move->receiving = NULL;
    }
    if (err != 0) {
        sl_dpdk_conn_end(conn, err, true);
    } else if (conn->id != move->was.id) {
        sl_dpdk_send_moved(conn);
    }
}

/* There is no memory for the connection: sends the peer a RESET, and repeats it on request. The
 * next poll reports `closed`. */
static void turn_away(struct sl_dpdk *dpdk, struct sl_dpdk_move *move)
{
    struct sl_dpdk_conn *was = &move->was;
    struct sl_dpdk_last_words last;
    sl_log_error("%s: no memory for what was handed over", was->base.peer);
    was->dpdk = dpdk;
    was->id = move->id;
    was->netif = sl_dpdk_netif_like(dpdk, move->device, &was->here.ip);
    was->queue = sl_dpdk_route_queue(&was->netif->info.queues, &was->queues_peers);
    sl_dpdk_conn_last_words(was, SL_ERR_NO_MEMORY, &last);
    sl_dpdk_send_unnumbered(dpdk, was->netif, &was->route, was->queue, &last.header, last.body);
    sl_dpdk_time_wait_ended(was);
    was->base.transport = &dpdk->base;
    was->base.events = move->events;
    was->base.ctx = move->ctx;
    was->base.user = move->user;
    was->base.state = SL_CONN_OPEN;
    move->next = dpdk->lost;
    dpdk->lost = move;
    dpdk->awake = true;
}

uint32_t sl_dpdk_move_close_lost(struct sl_dpdk *dpdk, int err)
{
    uint32_t count = 0;
    while (dpdk->lost != NULL) {
        struct sl_dpdk_move *move = dpdk->lost;
        dpdk->lost = move->next;
        sl_conn_report_closed(&move->was.base, err);
        drop(move);
        count++;
    }
    return count;
}

/* Runs on the new reactor's thread. */
static void arrive(void *ctx, uint64_t a, uint64_t b)
{
    (void)a;
    (void)b;
    struct sl_dpdk_move *move = ctx;
    struct sl_dpdk *dpdk = (struct sl_dpdk *)move->to;
    struct sl_dpdk_conn *conn = NULL;
    if (sl_dpdk_conn_find(dpdk, move->id) == NULL) {
        conn = sl_dpdk_conn_make_bare(dpdk, move->events, move->ctx, move->id);
    }
    if (conn == NULL) {
        turn_away(dpdk, move);
        return;
    }
    conn->base.user = move->user;
    conn->phase = SL_DPDK_LIVE;
    conn->accept_pending = true;
    take_state(conn, &move->was);
    set_way(conn, move);
    sl_dpdk_liveness_add(conn);
    take_parts(conn, move);
    conn->ack_due = conn->ack_now = true;
    sl_dpdk_mark_dirty(conn);
    sl_dpdk_mark_ready(conn);
    drop(move);
}

/* The connecting side */

void sl_dpdk_move_take(struct sl_dpdk_conn *conn, const struct sl_dpdk_parsed *parsed)
{
    struct sl_dpdk_hello hello;
    if (conn->inbound || sl_dpdk_hello_decode(parsed->body, parsed->body_bytes, &hello) != 0 ||
        hello.port == 0) {
        sl_dpdk_conn_refuse(conn, "it said MOVED where that cannot be");
        return;
    }
    conn->id_peers = hello.connection;
    conn->there.port = hello.port;
    conn->queues_peers = sl_dpdk_route_queues(&hello);
    sl_dpdk_route_set(conn, parsed->from_mac);
    sl_dpdk_mark_dirty(conn);
}
