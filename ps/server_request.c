/* Requests: from the frame to the reply. */
#include <stdio.h>
#include <string.h>

#include "core/assert.h"
#include "core/log.h"
#include "ps/server_internal.h"

/* The header of a reply, with the credit that the request cost given back. */
static struct sl_frame reply_header(struct sl_server_conn *conn, uint64_t id, uint64_t credit_bytes,
                                    uint32_t payload_bytes)
{
    const struct sl_server *server = conn->server;
    sl_credit_grant(&conn->credit, credit_bytes, 1);
    return (struct sl_frame){
        .payload_bytes = payload_bytes,
        .type = SL_FRAME_REPLY,
        .request_id = id,
        .budget_us = sl_shard_clock_floor(server->shard),
        .credit_bytes = (uint32_t)credit_bytes,
        .credit_requests = 1,
        .flags = conn->hello.checksum ? SL_FRAME_CHECKSUM : 0,
    };
}

/* An error reply is short: when not even that finds room, the connection is given up. */
static void reply_error(struct sl_server_conn *conn, uint64_t id, uint64_t credit_bytes, int err,
                        const char *text)
{
    conn->server->failure_count++;
    uint32_t bytes = (uint32_t)strlen(text);
    uint8_t *frame = sl_outbox_reserve(conn->outbox, bytes);
    if (frame == NULL) {
        sl_server_drop(conn, SL_ERR_NO_MEMORY, "no room to answer request %llu: %s",
                       (unsigned long long)id, text);
        return;
    }
    memcpy(frame + SL_FRAME_HEADER_BYTES, text, bytes);
    struct sl_frame header = reply_header(conn, id, credit_bytes, bytes);
    header.status = (uint8_t)-err;
    sl_outbox_commit(conn->outbox, conn->conn, &conn->out, &header, NULL, 0, NULL, NULL);
}

static struct sl_shard_caller caller_of(const struct sl_server_conn *conn)
{
    return (struct sl_shard_caller){
        .has_clock = conn->hello.role == SL_MESSAGE_ROLE_WORKER,
        .worker = conn->hello.task_index,
    };
}

/* Runs a request that sl_shard_ready vouches for, straight into the outgoing block. False when that
 * has no room now. */
static bool run_in_place(struct sl_server_conn *conn, struct sl_shard_work *work, uint64_t id,
                         uint64_t credit_bytes, uint32_t *spent)
{
    struct sl_server *server = conn->server;
    uint32_t bytes = (uint32_t)work->reply_bytes;
    uint8_t *frame = sl_outbox_reserve(conn->outbox, bytes);
    if (frame == NULL) {
        return false;
    }
    char reason[SL_MESSAGE_TEXT_BYTES];
    int result = sl_shard_run(server->shard, work, frame + SL_FRAME_HEADER_BYTES, UINT32_MAX, spent,
                              reason, sizeof reason);
    server->request_count++;
    if (result < 0) {
        sl_outbox_abandon(conn->outbox);
        reply_error(conn, id, credit_bytes, result, reason);
        return true;
    }
    sl_assert(result == SL_SHARD_DONE);
    struct sl_frame header = reply_header(conn, id, credit_bytes, bytes);
    sl_outbox_commit(conn->outbox, conn->conn, &conn->out, &header, NULL, 0, NULL, NULL);
    return true;
}

static void deadline_passed(struct sl_timer *timer, uint64_t now_ns)
{
    (void)now_ns;
    struct sl_server_request *request =
        (struct sl_server_request *)(void *)((uint8_t *)timer -
                                             offsetof(struct sl_server_request, deadline));
    struct sl_server *server = request->server;
    bool waits = request->list == &server->parked;
    bool has_reply = request->reply != NULL || request->work.reply_bytes == 0;
    if (request->started && has_reply && !waits) {
        return; /* it has begun, and is about to be done, or to be parked: see there */
    }
    sl_server_request_fail_late(request, waits);
    sl_server_drain_look(server);
}

void sl_server_request_fail_late(struct sl_server_request *request, bool waits)
{
    struct sl_server *server = request->server;
    char text[SL_MESSAGE_TEXT_BYTES];
    if (waits) {
        sl_shard_describe_wait(server->shard, &request->work, text, sizeof text);
    } else {
        (void)snprintf(text, sizeof text, "shard %u: its turn did not come before its deadline",
                       server->options.shard.index);
    }
    sl_server_request_fail(request, SL_ERR_DEADLINE, text);
}

