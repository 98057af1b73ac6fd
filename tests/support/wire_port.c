#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/dpdk/wire.h"
#include "tests/support/wire_internal.h"

#define RESERVED_MAX  512U /* packets of one port, reserved and not sent */
#define RELEASED_BYTE 0xdd

enum buffer_state { FREE, RECEIVED, RESERVED };

struct sl_wire_buffer {
    struct sl_wire_buffer *next;
    enum buffer_state state;
    _Alignas(64) uint8_t bytes[];
};

static struct sl_wire_buffer *get_buffer(struct sl_wire_port *port, enum buffer_state state)
{
    struct sl_wire_buffer *buffer = port->free;
    if (buffer != NULL) {
        port->free = buffer->next;
    } else {
        buffer = sl_wire_allocate(1, sizeof *buffer + port->device->options.frame_bytes_max);
    }
    buffer->state = state;
    return buffer;
}

static void put_buffer(struct sl_wire_port *port, struct sl_wire_buffer *buffer)
{
    sl_assert(buffer->state != FREE);
    if (buffer->state == RECEIVED) {
        port->received--;
    } else {
        port->reserved--;
    }
    memset(buffer->bytes, RELEASED_BYTE, port->device->options.frame_bytes_max);
    buffer->state = FREE;
    buffer->next = port->free;
    port->free = buffer;
}

static int wire_open(void *medium, struct sl_reactor *reactor, struct sl_dpdk_port **ports,
                     uint32_t max)
{
    struct sl_wire_host *host = medium;
    const uint32_t reactor_index = sl_reactor_index(reactor);
    uint32_t count = 0;
    for (struct sl_wire_device *device = host->devices; device != NULL;
         device = device->next_of_host) {
        const uint32_t index = reactor_index - device->options.first_reactor;
        if (reactor_index < device->options.first_reactor || index >= device->options.reactors) {
            continue;
        }
        sl_assert(count < max);
        struct sl_wire_port *port = sl_wire_allocate(1, sizeof *port);
        port->base = (struct sl_dpdk_port){.ops = &sl_wire_port_ops, .reactor = reactor};
        port->device = device;
        port->index = (uint16_t)index;
        pthread_mutex_lock(&host->wire->lock);
        sl_assert(device->ports[index] == NULL);
        device->ports[index] = port;
        pthread_mutex_unlock(&host->wire->lock);
        ports[count++] = &port->base;
    }
    return count > 0 ? (int)count : SL_ERR_NOT_FOUND;
}

static bool is_registered(const struct sl_wire_port *port, const uint8_t *base, size_t bytes)
{
    for (uint32_t i = 0; i < port->region_count; i++) {
        const struct sl_wire_region *region = &port->regions[i];
        if (base >= region->base && base - region->base <= (ptrdiff_t)(region->bytes - bytes) &&
            bytes <= region->bytes) {
            return true;
        }
    }
    return false;
}

/* With the lock. The packet is whole from here on. */
static bool transmit(struct sl_wire_port *port, const struct sl_dpdk_packet *packet)
{
    struct sl_wire *wire = port->device->wire;
    if (port->device->is_down ||
        (wire->tap != NULL && !wire->tap(wire->tap_ctx, packet->bytes, packet->length))) {
        return true;
    }
    return sl_wire_carry(wire, port->device, packet->bytes, packet->length, packet->queue);
}

static void take_rest(struct sl_dpdk_packet *packet)
{
    if (packet->tail_length > 0) {
        memcpy(packet->bytes + packet->length, packet->tail, packet->tail_length);
        packet->length += packet->tail_length;
        packet->tail_length = 0;
    }
    if (packet->pending != NULL) {
        sl_assert(*packet->pending > 0);
        --*packet->pending;
        packet->pending = NULL;
    }
    if (packet->unchecked) {
        sl_dpdk_seal(packet->bytes, packet->length);
        packet->unchecked = false;
    }
}

/* What was sent before is read only now, as by a device that takes its time. A packet that a full
 * queue refuses stays, and has been read. */
static void transmit_deferred(struct sl_wire_port *port)
{
    uint32_t done = 0;
    bool taken = true;
    pthread_mutex_lock(&port->device->wire->lock);
    for (; done < port->deferred_count && taken; done += taken) {
        struct sl_dpdk_packet *packet = &port->deferred[done];
        take_rest(packet);
        taken = transmit(port, packet);
        if (taken) {
            put_buffer(port, packet->token);
        }
    }
    pthread_mutex_unlock(&port->device->wire->lock);
    port->deferred_count -= done;
    memmove(port->deferred, port->deferred + done, port->deferred_count * sizeof port->deferred[0]);
}

