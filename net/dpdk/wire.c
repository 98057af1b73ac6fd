#include "net/dpdk/wire.h"

#include <string.h>

#include "core/assert.h"
#include "core/bytes.h"
#include "net/dpdk/checksum.h"

#define ETHER_BYTES      14U
#define IPV4_BYTES       20U
#define IPV6_BYTES       40U
#define UDP_BYTES        8U
#define ETHER_IPV4       0x0800U
#define ETHER_ARP        0x0806U
#define ETHER_IPV6       0x86ddU
#define PROTOCOL_UDP     17U
#define PROTOCOL_ICMPV6  58U
#define HOPS             64U
#define IPV4_SIMPLE      0x45U   /* version 4, no options */
#define IPV4_WHOLE       0x4000U /* don't fragment */
#define IPV4_FRAGMENT    0x3fffU /* more fragments, or not the first */
#define ND_SOLICITATION  135U
#define ND_ADVERTISEMENT 136U

/* Numbers in network order */

static uint16_t dpdk_wire_read_be16(const uint8_t *from)
{
    return (uint16_t)(from[0] << 8 | from[1]);
}

static void write_be16(uint8_t *to, uint32_t value)
{
    to[0] = (uint8_t)(value >> 8);
    to[1] = (uint8_t)value;
}

/* The contribution of a 16-bit number to a checksum, which reads memory as little-endian words. */
static uint64_t checksum_of_be16(uint32_t value)
{
    return __builtin_bswap16((uint16_t)value);
}

/* Outer headers */

static uint32_t route_ipv4(uint8_t *ip, const struct in6_addr *from, const struct in6_addr *to)
{
    ip[0] = IPV4_SIMPLE;
    write_be16(ip + 6, IPV4_WHOLE);
    ip[8] = HOPS;
    ip[9] = PROTOCOL_UDP;
    memcpy(ip + 12, from->s6_addr + 12, 4);
    memcpy(ip + 16, to->s6_addr + 12, 4);
    /* Without the length, which write_lengths adds. */
    uint16_t checksum = (uint16_t)~sl_dpdk_checksum_fold(sl_dpdk_checksum(0, ip, IPV4_BYTES));
    memcpy(ip + 10, &checksum, sizeof checksum);
    return IPV4_BYTES;
}

static uint32_t route_ipv6(uint8_t *ip, const struct in6_addr *from, const struct in6_addr *to)
{
    ip[0] = 0x60;
    ip[6] = PROTOCOL_UDP;
    ip[7] = HOPS;
    memcpy(ip + 8, from, sizeof *from);
    memcpy(ip + 24, to, sizeof *to);
    return IPV6_BYTES;
}

void sl_dpdk_route_build(struct sl_dpdk_route *route, const uint8_t from_mac[6],
                         const uint8_t to_mac[6], const struct sl_dpdk_address *from,
                         const struct sl_dpdk_address *to)
{
    bool is_v6 = !IN6_IS_ADDR_V4MAPPED(&from->ip);
    sl_assert(is_v6 == !IN6_IS_ADDR_V4MAPPED(&to->ip));
    *route = (struct sl_dpdk_route){.is_v6 = is_v6};
    uint8_t *outer = route->outer;
    memcpy(outer, to_mac, 6);
    memcpy(outer + 6, from_mac, 6);
    write_be16(outer + 12, is_v6 ? ETHER_IPV6 : ETHER_IPV4);
    uint8_t *ip = outer + ETHER_BYTES;
    uint32_t ip_bytes =
        is_v6 ? route_ipv6(ip, &from->ip, &to->ip) : route_ipv4(ip, &from->ip, &to->ip);
    write_be16(ip + ip_bytes, from->port);
    write_be16(ip + ip_bytes + 2, to->port);
    route->outer_bytes = (uint8_t)(ETHER_BYTES + ip_bytes + UDP_BYTES);
}

