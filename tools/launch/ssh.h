/* The way to other machines by ssh: who runs where is read from a host list, lines
 * "[user@]host[:slots] ps|worker", blank lines and # comments aside. Before start. */
#ifndef SL_TOOLS_LAUNCH_SSH_H
#define SL_TOOLS_LAUNCH_SSH_H

#include "tools/launch/plan.h"

#define SL_SSH_COMMAND   "ssh -o BatchMode=yes" /* unless --ssh says otherwise */
#define SL_SSH_PORT_BASE 20000                  /* unless --port-base says otherwise */

/* Fills the plan. ps i listens at the i-th port from the base. Errors, with reason ("FILE:LINE:
 * ..."): NOT_FOUND, INVALID, TOO_LARGE, IO, NO_MEMORY. */
int sl_ssh_plan(const struct sl_launch_options *options, struct sl_plan *plan, char *reason,
                size_t reason_bytes);

#endif
