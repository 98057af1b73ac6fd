#include "net/dpdk/dpdk.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "core/log.h"
#include "net/dpdk/conn.h"
#include "net/dpdk/conn_table.h"
#include "net/dpdk/connect.h"
#include "net/dpdk/end.h"
#include "net/dpdk/listen.h"
#include "net/dpdk/liveness.h"
#include "net/dpdk/misrouted_packets.h"
#include "net/dpdk/module.h"
#include "net/dpdk/poll.h"
#include "net/dpdk/receive.h"
#include "net/dpdk/send_queue.h"
#include "net/dpdk/time_wait.h"

#define IDLE_MAX_NS SL_CLOCK_NS_PER_MS
#define GRANT_STEP  (4U * SL_DPDK_UNSCHEDULED_BYTES)

/* The timer's only purpose is the poll that follows. */
static void on_idle(struct sl_timer *timer, uint64_t now_ns)
{
}

/* Sets the timer that polls ports without interrupts. Its interval doubles while nothing arrives,
 * so that busy ports have little latency and idle ones cost little. */
static void set_alarm(struct sl_dpdk *dpdk)
{
    sl_reactor_arm(dpdk->base.reactor, &dpdk->idle.timer, dpdk->idle.ns);
    dpdk->idle.ns = 2 * dpdk->idle.ns < IDLE_MAX_NS ? 2 * dpdk->idle.ns : IDLE_MAX_NS;
}

static bool dpdk_arm(struct sl_transport *transport)
{
    struct sl_dpdk *dpdk = (struct sl_dpdk *)transport;
    bool all_wake = true;
    if (!sl_list_empty(&dpdk->dirty) || dpdk->awake) {
        return false;
    }
    for (uint32_t i = 0; i < dpdk->netif_count; i++) {
        struct sl_dpdk_netif *netif = &dpdk->netifs[i];
        if (netif->out_count > 0 || !netif->port->ops->arm(netif->port)) {
            return false;
        }
        all_wake = all_wake && netif->info.rx_interrupt;
    }
    if (!all_wake) {
        set_alarm(dpdk);
    }
    return true;
}

/* Memory */

static void unregister_with(struct sl_dpdk *dpdk, uint32_t netif_count, void *base)
{
    for (uint32_t i = 0; i < netif_count; i++) {
        struct sl_dpdk_port *port = dpdk->netifs[i].port;
        if (dpdk->netifs[i].info.tx_gather) {
            port->ops->memory_unregister(port, base);
        }
    }
}

/* If no port gathers, or the device takes no more regions, the memory is sent by copies. */
static int dpdk_memory_register(struct sl_transport *transport, void *base, size_t bytes)
{
    struct sl_dpdk *dpdk = (struct sl_dpdk *)transport;
    if (dpdk->region_count == SL_DPDK_REGIONS) {
        return 0;
    }
    for (uint32_t i = 0; i < dpdk->netif_count; i++) {
        struct sl_dpdk_port *port = dpdk->netifs[i].port;
        int err =
            dpdk->netifs[i].info.tx_gather ? port->ops->memory_register(port, base, bytes) : 0;
        if (err != 0) {
            unregister_with(dpdk, i, base);
            return err == SL_ERR_UNSUPPORTED ? 0 : err;
        }
    }
    dpdk->regions[dpdk->region_count++] = (struct sl_dpdk_region){.base = base, .bytes = bytes};
    return 0;
}

static void dpdk_memory_unregister(struct sl_transport *transport, void *base)
{
    struct sl_dpdk *dpdk = (struct sl_dpdk *)transport;
    for (uint32_t i = 0; i < dpdk->region_count; i++) {
        if (dpdk->regions[i].base == base) {
            dpdk->regions[i] = dpdk->regions[--dpdk->region_count];
            unregister_with(dpdk, dpdk->netif_count, base);
            return;
        }
    }
}

/* Open and close */

