/* Rules of a device: which packet goes to which queue. */
#ifndef SL_NET_DPDK_MODULE_FLOW_H
#define SL_NET_DPDK_MODULE_FLOW_H

#include "net/dpdk/module/module.h"

/* Each reactor's UDP port to a queue of its own, where the device can do so; else its hash spreads
 * them, and those who get others' packets pass them on. Started; its stop forgets the rules. */
void sl_module_flow_steer(const struct sl_module_device *device);

#endif
