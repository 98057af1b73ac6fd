#include "tools/launch/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/log.h"

void sl_launch_process_init(struct sl_launch_process *run, const struct sl_plan_task *task)
{
    *run = (struct sl_launch_process){.task = task,
                                      .child = {.in = -1, .out = -1, .err = -1},
                                      .out.from = -1,
                                      .err.from = -1,
                                      .shown_log = -1,
                                      .restart_ns = SL_CLOCK_NEVER};
}

static void close_fd(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
        *fd = -1;
    }
}

void sl_launch_process_fini(struct sl_launch_process *run)
{
    close_fd(&run->shown_log);
}

const char *sl_launch_process_name(const struct sl_launch_process *run,
                                   char text[static SL_LAUNCH_PROCESS_NAME_BYTES])
{
    snprintf(text, SL_LAUNCH_PROCESS_NAME_BYTES, "%s%s", run->task->name, run->task->where);
    return text;
}

void sl_launch_process_log_path(const struct sl_launch_process *run, const char *log_dir,
                                char *path, size_t path_bytes)
{
    snprintf(path, path_bytes, "%s/%s-%u.log", log_dir,
             run->task->role == SL_CLUSTER_PS ? "ps" : "worker", run->task->index);
}

/* Opens the log: truncated at the first start, appended at a restart. *out: -1 without logs. */
static int open_log(const struct sl_launch_process *run, const char *log_dir, int *out)
{
    *out = -1;
    if (log_dir == NULL) {
        return 0;
    }
    char path[4096];
    sl_launch_process_log_path(run, log_dir, path, sizeof path);
    const int truncate = run->restarts == 0 ? O_TRUNC : 0;
    const int log = open(path, O_WRONLY | O_CREAT | truncate | O_APPEND | O_CLOEXEC, 0644);
    if (log < 0) {
        const int failure = errno;
        sl_log_error("cannot write %s: %s", path, strerror(failure));
        return sl_err_from_errno(failure);
    }
    *out = log;
    return 0;
}

static int start_child(struct sl_launch_process *run, int log, bool shown)
{
    const struct sl_shell_words *words = &run->task->argv;
    char reason[512], name[SL_LAUNCH_PROCESS_NAME_BYTES];
    char **argv = calloc(words->count + 1, sizeof *argv);
    if (argv == NULL) {
        sl_log_error("%s: out of memory", sl_launch_process_name(run, name));
        return SL_ERR_NO_MEMORY;
    }
    memcpy(argv, words->items, words->count * sizeof *argv);
    const struct sl_child_options options = {.argv = argv,
                                             .log_fd = log,
                                             .show_out = shown,
                                             .hold_in = run->task->stop == SL_PLAN_STOP_STDIN};
    const int err = sl_child_start(&options, &run->child, reason, sizeof reason);
    free(argv);
    if (err != 0) {
        sl_log_error("%s: %s", sl_launch_process_name(run, name), reason);
    }
    return err;
}

int sl_launch_process_start(struct sl_launch_process *run, const char *log_dir,
                            bool (*waits_on)(void *ctx), void *ctx)
{
    /* Worker 0 prints the job's report, so its output is always shown. */
    const bool shown = run->task->role == SL_CLUSTER_WORKER && run->task->index == 0;
    int log;
    int err = open_log(run, log_dir, &log);
    if (err != 0) {
        return err;
    }
    err = start_child(run, log, shown);
    if (err == 0 && run->child.out >= 0) {
        sl_log_forward_init(&run->out, run->child.out, STDOUT_FILENO, log,
                            log >= 0 ? NULL : run->task->name);
    }
    if (err == 0 && run->child.err >= 0) {
        sl_log_forward_init(&run->err, run->child.err, STDERR_FILENO, -1, run->task->name);
    }
    run->out.waits_on = run->err.waits_on = waits_on;
    run->out.ctx = run->err.ctx = ctx;
    if (shown && err == 0) {
        close_fd(&run->shown_log);
        run->shown_log = log;
    } else {
        close_fd(&log);
    }
    return err;
}

void sl_launch_process_ask_to_end(struct sl_launch_process *run, int signal_number)
{
    switch (run->task->stop) {
    case SL_PLAN_STOP_SIGNAL:
        kill(run->child.pid, signal_number);
        break;
    case SL_PLAN_STOP_TERM:
        kill(run->child.pid, SIGTERM);
        break;
    case SL_PLAN_STOP_STDIN:
        close_fd(&run->child.in);
        break;
    }
}

bool sl_launch_process_reap(struct sl_launch_process *run)
{
    if (run->child.pid == 0 ||
        waitpid(run->child.pid, &run->wait_status, WNOHANG) != run->child.pid) {
        return false;
    }
    run->child.pid = 0;
    run->fresh = true;
    sl_log_forward_fini(&run->out);
    sl_log_forward_fini(&run->err);
    close_fd(&run->child.in);
    return true;
}

bool sl_launch_process_ended_well(const struct sl_launch_process *run)
{
    return WIFEXITED(run->wait_status) && WEXITSTATUS(run->wait_status) == 0;
}

void sl_launch_process_describe_end(const struct sl_launch_process *run, const char *what,
                                    char *text, size_t text_bytes)
{
    char name[SL_LAUNCH_PROCESS_NAME_BYTES];
    const int status = run->wait_status;
    sl_launch_process_name(run, name);
    if (WIFSIGNALED(status)) {
        snprintf(text, text_bytes, "%s %s: killed by signal %d (%s)", name, what, WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    } else if (WEXITSTATUS(status) == 255 && run->task->stop == SL_PLAN_STOP_STDIN) {
        snprintf(text, text_bytes,
                 "%s %s: exit status 255, by which ssh says that it could not connect", name, what);
    } else {
        snprintf(text, text_bytes, "%s %s: exit status %d", name, what, WEXITSTATUS(status));
    }
}
