#include "worker/client/control.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/array.h"
#include "core/event.h"
#include "core/list.h"
#include "core/log.h"
#include "net/session/message_spec.h"
#include "worker/client/client_io_transport.h"
#include "worker/client/client_report.h"
#include "worker/client/failover.h"
#include "worker/client/relay.h"

/* An unanswered repeated registration is sent again after this time. */
#define REGISTER_TIMEOUT_NS (60 * SL_CLOCK_NS_PER_S)

/* The coordinator's answer to a barrier or a message that timed out, with the missing processes,
 * may take so long. */
#define BARRIER_GRACE_NS    (200 * SL_CLOCK_NS_PER_MS)

#define HEARTBEATS_A_LEASE  4
#define SILENCES_A_LEASE    2 /* without an answer to a heartbeat */

/* Joining the cluster */

/* Returns whether the answer has the expected kind; else records an error. */
static bool check_answer(struct sl_control_op *op, const struct sl_message *answer, int err,
                         const char *reason, enum sl_message_kind kind)
{
    const char *name = op->io->options->coordinator_name;
    if (err != 0) {
        sl_control_op_fail(op, err, "%s: %s", name, sl_control_op_reason(name, reason));
    } else if (answer->kind != kind) {
        sl_control_op_fail(op, SL_ERR_PROTOCOL, "%s: its answer is of another kind", name);
    }
    return op->err == 0;
}

static void client_control_cluster_came(void *ctx, const struct sl_message *answer, int err,
                                        const char *reason)
{
    struct sl_control_op *op = ctx;
    if (!check_answer(op, answer, err, reason, SL_MESSAGE_CLUSTER)) {
        /* failed */
    } else if (answer->cluster.ps_count == 0) {
        sl_control_op_fail(op, SL_ERR_PROTOCOL, "%s: it did not send the cluster",
                           op->io->options->coordinator_name);
    } else if (sl_failover_copy(&answer->cluster, op->cluster) != 0) {
        sl_control_op_fail(op, SL_ERR_NO_MEMORY, "no memory for the list of servers");
    } else {
        sl_client_io_lose_values(op->io, answer->cluster.values_lost);
        op->io->coordinator.job = answer->cluster.job;
    }
    sl_control_op_answer(op);
}

static void send_register(struct sl_client_io *io, uint64_t timeout_ns,
                          sl_session_answer_fn *answer, void *ctx)
{
    struct sl_message message = {.kind = SL_MESSAGE_REGISTER};
    message.reg.ps_count = io->options->ps_count;
    message.reg.worker_count = io->options->worker_count;
    message.reg.job = io->coordinator.job;
    sl_session_request(io->coordinator.session, &message, timeout_ns, answer, ctx);
}

/* Membership */

static void register_again(struct sl_client_io *io);

static void take_cluster(struct sl_client_io *io, const struct sl_message_cluster *cluster)
{
    sl_client_io_lose_values(io, cluster->values_lost);
    io->coordinator.job = cluster->job != 0 ? cluster->job : io->coordinator.job;
    sl_failover_apply(io, cluster);
}

static void registered_again(void *ctx, const struct sl_message *answer, int err,
                             const char *reason)
{
    struct sl_client_io *io = ctx;
    io->coordinator.registering = false;
    if (err == 0) {
        take_cluster(io, &answer->cluster);
    } else if (err == SL_ERR_DEADLINE) {
        register_again(io);
    } else if (err != SL_ERR_CANCELLED) {
        sl_log_warn("%s: %s", io->options->coordinator_name,
                    sl_control_op_reason(io->options->coordinator_name, reason));
    }
}

/* After a reconnect the session itself resends an unanswered registration. */
static void register_again(struct sl_client_io *io)
{
    if (!io->coordinator.registering) {
        io->coordinator.registering = true;
        send_register(io, REGISTER_TIMEOUT_NS, registered_again, io);
    }
}

