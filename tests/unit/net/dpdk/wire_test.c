/* Also: docs/dpdk-protocol.md shows packets byte for byte; this builds the same with the code. */

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/hash.h"
#include "net/dpdk/checksum.h"
#include "net/dpdk/wire.h"
#include "tests/support/unit.h"

#define PACKET_BYTES 2048U

static const uint8_t mac_a[6] = {2, 0, 0, 0, 0, 0xa}, mac_b[6] = {2, 0, 0, 0, 0, 0xb};

struct packet {
    struct sl_dpdk_route route;
    struct sl_dpdk_address from, to;
    uint32_t length;
    uint8_t bytes[PACKET_BYTES];
};

static struct sl_dpdk_address address(const char *text, uint16_t port)
{
    struct sl_dpdk_address address = {.port = port};
    assert_int_equal(inet_pton(AF_INET6, text, &address.ip), 1);
    return address;
}

static void route(struct packet *packet, bool is_v6)
{
    packet->from = address(is_v6 ? "fd00::a" : "::ffff:10.0.0.1", 40007);
    packet->to = address(is_v6 ? "fd00::b" : "::ffff:10.0.0.2", 40000);
    sl_dpdk_route_build(&packet->route, mac_a, mac_b, &packet->from, &packet->to);
}

static void fill(uint8_t *to, uint32_t bytes, uint64_t seed)
{
    for (uint32_t i = 0; i < bytes; i++) {
        to[i] = (uint8_t)sl_hash_random(&seed);
    }
}

static void build(struct packet *packet, bool is_v6, const struct sl_dpdk_header *header,
                  uint64_t seed)
{
    memset(packet, 0, sizeof *packet);
    route(packet, is_v6);
    uint32_t head = sl_dpdk_write(packet->bytes, &packet->route, header);
    assert_int_equal(head, (is_v6 ? 62 : 42) + SL_DPDK_HEADER_BYTES);
    packet->length = head + header->body_bytes;
    assert_true(packet->length <= PACKET_BYTES);
    fill(packet->bytes + head, header->body_bytes, seed);
    sl_dpdk_seal(packet->bytes, packet->length);
}

static struct sl_dpdk_header data_header(uint16_t body_bytes)
{
    return (struct sl_dpdk_header){.connection = 0x1122334455667703,
                                   .sequence = 0xfffffffe,
                                   .acknowledged = 0x01020304,
                                   .granted = 0x11121314,
                                   .message = 0x21222324,
                                   .offset = 0x31323334,
                                   .behind = 0x0123,
                                   .kind = SL_DPDK_DATA,
                                   .flags = SL_DPDK_FLAG_ANSWER,
                                   .body_bytes = body_bytes};
}

static enum sl_dpdk_class parse(const struct packet *packet, struct sl_dpdk_parsed *out)
{
    return sl_dpdk_parse(packet->bytes, packet->length, false, out);
}

static enum sl_dpdk_class class_of(const struct packet *packet)
{
    struct sl_dpdk_parsed parsed;
    return parse(packet, &parsed);
}

static void assert_headers_equal(const struct sl_dpdk_header *a, const struct sl_dpdk_header *b)
{
    assert_true(a->connection == b->connection);
    assert_int_equal(a->sequence, b->sequence);
    assert_int_equal(a->acknowledged, b->acknowledged);
    assert_int_equal(a->granted, b->granted);
    assert_int_equal(a->message, b->message);
    assert_int_equal(a->offset, b->offset);
    assert_int_equal(a->behind, b->behind);
    assert_int_equal(a->kind, b->kind);
    assert_int_equal(a->flags, b->flags);
    assert_int_equal(a->body_bytes, b->body_bytes);
}

