#include "reactor/aside.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/limits.h"
#include "reactor/reactor_internal.h"

/* So many jobs are at the thread at a time: neither lane is ever full, and what is destroyed waits
 * for few. */
#define AT_ONCE 64
static_assert(AT_ONCE <= SL_LIMIT_LANE_MAILS, "a lane has room for what is at the thread");

/* What the thread uses. It outlives an aside whose thread did not end. */
struct thread {
    pthread_t id;
    sem_t ended;
    _Atomic bool stopping;
    _Atomic uint64_t finished;   /* jobs so far */
    struct sl_mailbox *mailbox;  /* its jobs come there */
    struct sl_mailbox_lane *out; /* into the reactor; the thread's */
    struct sl_aside *aside;      /* named by its mail; not looked at */
};

struct sl_aside {
    struct sl_reactor *reactor;
    char name[SL_ASIDE_NAME_BYTES];
    struct sl_aside_job *first, *last; /* in order; the first sent_count of them are sent */
    struct sl_aside_job *unsent;       /* NULL: none */
    uint32_t count, sent_count;
    uint64_t done_count; /* since the thread was made */
    struct thread *thread;
    struct sl_mailbox_lane *to_thread;
    struct sl_mailbox_lane *to_self; /* for what there is no thread for; else NULL */
    bool closing;
    uint32_t late_mails; /* on their way when it was destroyed: the last of them frees it */

    /* Stepped: */
    struct sl_timer timer;
    bool has_worked; /* the first job has run, and is said to be done in the next turn */
};

/* ---- The thread ------------------------------------------------------------------------------ */

static void mail_done(void *ctx, uint64_t a, uint64_t b);
static void mail_dropped(void *ctx);

static void tell(struct sl_mailbox_lane *lane, struct sl_aside *aside)
{
    int err = sl_mailbox_post(
        lane, (struct sl_mail){.run = mail_done, .ctx = aside, .drop = mail_dropped});
    sl_assert(err == 0); /* AT_ONCE */
}

static void thread_work(void *ctx, uint64_t a, uint64_t b)
{
    (void)b;
    struct thread *thread = ctx;
    if (atomic_load(&thread->stopping)) {
        return; /* who destroys the aside says what becomes of the job */
    }
    struct sl_aside_job *job = (struct sl_aside_job *)(uintptr_t)a;
    job->work(job);
    job->err = 0;
    atomic_fetch_add(&thread->finished, 1);
    tell(thread->out, thread->aside);
}

static void *thread_main(void *arg)
{
    struct thread *thread = arg;
    while (!atomic_load(&thread->stopping)) {
        if (sl_mailbox_drain(thread->mailbox, 1) == 0) {
            sl_mailbox_wait(thread->mailbox, SL_CLOCK_NEVER);
        }
    }
    sem_post(&thread->ended);
    return NULL;
}

static void thread_free(struct thread *thread)
{
    sl_mailbox_lane_close(&thread->out);
    sl_mailbox_destroy(&thread->mailbox);
    sem_destroy(&thread->ended);
    free(thread);
}

/* The new thread takes no signals: they are for the program's own. */
static int thread_run(struct thread *thread, const char *name)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&thread->id, NULL, thread_main, thread);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed != 0) {
        return SL_ERR_NO_MEMORY;
    }
    pthread_setname_np(thread->id, name);
    return 0;
}

