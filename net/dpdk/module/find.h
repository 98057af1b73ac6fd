/* Finds or creates devices. */
#ifndef SL_NET_DPDK_MODULE_FIND_H
#define SL_NET_DPDK_MODULE_FIND_H

#include "net/dpdk/module/module.h"

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

#endif
