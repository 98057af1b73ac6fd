#include <stdlib.h>
#include <string.h>

#include "core/bytes.h"
#include "net/rdma/send.h"

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
        conn->rdma->stats.bytes_sent +=
            entry->frame.head_bytes + (uint64_t)entry->frame.payload_bytes;
    }
    send->wants_room = send->wants_room || taken < count;
    sl_rdma_mark_dirty(conn);
    return taken;
}

/* Sent frames */

static bool is_sent(struct sl_rdma_conn *conn, uint32_t index)
{
    const struct sl_rdma_entry *entry = sl_rdma_entry_at(conn->send, index);
    return index != conn->send->next &&
           (!entry->waits_device ||
            (int32_t)(conn->link.sends_completed - entry->device_due) >= 0) &&
           (!entry->waits_peer || (int32_t)(conn->longs_done - entry->peer_due) >= 0);
}

/* End of the run at the head if all of it is sent; else the head. */
static uint32_t sent_run(struct sl_rdma_conn *conn)
{
    struct sl_rdma_send *send = conn->send;
    if (send->head == send->next || !is_sent(conn, send->head)) {
        return send->head;
    }
    uint32_t end = send->head + 1;
    while (end != send->tail &&
           sl_rdma_entry_at(send, end)->frame.cookie == SL_TRANSPORT_COALESCED) {
        if (!is_sent(conn, end)) {
            return send->head;
        }
        end++;
    }
    return end;
}

static void take_out(struct sl_rdma_conn *conn, uint32_t end)
{
    struct sl_rdma_send *send = conn->send;
    while (send->head != end) {
        sl_rdma_long_drop(sl_rdma_entry_at(send, send->head++));
    }
    if (send->head == send->tail) {
        send->head = send->next = send->tail = 0; /* reuse warm memory */
    }
}

/* The upcall may queue frames, or disconnect. */
static void report_sent(struct sl_rdma_conn *conn)
{
    struct sl_rdma_send *send = conn->send;
    uint32_t end;
    while ((conn->base.state == SL_CONN_OPEN || conn->base.state == SL_CONN_CLOSING) &&
           conn->phase != SL_RDMA_ENDED && (end = sent_run(conn)) != send->head) {
        void *cookie = sl_rdma_entry_at(send, send->head)->frame.cookie;
        take_out(conn, end);
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
    return sent_run(conn) != conn->send->head;
}

void sl_rdma_send_completed(struct sl_rdma_conn *conn, uint32_t number)
{
    struct sl_rdma_link *link = &conn->link;
    struct sl_rdma_send *send = conn->send;
    uint32_t newly = (number - link->sends_completed) & 0xfffff;
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
    if (send->next != send->tail || sl_rdma_credit_owes(conn)) {
        sl_rdma_mark_dirty(conn);
    }
    if (has_reports(conn)) {
        sl_rdma_mark_ready(conn);
    }
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
    if (conn->link.is_shut && conn->base.is_welcome && !sl_rdma_access_open(conn)) {
        return;
    }
    send->wait_buffer = false;
    sl_rdma_send_batch_begin(&batch, conn);
    while (sl_rdma_pack(&batch)) {
    }
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
    return send->head == send->tail && conn->longs_sent == conn->longs_done &&
           (int32_t)(conn->link.sends_completed - send->signalled) >= 0;
}

bool sl_rdma_send_waits(const struct sl_rdma_conn *conn)
{
    const struct sl_rdma_send *send = conn->send;
    return conn->longs_sent != conn->longs_done ||
           (send->next != send->tail && !sl_rdma_credit_left(conn));
}
