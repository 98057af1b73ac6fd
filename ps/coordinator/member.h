/* Membership: hello, resume, replacement, lease, expiry and goodbye. */
#ifndef SL_PS_COORDINATOR_MEMBER_H
#define SL_PS_COORDINATOR_MEMBER_H

#include "core/reason.h"
#include "ps/coordinator/state.h"

/* Returns the member of a connection, or NULL. */
struct sl_coordinator_member *sl_coordinator_member_of(const struct sl_coordinator *coordinator,
                                                       sl_coordinator_peer peer);

/* Gives a process the task that it asks for: a new member, a resumed or a replaced one. Errors:
 * those of sl_coordinator_hello. */
int sl_coordinator_member_hello(struct sl_coordinator *coordinator, sl_coordinator_peer peer,
                                const struct sl_message_hello *said, uint64_t now_ns,
                                struct sl_reason *reason);

/* Handles a goodbye: removes and frees the member. */
void sl_coordinator_member_leave(struct sl_coordinator *coordinator,
                                 struct sl_coordinator_member *member, uint64_t now_ns);

/* Expires members whose lease has ended. */
void sl_coordinator_member_expire(struct sl_coordinator *coordinator, uint64_t now_ns);

/* Adds a member from the records, disconnected. Errors: NO_MEMORY. */
int sl_coordinator_member_load(struct sl_coordinator *coordinator, enum sl_message_role role,
                               uint32_t task, uint64_t client_id, bool registered);

#endif
