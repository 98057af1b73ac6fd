#include "ps/server/request.h"

#include <stdio.h>
#include <string.h>

#include "core/event.h"
#include "core/reason.h"
#include "ps/server/reply_chunks.h"
#include "ps/server/request_error.h"
#include "ps/server/shm.h"
#include "ps/server/token.h"
#include "ps/server/turn.h"
#include "ps/shard/finite_tables.h"
#include "ps/shard/handler.h"
#include "ps/shard/push_prefetch.h"

/* Fails a request that is not queued. Its session records a failed write, since later writes may
 * succeed. */
static void server_request_fail(const struct sl_server_reply_to *to,
                                const struct sl_shard_request *work, int err, const char *text)
{
    const struct sl_server *server = to->channel->server;
    struct sl_server_session *session = to->channel->session;
    if (sl_server_request_writes(work)) {
        sl_server_session_failed(session, to->id, err);
        if (server->role.logs) {
            server->options.hooks->write_refused(session, to->id, err);
        }
    }
    sl_server_request_error_reply(to, err, text);
}

/* A queued request of at most this cost runs unsliced even if less is left of the turn. */
#define OVERDRAW_KEYS       512

/* A handler's answer up to this size is copied behind its header. */
#define ANSWER_COPIED_BYTES (4U << 10)

/* Returns the part of the reply that does not follow its header in the frame; NULL: none. A
 * handler's ready answer is sent from its place, unless the client has a direct reply buffer, one
 * short piece is better than two, or the transport sends from registered memory only. */
static const void *tail_of_reply(const struct sl_server_reply_to *to,
                                 const struct sl_shard_request *work, uint8_t *frame)
{
    if (work->answer == NULL) {
        return to->buffer;
    }
    if (to->buffer == NULL && work->reply_bytes > ANSWER_COPIED_BYTES &&
        !sl_transport_needs_registered(to->channel->conn->conn)) {
        return work->answer;
    }
    uint8_t *reply = to->buffer == NULL ? frame + SL_FRAME_HEADER_BYTES : to->buffer;
    memcpy(reply, work->answer, work->reply_bytes);
    return to->buffer;
}

/* Lets the handler keep the next request, if there is one. */
static void offer_token(struct sl_server *server)
{
    if (server->scheduler.tokens != NULL) {
        sl_shard_handler_offer(server->shard, sl_server_token_offer(server->scheduler.tokens));
    }
}

/* The handler may have kept the request: its push counts as done. True: it has. */
static bool note_kept(struct sl_server_session *session, uint64_t id,
                      const struct sl_shard_request *work)
{
    if (sl_flags_has(work->flags, SL_SHARD_KEPT_PUSH)) {
        sl_server_session_wrote(session, id);
    }
    return sl_flags_has(work->flags, SL_SHARD_KEPT);
}

/* Runs a request that sl_shard_ready allows. The reply goes straight into the outgoing block, or
 * into the client's direct reply buffer. CONTINUES: no room for the reply now, nothing was done.
 * WAITS: its handler parked it, likewise, or kept it. queued: the request, if it was queued; else
 * NULL. */
static enum sl_server_outcome run_in_place(const struct sl_server_reply_to *to,
                                           struct sl_shard_request *work,
                                           const struct sl_server_request *queued, uint32_t *spent)
{
    struct sl_server_channel *channel = to->channel;
    struct sl_server_conn *conn = channel->conn;
    struct sl_server *server = channel->server;
    uint32_t bytes = (uint32_t)work->reply_bytes;
    uint8_t *frame = sl_server_admission_reserve(conn, to->buffer == NULL ? bytes : 0);
    if (frame == NULL) {
        return SL_SERVER_CONTINUES;
    }
    struct sl_reason reason;
    server->writes.count += sl_server_request_writes(work);
    offer_token(server);
    int result = sl_shard_run(server->shard, work,
                              to->buffer == NULL ? frame + SL_FRAME_HEADER_BYTES : to->buffer,
                              UINT32_MAX, spent, &reason);
    if (result == SL_SHARD_PARKED) {
        (void)note_kept(channel->session, to->id, work);
        sl_outbox_abandon(conn->outbox);
        return SL_SERVER_WAITS;
    }
    if (queued == NULL && result >= 0) {
        server->turn.has_requests = true;
        server->turn.at_once[sl_request_kind_of(work->main.op)]++;
    } else {
        sl_server_request_begun(server, work);
    }
    if (result < 0) {
        sl_outbox_abandon(conn->outbox);
        server_request_fail(to, work, result, reason.text);
        return SL_SERVER_ANSWERED;
    }
    sl_assert(result == SL_SHARD_DONE);
    if (sl_server_request_writes(work)) {
        sl_server_session_wrote(channel->session, to->id);
        server->role.backup.degraded_writes++;
    }
    const void *tail = tail_of_reply(to, work, frame);
    struct sl_frame header = sl_server_reply_header(channel, to->id, to->credit_bytes, bytes);
    sl_outbox_commit(conn->outbox, conn->conn, &conn->out, &header, tail, tail == NULL ? 0 : bytes,
                     NULL, NULL);
    if (queued != NULL) {
        sl_server_metrics_answered(queued);
    }
    return SL_SERVER_ANSWERED;
}

