#include "tests/unit/net/dpdk/end.h"

#include <stdlib.h>
#include <string.h>

#include "core/bytes.h"
#include "net/dpdk/ack.h"
#include "net/dpdk/dpdk.h"
#include "net/dpdk/receive.h"
#include "net/dpdk/send.h"
#include "net/dpdk/send_queue.h"

/* ---- A port that is not there -----------------------------------------------------------------
 */

static struct end *end_of(const struct sl_dpdk_port *port)
{
    return (struct end *)(uintptr_t)port;
}

static void port_info(const struct sl_dpdk_port *port, struct sl_dpdk_port_info *out)
{
    *out = end_of(port)->dpdk->netifs[0].info;
}

static uint32_t port_receive(struct sl_dpdk_port *port, struct sl_dpdk_packet *packets,
                             uint32_t count)
{
    return 0;
}

static void port_release(struct sl_dpdk_port *port, struct sl_dpdk_packet *packets, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        free(packets[i].token);
        end_of(port)->lent--;
    }
}

static struct sl_dpdk_packet lend(struct end *end)
{
    const uint32_t room = 2048;
    uint8_t *bytes = malloc(room);
    assert_non_null(bytes);
    memset(bytes, 0xee, room);
    end->lent++;
    return (struct sl_dpdk_packet){.bytes = bytes, .room = room, .token = bytes};
}

static uint32_t port_reserve(struct sl_dpdk_port *port, struct sl_dpdk_packet *packets,
                             uint32_t count)
{
    struct end *end = end_of(port);
    uint32_t given = 0;
    while (given < count && end->lent < end->lends_max) {
        packets[given++] = lend(end);
    }
    return given;
}

static void take_tail(struct end *end, struct end_packet *kept, const struct sl_dpdk_packet *packet)
{
    uint32_t n = end->tail_count++;
    assert_true(n < END_FRAMES);
    assert_true(end->dpdk->netifs[0].info.tx_gather);
    assert_true(sl_dpdk_netif_gathers(end->conn, packet->tail, packet->tail_length));
    assert_true(*packet->pending > 0);
    memcpy(kept->bytes + kept->length, packet->tail, packet->tail_length);
    kept->length += packet->tail_length;
    end->reading[n] = packet->pending;
    end->rests[n].at = packet->tail;
    end->rests[n].bytes = packet->tail_length;
    end->rests[n].copy = malloc(packet->tail_length);
    assert_non_null(end->rests[n].copy);
    memcpy(end->rests[n].copy, packet->tail, packet->tail_length);
}

void end_read_rests(struct end *end)
{
    while (end->tail_count > 0) {
        uint32_t n = --end->tail_count;
        assert_memory_equal(end->rests[n].at, end->rests[n].copy, end->rests[n].bytes);
        free(end->rests[n].copy);
        --*end->reading[n];
    }
}

static uint32_t port_send(struct sl_dpdk_port *port, const struct sl_dpdk_packet *packets,
                          uint32_t count)
{
    struct end *end = end_of(port);
    for (uint32_t i = 0; i < count; i++) {
        struct end_packet *kept = calloc(1, sizeof *kept);
        assert_non_null(kept);
        assert_true(end->sent_count < END_FRAMES);
        assert_true(packets[i].length <= 2048);
        kept->length = packets[i].length;
        memcpy(kept->bytes, packets[i].bytes, packets[i].length);
        if (packets[i].tail_length > 0) {
            take_tail(end, kept, &packets[i]);
        }
        if (packets[i].unchecked) {
            assert_true(end->dpdk->netifs[0].info.tx_checksum);
            sl_dpdk_seal(kept->bytes, kept->length); /* as the device does */
        }
        assert_int_equal(sl_dpdk_parse(kept->bytes, kept->length, false, &kept->parsed),
                         SL_DPDK_OURS);
        end->sent[end->sent_count++] = kept;
        free(packets[i].token);
        end->lent--;
    }
    return count;
}

static const struct sl_dpdk_port_ops port_ops = {
    .info = port_info,
    .receive = port_receive,
    .release = port_release,
    .reserve = port_reserve,
    .send = port_send,
};

