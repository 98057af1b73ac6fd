/* The target is another process: it is stopped, killed and restarted. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/clock.h"
#include "net/transfer/async.h"
#include "pair.h"
#include "tests/support/free_port.h"
#include "tests/support/reactor_thread.h"

#define BYTES  (32U << 20)
#define SMALL  2048U /* requests: more than slices that all lanes have in flight */
#define SECRET "0123456789abcdef"

struct child {
    pid_t pid;
    char name[SL_TRANSFER_NAME_BYTES];
    uint64_t address;
};

static uint64_t now_ms(void)
{
    return sl_clock_now_ns(sl_clock_system()) / SL_CLOCK_NS_PER_MS;
}

/* Until it is killed. */
static void serve(const char *name, int out)
{
    const struct sl_transfer_options options = {
        .name = name, .endpoints = "tcp://127.0.0.1:0", .secret = SECRET, .secret_bytes = 16};
    struct child self = {.pid = getpid()};
    struct sl_transfer *transfer;
    struct sl_transfer_memory memory = {.bytes = BYTES, .access = PAIR_ALL};
    memory.base = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pair_fill(memory.base, BYTES, 7);
    if (sl_transfer_create(&options, &transfer) != 0 ||
        sl_transfer_register(transfer, &memory, 1) != 0) {
        _exit(1);
    }
    (void)strncpy(self.name, sl_transfer_name(transfer), sizeof self.name - 1);
    self.address = (uintptr_t)memory.base;
    if (write(out, &self, sizeof self) != sizeof self) {
        _exit(1);
    }
    for (;;) {
        (void)pause();
    }
}

static struct child start(const char *name)
{
    int ends[2];
    struct child child;
    assert_int_equal(pipe(ends), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        serve(name, ends[1]);
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], &child, sizeof child), sizeof child);
    close(ends[0]);
    return child;
}

static struct child start_at_free_port(void)
{
    char name[32];
    (void)snprintf(name, sizeof name, "127.0.0.1:%u", free_port());
    return start(name);
}

static void end(const struct child *child)
{
    (void)kill(child->pid, SIGKILL);
    (void)waitpid(child->pid, NULL, 0);
}

static struct child target;
static struct sl_transfer *transfer;
static struct sl_transfer_segment *segment;
static struct sl_transfer_batch *batch;
static uint8_t *local;

/* A stopped target is not given up, though this process stands still meanwhile. */
#define PATIENT_STALL_MS 20000

/* stall_ms: of the initiator; 0: the default. */
static void setup(uint32_t stall_ms)
{
    const struct sl_transfer_options options = {.name = "127.0.0.1:0",
                                                .endpoints = "tcp://127.0.0.1:0",
                                                .stall_ms = stall_ms,
                                                .secret = SECRET,
                                                .secret_bytes = 16};
    target = start_at_free_port();
    local = calloc(1, BYTES);
    const struct sl_transfer_memory memory = {.base = local, .bytes = BYTES};
    assert_int_equal(sl_transfer_create(&options, &transfer), 0);
    assert_int_equal(sl_transfer_register(transfer, &memory, 1), 0);
    assert_int_equal(sl_transfer_segment_open(transfer, target.name, PAIR_TIMEOUT_MS, &segment), 0);
    assert_int_equal(sl_transfer_batch_create(transfer, SMALL, &batch), 0);
}

static void teardown(void)
{
    sl_transfer_destroy(&transfer);
    end(&target);
    free(local);
}

#define CASE(name)         SL_CASE_WITH(name, setup(0), teardown())
#define PATIENT_CASE(name) SL_CASE_WITH(name, setup(PATIENT_STALL_MS), teardown())

static void submit(enum sl_transfer_op op, uint32_t bytes, uint32_t timeout_ms)
{
    const struct sl_transfer_request request = {
        .op = op, .local = local, .segment = segment, .remote = target.address, .bytes = bytes};
    assert_int_equal(sl_transfer_batch_submit(batch, &request, 1, timeout_ms, NULL), 0);
}

static int run(enum sl_transfer_op op, uint32_t bytes, uint32_t timeout_ms)
{
    submit(op, bytes, timeout_ms);
    return sl_transfer_batch_wait(batch);
}

/* All its threads. */
static void stop_target(void)
{
    int status;
    assert_int_equal(kill(target.pid, SIGSTOP), 0);
    assert_int_equal(waitpid(target.pid, &status, WUNTRACED), target.pid);
    assert_true(WIFSTOPPED(status));
}

static bool is_all(uint8_t byte)
{
    return local[0] == byte && memcmp(local, local + 1, BYTES - 1) == 0;
}

