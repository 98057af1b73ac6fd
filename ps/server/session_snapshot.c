#include "ps/server/session_snapshot.h"

#include "core/assert.h"
#include "ps/server/state.h"

/* Small enough to be cheap to free and to be sent early; large enough for the longest session. */
#define BLOCK_BYTES       (64U << 10)

/* Blocks to be taken, beyond which the walk waits. */
#define BLOCKS_WAITING    4

/* Blocks freed at a time. */
#define BLOCKS_CLEANED    16

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

static void close_block(struct sl_server_session_snapshot *snapshot)
{
    struct sl_snapshot_block *block = snapshot->open;
    if (block == NULL) {
        return;
    }
    snapshot->open = NULL;
    block->next = NULL;
    *(snapshot->first == NULL ? &snapshot->first : &snapshot->last->next) = block;
    snapshot->last = block;
    snapshot->waiting_count++;
}

/* Returns the open block, or a new one; NULL: no memory. */
static struct sl_snapshot_block *block_of(struct sl_server_session_snapshot *snapshot)
{
    if (snapshot->open != NULL || sl_snapshot_block_create(BLOCK_BYTES, &snapshot->open) != 0) {
        return snapshot->open;
    }
    sl_snapshot_block_begin(snapshot->open, SL_SNAPSHOT_SESSIONS, 0);
    return snapshot->open;
}

static void append(struct sl_server_session_snapshot *snapshot,
                   const struct sl_snapshot_session *session)
{
    struct sl_snapshot_block *block;
    while ((block = block_of(snapshot)) != NULL && !sl_snapshot_put_session(block, session)) {
        sl_assert(block->count > 0); /* the session fits into an empty block */
        close_block(snapshot);
    }
    if (block == NULL) {
        snapshot->has_failed = true;
        snapshot->walks = false;
    }
}

/* Sessions to be saved. A session that lacks some of its failures ends with its connection; only
 * workers and clients reconnect. */
static bool is_lasting(const struct sl_server_session *session)
{
    return !session->forgets &&
           (session->role == SL_MESSAGE_ROLE_WORKER || session->role == SL_MESSAGE_ROLE_CLIENT);
}

/* Copies the session; returns the cost. */
static uint32_t put(struct sl_server_session_snapshot *snapshot, struct sl_server_session *session)
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
    if (snapshot->walks) {
        sl_server_spend(server, put(snapshot, session));
    }
}

/* All sessions */

void sl_server_session_snapshot_begin(struct sl_server *server, bool for_backup)
{
    struct sl_server_session_snapshot *snapshot = &server->sessions.snapshot;
    sl_assert(snapshot->open == NULL);
    sl_assert(snapshot->first == NULL);
    snapshot->number++;
    snapshot->walks = true;
    snapshot->for_backup = for_backup;
    snapshot->has_failed = false;
    snapshot->bucket = 0;
}

uint32_t sl_server_session_snapshot_run(struct sl_server *server, uint32_t key_budget)
{
    struct sl_server_session_snapshot *snapshot = &server->sessions.snapshot;
    uint32_t spent = 0;
    while (snapshot->walks && snapshot->bucket < SL_SERVER_SESSION_BUCKETS && spent < key_budget &&
           snapshot->waiting_count < BLOCKS_WAITING) {
        struct sl_server_session *session = server->sessions.buckets[snapshot->bucket++];
        for (; session != NULL; session = session->next) {
            spent += snapshot->walks && session->snapshot_number != snapshot->number
                         ? put(snapshot, session)
                         : 0;
        }
        spent += snapshot->bucket % BUCKETS_PER_COST == 0;
    }
    if (snapshot->walks && snapshot->bucket == SL_SERVER_SESSION_BUCKETS) {
        snapshot->walks = false;
        close_block(snapshot);
    }
    return spent;
}

struct sl_snapshot_block *sl_server_session_snapshot_take(struct sl_server *server)
{
    struct sl_server_session_snapshot *snapshot = &server->sessions.snapshot;
    struct sl_snapshot_block *block = snapshot->first;
    if (block != NULL) {
        snapshot->first = block->next;
        snapshot->waiting_count--;
        block->next = NULL;
    }
    return block;
}

bool sl_server_session_snapshot_is_over(const struct sl_server *server)
{
    const struct sl_server_session_snapshot *snapshot = &server->sessions.snapshot;
    return !snapshot->walks && !snapshot->has_failed && snapshot->first == NULL;
}

bool sl_server_session_snapshot_has_failed(const struct sl_server *server)
{
    return server->sessions.snapshot.has_failed;
}

void sl_server_session_snapshot_end(struct sl_server *server)
{
    struct sl_server_session_snapshot *snapshot = &server->sessions.snapshot;
    snapshot->walks = false;
    snapshot->has_failed = false;
    close_block(snapshot);
    if (snapshot->first != NULL) {
        snapshot->last->next = snapshot->spare;
        snapshot->spare = snapshot->first;
        snapshot->first = NULL;
        snapshot->waiting_count = 0;
    }
}

bool sl_server_session_snapshot_has_spare(const struct sl_server *server)
{
    return server->sessions.snapshot.spare != NULL;
}

void sl_server_session_snapshot_clean(struct sl_server *server)
{
    struct sl_server_session_snapshot *snapshot = &server->sessions.snapshot;
    for (uint32_t i = 0; i < BLOCKS_CLEANED && snapshot->spare != NULL; i++) {
        struct sl_snapshot_block *block = snapshot->spare;
        snapshot->spare = block->next;
        sl_snapshot_block_destroy(&block);
    }
}

void sl_server_session_snapshot_fini(struct sl_server *server)
{
    sl_server_session_snapshot_end(server);
    while (sl_server_session_snapshot_has_spare(server)) {
        sl_server_session_snapshot_clean(server);
    }
}
