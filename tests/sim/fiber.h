/* A fiber is a thread of a simulated application: code that blocks runs on a stack of its own, and
 * yields where it would wait. One thread. Allocates its stack. */
#ifndef SL_TESTS_SIM_FIBER_H
#define SL_TESTS_SIM_FIBER_H

#include <stdbool.h>

struct sl_sim_fiber;

/* Does not run it yet. */
struct sl_sim_fiber *sl_sim_fiber_create(void (*run)(void *ctx), void *ctx);

/* It must have ended. Nulls *fiber. */
void sl_sim_fiber_destroy(struct sl_sim_fiber **fiber);

/* Runs the fiber until it yields or ends. Not in a fiber. */
void sl_sim_fiber_resume(struct sl_sim_fiber *fiber);

/* In a fiber: returns at the next resume. */
void sl_sim_fiber_yield(struct sl_sim_fiber *fiber);

bool sl_sim_fiber_ended(const struct sl_sim_fiber *fiber);

#endif
