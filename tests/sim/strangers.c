#include "tests/sim/strangers.h"

#include <string.h>

#include "core/limits.h"
#include "net/dpdk/neighbour_packet.h"
#include "net/wire/frame.h"
#include "tests/sim/ether_internal.h"

#define CONNECTIONS  60U  /* of a run */
#define BESIEGERS    300U /* where all are of one reactor */
#define PIECES       40U  /* that one sends: less than it is granted */
#define PIECES_MANY  (65536U / SL_DPDK_BODY_MIN + 20U)
#define PIECE        SL_DPDK_BODY_MIN
#define APART_NS     (20 * SL_CLOCK_NS_PER_US) /* between two packets of a stranger's */
#define PACKET_BYTES 622U                      /* the shortest that a device here takes */
#define LONG_BYTES   (SL_LIMIT_INLINE_PAYLOAD_BYTES + 4000U)
#define BIG_BYTES    (1U << 20)

void sl_sim_strangers_init(struct sl_sim_strangers *strangers, struct sl_sim_ether *ether)
{
    *strangers = (struct sl_sim_strangers){
        .ether = ether,
        .random = sl_hash_key(ether->network->options.seed ^ 0x57a6U),
        .permille = ether->options.strangers,
        .left_count = CONNECTIONS,
    };
    strangers->besieges = sl_sim_chance(&strangers->random, 300);
    if (strangers->besieges) {
        strangers->left_count = BESIEGERS;
        strangers->permille = strangers->permille > 0 ? 300 : 0;
        strangers->how = 2 * sl_sim_below(&strangers->random, 2);
    }
    for (uint32_t i = 0; i < SL_SIM_STRANGERS; i++) {
        struct sl_sim_stranger *stranger = &strangers->strangers[i];
        uint8_t *ip = stranger->here.ip.s6_addr;
        const uint8_t mac[6] = {6, 0, 0, 0, 0xff, (uint8_t)i};
        memcpy(stranger->mac, mac, sizeof mac);
        if (ether->options.is_v6) {
            ip[0] = 0xfd;
        } else {
            ip[10] = ip[11] = 0xff;
            ip[12] = 10;
        }
        ip[14] = 200;
        ip[15] = (uint8_t)(1 + i);
        stranger->here.port = (uint16_t)(9000 + i);
        stranger->hello.connection = 0x5151000 + i;
    }
}

static void inject(struct sl_sim_strangers *strangers, struct sl_sim_device *to,
                   const uint8_t *packet, uint32_t length, uint32_t place)
{
    const uint16_t queue = (uint16_t)sl_sim_below(&strangers->random, 64);
    sl_sim_ether_inject(to, packet, length, queue, strangers->begin_ns + place * APART_NS);
}

/* header->body_bytes is filled in; place: how many go before it. Returns the packet's length. */
static uint32_t make(const struct sl_sim_stranger *stranger, const struct sl_sim_device *to,
                     struct sl_dpdk_header *header, const uint8_t *body, uint32_t body_bytes,
                     uint8_t packet[PACKET_BYTES])
{
    struct sl_dpdk_route route;
    header->body_bytes = (uint16_t)body_bytes;
    sl_dpdk_route_build(&route, stranger->mac, to->self.mac, &stranger->here, &stranger->there);
    const uint32_t before = sl_dpdk_write(packet, &route, header);
    sl_assert(before + body_bytes <= PACKET_BYTES);
    memcpy(packet + before, body, body_bytes);
    sl_dpdk_seal(packet, before + body_bytes);
    return before + body_bytes;
}

static void say(struct sl_sim_strangers *strangers, const struct sl_sim_stranger *stranger,
                struct sl_sim_device *to, struct sl_dpdk_header *header, const uint8_t *body,
                uint32_t body_bytes, uint32_t place)
{
    uint8_t packet[PACKET_BYTES];
    const uint32_t length = make(stranger, to, header, body, body_bytes, packet);
    inject(strangers, to, packet, length, place);
}

static void say_open(struct sl_sim_strangers *strangers, struct sl_sim_stranger *stranger,
                     struct sl_sim_device *to)
{
    uint8_t body[SL_DPDK_HELLO_BYTES];
    struct sl_dpdk_header header = {.kind = SL_DPDK_OPEN, .sequence = stranger->hello.sequence};
    sl_dpdk_hello_encode(&stranger->hello, body);
    say(strangers, stranger, to, &header, body, sizeof body, 0);
}

static struct sl_dpdk_header numbered(struct sl_sim_stranger *stranger, uint8_t kind)
{
    return (struct sl_dpdk_header){.connection = stranger->id_there,
                                   .sequence = stranger->sequence++,
                                   .acknowledged = stranger->acknowledged,
                                   .granted = BIG_BYTES,
                                   .kind = kind};
}

static void write_head(uint8_t *body, uint32_t payload_bytes)
{
    const struct sl_frame frame = {
        .type = SL_FRAME_REQUEST, .payload_bytes = payload_bytes, .request_id = 1, .budget_us = 1};
    sl_frame_encode(&frame, body);
}

