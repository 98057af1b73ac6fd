#include "net/dpdk/neighbour_packet.h"

#include <string.h>

#include "core/bytes.h"
#include "net/dpdk/checksum.h"

#define ETHER_BYTES     14U
#define ETHER_BYTES_MIN 60U
#define ARP_BYTES       28U
#define IPV6_BYTES      40U
#define ND_BYTES        24U /* ICMPv6 header, four bytes of flags, target */
#define LINK_BYTES      8U  /* the option with an Ethernet address */
#define ND_HOPS         255U

enum {
    ARP_ASKS = 1,
    ARP_ANSWERS = 2,
    PROTOCOL_ICMPV6 = 58,
    ND_ASKS = 135,
    ND_ANSWERS = 136,
    ND_LINK_OF_SOURCE = 1,
    ND_LINK_OF_TARGET = 2,
    ND_SOLICITED = 0x40,
    ND_OVERRIDES = 0x20,
};

static const uint8_t broadcast[6] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
static const uint8_t all_nodes_mac[6] = {0x33, 0x33, 0, 0, 0, 1};
static const struct in6_addr all_nodes = {{{0xff, 2, [15] = 1}}};
/* Hardware Ethernet, protocol IPv4, and their address lengths. */
static const uint8_t arp_types[6] = {0, 1, 8, 0, 6, 4};
static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

static uint16_t neighbour_packet_read_be16(const uint8_t *from)
{
    return (uint16_t)(from[0] << 8 | from[1]);
}

static bool is_unspecified(const struct in6_addr *ip)
{
    return IN6_IS_ADDR_UNSPECIFIED(ip) || (IN6_IS_ADDR_V4MAPPED(ip) && ip->s6_addr32[3] == 0);
}

/* Whether the address is unicast and not zero. */
static bool is_station(const uint8_t *mac)
{
    static const uint8_t none[6];
    return (mac[0] & 1) == 0 && memcmp(mac, none, 6) != 0;
}

static void neighbour_packet_tell(struct sl_dpdk_neighbour_said *out, const uint8_t *mac)
{
    memcpy(out->mac, mac, 6);
    out->tells = is_station(mac) && !is_unspecified(&out->who);
}

/* ARP */

static void map_ipv4(struct in6_addr *to, const uint8_t *from)
{
    memcpy(to->s6_addr, mapped, sizeof mapped);
    memcpy(to->s6_addr + 12, from, 4);
}

static bool parse_arp(struct sl_bytes cursor, struct sl_dpdk_neighbour_said *out)
{
    const uint8_t *arp = sl_bytes_take(&cursor, ARP_BYTES);
    if (arp == NULL || memcmp(arp, arp_types, sizeof arp_types) != 0) {
        return false;
    }
    uint16_t what = neighbour_packet_read_be16(arp + 6);
    out->asks = what == ARP_ASKS;
    map_ipv4(&out->who, arp + 14);
    map_ipv4(&out->target, arp + 24);
    neighbour_packet_tell(out, arp + 8);
    return is_station(out->mac) && (what == ARP_ASKS || what == ARP_ANSWERS);
}

static void neighbour_packet_put(uint8_t **to, const void *from, size_t bytes)
{
    memcpy(*to, from, bytes);
    *to += bytes;
}

static void put_ether(uint8_t **at, const uint8_t *to, const uint8_t *from, uint16_t type)
{
    const uint8_t type_be[2] = {(uint8_t)(type >> 8), (uint8_t)type};
    neighbour_packet_put(at, to, 6);
    neighbour_packet_put(at, from, 6);
    neighbour_packet_put(at, type_be, 2);
}

static uint32_t write_arp(const struct sl_dpdk_self *self, uint8_t what, const uint8_t *mac,
                          const struct in6_addr *ip, uint8_t *to)
{
    static const uint8_t unknown[6];
    const uint8_t what_be[2] = {0, what};
    memset(to, 0, ETHER_BYTES_MIN);
    uint8_t *at = to;
    put_ether(&at, mac != NULL ? mac : broadcast, self->mac, 0x0806);
    neighbour_packet_put(&at, arp_types, sizeof arp_types);
    neighbour_packet_put(&at, what_be, 2);
    neighbour_packet_put(&at, self->mac, 6);
    neighbour_packet_put(&at, self->ip.s6_addr + 12, 4);
    neighbour_packet_put(&at, mac != NULL ? mac : unknown, 6);
    neighbour_packet_put(&at, ip->s6_addr + 12, 4);
    return ETHER_BYTES_MIN;
}

/* Neighbour discovery */

static uint16_t nd_checksum(const uint8_t *addresses, uint32_t icmp_bytes)
{
    uint64_t checksum =
        __builtin_bswap16((uint16_t)icmp_bytes) + __builtin_bswap16(PROTOCOL_ICMPV6);
    return sl_dpdk_checksum_fold(sl_dpdk_checksum(checksum, addresses, 32 + icmp_bytes));
}

/* The length of an option is 8 bytes times its second byte. */
static bool parse_options(struct sl_bytes *cursor, uint8_t wanted,
                          struct sl_dpdk_neighbour_said *out)
{
    while (cursor->left > 0 && !cursor->bad) {
        const uint8_t *head = sl_bytes_take(cursor, 2);
        if (head == NULL || head[1] == 0) {
            return false;
        }
        const uint8_t *tail = sl_bytes_take(cursor, head[1] * 8U - 2);
        if (tail != NULL && head[0] == wanted && head[1] == 1) {
            neighbour_packet_tell(out, tail);
        }
    }
    return !cursor->bad;
}

