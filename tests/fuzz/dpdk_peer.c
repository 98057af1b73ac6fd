/* Peers over packet devices, well made or badly, through whole turns of a transport: set-ups with
 * cookies that are right, pieces and trains in any order, said twice and otherwise,
 * acknowledgements, moves and ends, answers to a connect, neighbours, packets that come to the
 * wrong reactor, and any bytes. Nothing may crash or leak; what is delivered is what was sent; who
 * has not shown its address gets no more bytes than it sent; and a friend's frames go to and fro
 * all the same. */
#include <string.h>

#include "net/dpdk/checksum.h"
#include "net/dpdk/neighbour_packet.h"
#include "tests/fuzz/dpdk_world.h"
#include "tests/fuzz/input.h"

#define STEPS_MAX    48U
#define PACKET_BYTES 1514U
#define BURST        64U
#define KEPT         8U
#define TURN_NS      (200 * SL_CLOCK_NS_PER_US)

static struct dpdk_world world;

/* Packets that may be sent once more. */
static struct {
    uint32_t peer, length;
    uint8_t bytes[PACKET_BYTES];
} kept[KEPT];
static uint32_t kept_count;

static void turns(uint32_t count, uint64_t step_ns)
{
    for (uint32_t i = 0; i < count; i++) {
        dpdk_world_turn(&world, step_ns);
    }
}

static struct sl_dpdk_address victim(const struct dpdk_world_peer *peer)
{
    static const uint8_t ip[16] = {[10] = 0xff, [11] = 0xff, 10, 1, 0, 1};
    struct sl_dpdk_address address = {.port = peer->port_there};
    memcpy(&address.ip, ip, sizeof ip);
    return address;
}

static void keep(const struct dpdk_world_peer *peer, const uint8_t *bytes, uint32_t length)
{
    const uint32_t i = kept_count++ % KEPT;
    kept[i].peer = (uint32_t)(peer - world.peers);
    kept[i].length = length;
    memcpy(kept[i].bytes, bytes, length);
}

static void say(struct dpdk_world_peer *peer, struct sl_dpdk_header *header, const uint8_t *body,
                uint32_t body_bytes, uint16_t queue)
{
    uint8_t packet[PACKET_BYTES + SL_DPDK_OUTER_MAX];
    struct sl_dpdk_route route;
    const struct sl_dpdk_address to = victim(peer);
    header->body_bytes = (uint16_t)body_bytes;
    sl_dpdk_route_build(&route, peer->mac, sl_wire_device_mac(world.device), &peer->at, &to);
    const uint32_t before = sl_dpdk_write(packet, &route, header);
    sl_assert(before + body_bytes <= PACKET_BYTES);
    memcpy(packet + before, body, body_bytes);
    sl_dpdk_seal(packet, before + body_bytes);
    keep(peer, packet, before + body_bytes);
    dpdk_world_inject(&world, peer, packet, before + body_bytes, queue);
}

/* As an honest peer has it. */
static struct sl_dpdk_header header_of(struct dpdk_world_peer *peer, uint8_t kind)
{
    const bool is_numbered = kind >= SL_DPDK_DATA && kind <= SL_DPDK_FIN;
    struct sl_dpdk_header header = {.connection = peer->id_there,
                                    .sequence = peer->sequence,
                                    .acknowledged = peer->acknowledged,
                                    .granted = 1U << 24,
                                    .message = peer->message,
                                    .kind = kind};
    peer->sequence += is_numbered;
    return header;
}

static uint32_t some_away(uint32_t from, struct sl_bytes *input)
{
    return from + sl_bytes_u16(input) - INT16_MAX;
}

/* One bit for each field that is otherwise than it should be. */
static void spoil(struct sl_dpdk_header *header, struct sl_bytes *input, uint8_t which)
{
    if ((which & 1) != 0) {
        header->connection ^= (uint64_t)sl_bytes_u8(input) << 8 * (sl_bytes_u8(input) % 8);
    }
    if ((which & 2) != 0) {
        header->sequence = some_away(header->sequence, input);
    }
    if ((which & 4) != 0) {
        header->acknowledged = some_away(header->acknowledged, input);
    }
    if ((which & 8) != 0) {
        header->message = some_away(header->message, input);
    }
    if ((which & 16) != 0) {
        header->offset = some_away(header->offset, input);
    }
    if ((which & 32) != 0) {
        header->behind = sl_bytes_u16(input);
    }
    if ((which & 64) != 0) {
        header->flags = sl_bytes_u8(input) & (SL_DPDK_FLAG_ANSWER | SL_DPDK_FLAG_MORE);
    }
    if ((which & 128) != 0) {
        header->granted = sl_bytes_u32(input);
    }
}

