#include "net/dpdk/rate.h"

#include "core/assert.h"
#include "core/clock.h"

/* A queue that drains in this time is ignored: peers poll in turns, and share cores. */
#define QUEUE_NS_MIN (500 * SL_CLOCK_NS_PER_US)
/* Reduction of the window in tenths of the relative excess (Swift's beta). */
#define FALL_TENTHS  8U
/* Losses are ignored below this part of the counted bytes; so are the first few packets. */
#define LOSS_PART    8U
#define LOSS_PACKETS 2U
/* Losses are counted over this many packets, up to twice as many. */
#define LOSS_SPAN    64U
/* The least window, as a part of a packet: at a round trip of 100 us one packet each 6.4 ms. */
#define PACKET_PART  64U
/* Longest pacing interval: a thread that was stopped measures a long round trip, which must not
 * stop it for many times as long. */
#define PACE_NS_MAX  (100 * SL_CLOCK_NS_PER_MS)

static uint64_t rate_smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t rate_larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

void sl_dpdk_rate_init(struct sl_dpdk_rate *rate, uint32_t packet_bytes, uint64_t bytes_max)
{
    sl_assert(packet_bytes > 0);
    sl_assert(bytes_max >= 2 * (uint64_t)packet_bytes);
    sl_assert(bytes_max <= 1ULL << 39);
    *rate = (struct sl_dpdk_rate){.window_q8 = bytes_max << 8,
                                  .bytes_max = bytes_max,
                                  .packet_bytes = packet_bytes,
                                  .bypassed = true};
}

uint64_t sl_dpdk_rate_target_ns(const struct sl_dpdk_rtt *rtt)
{
    return rtt->least_ns + rate_larger(rtt->least_ns / 2, QUEUE_NS_MIN);
}

static uint64_t delay_ns(const struct sl_dpdk_rtt *rtt)
{
    return rate_smaller(rtt->latest_ns, rtt->smoothed_ns);
}

/* Multiplies the window by kept/whole, at least 1/2. It does not fall below `bytes_min`; if it is
 * lower already, it stays. */
static void fall(struct sl_dpdk_rate *rate, uint64_t kept, uint64_t whole, uint64_t bytes_min,
                 uint64_t now_ns)
{
    if (rate->bypassed) {
        /* While bypassed, the bytes of one round trip are the effective window. */
        uint64_t came = rate_larger(rate->came_bytes, rate->came_before_bytes);
        came = rate_larger(came, rate_larger(2 * (uint64_t)rate->packet_bytes, bytes_min));
        rate->window_q8 = rate_smaller(came, rate->bytes_max) << 8;
        rate->bypassed = false;
    }
    /* Prevents overflow of the product. */
    while (whole > UINT16_MAX) {
        whole >>= 1;
        kept >>= 1;
    }
    uint64_t least = rate_larger((uint64_t)rate->packet_bytes * 256 / PACKET_PART,
                                 rate_smaller(bytes_min << 8, rate->window_q8));
    uint64_t window = rate->window_q8 * kept / whole;
    rate->window_q8 = rate_larger(rate_larger(window, rate->window_q8 / 2), least);
    rate->decreased_ns = now_ns;
    rate->good_rounds = 0;
}

/* Whether a round trip has passed since the last reduction, so that measurements reflect the new
 * window. */
static bool may_fall(const struct sl_dpdk_rate *rate, const struct sl_dpdk_rtt *rtt,
                     uint64_t now_ns)
{
    return now_ns - rate->decreased_ns >= delay_ns(rtt);
}

static void next_round(struct sl_dpdk_rate *rate, const struct sl_dpdk_rtt *rtt, uint64_t now_ns)
{
    if (now_ns - rate->round_ns < delay_ns(rtt)) {
        return;
    }
    rate->round_ns = now_ns;
    rate->came_before_bytes = rate->came_bytes;
    rate->came_bytes = 0;
    if (!rate->bypassed && rate->good_rounds < UINT16_MAX) {
        rate->good_rounds++;
    }
}