static void write_lengths(uint8_t *packet, bool is_v6, uint32_t udp_bytes)
{
    uint8_t *ip = packet + ETHER_BYTES;
    if (is_v6) {
        write_be16(ip + 4, udp_bytes);
        write_be16(ip + IPV6_BYTES + 4, udp_bytes);
        return;
    }
    uint32_t total = IPV4_BYTES + udp_bytes;
    write_be16(ip + 2, total);
    uint16_t checksum;
    memcpy(&checksum, ip + 10, sizeof checksum);
    checksum = sl_dpdk_checksum_fold(checksum + checksum_of_be16(total));
    memcpy(ip + 10, &checksum, sizeof checksum);
    write_be16(ip + IPV4_BYTES + 4, udp_bytes);
}

/* Our header */

static void write_u64(uint8_t *to, uint64_t value)
{
    memcpy(to, &value, sizeof value);
}

/* Word by word: wide loads after narrow stores of the fields would stall. The struct has the fields
 * of a word apart, or the compiler would load them at once. */
static void header_encode(const struct sl_dpdk_header *header, uint8_t *to)
{
    uint64_t version_kind = header->kind | SL_DPDK_VERSION << 4;
    write_u64(to, header->connection);
    write_u64(to + 8, header->sequence | (uint64_t)header->acknowledged << 32);
    write_u64(to + 16, header->granted | (uint64_t)header->message << 32);
    write_u64(to + 24, header->offset | (uint64_t)header->behind << 32 | version_kind << 48 |
                           (uint64_t)header->flags << 56);
}

/* The permitted body and flags of a kind. */
struct shape {
    uint16_t body_min, body_max; /* without SACK words */
    bool acknowledges;           /* may have SACK words and ANSWER */
};

static const struct shape shapes[] = {
    [SL_DPDK_OPEN] = {SL_DPDK_HELLO_BYTES, UINT16_MAX, false},
    [SL_DPDK_RETRY] = {SL_DPDK_HELLO_BYTES, UINT16_MAX, false},
    [SL_DPDK_ACCEPT] = {SL_DPDK_HELLO_BYTES, UINT16_MAX, false},
    [SL_DPDK_REFUSE] = {SL_DPDK_HELLO_BYTES, UINT16_MAX, false},
    [SL_DPDK_DATA] = {1, UINT16_MAX, true},
    [SL_DPDK_BUNDLE] = {1, UINT16_MAX, true},
    [SL_DPDK_PROBE] = {0, UINT16_MAX, true},
    [SL_DPDK_FIN] = {0, 0, true},
    [SL_DPDK_ACK] = {0, 0, true},
    [SL_DPDK_RESET] = {1, UINT16_MAX, true},
};
#define SHAPES (sizeof shapes / sizeof shapes[0])

/* Decodes our header; false: malformed in every version. */
static bool header_decode(struct sl_bytes *cursor, struct sl_dpdk_header *out, uint8_t *version)
{
    uint64_t words[SL_DPDK_HEADER_BYTES / 8];
    sl_bytes_copy(cursor, words, sizeof words);
    uint8_t version_kind = (uint8_t)(words[3] >> 48);
    *out = (struct sl_dpdk_header){
        .connection = words[0],
        .sequence = (uint32_t)words[1],
        .acknowledged = (uint32_t)(words[1] >> 32),
        .granted = (uint32_t)words[2],
        .message = (uint32_t)(words[2] >> 32),
        .offset = (uint32_t)words[3],
        .behind = (uint16_t)(words[3] >> 32),
        .kind = version_kind & 0x0f,
        .flags = (uint8_t)(words[3] >> 56),
        .body_bytes = (uint16_t)cursor->left,
    };
    *version = version_kind >> 4;
    return !cursor->bad && out->kind != 0 && out->kind < SHAPES &&
           (out->connection != 0 || out->kind == SL_DPDK_OPEN);
}

