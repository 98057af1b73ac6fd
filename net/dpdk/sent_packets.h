/* sent_packets records the numbered packets of a sender: content, acknowledgement, loss, round trip
 * time and probe timer. Loss detection follows RFC 9002: a packet is lost when one was
 * acknowledged whose number is higher by at least three, or any later one, and 9/8 of the round
 * trip time have passed since it was sent. Lost content is retransmitted under a new number, so
 * that each acknowledgement refers to one transmission. A packet is settled when it is acknowledged
 * or lost; the peer need not wait for settled numbers. This module knows nothing of messages. Owner
 * reactor; no I/O; no clock. */
#ifndef SL_NET_DPDK_SENT_PACKETS_H
#define SL_NET_DPDK_SENT_PACKETS_H

#include <stdbool.h>
#include <stdint.h>

#define SL_DPDK_SENT_PACKETS 4096U /* packets in flight on one connection; 2^n */

/* One packet: enough to rebuild its content. */
struct sl_dpdk_sent_packet {
    uint64_t sent_ns;
    uint32_t message, offset;
    uint16_t body_bytes; /* of content, without SACK words; counts as outstanding */
    uint8_t kind;        /* sl_dpdk_kind */
    uint8_t state;       /* private */
};

struct sl_dpdk_rtt {
    uint64_t smoothed_ns, variance_ns, least_ns, latest_ns; /* 0: not measured yet */
};

struct sl_dpdk_sent_packets {
    struct sl_dpdk_sent_packet *ring; /* ring.h, by sequence */
    uint32_t mask;
    uint32_t first, next;       /* first: the oldest that is not settled; next: the next number */
    uint32_t largest_acked;     /* plus one */
    uint32_t outstanding_bytes; /* of packets neither acknowledged nor lost */
    struct sl_dpdk_rtt rtt;
    uint64_t loss_ns;  /* when a packet in flight becomes lost by age; SL_CLOCK_NEVER: none */
    uint64_t quiet_ns; /* since when nothing was sent or newly acknowledged */
    uint32_t probes;   /* probes in a row without a new acknowledgement */
    uint32_t timeouts; /* retransmission timeouts in a row */
    uint64_t rto_min_ns, rto_max_ns; /* set by open to 1 ms and 250 ms; may be changed */
};

/* first: number of the first packet. Errors: NO_MEMORY. */
int sl_dpdk_sent_packets_open(struct sl_dpdk_sent_packets *sent_packets, uint32_t first);
void sl_dpdk_sent_packets_close(
    struct sl_dpdk_sent_packets *sent_packets); /* also for a zeroed struct */

/* Shrinks the ring if no packet is in flight. */
void sl_dpdk_sent_packets_shrink(struct sl_dpdk_sent_packets *sent_packets);

/* Adds a round trip time, also one that the handshake measured. */
void sl_dpdk_sent_packets_measured(struct sl_dpdk_sent_packets *sent_packets, uint64_t rtt_ns);

bool sl_dpdk_sent_packets_grow(struct sl_dpdk_sent_packets *sent_packets);

/* Whether no packet may be sent: too many are in flight, or there is no memory. */
static inline bool sl_dpdk_sent_packets_full(struct sl_dpdk_sent_packets *sent_packets)
{
    return sent_packets->next - sent_packets->first > sent_packets->mask &&
           !sl_dpdk_sent_packets_grow(sent_packets);
}

static inline bool sl_dpdk_sent_packets_none(const struct sl_dpdk_sent_packets *sent_packets)
{
    return sent_packets->next == sent_packets->first;
}

/* The `behind` field of a header whose sequence is sent_packets->next. */
static inline uint16_t sl_dpdk_sent_packets_behind(const struct sl_dpdk_sent_packets *sent_packets)
{
    return (uint16_t)(sent_packets->next - sent_packets->first);
}

/* Records a packet with number sent_packets->next. Not when full. */
void sl_dpdk_sent_packets_sent(struct sl_dpdk_sent_packets *sent_packets,
                               const struct sl_dpdk_sent_packet *packet, uint64_t now_ns);

/* Each packet is reported once, as `came` (acknowledged) or as `lost` (to retransmit). A lost
 * packet may still have arrived: the receiver may get its content twice. The callbacks must not
 * call functions of this file; `packet` is valid during the call. */
struct sl_dpdk_sent_packet_events {
    void (*came)(void *ctx, const struct sl_dpdk_sent_packet *packet);
    void (*lost)(void *ctx, const struct sl_dpdk_sent_packet *packet);
    void *ctx;
};

/* Handles an acknowledgement: all numbers before `acknowledged`, and the bits of sack (wire.h).
 * Reports acknowledged, then lost packets; the round trip time is updated before. Outdated
 * acknowledgements are harmless. Returns false and does nothing if no honest peer sends this: it
 * acknowledges an unsent packet or is too old. */
bool sl_dpdk_sent_packets_acknowledged(struct sl_dpdk_sent_packets *sent_packets,
                                       uint32_t acknowledged, const uint64_t *sack,
                                       uint32_t sack_words, uint64_t now_ns,
                                       const struct sl_dpdk_sent_packet_events *events);

/* When sl_dpdk_sent_packets_expire must be called: for a packet's age, a probe or a retransmission
 * timeout. SL_CLOCK_NEVER: nothing is outstanding.
 *
 * A probe is sent after the smoothed round trip time plus the largest of that time, 4 variances and
 * 50 us. The interval doubles with each probe in a row while it is shorter than a timeout. So a
 * lost tail is found soon, and a peer that was asleep gets no needless retransmission. A timeout is
 * smoothed + 4 variances, within its limits, and doubles with each timeout in a row. It is 250 ms
 * before the first measurement. */
uint64_t sl_dpdk_sent_packets_timer(const struct sl_dpdk_sent_packets *sent_packets);

/* Called at that time: reports packets that are lost by age. Returns whether the peer must be
 * probed (any packet with ANSWER). At the third timeout in a row, and at each further one, it
 * reports all outstanding packets as lost. */
bool sl_dpdk_sent_packets_expire(struct sl_dpdk_sent_packets *sent_packets, uint64_t now_ns,
                                 const struct sl_dpdk_sent_packet_events *events);

#endif
