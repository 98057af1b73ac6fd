#include <nmmintrin.h>
#include <string.h>

#include "core/crc32c.h"

bool sl_crc32c_hardware_present(void)
{
    return __builtin_cpu_supports("sse4.2");
}

/* The target attribute is per function: the rest of the file must run on processors without SSE
 * 4.2. */
uint32_t sl_crc32c_hardware(uint32_t crc, const void *base, size_t bytes)
    __attribute__((target("sse4.2")));

uint32_t sl_crc32c_hardware(uint32_t crc, const void *base, size_t bytes)
{
    const uint8_t *next = base;
    uint64_t sum = ~crc;
    for (; bytes >= 8; bytes -= 8, next += 8) {
        uint64_t word;
        memcpy(&word, next, sizeof word);
        sum = _mm_crc32_u64(sum, word);
    }
    uint32_t tail = (uint32_t)sum;
    for (; bytes > 0; bytes--, next++) {
        tail = _mm_crc32_u8(tail, *next);
    }
    return ~tail;
}