/* Halves the counts when they are large enough. */
static void count_told(struct sl_dpdk_rate *rate, uint32_t bytes)
{
    rate->told_bytes += bytes;
    while (rate->told_bytes > 2 * LOSS_SPAN * (uint64_t)rate->packet_bytes) {
        rate->told_bytes /= 2;
        rate->lost_bytes /= 2;
    }
}

/* Grows by good_rounds + 1 packets in a round trip, that is for each window acknowledged. */
static void grow(struct sl_dpdk_rate *rate, uint32_t bytes)
{
    uint64_t step = (uint64_t)rate->packet_bytes * (rate->good_rounds + 1);
    uint64_t window = rate_larger(rate->window_q8 >> 8, rate->packet_bytes);
    rate->window_q8 += step * 256 * rate_smaller(bytes, window) / window;
    if (rate->window_q8 >= rate->bytes_max << 8) {
        rate->window_q8 = rate->bytes_max << 8;
        rate->bypassed = true;
    }
}

void sl_dpdk_rate_acknowledged(struct sl_dpdk_rate *rate, const struct sl_dpdk_rtt *rtt,
                               uint32_t bytes, uint64_t now_ns)
{
    uint64_t delay = delay_ns(rtt), target = sl_dpdk_rate_target_ns(rtt);
    next_round(rate, rtt, now_ns);
    rate->came_bytes += bytes;
    count_told(rate, bytes);
    if (delay <= target) {
        if (!rate->bypassed) {
            grow(rate, bytes);
        }
        return;
    }
    if (rate->bypassed || rate->window_q8 > rate->bytes_min << 8) {
        if (may_fall(rate, rtt, now_ns)) {
            fall(rate, 10 * delay - FALL_TENTHS * (delay - target), 10 * delay, rate->bytes_min,
                 now_ns);
        }
    } else if (rate->window_q8 < rate->bytes_min << 8) {
        /* Losses, not delay, brought it this low. */
        rate->good_rounds = 0;
        grow(rate, bytes);
    }
    rate->good_rounds = 0;
}

void sl_dpdk_rate_lost(struct sl_dpdk_rate *rate, const struct sl_dpdk_rtt *rtt, uint32_t bytes,
                       uint64_t now_ns)
{
    rate->lost_bytes += bytes;
    count_told(rate, bytes);
    uint64_t borne = rate->told_bytes / LOSS_PART + LOSS_PACKETS * (uint64_t)rate->packet_bytes;
    if (rate->lost_bytes > borne && may_fall(rate, rtt, now_ns)) {
        fall(rate, 1, 2, 0, now_ns);
    }
}

uint64_t sl_dpdk_rate_room(const struct sl_dpdk_rate *rate, uint32_t outstanding_bytes,
                           uint64_t now_ns, uint64_t *when_ns)
{
    uint64_t window = rate->bypassed ? rate->bytes_max : rate->window_q8 >> 8;
    *when_ns = SL_CLOCK_NEVER;
    if (window >= rate->packet_bytes) {
        return window > outstanding_bytes ? window - outstanding_bytes : 0;
    }
    if (outstanding_bytes > 0) {
        return 0;
    }
    if (now_ns < rate->next_ns) {
        *when_ns = rate->next_ns;
        return 0;
    }
    return rate->packet_bytes;
}

void sl_dpdk_rate_sent(struct sl_dpdk_rate *rate, const struct sl_dpdk_rtt *rtt, uint32_t bytes,
                       uint64_t now_ns)
{
    uint64_t window_q8 = rate->window_q8;
    if (!rate->bypassed && window_q8 >> 8 < rate->packet_bytes) {
        uint64_t trip_ns = rate_smaller(delay_ns(rtt), PACE_NS_MAX);
        rate->next_ns = now_ns + rate_smaller((trip_ns * bytes << 8) / window_q8, PACE_NS_MAX);
    }
}
