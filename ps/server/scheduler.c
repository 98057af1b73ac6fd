#include "ps/server/scheduler.h"

#include "core/assert.h"
#include "ps/server/checkpoint.h"
#include "ps/server/request.h"
#include "ps/server/restore.h"
#include "ps/server/shm.h"
#include "ps/server/state.h"
#include "ps/server/turn.h"
#include "ps/shard/snapshot.h"

/* Cost per turn for entries of the primary: the rows of a snapshot are new here and take long. */
#define FEED_KEYS  (SL_LIMIT_TURN_COST / 8)

/* A turn that answered small requests of at most this cost leaves the slices to the next turn, so
 * that the replies leave first. A turn that answered more is long in any case. */
#define YIELD_KEYS 512

/* Returns true when no other request keeps the first of the connection's queue from running. */
static bool head_may_run(const struct sl_server_conn *conn)
{
    const struct sl_server_request *first = sl_server_request_first(&conn->queue);
    const bool has_room = conn->server->role.log_room == SL_SERVER_LOG_HAS_ROOM;
    return first != NULL &&
           (sl_server_request_started(first) || !sl_server_request_writes(&first->work) ||
            (conn->session->overtaken_writes == 0 && has_room));
}

static void ready_append(struct sl_server_conn *conn)
{
    struct sl_server_scheduler *scheduler = &conn->server->scheduler;
    if (!sl_list_linked(&conn->ready_link) && head_may_run(conn)) {
        sl_list_append(&scheduler->ready, &conn->ready_link);
        scheduler->runnable_count++;
    }
}

static void ready_remove(struct sl_server_conn *conn)
{
    if (sl_list_linked(&conn->ready_link)) {
        sl_list_remove(&conn->ready_link);
        conn->server->scheduler.runnable_count--;
    }
}

static size_t buffer_bytes(const struct sl_server_request *request)
{
    struct sl_server *server = request->server;
    const uint8_t *reply = request->reply;
    return sl_server_buffers_size(&server->memory.buffers, request->payload) +
           (reply == NULL ? 0 : sl_server_buffers_size(sl_server_shm_owner(server, reply), reply));
}

/* Returns true when later writes of the session wait for this request. */
static bool holds_writes(const struct sl_server_request *request)
{
    return request->overtaken && (request->stage == SL_SERVER_REQUEST_STREAMS ||
                                  sl_server_request_writes(&request->work));
}

/* The request no longer holds later writes back. */
static void clear_overtaken(struct sl_server_request *request)
{
    struct sl_server_session *session = request->session;
    if (holds_writes(request)) {
        session->overtaken_writes--;
    }
    if (session->orphan == request) {
        session->orphan = NULL;
    }
    request->overtaken = false;
}

static void set_overtaken(struct sl_server_request *request)
{
    if (!request->overtaken && sl_server_request_writes(&request->work)) {
        request->session->overtaken_writes++;
    }
    request->overtaken = true;
}

/* A partly done request should hold little memory while it waits: frees an unused reply buffer and
 * the executed part of the payload. */
static void shrink(struct sl_server_request *request)
{
    struct sl_server *server = request->server;
    if (request->work.reply_done == 0) {
        sl_server_admission_put_reply(request);
    }
    if (server->options.hooks != NULL && request->work.writes) {
        return; /* the log may need all of it */
    }
    size_t bytes = sl_shard_rest_bytes(server->shard, &request->work);
    size_t size = sl_server_buffers_size(&server->memory.buffers, request->payload);
    if (size == (size_t)1 << SL_SERVER_BUFFERS_LEAST_BITS || bytes > size / 2) {
        return; /* a block for the rest would not be smaller */
    }
    uint8_t *tail =
        sl_server_buffers_get(&server->memory.buffers, bytes, server->memory.buffers.bytes);
    if (tail != NULL) {
        sl_shard_move_rest(server->shard, &request->work, tail);
        sl_server_buffers_put(&server->memory.buffers, request->payload);
        request->payload = tail;
        sl_server_unblock(server);
    }
}

