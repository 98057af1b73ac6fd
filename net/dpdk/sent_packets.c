#include "net/dpdk/sent_packets.h"

#include <stdlib.h>

#include "core/assert.h"
#include "core/clock.h"
#include "net/dpdk/received_packets.h"
#include "net/dpdk/ring.h"
#include "net/dpdk/wire.h"

/* RFC 9002, section 6.1.1 */
#define REORDERED_MAX        3U
/* A later packet that arrived is in itself a sign of loss, as queues keep the order. The least age
 * allows for devices that send on several queues. */
#define LOSS_NS_MIN          (20 * SL_CLOCK_NS_PER_US)
#define RTO_NS_MIN           SL_CLOCK_NS_PER_MS
#define RTO_NS_MAX           (250 * SL_CLOCK_NS_PER_MS)
#define RTO_NS_UNKNOWN       (250 * SL_CLOCK_NS_PER_MS)
#define TIMEOUTS_TO_LOSE_ALL 3U
/* Least probe delay beyond a round trip: peers poll in turns. */
#define PROBE_NS_MIN         (50 * SL_CLOCK_NS_PER_US)

enum state { SETTLED = 0, OUTSTANDING = 1 };

static struct sl_dpdk_sent_packet *at(const struct sl_dpdk_sent_packets *sent_packets,
                                      uint32_t sequence)
{
    return &sent_packets->ring[sequence & sent_packets->mask];
}

int sl_dpdk_sent_packets_open(struct sl_dpdk_sent_packets *sent_packets, uint32_t first)
{
    *sent_packets = (struct sl_dpdk_sent_packets){.first = first,
                                                  .next = first,
                                                  .largest_acked = first,
                                                  .loss_ns = SL_CLOCK_NEVER,
                                                  .rto_min_ns = RTO_NS_MIN,
                                                  .rto_max_ns = RTO_NS_MAX};
    sent_packets->ring = sl_dpdk_ring_open(&sent_packets->mask, sizeof *sent_packets->ring);
    return sent_packets->ring == NULL ? SL_ERR_NO_MEMORY : 0;
}

bool sl_dpdk_sent_packets_grow(struct sl_dpdk_sent_packets *sent_packets)
{
    if (sent_packets->mask + 1 == SL_DPDK_SENT_PACKETS) {
        return false;
    }
    struct sl_dpdk_sent_packet *grown =
        sl_dpdk_ring_grow(sent_packets->ring, &sent_packets->mask, sizeof *sent_packets->ring,
                          sent_packets->first, sent_packets->next);
    sent_packets->ring = grown != NULL ? grown : sent_packets->ring;
    return grown != NULL;
}

void sl_dpdk_sent_packets_shrink(struct sl_dpdk_sent_packets *sent_packets)
{
    if (sl_dpdk_sent_packets_none(sent_packets)) {
        sent_packets->ring = sl_dpdk_ring_shrink(sent_packets->ring, &sent_packets->mask,
                                                 sizeof *sent_packets->ring);
    }
}

void sl_dpdk_sent_packets_close(struct sl_dpdk_sent_packets *sent_packets)
{
    free(sent_packets->ring);
    sent_packets->ring = NULL;
}

/* RFC 9002, section 5.3. */
void sl_dpdk_sent_packets_measured(struct sl_dpdk_sent_packets *sent_packets, uint64_t rtt_ns)
{
    struct sl_dpdk_rtt *rtt = &sent_packets->rtt;
    rtt_ns = rtt_ns > 0 ? rtt_ns : 1;
    rtt->latest_ns = rtt_ns;
    if (rtt->smoothed_ns == 0) {
        rtt->smoothed_ns = rtt_ns;
        rtt->least_ns = rtt_ns;
        rtt->variance_ns = rtt_ns / 2;
        return;
    }
    uint64_t off =
        rtt_ns > rtt->smoothed_ns ? rtt_ns - rtt->smoothed_ns : rtt->smoothed_ns - rtt_ns;
    rtt->variance_ns = (3 * rtt->variance_ns + off) / 4;
    rtt->smoothed_ns = (7 * rtt->smoothed_ns + rtt_ns) / 8;
    rtt->smoothed_ns = rtt->smoothed_ns > 0 ? rtt->smoothed_ns : 1;
    rtt->least_ns = rtt_ns < rtt->least_ns ? rtt_ns : rtt->least_ns;
}

