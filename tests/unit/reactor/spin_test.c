#include "reactor/spin.h"
#include "tests/support/unit.h"

#define SPIN_NS 50000

/* Idle from *now_ns for so long, looking every microsecond; returns how long it spun. */
static uint64_t idle_for(struct sl_spin *spin, uint64_t *now_ns, uint64_t idle_ns)
{
    uint64_t spun_ns = 0;
    uint64_t end_ns = *now_ns + idle_ns;
    while (*now_ns < end_ns && sl_spin_idle(spin, *now_ns)) {
        *now_ns += 1000;
        spun_ns += 1000;
    }
    *now_ns = end_ns;
    sl_spin_busy(spin, *now_ns);
    *now_ns += 300;
    return spun_ns;
}

SL_CASE(idle__spins_no_longer_than_the_limit)
{
    struct sl_spin spin;
    uint64_t now_ns = 12345;
    sl_spin_init(&spin, SPIN_NS);
    assert_int_equal(idle_for(&spin, &now_ns, 10000), 10000);
    assert_int_equal(idle_for(&spin, &now_ns, 1000000), SPIN_NS);
}

SL_CASE(idle__zero_never_spins)
{
    struct sl_spin spin;
    uint64_t now_ns = 12345;
    sl_spin_init(&spin, 0);
    assert_int_equal(idle_for(&spin, &now_ns, 10), 0);
}

SL_CASE(idle__gives_up_when_work_comes_late_and_comes_back)
{
    struct sl_spin spin;
    uint64_t now_ns = 12345;
    sl_spin_init(&spin, SPIN_NS);
    for (int i = 0; i < 8; i++) {
        idle_for(&spin, &now_ns, 20 * SPIN_NS);
    }
    assert_int_equal(idle_for(&spin, &now_ns, 20 * SPIN_NS), 0);
    /* Short idle times are noticed although they were slept through. */
    idle_for(&spin, &now_ns, SPIN_NS / 2);
    idle_for(&spin, &now_ns, SPIN_NS / 2);
    assert_int_equal(idle_for(&spin, &now_ns, SPIN_NS / 2), SPIN_NS / 2);
}

static void work_for(struct sl_spin *spin, uint64_t *now_ns, uint64_t work_ns)
{
    sl_spin_busy(spin, *now_ns);
    *now_ns += work_ns;
    sl_spin_busy(spin, *now_ns);
    *now_ns += 300;
}

SL_CASE(lengthen__after_long_work_spins_as_long)
{
    struct sl_spin spin;
    uint64_t now_ns = 12345;
    sl_spin_init(&spin, SPIN_NS);
    idle_for(&spin, &now_ns, 10000);
    work_for(&spin, &now_ns, 4 * SPIN_NS);
    assert_int_equal(idle_for(&spin, &now_ns, 3 * SPIN_NS), SPIN_NS);
    sl_spin_lengthen(&spin);
    work_for(&spin, &now_ns, 4 * SPIN_NS);
    assert_int_equal(idle_for(&spin, &now_ns, 3 * SPIN_NS), 3 * SPIN_NS);
    work_for(&spin, &now_ns, 1000 * SPIN_NS);
    assert_int_equal(idle_for(&spin, &now_ns, 1000 * SPIN_NS), 8 * SPIN_NS);
    /* It was short work that ended this one. */
    assert_int_equal(idle_for(&spin, &now_ns, 3 * SPIN_NS), SPIN_NS);
}

SL_CASE(idle__gives_up_when_others_take_the_core)
{
    struct sl_spin spin;
    uint64_t now_ns = 12345;
    sl_spin_init(&spin, SPIN_NS);
    assert_true(sl_spin_idle(&spin, now_ns));
    now_ns += SPIN_NS / 2;
    assert_false(sl_spin_idle(&spin, now_ns));
    assert_false(sl_spin_idle(&spin, now_ns + 100));
    sl_spin_busy(&spin, now_ns + 200);
    now_ns += 500;
    assert_int_equal(idle_for(&spin, &now_ns, SPIN_NS / 2), 0);
    assert_int_equal(idle_for(&spin, &now_ns, SPIN_NS / 2), SPIN_NS / 2);
}
