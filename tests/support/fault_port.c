#include "tests/support/fault_port.h"

#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/clock.h"
#include "core/hash.h"
#include "core/log.h"
#include "net/dpdk/wire.h"
#include "reactor/timer.h"

#define ETHERNET_BYTES 14U
#define LATE_MAX       64U /* of each direction */

/* A packet that goes on by itself when its time has come. */
struct late {
    struct sl_dpdk_packet packet;
    uint64_t due_ns;
};

struct lane {
    struct late late[LATE_MAX]; /* in the order in which they came */
    uint32_t count;
    uint64_t seed;
};

struct fault_port {
    struct sl_dpdk_port base;
    struct sl_dpdk_port *inner;
    struct sl_dpdk_faults faults;
    const struct sl_dpdk_fault_reactor *reactor;
    struct lane in, out;
    uint32_t late_max;
    uint64_t dark_until_ns;
    struct sl_timer timer; /* for the first that is late */
    struct sl_dpdk_fault_counts counts;
};

static struct fault_port *port_of(struct sl_dpdk_port *base)
{
    return (struct fault_port *)base;
}

static uint64_t now_ns(const struct fault_port *port)
{
    return ((const struct sl_reactor_head *)port->base.reactor)->now_ns;
}

enum fate { PASS, LOSE, DELAY, DOUBLE, CORRUPT, CUT };

static uint32_t random_below(struct lane *lane, uint32_t bound)
{
    return (uint32_t)(sl_hash_random(&lane->seed) % bound);
}

static bool falls(uint32_t *dice, uint32_t share)
{
    const bool is_it = *dice < share;
    *dice -= share;
    return is_it;
}

static enum fate choose(struct fault_port *port, struct lane *lane)
{
    const struct sl_dpdk_faults *faults = &port->faults;
    port->counts.packets++;
    if (now_ns(port) < port->dark_until_ns) {
        return LOSE;
    }
    uint32_t dice = random_below(lane, SL_DPDK_FAULT_SHARES);
    if (falls(&dice, faults->loss)) {
        return LOSE;
    }
    if (falls(&dice, faults->reorder)) {
        return DELAY;
    }
    if (falls(&dice, faults->duplicate)) {
        return DOUBLE;
    }
    if (falls(&dice, faults->corrupt)) {
        return CORRUPT;
    }
    if (falls(&dice, faults->truncate)) {
        return CUT;
    }
    if (falls(&dice, faults->blackout)) {
        port->counts.blackouts++;
        port->dark_until_ns = now_ns(port) + faults->blackout_ms * SL_CLOCK_NS_PER_MS;
        return LOSE;
    }
    return PASS;
}

/* How many of so many packets a call asks for, or takes. */
static uint32_t shorten(struct fault_port *port, struct lane *lane, uint32_t count)
{
    const uint32_t share = port->faults.shorten;
    if (count == 0 || share == 0 || random_below(lane, SL_DPDK_FAULT_SHARES) >= share) {
        return count;
    }
    port->counts.shortened++;
    return random_below(lane, count);
}

static bool has_room(const struct fault_port *port, const struct lane *lane)
{
    return lane->count < port->late_max;
}

static void add_late(struct lane *lane, const struct sl_dpdk_packet *packet, uint64_t due_ns)
{
    lane->late[lane->count++] = (struct late){.packet = *packet, .due_ns = due_ns};
}

static uint64_t some_time_later(struct fault_port *port, struct lane *lane)
{
    const uint32_t us = 1 + random_below(lane, port->faults.delay_us_max);
    return now_ns(port) + us * SL_CLOCK_NS_PER_US;
}

/* At most `count` of those whose time has come. */
static uint32_t take_late(const struct fault_port *port, struct lane *lane,
                          struct sl_dpdk_packet *packets, uint32_t count)
{
    uint32_t done = 0, kept = 0;
    for (uint32_t i = 0; i < lane->count; i++) {
        if (done < count && lane->late[i].due_ns <= now_ns(port)) {
            packets[done++] = lane->late[i].packet;
        } else {
            lane->late[kept++] = lane->late[i];
        }
    }
    lane->count = kept;
    return done;
}

/* What the port within has no room for, when its time has come, is lost. */
static void send_late(struct fault_port *port)
{
    struct sl_dpdk_packet packets[LATE_MAX];
    const struct sl_dpdk_port_ops *ops = port->inner->ops;
    const uint32_t count = port->out.count > 0 ? take_late(port, &port->out, packets, LATE_MAX) : 0;
    for (uint32_t i = 0; i < count; i++) {
        if (ops->send(port->inner, &packets[i], 1) == 0) {
            port->counts.lost++;
            ops->release(port->inner, &packets[i], 1);
        }
    }
}