/* A queued request of its own, its payload in a buffer; NULL: no memory. */
static struct sl_server_request *request_make(struct sl_server_conn *conn,
                                              const struct sl_transport_message *message)
{
    struct sl_server *server = conn->server;
    struct sl_server_request *request = sl_pool_get(&server->requests);
    if (request == NULL) {
        return NULL;
    }
    *request = (struct sl_server_request){
        .server = server,
        .conn = conn,
        .deadline.run = deadline_passed,
        .id = message->header.request_id,
    };
    if (message->token == NULL) {
        request->payload = conn->sink;
        conn->sink = NULL;
        return request;
    }
    uint32_t bytes = message->header.payload_bytes;
    request->payload = sl_server_buffers_get(&server->buffers, bytes, server->buffers.bytes);
    if (request->payload == NULL) {
        sl_pool_put(&server->requests, request);
        return NULL;
    }
    memcpy(request->payload, message->payload, bytes);
    return request;
}

/* What could not run at once: queues it, with its own copy of the bytes. */
static void enqueue(struct sl_server_conn *conn, const struct sl_transport_message *message,
                    uint64_t credit_bytes, bool park)
{
    struct sl_server *server = conn->server;
    struct sl_server_request *request = request_make(conn, message);
    if (request == NULL) {
        reply_error(conn, message->header.request_id, credit_bytes, SL_ERR_NO_MEMORY,
                    "the ps has no room for more requests that wait");
        return;
    }
    request->credit_bytes = credit_bytes;
    struct sl_shard_caller caller = caller_of(conn);
    char reason[SL_MESSAGE_TEXT_BYTES];
    int err = sl_shard_begin(server->shard, &caller, request->payload,
                             message->header.payload_bytes, &request->work, reason, sizeof reason);
    sl_assert(err == 0); /* the same bytes have been checked in their first place */
    uint64_t now_ns = sl_reactor_now_ns(server->options.reactor);
    sl_timer_arm(sl_reactor_timers(server->options.reactor), &request->deadline,
                 now_ns + message->header.budget_us * SL_CLOCK_NS_PER_US);
    if (park) {
        (void)sl_shard_waits(server->shard, &request->work);
    }
    sl_server_queue_add(request, park);
}

/* Checks what the frame's header says; false: the connection is being closed. */
static bool check_header(struct sl_server_conn *conn, const struct sl_frame *header)
{
    if (header->request_id != conn->next_request_id || header->budget_us == 0) {
        sl_server_drop(conn, SL_ERR_PROTOCOL,
                       "request %llu with a budget of %u us, where request %llu was expected",
                       (unsigned long long)header->request_id, header->budget_us,
                       (unsigned long long)conn->next_request_id);
        return false;
    }
    conn->next_request_id++;
    return true;
}

/* Runs the request at once, or queues it. */
static void serve(struct sl_server_conn *conn, const struct sl_transport_message *message,
                  struct sl_shard_work *work, uint64_t credit_bytes)
{
    struct sl_server *server = conn->server;
    uint64_t id = message->header.request_id;
    if (server->draining) {
        reply_error(conn, id, credit_bytes, SL_ERR_CANCELLED, "the ps is shutting down");
        return;
    }
    bool is_free = sl_server_queue_is_free(conn) && !(work->writes && conn->passed_writes > 0);
    uint32_t spent = 0;
    if (is_free && sl_shard_ready(server->shard, work, server->turn_keys) &&
        run_in_place(conn, work, id, credit_bytes, &spent)) {
        server->turn_keys -= spent < server->turn_keys ? spent : server->turn_keys;
        return;
    }
    bool park = is_free && sl_shard_waits(server->shard, work);
    enqueue(conn, message, credit_bytes, park);
}

void sl_server_request_arrive(struct sl_server_conn *conn,
                              const struct sl_transport_message *message)
{
    const struct sl_frame *header = &message->header;
    struct sl_shard_caller caller = caller_of(conn);
    struct sl_shard_work work;
    char reason[SL_MESSAGE_TEXT_BYTES];
    if (check_header(conn, header)) {
        int err = sl_shard_begin(conn->server->shard, &caller, message->payload,
                                 header->payload_bytes, &work, reason, sizeof reason);
        if (err != 0) {
            /* What it cost is unknown to both sides now: there is no going on. */
            reply_error(conn, header->request_id, 0, err, reason);
            sl_server_drop(conn, err, "%s", reason);
        } else {
            uint64_t cost = sl_request_credit_bytes(header->payload_bytes, work.reply_bytes);
            if (sl_credit_spend(&conn->credit, cost)) {
                serve(conn, message, &work, cost);
            } else {
                sl_server_drop(conn, SL_ERR_PROTOCOL, "it spends more credit than it was granted");
            }
        }
    }
    sl_server_release(conn, message);
}

