/* The Internet checksum (RFC 1071). Pure; any thread. */
#ifndef SL_NET_DPDK_CHECKSUM_H
#define SL_NET_DPDK_CHECKSUM_H

#include <stdint.h>

/* The checksum of bytes that follow others whose sum is `checksum` (0 at
 * first). sl_dpdk_checksum_fold folds the total, which is stored as it is. sl_dpdk_checksum_copy
 * also copies; the areas must not overlap. A piece at an odd offset is summed separately and added
 * with sl_dpdk_checksum_odd. Sums of up to 2^28 pieces may be added. */
uint64_t sl_dpdk_checksum(uint64_t checksum, const uint8_t *bytes, uint32_t length);
uint64_t sl_dpdk_checksum_copy(uint64_t checksum, uint8_t *to, const uint8_t *from,
                               uint32_t length);

/* Each half is added to the other with carry: their sum modulo 2^32 - 1, then modulo 2^16 - 1. */
static inline uint16_t sl_dpdk_checksum_fold(uint64_t checksum)
{
    checksum += checksum << 32 | checksum >> 32;
    uint32_t half = (uint32_t)(checksum >> 32);
    half += half << 16 | half >> 16;
    return (uint16_t) ~(half >> 16);
}

/* The sum of a piece that begins at an odd offset. */
static inline uint64_t sl_dpdk_checksum_odd(uint64_t checksum)
{
    return (uint64_t)(uint16_t)~sl_dpdk_checksum_fold(checksum) << 8;
}

#endif
