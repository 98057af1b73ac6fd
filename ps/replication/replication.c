#include "ps/replication/replication.h"

#include <inttypes.h>
#include <stdlib.h>

#include "core/assert.h"
#include "core/log.h"
#include "ps/replication/state.h"
#include "ps/server/handshake.h"
#include "ps/server/request.h"

/* Leases for clients to reconnect after a promotion: they learn the new server from the
 * coordinator, which may be moving too. The coordinator reports expired workers long before. */
#define TAKE_OVER_LEASES  3

#define LOG_BYTES_DEFAULT ((size_t)16 << 20)

/* Roles */

/* A backup that differs from its primary never serves: the process ends, so that the coordinator
 * learns that the shard is lost. It stays PROMOTING, so that clients are refused. */
static void fail_to_take_over(struct sl_server *server)
{
    sl_log_error(
        "shard %u: cannot be promoted (epoch %" PRIu64
        "): its backup is not in sync; this server ends, and the shard is lost: restart the server",
        server->options.shard.index, server->replica->config.epoch);
    server->replica->backup.is_broken = true;
    sl_replication_receiver_drop(server);
    server->replica->options.failed(server->replica->options.ctx, SL_ERR_CORRUPT);
}

/* The backup has executed all entries before its promotion: it serves, or if it is not in sync its
 * process ends. */
static void promoted(struct sl_server *server)
{
    struct sl_replication *replica = server->replica;
    if (replica->backup.is_broken || replica->backup.is_loading) {
        fail_to_take_over(server);
        return;
    }
    sl_replication_set_stage(replica, SL_REPLICATION_SERVES);
    server->role.backup.needs_snapshot = true;
    sl_server_sessions_await(server, TAKE_OVER_LEASES);
    sl_replication_expirations_apply(server);
    sl_log_info("shard %u: the backup is promoted (epoch %" PRIu64 ")", server->options.shard.index,
                replica->config.epoch);
    sl_replication_sender_open(server);
}

/* Promotes the backup. */
static void take_over(struct sl_server *server)
{
    struct sl_replication *replica = server->replica;
    sl_replication_set_stage(replica, SL_REPLICATION_PROMOTING);
    if (replica->backup.feed != NULL) {
        sl_transport_disconnect(replica->backup.feed->conn);
    }
    if (replica->backup.is_loading || !sl_replication_receiver_waits(server)) {
        promoted(server);
    }
}

static void become_primary(struct sl_server *server, bool was_primary, bool was_told)
{
    struct sl_replication *replica = server->replica;
    if (was_told && !was_primary) {
        take_over(server);
        return;
    }
    if (replica->stage == SL_REPLICATION_PROMOTING) {
        return; /* still: becomes the primary of this epoch instead */
    }
    sl_replication_sender_close(server);
    if (!was_told && replica->config.has_backup) {
        sl_replication_set_stage(replica, SL_REPLICATION_WAITS_FOR_BACKUP);
    } else {
        sl_replication_start_serving(server);
    }
    sl_replication_sender_open(server);
}

/* An epoch starts without a backup in sync. */
static void note_degraded(struct sl_server *server)
{
    struct sl_replication *replica = server->replica;
    if (replica->config.needs_backup && !replica->is_in_sync &&
        server->role.backup.degraded_since_ns == 0) {
        server->role.backup.degraded_since_ns = sl_server_now_ns(server);
    }
    sl_replication_metrics_update(server);
}

void sl_replication_set_config(struct sl_server *server, const struct sl_replica_config *config)
{
    struct sl_replication *replica = server->replica;
    sl_reactor_assert_owner(server->options.reactor);
    sl_assert(replica != NULL);
    sl_assert(server->shard != NULL || replica->backup.is_broken);
    const struct sl_replica_config before = replica->config;
    if (config->epoch <= before.epoch || sl_server_drains(server)) {
        return;
    }
    replica->config = *config;
    server->role.backup.is_needed = config->is_primary && config->needs_backup;
    sl_replication_set_may_switch_over(replica, false);
    if (config->is_primary) {
        become_primary(server, before.is_primary, before.epoch != 0);
        note_degraded(server);
    } else if (before.is_primary) {
        sl_log_warn("shard %u: another server has it (epoch %" PRIu64 ")",
                    server->options.shard.index, config->epoch);
        sl_replication_set_stage(replica, SL_REPLICATION_BACKUP);
        sl_replication_fenced(server);
    } else {
        sl_replication_receiver_forget(server);
    }
}

void sl_replication_set_switchover(struct sl_server *server, bool may_switch_over)
{
    sl_reactor_assert_owner(server->options.reactor);
    if (server->replica != NULL) {
        sl_replication_set_may_switch_over(server->replica, may_switch_over);
    }
}

