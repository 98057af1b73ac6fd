#include "ps/agent/agent.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/clock.h"
#include "core/event.h"
#include "core/list.h"
#include "core/log.h"
#include "ps/agent/checkpoint.h"

#define CONNECTIONS            4
#define BUFFERS                16
#define HEARTBEATS_OF_A_LEASE  4

/* Between two registration attempts if the coordinator has no leases. */
#define INTERVAL_WITHOUT_LEASE (2 * SL_CLOCK_NS_PER_S)

/* Between two calls of `absent`. */
#define ABSENCE_INTERVAL       SL_CLOCK_NS_PER_S

static void disarm(struct sl_agent *agent)
{
    sl_reactor_disarm(agent->options.reactor, &agent->heartbeat);
    sl_reactor_disarm(agent->options.reactor, &agent->absence);
}

static void agent_fail(struct sl_agent *agent, int err, const char *reason)
{
    if (agent->failed) {
        return;
    }
    agent->failed = true;
    disarm(agent);
    sl_log_event(SL_LOG_ERROR, SL_EVENT("membership_lost", SL_EVENT_TEXT("reason", reason)),
                 "%s the cluster: %s", agent->joined ? "no longer a member of" : "cannot join",
                 reason);
    agent->options.events.failed(agent->options.ctx, err);
}

/* Registration */

/* Finds this process in the cluster. Returns false if it is missing, or has other home shards. */
static bool find_shards(const struct sl_agent *agent, const struct sl_message_cluster *cluster,
                        uint32_t *first_shard)
{
    const struct sl_message_ps *ps = sl_message_cluster_find_ps(cluster, agent->options.task_index);
    *first_shard = ps == NULL ? 0 : ps->first_shard;
    return ps != NULL &&
           (agent->options.shard_count == 0 || ps->shard_count == agent->options.shard_count);
}

static void notify_cluster(struct sl_agent *agent, const struct sl_message_cluster *cluster)
{
    agent->dropped = cluster->dropped;
    if (agent->options.events.cluster != NULL) {
        agent->options.events.cluster(agent->options.ctx, cluster);
    }
}

static void cluster_came(struct sl_agent *agent, const struct sl_message_cluster *cluster)
{
    uint32_t first_shard = 0;
    const uint32_t shard_count = cluster->shard_count;
    if (!find_shards(agent, cluster, &first_shard)) {
        agent_fail(agent, SL_ERR_PROTOCOL,
                   "the coordinator's cluster does not have this server as it is");
        return;
    }
    if (agent->joined && (first_shard != agent->first_shard || shard_count != agent->shard_count)) {
        agent_fail(agent, SL_ERR_PROTOCOL, "its shards are numbered otherwise than before");
        return;
    }
    agent->registration.is_done = true;
    notify_cluster(agent, cluster);
    if (agent->failed) {
        return; /* the owner rejected the cluster */
    }
    if (agent->is_expired) {
        sl_log_event(SL_LOG_INFO, SL_EVENT("coordinator_reachable"),
                     "the coordinator is reachable again");
        agent->is_expired = false;
    }
    if (!agent->joined) {
        agent->joined = true;
        agent->first_shard = first_shard;
        agent->shard_count = shard_count;
        agent->restore = cluster->restore;
        agent->abandoned_above = cluster->abandoned_above;
        agent->abandoned_to = cluster->abandoned_to;
        agent->kept_to = cluster->kept_to;
        agent->job = cluster->job;
        agent->options.events.joined(agent->options.ctx, first_shard, shard_count,
                                     agent->welcome.lease_ns);
    }
}

static void register_once(struct sl_agent *agent);

static void register_answered(void *ctx, const struct sl_message *answer, int err,
                              const char *reason)
{
    struct sl_agent *agent = ctx;
    agent->registration.is_pending = false;
    if (agent->session == NULL) {
        return; /* after sl_agent_leave */
    }
    if (err == 0) {
        cluster_came(agent, &answer->cluster);
    } else if (agent->joined && (err == SL_ERR_DEADLINE || err == SL_ERR_NO_MEMORY)) {
        sl_log_debug("not registered again: %s", reason);
        agent->registration.is_done = false; /* the next heartbeat retries */
    } else {
        agent_fail(agent, err, reason);
    }
    if (agent->registration.has_news && !agent->failed && sl_session_conn(agent->session) != NULL) {
        register_once(agent);
    }
}

/* Until joined: the rest of the start timeout. */
static uint64_t register_timeout_ns(const struct sl_agent *agent)
{
    uint64_t timeout_ns = agent->options.start_timeout_ns;
    uint64_t gone_ns = sl_reactor_now_ns(agent->options.reactor) - agent->opened_ns;
    return agent->joined ? timeout_ns : gone_ns < timeout_ns ? timeout_ns - gone_ns : 1;
}

