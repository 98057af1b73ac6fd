/* GIDs of a port, the addresses of RoCE and InfiniBand. */
#ifndef SL_PROGRAMS_DOCTOR_GID_H
#define SL_PROGRAMS_DOCTOR_GID_H

#include "programs/doctor/findings.h"

struct sl_doctor_port {
    const char *device;
    uint32_t number;
    bool is_ethernet;
    bool is_first; /* first active port of the requested devices, which rdma_gid_index refers to */
};
void sl_doctor_gid_check(struct sl_doctor *doctor, const struct sl_doctor_port *port);

/* Checks that a named endpoint is on this host; after the ports. */
void sl_doctor_gid_check_endpoints(struct sl_doctor *doctor);

#endif
