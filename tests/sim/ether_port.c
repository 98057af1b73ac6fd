/* Ports of the simulated devices: the slots of net/dpdk/port.h. */
#include <stdlib.h>
#include <string.h>

#include "net/dpdk/wire.h"
#include "tests/sim/ether_internal.h"

#define RESERVED_MAX  512U /* packets of one port, reserved and not sent */
#define RELEASED_BYTE 0xdd

enum buffer_state { FREE, RECEIVED, RESERVED };

struct sl_sim_buffer {
    struct sl_sim_buffer *next;
    enum buffer_state state;
    uint32_t used; /* bytes */
    _Alignas(64) uint8_t bytes[];
};

static struct sl_sim_port *port_of(struct sl_dpdk_port *port)
{
    return (struct sl_sim_port *)port;
}

static struct sl_sim_ether *ether_of(const struct sl_sim_port *port)
{
    return port->device->ether;
}

static struct sl_sim_buffer *get_buffer(struct sl_sim_port *port, enum buffer_state state)
{
    struct sl_sim_buffer *buffer = port->free;
    if (buffer != NULL) {
        port->free = buffer->next;
    } else {
        buffer = malloc(sizeof *buffer + ether_of(port)->options.frame_max);
        sl_assert(buffer != NULL);
    }
    buffer->state = state;
    buffer->used = 0;
    *(state == RECEIVED ? &port->received : &port->reserved) += 1;
    return buffer;
}

static void put_buffer(struct sl_sim_port *port, struct sl_sim_buffer *buffer)
{
    sl_assert(buffer->state != FREE);
    *(buffer->state == RECEIVED ? &port->received : &port->reserved) -= 1;
    memset(buffer->bytes, RELEASED_BYTE, buffer->used);
    buffer->state = FREE;
    buffer->next = port->free;
    port->free = buffer;
}

/* Packets leave in order: what is read to its end is the first of the list. */
static void end_readings(struct sl_sim_port *port, uint64_t now_ns)
{
    uint32_t done = 0;
    while (done < port->reading_count && port->readings[done].until_ns <= now_ns) {
        const struct sl_sim_reading *reading = &port->readings[done++];
        /* Its owner has left it alone meanwhile. */
        sl_assert(sl_hash_bytes(reading->bytes, reading->length, 0) == reading->hash);
        if (reading->pending != NULL) {
            sl_assert(*reading->pending > 0);
            --*reading->pending;
        }
        put_buffer(port, reading->buffer);
    }
    port->reading_count -= done;
    memmove(port->readings, port->readings + done, port->reading_count * sizeof port->readings[0]);
}

static void end_due_readings(struct sl_sim_port *port)
{
    end_readings(port, ether_of(port)->network->now_ns);
}

static bool is_registered(const struct sl_sim_port *port, const uint8_t *base, size_t bytes)
{
    for (uint32_t i = 0; i < port->region_count; i++) {
        const struct sl_sim_region *region = &port->regions[i];
        const uintptr_t offset = (uintptr_t)base - (uintptr_t)region->base;
        if (offset < region->bytes && bytes <= region->bytes - offset) {
            return true;
        }
    }
    return false;
}

static int port_open(void *medium, struct sl_reactor *reactor, struct sl_dpdk_port **ports,
                     uint32_t max)
{
    struct sl_sim_device *device = medium;
    struct sl_sim_port *port = calloc(1, sizeof *port);
    sl_assert(port != NULL && max > 0);
    port->base = (struct sl_dpdk_port){.ops = &sl_sim_port_ops, .reactor = reactor};
    port->device = device;
    /* The first device is all reactors', the others' are of one. */
    device->reactors = device->place == 0 ? (uint16_t)sl_reactor_group_count(reactor) : 1;
    port->index = device->place == 0 ? (uint16_t)sl_reactor_index(reactor) : 0;
    sl_assert(device->reactors <= SL_SIM_REACTORS_MAX);
    sl_assert(port->index < device->reactors);
    sl_assert(sl_sim_queue_count(device) <= SL_SIM_ETHER_QUEUES);
    sl_assert(sl_sim_queue_count(device) % device->reactors == 0);
    sl_assert(device->ports[port->index] == NULL);
    device->ports[port->index] = port;
    ports[0] = &port->base;
    return 1;
}

static void port_close(struct sl_dpdk_port **closing)
{
    struct sl_sim_port *port = port_of(*closing);
    end_readings(port, SL_CLOCK_NEVER);
    sl_assert(port->received == 0);
    sl_assert(port->reserved == 0);
    sl_assert(port->region_count == 0);
    port->device->ports[port->index] = NULL;
    while (port->free != NULL) {
        struct sl_sim_buffer *buffer = port->free;
        port->free = buffer->next;
        free(buffer);
    }
    free(port);
    *closing = NULL;
}

