#include "ps/replication/sender.h"

#include <stdio.h>

#include "core/list.h"
#include "core/log.h"
#include "ps/replication/state.h"

#define SILENT         "it does not answer"

/* TCP checks its peer's progress at a quarter of its timeout (net/tcp/liveness.c). */
#define TAKEN_CHECK_NS (3 * SL_CLOCK_NS_PER_S)

/* Returns true while the backup makes progress: an entry has several MiB, so on a slow link its
 * acknowledgement takes longer than a lease. */
static bool makes_progress(struct sl_replication *replica, uint64_t now_ns)
{
    const uint64_t taken_bytes = sl_session_conn(replica->sender.session)->taken_bytes;
    const bool took_more = taken_bytes != replica->sender.taken_bytes;
    replica->sender.taken_bytes = taken_bytes;
    return took_more && now_ns - replica->sender.last_seen_ns < SL_SERVER_FRAME_NS;
}

/* Checks whether acknowledgements have been missing for one lease. Before the backup is in sync,
 * the connection is restarted. */
static void check_acknowledgements(struct sl_server *server, uint64_t now_ns)
{
    struct sl_replication *replica = server->replica;
    struct sl_replication_sender *sender = &replica->sender;
    if (sl_replication_log_is_empty(&replica->log)) {
        return; /* checked again with the next entry */
    }
    if (now_ns - sender->last_seen_ns < server->lease_ns) {
        sl_replication_await(server, sender->last_seen_ns, 0);
    } else if (makes_progress(replica, now_ns)) {
        sl_replication_await(server, now_ns, TAKEN_CHECK_NS);
    } else if (replica->link == SL_REPLICATION_IN_SYNC) {
        sl_replication_give_up(server, SILENT);
    } else {
        sl_session_reconnect(sender->session, SILENT);
    }
}

static void on_silence(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_replication *replica = SL_CONTAINER_OF(timer, struct sl_replication, sender.silence);
    if (replica->sender.session == NULL) {
        sl_replication_give_up(replica->server, "it is unreachable");
    } else if (sl_session_conn(replica->sender.session) == NULL) {
        sl_replication_give_up(replica->server, sl_session_last_error(replica->sender.session));
    } else {
        check_acknowledgements(replica->server, now_ns);
    }
}

static void sender_on_welcomed(void *ctx, struct sl_session *session,
                               const struct sl_message_welcome *welcome)
{
    struct sl_server *server = ctx;
    struct sl_replication *replica = server->replica;
    struct sl_replication_sender *sender = &replica->sender;
    const bool is_it = welcome->shard == server->options.shard.index &&
                       welcome->shard_count == server->options.shard.count;
    sl_timer_disarm(sl_server_timers(server), &sender->silence);
    sender->last_seen_ns = sl_server_now_ns(server);
    sender->credit =
        (struct sl_credit){.bytes = welcome->credit_bytes, .requests = welcome->credit_requests};
    if (!is_it) {
        sl_replication_give_up(server, "it reports another shard");
    } else if (replica->link == SL_REPLICATION_IN_SYNC) {
        if (!welcome->resumed) {
            sl_replication_give_up(server, "it has lost its state");
            return;
        }
        sl_replication_log_acknowledged(server, welcome->position);
        sl_replication_log_resend(server);
        sl_replication_expect_ack(server);
    } else if (!server->role.backup.needs_snapshot) {
        sl_replication_log_begin(server);
    } else if (welcome->position != 0) {
        sl_replication_give_up(server, "it is not empty"); /* a new epoch empties it */
    } else {
        replica->log.number = 0;
        sl_replication_catch_up_want(server);
    }
}

static void sender_on_received(void *ctx, struct sl_session *session,
                               const struct sl_transport_message *message)
{
    struct sl_server *server = ctx;
    struct sl_replication *replica = server->replica;
    const struct sl_frame header = message->header;
    sl_transport_release(sl_session_conn(session), message);
    replica->sender.last_seen_ns = sl_server_now_ns(server);
    sl_credit_grant(&replica->sender.credit, header.credit_bytes, header.credit_requests);
    if (header.type == SL_FRAME_REPLY && header.request_id <= replica->log.number) {
        sl_replication_log_acknowledged(server, header.request_id);
    }
    sl_replication_log_pump(server);
}

