/* How fast one connection sends: by delay, as Swift (SIGCOMM 2020) and Timely (SIGCOMM 2015) do.
 * While the round trip time stays under the target nothing is limited ("bypassed"), but for
 * bytes_max on their way. When it is above, the window becomes what the last round trip delivered,
 * less a share in proportion to the excess, and falls on, at most by half in a round trip; under
 * the target it grows by one packet in the first round trip, two in the second, and so on, until it
 * is bytes_max and bypassed again. Losses alone are no sign of a full queue as long as they are
 * few: they halve the window, once in a round trip, when they are more than an eighth of the last
 * hundred packets or so. By delay alone the window does not fall below bytes_min, and where losses
 * have brought it below, it grows by a packet in a round trip whatever the delay is: else whoever
 * lost once would starve beside those that keep the queue. A window under one packet becomes
 * pacing: a packet each so many nanoseconds.
 *
 * The delay is the lesser of the latest and the smoothed one: a single late answer of a peer that
 * was not scheduled is not taken for a queue, nor an old one when the queue is gone. Owner reactor;
 * pure. */
#ifndef SL_NET_DPDK_RATE_H
#define SL_NET_DPDK_RATE_H

#include <stdbool.h>
#include <stdint.h>

#include "net/dpdk/sent_packets.h"

struct sl_dpdk_rate {
    uint64_t window_q8;                     /* bytes, times 256; not used while bypassed */
    uint64_t bytes_max;                     /* the window's greatest */
    uint64_t bytes_min;                     /* by delay alone it does not fall below; init: 0 */
    uint32_t packet_bytes;                  /* the body of a full packet */
    uint32_t good_rounds;                   /* in a row: without excess */
    uint64_t decreased_ns;                  /* when it fell last */
    uint64_t next_ns;                       /* pacing: no packet before */
    uint64_t round_ns;                      /* when this round, about a round trip, began */
    uint64_t came_bytes, came_before_bytes; /* in this round, and in the one before */
    uint64_t told_bytes, lost_bytes; /* what came or was lost, of late, and of it what was lost */
    bool bypassed;
};

/* bytes_max: at least two packets, at most 2^39. */
void sl_dpdk_rate_init(struct sl_dpdk_rate *rate, uint32_t packet_bytes, uint64_t bytes_max);

/* The round trip time up to which a path counts as free. */
uint64_t sl_dpdk_rate_target_ns(const struct sl_dpdk_rtt *rtt);

/* An acknowledgement was the first to tell of so many bytes; rtt counts it already. */
void sl_dpdk_rate_acknowledged(struct sl_dpdk_rate *rate, const struct sl_dpdk_rtt *rtt,
                               uint32_t bytes, uint64_t now_ns);
/* So many bytes are lost; behind `acknowledged`, where the same packet brought both. */
void sl_dpdk_rate_lost(struct sl_dpdk_rate *rate, const struct sl_dpdk_rtt *rtt, uint32_t bytes,
                       uint64_t now_ns);

/* How many bytes may be sent now on top of what is outstanding, SL_CLOCK_NEVER in *when_ns; or 0:
 * not before *when_ns, or (NEVER) not before an acknowledgement. At least a packet when nothing is
 * outstanding and it is time. */
uint64_t sl_dpdk_rate_room(const struct sl_dpdk_rate *rate, uint32_t outstanding_bytes,
                           uint64_t now_ns, uint64_t *when_ns);
/* So many bytes leave. */
void sl_dpdk_rate_sent(struct sl_dpdk_rate *rate, const struct sl_dpdk_rtt *rtt, uint32_t bytes,
                       uint64_t now_ns);

#endif
