#include "net/rma/initiator.h"

#include "core/assert.h"
#include "net/rma/payload.h"

#define TEXT_BYTES 128

static struct sl_rma_slice *initiator_slice_of(struct sl_list_link *link)
{
    return SL_CONTAINER_OF(link, struct sl_rma_slice, link);
}

void sl_rma_initiator_init(struct sl_rma_initiator *lane,
                           const struct sl_rma_initiator_events *events, void *ctx)
{
    sl_assert(events->done != NULL);
    *lane = (struct sl_rma_initiator){.events = events, .ctx = ctx, .next_id = 1};
    sl_list_init(&lane->in_flight);
}

void sl_rma_initiator_open(struct sl_rma_initiator *lane, struct sl_conn *conn,
                           struct sl_outbox *outbox, struct sl_outbox_queue *queue,
                           struct sl_credit credit)
{
    sl_assert(lane->conn == NULL);
    sl_assert(conn != NULL);
    lane->conn = conn;
    lane->outbox = outbox;
    lane->queue = queue;
    lane->credit = credit;
}

static void note_progress(struct sl_rma_initiator *lane)
{
    lane->answered_ns = sl_reactor_now_ns(lane->conn->transport->reactor);
}

/* Send */

/* Returns how many of the slices the credit allows. */
static uint32_t affordable(const struct sl_rma_initiator *lane, struct sl_rma_slice *const *slices,
                           uint32_t count)
{
    struct sl_credit left = lane->credit;
    uint32_t affordable_count = 0;
    while (affordable_count < count && sl_credit_spend(&left, slices[affordable_count]->bytes)) {
        affordable_count++;
    }
    return affordable_count;
}

static bool send_request(struct sl_rma_initiator *lane, struct sl_rma_slice *const *slices,
                         uint32_t count, uint32_t budget_us)
{
    const struct sl_frame frame = {.type = SL_FRAME_REQUEST,
                                   .payload_bytes = sl_rma_wire_request_bytes(count),
                                   .request_id = lane->next_id,
                                   .budget_us = budget_us};
    uint8_t *head = sl_outbox_reserve(lane->outbox, frame.payload_bytes);
    if (head == NULL) {
        return false;
    }
    struct sl_bytes_writer writer =
        sl_bytes_writer_over(head + SL_FRAME_HEADER_BYTES, frame.payload_bytes);
    const struct sl_rma_wire_prefix prefix = {.slice_count = count};
    sl_bytes_put(&writer, &prefix, sizeof prefix);
    for (uint32_t i = 0; i < count; i++) {
        const struct sl_rma_wire_slice slice = {.key = slices[i]->key,
                                                .offset = slices[i]->offset,
                                                .bytes = slices[i]->bytes,
                                                .op = (uint8_t)slices[i]->op};
        sl_bytes_put(&writer, &slice, sizeof slice);
    }
    sl_outbox_commit(lane->outbox, lane->conn, lane->queue, &frame, NULL, 0, NULL, NULL);
    return true;
}

static void initiator_finish(struct sl_rma_slice *slice, const char *text)
{
    struct sl_rma_initiator *lane = slice->lane;
    sl_list_remove(&slice->link);
    lane->in_flight_count--;
    lane->in_flight_bytes -= slice->bytes;
    lane->events->done(lane->ctx, slice, slice->err, text);
}

static void data_sent(void *ctx)
{
    struct sl_rma_slice *slice = ctx;
    slice->is_lent = false;
    if (slice->is_answered) {
        initiator_finish(slice, slice->err == 0 ? "" : sl_rma_wire_error_text(slice->err));
    }
}

