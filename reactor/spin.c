#include "reactor/spin.h"

/* Of the last eight idle times, how many must have been short for spinning to pay. */
#define SHORT_IDLES_NEEDED 2

void sl_spin_init(struct sl_spin *spin, uint64_t spin_ns_max)
{
    *spin = (struct sl_spin){.spin_ns_max = spin_ns_max, .short_idles = UINT8_MAX};
}

bool sl_spin_idle(struct sl_spin *spin, uint64_t now_ns)
{
    if (!spin->idle) {
        spin->idle = true;
        spin->idle_since_ns = now_ns;
    }
    return now_ns - spin->idle_since_ns < spin->spin_ns_max &&
           __builtin_popcount(spin->short_idles) >= SHORT_IDLES_NEEDED;
}

void sl_spin_busy(struct sl_spin *spin, uint64_t now_ns)
{
    if (!spin->idle) {
        return;
    }
    /* Twice the limit: a sleep that work ended has the cost of the wake-up in it. */
    bool was_short = now_ns - spin->idle_since_ns < 2 * spin->spin_ns_max;
    spin->short_idles = (uint8_t)(spin->short_idles << 1 | was_short);
    spin->idle = false;
}
