#include "ps/agent/agent.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/clock.h"
#include "core/list.h"
#include "core/log.h"
#include "ps/agent/internal.h"

#define CONNECTIONS            4
#define BUFFERS                16
#define HEARTBEATS_OF_A_LEASE  4

/* Between two registration attempts if the coordinator has no leases. */
#define INTERVAL_WITHOUT_LEASE (2 * SL_CLOCK_NS_PER_S)

/* Between two calls of `absent`. */
#define ABSENCE_INTERVAL       SL_CLOCK_NS_PER_S

static void disarm(struct sl_agent *member)
{
    sl_reactor_disarm(member->options.reactor, &member->heartbeat);
    sl_reactor_disarm(member->options.reactor, &member->absence);
}

static void fail(struct sl_agent *member, int err, const char *reason)
{
    if (member->failed) {
        return;
    }
    member->failed = true;
    disarm(member);
    sl_log_error("%s the cluster: %s", member->joined ? "no longer a member of" : "cannot join",
                 reason);
    member->options.failed(member->options.ctx, err);
}

/* Registration */

/* Finds this process in the cluster. Returns false if its shard count differs, or it is missing. */
static bool find_shards(const struct sl_agent *member, const struct sl_message_cluster *cluster,
                        uint32_t *first_shard, uint32_t *shard_count)
{
    uint32_t count = 0;
    bool found = false;
    for (uint32_t i = 0; i < cluster->ps_count; i++) {
        const struct sl_message_ps *ps = &cluster->ps[i];
        if (ps->task_index == member->options.task_index) {
            found = ps->shard_count == member->options.shard_count;
            *first_shard = count;
        }
        count += ps->shard_count;
    }
    *shard_count = count;
    return found;
}

static void tell_cluster(struct sl_agent *member, const struct sl_message_cluster *cluster)
{
    if (member->options.cluster != NULL) {
        member->options.cluster(member->options.ctx, cluster);
    }
}

static void cluster_came(struct sl_agent *member, const struct sl_message_cluster *cluster)
{
    uint32_t first_shard = 0;
    uint32_t shard_count = 0;
    if (!find_shards(member, cluster, &first_shard, &shard_count)) {
        fail(member, SL_ERR_PROTOCOL, "the coordinator's cluster does not have this ps as it is");
        return;
    }
    if (member->joined &&
        (first_shard != member->first_shard || shard_count != member->shard_count)) {
        fail(member, SL_ERR_PROTOCOL, "its shards are numbered otherwise than before");
        return;
    }
    member->registered = true;
    tell_cluster(member, cluster);
    if (member->failed) {
        return; /* the owner rejected the cluster */
    }
    if (member->is_expired) {
        sl_log_info("the coordinator is reachable again");
        member->is_expired = false;
    }
    if (!member->joined) {
        member->joined = true;
        member->first_shard = first_shard;
        member->shard_count = shard_count;
        member->restore = cluster->restore;
        member->abandoned_above = cluster->abandoned_above;
        member->abandoned_to = cluster->abandoned_to;
        member->options.joined(member->options.ctx, first_shard, shard_count, member->lease_ns);
    }
}

static void register_once(struct sl_agent *member);

static void register_answered(void *ctx, const struct sl_message *answer, int err,
                              const char *reason)
{
    struct sl_agent *member = ctx;
    member->registering = false;
    if (member->session == NULL) {
        return; /* after sl_agent_leave */
    }
    if (err == 0) {
        cluster_came(member, &answer->cluster);
    } else if (member->joined && (err == SL_ERR_DEADLINE || err == SL_ERR_NO_MEMORY)) {
        sl_log_debug("not registered again: %s", reason);
        member->registered = false; /* the next heartbeat retries */
    } else {
        fail(member, err, reason);
    }
    if (member->has_news && !member->failed && sl_session_conn(member->session) != NULL) {
        register_once(member);
    }
}