static struct sl_server_reply_to reply_to(const struct sl_server_request *request)
{
    return (struct sl_server_reply_to){.channel = request->channel,
                                       .id = request->id,
                                       .credit_bytes = request->credit_bytes,
                                       .buffer = request->reply_buffer};
}

/* Returns the memory of a multi-turn reply. */
static uint8_t *reply_of(const struct sl_server_request *request)
{
    return request->reply_buffer != NULL ? request->reply_buffer : request->reply;
}

static void server_request_deadline_passed(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_server_request *request = SL_CONTAINER_OF(timer, struct sl_server_request, deadline);
    struct sl_server *server = request->server;
    bool waits = request->list == &server->scheduler.parked;
    bool has_reply = reply_of(request) != NULL || request->stage == SL_SERVER_REQUEST_STREAMS ||
                     request->work.reply_bytes == 0;
    if (sl_server_request_started(request) && has_reply && !waits) {
        return; /* started: it will finish or park, and park checks the deadline */
    }
    sl_server_request_fail_late(request, waits);
    sl_server_drain_update(server->host);
}

void sl_server_request_fail_late(struct sl_server_request *request, bool waits)
{
    struct sl_server *server = request->server;
    char text[SL_MESSAGE_TEXT_BYTES];
    if (waits) {
        sl_shard_describe_wait(server->shard, &request->work, text, sizeof text);
    } else {
        (void)snprintf(text, sizeof text, "shard %u: its turn did not come before its deadline%s",
                       server->options.shard.index,
                       sl_server_request_waits_for_log(request) ? ": its backup does not keep up"
                                                                : "");
    }
    sl_server_request_fail(request, SL_ERR_DEADLINE, text);
}

/* Creates a request without a payload; NULL: no memory. */
static struct sl_server_request *request_make_bare(const struct sl_server_reply_to *to)
{
    struct sl_server_channel *channel = to->channel;
    struct sl_server *server = channel->server;
    struct sl_server_request *request = sl_pool_get(&server->host->memory.requests);
    if (request == NULL) {
        return NULL;
    }
    *request = (struct sl_server_request){
        .server = server,
        .session = channel->session,
        .channel = channel,
        .deadline.run = server_request_deadline_passed,
        .timing = {.arrived_ns = sl_server_now_ns(server), .since_ns = sl_server_now_ns(server)},
        .id = to->id,
        .credit_bytes = to->credit_bytes,
        .reply_buffer = to->buffer,
    };
    return request;
}

/* Creates a request to be queued, with its payload in a buffer; NULL: no memory. */
static struct sl_server_request *request_make(struct sl_server_incoming *incoming)
{
    struct sl_server_channel *channel = incoming->to.channel;
    struct sl_server *server = channel->server;
    struct sl_server_conn *conn = channel->conn;
    const struct sl_transport_message *message = incoming->message;
    struct sl_server_request *request = request_make_bare(&incoming->to);
    if (request == NULL) {
        return NULL;
    }
    request->payload_bytes = message->header.payload_bytes;
    if (incoming->payload == conn->sink.buffer) {
        request->payload = conn->sink.buffer;
        request->is_long = true;
        conn->sink.buffer = NULL;
        conn->sink.long_requests++;
        return request;
    }
    const uint32_t bytes = request->payload_bytes;
    request->payload = sl_server_buffers_get(&server->host->memory.buffers, bytes,
                                             server->host->memory.buffers.bytes);
    if (request->payload == NULL) {
        sl_pool_put(&server->host->memory.requests, request);
        return NULL;
    }
    memcpy(request->payload, message->payload, bytes);
    return request;
}