/* ---- The layer above --------------------------------------------------------------------------
 */

static void *on_sink(void *ctx, struct sl_conn *conn, const struct sl_frame *header)
{
    struct end *end = ctx;
    assert_true(header->payload_bytes > SL_LIMIT_INLINE_PAYLOAD_BYTES);
    end->asked++;
    uint8_t *sink = end->sink;
    end->sink = NULL;
    return sink;
}

static void on_received(void *ctx, struct sl_conn *conn, const struct sl_transport_message *message)
{
    struct end *end = ctx;
    assert_true(end->frame_count < END_FRAMES);
    struct end_frame *frame = &end->frames[end->frame_count++];
    frame->header = message->header;
    frame->message = *message;
    frame->payload = malloc(message->header.payload_bytes + 1U);
    assert_non_null(frame->payload);
    memcpy(frame->payload, message->payload, message->header.payload_bytes);
    if (!end->holds && message->token != NULL) {
        sl_dpdk_receive_release(conn, message);
    }
}

static void on_sent(void *ctx, struct sl_conn *conn, void *cookie)
{
    struct end *end = ctx;
    assert_true(end->cookie_count < END_FRAMES);
    end->cookies[end->cookie_count++] = cookie;
}

static void on_writable(void *ctx, struct sl_conn *conn)
{
    struct end *end = ctx;
    end->writables++;
}

static const struct sl_transport_events events = {
    .sink = on_sink, .received = on_received, .sent = on_sent, .writable = on_writable};

/* ---- The end ----------------------------------------------------------------------------------
 */

static uint64_t now_ns(void *ctx)
{
    return ((const struct end *)ctx)->now_ns;
}

static void open_conn(struct end *end)
{
    static const uint8_t macs[2][6] = {{2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 2}};
    struct sl_dpdk_conn *conn = calloc(1, sizeof *conn);
    assert_non_null(conn);
    end->conn = conn;
    sl_conn_init(&conn->base, &end->dpdk->base, &events, end);
    conn->base.state = SL_CONN_OPEN;
    conn->base.is_welcome = true;
    conn->dpdk = end->dpdk;
    conn->path.netif = &end->dpdk->netifs[0];
    conn->phase = SL_DPDK_LIVE;
    conn->id = 0x100;
    conn->id_peers = 0x200;
    conn->path.here = (struct sl_dpdk_address){.port = 4000};
    conn->path.there = (struct sl_dpdk_address){.port = 4001};
    const uint8_t here[16] = {[10] = 0xff, [11] = 0xff, 10, 0, 0, 1};
    const uint8_t there[16] = {[10] = 0xff, [11] = 0xff, 10, 0, 0, 2};
    memcpy(&conn->path.here.ip, here, sizeof here);
    memcpy(&conn->path.there.ip, there, sizeof there);
    sl_dpdk_route_build(&conn->path.route, macs[0], macs[1], &conn->path.here, &conn->path.there);
    conn->path.routed = true;
    conn->path.body_max = END_BODY_MAX;
    conn->granted_theirs = SL_DPDK_UNSCHEDULED_BYTES;
    assert_int_equal(sl_dpdk_sent_packets_open(&conn->sent_packets, END_FIRST), 0);
    sl_dpdk_received_packets_init(&conn->received, 2000);
    sl_dpdk_rate_init(&conn->rate, END_BODY_MAX, 4U << 20);
    sl_dpdk_grant_open(&end->dpdk->grants, &conn->grant);
    assert_int_equal(sl_dpdk_send_open(conn), 0);
    assert_int_equal(sl_dpdk_receive_open(conn), 0);
}

