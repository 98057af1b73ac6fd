#include "net/rdma/end.h"

#define SUSPECT_NS (500 * SL_CLOCK_NS_PER_MS)
#define DRAIN_NS   SL_CLOCK_NS_PER_S

void sl_rdma_conn_set_timer(struct sl_rdma_conn *conn, uint64_t after_ns)
{
    sl_reactor_arm(conn->rdma->base.reactor, &conn->timer, after_ns);
}

void sl_rdma_conn_stop_timer(struct sl_rdma_conn *conn)
{
    sl_reactor_disarm(conn->rdma->base.reactor, &conn->timer);
}

void sl_rdma_conn_end(struct sl_rdma_conn *conn, int err)
{
    if (conn->phase == SL_RDMA_ENDED) {
        return;
    }
    sl_rdma_conn_stop_timer(conn);
    bool asked = conn->base.state == SL_CONN_CLOSING; /* by disconnect */
    conn->end.err = asked ? SL_OK : err;
    if (conn->base.state != SL_CONN_CLOSED) {
        conn->base.state = SL_CONN_CLOSING;
    }
    conn->phase = SL_RDMA_ENDED;
    if (conn->end.fin_received) {
        sl_rdma_conn_set_timer(conn, DRAIN_NS); /* until the peer has our FIN */
    }
    sl_rdma_mark_ready(conn);
}

void sl_rdma_conn_refuse(struct sl_rdma_conn *conn, const char *what, int err)
{
    if (conn->phase != SL_RDMA_ENDED) {
        sl_transport_warn(&conn->rdma->base, "%s: closed, since %s: %s", conn->base.peer, what,
                          sl_err_name(err));
    }
    sl_rdma_conn_end(conn, err);
}

void sl_rdma_conn_suspect(struct sl_rdma_conn *conn)
{
    if (conn->phase != SL_RDMA_LIVE) {
        sl_rdma_conn_end(conn, SL_ERR_PROTOCOL);
        return;
    }
    conn->end.is_suspected = true;
    sl_rdma_conn_set_timer(conn, SUSPECT_NS);
}

void sl_rdma_conn_sent_fin(struct sl_rdma_conn *conn)
{
    conn->end.fin_received = true;
    sl_rdma_mark_ready(conn);
}

void sl_rdma_conn_disconnected(struct sl_rdma_conn *conn)
{
    conn->link.disconnected = true;
    conn->end.empties = conn->nic != NULL ? conn->nic->empties : 0;
    sl_rdma_mark_ready(conn);
}

void sl_rdma_conn_disconnect(struct sl_conn *base)
{
    struct sl_rdma_conn *conn = (struct sl_rdma_conn *)base;
    if (base->state == SL_CONN_CLOSING) {
        return;
    }
    if (base->state == SL_CONN_CONNECTING) {
        sl_rdma_conn_end(conn, SL_OK);
        return;
    }
    base->state = SL_CONN_CLOSING;
    if (conn->phase == SL_RDMA_LIVE) {
        conn->phase = SL_RDMA_DRAINING;
    }
    sl_rdma_conn_set_timer(conn, DRAIN_NS);
    sl_rdma_mark_dirty(conn);
    sl_rdma_mark_ready(conn);
}