static void register_once(struct sl_agent *agent)
{
    const struct sl_agent_options *options = &agent->options;
    struct sl_message message = {
        .kind = SL_MESSAGE_REGISTER,
        .reg = {.shard_count = options->shard_count,
                .reactor_count = options->reactor_count,
                .ps_count = options->ps_count,
                .worker_count = options->worker_count,
                .restore = agent->joined ? sl_agent_checkpoint_latest(agent)
                                         : options->checkpoints.restore,
                .complete = options->checkpoints.complete,
                .unfinished = options->checkpoints.unfinished,
                .checkpoint_newest = sl_agent_checkpoint_newest(agent),
                .serving = agent->joined,
                .has_tables =
                    options->events.has_tables != NULL && options->events.has_tables(options->ctx),
                .job = agent->job,
                .unclaimed = agent->joined ? 0 : options->checkpoints.unclaimed,
                .replicas = options->replicas,
                .replica_reports = agent->registration.reports,
                .replica_report_count = agent->registration.report_count,
                .dropped = agent->dropped},
    };
    sl_endpoint_format(&options->data, message.reg.data_endpoint, sizeof message.reg.data_endpoint);
    if (options->has_bypass) {
        sl_endpoint_format(&options->bypass, message.reg.bypass_endpoint,
                           sizeof message.reg.bypass_endpoint);
    }
    (void)snprintf(message.reg.host, sizeof message.reg.host, "%s",
                   options->host == NULL ? "" : options->host);
    if (agent->registration.is_pending) {
        /* The session may send the Register again: it takes the current one. If the request is
         * already in flight, the news stay pending. */
        const bool is_renewed = sl_session_request_renew(agent->session, &message);
        agent->registration.has_news = agent->registration.has_news && !is_renewed;
        return;
    }
    agent->registration.has_news = false;
    agent->registration.is_pending = true;
    sl_session_request(agent->session, &message, register_timeout_ns(agent), register_answered,
                       agent);
}

/* Session */

static bool may_choose_interval(const struct sl_agent *agent)
{
    uint64_t wish_ns = agent->options.heartbeat_ns;
    return wish_ns != 0 && (agent->welcome.lease_ns == 0 || wish_ns < agent->welcome.lease_ns);
}

static void arm_heartbeat(struct sl_agent *agent)
{
    uint64_t interval_ns = may_choose_interval(agent) ? agent->options.heartbeat_ns
                           : agent->welcome.lease_ns == 0
                               ? INTERVAL_WITHOUT_LEASE
                               : agent->welcome.lease_ns / HEARTBEATS_OF_A_LEASE;
    sl_reactor_arm(agent->options.reactor, &agent->heartbeat, interval_ns);
}

static void on_heartbeat(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_agent *agent = SL_CONTAINER_OF(timer, struct sl_agent, heartbeat);
    arm_heartbeat(agent);
    if (agent->welcome.lease_ns != 0) {
        struct sl_message message = {.kind = SL_MESSAGE_HEARTBEAT};
        /* A full outbox holds other messages, which renew the lease as well. */
        (void)sl_session_notify(agent->session, &message);
    }
    if (!agent->registration.is_done && sl_session_conn(agent->session) != NULL) {
        register_once(agent);
    }
    sl_agent_checkpoint_beat(agent);
}

static void arm_absence(struct sl_agent *agent, uint64_t pause_ns)
{
    sl_reactor_arm(agent->options.reactor, &agent->absence, pause_ns);
}

static void on_absence(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_agent *agent = SL_CONTAINER_OF(timer, struct sl_agent, absence);
    arm_absence(agent, ABSENCE_INTERVAL);
    agent->options.events.absent(agent->options.ctx);
}

static void agent_on_welcomed(void *ctx, struct sl_session *session,
                              const struct sl_message_welcome *welcome)
{
    struct sl_agent *agent = ctx;
    agent->welcome.lease_ns = welcome->lease_ms * SL_CLOCK_NS_PER_MS;
    agent->welcome.wants_reports = welcome->wants_reports;
    memcpy(agent->welcome.http, welcome->http, sizeof agent->welcome.http);
    sl_reactor_disarm(agent->options.reactor, &agent->absence);
    if (agent->options.any_task) {
        agent->options.any_task = false; /* the session keeps it as well */
        agent->options.task_index = welcome->task_index;
    }
    if (agent->options.heartbeat_ns != 0 && !may_choose_interval(agent)) {
        sl_log_warn("a heartbeat every %llu s does not keep a lease of %g s: four come in each",
                    agent->options.heartbeat_ns / SL_CLOCK_NS_PER_S,
                    (double)agent->welcome.lease_ns / (double)SL_CLOCK_NS_PER_S);
    }
    if (!agent->registration.was_reported && agent->options.events.registered != NULL) {
        agent->options.events.registered(agent->options.ctx, agent->options.task_index);
    }
    agent->registration.was_reported = true;
    arm_heartbeat(agent);
    register_once(agent);
}

