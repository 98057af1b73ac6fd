#include "dpdk_faults.h"
#include "core/reason.h"

#include <stdio.h>
#include <stdlib.h>

bool dpdk_faults_read(const char *otherwise, struct sl_dpdk_faults *out)
{
    struct sl_reason why;
    const char *text = getenv("STARLING_TEST_FAULTS");
    text = text != NULL ? text : otherwise;
    if (text != NULL && sl_dpdk_faults_parse(text, out, &why) != 0) {
        fprintf(stderr, "STARLING_TEST_FAULTS: %s\n", why.text);
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
