/* How fast one connection sends: by delay, as Swift and Timely do. While the round trip time stays
 * under the target nothing is limited ("bypassed": no pacing at all); above, the window falls in
 * proportion to the excess, at most by half in a round trip; below, it grows by a packet for each
 * round trip. Losses halve it, once in a round trip. A window under one packet becomes pacing: a
 * packet each so many nanoseconds. Owner reactor; pure. */
#ifndef SL_NET_DPDK_RATE_H
#define SL_NET_DPDK_RATE_H

#include <stdbool.h>
#include <stdint.h>

#include "net/dpdk/flight.h"

struct sl_dpdk_rate {
    uint64_t window_q8;    /* bytes, times 256 */
    uint64_t bytes_max;    /* the window's greatest */
    uint32_t packet_bytes; /* the body of a full packet */
    uint64_t target_ns;    /* base + a share for the depth of queues on the way */
    uint64_t decreased_ns; /* when it fell last */
    uint64_t next_ns;      /* pacing: no packet before */
    bool bypassed;
};

void sl_dpdk_rate_init(struct sl_dpdk_rate *rate, uint32_t packet_bytes, uint64_t bytes_max);
void sl_dpdk_rate_acknowledged(struct sl_dpdk_rate *rate, const struct sl_dpdk_rtt *rtt,
                               uint32_t bytes, uint64_t now_ns);
void sl_dpdk_rate_lost(struct sl_dpdk_rate *rate, const struct sl_dpdk_rtt *rtt, uint32_t bytes,
                       uint64_t now_ns);

/* How many bytes may be sent now on top of what is outstanding; 0: not before *when_ns, or (NEVER)
 * not before an acknowledgement. */
uint64_t sl_dpdk_rate_room(const struct sl_dpdk_rate *rate, uint32_t outstanding_bytes,
                           uint64_t now_ns, uint64_t *when_ns);
void sl_dpdk_rate_sent(struct sl_dpdk_rate *rate, const struct sl_dpdk_rtt *rtt, uint32_t bytes,
                       uint64_t now_ns);

#endif