static uint64_t first_due_ns(const struct fault_port *port)
{
    uint64_t due_ns = SL_CLOCK_NEVER;
    const struct lane *lanes[] = {&port->in, &port->out};
    for (uint32_t k = 0; k < 2; k++) {
        for (uint32_t i = 0; i < lanes[k]->count; i++) {
            const uint64_t next_ns = lanes[k]->late[i].due_ns;
            due_ns = next_ns < due_ns ? next_ns : due_ns;
        }
    }
    return due_ns;
}

static void set_timer(struct fault_port *port)
{
    const uint64_t due_ns = first_due_ns(port), time_ns = now_ns(port);
    if (due_ns != SL_CLOCK_NEVER) {
        port->reactor->timer_arm(port->base.reactor, &port->timer,
                                 due_ns > time_ns ? due_ns - time_ns : 0);
    } else if (sl_timer_armed(&port->timer)) {
        port->reactor->timer_disarm(port->base.reactor, &port->timer);
    }
}

static void on_timer(struct sl_timer *timer, uint64_t time_ns)
{
    (void)timer; /* the poll of the same turn is all that it is for */
}

/* A second one; false: there is no memory for it. */
static bool copy_packet(struct fault_port *port, const struct sl_dpdk_packet *packet,
                        struct sl_dpdk_packet *out)
{
    const uint32_t length = packet->length + packet->tail_length;
    if (port->inner->ops->reserve(port->inner, out, 1) == 0) {
        return false;
    }
    sl_assert(length <= out->room);
    memcpy(out->bytes, packet->bytes, packet->length);
    if (packet->tail_length > 0) {
        memcpy(out->bytes + packet->length, packet->tail, packet->tail_length);
    }
    out->length = length;
    out->queue = packet->queue;
    out->checked = packet->checked;
    out->unchecked = packet->unchecked;
    out->tail_length = 0;
    out->pending = NULL;
    return true;
}

static void double_packet(struct fault_port *port, struct lane *lane,
                          const struct sl_dpdk_packet *packet)
{
    struct sl_dpdk_packet copy;
    if (has_room(port, lane) && copy_packet(port, packet, &copy)) {
        port->counts.doubled++;
        add_late(lane, &copy, some_time_later(port, lane));
    }
}

/* Nothing protects what is no IP packet but the frame check, which would find this. */
static bool is_ip(const struct sl_dpdk_packet *packet)
{
    static const uint8_t v4[2] = {0x08, 0x00}, v6[2] = {0x86, 0xdd};
    return packet->length > ETHERNET_BYTES && (memcmp(packet->bytes + 12, v4, sizeof v4) == 0 ||
                                               memcmp(packet->bytes + 12, v6, sizeof v6) == 0);
}

/* By the port that sent it. */
static bool is_damaged(const struct sl_dpdk_packet *packet)
{
    struct sl_dpdk_parsed parsed;
    const enum sl_dpdk_class class =
        sl_dpdk_parse(packet->bytes, packet->length, packet->checked, &parsed);
    return class == SL_DPDK_MALFORMED || class == SL_DPDK_NOT_OURS;
}

static void corrupt(struct fault_port *port, struct lane *lane, struct sl_dpdk_packet *packet)
{
    if (!is_ip(packet) || is_damaged(packet)) {
        return;
    }
    const uint32_t bytes = packet->length - ETHERNET_BYTES;
    const uint32_t at = ETHERNET_BYTES + (random_below(lane, bytes) & ~1U);
    const uint32_t flips = 1 + random_below(lane, 0xfffe); /* neither none nor all */
    if (at + 1 == packet->length) {
        packet->bytes[at] ^= (uint8_t)(1U << flips % 8);
    } else {
        packet->bytes[at] ^= (uint8_t)(flips >> 8);
        packet->bytes[at + 1] ^= (uint8_t)flips;
    }
    packet->checked = false;
    port->counts.corrupted++;
}

static void cut(struct fault_port *port, struct lane *lane, struct sl_dpdk_packet *packet)
{
    if (packet->length > ETHERNET_BYTES) {
        packet->length = ETHERNET_BYTES + random_below(lane, packet->length - ETHERNET_BYTES);
        packet->checked = false;
        port->counts.truncated++;
    }
}

/* Whether it goes on now. */
static bool befall_received(struct fault_port *port, struct sl_dpdk_packet *packet)
{
    struct lane *lane = &port->in;
    switch (choose(port, lane)) {
    case PASS:
        return true;
    case LOSE:
        port->counts.lost++;
        port->inner->ops->release(port->inner, packet, 1);
        return false;
    case DELAY:
        if (!has_room(port, lane)) {
            return true;
        }
        port->counts.delayed++;
        add_late(lane, packet, some_time_later(port, lane));
        return false;
    case DOUBLE:
        double_packet(port, lane, packet);
        return true;
    case CORRUPT:
        corrupt(port, lane, packet);
        return true;
    case CUT:
        cut(port, lane, packet);
        return true;
    }
    return true;
}