static struct sl_dpdk_hello hello_of(const struct dpdk_world_peer *peer)
{
    return (struct sl_dpdk_hello){.connection = peer->id,
                                  .cookie = peer->cookie,
                                  .sequence = peer->sequence,
                                  .granted = 1U << 20,
                                  .body_max = DPDK_WORLD_BODY,
                                  .queues = 2,
                                  .reactors = 1};
}

static uint32_t write_hello(struct sl_bytes *input, const struct sl_dpdk_hello *hello, bool is_bad,
                            uint8_t *body)
{
    sl_dpdk_hello_encode(hello, body);
    if (is_bad) {
        body[sl_bytes_u8(input) % SL_DPDK_HELLO_BYTES] ^= sl_bytes_u8(input);
    }
    return SL_DPDK_HELLO_BYTES;
}

static void say_open(struct sl_bytes *input, struct dpdk_world_peer *peer, uint8_t how)
{
    uint8_t body[SL_DPDK_HELLO_BYTES];
    struct sl_dpdk_hello hello = hello_of(peer);
    struct sl_dpdk_header header = {.sequence = peer->sequence, .kind = SL_DPDK_OPEN};
    hello.cookie = (how & 1) != 0 ? peer->cookie : 0;
    peer->is_proved = peer->is_proved || hello.cookie != 0;
    const uint32_t bytes = write_hello(input, &hello, (how & 4) != 0, body);
    say(peer, &header, body, bytes, (how & 16) != 0);
}

/* bit 0: with the cookie; 1: by another id; 2: a bad hello; 3: to the other reactor; 4: by the
 * other's queue; 5: asks without a cookie before. */
static void open_connection(struct sl_bytes *input, struct dpdk_world_peer *peer)
{
    const uint8_t how = sl_bytes_u8(input);
    if ((how & 2) != 0) {
        peer->id += 0x10000;
        peer->sequence = (uint32_t)peer->id;
        peer->message = 0;
    }
    peer->port_there = (how & 8) != 0 ? DPDK_WORLD_PORT + 1 : DPDK_WORLD_PORT;
    if ((how & 32) != 0) {
        say_open(input, peer, how & 0xf8);
        turns(3, TURN_NS);
    }
    say_open(input, peer, how);
    turns(3, TURN_NS);
}

/* The victim connects, and knows where the peer is. */
static void be_asked(struct dpdk_world_peer *peer)
{
    uint8_t packet[SL_DPDK_NEIGHBOUR_BYTES];
    struct sl_dpdk_self self = {.ip = peer->at.ip};
    struct sl_dpdk_neighbour_said said = {.asks = true, .target = peer->at.ip, .tells = true};
    const struct sl_dpdk_address to = victim(peer);
    memcpy(self.mac, peer->mac, sizeof self.mac);
    memcpy(said.mac, sl_wire_device_mac(world.device), sizeof said.mac);
    said.who = to.ip;
    peer->is_proved = true;
    dpdk_world_ask(&world, peer);
    turns(2, TURN_NS);
    const uint32_t length = sl_dpdk_neighbour_answer(&self, &said, packet);
    dpdk_world_inject(&world, peer, packet, length, 0);
    turns(3, TURN_NS);
}

/* Each of the answers, to who asks or to nobody. */
static void answer(struct sl_bytes *input, struct dpdk_world_peer *peer)
{
    static const uint8_t kinds[] = {SL_DPDK_ACCEPT, SL_DPDK_RETRY, SL_DPDK_REFUSE, SL_DPDK_ACCEPT};
    const uint8_t how = sl_bytes_u8(input);
    uint8_t body[SL_DPDK_HELLO_BYTES + 16] = {0};
    struct sl_dpdk_hello hello = hello_of(peer);
    struct sl_dpdk_header header = header_of(peer, kinds[how % 4]);
    header.connection = peer->id_asking;
    hello.cookie = header.kind == SL_DPDK_RETRY ? 1U + how : peer->cookie;
    hello.err = how;
    hello.sequence = peer->sequence;
    (void)write_hello(input, &hello, (how & 64) != 0, body);
    spoil(&header, input, (how & 128) != 0 ? sl_bytes_u8(input) & 0xbfU : 0);
    say(peer, &header, body, SL_DPDK_HELLO_BYTES + how % 16, (how & 16) != 0);
    if (header.kind == SL_DPDK_ACCEPT && peer->id_asking != 0) {
        peer->id_there = peer->id_asking;
        peer->message = 0;
    }
    turns(2, TURN_NS);
}

