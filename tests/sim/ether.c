/* The switch: what becomes of a packet. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/dpdk/wire.h"
#include "tests/sim/ether_internal.h"

#define ANCIENT_MS_MAX 5000U
#define BUFFER_MIN     32768U /* bytes that the switch keeps for a device, at least */
#define TRUNCATED      100U   /* of 1000 that are corrupted */

static void set_mac(struct sl_sim_device *device, uint8_t life)
{
    const uint32_t number = device->host * SL_SIM_ETHER_PLACES + device->place;
    const uint8_t mac[6] = {2, life, 0, 0, (uint8_t)(number >> 8), (uint8_t)number};
    memcpy(device->self.mac, mac, sizeof mac);
}

/* NULL: nobody has the address, or not any more. */
static struct sl_sim_device *find(const struct sl_sim_ether *ether, const uint8_t mac[6])
{
    const uint32_t number = (uint32_t)mac[4] << 8 | mac[5];
    struct sl_sim_device *device = number < ether->device_count ? &ether->devices[number] : NULL;
    return device != NULL && memcmp(device->self.mac, mac, 6) == 0 ? device : NULL;
}

static void format_address(bool is_v6, uint32_t host, uint32_t place, char *text, size_t text_bytes)
{
    (void)snprintf(text, text_bytes, is_v6 ? "fd00:%x::%x:%x" : "10.%u.%u.%u", place, host >> 8,
                   host & 0xff);
}

static void set_self(struct sl_sim_device *device)
{
    char text[64];
    const bool is_v6 = device->ether->options.is_v6;
    format_address(is_v6, device->host, device->place, text, sizeof text);
    struct in6_addr *ip = &device->self.ip;
    uint8_t *at = ip->s6_addr;
    if (!is_v6) {
        at[10] = at[11] = 0xff;
        at += 12;
    }
    int read = inet_pton(is_v6 ? AF_INET6 : AF_INET, text, at);
    sl_assert(read == 1);
    set_mac(device, 0);
}

struct sl_sim_ether *sl_sim_ether_create(struct sl_sim_network *network)
{
    struct sl_sim_ether *ether = calloc(1, sizeof *ether);
    sl_assert(ether != NULL);
    ether->network = network;
    ether->options = network->options.ether;
    ether->random = sl_hash_key(network->options.seed ^ 0xe7e4e7U);
    ether->device_count = network->options.host_count * SL_SIM_ETHER_PLACES;
    ether->devices = calloc(ether->device_count, sizeof *ether->devices);
    sl_assert(ether->devices != NULL);
    for (uint32_t i = 0; i < ether->device_count; i++) {
        struct sl_sim_device *device = &ether->devices[i];
        device->ether = ether;
        device->medium = (struct sl_dpdk_medium){.ops = &sl_sim_port_ops, .ctx = device};
        device->host = i / SL_SIM_ETHER_PLACES;
        device->place = i % SL_SIM_ETHER_PLACES;
        set_self(device);
    }
    sl_sim_strangers_init(&ether->strangers, ether);
    return ether;
}

struct sl_dpdk_medium *sl_sim_ether_medium(struct sl_sim_ether *ether, uint32_t host,
                                           uint32_t place)
{
    sl_assert(place < SL_SIM_ETHER_PLACES);
    return &ether->devices[host * SL_SIM_ETHER_PLACES + place].medium;
}

void sl_sim_ether_address(const struct sl_sim_ether *ether, uint32_t host, char *text,
                          size_t text_bytes)
{
    format_address(ether->options.is_v6, host, 0, text, text_bytes);
}

void sl_sim_queue_remove(struct sl_sim_queue *queue, struct sl_sim_packet *packet)
{
    *(packet->previous != NULL ? &packet->previous->next : &queue->first) = packet->next;
    *(packet->next != NULL ? &packet->next->previous : &queue->last) = packet->previous;
    queue->near = queue->near == packet ? packet->previous : queue->near;
}

