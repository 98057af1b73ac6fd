/* Ends the process: on a signal; in a job with a scheduler, on its message or its absence; in a
 * scheduler, when its coordinator ends the job. Then it leaves the cluster, and each core drains
 * its servers. */
#ifndef SL_PS_PROCESS_JOB_H
#define SL_PS_PROCESS_JOB_H

#include "ps/process/state.h"

/* Callback of the agent: the job has ended. May be repeated after a reconnect. */
void sl_process_on_ended(void *process, const char *why);

/* Callback of the agent: no connection to the scheduler for long. Ends the process if no worker is
 * left. */
void sl_process_on_absent(void *process);

/* Callback of a scheduler's coordinator: a new stage of the job, once each. */
void sl_process_on_stage(void *process, enum sl_coordinator_stage stage, int err, const char *why);

/* A mail to a scheduler's core: a signal came. sl_process_on_stage follows. */
void sl_process_end_job(void *core, uint64_t signal, uint64_t unused);

/* A mail to core 0: leaves the cluster and drains all servers; one answer follows. */
void sl_process_drain(void *core, uint64_t a, uint64_t b);

#endif