static void agent_on_expired(void *ctx, struct sl_session *session, int err, const char *reason)
{
    struct sl_agent *agent = ctx;
    disarm(agent);
    if (agent->joined && agent->options.events.absent != NULL) {
        arm_absence(agent, agent->options.start_timeout_ns);
    }
    agent->registration.is_done = false;
    agent->expirations++;
    if (agent->options.losses != NULL) {
        sl_cell_add(agent->options.losses, 1);
    }
    if (!agent->is_expired) {
        sl_log_event(SL_LOG_WARN, SL_EVENT("coordinator_lost", SL_EVENT_TEXT("reason", reason)),
                     "lost the coordinator: %s; %sretrying", reason,
                     agent->joined ? "serving continues, " : "");
        agent->is_expired = true;
    }
}

static void agent_on_closed(void *ctx, struct sl_session *session, int err, const char *reason)
{
    agent_fail(ctx, err, reason);
}

static void peer_expired(const struct sl_agent *agent, const struct sl_message_expired *expired)
{
    if (expired->role == SL_MESSAGE_ROLE_WORKER) {
        agent->options.events.expired(agent->options.ctx, expired); /* the server logs it */
    } else if (agent->options.task_index != 0 || agent->options.peer_name != NULL) {
        /* If the coordinator is on this process, it has logged this. */
        sl_log_warn("ps/%" PRIu32 " expired: %s", expired->task_index, expired->why);
    }
}

static void on_notified(void *ctx, struct sl_session *session, const struct sl_message *message)
{
    struct sl_agent *agent = ctx;
    if (agent->failed) {
        return;
    }
    switch (message->kind) {
    case SL_MESSAGE_ENDED:
        if (agent->options.events.ended != NULL) {
            agent->options.events.ended(agent->options.ctx, message->why);
        }
        break;
    case SL_MESSAGE_EXPIRED:
        peer_expired(agent, &message->expired);
        break;
    case SL_MESSAGE_CHECKPOINT:
        sl_agent_checkpoint_notified(agent, &message->checkpoint);
        break;
    case SL_MESSAGE_CHECKPOINT_PUBLISH:
        sl_agent_checkpoint_publish_notified(agent, &message->checkpoint_publish);
        break;
    case SL_MESSAGE_CHECKPOINT_DONE:
        if (message->checkpoint_number > agent->checkpoint.latest) { /* it had no part in it */
            agent->checkpoint.latest = message->checkpoint_number;
        }
        if (agent->options.events.checkpoint_completed != NULL) {
            agent->options.events.checkpoint_completed(agent->options.ctx,
                                                       message->checkpoint_number);
        }
        break;
    case SL_MESSAGE_CLUSTER:
        if (agent->joined) {
            notify_cluster(agent, &message->cluster);
        }
        break;
    default:
        break;
    }
}

static const struct sl_session_events session_events = {
    .welcomed = agent_on_welcomed,
    .notified = on_notified,
    .lost = agent_on_expired,
    .closed = agent_on_closed,
};

/* Calls of the owner */

static int open_session(struct sl_agent *agent)
{
    const struct sl_agent_options *options = &agent->options;
    const struct sl_session_options session = {
        .transport = agent->transport,
        .outbox = &agent->outbox,
        .endpoint = options->coordinator,
        .hello = {.purpose = SL_MESSAGE_PURPOSE_CONTROL,
                  .role = SL_MESSAGE_ROLE_PS,
                  .task_index = options->task_index,
                  .any_task = options->any_task,
                  .join_running = options->shard_count == 0,
                  .client_id = options->incarnation,
                  .checksum = options->checksum},
        .events = &session_events,
        .ctx = agent,
        .peer_name = options->peer_name == NULL ? "the coordinator (ps/0)" : options->peer_name,
        .start_timeout_ns = options->start_timeout_ns,
        .persistent = true,
        .follows = true,
        .secret = options->secret,
    };
    return sl_session_open(&session, &agent->session);
}

