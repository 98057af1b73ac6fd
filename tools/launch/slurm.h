/* The way inside a Slurm allocation. From the batch script, or a shell of salloc, the launcher
 * starts one step a process with srun and watches over all of them. Started itself by srun, as many
 * times as the job has processes, each launcher becomes the one whose number it has. Before start.
 */
#ifndef SL_TOOLS_LAUNCH_SLURM_H
#define SL_TOOLS_LAUNCH_SLURM_H

#include "tools/launch/completion.h"
#include "tools/launch/plan.h"

/* Fills the plan; and the report, where srun started this launcher as one of many. Errors, with
 * reason: NOT_FOUND (not inside an allocation, no scontrol), INVALID, IO, NO_MEMORY. */
int sl_slurm_plan(const struct sl_launch_options *options, struct sl_plan *plan,
                  struct sl_completion *report, char *reason, size_t reason_bytes);

#endif
