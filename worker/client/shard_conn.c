#include "worker/client/shard_conn.h"

#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "worker/client/client_io.h"
#include "worker/client/client_io_memory.h"
#include "worker/client/scatter.h"
#include "worker/client/shard_conn_connect.h"
#include "worker/client/substep.h"

/* Shorter bodies are copied behind the header, to send one buffer; shorter replies are copied to
 * their destination. */
#define COPY_BYTES_MAX (2U << 10)

/* The queue */

/* Inserts the request after `prev`; NULL: at the head. */
static void queue_insert(struct sl_shard_conn *conn, struct sl_request *prev,
                         struct sl_request *request)
{
    struct sl_request *next = prev == NULL ? conn->queue_first : prev->queue_next;
    sl_flags_set(&request->waits, SL_REQUEST_QUEUED, true);
    request->queued_ns = sl_reactor_now_ns(conn->io->reactor);
    request->queue_prev = prev;
    request->queue_next = next;
    *(prev == NULL ? &conn->queue_first : &prev->queue_next) = request;
    *(next == NULL ? &conn->queue_last : &next->queue_prev) = request;
}

void sl_shard_conn_withdraw(struct sl_shard_conn *conn, struct sl_request *request)
{
    sl_assert(sl_flags_has(request->waits, SL_REQUEST_QUEUED));
    struct sl_request *prev = request->queue_prev, *next = request->queue_next;
    sl_flags_set(&request->waits, SL_REQUEST_QUEUED, false);
    *(prev == NULL ? &conn->queue_first : &prev->queue_next) = next;
    *(next == NULL ? &conn->queue_last : &next->queue_prev) = prev;
}

/* Sending */

static uint32_t budget_us(const struct sl_substep *substep, uint64_t now_ns)
{
    if (substep->deadline_ns <= now_ns + SL_CLOCK_NS_PER_US) {
        return 1;
    }
    uint64_t budget = (substep->deadline_ns - now_ns) / SL_CLOCK_NS_PER_US;
    return budget < UINT32_MAX ? (uint32_t)budget : UINT32_MAX;
}

/* NULL: no substep waits for the reply. */
static struct sl_inflight_entry *begin_flight(struct sl_shard_conn *conn, uint64_t id,
                                              struct sl_request *request)
{
    struct sl_inflight_entry *entry = sl_inflight_add(&conn->inflight, id, request);
    entry->sent_ns = sl_reactor_now_ns(conn->io->reactor);
    const enum sl_request_kind kind = request == NULL ? SL_REQUEST_KIND_TICK : request->kind;
    sl_cell_add(&conn->io->cells.requests[kind], 1);
    sl_cell_add(&conn->io->cells.in_flight, 1);
    return entry;
}

static void end_flight(struct sl_shard_conn *conn, struct sl_inflight_entry *entry)
{
    sl_inflight_remove(&conn->inflight, entry);
    sl_cell_subtract(&conn->io->cells.in_flight, 1);
}

/* Layout of a request: `copied` bytes after its header, then the tail, sent in place. */
struct layout {
    uint32_t copied, tail_bytes;
    const void *tail;
};

/* RDMA sends a long tail from registered memory only: any other tail is copied. */
static struct layout layout_of(const struct sl_shard_conn *conn, const struct sl_request *request)
{
    struct layout layout = {
        .copied = request->body_bytes, .tail = request->tail, .tail_bytes = request->tail_bytes};
    if (request->tail == NULL && request->body_bytes > COPY_BYTES_MAX) {
        layout = (struct layout){.tail = request->body, .tail_bytes = request->body_bytes};
    }
    if (conn->reactor->path.needs_registered &&
        layout.tail_bytes > SL_TRANSPORT_UNREGISTERED_BYTES_MAX &&
        !sl_client_io_has_registered(conn->io, conn->reactor->path.scheme, layout.tail,
                                     layout.tail_bytes)) {
        layout = (struct layout){.copied = request->body_bytes + request->tail_bytes};
    }
    return layout;
}

/* A direct reply requires memory exported over this transport. */
static bool takes_direct_reply(const struct sl_shard_conn *conn, const struct sl_request *request)
{
    return conn->reactor->path.direct_replies && request->reply_memory != NULL &&
           request->reply_bytes > COPY_BYTES_MAX &&
           sl_client_io_has_exported(conn->io, conn->reactor->path.scheme, request->reply_memory,
                                     request->reply_bytes);
}

