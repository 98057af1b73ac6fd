#include "net/rdma/send.h"

/* CREDIT_UPDATEs use the SL_RDMA_SPARE uncounted buffers. At most one less is in flight: the
 * last one carries PING, and the next waits until a packet arrives. */
#define NOTES_MAX (SL_RDMA_SPARE - 1)

void sl_rdma_credit_tell(struct sl_rdma_conn *conn, struct sl_rdma_packet *packet)
{
    packet->limit = conn->limit_ours;
    packet->done = conn->reads_done;
    conn->limit_told = conn->limit_ours;
    conn->reads_told = conn->reads_done;
    conn->note_due = false;
    if (packet->kind == SL_RDMA_CREDIT_UPDATE && ++conn->send->notes_unheard == NOTES_MAX) {
        packet->flags |= SL_RDMA_PING;
    }
    if ((packet->flags & SL_RDMA_STALLED) != 0) {
        conn->send->stall_told = true;
    }
}

/* Doubles a window that the peer fills again and again, as far as buffers allow. */
static void widen(struct sl_rdma_conn *conn)
{
    uint32_t window = 2 * conn->window;
    if (conn->link.id == NULL || !conn->link.established) {
        return; /* no packet will come, and nobody would return the buffers */
    }
    if (window <= SL_RDMA_WINDOW_MAX && sl_rdma_pool_reserve(conn->nic, conn, window)) {
        conn->window = window;
        conn->limit_ours = conn->counted_consumed + window;
        sl_rdma_mark_dirty(conn);
    }
}

static void heard_limit(struct sl_rdma_conn *conn, uint32_t limit)
{
    if (limit == conn->limit_theirs) {
        return;
    }
    conn->limit_theirs = limit;
    conn->send->stall_told = false;
    if (conn->send->next != conn->send->tail) {
        sl_rdma_mark_dirty(conn);
    }
}

int sl_rdma_credit_heard(struct sl_rdma_conn *conn, const struct sl_rdma_packet *packet)
{
    if ((int32_t)(packet->limit - conn->limit_theirs) < 0 ||
        packet->limit - conn->counted_sent > SL_RDMA_LIMIT_AHEAD_MAX ||
        packet->done - conn->longs_done > conn->longs_sent - conn->longs_done) {
        return SL_ERR_PROTOCOL;
    }
    conn->heard = true;
    conn->send->notes_unheard = 0;
    heard_limit(conn, packet->limit);
    if (packet->done != conn->longs_done) {
        conn->longs_done = packet->done;
        sl_rdma_mark_ready(conn);
    }
    if ((packet->flags & SL_RDMA_STALLED) != 0) {
        widen(conn);
    }
    if ((packet->flags & SL_RDMA_PING) != 0) {
        conn->note_due = true;
    }
    if (sl_rdma_credit_owes(conn)) {
        sl_rdma_mark_dirty(conn);
    }
    return 0;
}

void sl_rdma_credit_consumed(struct sl_rdma_conn *conn)
{
    conn->counted_consumed++;
    conn->limit_ours = conn->counted_consumed + conn->window;
    if (sl_rdma_credit_owes(conn)) {
        sl_rdma_mark_dirty(conn);
    }
}

bool sl_rdma_credit_owes(const struct sl_rdma_conn *conn)
{
    const struct sl_rdma_send *send = conn->send;
    bool stalls = send->next != send->tail && !sl_rdma_credit_left(conn) && !send->stall_told;
    bool owes = conn->note_due || stalls || conn->reads_done != conn->reads_told ||
                2 * (conn->limit_ours - conn->limit_told) >= conn->window;
    return owes && send->notes_unheard < NOTES_MAX;
}
