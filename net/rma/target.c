#include "net/rma/target.h"

#include "core/assert.h"
#include "core/clock.h"
#include "net/rma/payload.h"

/* Returned requests that are worth a frame of their own. */
#define CREDIT_REQUESTS (SL_LIMIT_TRANSFER_SLICES / 4)

static void push(struct sl_rma_target_queue *queue, struct sl_rma_target_slice *slice)
{
    slice->next = NULL;
    if (queue->last == NULL) {
        queue->first = slice;
    } else {
        queue->last->next = slice;
    }
    queue->last = slice;
}

static struct sl_rma_target_slice *pop(struct sl_rma_target_queue *queue)
{
    struct sl_rma_target_slice *slice = queue->first;
    if (slice != NULL) {
        queue->first = slice->next;
        queue->last = queue->first == NULL ? NULL : queue->last;
    }
    return slice;
}

void sl_rma_target_init(struct sl_rma_target *target, const struct sl_rma_target_events *events,
                        void *ctx, struct sl_conn *conn, struct sl_outbox *outbox,
                        struct sl_outbox_queue *queue, void *discard)
{
    sl_assert(events->find != NULL);
    sl_assert(events->unused != NULL);
    sl_assert(conn != NULL);
    sl_assert(discard != NULL);
    *target = (struct sl_rma_target){
        .events = events,
        .ctx = ctx,
        .conn = conn,
        .outbox = outbox,
        .queue = queue,
        .discard = discard,
        .credit = {.bytes = SL_LIMIT_TRANSFER_CREDIT_BYTES, .requests = SL_LIMIT_TRANSFER_SLICES},
        .next_id = 1,
        .free_count = SL_RMA_TARGET_SLICES,
    };
    for (uint32_t i = 0; i < SL_RMA_TARGET_SLICES; i++) {
        target->slices[i].target = target;
        push(&target->free, &target->slices[i]);
    }
}

static void end_slice(struct sl_rma_target_slice *slice)
{
    struct sl_rma_target *target = slice->target;
    struct sl_rma_memory *memory = slice->memory;
    slice->memory = NULL;
    push(&target->free, slice);
    target->free_count++;
    if (memory != NULL) {
        sl_assert(memory->uses > 0);
        memory->uses--;
        if (memory->uses == 0) {
            target->events->unused(target->ctx, memory);
        }
    }
}

/* Receive */

/* Finds the memory of a slice and begins to use it; NULL with *err. */
static struct sl_rma_memory *use_memory(struct sl_rma_target *target,
                                        const struct sl_rma_wire_slice *wire, int *err)
{
    struct sl_rma_memory *memory = target->events->find(target->ctx, wire->key);
    if (memory == NULL) {
        *err = SL_ERR_NOT_FOUND;
    } else if (!(wire->op == SL_RMA_READ ? memory->peers_read : memory->peers_write)) {
        *err = SL_ERR_REFUSED;
    } else if (wire->offset > memory->bytes || wire->bytes > memory->bytes - wire->offset) {
        *err = SL_ERR_INVALID;
    } else {
        *err = 0;
        memory->uses++;
        return memory;
    }
    return NULL;
}

static int take_request(struct sl_rma_target *target, const struct sl_frame *header,
                        struct sl_bytes *cursor)
{
    uint32_t count;
    if (header->request_id < target->next_id || header->budget_us == 0 ||
        target->writes.first != NULL ||
        sl_rma_wire_read_request(cursor, header->request_id, &count) != 0) {
        return SL_ERR_PROTOCOL;
    }
    const uint64_t deadline_ns = sl_reactor_now_ns(target->conn->transport->reactor) +
                                 header->budget_us * SL_CLOCK_NS_PER_US;
    target->next_id = header->request_id + count;
    for (uint32_t i = 0; i < count; i++) {
        struct sl_rma_wire_slice wire;
        if (sl_rma_wire_read_slice(cursor, &wire) != 0 ||
            !sl_credit_spend(&target->credit, wire.bytes)) {
            return SL_ERR_PROTOCOL;
        }
        struct sl_rma_target_slice *slice = pop(&target->free);
        sl_assert(slice != NULL); /* credit never exceeds the free slices */
        target->free_count--;
        slice->memory = use_memory(target, &wire, &slice->err);
        slice->at = slice->memory == NULL ? NULL : slice->memory->base + wire.offset;
        slice->id = header->request_id + i;
        slice->deadline_ns = deadline_ns;
        slice->bytes = wire.bytes;
        push(wire.op == SL_RMA_READ ? &target->reads : &target->writes, slice);
    }
    return 0;
}

