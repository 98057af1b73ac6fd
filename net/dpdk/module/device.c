/* Manages devices: queues, packet pools, the reactors that share a device, its link. The first port
 * opens a device, the last one stops it; it is kept with its memory for later ports. */
#include "net/dpdk/module/device.h"

#include <errno.h>
#include <pthread.h>
#include <rte_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "net/dpdk/module/eal.h"
#include "net/dpdk/module/find.h"
#include "net/dpdk/module/flow.h"
#include "net/dpdk/module/kernel.h"
#include "net/dpdk/module/memif_arguments.h"

#define DESCRIPTORS   1024U
#define PACKETS       2048U /* packets that a port lends; jumbo frames: half */
#define RESERVED      1024U /* reserved packets, and packets inside a device that copies */
#define CACHE         256U
#define RESTS         1024U
#define OVERHEAD      512U /* of a packet buffer: DPDK's headers, headroom */
#define PAGE_BYTES    4096U
#define MTU           1500U
#define MTU_MAX       9600U
#define MTU_LEAST     576U
#define EAL_BYTES     (64ULL << 20)
#define LOOK_NS       (100 * SL_CLOCK_NS_PER_MS)
#define LOOK_AGAIN_NS (10 * SL_CLOCK_NS_PER_MS)
#define REDIAL_NS     (500 * SL_CLOCK_NS_PER_MS)
#define DOWN_NS       (3 * SL_CLOCK_NS_PER_S)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sl_module_device *devices;

static uint64_t module_device_now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SL_CLOCK_NS_PER_S + (uint64_t)now.tv_nsec;
}

static int module_device_refuse(const struct sl_module_device *device, const char *what, int code)
{
    module_log(SL_LOG_ERROR, "dpdk: %s: %s: %s", device->name, what, rte_strerror(code));
    return code == ENOMEM ? SL_ERR_NO_MEMORY : SL_ERR_IO;
}

/* Sizes */

static uint32_t room_of(const struct sl_module_device *device)
{
    uint32_t bytes = device->frame_bytes_max + 12U; /* VLAN tags and frame check sequence */
    bytes = bytes > device->traits.room_bytes_min ? bytes : device->traits.room_bytes_min;
    return RTE_PKTMBUF_HEADROOM + RTE_ALIGN_CEIL(bytes < 2048U ? 2048U : bytes, 64U);
}

static uint32_t pool_count(const struct sl_module_device *device)
{
    const uint32_t share = device->queues / device->reactors;
    const uint32_t kept =
        device->traits.packets_kept != 0 ? device->traits.packets_kept : 2 * DESCRIPTORS;
    return device->packets + RESERVED + 2 * CACHE +
           (sl_module_has(device, SL_MODULE_COPIES) ? 0 : share * kept);
}

static uint32_t queues_of(const struct sl_dpdk_device *wanted, uint32_t reactor_count)
{
    const uint32_t reactors = wanted->reactors != 0 ? wanted->reactors : reactor_count;
    return wanted->queues != 0 ? wanted->queues : reactors;
}

/* The size of a packet buffer, estimated from the options before the device exists. Without huge
 * pages DPDK places no buffer across two pages if it fits into one. */
static uint64_t packet_bytes(const struct sl_dpdk_device *wanted, bool is_memif)
{
    uint64_t frame = wanted->mtu > 2048 ? rte_align32pow2(wanted->mtu) : 2048; /* kernel's rings */
    if (is_memif) {
        struct sl_module_memif_arguments arguments;
        (void)sl_module_memif_arguments_read(wanted->arguments, &arguments);
        frame = arguments.buffer_bytes;
        if (wanted->mtu != 0) {
            frame = wanted->mtu + RTE_ETHER_HDR_LEN;
        }
    }
    return RTE_ALIGN_CEIL(frame + OVERHEAD, PAGE_BYTES);
}