static void set_deadline(struct sl_server_request *request, uint32_t budget_us)
{
    struct sl_reactor *reactor = request->server->options.reactor;
    const uint64_t half_ns = budget_us * (SL_CLOCK_NS_PER_US / 2);
    request->half_ns = sl_reactor_now_ns(reactor) + half_ns;
    sl_timer_arm(sl_reactor_timers(reactor), &request->deadline, request->half_ns + half_ns);
}

enum waits_for { WAITS_FOR_OTHERS, WAITS_FOR_ITS_TURN, WAITS_FOR_CLOCKS };

/* Returns true when the request can run in one go within a cost of `keys`. */
static bool may_run_at_once(const struct sl_server_channel *channel,
                            const struct sl_shard_request *work, uint32_t keys)
{
    const struct sl_shard *shard = channel->server->shard;
    if (channel->conn->uses_shm) {
        return work->push_cost <= SL_SERVER_SHM_PUSH_KEYS &&
               work->reply_bytes <= SL_SERVER_SHM_BYTES && sl_server_shm_cost(work) <= keys &&
               sl_shard_ready(shard, work, UINT64_MAX);
    }
    return work->push_cost <= SL_SERVER_PUSH_KEYS && sl_shard_ready(shard, work, keys);
}

/* Returns true when earlier requests of the channel wait only for their turn. */
static bool has_crowd(const struct sl_server_channel *channel)
{
    return !sl_server_channel_is_free(channel) &&
           sl_server_request_of(channel->queue.head.prev)->is_runnable;
}

/* Validates the whole request. payload: its bytes, without values that stay in place. */
static int server_request_begin(struct sl_server_channel *channel,
                                const struct sl_server_incoming *incoming, const uint8_t *payload,
                                struct sl_shard_request *work, struct sl_reason *reason)
{
    struct sl_shard *shard = channel->server->shard;
    struct sl_shard_client caller = sl_server_request_client(channel->conn);
    if (incoming->values == NULL) {
        return sl_shard_begin(shard, &caller, payload, incoming->payload_bytes, work, reason);
    }
    return sl_shard_begin_out_of_line(shard, &caller, payload, incoming->payload_bytes,
                                      incoming->values, incoming->values_bytes, work, reason);
}

/* Queues a request that could not run at once, with a copy of its bytes. */
static void enqueue(struct sl_server_incoming *incoming, const struct sl_shard_request *work,
                    enum waits_for what)
{
    struct sl_server_channel *channel = incoming->to.channel;
    struct sl_server *server = channel->server;
    sl_server_shm_take(channel->conn, incoming);
    struct sl_server_request *request = request_make(incoming);
    if (request == NULL) {
        server_request_fail(&incoming->to, work, SL_ERR_NO_MEMORY,
                            "the server has no room for more requests that wait");
        return;
    }
    int err = server_request_begin(channel, incoming, request->payload, &request->work, NULL);
    sl_assert(err == 0); /* the same bytes were validated on arrival */
    if (sl_shard_skips_writes(work)) {
        sl_shard_skip_writes(&request->work);
    } else if (work->write_from > 0) {
        sl_shard_skip_writes_before(&request->work, work->write_from);
    }
    set_deadline(request, incoming->message->header.budget_us);
    if (what == WAITS_FOR_CLOCKS) {
        (void)sl_shard_waits(server->shard, &request->work);
    }
    request->is_runnable = what == WAITS_FOR_ITS_TURN;
    if (sl_server_request_waits_for_log(request)) {
        request->timing.phase = SL_REQUEST_PHASE_BACKUP;
    }
    sl_server_scheduler_add(request, what == WAITS_FOR_CLOCKS);
}

