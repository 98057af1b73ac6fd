/* Ethernet addresses of IPv4 and IPv6 neighbours: ARP and neighbour discovery, asked and answered.
 * No routing: a peer outside of the prefix is asked for at the gateway, when there is one. Owner
 * reactor. */
#ifndef SL_NET_DPDK_NEIGHBOUR_H
#define SL_NET_DPDK_NEIGHBOUR_H

#include <stdbool.h>
#include <stdint.h>

#include "net/dpdk/wire.h"

struct sl_dpdk_neighbours;

struct sl_dpdk_self {
    uint8_t mac[6];
    struct in6_addr ip;  /* ::ffff:a.b.c.d: IPv4 */
    uint8_t prefix_bits; /* of the IP address's family; none, or all: everybody is beside us */
    bool has_gateway;
    struct in6_addr gateway;
};

/* Errors: NO_MEMORY. */
int sl_dpdk_neighbours_open(const struct sl_dpdk_self *self, struct sl_dpdk_neighbours **out);
void sl_dpdk_neighbours_close(struct sl_dpdk_neighbours **neighbours);

/* The Ethernet address that leads to ip. False: not known yet. When *ask_bytes is not 0, ask[] (at
 * least 128 bytes) is a packet to be sent now: at most every 100 ms for one address; also with
 * true, when nothing was heard of it for half a minute. */
bool sl_dpdk_neighbours_find(struct sl_dpdk_neighbours *neighbours, const struct in6_addr *ip,
                             uint64_t now_ns, uint8_t mac[6], uint8_t *ask, uint32_t *ask_bytes);

/* The same without asking. */
bool sl_dpdk_neighbours_look(struct sl_dpdk_neighbours *neighbours, const struct in6_addr *ip,
                             uint8_t mac[6]);

/* Nothing comes from there: the next find asks, however little time has passed since something was
 * heard. */
void sl_dpdk_neighbours_doubt(struct sl_dpdk_neighbours *neighbours, const struct in6_addr *ip);

/* Since this was called last one that had been asked for was learned, or one that was known has
 * another Ethernet address. */
bool sl_dpdk_neighbours_news(struct sl_dpdk_neighbours *neighbours);

/* Since this was called last another station has said that it has our address; its Ethernet
 * address.
 */
bool sl_dpdk_neighbours_rival(struct sl_dpdk_neighbours *neighbours, uint8_t mac[6]);

/* A packet of class NEIGHBOUR. Learns from answers to what was asked, and from those who ask for
 * us, and where those are that are known has changed. Returns the bytes of the answer written into
 * answer[] (at least 128 bytes); 0: none. At most 1024 are known: the oldest makes room, first of
 * those that nobody has looked for; who only asks for us displaces no other. */
uint32_t sl_dpdk_neighbours_take(struct sl_dpdk_neighbours *neighbours, const uint8_t *packet,
                                 uint32_t length, uint64_t now_ns, uint8_t *answer);

/* A sound packet of a connection came from there. Each second or so is often enough. */
void sl_dpdk_neighbours_confirm(struct sl_dpdk_neighbours *neighbours, const struct in6_addr *ip,
                                const uint8_t mac[6], uint64_t now_ns);

#endif