static enum sl_transfer_state state_of_batch(void)
{
    struct sl_transfer_status status;
    assert_int_equal(sl_transfer_batch_status(batch, 0, &status), 0);
    return status.state;
}

CASE(target__in_another_process_is_read_and_written)
{
    assert_int_equal(run(SL_TRANSFER_READ, BYTES, PAIR_TIMEOUT_MS), 0);
    pair_expect(local, BYTES, 7);
    pair_fill(local, BYTES, 8);
    assert_int_equal(run(SL_TRANSFER_WRITE, BYTES, PAIR_TIMEOUT_MS), 0);
    memset(local, 0, BYTES);
    assert_int_equal(run(SL_TRANSFER_READ, BYTES, PAIR_TIMEOUT_MS), 0);
    pair_expect(local, BYTES, 8);
}

/* How late the batch may be over is checked where time is simulated (starling-sim --transfer). */
static void time_out(enum sl_transfer_op op, uint32_t bytes)
{
    const uint64_t begin_ms = now_ms();
    assert_int_equal(run(op, bytes, 200), SL_ERR_DEADLINE);
    assert_true(now_ms() - begin_ms >= 200);
    assert_int_equal(state_of_batch(), SL_TRANSFER_TIMEOUT);
    assert_non_null(strstr(sl_transfer_batch_error(batch, 0), target.name));
}

PATIENT_CASE(batch__is_over_in_time_when_the_target_is_stopped)
{
    assert_int_equal(run(SL_TRANSFER_READ, 1000, PAIR_TIMEOUT_MS), 0);
    stop_target();
    time_out(SL_TRANSFER_READ, BYTES);
    time_out(SL_TRANSFER_WRITE, BYTES);
    /* What the target answers later must not land. */
    memset(local, 1, BYTES);
    (void)kill(target.pid, SIGCONT);
    (void)usleep(200000);
    assert_true(is_all(1));
    assert_int_equal(run(SL_TRANSFER_READ, BYTES, PAIR_TIMEOUT_MS), 0);
}

CASE(batch__resumes_reads_after_a_stall)
{
    assert_int_equal(run(SL_TRANSFER_READ, 1000, PAIR_TIMEOUT_MS), 0);
    stop_target();
    submit(SL_TRANSFER_READ, BYTES, PAIR_TIMEOUT_MS);
    (void)usleep(3000000); /* beyond stall_ms */
    assert_false(sl_transfer_batch_done(batch));
    (void)kill(target.pid, SIGCONT);
    assert_int_equal(sl_transfer_batch_wait(batch), 0);
    pair_expect(local, BYTES, 7);
}

/* Every slice of every lane is in flight when the lanes are lost. */
CASE(batch__resumes_many_requests_after_a_stall)
{
    static struct sl_transfer_request requests[SMALL];
    assert_int_equal(run(SL_TRANSFER_READ, BYTES, PAIR_TIMEOUT_MS), 0);
    memset(local, 0, BYTES);
    for (uint32_t i = 0; i < SMALL; i++) {
        requests[i] = (struct sl_transfer_request){.op = SL_TRANSFER_READ,
                                                   .local = local + (size_t)128 * i,
                                                   .segment = segment,
                                                   .remote = target.address + (uint64_t)64 * i,
                                                   .bytes = 64};
    }
    stop_target();
    assert_int_equal(sl_transfer_batch_submit(batch, requests, SMALL, PAIR_TIMEOUT_MS, NULL), 0);
    (void)usleep(3000000); /* beyond stall_ms */
    assert_false(sl_transfer_batch_done(batch));
    (void)kill(target.pid, SIGCONT);
    assert_int_equal(sl_transfer_batch_wait(batch), 0);
    assert_int_equal(run(SL_TRANSFER_READ, BYTES, PAIR_TIMEOUT_MS), 0);
    pair_expect(local, BYTES, 7);
}

CASE(batch__resumes_writes_after_a_stall)
{
    assert_int_equal(run(SL_TRANSFER_READ, 1, PAIR_TIMEOUT_MS), 0);
    stop_target();
    pair_fill(local, BYTES, 9);
    submit(SL_TRANSFER_WRITE, BYTES, PAIR_TIMEOUT_MS);
    (void)usleep(3000000); /* beyond stall_ms */
    (void)kill(target.pid, SIGCONT);
    assert_int_equal(sl_transfer_batch_wait(batch), 0);
    memset(local, 0, BYTES);
    assert_int_equal(run(SL_TRANSFER_READ, BYTES, PAIR_TIMEOUT_MS), 0);
    pair_expect(local, BYTES, 9);
}

