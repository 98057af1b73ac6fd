#include "reactor/offload.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/limits.h"
#include "core/list.h"
#include "core/thread.h"
#include "reactor/idle_thread.h"
#include "reactor/reactor_internal.h"

/* Jobs at the thread at a time: neither lane is ever full, and destroy waits for few. */
#define AT_ONCE 64
static_assert(AT_ONCE <= SL_LIMIT_LANE_MAILS, "a lane has room for what is at the thread");

struct sl_offload {
    struct sl_reactor *reactor;
    char name[SL_OFFLOAD_NAME_BYTES];
    struct sl_offload_job *first, *last; /* in order; the first sent_count are at the thread */
    struct sl_offload_job *unsent;       /* NULL: none */
    uint32_t count, sent_count;
    uint64_t done_count;             /* since the thread started */
    struct sl_mailbox_lane *to_jobs; /* the reactor's lane into the thread's mailbox */
    struct sl_mailbox_lane *to_self; /* completes jobs if there is no thread */
    enum sl_offload_priority priority;
    struct sl_cpu_yield_thread resting; /* while is_busy */
    bool has_thread;
    bool closing;
    bool is_busy; /* registered in the reactor's cpu_yield */
    pthread_t id;

    /* Held by the owner, the thread and each mail that refers to it; the last one frees it. */
    _Atomic uint32_t references;

    /* Owned by the thread. */
    struct {
        struct sl_idle_thread *idle; /* NULL: the thread itself runs jobs */
        sem_t ended;
        _Atomic bool stopping;
        _Atomic uint64_t finished; /* jobs that ended */
        struct sl_mailbox *jobs;
        struct sl_mailbox_lane *to_reactor;
    } thread;

    struct {
        struct sl_timer timer;
        bool has_worked; /* the first job has run and completes in the next turn */
    } stepped;
};

/* Runs on the thread that releases the last reference. */
static void unref(void *ctx)
{
    struct sl_offload *offload = ctx;
    if (atomic_fetch_sub(&offload->references, 1) > 1) {
        return;
    }
    sl_mailbox_destroy(&offload->thread.jobs);
    sem_destroy(&offload->thread.ended);
    free(offload);
}

/* The thread */

static void mail_done(void *ctx, uint64_t a, uint64_t b);

static void offload_tell(struct sl_mailbox_lane *lane, struct sl_offload *offload)
{
    atomic_fetch_add(&offload->references, 1);
    int err =
        sl_mailbox_post(lane, (struct sl_mail){.run = mail_done, .ctx = offload, .drop = unref});
    sl_assert(err == 0); /* by AT_ONCE */
}

static void work_on_idle_thread(void *ctx)
{
    struct sl_offload_job *job = ctx;
    job->work(job);
}

static void thread_work(void *ctx, uint64_t a, uint64_t b)
{
    struct sl_offload *offload = ctx;
    if (atomic_load(&offload->thread.stopping)) {
        return; /* sl_offload_destroy completes the job */
    }
    struct sl_offload_job *job = (struct sl_offload_job *)(uintptr_t)a;
    if (offload->thread.idle != NULL && !job->allocates) {
        sl_idle_thread_run(offload->thread.idle, work_on_idle_thread, job);
    } else {
        job->work(job);
    }
    job->err = 0;
    atomic_fetch_add(&offload->thread.finished, 1);
    offload_tell(offload->thread.to_reactor, offload);
}

/* Resets the core and priority inherited from a reactor. */
static void settle_thread(const struct sl_offload *offload)
{
    sl_thread_unpin();
    if (offload->priority != SL_OFFLOAD_PRIORITY_NORMAL) {
        sl_thread_lower_priority();
    }
}

static void *offload_thread_main(void *arg)
{
    struct sl_offload *offload = arg;
    settle_thread(offload);
    while (!atomic_load(&offload->thread.stopping)) {
        if (sl_mailbox_drain(offload->thread.jobs, 1) == 0) {
            sl_mailbox_wait(offload->thread.jobs, SL_CLOCK_NEVER);
        }
    }
    sl_idle_thread_destroy(&offload->thread.idle);
    sl_mailbox_lane_close(&offload->thread.to_reactor); /* mail in it holds a reference */
    sem_post(&offload->thread.ended);
    unref(offload);
    return NULL;
}

