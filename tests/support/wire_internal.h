/* What wire_port.c (the ports' ops) and wire_switch.c (what carries packets between them) share. */
#ifndef SL_TESTS_SUPPORT_WIRE_INTERNAL_H
#define SL_TESTS_SUPPORT_WIRE_INTERNAL_H

#include <pthread.h>

#include "core/assert.h"
#include "tests/support/wire_port.h"

#define SL_WIRE_ETHERNET_BYTES 14U
#define SL_WIRE_DEFERRED_MAX   64U
#define SL_WIRE_REGIONS_MAX    16U

struct sl_wire_buffer;

struct sl_wire_slot {
    uint64_t due_ns;
    uint32_t length;
    uint8_t *bytes;
};

struct sl_wire_queue {
    struct sl_wire_slot *slots;
    uint32_t head, count;
    uint64_t busy_ns; /* until then the link brings what came before */
};

struct sl_wire_region {
    const uint8_t *base;
    size_t bytes;
};

struct sl_wire_port {
    struct sl_dpdk_port base;
    struct sl_wire_device *device;
    uint16_t index; /* among the device's reactors */
    bool armed;
    struct sl_wire_buffer *free;
    uint32_t received, reserved; /* handed out */
    struct sl_dpdk_packet deferred[SL_WIRE_DEFERRED_MAX];
    uint32_t deferred_count;
    struct sl_wire_region regions[SL_WIRE_REGIONS_MAX];
    uint32_t region_count;
    uint16_t next_queue;
    struct sl_dpdk_port_stats stats;
};

struct sl_wire_device {
    struct sl_wire *wire;
    struct sl_wire_device *next_of_host, *next;
    struct sl_wire_device_options options;
    struct sl_dpdk_self self;
    uint32_t number;
    bool is_down;
    struct sl_wire_queue *queues;
    struct sl_wire_port **ports; /* [options.reactors] */
};

struct sl_wire_host {
    struct sl_wire *wire;
    struct sl_wire_device *devices;
    struct sl_dpdk_medium medium;
};

struct sl_wire {
    pthread_mutex_t lock;
    const struct sl_clock *clock;
    uint64_t delay_ns;
    struct sl_wire_device *devices;
    uint32_t device_count; /* that there ever were */
    bool (*tap)(void *ctx, const uint8_t *bytes, uint32_t length);
    void *tap_ctx;
};

extern const struct sl_dpdk_port_ops sl_wire_port_ops;

/* Zeroed; aborts when there is none. */
void *sl_wire_allocate(size_t count, size_t bytes);

/* The reactor, of the device's, that a queue belongs to. */
uint16_t sl_wire_owner_of(const struct sl_wire_device *device, uint16_t queue);

/* False: the queue that it would arrive by is full, and its sender keeps the packet. from: NULL for
 * what is injected. With the lock. */
bool sl_wire_carry(struct sl_wire *wire, const struct sl_wire_device *from, const uint8_t *bytes,
                   uint32_t length, uint16_t queue);

#endif