/* Returns false if the outbox is full. */
static bool send_data(struct sl_rma_initiator *lane, struct sl_rma_slice *slice)
{
    const bool copies = sl_rma_payload_is_copied(lane->conn, slice->bytes);
    const uint32_t near_bytes = copies ? slice->bytes : 0;
    uint8_t *head = sl_outbox_reserve(lane->outbox, near_bytes);
    if (head == NULL) {
        return false;
    }
    memcpy(head + SL_FRAME_HEADER_BYTES, slice->local, near_bytes);
    slice->is_lent = !copies;
    const struct sl_frame frame = {
        .type = SL_FRAME_DATA, .payload_bytes = slice->bytes, .request_id = slice->id};
    sl_outbox_commit(lane->outbox, lane->conn, lane->queue, &frame, copies ? NULL : slice->local,
                     slice->bytes - near_bytes, copies ? NULL : data_sent, slice);
    return true;
}

/* Returns the first WRITE from the link on. */
static struct sl_rma_slice *first_write(struct sl_rma_initiator *lane, struct sl_list_link *link)
{
    while (link != &lane->in_flight.head && initiator_slice_of(link)->op != SL_RMA_WRITE) {
        link = link->next;
    }
    return link == &lane->in_flight.head ? NULL : initiator_slice_of(link);
}

void sl_rma_initiator_pump(struct sl_rma_initiator *lane)
{
    while (lane->unsent != NULL && lane->conn->state == SL_CONN_OPEN &&
           send_data(lane, lane->unsent)) {
        lane->unsent = first_write(lane, lane->unsent->link.next);
    }
}

uint32_t sl_rma_initiator_send(struct sl_rma_initiator *lane, struct sl_rma_slice *const *slices,
                               uint32_t count, uint32_t budget_us)
{
    sl_assert(lane->conn != NULL);
    sl_assert(count <= SL_LIMIT_TRANSFER_SLICES);
    sl_assert(budget_us > 0);
    if (lane->conn->state != SL_CONN_OPEN) { /* it is ending: `closed` follows */
        return 0;
    }
    sl_rma_initiator_pump(lane);
    count = affordable(lane, slices, count);
    if (lane->unsent != NULL || count == 0 || !send_request(lane, slices, count, budget_us)) {
        return 0;
    }
    if (lane->in_flight_count == 0) {
        note_progress(lane);
    }
    for (uint32_t i = 0; i < count; i++) {
        struct sl_rma_slice *slice = slices[i];
        sl_assert(slice->bytes >= 1);
        sl_assert(slice->bytes <= SL_LIMIT_FRAME_PAYLOAD_BYTES);
        slice->link = (struct sl_list_link){0};
        slice->lane = lane;
        slice->id = lane->next_id++;
        slice->err = 0;
        slice->is_answered = slice->is_lent = false;
        sl_list_append(&lane->in_flight, &slice->link);
        lane->in_flight_bytes += slice->bytes;
        (void)sl_credit_spend(&lane->credit, slice->bytes);
    }
    lane->in_flight_count += count;
    lane->unsent = first_write(lane, &slices[0]->link);
    sl_rma_initiator_pump(lane);
    return count;
}

/* Receive */

/* Returns the slice that may be answered with this id; NULL: none. A WRITE must have been sent. */
static struct sl_rma_slice *initiator_find(struct sl_rma_initiator *lane, uint64_t id)
{
    SL_LIST_EACH (struct sl_rma_slice, slice, link, &lane->in_flight) {
        if (slice->id >= id) {
            const bool is_sent =
                slice->op == SL_RMA_READ || lane->unsent == NULL || slice->id < lane->unsent->id;
            return slice->id == id && is_sent && !slice->is_answered ? slice : NULL;
        }
    }
    return NULL;
}

void *sl_rma_initiator_sink(struct sl_rma_initiator *lane, const struct sl_frame *header)
{
    const struct sl_rma_slice *slice = header->type == SL_FRAME_REPLY && header->status == 0
                                           ? initiator_find(lane, header->request_id)
                                           : NULL;
    const bool fits =
        slice != NULL && slice->op == SL_RMA_READ && slice->bytes == header->payload_bytes;
    return fits ? slice->local : NULL;
}

