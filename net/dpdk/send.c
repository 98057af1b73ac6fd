#include "net/dpdk/send.h"

#include <string.h>

#include "core/clock.h"
#include "net/dpdk/bundle.h"
#include "net/dpdk/checksum.h"

/* Limit for one connection in a turn, so that others get their share of the device queue and
 * received packets are handled. */
#define TURN_PACKETS     64U

/* Largest wait before the peer is asked whether it has granted more. */
#define ASK_NS_MAX       (250 * SL_CLOCK_NS_PER_MS)

/* How often a lost full-size probe is retransmitted at once: under heavy loss one arrives. */
#define WIDE_TRIES       8U

/* Shorter data is copied: gathering costs the device more. */
#define GATHER_BYTES_MIN 512U

/* Frames of a bundle are copied once by the receiver; longer frames go to a `sink`. */
#define TRAIN_BYTES_MAX  (SL_FRAME_HEADER_BYTES + SL_LIMIT_INLINE_PAYLOAD_BYTES)

/* A packet */

struct draft {
    struct sl_dpdk_conn *conn;
    struct sl_dpdk_packet packet;
    struct sl_dpdk_body body;
    uint32_t sack_words;
};

/* Requests another turn at once. */
static void go_on(struct sl_dpdk_conn *conn)
{
    conn->send->goes_on = true;
    sl_dpdk_mark_ready(conn);
}

/* Starts a packet. body_bytes: least length of its content. SACK words that do not fit beside it
 * are sent in an ACK. False: the port has no buffer now. */
static bool dpdk_send_begin(struct draft *draft, struct sl_dpdk_conn *conn, uint32_t body_bytes)
{
    uint64_t words[SL_DPDK_SACK_WORDS];
    draft->conn = conn;
    if (!sl_dpdk_netif_get(conn->path.netif, &draft->packet)) {
        go_on(conn);
        return false;
    }
    draft->packet.tail_length = 0;
    draft->packet.pending = NULL;
    draft->body = (struct sl_dpdk_body){
        .to = draft->packet.bytes + sl_dpdk_route_bytes(&conn->path.route),
        .checksums = !conn->path.netif->info.tx_checksum,
    };
    draft->sack_words = 0;
    if (conn->received.end != conn->received.next) {
        draft->sack_words =
            sl_dpdk_received_packets_words(&conn->received, words, SL_DPDK_SACK_WORDS);
        uint32_t bytes = draft->sack_words * (uint32_t)sizeof words[0];
        if (body_bytes + bytes > conn->path.body_max) {
            draft->sack_words = 0;
        } else {
            sl_dpdk_body_add(&draft->body, (const uint8_t *)words, bytes);
        }
    }
    return true;
}

/* Free bytes of the body. */
static uint32_t room_of(const struct draft *draft)
{
    return draft->conn->path.body_max - draft->body.bytes;
}

static bool tells_all(const struct draft *draft)
{
    const struct sl_dpdk_conn *conn = draft->conn;
    return draft->sack_words > 0 || conn->received.end == conn->received.next;
}

/* header: kind, message, offset and flags are set. */
static void dpdk_send_emit(struct draft *draft, struct sl_dpdk_header *header)
{
    struct sl_dpdk_conn *conn = draft->conn;
    struct sl_dpdk_packet *packet = &draft->packet;
    header->connection = conn->id_peers;
    header->sequence = conn->sent_packets.next;
    header->acknowledged = conn->received.next;
    header->granted = conn->grant.granted;
    header->behind = sl_dpdk_sent_packets_behind(&conn->sent_packets);
    header->flags = (uint8_t)(header->flags | draft->sack_words);
    header->body_bytes = (uint16_t)(draft->body.bytes + packet->tail_length);
    packet->length = sl_dpdk_write(packet->bytes, &conn->path.route, header) + draft->body.bytes;
    packet->queue = conn->path.queue;
    packet->unchecked = !draft->body.checksums;
    if (draft->body.checksums) {
        sl_dpdk_seal_sum(packet->bytes, draft->body.checksum);
    }
    sl_dpdk_netif_put(conn->dpdk, conn->path.netif, packet);
    conn->grant.advertised = conn->grant.granted;
    if (tells_all(draft)) {
        conn->ack = SL_DPDK_ACK_NOT_DUE;
        conn->received.unacked = 0;
    }
}

