#include <stdlib.h>
#include <string.h>

#include "core/hash.h"
#include "net/dpdk/checksum.h"
#include "net/dpdk/checksum_blocks.h"
#include "tests/support/unit.h"

#define BYTES_MAX 70000U

/* As RFC 1071 describes it: numbers of 16 bits in network order, carries put back one by one. */
static uint16_t plain_checksum(const uint8_t *bytes, uint32_t length)
{
    uint32_t checksum = 0;
    for (uint32_t i = 0; i < length; i += 2) {
        uint32_t low = i + 1 < length ? bytes[i + 1] : 0;
        checksum += (uint32_t)bytes[i] << 8 | low;
        checksum = (checksum & 0xffff) + (checksum >> 16);
    }
    checksum = ~checksum & 0xffff;
    return (uint16_t)(checksum << 8 | checksum >> 8); /* as it lies in memory */
}

/* Numbers of which only all ones and zero are the same. */
static void assert_same_checksum(uint16_t checksum, uint16_t expected)
{
    assert_int_equal(checksum % 0xffff, expected % 0xffff);
}

static uint8_t *random_bytes(uint32_t length, uint64_t seed)
{
    uint8_t *bytes = malloc(length);
    assert_non_null(bytes);
    for (uint32_t i = 0; i < length; i++) {
        bytes[i] = (uint8_t)sl_hash_random(&seed);
    }
    return bytes;
}

SL_CASE(checksum__example_of_rfc_1071)
{
    static const uint8_t bytes[] = {0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7};
    uint16_t checksum = sl_dpdk_checksum_fold(sl_dpdk_checksum(0, bytes, sizeof bytes));
    assert_int_equal((uint16_t)~checksum, 0xf2dd); /* the sum is dd f2 */
}

SL_CASE(checksum__of_any_length_and_place)
{
    uint8_t *bytes = random_bytes(2048, 1), copy[1024];
    for (uint32_t length = 0; length <= 1000; length++) {
        const uint8_t *from = bytes + length * 7 % 17;
        uint16_t expected = plain_checksum(from, length);
        assert_same_checksum(sl_dpdk_checksum_fold(sl_dpdk_checksum(0, from, length)), expected);
        uint8_t *to = copy + length % 5;
        memset(copy, 0xa5, sizeof copy);
        assert_same_checksum(sl_dpdk_checksum_fold(sl_dpdk_checksum_copy(0, to, from, length)),
                             expected);
        assert_memory_equal(to, from, length);
        assert_int_equal(to[length], 0xa5);
    }
    free(bytes);
}

SL_CASE(checksum__of_ones_carries)
{
    uint8_t *bytes = malloc(BYTES_MAX);
    assert_non_null(bytes);
    memset(bytes, 0xff, BYTES_MAX);
    for (uint32_t length = BYTES_MAX - 300; length < BYTES_MAX; length++) {
        uint64_t checksum = 0;
        for (int i = 0; i < 100; i++) {
            checksum = sl_dpdk_checksum(checksum, bytes, length & ~1U);
        }
        checksum = sl_dpdk_checksum(checksum, bytes, length);
        assert_same_checksum(sl_dpdk_checksum_fold(checksum),
                             length % 2 == 0 ? 0 : plain_checksum(bytes, 1));
    }
    free(bytes);
}

SL_CASE(checksum__of_nothing_that_is_nowhere)
{
    assert_int_equal(sl_dpdk_checksum(77, NULL, 0), 77);
}

SL_CASE(checksum__in_pieces)
{
    uint64_t seed = 5;
    uint8_t *bytes = random_bytes(3000, 2);
    for (int i = 0; i < 2000; i++) {
        uint32_t length = (uint32_t)(sl_hash_random(&seed) % 3000);
        uint32_t cut = (uint32_t)(sl_hash_random(&seed) % (length + 1));
        uint64_t first = sl_dpdk_checksum(0, bytes, cut);
        uint64_t second = sl_dpdk_checksum(0, bytes + cut, length - cut);
        first += cut % 2 == 0 ? second : sl_dpdk_checksum_odd(second);
        assert_same_checksum(sl_dpdk_checksum_fold(first), plain_checksum(bytes, length));
    }
    free(bytes);
}

/* What processors without more have. */
SL_CASE(checksum__in_its_plainest_form)
{
    extern const struct sl_dpdk_checksum_form sl_dpdk_checksum_form_plain;
    uint8_t *bytes = random_bytes(4096, 3), copy[2048];
    for (uint32_t blocks = 1; blocks <= sizeof copy / SL_DPDK_CHECKSUM_BLOCK; blocks++) {
        uint32_t length = blocks * SL_DPDK_CHECKSUM_BLOCK;
        const uint8_t *from = bytes + blocks;
        uint16_t expected = plain_checksum(from, length);
        assert_same_checksum(
            sl_dpdk_checksum_fold(sl_dpdk_checksum_form_plain.checksum(from, blocks)), expected);
        memset(copy, 0xa5, sizeof copy);
        assert_same_checksum(
            sl_dpdk_checksum_fold(sl_dpdk_checksum_form_plain.copy(copy, from, blocks)), expected);
        assert_memory_equal(copy, from, length);
    }
    free(bytes);
}