/* Behind all that arrive before it, or at the same time. */
static void queue_insert(struct sl_sim_queue *queue, struct sl_sim_packet *packet)
{
    struct sl_sim_packet *before = queue->near != NULL ? queue->near : queue->last;
    while (before != NULL && before->at_ns > packet->at_ns) {
        before = before->previous;
    }
    while (before != NULL && before->next != NULL && before->next->at_ns <= packet->at_ns) {
        before = before->next;
    }
    queue->near = packet;
    packet->previous = before;
    packet->next = before != NULL ? before->next : queue->first;
    *(packet->previous != NULL ? &packet->previous->next : &queue->first) = packet;
    *(packet->next != NULL ? &packet->next->previous : &queue->last) = packet;
}

static void queue_forget(struct sl_sim_queue *queue, uint64_t until_ns)
{
    while (queue->first != NULL && queue->first->at_ns <= until_ns) {
        struct sl_sim_packet *packet = queue->first;
        sl_sim_queue_remove(queue, packet);
        free(packet);
    }
}

static void device_forget(struct sl_sim_device *device, uint64_t until_ns)
{
    for (uint32_t i = 0; i < SL_SIM_ETHER_QUEUES; i++) {
        queue_forget(&device->queues[i], until_ns);
    }
}

void sl_sim_ether_forget(struct sl_sim_ether *ether, uint32_t host)
{
    for (uint32_t place = 0; place < SL_SIM_ETHER_PLACES; place++) {
        device_forget(&ether->devices[host * SL_SIM_ETHER_PLACES + place], ether->network->now_ns);
    }
}

void sl_sim_ether_revive(struct sl_sim_ether *ether, uint32_t host)
{
    sl_sim_ether_forget(ether, host);
    for (uint32_t place = 0; place < SL_SIM_ETHER_PLACES && ether->options.moves; place++) {
        struct sl_sim_device *device = &ether->devices[host * SL_SIM_ETHER_PLACES + place];
        set_mac(device, (uint8_t)(device->self.mac[1] + 1));
    }
}

void sl_sim_ether_destroy(struct sl_sim_ether **ether)
{
    for (uint32_t i = 0; i < (*ether)->device_count; i++) {
        struct sl_sim_device *device = &(*ether)->devices[i];
        device_forget(device, SL_CLOCK_NEVER);
        for (uint32_t k = 0; k < SL_SIM_REACTORS_MAX; k++) {
            sl_assert(device->ports[k] == NULL);
        }
    }
    queue_forget(&(*ether)->leaving, SL_CLOCK_NEVER);
    free((*ether)->devices);
    free(*ether);
    *ether = NULL;
}

static uint64_t device_next(const struct sl_sim_device *device, const struct sl_reactor *reactor)
{
    uint64_t next_ns = SL_CLOCK_NEVER;
    for (uint16_t i = 0; device->reactors != 0 && i < sl_sim_queue_count(device); i++) {
        const struct sl_sim_port *port = device->ports[sl_sim_queue_owner(device, i)];
        const struct sl_sim_packet *first = device->queues[i].first;
        if (port != NULL && port->base.reactor == reactor && first != NULL &&
            port->received < device->ether->options.packets && first->at_ns < next_ns) {
            next_ns = first->at_ns;
        }
    }
    return next_ns;
}

uint64_t sl_sim_ether_next(const struct sl_sim_ether *ether, uint32_t host,
                           const struct sl_reactor *reactor)
{
    uint64_t next_ns = SL_CLOCK_NEVER;
    for (uint32_t place = 0; place < SL_SIM_ETHER_PLACES; place++) {
        uint64_t at_ns = device_next(&ether->devices[host * SL_SIM_ETHER_PLACES + place], reactor);
        next_ns = at_ns < next_ns ? at_ns : next_ns;
    }
    return next_ns;
}

struct parcel {
    struct sl_sim_device *from, *to;
    const uint8_t *bytes;
    uint32_t length;
    uint16_t queue; /* that it left by */
    uint64_t left_ns;
};

static uint32_t ip_offset(const struct sl_sim_ether *ether)
{
    return ether->options.is_v6 ? 62U : 42U; /* what stands before our header */
}

