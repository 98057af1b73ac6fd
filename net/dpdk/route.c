/* Selects the port and queue to a peer and builds the headers of its packets. */
#include "net/dpdk/route.h"

#include <arpa/inet.h>
#include <string.h>

#include "core/log.h"
#include "core/reason.h"

/* Addresses */

bool sl_dpdk_route_is_v4(const struct in6_addr *ip)
{
    return IN6_IS_ADDR_V4MAPPED(ip);
}

bool sl_dpdk_route_is_any(const struct in6_addr *ip)
{
    static const uint8_t zeros[4];
    return IN6_IS_ADDR_UNSPECIFIED(ip) ||
           (sl_dpdk_route_is_v4(ip) && memcmp(ip->s6_addr + 12, zeros, 4) == 0);
}

bool sl_dpdk_route_is_answerable(const struct sl_dpdk_address *from)
{
    const bool is_group = sl_dpdk_route_is_v4(&from->ip) ? from->ip.s6_addr[12] >= 224
                                                         : IN6_IS_ADDR_MULTICAST(&from->ip);
    return from->port != 0 && !is_group && !sl_dpdk_route_is_any(&from->ip);
}

int sl_dpdk_route_parse(const struct sl_endpoint *endpoint, bool passive, struct in6_addr *out)
{
    struct sockaddr_storage address;
    socklen_t bytes;
    struct sl_reason reason;
    int err = sl_endpoint_resolve(endpoint, passive, &address, &bytes, &reason);
    if (err != 0) {
        sl_log_error("dpdk: %s: %s", endpoint->host, reason.text);
        return err;
    }
    if (address.ss_family == AF_INET6) {
        *out = ((const struct sockaddr_in6 *)&address)->sin6_addr;
        return 0;
    }
    *out = (struct in6_addr){.s6_addr[10] = 0xff, .s6_addr[11] = 0xff};
    memcpy(out->s6_addr + 12, &((const struct sockaddr_in *)&address)->sin_addr, 4);
    return 0;
}

void sl_dpdk_route_host(const struct in6_addr *ip, char host[SL_LIMIT_ENDPOINT_BYTES])
{
    const bool is_v4 = sl_dpdk_route_is_v4(ip);
    (void)inet_ntop(is_v4 ? AF_INET : AF_INET6, ip->s6_addr + (is_v4 ? 12 : 0), host,
                    SL_LIMIT_ENDPOINT_BYTES);
}

void sl_dpdk_route_format(const struct sl_dpdk_address *address, char text[SL_LIMIT_ENDPOINT_BYTES])
{
    struct sl_endpoint endpoint = {.scheme = SL_ENDPOINT_DPDK, .port = address->port};
    sl_dpdk_route_host(&address->ip, endpoint.host);
    sl_endpoint_format(&endpoint, text, SL_LIMIT_ENDPOINT_BYTES);
}

static bool is_beside(const struct sl_dpdk_self *self, const struct in6_addr *ip)
{
    if (self->prefix_bits == 0) {
        return true;
    }
    uint32_t bits = self->prefix_bits + (sl_dpdk_route_is_v4(&self->ip) ? 96U : 0U);
    for (uint32_t i = 0; i < sizeof ip->s6_addr && bits > 0; i++) {
        const uint32_t here = bits < 8 ? bits : 8;
        if ((self->ip.s6_addr[i] ^ ip->s6_addr[i]) >> (8 - here) != 0) {
            return false;
        }
        bits -= here;
    }
    return true;
}

/* Prefers a netif with the address on-link (longest prefix), then one with a gateway, then any of
 * its family. */
struct sl_dpdk_netif *sl_dpdk_route_side(struct sl_dpdk *dpdk, const struct in6_addr *ip)
{
    struct sl_dpdk_netif *best = NULL;
    uint32_t best_rank = 0;
    for (uint32_t i = 0; i < dpdk->netif_count; i++) {
        struct sl_dpdk_netif *netif = &dpdk->netifs[i];
        const struct sl_dpdk_self *self = &netif->info.self;
        if (sl_dpdk_route_is_v4(&self->ip) != sl_dpdk_route_is_v4(ip)) {
            continue;
        }
        uint32_t rank = is_beside(self, ip) ? 3U + self->prefix_bits : self->has_gateway ? 2U : 1U;
        if (rank > best_rank) {
            best = netif;
            best_rank = rank;
        }
    }
    return best;
}