/* Disconnected clients must not fill the room for parked requests. */
static bool has_room_to_park(const struct sl_server_request *request)
{
    const struct sl_server *server = request->server;
    size_t bytes = buffer_bytes(request);
    if (request->conn == NULL &&
        server->scheduler.orphan_bytes + bytes > server->memory.buffers.bytes / 8) {
        return false;
    }
    return server->scheduler.parked_bytes + bytes <= server->memory.buffers.bytes / 2;
}

/* Answers a request that cannot park with an error; false: it can park. */
static bool refuse_to_park(struct sl_server_request *request)
{
    struct sl_server *server = request->server;
    bool late = !sl_timer_armed(&request->deadline); /* it passed during execution */
    if (!late && !sl_server_drains(server) && has_room_to_park(request)) {
        return false;
    }
    if (late) {
        sl_server_request_fail_late(request, true);
    } else if (sl_server_drains(server)) {
        sl_server_request_fail(request, SL_ERR_CANCELLED, "the ps is shutting down");
    } else {
        sl_server_request_fail(request, SL_ERR_NO_MEMORY,
                               "the ps has no room for more parked requests");
    }
    return true;
}

/* Parks a request, which is in no list, until clocks move. */
static void park(struct sl_server_request *request)
{
    struct sl_server *server = request->server;
    if (request->session == NULL) {
        sl_server_request_end(request); /* at a section boundary: nothing is partly applied */
        return;
    }
    shrink(request);
    if (refuse_to_park(request)) {
        return;
    }
    set_overtaken(request);
    server->scheduler.parked_bytes += buffer_bytes(request);
    server->scheduler.orphan_bytes += request->conn == NULL ? buffer_bytes(request) : 0;
    sl_server_request_append(&server->scheduler.parked, request);
}

void sl_server_scheduler_add(struct sl_server_request *request, bool park_it)
{
    if (park_it) {
        park(request);
        return;
    }
    request->server->scheduler.crowded_count += request->is_runnable;
    sl_server_request_append(&request->conn->queue, request);
    ready_append(request->conn);
    sl_server_unblock(request->server); /* this request may need less memory */
}

/* Removes the request from its list and updates the totals. */
static void unlist(struct sl_server_request *request)
{
    struct sl_server *server = request->server;
    if (request->list == &server->scheduler.parked) {
        server->scheduler.parked_bytes -= buffer_bytes(request);
        server->scheduler.orphan_bytes -= request->conn == NULL ? buffer_bytes(request) : 0;
    } else if (request->list == &server->scheduler.resumed) {
        server->scheduler.runnable_count--;
    }
    server->scheduler.crowded_count -= request->is_runnable;
    request->is_runnable = false;
    sl_server_request_unlist(request);
}

void sl_server_scheduler_remove(struct sl_server_request *request)
{
    if (request->list != NULL) {
        unlist(request);
    }
    if (request->session == NULL) {
        return;
    }
    clear_overtaken(request);
    struct sl_server_conn *conn = request->session->conn;
    if (conn == NULL) {
        return;
    }
    if (sl_server_conn_is_free(conn)) {
        ready_remove(conn);
    }
    ready_append(conn);
}

static void to_resumed(struct sl_server_request *request)
{
    struct sl_server *server = request->server;
    sl_server_request_append(&server->scheduler.resumed, request);
    server->scheduler.runnable_count++;
}

static void resume(struct sl_server_request *request)
{
    struct sl_server *server = request->server;
    unlist(request);
    to_resumed(request);
    sl_server_unblock(server);
}

/* Clocks have moved: resumes requests that need not wait any longer. */
static void resume_parked(struct sl_server *server)
{
    SL_LIST_FOREACH (link, &server->scheduler.parked) {
        struct sl_server_request *request = sl_server_request_of(link);
        if (!sl_shard_waits(server->shard, &request->work)) {
            resume(request);
        }
    }
}

