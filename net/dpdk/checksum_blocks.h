/* Checksums of blocks of 64 bytes, compiled once for each kind of vector unit (SL_SIMD). Any
 * thread. */
#ifndef SL_NET_DPDK_CHECKSUM_BLOCKS_H
#define SL_NET_DPDK_CHECKSUM_BLOCKS_H

#include <stdint.h>

#define SL_DPDK_CHECKSUM_BLOCK 64U

/* Results as of sl_dpdk_checksum, under 2^38. */
struct sl_dpdk_checksum_form {
    uint64_t (*checksum)(const uint8_t *from, uint32_t blocks);
    uint64_t (*copy)(uint8_t *to, const uint8_t *from, uint32_t blocks);
};

/* The fastest form for this processor. */
const struct sl_dpdk_checksum_form *sl_dpdk_checksum_form_best(void);

/* The result is under 2^33, so that many can be added without overflow. */
static inline uint64_t sl_dpdk_checksum_narrow(uint64_t checksum)
{
    return (checksum & 0xffffffffU) + (checksum >> 32);
}

#endif