static int thread_create(struct sl_aside *aside)
{
    struct thread *thread = calloc(1, sizeof *thread);
    if (thread == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    sem_init(&thread->ended, 0, 0);
    thread->aside = aside;
    int err = sl_mailbox_create(&thread->mailbox);
    if (err == 0) {
        err = sl_mailbox_lane_open(thread->mailbox, &aside->to_thread);
    }
    if (err == 0) {
        err = sl_mailbox_lane_open(aside->reactor->mailbox, &thread->out);
    }
    if (err == 0) {
        err = thread_run(thread, aside->name);
    }
    if (err != 0) {
        sl_mailbox_lane_close(&aside->to_thread);
        thread_free(thread);
        return err;
    }
    aside->thread = thread;
    aside->done_count = 0;
    return 0;
}

/* False: it did not end in time. */
static bool thread_end(struct thread *thread, uint64_t timeout_ns)
{
    atomic_store(&thread->stopping, true);
    sl_mailbox_wake(thread->mailbox);
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    const uint64_t until_ns = (uint64_t)until.tv_nsec + timeout_ns;
    until.tv_sec += (time_t)(until_ns / SL_CLOCK_NS_PER_S);
    until.tv_nsec = (long)(until_ns % SL_CLOCK_NS_PER_S);
    int failed;
    do {
        failed = sem_clockwait(&thread->ended, CLOCK_MONOTONIC, &until);
    } while (failed != 0 && errno == EINTR);
    if (failed != 0) {
        pthread_detach(thread->id);
        return false;
    }
    pthread_join(thread->id, NULL);
    return true;
}

/* ---- Jobs ------------------------------------------------------------------------------------ */

/* Hands jobs out as long as there is room. */
static void hand_out(struct sl_aside *aside)
{
    while (aside->unsent != NULL && aside->sent_count < AT_ONCE) {
        struct sl_aside_job *job = aside->unsent;
        aside->unsent = job->next;
        aside->sent_count++;
        if (aside->thread == NULL) {
            job->err = SL_ERR_NO_MEMORY;
            tell(aside->to_self, aside);
            continue;
        }
        int err = sl_mailbox_post(
            aside->to_thread,
            (struct sl_mail){.run = thread_work, .ctx = aside->thread, .a = (uintptr_t)job});
        sl_assert(err == 0); /* AT_ONCE */
    }
}

static struct sl_aside_job *take_first(struct sl_aside *aside)
{
    struct sl_aside_job *job = aside->first;
    aside->first = job->next;
    aside->last = aside->first == NULL ? NULL : aside->last;
    aside->unsent = aside->unsent == job ? job->next : aside->unsent;
    aside->count--;
    aside->sent_count -= aside->sent_count > 0;
    job->next = NULL;
    return job;
}

/* One of those that were on their way when the aside was destroyed. */
static void mail_dropped(void *ctx)
{
    struct sl_aside *aside = ctx;
    sl_assert(aside->closing);
    sl_assert(aside->late_mails > 0);
    if (--aside->late_mails == 0) {
        free(aside);
    }
}

static void mail_done(void *ctx, uint64_t a, uint64_t b)
{
    (void)a;
    (void)b;
    struct sl_aside *aside = ctx;
    if (aside->closing) {
        mail_dropped(aside);
        return;
    }
    struct sl_aside_job *job = take_first(aside);
    aside->done_count++;
    hand_out(aside);
    job->done(job);
}

/* ---- Stepped --------------------------------------------------------------------------------- */

static void arm(struct sl_aside *aside)
{
    const struct sl_reactor_options *options = &aside->reactor->options;
    uint64_t wait_ns = options->aside_ns == NULL ? 0 : options->aside_ns(options->aside_ctx);
    sl_timer_arm(&aside->reactor->timers, &aside->timer, aside->reactor->head.now_ns + wait_ns);
}

static void step(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_aside *aside =
        (struct sl_aside *)(void *)((uint8_t *)timer - offsetof(struct sl_aside, timer));
    if (!aside->has_worked) {
        aside->first->work(aside->first);
        aside->first->err = 0;
        aside->has_worked = true;
        sl_timer_arm(&aside->reactor->timers, timer, now_ns);
        return;
    }
    struct sl_aside_job *job = take_first(aside);
    aside->has_worked = false;
    if (aside->first != NULL) {
        arm(aside);
    }
    job->done(job);
}

/* ---- From outside ---------------------------------------------------------------------------- */

int sl_aside_create(struct sl_reactor *reactor, const char *name, struct sl_aside **out)
{
    sl_reactor_assert_owner(reactor);
    struct sl_aside *aside = calloc(1, sizeof *aside);
    if (aside == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    aside->reactor = reactor;
    aside->timer.run = step;
    memcpy(aside->name, name, strnlen(name, sizeof aside->name - 1));
    /* Opened now, so that a job for which there is no thread can be said to have failed. */
    int err = sl_mailbox_lane_open(reactor->mailbox, &aside->to_self);
    if (err != 0) {
        free(aside);
        return err;
    }
    *out = aside;
    return 0;
}

void sl_aside_post(struct sl_aside *aside, struct sl_aside_job *job)
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
    if (aside->thread == NULL && aside->sent_count == 0) {
        (void)thread_create(aside); /* hand_out() tells */
    }
    hand_out(aside);
}

uint32_t sl_aside_count(const struct sl_aside *aside)
{
    sl_reactor_assert_owner(aside->reactor);
    return aside->count;
}

/* All are done but the one that the thread is stuck in; returns how many mails are on their way. */
static uint32_t finish_jobs(struct sl_aside *aside, bool ended)
{
    uint64_t done = aside->done_count;
    uint64_t finished = aside->thread == NULL ? UINT64_MAX : atomic_load(&aside->thread->finished);
    uint32_t mails = 0;
    while (aside->first != NULL) {
        bool sent = aside->sent_count > 0;
        struct sl_aside_job *job = take_first(aside);
        bool stuck = sent && !ended && done == finished;
        bool told = sent && done < finished;
        done++;
        mails += told ? 1 : 0;
        if (!stuck) {
            job->done(job);
        }
    }
    return mails;
}

bool sl_aside_destroy(struct sl_aside **pointer, uint64_t timeout_ns)
{
    struct sl_aside *aside = *pointer;
    *pointer = NULL;
    if (aside == NULL) {
        return true;
    }
    sl_reactor_assert_owner(aside->reactor);
    bool ended = aside->thread == NULL || thread_end(aside->thread, timeout_ns);
    aside->closing = true;
    sl_timer_disarm(&aside->reactor->timers, &aside->timer);
    aside->late_mails = finish_jobs(aside, ended);
    sl_mailbox_lane_close(&aside->to_thread);
    sl_mailbox_lane_close(&aside->to_self);
    if (!ended) {
        aside->late_mails = UINT32_MAX; /* the thread's mail names it: it stays */
        return false;
    }
    if (aside->thread != NULL) {
        thread_free(aside->thread);
        aside->thread = NULL;
    }
    if (aside->late_mails == 0) {
        free(aside);
    }
    return true;
}
