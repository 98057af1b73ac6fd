#include <stdlib.h>
#include <string.h>

#include "core/list.h"
#include "core/log.h"
#include "net/dpdk/cookie.h"
#include "net/dpdk/internal.h"

#define DRAIN_NS   SL_CLOCK_NS_PER_S
#define CONFIRM_NS SL_CLOCK_NS_PER_S

/* The table of ids */

static struct sl_dpdk_conn **bucket_of(struct sl_dpdk *dpdk, uint64_t id)
{
    return &dpdk->by_id[(id >> SL_DPDK_ID_SHIFT) % SL_DPDK_BUCKETS];
}

struct sl_dpdk_conn *sl_dpdk_conn_find(const struct sl_dpdk *dpdk, uint64_t id)
{
    struct sl_dpdk_conn *conn = dpdk->by_id[(id >> SL_DPDK_ID_SHIFT) % SL_DPDK_BUCKETS];
    while (conn != NULL && conn->id != id) {
        conn = conn->id_next;
    }
    return conn;
}

static void enter(struct sl_dpdk_conn *conn)
{
    struct sl_dpdk *dpdk = conn->dpdk;
    struct sl_dpdk_conn **bucket = bucket_of(dpdk, conn->id);
    conn->id_next = *bucket;
    *bucket = conn;
    sl_list_prepend(&dpdk->conns, &conn->alive);
    dpdk->stats.connections++;
}

static void leave(struct sl_dpdk_conn *conn)
{
    struct sl_dpdk *dpdk = conn->dpdk;
    struct sl_dpdk_conn **at = bucket_of(dpdk, conn->id);
    while (*at != conn) {
        at = &(*at)->id_next;
    }
    *at = conn->id_next;
    sl_list_remove(&conn->alive);
    sl_list_remove(&conn->dirty);
    sl_list_remove(&conn->ready);
    dpdk->stats.connections--;
}

/* Begin */

uint64_t sl_dpdk_conn_random(struct sl_dpdk *dpdk)
{
    dpdk->random_count++;
    return sl_dpdk_cookie_hash(dpdk->secret, &dpdk->random_count, sizeof dpdk->random_count);
}

uint64_t sl_dpdk_conn_id(const struct sl_dpdk *dpdk, uint64_t random)
{
    const uint64_t tail = random >> SL_DPDK_ID_SHIFT;
    return (tail != 0 ? tail : 1) << SL_DPDK_ID_SHIFT | (uint64_t)dpdk->boot_epoch << 8 |
           sl_reactor_index(dpdk->base.reactor);
}

static void on_timer(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_dpdk_conn *conn = SL_CONTAINER_OF(timer, struct sl_dpdk_conn, timer);
    if (conn->phase == SL_DPDK_ASKING) {
        sl_dpdk_setup_timer(conn);
        return;
    }
    if (conn->phase == SL_DPDK_DRAINING && now_ns >= conn->deadline_ns) {
        sl_dpdk_conn_end(conn, SL_OK, true);
        return;
    }
    if (now_ns >= sl_dpdk_sent_packets_timer(&conn->sent_packets)) {
        sl_dpdk_send_expired(conn);
    }
    sl_dpdk_mark_dirty(conn); /* flush sets the timer again */
}

static struct sl_dpdk_conn *allocate(struct sl_dpdk *dpdk)
{
    struct sl_dpdk_conn *conn = dpdk->spare;
    if (conn != NULL) {
        dpdk->spare = conn->spare_next;
    } else {
        conn = malloc(sizeof *conn);
    }
    if (conn != NULL) {
        memset(conn, 0, sizeof *conn);
        conn->timer.run = on_timer;
        conn->pace_ns = SL_CLOCK_NEVER;
    }
    return conn;
}

static void put_spare(struct sl_dpdk *dpdk, struct sl_dpdk_conn *conn)
{
    conn->spare_next = dpdk->spare;
    dpdk->spare = conn;
}