static void client_control_table_kept(void *ctx, const struct sl_message *answer, int err,
                                      const char *reason)
{
    struct sl_client_io *io = ctx;
    if (err != 0 && err != SL_ERR_CANCELLED && err != SL_ERR_NOT_FOUND) {
        sl_log_warn("%s: cannot reopen a table after reconnecting: %s",
                    io->options->coordinator_name,
                    sl_control_op_reason(io->options->coordinator_name, reason));
    }
}

/* The coordinator restarted: table ids in use must not change. */
static void keep_tables(struct sl_client_io *io)
{
    for (uint32_t i = 0; i < io->tables.count; i++) {
        struct sl_message message = {.kind = SL_MESSAGE_TABLE_OPEN};
        message.table_open.spec = io->tables.items[i].spec;
        message.table_open.table_id = io->tables.items[i].id;
        message.table_open.keep_id = true;
        sl_session_request(io->coordinator.session, &message, REGISTER_TIMEOUT_NS,
                           client_control_table_kept, io);
    }
}

static void heartbeat_answered(void *ctx, const struct sl_message *answer, int err,
                               const char *reason)
{
    struct sl_client_io *io = ctx;
    io->coordinator.awaits_heartbeat = false;
    if (err == SL_ERR_DEADLINE && sl_session_conn(io->coordinator.session) != NULL) {
        sl_session_move(io->coordinator.session, "it says nothing");
    }
}

/* A hung host keeps its connections open. So if other candidates exist, some heartbeats ask for an
 * answer. */
static void send_heartbeat(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_client_io *io = SL_CONTAINER_OF(timer, struct sl_client_io, coordinator.heartbeat);
    struct sl_message message = {.kind = SL_MESSAGE_HEARTBEAT};
    const bool listens = io->options->other_count > 0 && !io->coordinator.awaits_heartbeat &&
                         sl_session_conn(io->coordinator.session) != NULL;
    if (listens) {
        io->coordinator.awaits_heartbeat = true;
        sl_session_request(io->coordinator.session, &message, io->coordinator.silence_ns,
                           heartbeat_answered, io);
    } else {
        /* An error is harmless: without a connection no heartbeat is due, and after a full outbox
         * the next heartbeat is sent. */
        (void)sl_session_notify(io->coordinator.session, &message);
    }
    sl_reactor_arm(io->reactor, timer, io->coordinator.heartbeat_ns);
}

static void start_heartbeats(struct sl_client_io *io, uint32_t lease_ms)
{
    sl_reactor_disarm(io->reactor, &io->coordinator.heartbeat);
    if (lease_ms != 0) {
        uint64_t lease_ns = lease_ms * SL_CLOCK_NS_PER_MS;
        uint64_t wish_ns = io->options->heartbeat_ns;
        io->coordinator.heartbeat.run = send_heartbeat;
        io->coordinator.silence_ns = lease_ns / SILENCES_A_LEASE;
        io->coordinator.heartbeat_ns =
            wish_ns != 0 && wish_ns < lease_ns ? wish_ns : lease_ns / HEARTBEATS_A_LEASE;
        sl_reactor_arm(io->reactor, &io->coordinator.heartbeat, io->coordinator.heartbeat_ns);
    }
}

/* Tables */

int sl_control_add_table(struct sl_client_io *io, uint32_t id, const struct sl_table_spec *spec)
{
    for (uint32_t i = 0; i < io->tables.count; i++) {
        if (io->tables.items[i].id == id) {
            return 0;
        }
    }
    if (!sl_array_make_room(&io->tables.items, &io->tables.capacity, io->tables.count,
                            sizeof *io->tables.items)) {
        return SL_ERR_NO_MEMORY;
    }
    io->tables.items[io->tables.count++] = (struct sl_client_io_table){.id = id, .spec = *spec};
    return 0;
}

/* Barriers of groups */

