#include "worker/link.h"

#include <stdio.h>
#include <string.h>

#include "core/assert.h"
#include "core/log.h"
#include "worker/call.h"
#include "worker/hub.h"
#include "worker/part.h"
#include "worker/scatter.h"

/* A body up to here is copied behind its header, so that small requests leave as one piece. */
#define COPY_BYTES_MAX (2U << 10)

/* ---- The queue */

static void queue_append(struct sl_link *link, struct sl_request *request)
{
    request->queued = true;
    request->queue_next = NULL;
    request->queue_prev = link->queue_last;
    if (link->queue_last == NULL) {
        link->queue_first = request;
    } else {
        link->queue_last->queue_next = request;
    }
    link->queue_last = request;
}

void sl_link_withdraw(struct sl_link *link, struct sl_request *request)
{
    sl_assert(request->queued);
    request->queued = false;
    if (request->queue_prev == NULL) {
        link->queue_first = request->queue_next;
    } else {
        request->queue_prev->queue_next = request->queue_next;
    }
    if (request->queue_next == NULL) {
        link->queue_last = request->queue_prev;
    } else {
        request->queue_next->queue_prev = request->queue_prev;
    }
}

/* ---- Sending */

static uint32_t budget_us(const struct sl_part *part, uint64_t now_ns)
{
    if (part->deadline_ns <= now_ns + SL_CLOCK_NS_PER_US) {
        return 1;
    }
    uint64_t budget = (part->deadline_ns - now_ns) / SL_CLOCK_NS_PER_US;
    return budget < UINT32_MAX ? (uint32_t)budget : UINT32_MAX;
}

/* The bytes of the body that go behind the header; the rest is sent from where it is. */
static uint32_t copied_bytes(const struct sl_request *request)
{
    return request->tail != NULL || request->body_bytes <= COPY_BYTES_MAX ? request->body_bytes : 0;
}

static void commit(struct sl_link *link, struct sl_request *request, uint8_t *room)
{
    struct sl_part *part = request->part;
    uint32_t copied = copied_bytes(request);
    const void *rest = copied == 0 ? request->body : request->tail;
    uint32_t rest_bytes = copied == 0 ? request->body_bytes : request->tail_bytes;
    memcpy(room + SL_FRAME_HEADER_BYTES, request->body, copied);
    request->id = link->next_id++;
    request->in_flight = true;
    request->tail_unsent = request->tail != NULL;
    part->unsent += rest != NULL ? 1 : 0;
    sl_inflight_add(&link->inflight, request->id, request);
    link->hub->stats.requests++;
    struct sl_frame frame = {
        .payload_bytes = copied + rest_bytes,
        .type = SL_FRAME_REQUEST,
        .request_id = request->id,
        .budget_us = budget_us(part, sl_reactor_now_ns(link->hub->reactor)),
    };
    sl_outbox_commit(&link->hub->outbox, sl_session_conn(link->session),
                     sl_session_queue(link->session), &frame, rest, rest_bytes,
                     rest == NULL ? NULL : sl_part_rest_sent, rest == NULL ? NULL : request);
}

/* False when it must wait: for credit, for a slot, or for memory of the outbox. */
static bool try_send(struct sl_link *link, struct sl_request *request)
{
    uint64_t cost = sl_request_credit_bytes((uint64_t)request->body_bytes + request->tail_bytes,
                                            request->reply_bytes);
    if (sl_inflight_full(&link->inflight) || !sl_credit_spend(&link->credit, cost)) {
        return false;
    }
    uint8_t *room = sl_outbox_reserve(&link->hub->outbox, copied_bytes(request));
    if (room == NULL) {
        sl_credit_grant(&link->credit, cost, 1);
        sl_hub_retry_later(link->hub);
        return false;
    }
    commit(link, request, room);
    return true;
}

void sl_link_submit(struct sl_link *link, struct sl_request *request)
{
    sl_assert(link->state == SL_LINK_OPEN);
    if (link->queue_first != NULL || !try_send(link, request)) {
        queue_append(link, request);
    }
}

void sl_link_pump(struct sl_link *link)
{
    while (link->state == SL_LINK_OPEN && link->queue_first != NULL) {
        struct sl_request *request = link->queue_first;
        if (!try_send(link, request)) {
            return;
        }
        sl_link_withdraw(link, request);
    }
}

/* ---- Replies */