/* Decodes flags, SACK words and body. */
static bool body_decode(struct sl_bytes *cursor, struct sl_dpdk_parsed *out)
{
    const struct shape *shape = &shapes[out->header.kind];
    uint8_t flags = out->header.flags;
    out->sack_words = flags & SL_DPDK_FLAG_SACK;
    uint8_t known = SL_DPDK_FLAG_SACK | SL_DPDK_FLAG_ANSWER;
    if (out->header.kind == SL_DPDK_DATA || out->header.kind == SL_DPDK_BUNDLE) {
        known |= SL_DPDK_FLAG_MORE;
    }
    if ((flags & ~known) != 0 || out->sack_words > SL_DPDK_SACK_WORDS ||
        (flags != 0 && !shape->acknowledges)) {
        return false;
    }
    for (uint32_t i = 0; i < SL_DPDK_SACK_WORDS; i++) {
        out->sack[i] = i < out->sack_words ? sl_bytes_u64(cursor) : 0;
    }
    out->body = cursor->next;
    out->body_bytes = (uint32_t)cursor->left;
    return !cursor->bad && out->body_bytes >= shape->body_min && out->body_bytes <= shape->body_max;
}

/* Writing */

uint32_t sl_dpdk_write(uint8_t *packet, const struct sl_dpdk_route *route,
                       const struct sl_dpdk_header *header)
{
    memcpy(packet, route->outer,
           sizeof route->outer); /* constant length: faster; the header overwrites the surplus */
    write_lengths(packet, route->is_v6, UDP_BYTES + SL_DPDK_HEADER_BYTES + header->body_bytes);
    header_encode(header, packet + route->outer_bytes);
    return sl_dpdk_route_bytes(route);
}

/* The UDP checksum without the body: pseudo header (the addresses precede the UDP header in both
 * protocols), UDP header and our header. Sets *udp. */
static uint64_t head_checksum(uint8_t **udp)
{
    uint8_t *packet = *udp;
    bool is_v6 = dpdk_wire_read_be16(packet + 12) == ETHER_IPV6;
    uint32_t addresses = is_v6 ? 32 : 8;
    *udp = packet + ETHER_BYTES + (is_v6 ? IPV6_BYTES : IPV4_BYTES);
    memset(*udp + 6, 0, 2);
    return sl_dpdk_checksum(checksum_of_be16(PROTOCOL_UDP) +
                                checksum_of_be16(dpdk_wire_read_be16(*udp + 4)),
                            *udp - addresses, addresses + UDP_BYTES + SL_DPDK_HEADER_BYTES);
}

static void store_checksum(uint8_t *udp, uint64_t checksum)
{
    /* 0 means no checksum; all ones is the same value. */
    uint16_t folded = sl_dpdk_checksum_fold(checksum);
    folded = folded == 0 ? 0xffff : folded;
    memcpy(udp + 6, &folded, sizeof folded);
}

void sl_dpdk_seal(uint8_t *packet, uint32_t length)
{
    uint8_t *udp = packet;
    uint64_t checksum = head_checksum(&udp);
    const uint8_t *body = udp + UDP_BYTES + SL_DPDK_HEADER_BYTES;
    uint32_t head_bytes = (uint32_t)(body - packet);
    sl_assert(length >= head_bytes);
    sl_assert_slow(dpdk_wire_read_be16(udp + 4) ==
                   UDP_BYTES + SL_DPDK_HEADER_BYTES + length - head_bytes);
    store_checksum(udp, sl_dpdk_checksum(checksum, body, length - head_bytes));
}

void sl_dpdk_seal_sum(uint8_t *packet, uint64_t body_checksum)
{
    uint8_t *udp = packet;
    uint64_t checksum = head_checksum(&udp);
    store_checksum(udp, checksum + body_checksum);
}

/* Reading */

/* addresses: those of the IP header, `address_bytes` in total, directly before the datagram of
 * `bytes`. */
