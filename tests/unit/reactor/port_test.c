#include <pthread.h>

#include "core/clock.h"
#include "reactor/port.h"
#include "tests/support/unit.h"

#define REACTORS 2

struct user_port {
    struct sl_port port; /* first */
    uint32_t uses;
};

static struct sl_reactor *reactors[REACTORS];
static struct sl_port_set *set;
static uint32_t uses_freed;

static void user_port_fini(struct sl_port *port)
{
    uses_freed += ((struct user_port *)port)->uses;
}

static void setup(void)
{
    for (uint32_t i = 0; i < REACTORS; i++) {
        const struct sl_reactor_options options = {
            .name = "r", .index = i, .core = -1, .stepped = true};
        assert_int_equal(sl_reactor_create(&options, &reactors[i]), 0);
    }
    uses_freed = 0;
    assert_int_equal(sl_port_set_create(reactors, REACTORS, NULL, sizeof(struct user_port), &set),
                     0);
}

static void teardown(void)
{
    if (set != NULL) {
        sl_port_set_destroy(&set, NULL);
    }
    for (uint32_t i = 0; i < REACTORS; i++) {
        sl_reactor_destroy(&reactors[i]);
    }
}

static void *find_port(void *ctx)
{
    struct sl_port *port = NULL;
    if (sl_port_here(set, &port) != 0) {
        return NULL;
    }
    ((struct user_port *)port)->uses++;
    return port;
}

static struct sl_port *port_of_another_thread(void)
{
    pthread_t thread;
    void *port;
    pthread_create(&thread, NULL, find_port, NULL);
    pthread_join(thread, &port);
    return port;
}

#define CASE(name) SL_CASE_WITH(name, setup(), teardown())

CASE(port_here__gives_each_thread_its_own)
{
    struct sl_port *mine = find_port(NULL);
    assert_non_null(mine);
    assert_ptr_equal(find_port(NULL), mine);
    struct sl_port *other = port_of_another_thread();
    assert_non_null(other);
    assert_ptr_not_equal(other, mine);
    /* That thread has ended: the next one takes its port over. */
    assert_ptr_equal(port_of_another_thread(), other);
    sl_port_set_destroy(&set, user_port_fini);
    assert_int_equal(uses_freed, 4);
}

static void count(void *ctx, uint64_t a, uint64_t b)
{
    *(uint64_t *)ctx += a;
}

CASE(port_post__reaches_the_reactor_and_back)
{
    struct sl_port *port = find_port(NULL);
    uint64_t there = 0, back = 0;
    for (uint32_t i = 0; i < REACTORS; i++) {
        sl_port_post(port, i, (struct sl_mail){.run = count, .ctx = &there, .a = 1 + i});
        sl_reactor_turn(reactors[i], sl_clock_now_ns(sl_clock_system()));
        assert_int_equal(sl_mailbox_post(port->lanes[i].from,
                                         (struct sl_mail){.run = count, .ctx = &back, .a = 1 + i}),
                         0);
    }
    assert_int_equal(there, 3);
    sl_port_drain(port);
    assert_int_equal(back, 3);
}
