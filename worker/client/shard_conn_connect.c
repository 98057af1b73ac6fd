#include "worker/client/shard_conn_connect.h"

#include <stdio.h>
#include <string.h>

#include "core/log.h"
#include "net/session/message_spec.h"
#include "worker/client/client_io.h"
#include "worker/client/client_io_transport.h"
#include "worker/client/control_op.h"
#include "worker/client/encode.h"

/* After this time without an answer, the client reconnects and retries. */
#define ANSWER_TIMEOUT_NS      SL_SESSION_GREETING_NS

/* Pauses between two attempts to attach. */
#define ATTACH_BACK_OFF_MIN_NS (10 * SL_CLOCK_NS_PER_MS)
#define ATTACH_BACK_OFF_MAX_NS (500 * SL_CLOCK_NS_PER_MS)

/* Of a connection that is opened while the client runs: none. */
#define START_TIMEOUT_NS       (UINT64_C(1) << 62)

static void restore(struct sl_shard_conn *conn);

static bool is_on_this_host(const struct sl_client_io_options *options,
                            const struct sl_message_ps *ps)
{
    return options->host[0] != '\0' && strcmp(options->host, ps->host) == 0;
}

/* Returns whether this client can use the scheme and the user has not disabled it. */
static bool can_use(const struct sl_client_io_options *options, enum sl_endpoint_scheme scheme)
{
    return (scheme == SL_ENDPOINT_RDMA && !options->disable_rdma) ||
           (scheme == SL_ENDPOINT_DPDK && options->devices != NULL);
}

/* Returns whether RDMA or DPDK to the server may be used. A server of another version may offer an
 * unknown endpoint: ignored. */
static bool offers_bypass(const struct sl_client_io_options *options,
                          const struct sl_message_ps *ps, struct sl_endpoint *out)
{
    return ps->bypass_endpoint[0] != '\0' && options->transport.tls == NULL &&
           sl_endpoint_parse(ps->bypass_endpoint, out, NULL) == 0 &&
           can_use(options, out->scheme) && out->port != 0;
}

/* Returns the server that serves the shard, or NULL. */
int sl_shard_conn_find_address(const struct sl_client_io_options *options,
                               const struct sl_message_cluster *cluster, uint32_t shard,
                               struct sl_reactor_address *out, struct sl_reason *reason)
{
    const struct sl_message_ps *ps =
        sl_message_cluster_find_ps(cluster, cluster->placements[shard].primary);
    if (ps == NULL) {
        return sl_reason_fail(reason, SL_ERR_INVALID,
                              "ps/%u, which serves shard %u, is not in the cluster",
                              cluster->placements[shard].primary, shard);
    }
    const uint32_t reactor_count = ps->reactor_count == 0 ? ps->shard_count : ps->reactor_count;
    struct sl_reactor_address address = {
        .server_task = ps->task_index,
        .reactor = shard % (reactor_count == 0 ? 1 : reactor_count),
    };
    int err = sl_endpoint_parse(ps->data_endpoint, &address.endpoint, reason);
    if (err != 0) {
        return err;
    }
    const enum sl_endpoint_scheme scheme = address.endpoint.scheme;
    if ((scheme == SL_ENDPOINT_RDMA || scheme == SL_ENDPOINT_DPDK) &&
        options->transport.tls != NULL) {
        return sl_reason_fail(reason, SL_ERR_INVALID,
                              "%.100s: there is no TLS over %s: give the server a TCP endpoint too",
                              ps->data_endpoint, sl_endpoint_scheme_name(scheme));
    }
    if (scheme == SL_ENDPOINT_DPDK && options->devices == NULL) {
        return sl_reason_fail(reason, SL_ERR_INVALID,
                              "%.100s: this process needs a device of its own to get there: "
                              "--dpdk-device DEVICE?addr=A, or STARLING_DPDK_DEVICE",
                              ps->data_endpoint);
    }
    if (address.endpoint.scheme == SL_ENDPOINT_TCP && is_on_this_host(options, ps)) {
        address.preferred = address.endpoint;
        address.preferred.scheme = SL_ENDPOINT_SHM;
        address.has_preferred = true;
    } else if (address.endpoint.scheme == SL_ENDPOINT_TCP) {
        address.has_preferred = offers_bypass(options, ps, &address.preferred);
    }
    *out = address;
    return 0;
}