/* The turn of one connection */

struct turn {
    struct sl_dpdk_conn *conn;
    uint64_t now_ns, when_ns;
    uint64_t room;    /* bytes that congestion control permits */
    uint32_t packets; /* remaining packets of this turn */
};

/* Sends a numbered packet and records its content. */
static void emit_numbered(struct turn *turn, struct draft *draft, struct sl_dpdk_header *header,
                          uint32_t content_bytes)
{
    struct sl_dpdk_conn *conn = turn->conn;
    struct sl_dpdk_sent_packet sent_packet = {
        .message = header->message,
        .offset = header->offset,
        .body_bytes = (uint16_t)content_bytes,
        .kind = header->kind,
    };
    dpdk_send_emit(draft, header);
    sl_dpdk_sent_packets_sent(&conn->sent_packets, &sent_packet, turn->now_ns);
}

static void emit_content(struct turn *turn, struct draft *draft, struct sl_dpdk_header *header,
                         uint32_t content_bytes)
{
    struct sl_dpdk_rate *rate = &turn->conn->rate;
    emit_numbered(turn, draft, header, content_bytes);
    turn->conn->send->ask_pause_ns = SL_DPDK_ASK_NS_MIN;
    sl_dpdk_rate_sent(rate, &turn->conn->sent_packets.rtt, content_bytes, turn->now_ns);
    turn->packets--;
    turn->room = rate->bypassed && turn->room > content_bytes ? turn->room - content_bytes : 0;
}

static bool may_send(struct turn *turn)
{
    struct sl_dpdk_conn *conn = turn->conn;
    if (sl_dpdk_sent_packets_full(&conn->sent_packets) || !sl_dpdk_queue_takes_lost(conn)) {
        return false;
    }
    if (turn->packets == 0) {
        go_on(conn);
        return false;
    }
    if (turn->room == 0) {
        turn->room = sl_dpdk_rate_room(&conn->rate, conn->sent_packets.outstanding_bytes,
                                       turn->now_ns, &turn->when_ns);
    }
    return turn->room > 0;
}

/* Adds the end of the body, which the device sums too, and reads in place until it decrements
 * *reading. */
static void add_tail(struct draft *draft, const uint8_t *from, uint32_t bytes, uint32_t *reading)
{
    draft->packet.tail = from;
    draft->packet.tail_length = bytes;
    draft->packet.pending = reading;
    ++*reading;
}

/* Adds a piece of a message. */
static void dpdk_send_add_piece(struct draft *draft, struct sl_dpdk_message *message,
                                uint32_t offset, uint32_t bytes)
{
    const struct sl_dpdk_entry *entry = sl_dpdk_entry_at(draft->conn->send, message->begin.entry);
    uint32_t at = message->begin.at + offset;
    uint32_t near = at < entry->head_bytes ? entry->head_bytes - at : 0;
    if (near >= bytes && message->gathers_head && bytes >= GATHER_BYTES_MIN) {
        add_tail(draft, entry->head + at, bytes, &message->reading);
    } else if (near < bytes && message->gathers_payload && bytes - near >= GATHER_BYTES_MIN) {
        sl_dpdk_piece_fill(entry, at, &draft->body, near);
        add_tail(draft, entry->payload + (at + near - entry->head_bytes), bytes - near,
                 &message->reading);
    } else {
        sl_dpdk_piece_fill(entry, at, &draft->body, bytes);
        sl_cell_add(&draft->conn->dpdk->base.cells->copied_bytes, bytes);
    }
}

/* Retransmissions */

