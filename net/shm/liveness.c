#include "core/list.h"
#include "core/log.h"
#include "net/shm/internal.h"

#define ROUNDS_PER_TIMEOUT 4
#define HANDSHAKE_NS_MAX   (10 * SL_CLOCK_NS_PER_S)

static uint64_t timeout_ns(const struct sl_shm *shm)
{
    return shm->peer_timeout_ms * SL_CLOCK_NS_PER_MS;
}

static uint64_t handshake_ns(const struct sl_shm *shm)
{
    return timeout_ns(shm) < HANDSHAKE_NS_MAX ? timeout_ns(shm) : HANDSHAKE_NS_MAX;
}

static void forget(struct sl_shm_conn *conn, uint64_t now_ns)
{
    conn->quiet_since_ns = now_ns;
    conn->quiet_rounds = 0;
    conn->quiet_consumed = conn->send.consumed;
    conn->heard = false;
}

/* Requires a whole timeout of checks without progress: while this thread was stopped, the peer may
 * have answered. */
static void see_silence(struct sl_shm_conn *conn, uint64_t now_ns, uint64_t limit_ns,
                        const char *what)
{
    conn->quiet_rounds++;
    if (conn->quiet_rounds >= ROUNDS_PER_TIMEOUT && now_ns - conn->quiet_since_ns >= limit_ns) {
        sl_shm_conn_refuse(conn, what, SL_ERR_DEADLINE);
    }
}

/* A peer that consumes nothing may wait for memory for long, but then its reactor runs and answers
 * PING. */
static void visit_live(struct sl_shm_conn *conn, uint64_t now_ns)
{
    const struct sl_shm_send *send = &conn->send;
    sl_shm_send_refresh(conn);
    if (conn->phase != SL_SHM_LIVE) {
        return;
    }
    if ((send->next == send->tail && send->consumed == send->number) || conn->heard ||
        send->consumed != conn->quiet_consumed) {
        forget(conn, now_ns);
    }
    if (send->consumed != send->number) {
        (void)sl_shm_ctrl_msg_send(conn, (struct sl_shm_ctrl_msg){.kind = SL_SHM_CTRL_MSG_PING},
                                   -1);
        see_silence(conn, now_ns, timeout_ns(conn->shm), "it takes nothing and does not answer");
    }
}

static void visit(struct sl_shm_conn *conn, uint64_t now_ns)
{
    struct sl_shm *shm = conn->shm;
    if (conn->phase == SL_SHM_LIVE) {
        visit_live(conn, now_ns);
    } else if (conn->phase == SL_SHM_HANDSHAKE || conn->phase == SL_SHM_RETRYING) {
        see_silence(conn, now_ns, handshake_ns(shm), "it did not shake hands in time");
    }
}

static void arm(struct sl_shm *shm, uint64_t now_ns)
{
    sl_timer_arm(sl_reactor_timers(shm->base.reactor), &shm->sweep,
                 now_ns + handshake_ns(shm) / ROUNDS_PER_TIMEOUT);
}

static void on_timer(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_shm *shm = SL_CONTAINER_OF(timer, struct sl_shm, sweep);
    for (uint32_t i = 0; i < shm->conn_count; i++) {
        visit(shm->conns[i], now_ns);
    }
    if (shm->conn_count > 0) {
        arm(shm, now_ns);
    }
}

void sl_shm_liveness_open(struct sl_shm *shm)
{
    shm->sweep.run = on_timer;
}

void sl_shm_liveness_close(struct sl_shm *shm)
{
    if (sl_timer_armed(&shm->sweep)) {
        sl_timer_disarm(sl_reactor_timers(shm->base.reactor), &shm->sweep);
    }
}

void sl_shm_liveness_add(struct sl_shm *shm, struct sl_shm_conn *conn)
{
    uint64_t now_ns = sl_reactor_now_ns(shm->base.reactor);
    forget(conn, now_ns);
    if (!sl_timer_armed(&shm->sweep)) {
        arm(shm, now_ns);
    }
}