static void wire_close(struct sl_dpdk_port **closing)
{
    struct sl_wire_port *port = (struct sl_wire_port *)*closing;
    struct sl_wire_device *device = port->device;
    transmit_deferred(port);
    for (uint32_t i = 0; i < port->deferred_count; i++) {
        take_rest(&port->deferred[i]);
        put_buffer(port, port->deferred[i].token);
    }
    sl_assert(port->received == 0);
    sl_assert(port->reserved == 0);
    sl_assert(port->region_count == 0);
    pthread_mutex_lock(&device->wire->lock);
    device->ports[port->index] = NULL;
    for (uint16_t i = 0; i < device->options.queues; i++) {
        if (sl_wire_owner_of(device, i) == port->index) {
            device->queues[i].count = 0;
        }
    }
    pthread_mutex_unlock(&device->wire->lock);
    while (port->free != NULL) {
        struct sl_wire_buffer *buffer = port->free;
        port->free = buffer->next;
        free(buffer);
    }
    free(port);
    *closing = NULL;
}

static void wire_info(const struct sl_dpdk_port *base, struct sl_dpdk_port_info *out)
{
    const struct sl_wire_port *port = (const struct sl_wire_port *)base;
    const struct sl_wire_device_options *options = &port->device->options;
    *out = (struct sl_dpdk_port_info){
        .self = port->device->self,
        .port_base = options->port_base,
        .frame_bytes_max = options->frame_bytes_max,
        .packets = options->packets,
        .is_one_peers = options->is_one_peers,
        .tx_gather = options->tx_gather,
        .tx_checksum = options->tx_checksum,
        .rx_interrupt = options->rx_interrupt,
        .queues = {.queues = options->queues,
                   .reactors = options->reactors,
                   .index = port->index,
                   .blocks = options->blocks,
                   .straight = options->steering == SL_WIRE_STRAIGHT},
    };
    (void)snprintf(out->name, sizeof out->name, "wire%u", port->device->number);
}

static bool wire_link_is_up(struct sl_dpdk_port *base)
{
    struct sl_wire_device *device = ((struct sl_wire_port *)base)->device;
    pthread_mutex_lock(&device->wire->lock);
    bool is_up = !device->is_down;
    pthread_mutex_unlock(&device->wire->lock);
    return is_up;
}

/* As the device would find its UDP checksum. */
static bool is_sound(const struct sl_wire_slot *slot)
{
    struct sl_dpdk_parsed parsed;
    return sl_dpdk_parse(slot->bytes, slot->length, false, &parsed) == SL_DPDK_OURS;
}

/* With the lock. */
static uint32_t receive_from(struct sl_wire_port *port, uint16_t number, uint64_t now_ns,
                             struct sl_dpdk_packet *packets, uint32_t count)
{
    const struct sl_wire_device_options *options = &port->device->options;
    struct sl_wire_queue *queue = &port->device->queues[number];
    uint32_t done = 0;
    while (done < count && queue->count > 0 && port->received < options->packets) {
        const struct sl_wire_slot *slot = &queue->slots[queue->head];
        if (slot->due_ns > now_ns) {
            break;
        }
        struct sl_wire_buffer *buffer = get_buffer(port, RECEIVED);
        memcpy(buffer->bytes, slot->bytes, slot->length);
        packets[done++] = (struct sl_dpdk_packet){.bytes = buffer->bytes,
                                                  .length = slot->length,
                                                  .room = options->frame_bytes_max,
                                                  .queue = number,
                                                  .checked = options->tx_checksum && is_sound(slot),
                                                  .token = buffer};
        queue->head = (queue->head + 1) % options->queue_packets;
        queue->count--;
        port->received++;
    }
    return done;
}

static uint32_t wire_receive(struct sl_dpdk_port *base, struct sl_dpdk_packet *packets,
                             uint32_t count)
{
    struct sl_wire_port *port = (struct sl_wire_port *)base;
    const struct sl_wire_device *device = port->device;
    sl_reactor_assert_owner(base->reactor);
    transmit_deferred(port);
    const uint64_t now_ns = device->wire->delay_ns == 0 ? 0 : sl_clock_now_ns(device->wire->clock);
    uint32_t done = 0;
    pthread_mutex_lock(&device->wire->lock);
    port->armed = false;
    for (uint16_t i = 0; i < device->options.queues; i++) {
        uint16_t number = (uint16_t)((port->next_queue + i) % device->options.queues);
        if (sl_wire_owner_of(device, number) == port->index) {
            done += receive_from(port, number, now_ns, packets + done, count - done);
        }
    }
    port->next_queue++;
    port->stats.received += done;
    pthread_mutex_unlock(&device->wire->lock);
    return done;
}

static void wire_release(struct sl_dpdk_port *base, struct sl_dpdk_packet *packets, uint32_t count)
{
    struct sl_wire_port *port = (struct sl_wire_port *)base;
    sl_reactor_assert_owner(base->reactor);
    for (uint32_t i = 0; i < count; i++) {
        put_buffer(port, packets[i].token);
        packets[i].token = NULL;
    }
}

static uint32_t wire_reserve(struct sl_dpdk_port *base, struct sl_dpdk_packet *packets,
                             uint32_t count)
{
    struct sl_wire_port *port = (struct sl_wire_port *)base;
    sl_reactor_assert_owner(base->reactor);
    uint32_t done = 0;
    for (; done < count && port->reserved < RESERVED_MAX; done++) {
        struct sl_wire_buffer *buffer = get_buffer(port, RESERVED);
        packets[done] = (struct sl_dpdk_packet){
            .bytes = buffer->bytes, .room = port->device->options.frame_bytes_max, .token = buffer};
        port->reserved++;
    }
    port->stats.reserve_failed += done < count;
    return done;
}

