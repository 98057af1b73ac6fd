#include "reactor/spin.h"

/* How many of the last eight idle times must have been short for spinning to pay. */
#define SHORT_IDLES_NEEDED 2

/* Maximum growth of the limit with the preceding work. */
#define GROWTH             8

/* A spinning loop checks far more often than this, unless it is preempted. */
#define PREEMPTED_NS       20000

void sl_spin_init(struct sl_spin *spin, uint64_t spin_ns_max)
{
    *spin = (struct sl_spin){
        .spin_ns_max = spin_ns_max, .longest_ns = spin_ns_max, .short_idles = UINT8_MAX};
}

void sl_spin_lengthen(struct sl_spin *spin)
{
    spin->longest_ns = GROWTH * spin->spin_ns_max;
}

static void begin(struct sl_spin *spin, uint64_t now_ns)
{
    uint64_t worked_ns = spin->has_worked ? now_ns - spin->busy_since_ns : 0;
    spin->limit_ns = worked_ns > spin->spin_ns_max ? worked_ns : spin->spin_ns_max;
    spin->limit_ns = spin->limit_ns < spin->longest_ns ? spin->limit_ns : spin->longest_ns;
    spin->idle = true;
    spin->idle_since_ns = spin->looked_ns = now_ns;
    spin->gave_up = __builtin_popcount(spin->short_idles) < SHORT_IDLES_NEEDED;
}

bool sl_spin_idle(struct sl_spin *spin, uint64_t now_ns)
{
    if (!spin->idle) {
        begin(spin, now_ns);
    }
    if (spin->gave_up) {
        return false;
    }
    if (now_ns - spin->looked_ns > PREEMPTED_NS) {
        spin->short_idles = 0;
        spin->gave_up = true;
    }
    spin->gave_up = spin->gave_up || now_ns - spin->idle_since_ns >= spin->limit_ns;
    spin->looked_ns = now_ns;
    return !spin->gave_up;
}

void sl_spin_busy(struct sl_spin *spin, uint64_t now_ns)
{
    if (spin->idle) {
        /* Twice the limit: an idle time that ended in a sleep includes the wake-up. */
        bool was_short = now_ns - spin->idle_since_ns < 2 * spin->limit_ns;
        spin->short_idles = (uint8_t)(spin->short_idles << 1 | was_short);
    }
    if (spin->idle || !spin->has_worked) {
        spin->busy_since_ns = now_ns;
    }
    spin->has_worked = true;
    spin->idle = false;
}