void sl_shard_conn_set_name(struct sl_shard_conn *conn)
{
    char text[SL_LIMIT_ENDPOINT_BYTES];
    sl_endpoint_format(conn->reactor == NULL ? &conn->address.endpoint
                                             : sl_session_endpoint(conn->reactor->session),
                       text, sizeof text);
    snprintf(conn->peer_name, sizeof conn->peer_name, "ps/%u shard %u", conn->address.server_task,
             conn->shard);
    snprintf(conn->name, sizeof conn->name, "%s (%s)", conn->peer_name, text);
}

const char *sl_shard_conn_last_error(const struct sl_shard_conn *conn)
{
    switch (conn->state) {
    case SL_SHARD_CONN_OPEN:
        return "";
    case SL_SHARD_CONN_RESTORING:
        return "connected again, but the client's tables and clock are not restored there yet";
    case SL_SHARD_CONN_BREAKING:
    case SL_SHARD_CONN_ENDING:
    case SL_SHARD_CONN_CLOSED:
        return conn->reason;
    default:
        return !sl_reactor_conn_is_up(conn->reactor) ? sl_session_last_error(conn->reactor->session)
               : conn->attach.err != 0               ? conn->reason
                                                     : "it has not answered yet";
    }
}

static void set_reason(struct sl_shard_conn *conn, const char *reason)
{
    snprintf(conn->reason, sizeof conn->reason, "%s", reason);
}

/* Answers the operation that waits for this connection. */
static void shard_conn_connect_opened(struct sl_shard_conn *conn)
{
    struct sl_control_op *op = conn->opening;
    conn->opening = NULL;
    if (op == NULL) {
        return;
    }
    if (op->payload_bytes_max > conn->payload_bytes_max) {
        op->payload_bytes_max = conn->payload_bytes_max;
    }
    op->uses_tcp |= conn->reactor != NULL && conn->reactor->path.scheme == SL_ENDPOINT_TCP;
    sl_control_op_take_clock(op, conn->clock.is_counted, conn->clock.at_shard);
    sl_control_op_answer_one(op);
}

/* Welcomes */

/* The credit must suffice for every request, which would otherwise wait forever. */
static bool grants_enough(const struct sl_credit *granted, uint64_t payload_bytes_max)
{
    return payload_bytes_max >= SL_ENCODE_PAYLOAD_BYTES_MIN && granted->requests > 0 &&
           granted->bytes >= sl_request_credit_bytes(payload_bytes_max, payload_bytes_max);
}

/* Returns why the welcome is unusable, or NULL. */
static const char *flaw_of(const struct sl_shard_conn *conn,
                           const struct sl_message_welcome *welcome)
{
    if (welcome->shard != conn->shard || welcome->shard_count != conn->io->shard_count) {
        return "it reports another shard, of another cluster";
    }
    return grants_enough(&conn->reactor->granted, welcome->payload_bytes_max)
               ? NULL
               : "the credit that it grants is less than one request may need";
}

static void take_welcome(struct sl_shard_conn *conn, const struct sl_message_welcome *welcome)
{
    conn->payload_bytes_max = welcome->payload_bytes_max;
    conn->incarnation = welcome->incarnation;
    /* A shard without tables counts every worker, but an additional worker (join_running) must join
     * first. */
    conn->clock.is_counted =
        welcome->counts && (welcome->resumed || !conn->io->options->hello.join_running);
    conn->clock.at_shard = welcome->clock;
    conn->clock.must_finish = conn->clock.is_agreed && conn->clock.is_finished && welcome->counts;
}

static void begin_restore(struct sl_shard_conn *conn)
{
    conn->restore.pending = true;
    conn->restore.table = 0;
}

/* The shard lost the client's session: fails writes, which could be applied twice. */
static void session_lost(struct sl_shard_conn *conn, bool restarted, bool is_restored)
{
    const char *why =
        restarted && is_restored
            ? "the server was restarted from a checkpoint that does not know this client"
        : restarted ? "the server was restarted: its tables began anew"
                    : "it has forgotten this client, which was away for too long";
    char text[192];
    sl_log_warn("%s: connected again: %s", conn->name, why);
    if (restarted && !is_restored && conn->io->tables.count > 0) {
        /* Before the answer of any request that the new tables executed: the coordinator may report
         * it later. */
        sl_client_io_lose_values(conn->io - conn->io->index, 1 + conn->address.server_task);
    }
    snprintf(text, sizeof text, "%s; this request may or may not have been carried out", why);
    begin_restore(conn);
    sl_shard_conn_fail_writes(conn, text);
}

