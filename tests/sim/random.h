/* Draws from a seeded generator. */
#ifndef SL_TESTS_SIM_RANDOM_H
#define SL_TESTS_SIM_RANDOM_H

#include <stdbool.h>
#include <stdint.h>

#include "core/hash.h"

/* 0 to count - 1; count > 0. */
static inline uint32_t sl_sim_below(uint64_t *state, uint64_t count)
{
    return (uint32_t)(sl_hash_random(state) % count);
}

/* least to most, both included. */
static inline uint64_t sl_sim_between(uint64_t *state, uint64_t least, uint64_t most)
{
    return least + sl_hash_random(state) % (most - least + 1);
}

static inline bool sl_sim_chance(uint64_t *state, uint32_t permille)
{
    return sl_sim_below(state, 1000) < permille;
}

#endif
