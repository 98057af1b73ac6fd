/* `starling-ps doctor` checks what each transport needs of this host, and prints remedies. It
 * changes nothing and starts no ps. It sees the host only through struct sl_doctor_system, so that
 * tests can simulate one. One thread. */
#ifndef SL_PROGRAMS_DOCTOR_DOCTOR_H
#define SL_PROGRAMS_DOCTOR_DOCTOR_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "core/endpoint.h"
#include "core/endpoint_device.h"
#include "net/rdma/device_list.h"
#include "reactor/devices.h"

/* A set of transports. */
#define SL_DOCTOR_OF(scheme)  (1U << (scheme))
#define SL_DOCTOR_EVERY       (SL_DOCTOR_OF(SL_ENDPOINT_DPDK + 1) - 1)

#define SL_DOCTOR_DEVICES_MAX 32

struct sl_doctor_options {
    uint32_t transports; /* required: a set, not empty */
    struct {
        const char *device; /* comma-separated names; NULL: any */
        bool has_gid_index; /* else the address decides */
        uint32_t gid_index;
    } rdma;
    /* The cluster's RDMA endpoints, including this host's. */
    const struct sl_endpoint *endpoints;
    uint32_t endpoint_count;
    const struct sl_endpoint_device *dpdk_devices; /* devices of a ps */
    uint32_t dpdk_device_count;
    uint32_t reactors;
    bool pin, polling;
    const char *congestion_control; /* NULL: the system's */
    bool json;
};

/* Features of the kernel's io_uring. */
struct sl_doctor_ring {
    bool deferred_taskrun, multishot_recv, provided_buffer_rings;
};

/* The host. */
struct sl_doctor_system {
    const char *root;        /* prefix of all paths read: "" */
    uint32_t cores;          /* in the affinity mask */
    uint64_t files_max;      /* hard limits of the process; UINT64_MAX: none */
    uint64_t memlock_max;    /* bytes */
    const char *no_memfd;    /* why shared memory is missing; NULL: available */
    const char *no_abstract; /* the same for unix sockets with abstract names */
    int (*probe_ring)(struct sl_doctor_ring *out); /* 0, or a negative errno */
    /* Returns why this program lacks the transport; NULL: available. */
    const char *(*missing)(enum sl_endpoint_scheme scheme);
    /* Lists devices with a provider in the RDMA libraries; returns their number. NULL: unknown. */
    uint32_t (*rdma_devices)(char names[][SL_RDMA_DEVICE_NAME_BYTES], uint32_t most);
    void (*read_devices)(struct sl_devices *out);
};

/* Reads this host. */
void sl_doctor_system_read(struct sl_doctor_system *out);

/* Runs all checks and prints the result. True: all required transports can run. */
bool sl_doctor_run(const struct sl_doctor_options *options, const struct sl_doctor_system *system,
                   FILE *out);

#endif
