/* Plans a job on other hosts, over ssh. The host list has lines "[user@]host[:slots] ps|worker",
 * blank lines and # comments. Before start. */
#ifndef SL_PROGRAMS_LAUNCH_SSH_H
#define SL_PROGRAMS_LAUNCH_SSH_H

#include "core/reason.h"
#include "programs/launch/plan.h"

#define SL_SSH_COMMAND   "ssh -o BatchMode=yes" /* default of --ssh */
#define SL_SSH_PORT_BASE 20000                  /* default of --port-base */

/* Fills the plan. ps i listens on the base port + i. Errors, with reason ("FILE:LINE: ..."):
 * NOT_FOUND, INVALID, TOO_LARGE, IO, NO_MEMORY. */
int sl_ssh_plan(const struct sl_launch_options *options, struct sl_plan *plan,
                struct sl_reason *reason);

#endif
