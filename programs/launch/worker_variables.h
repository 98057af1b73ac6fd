/* The environment of a worker: the coordinator and its place in the job, under the names that
 * Starling, torch.distributed and TensorFlow read. Before start. */
#ifndef SL_PROGRAMS_LAUNCH_WORKER_VARIABLES_H
#define SL_PROGRAMS_LAUNCH_WORKER_VARIABLES_H

#include "programs/launch/plan.h"

/* A longer TF_CONFIG is left out: each worker has its own copy, and systems limit the length of a
 * variable. */
#define SL_WORKER_VARIABLES_TF_CONFIG_BYTES 32768

/* Appends NAME=VALUE for worker `index` of hosts->workers: STARLING_COORDINATOR, RANK, WORLD_SIZE,
 * LOCAL_RANK and LOCAL_WORLD_SIZE (among the workers of its host), MASTER_ADDR (worker 0's host),
 * MASTER_PORT, TF_CONFIG. Errors: NO_MEMORY. */
int sl_worker_variables_append(struct sl_words *variables, const struct sl_launch_options *options,
                               const struct sl_plan_hosts *hosts, uint32_t index);

/* Appends NAME=VALUE for an option of the launcher that workers have too; NAME is its variable.
 * Errors: NO_MEMORY. */
int sl_worker_variables_append_flag(struct sl_words *variables, const struct sl_cli_option *option,
                                    const char *value);

#endif
