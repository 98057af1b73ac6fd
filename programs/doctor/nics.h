/* Network and RDMA devices as the transfer engine sees them: a finding for each, and the NIC
 * priority matrix of this host. */
#ifndef SL_PROGRAMS_DOCTOR_NICS_H
#define SL_PROGRAMS_DOCTOR_NICS_H

#include "programs/doctor/findings.h"

/* Warns of a device that is down, far from every core that the process may use, or without an
 * address. Sets doctor->nic_priority_matrix; the caller frees it. */
void sl_doctor_nics_check(struct sl_doctor *doctor);

#endif
