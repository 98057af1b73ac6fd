/* The two ends over transports of the operating system, in one thread. */
#include <string.h>

#include "lane.h"

#define MIB    (1U << 20)
#define SLICES 64

static uint64_t copied_bytes(const struct sl_transport *transport)
{
    struct sl_transport_stats stats;
    sl_transport_get_stats(transport, &stats);
    return stats.copied_bytes;
}

static void fill(struct lane *lane, uint64_t seed)
{
    for (size_t i = 0; i < LANE_MEMORY_BYTES; i += 8) {
        const uint64_t word = sl_hash_random(&seed);
        memcpy(lane->local + i, &word, sizeof word);
    }
}

/* Slices of `bytes`, at odd addresses: written, then read back to another place. */
static void run_round(struct lane *lane, uint32_t bytes, uint32_t count)
{
    static struct sl_rma_slice slices[SLICES];
    const size_t half = LANE_MEMORY_BYTES / 2;
    assert_true((size_t)count * (bytes + 3) + 8 <= half);
    for (uint32_t round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < count; i++) {
            slices[i] = (struct sl_rma_slice){.local = lane->local + (round == 0 ? 1 : half + 5) +
                                                       (size_t)i * (bytes + 3),
                                              .key = 11,
                                              .offset = 7 + (uint64_t)i * (bytes + 1),
                                              .bytes = bytes,
                                              .op = round == 0 ? SL_RMA_WRITE : SL_RMA_READ};
        }
        lane_run(lane, slices, count);
    }
    for (uint32_t i = 0; i < count; i++) {
        const size_t at = (size_t)i * (bytes + 3);
        assert_memory_equal(lane->local + 1 + at, lane->local + half + 5 + at, bytes);
    }
    assert_int_equal(lane->failed_count, 0);
}

static void check_transport(enum sl_endpoint_scheme scheme, const char *endpoint)
{
    static const struct {
        uint32_t bytes, count;
    } rounds[] = {{1, 64},     {100, 64},    {4096, 64}, {16384, 64}, {16385, 64},
                  {65536, 64}, {100001, 64}, {MIB, 11},  {4 * MIB, 2}};
    struct lane lane = {.ops = sl_builtin_find(scheme), .endpoint = endpoint};
    lane_open(&lane);
    for (uint32_t i = 0; i < sizeof rounds / sizeof rounds[0]; i++) {
        fill(&lane, i);
        run_round(&lane, rounds[i].bytes, rounds[i].count);
    }
    lane_close(&lane);
}

SL_CASE(rma_transports__tcp)
{
    check_transport(SL_ENDPOINT_TCP, "tcp://127.0.0.1:0");
}

SL_CASE(rma_transports__shm)
{
    check_transport(SL_ENDPOINT_SHM, "shm://rma-test:0");
}

static uint64_t copied_in_round(struct lane *lane)
{
    const uint64_t before =
        copied_bytes(lane->pair.a.transport) + copied_bytes(lane->pair.b.transport);
    run_round(lane, MIB, 11);
    return copied_bytes(lane->pair.a.transport) + copied_bytes(lane->pair.b.transport) - before;
}

/* Long slices go straight from the one memory to the other, but for what arrives together with the
 * header of a frame: on a busy machine that may be much. */
SL_CASE(rma_transports__tcp_copies_little)
{
    struct lane lane = {.ops = sl_builtin_find(SL_ENDPOINT_TCP), .endpoint = "tcp://127.0.0.1:0"};
    lane_open(&lane);
    fill(&lane, 1);
    uint32_t rounds = 1;
    while (copied_in_round(&lane) >= 22 * MIB / 8) {
        assert_true(rounds++ < 50);
    }
    lane_close(&lane);
}
