#include "worker/control.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/log.h"
#include "worker/failover.h"

/* A registration that nobody waits for is asked for again after this time. */
#define REGISTER_TIMEOUT_NS (60 * SL_CLOCK_NS_PER_S)

#define HEARTBEATS_A_LEASE  4
#define SILENCES_A_LEASE    2 /* without an answer to a heartbeat */

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
    struct sl_control_op *call = ctx;
    const char *name = call->hub->options->coordinator_name;
    if (err != 0) {
        sl_control_op_fail(call, err, "%s: %s", name, sl_control_op_reason(name, reason));
    } else if (answer->kind != SL_MESSAGE_CLUSTER || answer->cluster.ps_count == 0) {
        sl_control_op_fail(call, SL_ERR_PROTOCOL, "%s: it did not say what the cluster is", name);
    } else if (copy_cluster(&answer->cluster, call->cluster) != 0) {
        sl_control_op_fail(call, SL_ERR_NO_MEMORY, "no memory for the list of ps processes");
    } else {
        call->hub->values_lost = answer->cluster.values_lost;
    }
    sl_control_op_answer(call);
}

static void send_register(struct sl_client_io *hub, uint64_t timeout_ns,
                          sl_session_answer_fn *answer, void *ctx)
{
    struct sl_message message = {.kind = SL_MESSAGE_REGISTER};
    message.reg.ps_count = hub->options->ps_count;
    message.reg.worker_count = hub->options->worker_count;
    sl_session_request(hub->coordinator, &message, timeout_ns, answer, ctx);
}

/* ---- Staying a member */

static void register_again(struct sl_client_io *hub);

/* The cluster is not as it was. */
static void take_cluster(struct sl_client_io *hub, const struct sl_message_cluster *cluster)
{
    hub->values_lost = cluster->values_lost;
    sl_failover_apply(hub, cluster);
}

static void registered_again(void *ctx, const struct sl_message *answer, int err,
                             const char *reason)
{
    struct sl_client_io *hub = ctx;
    hub->registering = false;
    if (err == 0) {
        take_cluster(hub, &answer->cluster);
    } else if (err == SL_ERR_DEADLINE) {
        register_again(hub);
    } else if (err != SL_ERR_CANCELLED) {
        sl_log_warn("%s: %s", hub->options->coordinator_name,
                    sl_control_op_reason(hub->options->coordinator_name, reason));
    }
}

/* The session itself sends a registration that is not answered yet once more. */
static void register_again(struct sl_client_io *hub)
{
    if (!hub->registering) {
        hub->registering = true;
        send_register(hub, REGISTER_TIMEOUT_NS, registered_again, hub);
    }
}

static void table_kept(void *ctx, const struct sl_message *answer, int err, const char *reason)
{
    struct sl_client_io *hub = ctx;
    (void)answer;
    if (err != 0 && err != SL_ERR_CANCELLED) {
        sl_log_warn("%s: a table is not known to it again: %s", hub->options->coordinator_name,
                    sl_control_op_reason(hub->options->coordinator_name, reason));
    }
}

/* The coordinator has started anew: the ids that are in use must stay what they are. */
static void keep_tables(struct sl_client_io *hub)
{
    for (uint32_t i = 0; i < hub->table_count; i++) {
        struct sl_message message = {.kind = SL_MESSAGE_TABLE_OPEN};
        message.table_open.spec = hub->tables[i].spec;
        message.table_open.table_id = hub->tables[i].id;
        message.table_open.keep_id = true;
        sl_session_request(hub->coordinator, &message, REGISTER_TIMEOUT_NS, table_kept, hub);
    }
}

static void beat_answered(void *ctx, const struct sl_message *answer, int err, const char *reason)
{
    struct sl_client_io *hub = ctx;
    (void)answer;
    (void)reason;
    hub->listening = false;
    if (err == SL_ERR_DEADLINE && sl_session_conn(hub->coordinator) != NULL) {
        sl_session_move(hub->coordinator, "it says nothing");
    }
}

/* A host that stands still keeps its connections. Where another may have its place, it is asked for
 * an answer. */
