#include "net/dpdk/netif.h"

#include <string.h>

#include "net/dpdk/state.h"

#define REFUSED_NS (100 * SL_CLOCK_NS_PER_MS)

struct sl_dpdk_netif *sl_dpdk_netif_of(struct sl_dpdk *dpdk, const struct in6_addr *ip)
{
    for (uint32_t i = 0; i < dpdk->netif_count; i++) {
        if (memcmp(&dpdk->netifs[i].info.self.ip, ip, sizeof *ip) == 0) {
            return &dpdk->netifs[i];
        }
    }
    return NULL;
}

struct sl_dpdk_netif *sl_dpdk_netif_like(struct sl_dpdk *dpdk, const char *device,
                                         const struct in6_addr *ip)
{
    for (uint32_t i = 0; i < dpdk->netif_count; i++) {
        const struct sl_dpdk_port_info *info = &dpdk->netifs[i].info;
        if (memcmp(&info->self.ip, ip, sizeof *ip) == 0 && strcmp(info->name, device) == 0) {
            return &dpdk->netifs[i];
        }
    }
    return NULL;
}

bool sl_dpdk_netif_gathers(const struct sl_dpdk_conn *conn, const void *at, size_t bytes)
{
    const struct sl_dpdk *dpdk = conn->dpdk;
    const struct sl_dpdk_port_info *info = &conn->path.netif->info;
    for (uint32_t i = 0; info->tx_gather && i < dpdk->region_count; i++) {
        const struct sl_dpdk_region *region = &dpdk->regions[i];
        const uintptr_t offset = (uintptr_t)at - (uintptr_t)region->base;
        if (offset < region->bytes && bytes <= region->bytes - offset) {
            return true;
        }
    }
    return false;
}

/* Sending */

/* Drops all packets for the queue of the first one, as a network may. */
static void drop_refused(struct sl_dpdk_netif *netif)
{
    const uint16_t queue = netif->out[0].queue;
    struct sl_dpdk_packet lost[SL_DPDK_BURST + SL_DPDK_UNNUMBERED];
    uint32_t kept_count = 0, lost_count = 0;
    for (uint32_t i = 0; i < netif->out_count; i++) {
        struct sl_dpdk_packet *packet = &netif->out[i];
        if (packet->queue != queue) {
            netif->out[kept_count++] = *packet;
            continue;
        }
        if (packet->pending != NULL) {
            --*packet->pending;
        }
        lost[lost_count++] = *packet;
    }
    netif->out_count = kept_count;
    netif->port->ops->release(netif->port, lost, lost_count);
}

/* A queue that accepts nothing for 100 ms has a peer that no longer reads it. From then on its
 * packets are dropped until it accepts one, so that packets for other queues do not wait. */
static void note_refused(struct sl_dpdk *dpdk, struct sl_dpdk_netif *netif)
{
    const uint64_t now_ns = sl_dpdk_now_ns(dpdk);
    if (netif->is_stuck && netif->stuck_queue == netif->out[0].queue) {
        drop_refused(netif);
    } else if (netif->refused_since_ns == 0) {
        netif->refused_since_ns = now_ns;
    } else if (now_ns - netif->refused_since_ns >= REFUSED_NS) {
        netif->is_stuck = true;
        netif->stuck_queue = netif->out[0].queue;
        netif->refused_since_ns = 0;
        drop_refused(netif);
    }
}

void sl_dpdk_netif_send(struct sl_dpdk *dpdk, struct sl_dpdk_netif *netif)
{
    const uint32_t count = netif->out_count < SL_DPDK_BURST ? netif->out_count : SL_DPDK_BURST;
    const uint32_t sent = netif->port->ops->send(netif->port, netif->out, count);
    sl_cell_add(&dpdk->base.cells->send_calls, 1);
    for (uint32_t i = 0; netif->is_stuck && i < sent; i++) {
        netif->is_stuck = netif->out[i].queue != netif->stuck_queue;
    }
    netif->out_count -= sent;
    if (sent > 0) {
        memmove(netif->out, netif->out + sent, netif->out_count * sizeof netif->out[0]);
        netif->refused_since_ns = 0;
    } else {
        note_refused(dpdk, netif);
    }
}

static bool netif_get(struct sl_dpdk_netif *netif, uint32_t places, struct sl_dpdk_packet *out)
{
    if (netif->out_count >= places) {
        return false;
    }
    if (netif->spare_count == 0) {
        netif->spare_count = netif->port->ops->reserve(netif->port, netif->spare, SL_DPDK_BURST);
        if (netif->spare_count == 0) {
            return false;
        }
    }
    *out = netif->spare[--netif->spare_count];
    return true;
}

bool sl_dpdk_netif_get(struct sl_dpdk_netif *netif, struct sl_dpdk_packet *out)
{
    return netif_get(netif, SL_DPDK_BURST, out);
}

bool sl_dpdk_netif_get_unnumbered(struct sl_dpdk_netif *netif, struct sl_dpdk_packet *out)
{
    return netif_get(netif, SL_DPDK_BURST + SL_DPDK_UNNUMBERED, out);
}

void sl_dpdk_netif_put(struct sl_dpdk *dpdk, struct sl_dpdk_netif *netif,
                       const struct sl_dpdk_packet *packet)
{
    sl_assert(netif->out_count < SL_DPDK_BURST + SL_DPDK_UNNUMBERED);
    netif->out[netif->out_count++] = *packet;
    if (netif->out_count >= SL_DPDK_BURST) {
        sl_dpdk_netif_send(dpdk, netif);
    }
}
