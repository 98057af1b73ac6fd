#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "core/hash.h"
#include "tests/support/wire_internal.h"

#define DEFAULT_FRAME   1514U
#define DEFAULT_QUEUE   256U
#define DEFAULT_PACKETS 1024U

void *sl_wire_allocate(size_t count, size_t bytes)
{
    void *memory = calloc(count, bytes);
    sl_assert(memory != NULL);
    return memory;
}

uint16_t sl_wire_owner_of(const struct sl_wire_device *device, uint16_t queue)
{
    const struct sl_wire_device_options *options = &device->options;
    return (uint16_t)(options->blocks ? queue / (options->queues / options->reactors)
                                      : queue % options->reactors);
}

static uint16_t steer(const struct sl_wire_device *device, const uint8_t *bytes, uint32_t length,
                      uint16_t left_by)
{
    const bool is_v6 = length > SL_WIRE_ETHERNET_BYTES && bytes[12] == 0x86;
    const uint32_t from = is_v6 ? 22 : 26, to = is_v6 ? 58 : 38; /* addresses and ports */
    switch (device->options.steering) {
    case SL_WIRE_STRAIGHT:
        return (uint16_t)(left_by % device->options.queues);
    case SL_WIRE_SCATTER:
        if (length < to) {
            return 0;
        }
        return (uint16_t)(sl_hash_bytes(bytes + from, to - from, 1) % device->options.queues);
    case SL_WIRE_FIRST:
        break;
    }
    return 0;
}

static uint64_t due_ns(const struct sl_wire_device *device, struct sl_wire_queue *queue,
                       uint32_t length)
{
    const struct sl_wire *wire = device->wire;
    if (wire->delay_ns == 0 && device->options.byte_ps == 0) {
        return 0;
    }
    const uint64_t now_ns = sl_clock_now_ns(wire->clock);
    queue->busy_ns = queue->busy_ns > now_ns ? queue->busy_ns : now_ns;
    queue->busy_ns += (uint64_t)length * device->options.byte_ps / 1000;
    return queue->busy_ns + wire->delay_ns;
}

/* False: the queue is full, and its sender keeps the packet. */
static bool arrive(struct sl_wire_device *device, const uint8_t *bytes, uint32_t length,
                   uint16_t left_by, bool may_refuse)
{
    const uint16_t number = steer(device, bytes, length, left_by);
    struct sl_wire_port *port = device->ports[sl_wire_owner_of(device, number)];
    if (port == NULL || device->is_down || length > device->options.frame_bytes_max) {
        return true;
    }
    struct sl_wire_queue *queue = &device->queues[number];
    if (queue->count == device->options.queue_packets) {
        port->stats.dropped += device->options.drops || !may_refuse;
        return device->options.drops || !may_refuse;
    }
    struct sl_wire_slot *slot =
        &queue->slots[(queue->head + queue->count) % device->options.queue_packets];
    slot->due_ns = due_ns(device, queue, length);
    slot->length = length;
    memcpy(slot->bytes, bytes, length);
    queue->count++;
    if (port->armed) {
        port->armed = false;
        sl_mailbox_wake(sl_reactor_mailbox(port->base.reactor));
    }
    return true;
}

bool sl_wire_carry(struct sl_wire *wire, const struct sl_wire_device *from, const uint8_t *bytes,
                   uint32_t length, uint16_t queue)
{
    const bool is_group = (bytes[0] & 1) != 0;
    for (struct sl_wire_device *device = wire->devices; device != NULL; device = device->next) {
        if (is_group && device != from) {
            (void)arrive(device, bytes, length, queue, false);
        } else if (!is_group && memcmp(device->self.mac, bytes, 6) == 0) {
            return arrive(device, bytes, length, queue, from != NULL);
        }
    }
    return true;
}

static void inject(struct sl_wire *wire, const uint8_t *bytes, uint32_t length, uint16_t queue)
{
    sl_assert(length >= SL_WIRE_ETHERNET_BYTES);
    (void)sl_wire_carry(wire, NULL, bytes, length, queue);
}

struct sl_wire *sl_wire_create(const struct sl_wire_options *options)
{
    struct sl_wire *wire = sl_wire_allocate(1, sizeof *wire);
    pthread_mutex_init(&wire->lock, NULL);
    wire->clock = options->clock != NULL ? options->clock : sl_clock_system();
    wire->delay_ns = options->delay_ns;
    return wire;
}

void sl_wire_destroy(struct sl_wire **wire)
{
    sl_assert((*wire)->devices == NULL);
    pthread_mutex_destroy(&(*wire)->lock);
    free(*wire);
    *wire = NULL;
}

struct sl_wire_host *sl_wire_host_add(struct sl_wire *wire)
{
    struct sl_wire_host *host = sl_wire_allocate(1, sizeof *host);
    host->wire = wire;
    host->medium = (struct sl_dpdk_medium){.ops = &sl_wire_port_ops, .ctx = host};
    return host;
}

struct sl_dpdk_medium *sl_wire_host_medium(struct sl_wire_host *host)
{
    return &host->medium;
}

static struct in6_addr parse_address(const char *text)
{
    struct in6_addr ip = {0};
    if (inet_pton(AF_INET6, text, &ip) != 1) {
        ip.s6_addr[10] = ip.s6_addr[11] = 0xff;
        sl_assert(inet_pton(AF_INET, text, &ip.s6_addr[12]) == 1);
    }
    return ip;
}

