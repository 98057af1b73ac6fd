/* The suite over devices of DPDK itself. As in dpdk_test.c a world's last node is a process by
 * itself: it has the second device, the others share the first. The EAL starts once in a process,
 * so that each kind of device is tested in a process of its own. */
#ifndef TESTS_CONFORMANCE_DPDK_REAL_H
#define TESTS_CONFORMANCE_DPDK_REAL_H

#include "conformance.h"
#include "net/dpdk/dpdk.h"

struct dpdk_real_target {
    const char *name;
    bool is_lossy;
    bool is_v6;
    struct sl_dpdk_device devices[2]; /* whose reactors they are is filled in */
};

/* For tests with cases of their own. False: no plug-in, which has been said. */
bool dpdk_real_open(const struct dpdk_real_target *target, struct conformance_target *out);

/* The program's exit status: SKIPPED, with the reason on stderr, where there is no plug-in. */
int dpdk_real_run(const struct dpdk_real_target *target);

#endif
