/* The types that the files of the plug-in share. README.md lists the files. */
#ifndef SL_NET_DPDK_MODULE_MODULE_H
#define SL_NET_DPDK_MODULE_MODULE_H

#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include "core/assert.h"
#include "core/err.h"
#include "net/dpdk/dpdk.h"
#include "net/dpdk/module.h"

#define SL_MODULE_REACTORS 256U /* connection ids have 8 bits for the reactor */

extern const struct sl_dpdk_host *sl_module_host;
extern const struct sl_dpdk_port_ops sl_module_ports;

#define module_log(level, ...) sl_module_host->log((level), __VA_ARGS__)

struct sl_module_port;

/* Properties of a device's driver. */
enum sl_module_trait {
    SL_MODULE_STRAIGHT = 1 << 0, /* memif: packets keep their queue number */
    SL_MODULE_COPIES = 1 << 1,   /* a send call has copied the packet when it returns */
    SL_MODULE_DIALS = 1 << 2,    /* memif client: the start fails until its server listens */
    SL_MODULE_BLOCKS = 1 << 3, /* memif client: a reactor has consecutive queues, not every n-th */
    SL_MODULE_ONCE = 1 << 4,   /* after a stop the device must be created again */
    SL_MODULE_SINGLE = 1 << 5, /* it cannot be: AF_XDP's driver leaves its sockets open */
    SL_MODULE_WAKES = 1 << 6,  /* has receive interrupts */
    SL_MODULE_KERNELS = 1 << 7 /* an interface of the kernel, which reports its link state */
};

struct sl_module_traits {
    uint32_t flags;           /* of enum sl_module_trait */
    uint32_t frame_bytes_max; /* 0: as configured */
    uint32_t room_bytes_min;  /* least packet buffer; head_bytes of it are not for the packet */
    uint32_t head_bytes;
    uint32_t packets_kept; /* buffers that each queue holds for receiving and sending */
};

/* A device. It is kept with its memory after the last close. `users` is the number of its open
 * ports. The lock of device.c protects all but the fields that are constant while there are users.
 */
struct sl_module_device {
    struct sl_module_device *next;
    char name[64];
    uint16_t id;
    struct rte_eth_dev_info info;
    struct sl_module_traits traits;
    struct sl_dpdk_self self;
    uint16_t port_base, mtu, frame_bytes_max, packets;
    uint16_t queues, rx_queues, reactors;
    uint32_t first_reactor;
    struct {
        bool gathers, checksums, sees_checksums;
    } offloads;
    struct rte_mempool *pools[SL_MODULE_REACTORS], *rests[SL_MODULE_REACTORS];
    struct sl_module_port *ports[SL_MODULE_REACTORS];
    uint32_t users;
    bool configured, started;
    struct {
        bool was_up, told_down;
        uint64_t since_ns;  /* time of open, or when the link was last up */
        uint64_t redial_ns; /* DIALS: next start while the link is down */
    } link;
};

static inline bool sl_module_has(const struct sl_module_device *device, enum sl_module_trait trait)
{
    return (device->traits.flags & trait) != 0;
}

struct sl_module_port {
    struct sl_dpdk_port base;
    struct sl_module_device *device;
    struct rte_mempool *pool, *rests;
    struct sl_timer look; /* checks the link */
    uint16_t id, index, next_queue, queue_count;
    uint16_t *queues; /* receive queues */
    bool on;          /* may use the queues */
    bool gathers, checksums;
    struct {
        int fd;                      /* of epoll */
        struct sl_dpdk_watch *watch; /* in the ring; NULL: no receive interrupts */
        bool armed;
    } wake;
    uint32_t lent; /* tails that the device still reads */
    struct sl_dpdk_port_stats stats;
};

/* The private area of the mbuf of a packet's tail, which lies in the program's memory. */
struct sl_module_rest {
    struct rte_mbuf_ext_shared_info info;
    struct sl_module_port *port; /* NULL: closed */
    uint32_t *pending;           /* or NULL */
};

#endif
