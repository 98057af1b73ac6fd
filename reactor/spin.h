/* Whether an idle loop spins on or sleeps. Spinning answers sooner, by what a wake-up costs, but
 * takes the core from others; so it is done for a limited time, and only while work has lately come
 * within about that time. Pure: time comes in as an argument. Owner reactor. */
#ifndef SL_REACTOR_SPIN_H
#define SL_REACTOR_SPIN_H

#include <stdbool.h>
#include <stdint.h>

struct sl_spin {
    uint64_t spin_ns_max; /* 0: never spins */
    uint64_t idle_since_ns;
    bool idle;
    uint8_t short_idles; /* one bit for each of the last eight idle times: was it short? */
};

void sl_spin_init(struct sl_spin *spin, uint64_t spin_ns_max);

/* A turn did nothing. True: do another; false: sleep. */
bool sl_spin_idle(struct sl_spin *spin, uint64_t now_ns);

/* A turn that began at now_ns did something. */
void sl_spin_busy(struct sl_spin *spin, uint64_t now_ns);

#endif
