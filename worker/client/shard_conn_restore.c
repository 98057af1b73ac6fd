#include "worker/client/shard_conn_restore.h"

#include <stdio.h>

#include "core/log.h"
#include "net/session/message_spec.h"
#include "worker/client/client_io.h"
#include "worker/client/shard_conn_connect.h"

/* After this time without an answer, the client reconnects and retries. */
#define ANSWER_TIMEOUT_NS SL_SESSION_GREETING_NS

/* Returns whether a retry on another connection may succeed. */
static bool may_change(int err)
{
    return err == SL_ERR_DEADLINE || err == SL_ERR_CLOSED || err == SL_ERR_CANCELLED ||
           err == SL_ERR_AGAIN || err == SL_ERR_NO_MEMORY;
}

/* Returns whether the restore continues with this answer. */
static bool shard_conn_restore_take_answer(struct sl_shard_conn *conn, int err, const char *what,
                                           const char *reason)
{
    conn->restore.asked = false;
    if (conn->restore.anew) {
        conn->restore.anew = false; /* the answer predates the state loss */
        sl_shard_conn_restore(conn);
        return false;
    }
    if (err == 0) {
        return true;
    }
    char text[SL_SHARD_CONN_REASON_BYTES];
    snprintf(text, sizeof text, "%s: %s", what, sl_control_op_reason(conn->name, reason));
    sl_shard_conn_break(conn, text, !may_change(err));
    return false;
}

static void shard_conn_restore_table_opened(void *ctx, const struct sl_message *answer, int err,
                                            const char *reason)
{
    struct sl_shard_conn *conn = ctx;
    const bool has_answer = err == 0 && !conn->restore.anew;
    struct sl_reason unknown;
    if (has_answer && answer->table_id != conn->io->tables.items[conn->restore.table].id) {
        err = SL_ERR_PROTOCOL;
        reason = "it opened another table";
    } else if (has_answer) {
        err = sl_message_check_known(&conn->io->tables.items[conn->restore.table].spec, answer,
                                     &unknown);
        reason = err != 0 ? unknown.text : reason;
    }
    err = err == SL_ERR_NOT_FOUND ? 0 : err; /* it was dropped: its requests say so */
    if (shard_conn_restore_take_answer(conn, err, "a table cannot be opened again", reason)) {
        conn->restore.table++;
        sl_shard_conn_restore(conn);
    }
}

static void shard_conn_restore_joined(void *ctx, const struct sl_message *answer, int err,
                                      const char *reason)
{
    struct sl_shard_conn *conn = ctx;
    if (!shard_conn_restore_take_answer(conn, err, "this worker cannot join again", reason)) {
        return;
    }
    if (answer->clock != conn->clock.value) {
        sl_shard_conn_break(conn, "the others continued without this worker", true);
        return;
    }
    conn->clock.is_counted = true;
    conn->clock.at_shard = conn->clock.value;
    sl_shard_conn_restore(conn);
}

static void ask(struct sl_shard_conn *conn, struct sl_message *message,
                sl_session_answer_fn *answer)
{
    conn->restore.asked = true;
    sl_session_request(conn->session, message, ANSWER_TIMEOUT_NS, answer, conn);
}

static bool must_join(const struct sl_shard_conn *conn)
{
    return conn->clock.is_agreed && !conn->clock.is_finished &&
           (!conn->clock.is_counted || conn->clock.at_shard != conn->clock.value);
}

void sl_shard_conn_restore(struct sl_shard_conn *conn)
{
    if (conn->state != SL_SHARD_CONN_RESTORING || conn->restore.asked) {
        return;
    }
    const struct sl_client_io *io = conn->io;
    if (conn->restore.table < io->tables.count) {
        struct sl_message message = {.kind = SL_MESSAGE_TABLE_OPEN};
        message.table_open.spec = io->tables.items[conn->restore.table].spec;
        message.table_open.table_id = io->tables.items[conn->restore.table].id;
        ask(conn, &message, shard_conn_restore_table_opened);
    } else if (must_join(conn)) {
        struct sl_message message = {.kind = SL_MESSAGE_JOIN, .clock = conn->clock.value};
        ask(conn, &message, shard_conn_restore_joined);
    } else if (conn->clock.is_agreed || io->options->hello.role != SL_MESSAGE_ROLE_WORKER) {
        conn->restore.pending = false;
        conn->state = SL_SHARD_CONN_OPEN;
        sl_log_info("%s: knows this client again", conn->name);
        sl_shard_conn_pump(conn);
    } /* else the start calls sl_shard_conn_set_clock */
}

void sl_shard_conn_set_clock(struct sl_shard_conn *conn, uint32_t clock)
{
    conn->clock.is_agreed = true;
    conn->clock.is_finished = clock == SL_REQUEST_CLOCK_FINISHED;
    conn->clock.value = conn->clock.is_finished ? 0 : clock;
    sl_shard_conn_restore(conn);
}