/* Until joined: the rest of the start timeout. */
static uint64_t register_timeout_ns(const struct sl_agent *member)
{
    uint64_t timeout_ns = member->options.start_timeout_ns;
    uint64_t gone_ns = sl_reactor_now_ns(member->options.reactor) - member->opened_ns;
    return member->joined ? timeout_ns : gone_ns < timeout_ns ? timeout_ns - gone_ns : 1;
}

static void register_once(struct sl_agent *member)
{
    const struct sl_agent_options *options = &member->options;
    struct sl_message message = {
        .kind = SL_MESSAGE_REGISTER,
        .reg = {.shard_count = options->shard_count,
                .ps_count = options->ps_count,
                .worker_count = options->worker_count,
                .restore = member->joined ? sl_agent_checkpoint_latest(member) : options->restore,
                .complete = options->complete,
                .unfinished = options->unfinished,
                .checkpoint_newest = sl_agent_checkpoint_newest(member),
                .serving = member->joined,
                .has_tables = options->has_tables != NULL && options->has_tables(options->ctx),
                .replicas = options->replicas,
                .replica_report_count = member->pair_count},
    };
    memcpy(message.reg.replica_reports, member->pairs, sizeof member->pairs);
    sl_endpoint_format(&options->data, message.reg.data_endpoint, sizeof message.reg.data_endpoint);
    if (options->has_bypass) {
        sl_endpoint_format(&options->bypass, message.reg.bypass_endpoint,
                           sizeof message.reg.bypass_endpoint);
    }
    (void)snprintf(message.reg.host, sizeof message.reg.host, "%s",
                   options->host == NULL ? "" : options->host);
    if (member->registering) {
        /* The session may send the Register again: it takes the current one. If the request is
         * already in flight, the news stay pending. */
        const bool is_renewed = sl_session_request_renew(member->session, &message);
        member->has_news = member->has_news && !is_renewed;
        return;
    }
    member->has_news = false;
    member->registering = true;
    sl_session_request(member->session, &message, register_timeout_ns(member), register_answered,
                       member);
}

/* Session */

static bool may_choose_interval(const struct sl_agent *member)
{
    uint64_t wish_ns = member->options.heartbeat_ns;
    return wish_ns != 0 && (member->lease_ns == 0 || wish_ns < member->lease_ns);
}

static void arm_heartbeat(struct sl_agent *member)
{
    uint64_t interval_ns = may_choose_interval(member) ? member->options.heartbeat_ns
                           : member->lease_ns == 0     ? INTERVAL_WITHOUT_LEASE
                                                       : member->lease_ns / HEARTBEATS_OF_A_LEASE;
    sl_reactor_arm(member->options.reactor, &member->heartbeat, interval_ns);
}

static void on_heartbeat(struct sl_timer *timer, uint64_t now_ns)
{
    (void)now_ns;
    struct sl_agent *member = SL_CONTAINER_OF(timer, struct sl_agent, heartbeat);
    arm_heartbeat(member);
    if (member->lease_ns != 0) {
        struct sl_message message = {.kind = SL_MESSAGE_HEARTBEAT};
        /* A full outbox holds other messages, which renew the lease as well. */
        (void)sl_session_notify(member->session, &message);
    }
    if (!member->registered && sl_session_conn(member->session) != NULL) {
        register_once(member);
    }
    sl_agent_checkpoint_beat(member);
}

static void arm_absence(struct sl_agent *member, uint64_t pause_ns)
{
    sl_reactor_arm(member->options.reactor, &member->absence, pause_ns);
}

static void on_absence(struct sl_timer *timer, uint64_t now_ns)
{
    (void)now_ns;
    struct sl_agent *member = SL_CONTAINER_OF(timer, struct sl_agent, absence);
    arm_absence(member, ABSENCE_INTERVAL);
    member->options.absent(member->options.ctx);
}

