#include "net/dpdk/conn.h"

#include <stdlib.h>
#include <string.h>

#include "core/list.h"
#include "core/log.h"
#include "net/dpdk/ack.h"
#include "net/dpdk/conn_table.h"
#include "net/dpdk/end.h"
#include "net/dpdk/receive.h"
#include "net/dpdk/route.h"
#include "net/dpdk/send_queue.h"
#include "net/dpdk/time_wait.h"

#define CONFIRM_NS SL_CLOCK_NS_PER_S

/* Begin */

static void dpdk_conn_on_timer(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_dpdk_conn *conn = SL_CONTAINER_OF(timer, struct sl_dpdk_conn, due.timer);
    if (conn->phase == SL_DPDK_DRAINING && now_ns >= conn->end.deadline_ns) {
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
        dpdk->spare = conn->next;
    } else {
        conn = malloc(sizeof *conn);
    }
    if (conn != NULL) {
        memset(conn, 0, sizeof *conn);
        conn->due.timer.run = dpdk_conn_on_timer;
        conn->due.pace_ns = SL_CLOCK_NEVER;
    }
    return conn;
}

static void dpdk_conn_put_spare(struct sl_dpdk *dpdk, struct sl_dpdk_conn *conn)
{
    conn->next = dpdk->spare;
    dpdk->spare = conn;
}

/* On an error close_parts frees what is open. */
static int open_parts(struct sl_dpdk_conn *conn)
{
    int err = sl_dpdk_send_open(conn);
    err = err != 0 ? err : sl_dpdk_receive_open(conn);
    return err != 0
               ? err
               : sl_dpdk_sent_packets_open(&conn->sent_packets, conn->handshake.first_sequence);
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
    conn->handshake.first_sequence = (uint32_t)sl_dpdk_conn_table_random(dpdk);
    if (open_parts(conn) != 0) {
        close_parts(conn);
        dpdk_conn_put_spare(dpdk, conn);
        return NULL;
    }
    sl_dpdk_conn_table_add(conn);
    sl_dpdk_grant_open(&dpdk->grants, &conn->grant);
    return conn;
}

struct sl_dpdk_conn *sl_dpdk_conn_new(struct sl_dpdk *dpdk,
                                      const struct sl_transport_events *events, void *ctx)
{
    return sl_dpdk_conn_make(dpdk, events, ctx,
                             sl_dpdk_conn_table_id(dpdk, sl_dpdk_conn_table_random(dpdk)));
}

/* Timers */

/* An earlier timer stays: it computes the time again when it expires. */
void sl_dpdk_conn_set_timer(struct sl_dpdk_conn *conn)
{
    uint64_t due_ns = sl_dpdk_sent_packets_timer(&conn->sent_packets);
    due_ns = conn->due.pace_ns < due_ns ? conn->due.pace_ns : due_ns;
    if (conn->phase == SL_DPDK_DRAINING && conn->end.deadline_ns < due_ns) {
        due_ns = conn->end.deadline_ns;
    }
    if (due_ns == SL_CLOCK_NEVER ||
        (sl_timer_armed(&conn->due.timer) && conn->due.timer.due_ns <= due_ns)) {
        return;
    }
    sl_timer_arm(sl_reactor_timers(conn->dpdk->base.reactor), &conn->due.timer, due_ns);
}

/* Received packets */

static bool is_numbered(uint8_t kind)
{
    return kind >= SL_DPDK_DATA && kind <= SL_DPDK_FIN;
}

static void owe_acknowledgement(struct sl_dpdk_conn *conn, const struct sl_dpdk_parsed *parsed,
                                bool now)
{
    if (now || (parsed->header.flags & SL_DPDK_FLAG_ANSWER) != 0 ||
        conn->received.end != conn->received.next) {
        conn->ack = SL_DPDK_ACK_DUE_NOW;
    } else if (conn->ack == SL_DPDK_ACK_NOT_DUE) {
        conn->ack = SL_DPDK_ACK_DUE;
    }
    sl_dpdk_mark_dirty(conn);
}

/* Checks the message count of a FIN: not fewer than were delivered, not more than can be in flight,
 * and always the same. */