static int open_ports(struct sl_dpdk *dpdk, const struct sl_dpdk_medium *medium)
{
    struct sl_dpdk_port *ports[SL_DPDK_PORTS];
    int count = medium->ops->open(medium->ctx, dpdk->base.reactor, ports, SL_DPDK_PORTS);
    if (count < 0) {
        return count;
    }
    int err = count > 0 ? 0 : SL_ERR_NOT_FOUND;
    for (int i = 0; i < count; i++) {
        struct sl_dpdk_netif *netif = &dpdk->netifs[dpdk->netif_count++];
        netif->port = ports[i];
        netif->port->ops->info(netif->port, &netif->info);
        sl_assert(!netif->info.tx_gather || netif->info.tx_checksum);
        err = err != 0 ? err : sl_dpdk_neighbours_open(&netif->info.self, &netif->neighbours);
    }
    return err;
}

/* A reactor must have the same index at all its devices: it determines the reactor's UDP port, and
 * so the receiver of a packet. */
static int check_ports(const struct sl_dpdk *dpdk)
{
    const struct sl_dpdk_port_info *first = &dpdk->netifs[0].info;
    if (first->port_base + first->queues.reactors - 1U > UINT16_MAX) {
        sl_log_error("dpdk: UDP port %u, and the next for each of %u reactors: there is none above "
                     "%u: take a lower one",
                     first->port_base, first->queues.reactors, UINT16_MAX);
        return SL_ERR_INVALID;
    }
    for (uint32_t i = 1; i < dpdk->netif_count; i++) {
        const struct sl_dpdk_port_info *info = &dpdk->netifs[i].info;
        if (info->queues.reactors != first->queues.reactors ||
            info->queues.index != first->queues.index) {
            sl_log_error("dpdk: %s and %s are not for the same reactors: give both all of them",
                         first->name, info->name);
            return SL_ERR_INVALID;
        }
    }
    return 0;
}

/* The last packets may lie in registered memory, which is therefore unregistered afterwards. */
static void close_ports(struct sl_dpdk *dpdk)
{
    for (uint32_t i = 0; i < dpdk->netif_count; i++) {
        struct sl_dpdk_netif *netif = &dpdk->netifs[i];
        if (netif->out_count > 0) {
            sl_dpdk_netif_send(dpdk, netif);
            netif->port->ops->release(netif->port, netif->out, netif->out_count);
            netif->out_count = 0;
        }
    }
    while (dpdk->region_count > 0) {
        dpdk_memory_unregister(&dpdk->base, dpdk->regions[0].base);
    }
    for (uint32_t i = 0; i < dpdk->netif_count; i++) {
        struct sl_dpdk_netif *netif = &dpdk->netifs[i];
        const struct sl_dpdk_port_ops *ops = netif->port->ops;
        ops->release(netif->port, netif->spare, netif->spare_count);
        sl_dpdk_neighbours_close(&netif->neighbours);
        ops->close(&netif->port);
    }
    dpdk->netif_count = 0;
}

/* On a stepped reactor (simulation) the seed determines the secret; else it is unpredictable. */
static void make_secret(struct sl_dpdk *dpdk)
{
    struct sl_reactor *reactor = dpdk->base.reactor;
    uint64_t words[2] = {sl_reactor_random(reactor), sl_reactor_random(reactor)};
    static_assert(sizeof words == sizeof dpdk->ids.secret, "both of the secret's halves");
    if (sl_reactor_ring(reactor) != NULL) {
        (void)!getrandom(words, sizeof words, 0);
    }
    memcpy(dpdk->ids.secret, words, sizeof words);
    dpdk->ids.boot_epoch = (uint16_t)sl_dpdk_conn_table_random(dpdk);
}

static void set_ports(struct sl_dpdk *dpdk)
{
    const struct sl_dpdk_port_info *info = &dpdk->netifs[0].info;
    dpdk->settings.port_base = info->port_base;
    dpdk->settings.port = (uint16_t)(info->port_base + info->queues.index);
    dpdk->idle.ns = SL_DPDK_IDLE_NS_MIN;
    dpdk->idle.timer.run = on_idle;
}

