/* Packets as a device may receive them, is_fixed and not: what is parsed has its parts within the
 * packet and is the same when it is written again; hellos, neighbours, numbers and acknowledgements
 * that peers make up. Nothing may crash; nothing counts that was never sent. */
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "net/dpdk/checksum.h"
#include "net/dpdk/neighbour.h"
#include "net/dpdk/received_packets.h"
#include "net/dpdk/sent_packets.h"
#include "tests/fuzz/input.h"

#define STEPS_MAX    64
#define PACKET_BYTES 2048U
#define ASK_BYTES    128U
#define SENT         300U /* packets that are on their way */

struct victim {
    struct sl_dpdk_neighbours *neighbours;
    struct sl_dpdk_sent_packets flights;
    struct sl_dpdk_received_packets seen;
    uint32_t outstanding; /* packets */
    uint64_t now_ns;
    bool is_v6;
};

static void settled(void *ctx, const struct sl_dpdk_sent_packet *packet)
{
    struct victim *victim = ctx;
    sl_assert(packet->body_bytes == 1);
    sl_assert(victim->outstanding > 0);
    victim->outstanding--;
}

/* The sums and lengths as they should be: else few inputs get behind them. */
static void fix_checksums(uint8_t *packet, uint32_t length)
{
    static const uint8_t ipv4[2] = {8, 0};
    if (length >= 74 && memcmp(packet + 12, ipv4, 2) == 0) {
        uint32_t udp_bytes = length - 34;
        packet[16] = (uint8_t)((length - 14) >> 8);
        packet[17] = (uint8_t)(length - 14);
        packet[38] = (uint8_t)(udp_bytes >> 8);
        packet[39] = (uint8_t)udp_bytes;
        memset(packet + 24, 0, 2);
        uint16_t sum = sl_dpdk_checksum_fold(sl_dpdk_checksum(0, packet + 14, 20));
        memcpy(packet + 24, &sum, sizeof sum);
        sl_dpdk_seal(packet, length);
    } else if (length >= 86 && packet[20] == 58) {
        packet[18] = (uint8_t)((length - 54) >> 8);
        packet[19] = (uint8_t)(length - 54);
        memset(packet + 56, 0, 2);
        uint64_t start = (uint64_t)(packet[18] | packet[19] << 8) + (58U << 8);
        uint16_t sum = sl_dpdk_checksum_fold(sl_dpdk_checksum(start, packet + 22, length - 22));
        memcpy(packet + 56, &sum, sizeof sum);
    }
}

static bool is_within(const uint8_t *at, uint32_t bytes, const uint8_t *packet, uint32_t length)
{
    return at >= packet && bytes <= length && (size_t)(at - packet) <= length - bytes;
}

/* Written again it is the same packet, sum and all. */
static void check_again(const struct sl_dpdk_parsed *parsed)
{
    uint8_t packet[PACKET_BYTES];
    struct sl_dpdk_route route;
    struct sl_dpdk_parsed again;
    sl_dpdk_route_build(&route, parsed->from_mac, parsed->from_mac, &parsed->from, &parsed->to);
    uint32_t at = sl_dpdk_write(packet, &route, &parsed->header);
    memcpy(packet + at, parsed->sack, 8 * parsed->sack_words);
    memcpy(packet + at + 8 * parsed->sack_words, parsed->body, parsed->body_bytes);
    uint32_t length = at + parsed->header.body_bytes;
    sl_dpdk_seal(packet, length);
    sl_assert(sl_dpdk_parse(packet, length, false, &again) == SL_DPDK_OURS);
    const uint8_t *header = parsed->body - 8 * parsed->sack_words - SL_DPDK_HEADER_BYTES;
    sl_assert(memcmp(packet + at - SL_DPDK_HEADER_BYTES, header, SL_DPDK_HEADER_BYTES) == 0);
    sl_assert(memcmp(again.sack, parsed->sack, sizeof again.sack) == 0);
    sl_assert(again.body_bytes == parsed->body_bytes);
    sl_assert(memcmp(again.body, parsed->body, again.body_bytes) == 0);
    sl_assert(memcmp(&again.from.ip, &parsed->from.ip, sizeof again.from.ip) == 0);
}

static void take_hello(const struct sl_dpdk_parsed *parsed)
{
    struct sl_dpdk_hello hello, again;
    uint8_t bytes[SL_DPDK_HELLO_BYTES];
    if (sl_dpdk_hello_decode(parsed->body, parsed->body_bytes, &hello) == 0) {
        sl_assert(hello.connection != 0);
        sl_assert(hello.queues == 0 || hello.index < hello.reactors);
        sl_dpdk_hello_encode(&hello, bytes);
        sl_assert(sl_dpdk_hello_decode(bytes, sizeof bytes, &again) == 0);
        sl_assert(again.cookie == hello.cookie);
        sl_assert(again.err == hello.err);
    }
}