/* The shard was restored from a checkpoint that contains the session. It recognizes retransmitted
 * writes that it applied before the checkpoint, and applies the others. Tables created after the
 * checkpoint are missing. */
static void restored(struct sl_shard_conn *conn)
{
    sl_log_warn("%s: connected again: the server was restarted from a checkpoint: what was pushed "
                "between that and its end is lost",
                conn->name);
    begin_restore(conn);
}

static void welcomed_again(struct sl_shard_conn *conn, const struct sl_message_welcome *welcome)
{
    bool restarted = welcome->incarnation != conn->incarnation;
    bool remembers = welcome->resumed && (!restarted || welcome->restored);
    sl_cell_add(&conn->io->cells.reconnects, 1);
    take_welcome(conn, welcome);
    if (!remembers) {
        session_lost(conn, restarted, welcome->restored);
    } else {
        if (restarted) {
            restored(conn);
        } else {
            sl_log_info("%s: connected again", conn->name);
        }
        if (conn->clock.is_agreed && conn->clock.is_counted &&
            conn->clock.at_shard > conn->clock.value) {
            conn->clock.value = conn->clock.at_shard; /* an abandoned tick was applied */
        }
    }
    conn->state = conn->restore.pending ? SL_SHARD_CONN_RESTORING : SL_SHARD_CONN_OPEN;
    sl_shard_conn_fail_oversized(conn);
    restore(conn);
    (void)sl_shard_conn_pump(conn);
}

static void shard_conn_connect_welcomed(struct sl_shard_conn *conn,
                                        const struct sl_message_welcome *welcome)
{
    const char *flaw = flaw_of(conn, welcome);
    const bool is_first = conn->state == SL_SHARD_CONN_OPENING;
    sl_backoff_reset(&conn->attach.backoff);
    conn->attach.err = 0;
    if (flaw != NULL) {
        conn->state = SL_SHARD_CONN_OPEN;
        if (conn->opening != NULL) {
            sl_control_op_fail(conn->opening, SL_ERR_PROTOCOL, "%s: %s", conn->name, flaw);
        }
        sl_shard_conn_break(conn, flaw, true);
    } else if (is_first) {
        take_welcome(conn, welcome);
        conn->state = SL_SHARD_CONN_OPEN;
    } else {
        welcomed_again(conn, welcome);
    }
    shard_conn_connect_opened(conn);
    if (conn->reactor != NULL) {
        sl_session_send_ready(conn->reactor->session);
    }
}

/* Attaching */

/* Returns whether a refusal with this error is permanent. */
static bool is_final(int err)
{
    return err == SL_ERR_PROTOCOL || err == SL_ERR_REFUSED || err == SL_ERR_EXISTS ||
           err == SL_ERR_INVALID || err == SL_ERR_UNSUPPORTED;
}

/* Time until the operation that opens the shard gives up. */
static uint64_t time_left(const struct sl_shard_conn *conn)
{
    return conn->opening == NULL ? UINT64_MAX
                                 : sl_client_io_time_left(conn->io, conn->opening->deadline_ns);
}

static void attach_again(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_shard_conn *conn = SL_CONTAINER_OF(timer, struct sl_shard_conn, attach.retry);
    if (conn->opening != NULL && now_ns >= conn->opening->deadline_ns) {
        sl_shard_conn_end(conn, SL_ERR_DEADLINE, conn->reason);
    } else if (sl_reactor_conn_is_up(conn->reactor)) {
        sl_shard_conn_attach(conn);
    }
}

