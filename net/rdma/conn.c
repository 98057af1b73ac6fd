#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/list.h"
#include "core/log.h"
#include "net/rdma/internal.h"

#define QUIET_NS  (50 * SL_CLOCK_NS_PER_MS) /* for devices that do not report LAST_WQE_REACHED */
#define INDEX_MAX (1U << 17)                /* 17 bits of a wr_id */

/* The table */

static struct sl_rdma_conn **bucket_of(struct sl_rdma *rdma, uint32_t queue_pair)
{
    return &rdma->by_queue_pair[queue_pair % SL_RDMA_BUCKETS];
}

struct sl_rdma_conn *sl_rdma_conn_of_queue_pair(const struct sl_rdma_nic *nic, uint32_t number)
{
    struct sl_rdma_conn *conn = *bucket_of(nic->rdma, number);
    while (conn != NULL && (conn->link.id->qp->qp_num != number || conn->nic != nic)) {
        conn = conn->queue_pair_next;
    }
    return conn;
}

struct sl_rdma_conn *sl_rdma_conn_of(struct sl_rdma *rdma, uint64_t wr_id)
{
    uint32_t index = wr_id >> 1 & (INDEX_MAX - 1);
    struct sl_rdma_conn *conn = index < rdma->conn_capacity ? rdma->conns[index] : NULL;
    bool is_its = conn != NULL && conn->link.id != NULL &&
                  (conn->link.generation & 0xffffff) == (uint32_t)(wr_id >> 40);
    return is_its ? conn : NULL;
}

static bool find_index(struct sl_rdma *rdma, uint32_t *out)
{
    for (uint32_t i = 0; i < rdma->conn_capacity; i++) {
        uint32_t index = (rdma->conn_count + i) % rdma->conn_capacity;
        if (rdma->conns[index] == NULL) {
            *out = index;
            return true;
        }
    }
    return false;
}

static bool grow(struct sl_rdma *rdma)
{
    uint32_t capacity = rdma->conn_capacity > 0 ? 2 * rdma->conn_capacity : 16;
    if (capacity > INDEX_MAX) {
        return false;
    }
    struct sl_rdma_conn **conns = realloc(rdma->conns, capacity * sizeof *conns);
    if (conns == NULL) {
        return false;
    }
    memset(conns + rdma->conn_capacity, 0, (capacity - rdma->conn_capacity) * sizeof *conns);
    rdma->conns = conns;
    rdma->conn_capacity = capacity;
    return true;
}

static bool link_to(struct sl_rdma *rdma, struct sl_rdma_conn *conn)
{
    if (!find_index(rdma, &conn->index)) {
        if (!grow(rdma)) {
            return false;
        }
        (void)find_index(rdma, &conn->index);
    }
    conn->rdma = rdma;
    conn->serial = ++rdma->conn_serial;
    rdma->conns[conn->index] = conn;
    rdma->conn_count++;
    rdma->stats.connections++;
    return true;
}

static void unlink_from(struct sl_rdma_conn *conn)
{
    struct sl_rdma *rdma = conn->rdma;
    rdma->conns[conn->index] = NULL;
    rdma->conn_count--;
    rdma->stats.connections--;
    sl_list_remove(&conn->dirty);
    sl_list_remove(&conn->ready);
}

/* Timers */

static void on_timer(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_rdma_conn *conn = SL_CONTAINER_OF(timer, struct sl_rdma_conn, timer);
    switch (conn->phase) {
    case SL_RDMA_RESOLVING:
        if (conn->link.id == NULL && conn->attempts > 0) {
            sl_rdma_conn_set_timer(conn, sl_rdma_patience_ns(conn->rdma));
            sl_rdma_connect_begin(conn);
            return;
        }
        sl_rdma_conn_end(conn, SL_ERR_DEADLINE);
        return;
    case SL_RDMA_ENDED:
        conn->quiet_waited = true;
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
        conn->timer.run = on_timer;
    }
    return conn;
}

static void put_spare(struct sl_rdma *rdma, struct sl_rdma_conn *conn)
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
    conn->window = SL_RDMA_WINDOW_MIN;
    conn->limit_ours = conn->limit_told = conn->window;
    if (!link_to(rdma, conn)) {
        put_spare(rdma, conn);
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
        unlink_from(conn);
        put_spare(rdma, conn);
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
    struct sl_rdma_conn **bucket = bucket_of(rdma, link->id->qp->qp_num);
    conn->queue_pair_next = *bucket;
    *bucket = conn;
    if (sl_rdma_pool_reserve(nic, conn, conn->window)) {
        return 0;
    }
    const bool is_full = sl_rdma_pool_is_full(nic);
    sl_transport_warn(&rdma->base, "%s: %s %s for it beside %u others", conn->base.peer, nic->name,
                      is_full ? "has no room in its queues" : "can have no receive buffers",
                      nic->promises);
    return is_full ? SL_ERR_TOO_LARGE : SL_ERR_NO_MEMORY;
}