/* Such a barrier waits for processes of a job with a scheduler, and the job ends with it. */
static void fail_barriers(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_client_io *io = SL_CONTAINER_OF(timer, struct sl_client_io, coordinator.unreached);
    SL_LIST_TAKE (struct sl_control_op, op, barrier.link, &io->coordinator.barriers) {
        sl_control_op_fail(op, SL_ERR_CLOSED, "%s: not reachable for %g s, its lease",
                           io->options->coordinator_name,
                           (double)io->coordinator.lease_ns / (double)SL_CLOCK_NS_PER_S);
        sl_session_cancel(io->coordinator.session, op);
    }
}

static void watch_barriers(struct sl_client_io *io)
{
    const bool waits = !sl_list_empty(&io->coordinator.barriers);
    if (waits && io->coordinator.lease_ns > 0 && sl_session_conn(io->coordinator.session) == NULL) {
        io->coordinator.unreached.run = fail_barriers;
        sl_reactor_arm(io->reactor, &io->coordinator.unreached, io->coordinator.lease_ns);
    }
}

/* The session */

static void client_control_welcomed(void *ctx, struct sl_session *session,
                                    const struct sl_message_welcome *welcome)
{
    struct sl_client_io *io = ctx;
    bool started_anew = io->coordinator.incarnation != welcome->incarnation;
    io->coordinator.incarnation = welcome->incarnation;
    io->coordinator.knows = welcome->knows;
    io->coordinator.lease_ns = welcome->lease_ms * SL_CLOCK_NS_PER_MS;
    sl_reactor_disarm(io->reactor, &io->coordinator.unreached);
    start_heartbeats(io, welcome->lease_ms);
    sl_client_report_start(io, welcome->wants_reports);
    struct sl_control_op *op = io->coordinator.joining;
    if (op != NULL) {
        io->coordinator.joining = NULL;
        op->task_index = welcome->task_index;
        memcpy(io->coordinator.http, welcome->http, sizeof io->coordinator.http);
        send_register(io, sl_client_io_time_left(io, op->deadline_ns), client_control_cluster_came,
                      op);
        return;
    }
    sl_log_event(SL_LOG_INFO, SL_EVENT("coordinator_reachable"), "%s: connected again",
                 io->options->coordinator_name);
    if (started_anew) {
        keep_tables(io);
    }
    register_again(io);
}

static void client_control_notified(void *ctx, struct sl_session *session,
                                    const struct sl_message *message)
{
    struct sl_client_io *io = ctx;
    if (message->kind == SL_MESSAGE_CLUSTER) {
        take_cluster(io, &message->cluster);
    } else if (message->kind == SL_MESSAGE_EXPIRED) {
        const struct sl_message_expired *lost = &message->expired;
        sl_log_warn("%s/%u expired: %s", lost->role == SL_MESSAGE_ROLE_PS ? "ps" : "worker",
                    lost->task_index, lost->why);
    } else if (message->kind == SL_MESSAGE_RELAY) {
        sl_relay_receive(io, &message->relay);
    }
}

static void lost(void *ctx, struct sl_session *session, int err, const char *reason)
{
    struct sl_client_io *io = ctx;
    const char *why = sl_control_op_reason(io->options->coordinator_name, reason);
    sl_log_event(SL_LOG_WARN, SL_EVENT("coordinator_lost", SL_EVENT_TEXT("reason", why)),
                 "%s: connection lost: %s; retrying", io->options->coordinator_name, why);
    watch_barriers(io);
}

static void client_control_closed(void *ctx, struct sl_session *session, int err,
                                  const char *reason)
{
    struct sl_client_io *io = ctx;
    struct sl_control_op *op = io->coordinator.joining;
    io->coordinator.joining = NULL;
    io->coordinator.is_lost = true;
    snprintf(io->coordinator.reason, sizeof io->coordinator.reason, "%s",
             sl_control_op_reason(io->options->coordinator_name, reason));
    if (op != NULL) {
        sl_control_op_fail(op, err == 0 ? SL_ERR_CLOSED : err, "%s", reason);
        sl_control_op_answer(op);
    } else {
        sl_log_warn("%s: connection lost for good: %s", io->options->coordinator_name,
                    io->coordinator.reason);
    }
}