/* On an error close_parts frees what is open. */
static int open_parts(struct sl_dpdk_conn *conn)
{
    int err = sl_dpdk_send_open(conn);
    err = err != 0 ? err : sl_dpdk_receive_open(conn);
    return err != 0 ? err : sl_dpdk_sent_packets_open(&conn->sent_packets, conn->first_sequence);
}

static void close_parts(struct sl_dpdk_conn *conn)
{
    sl_dpdk_send_close(conn);
    sl_dpdk_receive_close(conn);
    sl_dpdk_sent_packets_close(&conn->sent_packets);
}

struct sl_dpdk_conn *sl_dpdk_conn_make(struct sl_dpdk *dpdk,
                                       const struct sl_transport_events *events, void *ctx,
                                       uint64_t id)
{
    struct sl_dpdk_conn *conn = allocate(dpdk);
    if (conn == NULL) {
        return NULL;
    }
    sl_conn_init(&conn->base, &dpdk->base, events, ctx);
    conn->dpdk = dpdk;
    conn->id = id;
    conn->first_sequence = (uint32_t)sl_dpdk_conn_random(dpdk);
    if (open_parts(conn) != 0) {
        close_parts(conn);
        put_spare(dpdk, conn);
        return NULL;
    }
    enter(conn);
    sl_dpdk_grant_open(&dpdk->grants, &conn->grant);
    return conn;
}

struct sl_dpdk_conn *sl_dpdk_conn_new(struct sl_dpdk *dpdk,
                                      const struct sl_transport_events *events, void *ctx)
{
    return sl_dpdk_conn_make(dpdk, events, ctx, sl_dpdk_conn_id(dpdk, sl_dpdk_conn_random(dpdk)));
}

/* Timers */

/* An earlier timer stays: it computes the time again when it expires. */
void sl_dpdk_conn_set_timer(struct sl_dpdk_conn *conn)
{
    uint64_t due_ns = sl_dpdk_sent_packets_timer(&conn->sent_packets);
    due_ns = conn->pace_ns < due_ns ? conn->pace_ns : due_ns;
    if (conn->phase == SL_DPDK_DRAINING && conn->deadline_ns < due_ns) {
        due_ns = conn->deadline_ns;
    }
    if (due_ns == SL_CLOCK_NEVER ||
        (sl_timer_armed(&conn->timer) && conn->timer.due_ns <= due_ns)) {
        return;
    }
    sl_timer_arm(sl_reactor_timers(conn->dpdk->base.reactor), &conn->timer, due_ns);
}

void sl_dpdk_conn_stop_timer(struct sl_dpdk_conn *conn)
{
    sl_reactor_disarm(conn->dpdk->base.reactor, &conn->timer);
}

/* Received packets */

static bool is_numbered(uint8_t kind)
{
    return kind >= SL_DPDK_DATA && kind <= SL_DPDK_FIN;
}

bool sl_dpdk_conn_is_from_peer(const struct sl_dpdk_conn *conn, const struct sl_dpdk_netif *netif,
                               const struct sl_dpdk_parsed *parsed)
{
    return netif == conn->netif &&
           memcmp(&parsed->from.ip, &conn->there.ip, sizeof conn->there.ip) == 0 &&
           parsed->from.port == conn->there.port;
}

static void owe_acknowledgement(struct sl_dpdk_conn *conn, const struct sl_dpdk_parsed *parsed,
                                bool now)
{
    conn->ack_due = true;
    if (now || (parsed->header.flags & SL_DPDK_FLAG_ANSWER) != 0 ||
        conn->received.end != conn->received.next) {
        conn->ack_now = true;
    }
    sl_dpdk_mark_dirty(conn);
}

/* Checks the message count of a FIN: not fewer than were delivered, not more than can be in flight,
 * and always the same. */