/* From now until the reply or the end of the connection, the shard may write to the memory. */
static void request_direct_reply(struct sl_shard_conn *conn, struct sl_request *request)
{
    sl_flags_set(&request->waits, SL_REQUEST_REPLY_MEMORY_LENT, true);
    sl_outbox_set_reply_buffer(conn->reactor->path.outbox, request->reply_memory,
                               (uint32_t)request->reply_bytes);
}

/* Reserves a receive buffer for a long direct reply that must be scattered: otherwise the reply
 * waits at the shard until fetched. Leaves one buffer for fetched replies. */
static void *reserve_buffer(struct sl_shard_conn *conn, const struct sl_request *request)
{
    struct sl_pool *buffers = &conn->io->memory.buffers;
    if (!conn->reactor->path.needs_registered ||
        request->reply_bytes <= SL_LIMIT_INLINE_PAYLOAD_BYTES || buffers->free_count < 2) {
        return NULL;
    }
    void *buffer = sl_pool_get(buffers);
    sl_outbox_set_reply_buffer(conn->reactor->path.outbox, buffer, (uint32_t)request->reply_bytes);
    return buffer;
}

static void return_buffer(struct sl_shard_conn *conn, void *buffer)
{
    if (buffer != NULL) {
        sl_pool_put(&conn->io->memory.buffers, buffer);
    }
}

static void commit(struct sl_shard_conn *conn, struct sl_request *request,
                   const struct layout *layout, uint8_t *room)
{
    struct sl_substep *substep = request->substep;
    const void *tail = layout->tail;
    uint8_t *payload = room + SL_FRAME_HEADER_BYTES;
    if (tail != request->body) {
        memcpy(payload, request->body, request->body_bytes);
    }
    if (tail == NULL && request->tail != NULL) {
        memcpy(payload + request->body_bytes, request->tail, request->tail_bytes);
    }
    if (request->id == 0) {
        request->id = conn->next_id++;
    }
    sl_flags_set(&request->waits, SL_REQUEST_IN_FLIGHT, true);
    sl_flags_set(&request->waits, SL_REQUEST_TAIL_UNSENT, tail != NULL && tail == request->tail);
    substep->unsent += tail != NULL ? 1 : 0;
    conn->clock.is_finished = conn->clock.is_finished || request->tick == SL_TICK_FINISH;
    struct sl_inflight_entry *entry = begin_flight(conn, request->id, request);
    if (takes_direct_reply(conn, request)) {
        request_direct_reply(conn, request);
    } else {
        entry->buffer = reserve_buffer(conn, request);
    }
    struct sl_frame frame = {
        .payload_bytes = request->body_bytes + request->tail_bytes,
        .type = SL_FRAME_REQUEST,
        .request_id = sl_frame_id(conn->shard, request->id),
        .budget_us = budget_us(substep, sl_reactor_now_ns(conn->io->reactor)),
    };
    sl_outbox_commit(conn->reactor->path.outbox, sl_session_conn(conn->reactor->session),
                     sl_session_queue(conn->reactor->session), &frame, tail, layout->tail_bytes,
                     tail == NULL ? NULL : sl_substep_tail_sent, tail == NULL ? NULL : request);
}

/* Spends credit and reserves a frame. NULL: no credit, slot or outbox memory; wait. */
static uint8_t *shard_conn_prepare(struct sl_shard_conn *conn, uint64_t cost,
                                   uint32_t preferred_bytes)
{
    if (sl_inflight_full(&conn->inflight) || !sl_credit_spend(&conn->reactor->credit, cost)) {
        return NULL;
    }
    uint8_t *room = sl_outbox_reserve(conn->reactor->path.outbox, preferred_bytes);
    if (room == NULL) {
        sl_credit_grant(&conn->reactor->credit, cost, 1);
        sl_client_io_retry_later(conn->io);
    }
    return room;
}

static bool try_send(struct sl_shard_conn *conn, struct sl_request *request)
{
    uint64_t cost = sl_request_credit_bytes((uint64_t)request->body_bytes + request->tail_bytes,
                                            request->reply_bytes);
    const struct layout layout = layout_of(conn, request);
    uint8_t *room = shard_conn_prepare(conn, cost, layout.copied);
    if (room == NULL) {
        return false;
    }
    commit(conn, request, &layout, room);
    return true;
}

