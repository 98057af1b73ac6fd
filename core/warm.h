/* How much of a pool's memory is worth keeping: as much as was in use at one time lately. The owner
 * notes each rise, and looks once a second; behind some quiet looks the level falls, a step a look,
 * so that memory goes back to the system in small pieces. Counts in any unit. One owner. */
#ifndef SL_CORE_WARM_H
#define SL_CORE_WARM_H

#include <stddef.h>
#include <stdint.h>

#define SL_WARM_QUIET_LOOKS 5

/* Zeroed at first. */
struct sl_warm {
    size_t peak;  /* in use since the last look, at most */
    size_t level; /* worth keeping */
    uint32_t quiet;
};

static inline void sl_warm_note(struct sl_warm *warm, size_t used)
{
    warm->peak = used > warm->peak ? used : warm->peak;
}

/* A look, with so much in use now. Returns the level. */
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
