#include "net/rdma/conn.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/list.h"
#include "net/rdma/access.h"
#include "net/rdma/conn_table.h"
#include "net/rdma/end.h"
#include "net/rdma/liveness.h"
#include "net/rdma/receive.h"
#include "net/rdma/rma.h"
#include "net/rdma/send.h"

#define RNR_TIMER 13                        /* code for 0.96 ms */
#define QUIET_NS  (50 * SL_CLOCK_NS_PER_MS) /* for devices that do not report LAST_WQE_REACHED */

/* Timers */

static void rdma_conn_on_timer(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_rdma_conn *conn = SL_CONTAINER_OF(timer, struct sl_rdma_conn, timer);
    switch (conn->phase) {
    case SL_RDMA_RESOLVING:
        if (conn->link.id == NULL) {
            sl_rdma_mark_ready(conn); /* for connect.c: the pause after a rejection is over */
            return;
        }
        sl_rdma_conn_end(conn, SL_ERR_DEADLINE);
        return;
    case SL_RDMA_ENDED:
        conn->end.timed_out = true;
        sl_rdma_mark_ready(conn);
        return;
    case SL_RDMA_LIVE:
        sl_rdma_conn_refuse(conn, "it offered memory that it does not let us use", SL_ERR_PROTOCOL);
        return;
    default:
        sl_rdma_conn_end(conn, SL_ERR_DEADLINE);
    }
}

/* Start */

static struct sl_rdma_conn *allocate(struct sl_rdma *rdma)
{
    struct sl_rdma_conn *conn = rdma->spare;
    if (conn != NULL) {
        rdma->spare = conn->spare_next;
    } else {
        conn = malloc(sizeof *conn);
    }
    if (conn != NULL) {
        memset(conn, 0, sizeof *conn);
        conn->timer.run = rdma_conn_on_timer;
    }
    return conn;
}

static void rdma_conn_put_spare(struct sl_rdma *rdma, struct sl_rdma_conn *conn)
{
    conn->spare_next = rdma->spare;
    rdma->spare = conn;
}

struct sl_rdma_conn *sl_rdma_conn_new(struct sl_rdma *rdma,
                                      const struct sl_transport_events *events, void *ctx)
{
    struct sl_rdma_conn *conn = allocate(rdma);
    if (conn == NULL) {
        return NULL;
    }
    sl_conn_init(&conn->base, &rdma->base, events, ctx);
    conn->phase = SL_RDMA_RESOLVING;
    conn->credit.window = SL_RDMA_WINDOW_MIN;
    conn->credit.limit_ours = conn->credit.limit_told = conn->credit.window;
    if (!sl_rdma_conn_table_add(rdma, conn)) {
        rdma_conn_put_spare(rdma, conn);
        return NULL;
    }
    int err = sl_rdma_send_open(conn);
    if (err == 0) {
        err = sl_rdma_receive_open(conn);
        if (err != 0) {
            sl_rdma_send_close(conn);
        }
    }
    if (err != 0) {
        sl_rdma_conn_table_remove(conn);
        rdma_conn_put_spare(rdma, conn);
        return NULL;
    }
    return conn;
}

static struct ibv_qp_init_attr attributes(const struct sl_rdma_nic *nic, struct sl_rdma_link *link)
{
    return (struct ibv_qp_init_attr){.qp_context = link,
                                     .send_cq = nic->cq,
                                     .recv_cq = nic->cq,
                                     .srq = nic->srq,
                                     .cap = {.max_send_wr = SL_RDMA_SENDS,
                                             .max_send_sge = nic->caps.sge_max,
                                             .max_recv_sge = 1,
                                             .max_inline_data = nic->caps.inline_max},
                                     .qp_type = IBV_QPT_RC};
}