SL_CASE(parse__returns_what_was_written)
{
    for (uint32_t i = 0; i < 2000; i++) {
        struct packet packet;
        struct sl_dpdk_parsed parsed;
        struct sl_dpdk_header header = data_header((uint16_t)(1 + i * 31 % 1400));
        build(&packet, i % 2 == 0, &header, i);
        assert_int_equal(parse(&packet, &parsed), SL_DPDK_OURS);
        assert_headers_equal(&parsed.header, &header);
        assert_int_equal(parsed.body_bytes, header.body_bytes);
        assert_ptr_equal(parsed.body, packet.bytes + packet.length - header.body_bytes);
        assert_int_equal(parsed.sack_words, 0);
        assert_true(parsed.sack[0] == 0 && parsed.sack[3] == 0);
        assert_memory_equal(&parsed.from.ip, &packet.from.ip, 16);
        assert_memory_equal(&parsed.to.ip, &packet.to.ip, 16);
        assert_int_equal(parsed.from.port, packet.from.port);
        assert_int_equal(parsed.to.port, packet.to.port);
        assert_memory_equal(parsed.from_mac, mac_a, 6);
        assert_memory_equal(packet.bytes, mac_b, 6);
    }
}

/* The checksum is the same however the body is divided, and whether software or the device computes
 * it. */
SL_CASE(seal__of_a_body_in_two)
{
    struct packet whole, parts;
    struct sl_dpdk_header header = data_header(301);
    for (uint32_t cut = 0; cut <= 301; cut++) {
        bool is_v6 = cut % 3 == 0;
        build(&whole, is_v6, &header, cut);
        build(&parts, is_v6, &header, cut);
        const uint8_t *body = parts.bytes + parts.length - 301;
        uint64_t checksum = sl_dpdk_checksum(0, body, cut),
                 rest = sl_dpdk_checksum(0, body + cut, 301 - cut);
        sl_dpdk_seal_sum(parts.bytes,
                         checksum + (cut % 2 == 0 ? rest : sl_dpdk_checksum_odd(rest)));
        assert_memory_equal(parts.bytes, whole.bytes, whole.length);
    }
}

/* A body that is there before the headers are written stays as it is. */
SL_CASE(write__leaves_the_body)
{
    for (int is_v6 = 0; is_v6 < 2; is_v6++) {
        struct packet packet;
        route(&packet, is_v6 == 1);
        uint32_t head = sl_dpdk_route_bytes(&packet.route);
        memset(packet.bytes, 0xee, sizeof packet.bytes);
        struct sl_dpdk_header header = data_header(10);
        assert_int_equal(sl_dpdk_write(packet.bytes, &packet.route, &header), head);
        for (uint32_t i = head; i < sizeof packet.bytes; i++) {
            assert_int_equal(packet.bytes[i], 0xee);
        }
    }
}

SL_CASE(seal__writes_ones_for_zero)
{
    struct sl_dpdk_header header = data_header(2);
    uint32_t found = 0;
    for (uint32_t i = 0; i < 0x10000; i++) {
        struct packet packet;
        memset(&packet, 0, sizeof packet);
        route(&packet, false);
        uint16_t word = (uint16_t)i;
        packet.length = sl_dpdk_write(packet.bytes, &packet.route, &header) + 2;
        memcpy(packet.bytes + packet.length - 2, &word, 2);
        sl_dpdk_seal(packet.bytes, packet.length);
        assert_true(packet.bytes[40] != 0 || packet.bytes[41] != 0);
        found += packet.bytes[40] == 0xff && packet.bytes[41] == 0xff;
        assert_int_equal(class_of(&packet), SL_DPDK_OURS);
    }
    assert_true(found >= 1);
}

/* What no checksum is over: Ethernet's addresses, where the source's is no group's; with IPv6
 * traffic class, flow label, hop limit. */
static bool is_free(bool is_v6, uint32_t at, uint32_t bit)
{
    return (at < 12 && (at != 6 || bit != 0)) ||
           (is_v6 && ((at == 14 && bit < 4) || (at > 14 && at < 18) || at == 21));
}

SL_CASE(parse__any_bit_changed)
{
    struct packet packet;
    struct sl_dpdk_header header = data_header(65);
    for (int is_v6 = 0; is_v6 < 2; is_v6++) {
        build(&packet, is_v6 == 1, &header, 3);
        for (uint32_t i = 0; i < 8 * packet.length; i++) {
            packet.bytes[i / 8] ^= (uint8_t)(1U << i % 8);
            enum sl_dpdk_class class = class_of(&packet);
            if (is_free(is_v6 == 1, i / 8, i % 8)) {
                assert_int_equal(class, SL_DPDK_OURS);
            } else {
                assert_int_not_equal(class, SL_DPDK_OURS);
            }
            packet.bytes[i / 8] ^= (uint8_t)(1U << i % 8);
        }
        assert_int_equal(class_of(&packet), SL_DPDK_OURS);
    }
}