static int thread_run(struct sl_offload *offload)
{
    atomic_fetch_add(&offload->references, 1);
    if (sl_thread_start(&offload->id, offload->name, offload_thread_main, offload) != 0) {
        unref(offload);
        return SL_ERR_NO_MEMORY;
    }
    return 0;
}

/* After a failure, the next call continues with the parts already created. */
static void thread_create(struct sl_offload *offload)
{
    int err = offload->thread.jobs == NULL ? sl_mailbox_create(&offload->thread.jobs) : 0;
    if (err == 0 && offload->to_jobs == NULL) {
        err = sl_mailbox_lane_open(offload->thread.jobs, &offload->to_jobs);
    }
    if (err == 0 && offload->thread.to_reactor == NULL) {
        err = sl_mailbox_lane_open(offload->reactor->mailbox, &offload->thread.to_reactor);
    }
    if (err == 0 && offload->priority == SL_OFFLOAD_PRIORITY_IDLE) {
        (void)sl_idle_thread_create(offload->name, &offload->thread.idle); /* optional */
    }
    offload->has_thread = err == 0 && thread_run(offload) == 0;
    if (!offload->has_thread) {
        sl_idle_thread_destroy(&offload->thread.idle);
    }
    offload->done_count = 0;
}

/* False: the thread did not end in time. */
static bool thread_end(struct sl_offload *offload, uint64_t timeout_ns)
{
    atomic_store(&offload->thread.stopping, true);
    sl_mailbox_wake(offload->thread.jobs);
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    const uint64_t until_ns = (uint64_t)until.tv_nsec + timeout_ns;
    until.tv_sec += (time_t)(until_ns / SL_CLOCK_NS_PER_S);
    until.tv_nsec = (long)(until_ns % SL_CLOCK_NS_PER_S);
    int failed;
    do {
        failed = sem_clockwait(&offload->thread.ended, CLOCK_MONOTONIC, &until);
    } while (failed != 0 && errno == EINTR);
    if (failed != 0) {
        pthread_detach(offload->id);
        return false;
    }
    pthread_join(offload->id, NULL);
    return true;
}

/* Jobs */

/* Registers the thread in the reactor's cpu_yield while it has jobs. */
static void cpu_yield_for(struct sl_offload *offload)
{
    const bool is_busy =
        offload->thread.idle != NULL && offload->has_thread && offload->sent_count > 0;
    if (is_busy == offload->is_busy) {
        return;
    }
    offload->is_busy = is_busy;
    if (!is_busy) {
        sl_cpu_yield_remove(&offload->reactor->cpu_yield, &offload->resting);
        return;
    }
    clockid_t own;
    offload->resting.clocks[0] = sl_idle_thread_clock(offload->thread.idle);
    offload->resting.clocks[1] =
        pthread_getcpuclockid(offload->id, &own) == 0 ? own : offload->resting.clocks[0];
    sl_cpu_yield_add(&offload->reactor->cpu_yield, &offload->resting);
}

/* Sends jobs to the thread, at most AT_ONCE at a time. */
static void hand_out(struct sl_offload *offload)
{
    while (offload->unsent != NULL && offload->sent_count < AT_ONCE) {
        struct sl_offload_job *job = offload->unsent;
        offload->unsent = job->next;
        offload->sent_count++;
        if (!offload->has_thread) {
            job->err = SL_ERR_NO_MEMORY;
            offload_tell(offload->to_self, offload);
            continue;
        }
        int err = sl_mailbox_post(
            offload->to_jobs,
            (struct sl_mail){.run = thread_work, .ctx = offload, .a = (uintptr_t)job});
        sl_assert(err == 0); /* by AT_ONCE */
    }
    cpu_yield_for(offload);
}

static struct sl_offload_job *offload_take_first(struct sl_offload *offload)
{
    struct sl_offload_job *job = offload->first;
    offload->first = job->next;
    offload->last = offload->first == NULL ? NULL : offload->last;
    offload->unsent = offload->unsent == job ? job->next : offload->unsent;
    offload->count--;
    offload->sent_count -= offload->sent_count > 0;
    job->next = NULL;
    return job;
}

static void mail_done(void *ctx, uint64_t a, uint64_t b)
{
    struct sl_offload *offload = ctx;
    if (!offload->closing) {
        struct sl_offload_job *job = offload_take_first(offload);
        offload->done_count++;
        hand_out(offload);
        job->done(job);
    }
    unref(offload);
}

