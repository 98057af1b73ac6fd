#include <stdio.h>
#include <string.h>

#include "core/assert.h"
#include "core/log.h"
#include "worker/client_io.h"
#include "worker/control_op.h"
#include "worker/encode.h"
#include "worker/shard_conn.h"

static bool is_on_this_host(const struct sl_client_io_options *options,
                            const struct sl_message_ps *ps)
{
    return options->host[0] != '\0' && strcmp(options->host, ps->host) == 0;
}

/* What this client has for such a way, and is not told to leave alone. */
static bool may_go(const struct sl_client_io_options *options, enum sl_endpoint_scheme scheme)
{
    return (scheme == SL_ENDPOINT_RDMA && !options->no_rdma) ||
           (scheme == SL_ENDPOINT_DPDK && options->devices != NULL);
}

/* Where RDMA or DPDK leads to the ps, too, and may be used. A ps of another version may offer what
 * this one does not know: it does without. */
static bool has_fast(const struct sl_client_io_options *options, const struct sl_message_ps *ps,
                     struct sl_endpoint *out)
{
    char ignored[160];
    return ps->fast_endpoint[0] != '\0' && options->transport.tls == NULL &&
           sl_endpoint_parse(ps->fast_endpoint, out, ignored, sizeof ignored) == 0 &&
           may_go(options, out->scheme) && out->port != 0;
}

const struct sl_message_ps *sl_shard_conn_find_ps(const struct sl_message_ps *all,
                                                  uint32_t ps_count, uint32_t task_index)
{
    for (uint32_t i = 0; i < ps_count; i++) {
        if (all[i].task_index == task_index) {
            return &all[i];
        }
    }
    return NULL;
}

int sl_shard_conn_find_place(const struct sl_client_io_options *options,
                             const struct sl_message_ps *all, uint32_t ps_count,
                             const struct sl_message_ps *of, struct sl_shard_address *out,
                             char *reason, size_t reason_bytes)
{
    const struct sl_message_ps *ps = sl_shard_conn_find_ps(all, ps_count, of->primary);
    if (ps == NULL) {
        snprintf(reason, reason_bytes, "ps/%u, which serves its shards, is not in the cluster",
                 of->primary);
        return SL_ERR_INVALID;
    }
    struct sl_shard_address place = {
        .server_task = ps->task_index,
        .first_shard = ps == of ? 0 : ps->shard_count,
    };
    int err = sl_endpoint_parse(ps->data_endpoint, &place.endpoint, reason, reason_bytes);
    if (err != 0) {
        return err;
    }
    const enum sl_endpoint_scheme scheme = place.endpoint.scheme;
    if ((scheme == SL_ENDPOINT_RDMA || scheme == SL_ENDPOINT_DPDK) &&
        options->transport.tls != NULL) {
        snprintf(reason, reason_bytes,
                 "%.100s: there is no TLS over %s: give the ps a TCP endpoint too",
                 ps->data_endpoint, sl_endpoint_scheme_name(scheme));
        return SL_ERR_INVALID;
    }
    if (scheme == SL_ENDPOINT_DPDK && options->devices == NULL) {
        snprintf(reason, reason_bytes,
                 "%.100s: this process needs a device of its own to get there: --dpdk-device "
                 "DEVICE?addr=A, or STARLING_DPDK_DEVICE",
                 ps->data_endpoint);
        return SL_ERR_INVALID;
    }
    if (place.endpoint.scheme == SL_ENDPOINT_TCP && is_on_this_host(options, ps)) {
        place.near = place.endpoint;
        place.near.scheme = SL_ENDPOINT_SHM;
        place.has_near = true;
    } else if (place.endpoint.scheme == SL_ENDPOINT_TCP) {
        place.has_near = has_fast(options, ps, &place.near);
    }
    *out = place;
    return 0;
}

