#include "ps/server/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/hash.h"
#include "core/log.h"
#include "ps/server/request.h"
#include "ps/server/session_snapshot.h"
#include "ps/server/state.h"
#include "ps/shard/whole.h"

int sl_server_sessions_init(struct sl_server_sessions *sessions)
{
    *sessions = (struct sl_server_sessions){
        .buckets = calloc(SL_SERVER_SESSION_BUCKETS, sizeof(struct sl_server_session *)),
        .workers = calloc(SL_LIMIT_WORKERS, sizeof(struct sl_server_session *)),
    };
    sl_list_init(&sessions->away);
    if (sessions->buckets == NULL || sessions->workers == NULL) {
        sl_server_sessions_fini(sessions);
        return SL_ERR_NO_MEMORY;
    }
    return 0;
}

static struct sl_server_session **
server_session_bucket_of(const struct sl_server_sessions *sessions, uint64_t client_id)
{
    return &sessions->buckets[sl_hash_key(client_id) % SL_SERVER_SESSION_BUCKETS];
}

static struct sl_server_session *server_session_find(const struct sl_server_sessions *sessions,
                                                     uint64_t client_id)
{
    struct sl_server_session *session = *server_session_bucket_of(sessions, client_id);
    while (session != NULL && session->client_id != client_id) {
        session = session->next;
    }
    return session;
}

/* Logs one line per process. The coordinator's process leaves it to the coordinator. */
static void server_session_report(const struct sl_server_session *session, const char *what)
{
    struct sl_server *server = session->server;
    if (session->role == SL_MESSAGE_ROLE_WORKER && server->options.local_index == 0 &&
        server->host->home->options.coordinator == NULL) {
        sl_server_log(server, "%s %s", session->name, what);
    } else {
        sl_log_debug("%s %s (shard %u)", session->name, what, server->options.shard.index);
    }
}

static struct sl_server_session *away_of(struct sl_list_link *link)
{
    return SL_CONTAINER_OF(link, struct sl_server_session, away_link);
}

static void away_append(struct sl_server_session *session)
{
    sl_list_append(&session->server->sessions.away, &session->away_link);
    session->server->sessions.away_count++;
}

static void away_remove(struct sl_server_session *session)
{
    sl_list_remove(&session->away_link);
    session->server->sessions.away_count--;
    sl_timer_disarm(sl_server_timers(session->server), &session->lease);
}

/* Separates the channel from the session. A write in progress may continue. Earlier pulls are
 * answered or queued first, because queues end with sessions. */
static void channel_release(struct sl_server_session *session)
{
    struct sl_server_channel *channel = session->channel;
    sl_server_pull_batch_before(channel);
    session->channel = NULL;
    sl_server_scheduler_drop(channel);
    if (channel->server->options.hooks != NULL) {
        channel->server->options.hooks->leave(channel);
    }
    channel->session = NULL;
    sl_list_remove(&channel->link);
}

static void clock_ends(const struct sl_server_session *session, enum sl_server_client_event event)
{
    struct sl_shard *shard = session->server->shard;
    if (session->role != SL_MESSAGE_ROLE_WORKER || shard == NULL) {
        return;
    }
    if (event == SL_SERVER_CLIENT_LEFT) {
        sl_shard_worker_left(shard, session->task_index);
    } else {
        sl_shard_worker_expired(shard, session->task_index);
    }
}

static void unlink_and_free(struct sl_server_session *session)
{
    struct sl_server_sessions *sessions = &session->server->sessions;
    struct sl_server_session **at = server_session_bucket_of(sessions, session->client_id);
    while (*at != session) {
        at = &(*at)->next;
    }
    *at = session->next;
    if (session->role == SL_MESSAGE_ROLE_WORKER) {
        sl_assert(sessions->workers[session->task_index] == session);
        sessions->workers[session->task_index] = NULL;
    }
    sl_assert(!sessions->snapshot.walks || session->snapshot_number == sessions->snapshot.number);
    free(session->failures);
    free(session);
}