static void initiator_answered(struct sl_rma_slice *slice, int err, const char *text)
{
    slice->is_answered = true;
    slice->err = err;
    if (!slice->is_lent) {
        initiator_finish(slice, text);
    }
}

static int read_error(const struct sl_frame *header)
{
    return header->status <= -SL_ERR_CANCELLED ? -(int)header->status : SL_ERR_PROTOCOL;
}

/* Takes the bytes of a READ. */
static int read_answered(struct sl_rma_slice *slice, const struct sl_transport_message *message,
                         const char **violation)
{
    struct sl_conn *conn = slice->lane->conn;
    if (message->header.payload_bytes != slice->bytes) {
        *violation = "it answered a READ with another length";
        sl_transport_release(conn, message);
        return SL_ERR_PROTOCOL;
    }
    if (message->token != NULL) { /* else they were received there */
        memcpy(slice->local, message->payload, slice->bytes);
    }
    sl_transport_release(conn, message);
    initiator_answered(slice, 0, "");
    return 0;
}

static int writes_applied(struct sl_rma_initiator *lane, uint64_t id,
                          const struct sl_transport_message *message, const char **violation)
{
    struct sl_bytes cursor = sl_bytes_over(message->payload, message->header.payload_bytes);
    uint32_t count = 0;
    int err = sl_rma_wire_read_applied(&cursor, &count);
    sl_transport_release(lane->conn, message);
    for (uint32_t i = 0; err == 0 && i < count; i++) {
        struct sl_rma_slice *slice = initiator_find(lane, id + i);
        if (slice == NULL || slice->op != SL_RMA_WRITE) {
            err = SL_ERR_PROTOCOL;
        } else {
            initiator_answered(slice, 0, "");
        }
    }
    if (err != 0) {
        *violation = "it acknowledged WRITEs that are not in flight";
    }
    return err;
}

static void refused(struct sl_rma_slice *slice, const struct sl_transport_message *message)
{
    char text[TEXT_BYTES];
    sl_reason_copy_printable(text, sizeof text, message->payload, message->header.payload_bytes);
    sl_transport_release(slice->lane->conn, message);
    const int err = read_error(&message->header);
    initiator_answered(slice, err, text[0] == '\0' ? sl_rma_wire_error_text(err) : text);
}

int sl_rma_initiator_received(struct sl_rma_initiator *lane,
                              const struct sl_transport_message *message, const char **violation)
{
    sl_assert(lane->conn != NULL);
    const struct sl_frame header = message->header;
    sl_credit_grant(&lane->credit, header.credit_bytes, header.credit_requests);
    if (header.type == SL_FRAME_CREDIT) {
        sl_transport_release(lane->conn, message);
        return 0;
    }
    struct sl_rma_slice *slice =
        header.type == SL_FRAME_REPLY ? initiator_find(lane, header.request_id) : NULL;
    if (slice == NULL) {
        *violation = "it sent a frame that answers nothing";
        sl_transport_release(lane->conn, message);
        return SL_ERR_PROTOCOL;
    }
    note_progress(lane);
    if (header.status != 0) {
        refused(slice, message);
        return 0;
    }
    return slice->op == SL_RMA_READ ? read_answered(slice, message, violation)
                                    : writes_applied(lane, header.request_id, message, violation);
}

void sl_rma_initiator_closed(struct sl_rma_initiator *lane, int err, const char *text)
{
    sl_assert(err < 0);
    struct sl_list over;
    sl_list_init(&over);
    sl_list_append_all(&over, &lane->in_flight);
    lane->conn = NULL;
    lane->unsent = NULL;
    lane->credit = (struct sl_credit){0};
    lane->in_flight_count = 0;
    lane->in_flight_bytes = 0;
    SL_LIST_TAKE (struct sl_rma_slice, slice, link, &over) {
        sl_assert(!slice->is_lent);
        lane->events->done(lane->ctx, slice, err, text);
    }
}