void end_open(struct end *end, const struct sl_dpdk_port_info *info)
{
    *end = (struct end){.port = {.ops = &port_ops}, .now_ns = SL_CLOCK_NS_PER_S};
    end->lends_max = END_PACKETS;
    end->clock = (struct sl_clock){.now_ns = now_ns, .ctx = end};
    struct sl_reactor_options options = {
        .name = "end", .core = -1, .stepped = true, .clock = &end->clock, .seed = 1};
    end->dpdk = calloc(1, sizeof *end->dpdk);
    assert_non_null(end->dpdk);
    assert_int_equal(sl_reactor_create(&options, &end->dpdk->base.reactor), 0);
    end->port.reactor = end->dpdk->base.reactor;
    (void)sl_reactor_turn(end->dpdk->base.reactor, end->now_ns);
    end->dpdk->base.ops = &sl_dpdk_ops;
    end->dpdk->base.cells = &end->dpdk->base.own_cells;
    end->dpdk->netif_count = 1;
    struct sl_dpdk_netif *netif = &end->dpdk->netifs[0];
    netif->port = &end->port;
    netif->info = info != NULL
                      ? *info
                      : (struct sl_dpdk_port_info){.frame_bytes_max = 1514, .packets = END_PACKETS};
    sl_list_init(&end->dpdk->liveness.conns);
    sl_list_init(&end->dpdk->dirty);
    sl_list_init(&end->dpdk->ready);
    sl_dpdk_grants_init(&end->dpdk->grants, SL_DPDK_BUDGET_BYTES, SL_DPDK_UNSCHEDULED_BYTES, 65536);
    assert_int_equal(sl_dpdk_store_open(end->dpdk), 0);
    open_conn(end);
}

void end_close(struct end *end)
{
    struct sl_dpdk_netif *netif = &end->dpdk->netifs[0];
    end_read_rests(end);
    sl_dpdk_send_close(end->conn);
    sl_dpdk_receive_close(end->conn);
    sl_dpdk_sent_packets_close(&end->conn->sent_packets);
    sl_dpdk_grant_close(&end->dpdk->grants, &end->conn->grant);
    assert_int_equal(end->dpdk->grants.scheduled_bytes, 0);
    sl_dpdk_store_close(end->dpdk);
    port_release(&end->port, netif->spare, netif->spare_count);
    port_release(&end->port, netif->out, netif->out_count);
    assert_int_equal(end->lent, 0);
    sl_reactor_destroy(&end->dpdk->base.reactor);
    for (uint32_t i = 0; i < end->frame_count; i++) {
        free(end->frames[i].payload);
    }
    end_forget_sent(end);
    while (end->kept_count > 0) {
        free(end->kept[--end->kept_count]);
    }
    free(end->conn);
    free(end->dpdk);
}

/* ---- Frames -----------------------------------------------------------------------------------
 */

static uint8_t byte_of(uint32_t number, uint32_t i)
{
    return (uint8_t)(number * 31 + i * 7 + i / 251);
}

uint8_t *end_frame_make(uint32_t number, uint32_t payload_bytes)
{
    struct sl_frame frame = {
        .type = SL_FRAME_REQUEST, .request_id = number, .payload_bytes = payload_bytes};
    uint8_t *bytes = malloc(SL_FRAME_HEADER_BYTES + payload_bytes);
    assert_non_null(bytes);
    sl_frame_encode(&frame, bytes);
    for (uint32_t i = 0; i < payload_bytes; i++) {
        bytes[SL_FRAME_HEADER_BYTES + i] = byte_of(number, i);
    }
    return bytes;
}

void *end_keep(struct end *end, void *memory)
{
    assert_non_null(memory);
    assert_true(end->kept_count < END_FRAMES);
    end->kept[end->kept_count++] = memory;
    return memory;
}

uint8_t *end_make(struct end *end, uint32_t number, uint32_t payload_bytes)
{
    return end_keep(end, end_frame_make(number, payload_bytes));
}

uint8_t *end_offer_made(struct end *end, uint32_t number, uint32_t payload_bytes, void *cookie)
{
    uint8_t *frame = end_make(end, number, payload_bytes);
    assert_true(end_offer(end, frame, SL_FRAME_HEADER_BYTES + payload_bytes, 0, cookie));
    return frame;
}

void end_expect_frame(const struct end_packet *packet, uint32_t *at, const uint8_t *frame,
                      uint32_t payload_bytes)
{
    uint32_t bytes = SL_FRAME_HEADER_BYTES + payload_bytes;
    assert_true(*at + bytes <= packet->parsed.body_bytes);
    assert_memory_equal(packet->parsed.body + *at, frame, bytes);
    *at += (bytes + 7) & ~7U;
}

