/* The interface between a program and the plug-in starling-dpdk.so, which implements ports on DPDK
 * devices. The plug-in is built with the program and opened when first needed, so that programs run
 * without DPDK. It has no copy of the reactor or the log: it calls those of its host through a
 * table. */
#ifndef SL_NET_DPDK_MODULE_H
#define SL_NET_DPDK_MODULE_H

#include "core/log.h"
#include "net/dpdk/port.h"

#define SL_DPDK_MODULE_FILE  "starling-dpdk.so"
#define SL_DPDK_MODULE_ENTRY "sl_module_enter"

struct sl_dpdk_watch;

/* The functions of the host. */
struct sl_dpdk_host {
    const char *version; /* must equal the plug-in's */
    void (*log)(enum sl_log_level level, const char *format, ...)
        __attribute__((format(printf, 2, 3)));
    bool (*log_enabled)(enum sl_log_level level);
    uint32_t (*reactor_index)(const struct sl_reactor *reactor);
    uint32_t (*reactor_group_count)(const struct sl_reactor *reactor);
    /* Owner reactor. */
    void (*timer_arm)(struct sl_reactor *reactor, struct sl_timer *timer, uint64_t after_ns);
    void (*timer_disarm)(struct sl_reactor *reactor, struct sl_timer *timer);
    /* A descriptor that wakes the reactor when it is readable, once for each `set`. NULL: no
     * memory. `is_set`: it has not woken the reactor yet. `close` waits until the ring no longer
     * uses it. */
    struct sl_dpdk_watch *(*watch_open)(struct sl_reactor *reactor, int fd);
    void (*watch_set)(struct sl_dpdk_watch *watch);
    bool (*watch_is_set)(const struct sl_dpdk_watch *watch);
    void (*watch_close)(struct sl_dpdk_watch **watch);
};

/* The only function that the plug-in exports, called once in a process. Returns its port ops, whose
 * `open` takes a struct sl_dpdk_options as the medium. NULL: built for another host version. */
const struct sl_dpdk_port_ops *sl_module_enter(const struct sl_dpdk_host *host);

/* The port ops of the plug-in. The file is searched beside the program or library that contains
 * this code, then in its plug-in directory; STARLING_DPDK_MODULE names another file. NULL: *why,
 * which stays valid, has cause and remedy. Any thread. */
const struct sl_dpdk_port_ops *sl_dpdk_module_ports(const char **why);

#endif