SL_CASE(parse__any_length)
{
    struct packet packet;
    struct sl_dpdk_parsed parsed;
    struct sl_dpdk_header header = data_header(20);
    for (int is_v6 = 0; is_v6 < 2; is_v6++) {
        build(&packet, is_v6 == 1, &header, 4);
        for (uint32_t length = 0; length < packet.length; length++) {
            uint8_t *exactly = malloc(length + 1); /* nothing behind is readable */
            assert_non_null(exactly);
            memcpy(exactly + 1, packet.bytes, length);
            assert_int_not_equal(sl_dpdk_parse(exactly + 1, length, true, &parsed), SL_DPDK_OURS);
            free(exactly);
        }
        packet.length += 30; /* as Ethernet pads */
        assert_int_equal(parse(&packet, &parsed), SL_DPDK_OURS);
        assert_int_equal(parsed.body_bytes, 20);
    }
}

SL_CASE(parse__checked_by_the_device)
{
    struct packet packet;
    struct sl_dpdk_parsed parsed;
    struct sl_dpdk_header header = data_header(20);
    build(&packet, false, &header, 4);
    packet.bytes[packet.length - 1] ^= 1;
    assert_int_equal(sl_dpdk_parse(packet.bytes, packet.length, false, &parsed), SL_DPDK_MALFORMED);
    assert_int_equal(sl_dpdk_parse(packet.bytes, packet.length, true, &parsed), SL_DPDK_OURS);
    memset(packet.bytes + 40, 0, 2); /* a sum is never missing */
    assert_int_equal(sl_dpdk_parse(packet.bytes, packet.length, true, &parsed), SL_DPDK_MALFORMED);
}

static void fix_ipv4_checksum(struct packet *packet)
{
    memset(packet->bytes + 24, 0, 2);
    uint16_t checksum = sl_dpdk_checksum_fold(sl_dpdk_checksum(0, packet->bytes + 14, 20));
    memcpy(packet->bytes + 24, &checksum, 2);
}

SL_CASE(parse__what_is_not_for_us)
{
    static const struct {
        uint32_t at;
        uint8_t value;
        bool is_v6;
        enum sl_dpdk_class class;
    } cases[] = {
        {23, 6, false, SL_DPDK_NOT_OURS},     /* TCP */
        {20, 0x20, false, SL_DPDK_NOT_OURS},  /* the first fragment */
        {21, 1, false, SL_DPDK_NOT_OURS},     /* another */
        {14, 0x46, false, SL_DPDK_NOT_OURS},  /* options */
        {14, 0x65, false, SL_DPDK_NOT_OURS},  /* not version 4 */
        {13, 0x06, false, SL_DPDK_NEIGHBOUR}, /* ARP */
        {6, 0x03, false, SL_DPDK_NOT_OURS},   /* from a group */
        {12, 0x81, false, SL_DPDK_NOT_OURS},  /* something else than IP */
        {20, 6, true, SL_DPDK_NOT_OURS},      /* TCP */
        {20, 44, true, SL_DPDK_NOT_OURS},     /* a fragment */
        {20, 58, true, SL_DPDK_NOT_OURS},     /* ICMP of another type */
        {14, 0x40, true, SL_DPDK_NOT_OURS},   /* not version 6 */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct packet packet;
        struct sl_dpdk_header header = data_header(20);
        build(&packet, cases[i].is_v6, &header, 4);
        packet.bytes[cases[i].at] = cases[i].value;
        if (!cases[i].is_v6) {
            fix_ipv4_checksum(&packet);
        }
        assert_int_equal(class_of(&packet), cases[i].class);
        if (cases[i].value == 58) {
            packet.bytes[54] = 135;
            assert_int_equal(class_of(&packet), SL_DPDK_NEIGHBOUR);
            packet.bytes[54] = 136;
            assert_int_equal(class_of(&packet), SL_DPDK_NEIGHBOUR);
        }
    }
}

