/* rate is the congestion control of one connection. It acts on delay, as Swift (SIGCOMM 2020) and
 * Timely (SIGCOMM 2015) do:
 * - While the round trip time is under the target, only bytes_max limits the bytes in flight
 *   ("bypassed").
 * - Above the target the window becomes the bytes delivered in the last round trip, less a share in
 *   proportion to the excess. It falls by at most half in a round trip.
 * - Under the target it grows by one packet in the first round trip, two in the second, and so on,
 *   until it is bytes_max and bypassed again.
 * - Losses halve the window, once in a round trip, only if they exceed an eighth of the last
 *   hundred packets or so: fewer are no sign of a full queue.
 * - By delay alone the window does not fall below bytes_min. If losses brought it lower, it grows
 *   by a packet in a round trip whatever the delay is: otherwise a connection that lost once
 *   would starve beside those that fill the queue.
 * - A window under one packet becomes pacing: one packet at a time interval.
 *
 * The delay is the smaller of the latest and the smoothed one. So neither one late answer of a
 * descheduled peer nor an old measurement counts as a queue. Owner reactor; pure. */
#ifndef SL_NET_DPDK_RATE_H
#define SL_NET_DPDK_RATE_H

#include <stdbool.h>
#include <stdint.h>

#include "net/dpdk/sent_packets.h"

struct sl_dpdk_rate {
    uint64_t window_q8;                     /* bytes times 256; not used while bypassed */
    uint64_t bytes_max;                     /* largest window */
    uint64_t bytes_min;                     /* least window by delay alone; init sets 0 */
    uint32_t packet_bytes;                  /* body of a full packet */
    uint32_t good_rounds;                   /* round trips in a row under the target */
    uint64_t decreased_ns;                  /* when the window last fell */
    uint64_t next_ns;                       /* pacing: time of the next packet */
    uint64_t round_ns;                      /* start of this round (about one round trip) */
    uint64_t came_bytes, came_before_bytes; /* acknowledged in this round and in the previous one */
    uint64_t told_bytes, lost_bytes;        /* recently acknowledged or lost, and lost only */
    bool bypassed;
};

/* bytes_max: at least two packets, at most 2^39. */
void sl_dpdk_rate_init(struct sl_dpdk_rate *rate, uint32_t packet_bytes, uint64_t bytes_max);

/* The target: up to this round trip time a path counts as uncongested. */
uint64_t sl_dpdk_rate_target_ns(const struct sl_dpdk_rtt *rtt);

/* Bytes were newly acknowledged; rtt already includes this measurement. */
void sl_dpdk_rate_acknowledged(struct sl_dpdk_rate *rate, const struct sl_dpdk_rtt *rtt,
                               uint32_t bytes, uint64_t now_ns);
/* Bytes were lost. Call after `acknowledged` if one packet caused both. */
void sl_dpdk_rate_lost(struct sl_dpdk_rate *rate, const struct sl_dpdk_rtt *rtt, uint32_t bytes,
                       uint64_t now_ns);

/* Returns how many bytes may be sent now in addition to the outstanding ones, with SL_CLOCK_NEVER
 * in *when_ns. Or 0: not before *when_ns, or (NEVER) not before an acknowledgement. At least a
 * packet if nothing is outstanding and pacing allows it. */
uint64_t sl_dpdk_rate_room(const struct sl_dpdk_rate *rate, uint32_t outstanding_bytes,
                           uint64_t now_ns, uint64_t *when_ns);
/* Bytes were sent. */
void sl_dpdk_rate_sent(struct sl_dpdk_rate *rate, const struct sl_dpdk_rtt *rtt, uint32_t bytes,
                       uint64_t now_ns);

#endif