/* Sends the connection's own finish; its reply is ignored. */
static bool try_finish(struct sl_shard_conn *conn)
{
    const struct {
        struct sl_request_prefix prefix;
        struct sl_request_section section;
    } body = {{.section_count = 1, .clock = SL_REQUEST_CLOCK_FINISHED}, {.op = SL_REQUEST_TICK}};
    uint8_t *room = shard_conn_prepare(conn, sl_request_credit_bytes(sizeof body, 0), sizeof body);
    if (room == NULL) {
        return false;
    }
    memcpy(room + SL_FRAME_HEADER_BYTES, &body, sizeof body);
    struct sl_frame frame = {
        .payload_bytes = sizeof body,
        .type = SL_FRAME_REQUEST,
        .request_id = sl_frame_id(conn->shard, conn->next_id),
        .budget_us = UINT32_MAX,
    };
    begin_flight(conn, conn->next_id++, NULL);
    sl_outbox_commit(conn->reactor->path.outbox, sl_session_conn(conn->reactor->session),
                     sl_session_queue(conn->reactor->session), &frame, NULL, 0, NULL, NULL);
    conn->clock.must_finish = false;
    return true;
}

int sl_shard_conn_check(const struct sl_shard_conn *conn, const struct sl_request *request,
                        const char **text)
{
    if (sl_shard_conn_is_down(conn)) {
        *text = conn->reason;
        return SL_ERR_CLOSED;
    }
    if ((uint64_t)request->body_bytes + request->tail_bytes > conn->payload_bytes_max ||
        request->reply_bytes > conn->payload_bytes_max) {
        *text = "since it was connected again it takes shorter messages only";
        return SL_ERR_TOO_LARGE;
    }
    return 0;
}

/* Returns the request to queue after: one with at least the same priority, one sent before, or one
 * that ends an iteration. */
static struct sl_request *queue_place(const struct sl_shard_conn *conn,
                                      const struct sl_request *request)
{
    struct sl_request *prev = conn->queue_last;
    while (prev != NULL && prev->id == 0 && prev->priority < request->priority &&
           prev->tick == SL_TICK_NONE) {
        prev = prev->queue_prev;
    }
    return prev;
}

void sl_shard_conn_submit(struct sl_shard_conn *conn, struct sl_request *request)
{
    sl_assert(!sl_shard_conn_is_down(conn));
    const bool is_open = conn->state == SL_SHARD_CONN_OPEN;
    /* Shards that wait for the common credit come first. */
    if (is_open && conn->queue_first == NULL && sl_list_empty(&conn->reactor->waiting) &&
        try_send(conn, request)) {
        return;
    }
    queue_insert(conn, queue_place(conn, request), request);
    if (is_open && !sl_list_linked(&conn->waiting)) {
        sl_list_append(&conn->reactor->waiting, &conn->waiting);
    }
}

/* Sends the next request, if any. False: it waits for credit or room. */
static bool send_next(struct sl_shard_conn *conn)
{
    struct sl_request *request = conn->queue_first;
    const bool old_ids_left = request != NULL && request->id != 0;
    if (conn->clock.must_finish && !old_ids_left) {
        return try_finish(conn);
    }
    if (request == NULL || !try_send(conn, request)) {
        return request == NULL;
    }
    sl_shard_conn_withdraw(conn, request);
    sl_cell_record(&conn->io->cells.credit_wait,
                   sl_reactor_now_ns(conn->io->reactor) - request->queued_ns, 1);
    return true;
}

bool sl_shard_conn_pump(struct sl_shard_conn *conn)
{
    while (conn->state == SL_SHARD_CONN_OPEN &&
           (conn->queue_first != NULL || conn->clock.must_finish)) {
        if (!send_next(conn)) {
            if (!sl_list_linked(&conn->waiting)) {
                sl_list_append(&conn->reactor->waiting, &conn->waiting);
            }
            return false;
        }
    }
    sl_list_remove(&conn->waiting);
    return true;
}

/* Replies */

/* The worker's clock on the shard after the request; 0: the request does not tick. */
static uint32_t clock_after(const struct sl_request *request)
{
    return request->tick == SL_TICK_ITERATION ? request->tick_clock + 1 : 0;
}

