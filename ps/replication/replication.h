/* Replication keeps a copy of a shard on a second server. The coordinator makes one of the two
 * servers of a replica group the primary and the other one the backup, in epochs. The server of a
 * shard does everything else by itself; these are the decisions that come from outside. Owner
 * reactor. */
#ifndef SL_PS_REPLICATION_REPLICATION_H
#define SL_PS_REPLICATION_REPLICATION_H

#include <stdbool.h>

#include "ps/server/server.h"

/* Sets the shard's replica configuration, as the coordinator decided it for an epoch. Connections
 * wait until the first one. After sl_server_set_shard. Owner reactor. */
void sl_replication_set_config(struct sl_server *server, const struct sl_replica_config *config);

/* With replicas, before sl_server_fence_writes and sl_server_drain: whether the coordinator
 * promotes the backup of this server's shard, and those of all other shards of the same ps, when
 * the process ends. Requests that would be answered CANCELLED are then left to that backup. Until
 * the next epoch; false without. */
void sl_replication_set_switchover(struct sl_server *server, bool hands_over);

#endif