/* Parks a request that its handler has kept, without its bytes. */
static void park_kept(const struct sl_server_incoming *incoming,
                      const struct sl_shard_request *work)
{
    struct sl_server_request *request = request_make_bare(&incoming->to);
    sl_assert(request != NULL); /* the pool had room before the handler ran */
    request->work = *work;
    sl_server_token_bind(request->work.kept.token, request);
    set_deadline(request, incoming->message->header.budget_us);
    sl_server_scheduler_add(request, true);
}

/* Validates a request's header; false: the connection is being closed. *comes_again: the session
 * received this id on an earlier connection. */
static bool check_header(struct sl_server_channel *channel, const struct sl_frame *header,
                         bool *comes_again)
{
    struct sl_server_session *session = channel->session;
    uint64_t id = sl_frame_number(header->request_id);
    *comes_again = id <= session->id_max;
    if (header->budget_us == 0 || (*comes_again && id <= channel->request_id_last)) {
        sl_server_pull_batch_before(channel);
        sl_server_conn_drop(channel->conn, SL_ERR_PROTOCOL,
                            "request %llu with a budget of %u us, behind %llu",
                            (unsigned long long)id, header->budget_us,
                            (unsigned long long)channel->request_id_last);
        return false;
    }
    sl_server_session_arrived(session, id);
    channel->request_id_last = id;
    return true;
}

/* A kept request was retried: its reply goes to `to`. */
static void adopt_kept(struct sl_server_request *request, const struct sl_server_reply_to *to,
                       uint32_t budget_us)
{
    request->channel = to->channel;
    request->credit_bytes = to->credit_bytes;
    request->reply_buffer = to->buffer;
    set_deadline(request, budget_us);
    if (!sl_shard_waits(request->server->shard, &request->work)) {
        sl_server_scheduler_resume(request);
    }
}

/* The session's orphan was retried, with a budget of budget_us: `to` gets its reply. */
static void adopt(struct sl_server_request *orphan, const struct sl_server_reply_to *to,
                  uint32_t budget_us)
{
    sl_server_scheduler_adopt(orphan, to->channel);
    orphan->credit_bytes = to->credit_bytes;
    set_deadline(orphan, budget_us);
}

/* Handles a request that was received on an earlier connection. True: answered. False: run the part
 * that was not applied. */
static bool replay(const struct sl_server_incoming *incoming, struct sl_shard_request *work)
{
    const struct sl_server_channel *channel = incoming->to.channel;
    struct sl_server_session *session = channel->session;
    const uint64_t id = incoming->to.id;
    char text[SL_MESSAGE_TEXT_BYTES];
    int err = 0;
    struct sl_server_request *kept = sl_server_scheduler_find_kept(session, id);
    if (kept != NULL) {
        adopt_kept(kept, &incoming->to, incoming->message->header.budget_us);
        return true;
    }
    if (!sl_flags_has(work->flags, SL_SHARD_WRITES)) {
        return false;
    }
    switch (sl_server_session_write_outcome(session, id, &err)) {
    case SL_SERVER_WRITE_FAILED:
        (void)snprintf(text, sizeof text, "shard %u: it failed before the connection broke (%s)",
                       channel->server->options.shard.index, sl_err_name(err));
        server_request_fail(&incoming->to, work, err, text);
        return true;
    case SL_SERVER_WRITE_ORPHAN:
        adopt(session->orphan, &incoming->to, incoming->message->header.budget_us);
        return true;
    case SL_SERVER_WRITE_DONE:
        sl_shard_skip_writes(work);
        return false;
    case SL_SERVER_WRITE_UNKNOWN:
        if (id == session->begun_id) {
            sl_shard_skip_writes_before(work, session->begun_sections);
        }
        break;
    }
    return false;
}

/* Returns true when the request has or had an effect beyond its reply, so that it must be logged.
 * The hook decides whether its answer waits for the backup. */
static bool is_to_be_logged(const struct sl_server *server, const struct sl_shard_request *work)
{
    return sl_flags_has(work->flags, SL_SHARD_WRITES) && server->role.logs;
}

