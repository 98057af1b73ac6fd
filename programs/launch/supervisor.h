/* The supervisor runs a plan: starts every process, forwards their output, waits for the workers,
 * then drains the servers. It stops the job on a failure, a timeout or a signal. Main thread;
 * handles SIGINT, SIGTERM, SIGHUP, SIGQUIT and SIGCHLD. */
#ifndef SL_PROGRAMS_LAUNCH_SUPERVISOR_H
#define SL_PROGRAMS_LAUNCH_SUPERVISOR_H

#include "programs/launch/completion.h"
#include "programs/launch/plan.h"

#define SL_SUPERVISOR_FAILED   1
#define SL_SUPERVISOR_TIMEOUT  124 /* as in timeout(1) */
#define SL_SUPERVISOR_SIGNALED 128 /* plus the signal */

/* completion: workers of other launchers, which are awaited too; inactive without any. Returns the
 * exit status: 0 if at least one worker ended with 0, and every other process ended with 0, was
 * restarted, or was allowed to be lost; else one of the above, with the process and the reason
 * logged. No child is left. */
int sl_supervisor_run(const struct sl_plan *plan, const struct sl_launch_options *options,
                      struct sl_completion *completion);

#endif