/* The shard does not serve there at the moment: it is being restored, or moves. */
static void attach_later(struct sl_shard_conn *conn, int err, const char *reason)
{
    conn->attach.err = err;
    set_reason(conn, reason);
    conn->attach.backoff.least_ns = ATTACH_BACK_OFF_MIN_NS;
    conn->attach.backoff.most_ns = ATTACH_BACK_OFF_MAX_NS;
    conn->attach.retry.run = attach_again;
    const uint64_t wait_ns =
        sl_backoff_next(&conn->attach.backoff, sl_reactor_random(conn->io->reactor));
    const uint64_t left_ns = time_left(conn);
    sl_reactor_arm(conn->io->reactor, &conn->attach.retry, wait_ns < left_ns ? wait_ns : left_ns);
}

static void shard_conn_connect_attached(void *ctx, const struct sl_message *answer, int err,
                                        const char *reason)
{
    struct sl_shard_conn *conn = ctx;
    if (!conn->attach.asked) {
        return; /* the connection was lost */
    }
    conn->attach.asked = false;
    if (err == 0) {
        shard_conn_connect_welcomed(conn, &answer->welcome);
    } else if (err == SL_ERR_DEADLINE && conn->opening == NULL) {
        sl_reactor_conn_break(conn->reactor, "it does not answer");
    } else if (is_final(err)) {
        sl_shard_conn_end(conn, err, reason);
    } else {
        attach_later(conn, err, reason);
    }
}

void sl_shard_conn_attach(struct sl_shard_conn *conn)
{
    struct sl_message message = {.kind = SL_MESSAGE_ATTACH, .id = sl_frame_id(conn->shard, 0)};
    if (conn->attach.asked ||
        (conn->state != SL_SHARD_CONN_OPENING && conn->state != SL_SHARD_CONN_DISCONNECTED)) {
        return;
    }
    sl_reactor_disarm(conn->io->reactor, &conn->attach.retry);
    conn->attach.asked = true;
    sl_session_request(conn->reactor->session, &message,
                       conn->opening == NULL ? SL_SESSION_GREETING_NS : time_left(conn),
                       shard_conn_connect_attached, conn);
}

/* Forgets what the shard was asked on its connection. */
static void stop_asking(struct sl_shard_conn *conn)
{
    conn->attach.asked = conn->restore.asked = false;
    sl_reactor_disarm(conn->io->reactor, &conn->attach.retry);
    sl_list_remove(&conn->waiting);
    sl_session_cancel(conn->reactor->session, conn);
}

/* Ends */

void sl_shard_conn_end(struct sl_shard_conn *conn, int err, const char *reason)
{
    if (reason != conn->reason) {
        set_reason(conn, sl_control_op_reason(conn->name, reason));
    }
    conn->state = SL_SHARD_CONN_CLOSED;
    stop_asking(conn);
    sl_reactor_conn_leave(conn);
    if (conn->opening != NULL) {
        sl_control_op_fail(conn->opening, err, "%s: %s", conn->name, conn->reason);
        shard_conn_connect_opened(conn);
    } else {
        sl_log_warn("%s: connection lost for good: %s", conn->name, conn->reason);
    }
    sl_shard_conn_fail_all(conn);
}

/* Moves to the connection of the reactor that serves the shard now. */
static void move(struct sl_shard_conn *conn)
{
    char text[64];
    const int err = sl_reactor_conn_join(conn, START_TIMEOUT_NS);
    if (err != 0) {
        snprintf(text, sizeof text, "cannot connect: %s",
                 sl_client_io_last_error(conn->address.endpoint.scheme, err));
        sl_shard_conn_end(conn, err, text);
    }
}

static bool is_elsewhere(const struct sl_shard_conn *conn)
{
    return conn->address.server_task != conn->reactor->address.server_task ||
           conn->address.reactor != conn->reactor->address.reactor;
}

void sl_shard_conn_lost(struct sl_shard_conn *conn, const char *reason)
{
    if (conn->state == SL_SHARD_CONN_ENDING) {
        sl_shard_conn_end(conn, SL_ERR_CLOSED, conn->reason);
        return;
    }
    stop_asking(conn);
    if (conn->state != SL_SHARD_CONN_BREAKING) {
        set_reason(conn, reason);
    }
    if (conn->state != SL_SHARD_CONN_OPENING) {
        conn->state = SL_SHARD_CONN_DISCONNECTED;
        sl_shard_conn_requeue(conn);
    } else {
        conn->attach.retry.run = attach_again;
        sl_reactor_arm(conn->io->reactor, &conn->attach.retry, time_left(conn));
    }
    if (is_elsewhere(conn)) {
        move(conn);
    }
}

