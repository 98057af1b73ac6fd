/* Computes how much memory a pool should keep: its recent peak use. The owner notes each rise and
 * calls sl_warm_look once a second. After SL_WARM_QUIET_LOOKS calls with lower use the level
 * falls by one step per call, so that memory returns to the system in small pieces. Any unit. One
 * owner. */
#ifndef SL_CORE_WARM_H
#define SL_CORE_WARM_H

#include <stddef.h>
#include <stdint.h>

#define SL_WARM_QUIET_LOOKS 5

/* Zero at first. */
struct sl_warm {
    size_t peak;  /* maximum use since the last sl_warm_look */
    size_t level; /* amount to keep */
    uint32_t quiet;
};

static inline void sl_warm_note(struct sl_warm *warm, size_t used)
{
    warm->peak = used > warm->peak ? used : warm->peak;
}

/* Updates and returns the level; `used` is the current use. */
static inline size_t sl_warm_look(struct sl_warm *warm, size_t used, size_t step)
{
    const size_t peak = warm->peak > used ? warm->peak : used;
    warm->peak = 0;
    if (peak >= warm->level) {
        warm->level = peak;
        warm->quiet = 0;
    } else if (warm->quiet < SL_WARM_QUIET_LOOKS) {
        warm->quiet++;
    } else {
        warm->level = warm->level - peak > step ? warm->level - step : peak;
    }
    return warm->level;
}

#endif