static bool send_again(struct turn *turn)
{
    struct sl_dpdk_conn *conn = turn->conn;
    struct sl_dpdk_sending *send = conn->send;
    struct draft draft;
    const struct sl_dpdk_lost *lost = sl_dpdk_lost_at(send, send->lost_head);
    struct sl_dpdk_message *message = sl_dpdk_message_at(send, lost->message);
    struct sl_dpdk_place place = message->begin;
    struct sl_dpdk_header header = {
        .kind = lost->kind, .message = lost->message, .offset = lost->offset};
    if (!dpdk_send_begin(&draft, conn, lost->body_bytes)) {
        return false;
    }
    if (lost->kind == SL_DPDK_BUNDLE) {
        (void)sl_dpdk_bundle_fill(send, &place, &draft.body, lost->body_bytes);
    } else {
        dpdk_send_add_piece(&draft, message, lost->offset, lost->body_bytes);
    }
    emit_content(turn, &draft, &header, lost->body_bytes);
    send->lost_head++;
    return true;
}

/* New content */

static uint32_t granted_left(const struct sl_dpdk_conn *conn)
{
    return conn->granted_theirs - conn->offered;
}

static uint32_t bundle_bytes_max(const struct sl_dpdk_conn *conn)
{
    uint32_t piece_bytes = sl_dpdk_piece_bytes(conn);
    return piece_bytes < TRAIN_BYTES_MAX ? piece_bytes : TRAIN_BYTES_MAX;
}

static struct sl_dpdk_message *begin_message(struct sl_dpdk_sending *send)
{
    struct sl_dpdk_message *message = sl_dpdk_message_at(send, send->message_next++);
    *message = (struct sl_dpdk_message){.begin = send->next, .pending = 1};
    return message;
}

static uint32_t entry_bytes(const struct sl_dpdk_entry *entry)
{
    return entry->head_bytes + entry->payload_bytes;
}

/* Bytes not in packets yet, estimated from the length of the next entry. */
static uint64_t queued_bytes(const struct sl_dpdk_conn *conn)
{
    const struct sl_dpdk_sending *send = conn->send;
    const struct sl_dpdk_entry *next = sl_dpdk_entry_at(send, send->next.entry);
    uint32_t entries = send->tail - send->next.entry;
    return entries == 0 ? 0 : (uint64_t)entries * entry_bytes(next) - send->next.at - send->cut;
}

bool sl_dpdk_send_is_full(const struct sl_dpdk_conn *conn)
{
    return conn->phase == SL_DPDK_LIVE && queued_bytes(conn) >= bundle_bytes_max(conn);
}

static uint8_t more_flag(const struct sl_dpdk_conn *conn)
{
    return queued_bytes(conn) > granted_left(conn) ? SL_DPDK_FLAG_MORE : 0;
}

static bool send_bundle(struct turn *turn, uint32_t bytes_min)
{
    struct sl_dpdk_conn *conn = turn->conn;
    struct sl_dpdk_sending *send = conn->send;
    struct draft draft;
    uint32_t left = granted_left(conn);
    if (!dpdk_send_begin(&draft, conn, bytes_min)) {
        return false;
    }
    uint32_t before = draft.body.bytes, room = bundle_bytes_max(conn);
    room = room < room_of(&draft) ? room : room_of(&draft);
    room = room < left ? room : left;
    struct sl_dpdk_header header = {.kind = SL_DPDK_BUNDLE, .message = send->message_next};
    struct sl_dpdk_message *message = begin_message(send);
    sl_cell_add(&conn->dpdk->base.cells->frames_sent,
                sl_dpdk_bundle_fill(send, &send->next, &draft.body, room));
    message->entries_end = send->next.entry;
    uint32_t bytes = draft.body.bytes - before;
    conn->offered += bytes;
    sl_cell_add(&conn->dpdk->base.cells->copied_bytes, bytes);
    header.flags = more_flag(conn);
    emit_content(turn, &draft, &header, bytes);
    return true;
}

