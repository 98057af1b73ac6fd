/* Packets that came to a reactor of this process that is not the one they are for: copied, and
 * posted. Also what neighbours say, which a device gives to one reactor only. */
#include <stdlib.h>
#include <string.h>

#include "net/dpdk/internal.h"

#define STRAYS_A_TURN 256U /* so that a flood does not fill another reactor's memory */

struct stray {
    /* Of the device: which of the transports of the reactor's thread. */
    struct in6_addr ip;
    char device[SL_DPDK_NAME_BYTES];
    uint32_t reactor;
    uint64_t id; /* the connection's there; 0: as the packet says */
    uint32_t length;
    uint16_t queue;
    bool for_neighbours;
    uint8_t bytes[];
};

/* The transports of this thread: usually one. Several of one thread's are told apart by reactor and
 * address. */
static _Thread_local struct sl_dpdk *here;

void sl_dpdk_stray_open(struct sl_dpdk *dpdk)
{
    dpdk->next_here = here;
    here = dpdk;
}

void sl_dpdk_stray_close(struct sl_dpdk *dpdk)
{
    struct sl_dpdk **at = &here;
    while (*at != NULL && *at != dpdk) {
        at = &(*at)->next_here;
    }
    if (*at != NULL) {
        *at = dpdk->next_here;
    }
}

static struct sl_dpdk_side *find_side(const struct stray *stray, struct sl_dpdk **out)
{
    for (struct sl_dpdk *dpdk = here; dpdk != NULL; dpdk = dpdk->next_here) {
        if (sl_reactor_index(dpdk->base.reactor) != stray->reactor) {
            continue;
        }
        struct sl_dpdk_side *side = sl_dpdk_side_like(dpdk, stray->device, &stray->ip);
        if (side != NULL) {
            *out = dpdk;
            return side;
        }
    }
    return NULL;
}

/* Into a packet of the port's, so that it may be kept as any other. */
static void take_packet(struct sl_dpdk *dpdk, struct sl_dpdk_side *side, const struct stray *stray)
{
    struct sl_dpdk_packet packet;
    if (stray->length > side->facts.frame_bytes_max || !sl_dpdk_get(side, &packet)) {
        return;
    }
    memcpy(packet.bytes, stray->bytes, stray->length);
    packet.length = stray->length;
    packet.queue = stray->queue;
    packet.checked = true; /* else it were not here */
    struct sl_dpdk_parsed parsed;
    bool kept = false;
    if (sl_dpdk_parse(packet.bytes, packet.length, true, &parsed) == SL_DPDK_OURS) {
        parsed.header.connection = stray->id != 0 ? stray->id : parsed.header.connection;
        kept = sl_dpdk_take(dpdk, side, &packet, &parsed, true);
    } else if (parsed.version != 0) {
        (void)sl_dpdk_setup_other(dpdk, side, &packet, &parsed, true);
    }
    if (!kept) {
        side->port->ops->release(side->port, &packet, 1);
    }
}

static void arrive(void *ctx, uint64_t a, uint64_t b)
{
    (void)a;
    (void)b;
    struct stray *stray = ctx;
    struct sl_dpdk *dpdk;
    struct sl_dpdk_side *side = find_side(stray, &dpdk);
    if (side != NULL && stray->for_neighbours) {
        sl_dpdk_route_neighbour(dpdk, side, stray->bytes, stray->length, NULL);
    } else if (side != NULL) {
        dpdk->strays_taken++;
        take_packet(dpdk, side, stray);
    }
    free(stray);
}

static bool post(struct sl_dpdk *dpdk, const struct sl_dpdk_side *side, uint32_t reactor,
                 uint64_t id, const struct sl_dpdk_packet *packet, bool for_neighbours)
{
    if (dpdk->strays_this_turn == STRAYS_A_TURN) {
        return false;
    }
    struct stray *stray = malloc(sizeof *stray + packet->length);
    if (stray == NULL) {
        return false;
    }
    *stray = (struct stray){.ip = side->facts.self.ip,
                            .reactor = reactor,
                            .id = id,
                            .length = packet->length,
                            .queue = packet->queue,
                            .for_neighbours = for_neighbours};
    memcpy(stray->device, side->facts.name, sizeof stray->device);
    memcpy(stray->bytes, packet->bytes, packet->length);
    dpdk->strays_this_turn++;
    dpdk->strays_sent++;
    sl_reactor_post(dpdk->base.reactor, reactor,
                    (struct sl_mail){.run = arrive, .ctx = stray, .drop = free});
    return true;
}

/* A device's reactors follow one another in their group. */
static bool is_one_of(const struct sl_dpdk *dpdk, const struct sl_dpdk_side *side, uint32_t reactor)
{
    const struct sl_dpdk_queues *queues = &side->facts.queues;
    const uint32_t first = sl_reactor_index(dpdk->base.reactor) - queues->index;
    return reactor >= first && reactor - first < queues->reactors &&
           reactor < sl_reactor_group_count(dpdk->base.reactor);
}

void sl_dpdk_stray_send(struct sl_dpdk *dpdk, const struct sl_dpdk_side *side, uint64_t id,
                        const struct sl_dpdk_packet *packet)
{
    const uint32_t reactor = sl_dpdk_id_reactor(id);
    if (is_one_of(dpdk, side, reactor)) {
        (void)post(dpdk, side, reactor, id, packet, false);
    }
}

bool sl_dpdk_stray_forward(struct sl_dpdk *dpdk, const struct sl_dpdk_side *side,
                           const struct sl_dpdk_packet *packet, const struct sl_dpdk_parsed *parsed)
{
    const struct sl_dpdk_queues *queues = &side->facts.queues;
    const uint32_t index = sl_reactor_index(dpdk->base.reactor);
    uint32_t reactor = sl_dpdk_id_reactor(parsed->header.connection);
    if (parsed->header.kind == SL_DPDK_OPEN) {
        const uint32_t place = (uint16_t)(parsed->to.port - dpdk->port_base) % queues->reactors;
        reactor = index - queues->index + place;
    }
    if (reactor == index || !is_one_of(dpdk, side, reactor)) {
        return false;
    }
    (void)post(dpdk, side, reactor, 0, packet, false);
    return true;
}

void sl_dpdk_stray_neighbour(struct sl_dpdk *dpdk, const struct sl_dpdk_side *side,
                             const struct sl_dpdk_packet *packet)
{
    const struct sl_dpdk_queues *queues = &side->facts.queues;
    const uint32_t index = sl_reactor_index(dpdk->base.reactor);
    if (queues->straight) {
        return; /* the answer comes back by the queue that the question left by */
    }
    for (uint32_t i = 0; i < queues->reactors; i++) {
        const uint32_t reactor = index - queues->index + i;
        if (reactor != index && is_one_of(dpdk, side, reactor)) {
            (void)post(dpdk, side, reactor, 0, packet, true);
        }
    }
}
