#include "ps/server/scheduler.h"

#include "core/assert.h"
#include "ps/server/request.h"
#include "ps/server/shm.h"
#include "ps/server/state.h"

/* Returns true when no other request keeps the first of the channel's queue from running. */
static bool head_may_run(const struct sl_server_channel *channel)
{
    const struct sl_server_request *first = sl_server_request_first(&channel->queue);
    const bool has_room = channel->server->role.log_room == SL_SERVER_LOG_HAS_ROOM;
    return first != NULL &&
           (sl_server_request_started(first) || !sl_server_request_writes(&first->work) ||
            (channel->session->overtaken_writes == 0 && has_room));
}

static void ready_append(struct sl_server_channel *channel)
{
    struct sl_server_scheduler *scheduler = &channel->server->scheduler;
    if (!sl_list_linked(&channel->ready_link) && head_may_run(channel)) {
        sl_list_append(&scheduler->ready, &channel->ready_link);
        scheduler->runnable_count++;
    }
}

static void ready_remove(struct sl_server_channel *channel)
{
    if (sl_list_linked(&channel->ready_link)) {
        sl_list_remove(&channel->ready_link);
        channel->server->scheduler.runnable_count--;
    }
}

static size_t buffer_bytes(const struct sl_server_request *request)
{
    struct sl_server *server = request->server;
    const uint8_t *payload = request->payload, *reply = request->reply;
    return (payload == NULL ? 0 : sl_server_buffers_size(&server->host->memory.buffers, payload)) +
           (reply == NULL
                ? 0
                : sl_server_buffers_size(sl_server_shm_owner(server->host, reply), reply));
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
    if (sl_server_request_is_kept(request)) {
        sl_server_request_put_payload(request);
        return;
    }
    if (server->options.hooks != NULL && sl_flags_has(request->work.flags, SL_SHARD_WRITES)) {
        return; /* the log may need all of it */
    }
    size_t bytes = sl_shard_rest_bytes(server->shard, &request->work);
    size_t size = sl_server_buffers_size(&server->host->memory.buffers, request->payload);
    if (size == (size_t)1 << SL_SERVER_BUFFERS_LEAST_BITS || bytes > size / 2) {
        return; /* a block for the rest would not be smaller */
    }
    uint8_t *tail = sl_server_buffers_get(&server->host->memory.buffers, bytes,
                                          server->host->memory.buffers.bytes);
    if (tail != NULL) {
        sl_shard_move_rest(server->shard, &request->work, tail);
        sl_server_buffers_put(&server->host->memory.buffers, request->payload);
        request->payload = tail;
        sl_server_unblock(server);
    }
}

/* Disconnected clients must not fill the room for parked requests. */
static bool has_room_to_park(const struct sl_server_request *request)
{
    const struct sl_server *server = request->server;
    size_t bytes = buffer_bytes(request);
    if (request->channel == NULL &&
        server->scheduler.orphan_bytes + bytes > server->host->memory.buffers.bytes / 8) {
        return false;
    }
    return server->scheduler.parked_bytes + bytes <= server->host->memory.buffers.bytes / 2;
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
        sl_server_request_fail(request, SL_ERR_CANCELLED, "the server is shutting down");
    } else {
        sl_server_request_fail(request, SL_ERR_NO_MEMORY,
                               "the server has no room for more parked requests");
    }
    return true;
}

/* Parks a request, which is in no list, until clocks move. */
static void scheduler_park(struct sl_server_request *request)
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
    sl_server_request_enter(request, SL_REQUEST_PHASE_CLOCK);
    server->scheduler.parked_count++;
    server->scheduler.parked_bytes += buffer_bytes(request);
    server->scheduler.orphan_bytes += request->channel == NULL ? buffer_bytes(request) : 0;
    sl_server_request_append(&server->scheduler.parked, request);
}

void sl_server_scheduler_add(struct sl_server_request *request, bool park_it)
{
    if (park_it) {
        scheduler_park(request);
        return;
    }
    request->server->scheduler.crowded_count += request->is_runnable;
    sl_server_request_append(&request->channel->queue, request);
    ready_append(request->channel);
    sl_server_unblock(request->server); /* this request may need less memory */
}

