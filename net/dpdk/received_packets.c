#include "net/dpdk/received_packets.h"

#include "core/assert.h"
#include "net/dpdk/wire.h"

/* The bit of number n is bits[n / 64 % WORDS] >> n % 64. Only bits of numbers in (next, end) are
 * set, so that a bit is 0 when its number enters the window. */
#define WORDS (SL_DPDK_RECEIVED_PACKETS / 64)

static uint64_t *word_of(struct sl_dpdk_received_packets *received, uint32_t sequence)
{
    return &received->bits[sequence / 64 % WORDS];
}

static bool is_set(const struct sl_dpdk_received_packets *received, uint32_t sequence)
{
    return (received->bits[sequence / 64 % WORDS] >> sequence % 64 & 1) != 0;
}

void sl_dpdk_received_packets_init(struct sl_dpdk_received_packets *received, uint32_t first)
{
    *received = (struct sl_dpdk_received_packets){.next = first, .end = first};
}

/* Advances `next` past received numbers, a word at a time. */
static void received_packets_advance(struct sl_dpdk_received_packets *received)
{
    while (received->next != received->end) {
        uint64_t *word = word_of(received, received->next);
        uint32_t at = received->next % 64;
        uint64_t missing = ~(*word >> at);
        uint32_t run = missing == 0 ? 64 : (uint32_t)__builtin_ctzll(missing);
        run = run < 64 - at ? run : 64 - at;
        if (run == 0) {
            return;
        }
        *word &= ~((run == 64 ? ~0ULL : (1ULL << run) - 1) << at);
        received->next += run;
    }
}

/* Clears the bits of `count` numbers from `next` on. */
static void clear(struct sl_dpdk_received_packets *received, uint32_t count)
{
    for (uint32_t sequence = received->next; count > 0;) {
        uint32_t at = sequence % 64;
        uint32_t run = count < 64 - at ? count : 64 - at;
        *word_of(received, sequence) &= ~((run == 64 ? ~0ULL : (1ULL << run) - 1) << at);
        sequence += run;
        count -= run;
    }
}

bool sl_dpdk_received_packets_settle(struct sl_dpdk_received_packets *received, uint32_t sequence,
                                     uint32_t behind)
{
    if (!sl_dpdk_received_packets_allows(received, sequence, behind)) {
        return false;
    }
    uint32_t settled = sequence - behind, count = settled - received->next;
    if (!sl_dpdk_before(received->next, settled)) {
        return true;
    }
    clear(received, count < SL_DPDK_RECEIVED_PACKETS ? count : SL_DPDK_RECEIVED_PACKETS);
    received->next = settled;
    if (sl_dpdk_before(received->end, settled)) {
        received->end = settled;
    }
    received_packets_advance(received);
    return true;
}

enum sl_dpdk_received_packets_answer
sl_dpdk_received_packets_ask(const struct sl_dpdk_received_packets *received, uint32_t sequence)
{
    if (sequence - received->next < SL_DPDK_RECEIVED_PACKETS) {
        return is_set(received, sequence) ? SL_DPDK_RECEIVED_AGAIN : SL_DPDK_RECEIVED_NEW;
    }
    return received->next - sequence <= SL_DPDK_RECEIVED_JUMP ? SL_DPDK_RECEIVED_AGAIN
                                                              : SL_DPDK_RECEIVED_OUTSIDE;
}

void sl_dpdk_received_packets_take(struct sl_dpdk_received_packets *received, uint32_t sequence)
{
    sl_assert_slow(sl_dpdk_received_packets_ask(received, sequence) == SL_DPDK_RECEIVED_NEW);
    received->unacked++;
    if (sequence == received->next && received->next == received->end) {
        received->next++;
        received->end++;
        return;
    }
    *word_of(received, sequence) |= 1ULL << sequence % 64;
    if (!sl_dpdk_before(sequence, received->end)) {
        received->end = sequence + 1;
    }
    if (sequence == received->next) {
        received_packets_advance(received);
    }
}

uint32_t sl_dpdk_received_packets_words(const struct sl_dpdk_received_packets *received,
                                        uint64_t *words, uint32_t max)
{
    if (received->next == received->end) {
        return 0;
    }
    uint32_t first = received->next + 1;
    uint32_t needed = (received->end - first + 63) / 64;
    uint32_t count = needed < max ? needed : max;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = (first + 64 * i) % 64;
        const uint64_t *low = &received->bits[(first / 64 + i) % WORDS];
        const uint64_t *high = &received->bits[(first / 64 + i + 1) % WORDS];
        words[i] = at == 0 ? *low : *low >> at | *high << (64 - at);
    }
    return count;
}