void sl_server_request_serve(struct sl_server_incoming *incoming, struct sl_shard_request *work)
{
    struct sl_server_channel *channel = incoming->to.channel;
    struct sl_server *server = channel->server;
    const bool writes = sl_server_request_writes(work);
    if (sl_server_drains(server) || (server->writes.are_fenced && writes)) {
        /* Else: no answer, the client retries at the backup. */
        if (server->role.switchover == SL_SERVER_NO_SWITCHOVER) {
            server_request_fail(&incoming->to, work, SL_ERR_CANCELLED,
                                "the server is shutting down");
        }
        return;
    }
    const bool is_held = writes && channel->session->overtaken_writes > 0;
    const bool is_free = sl_server_channel_is_free(channel) && !is_held;
    const bool may_keep =
        server->scheduler.tokens == NULL || server->host->memory.requests.free_count > 0;
    const bool is_short = may_keep && !is_to_be_logged(server, work) &&
                          !sl_server_reply_chunks_fits(channel, work) &&
                          may_run_at_once(channel, work, SL_LIMIT_TURN_COST);
    const uint64_t cost = channel->conn->uses_shm ? sl_server_shm_cost(work) : work->cost;
    const bool has_turn =
        server->scheduler.crowded_count == 0 && !sl_server_turn_is_over(server, cost);
    if (is_free && is_short && has_turn) {
        uint32_t spent = 0;
        enum sl_server_outcome outcome = run_in_place(&incoming->to, work, NULL, &spent);
        sl_server_spend(server, spent);
        if (outcome == SL_SERVER_ANSWERED) {
            sl_server_slow_requests_see(&server->slow, work->caller, work->main);
            return;
        }
        if (outcome == SL_SERVER_WAITS && sl_flags_has(work->flags, SL_SHARD_KEPT)) {
            park_kept(incoming, work);
            return;
        }
        if (outcome == SL_SERVER_WAITS) {
            sl_shard_abandon(server->shard, work); /* restarts later, parked like others */
        }
    }
    enum waits_for what = WAITS_FOR_OTHERS;
    if (is_short && (is_free ? !has_turn : !is_held && has_crowd(channel))) {
        what = WAITS_FOR_ITS_TURN;
    } else if (is_free && sl_shard_waits(server->shard, work)) {
        what = WAITS_FOR_CLOCKS;
    }
    enqueue(incoming, work, what);
}

/* Returns the client's direct reply buffer if the reply fits exactly; else NULL. */
static uint8_t *reply_buffer_for(const struct sl_conn *conn, uint64_t reply_bytes)
{
    bool fits = conn->reply_buffer_bytes == reply_bytes && (uintptr_t)conn->reply_buffer % 8 == 0;
    return fits && reply_bytes > 0 ? conn->reply_buffer : NULL;
}

/* Validates the request, then executes the part that was not executed before. */
static void arrive(struct sl_server_channel *channel, const struct sl_transport_message *message,
                   bool comes_again)
{
    const struct sl_frame *header = &message->header;
    struct sl_server_incoming incoming;
    struct sl_shard_request work;
    struct sl_reason reason;
    struct sl_server_conn *conn = channel->conn;
    sl_server_pull_batch_before(channel);
    sl_server_shm_read(conn, message, &incoming);
    struct sl_server_reply_to *to = &incoming.to;
    *to =
        (struct sl_server_reply_to){.channel = channel, .id = sl_frame_number(header->request_id)};
    int err = server_request_begin(channel, &incoming, incoming.payload, &work, &reason);
    if (err != 0) {
        /* Neither side knows the request's credit now, so the connection cannot continue. */
        sl_server_request_error_reply(to, err, reason.text);
        sl_server_conn_drop(conn, err, "%s", reason.text);
        return;
    }
    if (header->payload_bytes > channel->server->payload_bytes_max) {
        sl_server_conn_drop(conn, SL_ERR_PROTOCOL, "a request of %u bytes", header->payload_bytes);
        return;
    }
    to->buffer = reply_buffer_for(conn->conn, work.reply_bytes);
    to->credit_bytes = sl_request_credit_bytes(header->payload_bytes, work.reply_bytes);
    if (!sl_credit_spend(&conn->credit, to->credit_bytes)) {
        sl_server_conn_drop(conn, SL_ERR_PROTOCOL, "it spends more credit than it was granted");
    } else if (comes_again && replay(&incoming, &work)) {
        return;
    } else if (sl_flags_has(work.flags, SL_SHARD_WANTS_FINITE) &&
               (err = sl_shard_check_finite(channel->server->shard, &work, &reason)) != 0) {
        sl_server_request_error_not_finite(channel, reason.text);
        server_request_fail(to, &work, err, reason.text);
    } else {
        sl_server_request_serve(&incoming, &work);
    }
}

