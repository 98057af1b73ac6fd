/* Forwards packets that arrived at the wrong reactor of this process, as posted copies. Also posts
 * neighbour packets, which a device delivers to one reactor only, to the others. */
#include "net/dpdk/misrouted_packets.h"

#include <stdlib.h>
#include <string.h>

/* Limit of posted packets from one reactor to another whose memory has not returned, so that a
 * stopped reactor's backlog stays bounded and others get their share. The memory is sent back and
 * reused. */
#define MISROUTED_OUT 1024U

struct sl_dpdk_misrouted {
    struct sl_dpdk_misrouted *next;
    /* The sender: its transport, if it still exists (from_owner), and its reactor. */
    const struct sl_dpdk *from;
    uint64_t from_owner;
    uint32_t from_reactor;
    uint32_t room;
    /* Identify the netif on the target thread. */
    struct in6_addr ip;
    char device[SL_DPDK_NAME_BYTES];
    uint32_t reactor;
    uint32_t length;
    uint16_t queue;
    bool for_neighbours;
    _Alignas(8) uint8_t bytes[];
};

/* The transports of this thread, usually one; reactor and address tell them apart. */
static _Thread_local struct sl_dpdk *here;
static _Thread_local uint64_t opened;

void sl_dpdk_misrouted_packets_open(struct sl_dpdk *dpdk, sl_dpdk_misrouted_packets_fn *take)
{
    dpdk->misrouted.take = take;
    dpdk->misrouted.owner = ++opened;
    dpdk->misrouted.next_here = here;
    here = dpdk;
}

void sl_dpdk_misrouted_packets_close(struct sl_dpdk *dpdk)
{
    struct sl_dpdk **at = &here;
    while (*at != NULL && *at != dpdk) {
        at = &(*at)->misrouted.next_here;
    }
    if (*at != NULL) {
        *at = dpdk->misrouted.next_here;
    }
    while (dpdk->misrouted.free != NULL) {
        struct sl_dpdk_misrouted *misrouted = dpdk->misrouted.free;
        dpdk->misrouted.free = misrouted->next;
        free(misrouted);
    }
}

/* Runs on the sender's thread. */
static void come_back(void *ctx, uint64_t a, uint64_t b)
{
    struct sl_dpdk_misrouted *misrouted = ctx;
    struct sl_dpdk *dpdk = here;
    while (dpdk != NULL &&
           (dpdk != misrouted->from || dpdk->misrouted.owner != misrouted->from_owner)) {
        dpdk = dpdk->misrouted.next_here;
    }
    if (dpdk == NULL) {
        free(misrouted);
        return;
    }
    dpdk->misrouted.out[misrouted->reactor]--;
    misrouted->next = dpdk->misrouted.free;
    dpdk->misrouted.free = misrouted;
}

/* Also if there is no transport, not yet or no more. */
static void send_back(struct sl_dpdk_misrouted *misrouted)
{
    sl_reactor_post(sl_reactor_running(), misrouted->from_reactor,
                    (struct sl_mail){.run = come_back, .ctx = misrouted, .drop = free});
}

static struct sl_dpdk_netif *find_netif(const struct sl_dpdk_misrouted *misrouted,
                                        struct sl_dpdk **out)
{
    for (struct sl_dpdk *dpdk = here; dpdk != NULL; dpdk = dpdk->misrouted.next_here) {
        if (sl_reactor_index(dpdk->base.reactor) != misrouted->reactor) {
            continue;
        }
        struct sl_dpdk_netif *netif = sl_dpdk_netif_like(dpdk, misrouted->device, &misrouted->ip);
        if (netif != NULL) {
            *out = dpdk;
            return netif;
        }
    }
    return NULL;
}

/* Hands the packet to poll.c. Its memory is returned at once: code that keeps it copies it. No
 * packet buffer of the port is used: these are few, and parked packets in them could block the
 * answer that the sender waits for. */
static void misrouted_packets_arrive(void *ctx, uint64_t a, uint64_t b)
{
    struct sl_dpdk_misrouted *misrouted = ctx;
    struct sl_dpdk_packet packet = {.bytes = misrouted->bytes,
                                    .length = misrouted->length,
                                    .queue = misrouted->queue,
                                    .checked = true}; /* the first reactor has checked it */
    struct sl_dpdk *dpdk;
    struct sl_dpdk_netif *netif = find_netif(misrouted, &dpdk);
    if (netif != NULL) { /* else the transport is not open: dropped as if lost */
        dpdk->misrouted.take(dpdk, netif, &packet, misrouted->for_neighbours);
    }
    send_back(misrouted);
}