int sl_rdma_conn_make_queue_pair(struct sl_rdma_conn *conn)
{
    struct sl_rdma *rdma = conn->rdma;
    struct sl_rdma_link *link = &conn->link;
    struct sl_rdma_nic *nic;
    int err = sl_rdma_nic_get(rdma, link->id->verbs, &nic);
    if (err != 0) {
        return err;
    }
    struct ibv_qp_init_attr attr = attributes(nic, link);
    if (rdma->library->create_qp(link->id, nic->pd, &attr) != 0) {
        int reason = errno;
        bool left =
            reason == EINVAL && conn->phase == SL_RDMA_ACCEPTING; /* the requester has left */
        if (!left) {
            sl_transport_warn(&rdma->base, "%s: no queue pair can be had: %s", conn->base.peer,
                              strerror(reason));
        }
        return left ? SL_ERR_CLOSED : reason == ENOMEM ? SL_ERR_NO_MEMORY : SL_ERR_IO;
    }
    conn->nic = nic;
    link->generation = ++rdma->generations;
    sl_rdma_conn_table_add_queue_pair(conn);
    if (sl_rdma_pool_reserve(nic, conn, conn->credit.window)) {
        return 0;
    }
    const bool is_full = sl_rdma_pool_is_full(nic);
    sl_transport_warn(&rdma->base, "%s: %s %s for it beside %u others", conn->base.peer, nic->name,
                      is_full ? "has no room in its queues" : "can have no receive buffers",
                      nic->promises);
    return is_full ? SL_ERR_TOO_LARGE : SL_ERR_NO_MEMORY;
}

/* Without this the peer's device waits 655 ms when no receive buffer is posted. */
static void set_patience_with_receiver(struct sl_rdma_conn *conn)
{
    struct ibv_qp_attr attr = {.min_rnr_timer = RNR_TIMER};
    (void)conn->rdma->library->modify_qp(conn->link.id->qp, &attr, IBV_QP_MIN_RNR_TIMER);
}

void sl_rdma_conn_established(struct sl_rdma_conn *conn)
{
    const bool accepts = conn->phase == SL_RDMA_ACCEPTING;
    sl_rdma_conn_stop_timer(conn);
    conn->link.established = true;
    set_patience_with_receiver(conn);
    conn->phase = SL_RDMA_LIVE;
    sl_rdma_liveness_add(conn->rdma, conn);
    if (!accepts) {
        if (conn->rdma->base.rma_events != NULL) {
            sl_rdma_access_shut(conn);
        }
        if (conn->phase == SL_RDMA_LIVE) {
            sl_conn_report_connected(&conn->base);
        }
        return;
    }
    conn->accept_pending = false;
    sl_conn_report_accepted(&conn->base);
    sl_rdma_mark_dirty(conn);
}

/* The end; end.c begins it */

void sl_rdma_conn_drop_link(struct sl_rdma_conn *conn)
{
    struct sl_rdma_link *link = &conn->link;
    const struct sl_rdma_library *library = conn->rdma->library;
    if (link->id == NULL) {
        return;
    }
    if (link->id->qp != NULL) {
        sl_rdma_conn_table_remove_queue_pair(conn);
        library->destroy_qp(link->id);
        sl_rdma_pool_release(conn->nic, conn);
    }
    (void)library->destroy_id(link->id);
    link->id = NULL;
    link->established = link->disconnected = link->is_shut = false;
    link->sends_completed = link->sends_posted;
    link->last_wqe = false;
}

/* Completions from before the end was noticed are handled once the queue was found empty since. */
static bool saw_all(struct sl_rdma_conn *conn)
{
    if (conn->nic == NULL || conn->nic->empties != conn->end.empties) {
        return true;
    }
    sl_rdma_mark_ready(conn);
    return false;
}

static bool visit_open(struct sl_rdma_conn *conn)
{
    bool work = sl_rdma_receive_visit(conn);
    if (conn->phase == SL_RDMA_LIVE || conn->phase == SL_RDMA_DRAINING) {
        sl_rdma_send_report(conn);
        sl_rdma_rma_report(conn);
    }
    if (conn->phase == SL_RDMA_DRAINING && !conn->end.fin_sent && sl_rdma_send_is_done(conn)) {
        conn->end.fin_sent = sl_rdma_send_uncounted(conn, SL_RDMA_FIN, 0);
    }
    if (conn->phase != SL_RDMA_LIVE && conn->phase != SL_RDMA_DRAINING) {
        return work;
    }
    if (conn->link.disconnected ? saw_all(conn)
                                : conn->end.fin_received && (conn->phase == SL_RDMA_DRAINING ||
                                                             sl_rdma_receive_is_done(conn))) {
        sl_rdma_conn_end(conn, SL_ERR_CLOSED);
    }
    return work;
}