/* The memory of all devices of the options, for the EAL to reserve. */
static uint64_t bytes_of(const struct sl_dpdk_options *options, uint32_t reactor_count)
{
    uint64_t bytes = EAL_BYTES;
    for (uint32_t i = 0; i < options->device_count; i++) {
        const struct sl_dpdk_device *wanted = &options->devices[i];
        const bool is_memif = wanted->name != NULL && strncmp(wanted->name, "net_memif", 9) == 0;
        const uint64_t reactors = wanted->reactors != 0 ? wanted->reactors : reactor_count;
        const uint64_t kept = is_memif ? 0 : queues_of(wanted, reactor_count) * 4 * DESCRIPTORS;
        bytes +=
            (reactors * (PACKETS + RESERVED + 2 * CACHE) + kept) * packet_bytes(wanted, is_memif);
        bytes +=
            reactors * (RESTS * OVERHEAD + 2 * RTE_MAX_LCORE * sizeof(struct rte_mempool_cache));
    }
    return bytes;
}

/* Configuration by the first port, under the lock */

static int set_mtu(struct sl_module_device *device, uint16_t wanted)
{
    struct sl_module_kernel kernel = {.mtu = MTU};
    uint32_t most = device->traits.frame_bytes_max != 0
                        ? device->traits.frame_bytes_max - RTE_ETHER_HDR_LEN
                        : MTU_MAX;
    most = most < MTU_MAX ? most : MTU_MAX;
    if (sl_module_has(device, SL_MODULE_KERNELS)) {
        most = most < device->info.max_mtu ? most : device->info.max_mtu;
        const uint32_t head = device->traits.head_bytes + RTE_ETHER_HDR_LEN;
        if (device->traits.room_bytes_min > head && most > device->traits.room_bytes_min - head) {
            most = device->traits.room_bytes_min - head;
        }
        (void)sl_module_kernel_look(&device->info, &kernel);
    }
    uint32_t mtu = wanted;
    if (wanted == 0) {
        mtu = device->traits.frame_bytes_max != 0 ? most : kernel.mtu < MTU ? kernel.mtu : MTU;
    }
    if (mtu < MTU_LEAST || mtu > most) {
        module_log(SL_LOG_ERROR, "dpdk: %s: its mtu cannot be %u: from %u to %u%s", device->name,
                   mtu, MTU_LEAST, most,
                   device->traits.frame_bytes_max != 0  ? " (memif: bsize less 14)"
                   : device->traits.room_bytes_min != 0 ? " (framesz less what goes with a frame)"
                                                        : "");
        return SL_ERR_INVALID;
    }
    device->mtu = (uint16_t)mtu;
    device->frame_bytes_max = (uint16_t)(mtu + RTE_ETHER_HDR_LEN);
    device->packets = mtu > 2048 ? PACKETS / 2 : PACKETS;
    return 0;
}

static int set_queues(struct sl_module_device *device, const struct sl_dpdk_device *wanted,
                      uint32_t reactor_count)
{
    const uint32_t reactors = wanted->reactors != 0 ? wanted->reactors : reactor_count;
    const uint32_t queues = queues_of(wanted, reactor_count);
    const uint32_t rx_most = device->info.max_rx_queues, tx_most = device->info.max_tx_queues;
    if (reactors > SL_MODULE_REACTORS || queues % reactors != 0 || queues > tx_most ||
        rx_most == 0 || (sl_module_has(device, SL_MODULE_STRAIGHT) && queues > rx_most)) {
        module_log(SL_LOG_ERROR,
                   "dpdk: %s: %u reactors cannot share %u queues of %u: take a multiple of the "
                   "reactors, fewer of these, or a device with more (net_af_packet: qpairs=)",
                   device->name, reactors, queues, tx_most);
        return SL_ERR_INVALID;
    }
    device->reactors = (uint16_t)reactors;
    device->queues = (uint16_t)queues;
    device->rx_queues = (uint16_t)(queues < rx_most ? queues : rx_most);
    device->first_reactor = wanted->first_reactor;
    return 0;
}

