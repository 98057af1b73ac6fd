/* What the files of the plug-in share.
 *
 *   enter.c    the one symbol that is exported
 *   eal.c      DPDK's environment: once a process, for ever
 *   find.c     a device by what the options say of it; why it is not there
 *   wake.c     reactors that sleep until a packet comes
 *   kernel.c   what the kernel knows of a device that is its own too
 *   device.c   a device's queues and pools; who has it, its link
 *   port.c     the ops of net/dpdk/port.h: packets
 *   memif_arguments.c   the arguments of a memif device
 *   memory.c   memory of the program's that devices read */
#ifndef SL_NET_DPDK_MODULE_MODULE_H
#define SL_NET_DPDK_MODULE_MODULE_H

#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include "core/assert.h"
#include "core/err.h"
#include "net/dpdk/dpdk.h"
#include "net/dpdk/module.h"

#define SL_MODULE_REACTORS 256U /* ids have 8 bits for them */

extern const struct sl_dpdk_host *sl_module_host;
extern const struct sl_dpdk_port_ops sl_module_ports;

#define module_log(level, ...) sl_module_host->log((level), __VA_ARGS__)

struct sl_module_port;

/* What is known of a device's driver. */
struct sl_module_traits {
    bool straight; /* memif */
    bool copies;   /* has read what is sent when the call returns */
    bool dials;    /* memif's client: its start fails until its server listens */
    bool blocks;   /* memif's client: its reactors have runs of queues, the server's every n-th */
    bool once;     /* what was stopped does not start again: it has to be made anew */
    bool single;   /* nor can it be: AF_XDP's driver leaves its sockets open when it is closed */
    bool wakes;    /* it has interrupts for what it receives */
    bool kernels;  /* a network device of the kernel's, which knows whether its link is up */
    uint32_t frame_bytes_max; /* 0: as configured */
    uint32_t room_bytes_min;  /* of a packet's memory, of which `head_bytes` are not its own */
    uint32_t head_bytes;
    uint32_t packets_kept; /* that each queue of it keeps for what may come, and has to send */
};

/* A device that was opened once is kept, with its memory; `users` have it now. Everything but what
 * is fixed while it has users is under the lock of device.c. */
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
    uint64_t since_ns;  /* when it was opened, or its link was up last */
    uint64_t redial_ns; /* dials: when to start it again if its link is down */
};

struct sl_module_port {
    struct sl_dpdk_port base;
    struct sl_module_device *device;
    struct rte_mempool *pool, *rests;
    struct sl_timer look; /* at the link */
    uint16_t id, index, next_queue, queue_count;
    uint16_t *queues; /* that are received from */
    bool on;          /* may touch the queues */
    bool gathers, checksums;
    /* Where the device wakes: its descriptor, watched by the ring; interrupts are on. */
    int wake_fd;
    struct sl_dpdk_watch *watch;
    bool armed;
    uint32_t lent; /* `rest`s that the device has */
    struct sl_dpdk_port_stats stats;
};

/* What the second part of a packet, which lies in the program's memory, carries in its mbuf's
 * private area. */
struct sl_module_rest {
    struct rte_mbuf_ext_shared_info info;
    struct sl_module_port *port; /* NULL: it was closed */
    uint32_t *pending;           /* NULL: nobody waits */
};

/* ---- eal.c ------------------------------------------------------------------------------------
 */

/* Once; later calls give the first's result. Errors: INVALID (arguments), NO_MEMORY, IO; logged. */
int sl_module_eal_start(const struct sl_dpdk_options *options, uint64_t bytes);
/* The calling thread is one that DPDK knows, as long as it has as many joins as leaves. */
int sl_module_eal_join(void);
void sl_module_eal_leave(void);

/* ---- find.c -----------------------------------------------------------------------------------
 */

/* The device that the options' `which`-th stands for; made when it has arguments, with so many
 * queues where these say nothing of it. Errors: NOT_FOUND, INVALID; logged, with what to do. */
int sl_module_find(const struct sl_dpdk_options *options, uint32_t which, uint32_t queues,
                   uint16_t *id);
/* One of those that do not start again is taken away, and made when it is sought the next time. */
void sl_module_find_give_back(const struct sl_module_device *device);
/* Errors: INVALID; logged. */
int sl_module_find_self(const struct sl_dpdk_device *wanted, struct sl_dpdk_self *out);
/* Errors: INVALID: the arguments of a memif device; logged. */
int sl_module_find_traits(const struct rte_eth_dev_info *info, struct sl_module_traits *out);

/* ---- kernel.c ---------------------------------------------------------------------------------
 */

struct sl_module_kernel {
    bool link_is_up;
    uint32_t mtu;
};

/* Errors: NOT_FOUND: it has gone. */
int sl_module_kernel_look(const struct rte_eth_dev_info *info, struct sl_module_kernel *out);
/* At least so much. Returns an errno. */
int sl_module_kernel_set_mtu(const struct rte_eth_dev_info *info, uint32_t mtu);

/* ---- wake.c -----------------------------------------------------------------------------------
 */

/* port->watch is NULL afterwards where it cannot be. */
void sl_module_wake_open(struct sl_module_port *port);
void sl_module_wake_close(struct sl_module_port *port);
/* As port.h's arm. */
bool sl_module_wake_arm(struct sl_module_port *port);
void sl_module_wake_disarm(struct sl_module_port *port);

/* ---- device.c ---------------------------------------------------------------------------------
 */

/* Gives the port its place at the device, which is configured by the first; logged errors as
 * port.h's open has them. Owner reactor. */
int sl_module_device_join(const struct sl_dpdk_options *options, uint32_t which,
                          struct sl_module_port *port);
/* The last stops it. The port's thread. */
void sl_module_device_leave(struct sl_module_port *port);
/* The link, and whether the port may touch the queues, which it does not now; returns after how
 * long to look again. */
uint64_t sl_module_device_look(struct sl_module_port *port);
bool sl_module_device_link(const struct sl_module_device *device);
static inline uint16_t sl_module_device_owner(const struct sl_module_device *device, uint16_t queue)
{
    return (uint16_t)(device->traits.blocks ? queue / (device->queues / device->reactors)
                                            : queue % device->reactors);
}

/* ---- memory.c ---------------------------------------------------------------------------------
 */

/* Errors: NO_MEMORY, UNSUPPORTED. Any thread. */
int sl_module_memory_add(const struct sl_module_device *device, void *base, size_t bytes);
void sl_module_memory_remove(const struct sl_module_device *device, void *base);

#endif
