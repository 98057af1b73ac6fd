/* The CPU quota of the control groups. */
#ifndef SL_PROGRAMS_DOCTOR_QUOTA_H
#define SL_PROGRAMS_DOCTOR_QUOTA_H

#include "programs/doctor/findings.h"

/* In 1/1000 core; UINT64_MAX: none. */
uint64_t sl_doctor_quota(const struct sl_doctor *doctor);

#endif