/* The piece at `offset` of so many messages, of frames of that length; nothing more of them. */
static void hold(struct sl_sim_strangers *strangers, struct sl_sim_stranger *stranger,
                 struct sl_sim_device *to, uint32_t payload_bytes, uint32_t offset, uint32_t count)
{
    uint8_t body[PIECE] = {0};
    if (offset == 0) {
        write_head(body, payload_bytes);
    }
    for (uint32_t i = 0; i < count; i++) {
        struct sl_dpdk_header header = numbered(stranger, SL_DPDK_DATA);
        header.message = i;
        header.offset = offset;
        say(strangers, stranger, to, &header, body, sizeof body, i);
    }
}

/* A length, and another for the same message; then pieces of the longer one. */
static void contradict(struct sl_sim_strangers *strangers, struct sl_sim_stranger *stranger,
                       struct sl_sim_device *to)
{
    const bool grows = sl_sim_chance(&strangers->random, 500);
    const uint32_t second = grows ? BIG_BYTES : 4 * PIECE - SL_FRAME_HEADER_BYTES;
    uint8_t body[PIECE] = {0};
    for (uint32_t i = 0; i < 12; i++) {
        struct sl_dpdk_header header = numbered(stranger, SL_DPDK_DATA);
        write_head(body, i == 0 ? LONG_BYTES : second);
        header.offset = i < 2 ? 0 : (i - 1 + (grows ? 40U : 0)) % 64U * PIECE;
        say(strangers, stranger, to, &header, body, sizeof body, i / 8);
    }
}

static void say_garbage(struct sl_sim_strangers *strangers, struct sl_sim_stranger *stranger,
                        struct sl_sim_device *to)
{
    uint64_t body[16];
    struct sl_dpdk_header header = numbered(stranger, SL_DPDK_BUNDLE);
    for (uint32_t i = 0; i < 16; i++) {
        body[i] = sl_hash_random(&strangers->random);
    }
    if (sl_sim_chance(&strangers->random, 500)) { /* a frame that the layer above must look at */
        write_head((uint8_t *)body, sizeof body - SL_FRAME_HEADER_BYTES);
    }
    say(strangers, stranger, to, &header, (const uint8_t *)body, sizeof body, 0);
}

static void say_end(struct sl_sim_strangers *strangers, struct sl_sim_stranger *stranger,
                    struct sl_sim_device *to)
{
    static const uint8_t kinds[] = {SL_DPDK_FIN, SL_DPDK_RESET, SL_DPDK_PROBE};
    uint8_t body[SL_DPDK_HELLO_BYTES];
    struct sl_dpdk_header header = numbered(stranger, kinds[sl_sim_below(&strangers->random, 3)]);
    header.message = sl_sim_below(&strangers->random, 3);
    sl_dpdk_hello_encode(&stranger->hello, body);
    const uint32_t bytes = header.kind == SL_DPDK_FIN     ? 0
                           : header.kind == SL_DPDK_RESET ? 1
                                                          : sizeof body;
    say(strangers, stranger, to, &header, body, bytes, 0);
}

static void misbehave(struct sl_sim_strangers *strangers, struct sl_sim_stranger *stranger,
                      struct sl_sim_device *to)
{
    switch (strangers->besieges ? strangers->how : sl_sim_below(&strangers->random, 8)) {
    case 0:
    case 1: /* short frames that are never whole */
        hold(strangers, stranger, to, SL_LIMIT_INLINE_PAYLOAD_BYTES, 0, PIECES);
        break;
    case 2: /* packets that wait for what says how long their frames are */
        hold(strangers, stranger, to, LONG_BYTES, PIECE, PIECES);
        break;
    case 3: /* more than is granted */
        hold(strangers, stranger, to, BIG_BYTES, 0, PIECES_MANY);
        break;
    case 4:
        contradict(strangers, stranger, to);
        break;
    case 5:
        say_garbage(strangers, stranger, to);
        break;
    case 6:
        say_end(strangers, stranger, to);
        break;
    default: /* nothing */
        break;
    }
}

/* From an address of the other family, which no answer can be built for. */
static void mix_families(struct sl_sim_strangers *strangers, struct sl_sim_stranger *stranger,
                         struct sl_sim_device *to)
{
    uint8_t packet[PACKET_BYTES], body[SL_DPDK_HELLO_BYTES];
    struct sl_dpdk_header header = {.kind = SL_DPDK_OPEN};
    struct sl_sim_stranger mixed = *stranger;
    static const uint8_t v6[16] = {0xfd, [15] = 9},
                         v4[16] = {[10] = 0xff, [11] = 0xff, 10, 9, 9, 9};
    sl_dpdk_hello_encode(&stranger->hello, body);
    memcpy(&mixed.here.ip, v6, sizeof v6);
    memcpy(&mixed.there.ip, v6, sizeof v6);
    const uint32_t length = make(&mixed, to, &header, body, sizeof body, packet);
    memcpy(packet + 22, strangers->ether->options.is_v6 ? v4 : v6, sizeof v6);
    memcpy(packet + 38, &to->self.ip, sizeof to->self.ip);
    sl_dpdk_seal(packet, length);
    inject(strangers, to, packet, length, 0);
}

