/* The RDMA device that is measured, as the kernel describes it: its name, the address by which
 * rdma_cm finds it, and how perftest is to be told. One thread. */
#ifndef SL_BENCH_RDMA_DEVICE_H
#define SL_BENCH_RDMA_DEVICE_H

#include <stdbool.h>
#include <stddef.h>

#define SL_BENCH_RDMA_NAME_BYTES 64

struct sl_bench_rdma_device {
    char name[SL_BENCH_RDMA_NAME_BYTES];    /* "mlx5_0" */
    char address[SL_BENCH_RDMA_NAME_BYTES]; /* IPv4, of its network interface */
    int gid; /* index of the address in the GID table of port 1, of RoCE v2; -1: there is none */
};

/* Chooses the device of this name, or the first whose port 1 is active and has an address. sysfs:
 * "/sys", or a tree of a test's; name, address: NULL, or what the user says. Errors, with a reason
 * that says what to do: NOT_FOUND. */
int sl_bench_rdma_device_find(const char *sysfs, const char *name, const char *address,
                              struct sl_bench_rdma_device *out, char *reason, size_t reason_bytes);

#endif