static enum sl_dpdk_class parse_udp(const uint8_t *addresses, uint32_t address_bytes,
                                    uint32_t bytes, bool checked, struct sl_dpdk_parsed *out)
{
    struct sl_bytes datagram = sl_bytes_over(addresses + address_bytes, bytes);
    const uint8_t *udp = sl_bytes_take(&datagram, UDP_BYTES);
    if (udp == NULL || dpdk_wire_read_be16(udp + 4) != bytes || (udp[6] == 0 && udp[7] == 0)) {
        return SL_DPDK_MALFORMED;
    }
    if (!checked) {
        uint64_t checksum = checksum_of_be16(PROTOCOL_UDP) + checksum_of_be16(bytes);
        if (sl_dpdk_checksum_fold(sl_dpdk_checksum(checksum, addresses, address_bytes + bytes)) !=
            0) {
            return SL_DPDK_MALFORMED;
        }
    }
    out->from.port = dpdk_wire_read_be16(udp);
    out->to.port = dpdk_wire_read_be16(udp + 2);
    uint8_t version;
    if (!header_decode(&datagram, &out->header, &version)) {
        return SL_DPDK_MALFORMED;
    }
    if (version != SL_DPDK_VERSION) {
        out->version = version;
        out->body = datagram.next;
        out->body_bytes = (uint32_t)datagram.left;
        return SL_DPDK_MALFORMED;
    }
    return body_decode(&datagram, out) ? SL_DPDK_OURS : SL_DPDK_MALFORMED;
}

static bool ipv4_head_is_sound(const uint8_t *ip)
{
    uint64_t checksum = 0;
    for (uint32_t i = 0; i < IPV4_BYTES; i += 4) {
        uint32_t word;
        memcpy(&word, ip + i, sizeof word);
        checksum += word;
    }
    return sl_dpdk_checksum_fold(checksum) == 0;
}

static void map_ipv4(struct in6_addr *to, const uint8_t *from)
{
    static const uint8_t prefix[12] = {[10] = 0xff, [11] = 0xff};
    memcpy(to->s6_addr, prefix, sizeof prefix);
    memcpy(to->s6_addr + 12, from, 4);
}

static enum sl_dpdk_class parse_ipv4(struct sl_bytes cursor, bool checked,
                                     struct sl_dpdk_parsed *out)
{
    const uint8_t *ip = sl_bytes_take(&cursor, IPV4_BYTES);
    if (ip == NULL || ip[0] != IPV4_SIMPLE || ip[9] != PROTOCOL_UDP ||
        (dpdk_wire_read_be16(ip + 6) & IPV4_FRAGMENT) != 0) {
        return SL_DPDK_NOT_OURS;
    }
    uint32_t total = dpdk_wire_read_be16(ip + 2);
    if (!ipv4_head_is_sound(ip) || total < IPV4_BYTES || total - IPV4_BYTES > cursor.left) {
        return SL_DPDK_MALFORMED;
    }
    map_ipv4(&out->from.ip, ip + 12);
    map_ipv4(&out->to.ip, ip + 16);
    /* Ethernet may add padding. */
    return parse_udp(ip + 12, 8, total - IPV4_BYTES, checked, out);
}

static enum sl_dpdk_class parse_ipv6(struct sl_bytes cursor, bool checked,
                                     struct sl_dpdk_parsed *out)
{
    const uint8_t *ip = sl_bytes_take(&cursor, IPV6_BYTES);
    if (ip == NULL || ip[0] >> 4 != 6) {
        return SL_DPDK_NOT_OURS;
    }
    if (ip[6] == PROTOCOL_ICMPV6) {
        uint8_t type = sl_bytes_u8(&cursor);
        return type == ND_SOLICITATION || type == ND_ADVERTISEMENT ? SL_DPDK_NEIGHBOUR
                                                                   : SL_DPDK_NOT_OURS;
    }
    if (ip[6] != PROTOCOL_UDP) {
        return SL_DPDK_NOT_OURS;
    }
    uint32_t bytes = dpdk_wire_read_be16(ip + 4);
    if (bytes > cursor.left) {
        return SL_DPDK_MALFORMED;
    }
    memcpy(&out->from.ip, ip + 8, sizeof out->from.ip);
    memcpy(&out->to.ip, ip + 24, sizeof out->to.ip);
    /* ::ffff:a.b.c.d stands for IPv4 here (map_ipv4). No host sends it in an IPv6 packet, and no
     * answer could be built. */
    if (IN6_IS_ADDR_V4MAPPED(&out->from.ip) || IN6_IS_ADDR_V4MAPPED(&out->to.ip)) {
        return SL_DPDK_NOT_OURS;
    }
    return parse_udp(ip + 8, 32, bytes, checked, out);
}

