/* DPDK's environment. */
#ifndef SL_NET_DPDK_MODULE_EAL_H
#define SL_NET_DPDK_MODULE_EAL_H

#include "net/dpdk/module/module.h"

/* Starts DPDK once in the process; later calls return the first result. Errors: INVALID
 * (arguments), NO_MEMORY, IO; logged. */
int sl_module_eal_start(const struct sl_dpdk_options *options, uint64_t bytes);
/* Registers the calling thread with DPDK until it has as many leaves as joins. Errors: UNSUPPORTED,
 * logged. */
int sl_module_eal_join(void);
void sl_module_eal_leave(void);

#endif