static void take_numbers(struct victim *victim, const struct sl_dpdk_parsed *parsed)
{
    const struct sl_dpdk_header *header = &parsed->header;
    const struct sl_dpdk_sent_packet_events events = {
        .came = settled, .lost = settled, .ctx = victim};
    uint32_t before = victim->seen.next;
    if (sl_dpdk_received_packets_settle(&victim->seen, header->sequence, header->behind)) {
        sl_assert(victim->seen.next - before <= SL_DPDK_RECEIVED_JUMP + SL_DPDK_RECEIVED_PACKETS);
        if (sl_dpdk_received_packets_ask(&victim->seen, header->sequence) == SL_DPDK_RECEIVED_NEW) {
            sl_dpdk_received_packets_take(&victim->seen, header->sequence);
            sl_assert(sl_dpdk_received_packets_ask(&victim->seen, header->sequence) ==
                      SL_DPDK_RECEIVED_AGAIN);
        }
    } else {
        sl_assert(victim->seen.next == before);
    }
    uint64_t words[SL_DPDK_SACK_WORDS];
    sl_assert(sl_dpdk_received_packets_words(&victim->seen, words, SL_DPDK_SACK_WORDS) <=
              SL_DPDK_SACK_WORDS);
    (void)sl_dpdk_sent_packets_acknowledged(&victim->flights, header->acknowledged, parsed->sack,
                                            parsed->sack_words, victim->now_ns, &events);
    sl_assert(victim->flights.outstanding_bytes == victim->outstanding);
}

static void receive(struct victim *victim, const uint8_t *packet, uint32_t length, bool checked)
{
    struct sl_dpdk_parsed parsed;
    uint8_t answer[ASK_BYTES];
    switch (sl_dpdk_parse(packet, length, checked, &parsed)) {
    case SL_DPDK_OURS:
        sl_assert(is_within(parsed.body, parsed.body_bytes, packet, length));
        sl_assert(is_within(parsed.from_mac, 6, packet, length));
        sl_assert(parsed.body_bytes + 8 * parsed.sack_words == parsed.header.body_bytes);
        check_again(&parsed);
        take_hello(&parsed);
        take_numbers(victim, &parsed);
        sl_dpdk_neighbours_confirm(victim->neighbours, &parsed.from.ip, parsed.from_mac,
                                   victim->now_ns);
        break;
    case SL_DPDK_NEIGHBOUR:
        sl_assert(sl_dpdk_neighbours_take(victim->neighbours, packet, length, victim->now_ns,
                                          answer) <= ASK_BYTES);
        break;
    default:
        break;
    }
}

/* Each input byte that is read decides; the packet itself lies in memory of exactly its length. */
static void step(struct victim *victim, struct sl_bytes *input)
{
    uint8_t what = sl_bytes_u8(input);
    struct sl_bytes piece = fuzz_input_piece(input, PACKET_BYTES - SL_DPDK_OUTER_MAX);
    uint32_t length = (uint32_t)piece.left;
    uint8_t *packet = malloc(length + 1);
    sl_assert(packet != NULL);
    sl_bytes_copy(&piece, packet, length);
    if ((what & 1) != 0) {
        fix_checksums(packet, length);
    }
    receive(victim, packet, length, (what & 2) != 0);
    free(packet);
    victim->now_ns += (uint64_t)what << 16;
    const struct sl_dpdk_sent_packet_events events = {
        .came = settled, .lost = settled, .ctx = victim};
    if ((what & 4) != 0 && sl_dpdk_sent_packets_timer(&victim->flights) <= victim->now_ns) {
        (void)sl_dpdk_sent_packets_expire(&victim->flights, victim->now_ns, &events);
        sl_assert(victim->flights.outstanding_bytes == victim->outstanding);
    }
    if ((what & 8) != 0) {
        uint8_t mac[6], ask[ASK_BYTES];
        struct in6_addr ip = {{{[15] = (uint8_t)(what >> 4)}}};
        ip.s6_addr[10] = ip.s6_addr[11] = victim->is_v6 ? 0 : 0xff;
        uint32_t ask_bytes;
        (void)sl_dpdk_neighbours_find(victim->neighbours, &ip, victim->now_ns, mac, ask,
                                      &ask_bytes);
        sl_assert(ask_bytes <= ASK_BYTES);
    }
}

static void victim_open(struct victim *victim, bool is_v6)
{
    /* 0.0.0.1 or ::1, beside everybody, as the inputs have it. */
    struct sl_dpdk_self self = {.mac = {2, 0, 0, 0, 0, 1}, .ip = {{{[15] = 1}}}};
    self.ip.s6_addr[10] = self.ip.s6_addr[11] = is_v6 ? 0 : 0xff;
    *victim = (struct victim){.is_v6 = is_v6, .outstanding = SENT};
    sl_assert(sl_dpdk_neighbours_open(&self, &victim->neighbours) == 0);
    sl_assert(sl_dpdk_sent_packets_open(&victim->flights, 0U - SENT / 2) == 0);
    sl_dpdk_received_packets_init(&victim->seen, 0U - 100);
    const struct sl_dpdk_sent_packet packet = {.body_bytes = 1};
    for (uint32_t i = 0; i < SENT; i++) {
        sl_dpdk_sent_packets_sent(&victim->flights, &packet, i);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count)
{
    static struct victim victim;
    struct sl_bytes input = sl_bytes_over(bytes, byte_count);
    victim_open(&victim, (sl_bytes_u8(&input) & 1) != 0);
    for (uint32_t i = 0; i < STEPS_MAX && fuzz_input_has_more(&input); i++) {
        step(&victim, &input);
    }
    sl_dpdk_neighbours_close(&victim.neighbours);
    sl_dpdk_sent_packets_close(&victim.flights);
    return 0;
}
