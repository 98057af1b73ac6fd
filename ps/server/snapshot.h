/* A snapshot of the shard (ps/shard/snapshot.h) and of its sessions (session_snapshot.h) at the
 * same moment, taken while serving: for a checkpoint, or for a backup that catches up. One at a
 * time. Sessions come first, then tables. Owner reactor. */
#ifndef SL_PS_SERVER_SNAPSHOT_H
#define SL_PS_SERVER_SNAPSHOT_H

#include "ps/shard/snapshot.h"

struct sl_server;

/* Starts a snapshot; errors of sl_shard_snapshot_begin. for_backup: the receiver learns the
 * progress of unfinished writes from it. */
int sl_server_snapshot_begin(struct sl_server *server,
                             const struct sl_shard_snapshot_options *options, bool for_backup);

/* Continues the walk at a cost of about key_budget; returns the cost. */
uint32_t sl_server_snapshot_run(struct sl_server *server, uint32_t key_budget);

/* Returns why the snapshot cannot be completed; NULL: it can. */
const char *sl_server_snapshot_failure(const struct sl_server *server);

/* take gives the next block to the caller; NULL: none now. put returns a block. */
struct sl_snapshot_block *sl_server_snapshot_take(struct sl_server *server);
void sl_server_snapshot_put(struct sl_server *server, struct sl_snapshot_block *block);

/* Ends the snapshot in any state. *base: as in sl_shard_snapshot_end. */
void sl_server_snapshot_end(struct sl_server *server, struct sl_shard_snapshot_base **base);

/* has_spare returns true when blocks of a snapshot are left. clean frees some of them. */
bool sl_server_snapshot_has_spare(const struct sl_server *server);
void sl_server_snapshot_clean(struct sl_server *server);

#endif
