/* The checks. Each adds its findings. */
#ifndef SL_PROGRAMS_DOCTOR_CHECKS_H
#define SL_PROGRAMS_DOCTOR_CHECKS_H

#include "programs/doctor/findings.h"

void sl_doctor_kernel_check(struct sl_doctor *doctor); /* io_uring, files, TCP, shared memory */
void sl_doctor_cores_check(struct sl_doctor *doctor);  /* cores, NUMA, clock, huge pages */
void sl_doctor_rdma_check(struct sl_doctor *doctor);   /* libraries, devices, ports, memory */
void sl_doctor_dpdk_check(struct sl_doctor *doctor);   /* plug-in, memory, devices */

#endif