static void replication_refuse(struct sl_server_conn *conn, int err, const char *what)
{
    sl_server_handshake_refuse(conn, err, "shard %u of ps/%u: %s",
                               conn->server->options.shard.index, conn->server->options.task_index,
                               what);
}

static void replication_admit(struct sl_server_conn *conn)
{
    const struct sl_server *server = conn->server;
    const struct sl_replication *replica = server->replica;
    if (conn->greeting.hello.epoch > replica->config.epoch) {
        replication_refuse(conn, SL_ERR_AGAIN, "it does not know that epoch yet");
    } else if (replica->config.is_primary) {
        replication_refuse(conn, SL_ERR_EXISTS, "it is the primary now");
    } else if (conn->greeting.hello.epoch < replica->config.epoch) {
        replication_refuse(conn, SL_ERR_REFUSED, "that epoch is over");
    } else if (server->shard == NULL) {
        replication_refuse(conn, SL_ERR_AGAIN, "it has no memory for it");
    } else if (replica->backup.is_broken) {
        replication_refuse(conn, SL_ERR_INVALID, "the backup is not in sync");
    } else {
        sl_replication_receiver_admit(conn);
    }
}

/* Hooks */

static int replication_create(struct sl_server *server)
{
    struct sl_replication *replica = calloc(1, sizeof *replica);
    if (replica == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    replica->server = server;
    replica->options = *server->options.replication;
    replica->cells = replica->options.cells != NULL ? replica->options.cells : &replica->own_cells;
    sl_list_init(&replica->expirations);
    sl_list_init(&replica->backup.entries);
    sl_replication_log_init(&replica->log);
    const size_t bytes_max = replica->options.log_bytes_max;
    int err =
        sl_outbox_init(&replica->sender.outbox, bytes_max == 0 ? LOG_BYTES_DEFAULT : bytes_max,
                       server->options.checksum);
    if (err != 0) {
        free(replica);
        return err;
    }
    server->role.state = sl_reactor_random(server->options.reactor);
    server->payload_bytes_max -= (uint32_t)sizeof(struct sl_replication_entry_head);
    server->replica = replica;
    return 0;
}

static void replication_stop(struct sl_server *server)
{
    sl_replication_sender_close(server);
    sl_replication_receiver_drop(server);
}

static void replication_destroy(struct sl_server *server)
{
    sl_replication_expirations_forget(server->replica);
    sl_outbox_fini(&server->replica->sender.outbox);
    free(server->replica);
    server->replica = NULL;
}

static bool replication_has_unsent(const struct sl_server *server)
{
    return server->replica->sender.outbox.frame_count > 0;
}

static bool replication_give_back(struct sl_server *server)
{
    return sl_outbox_give_back(&server->replica->sender.outbox);
}

static void replication_closed(struct sl_server_conn *conn)
{
    if (conn == conn->server->replica->backup.feed) {
        sl_replication_receiver_closed(conn->server);
    }
}

static uint32_t replication_run(struct sl_server *server, uint32_t keys)
{
    if (server->replica->degraded_ns != 0) {
        sl_replication_metrics_update(server);
    }
    if (!sl_replication_receiver_waits(server)) {
        sl_replication_receiver_acknowledge(server); /* if the outbox had no room until now */
        return sl_replication_catch_up_run(server);
    }
    const uint32_t spent = sl_replication_receiver_run(server, keys);
    if (!sl_replication_receiver_waits(server) &&
        server->replica->stage == SL_REPLICATION_PROMOTING) {
        promoted(server);
    }
    return spent;
}

static bool replication_is_idle(const struct sl_server *server)
{
    return !sl_replication_receiver_waits(server) && !sl_replication_catch_up_is_busy(server);
}

const struct sl_server_hooks sl_replication_hooks = {
    .request_bytes = sizeof(struct sl_replication_entry),
    .create = replication_create,
    .stop = replication_stop,
    .destroy = replication_destroy,
    .admit = replication_admit,
    .frame = sl_replication_receiver_arrive,
    .leave = sl_replication_log_forget,
    .closed = replication_closed,
    .expired = sl_replication_expired,
    .write_part = sl_replication_log_part,
    .write_done = sl_replication_log_done,
    .write_ended = sl_replication_log_ended,
    .write_refused = sl_replication_log_refused,
    .evicted = sl_replication_log_evicted,
    .dropped = sl_replication_log_dropped,
    .client_event = sl_replication_log_client,
    .answer_later = sl_replication_log_answer,
    .is_awaited = sl_replication_log_is_awaited,
    .run = replication_run,
    .is_idle = replication_is_idle,
    .has_unsent = replication_has_unsent,
    .give_back = replication_give_back,
};