static void set_self(struct sl_wire_device *device)
{
    const struct sl_wire_device_options *options = &device->options;
    struct sl_dpdk_self *self = &device->self;
    const uint8_t mac[6] = {2, 0, 0, 0, (uint8_t)(device->number >> 8), (uint8_t)device->number};
    memcpy(self->mac, mac, sizeof mac);
    self->ip = parse_address(options->address);
    self->prefix_bits = options->prefix_bits;
    self->has_gateway = options->gateway != NULL;
    if (self->has_gateway) {
        self->gateway = parse_address(options->gateway);
    }
}

static void set_defaults(struct sl_wire_device_options *options)
{
    options->reactors = options->reactors != 0 ? options->reactors : 1;
    options->queues = options->queues != 0 ? options->queues : options->reactors;
    options->frame_bytes_max =
        options->frame_bytes_max != 0 ? options->frame_bytes_max : DEFAULT_FRAME;
    options->queue_packets = options->queue_packets != 0 ? options->queue_packets : DEFAULT_QUEUE;
    options->packets = options->packets != 0 ? options->packets : DEFAULT_PACKETS;
    sl_assert(options->queues % options->reactors == 0);
}

struct sl_wire_device *sl_wire_device_add(struct sl_wire_host *host,
                                          const struct sl_wire_device_options *options)
{
    struct sl_wire *wire = host->wire;
    struct sl_wire_device *device = sl_wire_allocate(1, sizeof *device);
    device->wire = wire;
    device->options = *options;
    set_defaults(&device->options);
    device->ports = sl_wire_allocate(device->options.reactors, sizeof(struct sl_wire_port *));
    device->queues = sl_wire_allocate(device->options.queues, sizeof *device->queues);
    for (uint16_t i = 0; i < device->options.queues; i++) {
        struct sl_wire_queue *queue = &device->queues[i];
        queue->slots = sl_wire_allocate(device->options.queue_packets, sizeof *queue->slots);
        uint8_t *bytes =
            sl_wire_allocate(device->options.queue_packets, device->options.frame_bytes_max);
        for (uint32_t k = 0; k < device->options.queue_packets; k++) {
            queue->slots[k].bytes = bytes + (size_t)k * device->options.frame_bytes_max;
        }
    }
    pthread_mutex_lock(&wire->lock);
    device->number = ++wire->device_count;
    set_self(device);
    device->next = wire->devices;
    wire->devices = device;
    pthread_mutex_unlock(&wire->lock);
    struct sl_wire_device **end = &host->devices;
    while (*end != NULL) {
        end = &(*end)->next_of_host;
    }
    *end = device;
    return device;
}

static void remove_device(struct sl_wire_device *device)
{
    struct sl_wire *wire = device->wire;
    pthread_mutex_lock(&wire->lock);
    struct sl_wire_device **at = &wire->devices;
    while (*at != device) {
        at = &(*at)->next;
    }
    *at = device->next;
    pthread_mutex_unlock(&wire->lock);
    for (uint16_t i = 0; i < device->options.reactors; i++) {
        sl_assert(device->ports[i] == NULL);
    }
    for (uint16_t i = 0; i < device->options.queues; i++) {
        free(device->queues[i].slots[0].bytes);
        free(device->queues[i].slots);
    }
    free(device->queues);
    free(device->ports);
    free(device);
}

void sl_wire_host_remove(struct sl_wire_host **host)
{
    while ((*host)->devices != NULL) {
        struct sl_wire_device *device = (*host)->devices;
        (*host)->devices = device->next_of_host;
        remove_device(device);
    }
    free(*host);
    *host = NULL;
}

void sl_wire_device_set_down(struct sl_wire_device *device, bool is_down)
{
    pthread_mutex_lock(&device->wire->lock);
    device->is_down = is_down;
    pthread_mutex_unlock(&device->wire->lock);
}

const uint8_t *sl_wire_device_mac(const struct sl_wire_device *device)
{
    return device->self.mac;
}

void sl_wire_set_tap(struct sl_wire *wire,
                     bool (*tap)(void *ctx, const uint8_t *bytes, uint32_t length), void *ctx)
{
    pthread_mutex_lock(&wire->lock);
    wire->tap = tap;
    wire->tap_ctx = ctx;
    pthread_mutex_unlock(&wire->lock);
}

void sl_wire_inject(struct sl_wire *wire, const uint8_t *bytes, uint32_t length, uint16_t queue)
{
    pthread_mutex_lock(&wire->lock);
    inject(wire, bytes, length, queue);
    pthread_mutex_unlock(&wire->lock);
}

uint64_t sl_wire_next_ns(struct sl_wire *wire)
{
    uint64_t next_ns = SL_CLOCK_NEVER;
    pthread_mutex_lock(&wire->lock);
    for (const struct sl_wire_device *device = wire->devices; device != NULL;
         device = device->next) {
        for (uint16_t i = 0; i < device->options.queues; i++) {
            const struct sl_wire_queue *queue = &device->queues[i];
            if (queue->count > 0 && queue->slots[queue->head].due_ns < next_ns) {
                next_ns = queue->slots[queue->head].due_ns;
            }
        }
    }
    pthread_mutex_unlock(&wire->lock);
    return next_ns;
}

uint32_t sl_wire_device_held(struct sl_wire_device *device)
{
    uint32_t held = 0;
    pthread_mutex_lock(&device->wire->lock);
    for (uint16_t i = 0; i < device->options.reactors; i++) {
        const struct sl_wire_port *port = device->ports[i];
        held += port != NULL ? port->received + port->reserved : 0;
    }
    pthread_mutex_unlock(&device->wire->lock);
    return held;
}
