/* A plug-in for tests: that of DPDK's devices, with faults on purpose around each port, as the
 * variable STARLING_TEST_FAULTS says (tests/support/fault_port.h). A program uses it where
 * STARLING_DPDK_MODULE names it. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "net/dpdk/module.h"
#include "tests/support/fault_port.h"

#define FAULTS "STARLING_TEST_FAULTS"

static const struct sl_dpdk_port_ops *devices;
static struct sl_dpdk_port_ops faulty_ports;
static struct sl_dpdk_faults faults;
static struct sl_dpdk_fault_reactor reactor_of_host;

static int open_faulty(void *medium, struct sl_reactor *reactor, struct sl_dpdk_port **ports,
                       uint32_t max)
{
    struct sl_dpdk_fault_medium faulty = {
        .inner = {.ops = devices, .ctx = medium}, .faults = faults, .reactor = &reactor_of_host};
    return sl_dpdk_fault_ports.open(&faulty, reactor, ports, max);
}

static const struct sl_dpdk_port_ops *enter_devices(const struct sl_dpdk_host *host)
{
    const struct sl_dpdk_port_ops *(*enter)(const struct sl_dpdk_host *) = NULL;
    void *handle = dlopen(STARLING_DPDK_PLUGIN, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        host->log(SL_LOG_ERROR, "%s", dlerror());
        return NULL;
    }
    void *address = dlsym(handle, SL_DPDK_MODULE_ENTRY);
    memcpy(&enter, &address, sizeof enter);
    return enter != NULL ? enter(host) : NULL;
}

#pragma GCC visibility push(default)

const struct sl_dpdk_port_ops *sl_module_enter(const struct sl_dpdk_host *host)
{
    struct sl_reason why;
    const char *text = getenv(FAULTS);
    if (text == NULL || sl_dpdk_faults_parse(text, &faults, &why) != 0) {
        host->log(SL_LOG_ERROR, FAULTS ": %s", text == NULL ? "it is not set" : why.text);
        return NULL;
    }
    reactor_of_host = (struct sl_dpdk_fault_reactor){.index = host->reactor_index,
                                                     .timer_arm = host->timer_arm,
                                                     .timer_disarm = host->timer_disarm};
    devices = enter_devices(host);
    faulty_ports = sl_dpdk_fault_ports;
    faulty_ports.open = open_faulty;
    return devices != NULL ? &faulty_ports : NULL;
}

#pragma GCC visibility pop