/* Returns the server of the next request, if its header is known; else of this one. */
static const struct sl_server *server_ahead(const struct sl_server_channel *channel)
{
    const struct sl_conn *conn = channel->conn->conn;
    const struct sl_server *server = NULL;
    if (conn->ahead_bytes >= SL_FRAME_HEADER_BYTES) {
        uint64_t id;
        memcpy(&id, conn->ahead + offsetof(struct sl_frame, request_id), sizeof id);
        server = channel->conn->host->by_shard[sl_frame_shard(id)];
    }
    return server == NULL || server->shard == NULL ? channel->server : server;
}

void sl_server_request_arrive(struct sl_server_channel *channel,
                              const struct sl_transport_message *message)
{
    bool comes_again;
    if (check_header(channel, &message->header, &comes_again)) {
        if (sl_server_pull_batch_take(channel, message)) {
            return;
        }
        const struct sl_conn *conn = channel->conn->conn;
        const struct sl_server *server = server_ahead(channel);
        const uint32_t bytes = conn->ahead_bytes;
        const bool knows_next = bytes > SL_FRAME_HEADER_BYTES;
        const struct sl_shard_push_prefetch ahead = sl_shard_push_prefetch_begin(
            server->shard, knows_next ? conn->ahead + SL_FRAME_HEADER_BYTES : NULL,
            knows_next ? bytes - SL_FRAME_HEADER_BYTES : 0);
        arrive(channel, message, comes_again);
        sl_shard_push_prefetch_end(server->shard, &ahead);
    }
    sl_server_conn_release(channel->conn, message);
}

/* The reply was sent, or its connection has closed. */
static void server_request_reply_sent(void *ctx)
{
    sl_server_request_free(ctx);
}

void sl_server_request_put_payload(struct sl_server_request *request)
{
    if (request->payload != NULL) {
        sl_server_buffers_put(&request->server->host->memory.buffers, request->payload);
        request->payload = NULL;
    }
    if (request->is_long && request->channel != NULL) {
        request->channel->conn->sink.long_requests--;
    }
    request->is_long = false;
}

/* Sends a reply from its buffer. CONTINUES: no room for its header now. */
static enum sl_server_outcome reply_from_buffer(struct sl_server_request *request)
{
    struct sl_server_channel *channel = request->channel;
    if (channel == NULL) {
        sl_server_scheduler_discard(request);
        return SL_SERVER_ANSWERED;
    }
    struct sl_server_conn *conn = channel->conn;
    sl_server_request_enter(request, SL_REQUEST_PHASE_SEND);
    if (sl_outbox_reserve(conn->outbox, 0) == NULL) {
        return SL_SERVER_CONTINUES;
    }
    sl_server_scheduler_remove(request);
    sl_server_metrics_answered(request);
    sl_server_request_put_payload(request);
    const void *reply = reply_of(request);
    const void *answer = request->work.answer;
    uint32_t bytes = (uint32_t)request->work.reply_bytes;
    if (answer != NULL &&
        (request->reply_buffer != NULL || sl_transport_needs_registered(conn->conn))) {
        memcpy(reply_of(request), answer, bytes);
    } else if (answer != NULL) {
        reply = answer;
    }
    if (reply != request->reply) {
        sl_server_admission_put_reply(request);
    }
    sl_timer_disarm(sl_server_timers(request->server), &request->deadline);
    struct sl_frame header =
        sl_server_reply_header(channel, request->id, request->credit_bytes, bytes);
    sl_outbox_commit(conn->outbox, conn->conn, &conn->out, &header, reply, bytes,
                     bytes > 0 ? server_request_reply_sent : NULL, request);
    if (bytes == 0) {
        sl_server_request_free(request);
    }
    return SL_SERVER_ANSWERED;
}

/* True: the log has taken the request. */
static bool log_ended(struct sl_server_request *request, uint32_t section_end, int err)
{
    const struct sl_server *server = request->server;
    return server->role.logs && server->options.hooks->write_ended(request, section_end, err);
}

