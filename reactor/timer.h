/* Timers of one reactor: a hashed wheel of 1 ms slots, O(1) to arm and to disarm, intrusive, no
 * allocation. A timer never runs early; it runs in the first turn after its time. Timers that are
 * due in the same turn run in an order that depends on nothing but what was armed, and when, and is
 * that of their times to within a slot unless the clock jumped by more than a turn of the wheel.
 * Owner reactor. */
#ifndef SL_REACTOR_TIMER_H
#define SL_REACTOR_TIMER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SL_TIMER_SLOTS 1024

struct sl_timer {
    struct sl_timer *prev, *next; /* in its slot; next is NULL when not armed */
    uint64_t due_ns;
    void (*run)(struct sl_timer *timer, uint64_t now_ns); /* disarmed before it runs */
};

struct sl_timer_wheel {
    struct sl_timer slots[SL_TIMER_SLOTS]; /* list heads */
    uint64_t occupied[SL_TIMER_SLOTS / 64];
    struct sl_timer due; /* head of those that the run in progress has yet to call */
    uint64_t now_tick;   /* every earlier slot has been run */
    uint64_t next_ns;    /* no armed timer is due before; what makes a run with nothing due cheap */
    uint32_t armed_count;
};

void sl_timer_wheel_init(struct sl_timer_wheel *wheel, uint64_t now_ns);

/* Arms, or arms anew; a time in the past runs in the next turn. timer->run must be set. */
void sl_timer_arm(struct sl_timer_wheel *wheel, struct sl_timer *timer, uint64_t due_ns);
void sl_timer_disarm(struct sl_timer_wheel *wheel, struct sl_timer *timer);
static inline bool sl_timer_armed(const struct sl_timer *timer)
{
    return timer->next != NULL;
}

/* Runs what is due; returns how many ran. A timer that arms itself again runs in a later call. */
uint32_t sl_timer_run(struct sl_timer_wheel *wheel, uint64_t now_ns);

/* A time at or before that of the earliest timer, or SL_CLOCK_NEVER when none is armed: until when
 * the reactor may sleep. Earlier than the timer when one armed before it was disarmed, when it is
 * more than a turn of the wheel away, or when many timers of later turns lie before it. */
uint64_t sl_timer_next_ns(const struct sl_timer_wheel *wheel);

#endif
