/* A netif is a port as the transport uses it: packets on their way out, neighbours, and lookup.
 * Owner reactor. */
#ifndef SL_NET_DPDK_NETIF_H
#define SL_NET_DPDK_NETIF_H

#include "net/dpdk/port.h"

#define SL_DPDK_UNNUMBERED 8U /* places of `out` that are reserved for unnumbered packets */

struct sl_dpdk;
struct sl_dpdk_conn;

/* A port and its neighbour table. */
struct sl_dpdk_netif {
    struct sl_dpdk_port *port;
    struct sl_dpdk_port_info info;
    struct sl_dpdk_neighbours *neighbours;
    struct sl_dpdk_packet spare[SL_DPDK_BURST]; /* reserved buffers for sl_dpdk_netif_get */
    uint32_t spare_count;
    /* Packets to send. flush sends them, and sl_dpdk_netif_put when SL_DPDK_BURST are queued. The
     * last places are reserved for unnumbered packets, which are not retransmitted. */
    struct sl_dpdk_packet out[SL_DPDK_BURST + SL_DPDK_UNNUMBERED];
    uint32_t out_count;
    uint64_t refused_since_ns; /* since when the port accepts none; 0: it does */
    bool is_stuck;             /* stuck_queue has accepted nothing for 100 ms */
    uint16_t stuck_queue;
    bool link_was_up; /* is_one_peers: link state at the last check of liveness.c */
};

struct sl_dpdk_netif *sl_dpdk_netif_of(struct sl_dpdk *dpdk,
                                       const struct in6_addr *ip); /* or NULL */
/* The netif of this device and address; several devices may have the same address. */
struct sl_dpdk_netif *sl_dpdk_netif_like(struct sl_dpdk *dpdk, const char *device,
                                         const struct in6_addr *ip); /* or NULL */

/* Whether the connection's port gathers these bytes: they lie in registered memory. */
bool sl_dpdk_netif_gathers(const struct sl_dpdk_conn *conn, const void *at, size_t bytes);

/* Returns a packet buffer. False: none is free; retry in a later turn. Fill in bytes, length and
 * queue, then call put, which sends the packet by the end of the turn. */
bool sl_dpdk_netif_get(struct sl_dpdk_netif *netif, struct sl_dpdk_packet *out);
/* The same for packets that are not retransmitted: handshake answers, RESET, neighbour packets.
 * They may use the reserved places when `out` is full. */
bool sl_dpdk_netif_get_unnumbered(struct sl_dpdk_netif *netif, struct sl_dpdk_packet *out);
void sl_dpdk_netif_put(struct sl_dpdk *dpdk, struct sl_dpdk_netif *netif,
                       const struct sl_dpdk_packet *packet);
void sl_dpdk_netif_send(struct sl_dpdk *dpdk, struct sl_dpdk_netif *netif); /* sends `out` */

#endif
