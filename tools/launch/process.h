/* One task of the plan as it runs, and runs again when it is started again: its child, its log, and
 * what passes its output on. What follows from its end is for the supervisor to judge. Main
 * thread. */
#ifndef SL_TOOLS_LAUNCH_PROCESS_H
#define SL_TOOLS_LAUNCH_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/launch/child.h"
#include "tools/launch/log_forward.h"
#include "tools/launch/plan.h"

struct sl_launch_process {
    const struct sl_plan_task *task;
    struct sl_child child; /* pid 0: has ended, or never began */
    struct sl_log_forward out, err;
    int shown_log;       /* the log that shown output is copied to; -1: none */
    bool fresh;          /* ended since the supervisor last judged */
    int wait_status;     /* once it has ended */
    uint32_t restarts;   /* so far */
    uint64_t restart_ns; /* when it is started again; SL_CLOCK_NEVER: it is not */
};

#define SL_LAUNCH_PROCESS_NAME_BYTES 320

void sl_launch_process_init(struct sl_launch_process *run, const struct sl_plan_task *task);

/* Closes the log. The child must have ended. */
void sl_launch_process_fini(struct sl_launch_process *run);

/* "worker/3 on node7"; returns text. */
const char *sl_launch_process_name(const struct sl_launch_process *run,
                                   char text[static SL_LAUNCH_PROCESS_NAME_BYTES]);

/* Where its log is, in that folder. */
void sl_launch_process_log_path(const struct sl_launch_process *run, const char *log_dir,
                                char *path, size_t path_bytes);

/* Starts the child, its output relayed or written to a log in log_dir (NULL: there are no logs);
 * waits_on as struct sl_log_forward has it. The reason of an error is logged. */
int sl_launch_process_start(struct sl_launch_process *run, const char *log_dir,
                            bool (*waits_on)(void *ctx), void *ctx);

/* Asks a child that runs to end, in the way that the task says. */
void sl_launch_process_ask_to_end(struct sl_launch_process *run, int signal_number);

/* Whether the child has just ended; the rest of its output has then been passed on. */
bool sl_launch_process_reap(struct sl_launch_process *run);

bool sl_launch_process_ended_well(const struct sl_launch_process *run);

/* "worker/3 on node7 failed: exit status 1", where what is "failed". */
void sl_launch_process_describe_end(const struct sl_launch_process *run, const char *what,
                                    char *text, size_t text_bytes);

#endif
