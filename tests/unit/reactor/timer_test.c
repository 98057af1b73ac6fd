#include "core/clock.h"
#include "core/hash.h"
#include "reactor/timer.h"
#include "tests/support/unit.h"

#define MS SL_CLOCK_NS_PER_MS

struct probe {
    struct sl_timer timer;
    struct sl_timer_wheel *wheel;
    uint32_t ran;
    uint64_t ran_at_ns;
    uint64_t again_ns;      /* armed again this much later; 0: not */
    struct probe *disarmed; /* another that it disarms; NULL: none */
};

static void probe_run(struct sl_timer *timer, uint64_t now_ns)
{
    struct probe *probe = (struct probe *)timer;
    assert_false(sl_timer_armed(timer));
    probe->ran++;
    probe->ran_at_ns = now_ns;
    if (probe->again_ns != 0) {
        sl_timer_arm(probe->wheel, timer, now_ns + probe->again_ns);
    }
    if (probe->disarmed != NULL) {
        sl_timer_disarm(probe->wheel, &probe->disarmed->timer);
    }
}

static void probe_init(struct probe *probe, struct sl_timer_wheel *wheel)
{
    *probe = (struct probe){.timer.run = probe_run, .wheel = wheel};
}

SL_CASE(run__armed_again_inside_runs_in_a_later_call)
{
    static struct sl_timer_wheel wheel;
    sl_timer_wheel_init(&wheel, 0);
    struct probe probe;
    probe_init(&probe, &wheel);
    probe.again_ns = 1;
    sl_timer_arm(&wheel, &probe.timer, 0);
    assert_int_equal(sl_timer_run(&wheel, 10), 1);
    assert_true(sl_timer_armed(&probe.timer));
    assert_int_equal(sl_timer_run(&wheel, 10), 0);
    assert_int_equal(sl_timer_run(&wheel, 11), 1);
    assert_int_equal(probe.ran, 2);
}

SL_CASE(disarm__inside_another_that_is_due_too)
{
    static struct sl_timer_wheel wheel;
    sl_timer_wheel_init(&wheel, 0);
    struct probe first, second;
    probe_init(&first, &wheel);
    probe_init(&second, &wheel);
    first.disarmed = &second;
    sl_timer_arm(&wheel, &first.timer, 5 * MS);
    sl_timer_arm(&wheel, &second.timer, 5 * MS);
    assert_int_equal(sl_timer_run(&wheel, 9 * MS), 1);
    assert_int_equal(second.ran, 0);
    assert_int_equal(sl_timer_next_ns(&wheel), SL_CLOCK_NEVER);
}

SL_CASE(next_ns__stays_a_bound_among_many_later_timers)
{
    enum { COUNT = 3000 };
    static struct sl_timer_wheel wheel;
    static struct probe probes[COUNT];
    sl_timer_wheel_init(&wheel, 0);
    for (uint32_t i = 0; i < COUNT; i++) {
        probe_init(&probes[i], &wheel);
        sl_timer_arm(&wheel, &probes[i].timer, (5 * SL_TIMER_SLOTS + i % 7) * MS);
    }
    struct probe soon;
    probe_init(&soon, &wheel);
    sl_timer_arm(&wheel, &soon.timer, 200 * MS);
    uint32_t runs = 0;
    for (uint64_t now_ns = 0; soon.ran == 0; now_ns = sl_timer_next_ns(&wheel)) {
        assert_true(now_ns <= 200 * MS);
        sl_timer_run(&wheel, now_ns);
        assert_true(++runs < 10);
    }
    assert_int_equal(soon.ran_at_ns, 200 * MS);
}

#define MODEL_TIMERS 300
#define MODEL_STEPS  20000

struct model {
    struct sl_timer_wheel wheel;
    struct sl_timer timers[MODEL_TIMERS];
    bool armed[MODEL_TIMERS];
    bool due[MODEL_TIMERS]; /* in the run in progress */
    uint64_t due_ns[MODEL_TIMERS];
    uint64_t now_ns;
    uint64_t random;
    uint32_t ran;
};

static struct model model;

static uint64_t model_random(uint64_t below)
{
    return sl_hash_random(&model.random) % below;
}

/* From a nanosecond to some hours, all magnitudes as likely. */
static uint64_t model_span(void)
{
    return sl_hash_random(&model.random) >> (20 + model_random(44));
}

static void model_arm(uint32_t i)
{
    uint64_t span = model_span();
    uint64_t due_ns = model.now_ns + span;
    if (model_random(8) == 0 && span < model.now_ns) {
        due_ns = model.now_ns - span;
    }
    sl_timer_arm(&model.wheel, &model.timers[i], due_ns);
    model.armed[i] = true;
    model.due[i] = false;
    model.due_ns[i] = due_ns;
}

static void model_disarm(uint32_t i)
{
    sl_timer_disarm(&model.wheel, &model.timers[i]);
    model.armed[i] = false;
    model.due[i] = false;
}

static void model_change_one(void)
{
    uint32_t i = (uint32_t)model_random(MODEL_TIMERS);
    if (model_random(3) == 0) {
        model_disarm(i);
    } else {
        model_arm(i);
    }
}

static void model_run(struct sl_timer *timer, uint64_t now_ns)
{
    uint32_t i = (uint32_t)(timer - model.timers);
    assert_int_equal(now_ns, model.now_ns);
    assert_true(model.due[i]);
    model.armed[i] = false;
    model.due[i] = false;
    model.ran++;
    for (uint64_t changes = model_random(3); changes > 0; changes--) {
        model_change_one();
    }
}

static void model_check(void)
{
    uint64_t earliest = SL_CLOCK_NEVER;
    for (uint32_t i = 0; i < MODEL_TIMERS; i++) {
        assert_false(model.due[i]);
        assert_int_equal(model.armed[i], sl_timer_armed(&model.timers[i]));
        if (model.armed[i] && model.due_ns[i] < earliest) {
            earliest = model.due_ns[i];
        }
    }
    assert_true(sl_timer_next_ns(&model.wheel) <= earliest);
    assert_true(earliest == SL_CLOCK_NEVER || sl_timer_next_ns(&model.wheel) != SL_CLOCK_NEVER);
}

SL_CASE(run__agrees_with_a_list)
{
    model.random = 42;
    model.now_ns = 3 * SL_CLOCK_NS_PER_S;
    sl_timer_wheel_init(&model.wheel, model.now_ns);
    for (uint32_t i = 0; i < MODEL_TIMERS; i++) {
        model.timers[i].run = model_run;
    }
    uint32_t ran_total = 0;
    for (uint32_t step = 0; step < MODEL_STEPS; step++) {
        for (uint64_t changes = model_random(4); changes > 0; changes--) {
            model_change_one();
        }
        model.now_ns += model_random(4) == 0 ? model_span() : model_span() >> 18;
        for (uint32_t i = 0; i < MODEL_TIMERS; i++) {
            model.due[i] = model.armed[i] && model.due_ns[i] <= model.now_ns;
        }
        model.ran = 0;
        uint32_t ran = sl_timer_run(&model.wheel, model.now_ns);
        assert_int_equal(ran, model.ran);
        ran_total += model.ran;
        model_check();
    }
    assert_true(ran_total > MODEL_STEPS / 10);
}