/* Stepped */

static void offload_arm(struct sl_offload *offload)
{
    const struct sl_reactor_options *options = &offload->reactor->options;
    uint64_t wait_ns = options->offload_ns == NULL ? 0 : options->offload_ns(options->offload_ctx);
    sl_timer_arm(&offload->reactor->timers, &offload->stepped.timer,
                 offload->reactor->head.now_ns + wait_ns);
}

static void offload_step(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_offload *offload = SL_CONTAINER_OF(timer, struct sl_offload, stepped.timer);
    if (!offload->stepped.has_worked) {
        offload->first->work(offload->first);
        offload->first->err = 0;
        offload->stepped.has_worked = true;
        sl_timer_arm(&offload->reactor->timers, timer, now_ns);
        return;
    }
    struct sl_offload_job *job = offload_take_first(offload);
    offload->stepped.has_worked = false;
    if (offload->first != NULL) {
        offload_arm(offload);
    }
    job->done(job);
}

/* Public functions */

int sl_offload_create(struct sl_reactor *reactor, const char *name, struct sl_offload **out)
{
    sl_reactor_assert_owner(reactor);
    struct sl_offload *offload = calloc(1, sizeof *offload);
    if (offload == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    offload->reactor = reactor;
    offload->stepped.timer.run = offload_step;
    offload->references = 1;
    sem_init(&offload->thread.ended, 0, 0);
    memcpy(offload->name, name, strnlen(name, sizeof offload->name - 1));
    /* Opened now, so that a job can fail if the thread cannot start. */
    int err = sl_mailbox_lane_open(reactor->mailbox, &offload->to_self);
    if (err != 0) {
        unref(offload);
        return err;
    }
    *out = offload;
    return 0;
}

void sl_offload_set_priority(struct sl_offload *offload, enum sl_offload_priority priority)
{
    sl_reactor_assert_owner(offload->reactor);
    sl_assert(!offload->has_thread);
    offload->priority = priority;
}

void sl_offload_post(struct sl_offload *offload, struct sl_offload_job *job)
{
    sl_reactor_assert_owner(offload->reactor);
    sl_assert(job->work != NULL);
    sl_assert(job->done != NULL);
    job->next = NULL;
    job->err = SL_ERR_CANCELLED;
    if (offload->first == NULL) {
        offload->first = job;
    } else {
        offload->last->next = job;
    }
    offload->last = job;
    offload->count++;
    if (offload->closing) {
        return;
    }
    if (offload->reactor->options.stepped) {
        if (offload->first == job) {
            offload_arm(offload);
        }
        return;
    }
    offload->unsent = offload->unsent == NULL ? job : offload->unsent;
    if (!offload->has_thread && offload->sent_count == 0) {
        thread_create(offload);
    }
    hand_out(offload);
}

/* Completes all jobs except the job in which the thread is stuck. */
static void finish_jobs(struct sl_offload *offload, bool ended)
{
    uint64_t done = offload->done_count;
    uint64_t finished = offload->has_thread ? atomic_load(&offload->thread.finished) : UINT64_MAX;
    while (offload->first != NULL) {
        bool stuck = !ended && offload->sent_count > 0 && done == finished;
        done++;
        struct sl_offload_job *job = offload_take_first(offload);
        if (!stuck) {
            job->done(job);
        }
    }
}

bool sl_offload_destroy(struct sl_offload **pointer, uint64_t timeout_ns)
{
    struct sl_offload *offload = *pointer;
    *pointer = NULL;
    if (offload == NULL) {
        return true;
    }
    sl_reactor_assert_owner(offload->reactor);
    sl_cpu_yield_remove(&offload->reactor->cpu_yield, &offload->resting);
    bool ended = !offload->has_thread || thread_end(offload, timeout_ns);
    offload->closing = true;
    sl_timer_disarm(&offload->reactor->timers, &offload->stepped.timer);
    finish_jobs(offload, ended);
    sl_mailbox_lane_close(&offload->to_jobs);
    sl_mailbox_lane_close(&offload->to_self);
    if (!offload->has_thread) {
        sl_mailbox_lane_close(&offload->thread.to_reactor);
    }
    unref(offload);
    return ended;
}