static void dpdk_unmake(struct sl_dpdk *dpdk)
{
    close_ports(dpdk);
    sl_dpdk_time_wait_close(dpdk);
    free(dpdk);
}

/* No medium: the plug-in. Its ports only read the options. */
static int find_medium(const struct sl_transport_options *options, struct sl_dpdk_medium *out)
{
    if (options->medium != NULL) {
        *out = *(const struct sl_dpdk_medium *)options->medium;
        return 0;
    }
    const char *why;
    *out = (struct sl_dpdk_medium){.ops = sl_dpdk_module_ports(&why),
                                   .ctx = (void *)(uintptr_t)options->dpdk};
    if (out->ops == NULL) {
        sl_log_error("dpdk: %s", why);
        return SL_ERR_UNSUPPORTED;
    }
    return 0;
}

static int dpdk_open(struct sl_reactor *reactor, const struct sl_transport_options *options,
                     struct sl_transport **out)
{
    struct sl_dpdk_medium medium;
    int err = find_medium(options, &medium);
    if (err != 0) {
        return err;
    }
    struct sl_dpdk *dpdk = calloc(1, sizeof *dpdk);
    if (dpdk == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    sl_transport_init(&dpdk->base, reactor, options);
    sl_list_init(&dpdk->dirty);
    sl_list_init(&dpdk->ready);
    err = open_ports(dpdk, &medium);
    err = err != 0 ? err : check_ports(dpdk);
    err = err != 0 ? err : sl_dpdk_time_wait_open(dpdk);
    err = err != 0 ? err : sl_dpdk_store_open(dpdk);
    if (err != 0) {
        dpdk_unmake(dpdk);
        return err;
    }
    set_ports(dpdk);
    make_secret(dpdk);
    sl_dpdk_grants_init(&dpdk->grants, SL_DPDK_BUDGET_BYTES, SL_DPDK_UNSCHEDULED_BYTES, GRANT_STEP);
    sl_dpdk_liveness_open(dpdk);
    sl_dpdk_misrouted_packets_open(dpdk, sl_dpdk_poll_take_misrouted);
    *out = &dpdk->base;
    return 0;
}

static void dpdk_close(struct sl_transport **transport)
{
    struct sl_dpdk *dpdk = (struct sl_dpdk *)*transport;
    sl_dpdk_misrouted_packets_close(dpdk);
    sl_dpdk_listen_close(dpdk);
    sl_dpdk_conn_end_all(dpdk);
    close_ports(dpdk); /* no device reads memory of connections after this */
    sl_dpdk_conn_cancel_all(dpdk);
    sl_dpdk_liveness_close(dpdk);
    sl_reactor_disarm(dpdk->base.reactor, &dpdk->idle.timer);
    sl_dpdk_store_close(dpdk);
    sl_dpdk_conn_free_all(dpdk);
    dpdk_unmake(dpdk);
    *transport = NULL;
}

const struct sl_transport_ops sl_dpdk_ops = {
    .scheme = "dpdk",
    .capabilities = SL_TRANSPORT_REGISTERS | SL_TRANSPORT_MULTI_FRAME | SL_TRANSPORT_COALESCES |
                    SL_TRANSPORT_CHECKSUMS,
    .open = dpdk_open,
    .close = dpdk_close,
    .memory_register = dpdk_memory_register,
    .memory_unregister = dpdk_memory_unregister,
    .listen = sl_dpdk_listen,
    .connect = sl_dpdk_connect,
    .disconnect = sl_dpdk_conn_disconnect,
    .send_burst = sl_dpdk_send_burst,
    .release = sl_dpdk_receive_release,
    .flush = sl_dpdk_flush,
    .poll = sl_dpdk_poll,
    .arm = dpdk_arm,
};
