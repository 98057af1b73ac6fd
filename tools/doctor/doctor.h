/* `starling-ps doctor`: what a ps needs of its machine for each transport, whether it is there, and
 * what to do where it is not. It changes nothing, and starts no ps. What it sees of the machine it
 * sees through struct sl_doctor_system, so that tests can show it another one. One thread. */
#ifndef SL_TOOLS_DOCTOR_DOCTOR_H
#define SL_TOOLS_DOCTOR_DOCTOR_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "core/endpoint.h"
#include "core/endpoint_device.h"
#include "net/rdma/device_list.h"

/* A set of transports. */
#define SL_DOCTOR_OF(scheme)  (1U << (scheme))
#define SL_DOCTOR_EVERY       (SL_DOCTOR_OF(SL_ENDPOINT_DPDK + 1) - 1)

#define SL_DOCTOR_DEVICES_MAX 32

/* What is asked for. */
struct sl_doctor_options {
    uint32_t transports;     /* that must run: a set, not empty */
    const char *rdma_device; /* names with commas between; NULL: any */
    uint32_t rdma_gid;       /* index + 1; 0: the address decides */
    /* Endpoints of rdma that the cluster has, this machine's among them. */
    const struct sl_endpoint *endpoints;
    uint32_t endpoint_count;
    const struct sl_endpoint_device *dpdk_devices; /* that a ps would have */
    uint32_t dpdk_device_count;
    uint32_t reactors;
    bool pin, polling;
    const char *congestion_control; /* NULL: the system's */
    bool json;
};

/* What the kernel's io_uring can do. */
struct sl_doctor_ring {
    bool deferred_taskrun, multishot_recv, provided_buffer_rings;
};

/* The machine. */
struct sl_doctor_system {
    const char *root;        /* before every path that is read: "" */
    uint32_t cores;          /* that the affinity mask leaves */
    uint64_t files_max;      /* the hard limits of the process; UINT64_MAX: none */
    uint64_t memlock_max;    /* bytes */
    const char *no_memfd;    /* why there is no shared memory; NULL: there is */
    const char *no_abstract; /* the same of unix sockets in the abstract name space */
    int (*probe_ring)(struct sl_doctor_ring *out); /* 0, or a negative errno */
    /* Why the program has no such transport, or NULL. */
    const char *(*missing)(enum sl_endpoint_scheme scheme);
    /* Names of the devices for which the RDMA libraries have a provider; returns their number. NULL
     * where nobody can say. */
    uint32_t (*rdma_devices)(char names[][SL_RDMA_DEVICE_NAME_BYTES], uint32_t most);
};

/* This machine. */
void sl_doctor_system_read(struct sl_doctor_system *out);

/* Makes every check and writes the result. True when all transports that were asked for can run. */
bool sl_doctor_run(const struct sl_doctor_options *options, const struct sl_doctor_system *system,
                   FILE *out);

#endif