static struct sl_frame frame_of(struct sl_bytes *input)
{
    static const uint32_t lengths[] = {0,     1,     100,   1376,  1408,  1409,  2848,  5000,
                                       16384, 16385, 20000, 65536, 30016, 17248, 70000, 300000};
    const uint8_t how = sl_bytes_u8(input);
    const uint8_t type = sl_bytes_u8(input);
    return (struct sl_frame){.type = (uint8_t)(type % 8 == 0 ? 1 + type / 8 : SL_FRAME_REQUEST),
                             .payload_bytes = lengths[how % 16] + (how / 16U) * 8U,
                             .request_id = type,
                             .budget_us = 1};
}

/* What lies at `offset` of the message that carries a frame. */
static void fill(const struct dpdk_world_peer *peer, const uint8_t *head, uint32_t offset,
                 uint8_t *to, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++) {
        const uint32_t at = offset + i;
        to[i] = at < SL_FRAME_HEADER_BYTES
                    ? head[at]
                    : dpdk_world_byte((uint32_t)(peer - world.peers), at - SL_FRAME_HEADER_BYTES);
    }
}

static uint32_t bytes_of_piece(uint32_t message_bytes, uint32_t offset)
{
    const uint32_t left = offset < message_bytes ? message_bytes - offset : DPDK_WORLD_BODY;
    return left < DPDK_WORLD_BODY ? left : DPDK_WORLD_BODY;
}

/* `count` pieces from `first` on, in this order or backwards; the first of them may be spoilt. */
static void say_pieces(struct sl_bytes *input, struct dpdk_world_peer *peer)
{
    const struct sl_frame frame = frame_of(input);
    const uint8_t first = sl_bytes_u8(input), count = sl_bytes_u8(input) % BURST;
    const uint8_t how = sl_bytes_u8(input);
    const uint8_t spoilt = (how & 4) != 0 ? sl_bytes_u8(input) : 0;
    uint8_t head[SL_FRAME_HEADER_BYTES], body[DPDK_WORLD_BODY];
    sl_frame_encode(&frame, head);
    const uint32_t message_bytes = SL_FRAME_HEADER_BYTES + frame.payload_bytes;
    for (uint32_t i = 0; i <= count; i++) {
        struct sl_dpdk_header header = header_of(peer, SL_DPDK_DATA);
        const uint32_t n = first + ((how & 1) != 0 ? count - i : i);
        header.offset = n * DPDK_WORLD_BODY;
        header.message += how / 64U;
        uint32_t bytes = bytes_of_piece(message_bytes, header.offset);
        if (i == 0) {
            spoil(&header, input, spoilt);
            bytes -= (how & 8) != 0 ? sl_bytes_u8(input) % bytes : 0;
        }
        fill(peer, head, header.offset, body, bytes);
        say(peer, &header, body, bytes, (how & 16) != 0);
        if (i % 8 == 7) {
            turns(2, TURN_NS);
        }
    }
    peer->message += (how & 2) != 0;
    turns((how & 32) != 0, TURN_NS);
}

/* As many frames as the input says, and fit. */
static void say_train(struct sl_bytes *input, struct dpdk_world_peer *peer)
{
    uint8_t body[DPDK_WORLD_BODY], head[SL_FRAME_HEADER_BYTES];
    const uint8_t how = sl_bytes_u8(input);
    uint32_t bytes = 0;
    for (uint32_t i = 0; i <= how % 4U; i++) {
        const struct sl_frame frame = frame_of(input);
        const uint32_t frame_bytes = SL_FRAME_HEADER_BYTES + frame.payload_bytes;
        const uint32_t padded = (frame_bytes + 7) & ~7U;
        if (padded > sizeof body - bytes) {
            break;
        }
        sl_frame_encode(&frame, head);
        memset(body + bytes, 0, padded);
        fill(peer, head, 0, body + bytes, frame_bytes);
        bytes += padded;
    }
    struct sl_dpdk_header header = header_of(peer, SL_DPDK_BUNDLE);
    spoil(&header, input, (how & 8) != 0 ? sl_bytes_u8(input) : 0);
    bytes -= (how & 16) != 0 && bytes > 0 ? sl_bytes_u8(input) % bytes : 0;
    say(peer, &header, body, bytes, (how & 32) != 0);
    peer->message += (how & 64) == 0;
    turns(how / 128U, TURN_NS);
}

static uint32_t write_body(struct sl_bytes *input, struct dpdk_world_peer *peer, uint8_t kind,
                           uint8_t *body)
{
    switch (kind) {
    case SL_DPDK_PROBE:
        memcpy(body, &peer->id, sizeof peer->id);
        return sizeof peer->id;
    case SL_DPDK_RESET:
        body[0] = sl_bytes_u8(input);
        return 1;
    default:
        return 0;
    }
}

