#include <stdbool.h>
#include <stdio.h>

#include "core/clock.h"
#include "core/limits.h"
#include "reactor/reactor.h"
#include "tests/support/unit.h"

/* A reactor that the test drives turn by turn, from a fixed seed. */
#define MS SL_CLOCK_NS_PER_MS

static struct sl_reactor *create(uint32_t index)
{
    struct sl_reactor_options options = {.index = index, .core = -1, .stepped = true, .seed = 7};
    snprintf(options.name, sizeof options.name, "test.%u", index);
    struct sl_reactor *reactor;
    assert_int_equal(sl_reactor_create(&options, &reactor), 0);
    return reactor;
}

#define TRACE_BYTES 4096

/* What happened, as text, in the order in which it did. */
struct trace {
    char text[TRACE_BYTES];
    size_t bytes;
};

static void trace_add(struct trace *trace, const char *what, uint64_t a, uint64_t b)
{
    int wrote = snprintf(trace->text + trace->bytes, TRACE_BYTES - trace->bytes, "%s(%llu,%llu) ",
                         what, (unsigned long long)a, (unsigned long long)b);
    assert_true(wrote > 0 && (size_t)wrote < TRACE_BYTES - trace->bytes);
    trace->bytes += (size_t)wrote;
}

static void set_flag(void *ctx, uint64_t a, uint64_t b)
{
    *(bool *)ctx = true;
}

SL_CASE(next_ns__mail_is_due_at_once)
{
    struct sl_reactor *reactor = create(0);
    uint64_t now_ns = sl_reactor_now_ns(reactor) + MS;
    assert_int_equal(sl_reactor_connect(&reactor, 1), 0);
    assert_int_equal(sl_reactor_turn(reactor, now_ns), 0);
    assert_int_equal(sl_reactor_next_ns(reactor), SL_CLOCK_NEVER);
    bool ran = false;
    sl_reactor_post(reactor, 0, (struct sl_mail){.run = set_flag, .ctx = &ran});
    assert_int_equal(sl_reactor_next_ns(reactor), now_ns);
    assert_int_equal(sl_reactor_turn(reactor, now_ns), 1);
    assert_true(ran);
    sl_reactor_destroy(&reactor);
}

static void count_mail(void *ctx, uint64_t a, uint64_t b)
{
    uint64_t *next = ctx;
    assert_int_equal(*next, a);
    ++*next;
}

SL_CASE(post__spilled_mail_keeps_its_order)
{
    struct sl_reactor *reactors[2] = {create(0), create(1)};
    uint64_t now_ns = sl_reactor_now_ns(reactors[1]) + MS;
    assert_int_equal(sl_reactor_connect(reactors, 2), 0);
    uint64_t next = 0;
    uint64_t posted = 0;
    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < 2 * SL_LIMIT_LANE_MAILS; i++) {
            sl_reactor_post(reactors[0], 1,
                            (struct sl_mail){.run = count_mail, .ctx = &next, .a = posted++});
        }
        sl_reactor_turn(reactors[1], now_ns);
        sl_reactor_turn(reactors[0], now_ns);
        assert_int_equal(sl_reactor_next_ns(reactors[0]), now_ns);
    }
    while (sl_reactor_turn(reactors[1], now_ns) > 0) {
        sl_reactor_turn(reactors[0], now_ns);
    }
    assert_int_equal(next, posted);
    /* What is left when a reactor ends goes with it. */
    for (uint32_t i = 0; i < 2 * SL_LIMIT_LANE_MAILS; i++) {
        sl_reactor_post(reactors[0], 1, (struct sl_mail){.run = count_mail, .ctx = &next});
    }
    sl_reactor_destroy(&reactors[1]);
    sl_reactor_destroy(&reactors[0]);
}

static void note_running(void *ctx, uint64_t a, uint64_t b)
{
    *(struct sl_reactor **)ctx = sl_reactor_running();
}

/* Steps another one, and is itself again afterwards. */
static void step_other(void *ctx, uint64_t a, uint64_t b)
{
    struct sl_reactor *other = ctx, *self = sl_reactor_running();
    (void)sl_reactor_turn(other, a);
    assert_non_null(self);
    assert_ptr_equal(sl_reactor_running(), self);
}

