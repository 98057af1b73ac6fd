/* Barriers. A barrier completes when `count` members have arrived; then its name can be used again.
 * Count 0 means all workers of the job, checked again when their number changes. A barrier of
 * groups completes when each of their nodes has arrived, and fails when one of them ends.
 * - A member that repeats a request id after a reconnect gets the same answer again.
 * - A member that arrives again under a new request id has timed out before: it counts once, and
 *   the last request is answered.
 * - A request with a timeout fails shortly before it, with the names of the missing members. */
#ifndef SL_PS_COORDINATOR_BARRIER_H
#define SL_PS_COORDINATOR_BARRIER_H

#include "ps/coordinator/node.h"

void sl_coordinator_barrier_arrive(struct sl_coordinator *coordinator,
                                   struct sl_coordinator_member *member,
                                   const struct sl_message *message, uint64_t now_ns);

/* Removes the member from all barriers. */
void sl_coordinator_barrier_leave(struct sl_coordinator *coordinator,
                                  const struct sl_coordinator_member *member);

/* Fails the barriers of the node's group: it has ended. */
void sl_coordinator_barrier_lose(struct sl_coordinator *coordinator,
                                 struct sl_coordinator_node node, enum sl_coordinator_end end);

/* Completes barriers of all workers after the number of workers has fallen. */
void sl_coordinator_barrier_update(struct sl_coordinator *coordinator);

/* Sends Waiting messages and fails timed-out requests. */
void sl_coordinator_barrier_tick(struct sl_coordinator *coordinator, uint64_t now_ns);

void sl_coordinator_barrier_fini(struct sl_coordinator *coordinator);

#endif
