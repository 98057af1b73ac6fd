/* Detects dead peers. Each connection is checked four times in a peer timeout. A peer that owes an
 * answer is probed. It is declared dead after a timeout with enough probes: while this thread was
 * stopped, time passed in which the peer may have answered. A peer on a one-peer link is dead when
 * the link goes down. */
#include "net/dpdk/liveness.h"

#include "core/list.h"
#include "net/dpdk/end.h"
#include "net/dpdk/receive_slots.h"
#include "net/dpdk/route.h"
#include "net/dpdk/send.h"
#include "net/dpdk/send_queue.h"

#define ROUNDS_PER_TIMEOUT 4U
#define ROUNDS_PER_PROBE   2U /* of an idle connection */
#define LINKS_NS           (100 * SL_CLOCK_NS_PER_MS)

static bool dpdk_liveness_is_over(const struct sl_dpdk *dpdk, uint32_t rounds, uint64_t since_ns,
                                  uint64_t now_ns)
{
    return rounds > ROUNDS_PER_TIMEOUT &&
           now_ns - since_ns >= sl_transport_patience_ns(&dpdk->base);
}

static void look_for_liveness(struct sl_dpdk_conn *conn, uint64_t now_ns)
{
    struct sl_dpdk_liveness *liveness = &conn->liveness;
    if (liveness->checked_ns != liveness->heard_ns) {
        liveness->checked_ns = liveness->heard_ns;
        liveness->since_ns = now_ns;
        liveness->rounds = 0;
    }
    const bool waits =
        !sl_dpdk_sent_packets_none(&conn->sent_packets) || !sl_dpdk_send_is_done(conn);
    if (!waits) {
        liveness->since_ns = now_ns;
        liveness->rounds = 0;
        sl_dpdk_send_shrink(conn);
        sl_dpdk_receive_shrink(conn);
        if (conn->dpdk->sweep_rounds % ROUNDS_PER_PROBE == 0) {
            sl_dpdk_send_probe(conn); /* a host that failed sends nothing */
        }
        return;
    }
    liveness->rounds++;
    sl_dpdk_send_probe(conn);
    if (dpdk_liveness_is_over(conn->dpdk, liveness->rounds, liveness->since_ns, now_ns)) {
        sl_dpdk_conn_lost(conn, "it takes nothing and does not answer");
    }
}

/* The peer answers but acknowledges no content. It may have no room; or full-size packets do not
 * arrive, since a hop has a smaller MTU and drops them silently. */
static void look_for_narrows(struct sl_dpdk_conn *conn, uint64_t now_ns)
{
    struct sl_dpdk_liveness *liveness = &conn->liveness;
    const uint32_t progress = sl_dpdk_send_progress(conn);
    if (sl_dpdk_send_is_done(conn) || progress != liveness->progress || liveness->full_size_acked) {
        liveness->progress = progress;
        liveness->narrow_since_ns = now_ns;
        liveness->narrow_rounds = 0;
    }
    liveness->full_size_acked = false;
    if (sl_dpdk_send_is_done(conn) || conn->phase != SL_DPDK_LIVE) {
        return;
    }
    if (liveness->narrow_rounds++ > 0) {
        sl_dpdk_send_wide_probe(conn);
    }
    if (liveness->rounds <= 1 && dpdk_liveness_is_over(conn->dpdk, liveness->narrow_rounds,
                                                       liveness->narrow_since_ns, now_ns)) {
        sl_dpdk_conn_lost(conn, "it answers, but no packet of full length reaches it: something on "
                                "the way has a smaller MTU than the devices of both sides");
    }
}

/* The peer sends nothing of the data that it owes. */
static void look_for_standstill(struct sl_dpdk_conn *conn, bool is_owed, const char *what,
                                uint64_t now_ns)
{
    struct sl_dpdk_liveness *liveness = &conn->liveness;
    if (conn->phase != SL_DPDK_LIVE) {
        return;
    }
    if (!is_owed || liveness->arrived != conn->grant.arrived) {
        liveness->arrived = conn->grant.arrived;
        liveness->stuck_since_ns = now_ns;
        liveness->stuck_rounds = 0;
        return;
    }
    liveness->stuck_rounds++;
    if (dpdk_liveness_is_over(conn->dpdk, liveness->stuck_rounds, liveness->stuck_since_ns,
                              now_ns)) {
        sl_dpdk_conn_lost(conn, what);
    }
}

