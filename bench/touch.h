/* What is done to a payload before it is sent and after it was received, alike for all that are
 * compared: each line of it is written, and each word of it is read. Pure; any thread. */
#ifndef SL_BENCH_TOUCH_H
#define SL_BENCH_TOUCH_H

#include <stdint.h>
#include <string.h>

#define SL_BENCH_LINE_BYTES 64U

/* bytes: a multiple of a line. What is not written was 0 from the beginning. */
static inline void sl_bench_touch_write(uint8_t *payload, uint32_t bytes, uint32_t index)
{
    for (uint32_t at = 0; at < bytes; at += SL_BENCH_LINE_BYTES) {
        const uint64_t word = ((uint64_t)index << 32) + at;
        memcpy(payload + at, &word, sizeof word);
    }
}

/* Of a part of it; bytes: a multiple of 8. */
static inline uint64_t sl_bench_touch_read(const uint8_t *part, uint32_t bytes)
{
    uint64_t sum = 0;
    for (uint32_t at = 0; at < bytes; at += (uint32_t)sizeof sum) {
        uint64_t word;
        memcpy(&word, part + at, sizeof word);
        sum += word;
    }
    return sum;
}

/* What all parts of it come to. */
static inline uint64_t sl_bench_touch_sum(uint32_t bytes, uint32_t index)
{
    const uint64_t lines = bytes / SL_BENCH_LINE_BYTES;
    return lines * ((uint64_t)index << 32) + SL_BENCH_LINE_BYTES * (lines * (lines - 1) / 2);
}

#endif
