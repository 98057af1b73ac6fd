/* Expands patterns for the DPDK devices of processes, since each needs its own device and address.
 * Before start. */
#ifndef SL_PROGRAMS_LAUNCH_DEVICE_H
#define SL_PROGRAMS_LAUNCH_DEVICE_H

#include <stdint.h>

#include "core/reason.h"
#include "programs/launch/words.h"

/* Appends "--dpdk-device" and a device for each of the ';'-separated patterns (may be NULL). {task}
 * stands for the process's index, {task+N} for that plus N. A pattern with {worker} or {worker+N}
 * stands for worker_count devices, one per worker index: memif and cables connect one peer each.
 * Errors: INVALID, with a reason that starts with `flag`; NO_MEMORY. */
int sl_device_append(const char *flag, const char *patterns, uint32_t task, uint32_t worker_count,
                     struct sl_words *argv, struct sl_reason *reason);

#endif