SL_CASE(running__is_the_one_whose_turn_it_is)
{
    struct sl_reactor *reactors[2] = {create(0), create(1)};
    struct sl_reactor *noted = NULL;
    uint64_t now_ns = sl_reactor_now_ns(reactors[1]) + MS;
    assert_int_equal(sl_reactor_connect(reactors, 2), 0);
    assert_null(sl_reactor_running());
    sl_reactor_post(reactors[0], 1, (struct sl_mail){.run = note_running, .ctx = &noted});
    sl_reactor_post(reactors[0], 0,
                    (struct sl_mail){.run = step_other, .ctx = reactors[1], .a = now_ns});
    (void)sl_reactor_turn(reactors[0], now_ns);
    assert_ptr_equal(noted, reactors[1]);
    assert_null(sl_reactor_running());
    sl_reactor_destroy(&reactors[1]);
    sl_reactor_destroy(&reactors[0]);
}

struct probe_source {
    struct sl_reactor_source source;
    struct sl_reactor *reactor;
    struct trace *trace;
    uint64_t id;
    struct probe_source *removes[2]; /* in its poll, once */
    struct probe_source *adds;       /* in its poll, once */
};

static uint32_t probe_poll(struct sl_reactor_source *source, uint32_t budget)
{
    struct probe_source *probe = (struct probe_source *)source;
    assert_true(budget > 0);
    trace_add(probe->trace, "poll", probe->id, 0);
    for (uint32_t i = 0; i < 2; i++) {
        if (probe->removes[i] != NULL) {
            sl_reactor_remove_source(probe->reactor, &probe->removes[i]->source);
            probe->removes[i] = NULL;
        }
    }
    if (probe->adds != NULL) {
        sl_reactor_add_source(probe->reactor, &probe->adds->source);
        probe->adds = NULL;
    }
    return 0;
}

static void probe_flush(struct sl_reactor_source *source)
{
    struct probe_source *probe = (struct probe_source *)source;
    trace_add(probe->trace, "flush", probe->id, 0);
}

static bool probe_arm(struct sl_reactor_source *source)
{
    return ((struct probe_source *)source)->id != 3;
}

static struct probe_source probe_source(struct sl_reactor *reactor, struct trace *trace,
                                        uint64_t id)
{
    return (struct probe_source){
        .source = {.name = "probe", .poll = probe_poll, .flush = probe_flush, .arm = probe_arm},
        .reactor = reactor,
        .trace = trace,
        .id = id,
    };
}

SL_CASE(remove_source__inside_polls)
{
    struct sl_reactor *reactor = create(0);
    uint64_t now_ns = sl_reactor_now_ns(reactor);
    struct trace trace = {0};
    struct probe_source probes[4];
    for (uint64_t i = 0; i < 4; i++) {
        probes[i] = probe_source(reactor, &trace, i);
    }
    sl_reactor_add_source(reactor, &probes[0].source);
    sl_reactor_add_source(reactor, &probes[1].source);
    sl_reactor_add_source(reactor, &probes[2].source);
    /* The second removes itself and the one after it, and adds another. */
    probes[1].removes[0] = &probes[1];
    probes[1].removes[1] = &probes[2];
    probes[1].adds = &probes[3];
    sl_reactor_turn(reactor, now_ns);
    trace.bytes = 0;
    sl_reactor_turn(reactor, now_ns);
    assert_string_equal(trace.text, "poll(0,0) poll(3,0) flush(0,0) flush(3,0) ");
    /* Source 3 never lets the reactor sleep. */
    assert_int_equal(sl_reactor_next_ns(reactor), now_ns);

    probes[0].removes[0] = &probes[0];
    trace.bytes = 0;
    sl_reactor_turn(reactor, now_ns);
    assert_string_equal(trace.text, "poll(0,0) poll(3,0) flush(3,0) ");
    sl_reactor_remove_source(reactor, &probes[3].source);
    trace.bytes = 0;
    trace.text[0] = '\0';
    sl_reactor_turn(reactor, now_ns);
    assert_string_equal(trace.text, "");
    sl_reactor_destroy(&reactor);
}
