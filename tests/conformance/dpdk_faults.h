/* Faults on purpose for the suite over DPDK's ports. */
#ifndef TESTS_CONFORMANCE_DPDK_FAULTS_H
#define TESTS_CONFORMANCE_DPDK_FAULTS_H

#include "tests/support/fault_port.h"

/* As STARLING_TEST_FAULTS says, or where it is not set as `otherwise`, which may be NULL: none.
 * Returns whether there are any; the program ends when they cannot be read. */
bool dpdk_faults_read(const char *otherwise, struct sl_dpdk_faults *out);

/* What stands around `inner`; `medium` keeps it. */
struct sl_dpdk_medium dpdk_faults_wrap(struct sl_dpdk_fault_medium *medium,
                                       const struct sl_dpdk_medium *inner,
                                       const struct sl_dpdk_faults *faults);

/* Who ends before the peer has heard of the connection, or whose last words are lost, is waited for
 * so long. A thread that gets no processor for seconds is not given up before. */
#define DPDK_FAULTS_PATIENCE_MS 8000

#endif
