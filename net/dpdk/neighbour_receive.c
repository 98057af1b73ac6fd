/* Handles packets of ARP and neighbour discovery, and the news that they bring to connections. */
#include "net/dpdk/neighbour_receive.h"

#include <string.h>

#include "core/log.h"
#include "net/dpdk/connect.h"
#include "net/dpdk/misrouted_packets.h"
#include "net/dpdk/neighbour_packet.h"
#include "net/dpdk/route.h"

/* Updates the route after news in the neighbour table. */
static void follow(struct sl_dpdk_conn *conn)
{
    uint8_t mac[6];
    if (conn->phase == SL_DPDK_ENDED || sl_dpdk_route_is_own(conn) ||
        !sl_dpdk_neighbours_look(conn->path.netif->neighbours, &conn->path.there.ip, mac)) {
        return;
    }
    const bool is_first = !conn->path.routed;
    sl_dpdk_route_learn(conn, mac);
    if (is_first) {
        sl_dpdk_connect_routed(conn);
    }
}

/* Whether all reactors need the packet: an answer, or an announcement (a request for the sender's
 * own address). */
static bool is_for_all(const uint8_t *bytes, uint32_t length)
{
    struct sl_dpdk_neighbour_said said;
    return sl_dpdk_neighbour_parse(bytes, length, &said) &&
           (!said.asks || memcmp(&said.target, &said.who, sizeof said.who) == 0);
}

static void look_for_rival(struct sl_dpdk *dpdk, const struct sl_dpdk_netif *netif)
{
    uint8_t mac[6];
    if (sl_dpdk_neighbours_rival(netif->neighbours, mac) && sl_transport_may_log(&dpdk->base)) {
        char host[SL_LIMIT_ENDPOINT_BYTES];
        sl_dpdk_route_host(&netif->info.self.ip, host);
        sl_log_warn("%s: another station, %02x:%02x:%02x:%02x:%02x:%02x, says that it has our "
                    "address %s: one of the two needs another",
                    netif->info.name, mac[0], mac[1], mac[2], mac[3], mac[4], mac[5], host);
    }
}

void sl_dpdk_neighbour_receive(struct sl_dpdk *dpdk, struct sl_dpdk_netif *netif,
                               const uint8_t *bytes, uint32_t length,
                               const struct sl_dpdk_packet *came)
{
    uint8_t answer[128];
    uint32_t answer_bytes =
        sl_dpdk_neighbours_take(netif->neighbours, bytes, length, sl_dpdk_now_ns(dpdk), answer);
    struct sl_dpdk_packet packet;
    look_for_rival(dpdk, netif);
    if (came != NULL && answer_bytes > 0 && sl_dpdk_netif_get_unnumbered(netif, &packet)) {
        memcpy(packet.bytes, answer, answer_bytes);
        packet.length = answer_bytes;
        packet.queue = came->queue;
        sl_dpdk_netif_put(dpdk, netif, &packet);
    } else if (came != NULL && is_for_all(bytes, length)) {
        sl_dpdk_misrouted_packets_neighbour(dpdk, netif, came);
    }
    if (!sl_dpdk_neighbours_news(netif->neighbours)) {
        return;
    }
    SL_LIST_EACH (struct sl_dpdk_conn, conn, alive, &dpdk->liveness.conns) {
        if (conn->path.netif == netif) {
            follow(conn);
        }
    }
}