static struct sl_dpdk_misrouted *get_misrouted(struct sl_dpdk *dpdk, uint32_t bytes)
{
    struct sl_dpdk_misrouted *misrouted = dpdk->misrouted.free;
    if (misrouted != NULL) {
        dpdk->misrouted.free = misrouted->next;
        if (misrouted->room >= bytes) {
            return misrouted;
        }
        free(misrouted);
    }
    misrouted = malloc(sizeof *misrouted + bytes);
    if (misrouted != NULL) {
        misrouted->room = bytes;
    }
    return misrouted;
}

static void misrouted_packets_post(struct sl_dpdk *dpdk, const struct sl_dpdk_netif *netif,
                                   uint32_t reactor, const struct sl_dpdk_packet *packet,
                                   bool for_neighbours)
{
    const uint32_t most = netif->info.frame_bytes_max;
    const uint32_t room = packet->length > most ? packet->length : most;
    struct sl_dpdk_misrouted *misrouted =
        dpdk->misrouted.out[reactor] < MISROUTED_OUT ? get_misrouted(dpdk, room) : NULL;
    if (misrouted == NULL) {
        return; /* dropped as if lost */
    }
    *misrouted = (struct sl_dpdk_misrouted){.from = dpdk,
                                            .from_owner = dpdk->misrouted.owner,
                                            .from_reactor = sl_reactor_index(dpdk->base.reactor),
                                            .room = misrouted->room,
                                            .ip = netif->info.self.ip,
                                            .reactor = reactor,
                                            .length = packet->length,
                                            .queue = packet->queue,
                                            .for_neighbours = for_neighbours};
    memcpy(misrouted->device, netif->info.name, sizeof misrouted->device);
    memcpy(misrouted->bytes, packet->bytes, packet->length);
    dpdk->misrouted.out[reactor]++;
    dpdk->counts.misrouted_sent++;
    sl_reactor_post(
        dpdk->base.reactor, reactor,
        (struct sl_mail){.run = misrouted_packets_arrive, .ctx = misrouted, .drop = free});
}

/* A device's reactors have consecutive indices in their group. */
static bool is_one_of(const struct sl_dpdk *dpdk, const struct sl_dpdk_netif *netif,
                      uint32_t reactor)
{
    const struct sl_dpdk_queues *queues = &netif->info.queues;
    const uint32_t first = sl_reactor_index(dpdk->base.reactor) - queues->index;
    return reactor >= first && reactor - first < queues->reactors &&
           reactor < sl_reactor_group_count(dpdk->base.reactor);
}

bool sl_dpdk_misrouted_packets_forward(struct sl_dpdk *dpdk, const struct sl_dpdk_netif *netif,
                                       const struct sl_dpdk_packet *packet,
                                       const struct sl_dpdk_parsed *parsed)
{
    const struct sl_dpdk_queues *queues = &netif->info.queues;
    const uint32_t index = sl_reactor_index(dpdk->base.reactor);
    uint32_t reactor = sl_dpdk_id_reactor(parsed->header.connection);
    if (parsed->header.kind == SL_DPDK_OPEN) {
        const uint32_t place =
            (uint16_t)(parsed->to.port - dpdk->settings.port_base) % queues->reactors;
        reactor = index - queues->index + place;
    }
    if (reactor == index || !is_one_of(dpdk, netif, reactor)) {
        return false;
    }
    misrouted_packets_post(dpdk, netif, reactor, packet, false);
    return true;
}

void sl_dpdk_misrouted_packets_neighbour(struct sl_dpdk *dpdk, const struct sl_dpdk_netif *netif,
                                         const struct sl_dpdk_packet *packet)
{
    const struct sl_dpdk_queues *queues = &netif->info.queues;
    const uint32_t index = sl_reactor_index(dpdk->base.reactor);
    if (queues->straight) {
        return; /* the answer arrives on the queue that sent the request */
    }
    for (uint32_t i = 0; i < queues->reactors; i++) {
        const uint32_t reactor = index - queues->index + i;
        if (reactor != index && is_one_of(dpdk, netif, reactor)) {
            misrouted_packets_post(dpdk, netif, reactor, packet, true);
        }
    }
}
