/* The suite over ports of devices that are not there (tests/support/wire_port.h). A world's last
 * node is a process by itself, with an address of its own, the others share one: so a connection
 * goes from one process to another, and is handed over within one. */
#ifndef TESTS_CONFORMANCE_DPDK_H
#define TESTS_CONFORMANCE_DPDK_H

#include "conformance.h"
#include "tests/support/wire_port.h"

struct dpdk_target {
    const char *name;
    bool polling;
    /* Of all devices; addresses, and whose they are, are filled in. */
    struct sl_wire_device_options device;
    bool is_v6;
    /* As STARLING_TEST_FAULTS has them, which counts instead where it is set; NULL: none. */
    const char *faults;
};

int dpdk_run(const struct dpdk_target *target);

#endif