static void on_welcomed(void *ctx, struct sl_session *session,
                        const struct sl_message_welcome *welcome)
{
    (void)session;
    struct sl_agent *member = ctx;
    member->lease_ns = welcome->lease_ms * SL_CLOCK_NS_PER_MS;
    sl_reactor_disarm(member->options.reactor, &member->absence);
    if (member->options.any_task) {
        member->options.any_task = false; /* the session keeps it as well */
        member->options.task_index = welcome->task_index;
    }
    if (member->options.heartbeat_ns != 0 && !may_choose_interval(member)) {
        sl_log_warn("a heartbeat every %llu s does not keep a lease of %g s: four come in each",
                    member->options.heartbeat_ns / SL_CLOCK_NS_PER_S,
                    (double)member->lease_ns / (double)SL_CLOCK_NS_PER_S);
    }
    arm_heartbeat(member);
    register_once(member);
}

static void on_expired(void *ctx, struct sl_session *session, int err, const char *reason)
{
    (void)session;
    (void)err;
    struct sl_agent *member = ctx;
    disarm(member);
    if (member->joined && member->options.absent != NULL) {
        arm_absence(member, member->options.start_timeout_ns);
    }
    member->registered = false;
    member->expirations++;
    if (!member->is_expired) {
        sl_log_warn("lost the coordinator: %s; %sretrying", reason,
                    member->joined ? "serving continues, " : "");
        member->is_expired = true;
    }
}

static void on_closed(void *ctx, struct sl_session *session, int err, const char *reason)
{
    (void)session;
    fail(ctx, err, reason);
}

static void member_expired(const struct sl_agent *member, const struct sl_message_expired *expired)
{
    if (expired->role == SL_MESSAGE_ROLE_WORKER) {
        member->options.expired(member->options.ctx, expired); /* the server logs it */
    } else if (member->options.task_index != 0 || member->options.peer_name != NULL) {
        /* If the coordinator is on this process, it has logged this. */
        sl_log_warn("ps/%" PRIu32 " expired: %s", expired->task_index, expired->why);
    }
}

static void on_notified(void *ctx, struct sl_session *session, const struct sl_message *message)
{
    (void)session;
    struct sl_agent *member = ctx;
    if (member->failed) {
        return;
    }
    switch (message->kind) {
    case SL_MESSAGE_ENDED:
        if (member->options.ended != NULL) {
            member->options.ended(member->options.ctx, message->why);
        }
        break;
    case SL_MESSAGE_EXPIRED:
        member_expired(member, &message->expired);
        break;
    case SL_MESSAGE_CHECKPOINT:
        sl_agent_checkpoint_notified(member, &message->checkpoint);
        break;
    case SL_MESSAGE_CHECKPOINT_COMPLETE:
        sl_agent_checkpoint_complete_notified(member, &message->checkpoint_complete);
        break;
    case SL_MESSAGE_CHECKPOINT_DONE:
        if (member->options.checkpoint_completed != NULL) {
            member->options.checkpoint_completed(member->options.ctx, message->checkpoint_number);
        }
        break;
    case SL_MESSAGE_CLUSTER:
        if (member->joined) {
            tell_cluster(member, &message->cluster);
        }
        break;
    default:
        break;
    }
}

static const struct sl_session_events session_events = {
    .welcomed = on_welcomed,
    .notified = on_notified,
    .lost = on_expired,
    .closed = on_closed,
};

/* Calls of the owner */

static int open_session(struct sl_agent *member)
{
    const struct sl_agent_options *options = &member->options;
    const struct sl_session_options session = {
        .transport = member->transport,
        .outbox = &member->outbox,
        .endpoint = options->coordinator,
        .hello = {.purpose = SL_MESSAGE_PURPOSE_CONTROL,
                  .role = SL_MESSAGE_ROLE_PS,
                  .task_index = options->task_index,
                  .any_task = options->any_task,
                  .client_id = options->incarnation,
                  .checksum = options->checksum},
        .events = &session_events,
        .ctx = member,
        .peer_name = options->peer_name == NULL ? "the coordinator (ps/0)" : options->peer_name,
        .start_timeout_ns = options->start_timeout_ns,
        .persistent = true,
        .follows = true,
        .secret = options->secret,
    };
    return sl_session_open(&session, &member->session);
}

