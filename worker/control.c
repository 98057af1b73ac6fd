#include "worker/control.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/log.h"

/* ---- Joining the cluster */

static int copy_cluster(const struct sl_message_cluster *from, struct sl_message_cluster *to)
{
    *to = *from;
    to->ps = malloc(from->ps_count * sizeof *to->ps);
    if (to->ps == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    memcpy(to->ps, from->ps, from->ps_count * sizeof *to->ps);
    return 0;
}

static void cluster_came(void *ctx, const struct sl_message *answer, int err, const char *reason)
{
    struct sl_call *call = ctx;
    const char *name = call->hub->options->coordinator_name;
    if (err != 0) {
        sl_call_fail(call, err, "%s: %s", name, sl_call_reason(name, reason));
    } else if (answer->kind != SL_MESSAGE_CLUSTER || answer->cluster.ps_count == 0) {
        sl_call_fail(call, SL_ERR_PROTOCOL, "%s: it did not say what the cluster is", name);
    } else if (copy_cluster(&answer->cluster, call->cluster) != 0) {
        sl_call_fail(call, SL_ERR_NO_MEMORY, "no memory for the list of ps processes");
    }
    sl_call_answer(call);
}

static void welcomed(void *ctx, struct sl_session *session,
                     const struct sl_message_welcome *welcome)
{
    (void)welcome;
    struct sl_hub *hub = ctx;
    struct sl_call *call = hub->joining;
    hub->joining = NULL;
    struct sl_message message = {.kind = SL_MESSAGE_REGISTER};
    message.reg.ps_count = hub->options->ps_count;
    sl_session_request(session, &message, sl_hub_time_left(hub, call->deadline_ns), cluster_came,
                       call);
}

static void closed(void *ctx, struct sl_session *session, int err, const char *reason)
{
    (void)session;
    struct sl_hub *hub = ctx;
    struct sl_call *call = hub->joining;
    hub->joining = NULL;
    hub->coordinator_lost = true;
    snprintf(hub->coordinator_reason, sizeof hub->coordinator_reason, "%s",
             sl_call_reason(hub->options->coordinator_name, reason));
    if (call != NULL) {
        sl_call_fail(call, err == 0 ? SL_ERR_CLOSED : err, "%s", reason);
        sl_call_answer(call);
    } else {
        sl_log_warn("%s: connection lost: %s", hub->options->coordinator_name,
                    hub->coordinator_reason);
    }
}

static const struct sl_session_events control_events = {
    .welcomed = welcomed,
    .closed = closed,
};

void sl_control_join(struct sl_call *call)
{
    struct sl_hub *hub = call->hub;
    struct sl_session_options options = {
        .outbox = &hub->outbox,
        .endpoint = hub->options->coordinator,
        .hello = hub->options->hello,
        .events = &control_events,
        .ctx = hub,
        .peer_name = "coordinator",
        .start_timeout_ns = sl_hub_time_left(hub, call->deadline_ns),
    };
    options.hello.purpose = SL_MESSAGE_PURPOSE_CONTROL;
    int err = sl_hub_transport(hub, options.endpoint.scheme, &options.transport);
    if (err == 0) {
        hub->joining = call;
        err = sl_session_open(&options, &hub->coordinator);
    }
    if (err != 0) {
        hub->joining = NULL;
        sl_call_fail(call, err, "%s: cannot connect: %s", hub->options->coordinator_name,
                     sl_err_name(err));
        sl_call_answer(call);
    }
}

/* ---- Requests */

/* Sends the message, or answers the call when the connection is lost. */
static void ask(struct sl_call *call, struct sl_message *message, sl_session_answer_fn *answer)
{
    struct sl_hub *hub = call->hub;
    if (hub->coordinator_lost) {
        sl_call_fail(call, SL_ERR_CLOSED, "%s: %s", hub->options->coordinator_name,
                     hub->coordinator_reason);
        sl_call_answer(call);
        return;
    }
    sl_session_request(hub->coordinator, message, sl_hub_time_left(hub, call->deadline_ns), answer,
                       call);
}

/* True when the answer is of the kind that was asked for. */
static bool check_answer(struct sl_call *call, const struct sl_message *answer, int err,
                         const char *reason, enum sl_message_kind kind)
{
    const char *name = call->hub->options->coordinator_name;
    if (err != 0) {
        sl_call_fail(call, err, "%s: %s", name, sl_call_reason(name, reason));
    } else if (answer->kind != kind) {
        sl_call_fail(call, SL_ERR_PROTOCOL, "%s: its answer is of another kind", name);
    }
    return call->err == 0;
}

static void table_opened(void *ctx, const struct sl_message *answer, int err, const char *reason)
{
    struct sl_call *call = ctx;
    if (check_answer(call, answer, err, reason, SL_MESSAGE_TABLE_OPENED)) {
        call->table_id = answer->table_id;
        if (call->table_id >= SL_LIMIT_TABLES) {
            sl_call_fail(call, SL_ERR_PROTOCOL, "%s: it gave a table id beyond the limit",
                         call->hub->options->coordinator_name);
        }
    }
    sl_call_answer(call);
}

void sl_control_table_open(struct sl_call *call)
{
    struct sl_message message = {.kind = SL_MESSAGE_TABLE_OPEN};
    message.table_open.spec = *call->spec;
    ask(call, &message, table_opened);
}

static void barrier_done(void *ctx, const struct sl_message *answer, int err, const char *reason)
{
    struct sl_call *call = ctx;
    check_answer(call, answer, err, reason, SL_MESSAGE_BARRIER_DONE);
    sl_call_answer(call);
}

void sl_control_barrier(struct sl_call *call)
{
    struct sl_message message = {.kind = SL_MESSAGE_BARRIER};
    snprintf(message.barrier.name, sizeof message.barrier.name, "%s", call->name);
    message.barrier.count = call->count;
    ask(call, &message, barrier_done);
}
