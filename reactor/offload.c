#include "reactor/offload.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/limits.h"
#include "reactor/idle_thread.h"
#include "reactor/reactor_internal.h"
#include "reactor/topology.h"

/* So many jobs are at the thread at a time: neither lane is ever full, and what is destroyed waits
 * for few. */
#define AT_ONCE 64
static_assert(AT_ONCE <= SL_LIMIT_LANE_MAILS, "a lane has room for what is at the thread");

/* Behind reactors, but not so far that a busy machine never gets to it. */
#define PRIORITY_NICE 10

struct sl_offload {
    struct sl_reactor *reactor;
    char name[SL_OFFLOAD_NAME_BYTES];
    struct sl_offload_job *first, *last; /* in order; the first sent_count of them are sent */
    struct sl_offload_job *unsent;       /* NULL: none */
    uint32_t count, sent_count;
    uint64_t done_count;             /* since the thread was made */
    struct sl_mailbox_lane *to_jobs; /* the reactor's lane into the thread's mailbox */
    struct sl_mailbox_lane *to_self; /* for what there is no thread for */
    enum sl_offload_place place;
    struct sl_cpu_yield_thread resting; /* while is_busy */
    bool has_thread;
    bool closing;
    bool is_busy; /* the reactor rests for the thread where it must */
    pthread_t id;

    /* The owner, the thread, and each mail that names it: the last of them frees it. */
    _Atomic uint32_t references;

    /* The thread's: */
    struct sl_idle_thread *spare; /* NULL: the thread works itself */
    sem_t ended;
    _Atomic bool stopping;
    _Atomic uint64_t finished; /* jobs so far */
    struct sl_mailbox *jobs;
    struct sl_mailbox_lane *to_reactor;

    /* Stepped: */
    struct sl_timer timer;
    bool has_worked; /* the first job has run, and is said to be done in the next turn */
};

/* On whatever thread lets go of it last. */
static void unref(void *ctx)
{
    struct sl_offload *aside = ctx;
    if (atomic_fetch_sub(&aside->references, 1) > 1) {
        return;
    }
    sl_mailbox_destroy(&aside->jobs);
    sem_destroy(&aside->ended);
    free(aside);
}

/* ---- The thread ------------------------------------------------------------------------------ */

static void mail_done(void *ctx, uint64_t a, uint64_t b);

static void tell(struct sl_mailbox_lane *lane, struct sl_offload *aside)
{
    atomic_fetch_add(&aside->references, 1);
    int err =
        sl_mailbox_post(lane, (struct sl_mail){.run = mail_done, .ctx = aside, .drop = unref});
    sl_assert(err == 0); /* AT_ONCE */
}

static void work_on_spare(void *ctx)
{
    struct sl_offload_job *job = ctx;
    job->work(job);
}

static void thread_work(void *ctx, uint64_t a, uint64_t b)
{
    (void)b;
    struct sl_offload *aside = ctx;
    if (atomic_load(&aside->stopping)) {
        return; /* who destroys the aside says what becomes of the job */
    }
    struct sl_offload_job *job = (struct sl_offload_job *)(uintptr_t)a;
    if (aside->spare != NULL && !job->allocates) {
        sl_idle_thread_run(aside->spare, work_on_spare, job);
    } else {
        job->work(job);
    }
    job->err = 0;
    atomic_fetch_add(&aside->finished, 1);
    tell(aside->to_reactor, aside);
}

/* What the thread has inherited from a reactor and should not have: its core, and its place among
 * threads. Neither is needed for the work, so that failures are none. */
static void settle_thread(const struct sl_offload *aside)
{
    sl_topology_unpin_thread();
    if (aside->place != SL_OFFLOAD_PRIORITY_NORMAL) {
        (void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), PRIORITY_NICE);
    }
}

static void *thread_main(void *arg)
{
    struct sl_offload *aside = arg;
    settle_thread(aside);
    while (!atomic_load(&aside->stopping)) {
        if (sl_mailbox_drain(aside->jobs, 1) == 0) {
            sl_mailbox_wait(aside->jobs, SL_CLOCK_NEVER);
        }
    }
    sl_idle_thread_destroy(&aside->spare);
    sl_mailbox_lane_close(&aside->to_reactor); /* mail that is in it names the aside */
    sem_post(&aside->ended);
    unref(aside);
    return NULL;
}

