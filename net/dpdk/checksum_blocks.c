#include "net/dpdk/checksum_blocks.h"

#include <string.h>

/* Words of 32 bits may be added instead of 16 (RFC 1071, section 2): 2^16 is 1 modulo 65535. Of two
 * vectors at a time, the whole lanes are added to one accumulator, modulo 2^64, and the upper
 * halves to another; the sum of the lower halves is the difference. That saves one instruction, and
 * even SSE2 vectors are faster than memory. */
typedef uint64_t lanes __attribute__((vector_size(SL_LANE_BYTES)));

#define STEP_BYTES (2 * sizeof(lanes))
#define LANES      (sizeof(lanes) / sizeof(uint64_t))

struct checksums {
    lanes all[2], high[2];
};

static inline uint64_t total(const struct checksums *checksums)
{
    lanes all = checksums->all[0] + checksums->all[1],
          high = checksums->high[0] + checksums->high[1];
    lanes low = all - (high << 32);
    uint64_t total = 0;
    for (uint32_t i = 0; i < LANES; i++) {
        total += sl_dpdk_checksum_narrow(low[i]) + sl_dpdk_checksum_narrow(high[i]);
    }
    return total;
}

/* Also copies if `to` is not NULL. */
static inline uint64_t checksum_blocks_run(uint8_t *to, const uint8_t *from, uint32_t blocks)
{
    struct checksums checksums = {0};
    const uint8_t *end = from + (uint64_t)blocks * SL_DPDK_CHECKSUM_BLOCK;
    for (; from != end; from += STEP_BYTES) {
        lanes a, b;
        memcpy(&a, from, sizeof a);
        memcpy(&b, from + sizeof a, sizeof b);
        if (to != NULL) {
            memcpy(to, &a, sizeof a);
            memcpy(to + sizeof a, &b, sizeof b);
            to += STEP_BYTES;
        }
        checksums.all[0] += a;
        checksums.all[1] += b;
        checksums.high[0] += a >> 32;
        checksums.high[1] += b >> 32;
    }
    return total(&checksums);
}

static uint64_t checksum(const uint8_t *from, uint32_t blocks)
{
    return checksum_blocks_run(NULL, from, blocks);
}

static uint64_t checksum_blocks_copy(uint8_t *to, const uint8_t *from, uint32_t blocks)
{
    return checksum_blocks_run(to, from, blocks);
}

#define JOIN(a, b) a##b
#define NAME(form) JOIN(sl_dpdk_checksum_form_, form)

extern const struct sl_dpdk_checksum_form NAME(SL_SIMD);
const struct sl_dpdk_checksum_form NAME(SL_SIMD) = {.checksum = checksum,
                                                    .copy = checksum_blocks_copy};
