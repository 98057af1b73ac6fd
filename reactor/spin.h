/* Whether an idle loop spins on or sleeps. Spinning answers sooner, by what a wake-up costs, but
 * takes the core from others; so it is done for a limited time, and only while work has lately come
 * within about that time. A loop that others take the core from while it spins is in their way, and
 * gives up. Pure: time comes in as an argument. Owner reactor. */
#ifndef SL_REACTOR_SPIN_H
#define SL_REACTOR_SPIN_H

#include <stdbool.h>
#include <stdint.h>

struct sl_spin {
    uint64_t spin_ns_max; /* after short work; 0: never spins */
    uint64_t longest_ns;  /* after long work */
    uint64_t limit_ns;    /* of this idle time, or the last */
    uint64_t busy_since_ns, idle_since_ns, looked_ns;
    bool has_worked; /* so that busy_since_ns is one */
    bool idle;
    bool gave_up;        /* until there is work */
    uint8_t short_idles; /* one bit for each of the last eight idle times: was it short? */
};

void sl_spin_init(struct sl_spin *spin, uint64_t spin_ns_max);

/* For a loop with a core to itself: after long work, such as a burst of hundreds of requests, it
 * spins up to eight times as long, but no longer than it has worked. Its peers are as long about
 * their part: two loops under full load would else sleep in turns, each while the other works. */
void sl_spin_lengthen(struct sl_spin *spin);

/* A turn did nothing. True: do another; false: sleep. */
bool sl_spin_idle(struct sl_spin *spin, uint64_t now_ns);

/* A turn that began at now_ns did something. */
void sl_spin_busy(struct sl_spin *spin, uint64_t now_ns);

#endif
