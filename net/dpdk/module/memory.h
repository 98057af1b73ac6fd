/* DMA registration of the program's memory. */
#ifndef SL_NET_DPDK_MODULE_MEMORY_H
#define SL_NET_DPDK_MODULE_MEMORY_H

#include "net/dpdk/module/module.h"

/* Errors: NO_MEMORY, UNSUPPORTED. Any thread. */
int sl_module_memory_add(const struct sl_module_device *device, void *base, size_t bytes);
void sl_module_memory_remove(const struct sl_module_device *device, void *base);

#endif