/* The new thread takes no signals: they are for the program's own. */
static int thread_run(struct sl_offload *aside)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    atomic_fetch_add(&aside->references, 1);
    int failed = pthread_create(&aside->id, NULL, thread_main, aside);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed != 0) {
        unref(aside);
        return SL_ERR_NO_MEMORY;
    }
    pthread_setname_np(aside->id, aside->name);
    return 0;
}

/* What was made before it failed is there for the next time. */
static void thread_create(struct sl_offload *aside)
{
    int err = aside->jobs == NULL ? sl_mailbox_create(&aside->jobs) : 0;
    if (err == 0 && aside->to_jobs == NULL) {
        err = sl_mailbox_lane_open(aside->jobs, &aside->to_jobs);
    }
    if (err == 0 && aside->to_reactor == NULL) {
        err = sl_mailbox_lane_open(aside->reactor->mailbox, &aside->to_reactor);
    }
    if (err == 0 && aside->place == SL_OFFLOAD_PRIORITY_IDLE) {
        (void)sl_idle_thread_create(aside->name, &aside->spare); /* it goes without, too */
    }
    aside->has_thread = err == 0 && thread_run(aside) == 0;
    if (!aside->has_thread) {
        sl_idle_thread_destroy(&aside->spare);
    }
    aside->done_count = 0;
}

/* False: it did not end in time. */
static bool thread_end(struct sl_offload *aside, uint64_t timeout_ns)
{
    atomic_store(&aside->stopping, true);
    sl_mailbox_wake(aside->jobs);
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    const uint64_t until_ns = (uint64_t)until.tv_nsec + timeout_ns;
    until.tv_sec += (time_t)(until_ns / SL_CLOCK_NS_PER_S);
    until.tv_nsec = (long)(until_ns % SL_CLOCK_NS_PER_S);
    int failed;
    do {
        failed = sem_clockwait(&aside->ended, CLOCK_MONOTONIC, &until);
    } while (failed != 0 && errno == EINTR);
    if (failed != 0) {
        pthread_detach(aside->id);
        return false;
    }
    pthread_join(aside->id, NULL);
    return true;
}

/* ---- Jobs ------------------------------------------------------------------------------------ */

/* The thread may have jobs now, or none any more: the reactor has to know of one below it. */
static void rest_for(struct sl_offload *aside)
{
    const bool is_busy = aside->spare != NULL && aside->has_thread && aside->sent_count > 0;
    if (is_busy == aside->is_busy) {
        return;
    }
    aside->is_busy = is_busy;
    if (!is_busy) {
        sl_cpu_yield_remove(&aside->reactor->rest, &aside->resting);
        return;
    }
    clockid_t own;
    aside->resting.clocks[0] = sl_idle_thread_clock(aside->spare);
    aside->resting.clocks[1] =
        pthread_getcpuclockid(aside->id, &own) == 0 ? own : aside->resting.clocks[0];
    sl_cpu_yield_add(&aside->reactor->rest, &aside->resting);
}

/* Hands jobs out as long as there is room. */
static void hand_out(struct sl_offload *aside)
{
    while (aside->unsent != NULL && aside->sent_count < AT_ONCE) {
        struct sl_offload_job *job = aside->unsent;
        aside->unsent = job->next;
        aside->sent_count++;
        if (!aside->has_thread) {
            job->err = SL_ERR_NO_MEMORY;
            tell(aside->to_self, aside);
            continue;
        }
        int err = sl_mailbox_post(
            aside->to_jobs,
            (struct sl_mail){.run = thread_work, .ctx = aside, .a = (uintptr_t)job});
        sl_assert(err == 0); /* AT_ONCE */
    }
    rest_for(aside);
}

static struct sl_offload_job *take_first(struct sl_offload *aside)
{
    struct sl_offload_job *job = aside->first;
    aside->first = job->next;
    aside->last = aside->first == NULL ? NULL : aside->last;
    aside->unsent = aside->unsent == job ? job->next : aside->unsent;
    aside->count--;
    aside->sent_count -= aside->sent_count > 0;
    job->next = NULL;
    return job;
}

static void mail_done(void *ctx, uint64_t a, uint64_t b)
{
    (void)a;
    (void)b;
    struct sl_offload *aside = ctx;
    if (!aside->closing) {
        struct sl_offload_job *job = take_first(aside);
        aside->done_count++;
        hand_out(aside);
        job->done(job);
    }
    unref(aside);
}

