/* Prints and logs the stages of a process. Main thread. */
#ifndef SL_PS_PROCESS_REPORT_H
#define SL_PS_PROCESS_REPORT_H

#include "ps/process/state.h"

/* Sets the name of the process, and again when its task is known. */
void sl_process_report_name(struct sl_process *process);

/* Prints the line that the process accepts connections; HTTP and the service manager get to know.
 */
void sl_process_report_ready(const struct sl_process *process);

/* Prints a new stage of a scheduler's job. */
void sl_process_report_stage(const struct sl_process *process, enum sl_coordinator_stage stage,
                             int err);

/* Logs that the process could not start. */
void sl_process_report_failure(const struct sl_process *process, int err);

/* Prints the last line. */
void sl_process_report_totals(const struct sl_process *process);

#endif
