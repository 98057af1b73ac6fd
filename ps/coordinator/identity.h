/* Identity of the job: random, chosen by the coordinator when the job begins, and known to every
 * member. A restarted coordinator continues the job of the members that it finds:
 * - with a scheduler, that of a worker: a scheduler begins with the workers of its job;
 * - else that of a server that is serving, or of a worker.
 * A server that serves another job is refused. So is a server of a new job whose directory has
 * checkpoints, unless it was told to restore or to keep them. */
#ifndef SL_PS_COORDINATOR_IDENTITY_H
#define SL_PS_COORDINATOR_IDENTITY_H

#include "ps/coordinator/state.h"

/* Chooses the identity, once no task is missing and before the cluster is ready. Returns false if
 * servers were refused: their tasks are missing again. */
bool sl_coordinator_identity_settle(struct sl_coordinator *coordinator);

/* Refuses the registration of a serving member of another job; returns whether it did. */
bool sl_coordinator_identity_refuses(struct sl_coordinator *coordinator,
                                     struct sl_coordinator_member *member);

#endif
