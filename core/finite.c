#include "core/finite.h"

#include <math.h>
#include <string.h>

#define BLOCK 64 /* values; a constant, so that the compiler uses vectors */

/* An exponent of ones means NaN or infinite: only then does adding 1 to it reach the sign bit. */
static uint32_t sign_if_not_finite(const float *value)
{
    uint32_t bits;
    memcpy(&bits, value, sizeof bits);
    return (bits & 0x7fffffffU) + 0x00800000U;
}

uint64_t sl_finite_prefix(const float *values, uint64_t count)
{
    uint64_t done = 0;
    for (; count - done >= BLOCK; done += BLOCK) {
        uint32_t signs = 0;
        for (uint32_t i = 0; i < BLOCK; i++) {
            signs |= sign_if_not_finite(&values[done + i]);
        }
        if (signs >> 31 != 0) {
            break;
        }
    }
    while (done < count && isfinite(values[done])) {
        done++;
    }
    return done;
}
