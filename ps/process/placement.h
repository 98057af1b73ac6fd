/* Carries out the coordinator's placement of shards: creates and ends their servers, sends them
 * their roles, and reports to the coordinator whether their backups are in sync. */
#ifndef SL_PS_PROCESS_PLACEMENT_H
#define SL_PS_PROCESS_PLACEMENT_H

#include "ps/process/hosted.h"

/* Callback of the agent: a new version of the cluster. */
void sl_process_on_cluster(void *process, const struct sl_message_cluster *cluster);

/* Creates the shards of the process, which has joined. The primaries restore checkpoint `restore`,
 * if that is not 0. One answer to the main thread follows. Reactor 0. */
void sl_process_placement_join(struct sl_process *process, uint64_t restore);

/* Destroys the servers of shards of a core, whose own server is destroyed. Its reactor. */
void sl_process_placement_destroy(struct sl_process_core *core);

/* Callbacks of a server's replication; hosted: its shard's. Its reactor. */
void sl_process_on_replica_state_changed(void *hosted, uint32_t local_index, uint64_t epoch,
                                         bool in_sync);
void sl_process_on_replica_failed(void *hosted, int err);

#endif