void sl_dpdk_sent_packets_sent(struct sl_dpdk_sent_packets *sent_packets,
                               const struct sl_dpdk_sent_packet *packet, uint64_t now_ns)
{
    sl_assert(!sl_dpdk_sent_packets_full(sent_packets));
    struct sl_dpdk_sent_packet *sent_packet = at(sent_packets, sent_packets->next++);
    *sent_packet = *packet;
    sent_packet->sent_ns = now_ns;
    sent_packet->state = OUTSTANDING;
    sent_packets->outstanding_bytes += packet->body_bytes;
    sent_packets->quiet_ns = now_ns;
}

static void sent_packets_settle(struct sl_dpdk_sent_packets *sent_packets,
                                struct sl_dpdk_sent_packet *sent_packet)
{
    sent_packet->state = SETTLED;
    sent_packets->outstanding_bytes -= sent_packet->body_bytes;
}

/* Advances `first` past settled packets. */
static void sent_packets_advance(struct sl_dpdk_sent_packets *sent_packets)
{
    while (sent_packets->first != sent_packets->next &&
           at(sent_packets, sent_packets->first)->state == SETTLED) {
        sent_packets->first++;
    }
    if (sl_dpdk_before(sent_packets->largest_acked, sent_packets->first)) {
        sent_packets->largest_acked = sent_packets->first;
    }
}

/* Loss */

/* The age at which a packet counts as lost after a later one arrived: 9/8 of the round trip time.
 */
static uint64_t loss_age_ns(const struct sl_dpdk_rtt *rtt)
{
    uint64_t rtt_ns = rtt->latest_ns > rtt->smoothed_ns ? rtt->latest_ns : rtt->smoothed_ns;
    uint64_t age_ns = rtt_ns + rtt_ns / 8;
    return age_ns > LOSS_NS_MIN ? age_ns : LOSS_NS_MIN;
}

static void sent_packets_lose(struct sl_dpdk_sent_packets *sent_packets,
                              struct sl_dpdk_sent_packet *sent_packet,
                              const struct sl_dpdk_sent_packet_events *events)
{
    sent_packets_settle(sent_packets, sent_packet);
    events->lost(events->ctx, sent_packet);
}

/* Finds lost packets among those before the largest acknowledged. Sets loss_ns to when the oldest
 * remaining one will be lost. */
static void find_lost(struct sl_dpdk_sent_packets *sent_packets, uint64_t now_ns,
                      const struct sl_dpdk_sent_packet_events *events)
{
    uint64_t age_ns = loss_age_ns(&sent_packets->rtt);
    sent_packets->loss_ns = SL_CLOCK_NEVER;
    for (uint32_t n = sent_packets->first; sl_dpdk_before(n, sent_packets->largest_acked); n++) {
        struct sl_dpdk_sent_packet *sent_packet = at(sent_packets, n);
        if (sent_packet->state == SETTLED) {
            continue;
        }
        if (sent_packets->largest_acked - n <= REORDERED_MAX &&
            sent_packet->sent_ns + age_ns > now_ns) {
            /* Later packets are younger, and fewer packets have passed them. */
            sent_packets->loss_ns = sent_packet->sent_ns + age_ns;
            break;
        }
        sent_packets_lose(sent_packets, sent_packet, events);
    }
    sent_packets_advance(sent_packets);
}

/* Acknowledgements */

