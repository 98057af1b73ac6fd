#include "net/dpdk/sent_packets.h"

#include <stdlib.h>

#include "core/assert.h"
#include "core/clock.h"
#include "core/err.h"
#include "net/dpdk/received_packets.h"
#include "net/dpdk/ring.h"
#include "net/dpdk/wire.h"

/* RFC 9002, section 6.1.1 */
#define REORDERED_MAX        3U
/* A later packet that came is by itself a sign of loss, as queues keep the order. The least age
 * leaves room for devices that send by several queues. */
#define LOSS_NS_MIN          (20 * SL_CLOCK_NS_PER_US)
#define RTO_NS_MIN           SL_CLOCK_NS_PER_MS
#define RTO_NS_MAX           (250 * SL_CLOCK_NS_PER_MS)
#define RTO_NS_UNKNOWN       (250 * SL_CLOCK_NS_PER_MS)
#define TIMEOUTS_TO_LOSE_ALL 3U
/* What a probe waits beyond a round trip, at least: peers poll in turns. */
#define PROBE_NS_MIN         (50 * SL_CLOCK_NS_PER_US)

enum state { SETTLED = 0, OUTSTANDING = 1 };

static struct sl_dpdk_sent_packet *at(const struct sl_dpdk_sent_packets *flights, uint32_t sequence)
{
    return &flights->ring[sequence & flights->mask];
}

int sl_dpdk_sent_packets_open(struct sl_dpdk_sent_packets *flights, uint32_t first)
{
    *flights = (struct sl_dpdk_sent_packets){.first = first,
                                             .next = first,
                                             .largest_acked = first,
                                             .loss_ns = SL_CLOCK_NEVER,
                                             .rto_min_ns = RTO_NS_MIN,
                                             .rto_max_ns = RTO_NS_MAX};
    flights->ring = sl_dpdk_ring_open(&flights->mask, sizeof *flights->ring);
    return flights->ring == NULL ? SL_ERR_NO_MEMORY : 0;
}

bool sl_dpdk_sent_packets_grow(struct sl_dpdk_sent_packets *flights)
{
    if (flights->mask + 1 == SL_DPDK_SENT_PACKETS) {
        return false;
    }
    struct sl_dpdk_sent_packet *grown = sl_dpdk_ring_grow(
        flights->ring, &flights->mask, sizeof *flights->ring, flights->first, flights->next);
    flights->ring = grown != NULL ? grown : flights->ring;
    return grown != NULL;
}

void sl_dpdk_sent_packets_shrink(struct sl_dpdk_sent_packets *flights)
{
    if (sl_dpdk_sent_packets_none(flights)) {
        flights->ring = sl_dpdk_ring_shrink(flights->ring, &flights->mask, sizeof *flights->ring);
    }
}

void sl_dpdk_sent_packets_close(struct sl_dpdk_sent_packets *flights)
{
    free(flights->ring);
    flights->ring = NULL;
}

