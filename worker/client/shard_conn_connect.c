#include "worker/client/shard_conn_connect.h"

#include <stdio.h>
#include <string.h>

#include "core/log.h"
#include "worker/client/client_io.h"
#include "worker/client/client_io_transport.h"
#include "worker/client/control_op.h"
#include "worker/client/encode.h"
#include "worker/client/shard_conn_restore.h"

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
static const struct sl_message_ps *find_ps(const struct sl_message_cluster *cluster, uint32_t shard)
{
    for (uint32_t i = 0; i < cluster->ps_count; i++) {
        if (cluster->ps[i].task_index == cluster->placements[shard].primary) {
            return &cluster->ps[i];
        }
    }
    return NULL;
}

int sl_shard_conn_find_address(const struct sl_client_io_options *options,
                               const struct sl_message_cluster *cluster, uint32_t shard,
                               struct sl_shard_address *out, struct sl_reason *reason)
{
    const struct sl_message_ps *ps = find_ps(cluster, shard);
    if (ps == NULL) {
        return sl_reason_fail(reason, SL_ERR_INVALID,
                              "ps/%u, which serves shard %u, is not in the cluster",
                              cluster->placements[shard].primary, shard);
    }
    struct sl_shard_address address = {
        .server_task = ps->task_index,
        .reactor_count = ps->reactor_count != 0 ? ps->reactor_count
                         : ps->shard_count != 0 ? ps->shard_count
                                                : 1,
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
    sl_endpoint_format(conn->session == NULL ? &conn->address.endpoint
                                             : sl_session_endpoint(conn->session),
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
        return sl_session_last_error(conn->session);
    }
}

/* Sets the name first, to remove it from the start of the reason. */
static void shard_conn_connect_set_reason(struct sl_shard_conn *conn, const char *reason)
{
    sl_shard_conn_set_name(conn);
    snprintf(conn->reason, sizeof conn->reason, "%s", sl_control_op_reason(conn->name, reason));
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
    op->uses_tcp |= conn->path.scheme == SL_ENDPOINT_TCP;
    sl_control_op_take_clock(op, conn->clock.is_counted, conn->clock.at_shard);
    sl_control_op_answer_one(op);
}

/* Welcomes */

/* The credit must suffice for every request, which would otherwise wait forever. */
static bool grants_enough(const struct sl_message_welcome *welcome)
{
    uint64_t payload = welcome->payload_bytes_max;
    return payload >= SL_ENCODE_PAYLOAD_BYTES_MIN && welcome->credit_requests > 0 &&
           welcome->credit_bytes >= sl_request_credit_bytes(payload, payload);
}

/* Returns why the welcome is unusable, or NULL. */
static const char *flaw_of(const struct sl_shard_conn *conn,
                           const struct sl_message_welcome *welcome)
{
    if (welcome->shard != conn->shard || welcome->shard_count != conn->io->shard_count) {
        return "it reports another shard, of another cluster";
    }
    return grants_enough(welcome) ? NULL
                                  : "the credit that it grants is less than one request may need";
}

static void take_connection(struct sl_shard_conn *conn)
{
    const struct sl_conn *base = sl_session_conn(conn->session);
    sl_shard_conn_set_name(conn);
    conn->path.outbox = sl_session_outbox(conn->session);
    conn->path.scheme = sl_session_endpoint(conn->session)->scheme;
    conn->path.direct_replies =
        (base->transport->ops->capabilities & SL_TRANSPORT_DIRECT_REPLIES) != 0;
    conn->path.needs_registered = sl_transport_needs_registered(base);
}

static void take_welcome(struct sl_shard_conn *conn, const struct sl_message_welcome *welcome)
{
    conn->credit =
        (struct sl_credit){.bytes = welcome->credit_bytes, .requests = welcome->credit_requests};
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
    conn->restore.anew = conn->restore.asked;
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
    sl_shard_conn_restore(conn);
    sl_shard_conn_pump(conn);
}

static void shard_conn_connect_welcomed(void *ctx, struct sl_session *session,
                                        const struct sl_message_welcome *welcome)
{
    struct sl_shard_conn *conn = ctx;
    take_connection(conn);
    const char *flaw = flaw_of(conn, welcome);
    bool first = conn->state == SL_SHARD_CONN_OPENING;
    if (flaw != NULL) {
        conn->state = SL_SHARD_CONN_OPEN;
        if (conn->opening != NULL) {
            sl_control_op_fail(conn->opening, SL_ERR_PROTOCOL, "%s: %s", conn->name, flaw);
        }
        sl_shard_conn_break(conn, flaw, true);
    } else if (first) {
        take_welcome(conn, welcome);
        conn->state = SL_SHARD_CONN_OPEN;
    } else {
        welcomed_again(conn, welcome);
    }
    shard_conn_connect_opened(conn);
}

static void shard_conn_connect_writable(void *ctx, struct sl_session *session)
{
    sl_shard_conn_pump(ctx);
}

/* Ends */

static void shard_conn_connect_end(struct sl_shard_conn *conn)
{
    sl_log_warn("%s: connection lost for good: %s", conn->name, conn->reason);
    conn->state = SL_SHARD_CONN_CLOSED;
    sl_shard_conn_fail_all(conn);
}

static void shard_conn_connect_lost(void *ctx, struct sl_session *session, int err,
                                    const char *reason)
{
    struct sl_shard_conn *conn = ctx;
    if (conn->state == SL_SHARD_CONN_ENDING) {
        sl_session_close(&conn->session);
        shard_conn_connect_end(conn);
        return;
    }
    shard_conn_connect_set_reason(conn, reason);
    sl_log_warn("%s: connection lost: %s; retrying", conn->name, conn->reason);
    conn->state = SL_SHARD_CONN_DISCONNECTED;
    sl_shard_conn_requeue(conn);
}

static void shard_conn_connect_closed(void *ctx, struct sl_session *session, int err,
                                      const char *reason)
{
    struct sl_shard_conn *conn = ctx;
    if (conn->state != SL_SHARD_CONN_BREAKING && conn->state != SL_SHARD_CONN_ENDING) {
        shard_conn_connect_set_reason(conn, reason);
    }
    if (conn->opening != NULL) {
        sl_control_op_fail(conn->opening, err == 0 ? SL_ERR_CLOSED : err, "%s", reason);
        conn->state = SL_SHARD_CONN_CLOSED;
        shard_conn_connect_opened(conn);
    } else {
        shard_conn_connect_end(conn);
    }
}

static bool is_connected(const struct sl_shard_conn *conn)
{
    return conn->state == SL_SHARD_CONN_OPEN || conn->state == SL_SHARD_CONN_RESTORING;
}

void sl_shard_conn_break(struct sl_shard_conn *conn, const char *reason, bool for_good)
{
    if (!is_connected(conn)) {
        return; /* or already breaking */
    }
    conn->state = for_good ? SL_SHARD_CONN_ENDING : SL_SHARD_CONN_BREAKING;
    snprintf(conn->reason, sizeof conn->reason, "%s", reason);
    sl_session_reconnect(conn->session, reason);
}

/* Opening and closing */

static const struct sl_session_events conn_events = {
    .welcomed = shard_conn_connect_welcomed,
    .received = sl_shard_conn_received,
    .sink = sl_shard_conn_sink,
    .writable = shard_conn_connect_writable,
    .lost = shard_conn_connect_lost,
    .closed = shard_conn_connect_closed,
};

/* Without the transport the connection uses the fallback only. */
static struct sl_session_preferred preferred_of(struct sl_shard_conn *conn)
{
    struct sl_session_preferred preferred = {.transport = NULL};
    if (conn->address.has_preferred) {
        enum sl_endpoint_scheme scheme = conn->address.preferred.scheme;
        preferred.transport = sl_client_io_preferred_transport(conn->io, scheme);
        preferred.outbox = sl_client_io_outbox(conn->io, scheme);
        preferred.endpoint = conn->address.preferred;
    }
    return preferred;
}

void sl_shard_conn_open(struct sl_shard_conn *conn, struct sl_control_op *op)
{
    struct sl_client_io *io = conn->io;
    struct sl_session_options options = {
        .endpoint = conn->address.endpoint,
        .preferred = preferred_of(conn),
        .hello = io->options->hello,
        .events = &conn_events,
        .ctx = conn,
        .peer_name = conn->peer_name,
        .persistent = true,
        .secret = &io->options->secret,
    };
    options.hello.purpose = SL_MESSAGE_PURPOSE_DATA;
    options.hello.shard = conn->shard;
    options.target = conn->shard % conn->address.reactor_count;
    options.start_timeout_ns = sl_client_io_time_left(io, op->deadline_ns);
    conn->next_id = 1;
    conn->opening = op;
    int err = sl_client_io_transport(io, conn->address.endpoint.scheme, &options.transport);
    if (err == 0) {
        options.outbox = sl_client_io_outbox(io, conn->address.endpoint.scheme);
        err = sl_session_open(&options, &conn->session);
    }
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
    if (conn->session != NULL) {
        sl_session_close(&conn->session);
    }
}

/* An unchanged address is possible: the server restarted in place. */
void sl_shard_conn_set_address(struct sl_shard_conn *conn, const struct sl_shard_address *address)
{
    if (conn->session == NULL) {
        return;
    }
    const bool is_taken_over = conn->address.server_task != address->server_task;
    bool moved = !sl_endpoint_same(&conn->address.endpoint, &address->endpoint);
    conn->address = *address;
    sl_session_set_shard(conn->session, conn->shard, conn->shard % address->reactor_count);
    const struct sl_session_preferred preferred = preferred_of(conn);
    sl_session_set_preferred(conn->session, &preferred);
    if (moved) {
        sl_session_set_endpoint(conn->session, &address->endpoint);
        sl_shard_conn_set_name(conn);
        sl_log_info("%s: this is where it is reached now", conn->name);
    }
    if (is_taken_over) {
        char why[64];
        snprintf(why, sizeof why, "it is served by ps/%u now", address->server_task);
        if (is_connected(conn)) {
            sl_shard_conn_break(conn, why, false);
        } else {
            /* Aborts an attempt in progress: it would ask the old server for a shard number of the
             * new one. */
            sl_session_reconnect(conn->session, why);
        }
    }
}
