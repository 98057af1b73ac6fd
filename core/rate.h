/* The rate of a push: a factor of the table's learning rate. In messages and snapshots it is the
 * bits of an f32 that is finite and above 0; 0 stands for 1. Pure functions; any thread. */
#ifndef SL_CORE_RATE_H
#define SL_CORE_RATE_H

#include <starling.h> /* struct sl_optimizer_spec */

#include <float.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static inline bool sl_rate_is_valid(float rate)
{
    return rate > 0 && rate <= FLT_MAX;
}

static inline uint32_t sl_rate_to_bits(float rate)
{
    uint32_t bits;
    memcpy(&bits, &rate, sizeof bits);
    return rate == 1 ? 0 : bits;
}

/* Returns what is no valid rate unchanged. */
static inline float sl_rate_from_bits(uint32_t bits)
{
    float rate = 1;
    if (bits != 0) {
        memcpy(&rate, &bits, sizeof rate);
    }
    return rate;
}

/* Whether the learning rate times this rate, in f32, is finite and above 0. SUM, which KV tables
 * have, has no learning rate. */
static inline bool sl_rate_suits(uint32_t bits, const struct sl_optimizer_spec *optimizer)
{
    return bits == 0 || optimizer->kind == SL_OPTIMIZER_SUM ||
           sl_rate_is_valid(optimizer->lr * sl_rate_from_bits(bits));
}

#endif