void sl_shard_conn_forget(struct sl_shard_conn *conn, struct sl_request *request)
{
    sl_assert(sl_flags_has(request->waits, SL_REQUEST_IN_FLIGHT));
    sl_assert(!sl_flags_has(request->waits, SL_REQUEST_REPLY_MEMORY_LENT));
    struct sl_inflight_entry *entry = sl_inflight_find(&conn->inflight, request->id);
    sl_assert(entry != NULL);
    entry->request = NULL;
    entry->clock_after = clock_after(request);
    sl_flags_set(&request->waits, SL_REQUEST_IN_FLIGHT, false);
}

void *sl_shard_conn_sink(struct sl_shard_conn *conn, const struct sl_frame *header)
{
    struct sl_inflight_entry *entry =
        sl_inflight_find(&conn->inflight, sl_frame_number(header->request_id));
    struct sl_request *request = entry == NULL ? NULL : entry->request;
    /* Over RDMA the caller's memory is named only if it was lent: reads into other memory are slow.
     */
    const bool may_be_named =
        !conn->reactor->path.needs_registered ||
        (request != NULL && sl_flags_has(request->waits, SL_REQUEST_REPLY_MEMORY_LENT));
    if (may_be_named && request != NULL && request->reply_memory != NULL &&
        header->type == SL_FRAME_REPLY && header->status == 0 &&
        header->payload_bytes == request->reply_bytes) {
        sl_flags_set(&request->waits, SL_REQUEST_REPLY_MEMORY_LENT, true);
        conn->reactor->direct_request = request;
        return request->reply_memory;
    }
    return entry == NULL ? NULL : entry->buffer;
}

static void shard_conn_release(struct sl_shard_conn *conn,
                               const struct sl_transport_message *message)
{
    if (message->token != NULL) {
        sl_transport_release(sl_session_conn(conn->reactor->session), message);
    } else {
        sl_reactor_conn_end_direct_reply(conn->reactor);
    }
}

static void refused(struct sl_shard_conn *conn, struct sl_request *request,
                    const struct sl_transport_message *message)
{
    int err = -(int)message->header.status;
    char text[SL_SHARD_CONN_REASON_BYTES];
    sl_reason_copy_printable(text, sizeof text, message->payload, message->header.payload_bytes);
    shard_conn_release(conn, message);
    if (request != NULL) {
        sl_substep_failed(request, err, text[0] == '\0' ? sl_err_name(err) : text);
    }
}

static void succeeded(struct sl_shard_conn *conn, struct sl_request *request,
                      const struct sl_transport_message *message)
{
    if (request != NULL && message->payload != request->reply_memory) {
        sl_scatter_reply(request, message->payload);
    }
    uint32_t floor = message->header.budget_us;
    shard_conn_release(conn, message);
    if (request != NULL) {
        sl_substep_replied(request, floor);
    }
}

/* request NULL: abandoned. `clock`: the worker's clock after the request, or 0. */
static void take_reply(struct sl_shard_conn *conn, struct sl_request *request, uint32_t clock,
                       const struct sl_transport_message *message)
{
    if (request != NULL) {
        sl_flags_set(&request->waits, SL_REQUEST_IN_FLIGHT, false);
        sl_flags_set(&request->waits, SL_REQUEST_REPLY_MEMORY_LENT,
                     request == conn->reactor->direct_request);
    }
    if (message->header.status != 0) {
        refused(conn, request, message);
        return;
    }
    conn->clock.value = clock > conn->clock.value ? clock : conn->clock.value;
    if (clock > sl_cell_get(&conn->io->cells.clock)) {
        sl_cell_set(&conn->io->cells.clock, clock);
    }
    if (request != NULL && message->header.payload_bytes != request->reply_bytes) {
        shard_conn_release(conn, message);
        sl_substep_failed(request, SL_ERR_PROTOCOL, "its reply has the wrong length");
        sl_shard_conn_break(conn, "one of its replies had the wrong length", true);
        return;
    }
    succeeded(conn, request, message);
}