/* The reply has been sent, or its connection has closed. */
static void reply_sent(void *ctx)
{
    sl_server_request_free(ctx);
}

/* Sends a reply that was made in a buffer; false: no room for its header now. */
static bool reply_from_buffer(struct sl_server_request *request)
{
    struct sl_server_conn *conn = request->conn;
    if (conn == NULL) {
        sl_server_queue_remove(request);
        sl_server_request_free(request);
        return true;
    }
    if (sl_outbox_reserve(conn->outbox, 0) == NULL) {
        return false;
    }
    sl_server_queue_remove(request);
    sl_timer_disarm(sl_reactor_timers(request->server->options.reactor), &request->deadline);
    uint32_t bytes = (uint32_t)request->work.reply_bytes;
    struct sl_frame header = reply_header(conn, request->id, request->credit_bytes, bytes);
    bool has_rest = bytes > 0;
    sl_outbox_commit(conn->outbox, conn->conn, &conn->out, &header, request->reply, bytes,
                     has_rest ? reply_sent : NULL, request);
    if (!has_rest) {
        sl_server_request_free(request);
    }
    return true;
}

void sl_server_request_fail(struct sl_server_request *request, int err, const char *text)
{
    if (request->list != NULL) {
        sl_server_queue_remove(request);
    }
    if (request->conn != NULL) {
        reply_error(request->conn, request->id, request->credit_bytes, err, text);
    }
    sl_server_request_free(request);
}

void sl_server_request_free(struct sl_server_request *request)
{
    struct sl_server *server = request->server;
    sl_assert(request->list == NULL);
    sl_timer_disarm(sl_reactor_timers(server->options.reactor), &request->deadline);
    if (server->shard != NULL) {
        sl_shard_abandon(server->shard, &request->work);
    }
    if (request->payload != NULL) {
        sl_server_buffers_put(&server->buffers, request->payload);
    }
    if (request->reply != NULL) {
        sl_server_buffers_put(&server->buffers, request->reply);
    }
    sl_pool_put(&server->requests, request);
    sl_server_unblock(server);
}

/* Takes room for a reply that takes several turns; false: there is none now. */
static bool take_reply(struct sl_server_request *request)
{
    struct sl_server_buffers *buffers = &request->server->buffers;
    if (request->reply == NULL && request->work.reply_bytes > 0) {
        request->reply = sl_server_buffers_get(buffers, request->work.reply_bytes, buffers->bytes);
        return request->reply != NULL;
    }
    return true;
}

/* A request that has not begun: in place if it fits, else with a buffer for the reply. */
static enum sl_server_outcome run_first(struct sl_server_request *request, uint32_t keys,
                                        uint32_t *spent)
{
    struct sl_server *server = request->server;
    if (sl_shard_waits(server->shard, &request->work)) {
        return SL_SERVER_WAITS;
    }
    if (sl_shard_ready(server->shard, &request->work, keys)) {
        if (!run_in_place(request->conn, &request->work, request->id, request->credit_bytes,
                          spent)) {
            return SL_SERVER_GOES_ON;
        }
        sl_server_queue_remove(request);
        sl_server_request_free(request);
        return SL_SERVER_ANSWERED;
    }
    if (!take_reply(request)) {
        return SL_SERVER_GOES_ON;
    }
    request->started = true;
    server->request_count++;
    return sl_server_request_run(request, keys, spent);
}

enum sl_server_outcome sl_server_request_run(struct sl_server_request *request, uint32_t keys,
                                             uint32_t *spent)
{
    *spent = 0;
    if (!request->started) {
        return run_first(request, keys, spent);
    }
    if (!request->done) {
        if (!take_reply(request)) {
            return SL_SERVER_GOES_ON; /* it was parked, and gave it back */
        }
        char reason[SL_MESSAGE_TEXT_BYTES];
        keys = keys < SL_SERVER_SLICE_KEYS ? keys : SL_SERVER_SLICE_KEYS;
        int result = sl_shard_run(request->server->shard, &request->work, request->reply, keys,
                                  spent, reason, sizeof reason);
        if (result < 0) {
            sl_server_request_fail(request, result, reason);
            return SL_SERVER_ANSWERED;
        }
        if (result != SL_SHARD_DONE) {
            return result == SL_SHARD_PARKED ? SL_SERVER_WAITS : SL_SERVER_GOES_ON;
        }
        request->done = true;
    }
    return reply_from_buffer(request) ? SL_SERVER_ANSWERED : SL_SERVER_GOES_ON;
}
