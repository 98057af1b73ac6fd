#include <string.h>

#include "net/dpdk/module/module.h"

const struct sl_dpdk_host *sl_module_host;

#pragma GCC visibility push(default)

const struct sl_dpdk_port_ops *sl_module_enter(const struct sl_dpdk_host *host)
{
    if (strcmp(host->version, STARLING_VERSION) != 0) {
        return NULL;
    }
    sl_module_host = host;
    return &sl_module_ports;
}

#pragma GCC visibility pop
