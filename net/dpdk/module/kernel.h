/* Interfaces that the kernel has too. */
#ifndef SL_NET_DPDK_MODULE_KERNEL_H
#define SL_NET_DPDK_MODULE_KERNEL_H

#include "net/dpdk/module/module.h"

struct sl_module_kernel {
    bool link_is_up;
    uint32_t mtu;
};

/* Errors: NOT_FOUND: the interface is gone. */
int sl_module_kernel_look(const struct rte_eth_dev_info *info, struct sl_module_kernel *out);
/* Raises the MTU to at least `mtu`. Returns 0 or an errno. */
int sl_module_kernel_set_mtu(const struct rte_eth_dev_info *info, uint32_t mtu);

#endif
