/* The port ops (net/dpdk/port.h) of one reactor's queues of one device. */
#include <rte_ip.h>
#include <rte_udp.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/list.h"
#include "net/dpdk/module/device.h"
#include "net/dpdk/module/eal.h"
#include "net/dpdk/module/memory.h"
#include "net/dpdk/module/wake.h"

#define ETHERNET_BYTES 14U
#define DRAIN_TRIES    1000U
#define DRAIN_PAUSE_NS 100000L

static struct sl_module_port *port_of(struct sl_dpdk_port *base)
{
    return (struct sl_module_port *)base;
}

/* Open and close */

static void module_port_look(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_module_port *port = SL_CONTAINER_OF(timer, struct sl_module_port, look);
    const uint64_t after_ns = sl_module_device_look(port);
    sl_module_host->timer_arm(port->base.reactor, timer, after_ns);
}

static int open_one(const struct sl_dpdk_options *options, uint32_t which,
                    struct sl_reactor *reactor, struct sl_dpdk_port **out)
{
    struct sl_module_port *port = calloc(1, sizeof *port);
    if (port == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    port->base = (struct sl_dpdk_port){.ops = &sl_module_ports, .reactor = reactor};
    port->look.run = module_port_look;
    const int err = sl_module_device_join(options, which, port);
    if (err != 0) {
        free(port);
        return err;
    }
    if (sl_module_eal_join() != 0) {
        sl_module_device_leave(port);
        free(port);
        return SL_ERR_UNSUPPORTED;
    }
    sl_module_wake_open(port);
    module_port_look(&port->look, 0);
    *out = &port->base;
    return 0;
}

static bool is_ours(const struct sl_dpdk_device *wanted, const struct sl_reactor *reactor)
{
    const uint32_t index = sl_module_host->reactor_index(reactor);
    return index >= wanted->first_reactor &&
           (wanted->reactors == 0 || index - wanted->first_reactor < wanted->reactors);
}

/* Waits at most 0.1 s until the device has read all tails in the program's memory. */
static void module_port_drain(struct sl_module_port *port)
{
    for (uint32_t i = 0; i < DRAIN_TRIES && port->lent > 0; i++) {
        for (uint16_t queue = 0; queue < port->device->queues; queue++) {
            if (sl_module_device_owner(port->device, queue) == port->index) {
                (void)rte_eth_tx_done_cleanup(port->id, queue, 0);
            }
        }
        (void)nanosleep(&(struct timespec){.tv_nsec = DRAIN_PAUSE_NS}, NULL);
    }
    if (port->lent > 0) {
        module_log(SL_LOG_ERROR, "dpdk: %s: still has %u packets to send after a tenth of a second",
                   port->device->name, port->lent);
    }
}

static void forget_tail(struct rte_mempool *pool, void *closing, void *object, unsigned index)
{
    struct sl_module_rest *tail = rte_mbuf_to_priv(object);
    if (tail->port == closing) {
        tail->port = NULL;
        tail->pending = NULL;
    }
}

/* Detaches tails from a closing port: a device without a link may keep them until it stops, when no
 * counter exists any more. */
static void forget_rests(struct sl_module_port *port)
{
    if (port->lent > 0) {
        (void)rte_mempool_obj_iter(port->rests, forget_tail, port);
    }
}

static void port_close(struct sl_dpdk_port **closing)
{
    struct sl_module_port *port = port_of(*closing);
    sl_module_host->timer_disarm(port->base.reactor, &port->look);
    module_port_drain(port);
    forget_rests(port);
    sl_module_wake_close(port);
    sl_module_device_leave(port);
    sl_module_eal_leave();
    free(port);
    *closing = NULL;
}

static int port_open(void *medium, struct sl_reactor *reactor, struct sl_dpdk_port **ports,
                     uint32_t max)
{
    const struct sl_dpdk_options *options = medium;
    uint32_t count = 0;
    if (options == NULL || options->device_count == 0) {
        module_log(SL_LOG_ERROR, "dpdk: no device is named, nor its address");
        return SL_ERR_INVALID;
    }
    for (uint32_t i = 0; i < options->device_count; i++) {
        if (!is_ours(&options->devices[i], reactor)) {
            continue;
        }
        const int err =
            count < max ? open_one(options, i, reactor, &ports[count]) : SL_ERR_TOO_LARGE;
        if (err != 0) {
            while (count > 0) {
                port_close(&ports[--count]);
            }
            return err;
        }
        count++;
    }
    if (count == 0) {
        module_log(SL_LOG_ERROR, "dpdk: none of the devices is for reactor %u",
                   sl_module_host->reactor_index(reactor));
        return SL_ERR_NOT_FOUND;
    }
    return (int)count;
}

static void port_info(const struct sl_dpdk_port *base, struct sl_dpdk_port_info *out)
{
    const struct sl_module_port *port = (const struct sl_module_port *)base;
    const struct sl_module_device *device = port->device;
    *out = (struct sl_dpdk_port_info){
        .self = device->self,
        .port_base = device->port_base,
        .frame_bytes_max = device->frame_bytes_max,
        .packets = device->packets,
        .tx_gather = port->gathers,
        .tx_checksum = port->checksums,
        .rx_interrupt = port->wake.watch != NULL,
        .is_one_peers = sl_module_has(device, SL_MODULE_STRAIGHT),
        .queues = {.queues = device->queues,
                   .reactors = device->reactors,
                   .index = port->index,
                   .blocks = sl_module_has(device, SL_MODULE_BLOCKS),
                   .straight = sl_module_has(device, SL_MODULE_STRAIGHT)},
    };
    memcpy(out->name, device->name, sizeof out->name);
}

static bool port_link_is_up(struct sl_dpdk_port *base)
{
    const struct sl_module_port *port = port_of(base);
    return port->on && sl_module_device_link(port->device);
}

/* Receiving */

static uint32_t take_received(struct sl_module_port *port, struct rte_mbuf **mbufs, uint32_t count,
                              uint16_t queue, struct sl_dpdk_packet *packets)
{
    uint32_t done = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct rte_mbuf *mbuf = mbufs[i];
        if (mbuf->nb_segs != 1 || mbuf->data_len > port->device->frame_bytes_max) {
            port->stats.dropped++; /* longer than the MTU */
            rte_pktmbuf_free(mbuf);
            continue;
        }
        packets[done++] = (struct sl_dpdk_packet){
            .bytes = rte_pktmbuf_mtod(mbuf, uint8_t *),
            .length = mbuf->data_len,
            .room = port->device->frame_bytes_max,
            .queue = queue,
            .checked =
                (mbuf->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK) == RTE_MBUF_F_RX_L4_CKSUM_GOOD &&
                (mbuf->ol_flags & RTE_MBUF_F_RX_IP_CKSUM_MASK) != RTE_MBUF_F_RX_IP_CKSUM_BAD,
            .token = mbuf};
    }
    return done;
}

