#include "ps/server/session_load.h"

#include <stdlib.h>

#include "ps/server/state.h"
#include "ps/snapshot/block.h"

/* In units of a turn's budget. */
#define SESSION_COST      8
#define FAILURES_COST     24 /* of allocating the array */
#define FAILURES_PER_COST 16

/* Same result as repeated sl_server_session_failed. */
static void load_failures(struct sl_server_session *session,
                          const struct sl_snapshot_session *snapshot)
{
    if (snapshot->failure_count == 0) {
        return;
    }
    session->failures = malloc(SL_SERVER_SESSION_FAILURES * sizeof *session->failures);
    if (session->failures == NULL) {
        session->forgets = true;
        return;
    }
    static_assert(SL_SNAPSHOT_FAILURES == SL_SERVER_SESSION_FAILURES, "they have room");
    session->failure_count = snapshot->failure_count;
    for (uint32_t i = 0; i < snapshot->failure_count; i++) {
        const struct sl_snapshot_failure *failure = &snapshot->failures[i];
        session->failures[i] = (struct sl_server_failure){.id = failure->id, .err = failure->err};
    }
}

static int revive(struct sl_server *server, const struct sl_snapshot_session *snapshot,
                  bool is_exact, struct sl_reason *reason)
{
    const struct sl_message_hello hello = {.role = (enum sl_message_role)snapshot->role,
                                           .client_id = snapshot->client_id,
                                           .task_index = snapshot->task_index};
    struct sl_server_session *session;
    int err = sl_server_session_restore(server, &hello, &session);
    if (err != 0) {
        return sl_reason_fail(reason, err, "%s",
                              err == SL_ERR_CORRUPT ? "it has a client twice"
                                                    : "no memory for its clients");
    }
    session->confirmed = snapshot->heard;
    session->restored = !is_exact || snapshot->restored;
    session->id_max = snapshot->id_max;
    session->last_write_id = snapshot->last_write_id;
    session->begun_id = snapshot->partial_id;
    session->begun_sections = snapshot->partial_sections;
    load_failures(session, snapshot);
    return 0;
}

static uint32_t cost_of(const struct sl_snapshot_session *session)
{
    const uint32_t count = session->failure_count;
    return SESSION_COST + (count == 0 ? 0U : FAILURES_COST + count / FAILURES_PER_COST);
}

int sl_server_session_load(struct sl_server *server, const struct sl_snapshot_block *block,
                           struct sl_server_session_load *load, uint32_t budget,
                           struct sl_reason *reason)
{
    if (block->kind != SL_SNAPSHOT_SESSIONS) {
        return sl_reason_fail(reason, SL_ERR_CORRUPT, "a block of %s is none of sessions",
                              sl_snapshot_kind_name(block->kind));
    }
    struct sl_bytes cursor =
        sl_bytes_over(block->payload + load->bytes, block->bytes - load->bytes);
    struct sl_snapshot_session session;
    uint32_t spent = 0;
    for (; load->done < block->count && spent < budget; load->done++) {
        if (!sl_snapshot_take_session(&cursor, &session)) {
            return sl_reason_fail(reason, SL_ERR_CORRUPT,
                                  "client %u of a block of sessions is none", load->done);
        }
        int err = revive(server, &session, load->is_exact, reason);
        if (err != 0) {
            return err;
        }
        spent += cost_of(&session);
    }
    load->bytes = block->bytes - cursor.left;
    load->spent = spent;
    if (load->done < block->count) {
        return SL_SHARD_AGAIN;
    }
    if (cursor.left != 0) {
        return sl_reason_fail(reason, SL_ERR_CORRUPT,
                              "%zu bytes are left behind the clients of a block", cursor.left);
    }
    return SL_SHARD_DONE;
}
