/* What the switch and the ports share; nobody else includes it. */
#ifndef SL_TESTS_SIM_ETHER_INTERNAL_H
#define SL_TESTS_SIM_ETHER_INTERNAL_H

#include "tests/sim/network_internal.h"
#include "tests/sim/process.h"
#include "tests/sim/strangers.h"

#define SL_SIM_ETHER_QUEUES   (2U * SL_SIM_REACTORS_MAX)
#define SL_SIM_ETHER_STRAIGHT 6U /* a multiple of all numbers of reactors that are drawn */
#define SL_SIM_ETHER_REGIONS  256U
#define SL_SIM_ETHER_DEFERRED 256U
#define SL_SIM_ETHER_BYTES    14U /* of the Ethernet header */

struct sl_sim_device;

/* A packet that leaves a device, is on its way to one, or waits there: in the order of time. */
struct sl_sim_packet {
    struct sl_sim_packet *next, *previous;
    uint64_t at_ns; /* when its last byte has left, or when it arrives */
    uint32_t length;
    bool is_sound;              /* as it was sent */
    struct sl_sim_device *from; /* of a packet that leaves */
    uint16_t from_queue;
    uint8_t bytes[];
};

struct sl_sim_queue {
    struct sl_sim_packet *first, *last;
    struct sl_sim_packet *near; /* where the next is likely to belong; NULL: at the end */
};

struct sl_sim_buffer;

/* The end of a packet that the device reads while it is sent. */
struct sl_sim_reading {
    uint64_t until_ns;
    const uint8_t *bytes;
    uint32_t length;
    uint64_t hash;
    uint32_t *pending;
    struct sl_sim_buffer *buffer;
};

struct sl_sim_region {
    const uint8_t *base;
    size_t bytes;
};

struct sl_sim_port {
    struct sl_dpdk_port base;
    struct sl_sim_device *device;
    uint16_t index;
    uint16_t next_queue;
    struct sl_sim_buffer *free;
    uint32_t received, reserved;
    struct sl_sim_reading readings[SL_SIM_ETHER_DEFERRED];
    uint32_t reading_count;
    struct sl_sim_region regions[SL_SIM_ETHER_REGIONS];
    uint32_t region_count;
    struct sl_dpdk_port_stats stats;
};

struct sl_sim_device {
    struct sl_sim_ether *ether;
    struct sl_dpdk_medium medium;
    uint32_t host, place;
    struct sl_dpdk_self self;
    uint16_t reactors; /* 0: nobody has opened it */
    struct sl_sim_port *ports[SL_SIM_REACTORS_MAX];
    struct sl_sim_queue queues[SL_SIM_ETHER_QUEUES];
    uint64_t out_free_ns, in_free_ns; /* the cable's two directions */
};

struct sl_sim_ether {
    struct sl_sim_network *network;
    struct sl_sim_ether_options options;
    uint64_t random;
    struct sl_sim_device *devices; /* [hosts][SL_SIM_ETHER_PLACES] */
    uint32_t device_count;
    struct sl_sim_queue leaving; /* packets that the switch does not have yet */
    struct sl_sim_strangers strangers;
};

/* A packet leaves by this queue, behind the device's earlier ones; returns when it has left. */
uint64_t sl_sim_ether_carry(struct sl_sim_device *from, const uint8_t *bytes, uint32_t length,
                            uint16_t queue);
/* One of nobody's arrives at the device, unless its host is dead. */
void sl_sim_ether_inject(struct sl_sim_device *to, const uint8_t *bytes, uint32_t length,
                         uint16_t queue, uint64_t at_ns);
void sl_sim_queue_remove(struct sl_sim_queue *queue, struct sl_sim_packet *packet);

/* A multiple of the reactors; where queues lead straight to others, all devices have the same. */
static inline uint16_t sl_sim_queue_count(const struct sl_sim_device *device)
{
    const struct sl_sim_ether_options *options = &device->ether->options;
    const bool is_straight = options->steering == SL_SIM_STEERING_STRAIGHT;
    return (uint16_t)((is_straight ? SL_SIM_ETHER_STRAIGHT : device->reactors) *
                      options->queues_each);
}

static inline uint16_t sl_sim_queue_owner(const struct sl_sim_device *device, uint16_t queue)
{
    const uint16_t each = (uint16_t)(sl_sim_queue_count(device) / device->reactors);
    return (uint16_t)(device->ether->options.blocks ? queue / each : queue % device->reactors);
}

extern const struct sl_dpdk_port_ops sl_sim_port_ops;

#endif