/* Frees sent packets, which a device may keep until it sends more. */
static void reclaim(struct sl_module_port *port)
{
    for (uint16_t queue = 0; queue < port->device->queues && port->lent > 0; queue++) {
        if (sl_module_device_owner(port->device, queue) == port->index) {
            (void)rte_eth_tx_done_cleanup(port->id, queue, 0);
        }
    }
}

static uint32_t port_receive(struct sl_dpdk_port *base, struct sl_dpdk_packet *packets,
                             uint32_t count)
{
    struct sl_module_port *port = port_of(base);
    struct rte_mbuf *mbufs[SL_DPDK_BURST];
    uint32_t done = 0;
    if (!port->on) {
        return 0;
    }
    for (uint16_t i = 0; i < port->queue_count && done < count; i++) {
        const uint16_t queue = port->queues[port->next_queue];
        const uint32_t room = count - done < SL_DPDK_BURST ? count - done : SL_DPDK_BURST;
        const uint16_t got = rte_eth_rx_burst(port->id, queue, mbufs, (uint16_t)room);
        done += take_received(port, mbufs, got, queue, packets + done);
        port->next_queue++;
        port->next_queue = port->next_queue < port->queue_count ? port->next_queue : 0;
    }
    if (port->wake.armed && (done > 0 || !sl_module_host->watch_is_set(port->wake.watch))) {
        sl_module_wake_disarm(port);
    }
    port->stats.received += done;
    if (port->lent > 0) {
        reclaim(port);
    }
    return done;
}

