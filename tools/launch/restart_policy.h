/* What becomes of a job whose worker has ended badly: it is started again, the rest goes on without
 * it, or the job fails. Pure. */
#ifndef SL_TOOLS_LAUNCH_RESTART_POLICY_H
#define SL_TOOLS_LAUNCH_RESTART_POLICY_H

#include <stdbool.h>
#include <stdint.h>

struct sl_restart_policy {
    uint64_t restarts_max; /* of all workers together */
    uint64_t restarts;     /* used up */
    bool continues;        /* without a worker that is not started again */
};

enum sl_restart_policy_verdict {
    SL_RESTART_POLICY_FAIL,
    SL_RESTART_POLICY_RESTART,
    SL_RESTART_POLICY_CONTINUE
};

/* wait_status: as waitpid gives it, of an end other than exit status 0. A bad flag or variable
 * (exit status 2) fails the job in any case: it would be as bad the next time, and for every
 * worker. A restart is used up by the call. */
enum sl_restart_policy_verdict sl_restart_policy_judge(struct sl_restart_policy *policy,
                                                       int wait_status);

/* How long to wait before the restart-th (from 1) of one worker: 1 s, then twice as long each time,
 * 32 s at most. */
uint64_t sl_restart_policy_delay_ns(uint32_t restart);

#endif
