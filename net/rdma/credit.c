#include "net/rdma/credit.h"

#include "net/rdma/send.h"

/* CREDIT_UPDATEs use the SL_RDMA_SPARE uncounted buffers. At most one less is in flight: the
 * last one carries PING, and the next waits until a packet arrives. */
#define NOTES_MAX (SL_RDMA_SPARE - 1)

void sl_rdma_credit_tell(struct sl_rdma_conn *conn, struct sl_rdma_packet *packet)
{
    struct sl_rdma_credit *credit = &conn->credit;
    packet->limit = credit->limit_ours;
    packet->done = credit->reads_done;
    credit->limit_told = credit->limit_ours;
    credit->reads_told = credit->reads_done;
    credit->note_due = false;
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
    struct sl_rdma_credit *credit = &conn->credit;
    uint32_t window = 2 * credit->window;
    if (conn->link.id == NULL || !conn->link.established) {
        return; /* no packet will come, and nobody would return the buffers */
    }
    if (window <= SL_RDMA_WINDOW_MAX && sl_rdma_pool_reserve(conn->nic, conn, window)) {
        credit->window = window;
        credit->limit_ours = credit->counted_consumed + window;
        sl_rdma_mark_dirty(conn);
    }
}

static void heard_limit(struct sl_rdma_conn *conn, uint32_t limit)
{
    if (limit == conn->credit.limit_theirs) {
        return;
    }
    conn->credit.limit_theirs = limit;
    conn->send->stall_told = false;
    if (conn->send->next != conn->send->tail) {
        sl_rdma_mark_dirty(conn);
    }
}

int sl_rdma_credit_heard(struct sl_rdma_conn *conn, const struct sl_rdma_packet *packet)
{
    struct sl_rdma_credit *credit = &conn->credit;
    if ((int32_t)(packet->limit - credit->limit_theirs) < 0 ||
        packet->limit - credit->counted_sent > SL_RDMA_LIMIT_AHEAD_MAX ||
        packet->done - credit->longs_done > credit->longs_sent - credit->longs_done) {
        return SL_ERR_PROTOCOL;
    }
    conn->watch.heard = true;
    conn->send->notes_unheard = 0;
    heard_limit(conn, packet->limit);
    if (packet->done != credit->longs_done) {
        credit->longs_done = packet->done;
        sl_rdma_mark_ready(conn);
    }
    if ((packet->flags & SL_RDMA_STALLED) != 0) {
        widen(conn);
    }
    if ((packet->flags & SL_RDMA_PING) != 0) {
        credit->note_due = true;
    }
    if (sl_rdma_credit_owes(conn)) {
        sl_rdma_mark_dirty(conn);
    }
    return 0;
}

void sl_rdma_credit_consumed(struct sl_rdma_conn *conn)
{
    struct sl_rdma_credit *credit = &conn->credit;
    credit->counted_consumed++;
    credit->limit_ours = credit->counted_consumed + credit->window;
    if (sl_rdma_credit_owes(conn)) {
        sl_rdma_mark_dirty(conn);
    }
}

bool sl_rdma_credit_owes(const struct sl_rdma_conn *conn)
{
    const struct sl_rdma_credit *credit = &conn->credit;
    const struct sl_rdma_send *send = conn->send;
    bool stalls = send->next != send->tail && !sl_rdma_credit_left(conn) && !send->stall_told;
    bool owes = credit->note_due || stalls || credit->reads_done != credit->reads_told ||
                2 * (credit->limit_ours - credit->limit_told) >= credit->window;
    return owes && send->notes_unheard < NOTES_MAX;
}