int sl_agent_open(const struct sl_agent_options *options, struct sl_agent **out)
{
    sl_assert(options->joined != NULL);
    sl_assert(options->failed != NULL);
    sl_assert(options->expired != NULL);
    sl_assert((options->checkpoint == NULL) == (options->checkpoint_complete == NULL));
    sl_reactor_assert_owner(options->reactor);
    struct sl_agent *member = calloc(1, sizeof *member);
    if (member == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    member->options = *options;
    member->options.transport_options.connections_max = CONNECTIONS;
    member->options.transport_options.buffer_count = BUFFERS;
    member->heartbeat.run = on_heartbeat;
    member->absence.run = on_absence;
    member->opened_ns = sl_reactor_now_ns(options->reactor);
    int err = sl_outbox_init(&member->outbox, SL_OUTBOX_MEMORY_BYTES_MIN, options->checksum);
    if (err != 0) {
        goto free_member;
    }
    err = sl_transport_open(options->transport, options->reactor,
                            &member->options.transport_options, &member->transport);
    if (err != 0) {
        goto fini_outbox;
    }
    err = open_session(member);
    if (err != 0) {
        goto close_transport;
    }
    *out = member;
    return 0;

close_transport:
    sl_transport_close(&member->transport);
fini_outbox:
    sl_outbox_fini(&member->outbox);
free_member:
    free(member);
    return err;
}

uint64_t sl_agent_restore(const struct sl_agent *member)
{
    sl_assert(member->joined);
    return member->restore;
}

void sl_agent_abandoned(const struct sl_agent *member, uint64_t *above, uint64_t *to)
{
    sl_assert(member->joined);
    *above = member->abandoned_above;
    *to = member->abandoned_to;
}

uint32_t sl_agent_task_index(const struct sl_agent *member)
{
    sl_assert(!member->options.any_task);
    return member->options.task_index;
}

void sl_agent_report(struct sl_agent *member, const struct sl_message_replica_report *pairs,
                     uint32_t pair_count, bool is_news)
{
    sl_reactor_assert_owner(member->options.reactor);
    sl_assert(pair_count <= SL_MESSAGE_REPLICA_REPORTS_MAX);
    memcpy(member->pairs, pairs, pair_count * sizeof *pairs);
    member->pair_count = pair_count;
    member->has_news = member->has_news || is_news;
    if (is_news && member->session != NULL && !member->failed && member->registered) {
        register_once(member);
    }
}

bool sl_agent_has_news(const struct sl_agent *member)
{
    return member->has_news;
}

void sl_agent_set_coordinator(struct sl_agent *member, const struct sl_endpoint *coordinator)
{
    sl_reactor_assert_owner(member->options.reactor);
    if (member->session == NULL ||
        sl_endpoint_same(sl_session_endpoint(member->session), coordinator)) {
        return;
    }
    sl_session_set_endpoint(member->session, coordinator);
    sl_session_reconnect(member->session, "another process hosts the coordinator");
}

void sl_agent_leave(struct sl_agent *member)
{
    sl_reactor_assert_owner(member->options.reactor);
    disarm(member);
    if (member->session != NULL) {
        sl_session_close(&member->session);
    }
}

void sl_agent_close(struct sl_agent **member)
{
    struct sl_agent *closing = *member;
    *member = NULL;
    if (closing == NULL) {
        return;
    }
    sl_agent_leave(closing);
    sl_agent_checkpoint_fini(closing);
    sl_transport_close(&closing->transport);
    sl_outbox_fini(&closing->outbox);
    free(closing);
}
