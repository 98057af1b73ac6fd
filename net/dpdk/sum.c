#include <string.h>

#include "net/dpdk/wire.h"

/* Words of 32 bits may be added instead of those of 16 (RFC 1071, section 2): 2^16 is 1 modulo
 * 65535. Two vectors at a time: of each, all of it is added to one accumulator, modulo 2^64, and
 * the upper halves to another; the sum of the lower halves is the difference. That is one
 * instruction less than to part them, and a vector of plain SSE2 is enough to be faster than
 * memory. */
typedef uint64_t lanes __attribute__((vector_size(16)));

#define BLOCK_BYTES 64U

struct blocks {
    lanes all[2], high[2];
};

static inline lanes load(const uint8_t *from)
{
    lanes value;
    memcpy(&value, from, sizeof value);
    return value;
}

static inline void add(struct blocks *blocks, lanes a, lanes b)
{
    blocks->all[0] += a;
    blocks->all[1] += b;
    blocks->high[0] += a >> 32;
    blocks->high[1] += b >> 32;
}

/* Under 2^35, so that sums can be added without care. */
static inline uint64_t narrow(uint64_t sum)
{
    return (sum & 0xffffffffU) + (sum >> 32);
}

static inline uint64_t total(const struct blocks *blocks)
{
    uint64_t sum = 0;
    for (int i = 0; i < 2; i++) {
        lanes low = blocks->all[i] - (blocks->high[i] << 32);
        sum += narrow(low[0]) + narrow(low[1]);
        sum += narrow(blocks->high[i][0]) + narrow(blocks->high[i][1]);
    }
    return sum;
}

/* Fewer bytes than a block; copied too when `to` is not NULL. */
static inline uint64_t rest(uint8_t *to, const uint8_t *from, uint32_t length)
{
    uint64_t sum = 0;
    uint32_t at = 0;
#define ADD(type)                                                                                  \
    do {                                                                                           \
        type word;                                                                                 \
        memcpy(&word, from + at, sizeof word);                                                     \
        if (to != NULL) {                                                                          \
            memcpy(to + at, &word, sizeof word);                                                   \
        }                                                                                          \
        sum += narrow(word);                                                                       \
        at += (uint32_t)sizeof word;                                                               \
    } while (0)
    while (length - at >= 8) {
        ADD(uint64_t);
    }
    if ((length & 4) != 0) {
        ADD(uint32_t);
    }
    if ((length & 2) != 0) {
        ADD(uint16_t);
    }
    if ((length & 1) != 0) {
        ADD(uint8_t);
    }
#undef ADD
    return sum;
}

uint64_t sl_dpdk_sum(uint64_t sum, const uint8_t *bytes, uint32_t length)
{
    if (length >= BLOCK_BYTES) {
        struct blocks blocks = {0};
        for (; length >= BLOCK_BYTES; length -= BLOCK_BYTES, bytes += BLOCK_BYTES) {
            add(&blocks, load(bytes), load(bytes + 16));
            add(&blocks, load(bytes + 32), load(bytes + 48));
        }
        sum += total(&blocks);
    }
    return sum + rest(NULL, bytes, length);
}

uint64_t sl_dpdk_sum_copy(uint64_t sum, uint8_t *to, const uint8_t *from, uint32_t length)
{
    if (length >= BLOCK_BYTES) {
        struct blocks blocks = {0};
        for (; length >= BLOCK_BYTES; length -= BLOCK_BYTES) {
            lanes a = load(from), b = load(from + 16), c = load(from + 32), d = load(from + 48);
            memcpy(to, &a, 16);
            memcpy(to + 16, &b, 16);
            memcpy(to + 32, &c, 16);
            memcpy(to + 48, &d, 16);
            add(&blocks, a, b);
            add(&blocks, c, d);
            from += BLOCK_BYTES;
            to += BLOCK_BYTES;
        }
        sum += total(&blocks);
    }
    return sum + rest(to, from, length);
}
