#include <sched.h>

#include "reactor/view.h"
#include "tests/support/unit.h"

#define MS     SL_CLOCK_NS_PER_MS
#define WORDS  4096
#define SLICES 4

/* What the views show: all words of a view are equal, and greater than those of the view before. */
struct subject {
    uint64_t value, slices_filled;
};

struct shown {
    uint64_t words[WORDS];
};

static bool fill(void *ctx, void *into, uint32_t slice)
{
    struct subject *subject = ctx;
    struct shown *shown = into;
    subject->value += slice == 0;
    subject->slices_filled++;
    for (uint32_t i = 0; i < WORDS / SLICES; i++) {
        shown->words[slice * (WORDS / SLICES) + i] = subject->value;
    }
    return slice == SLICES - 1;
}

static struct sl_reactor *create(bool stepped)
{
    const struct sl_reactor_options options = {.name = "test", .core = -1, .stepped = stepped};
    struct sl_reactor *reactor;
    assert_int_equal(sl_reactor_create(&options, &reactor), 0);
    return reactor;
}

/* Returns the value of a view, all of which must agree. */
static uint64_t value_of(const struct shown *shown)
{
    for (uint32_t i = 1; i < WORDS; i++) {
        if (shown->words[i] != shown->words[0]) {
            fail_msg("word %u has %llu, word 0 has %llu", i, (unsigned long long)shown->words[i],
                     (unsigned long long)shown->words[0]);
        }
    }
    return shown->words[0];
}

SL_CASE(view__shows_what_was_filled_slice_by_slice)
{
    struct sl_reactor *reactor = create(true);
    struct subject subject = {0};
    struct sl_view *view;
    assert_int_equal(sl_view_create(reactor, sizeof(struct shown), fill, &subject, &view), 0);
    const uint64_t begin_ns = sl_reactor_now_ns(reactor);
    uint64_t now_ns = begin_ns, age_ns = 0;
    for (uint64_t number = 1; number <= 5; number++) {
        assert_int_equal(sl_reactor_next_ns(reactor), SL_CLOCK_NEVER);
        sl_view_request(view);
        for (uint32_t slice = 0; slice < SLICES; slice++) {
            const struct shown *shown = sl_view_read(view, now_ns, &age_ns);
            assert_int_equal(shown == NULL ? 0 : value_of(shown), number - 1);
            assert_false(sl_view_is_answered(view));
            assert_true(sl_reactor_next_ns(reactor) <= now_ns);
            sl_reactor_turn(reactor, now_ns);
            now_ns += MS;
        }
        assert_int_equal(value_of(sl_view_read(view, now_ns, &age_ns)), number);
        assert_int_equal(age_ns, SLICES * MS);
        assert_true(sl_view_is_answered(view));
    }
    sl_view_destroy(&view);
    sl_reactor_destroy(&reactor);
}

SL_CASE(view_request__has_no_effect_while_one_is_open)
{
    struct sl_reactor *reactor = create(true);
    struct subject subject = {0};
    struct sl_view *view;
    assert_int_equal(sl_view_create(reactor, sizeof(struct shown), fill, &subject, &view), 0);
    const uint64_t now_ns = sl_reactor_now_ns(reactor);
    sl_view_request(view);
    sl_view_request(view);
    sl_reactor_turn(reactor, now_ns + MS);
    sl_view_request(view);
    while (sl_reactor_turn(reactor, now_ns + MS) > 0) {
    }
    assert_int_equal(subject.slices_filled, SLICES);
    sl_view_destroy(&view);
    sl_reactor_destroy(&reactor);
}

SL_CASE(view_destroy__ends_a_view_that_is_being_filled)
{
    struct sl_reactor *reactor = create(true);
    struct subject subject = {0};
    struct sl_view *view;
    assert_int_equal(sl_view_create(reactor, sizeof(struct shown), fill, &subject, &view), 0);
    const uint64_t now_ns = sl_reactor_now_ns(reactor);
    sl_view_request(view);
    sl_reactor_turn(reactor, now_ns);
    sl_view_destroy(&view);
    assert_null(view);
    sl_reactor_turn(reactor, now_ns);
    assert_int_equal(subject.slices_filled, 1);
    sl_reactor_destroy(&reactor);
}

/* The reader reads all the time, also while the next view is filled. A race shows under TSan, and
 * a torn view to value_of. */
SL_CASE(view__is_never_torn_for_a_permanent_reader)
{
    struct sl_reactor *reactor = create(false);
    struct subject subject = {0};
    struct sl_view *view;
    assert_int_equal(sl_view_create(reactor, sizeof(struct shown), fill, &subject, &view), 0);
    assert_int_equal(sl_reactor_start(reactor, NULL, NULL), 0);
    uint64_t seen = 0, age_ns;
    while (seen < 1000) {
        const uint64_t now_ns = sl_clock_now_ns(sl_clock_system());
        const struct shown *shown = sl_view_read(view, now_ns, &age_ns);
        const uint64_t value = shown == NULL ? 0 : value_of(shown);
        assert_true(value >= seen);
        if (value == seen) {
            (void)sched_yield();
        }
        seen = value;
        sl_view_request(view);
        shown = sl_view_read(view, now_ns, &age_ns);
        assert_true(shown == NULL || value_of(shown) >= seen);
    }
    sl_reactor_stop(reactor);
    sl_reactor_join(reactor);
    sl_view_destroy(&view);
    sl_reactor_destroy(&reactor);
}