void sl_server_request_fail(struct sl_server_request *request, int err, const char *text)
{
    const struct sl_server_reply_to to = reply_to(request);
    const bool writes = request->session != NULL && sl_server_request_writes(&request->work);
    const bool wrote = sl_flags_has(request->work.flags, SL_SHARD_KEPT_PUSH);
    const uint32_t section_end = sl_shard_written(&request->work);
    sl_server_scheduler_remove(request);
    if (writes || (wrote && request->session != NULL)) {
        sl_server_session_failed(request->session, request->id, err);
    }
    if (to.channel != NULL) {
        sl_server_request_error_reply(&to, err, text);
    }
    if (request->session == NULL) {
        sl_server_request_end(request);
    } else if (!writes || !log_ended(request, section_end, err)) {
        sl_server_request_free(request);
    }
}

void sl_server_request_end(struct sl_server_request *request)
{
    sl_assert(request->session == NULL);
    if (request->effect_end == 0 || !log_ended(request, request->effect_end, 0)) {
        sl_server_request_free(request);
    }
}

void sl_server_request_answered(struct sl_server_request *request,
                                const struct sl_kv_answer *answer)
{
    request->work.kept.answer = answer;
    if (request->channel != NULL) {
        sl_server_scheduler_resume(request);
    }
}

void sl_server_request_free(struct sl_server_request *request)
{
    struct sl_server *server = request->server;
    sl_assert(request->list == NULL);
    sl_timer_disarm(sl_server_timers(server), &request->deadline);
    sl_server_slow_requests_end(request);
    if (server->shard != NULL) {
        sl_shard_abandon(server->shard, &request->work);
    }
    sl_server_token_unbind(request->work.kept.token);
    sl_server_request_put_payload(request);
    sl_server_admission_put_reply(request);
    sl_pool_put(&server->host->memory.requests, request);
    sl_server_unblock(server);
}

/* A logged write that could otherwise run at once is not sliced. */
static uint32_t slice_of(const struct sl_server_request *request)
{
    const struct sl_shard_request *work = &request->work;
    const bool is_short =
        work->cost <= SL_SERVER_PUSH_KEYS && sl_flags_has(work->flags, SL_SHARD_WRITES);
    return is_short && request->server->role.logs
               ? SL_SERVER_PUSH_KEYS
               : SL_SERVER_SLICE_KEYS * sl_server_request_speed(request);
}

/* All sections have run: records the write, and answers now or when the backup has it. */
static enum sl_server_outcome complete(struct sl_server_request *request)
{
    struct sl_server *server = request->server;
    const bool writes = sl_server_request_writes(&request->work);
    request->stage = SL_SERVER_REQUEST_DONE;
    if (writes) {
        sl_server_session_wrote(request->session, request->id);
    }
    if (is_to_be_logged(server, &request->work)) {
        sl_server_request_enter(request, SL_REQUEST_PHASE_BACKUP);
        if (server->options.hooks->write_done(request)) {
            return SL_SERVER_ANSWERED;
        }
    } else {
        server->role.backup.degraded_writes += writes;
    }
    return reply_from_buffer(request);
}

/* Runs the next slice of a started request. */
static enum sl_server_outcome run_slice(struct sl_server_request *request, uint32_t keys,
                                        uint32_t *spent)
{
    struct sl_server *server = request->server;
    struct sl_server_session *session = request->session;
    const bool writes = sl_server_request_writes(&request->work);
    struct sl_reason reason;
    if (!sl_server_admission_reply(request)) {
        sl_server_request_enter(request, SL_REQUEST_PHASE_MEMORY);
        return SL_SERVER_CONTINUES; /* it was parked and gave its buffer back */
    }
    sl_server_request_enter(request, SL_REQUEST_PHASE_WORK);
    if (writes && session != NULL) {
        sl_server_session_touch(session);
    }
    server->writes.count += writes;
    offer_token(server);
    const bool was_kept = sl_server_request_is_kept(request);
    const uint32_t slice = slice_of(request);
    int result = sl_shard_run(server->shard, &request->work, reply_of(request),
                              keys < slice ? keys : slice, spent, &reason);
    if (!was_kept && note_kept(session, request->id, &request->work)) {
        sl_server_token_bind(request->work.kept.token, request);
        sl_server_scheduler_kept(request);
        return SL_SERVER_WAITS;
    }
    if (writes && session != NULL) {
        session->begun_id = request->id;
        session->begun_sections = sl_shard_written(&request->work);
    }
    if (result < 0) {
        sl_server_request_fail(request, result, reason.text);
        return SL_SERVER_ANSWERED;
    }
    if (session == NULL && sl_shard_stop_writes(&request->work)) {
        sl_server_scheduler_remove(request);
        sl_server_request_end(request);
        return SL_SERVER_ANSWERED;
    }
    if (result == SL_SHARD_DONE) {
        return complete(request);
    }
    if (session != NULL && server->role.logs && request->work.effect_end > request->effect_first) {
        server->options.hooks->write_part(request);
    }
    return result == SL_SHARD_PARKED ? SL_SERVER_WAITS : SL_SERVER_CONTINUES;
}