static bool send_piece(struct turn *turn)
{
    struct sl_dpdk_conn *conn = turn->conn;
    struct sl_dpdk_sending *send = conn->send;
    struct draft draft;
    uint32_t piece_bytes = sl_dpdk_piece_bytes(conn), left = send->cut_bytes - send->cut;
    uint32_t bytes = left < piece_bytes ? left : piece_bytes;
    if (bytes > granted_left(conn) || !dpdk_send_begin(&draft, conn, bytes)) {
        return false;
    }
    struct sl_dpdk_header header = {
        .kind = SL_DPDK_DATA, .message = send->message_next - 1, .offset = send->cut};
    dpdk_send_add_piece(&draft, sl_dpdk_message_at(send, header.message), send->cut, bytes);
    conn->offered += bytes;
    send->cut += bytes;
    if (send->cut == send->cut_bytes) {
        sl_dpdk_place_pass(send, &send->next, send->cut_bytes);
        send->cut = send->cut_bytes = 0;
    }
    header.flags = more_flag(conn);
    emit_content(turn, &draft, &header, bytes);
    return true;
}

static void begin_pieces(struct sl_dpdk_conn *conn, uint32_t bytes)
{
    struct sl_dpdk_sending *send = conn->send;
    struct sl_dpdk_message *message = begin_message(send);
    const struct sl_dpdk_entry *entry = sl_dpdk_entry_at(send, send->next.entry);
    struct sl_dpdk_place end = send->next;
    uint32_t piece_bytes = sl_dpdk_piece_bytes(conn);
    message->gathers_head = sl_dpdk_netif_gathers(conn, entry->head, entry->head_bytes);
    message->gathers_payload = sl_dpdk_netif_gathers(conn, entry->payload, entry->payload_bytes);
    sl_dpdk_place_pass(send, &end, bytes);
    message->entries_end = end.entry;
    message->pending = (bytes + piece_bytes - 1) / piece_bytes;
    send->cut = 0;
    send->cut_bytes = bytes;
    sl_cell_add(&conn->dpdk->base.cells->frames_sent, 1);
}

/* False: it cannot be sent now. */
static bool send_new(struct turn *turn)
{
    struct sl_dpdk_conn *conn = turn->conn;
    struct sl_dpdk_sending *send = conn->send;
    if (send->cut_bytes > 0) {
        return send_piece(turn);
    }
    if (!sl_dpdk_queue_takes_message(conn)) {
        return false;
    }
    uint32_t bytes = sl_dpdk_frame_bytes(send, &send->next);
    uint32_t padded = (bytes + 7) & ~7U;
    if (padded > bundle_bytes_max(conn)) {
        begin_pieces(conn, bytes);
        return send_piece(turn);
    }
    return padded <= granted_left(conn) && send_bundle(turn, padded);
}

/* Packets without content */

/* Sends a PROBE with our id, for a peer that has restarted; full size if wide_due. */
static bool send_probe(struct turn *turn)
{
    struct sl_dpdk_conn *conn = turn->conn;
    struct sl_dpdk_sending *send = conn->send;
    struct sl_dpdk_header header = {.kind = SL_DPDK_PROBE, .flags = SL_DPDK_FLAG_ANSWER};
    struct draft draft;
    header.offset = send->due.wide ? sl_dpdk_piece_bytes(conn) : 0;
    if (!dpdk_send_begin(&draft, conn, send->due.wide ? header.offset : sizeof conn->id)) {
        return false;
    }
    sl_dpdk_body_add(&draft.body, (const uint8_t *)&conn->id, sizeof conn->id);
    while (draft.body.bytes < header.offset) {
        static const uint8_t zeros[64];
        const uint32_t left = header.offset - draft.body.bytes;
        sl_dpdk_body_add(&draft.body, zeros, left < sizeof zeros ? left : sizeof zeros);
    }
    send->due.wide = false;
    emit_numbered(turn, &draft, &header, 0);
    return true;
}

/* These packets ignore congestion control, and are due again when lost. */
static void send_due(struct turn *turn)
{
    struct sl_dpdk_sending *send = turn->conn->send;
    struct sl_dpdk_sent_packets *sent_packets = &turn->conn->sent_packets;
    if ((send->due.probe || send->due.wide) && !sl_dpdk_sent_packets_full(sent_packets)) {
        send->due.probe = !send_probe(turn);
    }
}

