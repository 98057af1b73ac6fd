#include "worker/shard_conn.h"

#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "worker/client_io.h"
#include "worker/scatter.h"
#include "worker/substep.h"

/* A body up to here is copied behind its header, so that small requests leave as one piece; a reply
 * up to here is moved to its place. */
#define COPY_BYTES_MAX (2U << 10)

/* ---- The queue */

/* Puts the request behind `prev`, NULL: at the head. */
static void queue_insert(struct sl_shard_conn *link, struct sl_request *prev,
                         struct sl_request *request)
{
    struct sl_request *next = prev == NULL ? link->queue_first : prev->queue_next;
    request->queued = true;
    request->queue_prev = prev;
    request->queue_next = next;
    *(prev == NULL ? &link->queue_first : &prev->queue_next) = request;
    *(next == NULL ? &link->queue_last : &next->queue_prev) = request;
}

void sl_shard_conn_withdraw(struct sl_shard_conn *link, struct sl_request *request)
{
    sl_assert(request->queued);
    struct sl_request *prev = request->queue_prev, *next = request->queue_next;
    request->queued = false;
    *(prev == NULL ? &link->queue_first : &prev->queue_next) = next;
    *(next == NULL ? &link->queue_last : &next->queue_prev) = prev;
}

/* ---- Sending */

static uint32_t budget_us(const struct sl_substep *part, uint64_t now_ns)
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

/* No shard writes to memory that the transport does not know. */
static bool may_land(const struct sl_shard_conn *link, const struct sl_request *request)
{
    return link->lands && request->landing != NULL && request->reply_bytes > COPY_BYTES_MAX &&
           sl_client_io_lends(link->hub, link->scheme, request->landing, request->reply_bytes);
}

/* From here until the answer, or the end of the connection, the shard may write there. */
static void ask_to_land(struct sl_shard_conn *link, struct sl_request *request)
{
    request->is_landing = true;
    sl_outbox_set_landing(link->outbox, request->landing, (uint32_t)request->reply_bytes);
}

/* A long reply that is to be scattered lands in a buffer of the hub's first: otherwise it would
 * wait at the shard until it is fetched. One buffer is left for what comes otherwise, and is
 * fetched. */
static void *take_stage(struct sl_shard_conn *link, const struct sl_request *request)
{
    struct sl_pool *buffers = &link->hub->buffers;
    if (!link->lands_in_hub || request->reply_bytes <= SL_LIMIT_INLINE_PAYLOAD_BYTES ||
        buffers->free_count < 2) {
        return NULL;
    }
    void *stage = sl_pool_get(buffers);
    sl_outbox_set_landing(link->outbox, stage, (uint32_t)request->reply_bytes);
    return stage;
}

static void put_stage(struct sl_shard_conn *link, void *stage)
{
    if (stage != NULL) {
        sl_pool_put(&link->hub->buffers, stage);
    }
}

static void commit(struct sl_shard_conn *link, struct sl_request *request, uint8_t *room)
{
    struct sl_substep *part = request->part;
    uint32_t copied = copied_bytes(request);
    const void *rest = copied == 0 ? request->body : request->tail;
    uint32_t rest_bytes = copied == 0 ? request->body_bytes : request->tail_bytes;
    memcpy(room + SL_FRAME_HEADER_BYTES, request->body, copied);
    if (request->id == 0) {
        request->id = link->next_id++;
    }
    request->in_flight = true;
    request->tail_unsent = request->tail != NULL;
    part->unsent += rest != NULL ? 1 : 0;
    link->finished = link->finished || request->finishes;
    struct sl_inflight_entry *entry = sl_inflight_add(&link->inflight, request->id, request);
    if (may_land(link, request)) {
        ask_to_land(link, request);
    } else if (request->landing == NULL) {
        entry->stage = take_stage(link, request);
    }
    link->hub->stats.requests++;
    struct sl_frame frame = {
        .payload_bytes = copied + rest_bytes,
        .type = SL_FRAME_REQUEST,
        .request_id = request->id,
        .budget_us = budget_us(part, sl_reactor_now_ns(link->hub->reactor)),
    };
    sl_outbox_commit(link->outbox, sl_session_conn(link->session), sl_session_queue(link->session),
                     &frame, rest, rest_bytes, rest == NULL ? NULL : sl_substep_rest_sent,
                     rest == NULL ? NULL : request);
}

