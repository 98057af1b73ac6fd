/* Membership: hello, resume, replacement, lease, expiry and goodbye. */
#ifndef SL_PS_COORDINATOR_MEMBER_H
#define SL_PS_COORDINATOR_MEMBER_H

#include "ps/coordinator/state.h"

/* Returns the member of a connection, or NULL. */
struct sl_coordinator_member *sl_coordinator_member_of(const struct sl_coordinator *coordinator,
                                                       sl_coordinator_peer peer);

/* Handles a goodbye: removes and frees the member. */
void sl_coordinator_member_leave(struct sl_coordinator *coordinator,
                                 struct sl_coordinator_member *member, uint64_t now_ns);

/* Expires members whose lease has ended. */
void sl_coordinator_member_expire(struct sl_coordinator *coordinator, uint64_t now_ns);

/* Reports the changed record of a member. Clients have no record. */
void sl_coordinator_member_note(struct sl_coordinator *coordinator,
                                const struct sl_coordinator_member *member);

/* Adds a member from the records, disconnected. Errors: NO_MEMORY. */
int sl_coordinator_member_load(struct sl_coordinator *coordinator, enum sl_message_role role,
                               uint32_t task, uint64_t client_id, bool registered);

/* Counts the workers of the job, i.e. those that a barrier of count 0 waits for: tasks below
 * worker_count that have not left or expired, and joined workers beyond it. */
uint32_t sl_coordinator_member_job_workers(struct sl_coordinator *coordinator);

#endif
