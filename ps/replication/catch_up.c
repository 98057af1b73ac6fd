#include "ps/replication/catch_up.h"

#include "core/list.h"
#include "core/log.h"
#include "ps/replication/state.h"
#include "ps/server/request.h"
#include "ps/server/session_snapshot.h"

/* Blocks in flight. */
#define BLOCKS_MAX    8

/* Turn cost. Longer pieces delay pulls. */
#define SNAPSHOT_KEYS 256

/* Pause before a retry: while another snapshot of the shard is in progress, and after a failed
 * one. */
#define PAUSE_NS      (SL_CLOCK_NS_PER_S / 20)
#define FAIL_WAIT_NS  (5 * SL_CLOCK_NS_PER_S)

/* After a snapshot that was too slow, FAIL_WAIT_NS doubles each time. */
#define LATE_WAIT_NS  (320 * SL_CLOCK_NS_PER_S)

/* Interval of the checks for waiting requests. */
#define CHECK_NS      (SL_CLOCK_NS_PER_S / 10)

static void check_late(struct sl_server *server, uint64_t now_ns);

static void again(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_replication *replica = SL_CONTAINER_OF(timer, struct sl_replication, catch_up.timer);
    if (replica->link == SL_REPLICATION_WANTED) {
        replica->catch_up.request = SL_REPLICATION_REQUEST_READY;
    } else if (replica->link == SL_REPLICATION_SNAPSHOT ||
               (replica->link == SL_REPLICATION_FOLLOWS && replica->catch_up.block_count > 0)) {
        check_late(replica->server, now_ns);
    } else if (replica->link == SL_REPLICATION_NONE && replica->sender.session != NULL) {
        sl_session_reconnect(replica->sender.session, "the snapshot restarts");
    }
}

static void wait(struct sl_server *server, uint64_t wait_ns)
{
    struct sl_replication *replica = server->replica;
    replica->catch_up.timer.run = again;
    sl_timer_arm(sl_server_timers(server), &replica->catch_up.timer,
                 sl_server_now_ns(server) + wait_ns);
}

void sl_replication_catch_up_want(struct sl_server *server)
{
    struct sl_replication *replica = server->replica;
    sl_replication_set_link(replica, SL_REPLICATION_WANTED);
    replica->catch_up.request = SL_REPLICATION_REQUEST_READY;
    if (replica->config.needs_backup) {
        sl_log_info("shard %u: its backup on ps/%u receives a snapshot; until it is in sync, "
                    "writes are acknowledged while degraded",
                    server->options.shard.index, replica->config.backup_task);
    } else {
        sl_log_info("shard %u: ps/%u receives a snapshot", server->options.shard.index,
                    replica->config.backup_task);
    }
}

/* Ends a requested or running snapshot. */
static void end(struct sl_server *server)
{
    struct sl_replication *replica = server->replica;
    sl_timer_disarm(sl_server_timers(server), &replica->catch_up.timer);
    const bool is_ours = replica->link == SL_REPLICATION_SNAPSHOT ||
                         (replica->link == SL_REPLICATION_WANTED &&
                          sl_shard_snapshot_state(server->shard) == SL_SHARD_SNAPSHOT_PENDING &&
                          replica->catch_up.request == SL_REPLICATION_REQUEST_PENDING);
    if (is_ours) {
        sl_server_snapshot_end(server, NULL);
    }
    replica->catch_up.request = SL_REPLICATION_REQUEST_READY;
}

void sl_replication_catch_up_abort(struct sl_server *server)
{
    if (server->shard != NULL) {
        end(server);
    }
    sl_replication_log_abort(server);
}

/* Aborts the snapshot and starts over later. */
static void fail_for(struct sl_server *server, const char *why, uint64_t wait_ns)
{
    sl_log_warn("shard %u: the snapshot for its backup: %s; retrying in %llu s",
                server->options.shard.index, why, (unsigned long long)wait_ns / SL_CLOCK_NS_PER_S);
    sl_replication_catch_up_abort(server);
    wait(server, wait_ns);
}

static void catch_up_fail(struct sl_server *server, const char *why)
{
    fail_for(server, why, FAIL_WAIT_NS);
}

