#include "ps/server/drain.h"

#include "core/list.h"
#include "core/log.h"
#include "ps/server/state.h"

static struct sl_server *drain_server_of(struct sl_timer *timer)
{
    return SL_CONTAINER_OF(timer, struct sl_server, drain.timer);
}

static void drain_finish(struct sl_server *server)
{
    void (*drained)(void *ctx) = server->drain.drained;
    server->drain.drained = NULL;
    if (drained != NULL) {
        drained(server->drain.ctx);
    }
}

static void finish_later(struct sl_timer *timer, uint64_t now_ns)
{
    drain_finish(drain_server_of(timer));
}

static void on_timeout(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_server *server = drain_server_of(timer);
    sl_log_warn("shard %u: %u connection%s still open at the drain timeout",
                server->options.shard.index, server->host->conn_count,
                sl_log_plural(server->host->conn_count));
    drain_finish(server);
}

void sl_server_drain_conn(struct sl_server_conn *conn)
{
    if (conn->out.first == NULL && conn->pending.count == 0) {
        sl_transport_disconnect(conn->conn);
    }
}

void sl_server_drain_say_goodbye(struct sl_server_conn *conn)
{
    if (sl_server_conn_is_welcomed(conn) && !conn->said_goodbye &&
        conn->conn->state == SL_CONN_OPEN) {
        struct sl_message goodbye = {.kind = SL_MESSAGE_GOODBYE};
        sl_server_send(conn, &goodbye);
    }
}

/* Says goodbye to all peers; closes each connection once its answers are read. */
static void say_goodbye_to_all(struct sl_server_host *host)
{
    for (struct sl_server *server = host->servers; server != NULL; server = server->next_of_host) {
        server->drain.stage = SL_SERVER_SAID_GOODBYE;
    }
    SL_LIST_FOREACH (link, &host->conns) {
        struct sl_server_conn *conn = sl_server_conn_of(link);
        sl_server_drain_say_goodbye(conn);
        sl_server_drain_conn(conn);
    }
}

bool sl_server_is_idle(const struct sl_server *server)
{
    const struct sl_server_hooks *hooks = server->options.hooks;
    if (!sl_list_empty(&server->scheduler.parked) || !sl_list_empty(&server->scheduler.resumed) ||
        server->pulls.count > 0 || (hooks != NULL && hooks->is_awaited(server))) {
        return false;
    }
    SL_LIST_FOREACH (link, &server->channels) {
        if (!sl_server_channel_is_free(sl_server_channel_of(link))) {
            return false;
        }
    }
    return true;
}

/* Returns true when all servers of the host drain and have answered everything. */
static bool is_all_answered(const struct sl_server_host *host)
{
    const struct sl_server *server = host->servers;
    while (server != NULL && server->drain.stage == SL_SERVER_DRAINS &&
           (server->role.switchover == SL_SERVER_SWITCHED_OVER || sl_server_is_idle(server))) {
        server = server->next_of_host;
    }
    return server == NULL;
}

void sl_server_drain_update(struct sl_server_host *host)
{
    for (struct sl_server *server = host->servers; server != NULL && host->conn_count == 0;
         server = server->next_of_host) {
        if (server->drain.drained != NULL) {
            server->drain.timer.run = finish_later;
            sl_timer_arm(sl_server_timers(server), &server->drain.timer, 0);
        }
    }
    if (host->conn_count > 0 && is_all_answered(host)) {
        say_goodbye_to_all(host);
    }
}

void sl_server_drain_begin(struct sl_server *server, uint64_t timeout_ns,
                           void (*drained)(void *ctx), void *ctx)
{
    server->drain.stage = SL_SERVER_DRAINS;
    server->drain.drained = drained;
    server->drain.ctx = ctx;
    server->drain.timer.run = on_timeout;
    sl_timer_arm(sl_server_timers(server), &server->drain.timer,
                 sl_server_now_ns(server) + timeout_ns);
}

void sl_server_drain_stop(struct sl_server *server)
{
    sl_timer_disarm(sl_server_timers(server), &server->drain.timer);
    server->drain.drained = NULL;
    server->drain.stage = SL_SERVER_DRAINS;
}
