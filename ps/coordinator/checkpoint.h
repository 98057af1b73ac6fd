/* Checkpoints, one at a time, in two stages: every server writes the files of its shards, then
 * every server writes the manifest. Requests are answered when all servers have acknowledged both.
 * - Numbers ascend, even across coordinators: every server reports the greatest number that it
 *   knows.
 * - A server that fails, leaves, expires or restarts aborts the checkpoint. A server that
 *   reconnects within its lease gets its pending message again.
 * - The first checkpoint is full, and so is the next one after an abort, a server restart or
 *   incrementals_max incrementals. */
#ifndef SL_PS_COORDINATOR_CHECKPOINT_H
#define SL_PS_COORDINATOR_CHECKPOINT_H

#include "ps/coordinator/state.h"

void sl_coordinator_checkpoint_part(struct sl_coordinator *coordinator,
                                    const struct sl_coordinator_member *member,
                                    const struct sl_message *message, uint64_t now_ns);
void sl_coordinator_checkpoint_done(struct sl_coordinator *coordinator,
                                    const struct sl_coordinator_member *member,
                                    const struct sl_message *message, uint64_t now_ns);

/* Starts the checkpoint interval when the cluster is first ready. */
void sl_coordinator_checkpoint_cluster_ready(struct sl_coordinator *coordinator, uint64_t now_ns);

/* Takes checkpoint numbers from a Register. Call before the server counts as registered. is_new:
 * another process than before. */
void sl_coordinator_checkpoint_register(struct sl_coordinator *coordinator,
                                        const struct sl_coordinator_member *member,
                                        const struct sl_message_register *reg, bool is_new,
                                        uint64_t now_ns);

/* Repeats the pending message to a registered server: the first one, or its answer, may be lost
 * with a connection. */
void sl_coordinator_checkpoint_resend(struct sl_coordinator *coordinator,
                                      const struct sl_coordinator_member *member);

/* Handles the end of a membership. */
void sl_coordinator_checkpoint_leave(struct sl_coordinator *coordinator,
                                     const struct sl_coordinator_member *member, bool is_expired,
                                     uint64_t now_ns);

/* Aborts the current checkpoint because the job lost values (values_lost). */
void sl_coordinator_checkpoint_lose(struct sl_coordinator *coordinator);

/* Begins the next checkpoint if it is due or requested and no server is missing. */
void sl_coordinator_checkpoint_update(struct sl_coordinator *coordinator, uint64_t now_ns);

void sl_coordinator_checkpoint_tick(struct sl_coordinator *coordinator, uint64_t now_ns);
void sl_coordinator_checkpoint_fini(struct sl_coordinator *coordinator);

#endif
