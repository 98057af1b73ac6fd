#include "ps/server/session_snapshot.h"

#include "core/assert.h"

/* Short enough to be freed at no cost, and to be sent early; the longest session fits. */
#define BLOCK_BYTES       (64U << 10)

/* That wait to be taken before the walk waits. */
#define BLOCKS_WAITING    4

/* That are freed at a time. */
#define BLOCKS_CLEANED    16

/* In units of a turn's budget. */
#define BUCKETS_PER_COST  64
#define SESSION_COST      4
#define FAILURES_PER_COST 16

/* ---- One session ----------------------------------------------------------------------------- */

static void fill(const struct sl_server_session *session, struct sl_snapshot_session *out)
{
    const bool is_partial =
        session->begun_id > session->last_write_id && session->begun_sections > 0;
    out->client_id = session->client_id;
    out->role = (uint8_t)session->role;
    out->heard = session->heard;
    out->restored = session->restored && session->server->sessions.cut.for_backup;
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

static void close_block(struct sl_server_session_snapshot *cut)
{
    struct sl_snapshot_block *block = cut->open;
    if (block == NULL) {
        return;
    }
    cut->open = NULL;
    block->next = NULL;
    *(cut->first == NULL ? &cut->first : &cut->last->next) = block;
    cut->last = block;
    cut->waiting_count++;
}

/* The open block, or an empty one. NULL: no memory. */
static struct sl_snapshot_block *block_of(struct sl_server_session_snapshot *cut)
{
    if (cut->open != NULL || sl_snapshot_block_create(BLOCK_BYTES, &cut->open) != 0) {
        return cut->open;
    }
    sl_snapshot_block_begin(cut->open, SL_SNAPSHOT_SESSIONS, 0);
    return cut->open;
}

static void append(struct sl_server_session_snapshot *cut,
                   const struct sl_snapshot_session *session)
{
    struct sl_snapshot_block *block;
    while ((block = block_of(cut)) != NULL && !sl_snapshot_put_session(block, session)) {
        sl_assert(block->count > 0); /* an empty one has room for it */
        close_block(cut);
    }
    if (block == NULL) {
        cut->has_failed = true;
        cut->walks = false;
    }
}

/* One that does not know all of its failures ends with its connection; and of a peer that is
 * neither a worker nor a client nobody expects that it comes back. */
static bool is_lasting(const struct sl_server_session *session)
{
    return !session->forgets &&
           (session->role == SL_MESSAGE_ROLE_WORKER || session->role == SL_MESSAGE_ROLE_CLIENT);
}

/* Returns what it cost. */
static uint32_t put(struct sl_server_session_snapshot *cut, struct sl_server_session *session)
{
    struct sl_snapshot_session image;
    session->cut_number = cut->number;
    if (!is_lasting(session)) {
        return 1;
    }
    fill(session, &image);
    if (cut->for_backup) {
        session->sent_id = image.partial_id;
        session->sent_sections = image.partial_sections;
    }
    append(cut, &image);
    return SESSION_COST + image.failure_count / FAILURES_PER_COST;
}

void sl_server_session_snapshot_before(struct sl_server_session *session)
{
    struct sl_server *server = session->server;
    struct sl_server_session_snapshot *cut = &server->sessions.cut;
    session->cut_number = cut->number;
    if (cut->walks) {
        const uint32_t cost = put(cut, session);
        server->turn_keys -= cost < server->turn_keys ? cost : server->turn_keys;
    }
}

/* ---- All of them ----------------------------------------------------------------------------- */

void sl_server_session_snapshot_begin(struct sl_server *server, bool for_backup)
{
    struct sl_server_session_snapshot *cut = &server->sessions.cut;
    sl_assert(cut->open == NULL);
    sl_assert(cut->first == NULL);
    cut->number++;
    cut->walks = true;
    cut->for_backup = for_backup;
    cut->has_failed = false;
    cut->bucket = 0;
}

uint32_t sl_server_session_snapshot_run(struct sl_server *server, uint32_t key_budget)
{
    struct sl_server_session_snapshot *cut = &server->sessions.cut;
    uint32_t spent = 0;
    while (cut->walks && cut->bucket < SL_SERVER_SESSION_BUCKETS && spent < key_budget &&
           cut->waiting_count < BLOCKS_WAITING) {
        struct sl_server_session *session = server->sessions.buckets[cut->bucket++];
        for (; session != NULL; session = session->next) {
            spent += cut->walks && session->cut_number != cut->number ? put(cut, session) : 0;
        }
        spent += cut->bucket % BUCKETS_PER_COST == 0;
    }
    if (cut->walks && cut->bucket == SL_SERVER_SESSION_BUCKETS) {
        cut->walks = false;
        close_block(cut);
    }
    return spent;
}

struct sl_snapshot_block *sl_server_session_snapshot_take(struct sl_server *server)
{
    struct sl_server_session_snapshot *cut = &server->sessions.cut;
    struct sl_snapshot_block *block = cut->first;
    if (block != NULL) {
        cut->first = block->next;
        cut->waiting_count--;
        block->next = NULL;
    }
    return block;
}

bool sl_server_session_snapshot_is_over(const struct sl_server *server)
{
    const struct sl_server_session_snapshot *cut = &server->sessions.cut;
    return !cut->walks && !cut->has_failed && cut->first == NULL;
}

bool sl_server_session_snapshot_has_failed(const struct sl_server *server)
{
    return server->sessions.cut.has_failed;
}

void sl_server_session_snapshot_end(struct sl_server *server)
{
    struct sl_server_session_snapshot *cut = &server->sessions.cut;
    cut->walks = false;
    cut->has_failed = false;
    close_block(cut);
    if (cut->first != NULL) {
        cut->last->next = cut->spare;
        cut->spare = cut->first;
        cut->first = NULL;
        cut->waiting_count = 0;
    }
}

bool sl_server_session_snapshot_has_spare(const struct sl_server *server)
{
    return server->sessions.cut.spare != NULL;
}

void sl_server_session_snapshot_clean(struct sl_server *server)
{
    struct sl_server_session_snapshot *cut = &server->sessions.cut;
    for (uint32_t i = 0; i < BLOCKS_CLEANED && cut->spare != NULL; i++) {
        struct sl_snapshot_block *block = cut->spare;
        cut->spare = block->next;
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
