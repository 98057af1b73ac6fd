/* Prints findings as text or JSON. */
#ifndef SL_PROGRAMS_DOCTOR_PRINT_H
#define SL_PROGRAMS_DOCTOR_PRINT_H

#include "programs/doctor/findings.h"

void sl_doctor_print(const struct sl_doctor *doctor, FILE *out);
/* False: out of memory, or the output failed. */
bool sl_doctor_print_json(const struct sl_doctor *doctor, FILE *out);

#endif