static void visit(struct sl_dpdk_conn *conn, uint64_t now_ns)
{
    if (conn->phase != SL_DPDK_LIVE) {
        return; /* draining connections have their own deadline */
    }
    if (conn->end.fin_received) { /* the peer ended the connection and waits for nothing */
        look_for_standstill(conn, !sl_dpdk_receive_waits_for_sink(conn),
                            "it has gone before all that it sent had come", now_ns);
        return;
    }
    look_for_liveness(conn, now_ns);
    look_for_narrows(conn, now_ns);
    look_for_standstill(conn, sl_dpdk_receive_is_owed(conn), "it has stopped within a message",
                        now_ns);
    if (conn->liveness.rounds > 1) { /* the neighbour's Ethernet address may have changed */
        sl_dpdk_neighbours_doubt(conn->path.netif->neighbours, &conn->path.there.ip);
        (void)sl_dpdk_route_find(conn);
    }
}

static void dpdk_liveness_arm(struct sl_dpdk *dpdk)
{
    sl_reactor_arm(dpdk->base.reactor, &dpdk->sweep,
                   sl_transport_patience_ns(&dpdk->base) / ROUNDS_PER_TIMEOUT);
}

/* A visit that ends a connection only marks it, so that the list stays valid. */
static void dpdk_liveness_on_timer(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_dpdk *dpdk = SL_CONTAINER_OF(timer, struct sl_dpdk, sweep);
    dpdk->sweep_rounds++;
    SL_LIST_FOREACH (link, &dpdk->conns) {
        visit(sl_dpdk_conn_alive(link), now_ns);
    }
    if (!sl_list_empty(&dpdk->conns)) {
        dpdk_liveness_arm(dpdk);
    }
}

/* One-peer links */

/* Messages before a received FIN are still delivered. */
static void end_those(struct sl_dpdk *dpdk, const struct sl_dpdk_netif *netif)
{
    SL_LIST_FOREACH (link, &dpdk->conns) {
        struct sl_dpdk_conn *conn = sl_dpdk_conn_alive(link);
        const bool waits = conn->phase == SL_DPDK_DRAINING ||
                           (conn->phase == SL_DPDK_LIVE && !conn->end.fin_received);
        if (conn->path.netif == netif && waits) {
            sl_dpdk_conn_lost(conn, "its process has gone");
        }
    }
}

/* Only for a link that was up before: each reactor notices a change at its own time. */
static void look_at_link(struct sl_dpdk *dpdk, struct sl_dpdk_netif *netif)
{
    const bool is_up = netif->port->ops->link_is_up(netif->port);
    if (netif->link_was_up && !is_up) {
        end_those(dpdk, netif);
    }
    netif->link_was_up = is_up;
}

static void arm_links(struct sl_dpdk *dpdk)
{
    sl_reactor_arm(dpdk->base.reactor, &dpdk->links, LINKS_NS);
}

static void on_links_timer(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_dpdk *dpdk = SL_CONTAINER_OF(timer, struct sl_dpdk, links);
    for (uint32_t i = 0; i < dpdk->netif_count; i++) {
        if (dpdk->netifs[i].info.is_one_peers) {
            look_at_link(dpdk, &dpdk->netifs[i]);
        }
    }
    arm_links(dpdk);
}

/* Both */

void sl_dpdk_liveness_open(struct sl_dpdk *dpdk)
{
    bool has_links = false;
    dpdk->sweep.run = dpdk_liveness_on_timer;
    dpdk->links.run = on_links_timer;
    for (uint32_t i = 0; i < dpdk->netif_count; i++) {
        has_links = has_links || dpdk->netifs[i].info.is_one_peers;
    }
    if (has_links) {
        arm_links(dpdk);
    }
}

void sl_dpdk_liveness_close(struct sl_dpdk *dpdk)
{
    sl_reactor_disarm(dpdk->base.reactor, &dpdk->sweep);
    sl_reactor_disarm(dpdk->base.reactor, &dpdk->links);
}

void sl_dpdk_liveness_add(struct sl_dpdk_conn *conn)
{
    struct sl_dpdk *dpdk = conn->dpdk;
    const uint64_t now_ns = sl_dpdk_now_ns(dpdk);
    conn->liveness = (struct sl_dpdk_liveness){.heard_ns = now_ns,
                                               .checked_ns = now_ns,
                                               .since_ns = now_ns,
                                               .arrived = conn->grant.arrived,
                                               .progress = sl_dpdk_send_progress(conn),
                                               .narrow_since_ns = now_ns,
                                               .stuck_since_ns = now_ns};
    if (!sl_timer_armed(&dpdk->sweep)) {
        dpdk_liveness_arm(dpdk);
    }
}
