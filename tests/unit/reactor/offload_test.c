#include <limits.h>
#include <stdbool.h>

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/clock.h"
#include "reactor/offload.h"
#include "tests/support/unit.h"

#define MS   SL_CLOCK_NS_PER_MS
#define S    SL_CLOCK_NS_PER_S
#define JOBS 200 /* more than are at the thread at a time */

/* What the jobs did, and in which order. Each field is written by one thread, and read after the
 * hand-over. */
struct record {
    uint32_t worked[JOBS], done[JOBS];
    int errs[JOBS];
    uint32_t worked_count, done_count;
    pthread_t worker, reactor;
    char thread_name[16];
};

struct job {
    struct sl_offload_job job; /* first */
    struct record *record;
    uint32_t number;
    sem_t *entered;
    struct sl_offload *posts_to; /* another job, when it is done; NULL: none */
    struct job *other;
};

static void job_work(struct sl_offload_job *work)
{
    struct job *job = (struct job *)work;
    struct record *record = job->record;
    record->worker = pthread_self();
    pthread_getname_np(pthread_self(), record->thread_name, sizeof record->thread_name);
    if (job->entered != NULL) {
        sem_post(job->entered);
    }
    record->worked[record->worked_count++] = job->number;
}

static void job_done(struct sl_offload_job *work)
{
    struct job *job = (struct job *)work;
    struct record *record = job->record;
    record->reactor = pthread_self();
    record->errs[record->done_count] = work->err;
    record->done[record->done_count++] = job->number;
    if (job->posts_to != NULL) {
        sl_offload_post(job->posts_to, &job->other->job);
    }
}

static void job_init(struct job *job, struct record *record, uint32_t number)
{
    *job = (struct job){
        .job = {.work = job_work, .done = job_done}, .record = record, .number = number};
}

static void jobs_init(struct job *jobs, struct record *record, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        job_init(&jobs[i], record, i);
    }
}

static struct sl_reactor *attached(void)
{
    struct sl_reactor_options options = {.core = -1, .name = "test"};
    struct sl_reactor *reactor;
    assert_int_equal(sl_reactor_create(&options, &reactor), 0);
    assert_int_equal(sl_reactor_attach(reactor), 0);
    return reactor;
}

static void detach(struct sl_reactor *reactor)
{
    sl_reactor_detach(reactor);
    sl_reactor_destroy(&reactor);
}

static bool all_done(void *ctx)
{
    return ((const struct record *)ctx)->done_count == JOBS;
}

static bool one_done(void *ctx)
{
    return ((const struct record *)ctx)->done_count == 1;
}

SL_CASE(post__runs_in_order_on_a_thread_of_its_own)
{
    struct sl_reactor *reactor = attached();
    struct sl_offload *offload;
    assert_int_equal(sl_offload_create(reactor, "test-disk-with-a-long-name", &offload), 0);
    static struct job jobs[JOBS];
    struct record record = {0};
    jobs_init(jobs, &record, JOBS);
    for (uint32_t i = 0; i < JOBS; i++) {
        sl_offload_post(offload, &jobs[i].job);
    }
    assert_int_equal(record.done_count, 0); /* never in the post */
    sl_reactor_drive_until(reactor, all_done, &record);
    for (uint32_t i = 0; i < JOBS; i++) {
        assert_int_equal(record.worked[i], i);
        assert_int_equal(record.done[i], i);
        assert_int_equal(record.errs[i], 0);
    }
    assert_true(pthread_equal(record.reactor, pthread_self()));
    assert_false(pthread_equal(record.worker, pthread_self()));
    assert_string_equal(record.thread_name, "test-disk-with-");
    assert_true(sl_offload_destroy(&offload, 60 * S));
    assert_null(offload);
    detach(reactor);
}

/* Of the thread that a job runs on. */
struct settled {
    struct sl_offload_job job; /* first */
    cpu_set_t cores;
    int nice, policy;
    bool is_done;
};

static void settled_work(struct sl_offload_job *job)
{
    struct settled *settled = (struct settled *)job;
    assert_int_equal(sched_getaffinity(0, sizeof settled->cores, &settled->cores), 0);
    settled->policy = sched_getscheduler(0);
    settled->nice = getpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid));
}

static void settled_done(struct sl_offload_job *job)
{
    ((struct settled *)job)->is_done = true;
}

static bool is_settled(void *ctx)
{
    return ((const struct settled *)ctx)->is_done;
}

static struct settled settle(struct sl_reactor *reactor, enum sl_offload_priority priority,
                             bool allocates)
{
    struct sl_offload *offload;
    struct settled settled = {
        .job = {.work = settled_work, .done = settled_done, .allocates = allocates}};
    assert_int_equal(sl_offload_create(reactor, "test", &offload), 0);
    sl_offload_set_priority(offload, priority);
    sl_offload_post(offload, &settled.job);
    sl_reactor_drive_until(reactor, is_settled, &settled);
    assert_true(sl_offload_destroy(&offload, 60 * S));
    return settled;
}