static bool is_udp(const struct sl_sim_ether *ether, const uint8_t *bytes, uint32_t length)
{
    const uint16_t type = (uint16_t)(bytes[12] << 8 | bytes[13]);
    return length >= ip_offset(ether) + SL_DPDK_HEADER_BYTES &&
           ((type == 0x0800 && bytes[23] == IPPROTO_UDP) ||
            (type == 0x86dd && bytes[20] == IPPROTO_UDP));
}

static uint8_t kind_of(const struct sl_sim_ether *ether, const uint8_t *bytes, uint32_t length)
{
    return is_udp(ether, bytes, length) ? bytes[ip_offset(ether) + 30] & 0x0f : 0;
}

static void tell_watch(const struct parcel *parcel, uint64_t at_ns, const char *fate)
{
    const struct sl_sim_watch *watch = &parcel->from->ether->network->watch;
    if (watch->packet != NULL) {
        const struct sl_sim_passage passage = {.from = parcel->from->host,
                                               .to = parcel->to->host,
                                               .bytes = parcel->bytes,
                                               .length = parcel->length,
                                               .at_ns = at_ns,
                                               .fate = fate};
        watch->packet(watch->ctx, &passage);
    }
}

static uint16_t steer(const struct sl_sim_ether *ether, const struct parcel *parcel)
{
    const uint16_t count = sl_sim_queue_count(parcel->to);
    const uint32_t end = ip_offset(ether) - 4; /* ports are the last that is hashed */
    switch (ether->options.steering) {
    case SL_SIM_STEERING_STRAIGHT:
        return (uint16_t)(parcel->queue % count);
    case SL_SIM_STEERING_SCATTER:
        return is_udp(ether, parcel->bytes, parcel->length)
                   ? (uint16_t)(sl_hash_bytes(parcel->bytes + 26, end - 26, 1) % count)
                   : (uint16_t)(parcel->bytes[11] % count);
    default:
        return 0;
    }
}

/* One that a reactor looks at, if there is any. */
static struct sl_sim_queue *choose_queue(const struct sl_sim_ether *ether,
                                         const struct parcel *parcel)
{
    struct sl_sim_device *to = parcel->to;
    const uint16_t count = sl_sim_queue_count(to), best = steer(ether, parcel);
    for (uint16_t i = 0; i < count; i++) {
        const uint16_t queue = (uint16_t)((best + i) % count);
        if (to->ports[sl_sim_queue_owner(to, queue)] != NULL) {
            return &to->queues[queue];
        }
    }
    return &to->queues[best];
}

static void deliver(const struct parcel *parcel, uint64_t at_ns, bool is_sound, const char *fate)
{
    struct sl_sim_ether *ether = parcel->from->ether;
    tell_watch(parcel, at_ns, fate);
    if (parcel->to->reactors == 0) {
        return; /* nobody has opened it */
    }
    struct sl_sim_packet *packet = malloc(sizeof *packet + parcel->length);
    sl_assert(packet != NULL);
    *packet =
        (struct sl_sim_packet){.at_ns = at_ns, .length = parcel->length, .is_sound = is_sound};
    memcpy(packet->bytes, parcel->bytes, parcel->length);
    queue_insert(choose_queue(ether, parcel), packet);
    const struct sl_sim_watch *watch = &ether->network->watch;
    watch->wake(watch->ctx, parcel->to->host, at_ns);
}

/* One byte is another, or the end is missing: the checksums find both. What has none but the
 * Ethernet's is lost. */
static void deliver_corrupted(const struct parcel *parcel, uint64_t at_ns)
{
    struct sl_sim_ether *ether = parcel->from->ether;
    uint8_t bytes[SL_SIM_ETHER_FRAME_MAX];
    if (!is_udp(ether, parcel->bytes, parcel->length)) {
        tell_watch(parcel, SL_CLOCK_NEVER, "corrupted");
        return;
    }
    struct parcel corrupted = *parcel;
    memcpy(bytes, parcel->bytes, parcel->length);
    corrupted.bytes = bytes;
    if (sl_sim_chance(&ether->random, TRUNCATED)) {
        corrupted.length =
            SL_SIM_ETHER_BYTES + sl_sim_below(&ether->random, parcel->length - SL_SIM_ETHER_BYTES);
    } else {
        uint32_t at =
            (uint32_t)sl_sim_between(&ether->random, SL_SIM_ETHER_BYTES, parcel->length - 1);
        bytes[at] ^= (uint8_t)sl_sim_between(&ether->random, 1, 255);
    }
    deliver(&corrupted, at_ns, false, "corrupted");
}

