#include "net/rdma/send.h"

#include <stdlib.h>
#include <string.h>

#include "core/bytes.h"
#include "net/rdma/access.h"
#include "net/rdma/conn_table.h"
#include "net/rdma/credit.h"
#include "net/rdma/long_message.h"
#include "net/rdma/packet_builder.h"
#include "net/rdma/reply_buffer.h"
#include "net/rdma/rma.h"

int sl_rdma_send_open(struct sl_rdma_conn *conn)
{
    struct sl_rdma_send *send = malloc(sizeof *send);
    if (send == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    memset(send, 0,
           offsetof(struct sl_rdma_send, flights)); /* flights and queue are written before use */
    conn->send = send;
    return 0;
}

static void drop_blocks(struct sl_rdma_send *send)
{
    while (send->flight_head != send->flight_tail) {
        sl_rdma_pool_put(send->flights[send->flight_head++ % SL_RDMA_SENDS].block);
    }
}

void sl_rdma_send_close(struct sl_rdma_conn *conn)
{
    struct sl_rdma_send *send = conn->send;
    if (send == NULL) {
        return;
    }
    drop_blocks(send);
    for (uint32_t i = send->head; i != send->tail; i++) {
        sl_rdma_long_drop(sl_rdma_entry_at(send, i));
    }
    sl_rdma_reply_buffer_close(conn);
    free(send);
    conn->send = NULL;
}

uint32_t sl_rdma_send_burst(struct sl_conn *base, const struct sl_transport_frame *frames,
                            uint32_t count)
{
    struct sl_rdma_conn *conn = (struct sl_rdma_conn *)base;
    struct sl_rdma_send *send = conn->send;
    uint32_t taken = 0;
    if (base->state != SL_CONN_OPEN) {
        return 0;
    }
    while (taken < count && send->tail - send->head < SL_RDMA_QUEUE) {
        struct sl_rdma_entry *entry = sl_rdma_entry_at(send, send->tail++);
        entry->frame = frames[taken++];
        entry->waits_device = entry->waits_peer = false;
        entry->blocks = NULL;
        sl_cell_add(&conn->rdma->base.cells->bytes_sent,
                    entry->frame.head_bytes + (uint64_t)entry->frame.payload_bytes);
    }
    send->wants_room = send->wants_room || taken < count;
    sl_rdma_mark_dirty(conn);
    return taken;
}

/* Sent frames */

static bool head_is_sent(const struct sl_rdma_conn *conn)
{
    const struct sl_rdma_entry *entry = sl_rdma_entry_at(conn->send, conn->send->head);
    return conn->send->head != conn->send->next &&
           (!entry->waits_device ||
            (int32_t)(conn->link.sends_completed - entry->device_due) >= 0) &&
           (!entry->waits_peer || (int32_t)(conn->credit.longs_done - entry->peer_due) >= 0);
}

/* The upcall may queue frames, or disconnect. */
static void report_sent(struct sl_rdma_conn *conn)
{
    struct sl_rdma_send *send = conn->send;
    while ((conn->base.state == SL_CONN_OPEN || conn->base.state == SL_CONN_CLOSING) &&
           conn->phase != SL_RDMA_ENDED && head_is_sent(conn)) {
        struct sl_rdma_entry *entry = sl_rdma_entry_at(send, send->head++);
        void *cookie = entry->frame.cookie;
        sl_rdma_long_drop(entry);
        if (send->head == send->tail) {
            send->head = send->next = send->tail = 0; /* reuse warm memory */
        } else if (sl_transport_pass_cookie(cookie,
                                            &sl_rdma_entry_at(send, send->head)->frame.cookie)) {
            continue;
        }
        sl_conn_report_sent(&conn->base, cookie);
    }
}

void sl_rdma_send_report(struct sl_rdma_conn *conn)
{
    struct sl_rdma_send *send = conn->send;
    report_sent(conn);
    if (send->wants_room && conn->base.state == SL_CONN_OPEN && conn->phase != SL_RDMA_ENDED &&
        send->tail - send->head < SL_RDMA_QUEUE) {
        send->wants_room = false;
        sl_conn_report_writable(&conn->base);
    }
    if (send->wait_buffer) {
        sl_rdma_mark_dirty(conn);
    }
}

static bool has_reports(struct sl_rdma_conn *conn)
{
    return head_is_sent(conn) || sl_rdma_rma_has_reports(conn);
}

void sl_rdma_send_completed(struct sl_rdma_conn *conn, uint32_t number)
{
    struct sl_rdma_link *link = &conn->link;
    struct sl_rdma_send *send = conn->send;
    uint32_t newly = (number - link->sends_completed) & SL_RDMA_WR_NUMBERS;
    if (newly > link->sends_posted - link->sends_completed) {
        return; /* a later completion covered this one */
    }
    link->sends_completed += newly;
    while (send->flight_head != send->flight_tail) {
        struct sl_rdma_flight *flight = &send->flights[send->flight_head % SL_RDMA_SENDS];
        if ((int32_t)(link->sends_completed - flight->number) < 0) {
            break;
        }
        send->flight_head++;
        sl_rdma_pool_put(flight->block);
    }
    if (send->next != send->tail || sl_rdma_credit_owes(conn) || sl_rdma_rma_is_queued(conn)) {
        sl_rdma_mark_dirty(conn);
    }
    if (has_reports(conn)) {
        sl_rdma_mark_ready(conn);
    }
}

/* Packets of queued frames */

static const uint8_t zeros[8];

/* A position in the queue. */
struct cursor {
    uint32_t next, offset;
};

static uint32_t payload_bytes_of(const uint8_t *head)
{
    uint32_t bytes;
    memcpy(&bytes, head + offsetof(struct sl_frame, payload_bytes), sizeof bytes);
    return bytes;
}

/* The frame at the cursor: all that is left of its entry, unless more frames follow in the
 * entry's head. */
static struct sl_rdma_view view_at(struct sl_rdma_send *send, const struct cursor *cursor)
{
    struct sl_rdma_entry *entry = sl_rdma_entry_at(send, cursor->next);
    const struct sl_transport_frame *frame = &entry->frame;
    struct sl_rdma_view view = {.entry = entry,
                                .head = (const uint8_t *)frame->head + cursor->offset,
                                .tail = frame->payload,
                                .head_bytes = frame->head_bytes - cursor->offset,
                                .tail_bytes = frame->payload_bytes,
                                .head_left = frame->head_bytes - cursor->offset};
    uint64_t bytes = (uint64_t)SL_FRAME_HEADER_BYTES + payload_bytes_of(view.head);
    if (view.head_left > bytes && view.head_left - bytes >= SL_FRAME_HEADER_BYTES) {
        view.head_bytes = (uint32_t)bytes;
        view.tail_bytes = 0;
    }
    return view;
}

static void step_over(struct cursor *cursor, const struct sl_rdma_view *view)
{
    cursor->offset += view->head_bytes;
    if (view->head_bytes == view->head_left) {
        cursor->next++;
        cursor->offset = 0;
    }
}

/* False: the frame does not fit. */
static bool add_frame(struct sl_rdma_conn *conn, struct sl_rdma_packet_builder *builder,
                      const struct sl_rdma_view *view)
{
    uint32_t pad = (uint32_t)sl_bytes_pad8(builder->frame_bytes) - builder->frame_bytes;
    if (builder->part_count + 3 > SL_RDMA_PARTS ||
        sl_rdma_packet_builder_bytes(builder) + pad + view->head_bytes + view->tail_bytes >
            SL_RDMA_PACKET_BYTES ||
        sl_rdma_long_is(conn, view)) {
        return false;
    }
    sl_rdma_packet_builder_add(builder, zeros, pad);
    sl_rdma_packet_builder_add(builder, view->head, view->head_bytes);
    sl_rdma_packet_builder_add(builder, view->tail, view->tail_bytes);
    return true;
}

/* A reply in a FRAMES packet uses up its request's reply buffer. */
static void forget_reply_buffer(struct sl_rdma_conn *conn, const struct sl_rdma_view *view)
{
    struct sl_frame header;
    if (conn->send->reply_buffers != NULL) {
        memcpy(&header, view->head, sizeof header);
        if (header.type == SL_FRAME_REPLY) {
            sl_rdma_reply_buffer_forget(conn, header.request_id);
        }
    }
}

/* The frames up to `to` are in the last packet. */
static void rdma_send_advance(struct sl_rdma_send_batch *batch, const struct cursor *to,
                              bool by_reference)
{
    struct sl_rdma_send *send = batch->conn->send;
    uint32_t end = to->offset > 0 ? to->next + 1 : to->next;
    for (uint32_t i = send->next; by_reference && i != end; i++) {
        struct sl_rdma_entry *entry = sl_rdma_entry_at(send, i);
        entry->waits_device = true;
        entry->device_due = sl_rdma_send_batch_number(batch);
    }
    send->next = to->next;
    send->offset = to->offset;
    batch->conn->credit.counted_sent++;
}

static bool pack_short(struct sl_rdma_send_batch *batch)
{
    struct sl_rdma_conn *conn = batch->conn;
    struct sl_rdma_send *send = conn->send;
    struct sl_rdma_packet_builder builder;
    builder.kind = SL_RDMA_FRAMES;
    builder.remote_sge_count = builder.reply_buffer_count = 0;
    builder.frame_bytes = builder.part_count = 0;
    builder.block = NULL;
    struct cursor cursor = {.next = send->next, .offset = send->offset};
    uint32_t frames = 0;
    while (cursor.next != send->tail) {
        struct sl_rdma_view view = view_at(send, &cursor);
        if (!add_frame(conn, &builder, &view)) {
            break;
        }
        forget_reply_buffer(conn, &view);
        step_over(&cursor, &view);
        frames++;
    }
    bool stalls =
        conn->credit.counted_sent + 1 == conn->credit.limit_theirs && cursor.next != send->tail;
    builder.flags = stalls ? SL_RDMA_STALLED : 0;
    bool by_reference;
    if (!sl_rdma_packet_builder_emit(batch, &builder, &by_reference)) {
        send->wait_buffer = true;
        return false;
    }
    sl_cell_add(&conn->rdma->base.cells->frames_sent, frames);
    rdma_send_advance(batch, &cursor, by_reference);
    return true;
}

/* Makes one packet of the next queued frames. False: none can be made now. */
static bool pack(struct sl_rdma_send_batch *batch)
{
    struct sl_rdma_conn *conn = batch->conn;
    struct sl_rdma_send *send = conn->send;
    if (send->next == send->tail || !sl_rdma_credit_left(conn)) {
        return false;
    }
    struct cursor cursor = {.next = send->next, .offset = send->offset};
    struct sl_rdma_view view = view_at(send, &cursor);
    if (!sl_rdma_long_is(conn, &view)) {
        return sl_rdma_send_batch_reserve(batch, 1, conn->nic->caps.sge_max) && pack_short(batch);
    }
    step_over(&cursor, &view);
    if (!sl_rdma_long_pack(batch, &view, cursor.next != send->tail)) {
        return false;
    }
    sl_cell_add(&conn->rdma->base.cells->frames_sent, 1);
    rdma_send_advance(batch, &cursor, false);
    return true;
}

/* Sending */

/* CREDIT_UPDATE, FIN. False: no room. */
static bool add_uncounted(struct sl_rdma_send_batch *batch, enum sl_rdma_packet_kind kind,
                          uint8_t flags)
{
    bool by_reference;
    struct sl_rdma_packet_builder builder = {.kind = kind, .flags = flags};
    if (!sl_rdma_send_batch_reserve(batch, 1, batch->conn->nic->caps.sge_max)) {
        return false;
    }
    batch->wants_signal = batch->wants_signal || kind == SL_RDMA_FIN;
    return sl_rdma_packet_builder_emit(batch, &builder, &by_reference);
}

bool sl_rdma_send_uncounted(struct sl_rdma_conn *conn, enum sl_rdma_packet_kind kind, uint8_t flags)
{
    struct sl_rdma_send_batch batch;
    sl_rdma_send_batch_begin(&batch, conn);
    return add_uncounted(&batch, kind, flags) && sl_rdma_send_batch_post(&batch);
}

static void add_note(struct sl_rdma_send_batch *batch)
{
    struct sl_rdma_conn *conn = batch->conn;
    bool stalls = conn->send->next != conn->send->tail && !sl_rdma_credit_left(conn);
    if (!add_uncounted(batch, SL_RDMA_CREDIT_UPDATE, stalls ? SL_RDMA_STALLED : 0)) {
        sl_rdma_mark_waiting(conn);
    }
}

void sl_rdma_send_flush(struct sl_rdma_conn *conn)
{
    struct sl_rdma_send *send = conn->send;
    struct sl_rdma_send_batch batch;
    if (!sl_rdma_may_post(conn)) {
        return;
    }
    /* With one-sided operations the upper layer admits the peer. */
    if (conn->link.is_shut && conn->base.is_welcome && conn->rdma->base.rma_events == NULL &&
        !sl_rdma_access_open(conn)) {
        return;
    }
    send->wait_buffer = false;
    sl_rdma_send_batch_begin(&batch, conn);
    while (pack(&batch)) {
    }
    sl_rdma_rma_pack(&batch);
    if (sl_rdma_credit_owes(conn)) {
        add_note(&batch);
    }
    if (!sl_rdma_send_batch_post(&batch) || conn->phase == SL_RDMA_ENDED) {
        return;
    }
    if (has_reports(conn)) {
        sl_rdma_mark_ready(conn);
    } else if (send->wait_buffer) {
        sl_rdma_mark_waiting(conn);
    }
}

bool sl_rdma_send_is_done(const struct sl_rdma_conn *conn)
{
    const struct sl_rdma_send *send = conn->send;
    return send->head == send->tail && conn->credit.longs_sent == conn->credit.longs_done &&
           (int32_t)(conn->link.sends_completed - send->signalled) >= 0;
}

bool sl_rdma_send_waits(const struct sl_rdma_conn *conn)
{
    const struct sl_rdma_send *send = conn->send;
    return conn->credit.longs_sent != conn->credit.longs_done ||
           (send->next != send->tail && !sl_rdma_credit_left(conn));
}