int sl_agent_open(const struct sl_agent_options *options, struct sl_agent **out)
{
    sl_assert(options->events.joined != NULL);
    sl_assert(options->events.failed != NULL);
    sl_assert(options->events.expired != NULL);
    sl_assert((options->events.checkpoint == NULL) == (options->events.checkpoint_publish == NULL));
    sl_reactor_assert_owner(options->reactor);
    struct sl_agent *agent = calloc(1, sizeof *agent);
    if (agent == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    agent->options = *options;
    agent->options.transport_options.connections_max = CONNECTIONS;
    agent->options.transport_options.buffer_count = BUFFERS;
    agent->heartbeat.run = on_heartbeat;
    agent->absence.run = on_absence;
    agent->opened_ns = sl_reactor_now_ns(options->reactor);
    int err = sl_outbox_init(&agent->outbox, SL_OUTBOX_MEMORY_BYTES_MIN, options->checksum);
    if (err != 0) {
        goto free_member;
    }
    err = sl_transport_open(options->transport, options->reactor, &agent->options.transport_options,
                            &agent->transport);
    if (err != 0) {
        goto fini_outbox;
    }
    err = open_session(agent);
    if (err != 0) {
        goto close_transport;
    }
    *out = agent;
    return 0;

close_transport:
    sl_transport_close(&agent->transport);
fini_outbox:
    sl_outbox_fini(&agent->outbox);
free_member:
    free(agent);
    return err;
}

uint64_t sl_agent_restore(const struct sl_agent *agent)
{
    sl_assert(agent->joined);
    return agent->restore;
}

void sl_agent_abandoned(const struct sl_agent *agent, uint64_t *above, uint64_t *to)
{
    sl_assert(agent->joined);
    *above = agent->abandoned_above;
    *to = agent->abandoned_to;
}

uint64_t sl_agent_kept(const struct sl_agent *agent)
{
    sl_assert(agent->joined);
    return agent->kept_to;
}

const struct sl_message_dropped *sl_agent_dropped(const struct sl_agent *agent)
{
    return &agent->dropped;
}

uint32_t sl_agent_task_index(const struct sl_agent *agent)
{
    sl_assert(!agent->options.any_task);
    return agent->options.task_index;
}

void sl_agent_report(struct sl_agent *agent, const struct sl_message_replica_report *reports,
                     uint32_t report_count, bool is_news)
{
    sl_reactor_assert_owner(agent->options.reactor);
    sl_assert(report_count <= SL_LIMIT_SHARDS);
    memcpy(agent->registration.reports, reports, report_count * sizeof *reports);
    agent->registration.report_count = report_count;
    agent->registration.has_news = agent->registration.has_news || is_news;
    if (is_news && agent->session != NULL && !agent->failed && agent->registration.is_done) {
        register_once(agent);
    }
}

bool sl_agent_has_news(const struct sl_agent *agent)
{
    return agent->registration.has_news;
}

void sl_agent_send_report(struct sl_agent *agent, struct sl_message_report *report)
{
    sl_reactor_assert_owner(agent->options.reactor);
    if (!agent->welcome.wants_reports || agent->session == NULL || agent->failed ||
        sl_session_queue(agent->session)->count > 0) {
        return;
    }
    struct sl_message message = {.kind = SL_MESSAGE_REPORT, .report = *report};
    /* Without a connection, or with a full outbox, the next report is sent instead. */
    (void)sl_session_notify(agent->session, &message);
}

const char *sl_agent_coordinator_http(const struct sl_agent *agent)
{
    return agent->welcome.http;
}

bool sl_agent_explain(const struct sl_agent *agent, char *text, size_t text_bytes)
{
    text[0] = '\0';
    if (agent->session == NULL) {
        (void)snprintf(text, text_bytes, "has left the cluster");
    } else if (sl_session_conn(agent->session) == NULL) {
        char endpoint[SL_LIMIT_ENDPOINT_BYTES];
        sl_endpoint_format(sl_session_endpoint(agent->session), endpoint, sizeof endpoint);
        (void)snprintf(text, text_bytes, "no connection to the coordinator at %s", endpoint);
    } else if (!agent->joined) {
        const char *names = sl_session_waits_for(agent->session);
        (void)snprintf(text, text_bytes, "waits for %s",
                       names[0] == '\0' ? "the coordinator" : names);
    }
    return text[0] != '\0';
}

void sl_agent_set_coordinator(struct sl_agent *agent, const struct sl_endpoint *coordinator)
{
    sl_reactor_assert_owner(agent->options.reactor);
    if (agent->session == NULL ||
        sl_endpoint_same(sl_session_endpoint(agent->session), coordinator)) {
        return;
    }
    sl_session_set_endpoint(agent->session, coordinator);
    sl_session_reconnect(agent->session, "another process hosts the coordinator");
}

void sl_agent_leave(struct sl_agent *agent)
{
    sl_reactor_assert_owner(agent->options.reactor);
    disarm(agent);
    if (agent->session != NULL) {
        sl_session_close(&agent->session);
    }
}

void sl_agent_close(struct sl_agent **agent)
{
    struct sl_agent *closing = *agent;
    *agent = NULL;
    if (closing == NULL) {
        return;
    }
    sl_agent_leave(closing);
    sl_agent_checkpoint_fini(closing);
    sl_transport_close(&closing->transport);
    sl_outbox_fini(&closing->outbox);
    free(closing);
}