static bool is_outstanding(const struct sl_dpdk_sent_packets *sent_packets, uint32_t sequence)
{
    return !sl_dpdk_before(sequence, sent_packets->first) &&
           at(sent_packets, sequence)->state != SETTLED;
}

static void came(struct sl_dpdk_sent_packets *sent_packets, uint32_t sequence,
                 const struct sl_dpdk_sent_packet_events *events)
{
    if (is_outstanding(sent_packets, sequence)) {
        struct sl_dpdk_sent_packet *sent_packet = at(sent_packets, sequence);
        sent_packets_settle(sent_packets, sent_packet);
        events->came(events->ctx, sent_packet);
    }
}

/* The last packet that the words report, plus one; at least one covered by the last word has
 * arrived. */
static uint32_t words_end(uint32_t acknowledged, const uint64_t *sack, uint32_t sack_words)
{
    if (sack_words == 0) {
        return acknowledged;
    }
    uint64_t last = sack[sack_words - 1];
    uint32_t bit = last == 0 ? 0 : 63 - (uint32_t)__builtin_clzll(last);
    return acknowledged + 2 + 64 * (sack_words - 1) + bit;
}

/* The largest newly acknowledged packet. */
static bool find_newest(const struct sl_dpdk_sent_packets *sent_packets, uint32_t acknowledged,
                        const uint64_t *sack, uint32_t sack_words, uint32_t *newest)
{
    for (uint32_t w = sack_words; w-- > 0;) {
        for (uint64_t left = sack[w]; left != 0;) {
            uint32_t bit = 63 - (uint32_t)__builtin_clzll(left);
            *newest = acknowledged + 1 + 64 * w + bit;
            if (is_outstanding(sent_packets, *newest)) {
                return true;
            }
            left &= ~(1ULL << bit);
        }
    }
    for (uint32_t n = acknowledged; sl_dpdk_before(sent_packets->first, n);) {
        *newest = --n;
        if (is_outstanding(sent_packets, n)) {
            return true;
        }
    }
    return false;
}

static void take_words(struct sl_dpdk_sent_packets *sent_packets, uint32_t acknowledged,
                       const uint64_t *sack, uint32_t sack_words,
                       const struct sl_dpdk_sent_packet_events *events)
{
    for (uint32_t n = sent_packets->first; sl_dpdk_before(n, acknowledged); n++) {
        came(sent_packets, n, events);
    }
    for (uint32_t w = 0; w < sack_words; w++) {
        for (uint64_t left = sack[w]; left != 0; left &= left - 1) {
            came(sent_packets, acknowledged + 1 + 64 * w + (uint32_t)__builtin_ctzll(left), events);
        }
    }
}

bool sl_dpdk_sent_packets_acknowledged(struct sl_dpdk_sent_packets *sent_packets,
                                       uint32_t acknowledged, const uint64_t *sack,
                                       uint32_t sack_words, uint64_t now_ns,
                                       const struct sl_dpdk_sent_packet_events *events)
{
    sl_assert(sack_words <= SL_DPDK_SACK_WORDS);
    uint32_t end = words_end(acknowledged, sack, sack_words), newest;
    if (sent_packets->next - acknowledged > SL_DPDK_RECEIVED_JUMP ||
        sl_dpdk_before(sent_packets->next, end)) {
        return false;
    }
    if (sl_dpdk_sent_packets_none(sent_packets)) {
        return true;
    }
    if (find_newest(sent_packets, acknowledged, sack, sack_words, &newest)) {
        if (!sl_dpdk_before(newest, sent_packets->largest_acked)) {
            sl_dpdk_sent_packets_measured(sent_packets, now_ns - at(sent_packets, newest)->sent_ns);
        }
        sent_packets->probes = sent_packets->timeouts = 0;
        sent_packets->quiet_ns = now_ns;
        take_words(sent_packets, acknowledged, sack, sack_words, events);
    }
    if (sl_dpdk_before(sent_packets->largest_acked, end)) {
        sent_packets->largest_acked = end;
    }
    sent_packets_advance(sent_packets);
    find_lost(sent_packets, now_ns, events);
    return true;
}