void sl_shard_conn_set_name(struct sl_shard_conn *link)
{
    char text[SL_LIMIT_ENDPOINT_BYTES];
    sl_endpoint_format(link->session == NULL ? &link->place.endpoint
                                             : sl_session_endpoint(link->session),
                       text, sizeof text);
    snprintf(link->peer_name, sizeof link->peer_name, "ps/%u shard %u", link->ps_task,
             link->local_shard);
    snprintf(link->name, sizeof link->name, "%s (%s)", link->peer_name, text);
}

const char *sl_shard_conn_obstacle(const struct sl_shard_conn *link)
{
    switch (link->state) {
    case SL_SHARD_CONN_OPEN:
        return "";
    case SL_SHARD_CONN_RESTORING:
        return "it is being told what it has forgotten";
    case SL_SHARD_CONN_BREAKING:
    case SL_SHARD_CONN_CLOSED:
        return link->reason;
    default:
        return sl_session_last_error(link->session);
    }
}

/* Under the name with which the reason begins. */
static void set_reason(struct sl_shard_conn *link, const char *reason)
{
    sl_shard_conn_set_name(link);
    snprintf(link->reason, sizeof link->reason, "%s", sl_control_op_reason(link->name, reason));
}

/* The call that waited for this link has its answer. */
static void opened(struct sl_shard_conn *link)
{
    struct sl_control_op *call = link->opening;
    link->opening = NULL;
    if (call == NULL) {
        return;
    }
    if (call->payload_bytes_max > link->payload_bytes_max) {
        call->payload_bytes_max = link->payload_bytes_max;
    }
    sl_control_op_take_clock(call, link->counts, link->clock_told);
    sl_control_op_answer_one(call);
}

/* ---- Welcomes */

/* Every request must be possible with what the peer grants, or it would wait for ever. */
static bool grants_enough(const struct sl_message_welcome *welcome)
{
    uint64_t payload = welcome->payload_bytes_max;
    return payload >= SL_ENCODE_PAYLOAD_BYTES_MIN && welcome->credit_requests > 0 &&
           welcome->credit_bytes >= sl_request_credit_bytes(payload, payload);
}

/* What makes the welcome useless; NULL: nothing does. */
static const char *flaw_of(const struct sl_shard_conn *link,
                           const struct sl_message_welcome *welcome)
{
    if (welcome->shard != link->shard || welcome->shard_count != link->hub->shard_count) {
        return "it says that it is another shard, of another cluster";
    }
    return grants_enough(welcome) ? NULL
                                  : "the credit that it grants is less than one request may need";
}

static void take_connection(struct sl_shard_conn *link)
{
    uint32_t capabilities = sl_session_conn(link->session)->transport->ops->capabilities;
    sl_shard_conn_set_name(link);
    link->outbox = sl_session_outbox(link->session);
    link->scheme = sl_session_endpoint(link->session)->scheme;
    link->lands = (capabilities & SL_TRANSPORT_DIRECT_REPLIES) != 0;
    link->lands_in_hub = link->lands && (capabilities & SL_TRANSPORT_REGISTERS) != 0;
}

static void take_welcome(struct sl_shard_conn *link, const struct sl_message_welcome *welcome)
{
    link->credit =
        (struct sl_credit){.bytes = welcome->credit_bytes, .requests = welcome->credit_requests};
    link->payload_bytes_max = welcome->payload_bytes_max;
    link->incarnation = welcome->incarnation;
    /* A shard without tables lets everybody count; who comes on top of the job's has to join. */
    link->counts = welcome->counts && (welcome->resumed || !link->hub->options->hello.joins);
    link->clock_told = welcome->clock;
    link->must_finish = link->has_clock && link->finished && welcome->counts;
}

static void tell_again(struct sl_shard_conn *link)
{
    link->restore.pending = true;
    link->restore.anew = link->restore.asked;
    link->restore.table = 0;
}