/* A part of the WRITE has left this process; a busy machine may need longer for that. */
static void time_out_write(void)
{
    uint32_t timeout_ms = 25;
    do {
        timeout_ms *= 2;
        assert_true(timeout_ms <= PAIR_TIMEOUT_MS);
        assert_int_equal(run(SL_TRANSFER_WRITE, BYTES, timeout_ms), SL_ERR_DEADLINE);
    } while (strstr(sl_transfer_batch_error(batch, 0), "may still be applied") == NULL);
}

/* A WRITE that timed out is in the network while the target is stopped. */
PATIENT_CASE(batch__is_not_overtaken_by_writes_of_an_earlier_one)
{
    for (uint32_t round = 0; round < 5; round++) {
        assert_int_equal(run(SL_TRANSFER_READ, 1, PAIR_TIMEOUT_MS), 0);
        stop_target();
        memset(local, 1, BYTES);
        time_out_write();
        memset(local, 2, BYTES);
        submit(SL_TRANSFER_WRITE, BYTES, PAIR_TIMEOUT_MS);
        (void)kill(target.pid, SIGCONT);
        assert_int_equal(sl_transfer_batch_wait(batch), 0);
        (void)usleep(20000);
        memset(local, 3, BYTES);
        assert_int_equal(run(SL_TRANSFER_READ, BYTES, PAIR_TIMEOUT_MS), 0);
        assert_true(is_all(2));
    }
}

static void *continue_later(void *ctx)
{
    (void)usleep(300000);
    (void)kill(target.pid, SIGCONT);
    return NULL;
}

CASE(segment_close__waits_for_writes_that_have_timed_out)
{
    pthread_t thread;
    assert_int_equal(run(SL_TRANSFER_READ, 1, PAIR_TIMEOUT_MS), 0);
    stop_target();
    memset(local, 1, BYTES);
    time_out_write();
    assert_int_equal(pthread_create(&thread, NULL, continue_later, NULL), 0);
    sl_transfer_segment_close(&segment);
    assert_int_equal(sl_transfer_segment_open(transfer, target.name, PAIR_TIMEOUT_MS, &segment), 0);
    memset(local, 2, BYTES);
    assert_int_equal(run(SL_TRANSFER_WRITE, BYTES, PAIR_TIMEOUT_MS), 0);
    assert_int_equal(run(SL_TRANSFER_READ, BYTES, PAIR_TIMEOUT_MS), 0);
    assert_true(is_all(2));
    pthread_join(thread, NULL);
}

CASE(batch__fails_soon_when_the_target_is_killed)
{
    const uint64_t begin_ms = now_ms();
    submit(SL_TRANSFER_READ, BYTES, 60000);
    (void)kill(target.pid, SIGKILL);
    const int err = sl_transfer_batch_wait(batch);
    if (err != 0) { /* else it was faster */
        assert_int_equal(err, SL_ERR_CLOSED);
        assert_int_equal(state_of_batch(), SL_TRANSFER_FAILED);
    }
    assert_int_equal(run(SL_TRANSFER_WRITE, BYTES, 60000), SL_ERR_CLOSED);
    assert_in_range(now_ms() - begin_ms, 0, 20000);
    const uint64_t later_ms = now_ms();
    assert_int_equal(run(SL_TRANSFER_READ, BYTES, 60000), SL_ERR_CLOSED);
    assert_in_range(now_ms() - later_ms, 0, 10000);
}

CASE(segment__is_closed_when_its_process_was_restarted)
{
    assert_int_equal(run(SL_TRANSFER_READ, 1000, PAIR_TIMEOUT_MS), 0);
    end(&target);
    char name[SL_TRANSFER_NAME_BYTES];
    memcpy(name, target.name, sizeof name);
    const uint64_t old_address = target.address;
    target = start(name);
    const uint64_t new_address = target.address;
    target.address = old_address;
    assert_int_equal(run(SL_TRANSFER_READ, 1000, 60000), SL_ERR_CLOSED);
    target.address = new_address;
    sl_transfer_segment_close(&segment);
    assert_int_equal(sl_transfer_segment_open(transfer, name, PAIR_TIMEOUT_MS, &segment), 0);
    assert_int_equal(run(SL_TRANSFER_READ, BYTES, PAIR_TIMEOUT_MS), 0);
    pair_expect(local, BYTES, 7);
}

/* Another secret is refused at the deadline: the deadline is longer each time, until the target has
 * had time to answer. */
