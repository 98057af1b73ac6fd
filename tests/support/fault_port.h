/* Faults on purpose: a port around another one that, by chance and from a seed, loses, delays,
 * doubles, corrupts and cuts the packets of both directions, goes dark for a time, and does less
 * than it is asked for. What is above sees a port that keeps the contract of port.h, at the end of
 * a bad network. Only tests have it: the programs that serve cannot inject faults. The same seed
 * and the same calls give the same faults. Allocates when it is opened; what it holds is bounded,
 * and counts as packets of the port within. Owner reactor.
 *
 * A corrupted packet is one that was damaged where no frame check looks, in a memory on its way: it
 * is an IP packet, and one word behind its Ethernet header is another, by other bits than all, so
 * that an Internet checksum over it never comes out right. One that comes damaged is spared: with
 * 16 bits of checksum, one in 65536 of twofold damages would pass as right. It is never marked as
 * checked. */
#ifndef SL_TESTS_SUPPORT_FAULT_PORT_H
#define SL_TESTS_SUPPORT_FAULT_PORT_H

#include "core/reason.h"
#include "net/dpdk/port.h"

#define SL_DPDK_FAULT_SHARES 1000000U /* shares are in millionths */

struct sl_dpdk_faults {
    /* Shares of the packets of each direction; together at most SL_DPDK_FAULT_SHARES, since one
     * packet has one of these at most. */
    uint32_t loss, reorder, duplicate, corrupt, truncate;
    uint32_t blackout; /* from this packet on all are lost, both ways, for blackout_ms */
    uint32_t shorten;  /* of the calls of receive and send: those that do less than they could */
    uint32_t delay_us_max; /* by how much one of `reorder` is late at most, or a second copy */
    uint32_t blackout_ms;
    uint64_t seed;
};

/* As a test writes it: "loss=0.01,reorder=0.02,duplicate=0.01,corrupt=0.001,truncate=0.001,
 * blackout=0.00001,short=0.1,delay_us=100,blackout_ms=50,seed=7", in any order. Errors: INVALID,
 * and `why` names what is none of these. Any thread. */
int sl_dpdk_faults_parse(const char *text, struct sl_dpdk_faults *out, struct sl_reason *why);

/* What the faults need of the reactor, in a plug-in that has none: those of struct sl_dpdk_host. */
struct sl_dpdk_fault_reactor {
    uint32_t (*index)(const struct sl_reactor *reactor);
    void (*timer_arm)(struct sl_reactor *reactor, struct sl_timer *timer, uint64_t after_ns);
    void (*timer_disarm)(struct sl_reactor *reactor, struct sl_timer *timer);
};

/* open's `medium` of sl_dpdk_fault_ports; read by open alone. */
struct sl_dpdk_fault_medium {
    struct sl_dpdk_medium inner;
    struct sl_dpdk_faults faults;
    const struct sl_dpdk_fault_reactor *reactor; /* lasts; NULL: that of this program */
};

/* Errors of open: those of the inner one, NO_MEMORY. */
extern const struct sl_dpdk_port_ops sl_dpdk_fault_ports;

struct sl_dpdk_fault_counts {
    uint64_t packets; /* that there were, both ways */
    uint64_t lost, delayed, doubled, corrupted, truncated, blackouts, shortened;
};

/* What befell the packets of a port that was opened with sl_dpdk_fault_ports. */
void sl_dpdk_fault_counts(const struct sl_dpdk_port *port, struct sl_dpdk_fault_counts *out);

#endif