static enum sl_dpdk_class class_of_header(uint8_t kind, uint8_t flags, uint64_t connection,
                                          uint16_t body_bytes)
{
    struct packet packet;
    struct sl_dpdk_header header = data_header(body_bytes);
    header.kind = kind;
    header.flags = flags;
    header.connection = connection;
    build(&packet, false, &header, 4);
    return class_of(&packet);
}

SL_CASE(parse__what_each_kind_may_have)
{
    static const struct {
        uint8_t kind;
        uint32_t least, most;
        bool acknowledges, may_have_no_id;
    } kinds[] = {
        {SL_DPDK_OPEN, 40, 1900, false, true},    {SL_DPDK_RETRY, 40, 1900, false, false},
        {SL_DPDK_ACCEPT, 40, 1900, false, false}, {SL_DPDK_REFUSE, 40, 1900, false, false},
        {SL_DPDK_DATA, 1, 1900, true, false},     {SL_DPDK_BUNDLE, 1, 1900, true, false},
        {SL_DPDK_PROBE, 0, 1900, true, false},    {SL_DPDK_FIN, 0, 0, true, false},
        {SL_DPDK_ACK, 0, 0, true, false},         {SL_DPDK_RESET, 1, 1900, true, false},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        uint8_t kind = kinds[i].kind;
        uint16_t least = (uint16_t)kinds[i].least, most = (uint16_t)kinds[i].most;
        enum sl_dpdk_class with_flags = kinds[i].acknowledges ? SL_DPDK_OURS : SL_DPDK_MALFORMED;
        assert_int_equal(class_of_header(kind, 0, 1, least), SL_DPDK_OURS);
        assert_int_equal(class_of_header(kind, 0, 1, most), SL_DPDK_OURS);
        if (least > 0) {
            assert_int_equal(class_of_header(kind, 0, 1, (uint16_t)(least - 1)), SL_DPDK_MALFORMED);
        }
        if (most == 0) {
            assert_int_equal(class_of_header(kind, 0, 1, 1), SL_DPDK_MALFORMED);
        }
        assert_int_equal(class_of_header(kind, SL_DPDK_FLAG_ANSWER, 1, least), with_flags);
        assert_int_equal(class_of_header(kind, 4, 1, (uint16_t)(least + 32)), with_flags);
        assert_int_equal(class_of_header(kind, 4, 1, (uint16_t)(least + 31)), SL_DPDK_MALFORMED);
        assert_int_equal(class_of_header(kind, 5, 1, (uint16_t)(least + 40)), SL_DPDK_MALFORMED);
        assert_int_equal(class_of_header(kind, SL_DPDK_FLAG_MORE, 1, least),
                         kind == SL_DPDK_DATA || kind == SL_DPDK_BUNDLE ? SL_DPDK_OURS
                                                                        : SL_DPDK_MALFORMED);
        assert_int_equal(class_of_header(kind, 0x20, 1, least), SL_DPDK_MALFORMED);
        assert_int_equal(class_of_header(kind, 0x80, 1, least), SL_DPDK_MALFORMED);
        assert_int_equal(class_of_header(kind, 0, 0, least),
                         kinds[i].may_have_no_id ? SL_DPDK_OURS : SL_DPDK_MALFORMED);
    }
    assert_int_equal(class_of_header(0, 0, 1, 40), SL_DPDK_MALFORMED);
    for (uint8_t kind = SL_DPDK_RESET + 1; kind < 16; kind++) {
        assert_int_equal(class_of_header(kind, 0, 1, 40), SL_DPDK_MALFORMED);
    }
    /* Another version: kind has the upper 4 bits of a byte that already has the version. */
    assert_int_equal(class_of_header(SL_DPDK_DATA | 0x40, 0, 1, 40), SL_DPDK_MALFORMED);
}

