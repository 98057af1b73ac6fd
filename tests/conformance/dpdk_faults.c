#include "dpdk_faults.h"

#include <stdio.h>
#include <stdlib.h>

bool dpdk_faults_read(const char *otherwise, struct sl_dpdk_faults *out)
{
    char why[512];
    const char *text = getenv("STARLING_TEST_FAULTS");
    text = text != NULL ? text : otherwise;
    if (text != NULL && sl_dpdk_faults_parse(text, out, why, sizeof why) != 0) {
        fprintf(stderr, "STARLING_TEST_FAULTS: %s\n", why);
        exit(1);
    }
    return text != NULL;
}

struct sl_dpdk_medium dpdk_faults_wrap(struct sl_dpdk_fault_medium *medium,
                                       const struct sl_dpdk_medium *inner,
                                       const struct sl_dpdk_faults *faults)
{
    *medium = (struct sl_dpdk_fault_medium){.inner = *inner, .faults = *faults};
    return (struct sl_dpdk_medium){.ops = &sl_dpdk_fault_ports, .ctx = medium};
}
