/* Chooses the checkpoint that a job begins from: the newest that every server has complete. Before
 * the cluster is first sent, every server has registered its complete checkpoints, or all have
 * none. A server that joins later restores the newest one of the job that it has; so does each new
 * server if another is already serving, because then only the coordinator restarted. */
#ifndef SL_PS_COORDINATOR_RESTORE_H
#define SL_PS_COORDINATOR_RESTORE_H

#include "ps/coordinator/state.h"

/* Before the job begins: checks that all registered servers and this one share a restorable
 * checkpoint, or that none has one. Otherwise refuses the registration and returns false. */
bool sl_coordinator_restore_agrees(struct sl_coordinator *coordinator,
                                   const struct sl_coordinator_member *member,
                                   const struct sl_message *message);

/* Chooses the checkpoint to restore, once every server has registered. */
void sl_coordinator_restore_choose(struct sl_coordinator *coordinator);

/* Returns the checkpoint that a replacement server restores while the job runs. */
uint64_t sl_coordinator_restore_of_replacement(const struct sl_coordinator *coordinator,
                                               const struct sl_message_register *reg);

/* Call when a server process has started after the job's tables were created. If it serves shards
 * but restored no values, the function sets values_lost: later checkpoints are refused, and every
 * member is informed. */
void sl_coordinator_restore_check_values(struct sl_coordinator *coordinator, uint32_t task);

#endif