/* The shard has nothing of what this client did before; what it cannot have twice is given up. */
static void forgotten(struct sl_shard_conn *link, bool restarted, bool is_restored)
{
    const char *why = restarted && is_restored
                          ? "the ps was restarted from a checkpoint that does not know this client"
                      : restarted ? "the ps was restarted: its tables began anew"
                                  : "it has forgotten this client, which was away for too long";
    char text[192];
    sl_log_warn("%s: connected again: %s", link->name, why);
    snprintf(text, sizeof text, "%s; this request may or may not have been carried out", why);
    tell_again(link);
    sl_shard_conn_fail_writes(link, text);
}

/* The shard has what this client did before the checkpoint from which it began, and knows which of
 * the writes that are sent again that were: the others are done now. Tables that came later it does
 * not have. */
static void restored(struct sl_shard_conn *link)
{
    sl_log_warn("%s: connected again: the ps was restarted from a checkpoint: what was pushed "
                "between that and its end is lost",
                link->name);
    tell_again(link);
}

static void welcomed_again(struct sl_shard_conn *link, const struct sl_message_welcome *welcome)
{
    bool restarted = welcome->incarnation != link->incarnation;
    bool remembers = welcome->resumed && (!restarted || welcome->restored);
    take_welcome(link, welcome);
    if (!remembers) {
        forgotten(link, restarted, welcome->restored);
    } else {
        if (restarted) {
            restored(link);
        } else {
            sl_log_info("%s: connected again", link->name);
        }
        if (link->has_clock && link->counts && link->clock_told > link->clock) {
            link->clock = link->clock_told; /* a tick that nobody waited for was carried out */
        }
    }
    link->state = link->restore.pending ? SL_SHARD_CONN_RESTORING : SL_SHARD_CONN_OPEN;
    sl_shard_conn_fail_oversized(link);
    sl_shard_conn_restore(link);
    sl_shard_conn_pump(link);
}

static void welcomed(void *ctx, struct sl_session *session,
                     const struct sl_message_welcome *welcome)
{
    (void)session;
    struct sl_shard_conn *link = ctx;
    take_connection(link);
    const char *flaw = flaw_of(link, welcome);
    bool first = link->state == SL_SHARD_CONN_OPENING;
    if (flaw != NULL) {
        link->state = SL_SHARD_CONN_OPEN;
        if (link->opening != NULL) {
            sl_control_op_fail(link->opening, SL_ERR_PROTOCOL, "%s: %s", link->name, flaw);
        }
        sl_shard_conn_break(link, flaw, true);
    } else if (first) {
        take_welcome(link, welcome);
        link->state = SL_SHARD_CONN_OPEN;
    } else {
        welcomed_again(link, welcome);
    }
    opened(link);
}

static void writable(void *ctx, struct sl_session *session)
{
    (void)session;
    sl_shard_conn_pump(ctx);
}

/* ---- Ends */

static void end(struct sl_shard_conn *link)
{
    sl_log_warn("%s: connection lost for good: %s", link->name, link->reason);
    link->state = SL_SHARD_CONN_CLOSED;
    sl_shard_conn_fail_all(link);
}

static void lost(void *ctx, struct sl_session *session, int err, const char *reason)
{
    (void)session;
    (void)err;
    struct sl_shard_conn *link = ctx;
    if (link->state == SL_SHARD_CONN_BREAKING && link->ends) {
        sl_session_close(&link->session);
        end(link);
        return;
    }
    set_reason(link, reason);
    sl_log_warn("%s: connection lost: %s; it is tried again", link->name, link->reason);
    link->state = SL_SHARD_CONN_AWAY;
    sl_shard_conn_keep(link);
}

static void closed(void *ctx, struct sl_session *session, int err, const char *reason)
{
    (void)session;
    struct sl_shard_conn *link = ctx;
    if (link->state != SL_SHARD_CONN_BREAKING) {
        set_reason(link, reason);
    }
    if (link->opening != NULL) {
        sl_control_op_fail(link->opening, err == 0 ? SL_ERR_CLOSED : err, "%s", reason);
        link->state = SL_SHARD_CONN_CLOSED;
        opened(link);
    } else {
        end(link);
    }
}

