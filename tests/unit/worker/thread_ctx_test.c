#include <pthread.h>

#include "tests/support/unit.h"
#include "worker/step_internal.h"
#include "worker/thread_ctx.h"

#define REACTORS 2

static struct sl_reactor *reactors[REACTORS];
static struct sl_thread_ctx_set *set;

static int setup(void **state)
{
    for (uint32_t i = 0; i < REACTORS; i++) {
        const struct sl_reactor_options options = {
            .name = "r", .index = i, .core = -1, .stepped = true};
        if (sl_reactor_create(&options, &reactors[i]) != 0) {
            return -1;
        }
    }
    return sl_thread_ctx_set_create(reactors, REACTORS, NULL, &set);
}

static int teardown(void **state)
{
    sl_thread_ctx_set_destroy(&set, sl_step_free);
    for (uint32_t i = 0; i < REACTORS; i++) {
        sl_reactor_destroy(&reactors[i]);
    }
    return 0;
}

static void *find_port(void *ctx)
{
    struct sl_thread_ctx *port = NULL;
    return sl_thread_ctx_here(set, &port) == 0 ? port : NULL;
}

static struct sl_thread_ctx *port_of_another_thread(void)
{
    pthread_t thread;
    void *port;
    pthread_create(&thread, NULL, find_port, NULL);
    pthread_join(thread, &port);
    return port;
}

SL_CASE_WITH(port_here__gives_each_thread_its_own, setup, teardown)
{
    struct sl_thread_ctx *mine = find_port(NULL);
    assert_non_null(mine);
    assert_ptr_equal(find_port(NULL), mine);
    struct sl_thread_ctx *other = port_of_another_thread();
    assert_non_null(other);
    assert_ptr_not_equal(other, mine);
    /* That thread has ended: the next one takes its port over. */
    assert_ptr_equal(port_of_another_thread(), other);
}

static void count(void *ctx, uint64_t a, uint64_t b)
{
    *(uint64_t *)ctx += a;
}

SL_CASE_WITH(port_post__reaches_the_reactor_and_back, setup, teardown)
{
    struct sl_thread_ctx *port = find_port(NULL);
    uint64_t there = 0, back = 0;
    for (uint32_t i = 0; i < REACTORS; i++) {
        sl_thread_ctx_post(port, i, (struct sl_mail){.run = count, .ctx = &there, .a = 1 + i});
        sl_reactor_turn(reactors[i], sl_clock_now_ns(sl_clock_system()));
        assert_int_equal(sl_mailbox_post(port->lanes[i].from,
                                         (struct sl_mail){.run = count, .ctx = &back, .a = 1 + i}),
                         0);
    }
    assert_int_equal(there, 3);
    sl_thread_ctx_drain(port);
    assert_int_equal(back, 3);
}