enum sl_dpdk_class sl_dpdk_parse(const uint8_t *packet, uint32_t length, bool checked,
                                 struct sl_dpdk_parsed *out)
{
    struct sl_bytes cursor = sl_bytes_over(packet, length);
    const uint8_t *ether = sl_bytes_take(&cursor, ETHER_BYTES);
    if (ether == NULL || (ether[6] & 1) != 0) { /* a multicast source address is invalid */
        return SL_DPDK_NOT_OURS;
    }
    out->from_mac = ether + 6;
    out->version = 0;
    switch (dpdk_wire_read_be16(ether + 12)) {
    case ETHER_IPV4:
        return parse_ipv4(cursor, checked, out);
    case ETHER_IPV6:
        return parse_ipv6(cursor, checked, out);
    case ETHER_ARP:
        return SL_DPDK_NEIGHBOUR;
    default:
        return SL_DPDK_NOT_OURS;
    }
}

/* Hello */

#define PUT(writer, field) sl_bytes_put(writer, &(field), sizeof(field))

void sl_dpdk_hello_encode(const struct sl_dpdk_hello *hello, uint8_t to[SL_DPDK_HELLO_BYTES])
{
    memset(to, 0, SL_DPDK_HELLO_BYTES);
    struct sl_bytes_writer writer = sl_bytes_writer_over(to, SL_DPDK_HELLO_BYTES);
    PUT(&writer, hello->connection);
    PUT(&writer, hello->cookie);
    PUT(&writer, hello->sequence);
    PUT(&writer, hello->granted);
    PUT(&writer, hello->body_max);
    PUT(&writer, (uint16_t){0});
    PUT(&writer, hello->queues);
    PUT(&writer, hello->reactors);
    PUT(&writer, hello->index);
    PUT(&writer, hello->blocks);
    PUT(&writer, hello->err);
}

static bool queues_are_sound(const struct sl_dpdk_hello *hello)
{
    return hello->queues == 0 || (hello->reactors != 0 && hello->reactors <= hello->queues &&
                                  hello->index < hello->reactors && hello->blocks <= 1);
}

int sl_dpdk_hello_decode(const uint8_t *body, uint32_t bytes, struct sl_dpdk_hello *out)
{
    struct sl_bytes cursor = sl_bytes_over(body, bytes);
    struct sl_dpdk_hello hello;
    hello.connection = sl_bytes_u64(&cursor);
    hello.cookie = sl_bytes_u64(&cursor);
    hello.sequence = sl_bytes_u32(&cursor);
    hello.granted = sl_bytes_u32(&cursor);
    hello.body_max = sl_bytes_u16(&cursor);
    (void)sl_bytes_u16(&cursor); /* unused */
    hello.queues = sl_bytes_u16(&cursor);
    hello.reactors = sl_bytes_u16(&cursor);
    hello.index = sl_bytes_u16(&cursor);
    hello.blocks = sl_bytes_u8(&cursor);
    hello.err = sl_bytes_u8(&cursor);
    (void)sl_bytes_u32(&cursor); /* reserved */
    if (cursor.bad || hello.connection == 0 || hello.body_max < SL_DPDK_BODY_MIN ||
        !queues_are_sound(&hello)) {
        return SL_ERR_PROTOCOL;
    }
    *out = hello;
    return 0;
}
