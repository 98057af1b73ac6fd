/* Stages of a job, if options.stage_changed is set (a scheduler).
 * - The job begins when every server and every worker has registered. If this takes longer than the
 *   start timeout, the job is over, and waiting members are refused.
 * - It ends when each worker has left, or expired without a replacement, or on
 *   sl_coordinator_end_job. Then every server is notified.
 * - It is over when no server is left. It ends with an error if a server expired or left early, and
 *   was not replaced. */
#ifndef SL_PS_COORDINATOR_JOB_H
#define SL_PS_COORDINATOR_JOB_H

#include "core/reason.h"
#include "ps/coordinator/state.h"

/* Appends the workers without which the job cannot begin. total: entries so far; returns the new
 * total. */
uint32_t sl_coordinator_job_missing(const struct sl_coordinator *coordinator, uint32_t total,
                                    struct sl_message_waiting *waiting);

/* Starts the job, unless it has begun. Call when every task has registered. */
void sl_coordinator_job_begin(struct sl_coordinator *coordinator, uint64_t now_ns);

/* Advances the stage of the job after a change or a tick. missing_count: missing tasks on a tick,
 * else 0. */
void sl_coordinator_job_update(struct sl_coordinator *coordinator, uint32_t missing_count,
                               uint64_t now_ns);

/* Sends the end of the job to a server, if the job is ending. */
void sl_coordinator_job_notify_end(struct sl_coordinator *coordinator,
                                   const struct sl_coordinator_member *member);

/* Refuses a registration if the job ended before it began. Returns true if so. */
bool sl_coordinator_job_refuses(struct sl_coordinator *coordinator,
                                struct sl_coordinator_member *member, uint64_t request);

/* Checks that the job has not ended. Servers of the job are always admitted. Errors: REFUSED. */
int sl_coordinator_job_admits(const struct sl_coordinator *coordinator,
                              const struct sl_message_hello *hello, struct sl_reason *reason);

#endif
