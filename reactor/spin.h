/* Decides whether an idle loop spins or sleeps. Spinning saves the latency of a wake-up, but keeps
 * the core from other threads. The loop therefore spins for a limited time, only while work has
 * recently arrived within about that time, and stops if it is preempted while spinning. Pure: time
 * is an argument. Owner reactor. */
#ifndef SL_REACTOR_SPIN_H
#define SL_REACTOR_SPIN_H

#include <stdbool.h>
#include <stdint.h>

struct sl_spin {
    uint64_t spin_ns_max; /* after short work; 0: never spins */
    uint64_t longest_ns;  /* after long work */
    uint64_t limit_ns;    /* of the current or last idle time */
    uint64_t busy_since_ns, idle_since_ns, looked_ns;
    bool has_worked; /* busy_since_ns is valid */
    bool idle;
    bool gave_up;        /* until the next work */
    uint8_t short_idles; /* one bit for each of the last eight idle times: it was short */
};

void sl_spin_init(struct sl_spin *spin, uint64_t spin_ns_max);

/* For a loop with its own core: after long work, such as a burst of hundreds of requests, it spins
 * up to eight times as long, but no longer than it worked. Its peers work as long: otherwise two
 * fully loaded loops would sleep alternately, each while the other works. */
void sl_spin_lengthen(struct sl_spin *spin);

/* Reports an idle turn. True: run another; false: sleep. */
bool sl_spin_idle(struct sl_spin *spin, uint64_t now_ns);

/* Reports a turn with work that began at now_ns. */
void sl_spin_busy(struct sl_spin *spin, uint64_t now_ns);

#endif