void sl_link_forget(struct sl_link *link, struct sl_request *request)
{
    sl_assert(request->in_flight);
    sl_assert(!request->is_landing);
    struct sl_inflight_entry *entry = sl_inflight_find(&link->inflight, request->id);
    sl_assert(entry != NULL);
    entry->request = NULL;
    request->in_flight = false;
}

static void *sink(void *ctx, struct sl_session *session, const struct sl_frame *header)
{
    (void)session;
    struct sl_link *link = ctx;
    struct sl_inflight_entry *entry = sl_inflight_find(&link->inflight, header->request_id);
    struct sl_request *request = entry == NULL ? NULL : entry->request;
    if (request != NULL && request->landing != NULL && header->type == SL_FRAME_REPLY &&
        header->status == 0 && header->payload_bytes == request->reply_bytes) {
        request->is_landing = true;
        link->landing = request;
        return request->landing;
    }
    if (link->buffer == NULL) {
        link->buffer = sl_pool_get(&link->hub->buffers);
    }
    return link->buffer;
}

/* The memory that `sink` named is no longer the transport's. */
static void landed(struct sl_link *link)
{
    if (link->buffer != NULL) {
        sl_pool_put(&link->hub->buffers, link->buffer);
        link->buffer = NULL;
    }
    if (link->landing != NULL) {
        link->landing->is_landing = false;
        link->landing = NULL;
    }
}

static void release(struct sl_link *link, const struct sl_transport_message *message)
{
    if (message->token != NULL) {
        sl_transport_release(sl_session_conn(link->session), message);
    } else {
        landed(link);
    }
}

/* The peer's words, made fit for a log line. */
static void copy_text(char *text, size_t text_bytes, const struct sl_transport_message *message)
{
    size_t bytes = message->header.payload_bytes;
    bytes = bytes < text_bytes - 1 ? bytes : text_bytes - 1;
    for (size_t i = 0; i < bytes; i++) {
        uint8_t byte = message->payload[i];
        text[i] = byte >= ' ' && byte < 0x7f ? (char)byte : '?';
    }
    text[bytes] = '\0';
}

static void refused(struct sl_link *link, struct sl_request *request,
                    const struct sl_transport_message *message)
{
    int err = -(int)message->header.status;
    char text[SL_LINK_REASON_BYTES];
    copy_text(text, sizeof text, message);
    release(link, message);
    if (request != NULL) {
        sl_part_failed(request, err, text[0] == '\0' ? sl_err_name(err) : text);
    }
}

static void replied(struct sl_link *link, const struct sl_transport_message *message)
{
    struct sl_inflight_entry *entry = sl_inflight_find(&link->inflight, message->header.request_id);
    if (entry == NULL) {
        release(link, message);
        sl_link_break(link, SL_ERR_PROTOCOL, "it answered a request that is not in flight");
        return;
    }
    struct sl_request *request = entry->request;
    sl_inflight_remove(&link->inflight, entry);
    link->hub->stats.replies++;
    if (request != NULL) {
        request->in_flight = false;
    }
    if (message->header.status != 0) {
        refused(link, request, message);
        return;
    }
    if (request != NULL && message->header.payload_bytes != request->reply_bytes) {
        release(link, message);
        sl_part_failed(request, SL_ERR_PROTOCOL, "its reply has the wrong length");
        sl_link_break(link, SL_ERR_PROTOCOL, "one of its replies had the wrong length");
        return;
    }
    if (request != NULL && request != link->landing) {
        sl_scatter_reply(request, message->payload);
    }
    uint32_t floor = message->header.budget_us;
    release(link, message);
    if (request != NULL) {
        sl_part_replied(request, floor);
    }
}

static void received(void *ctx, struct sl_session *session,
                     const struct sl_transport_message *message)
{
    (void)session;
    struct sl_link *link = ctx;
    sl_credit_grant(&link->credit, message->header.credit_bytes, message->header.credit_requests);
    if (message->header.type == SL_FRAME_REPLY) {
        replied(link, message);
    } else {
        release(link, message);
    }
    sl_link_pump(link);
}

/* ---- The connection */

/* The call that waited for this link has its answer. */
static void opened(struct sl_link *link)
{
    struct sl_call *call = link->opening;
    link->opening = NULL;
    if (call != NULL) {
        sl_call_answer_one(call);
    }
}