static void expect_refused(const struct sl_transfer_options *options)
{
    struct sl_transfer *stranger;
    struct sl_transfer_segment *other = NULL;
    uint32_t timeout_ms = 250;
    int err;
    assert_int_equal(sl_transfer_create(options, &stranger), 0);
    do {
        assert_true(timeout_ms <= PAIR_TIMEOUT_MS);
        err = sl_transfer_segment_open(stranger, target.name, timeout_ms, &other);
        timeout_ms *= 4;
    } while (err == SL_ERR_DEADLINE);
    assert_int_equal(err, SL_ERR_REFUSED);
    assert_null(other);
    sl_transfer_destroy(&stranger);
}

CASE(segment_open__fails_with_a_reason)
{
    struct sl_transfer_segment *other = NULL;
    assert_int_equal(sl_transfer_segment_open(transfer, "127.0.0.1:1", 300, &other),
                     SL_ERR_DEADLINE);
    assert_non_null(strstr(sl_transfer_last_error(), "127.0.0.1:1"));
    assert_int_equal(sl_transfer_segment_open(transfer, "127.0.0.1", 300, &other), SL_ERR_INVALID);
    assert_int_equal(sl_transfer_segment_open(transfer, target.name, 0, &other), SL_ERR_INVALID);

    const struct sl_transfer_options wrong = {
        .name = "127.0.0.1:0", .secret = "another secret..", .secret_bytes = 16};
    const struct sl_transfer_options none = {.name = "127.0.0.1:0"};
    expect_refused(&wrong);
    expect_refused(&none);
    assert_non_null(strstr(sl_transfer_last_error(), "secret"));
    assert_null(other);
}

struct user {
    struct reactor_thread thread;
    struct sl_transfer_async *async;
    struct sl_transfer_segment *segment;
    struct sl_completion completion;
    int err;
    char reason[SL_TRANSFER_REASON_BYTES];
};

static void user_done(void *ctx, int err, const char *reason)
{
    struct user *user = ctx;
    user->err = err;
    (void)strncpy(user->reason, reason, sizeof user->reason - 1);
    sl_completion_end(&user->completion);
}

static void user_ended(void *ctx)
{
    user_done(ctx, 0, "");
}

static void user_arrived(void *ctx, const struct sl_transfer_noticed *noticed,
                         struct sl_transfer_asked *asked)
{
}

static void user_create(void *ctx)
{
    struct user *user = ctx;
    assert_int_equal(sl_transfer_async_create(transfer, "serve", user_arrived, user, &user->async),
                     0);
    sl_transfer_async_end_with_process(user->async);
}

static void user_open(void *ctx)
{
    struct user *user = ctx;
    assert_int_equal(sl_transfer_async_open(user->async, target.name, PAIR_TIMEOUT_MS,
                                            &user->segment, user_done, user),
                     0);
}

static void user_watch(void *ctx)
{
    struct user *user = ctx;
    sl_transfer_async_watch(user->async, user->segment, false, user_done, user);
}

static void user_close(void *ctx)
{
    struct user *user = ctx;
    sl_transfer_async_close(user->async, &user->segment, user_done, user);
}

static void user_destroy(void *ctx)
{
    struct user *user = ctx;
    sl_transfer_async_destroy(&user->async, user_ended, user);
}

static void user_run(struct user *user, void (*run_there)(void *ctx))
{
    sl_completion_begin(&user->completion);
    reactor_thread_run(&user->thread, run_there, user);
}

/* By default a peer whose process has been killed counts as unreachable for 5 s. */
CASE(async_end_with_process__closes_segments_of_killed_processes)
{
    static struct user user;
    memset(&user, 0, sizeof user);
    reactor_thread_use(&user.thread, sl_transfer_async_reactor(transfer));
    reactor_thread_run(&user.thread, user_create, &user);
    user_run(&user, user_open);
    sl_completion_wait(&user.completion);
    assert_int_equal(user.err, 0);
    assert_int_not_equal(sl_transfer_async_incarnation(user.segment),
                         sl_transfer_async_own_incarnation(transfer));
    user_run(&user, user_watch);
    end(&target);
    sl_completion_wait(&user.completion);
    assert_int_equal(user.err, SL_ERR_CLOSED);
    assert_non_null(strstr(user.reason, "refused"));
    assert_null(strstr(user.reason, "unreachable"));
    user_run(&user, user_close);
    sl_completion_wait(&user.completion);
    user_run(&user, user_destroy);
    sl_completion_wait(&user.completion);
    reactor_thread_fini(&user.thread);
    target = start_at_free_port(); /* for the end */
}
