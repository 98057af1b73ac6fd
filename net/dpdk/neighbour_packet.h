/* neighbour_packet parses and builds ARP (RFC 826) and IPv6 neighbour discovery (RFC 4861) packets.
 * Pure; any thread. */
#ifndef SL_NET_DPDK_NEIGHBOUR_PACKET_H
#define SL_NET_DPDK_NEIGHBOUR_PACKET_H

#include "net/dpdk/neighbour.h"

#define SL_DPDK_NEIGHBOUR_BYTES 128U /* room for any packet built here */

/* The content of a packet. */
struct sl_dpdk_neighbour_said {
    bool asks;              /* it is a request for `target` */
    struct in6_addr target; /* requests only */
    bool tells;             /* it says that `who` is at `mac`, a unicast Ethernet address */
    struct in6_addr who;
    uint8_t mac[6];
};

/* packet: as received, any length and content. False: another kind of packet, or malformed. */
bool sl_dpdk_neighbour_parse(const uint8_t *packet, uint32_t length,
                             struct sl_dpdk_neighbour_said *out);

/* Both write a packet to to[SL_DPDK_NEIGHBOUR_BYTES] and return its length. ip, and the request's
 * target, are of self's address family. */
uint32_t sl_dpdk_neighbour_ask(const struct sl_dpdk_self *self, const struct in6_addr *ip,
                               uint8_t *to);
uint32_t sl_dpdk_neighbour_answer(const struct sl_dpdk_self *self,
                                  const struct sl_dpdk_neighbour_said *said, uint8_t *to);

#endif