/* Returns the WRITE that the DATA belongs to; NULL: it was not announced. */
static struct sl_rma_target_slice *announced(const struct sl_rma_target *target,
                                             const struct sl_frame *header)
{
    struct sl_rma_target_slice *slice = target->writes.first;
    const bool fits = header->type == SL_FRAME_DATA && slice != NULL &&
                      slice->id == header->request_id && slice->bytes == header->payload_bytes;
    return fits ? slice : NULL;
}

void *sl_rma_target_sink(struct sl_rma_target *target, const struct sl_frame *header)
{
    const struct sl_rma_target_slice *slice = announced(target, header);
    return slice == NULL ? NULL : slice->memory == NULL ? target->discard : slice->at;
}

static int take_data(struct sl_rma_target *target, const struct sl_transport_message *message)
{
    struct sl_rma_target_slice *slice = announced(target, &message->header);
    if (slice == NULL) {
        return SL_ERR_PROTOCOL;
    }
    if (message->token != NULL && slice->memory != NULL) { /* else it was received there */
        memcpy(slice->at, message->payload, slice->bytes);
    }
    push(&target->applied, pop(&target->writes));
    return 0;
}

int sl_rma_target_received(struct sl_rma_target *target, const struct sl_transport_message *message,
                           const char **violation)
{
    sl_assert(target->conn != NULL);
    int err = SL_ERR_PROTOCOL;
    *violation = "it sent a frame of another type";
    if (message->header.type == SL_FRAME_REQUEST) {
        struct sl_bytes cursor = sl_bytes_over(message->payload, message->header.payload_bytes);
        err = take_request(target, &message->header, &cursor);
        *violation = "it sent a REQUEST that is malformed or exceeds its credit";
    } else if (message->header.type == SL_FRAME_DATA) {
        err = take_data(target, message);
        *violation = "it sent DATA that was not announced";
    }
    sl_transport_release(target->conn, message);
    return err;
}

/* Answer */

/* Returns NULL if the outbox is full. A peer that has not taken its older answers leaves half of
 * the outbox to the others. */
static uint8_t *rma_target_reserve(struct sl_rma_target *target, uint32_t payload_bytes)
{
    return target->queue->count > 0 && sl_outbox_is_half_full(target->outbox)
               ? NULL
               : sl_outbox_reserve(target->outbox, payload_bytes);
}

/* Commits a reserved frame, which returns what credit may be returned. */
static void rma_target_commit(struct sl_rma_target *target, struct sl_frame frame,
                              const uint8_t *tail, struct sl_rma_target_slice *slice,
                              void (*tail_sent)(void *ctx))
{
    struct sl_credit *credit = &target->credit, *due = &target->due;
    const uint32_t room = target->free_count - credit->requests;
    const uint32_t requests = due->requests < room ? due->requests : room;
    frame.flags = target->checksum ? SL_FRAME_CHECKSUM : 0;
    frame.credit_requests = (uint16_t)requests;
    frame.credit_bytes = (uint32_t)due->bytes;
    sl_credit_grant(credit, due->bytes, requests);
    due->requests -= requests;
    due->bytes = 0;
    sl_outbox_commit(target->outbox, target->conn, target->queue, &frame, tail,
                     tail == NULL ? 0 : frame.payload_bytes, tail_sent, slice);
}

/* Refuses the first slice of the queue. Returns false if the outbox is full. */
static bool refuse_first(struct sl_rma_target *target, struct sl_rma_target_queue *queue, int err)
{
    const char *text = sl_rma_wire_error_text(err);
    const struct sl_frame frame = {.type = SL_FRAME_REPLY,
                                   .payload_bytes = (uint32_t)strlen(text),
                                   .request_id = queue->first->id,
                                   .status = (uint8_t)-err};
    uint8_t *head = rma_target_reserve(target, frame.payload_bytes);
    if (head == NULL) {
        return false;
    }
    memcpy(head + SL_FRAME_HEADER_BYTES, text, frame.payload_bytes);
    sl_credit_grant(&target->due, queue->first->bytes, 1);
    end_slice(pop(queue));
    rma_target_commit(target, frame, NULL, NULL, NULL);
    return true;
}

/* Acknowledges the first WRITE, and those that follow it without a gap. Returns false if the outbox
 * is full. */
