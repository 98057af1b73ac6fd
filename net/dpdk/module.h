/* The plug-in starling-dpdk.so, which has the ports of DPDK's devices, and what it and the program
 * that opens it are to each other. It is built with the program, and opened when it is needed
 * first: a program runs where there is no DPDK. The plug-in has no part of the reactor, nor of the
 * log, in it: it gets at those of its host through a table. */
#ifndef SL_NET_DPDK_MODULE_H
#define SL_NET_DPDK_MODULE_H

#include "core/log.h"
#include "net/dpdk/port.h"

#define SL_DPDK_MODULE_FILE  "starling-dpdk.so"
#define SL_DPDK_MODULE_ENTRY "sl_module_enter"

struct sl_dpdk_watch;

/* What the host lends. */
struct sl_dpdk_host {
    const char *version; /* of both: another is refused */
    void (*log)(enum sl_log_level level, const char *format, ...)
        __attribute__((format(printf, 2, 3)));
    bool (*log_enabled)(enum sl_log_level level);
    uint32_t (*reactor_index)(const struct sl_reactor *reactor);
    uint32_t (*reactor_group_count)(const struct sl_reactor *reactor);
    /* Owner reactor. */
    void (*timer_arm)(struct sl_reactor *reactor, struct sl_timer *timer, uint64_t after_ns);
    void (*timer_disarm)(struct sl_reactor *reactor, struct sl_timer *timer);
    /* A descriptor that wakes the reactor, once for each `set`, when it is readable. NULL: no
     * memory. `is_set`: it has not woken it yet. close waits until the ring has let go of it. */
    struct sl_dpdk_watch *(*watch_open)(struct sl_reactor *reactor, int fd);
    void (*watch_set)(struct sl_dpdk_watch *watch);
    bool (*watch_is_set)(const struct sl_dpdk_watch *watch);
    void (*watch_close)(struct sl_dpdk_watch **watch);
};

/* The one function that the plug-in exports, once a process: its ports, whose open takes a struct
 * sl_dpdk_options as the medium. NULL: it was built for another host. */
const struct sl_dpdk_port_ops *sl_module_enter(const struct sl_dpdk_host *host);

/* The plug-in's ports. It is sought beside the program, or the library that this is in, then in the
 * folder of plug-ins that goes with it; STARLING_DPDK_MODULE names another file. NULL: *why says
 * what is missing, and what to do; it lasts. Any thread. */
const struct sl_dpdk_port_ops *sl_dpdk_module_ports(const char **why);

#endif
