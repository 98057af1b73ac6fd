/* Moves of shards: those that a person asks for, and those that drain a server or balance the
 * cluster. One move at a time; which one is next is decided when there is none. A drained server is
 * no longer part of the job. Owner reactor. */
#ifndef SL_PS_COORDINATOR_MOVE_H
#define SL_PS_COORDINATOR_MOVE_H

#include "ps/coordinator/state.h"

/* Handles a PLACEMENT_CHANGE, whose sender is allowed to make it. */
void sl_coordinator_move_change(struct sl_coordinator *coordinator,
                                const struct sl_coordinator_member *member,
                                const struct sl_message *message, uint64_t now_ns);

/* Commits a move whose target is in sync, unless a checkpoint is being written, and begins the next
 * one. Members need the new cluster after it. */
void sl_coordinator_move_advance(struct sl_coordinator *coordinator, uint64_t now_ns);

/* Notifies the process of a drained server that it ends. */
void sl_coordinator_move_end_drained(struct sl_coordinator *coordinator,
                                     const struct sl_coordinator_member *member);

#endif
