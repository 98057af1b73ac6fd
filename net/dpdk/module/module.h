/* The types and functions that the files of the plug-in share. README.md lists the files. */
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

/* eal.c */

/* Starts DPDK once in the process; later calls return the first result. Errors: INVALID
 * (arguments), NO_MEMORY, IO; logged. */
int sl_module_eal_start(const struct sl_dpdk_options *options, uint64_t bytes);
/* Registers the calling thread with DPDK until it has as many leaves as joins. Errors: UNSUPPORTED,
 * logged. */
int sl_module_eal_join(void);
void sl_module_eal_leave(void);

/* find.c */

/* Finds the device options->devices[which]; creates it if it has arguments, with `queues` queues
 * unless these say otherwise. Errors: NOT_FOUND, INVALID; logged with remedy. */
int sl_module_find(const struct sl_dpdk_options *options, uint32_t which, uint32_t queues,
                   uint16_t *id);
/* Removes a device that cannot start again; the next sl_module_find creates it. */
void sl_module_find_give_back(const struct sl_module_device *device);
/* Errors: INVALID; logged. */
int sl_module_find_self(const struct sl_dpdk_device *wanted, struct sl_dpdk_self *out);
/* Errors: INVALID: the arguments of a memif device; logged. */
int sl_module_find_traits(const struct rte_eth_dev_info *info, struct sl_module_traits *out);

/* kernel.c */

struct sl_module_kernel {
    bool link_is_up;
    uint32_t mtu;
};

/* Errors: NOT_FOUND: the interface is gone. */
int sl_module_kernel_look(const struct rte_eth_dev_info *info, struct sl_module_kernel *out);
/* Raises the MTU to at least `mtu`. Returns 0 or an errno. */
int sl_module_kernel_set_mtu(const struct rte_eth_dev_info *info, uint32_t mtu);

/* wake.c */

/* Leaves port->watch NULL if the device has no receive interrupts. */
void sl_module_wake_open(struct sl_module_port *port);
void sl_module_wake_close(struct sl_module_port *port);
/* As `arm` of port.h. */
bool sl_module_wake_arm(struct sl_module_port *port);
void sl_module_wake_disarm(struct sl_module_port *port);

/* device.c */

/* Adds the port to its device; the first port configures the device. Errors as of `open` in port.h,
 * logged. Owner reactor. */
int sl_module_device_join(const struct sl_dpdk_options *options, uint32_t which,
                          struct sl_module_port *port);
/* Removes the port; the last one stops the device, except memif. Owner reactor. */
void sl_module_device_leave(struct sl_module_port *port);
/* Checks the link and sets port->on. Not while the port uses the queues. Returns the delay of the
 * next check. */
uint64_t sl_module_device_look(struct sl_module_port *port);
bool sl_module_device_link(const struct sl_module_device *device);
static inline uint16_t sl_module_device_owner(const struct sl_module_device *device, uint16_t queue)
{
    return (uint16_t)(device->traits.blocks ? queue / (device->queues / device->reactors)
                                            : queue % device->reactors);
}

/* memory.c */

/* Errors: NO_MEMORY, UNSUPPORTED. Any thread. */
int sl_module_memory_add(const struct sl_module_device *device, void *base, size_t bytes);
void sl_module_memory_remove(const struct sl_module_device *device, void *base);

#endif
