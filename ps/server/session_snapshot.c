#include "ps/server/session_snapshot.h"

#include "core/assert.h"
#include "ps/server/state.h"

/* In units of a turn's budget. */
#define BUCKETS_PER_COST  64
#define SESSION_COST      4
#define FAILURES_PER_COST 16

/* One session */

static void fill(const struct sl_server_session *session, struct sl_snapshot_session *out)
{
    const bool is_partial =
        session->begun_id > session->last_write_id && session->begun_sections > 0;
    out->client_id = session->client_id;
    out->role = (uint8_t)session->role;
    out->heard = session->confirmed;
    out->restored = session->restored && session->server->sessions.snapshot.for_backup;
    out->task_index = session->task_index;
    out->id_max = session->id_max;
    out->last_write_id = session->last_write_id;
    out->partial_id = is_partial ? session->begun_id : 0;
    out->partial_sections = is_partial ? session->begun_sections : 0;
    out->failure_count = session->failure_count;
    for (uint32_t i = 0; i < session->failure_count; i++) {
        const struct sl_server_failure *failure = &session->failures[i];
        out->failures[i] = (struct sl_snapshot_failure){.id = failure->id, .err = failure->err};
    }
}

static void append(struct sl_server_session_snapshot *snapshot,
                   const struct sl_snapshot_session *session)
{
    struct sl_snapshot_block *block;
    while ((block = sl_snapshot_appender_block(&snapshot->stream)) != NULL &&
           !sl_snapshot_put_session(block, session)) {
        sl_assert(block->count > 0); /* the session fits into an empty block */
        sl_snapshot_appender_close(&snapshot->stream);
    }
    snapshot->walks = block != NULL;
}

/* Sessions to be saved. A session that lacks some of its failures ends with its connection; only
 * workers and clients reconnect. */
static bool is_lasting(const struct sl_server_session *session)
{
    return !session->forgets &&
           (session->role == SL_MESSAGE_ROLE_WORKER || session->role == SL_MESSAGE_ROLE_CLIENT);
}

/* Copies the session; returns the cost. */
static uint32_t session_snapshot_put(struct sl_server_session_snapshot *snapshot,
                                     struct sl_server_session *session)
{
    struct sl_snapshot_session record;
    session->snapshot_number = snapshot->number;
    if (!is_lasting(session)) {
        return 1;
    }
    fill(session, &record);
    if (snapshot->for_backup) {
        session->sent_id = record.partial_id;
        session->sent_sections = record.partial_sections;
    }
    append(snapshot, &record);
    return SESSION_COST + record.failure_count / FAILURES_PER_COST;
}

void sl_server_session_snapshot_before(struct sl_server_session *session)
{
    struct sl_server *server = session->server;
    struct sl_server_session_snapshot *snapshot = &server->sessions.snapshot;
    session->snapshot_number = snapshot->number;
    if (snapshot->walks && snapshot->stream.blocks->err == 0) {
        sl_server_spend(server, session_snapshot_put(snapshot, session));
    }
}

/* All sessions */

void sl_server_session_snapshot_begin(struct sl_server *server, struct sl_snapshot_builder *blocks,
                                      bool for_backup)
{
    struct sl_server_session_snapshot *snapshot = &server->sessions.snapshot;
    sl_snapshot_appender_init(&snapshot->stream, blocks, SL_SNAPSHOT_SESSIONS, 0,
                              sizeof(struct sl_snapshot_session));
    snapshot->number++;
    snapshot->walks = true;
    snapshot->for_backup = for_backup;
    snapshot->bucket = 0;
}

bool sl_server_session_snapshot_run(struct sl_server *server, uint32_t budget, uint32_t *spent)
{
    struct sl_server_session_snapshot *snapshot = &server->sessions.snapshot;
    while (snapshot->walks && snapshot->bucket < SL_SERVER_SESSION_BUCKETS && *spent < budget &&
           sl_snapshot_builder_have_room(snapshot->stream.blocks)) {
        struct sl_server_session *session = server->sessions.buckets[snapshot->bucket++];
        for (; session != NULL; session = session->next) {
            *spent += snapshot->walks && session->snapshot_number != snapshot->number
                          ? session_snapshot_put(snapshot, session)
                          : 0;
        }
        *spent += snapshot->bucket % BUCKETS_PER_COST == 0;
    }
    if (snapshot->walks && snapshot->bucket == SL_SERVER_SESSION_BUCKETS) {
        snapshot->walks = false;
        sl_snapshot_appender_close(&snapshot->stream);
    }
    return !snapshot->walks;
}

void sl_server_session_snapshot_end(struct sl_server *server)
{
    server->sessions.snapshot.walks = false;
    sl_snapshot_appender_drop(&server->sessions.snapshot.stream);
}

/* Shard and sessions */

static bool run_sessions(void *ctx, uint32_t budget, uint32_t *spent)
{
    return sl_server_session_snapshot_run(ctx, budget, spent);
}

int sl_server_snapshot_begin(struct sl_server *server, const struct sl_shard_snapshot_base *base,
                             bool for_backup)
{
    const struct sl_shard_snapshot_options options = {
        .base = base, .more = run_sessions, .more_ctx = server};
    int err = sl_shard_snapshot_begin(server->shard, &options);
    if (err == 0) {
        sl_server_session_snapshot_begin(server, sl_shard_snapshot_blocks(server->shard),
                                         for_backup);
    }
    return err;
}

void sl_server_snapshot_end(struct sl_server *server, struct sl_shard_snapshot_base **base)
{
    sl_server_session_snapshot_end(server);
    sl_shard_snapshot_end(server->shard, base);
}
