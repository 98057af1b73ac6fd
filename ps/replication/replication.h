/* Replication keeps a copy of a shard on a second server. Per epoch, the coordinator makes one
 * server of a replica group the primary and the other the backup. This header has its decisions;
 * the servers do everything else themselves. Owner reactor. */
#ifndef SL_PS_REPLICATION_REPLICATION_H
#define SL_PS_REPLICATION_REPLICATION_H

#include <stdbool.h>

#include "ps/server/hooks.h"
#include "ps/server/server.h"

/* Configuration of a shard and its backup, decided by the coordinator, for one of their two
 * servers. */
struct sl_replica_config {
    uint64_t epoch;  /* valid until a later epoch */
    bool is_primary; /* serves the shard; otherwise has the backup */
    bool has_backup; /* of a primary; then the fields below are set */
    uint32_t backup_task;
    struct sl_endpoint backup;
    bool needs_backup; /* of a primary: without a backup in sync it is degraded */
};

struct sl_replication_options {
    size_t log_bytes_max;     /* outbox of the log for the backup; 0: 16 MiB */
    uint32_t catch_up_budget; /* turn cost of a snapshot; 0: as much as for other sliced work */
    /* Called on a primary inside a turn. in_sync: the backup has all acknowledged writes, and from
     * before this call until the next epoch every acknowledgement waits for the backup. Not
     * in_sync: the backup will not be in sync in this epoch, so the coordinator must start another
     * epoch. */
    void (*state_changed)(void *ctx, uint32_t local_index, uint64_t epoch, bool in_sync);
    /* The process must end; already logged. REFUSED: only the server, because the coordinator has
     * made another one the primary. */
    void (*failed)(void *ctx, int err);
    void *ctx;
    struct sl_replication_cells *cells; /* outlive the server; NULL: the server has its own */
};

/* Options `hooks` and `replication` of a server with replicas: these, and the struct above. */
extern const struct sl_server_hooks sl_replication_hooks;

/* Sets the shard's replica configuration for an epoch. Until the first one, connections wait. After
 * sl_server_set_shard. */
void sl_replication_set_config(struct sl_server *server, const struct sl_replica_config *config);

/* Sets whether the coordinator will promote the backups of all shards of this ps when its process
 * ends. If so, requests that would be answered CANCELLED are left to the backups. Call before
 * sl_server_fence_writes and sl_server_drain. Valid until the next epoch; default false. No effect
 * without replicas. */
void sl_replication_set_switchover(struct sl_server *server, bool may_switch_over);

#endif