static void port_facts(const struct sl_dpdk_port *base, struct sl_dpdk_port_info *out)
{
    const struct sl_sim_port *port = (const struct sl_sim_port *)base;
    const struct sl_sim_ether_options *options = &ether_of(port)->options;
    *out = (struct sl_dpdk_port_info){
        .name = "sim",
        .self = port->device->self,
        .port_base = SL_SIM_PORT_BASE,
        .frame_bytes_max = options->frame_max,
        .packets = options->packets,
        .tx_gather = options->gathers,
        .tx_checksum = options->sums,
        .rx_interrupt = options->wakes,
        .queues = {.queues = sl_sim_queue_count(port->device),
                   .reactors = port->device->reactors,
                   .index = port->index,
                   .blocks = options->blocks,
                   .straight = options->steering == SL_SIM_STEERING_STRAIGHT},
    };
}

static bool port_link_is_up(struct sl_dpdk_port *base)
{
    const struct sl_sim_port *port = port_of(base);
    return !ether_of(port)->network->hosts[port->device->host].dead;
}

/* What came when so many were waiting that there was no place. */
static void drop_excess(struct sl_sim_port *port, struct sl_sim_queue *queue, uint64_t now_ns)
{
    uint32_t places = ether_of(port)->options.queue_packets;
    struct sl_sim_packet *packet = queue->first;
    while (packet != NULL && packet->at_ns <= now_ns) {
        struct sl_sim_packet *next = packet->next;
        if (places > 0) {
            places--;
        } else {
            sl_sim_queue_remove(queue, packet);
            free(packet);
            port->stats.dropped++;
        }
        packet = next;
    }
}

static uint32_t receive_from(struct sl_sim_port *port, uint16_t number,
                             struct sl_dpdk_packet *packets, uint32_t count)
{
    const struct sl_sim_ether_options *options = &ether_of(port)->options;
    const uint64_t now_ns = ether_of(port)->network->now_ns;
    struct sl_sim_queue *queue = &port->device->queues[number];
    uint32_t done = 0;
    drop_excess(port, queue, now_ns);
    while (done < count && queue->first != NULL && queue->first->at_ns <= now_ns &&
           port->received < options->packets) {
        struct sl_sim_packet *packet = queue->first;
        struct sl_sim_buffer *buffer = get_buffer(port, RECEIVED);
        memcpy(buffer->bytes, packet->bytes, packet->length);
        buffer->used = packet->length;
        packets[done++] = (struct sl_dpdk_packet){.bytes = buffer->bytes,
                                                  .length = packet->length,
                                                  .room = options->frame_max,
                                                  .queue = number,
                                                  .checked = options->sums && packet->is_sound,
                                                  .token = buffer};
        sl_sim_queue_remove(queue, packet);
        free(packet);
    }
    return done;
}

static uint32_t port_receive(struct sl_dpdk_port *base, struct sl_dpdk_packet *packets,
                             uint32_t count)
{
    struct sl_sim_port *port = port_of(base);
    const uint16_t queues = sl_sim_queue_count(port->device);
    uint32_t done = 0;
    sl_reactor_assert_owner(base->reactor);
    end_due_readings(port);
    for (uint16_t i = 0; i < queues; i++) {
        uint16_t number = (uint16_t)((port->next_queue + i) % queues);
        if (sl_sim_queue_owner(port->device, number) == port->index) {
            done += receive_from(port, number, packets + done, count - done);
        }
    }
    port->next_queue++;
    port->stats.received += done;
    return done;
}

static void port_release(struct sl_dpdk_port *base, struct sl_dpdk_packet *packets, uint32_t count)
{
    struct sl_sim_port *port = port_of(base);
    sl_reactor_assert_owner(base->reactor);
    end_due_readings(port);
    for (uint32_t i = 0; i < count; i++) {
        put_buffer(port, packets[i].token);
        packets[i].token = NULL;
    }
}

/* Of so many, how many go now; sometimes it is a part. */
static uint32_t share(struct sl_sim_port *port, uint32_t count)
{
    struct sl_sim_ether *ether = ether_of(port);
    return sl_sim_chance(&ether->random, ether->network->options.short_permille)
               ? sl_sim_below(&ether->random, count + 1ULL)
               : count;
}

static uint32_t port_reserve(struct sl_dpdk_port *base, struct sl_dpdk_packet *packets,
                             uint32_t count)
{
    struct sl_sim_port *port = port_of(base);
    const uint32_t most = share(port, count);
    uint32_t done = 0;
    sl_reactor_assert_owner(base->reactor);
    for (; done < most && port->reserved < RESERVED_MAX; done++) {
        struct sl_sim_buffer *buffer = get_buffer(port, RESERVED);
        packets[done] = (struct sl_dpdk_packet){
            .bytes = buffer->bytes, .room = ether_of(port)->options.frame_max, .token = buffer};
    }
    port->stats.reserve_failed += done < count;
    return done;
}

