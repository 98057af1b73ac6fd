#include "ps/server/turn.h"

#include "core/clock.h"
#include "ps/server/checkpoint.h"
#include "ps/server/drain.h"
#include "ps/server/request.h"
#include "ps/server/restore.h"
#include "ps/shard/evict.h"
#include "ps/shard/snapshot.h"

/* Cost per turn for entries of the primary: the rows of a snapshot are new here and take long. */
#define FEED_KEYS          (SL_LIMIT_TURN_COST / 8)

/* Cost of an eviction's step, and of those before the requests of a turn. A row that goes takes
 * several times as long as one that is pulled. */
#define EVICTION_KEYS      192
#define EVICTION_TURN_KEYS (2 * EVICTION_KEYS)

/* A turn that answered small requests of at most this cost leaves the slices to the next turn, so
 * that the replies leave first. A turn that answered more is long in any case. */
#define YIELD_KEYS         512

/* Runs one slice of a request. Returns its cost; 0: no progress. *sliced_keys: budget left for
 * sliced requests. */
static uint32_t run_next(struct sl_server_request *request, uint32_t keys, uint32_t *sliced_keys)
{
    struct sl_server_channel *channel = request->channel;
    uint32_t spent;
    uint32_t speed = sl_server_request_speed(request);
    enum sl_server_outcome outcome = sl_server_request_run(request, keys, &spent);
    if (outcome == SL_SERVER_CONTINUES) {
        uint32_t sliced = (spent + speed - 1) / speed;
        *sliced_keys -= sliced < *sliced_keys ? sliced : *sliced_keys;
    }
    sl_server_scheduler_ran(request, channel, outcome == SL_SERVER_WAITS);
    return outcome == SL_SERVER_CONTINUES ? spent : spent + 1;
}

static struct sl_server *turn_server_of(struct sl_reactor_source *source)
{
    return SL_CONTAINER_OF(source, struct sl_server, scheduler.source);
}

/* Applies complete iterations of buffered pushes before all requests. */
static uint32_t commit(struct sl_server *server, uint32_t keys)
{
    uint32_t slice = keys < SL_SERVER_SLICED_KEYS ? keys : SL_SERVER_SLICED_KEYS;
    uint32_t spent =
        sl_shard_iteration_due(server->shard) ? sl_shard_apply_iteration(server->shard, slice) : 0;
    server->writes.count += spent > 0;
    if (!sl_shard_iteration_due(server->shard) && sl_shard_take_wakeup(server->shard)) {
        sl_server_scheduler_resume_parked(server);
    }
    return spent;
}

/* Guarantees waiting requests a share, so that requests run at once do not starve them. */
static uint32_t queue_keys(const struct sl_server *server)
{
    uint32_t least = server->scheduler.crowded_count > 0 ? SL_SERVER_BACKLOG_COST
                                                         : (uint32_t)SL_LIMIT_TURN_COST / 4;
    return server->host->budget_left < least ? least : server->host->budget_left;
}

/* Returns true when slices are left to the next turn, which follows at once and runs them. */
static bool yields(struct sl_server *server)
{
    uint32_t spent = SL_LIMIT_TURN_COST - server->host->budget_left;
    bool is_light = spent > 0 && spent <= YIELD_KEYS;
    bool is_wanted = server->scheduler.crowded_count > 0 || sl_shard_iteration_due(server->shard);
    bool would_run = server->scheduler.runnable_count > 0 && !sl_server_is_blocked(server);
    server->scheduler.yielded = is_light && would_run && !is_wanted && !server->scheduler.yielded;
    return server->scheduler.yielded;
}

/* Frees what a snapshot has left, bit by bit, and continues the snapshots in progress. Returns the
 * cost. */
static uint32_t run_snapshots(struct sl_server *server)
{
    const struct sl_server_hooks *hooks = server->options.hooks;
    const bool has_spare = sl_shard_snapshot_has_spare(server->shard);
    if (has_spare) {
        sl_shard_snapshot_clean(server->shard);
    }
    const uint32_t spent = sl_server_checkpoint_run(server, server->host->budget_left);
    sl_server_spend(server, spent);
    return has_spare + spent + (hooks == NULL ? 0 : hooks->run(server, FEED_KEYS));
}

/* Only a primary with room in its log evicts; a backup follows the log. After the fence only pushes
 * that have begun need room. */
static bool evicts(const struct sl_server *server)
{
    return server->role.serves && server->role.log_room == SL_SERVER_LOG_HAS_ROOM &&
           (!server->writes.are_fenced || !sl_server_is_idle(server)) &&
           sl_shard_eviction_due(server->shard);
}

/* Evicts rows that are due. Returns the cost. */
static uint32_t evict(struct sl_server *server)
{
    struct sl_shard_evicted rows;
    const uint32_t spent = sl_shard_evict(server->shard, EVICTION_KEYS, &rows);
    if (rows.count > 0) {
        server->writes.count++;
        sl_server_unblock(server); /* pushes wait for room */
    }
    if (rows.count > 0 && server->role.logs) {
        server->options.hooks->evicted(server, &rows);
    }
    return spent;
}

