#include <signal.h>
#include <sys/wait.h>

#include "core/clock.h"
#include "programs/launch/restart_policy.h"
#include "tests/support/unit.h"

static int exited(int status)
{
    return W_EXITCODE(status, 0);
}

static int killed(int number)
{
    return W_EXITCODE(0, number);
}

SL_CASE(policy_judge__continues_without_restarts_left)
{
    struct sl_restart_policy policy = {.restarts_max = 1, .continues = true};
    assert_int_equal(sl_restart_policy_judge(&policy, killed(SIGKILL)), SL_RESTART_POLICY_RESTART);
    assert_int_equal(sl_restart_policy_judge(&policy, killed(SIGKILL)), SL_RESTART_POLICY_CONTINUE);
    assert_int_equal(sl_restart_policy_judge(&policy, exited(1)), SL_RESTART_POLICY_CONTINUE);
}

SL_CASE(policy_judge__a_bad_flag_is_not_tried_again)
{
    struct sl_restart_policy policy = {.restarts_max = 5, .continues = true};
    assert_int_equal(sl_restart_policy_judge(&policy, exited(2)), SL_RESTART_POLICY_FAIL);
    assert_true(policy.restarts == 0);
    /* Signal 2 is another matter. */
    assert_int_equal(sl_restart_policy_judge(&policy, killed(2)), SL_RESTART_POLICY_RESTART);
}

SL_CASE(policy_judge__a_command_that_did_not_start_is_not_tried_again)
{
    struct sl_restart_policy policy = {.restarts_max = 5, .continues = true};
    assert_int_equal(sl_restart_policy_judge(&policy, exited(126)), SL_RESTART_POLICY_FAIL);
    assert_int_equal(sl_restart_policy_judge(&policy, exited(127)), SL_RESTART_POLICY_FAIL);
    assert_int_equal(sl_restart_policy_judge(&policy, exited(125)), SL_RESTART_POLICY_RESTART);
    assert_int_equal(sl_restart_policy_judge(&policy, exited(128)), SL_RESTART_POLICY_RESTART);
}

SL_CASE(policy_delay_ns__doubles_to_a_limit)
{
    const uint64_t seconds[] = {1, 2, 4, 8, 16, 32, 32};
    for (uint32_t i = 0; i < sizeof seconds / sizeof seconds[0]; i++) {
        assert_true(sl_restart_policy_delay_ns(i + 1) == seconds[i] * SL_CLOCK_NS_PER_S);
    }
    assert_true(sl_restart_policy_delay_ns(UINT32_MAX) == 32 * SL_CLOCK_NS_PER_S);
}
