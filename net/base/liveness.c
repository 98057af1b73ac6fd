#include "net/base/liveness.h"

#include "net/transport_impl.h"

#define VISITS_A_TURN    256 /* each may take a system call */
#define HANDSHAKE_NS_MAX (10 * SL_CLOCK_NS_PER_S)

/* Visited connections move to the end of the list, where new ones are, too. So a round over several
 * turns only stores how many are left. */
static void base_liveness_on_timer(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_liveness *liveness = SL_CONTAINER_OF(timer, struct sl_liveness, timer);
    if (liveness->left == 0) {
        liveness->rounds++;
        liveness->begun_ns = now_ns;
        liveness->left = liveness->conn_count;
    }
    uint32_t visits = liveness->left < VISITS_A_TURN ? liveness->left : VISITS_A_TURN;
    liveness->left -= visits;
    for (; visits > 0 && !sl_list_empty(&liveness->conns); visits--) {
        struct sl_list_link *link = sl_list_first(&liveness->conns);
        sl_list_append(&liveness->conns, link);
        liveness->visit(link, now_ns);
    }
    if (liveness->conn_count == 0) {
        liveness->left = 0;
        return;
    }
    sl_timer_arm(sl_reactor_timers(liveness->reactor), timer,
                 liveness->left > 0 ? now_ns : liveness->begun_ns + liveness->round_ns);
}

uint64_t sl_liveness_handshake_ns(const struct sl_transport *transport)
{
    const uint64_t patience_ns = sl_transport_patience_ns(transport);
    return patience_ns < HANDSHAKE_NS_MAX ? patience_ns : HANDSHAKE_NS_MAX;
}

void sl_liveness_init(struct sl_liveness *liveness, struct sl_reactor *reactor, uint64_t limit_ns,
                      sl_liveness_visit_fn *visit)
{
    *liveness = (struct sl_liveness){.reactor = reactor,
                                     .visit = visit,
                                     .round_ns = limit_ns / SL_LIVENESS_ROUNDS,
                                     .timer.run = base_liveness_on_timer};
    sl_list_init(&liveness->conns);
}

void sl_liveness_fini(struct sl_liveness *liveness)
{
    sl_reactor_disarm(liveness->reactor, &liveness->timer);
}

void sl_liveness_add(struct sl_liveness *liveness, struct sl_list_link *link)
{
    sl_list_append(&liveness->conns, link);
    liveness->conn_count++;
    if (!sl_timer_armed(&liveness->timer)) {
        sl_reactor_arm(liveness->reactor, &liveness->timer, liveness->round_ns);
    }
}

void sl_liveness_remove(struct sl_liveness *liveness, struct sl_list_link *link)
{
    sl_list_remove(link);
    liveness->conn_count--;
}