/* Spends the credit and reserves the room for a frame; NULL when it must wait: for credit, for a
 * slot, or for memory of the outbox. */
static uint8_t *prepare(struct sl_shard_conn *link, uint64_t cost, uint32_t near_bytes)
{
    if (sl_inflight_full(&link->inflight) || !sl_credit_spend(&link->credit, cost)) {
        return NULL;
    }
    uint8_t *room = sl_outbox_reserve(link->outbox, near_bytes);
    if (room == NULL) {
        sl_credit_grant(&link->credit, cost, 1);
        sl_client_io_retry_later(link->hub);
    }
    return room;
}

static bool try_send(struct sl_shard_conn *link, struct sl_request *request)
{
    uint64_t cost = sl_request_credit_bytes((uint64_t)request->body_bytes + request->tail_bytes,
                                            request->reply_bytes);
    uint8_t *room = prepare(link, cost, copied_bytes(request));
    if (room == NULL) {
        return false;
    }
    commit(link, request, room);
    return true;
}

/* A finish of the link's own, whose answer nobody waits for. */
static bool try_finish(struct sl_shard_conn *link)
{
    const struct {
        struct sl_request_prefix prefix;
        struct sl_request_section section;
    } body = {{.section_count = 1, .clock = SL_REQUEST_CLOCK_FINISHED}, {.op = SL_REQUEST_TICK}};
    uint8_t *room = prepare(link, sl_request_credit_bytes(sizeof body, 0), sizeof body);
    if (room == NULL) {
        return false;
    }
    memcpy(room + SL_FRAME_HEADER_BYTES, &body, sizeof body);
    struct sl_frame frame = {
        .payload_bytes = sizeof body,
        .type = SL_FRAME_REQUEST,
        .request_id = link->next_id++,
        .budget_us = UINT32_MAX,
    };
    sl_inflight_add(&link->inflight, frame.request_id, NULL);
    sl_outbox_commit(link->outbox, sl_session_conn(link->session), sl_session_queue(link->session),
                     &frame, NULL, 0, NULL, NULL);
    link->must_finish = false;
    return true;
}

int sl_shard_conn_check(const struct sl_shard_conn *link, const struct sl_request *request,
                        const char **text)
{
    if (sl_shard_conn_is_down(link)) {
        *text = link->reason;
        return SL_ERR_CLOSED;
    }
    if ((uint64_t)request->body_bytes + request->tail_bytes > link->payload_bytes_max ||
        request->reply_bytes > link->payload_bytes_max) {
        *text = "since it was connected again it takes shorter messages only";
        return SL_ERR_TOO_LARGE;
    }
    return 0;
}

/* Whom the request stands behind: those with its priority or more, those that were sent before,
 * and what ends an iteration. */
static struct sl_request *queue_place(const struct sl_shard_conn *link,
                                      const struct sl_request *request)
{
    struct sl_request *prev = link->queue_last;
    while (prev != NULL && prev->id == 0 && prev->priority < request->priority && !prev->ticks &&
           !prev->finishes) {
        prev = prev->queue_prev;
    }
    return prev;
}

void sl_shard_conn_submit(struct sl_shard_conn *link, struct sl_request *request)
{
    sl_assert(!sl_shard_conn_is_down(link));
    if (link->state != SL_SHARD_CONN_OPEN || link->queue_first != NULL ||
        !try_send(link, request)) {
        queue_insert(link, queue_place(link, request), request);
    }
}

