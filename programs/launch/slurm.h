/* Plans a job in a Slurm allocation. From the batch script or salloc's shell, the launcher starts
 * one srun step per process and supervises all. If srun starts one launcher per process, each
 * launcher runs the process of its own number. Before start. */
#ifndef SL_PROGRAMS_LAUNCH_SLURM_H
#define SL_PROGRAMS_LAUNCH_SLURM_H

#include "core/reason.h"
#include "programs/launch/completion.h"
#include "programs/launch/plan.h"

/* Fills the plan, and the completion if srun started several launchers. Errors, with reason:
 * NOT_FOUND (no allocation, no scontrol), INVALID, IO, NO_MEMORY. */
int sl_slurm_plan(const struct sl_launch_options *options, struct sl_plan *plan,
                  struct sl_completion *completion, struct sl_reason *reason);

#endif