void sl_server_scheduler_cancel_parked(struct sl_server *server, int err, const char *text)
{
    struct sl_server_request *request;
    while ((request = sl_server_request_first(&server->scheduler.parked)) != NULL) {
        sl_server_request_fail(request, err, text);
    }
}

void sl_server_scheduler_discard(struct sl_server_request *request)
{
    sl_server_scheduler_remove(request);
    sl_server_request_free(request);
}

static void leave_conn(struct sl_server_request *request)
{
    request->conn->sink.long_requests -= request->is_long;
    request->conn = NULL;
}

/* The request loses its connection. A write in progress is completed, and its client may retry it.
 * Everything else can restart. */
static void orphan(struct sl_server_request *request)
{
    struct sl_server *server = request->server;
    if (request->session == NULL) {
        unlist(request); /* the backup has it; nobody needs the answer */
        sl_server_scheduler_leave(request);
        sl_server_request_free(request);
        return;
    }
    struct sl_server_session *session = request->session;
    bool begun =
        request->stage == SL_SERVER_REQUEST_STARTED && sl_server_request_writes(&request->work);
    bool is_parked = request->list == &server->scheduler.parked;
    bool is_queued = request->list == &request->conn->queue;
    if (!begun || is_parked || is_queued) {
        unlist(request);
    }
    sl_server_shm_take_off(request, begun);
    leave_conn(request);
    if (!begun) {
        clear_overtaken(request);
        sl_server_request_free(request);
        return;
    }
    sl_assert(session->orphan == NULL); /* the next write starts after this one */
    set_overtaken(request);
    session->orphan = request;
    if (is_parked) {
        park(request);
    } else if (is_queued) {
        to_resumed(request);
    }
}

static void orphan_of(struct sl_list *list, const struct sl_server_conn *conn)
{
    SL_LIST_FOREACH (link, list) {
        struct sl_server_request *request = sl_server_request_of(link);
        if (request->conn == conn) {
            orphan(request);
        }
    }
}

void sl_server_scheduler_drop(struct sl_server_conn *conn)
{
    struct sl_server *server = conn->server;
    sl_assert(conn->session->conn == NULL);
    ready_remove(conn);
    orphan_of(&server->scheduler.resumed, conn);
    orphan_of(&server->scheduler.parked, conn);
    struct sl_server_request *request;
    while ((request = sl_server_request_first(&conn->queue)) != NULL) {
        orphan(request);
    }
}

void sl_server_scheduler_adopt(struct sl_server_request *request, struct sl_server_conn *conn)
{
    struct sl_server *server = request->server;
    if (request->list == &server->scheduler.parked) {
        server->scheduler.orphan_bytes -= buffer_bytes(request);
    }
    request->session->orphan = NULL;
    request->conn = conn;
    conn->sink.long_requests += request->is_long;
}

void sl_server_scheduler_abandon(struct sl_server_session *session)
{
    struct sl_server_request *request = session->orphan;
    if (request == NULL) {
        return;
    }
    const uint32_t done = sl_shard_written(&request->work);
    request->effect_first = session->sent_id == request->id ? session->sent_sections : 0;
    bool ends = sl_shard_stop_writes(&request->work);
    session->orphan = NULL;
    request->session = NULL;
    request->effect_end = ends ? done : done + 1; /* the push in progress will be completed */
    if (ends) {
        unlist(request);
        sl_server_request_end(request);
    }
}

void sl_server_scheduler_leave(struct sl_server_request *request)
{
    request->reply_buffer = NULL;
    leave_conn(request);
    request->is_long = false;
}

void sl_server_scheduler_answer(struct sl_server_request *request)
{
    sl_assert(request->stage == SL_SERVER_REQUEST_DONE);
    to_resumed(request);
    sl_server_unblock(request->server);
}