static void take_fin(struct sl_dpdk_conn *conn, uint32_t message)
{
    if (conn->phase == SL_DPDK_LIVE &&
        (message - sl_dpdk_receive_next(conn) > 2 * SL_DPDK_MESSAGES ||
         (conn->fin_received && message != conn->fin_message))) {
        sl_dpdk_conn_refuse(conn, "it said an end that cannot be");
        return;
    }
    conn->fin_received = true;
    conn->fin_message = message;
    sl_dpdk_mark_ready(conn);
}

/* Handles the content of a numbered packet. Returns whether it was taken. */
static bool take_content(struct sl_dpdk_conn *conn, struct sl_dpdk_packet *packet,
                         const struct sl_dpdk_parsed *parsed, bool *kept)
{
    switch (parsed->header.kind) {
    case SL_DPDK_DATA:
    case SL_DPDK_BUNDLE:
        if (conn->phase != SL_DPDK_LIVE) {
            return true;
        }
        sl_dpdk_mark_ready(conn);
        switch (sl_dpdk_receive_take(conn, packet, parsed)) {
        case SL_DPDK_TAKEN:
            return true;
        case SL_DPDK_PARKED:
            *kept = true;
            return true;
        case SL_DPDK_NO_ROOM:
            return false;
        case SL_DPDK_PROTOCOL_ERROR:
            sl_dpdk_conn_refuse(conn, "it sent what is no part of a message");
            return false;
        }
        return false;
    case SL_DPDK_FIN:
        take_fin(conn, parsed->header.message);
        return true;
    default:
        return true;
    }
}

static bool take_numbered(struct sl_dpdk_conn *conn, struct sl_dpdk_packet *packet,
                          const struct sl_dpdk_parsed *parsed)
{
    bool kept = false;
    switch (sl_dpdk_received_packets_ask(&conn->received, parsed->header.sequence)) {
    case SL_DPDK_RECEIVED_NEW:
        break;
    case SL_DPDK_RECEIVED_AGAIN:
        owe_acknowledgement(conn, parsed, true);
        return false;
    case SL_DPDK_RECEIVED_OUTSIDE:
        conn->dpdk->spoofed++;
        return false;
    }
    if (take_content(conn, packet, parsed, &kept)) {
        sl_dpdk_received_packets_take(&conn->received, parsed->header.sequence);
        owe_acknowledgement(conn, parsed, false);
    }
    return kept;
}

/* A peer whose FIN was acknowledged needs nothing more. Its earlier messages are still delivered.
 */
static void take_reset(struct sl_dpdk_conn *conn, const struct sl_dpdk_parsed *parsed)
{
    const int err = parsed->body_bytes > 0 ? -(int)parsed->body[parsed->body_bytes - 1] : SL_OK;
    if (err == SL_OK && conn->fin_received && conn->phase == SL_DPDK_LIVE) {
        return;
    }
    if (err == SL_OK && conn->fin_sent) {
        sl_dpdk_send_all_came(conn);
    }
    if (err != SL_OK && err != SL_ERR_CLOSED) {
        sl_log_debug("%s: it has ended the connection: %s", conn->base.peer, sl_err_name(err));
    }
    conn->reset_received = true;
    sl_dpdk_mark_ready(conn);
}

bool sl_dpdk_conn_take(struct sl_dpdk_conn *conn, struct sl_dpdk_netif *netif,
                       struct sl_dpdk_packet *packet, const struct sl_dpdk_parsed *parsed)
{
    struct sl_dpdk *dpdk = conn->dpdk;
    const struct sl_dpdk_header *header = &parsed->header;
    if (!sl_dpdk_conn_is_from_peer(conn, netif, parsed)) {
        dpdk->spoofed++;
        return false;
    }
    if (conn->phase == SL_DPDK_ASKING || header->kind < SL_DPDK_DATA) {
        sl_dpdk_setup_take(dpdk, netif, conn, parsed);
        return false;
    }
    if (conn->phase != SL_DPDK_LIVE && conn->phase != SL_DPDK_DRAINING) {
        return false;
    }
    if (!sl_dpdk_received_packets_allows(&conn->received, header->sequence, header->behind) ||
        !sl_dpdk_send_acknowledged(conn, parsed)) {
        dpdk->spoofed++;
        return false;
    }
    (void)sl_dpdk_received_packets_settle(&conn->received, header->sequence, header->behind);
    conn->last_seen_ns = sl_dpdk_now_ns(dpdk);
    if (conn->last_seen_ns >= conn->confirm_ns) {
        conn->confirm_ns = conn->last_seen_ns + CONFIRM_NS;
        sl_dpdk_neighbours_confirm(netif->neighbours, &parsed->from.ip, parsed->from_mac,
                                   conn->last_seen_ns);
        sl_dpdk_route_learn(
            conn, parsed->from_mac); /* the peer's address may have moved to another NIC */
    }
    if (is_numbered(header->kind)) {
        return take_numbered(conn, packet, parsed);
    }
    if (header->kind == SL_DPDK_RESET) {
        take_reset(conn, parsed);
    }
    return false;
}