static void say_other(struct sl_bytes *input, struct dpdk_world_peer *peer)
{
    static const uint8_t kinds[] = {SL_DPDK_PROBE, SL_DPDK_FIN, SL_DPDK_FIN, SL_DPDK_ACK,
                                    SL_DPDK_RESET, SL_DPDK_ACK, SL_DPDK_ACK, SL_DPDK_PROBE};
    const uint8_t how = sl_bytes_u8(input);
    uint8_t body[SL_DPDK_SACK_WORDS * 8 + SL_DPDK_HELLO_BYTES] = {0};
    struct sl_dpdk_header header = header_of(peer, kinds[how % 8]);
    spoil(&header, input, (how & 8) != 0 ? sl_bytes_u8(input) : 0);
    const uint32_t words = (how & 16) != 0 ? 1 + sl_bytes_u8(input) % SL_DPDK_SACK_WORDS : 0;
    for (uint32_t i = 0; i < words; i++) {
        const uint64_t word = sl_bytes_u64(input);
        memcpy(body + 8 * (size_t)i, &word, sizeof word);
    }
    header.flags = (uint8_t)(header.flags | words);
    const uint32_t bytes = 8 * words + write_body(input, peer, header.kind, body + 8 * words);
    say(peer, &header, body, bytes, (how & 32) != 0);
    turns(how / 128U, TURN_NS);
}

static bool is_friends(const struct in6_addr *ip)
{
    static const uint8_t friend[16] = {[10] = 0xff, [11] = 0xff, 10, 1, 0, 2};
    return memcmp(ip, friend, sizeof friend) == 0;
}

/* Who sees the network can do what it likes to a connection; that is not what is tried. */
static bool is_of_the_friend(const uint8_t *packet, uint32_t length, bool *carries)
{
    struct sl_dpdk_parsed parsed;
    struct sl_dpdk_neighbour_said said;
    *carries = false;
    switch (sl_dpdk_parse(packet, length, true, &parsed)) {
    case SL_DPDK_OURS:
        *carries = parsed.header.kind == SL_DPDK_DATA || parsed.header.kind == SL_DPDK_BUNDLE;
        return is_friends(&parsed.from.ip);
    case SL_DPDK_NEIGHBOUR:
        return sl_dpdk_neighbour_parse(packet, length, &said) && said.tells &&
               is_friends(&said.who);
    default:
        return false;
    }
}

/* The sums as they should be: else few get behind them. */
static void fix_checksums(uint8_t *packet, uint32_t length)
{
    if (length >= 74 && packet[12] == 8 && packet[13] == 0) {
        memset(packet + 24, 0, 2);
        const uint16_t sum = sl_dpdk_checksum_fold(sl_dpdk_checksum(0, packet + 14, 20));
        memcpy(packet + 24, &sum, sizeof sum);
        const uint32_t bytes = length - 34;
        packet[38] = (uint8_t)(bytes >> 8);
        packet[39] = (uint8_t)bytes;
        sl_dpdk_seal(packet, length);
    } else if (length >= 94 && packet[12] == 0x86 && packet[13] == 0xdd && packet[20] == 17) {
        const uint32_t bytes = length - 54;
        packet[18] = packet[58] = (uint8_t)(bytes >> 8);
        packet[19] = packet[59] = (uint8_t)bytes;
        sl_dpdk_seal(packet, length);
    }
}

static void send_bytes(struct dpdk_world_peer *peer, uint8_t *packet, uint32_t length,
                       bool is_fixed, uint16_t queue)
{
    bool carries;
    if (is_fixed) {
        fix_checksums(packet, length);
    }
    if (length < 14 || is_of_the_friend(packet, length, &carries)) {
        return;
    }
    for (uint32_t i = 0; carries && i < DPDK_WORLD_PEERS; i++) {
        world.peers[i].is_wild = true;
    }
    for (uint32_t i = 0; i < DPDK_WORLD_PEERS; i++) { /* whichever peer the packet names */
        world.peers[i].said_bytes += length;
    }
    dpdk_world_inject(&world, peer, packet, length, queue);
}

static void say_anything(struct sl_bytes *input, struct dpdk_world_peer *peer)
{
    uint8_t packet[PACKET_BYTES];
    const uint8_t how = sl_bytes_u8(input);
    struct sl_bytes piece = fuzz_input_piece(input, sizeof packet);
    const uint32_t length = (uint32_t)piece.left;
    sl_bytes_copy(&piece, packet, length);
    send_bytes(peer, packet, length, (how & 1) != 0, how / 2 % 2);
}

