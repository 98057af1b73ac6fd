/* Plans a job on this host: finds free ports and runs the programs as children. Before start. */
#ifndef SL_PROGRAMS_LAUNCH_LOCAL_H
#define SL_PROGRAMS_LAUNCH_LOCAL_H

#include "core/reason.h"
#include "programs/launch/plan.h"

/* Fills the plan. Errors, with reason: INVALID, NO_MEMORY, IN_USE (not enough free ports), IO (not
 * an address of this host). */
int sl_local_plan(const struct sl_launch_options *options, struct sl_plan *plan,
                  struct sl_reason *reason);

/* Finds `count` free ports of the address, outside of the kernel's range for outgoing connections,
 * and reserves them until this process ends: other launchers do not find them. Errors: as above. */
int sl_local_free_ports(const char *address, uint32_t count, uint16_t *ports,
                        struct sl_reason *reason);

#endif