static void set_offloads(struct sl_module_device *device, struct rte_eth_conf *conf)
{
    const struct rte_eth_dev_info *info = &device->info;
    const uint64_t checksums = RTE_ETH_TX_OFFLOAD_IPV4_CKSUM | RTE_ETH_TX_OFFLOAD_UDP_CKSUM;
    const uint64_t received = RTE_ETH_RX_OFFLOAD_IPV4_CKSUM | RTE_ETH_RX_OFFLOAD_UDP_CKSUM;
    /* AF_XDP ignores segments; vhost needs a descriptor for all memory that DPDK knows. */
    const bool is_sound = strcmp(info->driver_name, "net_af_xdp") != 0 &&
                          strcmp(info->driver_name, "net_virtio_user") != 0 &&
                          strcmp(info->driver_name, "net_vhost") != 0;
    device->offloads.checksums = (info->tx_offload_capa & checksums) == checksums;
    device->offloads.sees_checksums = (info->rx_offload_capa & received) == received;
    device->offloads.gathers =
        is_sound && device->offloads.checksums &&
        (info->tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS) != 0 &&
        (sl_module_has(device, SL_MODULE_COPIES) || rte_eal_iova_mode() == RTE_IOVA_VA);
    conf->txmode.offloads = (device->offloads.checksums ? checksums : 0) |
                            (device->offloads.gathers ? RTE_ETH_TX_OFFLOAD_MULTI_SEGS : 0);
    conf->rxmode.offloads = device->offloads.sees_checksums ? received : 0;
    const uint64_t hashed = info->flow_type_rss_offloads &
                            (RTE_ETH_RSS_NONFRAG_IPV4_UDP | RTE_ETH_RSS_NONFRAG_IPV6_UDP);
    if (device->rx_queues > 1 && hashed != 0) {
        conf->rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
        conf->rx_adv_conf.rss_conf.rss_hf = hashed;
    }
}

static int make_pools(struct sl_module_device *device)
{
    static uint32_t made;
    for (uint32_t i = 0; i < device->reactors; i++) {
        char name[RTE_MEMPOOL_NAMESIZE];
        (void)snprintf(name, sizeof name, "sl%u", made++);
        device->pools[i] = rte_pktmbuf_pool_create_by_ops(
            name, pool_count(device), CACHE, 0, (uint16_t)room_of(device),
            rte_eth_dev_socket_id(device->id), "ring_sp_sc");
        if (device->pools[i] != NULL && device->offloads.gathers) {
            (void)snprintf(name, sizeof name, "sl%u", made++);
            device->rests[i] = rte_pktmbuf_pool_create_by_ops(
                name, RESTS, CACHE,
                RTE_ALIGN_CEIL(sizeof(struct sl_module_rest), RTE_MBUF_PRIV_ALIGN), 0,
                rte_eth_dev_socket_id(device->id), "ring_sp_sc");
        }
        /* AF_XDP's driver requires a pool in contiguous memory. */
        const bool split = sl_module_has(device, SL_MODULE_SINGLE) && device->pools[i] != NULL &&
                           device->pools[i]->nb_mem_chunks != 1;
        if (device->pools[i] == NULL || split ||
            (device->offloads.gathers && device->rests[i] == NULL)) {
            return module_device_refuse(
                device,
                "no memory for its packets: reserve more huge pages, or give "
                "STARLING_DPDK_EAL_ARGS a larger -m",
                ENOMEM);
        }
    }
    return 0;
}

static void free_pools(struct rte_mempool **pools)
{
    for (uint32_t i = 0; i < SL_MODULE_REACTORS; i++) {
        rte_mempool_free(pools[i]);
        pools[i] = NULL;
    }
}

static int set_up_queues(struct sl_module_device *device)
{
    uint16_t received = DESCRIPTORS, sent = DESCRIPTORS;
    (void)rte_eth_dev_adjust_nb_rx_tx_desc(device->id, &received, &sent);
    const int socket = rte_eth_dev_socket_id(device->id);
    int err = 0;
    for (uint16_t i = 0; i < device->queues && err == 0; i++) {
        struct rte_mempool *pool = device->pools[sl_module_device_owner(device, i)];
        err = rte_eth_tx_queue_setup(device->id, i, sent, (unsigned)socket, NULL);
        if (err == 0 && i < device->rx_queues) {
            err = rte_eth_rx_queue_setup(device->id, i, received, (unsigned)socket, NULL, pool);
        }
    }
    return err != 0 ? module_device_refuse(device, "its queues cannot be set up", -err) : 0;
}

