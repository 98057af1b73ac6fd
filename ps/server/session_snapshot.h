/* Copies the sessions of a server into a snapshot: all as they were at the moment when the shard's
 * snapshot starts (ps/shard/snapshot.h), although requests continue. A walk copies them into
 * blocks of that snapshot, in slices. A session that is about to change or end is copied first
 * (sl_server_session_touch), as rows are. So no turn takes long: starting increments a counter, a
 * request pays one comparison, and only copied sessions take memory twice. Copying or versioning
 * thousands of sessions at once would not.
 *
 * The progress of a write is recorded in its session after each slice, so starting needs no search
 * for requests. Sessions created later are not included. One snapshot at a time, as for the shard.
 * Owner reactor. */
#ifndef SL_PS_SERVER_SESSION_SNAPSHOT_H
#define SL_PS_SERVER_SESSION_SNAPSHOT_H

#include "ps/server/session.h"
#include "ps/shard/snapshot.h"

/* Starts a snapshot of shard and sessions, for a checkpoint or a backup. Otherwise like
 * sl_shard_snapshot_begin, whose other functions continue it. for_backup: the receiver learns the
 * progress of unfinished writes from it. */
int sl_server_snapshot_begin(struct sl_server *server, const struct sl_shard_snapshot_base *base,
                             bool for_backup);

/* Ends it, as sl_shard_snapshot_end does. */
void sl_server_snapshot_end(struct sl_server *server, struct sl_shard_snapshot_base **base);

/* begin includes all sessions as they are now. run continues the walk while the builder has room;
 * adds the cost to *spent, about `budget`; true: all sessions were copied, or memory ran out,
 * which the builder knows. end ends the walk in any state. */
void sl_server_session_snapshot_begin(struct sl_server *server, struct sl_snapshot_builder *blocks,
                                      bool for_backup);
bool sl_server_session_snapshot_run(struct sl_server *server, uint32_t budget, uint32_t *spent);
void sl_server_session_snapshot_end(struct sl_server *server);

/* Copies a session that was not copied yet, if a walk is in progress. */
void sl_server_session_snapshot_before(struct sl_server_session *session);

#endif