static void *pinned_thread(void *arg)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    for (size_t core = 0; CPU_COUNT(&one) == 0; core++) {
        if (CPU_ISSET(core, (const cpu_set_t *)arg)) {
            CPU_SET(core, &one);
        }
    }
    assert_int_equal(pthread_setaffinity_np(pthread_self(), sizeof one, &one), 0);
    struct sl_reactor *reactor = attached();
    const int nice = getpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid));
    struct settled settled = settle(reactor, SL_OFFLOAD_PRIORITY_LOW, false);
    assert_true(CPU_EQUAL(&settled.cores, (const cpu_set_t *)arg));
    assert_true(settled.nice > nice);
    assert_int_equal(settled.policy, SCHED_OTHER);
    settled = settle(reactor, SL_OFFLOAD_PRIORITY_NORMAL, false);
    assert_true(CPU_EQUAL(&settled.cores, (const cpu_set_t *)arg));
    assert_int_equal(settled.nice, nice);
    assert_int_equal(settled.policy, SCHED_OTHER);
    settled = settle(reactor, SL_OFFLOAD_PRIORITY_IDLE, false);
    assert_true(CPU_EQUAL(&settled.cores, (const cpu_set_t *)arg));
    assert_int_equal(settled.policy, SCHED_IDLE);
    /* What may take a lock of the process keeps a part of the cores. */
    settled = settle(reactor, SL_OFFLOAD_PRIORITY_IDLE, true);
    assert_true(settled.nice > nice);
    assert_int_equal(settled.policy, SCHED_OTHER);
    detach(reactor);
    return NULL;
}

/* Its thread would have the reactor's core otherwise, and as much of it as the reactor. */
SL_CASE(post__of_a_pinned_reactor_leaves_it_the_core)
{
    cpu_set_t all;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    if (getpriority(PRIO_PROCESS, 0) >= 10) {
        skip(); /* there is hardly anything behind that */
    }
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, pinned_thread, &all), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

/* A job that has its thread wait, until it is let go. */
struct held {
    struct sl_offload_job job; /* first */
    sem_t gate;
    bool is_done;
};

static void held_work(struct sl_offload_job *job)
{
    while (sem_wait(&((struct held *)job)->gate) != 0) {
    }
}

static void held_done(struct sl_offload_job *job)
{
    ((struct held *)job)->is_done = true;
}

static uint32_t always_busy(struct sl_reactor_source *source, uint32_t budget)
{
    return 1;
}

/* Whether the reactor's thread has slept often enough, or the job is done, or it is too late. */
struct rests {
    const struct held *held;
    long before, enough;
    uint64_t until_ns;
};

static long times_slept(void)
{
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_THREAD, &usage), 0);
    return usage.ru_nvcsw;
}

static bool has_rested(void *ctx)
{
    const struct rests *rests = ctx;
    return rests->held->is_done || times_slept() - rests->before >= rests->enough ||
           sl_clock_now_ns(sl_clock_system()) > rests->until_ns;
}

/* A thread with what is left would have nothing beside it. */
SL_CASE(post__a_busy_reactor_rests_for_one_below)
{
    struct sl_reactor *reactor = attached();
    struct sl_reactor_source busy = {.name = "busy", .poll = always_busy};
    sl_reactor_add_source(reactor, &busy);
    struct sl_offload *offload;
    assert_int_equal(sl_offload_create(reactor, "test", &offload), 0);
    sl_offload_set_priority(offload, SL_OFFLOAD_PRIORITY_IDLE);
    struct held held = {.job = {.work = held_work, .done = held_done}};
    sem_init(&held.gate, 0, 0);
    sl_offload_post(offload, &held.job);
    struct rests rests = {.held = &held,
                          .before = times_slept(),
                          .enough = 20,
                          .until_ns = sl_clock_now_ns(sl_clock_system()) + 30 * S};
    sl_reactor_drive_until(reactor, has_rested, &rests);
    assert_false(held.is_done);
    assert_true(times_slept() - rests.before >= rests.enough);
    sem_post(&held.gate);
    rests.enough = LONG_MAX;
    sl_reactor_drive_until(reactor, has_rested, &rests);
    assert_true(held.is_done);
    assert_true(sl_offload_destroy(&offload, 60 * S));
    sl_reactor_remove_source(reactor, &busy);
    sem_destroy(&held.gate);
    detach(reactor);
}

SL_CASE(destroy__without_a_job_makes_no_thread)
{
    struct sl_reactor *reactor = attached();
    struct sl_offload *offload;
    assert_int_equal(sl_offload_create(reactor, "test", &offload), 0);
    assert_true(sl_offload_destroy(&offload, 0));
    assert_true(sl_offload_destroy(&offload, 0)); /* NULL is fine */
    detach(reactor);
}