static void beat(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_client_io *hub =
        (struct sl_client_io *)(void *)((uint8_t *)timer -
                                        offsetof(struct sl_client_io, heartbeat));
    struct sl_message message = {.kind = SL_MESSAGE_HEARTBEAT};
    const bool listens = hub->options->other_count > 0 && !hub->listening &&
                         sl_session_conn(hub->coordinator) != NULL;
    if (listens) {
        hub->listening = true;
        sl_session_request(hub->coordinator, &message, hub->silence_ns, beat_answered, hub);
    } else {
        /* Without a connection there is nobody to tell; with a full outbox the next one does. */
        (void)sl_session_notify(hub->coordinator, &message);
    }
    sl_timer_arm(sl_reactor_timers(hub->reactor), timer, now_ns + hub->heartbeat_ns);
}

static void start_heartbeats(struct sl_client_io *hub, uint32_t lease_ms)
{
    struct sl_timer_wheel *timers = sl_reactor_timers(hub->reactor);
    sl_timer_disarm(timers, &hub->heartbeat);
    if (lease_ms != 0) {
        uint64_t lease_ns = lease_ms * SL_CLOCK_NS_PER_MS;
        uint64_t wish_ns = hub->options->heartbeat_ns;
        hub->heartbeat.run = beat;
        hub->silence_ns = lease_ns / SILENCES_A_LEASE;
        hub->heartbeat_ns =
            wish_ns != 0 && wish_ns < lease_ns ? wish_ns : lease_ns / HEARTBEATS_A_LEASE;
        sl_timer_arm(timers, &hub->heartbeat, sl_reactor_now_ns(hub->reactor) + hub->heartbeat_ns);
    }
}

/* ---- The session */

static void welcomed(void *ctx, struct sl_session *session,
                     const struct sl_message_welcome *welcome)
{
    (void)session;
    struct sl_client_io *hub = ctx;
    bool started_anew = hub->coordinator_incarnation != welcome->incarnation;
    hub->coordinator_incarnation = welcome->incarnation;
    start_heartbeats(hub, welcome->lease_ms);
    struct sl_control_op *call = hub->joining;
    if (call != NULL) {
        hub->joining = NULL;
        call->task_index = welcome->task_index;
        send_register(hub, sl_client_io_time_left(hub, call->deadline_ns), cluster_came, call);
        return;
    }
    sl_log_info("%s: connected again", hub->options->coordinator_name);
    if (started_anew) {
        keep_tables(hub);
    }
    register_again(hub);
}

static void told(void *ctx, struct sl_session *session, const struct sl_message *message)
{
    (void)session;
    struct sl_client_io *hub = ctx;
    if (message->kind == SL_MESSAGE_CLUSTER) {
        take_cluster(hub, &message->cluster);
    } else if (message->kind == SL_MESSAGE_EXPIRED) {
        const struct sl_message_expired *lost = &message->lost;
        sl_log_warn("%s/%u is lost: %s", lost->role == SL_MESSAGE_ROLE_PS ? "ps" : "worker",
                    lost->task_index, lost->why);
    }
}

static void lost(void *ctx, struct sl_session *session, int err, const char *reason)
{
    (void)session;
    (void)err;
    struct sl_client_io *hub = ctx;
    sl_log_warn("%s: connection lost: %s; it is tried again", hub->options->coordinator_name,
                sl_control_op_reason(hub->options->coordinator_name, reason));
}

static void closed(void *ctx, struct sl_session *session, int err, const char *reason)
{
    (void)session;
    struct sl_client_io *hub = ctx;
    struct sl_control_op *call = hub->joining;
    hub->joining = NULL;
    hub->coordinator_lost = true;
    snprintf(hub->coordinator_reason, sizeof hub->coordinator_reason, "%s",
             sl_control_op_reason(hub->options->coordinator_name, reason));
    if (call != NULL) {
        sl_control_op_fail(call, err == 0 ? SL_ERR_CLOSED : err, "%s", reason);
        sl_control_op_answer(call);
    } else {
        sl_log_warn("%s: connection lost for good: %s", hub->options->coordinator_name,
                    hub->coordinator_reason);
    }
}

static const struct sl_session_events control_events = {
    .welcomed = welcomed,
    .told = told,
    .lost = lost,
    .closed = closed,
};

void sl_control_join(struct sl_control_op *call)
{
    struct sl_client_io *hub = call->hub;
    struct sl_session_options options = {
        .outbox = &hub->outbox,
        .endpoint = hub->options->coordinator,
        .others = hub->options->others,
        .other_count = hub->options->other_count,
        .follows = true,
        .hello = hub->options->hello,
        .events = &control_events,
        .ctx = hub,
        .peer_name = "coordinator",
        .start_timeout_ns = sl_client_io_time_left(hub, call->deadline_ns),
        .persistent = true,
        .secret = &hub->options->secret,
    };
    options.hello.purpose = SL_MESSAGE_PURPOSE_CONTROL;
    int err = sl_client_io_transport(hub, options.endpoint.scheme, &options.transport);
    if (err == 0) {
        hub->joining = call;
        err = sl_session_open(&options, &hub->coordinator);
    }
    if (err != 0) {
        hub->joining = NULL;
        sl_control_op_fail(call, err, "%s: cannot connect: %s", hub->options->coordinator_name,
                           sl_err_name(err));
        sl_control_op_answer(call);
    }
}

