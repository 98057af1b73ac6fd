#include "core/clock.h"
#include "core/hash.h"
#include "net/dpdk/rate.h"
#include "tests/support/unit.h"

#define US        SL_CLOCK_NS_PER_US
#define MS        SL_CLOCK_NS_PER_MS
#define PACKET    1000U
#define BYTES_MAX (1U << 20)

struct path {
    struct sl_dpdk_rate rate;
    struct sl_dpdk_rtt rtt;
    uint64_t now_ns;
};

static void path_init(struct path *path, uint64_t rtt_ns)
{
    *path = (struct path){.rtt = {rtt_ns, 0, rtt_ns, rtt_ns}};
    sl_dpdk_rate_init(&path->rate, PACKET, BYTES_MAX);
}

static uint64_t window(const struct path *path)
{
    return path->rate.window_q8 >> 8;
}

/* For `rounds` round trips of this length, packets come evenly. */
static void rounds(struct path *path, uint32_t count, uint64_t rtt_ns, uint32_t packets)
{
    path->rtt.latest_ns = path->rtt.smoothed_ns = rtt_ns;
    for (uint32_t i = 0; i < count * packets; i++) {
        path->now_ns += rtt_ns / packets;
        sl_dpdk_rate_acknowledged(&path->rate, &path->rtt, PACKET, path->now_ns);
    }
}

static uint64_t room(const struct path *path, uint32_t outstanding_bytes)
{
    uint64_t when_ns;
    return sl_dpdk_rate_room(&path->rate, outstanding_bytes, path->now_ns, &when_ns);
}

SL_CASE(rate__is_bypassed_while_the_path_is_free)
{
    struct path path;
    path_init(&path, 10 * US);
    assert_true(sl_dpdk_rate_target_ns(&path.rtt) == 510 * US);
    rounds(&path, 100, 510 * US, 20);
    assert_true(path.rate.bypassed);
    assert_true(room(&path, 0) == BYTES_MAX);
    assert_true(room(&path, BYTES_MAX - 7) == 7);
    assert_true(room(&path, BYTES_MAX) == 0);
    path_init(&path, 2 * MS); /* a long way is not a full one */
    assert_true(sl_dpdk_rate_target_ns(&path.rtt) == 3 * MS);
}

SL_CASE(rate__falls_in_proportion_to_the_excess)
{
    struct path path;
    path_init(&path, 100 * US); /* target 600 us */
    rounds(&path, 5, 600 * US, 100);
    rounds(&path, 1, 660 * US, 100);
    assert_false(path.rate.bypassed);
    /* It was what a round trip brought, a hundred packets, less 0.8 of 60 in 660. */
    assert_in_range(window(&path), 90000, 95000);
    uint64_t before = window(&path);
    rounds(&path, 1, 660 * US, 90);
    assert_in_range(window(&path), before * 90 / 100, before * 95 / 100); /* once in a round trip */
    before = window(&path);
    rounds(&path, 1, 100 * MS, 50); /* never by more than half */
    assert_in_range(window(&path), before / 2, before / 2 + 1);
}

SL_CASE(rate__grows_by_more_packets_each_round)
{
    struct path path;
    path_init(&path, 100 * US);
    rounds(&path, 3, 150 * US, 100);
    rounds(&path, 1, 1000 * US, 100);
    uint64_t before = window(&path);
    rounds(&path, 1, 150 * US, (uint32_t)(before / PACKET));
    assert_in_range(window(&path), before + PACKET / 2, before + 3 * PACKET);
    uint32_t count = 0;
    while (!path.rate.bypassed) {
        rounds(&path, 1, 150 * US, (uint32_t)(window(&path) / PACKET));
        assert_true(++count < 100);
    }
    assert_true(count > 10); /* not at once */
    assert_true(room(&path, 0) == BYTES_MAX);
}

/* A peer that was not scheduled answers late once; the smoothed time lags behind. */
SL_CASE(rate__one_late_answer_is_no_queue)
{
    struct path path;
    path_init(&path, 10 * US);
    rounds(&path, 10, 20 * US, 50);
    path.rtt.latest_ns = 5 * MS;
    sl_dpdk_rate_acknowledged(&path.rate, &path.rtt, PACKET, path.now_ns);
    assert_true(path.rate.bypassed);
    path.rtt.latest_ns = 20 * US;
    path.rtt.smoothed_ns = 600 * US;
    sl_dpdk_rate_acknowledged(&path.rate, &path.rtt, PACKET, path.now_ns);
    assert_true(path.rate.bypassed);
}