/* End */

static void send_reset(struct sl_dpdk_conn *conn, int err)
{
    if (conn->id_peers == 0 || !conn->routed) {
        return;
    }
    struct sl_dpdk_last_words last;
    sl_dpdk_time_wait_last_words(conn, err, &last);
    sl_dpdk_send_unnumbered(conn->dpdk, conn->netif, &conn->route, conn->queue, &last.header,
                            last.body);
}

void sl_dpdk_conn_end(struct sl_dpdk_conn *conn, int err, bool tell)
{
    if (conn->phase == SL_DPDK_ENDED) {
        return;
    }
    if (tell) {
        send_reset(conn, conn->all_delivered ? SL_OK : err != SL_OK ? err : SL_ERR_CLOSED);
    }
    sl_dpdk_conn_stop_timer(conn);
    conn->phase = SL_DPDK_ENDED;
    if (conn->base.state == SL_CONN_CLOSING && conn->base.failure == 0) {
        err = SL_OK; /* after disconnect */
    }
    conn->end_err = err;
    if (!conn->inbound || !conn->accept_pending) {
        conn->base.state = SL_CONN_CLOSING;
    }
    sl_dpdk_mark_ready(conn);
}

void sl_dpdk_conn_refuse(struct sl_dpdk_conn *conn, const char *what)
{
    if (conn->phase != SL_DPDK_ENDED) {
        sl_transport_warn(&conn->dpdk->base, "%s: closed, since %s", conn->base.peer, what);
    }
    sl_dpdk_conn_end(conn, SL_ERR_PROTOCOL, true);
}

void sl_dpdk_conn_lost(struct sl_dpdk_conn *conn, const char *what)
{
    const struct sl_dpdk_netif *netif = conn->netif;
    const bool is_up = netif->port->ops->link_is_up(netif->port);
    sl_transport_warn(&conn->dpdk->base, "%s: closed, since %s%s%s", conn->base.peer,
                      is_up ? what : "the link of ", is_up ? "" : netif->info.name,
                      is_up ? "" : " is down");
    sl_dpdk_conn_end(conn, SL_ERR_DEADLINE, true);
}

void sl_dpdk_conn_disconnect(struct sl_conn *base)
{
    struct sl_dpdk_conn *conn = (struct sl_dpdk_conn *)base;
    if (base->state == SL_CONN_CLOSING) {
        return;
    }
    const bool was_open = base->state == SL_CONN_OPEN;
    base->state = SL_CONN_CLOSING;
    if (!was_open || conn->phase != SL_DPDK_LIVE) {
        sl_dpdk_conn_end(conn, SL_OK, true);
        return;
    }
    conn->phase = SL_DPDK_DRAINING;
    conn->deadline_ns = sl_dpdk_now_ns(conn->dpdk) + DRAIN_NS;
    conn->fin_sent = true;
    sl_dpdk_send_bye(conn);
    sl_dpdk_mark_dirty(conn);
    sl_dpdk_mark_ready(conn);
}

