/* Decides about a failed process: restart it, continue without it, or fail the job. Pure. */
#ifndef SL_PROGRAMS_LAUNCH_RESTART_POLICY_H
#define SL_PROGRAMS_LAUNCH_RESTART_POLICY_H

#include <stdbool.h>
#include <stdint.h>

struct sl_restart_policy {
    uint64_t restarts_max; /* of all processes of the role together */
    uint64_t restarts;     /* used so far */
    bool continues;        /* without a process that is not restarted */
};

enum sl_restart_policy_verdict {
    SL_RESTART_POLICY_FAIL,
    SL_RESTART_POLICY_RESTART,
    SL_RESTART_POLICY_CONTINUE
};

/* By which shells, env(1) and the watcher of ssh.c report that a command did not start. */
#define SL_RESTART_POLICY_NOT_EXECUTABLE 126
#define SL_RESTART_POLICY_NOT_FOUND      127

/* wait_status: of waitpid, for an end other than exit status 0. Exit status 2 (bad flag or
 * variable), 126 and 127 (the command did not start) always fail the job: a restart would fail
 * too, as would every other worker. Each RESTART uses up one restart. */
enum sl_restart_policy_verdict sl_restart_policy_judge(struct sl_restart_policy *policy,
                                                       int wait_status);

/* Returns the pause before the restart-th (from 1) restart of a process: 1 s, doubled each time up
 * to 32 s. */
uint64_t sl_restart_policy_delay_ns(uint32_t restart);

#endif
