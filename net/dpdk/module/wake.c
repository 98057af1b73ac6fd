/* Wakes sleeping reactors by receive interrupts: the queues' interrupts make an epoll descriptor
 * readable, which the reactor's ring watches. */
#include "net/dpdk/module/wake.h"

#include <rte_epoll.h>
#include <sys/epoll.h>
#include <unistd.h>

#define EVENTS 16

static void switch_all(const struct sl_module_port *port, bool on)
{
    for (uint16_t i = 0; i < port->queue_count; i++) {
        (void)(on ? rte_eth_dev_rx_intr_enable(port->id, port->queues[i])
                  : rte_eth_dev_rx_intr_disable(port->id, port->queues[i]));
    }
}

/* rte_epoll_wait runs the driver's event callbacks. */
static void module_wake_drain(const struct sl_module_port *port)
{
    struct rte_epoll_event events[EVENTS];
    while (rte_epoll_wait(port->wake.fd, events, EVENTS, 0) == EVENTS) {
    }
}

static void control_all(const struct sl_module_port *port, uint16_t count, int how)
{
    for (uint16_t i = 0; i < count; i++) {
        (void)rte_eth_dev_rx_intr_ctl_q(port->id, port->queues[i], port->wake.fd, how, NULL);
    }
}

static bool add_all(const struct sl_module_port *port)
{
    for (uint16_t i = 0; i < port->queue_count; i++) {
        if (rte_eth_dev_rx_intr_ctl_q(port->id, port->queues[i], port->wake.fd, RTE_INTR_EVENT_ADD,
                                      NULL) != 0) {
            control_all(port, i, RTE_INTR_EVENT_DEL);
            return false;
        }
    }
    return true;
}

void sl_module_wake_open(struct sl_module_port *port)
{
    port->wake.fd =
        sl_module_has(port->device, SL_MODULE_WAKES) ? epoll_create1(EPOLL_CLOEXEC) : -1;
    if (port->wake.fd >= 0 && add_all(port)) {
        port->wake.watch = sl_module_host->watch_open(port->base.reactor, port->wake.fd);
        if (port->wake.watch != NULL) {
            module_log(SL_LOG_INFO, "dpdk: %s: a reactor that sleeps is woken by its interrupts",
                       port->device->name);
            return;
        }
        control_all(port, port->queue_count, RTE_INTR_EVENT_DEL);
    }
    if (port->wake.fd >= 0) {
        (void)close(port->wake.fd);
        port->wake.fd = -1;
    }
}

void sl_module_wake_close(struct sl_module_port *port)
{
    if (port->wake.watch == NULL) {
        return;
    }
    sl_module_wake_disarm(port);
    sl_module_host->watch_close(&port->wake.watch);
    control_all(port, port->queue_count, RTE_INTR_EVENT_DEL);
    (void)close(port->wake.fd);
}

/* A packet may have arrived before the interrupts were on, so that the first call returns false. */
bool sl_module_wake_arm(struct sl_module_port *port)
{
    if (!port->wake.armed) {
        module_wake_drain(port);
        switch_all(port, true);
        sl_module_host->watch_set(port->wake.watch);
        port->wake.armed = true;
        return false;
    }
    return true;
}

void sl_module_wake_disarm(struct sl_module_port *port)
{
    if (port->wake.armed) {
        port->wake.armed = false;
        switch_all(port, false);
        module_wake_drain(port);
    }
}
