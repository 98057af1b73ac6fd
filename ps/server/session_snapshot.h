/* The sessions of a server in an image, all as they were at one moment, that in which the shard's
 * cut begins (ps/shard/snapshot.h), although requests go on. A walk puts them into blocks, slice by
 * slice; a session that is about to change, or to end, and has yet to be put, is put first, as it
 * is (sl_server_session_touch). It is what rows do, and the simplest that costs no turn more than
 * its part: to begin is to count one up, a request pays a comparison, and nothing but what is put
 * is held twice; copies or versions of thousands of sessions would have to be made at once, or be
 * kept by all requests at all times.
 *
 * What has been written of a request in progress is kept with its session slice by slice, so that
 * nobody has to look for requests when the cut begins. Sessions that come later are not in it.
 *
 * One at a time, as with the shard's. Owner reactor. Allocates blocks as they are needed: at most
 * 64 bytes a session and 16 for each of its failures wait to be taken. */
#ifndef SL_PS_SERVER_SESSION_SNAPSHOT_H
#define SL_PS_SERVER_SESSION_SNAPSHOT_H

#include "ps/server/internal.h"
#include "ps/snapshot/block.h"

/* All sessions are in it as they are now: in the turn in which the shard's cut begins. for_backup:
 * who gets it will know what it says of requests in progress. */
void sl_server_session_snapshot_begin(struct sl_server *server, bool for_backup);

/* Walks on; returns what it spent, in units of a turn's key budget, about as much as it was given.
 * Where blocks wait to be taken, it waits too. */
uint32_t sl_server_session_snapshot_run(struct sl_server *server, uint32_t key_budget);

/* The next block, which is the caller's; NULL: none now. */
struct sl_snapshot_block *sl_server_session_snapshot_take(struct sl_server *server);

/* All sessions have been put, and all blocks taken. */
bool sl_server_session_snapshot_is_over(const struct sl_server *server);

/* There was no memory: the image cannot be completed. */
bool sl_server_session_snapshot_has_failed(const struct sl_server *server);

/* Ends it in whatever state; does nothing without. */
void sl_server_session_snapshot_end(struct sl_server *server);

/* Blocks of one that was given up are freed some at a time: true when there are any. */
bool sl_server_session_snapshot_has_spare(const struct sl_server *server);
void sl_server_session_snapshot_clean(struct sl_server *server);

/* Frees whatever there is. */
void sl_server_session_snapshot_fini(struct sl_server *server);

/* Puts the session, which has not been put, unless there is nothing to put it into. */
void sl_server_session_snapshot_before(struct sl_server_session *session);

/* The session is about to change, or to end. */
static inline void sl_server_session_touch(struct sl_server_session *session)
{
    if (session->snapshot_number != session->server->sessions.snapshot.number) {
        sl_server_session_snapshot_before(session);
    }
}

/* A request of that id has come. */
static inline void sl_server_session_came(struct sl_server_session *session, uint64_t id)
{
    sl_server_session_touch(session);
    session->id_max = id > session->id_max ? id : session->id_max;
}

/* A slice of a request is about to be run; and has been: so many sections have written by now. */
static inline void sl_server_session_writes(const struct sl_server_request *request)
{
    if (request->session != NULL && sl_server_request_writes(&request->work)) {
        sl_server_session_touch(request->session);
    }
}

static inline void sl_server_session_note(const struct sl_server_request *request)
{
    struct sl_server_session *session = request->session;
    if (session != NULL && sl_server_request_writes(&request->work)) {
        session->begun_id = request->id;
        session->begun_sections = sl_shard_written(&request->work);
    }
}

#endif
