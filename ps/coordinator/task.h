/* Assigns a task index to a process that says hello with any_task:
 * 1. the index that it has or had;
 * 2. the lowest free one, or that of an expired process; but not of a worker that left a job that
 *    has begun;
 * 3. the lowest one of a disconnected member, which is then replaced;
 * 4. none yet.
 * With join_running, a worker may also get an index beyond the job's count; a server gets such an
 * index, or that of one that was drained. */
#ifndef SL_PS_COORDINATOR_TASK_H
#define SL_PS_COORDINATOR_TASK_H

#include "core/reason.h"
#include "ps/coordinator/state.h"

/* Assigns a task_index to a hello with any_task. Errors: AGAIN (none is free), with reason. */
int sl_coordinator_task_choose(const struct sl_coordinator *coordinator,
                               struct sl_message_hello *hello, struct sl_reason *reason);

#endif
