/* Receive interrupts. Owner reactor. */
#ifndef SL_NET_DPDK_MODULE_WAKE_H
#define SL_NET_DPDK_MODULE_WAKE_H

#include "net/dpdk/module/module.h"

/* Leaves port->wake.watch NULL if the device has no receive interrupts. */
void sl_module_wake_open(struct sl_module_port *port);
void sl_module_wake_close(struct sl_module_port *port);
/* As `arm` of port.h. */
bool sl_module_wake_arm(struct sl_module_port *port);
void sl_module_wake_disarm(struct sl_module_port *port);

#endif
