#include "reactor/timer.h"

#include <string.h>

#include "core/assert.h"
#include "core/clock.h"

#define TICK_NS    SL_CLOCK_NS_PER_MS

/* How many timers of later rounds a search for the next due time passes before it settles for an
 * early bound: limits the cost of a run, whatever the number of armed timers. */
#define SEARCH_MAX 256

static struct sl_timer *timer_of(const struct sl_list_link *link)
{
    return SL_CONTAINER_OF(link, struct sl_timer, link);
}

static uint64_t later_of(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static void slot_mark(struct sl_timer_wheel *wheel, uint64_t slot, bool occupied)
{
    uint64_t bit = 1ULL << (slot % 64);
    if (occupied) {
        wheel->occupied[slot / 64] |= bit;
    } else {
        wheel->occupied[slot / 64] &= ~bit;
    }
}

/* The distance from `from`, cyclic, to the first occupied slot; SL_TIMER_SLOTS: none. */
static uint64_t slots_to_occupied(const struct sl_timer_wheel *wheel, uint64_t from)
{
    uint64_t distance = 0;
    while (distance < SL_TIMER_SLOTS) {
        uint64_t slot = (from + distance) % SL_TIMER_SLOTS;
        uint64_t bits = wheel->occupied[slot / 64] >> (slot % 64);
        if (bits != 0) {
            distance += (uint64_t)__builtin_ctzll(bits);
            return distance < SL_TIMER_SLOTS ? distance : SL_TIMER_SLOTS;
        }
        distance += 64 - slot % 64;
    }
    return SL_TIMER_SLOTS;
}

void sl_timer_wheel_init(struct sl_timer_wheel *wheel, uint64_t now_ns)
{
    memset(wheel, 0, sizeof *wheel);
    for (uint32_t slot = 0; slot < SL_TIMER_SLOTS; slot++) {
        sl_list_init(&wheel->slots[slot]);
    }
    sl_list_init(&wheel->due);
    wheel->now_tick = now_ns / TICK_NS;
    wheel->next_ns = SL_CLOCK_NEVER;
}

void sl_timer_arm(struct sl_timer_wheel *wheel, struct sl_timer *timer, uint64_t due_ns)
{
    sl_assert(timer->run != NULL);
    sl_timer_disarm(wheel, timer);
    /* A past time goes into the slot that the next run visits first. */
    uint64_t slot = later_of(due_ns / TICK_NS, wheel->now_tick) % SL_TIMER_SLOTS;
    timer->due_ns = due_ns;
    sl_list_append(&wheel->slots[slot], &timer->link);
    slot_mark(wheel, slot, true);
    wheel->armed_count++;
    if (due_ns < wheel->next_ns) {
        wheel->next_ns = due_ns;
    }
}

void sl_timer_disarm(struct sl_timer_wheel *wheel, struct sl_timer *timer)
{
    if (!sl_timer_armed(timer)) {
        return;
    }
    struct sl_list_link *neighbour = timer->link.next;
    bool alone = neighbour == timer->link.prev;
    sl_list_remove(&timer->link);
    /* Equal neighbours: the head of a list that is now empty. */
    if (alone && neighbour != &wheel->due.head) {
        const struct sl_list *slot = SL_CONTAINER_OF(neighbour, struct sl_list, head);
        slot_mark(wheel, (uint64_t)(slot - wheel->slots), false);
    }
    sl_assert(wheel->armed_count > 0);
    wheel->armed_count--;
    if (wheel->armed_count == 0) {
        wheel->next_ns = SL_CLOCK_NEVER;
    }
}

/* Moves the due timers of a slot to the end of wheel->due. */
static void slot_collect(struct sl_timer_wheel *wheel, uint64_t slot, uint64_t now_ns)
{
    SL_LIST_FOREACH (link, &wheel->slots[slot]) {
        if (timer_of(link)->due_ns <= now_ns) {
            sl_list_append(&wheel->due, link);
        }
    }
    slot_mark(wheel, slot, !sl_list_empty(&wheel->slots[slot]));
}

static void collect(struct sl_timer_wheel *wheel, uint64_t now_ns, uint64_t now_tick)
{
    uint64_t slot_count = now_tick - wheel->now_tick + 1;
    if (slot_count > SL_TIMER_SLOTS) {
        slot_count = SL_TIMER_SLOTS;
    }
    uint64_t passed = 0;
    while (passed < slot_count) {
        passed += slots_to_occupied(wheel, wheel->now_tick + passed);
        if (passed < slot_count) {
            slot_collect(wheel, (wheel->now_tick + passed) % SL_TIMER_SLOTS, now_ns);
        }
        passed++;
    }
}

/* The earliest time in a slot; adds the number of its timers to *looked_at. */
static uint64_t slot_earliest(const struct sl_list *slot, uint32_t *looked_at)
{
    uint64_t earliest = SL_CLOCK_NEVER;
    SL_LIST_FOREACH (link, slot) {
        const uint64_t due_ns = timer_of(link)->due_ns;
        earliest = due_ns < earliest ? due_ns : earliest;
        ++*looked_at;
    }
    return earliest;
}

/* A lower bound of all armed times; exact if found within SEARCH_MAX timers. */
static uint64_t search_next(const struct sl_timer_wheel *wheel)
{
    if (wheel->armed_count == 0) {
        return SL_CLOCK_NEVER;
    }
    uint32_t looked_at = 0;
    for (uint64_t ahead = 0; ahead < SL_TIMER_SLOTS; ahead++) {
        ahead += slots_to_occupied(wheel, wheel->now_tick + ahead);
        if (ahead >= SL_TIMER_SLOTS) {
            break;
        }
        uint64_t tick = wheel->now_tick + ahead;
        if (looked_at >= SEARCH_MAX) {
            return tick * TICK_NS;
        }
        uint64_t earliest = slot_earliest(&wheel->slots[tick % SL_TIMER_SLOTS], &looked_at);
        if (earliest / TICK_NS <= tick) {
            return earliest;
        }
    }
    return (wheel->now_tick + SL_TIMER_SLOTS) * TICK_NS;
}

uint32_t sl_timer_run(struct sl_timer_wheel *wheel, uint64_t now_ns)
{
    if (now_ns < wheel->next_ns) {
        return 0;
    }
    uint64_t now_tick = later_of(now_ns / TICK_NS, wheel->now_tick);
    collect(wheel, now_ns, now_tick);
    wheel->now_tick = now_tick;
    wheel->next_ns = search_next(wheel);

    uint32_t ran = 0;
    while (!sl_list_empty(&wheel->due)) {
        struct sl_timer *timer = timer_of(sl_list_first(&wheel->due));
        sl_timer_disarm(wheel, timer);
        timer->run(timer, now_ns);
        ran++;
    }
    return ran;
}

uint64_t sl_timer_next_ns(const struct sl_timer_wheel *wheel)
{
    return wheel->next_ns;
}