/* Every request must be possible with what the peer grants, or it would wait for ever. */
static bool grants_enough(const struct sl_message_welcome *welcome)
{
    uint64_t payload = welcome->payload_bytes_max;
    return payload >= SL_ENCODE_PAYLOAD_BYTES_MIN && welcome->credit_requests > 0 &&
           welcome->credit_bytes >= sl_request_credit_bytes(payload, payload);
}

static void welcomed(void *ctx, struct sl_session *session,
                     const struct sl_message_welcome *welcome)
{
    (void)session;
    struct sl_link *link = ctx;
    const char *reason = NULL;
    link->state = SL_LINK_OPEN;
    link->credit =
        (struct sl_credit){.bytes = welcome->credit_bytes, .requests = welcome->credit_requests};
    link->payload_bytes_max = welcome->payload_bytes_max;
    if (welcome->shard != link->shard || welcome->shard_count != link->hub->shard_count) {
        reason = "it says that it is another shard, of another cluster";
    } else if (!grants_enough(welcome)) {
        reason = "the credit that it grants is less than one request may need";
    }
    if (reason != NULL) {
        sl_call_fail(link->opening, SL_ERR_PROTOCOL, "%s: %s", link->name, reason);
        sl_link_break(link, SL_ERR_PROTOCOL, reason);
    }
    opened(link);
}

static void writable(void *ctx, struct sl_session *session)
{
    (void)session;
    sl_link_pump(ctx);
}

/* Each failure may give up other requests of this link: take them one at a time. */
static void fail_all(struct sl_link *link)
{
    landed(link);
    struct sl_inflight_entry *entry;
    while ((entry = sl_inflight_any(&link->inflight)) != NULL) {
        struct sl_request *request = entry->request;
        sl_inflight_remove(&link->inflight, entry);
        if (request != NULL) {
            request->in_flight = false;
            sl_part_failed(request, SL_ERR_CLOSED, link->reason);
        }
    }
    while (link->queue_first != NULL) {
        struct sl_request *request = link->queue_first;
        sl_link_withdraw(link, request);
        sl_part_failed(request, SL_ERR_CLOSED, link->reason);
    }
}

static void closed(void *ctx, struct sl_session *session, int err, const char *reason)
{
    (void)session;
    struct sl_link *link = ctx;
    if (link->state != SL_LINK_BROKEN) {
        snprintf(link->reason, sizeof link->reason, "%s", sl_call_reason(link->name, reason));
    }
    if (link->opening != NULL) {
        sl_call_fail(link->opening, err == 0 ? SL_ERR_CLOSED : err, "%s", reason);
    } else {
        sl_log_warn("%s: connection lost: %s", link->name, link->reason);
    }
    link->state = SL_LINK_CLOSED;
    fail_all(link);
    opened(link);
}

void sl_link_break(struct sl_link *link, int err, const char *reason)
{
    if (link->state != SL_LINK_OPEN) {
        return;
    }
    link->state = SL_LINK_BROKEN;
    snprintf(link->reason, sizeof link->reason, "%s (%s)", reason, sl_err_name(err));
    sl_transport_disconnect(sl_session_conn(link->session));
}

static const struct sl_session_events link_events = {
    .welcomed = welcomed,
    .received = received,
    .sink = sink,
    .writable = writable,
    .closed = closed,
};

void sl_link_open(struct sl_link *link, struct sl_call *call)
{
    struct sl_hub *hub = link->hub;
    struct sl_session_options options = {
        .outbox = &hub->outbox,
        .endpoint = link->endpoint,
        .hello = hub->options->hello,
        .events = &link_events,
        .ctx = link,
        .peer_name = link->peer_name,
    };
    options.hello.purpose = SL_MESSAGE_PURPOSE_DATA;
    options.hello.shard = link->local_shard;
    options.start_timeout_ns = sl_hub_time_left(hub, call->deadline_ns);
    link->next_id = 1;
    link->opening = call;
    int err = sl_hub_transport(hub, link->endpoint.scheme, &options.transport);
    if (err == 0) {
        err = sl_session_open(&options, &link->session);
    }
    if (err != 0) {
        link->state = SL_LINK_CLOSED;
        snprintf(link->reason, sizeof link->reason, "cannot connect: %s", sl_err_name(err));
        sl_call_fail(call, err, "%s: %s", link->name, link->reason);
        opened(link);
    }
}

void sl_link_close(struct sl_link *link)
{
    if (link->session != NULL) {
        sl_session_close(&link->session);
    }
    link->state = SL_LINK_CLOSED;
}