void sl_server_scheduler_wake(struct sl_server *server)
{
    SL_LIST_FOREACH (link, &server->conns) {
        struct sl_server_conn *conn = sl_server_conn_of(link);
        if (conn->session != NULL) {
            ready_append(conn);
        }
    }
    sl_server_unblock(server);
}

/* Returns the next request to run; NULL: none. Alternates between resumed requests and connections.
 * Takes a connection out of the ring until run_next puts it back. */
static struct sl_server_request *take_next(struct sl_server *server)
{
    struct sl_server_scheduler *scheduler = &server->scheduler;
    struct sl_server_request *resumed = sl_server_request_first(&scheduler->resumed);
    const bool takes_resumed =
        resumed != NULL && (scheduler->resume_next || sl_list_empty(&scheduler->ready));
    scheduler->resume_next = !takes_resumed;
    if (takes_resumed) {
        sl_list_append(&scheduler->resumed, &resumed->link);
        return resumed;
    }
    while (!sl_list_empty(&scheduler->ready)) {
        struct sl_server_conn *conn =
            SL_CONTAINER_OF(sl_list_first(&scheduler->ready), struct sl_server_conn, ready_link);
        ready_remove(conn);
        if (head_may_run(conn)) {
            return sl_server_request_first(&conn->queue);
        }
    }
    return NULL;
}

/* Runs one slice of a request. Returns its cost; 0: no progress. *sliced_keys: budget left for
 * sliced requests. */
static uint32_t run_next(struct sl_server_request *request, uint32_t keys, uint32_t *sliced_keys)
{
    struct sl_server_conn *conn = request->conn;
    uint32_t spent;
    uint32_t speed = sl_server_request_speed(request);
    enum sl_server_outcome outcome = sl_server_request_run(request, keys, &spent);
    if (outcome == SL_SERVER_CONTINUES) {
        uint32_t sliced = (spent + speed - 1) / speed;
        *sliced_keys -= sliced < *sliced_keys ? sliced : *sliced_keys;
    }
    if (outcome == SL_SERVER_WAITS) {
        unlist(request);
        park(request);
    }
    if (conn != NULL) {
        ready_append(conn);
    }
    return outcome == SL_SERVER_CONTINUES ? spent : spent + 1;
}

static struct sl_server *server_of(struct sl_reactor_source *source)
{
    return SL_CONTAINER_OF(source, struct sl_server, scheduler.source);
}

/* Applies complete iterations of buffered pushes before all requests. */
static uint32_t commit(struct sl_server *server, uint32_t keys)
{
    uint32_t slice = keys < SL_SERVER_SLICED_KEYS ? keys : SL_SERVER_SLICED_KEYS;
    uint32_t spent =
        sl_shard_iteration_due(server->shard) ? sl_shard_apply_iteration(server->shard, slice) : 0;
    server->write_count += spent > 0;
    if (!sl_shard_iteration_due(server->shard) && sl_shard_take_wakeup(server->shard)) {
        resume_parked(server);
    }
    return spent;
}

/* Guarantees waiting requests a share, so that requests run at once do not starve them. */
static uint32_t queue_keys(const struct sl_server *server)
{
    uint32_t least = server->scheduler.crowded_count > 0 ? SL_SERVER_BACKLOG_COST
                                                         : (uint32_t)SL_LIMIT_TURN_COST / 4;
    return server->scheduler.budget_left < least ? least : server->scheduler.budget_left;
}

/* Returns true when slices are left to the next turn, which follows at once and runs them. */
static bool yields(struct sl_server *server)
{
    uint32_t spent = SL_LIMIT_TURN_COST - server->scheduler.budget_left;
    bool is_light = spent > 0 && spent <= YIELD_KEYS;
    bool is_wanted = server->scheduler.crowded_count > 0 || sl_shard_iteration_due(server->shard);
    bool would_run = server->scheduler.runnable_count > 0 && !server->scheduler.blocked;
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
    const uint32_t spent = sl_server_checkpoint_run(server, server->scheduler.budget_left);
    sl_server_spend(server, spent);
    return has_spare + spent + (hooks == NULL ? 0 : hooks->run(server, FEED_KEYS));
}

