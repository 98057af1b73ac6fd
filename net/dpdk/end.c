#include "net/dpdk/end.h"

#include "net/dpdk/send.h"
#include "net/dpdk/time_wait.h"

#define DRAIN_NS SL_CLOCK_NS_PER_S

void sl_dpdk_conn_stop_timers(struct sl_dpdk_conn *conn)
{
    sl_reactor_disarm(conn->dpdk->base.reactor, &conn->due.timer);
    sl_reactor_disarm(conn->dpdk->base.reactor, &conn->handshake.timer);
}

void sl_dpdk_conn_send_reset(struct sl_dpdk_conn *conn, int err)
{
    if (conn->id_peers == 0 || !conn->path.routed) {
        return;
    }
    struct sl_dpdk_last_words last;
    sl_dpdk_time_wait_last_words(conn, err, &last);
    sl_dpdk_send_unnumbered(conn->dpdk, conn->path.netif, &conn->path.route, conn->path.queue,
                            &last.header, last.body);
}

void sl_dpdk_conn_end(struct sl_dpdk_conn *conn, int err, bool tell)
{
    if (conn->phase == SL_DPDK_ENDED) {
        return;
    }
    if (tell) {
        sl_dpdk_conn_send_reset(conn, conn->end.all_delivered ? SL_OK
                                      : err != SL_OK          ? err
                                                              : SL_ERR_CLOSED);
    }
    sl_dpdk_conn_stop_timers(conn);
    conn->phase = SL_DPDK_ENDED;
    if (conn->base.state == SL_CONN_CLOSING && conn->base.failure == 0) {
        err = SL_OK; /* after disconnect */
    }
    conn->end.err = err;
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
    const struct sl_dpdk_netif *netif = conn->path.netif;
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
    conn->end.deadline_ns = sl_dpdk_now_ns(conn->dpdk) + DRAIN_NS;
    conn->end.fin = SL_DPDK_FIN_SENT;
    sl_dpdk_send_bye(conn);
    sl_dpdk_mark_dirty(conn);
    sl_dpdk_mark_ready(conn);
}
