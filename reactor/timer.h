/* Timers of one reactor: a hashed wheel of 1 ms slots; O(1) arm and disarm; intrusive; no
 * allocation. A timer never runs early, but in the first turn after its time. Timers due in the
 * same turn run in a deterministic order: by time to within a slot, unless the clock jumped by more
 * than a round of the wheel. Owner reactor. */
#ifndef SL_REACTOR_TIMER_H
#define SL_REACTOR_TIMER_H

#include <stdbool.h>
#include <stdint.h>

#include "core/list.h"

#define SL_TIMER_SLOTS 1024

struct sl_timer {
    struct sl_list_link link; /* in its slot */
    uint64_t due_ns;
    void (*run)(struct sl_timer *timer, uint64_t now_ns); /* disarmed before the call */
};

struct sl_timer_wheel {
    struct sl_list slots[SL_TIMER_SLOTS];
    uint64_t occupied[SL_TIMER_SLOTS / 64];
    struct sl_list due; /* timers still to run in this call */
    uint64_t now_tick;  /* every earlier slot has run */
    uint64_t next_ns;   /* lower bound of all due times: makes a call with nothing due cheap */
    uint32_t armed_count;
};

void sl_timer_wheel_init(struct sl_timer_wheel *wheel, uint64_t now_ns);

/* Arms or rearms; a past time runs in the next turn. timer->run must be set. */
void sl_timer_arm(struct sl_timer_wheel *wheel, struct sl_timer *timer, uint64_t due_ns);
void sl_timer_disarm(struct sl_timer_wheel *wheel, struct sl_timer *timer);
static inline bool sl_timer_armed(const struct sl_timer *timer)
{
    return sl_list_linked(&timer->link);
}

/* Runs due timers; returns the number. A timer that rearms itself runs in a later call. */
uint32_t sl_timer_run(struct sl_timer_wheel *wheel, uint64_t now_ns);

/* A lower bound of the earliest due time, SL_CLOCK_NEVER if none is armed: the reactor may sleep
 * until then. Too early if a timer armed before it was disarmed, if the earliest timer is more than
 * a round of the wheel away, or if many timers of later rounds lie before it. */
uint64_t sl_timer_next_ns(const struct sl_timer_wheel *wheel);

#endif
