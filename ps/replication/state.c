#include "ps/replication/state.h"

#include <stdlib.h>

#include "core/log.h"
#include "ps/server/handshake.h"

/* Expirations of workers */

/* An expiration that a primary was notified of before it served. */
struct expiry {
    struct sl_list_link link;
    struct sl_message_expired expired;
};

void sl_replication_expirations_forget(struct sl_replication *replica)
{
    struct sl_list_link *link;
    while ((link = sl_list_pop(&replica->expirations)) != NULL) {
        free(SL_CONTAINER_OF(link, struct expiry, link));
    }
}

void sl_replication_expired(struct sl_server *server, const struct sl_message_expired *message)
{
    struct sl_replication *replica = server->replica;
    if (!replica->config.is_primary) {
        return;
    }
    struct expiry *expiry = malloc(sizeof *expiry);
    if (expiry == NULL) {
        sl_log_error("shard %u: no memory to record that worker/%u expired: others would wait for "
                     "its clock for ever; this server ends: restart it",
                     server->options.shard.index, message->task_index);
        replica->options.failed(replica->options.ctx, SL_ERR_NO_MEMORY);
        return;
    }
    *expiry = (struct expiry){.expired = *message};
    sl_list_append(&replica->expirations, &expiry->link);
}

void sl_replication_expirations_apply(struct sl_server *server)
{
    struct sl_list_link *link;
    while ((link = sl_list_pop(&server->replica->expirations)) != NULL) {
        struct expiry *expiry = SL_CONTAINER_OF(link, struct expiry, link);
        sl_server_on_expired(server, &expiry->expired);
        free(expiry);
    }
}

/* Role and link */

void sl_replication_set_stage(struct sl_replication *replica, enum sl_replication_stage stage)
{
    replica->stage = stage;
    replica->server->role.serves = stage == SL_REPLICATION_SERVES;
    sl_replication_metrics_update(replica->server);
}

void sl_replication_set_may_switch_over(struct sl_replication *replica, bool may_switch_over)
{
    enum sl_server_switchover *switchover = &replica->server->role.switchover;
    replica->may_switch_over = may_switch_over;
    if (*switchover != SL_SERVER_SWITCHED_OVER) {
        *switchover = may_switch_over && replica->link == SL_REPLICATION_IN_SYNC
                          ? SL_SERVER_WILL_SWITCH_OVER
                          : SL_SERVER_NO_SWITCHOVER;
    }
}

void sl_replication_set_link(struct sl_replication *replica, enum sl_replication_link link)
{
    replica->link = link;
    replica->server->role.logs = link >= SL_REPLICATION_SNAPSHOT;
    sl_replication_set_may_switch_over(replica, replica->may_switch_over);
}

void sl_replication_report(struct sl_server *server, bool in_sync)
{
    struct sl_replication *replica = server->replica;
    replica->has_given_up = !in_sync;
    replica->options.state_changed(replica->options.ctx, server->options.local_index,
                                   replica->config.epoch, in_sync);
}

void sl_replication_start_serving(struct sl_server *server)
{
    struct sl_replication *replica = server->replica;
    if (replica->stage == SL_REPLICATION_WAITS_FOR_BACKUP && server->restore.is_done) {
        sl_server_sessions_await(server, 1); /* they could not connect during the wait */
    }
    if (replica->config.is_primary) { /* else fenced */
        sl_replication_set_stage(replica, SL_REPLICATION_SERVES);
    }
    sl_replication_expirations_apply(server);
}

void sl_replication_fenced(struct sl_server *server)
{
    server->role.switchover = SL_SERVER_SWITCHED_OVER;
    server->replica->options.failed(server->replica->options.ctx, SL_ERR_REFUSED);
}

void sl_replication_give_up(struct sl_server *server, const char *why)
{
    if (!server->replica->has_given_up) {
        sl_log_warn("shard %u: its backup on ps/%u: %s", server->options.shard.index,
                    server->replica->config.backup_task, why);
        sl_replication_report(server, false);
    }
}

void sl_replication_await(struct sl_server *server, uint64_t from_ns, uint64_t least_ns)
{
    struct sl_replication *replica = server->replica;
    const uint64_t wait_ns = server->lease_ns > least_ns ? server->lease_ns : least_ns;
    sl_timer_arm(sl_server_timers(server), &replica->sender.silence, from_ns + wait_ns);
}

void sl_replication_expect_ack(struct sl_server *server)
{
    struct sl_replication *replica = server->replica;
    struct sl_replication_sender *sender = &replica->sender;
    if (sl_replication_is_linked(server) && !replica->has_given_up &&
        !sl_timer_armed(&sender->silence)) {
        sender->last_seen_ns = sl_server_now_ns(server);
        sl_replication_await(server, sender->last_seen_ns, 0);
    }
}