static void announce(struct sl_dpdk_conn *conn)
{
    conn->accept_pending = false;
    if (conn->base.state != SL_CONN_CONNECTING) {
        return; /* disconnected before */
    }
    if (conn->inbound) {
        sl_conn_report_accepted(&conn->base);
    } else {
        sl_conn_report_connected(&conn->base);
    }
    if (conn->phase == SL_DPDK_ENDED && conn->base.state == SL_CONN_OPEN) {
        conn->base.state = SL_CONN_CLOSING;
    }
}

static void unmake(struct sl_dpdk_conn *conn)
{
    sl_dpdk_conn_stop_timer(conn);
    leave(conn);
    close_parts(conn);
    sl_dpdk_grant_close(&conn->dpdk->grants, &conn->grant);
}

static void finish(struct sl_dpdk_conn *conn)
{
    sl_dpdk_time_wait_ended(conn);
    unmake(conn);
    sl_conn_report_closed(&conn->base, conn->end_err);
    put_spare(conn->dpdk, conn);
}

/* Ends the connection if all is delivered or the peer has ended it. */
static void look_for_the_end(struct sl_dpdk_conn *conn)
{
    if (conn->phase == SL_DPDK_LIVE) {
        if (conn->reset_received) {
            sl_dpdk_conn_end(conn, SL_ERR_CLOSED, false);
        } else if (conn->fin_received && sl_dpdk_receive_next(conn) == conn->fin_message) {
            conn->all_delivered = true;
            sl_dpdk_conn_end(conn, SL_ERR_CLOSED, true); /* the RESET acknowledges the FIN */
        }
    } else if (conn->phase == SL_DPDK_DRAINING) {
        if (conn->reset_received || (conn->fin_acked && sl_dpdk_send_is_done(conn))) {
            sl_dpdk_conn_end(conn, SL_OK, false);
        }
    }
}

bool sl_dpdk_conn_visit(struct sl_dpdk_conn *conn)
{
    bool work = conn->accept_pending;
    if (conn->accept_pending) {
        announce(conn);
    }
    if (conn->phase == SL_DPDK_LIVE) {
        work |= sl_dpdk_receive_deliver(conn);
        if (conn->base.failure != 0) {
            sl_conn_log_failure(&conn->base);
            sl_dpdk_conn_end(conn, conn->base.failure, true);
        }
    }
    if (conn->phase == SL_DPDK_LIVE || conn->phase == SL_DPDK_DRAINING) {
        sl_dpdk_send_report(conn);
    }
    look_for_the_end(conn);
    if (conn->phase == SL_DPDK_ENDED && sl_dpdk_send_is_reading(conn)) {
        sl_dpdk_mark_ready(conn);
    } else if (conn->phase == SL_DPDK_ENDED) {
        finish(conn);
        return true;
    }
    return work;
}

void sl_dpdk_conn_end_all(struct sl_dpdk *dpdk)
{
    SL_LIST_FOREACH (link, &dpdk->conns) {
        struct sl_dpdk_conn *conn = sl_dpdk_conn_alive(link);
        send_reset(conn, SL_ERR_CLOSED);
        sl_dpdk_conn_end(conn, SL_ERR_CANCELLED, true);
        conn->end_err = SL_ERR_CANCELLED;
        sl_dpdk_receive_close(conn);
    }
}

void sl_dpdk_conn_cancel_all(struct sl_dpdk *dpdk)
{
    while (!sl_list_empty(&dpdk->conns)) {
        struct sl_dpdk_conn *conn = sl_dpdk_conn_alive(sl_list_first(&dpdk->conns));
        if (conn->inbound && conn->accept_pending) {
            unmake(conn); /* not reported yet */
            put_spare(dpdk, conn);
        } else {
            finish(conn);
        }
    }
}

void sl_dpdk_conn_free_all(struct sl_dpdk *dpdk)
{
    while (dpdk->spare != NULL) {
        struct sl_dpdk_conn *conn = dpdk->spare;
        dpdk->spare = conn->spare_next;
        free(conn);
    }
}