static const struct sl_session_events control_events = {
    .welcomed = client_control_welcomed,
    .notified = client_control_notified,
    .lost = lost,
    .closed = client_control_closed,
};

void sl_control_join(struct sl_control_op *op)
{
    struct sl_client_io *io = op->io;
    struct sl_session_options options = {
        .outbox = &io->memory.outbox,
        .endpoint = io->options->coordinator,
        .others = io->options->others,
        .other_count = io->options->other_count,
        .follows = true,
        .hello = io->options->hello,
        .events = &control_events,
        .ctx = io,
        .peer_name = "coordinator",
        .start_timeout_ns = sl_client_io_time_left(io, op->deadline_ns),
        .persistent = true,
        .secret = &io->options->secret,
    };
    options.hello.purpose = SL_MESSAGE_PURPOSE_CONTROL;
    int err = sl_client_io_transport(io, options.endpoint.scheme, &options.transport);
    if (err == 0) {
        sl_list_init(&io->coordinator.barriers);
        io->coordinator.joining = op;
        err = sl_session_open(&options, &io->coordinator.session);
    }
    if (err != 0) {
        io->coordinator.joining = NULL;
        sl_control_op_fail(op, err, "%s: cannot connect: %s", io->options->coordinator_name,
                           sl_err_name(err));
        sl_control_op_answer(op);
    }
}

/* Requests */

/* Sends the message, or fails the operation if the connection is permanently closed. */
static void client_control_ask(struct sl_control_op *op, struct sl_message *message,
                               sl_session_answer_fn *answer)
{
    struct sl_client_io *io = op->io;
    if (io->coordinator.is_lost) {
        sl_control_op_fail(op, SL_ERR_CLOSED, "%s: %s", io->options->coordinator_name,
                           io->coordinator.reason);
        sl_control_op_answer(op);
        return;
    }
    sl_session_request(io->coordinator.session, message,
                       sl_client_io_time_left(io, op->deadline_ns), answer, op);
}

static void client_control_table_opened(void *ctx, const struct sl_message *answer, int err,
                                        const char *reason)
{
    struct sl_control_op *op = ctx;
    struct sl_reason unknown;
    if (check_answer(op, answer, err, reason, SL_MESSAGE_TABLE_OPENED)) {
        op->table.id = answer->table_id;
        op->table.knows = answer->knows;
        op->spec->policy = answer->keeps_policy ? answer->policy : op->spec->policy;
        if (op->table.id >= SL_LIMIT_TABLES) {
            sl_control_op_fail(op, SL_ERR_PROTOCOL, "%s: it gave a table id beyond the limit",
                               op->io->options->coordinator_name);
        } else if (sl_message_check_known(op->spec, answer, &unknown) != 0) {
            sl_control_op_fail(op, SL_ERR_VERSION, "%s: %s", op->io->options->coordinator_name,
                               unknown.text);
        } else if (sl_control_add_table(op->io, op->table.id, op->spec) != 0) {
            sl_control_op_fail(op, SL_ERR_NO_MEMORY, "no memory for one more table");
        }
    }
    sl_control_op_answer(op);
}

void sl_control_table_open(struct sl_control_op *op)
{
    struct sl_message message = {.kind = SL_MESSAGE_TABLE_OPEN};
    message.table_open.spec = *op->spec;
    client_control_ask(op, &message, client_control_table_opened);
}

static void table_found(void *ctx, const struct sl_message *answer, int err, const char *reason)
{
    struct sl_control_op *op = ctx;
    if (check_answer(op, answer, err, reason, SL_MESSAGE_TABLE_OPEN)) {
        *op->found = answer->table_open.spec;
    }
    sl_control_op_answer(op);
}

void sl_control_table_find(struct sl_control_op *op)
{
    struct sl_message message = {.kind = SL_MESSAGE_TABLE_OPEN, .table_open = {.asks = true}};
    snprintf(message.table_open.spec.name, sizeof message.table_open.spec.name, "%s", op->name);
    client_control_ask(op, &message, table_found);
}

