#include "net/rdma/liveness.h"

#include "core/list.h"
#include "net/rdma/end.h"
#include "net/rdma/rma_memory.h"
#include "net/rdma/send.h"
#include "net/rdma/wake.h"

#define ROUNDS_PER_PROBE 2  /* an idle connection is probed every second round */
#define PROBES_UNHEARD   2U /* each uses a receive buffer of a peer that may not be polling */

static void rdma_liveness_forget(struct sl_rdma_conn *conn, uint64_t now_ns)
{
    sl_silence_restart(&conn->watch.silence, now_ns);
    conn->watch.heard = false;
    conn->watch.pings = 0;
}

static void ping(struct sl_rdma_conn *conn, uint32_t pings_max)
{
    if (conn->watch.pings < pings_max &&
        sl_rdma_send_uncounted(conn, SL_RDMA_CREDIT_UPDATE, SL_RDMA_PING)) {
        conn->watch.pings++;
    }
}

/* Nothing is due from the peer. But a machine that is gone sends no message: this side's device
 * reports that the probe is not acknowledged. */
static void visit_idle(struct sl_rdma_conn *conn, uint64_t now_ns)
{
    sl_silence_restart(&conn->watch.silence, now_ns);
    if (conn->rdma->sweep.count % ROUNDS_PER_PROBE == 0) {
        ping(conn, PROBES_UNHEARD);
    }
}

/* A peer that waits for memory still polls and answers. */
static void visit_waiting(struct sl_rdma_conn *conn, uint64_t now_ns)
{
    ping(conn, SL_RDMA_SPARE);
    if (sl_silence_lasts(&conn->watch.silence, now_ns,
                         sl_transport_patience_ns(&conn->rdma->base))) {
        sl_rdma_conn_refuse(conn, "it takes nothing and does not answer", SL_ERR_DEADLINE);
    }
}

static void visit(struct sl_rdma_conn *conn, uint64_t now_ns)
{
    if (conn->phase != SL_RDMA_LIVE) {
        return; /* this phase has its own timer */
    }
    if (conn->watch.heard) {
        rdma_liveness_forget(conn, now_ns);
    }
    if (sl_rdma_send_waits(conn)) {
        visit_waiting(conn, now_ns);
    } else {
        visit_idle(conn, now_ns);
    }
}

/* Timers */

/* Whether a device must be checked: its removal is reported to connections and to listeners on
 * its addresses only. */
static bool has_device(const struct sl_rdma *rdma)
{
    const struct sl_rdma_nic *nic = rdma->nics;
    while (nic != NULL && nic->gone) {
        nic = nic->next;
    }
    return nic != NULL;
}

static void rdma_liveness_on_timer(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_rdma *rdma = SL_CONTAINER_OF(timer, struct sl_rdma, sweep.timer);
    rdma->sweep.count++;
    for (uint32_t i = 0; i < rdma->conns.capacity; i++) {
        if (rdma->conns.by_index[i] != NULL) {
            visit(rdma->conns.by_index[i], now_ns);
        }
    }
    for (struct sl_rdma_nic *nic = rdma->nics; nic != NULL; nic = nic->next) {
        sl_rdma_pool_refill(nic);
        if (!nic->gone && !sl_rdma_device_is_there(&nic->member)) {
            sl_rdma_nic_remove(rdma, nic->verbs);
        }
        if (!nic->gone) {
            sl_rdma_rma_memory_pin_again(nic);
        }
    }
    if (rdma->conns.count > 0 || has_device(rdma)) {
        sl_rdma_wake_sweep(rdma);
    }
}

static void on_retry(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_rdma *rdma = SL_CONTAINER_OF(timer, struct sl_rdma, retry.timer);
    rdma->retry.count++;
    rdma->awake = rdma->awake || !sl_list_empty(&rdma->ready);
}

void sl_rdma_liveness_open(struct sl_rdma *rdma)
{
    rdma->sweep.timer.run = rdma_liveness_on_timer;
    rdma->retry.timer.run = on_retry;
}

void sl_rdma_liveness_close(struct sl_rdma *rdma)
{
    sl_reactor_disarm(rdma->base.reactor, &rdma->sweep.timer);
    sl_reactor_disarm(rdma->base.reactor, &rdma->retry.timer);
}

void sl_rdma_liveness_add(struct sl_rdma *rdma, struct sl_rdma_conn *conn)
{
    rdma_liveness_forget(conn, sl_reactor_now_ns(rdma->base.reactor));
    sl_rdma_wake_sweep(rdma);
}
