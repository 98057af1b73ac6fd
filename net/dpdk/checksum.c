#include "net/dpdk/checksum.h"

#include <string.h>

#include "net/dpdk/checksum_blocks.h"

/* Fewer bytes than a block; also copies them if `to` is not NULL. */
static inline uint64_t tail(uint8_t *to, const uint8_t *from, uint32_t length)
{
    uint64_t checksum = 0;
    uint32_t at = 0;
#define ADD(type)                                                                                  \
    do {                                                                                           \
        type word;                                                                                 \
        memcpy(&word, from + at, sizeof word);                                                     \
        if (to != NULL) {                                                                          \
            memcpy(to + at, &word, sizeof word);                                                   \
        }                                                                                          \
        checksum += sl_dpdk_checksum_narrow(word);                                                 \
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
    return checksum;
}

uint64_t sl_dpdk_checksum(uint64_t checksum, const uint8_t *bytes, uint32_t length)
{
    if (length == 0) {
        return checksum; /* `bytes` may be NULL */
    }
    const uint32_t blocks = length / SL_DPDK_CHECKSUM_BLOCK, at = blocks * SL_DPDK_CHECKSUM_BLOCK;
    if (blocks > 0) {
        checksum += sl_dpdk_checksum_form_best()->checksum(bytes, blocks);
    }
    return checksum + tail(NULL, bytes + at, length - at);
}

uint64_t sl_dpdk_checksum_copy(uint64_t checksum, uint8_t *to, const uint8_t *from, uint32_t length)
{
    const uint32_t blocks = length / SL_DPDK_CHECKSUM_BLOCK, at = blocks * SL_DPDK_CHECKSUM_BLOCK;
    if (blocks > 0) {
        checksum += sl_dpdk_checksum_form_best()->copy(to, from, blocks);
    }
    return checksum + tail(to + at, from + at, length - at);
}
