#include <stdio.h>

#include "core/assert.h"
#include "core/log.h"
#include "worker/client_io.h"
#include "worker/shard_conn.h"

/* An answer that does not come within this time is asked for on another connection. */
#define ANSWER_TIMEOUT_NS SL_SESSION_GREETING_NS

/* Whether the same request may have a better answer on another connection. */
static bool may_change(int err)
{
    return err == SL_ERR_DEADLINE || err == SL_ERR_CLOSED || err == SL_ERR_CANCELLED ||
           err == SL_ERR_AGAIN || err == SL_ERR_NO_MEMORY;
}

/* True when the answer is one that the restoring goes on with. */
static bool take_answer(struct sl_shard_conn *link, int err, const char *what, const char *reason)
{
    link->restore.asked = false;
    if (link->restore.anew) {
        link->restore.anew = false; /* it was of an earlier time */
        sl_shard_conn_restore(link);
        return false;
    }
    if (err == 0) {
        return true;
    }
    char text[SL_SHARD_CONN_REASON_BYTES];
    snprintf(text, sizeof text, "%s: %s", what, sl_control_op_reason(link->name, reason));
    sl_shard_conn_break(link, text, !may_change(err));
    return false;
}

static void table_opened(void *ctx, const struct sl_message *answer, int err, const char *reason)
{
    struct sl_shard_conn *link = ctx;
    uint32_t wanted = link->hub->tables[link->restore.table].id;
    if (err == 0 && !link->restore.anew && answer->table_id != wanted) {
        err = SL_ERR_PROTOCOL;
        reason = "it opened another table";
    }
    if (take_answer(link, err, "a table cannot be opened again", reason)) {
        link->restore.table++;
        sl_shard_conn_restore(link);
    }
}

static void joined(void *ctx, const struct sl_message *answer, int err, const char *reason)
{
    struct sl_shard_conn *link = ctx;
    if (!take_answer(link, err, "this worker cannot join again", reason)) {
        return;
    }
    if (answer->clock != link->clock) {
        sl_shard_conn_break(link, "the others went on without this worker", true);
        return;
    }
    link->counts = true;
    link->clock_told = link->clock;
    sl_shard_conn_restore(link);
}

static void ask(struct sl_shard_conn *link, struct sl_message *message,
                sl_session_answer_fn *answer)
{
    link->restore.asked = true;
    sl_session_request(link->session, message, ANSWER_TIMEOUT_NS, answer, link);
}

static bool must_join(const struct sl_shard_conn *link)
{
    return link->has_clock && !link->finished && (!link->counts || link->clock_told != link->clock);
}

void sl_shard_conn_restore(struct sl_shard_conn *link)
{
    if (link->state != SL_SHARD_CONN_RESTORING || link->restore.asked) {
        return;
    }
    const struct sl_client_io *hub = link->hub;
    if (link->restore.table < hub->table_count) {
        struct sl_message message = {.kind = SL_MESSAGE_TABLE_OPEN};
        message.table_open.spec = hub->tables[link->restore.table].spec;
        message.table_open.table_id = hub->tables[link->restore.table].id;
        ask(link, &message, table_opened);
    } else if (must_join(link)) {
        struct sl_message message = {.kind = SL_MESSAGE_JOIN, .clock = link->clock};
        ask(link, &message, joined);
    } else if (link->has_clock || hub->options->hello.role != SL_MESSAGE_ROLE_WORKER) {
        link->restore.pending = false;
        link->state = SL_SHARD_CONN_OPEN;
        sl_log_info("%s: knows this client again", link->name);
        sl_shard_conn_pump(link);
    } /* else the start goes on with sl_shard_conn_begin */
}

void sl_shard_conn_begin(struct sl_shard_conn *link, uint32_t clock)
{
    link->has_clock = true;
    link->finished = clock == SL_REQUEST_CLOCK_FINISHED;
    link->clock = link->finished ? 0 : clock;
    sl_shard_conn_restore(link);
}