static void lose(struct path *path, uint32_t packets)
{
    for (uint32_t i = 0; i < packets; i++) {
        sl_dpdk_rate_lost(&path->rate, &path->rtt, PACKET, path->now_ns);
    }
}

SL_CASE(rate_lost__a_few_are_borne)
{
    for (uint32_t percent = 0; percent <= 5; percent++) {
        struct path path;
        uint64_t random = percent;
        path_init(&path, 10 * US);
        for (uint32_t i = 0; i < 20000; i++) {
            rounds(&path, 1, 10 * US, 1);
            lose(&path, sl_hash_random(&random) % 100 < percent);
            assert_true(path.rate.bypassed);
        }
    }
}

SL_CASE(rate_lost__many_halve_the_window)
{
    struct path path;
    path_init(&path, 100 * US);
    rounds(&path, 5, 150 * US, 100);
    lose(&path, 40);
    assert_false(path.rate.bypassed);
    assert_in_range(window(&path), 50000, 50100); /* once */
    path.now_ns += 151 * US;
    lose(&path, 1);
    assert_in_range(window(&path), 25000, 25050);
}

SL_CASE(rate__a_window_under_a_packet_is_a_pace)
{
    struct path path;
    uint64_t when_ns;
    path_init(&path, 100 * US);
    rounds(&path, 60, 10 * MS, 10);
    assert_true(window(&path) < PACKET);
    assert_true(window(&path) >= PACKET / 64);
    path.now_ns += 1000 * MS;
    assert_true(sl_dpdk_rate_room(&path.rate, 0, path.now_ns, &when_ns) == PACKET);
    assert_true(when_ns == SL_CLOCK_NEVER);
    sl_dpdk_rate_sent(&path.rate, &path.rtt, PACKET, path.now_ns);
    assert_true(sl_dpdk_rate_room(&path.rate, PACKET, path.now_ns, &when_ns) == 0);
    assert_true(when_ns == SL_CLOCK_NEVER);
    assert_true(sl_dpdk_rate_room(&path.rate, 0, path.now_ns, &when_ns) == 0);
    assert_in_range(when_ns, path.now_ns + 11 * MS, path.now_ns + 660 * MS);
    assert_true(sl_dpdk_rate_room(&path.rate, 0, when_ns, &when_ns) == PACKET);
}

/* By delay alone it does not fall below; by losses it does. */
/* Who was stopped for long, and hears then of what was lost meanwhile, goes on soon. */
SL_CASE(rate__a_pace_is_no_standstill)
{
    struct path path;
    uint64_t when_ns;
    path_init(&path, 100 * US);
    path.now_ns = 300000 * MS;
    path.rtt.latest_ns = path.rtt.smoothed_ns = 300000 * MS;
    for (uint32_t i = 0; i < 30; i++) {
        lose(&path, 50);
        path.now_ns += 300000 * MS;
    }
    assert_true(window(&path) < PACKET);
    sl_dpdk_rate_sent(&path.rate, &path.rtt, PACKET, path.now_ns);
    assert_true(sl_dpdk_rate_room(&path.rate, 0, path.now_ns, &when_ns) == 0);
    assert_in_range(when_ns, path.now_ns + 1, path.now_ns + 100 * MS);
    path.rtt.latest_ns = 20 * US; /* what was smoothed is of another time */
    sl_dpdk_rate_sent(&path.rate, &path.rtt, PACKET, path.now_ns);
    (void)sl_dpdk_rate_room(&path.rate, 0, path.now_ns, &when_ns);
    assert_in_range(when_ns, path.now_ns + 1, path.now_ns + 64 * 20 * US);
}