static void send_fin(struct turn *turn)
{
    struct sl_dpdk_sending *send = turn->conn->send;
    struct sl_dpdk_header header = {
        .kind = SL_DPDK_FIN, .flags = SL_DPDK_FLAG_ANSWER, .message = send->message_next};
    struct draft draft;
    if (send->due.fin && send->next.entry == send->tail &&
        !sl_dpdk_sent_packets_full(&turn->conn->sent_packets) &&
        dpdk_send_begin(&draft, turn->conn, 0)) {
        emit_numbered(turn, &draft, &header, 0);
        send->due.fin = false;
    }
}

/* Probes the peer if content waits for a grant and nothing is in flight: no acknowledgement would
 * reveal that the grant was lost. */
static void ask_for_grant(struct turn *turn)
{
    struct sl_dpdk_sending *send = turn->conn->send;
    if (send->next.entry == send->tail || send->goes_on || turn->when_ns != SL_CLOCK_NEVER ||
        !sl_dpdk_sent_packets_none(&turn->conn->sent_packets)) {
        send->ask_ns = 0;
    } else if (send->ask_ns == 0) {
        send->ask_ns = turn->when_ns = turn->now_ns + send->ask_pause_ns;
    } else if (turn->now_ns < send->ask_ns) {
        turn->when_ns = send->ask_ns;
    } else if (send_probe(turn)) {
        uint64_t pause_ns = 2 * send->ask_pause_ns;
        send->ask_ns = 0;
        send->ask_pause_ns = pause_ns < ASK_NS_MAX ? pause_ns : ASK_NS_MAX;
    }
}

static void send_ack(struct sl_dpdk_conn *conn)
{
    struct draft draft;
    struct sl_dpdk_header header = {.kind = SL_DPDK_ACK};
    if (dpdk_send_begin(&draft, conn, 0)) {
        dpdk_send_emit(&draft, &header);
    }
}

uint64_t sl_dpdk_send_flush(struct sl_dpdk_conn *conn)
{
    struct sl_dpdk_sending *send = conn->send;
    if (conn->phase != SL_DPDK_LIVE && conn->phase != SL_DPDK_DRAINING) {
        return SL_CLOCK_NEVER;
    }
    struct turn turn = {.conn = conn,
                        .now_ns = sl_dpdk_now_ns(conn->dpdk),
                        .when_ns = SL_CLOCK_NEVER,
                        .packets = TURN_PACKETS};
    send->goes_on = false;
    send_due(&turn);
    while (send->lost_head != send->lost_tail && may_send(&turn) && send_again(&turn)) {
    }
    if (send->lost_head == send->lost_tail) {
        while (send->next.entry != send->tail && may_send(&turn) && send_new(&turn)) {
        }
        send_fin(&turn);
        ask_for_grant(&turn);
    }
    if (conn->ack != SL_DPDK_ACK_NOT_DUE) {
        send_ack(conn);
    }
    return turn.when_ns;
}

void sl_dpdk_send_probe(struct sl_dpdk_conn *conn)
{
    conn->send->due.probe = true;
    sl_dpdk_mark_dirty(conn);
}

void sl_dpdk_send_wide_probe(struct sl_dpdk_conn *conn)
{
    conn->send->due.wide = true;
    conn->send->due.wide_tries = WIDE_TRIES;
    sl_dpdk_mark_dirty(conn);
}

void sl_dpdk_send_bye(struct sl_dpdk_conn *conn)
{
    conn->send->due.fin = true;
    sl_dpdk_mark_dirty(conn);
}

void sl_dpdk_send_unnumbered(struct sl_dpdk *dpdk, struct sl_dpdk_netif *netif,
                             const struct sl_dpdk_route *route, uint16_t queue,
                             const struct sl_dpdk_header *header, const void *body)
{
    struct sl_dpdk_packet packet;
    if (!sl_dpdk_netif_get_unnumbered(netif, &packet)) {
        return; /* the peer repeats its request */
    }
    uint32_t before = sl_dpdk_write(packet.bytes, route, header);
    memcpy(packet.bytes + before, body, header->body_bytes);
    packet.length = before + header->body_bytes;
    packet.queue = queue;
    packet.unchecked = netif->info.tx_checksum;
    if (!packet.unchecked) {
        sl_dpdk_seal(packet.bytes, packet.length);
    }
    sl_dpdk_netif_put(dpdk, netif, &packet);
}
