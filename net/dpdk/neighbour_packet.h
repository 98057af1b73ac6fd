/* The packets by which neighbours ask for each other's Ethernet addresses: ARP (RFC 826) and IPv6
 * neighbour discovery (RFC 4861). Pure functions; any thread. */
#ifndef SL_NET_DPDK_NEIGHBOUR_PACKET_H
#define SL_NET_DPDK_NEIGHBOUR_PACKET_H

#include "net/dpdk/neighbour.h"

#define SL_DPDK_NEIGHBOUR_BYTES 128U /* room for any that is written */

/* What one says. */
struct sl_dpdk_neighbour_said {
    bool asks;              /* for `target` */
    struct in6_addr target; /* asks */
    bool tells;             /* that `who` is at `mac`: an Ethernet address of one station */
    struct in6_addr who;
    uint8_t mac[6];
};

/* packet: as it was received, any length, any content. False: not such a packet, or a bad one. */
bool sl_dpdk_neighbour_parse(const uint8_t *packet, uint32_t length,
                             struct sl_dpdk_neighbour_said *out);

/* Write a packet to to[SL_DPDK_NEIGHBOUR_BYTES], and return its length. ip, and what said->target
 * was, are of self's family. */
uint32_t sl_dpdk_neighbour_ask(const struct sl_dpdk_self *self, const struct in6_addr *ip,
                               uint8_t *to);
uint32_t sl_dpdk_neighbour_answer(const struct sl_dpdk_self *self,
                                  const struct sl_dpdk_neighbour_said *said, uint8_t *to);

#endif