void sl_rdma_conn_established(struct sl_rdma_conn *conn)
{
    sl_rdma_connect_done(conn);
    conn->phase = SL_RDMA_LIVE;
    conn->accept_pending = false;
    sl_rdma_liveness_add(conn->rdma, conn);
    sl_conn_report_accepted(&conn->base);
    sl_rdma_mark_dirty(conn);
}

/* The end; end.c begins it */

static void leave_bucket(struct sl_rdma_conn *conn)
{
    struct sl_rdma_conn **at = bucket_of(conn->rdma, conn->link.id->qp->qp_num);
    while (*at != NULL && *at != conn) {
        at = &(*at)->queue_pair_next;
    }
    if (*at != NULL) {
        *at = conn->queue_pair_next;
    }
}

void sl_rdma_conn_drop_link(struct sl_rdma_conn *conn)
{
    struct sl_rdma_link *link = &conn->link;
    const struct sl_rdma_library *library = conn->rdma->library;
    if (link->id == NULL) {
        return;
    }
    if (link->id->qp != NULL) {
        leave_bucket(conn);
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
    if (conn->nic == NULL || conn->nic->empties != conn->empties) {
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
    }
    if (conn->phase == SL_RDMA_DRAINING && !conn->fin_sent && sl_rdma_send_is_done(conn)) {
        conn->fin_sent = sl_rdma_send_uncounted(conn, SL_RDMA_FIN, 0);
    }
    if (conn->phase != SL_RDMA_LIVE && conn->phase != SL_RDMA_DRAINING) {
        return work;
    }
    if (conn->link.disconnected ? saw_all(conn)
                                : conn->fin_received && (conn->phase == SL_RDMA_DRAINING ||
                                                         sl_rdma_receive_is_done(conn))) {
        sl_rdma_conn_end(conn, SL_ERR_CLOSED);
    }
    return work;
}

/* Answers the peer's FIN: tells the peer that no packet follows. */
static bool says_farewell(struct sl_rdma_conn *conn)
{
    const struct sl_rdma_link *link = &conn->link;
    if (!conn->fin_received || !link->established || link->disconnected || conn->quiet_waited) {
        return false;
    }
    if (!conn->fin_sent) {
        conn->fin_sent = sl_rdma_send_uncounted(conn, SL_RDMA_FIN, 0);
    }
    return !conn->fin_sent || link->sends_completed != link->sends_posted;
}

static void make_quiet(struct sl_rdma_conn *conn)
{
    const struct sl_rdma_library *library = conn->rdma->library;
    struct rdma_cm_id *id = conn->link.id;
    conn->qp_draining = true;
    conn->quiet_waited = false;
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
    if (conn->quiet_waited || link->id->qp == NULL || !link->established) {
        return true;
    }
    return (conn->fin_received || link->last_wqe) && link->sends_completed == link->sends_posted;
}

/* Completions of a destroyed queue pair may be lost, and shared buffers with them: handle all
 * completions first. */
static bool gave_back_all(struct sl_rdma_conn *conn)
{
    if (!is_quiet(conn)) {
        return false;
    }
    if (!conn->qp_drained) {
        conn->qp_drained = true;
        conn->empties = conn->nic != NULL ? conn->nic->empties : 0;
    }
    return saw_all(conn);
}

static void finish(struct sl_rdma_conn *conn)
{
    struct sl_rdma *rdma = conn->rdma;
    sl_rdma_conn_stop_timer(conn);
    sl_rdma_conn_drop_link(conn);
    sl_rdma_send_close(conn);
    sl_rdma_receive_close(conn);
    unlink_from(conn);
    if (!conn->accept_pending) {
        sl_conn_report_closed(&conn->base, conn->end_err);
    }
    put_spare(rdma, conn);
}

static bool visit_ended(struct sl_rdma_conn *conn)
{
    if (conn->link.id != NULL && !conn->qp_draining) {
        if (says_farewell(conn)) {
            return false; /* a completion or the timer visits again */
        }
        make_quiet(conn);
    }
    if (conn->link.id != NULL && !gave_back_all(conn)) {
        return false;
    }
    finish(conn);
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
    for (uint32_t i = 0; i < rdma->conn_capacity; i++) {
        struct sl_rdma_conn *conn = rdma->conns[i];
        if (conn == NULL) {
            continue;
        }
        sl_rdma_conn_end(conn, SL_ERR_CANCELLED);
        conn->end_err = SL_ERR_CANCELLED;
        if (conn->link.id != NULL && conn->link.established) {
            (void)rdma->library->disconnect(conn->link.id);
        }
        finish(conn);
    }
}

void sl_rdma_conn_free_all(struct sl_rdma *rdma)
{
    while (rdma->spare != NULL) {
        struct sl_rdma_conn *conn = rdma->spare;
        rdma->spare = conn->spare_next;
        free(conn);
    }
    free(rdma->conns);
}
