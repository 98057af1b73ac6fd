/* The way to this very machine: free ports, and the programs as children. Before start. */
#ifndef SL_TOOLS_LAUNCH_LOCAL_H
#define SL_TOOLS_LAUNCH_LOCAL_H

#include "tools/launch/plan.h"

/* Fills the plan. Errors, with reason: INVALID, NO_MEMORY, IN_USE (not enough free ports), IO
 * (the address is none of this machine's). */
int sl_local_plan(const struct sl_launch_options *options, struct sl_plan *plan, char *reason,
                  size_t reason_bytes);

/* `count` ports on which nobody listens at the address, outside the range from which the kernel
 * takes ports for outgoing connections, so that none can slip in before the ps binds. Errors as
 * above. */
int sl_local_free_ports(const char *address, uint32_t count, uint16_t *ports, char *reason,
                        size_t reason_bytes);

#endif
