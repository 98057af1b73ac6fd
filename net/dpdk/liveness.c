/* Detects dead peers. A peer that owes an answer is probed in each round. A peer on a one-peer link
 * is dead when the link goes down. */
#include "net/dpdk/liveness.h"

#include "core/list.h"
#include "net/dpdk/end.h"
#include "net/dpdk/receive_slots.h"
#include "net/dpdk/route.h"
#include "net/dpdk/send.h"
#include "net/dpdk/send_queue.h"

#define ROUNDS_PER_PROBE 2U /* of an idle connection */
#define LINKS_NS         (100 * SL_CLOCK_NS_PER_MS)

static bool dpdk_liveness_lasts(const struct sl_dpdk_conn *conn, struct sl_silence *silence,
                                uint64_t now_ns)
{
    return sl_silence_lasts(silence, now_ns, sl_transport_patience_ns(conn->base.transport));
}

static void look_for_liveness(struct sl_dpdk_conn *conn, uint64_t now_ns)
{
    struct sl_dpdk_liveness *liveness = &conn->liveness;
    const bool waits =
        !sl_dpdk_sent_packets_none(&conn->sent_packets) || !sl_dpdk_send_is_done(conn);
    if (!waits || liveness->checked_ns != liveness->heard_ns) {
        liveness->checked_ns = liveness->heard_ns;
        sl_silence_restart(&liveness->silence, now_ns);
    }
    if (!waits) {
        sl_dpdk_send_shrink(conn);
        sl_dpdk_receive_shrink(conn);
        if (conn->dpdk->liveness.rounds % ROUNDS_PER_PROBE == 0) {
            sl_dpdk_send_probe(conn); /* a host that failed sends nothing */
        }
        return;
    }
    sl_dpdk_send_probe(conn);
    if (dpdk_liveness_lasts(conn, &liveness->silence, now_ns)) {
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
        sl_silence_restart(&liveness->narrow, now_ns);
    }
    liveness->full_size_acked = false;
    if (sl_dpdk_send_is_done(conn) || conn->phase != SL_DPDK_LIVE) {
        return;
    }
    if (liveness->narrow.rounds > 0) {
        sl_dpdk_send_wide_probe(conn);
    }
    if (dpdk_liveness_lasts(conn, &liveness->narrow, now_ns) && liveness->silence.rounds <= 1) {
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
        sl_silence_restart(&liveness->stuck, now_ns);
    } else if (dpdk_liveness_lasts(conn, &liveness->stuck, now_ns)) {
        sl_dpdk_conn_lost(conn, what);
    }
}

static void dpdk_liveness_visit(struct sl_list_link *link, uint64_t now_ns)
{
    struct sl_dpdk_conn *conn = SL_CONTAINER_OF(link, struct sl_dpdk_conn, alive);
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
    if (conn->liveness.silence.rounds > 1) { /* the neighbour's Ethernet address may have changed */
        sl_dpdk_neighbours_doubt(conn->path.netif->neighbours, &conn->path.there.ip);
        (void)sl_dpdk_route_find(conn);
    }
}

/* One-peer links */

/* Messages before a received FIN are still delivered. */
static void end_those(struct sl_dpdk *dpdk, const struct sl_dpdk_netif *netif)
{
    SL_LIST_EACH (struct sl_dpdk_conn, conn, alive, &dpdk->liveness.conns) {
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

void sl_dpdk_liveness_open(struct sl_dpdk *dpdk)
{
    bool has_links = false;
    sl_liveness_init(&dpdk->liveness, dpdk->base.reactor, sl_transport_patience_ns(&dpdk->base),
                     dpdk_liveness_visit);
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
    sl_liveness_fini(&dpdk->liveness);
    sl_reactor_disarm(dpdk->base.reactor, &dpdk->links);
}

void sl_dpdk_liveness_begin(struct sl_dpdk_conn *conn)
{
    const uint64_t now_ns = sl_dpdk_now_ns(conn->dpdk);
    conn->liveness = (struct sl_dpdk_liveness){.heard_ns = now_ns,
                                               .checked_ns = now_ns,
                                               .silence.since_ns = now_ns,
                                               .arrived = conn->grant.arrived,
                                               .stuck.since_ns = now_ns,
                                               .progress = sl_dpdk_send_progress(conn),
                                               .narrow.since_ns = now_ns};
}
