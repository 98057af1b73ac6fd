#include "reactor/rest.h"

#include <stddef.h>

#include "core/clock.h"

#define PART 10 /* of the time: one in so many */

static uint64_t processor_ns(clockid_t clock)
{
    struct timespec ran = {0};
    (void)clock_gettime(clock, &ran); /* of a thread that has ended: 0 */
    return (uint64_t)ran.tv_sec * SL_CLOCK_NS_PER_S + (uint64_t)ran.tv_nsec;
}

void sl_rest_add(struct sl_rest *rest, struct sl_rest_thread *thread, clockid_t clock)
{
    *thread = (struct sl_rest_thread){
        .clock = clock, .ran_ns = processor_ns(clock), .next = rest->threads};
    rest->threads = thread;
}

void sl_rest_remove(struct sl_rest *rest, struct sl_rest_thread *thread)
{
    struct sl_rest_thread **link = &rest->threads;
    while (*link != NULL && *link != thread) {
        link = &(*link)->next;
    }
    if (*link != NULL) {
        *link = thread->next;
    }
}

bool sl_rest_look(struct sl_rest *rest, uint64_t now_ns)
{
    const uint64_t part_ns = (now_ns - rest->looked_ns) / PART;
    bool has_starved = false;
    for (struct sl_rest_thread *thread = rest->threads; thread != NULL; thread = thread->next) {
        const uint64_t ran_ns = processor_ns(thread->clock);
        has_starved |= ran_ns - thread->ran_ns < part_ns;
        thread->ran_ns = ran_ns;
    }
    has_starved &= rest->slept_ns < part_ns;
    rest->looked_ns = now_ns;
    rest->slept_ns = 0;
    return has_starved;
}