/* event: LEFT or EXPIRED. */
static void server_session_end(struct sl_server_session *session, enum sl_server_client_event event)
{
    const struct sl_server *server = session->server;
    sl_server_session_touch(session);
    if (session->channel != NULL) {
        channel_release(session);
    } else {
        away_remove(session);
    }
    sl_server_scheduler_abandon(session);
    if (server->shard != NULL && server->options.shard.kv_handler != NULL) {
        sl_shard_whole_client_left(server->shard, session->client_id);
    }
    if (server->role.logs && !sl_server_drains(server)) {
        server->options.hooks->client_event(session, event);
    }
    clock_ends(session, event);
    unlink_and_free(session);
}

static void server_session_expire(struct sl_server_session *session, const char *why)
{
    char text[SL_MESSAGE_TEXT_BYTES];
    (void)snprintf(text, sizeof text, "expired: %s%s", why,
                   session->role == SL_MESSAGE_ROLE_WORKER ? "; its clock no longer counts" : "");
    server_session_report(session, text);
    server_session_end(session, SL_SERVER_CLIENT_EXPIRED);
}

void sl_server_sessions_fini(struct sl_server_sessions *sessions)
{
    while (!sl_list_empty(&sessions->away)) {
        struct sl_server_session *session = away_of(sl_list_first(&sessions->away));
        away_remove(session);
        sl_server_scheduler_abandon(session);
        unlink_and_free(session);
    }
    free(sessions->buckets);
    free(sessions->workers);
    *sessions = (struct sl_server_sessions){0};
}

static double lease_s(const struct sl_server *server)
{
    return (double)server->lease_ns / (double)SL_CLOCK_NS_PER_S;
}

static void lease_passed(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_server_session *session = SL_CONTAINER_OF(timer, struct sl_server_session, lease);
    char why[SL_MESSAGE_NAME_BYTES];
    (void)snprintf(why, sizeof why, "it has not reconnected within %.3g s",
                   lease_s(session->server));
    server_session_expire(session, why);
}

static struct sl_server_session *server_session_create(struct sl_server *server,
                                                       const struct sl_message_hello *hello)
{
    struct sl_server_session *session = calloc(1, sizeof *session);
    if (session == NULL) {
        return NULL;
    }
    struct sl_server_sessions *sessions = &server->sessions;
    session->server = server;
    session->snapshot_number = sessions->snapshot.number;
    session->client_id = hello->client_id;
    session->role = hello->role;
    session->task_index = hello->task_index;
    session->lease.run = lease_passed;
    sl_message_hello_name(hello, session->name);
    struct sl_server_session **bucket = server_session_bucket_of(sessions, session->client_id);
    session->next = *bucket;
    *bucket = session;
    if (session->role == SL_MESSAGE_ROLE_WORKER) {
        sl_assert(sessions->workers[session->task_index] == NULL);
        sessions->workers[session->task_index] = session;
    }
    return session;
}

/* The shard is not open yet: records loaded after the sessions would restore the worker's clock. */
static void expire_early(struct sl_server_sessions *sessions, uint32_t worker)
{
    sessions->expired_early[worker / 8] |= (uint8_t)(1U << (worker % 8));
}

/* Returns the limit of disconnected sessions. On a backup all sessions are disconnected, including
 * those connected to the primary; after a promotion they stay so until the clients reconnect. */
static uint32_t away_max(const struct sl_server *server)
{
    const uint32_t connections_max = server->options.transports.options.connections_max;
    const uint32_t factor = server->options.hooks == NULL ? 1 : server->role.serves ? 2 : 3;
    return (connections_max == 0 ? SL_LIMIT_CONNECTIONS : connections_max) * factor;
}

static void make_room_away(struct sl_server *server)
{
    struct sl_server_sessions *sessions = &server->sessions;
    if (sessions->away_count < away_max(server)) {
        return;
    }
    struct sl_server_session *first = away_of(sl_list_first(&sessions->away));
    if (server->is_open) {
        server_session_expire(first, "too many others are disconnected");
        return;
    }
    if (first->role == SL_MESSAGE_ROLE_WORKER) {
        expire_early(sessions, first->task_index);
    }
    server_session_report(first, "expired: the checkpoint has more clients than may be connected");
    away_remove(first);
    unlink_and_free(first);
}

