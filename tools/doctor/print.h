/* Prints findings as text or JSON. */
#ifndef SL_TOOLS_DOCTOR_PRINT_H
#define SL_TOOLS_DOCTOR_PRINT_H

#include "tools/doctor/findings.h"

void sl_doctor_print(const struct sl_doctor *doctor, FILE *out);
/* False: out of memory, or the output failed. */
bool sl_doctor_print_json(const struct sl_doctor *doctor, FILE *out);

#endif