static void check_sent(const struct sl_sim_port *port, const struct sl_dpdk_packet *packet)
{
    const struct sl_sim_ether_options *options = &ether_of(port)->options;
    const struct sl_sim_buffer *buffer = packet->token;
    sl_assert(buffer->state != FREE);
    sl_assert(buffer->bytes == packet->bytes);
    sl_assert(packet->length >= SL_SIM_ETHER_BYTES);
    sl_assert(packet->length + packet->tail_length <= options->frame_max);
    sl_assert(packet->queue < sl_sim_queue_count(port->device));
    sl_assert(sl_sim_queue_owner(port->device, packet->queue) == port->index);
    sl_assert(!packet->unchecked || options->sums);
    if (packet->tail_length > 0) {
        sl_assert(options->gathers);
        sl_assert(is_registered(port, packet->tail, packet->tail_length));
    } else {
        sl_assert(packet->pending == NULL);
    }
}

static bool is_full(const struct sl_sim_port *port)
{
    const struct sl_sim_ether *ether = ether_of(port);
    const uint64_t waiting_bytes = (uint64_t)ether->options.send_packets * ether->options.frame_max;
    const uint64_t most_ns =
        waiting_bytes * SL_CLOCK_NS_PER_US / ether->network->options.bytes_per_us;
    return port->reading_count == SL_SIM_ETHER_DEFERRED ||
           port->device->out_free_ns > ether->network->now_ns + most_ns;
}

static void send_one(struct sl_sim_port *port, const struct sl_dpdk_packet *packet)
{
    uint8_t whole[SL_SIM_ETHER_FRAME_MAX];
    const uint32_t length = packet->length + packet->tail_length;
    memcpy(whole, packet->bytes, packet->length);
    ((struct sl_sim_buffer *)packet->token)->used = packet->length;
    if (packet->tail_length > 0) {
        memcpy(whole + packet->length, packet->tail, packet->tail_length);
    }
    if (packet->unchecked) {
        sl_dpdk_seal(whole, length);
    }
    const uint64_t until_ns = sl_sim_ether_carry(port->device, whole, length, packet->queue);
    if (packet->tail_length == 0) {
        put_buffer(port, packet->token);
        return;
    }
    port->readings[port->reading_count++] =
        (struct sl_sim_reading){.until_ns = until_ns,
                                .bytes = packet->tail,
                                .length = packet->tail_length,
                                .hash = sl_hash_bytes(packet->tail, packet->tail_length, 0),
                                .pending = packet->pending,
                                .buffer = packet->token};
}

static uint32_t port_send(struct sl_dpdk_port *base, const struct sl_dpdk_packet *packets,
                          uint32_t count)
{
    struct sl_sim_port *port = port_of(base);
    const uint32_t most = share(port, count);
    uint32_t done = 0;
    sl_reactor_assert_owner(base->reactor);
    end_due_readings(port);
    for (; done < most && !is_full(port); done++) {
        check_sent(port, &packets[done]);
        send_one(port, &packets[done]);
    }
    port->stats.sent += done;
    return done;
}

/* The simulation asks sl_sim_ether_next for what is on its way. */
static bool port_arm(struct sl_dpdk_port *base)
{
    struct sl_sim_port *port = port_of(base);
    end_due_readings(port);
    const struct sl_sim_network *network = ether_of(port)->network;
    return sl_sim_ether_next(ether_of(port), port->device->host, base->reactor) > network->now_ns;
}

static int port_memory_register(struct sl_dpdk_port *base, void *memory, size_t bytes)
{
    struct sl_sim_port *port = port_of(base);
    if (!ether_of(port)->options.gathers) {
        return SL_ERR_UNSUPPORTED;
    }
    sl_assert(port->region_count < SL_SIM_ETHER_REGIONS);
    port->regions[port->region_count++] = (struct sl_sim_region){.base = memory, .bytes = bytes};
    return SL_OK;
}

static void port_memory_unregister(struct sl_dpdk_port *base, void *memory)
{
    struct sl_sim_port *port = port_of(base);
    end_readings(port, SL_CLOCK_NEVER);
    for (uint32_t i = 0; i < port->region_count; i++) {
        if (port->regions[i].base == memory) {
            port->regions[i] = port->regions[--port->region_count];
            return;
        }
    }
    sl_assert(!ether_of(port)->options.gathers);
}

static void port_stats(const struct sl_dpdk_port *base, struct sl_dpdk_port_stats *out)
{
    *out = ((const struct sl_sim_port *)base)->stats;
}

const struct sl_dpdk_port_ops sl_sim_port_ops = {
    .open = port_open,
    .close = port_close,
    .info = port_facts,
    .link_is_up = port_link_is_up,
    .receive = port_receive,
    .release = port_release,
    .reserve = port_reserve,
    .send = port_send,
    .arm = port_arm,
    .memory_register = port_memory_register,
    .memory_unregister = port_memory_unregister,
    .stats = port_stats,
};
