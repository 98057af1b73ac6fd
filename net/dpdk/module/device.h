/* Devices and their users. Takes a lock. */
#ifndef SL_NET_DPDK_MODULE_DEVICE_H
#define SL_NET_DPDK_MODULE_DEVICE_H

#include "net/dpdk/module/module.h"

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
    return (uint16_t)(sl_module_has(device, SL_MODULE_BLOCKS)
                          ? queue / (device->queues / device->reactors)
                          : queue % device->reactors);
}

#endif