void end_frame_check(const struct end_frame *frame, uint32_t number, uint32_t payload_bytes)
{
    assert_int_equal(frame->header.request_id, number);
    assert_int_equal(frame->header.payload_bytes, payload_bytes);
    for (uint32_t i = 0; i < payload_bytes; i++) {
        if (frame->payload[i] != byte_of(number, i)) {
            fail_msg("frame %u differs at %u", number, i);
        }
    }
}

bool end_offer(struct end *end, const uint8_t *frame, uint32_t bytes, uint32_t apart, void *cookie)
{
    struct sl_transport_frame offered = {
        .head = frame,
        .head_bytes = bytes - apart,
        .payload = apart > 0 ? frame + (bytes - apart) : NULL,
        .payload_bytes = apart,
        .cookie = cookie,
    };
    return sl_dpdk_send_burst(&end->conn->base, &offered, 1) == 1;
}

/* ---- What goes --------------------------------------------------------------------------------
 */

void end_flush(struct end *end)
{
    struct sl_dpdk_netif *netif = &end->dpdk->netifs[0];
    (void)sl_reactor_turn(end->dpdk->base.reactor, end->now_ns);
    sl_list_remove(&end->conn->dirty);
    end->when_ns = sl_dpdk_send_flush(end->conn);
    (void)port_send(&end->port, netif->out, netif->out_count);
    netif->out_count = 0;
}

const struct end_packet *end_sent(const struct end *end, uint32_t n)
{
    assert_true(n < end->sent_count);
    return end->sent[n];
}

void end_forget_sent(struct end *end)
{
    for (uint32_t i = 0; i < end->sent_count; i++) {
        free(end->sent[i]);
    }
    end->sent_count = 0;
}

bool end_acknowledge(struct end *end, uint32_t acknowledged, uint64_t sack, uint32_t granted)
{
    struct sl_dpdk_parsed parsed = {
        .header = {.kind = SL_DPDK_ACK, .acknowledged = acknowledged, .granted = granted},
        .sack = {sack},
        .sack_words = sack != 0,
    };
    bool good = sl_dpdk_send_acknowledged(end->conn, &parsed);
    sl_dpdk_send_report(end->conn);
    return good;
}

/* ---- What comes -------------------------------------------------------------------------------
 */

enum sl_dpdk_taken end_take(struct end *end, enum sl_dpdk_kind kind, uint32_t message,
                            uint32_t offset, const uint8_t *body, uint32_t bytes)
{
    struct sl_dpdk_packet packet = lend(end);
    uint8_t *at = packet.bytes + 74; /* behind Ethernet, IPv4, UDP and our header */
    memcpy(at, body, bytes);
    packet.length = 74 + bytes;
    struct sl_dpdk_parsed parsed = {
        .header = {.kind = (uint8_t)kind,
                   .message = message,
                   .offset = offset,
                   .flags = end->flags,
                   .body_bytes = (uint16_t)bytes},
        .body = at,
        .body_bytes = bytes,
    };
    enum sl_dpdk_taken taken = sl_dpdk_receive_take(end->conn, &packet, &parsed);
    if (taken != SL_DPDK_PARKED) {
        port_release(&end->port, &packet, 1);
    }
    return taken;
}

enum sl_dpdk_taken end_take_piece(struct end *end, uint32_t message, const uint8_t *frame,
                                  uint32_t frame_bytes, uint32_t n)
{
    uint32_t offset = n * END_BODY_MAX, left = frame_bytes - offset;
    return end_take(end, SL_DPDK_DATA, message, offset, frame + offset,
                    left < END_BODY_MAX ? left : END_BODY_MAX);
}

void end_deliver(struct end *end)
{
    (void)sl_reactor_turn(end->dpdk->base.reactor, end->now_ns);
    (void)sl_dpdk_receive_deliver(end->conn);
}

void end_release(struct end *end, uint32_t n)
{
    sl_dpdk_receive_release(&end->conn->base, &end->frames[n].message);
}