/* The backup's frames have no payload. */
static void *sender_on_sink(void *ctx, struct sl_session *session, const struct sl_frame *header)
{
    sl_session_reconnect(session, "it sent a long frame");
    return NULL;
}

static void sender_on_writable(void *ctx, struct sl_session *session)
{
    sl_replication_log_pump(ctx);
}

static void sender_on_lost(void *ctx, struct sl_session *session, int err, const char *reason)
{
    struct sl_server *server = ctx;
    if (server->replica->config.needs_backup) {
        sl_log_warn("shard %u: its backup: connection lost: %s; retrying",
                    server->options.shard.index, reason);
    } else { /* it may be the primary now */
        sl_log_info("shard %u: ps/%u: connection lost: %s", server->options.shard.index,
                    server->replica->config.backup_task, reason);
    }
    if (server->replica->link != SL_REPLICATION_IN_SYNC) {
        sl_replication_catch_up_abort(server);
    }
    if (!server->replica->has_given_up) {
        sl_replication_await(server, sl_server_now_ns(server), 0);
    }
}

static void sender_on_closed(void *ctx, struct sl_session *session, int err, const char *reason)
{
    struct sl_server *server = ctx;
    sl_session_close(&server->replica->sender.session);
    sl_timer_disarm(sl_server_timers(server), &server->replica->sender.silence);
    if (err == SL_ERR_EXISTS) {
        sl_log_warn("shard %u: %s: another server serves the shard now",
                    server->options.shard.index, reason);
        sl_replication_fenced(server);
        return;
    }
    if (err == SL_ERR_REFUSED) {
        sl_log_error("shard %u: writes are no longer acknowledged: %s", server->options.shard.index,
                     reason);
    }
    sl_replication_give_up(server, reason);
}

static const struct sl_session_events events = {
    .welcomed = sender_on_welcomed,
    .received = sender_on_received,
    .sink = sender_on_sink,
    .writable = sender_on_writable,
    .lost = sender_on_lost,
    .closed = sender_on_closed,
};

void sl_replication_sender_open(struct sl_server *server)
{
    struct sl_replication *replica = server->replica;
    const struct sl_replica_config *config = &replica->config;
    if (!config->has_backup) {
        return;
    }
    char name[SL_MESSAGE_NAME_BYTES];
    (void)snprintf(name, sizeof name, "the backup of shard %u on ps/%u",
                   server->options.shard.index, config->backup_task);
    const struct sl_session_options options = {
        .transport = server->host->transports.first,
        .outbox = &replica->sender.outbox,
        .endpoint = config->backup,
        .hello = {.purpose = SL_MESSAGE_PURPOSE_REPLICA,
                  .role = SL_MESSAGE_ROLE_PS,
                  .task_index = server->options.task_index,
                  .client_id = server->options.incarnation,
                  .shard = server->options.shard.index,
                  .epoch = config->epoch,
                  .state = server->role.state,
                  .checksum = server->options.checksum},
        .events = &events,
        .ctx = server,
        .peer_name = name,
        .start_timeout_ns = UINT64_MAX / 4, /* on_silence limits the wait instead */
        .persistent = true,
        .secret = server->options.secret,
    };
    replica->has_given_up = replica->is_in_sync = false;
    replica->sender.silence.run = on_silence;
    sl_replication_await(server, sl_server_now_ns(server), 0);
    int err = sl_session_open(&options, &replica->sender.session);
    if (err != 0) {
        sl_replication_give_up(server, sl_err_name(err));
    }
}

void sl_replication_sender_close(struct sl_server *server)
{
    struct sl_replication *replica = server->replica;
    sl_timer_disarm(sl_server_timers(server), &replica->sender.silence);
    sl_session_close(&replica->sender.session);
    sl_replication_catch_up_abort(server);
}
