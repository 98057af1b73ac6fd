/* Flags are bits of an enum in a uint32_t: booleans that are set and read together. Any thread. */
#ifndef SL_CORE_FLAGS_H
#define SL_CORE_FLAGS_H

#include <stdbool.h>
#include <stdint.h>

static inline void sl_flags_set(uint32_t *flags, uint32_t which, bool is_set)
{
    *flags = is_set ? *flags | which : *flags & ~which;
}

/* Returns whether one of them is set. */
static inline bool sl_flags_has(uint32_t flags, uint32_t which)
{
    return (flags & which) != 0;
}

#endif
