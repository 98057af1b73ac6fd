#include "net/dpdk/send_queue.h"

#include <stdlib.h>

void sl_dpdk_send_close(struct sl_dpdk_conn *conn)
{
    struct sl_dpdk_sending *send = conn->send;
    if (send != NULL) {
        free(send->entries);
        free(send->messages);
        free(send->lost);
        free(send);
        conn->send = NULL;
    }
}

int sl_dpdk_send_open(struct sl_dpdk_conn *conn)
{
    struct sl_dpdk_sending *send = calloc(1, sizeof *send);
    if (send == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    conn->send = send;
    send->ask_pause_ns = SL_DPDK_ASK_NS_MIN;
    send->entries = sl_dpdk_ring_open(&send->entries_mask, sizeof *send->entries);
    send->messages = sl_dpdk_ring_open(&send->messages_mask, sizeof *send->messages);
    send->lost = sl_dpdk_ring_open(&send->lost_mask, sizeof *send->lost);
    if (send->entries == NULL || send->messages == NULL || send->lost == NULL) {
        sl_dpdk_send_close(conn);
        return SL_ERR_NO_MEMORY;
    }
    return 0;
}

bool sl_dpdk_send_is_done(const struct sl_dpdk_conn *conn)
{
    return conn->send->head == conn->send->tail;
}

/* Memory */

static bool grow_entries(struct sl_dpdk_sending *send)
{
    if (send->entries_mask + 1 == SL_DPDK_QUEUE) {
        return false;
    }
    struct sl_dpdk_entry *grown = sl_dpdk_ring_grow(send->entries, &send->entries_mask,
                                                    sizeof *send->entries, send->head, send->tail);
    send->entries = grown != NULL ? grown : send->entries;
    return grown != NULL;
}

static bool send_queue_has_room(struct sl_dpdk_sending *send)
{
    return send->tail - send->head <= send->entries_mask || grow_entries(send);
}

/* The ring does not move while the device has pointers to `reading` counts in it. */
bool sl_dpdk_queue_takes_message(struct sl_dpdk_conn *conn)
{
    struct sl_dpdk_sending *send = conn->send;
    if (send->message_next - send->message_first <= send->messages_mask) {
        return true;
    }
    if (send->messages_mask + 1 == SL_DPDK_MESSAGES || sl_dpdk_send_is_reading(conn)) {
        return false;
    }
    struct sl_dpdk_message *grown =
        sl_dpdk_ring_grow(send->messages, &send->messages_mask, sizeof *send->messages,
                          send->message_first, send->message_next);
    send->messages = grown != NULL ? grown : send->messages;
    return grown != NULL;
}

bool sl_dpdk_queue_takes_lost(struct sl_dpdk_conn *conn)
{
    struct sl_dpdk_sending *send = conn->send;
    while (send->lost_mask < conn->sent_packets.mask) {
        struct sl_dpdk_lost *grown = sl_dpdk_ring_grow(
            send->lost, &send->lost_mask, sizeof *send->lost, send->lost_head, send->lost_tail);
        if (grown == NULL) {
            return false;
        }
        send->lost = grown;
    }
    return true;
}

void sl_dpdk_send_shrink(struct sl_dpdk_conn *conn)
{
    struct sl_dpdk_sending *send = conn->send;
    if (!sl_dpdk_sent_packets_none(&conn->sent_packets) || send->head != send->tail ||
        send->message_first != send->message_next || send->lost_head != send->lost_tail) {
        return;
    }
    sl_dpdk_sent_packets_shrink(&conn->sent_packets);
    send->entries = sl_dpdk_ring_shrink(send->entries, &send->entries_mask, sizeof *send->entries);
    send->messages =
        sl_dpdk_ring_shrink(send->messages, &send->messages_mask, sizeof *send->messages);
    send->lost = sl_dpdk_ring_shrink(send->lost, &send->lost_mask, sizeof *send->lost);
}

uint32_t sl_dpdk_send_progress(const struct sl_dpdk_conn *conn)
{
    return conn->offered + conn->send->message_first;
}

/* Queued frames */

uint32_t sl_dpdk_send_burst(struct sl_conn *base, const struct sl_transport_frame *frames,
                            uint32_t count)
{
    struct sl_dpdk_conn *conn = (struct sl_dpdk_conn *)base;
    struct sl_dpdk_sending *send = conn->send;
    uint32_t taken = 0;
    if (base->state != SL_CONN_OPEN) {
        return 0;
    }
    while (taken < count && send_queue_has_room(send)) {
        const struct sl_transport_frame *frame = &frames[taken++];
        *sl_dpdk_entry_at(send, send->tail++) = (struct sl_dpdk_entry){
            .head = frame->head,
            .payload = frame->payload,
            .head_bytes = frame->head_bytes,
            .payload_bytes = frame->payload_bytes,
            .cookie = frame->cookie,
        };
        sl_cell_add(&conn->dpdk->base.cells->bytes_sent,
                    frame->head_bytes + (uint64_t)frame->payload_bytes);
    }
    send->wants_room = send->wants_room || taken < count;
    sl_dpdk_mark_dirty(conn);
    return taken;
}

/* Acknowledged messages */

static bool first_has_come(struct sl_dpdk_sending *send)
{
    return send->message_first != send->message_next &&
           sl_dpdk_message_at(send, send->message_first)->pending == 0;
}

/* An acknowledged message may also be in a retransmission that the device has not read yet. */
static void send_queue_advance(struct sl_dpdk_sending *send)
{
    const struct sl_dpdk_message *first;
    while (first_has_come(send) &&
           (first = sl_dpdk_message_at(send, send->message_first))->reading == 0) {
        send->done = first->entries_end;
        send->message_first++;
    }
}

void sl_dpdk_queue_came(struct sl_dpdk_conn *conn, uint32_t number)
{
    sl_dpdk_message_at(conn->send, number)->pending--;
    send_queue_advance(conn->send);
}

bool sl_dpdk_queue_is_ready(struct sl_dpdk_sending *send)
{
    return send->head != send->done || first_has_come(send);
}

bool sl_dpdk_send_is_reading(const struct sl_dpdk_conn *conn)
{
    struct sl_dpdk_sending *send = conn->send;
    for (uint32_t number = send->message_first; number != send->message_next; number++) {
        if (sl_dpdk_message_at(send, number)->reading > 0) {
            return true;
        }
    }
    return false;
}

void sl_dpdk_send_all_came(struct sl_dpdk_conn *conn)
{
    struct sl_dpdk_sending *send = conn->send;
    if (send->next.entry == send->tail && !sl_dpdk_send_is_reading(conn)) {
        send->done = send->tail;
        send->message_first = send->message_next;
        send->lost_head = send->lost_tail;
    }
}

static bool reports_to(const struct sl_dpdk_conn *conn)
{
    return (conn->base.state == SL_CONN_OPEN || conn->base.state == SL_CONN_CLOSING) &&
           (conn->phase == SL_DPDK_LIVE || conn->phase == SL_DPDK_DRAINING);
}

/* The upcalls may queue more frames, and may disconnect. */
void sl_dpdk_send_report(struct sl_dpdk_conn *conn)
{
    struct sl_dpdk_sending *send = conn->send;
    send_queue_advance(send);
    while (reports_to(conn) && send->head != send->done) {
        void *cookie = sl_dpdk_entry_at(send, send->head++)->cookie;
        if (send->head == send->tail) { /* reuse the same memory, which is in the cache */
            send->head = send->done = send->tail = 0;
            send->next = (struct sl_dpdk_place){0};
        } else if (sl_transport_pass_cookie(cookie, &sl_dpdk_entry_at(send, send->head)->cookie)) {
            continue;
        }
        sl_conn_report_sent(&conn->base, cookie);
    }
    if (send->wants_room && conn->phase == SL_DPDK_LIVE && conn->base.state == SL_CONN_OPEN &&
        send_queue_has_room(send)) {
        send->wants_room = false;
        sl_conn_report_writable(&conn->base);
    }
    if (first_has_come(send)) {
        sl_dpdk_mark_ready(conn);
    }
    if (send->goes_on) {
        send->goes_on = false;
        sl_dpdk_mark_dirty(conn);
    }
}