/* DPDK's own function assumes 1500 bytes for AF_PACKET devices. */
static int apply_mtu(const struct sl_module_device *device)
{
    int code = 0;
    if (sl_module_has(device, SL_MODULE_KERNELS)) {
        code = sl_module_kernel_set_mtu(&device->info, device->mtu);
    } else if (device->traits.frame_bytes_max == 0 && device->mtu != MTU) {
        code = -rte_eth_dev_set_mtu(device->id, device->mtu);
    }
    if (code != 0) {
        module_log(SL_LOG_ERROR, "dpdk: %s: its mtu cannot be %u: %s; it has at most %u%s",
                   device->name, device->mtu, strerror(code), device->info.max_mtu,
                   sl_module_has(device, SL_MODULE_KERNELS)
                       ? ", and `ip link set ... mtu` may change it"
                       : "");
        return SL_ERR_INVALID;
    }
    return 0;
}

/* Without a cleanup function, a device frees sent packets only when more are sent, and would keep
 * the last tail for ever. */
static bool gives_back(const struct sl_module_device *device)
{
    return sl_module_has(device, SL_MODULE_COPIES) ||
           rte_eth_tx_done_cleanup(device->id, 0, 0) >= 0;
}

static void module_device_stop(struct sl_module_device *device)
{
    if (device->started) {
        (void)rte_eth_dev_stop(device->id);
        device->started = false;
    }
}

static int configure(struct sl_module_device *device)
{
    struct rte_eth_conf conf = {0};
    struct rte_mempool *pools[SL_MODULE_REACTORS], *rests[SL_MODULE_REACTORS];
    module_device_stop(device);
    memcpy(pools, device->pools, sizeof pools);
    memcpy(rests, device->rests, sizeof rests);
    memset(device->pools, 0, sizeof pools);
    memset(device->rests, 0, sizeof rests);
    device->configured = false;
    set_offloads(device, &conf);
    conf.intr_conf.rxq = sl_module_has(device, SL_MODULE_WAKES);
    const int code = rte_eth_dev_configure(device->id, device->rx_queues, device->queues, &conf);
    int err = code != 0 ? module_device_refuse(device, "it cannot be configured", -code)
                        : make_pools(device);
    err = err != 0 ? err : set_up_queues(device);
    err = err != 0 ? err : apply_mtu(device);
    free_pools(pools); /* no queue uses them any more */
    free_pools(rests);
    device->configured = err == 0;
    return err;
}

/* Whether the configuration is unchanged. */
static bool is_same(const struct sl_module_device *a, const struct sl_module_device *b)
{
    return a->configured && a->queues == b->queues && a->reactors == b->reactors &&
           a->mtu == b->mtu;
}

static int describe(struct sl_module_device *device, const struct sl_dpdk_options *options,
                    uint32_t which, uint32_t reactor_count)
{
    const struct sl_dpdk_device *wanted = &options->devices[which];
    struct rte_ether_addr mac;
    const int code = rte_eth_dev_info_get(device->id, &device->info);
    if (code != 0) {
        return module_device_refuse(device, "it says nothing of itself", -code);
    }
    int err = sl_module_find_traits(&device->info, &device->traits);
    if (err != 0) {
        return err;
    }
    device->port_base =
        (uint16_t)(options->port_base != 0 ? options->port_base : SL_DPDK_PORT_BASE);
    err = sl_module_find_self(wanted, &device->self);
    err = err != 0 ? err : set_mtu(device, wanted->mtu);
    err = err != 0 ? err : set_queues(device, wanted, reactor_count);
    if (err == 0 && rte_eth_macaddr_get(device->id, &mac) == 0) {
        memcpy(device->self.mac, mac.addr_bytes, sizeof device->self.mac);
    }
    return err;
}

/* Start and link, under the lock */

/* The start of a memif client fails while its server does not listen; follow_memif retries. */
static int module_device_begin(struct sl_module_device *device)
{
    const int code = rte_eth_dev_start(device->id);
    device->link.redial_ns = module_device_now_ns() + REDIAL_NS;
    if (code != 0 && sl_module_has(device, SL_MODULE_DIALS)) {
        return 0;
    }
    if (code != 0) {
        return module_device_refuse(device, "it does not start", -code);
    }
    device->started = true;
    (void)rte_eth_allmulticast_enable(device->id); /* neighbour discovery uses multicast */
    if (!sl_module_has(device, SL_MODULE_STRAIGHT) && device->rx_queues > 1) {
        sl_module_flow_steer(device);
    }
    return 0;
}