void sl_shard_conn_breaks(struct sl_shard_conn *conn, const char *reason)
{
    if (sl_shard_conn_is_attached(conn)) {
        conn->state = SL_SHARD_CONN_BREAKING;
        set_reason(conn, reason);
    }
}

void sl_shard_conn_break(struct sl_shard_conn *conn, const char *reason, bool for_good)
{
    if (!sl_shard_conn_is_attached(conn)) {
        return; /* or already breaking */
    }
    sl_reactor_conn_break(conn->reactor, reason);
    if (for_good) {
        conn->state = SL_SHARD_CONN_ENDING;
    }
}

/* Opening and closing */

void sl_shard_conn_open(struct sl_shard_conn *conn, struct sl_control_op *op)
{
    conn->next_id = 1;
    conn->opening = op;
    int err = sl_reactor_conn_join(conn, sl_client_io_time_left(conn->io, op->deadline_ns));
    if (err != 0) {
        conn->state = SL_SHARD_CONN_CLOSED;
        snprintf(conn->reason, sizeof conn->reason, "cannot connect: %s",
                 sl_client_io_last_error(conn->address.endpoint.scheme, err));
        sl_control_op_fail(op, err, "%s: %s", conn->name, conn->reason);
        shard_conn_connect_opened(conn);
    }
}

void sl_shard_conn_cancel(struct sl_shard_conn *conn, const struct sl_control_op *op)
{
    if (conn->opening == op) {
        sl_shard_conn_close(conn);
        sl_control_op_fail(conn->opening, SL_ERR_CANCELLED, "%s: interrupted", conn->name);
        shard_conn_connect_opened(conn);
    }
}

void sl_shard_conn_close(struct sl_shard_conn *conn)
{
    conn->state = SL_SHARD_CONN_CLOSED;
    if (conn->reactor != NULL) {
        stop_asking(conn);
        sl_reactor_conn_leave(conn);
    }
}

/* An unchanged address is possible: the server restarted in place. */
void sl_shard_conn_set_address(struct sl_shard_conn *conn, const struct sl_reactor_address *address)
{
    char why[64];
    if (conn->reactor == NULL) {
        return;
    }
    conn->address = *address;
    if (!is_elsewhere(conn)) {
        sl_reactor_conn_set_address(conn->reactor, address);
        return;
    }
    snprintf(why, sizeof why, "it is served by ps/%u now", address->server_task);
    if (conn->state == SL_SHARD_CONN_BREAKING || conn->state == SL_SHARD_CONN_ENDING) {
        return; /* it moves when the connection has closed */
    }
    if (conn->inflight.count > 0) {
        /* The old server may still write replies into memory of the client. */
        sl_shard_conn_break(conn, why, false);
        return;
    }
    stop_asking(conn);
    if (conn->state != SL_SHARD_CONN_OPENING) {
        conn->state = SL_SHARD_CONN_DISCONNECTED;
        set_reason(conn, why);
    }
    sl_log_info("%s: %s", conn->name, why);
    move(conn);
}

/* Restoring the shard's state of this client: its tables, and its worker's clock */

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
    if (!conn->restore.asked) {
        return false; /* the connection was lost */
    }
    conn->restore.asked = false;
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
    const bool has_answer = err == 0 && conn->restore.asked;
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
        restore(conn);
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
    restore(conn);
}

static void ask(struct sl_shard_conn *conn, struct sl_message *message,
                sl_session_answer_fn *answer)
{
    conn->restore.asked = true;
    message->id = sl_frame_id(conn->shard, 0);
    sl_session_request(conn->reactor->session, message, ANSWER_TIMEOUT_NS, answer, conn);
}

static bool must_join(const struct sl_shard_conn *conn)
{
    return conn->clock.is_agreed && !conn->clock.is_finished &&
           (!conn->clock.is_counted || conn->clock.at_shard != conn->clock.value);
}

/* Sends the next request that restores the shard's state; opens the connection after the last. Does
 * nothing while an answer is outstanding or without a connection. */
static void restore(struct sl_shard_conn *conn)
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
    restore(conn);
}
