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
struct sl_module_traits {
    bool straight; /* memif: packets keep their queue number */
    bool copies;   /* a send call has copied the packet when it returns */
    bool dials;    /* memif client: the start fails until its server listens */
    bool blocks;   /* memif client: a reactor owns consecutive queues; else every n-th */
    bool once;     /* cannot start again after a stop: the device must be created again */
    bool single;   /* nor be created again: AF_XDP's driver leaves its sockets open on close */
    bool wakes;    /* has receive interrupts */
    bool kernels;  /* an interface of the kernel, which reports its link state */
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
    bool gathers, checksums, sees_checksums;
    struct rte_mempool *pools[SL_MODULE_REACTORS], *rests[SL_MODULE_REACTORS];
    struct sl_module_port *ports[SL_MODULE_REACTORS];
    uint32_t users;
    bool configured, started;
    bool link_was_up, told_down;
    uint64_t since_ns;  /* time of open, or when the link was last up */
    uint64_t redial_ns; /* dials: next start while the link is down */
};

struct sl_module_port {
    struct sl_dpdk_port base;
    struct sl_module_device *device;
    struct rte_mempool *pool, *rests;
    struct sl_timer look; /* checks the link */
    uint16_t id, index, next_queue, queue_count;
    uint16_t *queues; /* receive queues */
    bool on;          /* may use the queues */
    bool gathers, checksums;
    /* With receive interrupts: the epoll descriptor, its watch in the ring, and whether interrupts
     * are on. */
    int wake_fd;
    struct sl_dpdk_watch *watch;
    bool armed;
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
