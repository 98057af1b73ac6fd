/* A process of the job: a task of the plan, its child across restarts, its log and its forwarded
 * output. The supervisor decides what its end means. Main thread. */
#ifndef SL_PROGRAMS_LAUNCH_PROCESS_H
#define SL_PROGRAMS_LAUNCH_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "programs/launch/child.h"
#include "programs/launch/log_forward.h"
#include "programs/launch/plan.h"

struct sl_launch_process {
    const struct sl_plan_task *task;
    struct sl_child child; /* pid 0: ended or never started */
    struct sl_log_forward out, err;
    int shown_log;       /* log that forwarded output is written to; -1: none */
    bool unjudged;       /* ended since the supervisor last checked */
    int wait_status;     /* after its end */
    uint32_t restarts;   /* so far */
    uint64_t restart_ns; /* time of the next restart; SL_CLOCK_NEVER: none */
};

#define SL_LAUNCH_PROCESS_NAME_BYTES 320

void sl_launch_process_init(struct sl_launch_process *process, const struct sl_plan_task *task);

/* Closes the log. The child must have ended. */
void sl_launch_process_fini(struct sl_launch_process *process);

/* Writes "worker/3 on node7"; returns text. */
const char *sl_launch_process_name(const struct sl_launch_process *process,
                                   char text[static SL_LAUNCH_PROCESS_NAME_BYTES]);

/* Writes the path of its log in log_dir. */
void sl_launch_process_log_path(const struct sl_launch_process *process, const char *log_dir,
                                char *path, size_t path_bytes);

/* Starts the child. Its output is forwarded, or written to a log in log_dir (NULL: no logs).
 * Logs the address of the job's page when server 0 is ready. waits_on: see struct sl_log_forward.
 * Logs the reason of an error. */
int sl_launch_process_start(struct sl_launch_process *process, const char *log_dir,
                            bool (*waits_on)(void *ctx), void *ctx);

/* Asks a running child to end, as the task specifies. */
void sl_launch_process_ask_to_end(struct sl_launch_process *process, int signal_number);

/* Returns true if the child has just ended. The processes that it left in its process group are
 * then killed, and the rest of the output was forwarded. */
bool sl_launch_process_reap(struct sl_launch_process *process);

bool sl_launch_process_ended_well(const struct sl_launch_process *process);

/* The signal that asks for the end ended it, here or, as ssh and srun report it, on its host. */
bool sl_launch_process_was_terminated(const struct sl_launch_process *process);

/* Writes "worker/3 on node7 failed: exit status 1"; what: "failed". */
void sl_launch_process_describe_end(const struct sl_launch_process *process, const char *what,
                                    char *text, size_t text_bytes);

#endif
