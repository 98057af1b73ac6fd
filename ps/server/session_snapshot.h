/* Copies the sessions of a server into a snapshot: all as they were at the moment when the shard's
 * snapshot starts (ps/shard/snapshot.h), although requests continue. A walk copies them into
 * blocks, in slices. A session that is about to change or end is copied first
 * (sl_server_session_touch), as rows are. So no turn takes long: starting increments a counter, a
 * request pays one comparison, and only copied sessions take memory twice. Copying or versioning
 * thousands of sessions at once would not.
 *
 * The progress of a write is recorded in its session after each slice, so starting needs no search
 * for requests. Sessions created later are not included. One snapshot at a time, as for the shard.
 * Owner reactor. Allocates blocks on demand: at most 64 bytes per session and 16 per failure wait
 * to be taken. */
#ifndef SL_PS_SERVER_SESSION_SNAPSHOT_H
#define SL_PS_SERVER_SESSION_SNAPSHOT_H

#include "ps/server/session.h"
#include "ps/snapshot/block.h"

/* Starts: includes all sessions as they are now. Call in the turn in which the shard's snapshot
 * starts. for_backup: the receiver learns the progress of unfinished writes from it. */
void sl_server_session_snapshot_begin(struct sl_server *server, bool for_backup);

/* Continues the walk, which waits while too many blocks wait to be taken. Returns the cost in units
 * of the turn's budget, about key_budget. */
uint32_t sl_server_session_snapshot_run(struct sl_server *server, uint32_t key_budget);

/* Removes the next block and gives it to the caller; NULL: none now. */
struct sl_snapshot_block *sl_server_session_snapshot_take(struct sl_server *server);

/* Returns true when all sessions were copied and all blocks taken. */
bool sl_server_session_snapshot_is_over(const struct sl_server *server);

/* Returns true when memory ran out: the snapshot cannot be completed. */
bool sl_server_session_snapshot_has_failed(const struct sl_server *server);

/* Ends the snapshot in any state; otherwise no effect. */
void sl_server_session_snapshot_end(struct sl_server *server);

/* has_spare returns true when blocks of an aborted snapshot are left. clean frees some of them. */
bool sl_server_session_snapshot_has_spare(const struct sl_server *server);
void sl_server_session_snapshot_clean(struct sl_server *server);

/* Frees all blocks. */
void sl_server_session_snapshot_fini(struct sl_server *server);

/* Copies a session that was not copied yet, if a walk is in progress. */
void sl_server_session_snapshot_before(struct sl_server_session *session);

#endif
