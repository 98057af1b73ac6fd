/* Replica groups of this process. Its home servers have its own shards, its partner servers those
 * of the previous server. In each group the coordinator makes this process primary or backup. */
#ifndef SL_PS_PROCESS_REPLICA_GROUPS_H
#define SL_PS_PROCESS_REPLICA_GROUPS_H

#include "ps/process/state.h"

/* Returns true if this process has tables; each table is on all shards. Reactor 0. */
bool sl_process_has_tables(const struct sl_process *process);

/* Runs `run` on every core when the process stops, with hosted[].switches_over set for
 * sl_process_replica_switch_over. Reactor 0. */
void sl_process_replica_end(struct sl_process *process, sl_mail_fn *run);

/* Passes switches_over to the servers of a core. */
void sl_process_replica_switch_over(struct sl_process_core *core);

/* Returns true if this process is the primary of those shards. Without replicas it is that of its
 * own. Reactor 0. */
bool sl_process_replica_is_primary(const struct sl_process *process, uint32_t which);

/* Callback of the agent: a new version of the cluster. */
void sl_process_on_cluster(void *process, const struct sl_message_cluster *cluster);

/* Sends new epochs to the cores, once they know their shards. Reactor 0. */
void sl_process_replica_tell(struct sl_process *process);

/* Callbacks of a server; `core` is its core. */
void sl_process_on_replica_state_changed(void *core, uint32_t local_index, uint64_t epoch,
                                         bool in_sync);
void sl_process_on_replica_failed(void *core, int err);

#endif
