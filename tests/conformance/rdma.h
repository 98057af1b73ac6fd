/* The RDMA device of the tests. They need one, software will do: RDMA_IP and RDMA_IP6 are addresses
 * of its network interface, RDMA_DEV is what it is called. Elsewhere they are skipped. UNIT_CASE, a
 * pattern with *, chooses among a program's cases; STARLING_LOG is the least level that is printed.
 */
#ifndef TESTS_CONFORMANCE_RDMA_H
#define TESTS_CONFORMANCE_RDMA_H

#include "conformance.h"

/* Fills the target in, and makes it the one of this program: its endpoint is the address in the
 * environment variable. False, having said why: there is no device, or no library. */
bool rdma_target_init(struct conformance_target *target, const char *name, const char *variable);

/* What this process has open. */
uint32_t rdma_count_fds(void);

/* The objects of a kind ("qp", "mr") that all processes have on the device, by rdma(8). */
uint32_t rdma_count_objects(const char *kind);

/* A counter of the device's port ("rcvd_rnr_err"); 0: this kind of device has none of that name. */
uint64_t rdma_read_counter(const char *name);

#endif