SL_CASE(parse__words)
{
    struct packet packet;
    struct sl_dpdk_parsed parsed;
    struct sl_dpdk_header header = data_header(24 + 5);
    header.flags = 3 | SL_DPDK_FLAG_ANSWER;
    build(&packet, true, &header, 4);
    const uint64_t words[3] = {1, 0x0123456789abcdef, 1ULL << 63};
    memcpy(packet.bytes + packet.length - 29, words, sizeof words);
    sl_dpdk_seal(packet.bytes, packet.length);
    assert_int_equal(parse(&packet, &parsed), SL_DPDK_OURS);
    assert_int_equal(parsed.sack_words, 3);
    assert_memory_equal(parsed.sack, words, sizeof words);
    assert_true(parsed.sack[3] == 0);
    assert_int_equal(parsed.body_bytes, 5);
    assert_ptr_equal(parsed.body, packet.bytes + packet.length - 5);
}

/* ---- hello ----------------------------------------------------------------------------------- */

static const struct sl_dpdk_hello hello_example = {.connection = 0x1122334455667703,
                                                   .cookie = 0x8877665544332211,
                                                   .sequence = 0x01020304,
                                                   .granted = 65536,
                                                   .body_max = 1440,
                                                   .queues = 8,
                                                   .reactors = 4,
                                                   .index = 3,
                                                   .blocks = 1,
                                                   .err = 7};

SL_CASE(hello_decode__returns_what_was_encoded)
{
    uint8_t bytes[SL_DPDK_HELLO_BYTES + 10] = {0};
    struct sl_dpdk_hello out;
    sl_dpdk_hello_encode(&hello_example, bytes);
    assert_int_equal(sl_dpdk_hello_decode(bytes, sizeof bytes, &out), 0);
    assert_true(out.connection == hello_example.connection);
    assert_true(out.cookie == hello_example.cookie);
    assert_int_equal(out.sequence, hello_example.sequence);
    assert_int_equal(out.granted, hello_example.granted);
    assert_int_equal(out.body_max, hello_example.body_max);
    assert_int_equal(out.queues, hello_example.queues);
    assert_int_equal(out.reactors, hello_example.reactors);
    assert_int_equal(out.index, hello_example.index);
    assert_int_equal(out.blocks, hello_example.blocks);
    assert_int_equal(out.err, hello_example.err);
}

static int decode(const struct sl_dpdk_hello *hello)
{
    uint8_t bytes[SL_DPDK_HELLO_BYTES];
    struct sl_dpdk_hello out;
    sl_dpdk_hello_encode(hello, bytes);
    return sl_dpdk_hello_decode(bytes, sizeof bytes, &out);
}

SL_CASE(hello_decode__refuses)
{
    uint8_t bytes[SL_DPDK_HELLO_BYTES];
    struct sl_dpdk_hello out;
    sl_dpdk_hello_encode(&hello_example, bytes);
    for (uint32_t length = 0; length < sizeof bytes; length++) {
        assert_int_equal(sl_dpdk_hello_decode(bytes, length, &out), SL_ERR_PROTOCOL);
    }
    struct sl_dpdk_hello hello = hello_example;
    hello.connection = 0;
    assert_int_equal(decode(&hello), SL_ERR_PROTOCOL);
    hello = hello_example;
    hello.body_max = SL_DPDK_BODY_MIN - 1;
    assert_int_equal(decode(&hello), SL_ERR_PROTOCOL);
    hello = hello_example;
    hello.index = hello.reactors;
    assert_int_equal(decode(&hello), SL_ERR_PROTOCOL);
    hello = hello_example;
    hello.reactors = (uint16_t)(hello.queues + 1);
    assert_int_equal(decode(&hello), SL_ERR_PROTOCOL);
    hello = hello_example;
    hello.reactors = 0;
    assert_int_equal(decode(&hello), SL_ERR_PROTOCOL);
    hello = hello_example;
    hello.blocks = 2;
    assert_int_equal(decode(&hello), SL_ERR_PROTOCOL);
    hello.queues = 0; /* then nothing is said of them */
    assert_int_equal(decode(&hello), 0);
}

/* ---- the page -------------------------------------------------------------------------------- */