static bool parse_nd(struct sl_bytes cursor, const uint8_t *from_mac,
                     struct sl_dpdk_neighbour_said *out)
{
    const uint8_t *ip = sl_bytes_take(&cursor, IPV6_BYTES);
    if (ip == NULL || ip[0] >> 4 != 6 || ip[6] != PROTOCOL_ICMPV6 || ip[7] != ND_HOPS ||
        neighbour_packet_read_be16(ip + 4) > cursor.left) {
        return false;
    }
    cursor.left = neighbour_packet_read_be16(ip + 4);
    uint32_t icmp_bytes = (uint32_t)cursor.left;
    const uint8_t *nd = sl_bytes_take(&cursor, ND_BYTES);
    if (nd == NULL || nd[1] != 0 || (nd[0] != ND_ASKS && nd[0] != ND_ANSWERS) ||
        nd_checksum(ip + 8, icmp_bytes) != 0) {
        return false;
    }
    out->asks = nd[0] == ND_ASKS;
    memcpy(&out->target, nd + 8, sizeof out->target);
    memcpy(&out->who, out->asks ? ip + 8 : nd + 8, sizeof out->who);
    if (out->asks) {
        neighbour_packet_tell(out, from_mac); /* a unicast solicitation may omit the option */
    }
    return parse_options(&cursor, out->asks ? ND_LINK_OF_SOURCE : ND_LINK_OF_TARGET, out);
}

static uint32_t write_nd(const struct sl_dpdk_self *self, const uint8_t *mac,
                         const struct in6_addr *ip, const uint8_t type_flags[2],
                         const struct in6_addr *target, uint8_t *to)
{
    enum { ICMP_BYTES = ND_BYTES + LINK_BYTES, BYTES = ETHER_BYTES + IPV6_BYTES + ICMP_BYTES };
    const uint8_t ip_head[8] = {0x60, [5] = ICMP_BYTES, [6] = PROTOCOL_ICMPV6, [7] = ND_HOPS};
    const uint8_t nd_head[8] = {type_flags[0], [4] = type_flags[1]};
    const uint8_t option[2] = {type_flags[0] == ND_ASKS ? ND_LINK_OF_SOURCE : ND_LINK_OF_TARGET, 1};
    uint8_t *at = to;
    put_ether(&at, mac, self->mac, 0x86dd);
    neighbour_packet_put(&at, ip_head, sizeof ip_head);
    neighbour_packet_put(&at, &self->ip, sizeof self->ip);
    neighbour_packet_put(&at, ip, sizeof *ip);
    neighbour_packet_put(&at, nd_head, sizeof nd_head);
    neighbour_packet_put(&at, target, sizeof *target);
    neighbour_packet_put(&at, option, sizeof option);
    neighbour_packet_put(&at, self->mac, 6);
    uint16_t checksum = nd_checksum(to + ETHER_BYTES + 8, ICMP_BYTES);
    memcpy(to + ETHER_BYTES + IPV6_BYTES + 2, &checksum, sizeof checksum);
    return BYTES;
}

/* To the solicited-node multicast address. */
static uint32_t ask_nd(const struct sl_dpdk_self *self, const struct in6_addr *target, uint8_t *to)
{
    static const uint8_t flags[2] = {ND_ASKS, 0};
    uint8_t mac[6] = {0x33, 0x33, 0xff};
    struct in6_addr group = {{{0xff, 2, [11] = 1, [12] = 0xff}}};
    memcpy(mac + 3, target->s6_addr + 13, 3);
    memcpy(group.s6_addr + 13, target->s6_addr + 13, 3);
    return write_nd(self, mac, &group, flags, target, to);
}

static uint32_t answer_nd(const struct sl_dpdk_self *self,
                          const struct sl_dpdk_neighbour_said *said, uint8_t *to)
{
    static const uint8_t to_one[2] = {ND_ANSWERS, ND_SOLICITED | ND_OVERRIDES};
    static const uint8_t to_all[2] = {ND_ANSWERS, ND_OVERRIDES};
    if (said->tells) {
        return write_nd(self, said->mac, &said->who, to_one, &self->ip, to);
    }
    /* The sender has no address yet: duplicate address detection. */
    return write_nd(self, all_nodes_mac, &all_nodes, to_all, &self->ip, to);
}

/* Both */

bool sl_dpdk_neighbour_parse(const uint8_t *packet, uint32_t length,
                             struct sl_dpdk_neighbour_said *out)
{
    *out = (struct sl_dpdk_neighbour_said){0};
    struct sl_bytes cursor = sl_bytes_over(packet, length);
    const uint8_t *ether = sl_bytes_take(&cursor, ETHER_BYTES);
    if (ether == NULL) {
        return false;
    }
    switch (neighbour_packet_read_be16(ether + 12)) {
    case 0x0806:
        return parse_arp(cursor, out);
    case 0x86dd:
        return parse_nd(cursor, ether + 6, out);
    default:
        return false;
    }
}

uint32_t sl_dpdk_neighbour_ask(const struct sl_dpdk_self *self, const struct in6_addr *ip,
                               uint8_t *to)
{
    return IN6_IS_ADDR_V4MAPPED(&self->ip) ? write_arp(self, ARP_ASKS, NULL, ip, to)
                                           : ask_nd(self, ip, to);
}

uint32_t sl_dpdk_neighbour_answer(const struct sl_dpdk_self *self,
                                  const struct sl_dpdk_neighbour_said *said, uint8_t *to)
{
    return IN6_IS_ADDR_V4MAPPED(&self->ip) ? write_arp(self, ARP_ANSWERS, said->mac, &said->who, to)
                                           : answer_nd(self, said, to);
}