static void check_sent(const struct sl_wire_port *port, const struct sl_dpdk_packet *packet)
{
    const struct sl_wire_device_options *options = &port->device->options;
    const struct sl_wire_buffer *buffer = packet->token;
    sl_assert(buffer->state == RESERVED || buffer->state == RECEIVED);
    sl_assert(buffer->bytes == packet->bytes);
    sl_assert(packet->length >= SL_WIRE_ETHERNET_BYTES);
    sl_assert(packet->length + packet->tail_length <= options->frame_bytes_max);
    sl_assert(packet->queue < options->queues);
    sl_assert(sl_wire_owner_of(port->device, packet->queue) == port->index);
    sl_assert(!packet->unchecked || options->tx_checksum);
    if (packet->tail_length > 0) {
        sl_assert(options->tx_gather);
        sl_assert(is_registered(port, packet->tail, packet->tail_length));
    } else {
        sl_assert(packet->pending == NULL);
    }
}

static uint32_t wire_send(struct sl_dpdk_port *base, const struct sl_dpdk_packet *packets,
                          uint32_t count)
{
    struct sl_wire_port *port = (struct sl_wire_port *)base;
    sl_reactor_assert_owner(base->reactor);
    transmit_deferred(port);
    uint32_t done = 0;
    bool taken = true;
    pthread_mutex_lock(&port->device->wire->lock);
    for (; done < count && taken; done += taken) {
        struct sl_dpdk_packet packet = packets[done];
        check_sent(port, &packet);
        if (port->device->options.tx_gather) {
            taken = port->deferred_count < SL_WIRE_DEFERRED_MAX;
            if (taken) {
                port->deferred[port->deferred_count++] = packet;
            }
            continue;
        }
        take_rest(&packet);
        taken = transmit(port, &packet);
        if (taken) {
            put_buffer(port, packet.token);
        }
    }
    port->stats.sent += done;
    pthread_mutex_unlock(&port->device->wire->lock);
    return done;
}

/* What is on its way, and not due, wakes nobody: a reactor with a thread of its own stays awake for
 * it, the thread that steps others asks sl_wire_next_ns. */
static bool wire_arm(struct sl_dpdk_port *base)
{
    struct sl_wire_port *port = (struct sl_wire_port *)base;
    const struct sl_wire_device *device = port->device;
    transmit_deferred(port);
    const bool has_thread = sl_reactor_ring(base->reactor) != NULL;
    const uint64_t now_ns = device->wire->delay_ns == 0 ? 0 : sl_clock_now_ns(device->wire->clock);
    bool can = port->deferred_count == 0;
    pthread_mutex_lock(&device->wire->lock);
    for (uint16_t i = 0; i < device->options.queues; i++) {
        const struct sl_wire_queue *queue = &device->queues[i];
        if (sl_wire_owner_of(device, i) == port->index && queue->count > 0 &&
            (has_thread || queue->slots[queue->head].due_ns <= now_ns)) {
            can = false;
        }
    }
    port->armed = can && device->options.rx_interrupt;
    pthread_mutex_unlock(&device->wire->lock);
    return can;
}

static int wire_memory_register(struct sl_dpdk_port *base, void *memory, size_t bytes)
{
    struct sl_wire_port *port = (struct sl_wire_port *)base;
    if (!port->device->options.tx_gather) {
        return SL_ERR_UNSUPPORTED;
    }
    sl_assert(port->region_count < SL_WIRE_REGIONS_MAX);
    port->regions[port->region_count++] = (struct sl_wire_region){.base = memory, .bytes = bytes};
    return 0;
}

static void wire_memory_unregister(struct sl_dpdk_port *base, void *memory)
{
    struct sl_wire_port *port = (struct sl_wire_port *)base;
    transmit_deferred(port);
    for (uint32_t i = 0; i < port->region_count; i++) {
        if (port->regions[i].base == memory) {
            port->regions[i] = port->regions[--port->region_count];
            return;
        }
    }
    sl_assert(!port->device->options.tx_gather);
}

static void wire_stats(const struct sl_dpdk_port *base, struct sl_dpdk_port_stats *out)
{
    const struct sl_wire_port *port = (const struct sl_wire_port *)base;
    pthread_mutex_lock(&port->device->wire->lock);
    *out = port->stats;
    pthread_mutex_unlock(&port->device->wire->lock);
}

const struct sl_dpdk_port_ops sl_wire_port_ops = {
    .open = wire_open,
    .close = wire_close,
    .info = wire_info,
    .link_is_up = wire_link_is_up,
    .receive = wire_receive,
    .release = wire_release,
    .reserve = wire_reserve,
    .send = wire_send,
    .arm = wire_arm,
    .memory_register = wire_memory_register,
    .memory_unregister = wire_memory_unregister,
    .stats = wire_stats,
};
