/* DPDK's devices of the processes of a job: each has its own, with an address of its own, so that
 * what is said of them is a pattern. Before start. */
#ifndef SL_TOOLS_LAUNCH_DEVICE_H
#define SL_TOOLS_LAUNCH_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#include "tools/launch/shell_split.h"

/* Appends "--dpdk-device" and a device for each that the patterns, with ';' between, stand for. In
 * a pattern {task} and {task+N} stand for the process's index, and that plus N. One with {worker}
 * or {worker+N} in it stands for `worker_count` devices, one for the index of each worker: memif,
 * and cables, lead to one peer each. patterns may be NULL. Errors: INVALID, with the reason, which
 * begins with `flag`; NO_MEMORY. */
int sl_device_append(const char *flag, const char *patterns, uint32_t task, uint32_t worker_count,
                     struct sl_shell_words *argv, char *reason, size_t reason_bytes);

#endif
