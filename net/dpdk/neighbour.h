/* The neighbour table maps IPv4 and IPv6 addresses to Ethernet addresses. It sends and answers ARP
 * and neighbour discovery. It does no routing: addresses outside the prefix resolve to the gateway,
 * if there is one. Owner reactor. */
#ifndef SL_NET_DPDK_NEIGHBOUR_H
#define SL_NET_DPDK_NEIGHBOUR_H

#include <stdbool.h>
#include <stdint.h>

#include "net/dpdk/wire.h"

struct sl_dpdk_neighbours;

struct sl_dpdk_self {
    uint8_t mac[6];
    struct in6_addr ip;  /* IPv4: ::ffff:a.b.c.d */
    uint8_t prefix_bits; /* of the IP address's family; 0 or all bits: all addresses are on-link */
    bool has_gateway;
    struct in6_addr gateway;
};

/* Errors: NO_MEMORY. */
int sl_dpdk_neighbours_open(const struct sl_dpdk_self *self, struct sl_dpdk_neighbours **out);
void sl_dpdk_neighbours_close(struct sl_dpdk_neighbours **neighbours);

/* Finds the Ethernet address of the next hop to ip. False: unknown. If *ask_bytes is not 0, ask[]
 * (at least 128 bytes) holds a request to send now. A request is made at most every 100 ms for an
 * address; also for a known one if nothing confirmed it for 30 s. */
bool sl_dpdk_neighbours_find(struct sl_dpdk_neighbours *neighbours, const struct in6_addr *ip,
                             uint64_t now_ns, uint8_t mac[6], uint8_t *ask, uint32_t *ask_bytes);

/* The same without a request. */
bool sl_dpdk_neighbours_look(struct sl_dpdk_neighbours *neighbours, const struct in6_addr *ip,
                             uint8_t mac[6]);

/* Marks the entry as doubtful: the next find makes a request even if the entry is fresh. */
void sl_dpdk_neighbours_doubt(struct sl_dpdk_neighbours *neighbours, const struct in6_addr *ip);

/* Whether, since the last call, a requested address was learned or a known one changed. */
bool sl_dpdk_neighbours_news(struct sl_dpdk_neighbours *neighbours);

/* Whether, since the last call, another station claimed our address; mac: its Ethernet address. */
bool sl_dpdk_neighbours_rival(struct sl_dpdk_neighbours *neighbours, uint8_t mac[6]);

/* Handles a packet of class NEIGHBOUR. It learns from answers to requests, from requests for our
 * address, and from changes of known addresses. Returns the length of the answer written to
 * answer[] (at least 128 bytes); 0: none. The table has 1024 entries. A new entry replaces the
 * oldest one, first those that no connection looked up. A station that only requests our address
 * replaces no looked-up entry. */
uint32_t sl_dpdk_neighbours_take(struct sl_dpdk_neighbours *neighbours, const uint8_t *packet,
                                 uint32_t length, uint64_t now_ns, uint8_t *answer);

/* A valid packet of a connection came from this Ethernet address. One call a second is enough. */
void sl_dpdk_neighbours_confirm(struct sl_dpdk_neighbours *neighbours, const struct in6_addr *ip,
                                const uint8_t mac[6], uint64_t now_ns);

#endif