/* ---- Requests */

/* Sends the message, or answers the call when the connection is lost. */
static void ask(struct sl_control_op *call, struct sl_message *message,
                sl_session_answer_fn *answer)
{
    struct sl_client_io *hub = call->hub;
    if (hub->coordinator_lost) {
        sl_control_op_fail(call, SL_ERR_CLOSED, "%s: %s", hub->options->coordinator_name,
                           hub->coordinator_reason);
        sl_control_op_answer(call);
        return;
    }
    sl_session_request(hub->coordinator, message, sl_client_io_time_left(hub, call->deadline_ns),
                       answer, call);
}

/* True when the answer is of the kind that was asked for. */
static bool check_answer(struct sl_control_op *call, const struct sl_message *answer, int err,
                         const char *reason, enum sl_message_kind kind)
{
    const char *name = call->hub->options->coordinator_name;
    if (err != 0) {
        sl_control_op_fail(call, err, "%s: %s", name, sl_control_op_reason(name, reason));
    } else if (answer->kind != kind) {
        sl_control_op_fail(call, SL_ERR_PROTOCOL, "%s: its answer is of another kind", name);
    }
    return call->err == 0;
}

static void table_opened(void *ctx, const struct sl_message *answer, int err, const char *reason)
{
    struct sl_control_op *call = ctx;
    if (check_answer(call, answer, err, reason, SL_MESSAGE_TABLE_OPENED)) {
        call->table_id = answer->table_id;
        if (call->table_id >= SL_LIMIT_TABLES) {
            sl_control_op_fail(call, SL_ERR_PROTOCOL, "%s: it gave a table id beyond the limit",
                               call->hub->options->coordinator_name);
        } else if (sl_client_io_note_table(call->hub, call->table_id, call->spec) != 0) {
            sl_control_op_fail(call, SL_ERR_NO_MEMORY, "no memory for one more table");
        }
    }
    sl_control_op_answer(call);
}

void sl_control_table_open(struct sl_control_op *call)
{
    struct sl_message message = {.kind = SL_MESSAGE_TABLE_OPEN};
    message.table_open.spec = *call->spec;
    ask(call, &message, table_opened);
}

static void barrier_done(void *ctx, const struct sl_message *answer, int err, const char *reason)
{
    struct sl_control_op *call = ctx;
    check_answer(call, answer, err, reason, SL_MESSAGE_BARRIER_DONE);
    sl_control_op_answer(call);
}

static uint32_t time_left_ms(const struct sl_control_op *call)
{
    uint64_t left_ms = sl_client_io_time_left(call->hub, call->deadline_ns) / SL_CLOCK_NS_PER_MS;
    return left_ms < UINT32_MAX ? (uint32_t)left_ms : UINT32_MAX;
}

void sl_control_barrier(struct sl_control_op *call)
{
    struct sl_message message = {.kind = SL_MESSAGE_BARRIER};
    snprintf(message.barrier.name, sizeof message.barrier.name, "%s", call->name);
    message.barrier.count = call->count;
    message.barrier.timeout_ms = time_left_ms(call);
    ask(call, &message, barrier_done);
}

static void checkpoint_done(void *ctx, const struct sl_message *answer, int err, const char *reason)
{
    struct sl_control_op *call = ctx;
    if (check_answer(call, answer, err, reason, SL_MESSAGE_CHECKPOINT_DONE)) {
        call->number = answer->checkpoint_number;
    }
    sl_control_op_answer(call);
}

void sl_control_checkpoint(struct sl_control_op *call)
{
    struct sl_message message = {
        .kind = SL_MESSAGE_CHECKPOINT_ASK,
        .timeout_ms = time_left_ms(call),
    };
    ask(call, &message, checkpoint_done);
}

void sl_control_leave(struct sl_client_io *hub)
{
    sl_timer_disarm(sl_reactor_timers(hub->reactor), &hub->heartbeat);
    if (hub->coordinator != NULL) {
        sl_session_close(&hub->coordinator);
    }
}
