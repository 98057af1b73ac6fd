/* Handles acknowledged and lost packets of a connection. */
#include "net/dpdk/ack.h"

#include "net/dpdk/send.h"
#include "net/dpdk/send_queue.h"

struct heard {
    struct sl_dpdk_conn *conn;
    uint32_t came_bytes, lost_bytes;
    bool is_lost;
};

static void on_came(void *ctx, const struct sl_dpdk_sent_packet *sent_packet)
{
    struct heard *heard = ctx;
    heard->came_bytes += sent_packet->body_bytes;
    if (sent_packet->kind == SL_DPDK_DATA || sent_packet->kind == SL_DPDK_BUNDLE) {
        sl_dpdk_queue_came(heard->conn, sent_packet->message);
    } else if (sent_packet->kind == SL_DPDK_FIN) {
        heard->conn->end.fin = SL_DPDK_FIN_ACKNOWLEDGED;
        sl_dpdk_mark_ready(heard->conn);
    } else if (sent_packet->kind == SL_DPDK_PROBE && sent_packet->offset != 0) {
        heard->conn->liveness.full_size_acked = true;
    }
}

static void ack_on_lost(void *ctx, const struct sl_dpdk_sent_packet *sent_packet)
{
    struct heard *heard = ctx;
    struct sl_dpdk_sending *send = heard->conn->send;
    heard->lost_bytes += sent_packet->body_bytes;
    heard->is_lost = true;
    switch (sent_packet->kind) {
    case SL_DPDK_DATA:
    case SL_DPDK_BUNDLE:
        *sl_dpdk_lost_at(send, send->lost_tail++) =
            (struct sl_dpdk_lost){.message = sent_packet->message,
                                  .offset = sent_packet->offset,
                                  .body_bytes = sent_packet->body_bytes,
                                  .kind = sent_packet->kind};
        break;
    case SL_DPDK_FIN:
        send->due.fin = true;
        break;
    case SL_DPDK_PROBE: /* the sender probes again by itself; only a full-size probe is
                           retransmitted */
        send->due.wide = send->due.wide || (sent_packet->offset != 0 && send->due.wide_tries > 0);
        send->due.wide_tries -= send->due.wide && send->due.wide_tries > 0;
        break;
    default:
        break;
    }
}

static struct sl_dpdk_sent_packet_events events_of(struct heard *heard)
{
    return (struct sl_dpdk_sent_packet_events){.came = on_came, .lost = ack_on_lost, .ctx = heard};
}

static void note_lost(const struct heard *heard, uint64_t now_ns)
{
    if (heard->is_lost) {
        sl_dpdk_rate_lost(&heard->conn->rate, &heard->conn->sent_packets.rtt, heard->lost_bytes,
                          now_ns);
        sl_dpdk_mark_dirty(heard->conn);
    }
}

static bool has_more(const struct sl_dpdk_sending *send)
{
    return send->lost_head != send->lost_tail || send->next.entry != send->tail;
}

bool sl_dpdk_send_acknowledged(struct sl_dpdk_conn *conn, const struct sl_dpdk_parsed *parsed)
{
    struct sl_dpdk_sending *send = conn->send;
    const struct sl_dpdk_header *header = &parsed->header;
    struct heard heard = {.conn = conn};
    struct sl_dpdk_sent_packet_events events = events_of(&heard);
    uint64_t now_ns = sl_dpdk_now_ns(conn->dpdk);
    if (!sl_dpdk_sent_packets_acknowledged(&conn->sent_packets, header->acknowledged, parsed->sack,
                                           parsed->sack_words, now_ns, &events)) {
        return false;
    }
    if (sl_dpdk_before(conn->granted_theirs, header->granted)) {
        conn->granted_theirs = header->granted;
    }
    conn->base.taken_bytes += heard.came_bytes;
    if (heard.came_bytes > 0) {
        sl_dpdk_rate_acknowledged(&conn->rate, &conn->sent_packets.rtt, heard.came_bytes, now_ns);
    }
    note_lost(&heard, now_ns);
    if (sl_dpdk_queue_is_ready(send)) {
        sl_dpdk_mark_ready(conn);
    }
    if (has_more(send)) {
        sl_dpdk_mark_dirty(conn);
    }
    return true;
}

void sl_dpdk_send_expired(struct sl_dpdk_conn *conn)
{
    struct heard heard = {.conn = conn};
    struct sl_dpdk_sent_packet_events events = events_of(&heard);
    uint64_t now_ns = sl_dpdk_now_ns(conn->dpdk);
    if (sl_dpdk_sent_packets_expire(&conn->sent_packets, now_ns, &events)) {
        sl_dpdk_send_probe(conn);
    }
    note_lost(&heard, now_ns);
}