/* The block of bytes in hex that follows the line ```hex NAME: offset, colon, bytes. */
static uint32_t read_hex(const char *name, uint8_t *bytes, uint32_t bytes_max)
{
    FILE *page = fopen(DPDK_PAGE, "r");
    assert_non_null(page);
    char wanted[64], line[1024] = "";
    snprintf(wanted, sizeof wanted, "```hex %s\n", name);
    while (strcmp(line, wanted) != 0) {
        if (fgets(line, sizeof line, page) == NULL) {
            fail_msg("the page has no block %s", name);
        }
    }
    uint32_t length = 0;
    while (fgets(line, sizeof line, page) != NULL && strncmp(line, "```", 3) != 0) {
        char *at = strchr(line, ':'), *end;
        assert_non_null(at);
        assert_int_equal(strtoul(line, NULL, 16), length);
        for (at++;; at = end) {
            unsigned long byte = strtoul(at, &end, 16);
            if (end == at) {
                break;
            }
            assert_true(length < bytes_max);
            bytes[length++] = (uint8_t)byte;
        }
    }
    fclose(page);
    return length;
}

static void assert_is_block(const char *name, const uint8_t *bytes, uint32_t length)
{
    uint8_t block[PACKET_BYTES];
    uint32_t block_length = read_hex(name, block, sizeof block);
    for (uint32_t i = 0; i < length && i < block_length; i++) {
        if (block[i] != bytes[i]) {
            fail_msg("%s: byte %x is %02x on the page, %02x here", name, i, block[i], bytes[i]);
        }
    }
    assert_int_equal(block_length, length);
}

SL_CASE(page__shows_these_packets)
{
    static const uint8_t frame[] = {0x00, 0x00, 0x00, 0x00, 0x4c, 0x53, 0x02, 0x04,
                                    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
                                    0x00, 0x00, 0x00, 0x00, 0x8d, 0x77, 0x60, 0x14,
                                    0x00, 0x10, 0x00, 0x00, 0x02, 0x00, 0x01, 0x00};
    struct packet packet;
    memset(&packet, 0, sizeof packet);
    route(&packet, false);
    struct sl_dpdk_header header = {.connection = 0x1122334455667700,
                                    .sequence = 1001,
                                    .acknowledged = 5000,
                                    .granted = 70000,
                                    .message = 7,
                                    .behind = 3,
                                    .kind = SL_DPDK_BUNDLE,
                                    .flags = 1,
                                    .body_bytes = 8 + sizeof frame};
    uint32_t head = sl_dpdk_write(packet.bytes, &packet.route, &header);
    packet.bytes[head] = 6; /* 5002 and 5003 have come */
    memcpy(packet.bytes + head + 8, frame, sizeof frame);
    packet.length = head + header.body_bytes;
    sl_dpdk_seal(packet.bytes, packet.length);
    assert_int_equal(class_of(&packet), SL_DPDK_OURS);
    assert_is_block("bundle", packet.bytes, packet.length);
    uint8_t hello[SL_DPDK_HELLO_BYTES];
    sl_dpdk_hello_encode(&hello_example, hello);
    assert_is_block("hello", hello, sizeof hello);
}

/* ::ffff:10.0.0.1 stands for IPv4 in our addresses; an IPv6 packet that names it could not be
 * answered. */
SL_CASE(parse__an_ipv6_packet_with_an_ipv4_address_is_not_ours)
{
    static const uint32_t places[] = {14 + 8, 14 + 24}; /* the source's, the destination's */
    static const uint8_t mapped[16] = {[10] = 0xff, [11] = 0xff, 10, 0, 0, 1};
    for (uint32_t i = 0; i < 2; i++) {
        struct packet packet;
        struct sl_dpdk_parsed parsed;
        const struct sl_dpdk_header header = data_header(64);
        build(&packet, true, &header, 7);
        assert_int_equal(sl_dpdk_parse(packet.bytes, packet.length, false, &parsed), SL_DPDK_OURS);
        memcpy(packet.bytes + places[i], mapped, sizeof mapped);
        memset(packet.bytes + 14 + 40 + 6, 0, 2);
        sl_dpdk_seal(packet.bytes, packet.length);
        assert_int_equal(sl_dpdk_parse(packet.bytes, packet.length, false, &parsed),
                         SL_DPDK_NOT_OURS);
        assert_int_equal(sl_dpdk_parse(packet.bytes, packet.length, true, &parsed),
                         SL_DPDK_NOT_OURS);
    }
}