static void port_release(struct sl_dpdk_port *base, struct sl_dpdk_packet *packets, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        rte_pktmbuf_free_seg(packets[i].token);
        packets[i].token = NULL;
    }
}

/* Sending */

static uint32_t port_reserve(struct sl_dpdk_port *base, struct sl_dpdk_packet *packets,
                             uint32_t count)
{
    struct sl_module_port *port = port_of(base);
    struct rte_mbuf *mbufs[SL_DPDK_BURST];
    count = count < SL_DPDK_BURST ? count : SL_DPDK_BURST;
    if (rte_pktmbuf_alloc_bulk(port->pool, mbufs, count) != 0) {
        port->stats.reserve_failed++;
        return 0;
    }
    for (uint32_t i = 0; i < count; i++) {
        packets[i] = (struct sl_dpdk_packet){.bytes = rte_pktmbuf_mtod(mbufs[i], uint8_t *),
                                             .room = port->device->frame_bytes_max,
                                             .token = mbufs[i]};
    }
    return count;
}

static void module_port_on_read(void *bytes, void *ctx)
{
    struct sl_module_rest *tail = ctx;
    if (tail->port != NULL) {
        tail->port->lent--;
    }
    if (tail->pending != NULL) {
        --*tail->pending;
    }
}

static bool attach_tail(struct sl_module_port *port, const struct sl_dpdk_packet *packet,
                        struct rte_mbuf *mbuf)
{
    struct rte_mbuf *second = rte_pktmbuf_alloc(port->rests);
    if (second == NULL) {
        return false;
    }
    struct sl_module_rest *tail = rte_mbuf_to_priv(second);
    *tail = (struct sl_module_rest){.info = {.free_cb = module_port_on_read, .fcb_opaque = tail},
                                    .port = port,
                                    .pending = packet->pending};
    rte_mbuf_ext_refcnt_set(&tail->info, 1);
    void *bytes = (void *)(uintptr_t)packet->tail; /* never written to */
    rte_pktmbuf_attach_extbuf(second, bytes, (uintptr_t)bytes, (uint16_t)packet->tail_length,
                              &tail->info);
    second->data_off = 0;
    second->data_len = (uint16_t)packet->tail_length;
    mbuf->next = second;
    mbuf->nb_segs = 2;
    mbuf->pkt_len += packet->tail_length;
    port->lent++;
    return true;
}

/* The device did not take the packet: restores it for the caller. */
static void detach_tail(struct rte_mbuf *mbuf)
{
    struct rte_mbuf *second = mbuf->next;
    if (second != NULL) {
        struct sl_module_rest *tail = rte_mbuf_to_priv(second);
        tail->pending = NULL;
        mbuf->next = NULL;
        mbuf->nb_segs = 1;
        rte_pktmbuf_free_seg(second);
    }
}

/* The device adds its sum to the pseudo header checksum in the field. */
static void ask_for_checksum(struct rte_mbuf *mbuf)
{
    uint8_t *ip = rte_pktmbuf_mtod(mbuf, uint8_t *) + ETHERNET_BYTES;
    const bool is_v6 = ip[0] >> 4 == 6;
    mbuf->l2_len = ETHERNET_BYTES;
    mbuf->l3_len = is_v6 ? sizeof(struct rte_ipv6_hdr) : sizeof(struct rte_ipv4_hdr);
    mbuf->ol_flags |= RTE_MBUF_F_TX_UDP_CKSUM;
    mbuf->ol_flags |= is_v6 ? RTE_MBUF_F_TX_IPV6 : RTE_MBUF_F_TX_IPV4;
    struct rte_udp_hdr *udp = (struct rte_udp_hdr *)(ip + mbuf->l3_len);
    udp->dgram_cksum = is_v6 ? rte_ipv6_phdr_cksum((struct rte_ipv6_hdr *)ip, mbuf->ol_flags)
                             : rte_ipv4_phdr_cksum((struct rte_ipv4_hdr *)ip, mbuf->ol_flags);
}