/* Returns true when a request has waited for room in the log for half of its time. */
static bool is_late(const struct sl_server *server, uint64_t now_ns)
{
    if (server->role.log_room == SL_SERVER_LOG_HAS_ROOM) {
        return false;
    }
    SL_LIST_FOREACH (channel_link, &server->channels) {
        SL_LIST_FOREACH (link, &sl_server_channel_of(channel_link)->queue) {
            const struct sl_server_request *request = sl_server_request_of(link);
            if (request->half_ns <= now_ns && sl_server_request_waits_for_log(request)) {
                return true;
            }
        }
    }
    return false;
}

/* The log behind the snapshot is limited; then requests that write wait. Before they fail, the
 * snapshot is aborted, and they continue without a backup as before. */
static void check_late(struct sl_server *server, uint64_t now_ns)
{
    struct sl_backoff *late = &server->replica->catch_up.late;
    if (!is_late(server, now_ns)) {
        wait(server, CHECK_NS);
        return;
    }
    late->least_ns = FAIL_WAIT_NS;
    late->most_ns = LATE_WAIT_NS;
    fail_for(server,
             "requests that write have waited for half of their time until it is sent, and go on "
             "without it",
             sl_backoff_next(late, 0));
}

/* Starts the snapshot of the shard and the sessions, and the log. */
static void begin(struct sl_server *server)
{
    struct sl_replication *replica = server->replica;
    int err = sl_server_snapshot_begin(server, NULL, true);
    replica->catch_up.request = SL_REPLICATION_REQUEST_READY;
    if (err == SL_ERR_AGAIN) {
        replica->catch_up.request = SL_REPLICATION_REQUEST_PENDING;
        return;
    }
    if (err == SL_ERR_EXISTS) {
        replica->catch_up.request = SL_REPLICATION_REQUEST_PAUSED;
        wait(server, PAUSE_NS);
        return;
    }
    if (err == 0) {
        sl_replication_set_link(replica, SL_REPLICATION_SNAPSHOT);
        wait(server, CHECK_NS);
    } else {
        catch_up_fail(server, sl_err_name(err));
    }
}

static void send_blocks(struct sl_server *server)
{
    struct sl_replication *replica = server->replica;
    while (replica->link == SL_REPLICATION_SNAPSHOT && replica->catch_up.block_count < BLOCKS_MAX) {
        struct sl_snapshot_block *block = sl_shard_snapshot_take(server->shard);
        if (block == NULL) {
            return;
        }
        const bool is_last = block->kind == SL_SNAPSHOT_END;
        if (!sl_replication_log_block(server, block)) {
            catch_up_fail(server, "no memory");
        } else if (is_last) {
            sl_server_snapshot_end(server, NULL);
            sl_replication_log_follow_snapshot(server);
        }
    }
}

uint32_t sl_replication_catch_up_run(struct sl_server *server)
{
    struct sl_replication *replica = server->replica;
    uint32_t spent = 0;
    if (replica->link == SL_REPLICATION_WANTED &&
        replica->catch_up.request != SL_REPLICATION_REQUEST_PAUSED) {
        begin(server);
    }
    if (replica->link == SL_REPLICATION_SNAPSHOT) {
        const uint32_t keys = replica->options.catch_up_budget;
        spent = sl_shard_snapshot_run(server->shard, keys > 0 ? keys : SNAPSHOT_KEYS);
        sl_server_spend(server, spent);
        if (sl_shard_snapshot_state(server->shard) == SL_SHARD_SNAPSHOT_FAILED) {
            catch_up_fail(server, sl_shard_snapshot_why(server->shard));
        }
        send_blocks(server);
    }
    return spent;
}

bool sl_replication_catch_up_is_busy(const struct sl_server *server)
{
    const struct sl_replication *replica = server->replica;
    return (replica->link == SL_REPLICATION_WANTED &&
            replica->catch_up.request != SL_REPLICATION_REQUEST_PAUSED) ||
           (replica->link == SL_REPLICATION_SNAPSHOT && replica->catch_up.block_count < BLOCKS_MAX);
}