/* Answers that nobody asked for, and questions about connections that there are not. */
static void say_of_nobody(struct sl_sim_strangers *strangers, struct sl_sim_stranger *stranger,
                          struct sl_sim_device *to)
{
    uint8_t body[SL_DPDK_HELLO_BYTES];
    struct sl_dpdk_header header = {
        .connection = sl_hash_random(&strangers->random),
        .kind = (uint8_t)sl_sim_between(&strangers->random, SL_DPDK_RETRY, SL_DPDK_RESET)};
    sl_dpdk_hello_encode(&stranger->hello, body);
    const bool is_empty = header.kind == SL_DPDK_FIN || header.kind == SL_DPDK_ACK;
    say(strangers, stranger, to, &header, body, is_empty ? 0 : sizeof body, 0);
}

static void ask_where(struct sl_sim_strangers *strangers, struct sl_sim_stranger *stranger,
                      struct sl_sim_device *to)
{
    uint8_t packet[SL_DPDK_NEIGHBOUR_BYTES];
    struct sl_dpdk_self self = {.ip = stranger->here.ip};
    memcpy(self.mac, stranger->mac, sizeof self.mac);
    inject(strangers, to, packet, sl_dpdk_neighbour_ask(&self, &to->self.ip, packet), 0);
}

static void ask_anew(struct sl_sim_strangers *strangers, struct sl_sim_stranger *stranger,
                     struct sl_sim_device *to)
{
    if (strangers->left_count == 0) {
        return;
    }
    strangers->left_count--;
    stranger->hello = (struct sl_dpdk_hello){
        .connection = stranger->hello.connection + 0x10000,
        .sequence = (uint32_t)sl_hash_random(&strangers->random),
        .granted = BIG_BYTES,
        .body_max = PIECE,
    };
    stranger->sequence = stranger->hello.sequence;
    say_open(strangers, stranger, to);
}

static void begin(struct sl_sim_strangers *strangers)
{
    struct sl_sim_network *network = strangers->ether->network;
    strangers->begin_ns = network->now_ns + sl_sim_delay_ns(network);
}

void sl_sim_strangers_see(struct sl_sim_strangers *strangers, struct sl_sim_device *to,
                          const uint8_t *bytes, uint32_t length)
{
    struct sl_dpdk_parsed parsed;
    if (strangers->permille == 0 || !sl_sim_chance(&strangers->random, strangers->permille) ||
        sl_dpdk_parse(bytes, length, true, &parsed) != SL_DPDK_OURS) {
        return;
    }
    struct sl_sim_stranger *stranger =
        &strangers->strangers[sl_sim_below(&strangers->random, SL_SIM_STRANGERS)];
    stranger->there = parsed.to;
    begin(strangers);
    if (strangers->besieges) {
        if (strangers->target == NULL) {
            strangers->target = to;
            strangers->target_address = parsed.to;
        }
        stranger->there = strangers->target_address;
        ask_anew(strangers, stranger, strangers->target);
        return;
    }
    switch (sl_sim_below(&strangers->random, 6)) {
    case 0:
        mix_families(strangers, stranger, to);
        break;
    case 1:
        say_of_nobody(strangers, stranger, to);
        break;
    case 2:
        ask_where(strangers, stranger, to);
        break;
    default:
        ask_anew(strangers, stranger, to);
        break;
    }
}

void sl_sim_strangers_hear(struct sl_sim_strangers *strangers, struct sl_sim_device *from,
                           const uint8_t *bytes, uint32_t length)
{
    struct sl_dpdk_parsed parsed;
    struct sl_dpdk_hello hello;
    const uint32_t i = bytes[5];
    if (strangers->permille == 0 || i >= SL_SIM_STRANGERS ||
        memcmp(bytes, strangers->strangers[i].mac, 6) != 0 ||
        sl_dpdk_parse(bytes, length, true, &parsed) != SL_DPDK_OURS ||
        parsed.header.kind > SL_DPDK_REFUSE ||
        sl_dpdk_hello_decode(parsed.body, parsed.body_bytes, &hello) != 0) {
        return;
    }
    struct sl_sim_stranger *stranger = &strangers->strangers[i];
    stranger->there = parsed.from;
    begin(strangers);
    if (parsed.header.connection != stranger->hello.connection) {
        return; /* of one that it asked for before */
    }
    if (parsed.header.kind == SL_DPDK_RETRY) {
        stranger->hello.cookie = hello.cookie;
        say_open(strangers, stranger, from);
    } else if (parsed.header.kind == SL_DPDK_ACCEPT && stranger->id_there != hello.connection) {
        stranger->id_there = hello.connection;
        stranger->acknowledged = hello.sequence;
        misbehave(strangers, stranger, from);
    }
}