/* Fails the operation if the coordinator is older than `level` of SL_MESSAGE_SPEC_KNOWS: it would
 * take the request for another one, or for a violation of the protocol. */
static bool check_level(struct sl_control_op *op, uint32_t level)
{
    const uint32_t knows = op->io->coordinator.knows;
    if (knows < level) {
        sl_control_op_fail(op, SL_ERR_VERSION,
                           "%s: it is older than this client (level %u, not %u), and cannot do "
                           "this: update its software",
                           op->io->options->coordinator_name, knows, level);
    }
    return knows >= level;
}

static void ask_newer(struct sl_control_op *op, struct sl_message *message, uint32_t level,
                      sl_session_answer_fn *answer)
{
    if (check_level(op, level)) {
        client_control_ask(op, message, answer);
    } else {
        sl_control_op_answer(op);
    }
}

static void tables_listed(void *ctx, const struct sl_message *answer, int err, const char *reason)
{
    struct sl_control_op *op = ctx;
    if (check_answer(op, answer, err, reason, SL_MESSAGE_TABLES)) {
        op->count = answer->tables.count;
        op->table.id = answer->tables.next;
        memcpy(op->found, answer->tables.specs, op->count * sizeof *op->found);
    }
    sl_control_op_answer(op);
}

void sl_control_tables(struct sl_control_op *op)
{
    struct sl_message message = {.kind = SL_MESSAGE_TABLES_GET, .table_id = op->table.id};
    ask_newer(op, &message, SL_MESSAGE_SPEC_KNOWS_ROWS, tables_listed);
}

static void operation_allowed(void *ctx, const struct sl_message *answer, int err,
                              const char *reason)
{
    struct sl_control_op *op = ctx;
    check_answer(op, answer, err, reason, SL_MESSAGE_OPERATION_ALLOWED);
    sl_control_op_answer(op);
}

void sl_control_operate(struct sl_control_op *op)
{
    struct sl_message message = {.kind = SL_MESSAGE_OPERATION};
    snprintf(message.why, sizeof message.why, "%s", op->name);
    ask_newer(op, &message, SL_MESSAGE_SPEC_KNOWS_ROWS, operation_allowed);
}

static void placement_changed(void *ctx, const struct sl_message *answer, int err,
                              const char *reason)
{
    struct sl_control_op *op = ctx;
    if (check_answer(op, answer, err, reason, SL_MESSAGE_PLACEMENT_CHANGED)) {
        op->count = answer->moves.count;
        memcpy(op->placement.moves, answer->moves.items, op->count * sizeof *op->placement.moves);
    }
    sl_control_op_answer(op);
}

void sl_control_change_placement(struct sl_control_op *op)
{
    struct sl_message message = {.kind = SL_MESSAGE_PLACEMENT_CHANGE,
                                 .placement_change = *op->placement.change};
    ask_newer(op, &message, SL_MESSAGE_SPEC_KNOWS_ROWS, placement_changed);
}

static void table_dropped(void *ctx, const struct sl_message *answer, int err, const char *reason)
{
    struct sl_control_op *op = ctx;
    if (check_answer(op, answer, err, reason, SL_MESSAGE_TABLE_DROPPED)) {
        op->table.id = answer->table_id;
    }
    sl_control_op_answer(op);
}

void sl_control_table_drop(struct sl_control_op *op)
{
    struct sl_message message = {.kind = SL_MESSAGE_TABLE_DROP};
    snprintf(message.table_name, sizeof message.table_name, "%s", op->name);
    ask_newer(op, &message, SL_MESSAGE_SPEC_KNOWS_ROWS, table_dropped);
}

static void barrier_done(void *ctx, const struct sl_message *answer, int err, const char *reason)
{
    struct sl_control_op *op = ctx;
    sl_list_remove(&op->barrier.link);
    check_answer(op, answer, err, reason, SL_MESSAGE_BARRIER_DONE);
    sl_control_op_answer(op);
}