/* Runs requests in turn, until the budget is spent or none can run. Returns how many had an
 * effect. */
static uint32_t run_requests(struct sl_server *server)
{
    struct sl_server_scheduler *scheduler = &server->scheduler;
    uint32_t keys = queue_keys(server), sliced_keys = SL_SERVER_SLICED_KEYS;
    uint32_t work = 0, stuck = 0, unchecked = 0;
    while (keys > 0 && sliced_keys > 0) {
        uint32_t spent = commit(server, keys);
        work += spent > 0;
        keys -= spent < keys ? spent : keys;
        if (sl_shard_iteration_due(server->shard) || scheduler->blocked || keys == 0) {
            break;
        }
        struct sl_server_request *request = take_next(server);
        if (request == NULL) {
            break;
        }
        spent = run_next(request, keys, &sliced_keys);
        stuck = spent == 0 ? stuck + 1 : 0;
        scheduler->blocked = stuck > scheduler->runnable_count;
        work += spent > 0;
        keys -= spent < keys ? spent : keys;
        unchecked += spent;
        if (unchecked >= SL_SERVER_TURN_LONG_KEYS && sl_server_turn_is_long(server)) {
            break;
        }
    }
    scheduler->budget_left = keys;
    return work;
}

/* The budget counts events; this source counts cost. */
static uint32_t poll_queue(struct sl_reactor_source *source, uint32_t budget)
{
    struct sl_server *server = server_of(source);
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
    if (server->role.has_entries) {
        return server->options.hooks->run(server, FEED_KEYS);
    }
    const uint32_t snapshots = run_snapshots(server);
    if (sl_server_turn_is_enough(server) || yields(server)) {
        return snapshots;
    }
    const uint32_t work = (snapshots > 0) + run_requests(server);
    if (work > 0) {
        sl_server_drain_update(server);
    }
    return work;
}

static void flush_queue(struct sl_reactor_source *source)
{
    server_of(source)->scheduler.budget_left = SL_LIMIT_TURN_COST;
}

static bool arm_queue(struct sl_reactor_source *source)
{
    const struct sl_server *server = server_of(source);
    const struct sl_server_hooks *hooks = server->options.hooks;
    if (server->shard == NULL || server->role.switchover == SL_SERVER_SWITCHED_OVER) {
        return true;
    }
    if (!server->is_open) {
        return sl_server_restore_is_idle(server);
    }
    return sl_server_checkpoint_is_idle(server) && (hooks == NULL || hooks->is_idle(server)) &&
           !sl_shard_snapshot_has_spare(server->shard) && !sl_shard_iteration_due(server->shard) &&
           (server->scheduler.blocked || server->scheduler.runnable_count == 0);
}

void sl_server_scheduler_init(struct sl_server *server)
{
    struct sl_server_scheduler *scheduler = &server->scheduler;
    sl_list_init(&scheduler->ready);
    sl_list_init(&scheduler->parked);
    sl_list_init(&scheduler->resumed);
    scheduler->budget_left = SL_LIMIT_TURN_COST;
    scheduler->source = (struct sl_reactor_source){
        .name = "server",
        .poll = poll_queue,
        .flush = flush_queue,
        .arm = arm_queue,
    };
    sl_reactor_add_source(server->options.reactor, &scheduler->source);
}

void sl_server_scheduler_fini(struct sl_server *server)
{
    sl_reactor_remove_source(server->options.reactor, &server->scheduler.source);
    /* Requests that outlived their connection. */
    struct sl_server_request *request;
    while ((request = sl_server_request_first(&server->scheduler.resumed)) != NULL) {
        unlist(request);
        sl_server_request_free(request);
    }
    sl_assert(sl_list_empty(&server->scheduler.parked));
}