static bool acknowledge_run(struct sl_rma_target *target)
{
    struct sl_rma_wire_prefix applied = {0};
    const struct sl_frame frame = {.type = SL_FRAME_REPLY,
                                   .payload_bytes = sizeof applied,
                                   .request_id = target->applied.first->id};
    uint8_t *head = rma_target_reserve(target, frame.payload_bytes);
    if (head == NULL) {
        return false;
    }
    struct sl_rma_target_slice *slice;
    while ((slice = target->applied.first) != NULL && slice->err == 0 &&
           slice->id == frame.request_id + applied.slice_count &&
           applied.slice_count < SL_LIMIT_TRANSFER_SLICES) {
        applied.slice_count++;
        sl_credit_grant(&target->due, slice->bytes, 1);
        end_slice(pop(&target->applied));
    }
    memcpy(head + SL_FRAME_HEADER_BYTES, &applied, sizeof applied);
    rma_target_commit(target, frame, NULL, NULL, NULL);
    return true;
}

static void rma_target_reply_sent(void *ctx)
{
    end_slice(ctx);
}

/* Returns false if the outbox is full, or the limit on sent bytes is reached. */
static bool answer_read(struct sl_rma_target *target)
{
    struct sl_rma_target_slice *slice = target->reads.first;
    const struct sl_frame frame = {
        .type = SL_FRAME_REPLY, .payload_bytes = slice->bytes, .request_id = slice->id};
    /* A checksum would not fit memory that a WRITE changes before it is sent. */
    const bool copies = target->checksum || sl_rma_payload_is_copied(target->conn, slice->bytes);
    uint8_t *head = rma_target_reserve(target, copies ? slice->bytes : 0);
    if (head == NULL) {
        return false;
    }
    if (target->events->may_send != NULL && !target->events->may_send(target->ctx, slice->bytes)) {
        sl_outbox_abandon(target->outbox);
        return false;
    }
    (void)pop(&target->reads);
    sl_credit_grant(&target->due, slice->bytes, 1);
    if (copies) {
        memcpy(head + SL_FRAME_HEADER_BYTES, slice->at, slice->bytes);
        end_slice(slice);
        rma_target_commit(target, frame, NULL, NULL, NULL);
    } else {
        rma_target_commit(target, frame, slice->at, slice, rma_target_reply_sent);
    }
    return true;
}

static bool answer_first_read(struct sl_rma_target *target, uint64_t now_ns)
{
    const struct sl_rma_target_slice *slice = target->reads.first;
    const int err = slice->err == 0 && now_ns >= slice->deadline_ns ? SL_ERR_DEADLINE : slice->err;
    return err == 0 ? answer_read(target) : refuse_first(target, &target->reads, err);
}

static bool answer_first_write(struct sl_rma_target *target)
{
    const int err = target->applied.first->err;
    return err == 0 ? acknowledge_run(target) : refuse_first(target, &target->applied, err);
}

/* Returns credit that no reply has returned. Returns false if the outbox is full. */
static bool return_credit(struct sl_rma_target *target)
{
    const uint32_t room = target->free_count - target->credit.requests;
    if (target->due.requests < CREDIT_REQUESTS || room < CREDIT_REQUESTS) {
        return true;
    }
    if (rma_target_reserve(target, 0) == NULL) {
        return false;
    }
    rma_target_commit(target, (struct sl_frame){.type = SL_FRAME_CREDIT}, NULL, NULL, NULL);
    return true;
}

bool sl_rma_target_pump(struct sl_rma_target *target)
{
    sl_assert(target->conn != NULL);
    const uint64_t now_ns = sl_reactor_now_ns(target->conn->transport->reactor);
    bool has_room = true;
    while (has_room && target->applied.first != NULL) {
        has_room = answer_first_write(target);
    }
    while (has_room && target->reads.first != NULL) {
        has_room = answer_first_read(target, now_ns);
    }
    return !has_room || !return_credit(target);
}

bool sl_rma_target_uses(const struct sl_rma_target *target, const struct sl_rma_memory *memory)
{
    uint32_t i = 0;
    while (i < SL_RMA_TARGET_SLICES && target->slices[i].memory != memory) {
        i++;
    }
    return i < SL_RMA_TARGET_SLICES;
}

static void end_all(struct sl_rma_target_queue *queue)
{
    struct sl_rma_target_slice *slice;
    while ((slice = pop(queue)) != NULL) {
        end_slice(slice);
    }
}

void sl_rma_target_closed(struct sl_rma_target *target)
{
    end_all(&target->reads);
    end_all(&target->writes);
    end_all(&target->applied);
    sl_assert(target->free_count == SL_RMA_TARGET_SLICES);
    target->conn = NULL;
}