/* Routes and queues */

static uint16_t owner_of(const struct sl_dpdk_queues *queues, uint16_t queue)
{
    return (uint16_t)(queues->blocks ? queue / (queues->queues / queues->reactors)
                                     : queue % queues->reactors);
}

uint16_t sl_dpdk_route_queue(const struct sl_dpdk_queues *ours, const struct sl_dpdk_queues *theirs)
{
    const bool leads = ours->straight && theirs->straight && theirs->queues == ours->queues &&
                       theirs->reactors != 0;
    uint16_t first = ours->queues;
    for (uint16_t i = 0; i < ours->queues; i++) {
        if (owner_of(ours, i) != ours->index) {
            continue;
        }
        if (leads && owner_of(theirs, i) == theirs->index) {
            return i;
        }
        first = first == ours->queues ? i : first;
    }
    return first;
}

void sl_dpdk_route_set(struct sl_dpdk_conn *conn, const uint8_t mac[6])
{
    const struct sl_dpdk_port_info *info = &conn->path.netif->info;
    sl_dpdk_route_build(&conn->path.route, info->self.mac, mac, &conn->path.here,
                        &conn->path.there);
    conn->path.queue = sl_dpdk_route_queue(&info->queues, &conn->path.queues_peers);
    conn->path.routed = true;
}

void sl_dpdk_route_learn(struct sl_dpdk_conn *conn, const uint8_t mac[6])
{
    if (!conn->path.routed || memcmp(conn->path.route.outer, mac, 6) != 0) {
        sl_dpdk_route_set(conn, mac);
    }
}

/* Inconsistent queues count as none. */
struct sl_dpdk_queues sl_dpdk_route_queues(const struct sl_dpdk_hello *hello)
{
    const bool is_sane = hello->queues != 0 && hello->reactors != 0 &&
                         hello->index < hello->reactors && hello->queues >= hello->reactors &&
                         hello->queues % hello->reactors == 0;
    return is_sane ? (struct sl_dpdk_queues){.queues = hello->queues,
                                             .reactors = hello->reactors,
                                             .index = hello->index,
                                             .blocks = hello->blocks != 0,
                                             .straight = true}
                   : (struct sl_dpdk_queues){0};
}

bool sl_dpdk_route_is_own(const struct sl_dpdk_conn *conn)
{
    return memcmp(&conn->path.here.ip, &conn->path.there.ip, sizeof conn->path.here.ip) == 0;
}

bool sl_dpdk_route_is_from_peer(const struct sl_dpdk_conn *conn, const struct sl_dpdk_netif *netif,
                                const struct sl_dpdk_parsed *parsed)
{
    return netif == conn->path.netif &&
           memcmp(&parsed->from.ip, &conn->path.there.ip, sizeof conn->path.there.ip) == 0 &&
           parsed->from.port == conn->path.there.port;
}

static bool find_neighbour(struct sl_dpdk *dpdk, struct sl_dpdk_netif *netif,
                           const struct in6_addr *ip, uint8_t mac[6])
{
    uint8_t question[128];
    uint32_t bytes = 0;
    bool known =
        sl_dpdk_neighbours_find(netif->neighbours, ip, sl_dpdk_now_ns(dpdk), mac, question, &bytes);
    struct sl_dpdk_packet packet;
    if (bytes > 0 && sl_dpdk_netif_get_unnumbered(netif, &packet)) {
        memcpy(packet.bytes, question, bytes);
        packet.length = bytes;
        packet.queue = sl_dpdk_route_queue(&netif->info.queues, &(struct sl_dpdk_queues){0});
        sl_dpdk_netif_put(dpdk, netif, &packet);
    }
    return known;
}

bool sl_dpdk_route_find(struct sl_dpdk_conn *conn)
{
    uint8_t mac[6];
    if (sl_dpdk_route_is_own(conn)) {
        sl_dpdk_route_set(conn, conn->path.netif->info.self.mac);
        return true;
    }
    if (!find_neighbour(conn->dpdk, conn->path.netif, &conn->path.there.ip, mac)) {
        return false;
    }
    sl_dpdk_route_set(conn, mac);
    return true;
}