/* At least one step a turn, however long it has been: pushes may wait for it. Returns the cost. */
static uint32_t run_evictions(struct sl_server *server)
{
    uint32_t sum = 0;
    uint32_t spent = 1;
    sl_shard_eviction_clock(server->shard, sl_server_now_ns(server) / SL_CLOCK_NS_PER_S);
    while (spent > 0 && sum < EVICTION_TURN_KEYS && evicts(server) &&
           (sum == 0 || !sl_server_turn_is_long(server))) {
        spent = evict(server);
        sum += spent;
    }
    if (sum > 0) {
        sl_server_unblock(server); /* also where no row may go */
        sl_server_spend(server, sum);
    }
    return sum;
}

/* Runs requests in turn, until the budget is spent or none can run. Returns how many had an
 * effect. */
static uint32_t run_requests(struct sl_server *server)
{
    struct sl_server_scheduler *scheduler = &server->scheduler;
    const uint32_t given = queue_keys(server);
    uint32_t keys = given, sliced_keys = SL_SERVER_SLICED_KEYS;
    uint32_t work = 0, stuck = 0, unchecked = 0;
    while (keys > 0 && sliced_keys > 0) {
        uint32_t spent = commit(server, keys);
        work += spent > 0;
        keys -= spent < keys ? spent : keys;
        if (sl_shard_iteration_due(server->shard) || sl_server_is_blocked(server) || keys == 0) {
            break;
        }
        struct sl_server_request *request = sl_server_scheduler_next(server);
        if (request == NULL) {
            break;
        }
        spent = run_next(request, keys, &sliced_keys);
        spent += evicts(server) ? evict(server) : 0; /* between two long pushes */
        stuck = spent == 0 ? stuck + 1 : 0;
        scheduler->blocked_at = stuck > scheduler->runnable_count ? server->host->freed_count : 0;
        work += spent > 0;
        keys -= spent < keys ? spent : keys;
        unchecked += spent;
        if (unchecked >= SL_SERVER_TURN_LONG_KEYS && sl_server_turn_is_long(server)) {
            break;
        }
    }
    sl_server_spend(server, given - keys);
    return work;
}

/* The budget counts events; this source counts cost. */
static uint32_t poll_queue(struct sl_reactor_source *source, uint32_t budget)
{
    struct sl_server *server = turn_server_of(source);
    if (server->shard == NULL) {
        return 0;
    }
    if (!server->is_open) {
        return sl_server_restore_run(server);
    }
    sl_server_pull_batch_answer(server);
    if (server->role.switchover == SL_SERVER_SWITCHED_OVER) {
        return 0;
    }
    sl_server_table_drop_run(server);
    if (server->role.has_entries) {
        return server->options.hooks->run(server, FEED_KEYS);
    }
    const uint32_t beside = run_snapshots(server) + run_evictions(server);
    if (sl_server_turn_is_enough(server) || yields(server)) {
        return beside;
    }
    const uint32_t work = (beside > 0) + run_requests(server);
    if (work > 0) {
        sl_server_drain_update(server->host);
    }
    return work;
}

static void flush_queue(struct sl_reactor_source *source)
{
    struct sl_server *server = turn_server_of(source);
    server->host->budget_left = SL_LIMIT_TURN_COST;
    sl_server_slow_requests_end_turn(server, sl_server_metrics_end_turn(server));
}

static bool arm_queue(struct sl_reactor_source *source)
{
    struct sl_server *server = turn_server_of(source);
    const struct sl_server_hooks *hooks = server->options.hooks;
    sl_server_metrics_set_gauges(server);
    if (server->shard == NULL || server->role.switchover == SL_SERVER_SWITCHED_OVER) {
        return true;
    }
    if (!server->is_open) {
        return sl_server_restore_is_idle(server);
    }
    return sl_server_checkpoint_is_idle(server) && sl_server_table_drop_is_idle(server) &&
           (hooks == NULL || hooks->is_idle(server)) &&
           !sl_shard_snapshot_has_spare(server->shard) && !sl_shard_iteration_due(server->shard) &&
           !evicts(server) &&
           (sl_server_is_blocked(server) || server->scheduler.runnable_count == 0);
}

void sl_server_turn_init(struct sl_server *server)
{
    server->scheduler.source = (struct sl_reactor_source){
        .name = "server",
        .poll = poll_queue,
        .flush = flush_queue,
        .arm = arm_queue,
    };
    sl_reactor_add_source(server->options.reactor, &server->scheduler.source);
}

void sl_server_turn_fini(struct sl_server *server)
{
    sl_reactor_remove_source(server->options.reactor, &server->scheduler.source);
}