/* The device has no users. memif stays connected: on a stop the peer's driver would unmap the
 * queues while its reactors use them. */
static void module_device_end(struct sl_module_device *device)
{
    if (!sl_module_has(device, SL_MODULE_STRAIGHT)) {
        module_device_stop(device);
    }
    if (sl_module_has(device, SL_MODULE_ONCE) || sl_module_has(device, SL_MODULE_SINGLE)) {
        sl_module_find_give_back(device);
    }
    if (sl_module_has(device, SL_MODULE_ONCE)) {
        device->configured = false;
        free_pools(device->pools);
        free_pools(device->rests);
    }
}

bool sl_module_device_link(const struct sl_module_device *device)
{
    struct sl_module_kernel kernel;
    struct rte_eth_link link = {0};
    if (sl_module_has(device, SL_MODULE_KERNELS)) {
        return sl_module_kernel_look(&device->info, &kernel) == 0 && kernel.link_is_up;
    }
    return rte_eth_link_get_nowait(device->id, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
}

static void watch_link(struct sl_module_device *device, bool is_up, uint64_t time_ns)
{
    if (is_up) {
        if (!device->link.was_up) {
            module_log(SL_LOG_INFO, "dpdk: %s: its link is up", device->name);
        }
        device->link.since_ns = time_ns;
        device->link.told_down = false;
    } else if (device->link.was_up ||
               (!device->link.told_down &&
                (sl_module_has(device, SL_MODULE_KERNELS) || /* whose link state is known at once */
                 time_ns - device->link.since_ns >= DOWN_NS))) {
        module_log(SL_LOG_WARN, "dpdk: %s: its link is down: %s", device->name,
                   sl_module_has(device, SL_MODULE_STRAIGHT) ? "its peer is not there, or went"
                   : sl_module_has(device, SL_MODULE_KERNELS)
                       ? "`ip link set ... up`, and the cable, the other side"
                       : "look at the cable, the switch, the other side");
        device->link.told_down = true;
    }
    device->link.was_up = is_up;
}

static bool is_in_use(const struct sl_module_device *device)
{
    bool in_use = false;
    for (uint32_t i = 0; i < device->reactors; i++) {
        in_use = in_use || (device->ports[i] != NULL && device->ports[i]->on);
    }
    return in_use;
}

/* memif: the driver maps the queues before the link is up, and reactors use them only then. A
 * client is started again, while no reactor uses its queues, until its server answers. */
static void follow_memif(struct sl_module_port *port, bool link_is_up, uint64_t time_ns)
{
    struct sl_module_device *device = port->device;
    port->on = link_is_up;
    if (link_is_up) {
        device->link.redial_ns = time_ns + REDIAL_NS;
    } else if (sl_module_has(device, SL_MODULE_DIALS) && !is_in_use(device) &&
               time_ns >= device->link.redial_ns) {
        module_device_stop(device);
        (void)module_device_begin(device);
    }
}

uint64_t sl_module_device_look(struct sl_module_port *port)
{
    struct sl_module_device *device = port->device;
    if (pthread_mutex_trylock(&lock) != 0) {
        return LOOK_AGAIN_NS; /* another thread opens a device, which takes long */
    }
    const uint64_t time_ns = module_device_now_ns();
    const bool is_up = device->started && sl_module_device_link(device);
    if (sl_module_has(device, SL_MODULE_STRAIGHT)) {
        follow_memif(port, is_up, time_ns);
    }
    watch_link(device, is_up, time_ns);
    (void)pthread_mutex_unlock(&lock);
    return port->on ? LOOK_NS : LOOK_AGAIN_NS;
}

/* Users */

static struct sl_module_device *get_device(uint16_t id)
{
    char name[RTE_ETH_NAME_MAX_LEN] = "";
    struct sl_module_device *device = devices;
    (void)rte_eth_dev_get_name_by_port(id, name);
    while (device != NULL && strcmp(device->name, name) != 0) {
        device = device->next;
    }
    if (device == NULL) {
        device = calloc(1, sizeof *device);
        if (device == NULL) {
            return NULL;
        }
        memcpy(device->name, name, sizeof device->name);
        device->next = devices;
        devices = device;
    }
    device->id = id; /* changes when the device is created again */
    return device;
}

static int open_device(struct sl_module_device *device, const struct sl_dpdk_options *options,
                       uint32_t which, uint32_t reactor_count)
{
    if (device->configured && sl_module_has(device, SL_MODULE_SINGLE)) {
        module_log(
            SL_LOG_ERROR,
            "dpdk: %s: its driver sets it up but once in a process, and it was in use before",
            device->name);
        return SL_ERR_UNSUPPORTED;
    }
    struct sl_module_device as = *device;
    int err = describe(&as, options, which, reactor_count);
    const bool same = err == 0 && is_same(device, &as);
    if (err != 0) {
        return err;
    }
    *device = as;
    err = same ? 0 : configure(device);
    if (err != 0) {
        return err;
    }
    device->link.since_ns = module_device_now_ns();
    device->link.was_up = device->link.told_down = false;
    if (!device->started) {
        err = module_device_begin(device);
    }
    device->offloads.gathers = device->offloads.gathers && gives_back(device);
    return err;
}

static void take_place(struct sl_module_device *device, struct sl_module_port *port, uint32_t index)
{
    device->ports[index] = port;
    device->users++;
    port->device = device;
    port->index = (uint16_t)index;
    port->id = device->id;
    port->pool = device->pools[index];
    port->rests = device->rests[index];
    port->gathers = device->offloads.gathers;
    port->checksums = device->offloads.checksums;
    port->on = !sl_module_has(device, SL_MODULE_STRAIGHT); /* memif: when its link is up */
    for (uint16_t i = 0; i < device->rx_queues; i++) {
        if (sl_module_device_owner(device, i) == index) {
            port->queues[port->queue_count++] = i;
        }
    }
}

static int join(const struct sl_dpdk_options *options, uint32_t which, struct sl_module_port *port)
{
    const struct sl_dpdk_device *wanted = &options->devices[which];
    const uint32_t group = sl_module_host->reactor_group_count(port->base.reactor);
    const uint32_t index =
        sl_module_host->reactor_index(port->base.reactor) - wanted->first_reactor;
    uint16_t id;
    int err = sl_module_eal_start(options, bytes_of(options, group != 0 ? group : 1));
    err = err != 0 ? err
                   : sl_module_find(options, which, queues_of(wanted, group != 0 ? group : 1), &id);
    if (err != 0) {
        return err;
    }
    struct sl_module_device *device = get_device(id);
    if (device == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    if (device->users == 0) {
        err = open_device(device, options, which, group != 0 ? group : 1);
    }
    if (err == 0 && (index >= device->reactors || device->ports[index] != NULL)) {
        module_log(SL_LOG_ERROR, "dpdk: %s: this reactor's queues of it are in use", device->name);
        err = SL_ERR_INVALID;
    }
    port->queues = err == 0 ? calloc(device->queues, sizeof *port->queues) : NULL;
    if (err == 0 && port->queues == NULL) {
        err = SL_ERR_NO_MEMORY;
    }
    if (err == 0) {
        take_place(device, port, index);
    } else if (device->users == 0) {
        module_device_end(device);
    }
    return err;
}

int sl_module_device_join(const struct sl_dpdk_options *options, uint32_t which,
                          struct sl_module_port *port)
{
    (void)pthread_mutex_lock(&lock);
    const int err = join(options, which, port);
    (void)pthread_mutex_unlock(&lock);
    return err;
}

/* Returns this thread's cache of the pool, before other threads use the pool. */
static void empty_cache(struct rte_mempool *pool)
{
    struct rte_mempool_cache *cache =
        pool != NULL ? rte_mempool_default_cache(pool, rte_lcore_id()) : NULL;
    if (cache != NULL) {
        rte_mempool_cache_flush(cache, pool);
    }
}

void sl_module_device_leave(struct sl_module_port *port)
{
    struct sl_module_device *device = port->device;
    (void)pthread_mutex_lock(&lock);
    device->ports[port->index] = NULL;
    empty_cache(port->pool);
    empty_cache(port->rests);
    if (--device->users == 0) {
        module_device_end(device);
    }
    (void)pthread_mutex_unlock(&lock);
    free(port->queues);
}