static uint32_t fault_receive(struct sl_dpdk_port *base, struct sl_dpdk_packet *packets,
                              uint32_t count)
{
    struct fault_port *port = port_of(base);
    send_late(port);
    uint32_t done = port->in.count > 0 ? take_late(port, &port->in, packets, count) : 0;
    const uint32_t wanted = shorten(port, &port->in, count - done);
    const uint32_t got =
        wanted > 0 ? port->inner->ops->receive(port->inner, packets + done, wanted) : 0;
    const uint32_t end = done + got;
    for (uint32_t i = done; i < end; i++) {
        if (befall_received(port, &packets[i])) {
            packets[done++] = packets[i];
        }
    }
    set_timer(port);
    return done;
}

/* It is ours from now on, in one piece. */
static struct sl_dpdk_packet take_whole(const struct sl_dpdk_packet *packet)
{
    struct sl_dpdk_packet whole = *packet;
    if (whole.tail_length > 0) {
        sl_assert(whole.length + whole.tail_length <= whole.room);
        memcpy(whole.bytes + whole.length, whole.tail, whole.tail_length);
        whole.length += whole.tail_length;
        whole.tail_length = 0;
    }
    if (whole.pending != NULL) {
        --*whole.pending;
        whole.pending = NULL;
    }
    return whole;
}

/* The device would sum what is damaged, and nobody would see it. */
static void seal(struct sl_dpdk_packet *packet)
{
    if (packet->unchecked) {
        sl_dpdk_seal(packet->bytes, packet->length);
        packet->unchecked = false;
    }
}

/* Whether it has been taken. */
static bool befall_sent(struct fault_port *port, const struct sl_dpdk_packet *packet,
                        enum fate fate)
{
    struct lane *lane = &port->out;
    if (fate == DOUBLE) {
        double_packet(port, lane, packet);
        return false;
    }
    if (fate != LOSE && !has_room(port, lane)) {
        return false;
    }
    struct sl_dpdk_packet whole = take_whole(packet);
    switch (fate) {
    case LOSE:
        port->counts.lost++;
        port->inner->ops->release(port->inner, &whole, 1);
        return true;
    case DELAY:
        port->counts.delayed++;
        add_late(lane, &whole, some_time_later(port, lane));
        return true;
    case CORRUPT:
        seal(&whole);
        corrupt(port, lane, &whole);
        break;
    default:
        seal(&whole);
        cut(port, lane, &whole);
        break;
    }
    add_late(lane, &whole, now_ns(port)); /* one that is not taken shall not be offered again */
    return true;
}

static uint32_t fault_send(struct sl_dpdk_port *base, const struct sl_dpdk_packet *packets,
                           uint32_t count)
{
    struct fault_port *port = port_of(base);
    const struct sl_dpdk_port_ops *ops = port->inner->ops;
    send_late(port);
    count = shorten(port, &port->out, count);
    uint32_t done = 0, i = 0;
    for (; i < count; i++) {
        const enum fate fate = choose(port, &port->out);
        if (fate == PASS) {
            continue;
        }
        done += done < i ? ops->send(port->inner, packets + done, i - done) : 0;
        if (done < i) {
            break;
        }
        done += befall_sent(port, &packets[i], fate) ? 1 : 0;
    }
    if (i == count && done < count) {
        done += ops->send(port->inner, packets + done, count - done);
    }
    send_late(port);
    set_timer(port);
    return done;
}

static bool fault_arm(struct sl_dpdk_port *base)
{
    struct fault_port *port = port_of(base);
    return first_due_ns(port) > now_ns(port) && port->inner->ops->arm(port->inner);
}

static void say(const struct fault_port *port, const struct sl_dpdk_port_info *info)
{
    const struct sl_dpdk_faults *faults = &port->faults;
    if (info->queues.index == 0) {
        sl_log_warn("dpdk: %s: faults on purpose, in a million packets: %u lost, %u late, %u "
                    "doubled, %u corrupted, %u cut, %u blackouts; seed %llu",
                    info->name, faults->loss, faults->reorder, faults->duplicate, faults->corrupt,
                    faults->truncate, faults->blackout, (unsigned long long)faults->seed);
    }
}

static void timer_arm(struct sl_reactor *reactor, struct sl_timer *timer, uint64_t after_ns)
{
    sl_timer_arm(sl_reactor_timers(reactor), timer, sl_reactor_now_ns(reactor) + after_ns);
}

static void timer_disarm(struct sl_reactor *reactor, struct sl_timer *timer)
{
    sl_timer_disarm(sl_reactor_timers(reactor), timer);
}

static const struct sl_dpdk_fault_reactor own_reactor = {
    .index = sl_reactor_index, .timer_arm = timer_arm, .timer_disarm = timer_disarm};