static bool make_mbuf(struct sl_module_port *port, const struct sl_dpdk_packet *packet,
                      struct rte_mbuf **out)
{
    struct rte_mbuf *mbuf = packet->token;
    mbuf->data_len = (uint16_t)packet->length;
    mbuf->pkt_len = packet->length;
    mbuf->ol_flags = 0;
    mbuf->nb_segs = 1;
    mbuf->next = NULL;
    if (packet->tail_length > 0 && !attach_tail(port, packet, mbuf)) {
        return false;
    }
    if (packet->unchecked) {
        ask_for_checksum(mbuf);
    }
    *out = mbuf;
    return true;
}

static void clear_checksum(struct rte_mbuf *mbuf)
{
    if ((mbuf->ol_flags & RTE_MBUF_F_TX_UDP_CKSUM) != 0) {
        uint8_t *udp = rte_pktmbuf_mtod(mbuf, uint8_t *) + mbuf->l2_len + mbuf->l3_len;
        ((struct rte_udp_hdr *)udp)->dgram_cksum = 0;
    }
}

/* Sends packets for one queue. */
static uint32_t send_run(struct sl_module_port *port, const struct sl_dpdk_packet *packets,
                         uint32_t count)
{
    struct rte_mbuf *mbufs[SL_DPDK_BURST];
    uint16_t ready = 0;
    const uint16_t queue = packets[0].queue;
    while (ready < count && make_mbuf(port, &packets[ready], &mbufs[ready])) {
        ready++;
    }
    uint16_t fit = ready;
    if (port->checksums) {
        fit = rte_eth_tx_prepare(port->id, queue, mbufs, ready);
    }
    const uint16_t sent = fit > 0 ? rte_eth_tx_burst(port->id, queue, mbufs, fit) : 0;
    for (uint16_t i = sent; i < ready; i++) {
        detach_tail(mbufs[i]);
        clear_checksum(mbufs[i]);
    }
    return sent;
}

static uint32_t port_send(struct sl_dpdk_port *base, const struct sl_dpdk_packet *packets,
                          uint32_t count)
{
    struct sl_module_port *port = port_of(base);
    uint32_t done = 0;
    if (!port->on) {
        return 0;
    }
    while (done < count) {
        uint32_t run = 1;
        while (done + run < count && run < SL_DPDK_BURST &&
               packets[done + run].queue == packets[done].queue) {
            run++;
        }
        const uint32_t sent = send_run(port, packets + done, run);
        done += sent;
        if (sent < run) {
            break;
        }
    }
    port->stats.sent += done;
    return done;
}

/* Tails are returned only by polling, so that the reactor may not sleep while any are lent. Without
 * interrupts the caller sets a timer. */
static bool port_arm(struct sl_dpdk_port *base)
{
    struct sl_module_port *port = port_of(base);
    return port->lent == 0 && (port->wake.watch == NULL || sl_module_wake_arm(port));
}

/* Memory, statistics */

static int port_memory_register(struct sl_dpdk_port *base, void *memory, size_t bytes)
{
    return sl_module_memory_add(port_of(base)->device, memory, bytes);
}

static void port_memory_unregister(struct sl_dpdk_port *base, void *memory)
{
    module_port_drain(port_of(base));
    sl_module_memory_remove(port_of(base)->device, memory);
}

static void port_stats(const struct sl_dpdk_port *base, struct sl_dpdk_port_stats *out)
{
    const struct sl_module_port *port = (const struct sl_module_port *)base;
    struct rte_eth_stats stats;
    *out = port->stats;
    /* These count for the whole device: only the first port reports them. */
    if (port->index == 0 && rte_eth_stats_get(port->id, &stats) == 0) {
        out->dropped += stats.imissed + stats.rx_nombuf;
    }
}

const struct sl_dpdk_port_ops sl_module_ports = {
    .open = port_open,
    .close = port_close,
    .info = port_info,
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