static void take_fin(struct sl_dpdk_conn *conn, uint32_t message)
{
    if (conn->phase == SL_DPDK_LIVE &&
        (message - sl_dpdk_receive_next(conn) > 2 * SL_DPDK_MESSAGES ||
         (conn->end.fin_received && message != conn->end.fin_message))) {
        sl_dpdk_conn_refuse(conn, "it said an end that cannot be");
        return;
    }
    conn->end.fin_received = true;
    conn->end.fin_message = message;
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
        conn->dpdk->counts.spoofed++;
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
    if (err == SL_OK && conn->end.fin_received && conn->phase == SL_DPDK_LIVE) {
        return;
    }
    if (err == SL_OK && conn->end.fin != SL_DPDK_FIN_NONE) {
        sl_dpdk_send_all_came(conn);
    }
    if (err != SL_OK && err != SL_ERR_CLOSED) {
        sl_log_debug("%s: it has ended the connection: %s", conn->base.peer, sl_err_name(err));
    }
    conn->end.reset_received = true;
    sl_dpdk_mark_ready(conn);
}

bool sl_dpdk_conn_take(struct sl_dpdk_conn *conn, struct sl_dpdk_netif *netif,
                       struct sl_dpdk_packet *packet, const struct sl_dpdk_parsed *parsed)
{
    struct sl_dpdk *dpdk = conn->dpdk;
    const struct sl_dpdk_header *header = &parsed->header;
    if (conn->phase != SL_DPDK_LIVE && conn->phase != SL_DPDK_DRAINING) {
        return false;
    }
    if (!sl_dpdk_received_packets_allows(&conn->received, header->sequence, header->behind) ||
        !sl_dpdk_send_acknowledged(conn, parsed)) {
        dpdk->counts.spoofed++;
        return false;
    }
    (void)sl_dpdk_received_packets_settle(&conn->received, header->sequence, header->behind);
    conn->liveness.heard_ns = sl_dpdk_now_ns(dpdk);
    if (conn->liveness.heard_ns >= conn->path.confirm_ns) {
        conn->path.confirm_ns = conn->liveness.heard_ns + CONFIRM_NS;
        sl_dpdk_neighbours_confirm(netif->neighbours, &parsed->from.ip, parsed->from_mac,
                                   conn->liveness.heard_ns);
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

/* End; end.c begins it */

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

static void dpdk_conn_unmake(struct sl_dpdk_conn *conn)
{
    sl_dpdk_conn_stop_timers(conn);
    sl_dpdk_conn_table_remove(conn);
    close_parts(conn);
    sl_dpdk_grant_close(&conn->dpdk->grants, &conn->grant);
}

static void dpdk_conn_finish(struct sl_dpdk_conn *conn)
{
    sl_dpdk_time_wait_ended(conn);
    dpdk_conn_unmake(conn);
    sl_conn_report_closed(&conn->base, conn->end.err);
    dpdk_conn_put_spare(conn->dpdk, conn);
}

/* Ends the connection if all is delivered or the peer has ended it. */
static void look_for_the_end(struct sl_dpdk_conn *conn)
{
    if (conn->phase == SL_DPDK_LIVE) {
        if (conn->end.reset_received) {
            sl_dpdk_conn_end(conn, SL_ERR_CLOSED, false);
        } else if (conn->end.fin_received && sl_dpdk_receive_next(conn) == conn->end.fin_message) {
            conn->end.all_delivered = true;
            sl_dpdk_conn_end(conn, SL_ERR_CLOSED, true); /* the RESET acknowledges the FIN */
        }
    } else if (conn->phase == SL_DPDK_DRAINING) {
        if (conn->end.reset_received ||
            (conn->end.fin == SL_DPDK_FIN_ACKNOWLEDGED && sl_dpdk_send_is_done(conn))) {
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
        dpdk_conn_finish(conn);
        return true;
    }
    return work;
}

void sl_dpdk_conn_end_all(struct sl_dpdk *dpdk)
{
    SL_LIST_EACH (struct sl_dpdk_conn, conn, alive, &dpdk->liveness.conns) {
        sl_dpdk_conn_send_reset(conn, SL_ERR_CLOSED);
        sl_dpdk_conn_end(conn, SL_ERR_CANCELLED, true);
        conn->end.err = SL_ERR_CANCELLED;
        sl_dpdk_receive_close(conn);
    }
}

void sl_dpdk_conn_cancel_all(struct sl_dpdk *dpdk)
{
    struct sl_dpdk_conn *conn;
    while ((conn = SL_LIST_FIRST(struct sl_dpdk_conn, alive, &dpdk->liveness.conns)) != NULL) {
        if (conn->inbound && conn->accept_pending) {
            dpdk_conn_unmake(conn); /* not reported yet */
            dpdk_conn_put_spare(dpdk, conn);
        } else {
            dpdk_conn_finish(conn);
        }
    }
}

void sl_dpdk_conn_free_all(struct sl_dpdk *dpdk)
{
    while (dpdk->spare != NULL) {
        struct sl_dpdk_conn *conn = dpdk->spare;
        dpdk->spare = conn->next;
        free(conn);
    }
}