static enum sl_server_outcome run_chunks(struct sl_server_request *request, uint32_t keys,
                                         uint32_t *spent)
{
    sl_server_request_enter(request, SL_REQUEST_PHASE_SEND);
    enum sl_server_outcome outcome = sl_server_reply_chunks_run(request, keys, spent);
    if (outcome == SL_SERVER_ANSWERED) {
        sl_server_metrics_answered(request);
        sl_server_scheduler_discard(request);
    }
    return outcome;
}

/* Refuses a write that arrived too late: CANCELLED, or no answer if the backup will be promoted. */
static void refuse(struct sl_server_request *request)
{
    if (request->server->role.switchover != SL_SERVER_NO_SWITCHOVER) {
        sl_server_scheduler_discard(request);
    } else {
        sl_server_request_fail(request, SL_ERR_CANCELLED, "the server is shutting down");
    }
}

/* Starts a request: in place if possible, in chunks, else with a buffer for the reply. */
static enum sl_server_outcome start(struct sl_server_request *request, uint32_t keys,
                                    uint32_t *spent)
{
    struct sl_server *server = request->server;
    if (server->writes.are_fenced && sl_server_request_writes(&request->work)) {
        refuse(request);
        return SL_SERVER_ANSWERED;
    }
    if (sl_shard_waits(server->shard, &request->work)) {
        return SL_SERVER_WAITS;
    }
    if (sl_server_reply_chunks_may_begin(request)) {
        return run_chunks(request, keys, spent);
    }
    keys = keys < OVERDRAW_KEYS ? OVERDRAW_KEYS : keys;
    if (!is_to_be_logged(server, &request->work) &&
        may_run_at_once(request->channel, &request->work, keys)) {
        const struct sl_server_reply_to to = reply_to(request);
        enum sl_server_outcome outcome = run_in_place(&to, &request->work, request, spent);
        if (outcome == SL_SERVER_ANSWERED) {
            sl_server_scheduler_discard(request);
        } else if (outcome == SL_SERVER_CONTINUES) {
            sl_server_request_enter(request, SL_REQUEST_PHASE_MEMORY);
        } else if (sl_server_request_is_kept(request)) {
            sl_server_token_bind(request->work.kept.token, request);
            sl_server_scheduler_kept(request);
        }
        return outcome;
    }
    if (!sl_server_admission_reply(request)) {
        sl_server_request_enter(request, SL_REQUEST_PHASE_MEMORY);
        return SL_SERVER_CONTINUES;
    }
    request->stage = SL_SERVER_REQUEST_STARTED;
    sl_server_request_begun(server, &request->work);
    return run_slice(request, keys, spent);
}

enum sl_server_outcome sl_server_request_run(struct sl_server_request *request, uint32_t keys,
                                             uint32_t *spent)
{
    *spent = 0;
    switch (request->stage) {
    case SL_SERVER_REQUEST_WAITS:
        return start(request, keys, spent);
    case SL_SERVER_REQUEST_STARTED:
        return run_slice(request, keys, spent);
    case SL_SERVER_REQUEST_STREAMS:
        return run_chunks(request, keys, spent);
    case SL_SERVER_REQUEST_DONE:
        break;
    }
    return reply_from_buffer(request);
}
