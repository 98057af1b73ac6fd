#include "programs/launch/restart_policy.h"

#include <sys/wait.h>

#include "config/cli.h"
#include "core/assert.h"
#include "core/clock.h"

#define DELAY_DOUBLINGS 5

enum sl_restart_policy_verdict sl_restart_policy_judge(struct sl_restart_policy *policy,
                                                       int wait_status)
{
    const int status = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 0;
    if (status == SL_CLI_EXIT_USAGE || status == SL_RESTART_POLICY_NOT_EXECUTABLE ||
        status == SL_RESTART_POLICY_NOT_FOUND) {
        return SL_RESTART_POLICY_FAIL;
    }
    if (policy->restarts < policy->restarts_max) {
        policy->restarts++;
        return SL_RESTART_POLICY_RESTART;
    }
    return policy->continues ? SL_RESTART_POLICY_CONTINUE : SL_RESTART_POLICY_FAIL;
}

uint64_t sl_restart_policy_delay_ns(uint32_t restart)
{
    sl_assert(restart > 0);
    const uint32_t doublings = restart - 1 < DELAY_DOUBLINGS ? restart - 1 : DELAY_DOUBLINGS;
    return SL_CLOCK_NS_PER_S << doublings;
}