/* RFC 9002, section 5.3. */
void sl_dpdk_sent_packets_measured(struct sl_dpdk_sent_packets *flights, uint64_t rtt_ns)
{
    struct sl_dpdk_rtt *rtt = &flights->rtt;
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

void sl_dpdk_sent_packets_sent(struct sl_dpdk_sent_packets *flights,
                               const struct sl_dpdk_sent_packet *packet, uint64_t now_ns)
{
    sl_assert(!sl_dpdk_sent_packets_full(flights));
    struct sl_dpdk_sent_packet *flight = at(flights, flights->next++);
    *flight = *packet;
    flight->sent_ns = now_ns;
    flight->state = OUTSTANDING;
    flights->outstanding_bytes += packet->body_bytes;
    flights->quiet_ns = now_ns;
}

static void settle(struct sl_dpdk_sent_packets *flights, struct sl_dpdk_sent_packet *flight)
{
    flight->state = SETTLED;
    flights->outstanding_bytes -= flight->body_bytes;
}

/* Past what is settled. */
static void advance(struct sl_dpdk_sent_packets *flights)
{
    while (flights->first != flights->next && at(flights, flights->first)->state == SETTLED) {
        flights->first++;
    }
    if (sl_dpdk_before(flights->largest_acked, flights->first)) {
        flights->largest_acked = flights->first;
    }
}

/* ---- loss ------------------------------------------------------------------------------------ */

/* The age beyond which a packet is lost when a later one has come: 9/8 of the round trip time. */
static uint64_t loss_age_ns(const struct sl_dpdk_rtt *rtt)
{
    uint64_t rtt_ns = rtt->latest_ns > rtt->smoothed_ns ? rtt->latest_ns : rtt->smoothed_ns;
    uint64_t age_ns = rtt_ns + rtt_ns / 8;
    return age_ns > LOSS_NS_MIN ? age_ns : LOSS_NS_MIN;
}

static void lose(struct sl_dpdk_sent_packets *flights, struct sl_dpdk_sent_packet *flight,
                 const struct sl_dpdk_flight_events *events)
{
    settle(flights, flight);
    events->lost(events->ctx, flight);
}

/* Of what was sent before the last that came; sets loss_ns to when the oldest of it that is not
 * lost yet will be. */
static void find_lost(struct sl_dpdk_sent_packets *flights, uint64_t now_ns,
                      const struct sl_dpdk_flight_events *events)
{
    uint64_t age_ns = loss_age_ns(&flights->rtt);
    flights->loss_ns = SL_CLOCK_NEVER;
    for (uint32_t n = flights->first; sl_dpdk_before(n, flights->largest_acked); n++) {
        struct sl_dpdk_sent_packet *flight = at(flights, n);
        if (flight->state == SETTLED) {
            continue;
        }
        if (flights->largest_acked - n <= REORDERED_MAX && flight->sent_ns + age_ns > now_ns) {
            /* Those behind it are younger, and have had no more pass them. */
            flights->loss_ns = flight->sent_ns + age_ns;
            break;
        }
        lose(flights, flight, events);
    }
    advance(flights);
}

/* ---- acknowledgements ------------------------------------------------------------------------ */

static bool is_outstanding(const struct sl_dpdk_sent_packets *flights, uint32_t sequence)
{
    return !sl_dpdk_before(sequence, flights->first) && at(flights, sequence)->state != SETTLED;
}

static void came(struct sl_dpdk_sent_packets *flights, uint32_t sequence,
                 const struct sl_dpdk_flight_events *events)
{
    if (is_outstanding(flights, sequence)) {
        struct sl_dpdk_sent_packet *flight = at(flights, sequence);
        settle(flights, flight);
        events->came(events->ctx, flight);
    }
}

/* One past the last packet of which the words tell, or know: that there are so many of them says
 * that one has come for which the last is needed. */
static uint32_t words_end(uint32_t acknowledged, const uint64_t *sack, uint32_t sack_words)
{
    if (sack_words == 0) {
        return acknowledged;
    }
    uint64_t last = sack[sack_words - 1];
    uint32_t bit = last == 0 ? 0 : 63 - (uint32_t)__builtin_clzll(last);
    return acknowledged + 2 + 64 * (sack_words - 1) + bit;
}

/* The last packet that an acknowledgement is the first to tell of. */
static bool find_newest(const struct sl_dpdk_sent_packets *flights, uint32_t acknowledged,
                        const uint64_t *sack, uint32_t sack_words, uint32_t *newest)
{
    for (uint32_t w = sack_words; w-- > 0;) {
        for (uint64_t left = sack[w]; left != 0;) {
            uint32_t bit = 63 - (uint32_t)__builtin_clzll(left);
            *newest = acknowledged + 1 + 64 * w + bit;
            if (is_outstanding(flights, *newest)) {
                return true;
            }
            left &= ~(1ULL << bit);
        }
    }
    for (uint32_t n = acknowledged; sl_dpdk_before(flights->first, n);) {
        *newest = --n;
        if (is_outstanding(flights, n)) {
            return true;
        }
    }
    return false;
}

static void take_words(struct sl_dpdk_sent_packets *flights, uint32_t acknowledged,
                       const uint64_t *sack, uint32_t sack_words,
                       const struct sl_dpdk_flight_events *events)
{
    for (uint32_t n = flights->first; sl_dpdk_before(n, acknowledged); n++) {
        came(flights, n, events);
    }
    for (uint32_t w = 0; w < sack_words; w++) {
        for (uint64_t left = sack[w]; left != 0; left &= left - 1) {
            came(flights, acknowledged + 1 + 64 * w + (uint32_t)__builtin_ctzll(left), events);
        }
    }
}

bool sl_dpdk_sent_packets_acknowledged(struct sl_dpdk_sent_packets *flights, uint32_t acknowledged,
                                       const uint64_t *sack, uint32_t sack_words, uint64_t now_ns,
                                       const struct sl_dpdk_flight_events *events)
{
    sl_assert(sack_words <= SL_DPDK_SACK_WORDS);
    uint32_t end = words_end(acknowledged, sack, sack_words), newest;
    if (flights->next - acknowledged > SL_DPDK_RECEIVED_JUMP ||
        sl_dpdk_before(flights->next, end)) {
        return false;
    }
    if (find_newest(flights, acknowledged, sack, sack_words, &newest)) {
        if (!sl_dpdk_before(newest, flights->largest_acked)) {
            sl_dpdk_sent_packets_measured(flights, now_ns - at(flights, newest)->sent_ns);
        }
        flights->probes = flights->timeouts = 0;
        flights->quiet_ns = now_ns;
        take_words(flights, acknowledged, sack, sack_words, events);
    }
    if (sl_dpdk_before(flights->largest_acked, end)) {
        flights->largest_acked = end;
    }
    advance(flights);
    find_lost(flights, now_ns, events);
    return true;
}

/* ---- time ------------------------------------------------------------------------------------ */

static uint64_t timeout_ns(const struct sl_dpdk_sent_packets *flights)
{
    const struct sl_dpdk_rtt *rtt = &flights->rtt;
    uint64_t ns = rtt->smoothed_ns == 0 ? RTO_NS_UNKNOWN : rtt->smoothed_ns + 4 * rtt->variance_ns;
    ns = ns > flights->rto_min_ns ? ns : flights->rto_min_ns;
    for (uint32_t i = 0; i < flights->timeouts && ns < flights->rto_max_ns; i++) {
        ns *= 2;
    }
    return ns < flights->rto_max_ns ? ns : flights->rto_max_ns;
}

/* As a tail loss probe (RFC 8985, section 7), and a probe timeout (RFC 9002, section 6.2). */
static uint64_t probe_ns(const struct sl_dpdk_sent_packets *flights)
{
    const struct sl_dpdk_rtt *rtt = &flights->rtt;
    uint64_t more_ns =
        rtt->smoothed_ns > 4 * rtt->variance_ns ? rtt->smoothed_ns : 4 * rtt->variance_ns;
    more_ns = more_ns > PROBE_NS_MIN ? more_ns : PROBE_NS_MIN;
    return rtt->smoothed_ns == 0 || flights->timeouts > 0
               ? SL_CLOCK_NEVER
               : (rtt->smoothed_ns + more_ns) << flights->probes;
}

/* How long it is to be quiet before the peer is asked. */
static uint64_t patience_ns(const struct sl_dpdk_sent_packets *flights)
{
    uint64_t probe = probe_ns(flights), timeout = timeout_ns(flights);
    return probe < timeout ? probe : timeout;
}

uint64_t sl_dpdk_sent_packets_timer(const struct sl_dpdk_sent_packets *flights)
{
    if (sl_dpdk_sent_packets_none(flights)) {
        return SL_CLOCK_NEVER;
    }
    uint64_t timeout = flights->quiet_ns + patience_ns(flights);
    return timeout < flights->loss_ns ? timeout : flights->loss_ns;
}

static void lose_all(struct sl_dpdk_sent_packets *flights,
                     const struct sl_dpdk_flight_events *events)
{
    for (uint32_t n = flights->first; n != flights->next; n++) {
        if (at(flights, n)->state != SETTLED) {
            lose(flights, at(flights, n), events);
        }
    }
    advance(flights);
    flights->loss_ns = SL_CLOCK_NEVER;
}

bool sl_dpdk_sent_packets_expire(struct sl_dpdk_sent_packets *flights, uint64_t now_ns,
                                 const struct sl_dpdk_flight_events *events)
{
    if (flights->loss_ns <= now_ns) {
        find_lost(flights, now_ns, events);
    }
    if (sl_dpdk_sent_packets_none(flights) || flights->quiet_ns + patience_ns(flights) > now_ns) {
        return false;
    }
    const bool is_timeout = timeout_ns(flights) <= probe_ns(flights);
    flights->quiet_ns = now_ns;
    if (!is_timeout) {
        flights->probes++;
        return true;
    }
    flights->timeouts++;
    if (flights->timeouts >= TIMEOUTS_TO_LOSE_ALL) {
        lose_all(flights, events);
    }
    return true;
}
