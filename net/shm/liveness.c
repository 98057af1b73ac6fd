#include "net/shm/liveness.h"

#include "net/shm/rma.h"
#include "net/shm/send.h"
#include "net/shm/socket.h"

/* A peer that consumes nothing may wait for memory for long, but then its reactor runs and answers
 * PING. */
static void visit_live(struct sl_shm_conn *conn, uint64_t now_ns)
{
    const struct sl_shm_send *send = &conn->send;
    const bool is_asking = sl_shm_rma_waits(conn);
    sl_shm_send_refresh(conn);
    if (conn->base.failure != 0) {
        return;
    }
    if ((send->next == send->tail && send->consumed == send->number && !is_asking) ||
        conn->watch.heard || send->consumed != conn->watch.consumed) {
        sl_silence_restart(&conn->watch.silence, now_ns);
        conn->watch.consumed = send->consumed;
        conn->watch.heard = false;
    }
    if (send->consumed != send->number || is_asking) {
        (void)sl_shm_ctrl_msg_send(conn, (struct sl_shm_ctrl_msg){.kind = SL_SHM_CTRL_MSG_PING},
                                   -1);
        if (sl_silence_lasts(&conn->watch.silence, now_ns,
                             sl_transport_patience_ns(&conn->shm->base))) {
            sl_shm_fail(conn, SL_ERR_DEADLINE, "it takes nothing and does not answer");
        }
    }
}

static void shm_liveness_visit(struct sl_list_link *link, uint64_t now_ns)
{
    struct sl_shm_conn *conn = SL_CONTAINER_OF(link, struct sl_shm_conn, alive);
    if (conn->phase == SL_SHM_LIVE) {
        visit_live(conn, now_ns);
    } else if (conn->phase <= SL_SHM_HANDSHAKE &&
               sl_silence_lasts(&conn->watch.silence, now_ns,
                                sl_liveness_handshake_ns(&conn->shm->base))) {
        sl_shm_fail(conn, SL_ERR_DEADLINE, "it did not shake hands in time");
    }
}

void sl_shm_liveness_init(struct sl_shm *shm)
{
    sl_liveness_init(&shm->liveness, shm->base.reactor, sl_liveness_handshake_ns(&shm->base),
                     shm_liveness_visit);
}