/* Removes the request from its list and updates the totals. */
static void unlist(struct sl_server_request *request)
{
    struct sl_server *server = request->server;
    if (request->list == &server->scheduler.parked) {
        server->scheduler.parked_count--;
        server->scheduler.parked_bytes -= buffer_bytes(request);
        server->scheduler.orphan_bytes -= request->channel == NULL ? buffer_bytes(request) : 0;
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
    struct sl_server_channel *channel = request->session->channel;
    if (channel == NULL) {
        return;
    }
    if (sl_server_channel_is_free(channel)) {
        ready_remove(channel);
    }
    ready_append(channel);
}

static void to_resumed(struct sl_server_request *request)
{
    struct sl_server *server = request->server;
    sl_server_request_append(&server->scheduler.resumed, request);
    server->scheduler.runnable_count++;
}

void sl_server_scheduler_resume(struct sl_server_request *request)
{
    struct sl_server *server = request->server;
    unlist(request);
    sl_server_request_enter(request, SL_REQUEST_PHASE_ITERATION);
    to_resumed(request);
    sl_server_unblock(server);
}

void sl_server_scheduler_resume_parked(struct sl_server *server)
{
    SL_LIST_FOREACH (link, &server->scheduler.parked) {
        struct sl_server_request *request = sl_server_request_of(link);
        const bool is_away = sl_server_request_is_kept(request) && request->channel == NULL;
        if (!is_away && !sl_shard_waits(server->shard, &request->work)) {
            sl_server_scheduler_resume(request);
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
    request->channel->conn->sink.long_requests -= request->is_long;
    request->channel = NULL;
}

/* A kept request waits on, for its answer and its client. True: it does. */
static bool orphan_kept(struct sl_server_request *request)
{
    struct sl_server *server = request->server;
    if (!sl_server_request_is_kept(request) || request->stage == SL_SERVER_REQUEST_DONE) {
        return false;
    }
    if (request->list == &server->scheduler.resumed) { /* it was answered, but not resumed yet */
        unlist(request);
        sl_server_admission_put_reply(request);
        sl_server_request_append(&server->scheduler.parked, request);
        server->scheduler.parked_count++;
    }
    sl_server_shm_take_off(request, false);
    leave_conn(request);
    return true;
}

/* The request loses its channel. A write in progress is completed, and its client may retry it.
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
    if (orphan_kept(request)) {
        return;
    }
    struct sl_server_session *session = request->session;
    bool begun =
        request->stage == SL_SERVER_REQUEST_STARTED && sl_server_request_writes(&request->work);
    bool is_parked = request->list == &server->scheduler.parked;
    bool is_queued = request->list == &request->channel->queue;
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
        scheduler_park(request);
    } else if (is_queued) {
        to_resumed(request);
    }
}

static void orphan_of(struct sl_list *list, const struct sl_server_channel *channel)
{
    SL_LIST_FOREACH (link, list) {
        struct sl_server_request *request = sl_server_request_of(link);
        if (request->channel == channel) {
            orphan(request);
        }
    }
}

void sl_server_scheduler_drop(struct sl_server_channel *channel)
{
    struct sl_server *server = channel->server;
    sl_assert(channel->session->channel == NULL);
    ready_remove(channel);
    orphan_of(&server->scheduler.resumed, channel);
    orphan_of(&server->scheduler.parked, channel);
    struct sl_server_request *request;
    while ((request = sl_server_request_first(&channel->queue)) != NULL) {
        orphan(request);
    }
}

void sl_server_scheduler_adopt(struct sl_server_request *request, struct sl_server_channel *channel)
{
    struct sl_server *server = request->server;
    if (request->list == &server->scheduler.parked) {
        server->scheduler.orphan_bytes -= buffer_bytes(request);
    }
    request->session->orphan = NULL;
    request->channel = channel;
    channel->conn->sink.long_requests += request->is_long;
}

void sl_server_scheduler_kept(struct sl_server_request *request)
{
    struct sl_server_session *session = request->session;
    if (!request->overtaken) {
        return;
    }
    request->overtaken = false;
    session->overtaken_writes -= sl_flags_has(request->work.flags, SL_SHARD_KEPT_PUSH);
    session->orphan = session->orphan == request ? NULL : session->orphan;
    if (session->channel != NULL) {
        ready_append(session->channel);
    }
}

struct sl_server_request *sl_server_scheduler_find_kept(const struct sl_server_session *session,
                                                        uint64_t id)
{
    SL_LIST_FOREACH (link, &session->server->scheduler.parked) {
        struct sl_server_request *request = sl_server_request_of(link);
        if (sl_server_request_is_kept(request) && request->session == session &&
            request->id == id && request->channel == NULL) {
            return request;
        }
    }
    return NULL;
}

/* Frees the kept requests of a session that ends, which has no channel. */
static void abandon_kept(const struct sl_server_session *session)
{
    SL_LIST_FOREACH (link, &session->server->scheduler.parked) {
        struct sl_server_request *request = sl_server_request_of(link);
        if (sl_server_request_is_kept(request) && request->session == session) {
            unlist(request);
            sl_server_request_free(request);
        }
    }
}

void sl_server_scheduler_abandon(struct sl_server_session *session)
{
    abandon_kept(session);
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
    SL_LIST_FOREACH (link, &server->channels) {
        ready_append(sl_server_channel_of(link));
    }
    sl_server_unblock(server);
}

struct sl_server_request *sl_server_scheduler_next(struct sl_server *server)
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
        struct sl_server_channel *channel =
            SL_CONTAINER_OF(sl_list_first(&scheduler->ready), struct sl_server_channel, ready_link);
        ready_remove(channel);
        if (head_may_run(channel)) {
            return sl_server_request_first(&channel->queue);
        }
    }
    return NULL;
}

void sl_server_scheduler_ran(struct sl_server_request *request, struct sl_server_channel *channel,
                             bool waits)
{
    if (waits) {
        unlist(request);
        scheduler_park(request);
    }
    if (channel != NULL) {
        ready_append(channel);
    }
}

void sl_server_scheduler_init(struct sl_server *server)
{
    struct sl_server_scheduler *scheduler = &server->scheduler;
    sl_list_init(&scheduler->ready);
    sl_list_init(&scheduler->parked);
    sl_list_init(&scheduler->resumed);
}

void sl_server_scheduler_fini(struct sl_server *server)
{
    /* Requests that outlived their connection. */
    struct sl_server_request *request;
    while ((request = sl_server_request_first(&server->scheduler.resumed)) != NULL) {
        unlist(request);
        sl_server_request_free(request);
    }
    sl_assert(sl_list_empty(&server->scheduler.parked));
}
