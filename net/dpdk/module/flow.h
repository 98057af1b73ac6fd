/* flow installs rules in a device that steer packets to queues. */
#ifndef SL_NET_DPDK_MODULE_FLOW_H
#define SL_NET_DPDK_MODULE_FLOW_H

#include "net/dpdk/module/module.h"

/* Steers each reactor's UDP port to a queue of its own. If the device cannot, its hash spreads
 * packets over the queues and reactors forward misrouted ones. The device is started; a stop
 * removes the rules. */
void sl_module_flow_steer(const struct sl_module_device *device);

#endif
