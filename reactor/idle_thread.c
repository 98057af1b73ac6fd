#include "reactor/idle_thread.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdlib.h>

#include "core/clock.h"
#include "core/err.h"
#include "core/thread.h"

/* Work that took longer than STARVED_NS, less than a tenth of it on a processor, was starved.
 * Work that waited for a disk looks the same; then it does not matter which thread runs the next
 * work. */
#define STARVED_NS    (20 * SL_CLOCK_NS_PER_MS)
#define STARVED_PART  10

/* How long a starving thread is bypassed; doubles with each starvation in a row. */
#define PASSED_NS     SL_CLOCK_NS_PER_S
#define PASSED_NS_MAX (64 * SL_CLOCK_NS_PER_S)

struct sl_idle_thread {
    pthread_t id;
    clockid_t clock;
    sem_t given, ran;
    void (*work)(void *ctx); /* NULL: end the thread */
    void *ctx;

    /* Owned by the user: */
    uint64_t passed_ns; /* the last bypass; 0: the last work was not starved */
    uint64_t passed_until_ns;
};

static void idle_thread_wait_for(sem_t *sem)
{
    while (sem_wait(sem) != 0) {
        /* Interrupted by a signal. */
    }
}

static uint64_t read_clock(clockid_t clock)
{
    struct timespec now = {0};
    (void)clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * SL_CLOCK_NS_PER_S + (uint64_t)now.tv_nsec;
}

static void free_idle_thread(struct sl_idle_thread *idle_thread)
{
    sem_destroy(&idle_thread->given);
    sem_destroy(&idle_thread->ran);
    free(idle_thread);
}

static void *idle_thread_main(void *arg)
{
    struct sl_idle_thread *idle_thread = arg;
    const struct sched_param none = {0};
    sl_thread_unpin();
    (void)sched_setscheduler(0, SCHED_IDLE,
                             &none); /* if it is not permitted, normal priority will do */
    for (idle_thread_wait_for(&idle_thread->given); idle_thread->work != NULL;
         idle_thread_wait_for(&idle_thread->given)) {
        idle_thread->work(idle_thread->ctx);
        sem_post(&idle_thread->ran);
    }
    free_idle_thread(idle_thread);
    return NULL;
}

static void idle_thread_give(struct sl_idle_thread *idle_thread, void (*work)(void *ctx), void *ctx)
{
    idle_thread->work = work;
    idle_thread->ctx = ctx;
    sem_post(&idle_thread->given);
}

int sl_idle_thread_create(const char *name, struct sl_idle_thread **out)
{
    struct sl_idle_thread *idle_thread = calloc(1, sizeof *idle_thread);
    if (idle_thread == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    sem_init(&idle_thread->given, 0, 0);
    sem_init(&idle_thread->ran, 0, 0);
    if (sl_thread_start(&idle_thread->id, name, idle_thread_main, idle_thread) != 0) {
        free_idle_thread(idle_thread);
        return SL_ERR_NO_MEMORY;
    }
    (void)pthread_getcpuclockid(idle_thread->id, &idle_thread->clock);
    *out = idle_thread;
    return 0;
}

/* Bypasses the thread for a while if it was starved. */
static void judge(struct sl_idle_thread *idle_thread, uint64_t began_ns, uint64_t ran_ns)
{
    const uint64_t now_ns = read_clock(CLOCK_MONOTONIC);
    const uint64_t took_ns = now_ns - began_ns;
    if (took_ns < STARVED_NS || ran_ns >= took_ns / STARVED_PART) {
        idle_thread->passed_ns = 0;
        return;
    }
    idle_thread->passed_ns = idle_thread->passed_ns == 0 ? PASSED_NS : 2 * idle_thread->passed_ns;
    idle_thread->passed_ns =
        idle_thread->passed_ns < PASSED_NS_MAX ? idle_thread->passed_ns : PASSED_NS_MAX;
    idle_thread->passed_until_ns = now_ns + idle_thread->passed_ns;
}

void sl_idle_thread_run(struct sl_idle_thread *idle_thread, void (*work)(void *ctx), void *ctx)
{
    const uint64_t began_ns = read_clock(CLOCK_MONOTONIC);
    if (began_ns < idle_thread->passed_until_ns) {
        work(ctx);
        return;
    }
    const uint64_t ran_ns = read_clock(idle_thread->clock);
    idle_thread_give(idle_thread, work, ctx);
    idle_thread_wait_for(&idle_thread->ran);
    judge(idle_thread, began_ns, read_clock(idle_thread->clock) - ran_ns);
}

clockid_t sl_idle_thread_clock(const struct sl_idle_thread *idle_thread)
{
    return idle_thread->clock;
}

void sl_idle_thread_destroy(struct sl_idle_thread **pointer)
{
    struct sl_idle_thread *idle_thread = *pointer;
    *pointer = NULL;
    if (idle_thread != NULL) {
        pthread_detach(idle_thread->id); /* it may take seconds to get a core */
        idle_thread_give(idle_thread, NULL, NULL);
    }
}