void sl_shard_conn_pump(struct sl_shard_conn *link)
{
    while (link->state == SL_SHARD_CONN_OPEN) {
        struct sl_request *request = link->queue_first;
        bool old_ids_left = request != NULL && request->id != 0;
        if (link->must_finish && !old_ids_left) {
            if (!try_finish(link)) {
                return;
            }
        } else if (request == NULL || !try_send(link, request)) {
            return;
        } else {
            sl_shard_conn_withdraw(link, request);
        }
    }
}

/* ---- Replies */

/* The clock that this worker has here once the request was carried out; 0: it ticks nothing. */
static uint32_t clock_after(const struct sl_request *request)
{
    return request->ticks ? request->tick_clock + 1 : 0;
}

void sl_shard_conn_forget(struct sl_shard_conn *link, struct sl_request *request)
{
    sl_assert(request->in_flight);
    sl_assert(!request->is_landing);
    struct sl_inflight_entry *entry = sl_inflight_find(&link->inflight, request->id);
    sl_assert(entry != NULL);
    entry->request = NULL;
    entry->clock_after = clock_after(request);
    request->in_flight = false;
}

void *sl_shard_conn_sink(void *ctx, struct sl_session *session, const struct sl_frame *header)
{
    (void)session;
    struct sl_shard_conn *link = ctx;
    struct sl_inflight_entry *entry = sl_inflight_find(&link->inflight, header->request_id);
    struct sl_request *request = entry == NULL ? NULL : entry->request;
    if (request != NULL && request->landing != NULL && header->type == SL_FRAME_REPLY &&
        header->status == 0 && header->payload_bytes == request->reply_bytes) {
        request->is_landing = true;
        link->landing = request;
        return request->landing;
    }
    if (entry != NULL && entry->stage != NULL) {
        return entry->stage;
    }
    if (link->buffer == NULL) {
        link->buffer = sl_pool_get(&link->hub->buffers);
    }
    return link->buffer;
}

/* The memory that `sink` named is no longer the transport's. */
static void landed(struct sl_shard_conn *link)
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

static void release(struct sl_shard_conn *link, const struct sl_transport_message *message)
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

static void refused(struct sl_shard_conn *link, struct sl_request *request,
                    const struct sl_transport_message *message)
{
    int err = -(int)message->header.status;
    char text[SL_SHARD_CONN_REASON_BYTES];
    copy_text(text, sizeof text, message);
    release(link, message);
    if (request != NULL) {
        sl_substep_failed(request, err, text[0] == '\0' ? sl_err_name(err) : text);
    }
}

static void succeeded(struct sl_shard_conn *link, struct sl_request *request,
                      const struct sl_transport_message *message)
{
    if (request != NULL && message->payload != request->landing) {
        sl_scatter_reply(request, message->payload);
    }
    uint32_t floor = message->header.budget_us;
    release(link, message);
    if (request != NULL) {
        sl_substep_replied(request, floor);
    }
}

/* NULL: nobody waits for it any more. `clock`: after what it asked for. */
static void take_reply(struct sl_shard_conn *link, struct sl_request *request, uint32_t clock,
                       const struct sl_transport_message *message)
{
    link->hub->stats.replies++;
    if (request != NULL) {
        request->in_flight = false;
        request->is_landing = request == link->landing;
    }
    if (message->header.status != 0) {
        refused(link, request, message);
        return;
    }
    link->clock = clock > link->clock ? clock : link->clock;
    if (request != NULL && message->header.payload_bytes != request->reply_bytes) {
        release(link, message);
        sl_substep_failed(request, SL_ERR_PROTOCOL, "its reply has the wrong length");
        sl_shard_conn_break(link, "one of its replies had the wrong length", true);
        return;
    }
    succeeded(link, request, message);
}