SL_CASE(rate__delay_leaves_the_least_window)
{
    struct path path;
    path_init(&path, 100 * US);
    path.rate.bytes_min = 20 * PACKET;
    rounds(&path, 1, 10 * MS, 5); /* when it was bypassed, and less came */
    assert_false(path.rate.bypassed);
    rounds(&path, 50, 10 * MS, 10);
    assert_in_range(window(&path), 20 * PACKET, 20 * PACKET + 1);
    path.now_ns += 11 * MS;
    lose(&path, 30);
    assert_in_range(window(&path), 10 * PACKET, 10 * PACKET + 1);
    path.rate.lost_bytes = 0;
    rounds(&path, 2, 10 * MS, 10); /* by a packet in each, whatever the delay is */
    assert_in_range(window(&path), 12 * PACKET - PACKET / 2, 12 * PACKET + 1);
    rounds(&path, 50, 10 * MS, 20);
    assert_in_range(window(&path), 20 * PACKET, 21 * PACKET);
}

/* The falls that delay would have, which do nothing there, are not in losses' way. */
SL_CASE(rate__losses_count_where_delay_does_not)
{
    struct path path;
    path_init(&path, 100 * US);
    path.rate.bytes_min = 20 * PACKET;
    rounds(&path, 20, 10 * MS, 20);
    assert_in_range(window(&path), 20 * PACKET, 20 * PACKET + 1);
    path.rtt.latest_ns = path.rtt.smoothed_ns = 10 * MS;
    sl_dpdk_rate_acknowledged(&path.rate, &path.rtt, PACKET, path.now_ns);
    lose(&path, 30);
    assert_in_range(window(&path), 10 * PACKET, 10 * PACKET + 1);
}

/* ---- senders that share a queue ----------------------------------------------------------------
 */

#define SENDERS  8U
#define BASE_NS  (20 * US)
#define DRAIN_NS 500U /* for a packet: 2 GB/s */
#define TURNS    400000U

struct shared {
    struct path paths[SENDERS];
    uint32_t outstanding[SENDERS], came[SENDERS];
    uint8_t owner[1U << 16]; /* of the packets in the queue */
    uint64_t sent_ns[1U << 16];
    uint32_t head, tail, longest;
};

static void shared_send(struct shared *shared, uint64_t now_ns)
{
    for (uint32_t i = 0; i < SENDERS; i++) {
        struct path *path = &shared->paths[i];
        path->now_ns = now_ns;
        for (uint32_t n = 0; n < 4 && room(path, shared->outstanding[i]) > 0; n++) {
            shared->owner[shared->tail % (1U << 16)] = (uint8_t)i;
            shared->sent_ns[shared->tail++ % (1U << 16)] = now_ns;
            shared->outstanding[i] += PACKET;
            sl_dpdk_rate_sent(&path->rate, &path->rtt, PACKET, now_ns);
        }
    }
}

static void shared_drain(struct shared *shared, uint64_t now_ns)
{
    uint32_t at = shared->head++ % (1U << 16), i = shared->owner[at];
    struct path *path = &shared->paths[i];
    uint64_t rtt_ns = now_ns - shared->sent_ns[at] + BASE_NS;
    path->rtt.latest_ns = rtt_ns;
    path->rtt.smoothed_ns = (7 * path->rtt.smoothed_ns + rtt_ns) / 8;
    shared->outstanding[i] -= PACKET;
    shared->came[i]++;
    sl_dpdk_rate_acknowledged(&path->rate, &path->rtt, PACKET, now_ns);
}

SL_CASE(rate__senders_share_a_queue_and_keep_it_short)
{
    static struct shared shared;
    for (uint32_t i = 0; i < SENDERS; i++) {
        path_init(&shared.paths[i], BASE_NS);
    }
    uint32_t drained = 0;
    for (uint32_t turn = 0; turn < TURNS; turn++) {
        uint64_t now_ns = (uint64_t)turn * DRAIN_NS;
        shared_send(&shared, now_ns);
        uint32_t length = shared.tail - shared.head;
        if (turn == TURNS / 2) {
            drained = 0;
            for (uint32_t i = 0; i < SENDERS; i++) {
                shared.came[i] = 0;
            }
        }
        if (turn > TURNS / 2 && length > shared.longest) {
            shared.longest = length;
        }
        if (length > 0) {
            shared_drain(&shared, now_ns);
            drained++;
        }
    }
    assert_true(drained >= TURNS / 2 * 9 / 10);
    /* 100 us above the base are 200 packets; all unlimited senders would have 8 thousand. */
    assert_in_range(shared.longest, 1, 2000);
    for (uint32_t i = 0; i < SENDERS; i++) {
        assert_true(shared.came[i] >= drained / SENDERS / 2);
    }
}