/* ---- Stepped --------------------------------------------------------------------------------- */

static void arm(struct sl_offload *aside)
{
    const struct sl_reactor_options *options = &aside->reactor->options;
    uint64_t wait_ns = options->aside_ns == NULL ? 0 : options->aside_ns(options->aside_ctx);
    sl_timer_arm(&aside->reactor->timers, &aside->timer, aside->reactor->head.now_ns + wait_ns);
}

static void step(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_offload *aside =
        (struct sl_offload *)(void *)((uint8_t *)timer - offsetof(struct sl_offload, timer));
    if (!aside->has_worked) {
        aside->first->work(aside->first);
        aside->first->err = 0;
        aside->has_worked = true;
        sl_timer_arm(&aside->reactor->timers, timer, now_ns);
        return;
    }
    struct sl_offload_job *job = take_first(aside);
    aside->has_worked = false;
    if (aside->first != NULL) {
        arm(aside);
    }
    job->done(job);
}

/* ---- From outside ---------------------------------------------------------------------------- */

int sl_offload_create(struct sl_reactor *reactor, const char *name, struct sl_offload **out)
{
    sl_reactor_assert_owner(reactor);
    struct sl_offload *aside = calloc(1, sizeof *aside);
    if (aside == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    aside->reactor = reactor;
    aside->timer.run = step;
    aside->references = 1;
    sem_init(&aside->ended, 0, 0);
    memcpy(aside->name, name, strnlen(name, sizeof aside->name - 1));
    /* Opened now, so that a job for which there is no thread can be said to have failed. */
    int err = sl_mailbox_lane_open(reactor->mailbox, &aside->to_self);
    if (err != 0) {
        unref(aside);
        return err;
    }
    *out = aside;
    return 0;
}

void sl_offload_set_place(struct sl_offload *aside, enum sl_offload_place place)
{
    sl_reactor_assert_owner(aside->reactor);
    sl_assert(!aside->has_thread);
    aside->place = place;
}

void sl_offload_post(struct sl_offload *aside, struct sl_offload_job *job)
{
    sl_reactor_assert_owner(aside->reactor);
    sl_assert(job->work != NULL);
    sl_assert(job->done != NULL);
    job->next = NULL;
    job->err = SL_ERR_CANCELLED;
    if (aside->first == NULL) {
        aside->first = job;
    } else {
        aside->last->next = job;
    }
    aside->last = job;
    aside->count++;
    if (aside->closing) {
        return;
    }
    if (aside->reactor->options.stepped) {
        if (aside->first == job) {
            arm(aside);
        }
        return;
    }
    aside->unsent = aside->unsent == NULL ? job : aside->unsent;
    if (!aside->has_thread && aside->sent_count == 0) {
        thread_create(aside);
    }
    hand_out(aside);
}

uint32_t sl_offload_count(const struct sl_offload *aside)
{
    sl_reactor_assert_owner(aside->reactor);
    return aside->count;
}

/* All are done but the one that the thread is stuck in. */
static void finish_jobs(struct sl_offload *aside, bool ended)
{
    uint64_t done = aside->done_count;
    uint64_t finished = aside->has_thread ? atomic_load(&aside->finished) : UINT64_MAX;
    while (aside->first != NULL) {
        bool stuck = !ended && aside->sent_count > 0 && done == finished;
        done++;
        struct sl_offload_job *job = take_first(aside);
        if (!stuck) {
            job->done(job);
        }
    }
}

bool sl_offload_destroy(struct sl_offload **pointer, uint64_t timeout_ns)
{
    struct sl_offload *aside = *pointer;
    *pointer = NULL;
    if (aside == NULL) {
        return true;
    }
    sl_reactor_assert_owner(aside->reactor);
    sl_cpu_yield_remove(&aside->reactor->rest, &aside->resting);
    bool ended = !aside->has_thread || thread_end(aside, timeout_ns);
    aside->closing = true;
    sl_timer_disarm(&aside->reactor->timers, &aside->timer);
    finish_jobs(aside, ended);
    sl_mailbox_lane_close(&aside->to_jobs);
    sl_mailbox_lane_close(&aside->to_self);
    if (!aside->has_thread) {
        sl_mailbox_lane_close(&aside->to_reactor);
    }
    unref(aside);
    return ended;
}