/* One that was sent before: as it was, with some bytes changed, or cut. */
static void say_again(struct sl_bytes *input, struct dpdk_world_peer *peer)
{
    const uint8_t how = sl_bytes_u8(input);
    const uint32_t i = how % KEPT;
    uint8_t packet[PACKET_BYTES];
    uint32_t length = kept[i].length;
    if (length == 0) {
        return;
    }
    memcpy(packet, kept[i].bytes, length);
    for (uint32_t k = 0; k < how / 64U; k++) {
        packet[sl_bytes_u16(input) % length] ^= sl_bytes_u8(input);
    }
    length -= (how & 8) != 0 ? sl_bytes_u16(input) % length : 0;
    if (how < 64 && (how & 8) == 0) {
        dpdk_world_inject(&world, &world.peers[kept[i].peer], packet, length, how / 16 % 2);
    } else {
        send_bytes(peer, packet, length, (how & 32) != 0, how / 16 % 2);
    }
}

/* Asks where the victim is, or says where it is itself; one byte may be another. */
static void be_a_neighbour(struct sl_bytes *input, struct dpdk_world_peer *peer)
{
    uint8_t packet[SL_DPDK_NEIGHBOUR_BYTES];
    const uint8_t how = sl_bytes_u8(input);
    struct sl_dpdk_self self = {.ip = peer->at.ip};
    memcpy(self.mac, peer->mac, sizeof self.mac);
    const struct sl_dpdk_address to = victim(peer);
    const uint32_t length =
        sl_dpdk_neighbour_ask(&self, (how & 1) != 0 ? &to.ip : &self.ip, packet);
    packet[sl_bytes_u8(input) % length] ^= (how & 2) != 0 ? sl_bytes_u8(input) : 0;
    send_bytes(peer, packet, length, false, how / 4 % 2);
}

static void set_policy(uint8_t how)
{
    world.policy = (struct dpdk_world_policy){.refuses_sink = (how & 1) != 0,
                                              .echoes = (how & 2) != 0,
                                              .welcomes = (how & 8) != 0,
                                              .disconnects = (how & 16) != 0};
}

static void act(struct sl_bytes *input, struct dpdk_world_peer *peer)
{
    const uint8_t how = sl_bytes_u8(input);
    struct dpdk_world_link *link = dpdk_world_link_of(&world, peer);
    if (how % 4 < 2) {
        set_policy(how / 4);
    } else if (link != NULL && how % 4 == 2) {
        dpdk_world_send(link, (how / 4U) * 500U);
    } else if (link != NULL) {
        sl_transport_disconnect(link->conn);
    }
}

static void pass_time(uint8_t how)
{
    static const uint64_t steps_ns[] = {10 * SL_CLOCK_NS_PER_US, SL_CLOCK_NS_PER_MS,
                                        20 * SL_CLOCK_NS_PER_MS, 300 * SL_CLOCK_NS_PER_MS};
    if (how >= 0xf0) { /* longer than a peer may be silent */
        turns(16, SL_CLOCK_NS_PER_S);
    } else {
        turns(1 + how % 16U, steps_ns[how / 16 % 4]);
    }
}

static void step(struct sl_bytes *input)
{
    const uint8_t what = sl_bytes_u8(input);
    struct dpdk_world_peer *peer = &world.peers[what / 16 % DPDK_WORLD_PEERS];
    switch (what % 16) {
    case 0:
    case 1:
        open_connection(input, peer);
        break;
    case 2:
    case 3:
    case 4:
        say_pieces(input, peer);
        break;
    case 5:
    case 6:
        say_train(input, peer);
        break;
    case 7:
    case 8:
        say_other(input, peer);
        break;
    case 9:
        say_anything(input, peer);
        break;
    case 10:
        say_again(input, peer);
        break;
    case 11:
        be_a_neighbour(input, peer);
        break;
    case 12:
        act(input, peer);
        break;
    case 13:
        be_asked(peer);
        break;
    case 14:
        answer(input, peer);
        break;
    default:
        pass_time(sl_bytes_u8(input));
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count)
{
    struct sl_bytes input = sl_bytes_over(bytes, byte_count);
    kept_count = 0;
    memset(kept, 0, sizeof kept);
    dpdk_world_open(&world);
    set_policy(sl_bytes_u8(&input));
    for (uint32_t i = 0; i < STEPS_MAX && fuzz_input_has_more(&input); i++) {
        step(&input);
    }
    turns(2, TURN_NS);
    dpdk_world_close(&world);
    return 0;
}