/* The right id from the right address, but numbers that only who sees the packets can know. */
static void deliver_forged(const struct parcel *parcel, uint64_t at_ns)
{
    struct sl_sim_ether *ether = parcel->from->ether;
    uint8_t bytes[SL_SIM_ETHER_FRAME_MAX];
    uint8_t kind = kind_of(ether, parcel->bytes, parcel->length);
    if (kind < SL_DPDK_DATA) {
        return;
    }
    struct parcel forged = *parcel;
    memcpy(bytes, parcel->bytes, parcel->length);
    forged.bytes = bytes;
    uint8_t *header = bytes + ip_offset(ether);
    uint32_t numbers[2]; /* sequence and acknowledged: not near what they are */
    memcpy(numbers, header + 8, sizeof numbers);
    const bool both = sl_sim_chance(&ether->random, 500);
    const bool first = sl_sim_chance(&ether->random, 500);
    numbers[0] += both || first ? (uint32_t)sl_sim_between(&ether->random, 1 << 17, 1U << 31) : 0;
    numbers[1] += both || !first ? (uint32_t)sl_sim_between(&ether->random, 1 << 17, 1U << 31) : 0;
    memcpy(header + 8, numbers, sizeof numbers);
    kind = (uint8_t)sl_sim_between(&ether->random, SL_DPDK_DATA, SL_DPDK_RESET);
    header[30] = (uint8_t)((header[30] & 0xf0) | kind);
    sl_dpdk_seal(bytes, parcel->length);
    deliver(&forged, at_ns + sl_sim_delay_ns(ether->network), true, "forged");
}

static uint64_t cable_ns(const struct sl_sim_ether *ether, uint32_t length)
{
    return length * SL_CLOCK_NS_PER_US / ether->network->options.bytes_per_us;
}

/* When it has gone through the switch; SL_CLOCK_NEVER: that has no room for it. */
static uint64_t arrival(struct sl_sim_ether *ether, const struct parcel *parcel)
{
    const struct sl_sim_network_options *options = &ether->network->options;
    const uint32_t room = options->window_bytes > BUFFER_MIN ? options->window_bytes : BUFFER_MIN;
    uint64_t at_ns = parcel->left_ns + options->delay_us_min * SL_CLOCK_NS_PER_US;
    if (parcel->to->in_free_ns > at_ns + cable_ns(ether, room)) {
        return SL_CLOCK_NEVER;
    }
    at_ns = parcel->to->in_free_ns > at_ns ? parcel->to->in_free_ns : at_ns;
    parcel->to->in_free_ns = at_ns += cable_ns(ether, parcel->length);
    if (sl_sim_chance(&ether->random, ether->options.overtaken)) {
        at_ns += sl_sim_delay_ns(ether->network);
    }
    return at_ns;
}

static bool is_reachable(const struct sl_sim_ether *ether, const struct parcel *parcel)
{
    const struct sl_sim_network *network = ether->network;
    const struct sl_sim_host *from = &network->hosts[parcel->from->host];
    const struct sl_sim_host *to = &network->hosts[parcel->to->host];
    const uint8_t kind = kind_of(ether, parcel->bytes, parcel->length);
    /* A process that dies by itself may get a last word out. */
    const bool is_mute = from->dead && (from->silent || kind != SL_DPDK_RESET);
    return !is_mute && !to->dead && !(to->refuses && kind == SL_DPDK_OPEN) &&
           !sl_sim_is_blocked(network, 0, from->index, to->index);
}