/* One in progress, which ends, and others behind it: those that have not begun never run. */
SL_CASE(destroy__cancels_what_has_not_begun)
{
    struct sl_reactor *reactor = attached();
    struct sl_offload *offload;
    assert_int_equal(sl_offload_create(reactor, "test", &offload), 0);
    static struct job jobs[JOBS];
    struct record record = {0};
    sem_t entered;
    sem_init(&entered, 0, 0);
    jobs_init(jobs, &record, JOBS);
    jobs[JOBS - 2].posts_to = offload; /* also what is posted from there is cancelled */
    struct job last;
    job_init(&last, &record, 7777);
    jobs[JOBS - 2].other = &last;
    jobs[0].entered = &entered;
    for (uint32_t i = 0; i < JOBS - 1; i++) {
        sl_offload_post(offload, &jobs[i].job);
    }
    sem_wait(&entered);
    assert_true(sl_offload_destroy(&offload, 10 * S));
    assert_int_equal(record.done_count, JOBS);
    uint32_t ran = 0;
    for (uint32_t i = 0; i < JOBS - 1; i++) {
        assert_int_equal(record.done[i], i);
        assert_true(record.errs[i] == 0 || record.errs[i] == SL_ERR_CANCELLED);
        ran += record.errs[i] == 0;
        assert_true(i == 0 || record.errs[i - 1] == 0 || record.errs[i] != 0);
    }
    assert_int_equal(record.done[JOBS - 1], 7777);
    assert_int_equal(record.errs[JOBS - 1], SL_ERR_CANCELLED);
    assert_int_equal(ran, record.worked_count);
    assert_true(ran >= 1);
    /* The mails that were on their way find nobody: a turn takes them in. */
    sl_reactor_drive_once(reactor);
    assert_int_equal(record.done_count, JOBS);
    sem_destroy(&entered);
    detach(reactor);
}

/* A disk that hangs does not block the destruction of the offload thread; its job is never done. */
static struct job hanging, behind, before;
static struct record hanging_record;
static sem_t hanging_gate, hanging_entered, hanging_left;

static void hang_work(struct sl_offload_job *work)
{
    sem_post(&hanging_entered);
    sem_wait(&hanging_gate);
    sem_post(&hanging_left);
}

SL_CASE(destroy__leaves_a_job_that_does_not_end)
{
    struct sl_reactor *reactor = attached();
    struct sl_offload *offload;
    assert_int_equal(sl_offload_create(reactor, "test", &offload), 0);
    sem_init(&hanging_gate, 0, 0);
    sem_init(&hanging_entered, 0, 0);
    sem_init(&hanging_left, 0, 0);
    job_init(&before, &hanging_record, 0);
    job_init(&hanging, &hanging_record, 1);
    job_init(&behind, &hanging_record, 2);
    hanging.job.work = hang_work;
    sl_offload_post(offload, &before.job);
    sl_reactor_drive_until(reactor, one_done, &hanging_record);
    sl_offload_post(offload, &hanging.job);
    sl_offload_post(offload, &behind.job);
    sem_wait(&hanging_entered);
    assert_false(sl_offload_destroy(&offload, 5 * MS));
    assert_null(offload);
    assert_int_equal(hanging_record.done_count, 2);
    assert_int_equal(hanging_record.done[1], 2);
    assert_int_equal(hanging_record.errs[1], SL_ERR_CANCELLED);
    detach(reactor);
    /* It ends after all, long after everybody has gone. */
    sem_post(&hanging_gate);
    sem_wait(&hanging_left);
    assert_int_equal(hanging_record.done_count, 2);
}

static uint64_t zero_clock(void *ctx)
{
    return 0;
}

static const struct sl_clock CLOCK_ZERO = {.now_ns = zero_clock};

static struct sl_reactor *stepped(void)
{
    struct sl_reactor_options options = {
        .core = -1, .name = "test", .stepped = true, .seed = 7, .clock = &CLOCK_ZERO};
    struct sl_reactor *reactor;
    assert_int_equal(sl_reactor_create(&options, &reactor), 0);
    return reactor;
}

SL_CASE(stepped__works_in_one_turn_and_is_done_in_the_next)
{
    struct sl_reactor *reactor = stepped();
    struct sl_offload *offload;
    assert_int_equal(sl_offload_create(reactor, "test", &offload), 0);
    struct job jobs[2];
    struct record record = {0};
    jobs_init(jobs, &record, 2);
    sl_offload_post(offload, &jobs[0].job);
    sl_offload_post(offload, &jobs[1].job);
    assert_int_equal(record.worked_count, 0);
    sl_reactor_turn(reactor, 0);
    assert_int_equal(record.worked_count, 1);
    assert_int_equal(record.done_count, 0);
    sl_reactor_turn(reactor, 0);
    assert_int_equal(record.worked_count, 1);
    assert_int_equal(record.done_count, 1);
    sl_reactor_turn(reactor, 0);
    sl_reactor_turn(reactor, 0);
    assert_int_equal(record.done_count, 2);
    assert_int_equal(record.done[1], 1);
    assert_int_equal(sl_reactor_next_ns(reactor), SL_CLOCK_NEVER);
    assert_true(pthread_equal(record.worker, pthread_self()));
    assert_true(sl_offload_destroy(&offload, 0));
    sl_reactor_destroy(&reactor);
}
