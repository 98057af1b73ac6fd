#include "tests/sim/fiber.h"

#include <stdlib.h>
#include <ucontext.h>

#include "core/assert.h"

#define STACK_BYTES (512U << 10)

struct sl_sim_fiber {
    ucontext_t here, outside;
    void (*run)(void *ctx);
    void *ctx, *stack;
    bool ended;
};

/* makecontext passes ints only. */
static struct sl_sim_fiber *beginning;

static void begin(void)
{
    struct sl_sim_fiber *fiber = beginning;
    fiber->run(fiber->ctx);
    fiber->ended = true;
    swapcontext(&fiber->here, &fiber->outside);
}

struct sl_sim_fiber *sl_sim_fiber_create(void (*run)(void *ctx), void *ctx)
{
    struct sl_sim_fiber *fiber = calloc(1, sizeof *fiber);
    sl_assert(fiber != NULL);
    fiber->run = run;
    fiber->ctx = ctx;
    fiber->stack = malloc(STACK_BYTES);
    sl_assert(fiber->stack != NULL);
    int err = getcontext(&fiber->here);
    sl_assert(err == 0);
    fiber->here.uc_stack.ss_sp = fiber->stack;
    fiber->here.uc_stack.ss_size = STACK_BYTES;
    makecontext(&fiber->here, begin, 0);
    return fiber;
}

void sl_sim_fiber_destroy(struct sl_sim_fiber **fiber)
{
    sl_assert((*fiber)->ended);
    free((*fiber)->stack);
    free(*fiber);
    *fiber = NULL;
}

void sl_sim_fiber_resume(struct sl_sim_fiber *fiber)
{
    sl_assert(!fiber->ended);
    beginning = fiber;
    int err = swapcontext(&fiber->outside, &fiber->here);
    sl_assert(err == 0);
}

void sl_sim_fiber_yield(struct sl_sim_fiber *fiber)
{
    int err = swapcontext(&fiber->here, &fiber->outside);
    sl_assert(err == 0);
}

bool sl_sim_fiber_ended(const struct sl_sim_fiber *fiber)
{
    return fiber->ended;
}