/* Answers the peer's FIN. True: the answer is not sent yet. */
static bool answers_fin(struct sl_rdma_conn *conn)
{
    const struct sl_rdma_link *link = &conn->link;
    if (!conn->end.fin_received || !link->established || link->disconnected ||
        conn->end.timed_out) {
        return false;
    }
    if (!conn->end.fin_sent) {
        conn->end.fin_sent = sl_rdma_send_uncounted(conn, SL_RDMA_FIN, 0);
    }
    return !conn->end.fin_sent || link->sends_completed != link->sends_posted;
}

static void make_quiet(struct sl_rdma_conn *conn)
{
    const struct sl_rdma_library *library = conn->rdma->library;
    struct rdma_cm_id *id = conn->link.id;
    conn->end.step = SL_RDMA_END_BUFFERS;
    conn->end.timed_out = false;
    sl_rdma_conn_set_timer(conn, QUIET_NS);
    if (id->qp != NULL) {
        struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
        (void)library->modify_qp(id->qp, &attr, IBV_QP_STATE);
    }
    if (conn->link.established) {
        (void)library->disconnect(id);
    }
}

/* A queue pair in the error state returns its work requests. LAST_WQE_REACHED says that it holds
 * no more buffers of the shared receive queue; after the peer's FIN none are in use. */
static bool is_quiet(const struct sl_rdma_conn *conn)
{
    const struct sl_rdma_link *link = &conn->link;
    if (conn->end.timed_out || link->id->qp == NULL || !link->established) {
        return true;
    }
    return (conn->end.fin_received || link->last_wqe) &&
           link->sends_completed == link->sends_posted;
}

/* Completions of a destroyed queue pair may be lost, and shared buffers with them: handle all
 * completions first. */
static bool returned_all(struct sl_rdma_conn *conn)
{
    if (conn->end.step == SL_RDMA_END_BUFFERS) {
        if (!is_quiet(conn)) {
            return false;
        }
        conn->end.step = SL_RDMA_END_COMPLETIONS;
        conn->end.empties = conn->nic != NULL ? conn->nic->empties : 0;
    }
    return saw_all(conn);
}

static void rdma_conn_finish(struct sl_rdma_conn *conn)
{
    struct sl_rdma *rdma = conn->rdma;
    sl_rdma_conn_stop_timer(conn);
    sl_rdma_conn_drop_link(conn);
    sl_rdma_send_close(conn);
    sl_rdma_receive_close(conn);
    sl_rdma_rma_drop(conn);
    sl_rdma_conn_table_remove(conn);
    if (!conn->accept_pending) {
        sl_conn_report_closed(&conn->base, conn->end.err);
    }
    rdma_conn_put_spare(rdma, conn);
}

static bool visit_ended(struct sl_rdma_conn *conn)
{
    if (conn->link.id != NULL && conn->end.step == SL_RDMA_END_FIN) {
        if (answers_fin(conn)) {
            return false; /* a completion or the timer visits again */
        }
        make_quiet(conn);
    }
    if (conn->link.id != NULL && !returned_all(conn)) {
        return false;
    }
    rdma_conn_finish(conn);
    return true;
}

bool sl_rdma_conn_visit(struct sl_rdma_conn *conn)
{
    switch (conn->phase) {
    case SL_RDMA_LIVE:
    case SL_RDMA_DRAINING:
        return visit_open(conn);
    case SL_RDMA_ACCEPTING:
        if (conn->link.disconnected && saw_all(conn)) {
            sl_rdma_conn_end(conn, SL_ERR_CLOSED);
        }
        return true;
    case SL_RDMA_ENDED:
        return visit_ended(conn);
    case SL_RDMA_RESOLVING:
        return false;
    }
    return false;
}

void sl_rdma_conn_cancel_all(struct sl_rdma *rdma)
{
    for (uint32_t i = 0; i < rdma->conns.capacity; i++) {
        struct sl_rdma_conn *conn = rdma->conns.by_index[i];
        if (conn == NULL) {
            continue;
        }
        sl_rdma_conn_end(conn, SL_ERR_CANCELLED);
        conn->end.err = SL_ERR_CANCELLED;
        if (conn->link.id != NULL && conn->link.established) {
            (void)rdma->library->disconnect(conn->link.id);
        }
        rdma_conn_finish(conn);
    }
}

void sl_rdma_conn_free_all(struct sl_rdma *rdma)
{
    while (rdma->spare != NULL) {
        struct sl_rdma_conn *conn = rdma->spare;
        rdma->spare = conn->spare_next;
        free(conn);
    }
    free(rdma->conns.by_index);
}