/* Timers */

static uint64_t sent_packets_timeout_ns(const struct sl_dpdk_sent_packets *sent_packets)
{
    const struct sl_dpdk_rtt *rtt = &sent_packets->rtt;
    uint64_t ns = rtt->smoothed_ns == 0 ? RTO_NS_UNKNOWN : rtt->smoothed_ns + 4 * rtt->variance_ns;
    ns = ns > sent_packets->rto_min_ns ? ns : sent_packets->rto_min_ns;
    for (uint32_t i = 0; i < sent_packets->timeouts && ns < sent_packets->rto_max_ns; i++) {
        ns *= 2;
    }
    return ns < sent_packets->rto_max_ns ? ns : sent_packets->rto_max_ns;
}

/* As a tail loss probe (RFC 8985, section 7) and a probe timeout (RFC 9002, section 6.2). */
static uint64_t probe_ns(const struct sl_dpdk_sent_packets *sent_packets)
{
    const struct sl_dpdk_rtt *rtt = &sent_packets->rtt;
    uint64_t more_ns =
        rtt->smoothed_ns > 4 * rtt->variance_ns ? rtt->smoothed_ns : 4 * rtt->variance_ns;
    more_ns = more_ns > PROBE_NS_MIN ? more_ns : PROBE_NS_MIN;
    return rtt->smoothed_ns == 0 || sent_packets->timeouts > 0
               ? SL_CLOCK_NEVER
               : (rtt->smoothed_ns + more_ns) << sent_packets->probes;
}

/* The time without progress before the peer is probed. */
static uint64_t patience_ns(const struct sl_dpdk_sent_packets *sent_packets)
{
    uint64_t probe = probe_ns(sent_packets), timeout = sent_packets_timeout_ns(sent_packets);
    return probe < timeout ? probe : timeout;
}

uint64_t sl_dpdk_sent_packets_timer(const struct sl_dpdk_sent_packets *sent_packets)
{
    if (sl_dpdk_sent_packets_none(sent_packets)) {
        return SL_CLOCK_NEVER;
    }
    uint64_t timeout = sent_packets->quiet_ns + patience_ns(sent_packets);
    return timeout < sent_packets->loss_ns ? timeout : sent_packets->loss_ns;
}

static void lose_all(struct sl_dpdk_sent_packets *sent_packets,
                     const struct sl_dpdk_sent_packet_events *events)
{
    for (uint32_t n = sent_packets->first; n != sent_packets->next; n++) {
        if (at(sent_packets, n)->state != SETTLED) {
            sent_packets_lose(sent_packets, at(sent_packets, n), events);
        }
    }
    sent_packets_advance(sent_packets);
    sent_packets->loss_ns = SL_CLOCK_NEVER;
}

bool sl_dpdk_sent_packets_expire(struct sl_dpdk_sent_packets *sent_packets, uint64_t now_ns,
                                 const struct sl_dpdk_sent_packet_events *events)
{
    if (sent_packets->loss_ns <= now_ns) {
        find_lost(sent_packets, now_ns, events);
    }
    if (sl_dpdk_sent_packets_none(sent_packets) ||
        sent_packets->quiet_ns + patience_ns(sent_packets) > now_ns) {
        return false;
    }
    const bool is_timeout = sent_packets_timeout_ns(sent_packets) <= probe_ns(sent_packets);
    sent_packets->quiet_ns = now_ns;
    if (!is_timeout) {
        sent_packets->probes++;
        return true;
    }
    sent_packets->timeouts++;
    if (sent_packets->timeouts >= TIMEOUTS_TO_LOSE_ALL) {
        lose_all(sent_packets, events);
    }
    return true;
}
