/* Sums of blocks of 64 bytes, compiled once for each form of vector unit (SL_SIMD). Any thread. */
#ifndef SL_NET_DPDK_CHECKSUM_BLOCKS_H
#define SL_NET_DPDK_CHECKSUM_BLOCKS_H

#include <stdint.h>

#define SL_DPDK_CHECKSUM_BLOCK 64U

/* As sl_dpdk_checksum has it, under 2^38. */
struct sl_dpdk_checksum_form {
    uint64_t (*checksum)(const uint8_t *from, uint32_t blocks);
    uint64_t (*copy)(uint8_t *to, const uint8_t *from, uint32_t blocks);
};

/* The form that this processor runs fastest. */
const struct sl_dpdk_checksum_form *sl_dpdk_checksum_form_best(void);

/* Under 2^33, so that sums can be added without care. */
static inline uint64_t sl_dpdk_checksum_narrow(uint64_t checksum)
{
    return (checksum & 0xffffffffU) + (checksum >> 32);
}

#endif