static void replied(struct sl_shard_conn *link, const struct sl_transport_message *message)
{
    struct sl_inflight_entry *found = sl_inflight_find(&link->inflight, message->header.request_id);
    if (found == NULL) {
        release(link, message);
        sl_shard_conn_break(link, "it answered a request that is not in flight", true);
        return;
    }
    const struct sl_inflight_entry entry = *found;
    sl_inflight_remove(&link->inflight, found);
    take_reply(link, entry.request,
               entry.request == NULL ? entry.clock_after : clock_after(entry.request), message);
    put_stage(link, entry.stage);
}

void sl_shard_conn_received(void *ctx, struct sl_session *session,
                            const struct sl_transport_message *message)
{
    (void)session;
    struct sl_shard_conn *link = ctx;
    sl_credit_grant(&link->credit, message->header.credit_bytes, message->header.credit_requests);
    if (message->header.type == SL_FRAME_REPLY) {
        replied(link, message);
    } else {
        release(link, message);
    }
    sl_shard_conn_pump(link);
}

/* ---- The end of a connection */

static int by_id(const void *a, const void *b)
{
    uint64_t left = (*(struct sl_request *const *)a)->id;
    uint64_t right = (*(struct sl_request *const *)b)->id;
    return (left > right) - (left < right);
}

void sl_shard_conn_keep(struct sl_shard_conn *link)
{
    struct sl_request *kept[SL_INFLIGHT_MAX];
    uint32_t count = 0;
    landed(link);
    struct sl_inflight_entry *entry;
    while ((entry = sl_inflight_any(&link->inflight)) != NULL) {
        struct sl_request *request = entry->request;
        put_stage(link, entry->stage);
        sl_inflight_remove(&link->inflight, entry);
        if (request == NULL) {
            continue;
        }
        request->in_flight = request->is_landing = false;
        sl_assert(!request->tail_unsent); /* the transport gave all memory back when it closed */
        if (request->part->err != 0) {
            sl_substep_settle(request); /* its part has failed: nobody wants it any more */
        } else {
            kept[count++] = request;
        }
    }
    qsort(kept, count, sizeof *kept, by_id);
    for (uint32_t i = count; i > 0; i--) {
        queue_insert(link, NULL, kept[i - 1]);
    }
}

static void fail_queued(struct sl_shard_conn *link, struct sl_request *request, int err,
                        const char *text)
{
    sl_shard_conn_withdraw(link, request);
    sl_substep_failed(request, err, text);
}

/* Each failure may give up other requests of this link: after one the search begins anew. */
void sl_shard_conn_fail_writes(struct sl_shard_conn *link, const char *text)
{
    struct sl_request *at = link->queue_first;
    while (at != NULL && at->id != 0) {
        if (at->writes) {
            fail_queued(link, at, SL_ERR_CLOSED, text);
            at = link->queue_first;
        } else {
            at = at->queue_next;
        }
    }
    for (at = link->queue_first; at != NULL && at->id != 0; at = at->queue_next) {
        at->id = 0;
    }
}

void sl_shard_conn_fail_oversized(struct sl_shard_conn *link)
{
    struct sl_request *at = link->queue_first;
    while (at != NULL) {
        const char *text;
        int err = sl_shard_conn_check(link, at, &text);
        if (err != 0) {
            fail_queued(link, at, err, text);
            at = link->queue_first;
        } else {
            at = at->queue_next;
        }
    }
}

void sl_shard_conn_fail_all(struct sl_shard_conn *link)
{
    landed(link);
    struct sl_inflight_entry *entry;
    while ((entry = sl_inflight_any(&link->inflight)) != NULL) {
        struct sl_request *request = entry->request;
        put_stage(link, entry->stage);
        sl_inflight_remove(&link->inflight, entry);
        if (request != NULL) {
            request->in_flight = request->is_landing = false;
            sl_substep_failed(request, SL_ERR_CLOSED, link->reason);
        }
    }
    while (link->queue_first != NULL) {
        fail_queued(link, link->queue_first, SL_ERR_CLOSED, link->reason);
    }
}
