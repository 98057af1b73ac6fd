#include <pthread.h>
#include <semaphore.h>

#include "reactor/cpu_yield.h"
#include "tests/support/unit.h"

#define MS 1000000ULL

static sem_t gate;

static void *wait_at_gate(void *arg)
{
    while (sem_wait(&gate) != 0) {
    }
    return NULL;
}

/* The clock of a thread that does not run, until stopped_end. */
static clockid_t stopped_begin(pthread_t *thread)
{
    clockid_t clock;
    sem_init(&gate, 0, 0);
    assert_int_equal(pthread_create(thread, NULL, wait_at_gate, NULL), 0);
    assert_int_equal(pthread_getcpuclockid(*thread, &clock), 0);
    return clock;
}

static void stopped_end(pthread_t thread)
{
    sem_post(&gate);
    pthread_join(thread, NULL);
    sem_destroy(&gate);
}

/* The time of the looks is an hour a step: what the thread ran to get to its gate, or any clock in
 * a test, is nothing beside that. */
#define STEP (3600 * 1000 * MS)

SL_CASE(due__beside_a_loop_that_never_sleeps)
{
    pthread_t thread;
    const clockid_t clock = stopped_begin(&thread);
    struct sl_cpu_yield cpu_yield = {0};
    struct sl_cpu_yield_thread waits = {.clocks = {clock, clock}};
    assert_false(sl_cpu_yield_is_due(&cpu_yield, STEP)); /* nobody to rest for */
    sl_cpu_yield_add(&cpu_yield, &waits);
    assert_true(sl_cpu_yield_is_due(&cpu_yield, STEP));
    assert_false(sl_cpu_yield_is_due(&cpu_yield, STEP + SL_CPU_YIELD_EVERY_NS - 1));
    assert_true(sl_cpu_yield_is_due(&cpu_yield, 2 * STEP));
    sl_cpu_yield_remove(&cpu_yield, &waits);
    assert_false(sl_cpu_yield_is_due(&cpu_yield, 3 * STEP));
    stopped_end(thread);
}

SL_CASE(due__not_where_the_loop_has_slept)
{
    pthread_t thread;
    const clockid_t clock = stopped_begin(&thread);
    struct sl_cpu_yield cpu_yield = {0};
    struct sl_cpu_yield_thread waits = {.clocks = {clock, clock}};
    sl_cpu_yield_add(&cpu_yield, &waits);
    cpu_yield.slept_ns = STEP / 10;
    assert_false(sl_cpu_yield_is_due(&cpu_yield, STEP));
    cpu_yield.slept_ns = STEP / 10 - 1; /* too little, and of this time only */
    assert_true(sl_cpu_yield_is_due(&cpu_yield, 2 * STEP));
    stopped_end(thread);
}

/* A clock that runs as a thread with a core does: all the time. */
SL_CASE(due__not_where_the_thread_has_run)
{
    struct sl_cpu_yield cpu_yield = {0};
    struct sl_cpu_yield_thread runs = {.clocks = {CLOCK_MONOTONIC, CLOCK_MONOTONIC}};
    struct timespec now;
    sl_cpu_yield_add(&cpu_yield, &runs);
    runs.ran_ns = 0; /* as if it had been looked at when the machine began */
    clock_gettime(CLOCK_MONOTONIC, &now);
    const uint64_t now_ns = (uint64_t)now.tv_sec * 1000 * MS + (uint64_t)now.tv_nsec;
    assert_false(sl_cpu_yield_is_due(&cpu_yield, now_ns));
}

SL_CASE(due__for_one_of_two)
{
    pthread_t thread;
    const clockid_t clock = stopped_begin(&thread);
    struct sl_cpu_yield cpu_yield = {0};
    struct sl_cpu_yield_thread waits = {.clocks = {clock, clock}}, other = waits;
    sl_cpu_yield_add(&cpu_yield, &waits);
    sl_cpu_yield_add(&cpu_yield, &other);
    sl_cpu_yield_remove(&cpu_yield, &waits);
    sl_cpu_yield_remove(&cpu_yield, &waits); /* it is no more: fine */
    assert_true(sl_cpu_yield_is_due(&cpu_yield, STEP));
    sl_cpu_yield_remove(&cpu_yield, &other);
    assert_null(cpu_yield.threads);
    stopped_end(thread);
}