int sl_server_session_restore(struct sl_server *server, const struct sl_message_hello *hello,
                              struct sl_server_session **out)
{
    const bool is_worker = hello->role == SL_MESSAGE_ROLE_WORKER;
    if (server_session_find(&server->sessions, hello->client_id) != NULL ||
        (is_worker && server->sessions.workers[hello->task_index] != NULL)) {
        return SL_ERR_CORRUPT;
    }
    make_room_away(server);
    struct sl_server_session *session = server_session_create(server, hello);
    if (session == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    away_append(session);
    *out = session;
    return 0;
}

void sl_server_sessions_await(struct sl_server *server, uint32_t lease_count)
{
    const uint64_t now_ns = sl_server_now_ns(server);
    const uint64_t left_ns = SL_CLOCK_NEVER - now_ns;
    const uint64_t wait_ns =
        server->lease_ns < left_ns / lease_count ? server->lease_ns * lease_count : left_ns;
    SL_LIST_FOREACH (link, &server->sessions.away) {
        sl_timer_arm(sl_server_timers(server), &away_of(link)->lease, now_ns + wait_ns);
    }
}

/* A new process takes a worker's index: ends the session of the previous one. */
static int replace_worker(const struct sl_server_channel *channel, struct sl_reason *reason)
{
    const struct sl_message_hello *hello = &channel->conn->greeting.hello;
    struct sl_server_session *other = hello->role == SL_MESSAGE_ROLE_WORKER
                                          ? channel->server->sessions.workers[hello->task_index]
                                          : NULL;
    if (other == NULL) {
        return 0;
    }
    if (other->channel != NULL) {
        return sl_reason_fail(reason, SL_ERR_AGAIN, "another process is connected as %s (%s)",
                              other->name, other->channel->conn->conn->peer);
    }
    server_session_expire(other, "another process has its task now");
    return 0;
}

int sl_server_session_attach(struct sl_server_channel *channel, struct sl_reason *reason)
{
    struct sl_server *server = channel->server;
    const struct sl_server_conn *conn = channel->conn;
    struct sl_server_session *session =
        server_session_find(&server->sessions, conn->greeting.hello.client_id);
    if (session == NULL) {
        int err = replace_worker(channel, reason);
        if (err != 0) {
            return err;
        }
        session = server_session_create(server, &conn->greeting.hello);
        if (session == NULL) {
            return sl_reason_fail(reason, SL_ERR_NO_MEMORY,
                                  "the server has no memory for another client");
        }
    } else if (session->role != conn->greeting.hello.role ||
               session->task_index != conn->greeting.hello.task_index) {
        return sl_reason_fail(reason, SL_ERR_INVALID, "%s has the client id of %s", conn->name,
                              session->name);
    } else {
        channel->resumed = session->confirmed || session->id_max != 0;
        if (session->channel != NULL) {
            struct sl_server_conn *old = session->channel->conn;
            channel_release(session);
            sl_server_conn_drop(old, SL_ERR_CLOSED, "it reconnected, from %s", conn->conn->peer);
        } else {
            away_remove(session);
        }
        server_session_report(session, "is back");
    }
    session->channel = channel;
    channel->session = session;
    sl_list_append(&server->channels, &channel->link);
    return 0;
}

/* The client has one lease to reconnect. */
static void wait_for(struct sl_server_session *session)
{
    struct sl_server *server = session->server;
    away_append(session);
    sl_timer_arm(sl_server_timers(server), &session->lease,
                 sl_server_now_ns(server) + server->lease_ns);
}

static void session_detach(struct sl_server_channel *channel)
{
    struct sl_server *server = channel->server;
    const struct sl_server_conn *conn = channel->conn;
    struct sl_server_session *session = channel->session;
    if (session == NULL) {
        return;
    }
    if (server->role.switchover == SL_SERVER_SWITCHED_OVER && !conn->said_goodbye) {
        channel_release(session);
        away_append(session); /* continues at the backup */
        return;
    }
    if (conn->said_goodbye || sl_server_drains(server)) {
        server_session_end(session, SL_SERVER_CLIENT_LEFT);
        return;
    }
    if (session->forgets) {
        server_session_expire(session,
                              "there was no memory to remember which of its writes failed");
        return;
    }
    channel_release(session);
    make_room_away(server);
    wait_for(session);
    char text[SL_MESSAGE_TEXT_BYTES];
    (void)snprintf(text, sizeof text, "is disconnected; it has %.3g s to reconnect",
                   lease_s(server));
    server_session_report(session, text);
}

void sl_server_session_detach(struct sl_server_conn *conn)
{
    for (uint32_t i = 0; i < conn->channel_count; i++) {
        if (conn->channels[i] != NULL) {
            session_detach(conn->channels[i]);
        }
    }
}

void sl_server_on_expired(struct sl_server *server, const struct sl_message_expired *expired)
{
    sl_reactor_assert_owner(server->options.reactor);
    if (expired->role != SL_MESSAGE_ROLE_WORKER || expired->task_index >= SL_LIMIT_WORKERS) {
        return;
    }
    if (server->shard != NULL && !server->role.serves) {
        server->options.hooks->expired(server, expired);
        return;
    }
    struct sl_server_session *session = server->sessions.workers[expired->task_index];
    if (session != NULL && session->client_id != expired->client_id) {
        return; /* already replaced by another client */
    }
    if (server->shard == NULL || !server->is_open) { /* loading would restore the worker */
        expire_early(&server->sessions, expired->task_index);
        return;
    }
    server->role.backup.needs_snapshot = true;
    if (session == NULL) {
        const struct sl_server_session unknown = {
            .server = server, .role = expired->role, .task_index = expired->task_index};
        sl_shard_worker_expired(server->shard, expired->task_index);
        if (server->role.logs) {
            server->options.hooks->client_event(&unknown, SL_SERVER_CLIENT_UNKNOWN);
        }
        return;
    }
    struct sl_server_conn *conn = session->channel == NULL ? NULL : session->channel->conn;
    server_session_expire(session, expired->why);
    if (conn != NULL) {
        sl_server_conn_drop(conn, SL_ERR_CLOSED, "the coordinator declared it expired: %s",
                            expired->why);
    }
}

void sl_server_sessions_number(struct sl_server *server)
{
    for (uint32_t worker = 0; worker < SL_LIMIT_WORKERS; worker++) {
        struct sl_server_session *session = server->sessions.workers[worker];
        if ((server->sessions.expired_early[worker / 8] & (1U << (worker % 8))) == 0) {
            continue;
        }
        if (session != NULL) {
            server_session_expire(session, "it expired while the shard was loaded");
        } else {
            sl_shard_worker_expired(server->shard, worker);
        }
    }
}

enum sl_server_write_outcome
sl_server_session_write_outcome(const struct sl_server_session *session, uint64_t id, int *err)
{
    for (uint32_t i = 0; i < session->failure_count; i++) {
        if (session->failures[i].id == id) {
            *err = session->failures[i].err;
            return SL_SERVER_WRITE_FAILED;
        }
    }
    if (session->orphan != NULL && session->orphan->id == id) {
        return SL_SERVER_WRITE_ORPHAN;
    }
    return id <= session->last_write_id ? SL_SERVER_WRITE_DONE : SL_SERVER_WRITE_UNKNOWN;
}

void sl_server_session_touch(struct sl_server_session *session)
{
    if (session->snapshot_number != session->server->sessions.snapshot.number) {
        sl_server_session_snapshot_before(session);
    }
}

void sl_server_session_arrived(struct sl_server_session *session, uint64_t id)
{
    sl_server_session_touch(session);
    session->id_max = id > session->id_max ? id : session->id_max;
}

void sl_server_session_wrote(struct sl_server_session *session, uint64_t id)
{
    sl_server_session_touch(session);
    if (id > session->last_write_id) {
        session->last_write_id = id;
    }
}

void sl_server_session_confirm(struct sl_server_session *session)
{
    if (!session->confirmed) {
        sl_server_session_touch(session);
        session->confirmed = true;
    }
}

void sl_server_session_failed(struct sl_server_session *session, uint64_t id, int err)
{
    struct sl_server_failure *failures = session->failures;
    sl_server_session_touch(session);
    if (failures == NULL) {
        failures = malloc(SL_SERVER_SESSION_FAILURES * sizeof *failures);
    }
    if (failures == NULL) {
        session->forgets = true;
        return;
    }
    session->failures = failures;
    uint32_t place = 0;
    while (place < session->failure_count && failures[place].id != id) {
        place++;
    }
    const bool is_known = place < session->failure_count;
    if (is_known || session->failure_count == SL_SERVER_SESSION_FAILURES) {
        place = is_known ? place : 0;
        session->failure_count--;
        memmove(&failures[place], &failures[place + 1],
                (session->failure_count - place) * sizeof *failures);
    }
    failures[session->failure_count++] = (struct sl_server_failure){.id = id, .err = err};
    session->begun_id = session->begun_id == id ? 0 : session->begun_id;
}

bool sl_server_has_worker(const struct sl_server *server)
{
    for (uint32_t task = 0; task < SL_LIMIT_WORKERS && server->role.serves; task++) {
        if (server->sessions.workers[task] != NULL) {
            return true;
        }
    }
    return false;
}

bool sl_server_job_continues(const struct sl_server *server)
{
    return sl_server_has_worker(server) ||
           (server->role.serves && sl_shard_is_unfinished(server->shard));
}

/* Of a backup */

struct sl_server_session *sl_server_session_follow(struct sl_server *server, uint64_t client_id,
                                                   enum sl_message_role role, uint32_t task_index,
                                                   struct sl_reason *reason)
{
    struct sl_server_sessions *sessions = &server->sessions;
    struct sl_server_session *session = server_session_find(sessions, client_id);
    if (session != NULL && session->role == role && session->task_index == task_index) {
        return session;
    }
    const bool is_taken = role == SL_MESSAGE_ROLE_WORKER && sessions->workers[task_index] != NULL;
    if (session != NULL || is_taken) {
        sl_reason_set(reason, "another client has the id or the place of client %016llx",
                      (unsigned long long)client_id);
        return NULL;
    }
    const struct sl_message_hello hello = {
        .client_id = client_id, .role = role, .task_index = task_index};
    if (sl_server_session_restore(server, &hello, &session) != 0) {
        sl_reason_set(reason, "no memory for another client");
        return NULL;
    }
    return session;
}

struct sl_server_session *sl_server_session_find(const struct sl_server *server, uint64_t client_id)
{
    return server_session_find(&server->sessions, client_id);
}

void sl_server_session_unfollow(struct sl_server *server, uint64_t client_id,
                                enum sl_message_role role, uint32_t task_index, bool is_expired)
{
    struct sl_server_session *session = server_session_find(&server->sessions, client_id);
    const enum sl_server_client_event event =
        is_expired ? SL_SERVER_CLIENT_EXPIRED : SL_SERVER_CLIENT_LEFT;
    if (session != NULL) {
        server_session_end(session, event);
        return;
    }
    /* The session did nothing that was logged, but the primary no longer waits for its worker. */
    const struct sl_server_session unknown = {
        .server = server, .role = role, .task_index = task_index};
    clock_ends(&unknown, event);
}

void sl_server_sessions_forget(struct sl_server *server)
{
    for (uint32_t i = 0; i < SL_SERVER_SESSION_BUCKETS; i++) {
        while (server->sessions.buckets[i] != NULL) {
            struct sl_server_session *session = server->sessions.buckets[i];
            struct sl_server_conn *conn = session->channel == NULL ? NULL : session->channel->conn;
            if (conn != NULL) {
                channel_release(session);
                sl_server_conn_drop(conn, SL_ERR_CLOSED, "the shard is served elsewhere");
            } else {
                away_remove(session);
            }
            sl_server_scheduler_abandon(session);
            unlink_and_free(session);
        }
    }
}
