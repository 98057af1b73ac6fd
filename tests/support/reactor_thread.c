#include "tests/support/reactor_thread.h"

#include <stdio.h>

#include "tests/support/unit.h"

struct run {
    void (*run)(void *ctx);
    void *ctx;
    struct sl_completion completion;
};

void reactor_thread_init(struct reactor_thread *thread, const char *name,
                         const struct sl_clock *clock)
{
    struct sl_reactor_options options = {.core = -1, .clock = clock};
    (void)snprintf(options.name, sizeof options.name, "%s", name);
    assert_int_equal(sl_reactor_create(&options, &thread->reactor), 0);
    assert_int_equal(sl_mailbox_lane_open(sl_reactor_mailbox(thread->reactor), &thread->lane), 0);
}

void reactor_thread_use(struct reactor_thread *thread, struct sl_reactor *reactor)
{
    *thread = (struct reactor_thread){.reactor = reactor, .is_used = true};
    assert_int_equal(sl_mailbox_lane_open(sl_reactor_mailbox(reactor), &thread->lane), 0);
}

void reactor_thread_start(struct reactor_thread *thread)
{
    assert_int_equal(sl_reactor_start(thread->reactor, NULL, NULL), 0);
}

void reactor_thread_fini(struct reactor_thread *thread)
{
    if (!thread->is_used) {
        sl_reactor_stop(thread->reactor);
        sl_reactor_join(thread->reactor);
    }
    sl_mailbox_lane_close(&thread->lane);
    if (!thread->is_used) {
        sl_reactor_destroy(&thread->reactor);
    }
}

static void run_here(void *ctx, uint64_t a, uint64_t b)
{
    struct run *run = ctx;
    run->run(run->ctx);
    sl_completion_end(&run->completion);
}

void reactor_thread_run(struct reactor_thread *thread, void (*run)(void *ctx), void *ctx)
{
    struct run one = {.run = run, .ctx = ctx};
    sl_completion_begin(&one.completion);
    assert_int_equal(sl_mailbox_post(thread->lane, (struct sl_mail){.run = run_here, .ctx = &one}),
                     0);
    sl_completion_wait(&one.completion);
}