static struct fault_port *wrap(struct sl_dpdk_port *inner,
                               const struct sl_dpdk_fault_medium *medium)
{
    const struct sl_dpdk_faults *faults = &medium->faults;
    struct sl_dpdk_port_info info;
    struct fault_port *port = calloc(1, sizeof *port);
    if (port == NULL) {
        return NULL;
    }
    inner->ops->info(inner, &info);
    port->base = (struct sl_dpdk_port){.ops = &sl_dpdk_fault_ports, .reactor = inner->reactor};
    port->inner = inner;
    port->faults = *faults;
    port->reactor = medium->reactor != NULL ? medium->reactor : &own_reactor;
    port->faults.delay_us_max += faults->delay_us_max == 0;
    port->late_max = info.packets / 8 < LATE_MAX ? info.packets / 8 : LATE_MAX;
    port->timer.run = on_timer;
    const uint64_t seed = faults->seed + port->reactor->index(inner->reactor);
    port->in.seed = sl_hash_bytes(info.self.mac, sizeof info.self.mac, seed);
    port->out.seed = sl_hash_key(port->in.seed);
    say(port, &info);
    return port;
}

static int fault_open(void *medium, struct sl_reactor *reactor, struct sl_dpdk_port **ports,
                      uint32_t max)
{
    const struct sl_dpdk_fault_medium *faulty = medium;
    int count = faulty->inner.ops->open(faulty->inner.ctx, reactor, ports, max);
    bool is_short = false;
    for (int i = 0; i < count; i++) {
        struct fault_port *port = wrap(ports[i], faulty);
        is_short = is_short || port == NULL;
        ports[i] = port != NULL ? &port->base : ports[i];
    }
    for (int i = 0; is_short && i < count; i++) {
        ports[i]->ops->close(&ports[i]);
    }
    return is_short ? SL_ERR_NO_MEMORY : count;
}

static void drop_late(struct fault_port *port, struct lane *lane)
{
    while (lane->count > 0) {
        port->inner->ops->release(port->inner, &lane->late[--lane->count].packet, 1);
    }
}

static void fault_close(struct sl_dpdk_port **closing)
{
    struct fault_port *port = port_of(*closing);
    drop_late(port, &port->in);
    drop_late(port, &port->out);
    set_timer(port);
    port->inner->ops->close(&port->inner);
    free(port);
    *closing = NULL;
}

static void fault_info(const struct sl_dpdk_port *base, struct sl_dpdk_port_info *out)
{
    const struct fault_port *port = (const struct fault_port *)base;
    port->inner->ops->info(port->inner, out);
    out->packets = (uint16_t)(out->packets - port->late_max);
}

static bool fault_link_is_up(struct sl_dpdk_port *base)
{
    struct sl_dpdk_port *inner = port_of(base)->inner;
    return inner->ops->link_is_up(inner);
}

static void fault_release(struct sl_dpdk_port *base, struct sl_dpdk_packet *packets, uint32_t count)
{
    struct sl_dpdk_port *inner = port_of(base)->inner;
    inner->ops->release(inner, packets, count);
}

static uint32_t fault_reserve(struct sl_dpdk_port *base, struct sl_dpdk_packet *packets,
                              uint32_t count)
{
    struct sl_dpdk_port *inner = port_of(base)->inner;
    return inner->ops->reserve(inner, packets, count);
}

static int fault_memory_register(struct sl_dpdk_port *base, void *memory, size_t bytes)
{
    struct sl_dpdk_port *inner = port_of(base)->inner;
    return inner->ops->memory_register(inner, memory, bytes);
}

static void fault_memory_unregister(struct sl_dpdk_port *base, void *memory)
{
    struct sl_dpdk_port *inner = port_of(base)->inner;
    inner->ops->memory_unregister(inner, memory);
}

static void fault_stats(const struct sl_dpdk_port *base, struct sl_dpdk_port_stats *out)
{
    const struct sl_dpdk_port *inner = ((const struct fault_port *)base)->inner;
    inner->ops->stats(inner, out);
}

void sl_dpdk_fault_counts(const struct sl_dpdk_port *port, struct sl_dpdk_fault_counts *out)
{
    sl_assert(port->ops == &sl_dpdk_fault_ports);
    *out = ((const struct fault_port *)port)->counts;
}

const struct sl_dpdk_port_ops sl_dpdk_fault_ports = {
    .open = fault_open,
    .close = fault_close,
    .info = fault_info,
    .link_is_up = fault_link_is_up,
    .receive = fault_receive,
    .release = fault_release,
    .reserve = fault_reserve,
    .send = fault_send,
    .arm = fault_arm,
    .memory_register = fault_memory_register,
    .memory_unregister = fault_memory_unregister,
    .stats = fault_stats,
};
