/* Runs a plan: starts every process, passes their output on, waits for the workers, drains the ps,
 * and stops everybody when somebody fails, when time is up, or when the launcher is told to. Main
 * thread; takes SIGINT, SIGTERM, SIGHUP and SIGCHLD over. */
#ifndef SL_TOOLS_LAUNCH_SUPERVISOR_H
#define SL_TOOLS_LAUNCH_SUPERVISOR_H

#include "tools/launch/completion.h"
#include "tools/launch/plan.h"

#define SL_SUPERVISOR_FAILED   1
#define SL_SUPERVISOR_TIMEOUT  124 /* as timeout(1) has it */
#define SL_SUPERVISOR_SIGNALED 128 /* plus the signal */

/* report: of the workers that other launchers run, which are waited for too; inactive where there
 * are none. Returns the launcher's exit status: 0 when every worker and then every ps ended with 0,
 * else one of the above; the reason is logged and names the process. No child is left when it
 * returns. */
int sl_supervisor_run(const struct sl_plan *plan, const struct sl_launch_options *options,
                      struct sl_completion *report);

#endif