static void befall(struct sl_sim_ether *ether, const struct parcel *parcel)
{
    const struct sl_sim_ether_options *options = &ether->options;
    if (!is_reachable(ether, parcel) || sl_sim_chance(&ether->random, options->lost)) {
        tell_watch(parcel, SL_CLOCK_NEVER, "lost");
        return;
    }
    const uint64_t at_ns = arrival(ether, parcel);
    if (at_ns == SL_CLOCK_NEVER) {
        tell_watch(parcel, SL_CLOCK_NEVER, "crowded out");
        return;
    }
    if (sl_sim_chance(&ether->random, options->corrupted)) {
        deliver_corrupted(parcel, at_ns);
    } else {
        deliver(parcel, at_ns, true, "");
    }
    if (sl_sim_chance(&ether->random, options->doubled)) {
        deliver(parcel, at_ns + sl_sim_delay_ns(ether->network), true, "again");
    }
    if (sl_sim_chance(&ether->random, options->ancient)) {
        const uint64_t ms = sl_sim_below(&ether->random, ANCIENT_MS_MAX);
        deliver(parcel, at_ns + ms * SL_CLOCK_NS_PER_MS, true, "long after");
    }
    if (sl_sim_chance(&ether->random, options->forged)) {
        deliver_forged(parcel, at_ns);
    }
}

void sl_sim_ether_inject(struct sl_sim_device *to, const uint8_t *bytes, uint32_t length,
                         uint16_t queue, uint64_t at_ns)
{
    const struct parcel parcel = {
        .from = to, .to = to, .bytes = bytes, .length = length, .queue = queue};
    if (!to->ether->network->hosts[to->host].dead) {
        deliver(&parcel, at_ns, true, "a stranger's");
    }
}

void sl_sim_ether_calm(struct sl_sim_ether *ether)
{
    ether->strangers.permille = 0;
}

uint64_t sl_sim_ether_carry(struct sl_sim_device *from, const uint8_t *bytes, uint32_t length,
                            uint16_t queue)
{
    struct sl_sim_ether *ether = from->ether;
    const uint64_t now_ns = ether->network->now_ns;
    const uint64_t begin_ns = from->out_free_ns > now_ns ? from->out_free_ns : now_ns;
    struct sl_sim_packet *packet = malloc(sizeof *packet + length);
    sl_assert(packet != NULL);
    from->out_free_ns = begin_ns + cable_ns(ether, length);
    *packet = (struct sl_sim_packet){
        .at_ns = from->out_free_ns, .length = length, .from = from, .from_queue = queue};
    memcpy(packet->bytes, bytes, length);
    queue_insert(&ether->leaving, packet);
    return from->out_free_ns;
}

static void forward(struct sl_sim_ether *ether, const struct sl_sim_packet *packet)
{
    struct parcel parcel = {.from = packet->from,
                            .bytes = packet->bytes,
                            .length = packet->length,
                            .queue = packet->from_queue,
                            .left_ns = packet->at_ns};
    const bool is_group = (packet->bytes[0] & 1) != 0;
    parcel.to = is_group ? NULL : find(ether, packet->bytes);
    if (parcel.to != NULL) {
        befall(ether, &parcel);
        sl_sim_strangers_see(&ether->strangers, parcel.to, packet->bytes, packet->length);
    } else if (!is_group) {
        sl_sim_strangers_hear(&ether->strangers, parcel.from, packet->bytes, packet->length);
    }
    for (uint32_t i = 0; is_group && i < ether->device_count; i++) {
        parcel.to = &ether->devices[i];
        if (parcel.to->reactors != 0 && parcel.to != parcel.from) {
            befall(ether, &parcel);
        }
    }
}

uint64_t sl_sim_ether_due(const struct sl_sim_ether *ether)
{
    return ether->leaving.first != NULL ? ether->leaving.first->at_ns : SL_CLOCK_NEVER;
}

void sl_sim_ether_advance(struct sl_sim_ether *ether)
{
    while (sl_sim_ether_due(ether) <= ether->network->now_ns) {
        struct sl_sim_packet *packet = ether->leaving.first;
        sl_sim_queue_remove(&ether->leaving, packet);
        forward(ether, packet);
        free(packet);
    }
}

uint32_t sl_sim_ether_host(const struct sl_dpdk_port *port)
{
    return ((const struct sl_sim_port *)port)->device->host;
}

struct sl_sim_network *sl_sim_ether_network(const struct sl_dpdk_port *port)
{
    return ((const struct sl_sim_port *)port)->device->ether->network;
}