static uint32_t client_control_time_left_ms(const struct sl_control_op *op)
{
    uint64_t left_ms = sl_client_io_time_left(op->io, op->deadline_ns) / SL_CLOCK_NS_PER_MS;
    return left_ms < UINT32_MAX ? (uint32_t)left_ms : UINT32_MAX;
}

void sl_control_barrier(struct sl_control_op *op)
{
    struct sl_message message = {.kind = SL_MESSAGE_BARRIER};
    snprintf(message.barrier.name, sizeof message.barrier.name, "%s", op->name);
    message.barrier.count = op->count;
    message.barrier.groups = op->barrier.groups;
    message.barrier.timeout_ms = client_control_time_left_ms(op);
    op->deadline_ns += BARRIER_GRACE_NS;
    if (op->barrier.groups != 0 && !op->io->coordinator.is_lost &&
        op->io->coordinator.knows >= SL_MESSAGE_SPEC_KNOWS_RELAY) { /* it will be asked */
        sl_list_append(&op->io->coordinator.barriers, &op->barrier.link);
        watch_barriers(op->io);
    }
    ask_newer(op, &message, op->barrier.groups != 0 ? SL_MESSAGE_SPEC_KNOWS_RELAY : 0,
              barrier_done);
}

void sl_control_ask_relay(struct sl_control_op *op, struct sl_message *message,
                          sl_session_answer_fn *answer, void *ctx)
{
    struct sl_client_io *io = op->io;
    message->relay.timeout_ms = client_control_time_left_ms(op);
    if (io->coordinator.is_lost) {
        answer(ctx, NULL, SL_ERR_CLOSED, io->coordinator.reason);
    } else if (!check_level(op, SL_MESSAGE_SPEC_KNOWS_RELAY)) {
        answer(ctx, NULL, SL_ERR_VERSION, op->text);
    } else {
        sl_session_request(io->coordinator.session, message,
                           sl_client_io_time_left(io, op->deadline_ns + BARRIER_GRACE_NS), answer,
                           ctx);
    }
}

static void checkpoint_done(void *ctx, const struct sl_message *answer, int err, const char *reason)
{
    struct sl_control_op *op = ctx;
    if (check_answer(op, answer, err, reason, SL_MESSAGE_CHECKPOINT_DONE)) {
        op->number = answer->checkpoint_number;
    }
    sl_control_op_answer(op);
}

void sl_control_checkpoint(struct sl_control_op *op)
{
    struct sl_message message = {
        .kind = SL_MESSAGE_CHECKPOINT_ASK,
        .timeout_ms = client_control_time_left_ms(op),
    };
    client_control_ask(op, &message, checkpoint_done);
}

void sl_control_leave(struct sl_client_io *io)
{
    sl_client_report_last(io);
    sl_reactor_disarm(io->reactor, &io->coordinator.heartbeat);
    sl_reactor_disarm(io->reactor, &io->coordinator.unreached);
    if (io->coordinator.session != NULL) {
        sl_session_close(&io->coordinator.session);
    }
}

void sl_control_cancel(struct sl_control_op *op)
{
    struct sl_client_io *io = op->io;
    if (io->coordinator.session == NULL) {
        return;
    }
    if (op->run == sl_control_barrier) {
        struct sl_message message = {.kind = SL_MESSAGE_BARRIER, .barrier = {.leaves = true}};
        snprintf(message.barrier.name, sizeof message.barrier.name, "%s", op->name);
        (void)sl_session_notify(io->coordinator.session, &message); /* fails if not connected */
    }
    sl_session_cancel(io->coordinator.session, op);
    if (io->coordinator.joining == op) {
        io->coordinator.joining = NULL;
        sl_control_leave(io);
        sl_control_op_fail(op, SL_ERR_CANCELLED, "%s: interrupted", io->options->coordinator_name);
        sl_control_op_answer(op);
    }
}