void sl_shard_conn_replied(struct sl_shard_conn *conn, const struct sl_transport_message *message)
{
    struct sl_inflight_entry *found =
        sl_inflight_find(&conn->inflight, sl_frame_number(message->header.request_id));
    if (found == NULL) {
        shard_conn_release(conn, message);
        sl_shard_conn_break(conn, "it answered a request that is not in flight", true);
        return;
    }
    const struct sl_inflight_entry entry = *found;
    end_flight(conn, found);
    sl_cell_add(&conn->io->cells.replies, 1);
    sl_cell_record(&conn->io->cells.request_time,
                   sl_reactor_now_ns(conn->io->reactor) - entry.sent_ns, 1);
    take_reply(conn, entry.request,
               entry.request == NULL ? entry.clock_after : clock_after(entry.request), message);
    return_buffer(conn, entry.buffer);
}

/* End of a connection */

static int by_id(const void *a, const void *b)
{
    uint64_t left = (*(struct sl_request *const *)a)->id;
    uint64_t right = (*(struct sl_request *const *)b)->id;
    return (left > right) - (left < right);
}

/* Removes a request from those in flight; drops abandoned ones. NULL: no request is left. */
static struct sl_request *take_inflight(struct sl_shard_conn *conn)
{
    struct sl_request *request = NULL;
    struct sl_inflight_entry *entry;
    while (request == NULL && (entry = sl_inflight_any(&conn->inflight)) != NULL) {
        request = entry->request;
        return_buffer(conn, entry->buffer);
        end_flight(conn, entry);
    }
    if (request != NULL) {
        sl_flags_set(&request->waits, SL_REQUEST_IN_FLIGHT | SL_REQUEST_REPLY_MEMORY_LENT, false);
    }
    return request;
}

static void fail_queued(struct sl_shard_conn *conn, struct sl_request *request, int err,
                        const char *text)
{
    sl_shard_conn_withdraw(conn, request);
    sl_substep_failed(request, err, text);
}

static bool writes(const struct sl_request *request)
{
    return request->writes;
}

static bool is_once(const struct sl_request *request)
{
    return request->is_once;
}

/* Fails queued requests that were sent before. A failure may abandon other requests of this
 * connection: restarts the search after each. */
static void fail_sent(struct sl_shard_conn *conn, bool (*fails)(const struct sl_request *),
                      const char *text)
{
    struct sl_request *at = conn->queue_first;
    while (at != NULL && at->id != 0) {
        if (fails(at)) {
            fail_queued(conn, at, SL_ERR_CLOSED, text);
            at = conn->queue_first;
        } else {
            at = at->queue_next;
        }
    }
}

void sl_shard_conn_requeue(struct sl_shard_conn *conn)
{
    struct sl_request *kept[SL_INFLIGHT_MAX];
    uint32_t count = 0;
    for (struct sl_request *request; (request = take_inflight(conn)) != NULL;) {
        sl_assert(!sl_flags_has(
            request->waits,
            SL_REQUEST_TAIL_UNSENT)); /* the transport returned all memory when it closed */
        if (request->substep->err != 0) {
            sl_substep_settle(request); /* the substep failed: the request is abandoned */
        } else {
            kept[count++] = request;
        }
    }
    qsort(kept, count, sizeof *kept, by_id);
    for (uint32_t i = count; i > 0; i--) {
        queue_insert(conn, NULL, kept[i - 1]);
    }
    fail_sent(conn, is_once, "the connection was lost while it ran: it may have had effect");
}

void sl_shard_conn_fail_writes(struct sl_shard_conn *conn, const char *text)
{
    fail_sent(conn, writes, text);
    for (struct sl_request *at = conn->queue_first; at != NULL && at->id != 0;
         at = at->queue_next) {
        at->id = 0;
    }
}

void sl_shard_conn_fail_oversized(struct sl_shard_conn *conn)
{
    struct sl_request *at = conn->queue_first;
    while (at != NULL) {
        const char *text;
        int err = sl_shard_conn_check(conn, at, &text);
        if (err != 0) {
            fail_queued(conn, at, err, text);
            at = conn->queue_first;
        } else {
            at = at->queue_next;
        }
    }
}

void sl_shard_conn_fail_all(struct sl_shard_conn *conn)
{
    for (struct sl_request *request; (request = take_inflight(conn)) != NULL;) {
        sl_substep_failed(request, SL_ERR_CLOSED, conn->reason);
    }
    while (conn->queue_first != NULL) {
        fail_queued(conn, conn->queue_first, SL_ERR_CLOSED, conn->reason);
    }
}
