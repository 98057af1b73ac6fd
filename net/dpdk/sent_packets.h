/* The sender's memory of numbered packets: which are on their way, what each carried, what the peer
 * has acknowledged, what counts as lost, the round trip time, and when to ask. Loss detection as in
 * RFC 9002: a packet is lost when three later ones have come, or one later one and 9/8 of the round
 * trip time has passed; what is lost is sent again in a packet of a new number, so that every
 * acknowledgement is of one sending. A packet is settled when it is acknowledged or lost: nothing
 * is said of it any more, and the peer is told not to wait for it. Nothing here knows what a
 * message is. Owner reactor; no I/O; no clock of its own. */
#ifndef SL_NET_DPDK_SENT_PACKETS_H
#define SL_NET_DPDK_SENT_PACKETS_H

#include <stdbool.h>
#include <stdint.h>

#define SL_DPDK_SENT_PACKETS 4096U /* packets on their way on one connection; 2^n */

/* One packet, enough to make its content once more. */
struct sl_dpdk_sent_packet {
    uint64_t sent_ns;
    uint32_t message, offset;
    uint16_t body_bytes; /* of content, without SACK words; counts as outstanding */
    uint8_t kind;        /* sl_dpdk_kind */
    uint8_t state;       /* flight.c's */
};

struct sl_dpdk_rtt {
    uint64_t smoothed_ns, variance_ns, least_ns, latest_ns; /* 0: not known yet */
};

struct sl_dpdk_sent_packets {
    struct sl_dpdk_sent_packet *ring; /* ring.h, by sequence */
    uint32_t mask;
    uint32_t first, next;       /* the oldest that is not settled; the next to be used */
    uint32_t largest_acked;     /* one past it */
    uint32_t outstanding_bytes; /* of packets neither acknowledged nor lost */
    struct sl_dpdk_rtt rtt;
    uint64_t loss_ns;  /* when a packet in flight counts as lost for its age; SL_CLOCK_NEVER */
    uint64_t quiet_ns; /* since when nothing was sent, and nothing new acknowledged */
    uint32_t probes;   /* asked before a timeout, in a row */
    uint32_t timeouts; /* likewise */
    uint64_t rto_min_ns, rto_max_ns; /* open: 1 ms and 250 ms; may be changed */
};

/* first: the number of the first packet. Errors: NO_MEMORY. */
int sl_dpdk_sent_packets_open(struct sl_dpdk_sent_packets *sent_packets, uint32_t first);
void sl_dpdk_sent_packets_close(struct sl_dpdk_sent_packets *sent_packets); /* also of zeros */

/* Gives back memory that was needed once; where none are on their way. */
void sl_dpdk_sent_packets_shrink(struct sl_dpdk_sent_packets *sent_packets);

/* A round trip that was measured otherwise: by the set-up. */
void sl_dpdk_sent_packets_measured(struct sl_dpdk_sent_packets *sent_packets, uint64_t rtt_ns);

bool sl_dpdk_sent_packets_grow(struct sl_dpdk_sent_packets *sent_packets);

/* No packet may leave: too many are on their way, or there is no memory for more. */
static inline bool sl_dpdk_sent_packets_full(struct sl_dpdk_sent_packets *sent_packets)
{
    return sent_packets->next - sent_packets->first > sent_packets->mask &&
           !sl_dpdk_sent_packets_grow(sent_packets);
}

static inline bool sl_dpdk_sent_packets_none(const struct sl_dpdk_sent_packets *sent_packets)
{
    return sent_packets->next == sent_packets->first;
}

/* `behind` of a header whose sequence is flights->next. */
static inline uint16_t sl_dpdk_sent_packets_behind(const struct sl_dpdk_sent_packets *sent_packets)
{
    return (uint16_t)(sent_packets->next - sent_packets->first);
}

/* A packet leaves, numbered flights->next before the call. Not when full. */
void sl_dpdk_sent_packets_sent(struct sl_dpdk_sent_packets *sent_packets,
                               const struct sl_dpdk_sent_packet *packet, uint64_t now_ns);

/* Each packet is either `came` or `lost` (to be sent again), once. One that is lost may have come,
 * or come late, all the same: who receives may get its content twice. The callbacks call nothing of
 * this file; the packet is theirs for the call. */
struct sl_dpdk_flight_events {
    void (*came)(void *ctx, const struct sl_dpdk_sent_packet *packet);
    void (*lost)(void *ctx, const struct sl_dpdk_sent_packet *packet);
    void *ctx;
};

/* What a peer says that it has: all before `acknowledged`, and by bits of sack as wire.h has them.
 * Says what came, then what is lost. Returns false, and does nothing, when it acknowledges what was
 * never sent, or is older than any that an honest peer still says: a forgery, or a mad peer. Older
 * words than known before do no harm. flights->rtt is up to date when it calls. */
bool sl_dpdk_sent_packets_acknowledged(struct sl_dpdk_sent_packets *sent_packets,
                                       uint32_t acknowledged, const uint64_t *sack,
                                       uint32_t sack_words, uint64_t now_ns,
                                       const struct sl_dpdk_flight_events *events);

/* When sl_dpdk_sent_packets_expire must be called: for a packet's age, or since nothing was heard
 * for as long as a probe waits, or a retransmission timeout. SL_CLOCK_NEVER: nothing is
 * outstanding.
 *
 * A probe waits for two round trips, or one and 4 variances, and 50 us at least beyond the one;
 * twice as long with each in a row, as long as that is less than a timeout: a lost tail is found
 * soon, and a peer that was asleep is not sent again what it has. A timeout is smoothed + 4
 * variances, within its limits, doubled with each in a row up to the upper one; a quarter second
 * before the round trip time is known. */
uint64_t sl_dpdk_sent_packets_timer(const struct sl_dpdk_sent_packets *sent_packets);

/* At that time: says what is lost by its age. Returns whether the peer must be asked (a packet,
 * any, with ANSWER); from the third timeout in a row on all that is outstanding was said lost. */
bool sl_dpdk_sent_packets_expire(struct sl_dpdk_sent_packets *sent_packets, uint64_t now_ns,
                                 const struct sl_dpdk_flight_events *events);

#endif