void sl_shard_conn_break(struct sl_shard_conn *link, const char *reason, bool for_good)
{
    if (link->state != SL_SHARD_CONN_OPEN && link->state != SL_SHARD_CONN_RESTORING) {
        return; /* it has no connection, or breaks already */
    }
    link->state = SL_SHARD_CONN_BREAKING;
    link->ends = for_good;
    snprintf(link->reason, sizeof link->reason, "%s", reason);
    sl_session_reconnect(link->session, reason);
}

/* ---- Life */

static const struct sl_session_events link_events = {
    .welcomed = welcomed,
    .received = sl_shard_conn_received,
    .sink = sl_shard_conn_sink,
    .writable = writable,
    .lost = lost,
    .closed = closed,
};

/* Without the transport for it there is no near way, and the link goes on without. */
static struct sl_session_preferred near_of(struct sl_shard_conn *link)
{
    struct sl_session_preferred near = {.transport = NULL};
    if (link->place.has_near) {
        enum sl_endpoint_scheme scheme = link->place.near.scheme;
        near.transport = sl_client_io_near_transport(link->hub, scheme);
        near.outbox = sl_client_io_outbox(link->hub, scheme);
        near.endpoint = link->place.near;
    }
    return near;
}

void sl_shard_conn_open(struct sl_shard_conn *link, struct sl_control_op *call)
{
    struct sl_client_io *hub = link->hub;
    struct sl_session_options options = {
        .endpoint = link->place.endpoint,
        .near = near_of(link),
        .hello = hub->options->hello,
        .events = &link_events,
        .ctx = link,
        .peer_name = link->peer_name,
        .persistent = true,
        .secret = &hub->options->secret,
    };
    options.hello.purpose = SL_MESSAGE_PURPOSE_DATA;
    options.hello.shard = link->place.first_shard + link->local_shard;
    options.start_timeout_ns = sl_client_io_time_left(hub, call->deadline_ns);
    link->next_id = 1;
    link->opening = call;
    int err = sl_client_io_transport(hub, link->place.endpoint.scheme, &options.transport);
    if (err == 0) {
        options.outbox = sl_client_io_outbox(hub, link->place.endpoint.scheme);
        err = sl_session_open(&options, &link->session);
    }
    if (err != 0) {
        link->state = SL_SHARD_CONN_CLOSED;
        snprintf(link->reason, sizeof link->reason, "cannot connect: %s",
                 sl_client_io_obstacle(link->place.endpoint.scheme, err));
        sl_control_op_fail(call, err, "%s: %s", link->name, link->reason);
        opened(link);
    }
}

void sl_shard_conn_close(struct sl_shard_conn *link)
{
    link->state = SL_SHARD_CONN_CLOSED;
    if (link->session != NULL) {
        sl_session_close(&link->session);
    }
}

/* What is told without news may be that the ps was started anew at the same place. */
void sl_shard_conn_move(struct sl_shard_conn *link, const struct sl_shard_address *place)
{
    if (link->session == NULL) {
        return;
    }
    const bool is_taken_over = link->place.server_task != place->server_task;
    bool moved = !sl_endpoint_same(&link->place.endpoint, &place->endpoint);
    link->place = *place;
    sl_session_set_shard(link->session, place->first_shard + link->local_shard);
    const struct sl_session_preferred near = near_of(link);
    sl_session_set_preferred(link->session, &near);
    if (moved) {
        sl_session_set_endpoint(link->session, &place->endpoint);
        sl_shard_conn_set_name(link);
        sl_log_info("%s: this is where it is reached now", link->name);
    }
    if (is_taken_over) {
        char why[64];
        snprintf(why, sizeof why, "it is served by ps/%u now", place->server_task);
        sl_shard_conn_break(link, why, false);
        /* Nor does an attempt go on that would ask the ps before for a shard of the next one's. */
        sl_session_reconnect(link->session, why);
    }
}
