#include "programs/launch/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/reason.h"
#include "programs/launch/restart_policy.h"

void sl_launch_process_init(struct sl_launch_process *process, const struct sl_plan_task *task)
{
    *process = (struct sl_launch_process){.task = task,
                                          .child = {.in = -1, .out = -1, .err = -1},
                                          .out.from = -1,
                                          .err.from = -1,
                                          .shown_log = -1,
                                          .restart_ns = SL_CLOCK_NEVER};
}

static void launch_process_close_fd(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
        *fd = -1;
    }
}

void sl_launch_process_fini(struct sl_launch_process *process)
{
    launch_process_close_fd(&process->shown_log);
}

const char *sl_launch_process_name(const struct sl_launch_process *process,
                                   char text[static SL_LAUNCH_PROCESS_NAME_BYTES])
{
    snprintf(text, SL_LAUNCH_PROCESS_NAME_BYTES, "%s%s", process->task->name, process->task->where);
    return text;
}

void sl_launch_process_log_path(const struct sl_launch_process *process, const char *log_dir,
                                char *path, size_t path_bytes)
{
    const char *name = process->task->name;
    snprintf(path, path_bytes, "%s/%.*s-%u.log", log_dir, (int)strcspn(name, "/"), name,
             process->task->index);
}

/* Opens the log: truncated at the first start, appended at a restart. *out: -1 without logs. */
static int open_log(const struct sl_launch_process *process, const char *log_dir, int *out)
{
    *out = -1;
    if (log_dir == NULL) {
        return 0;
    }
    char path[4096];
    sl_launch_process_log_path(process, log_dir, path, sizeof path);
    const int truncate = process->restarts == 0 ? O_TRUNC : 0;
    const int log = open(path, O_WRONLY | O_CREAT | truncate | O_APPEND | O_CLOEXEC, 0644);
    if (log < 0) {
        const int failure = errno;
        sl_log_error("cannot write %s: %s", path, strerror(failure));
        return sl_err_from_errno(failure);
    }
    *out = log;
    return 0;
}

static int start_child(struct sl_launch_process *process, int log, bool shown)
{
    struct sl_reason reason;
    char name[SL_LAUNCH_PROCESS_NAME_BYTES];
    const struct sl_child_options options = {.argv = process->task->argv.items,
                                             .variables = &process->task->variables,
                                             .log_fd = log,
                                             .show_out = shown,
                                             .hold_in = process->task->stop == SL_PLAN_STOP_STDIN};
    const int err = sl_child_start(&options, &process->child, &reason);
    if (err != 0) {
        sl_log_error("%s: %s", sl_launch_process_name(process, name), reason.text);
    }
    return err;
}

/* Logs where the job's page is, from the line that server 0 prints when it is ready: "ps/0 ready:
 * control tcp://HOST:PORT, ..., http HOST:PORT". */
static void announce_page(const char *line, size_t bytes)
{
    char text[SL_LOG_FORWARD_LINE_BYTES];
    (void)snprintf(text, sizeof text, "%.*s", (int)bytes, line);
    const char *http = strstr(text, ", http");
    if (strncmp(text, "ps/0 ready: ", 12) != 0 || http == NULL) {
        return;
    }
    const char *scheme = http + 2, *address = strchr(scheme, ' ');
    if (address != NULL && strncmp(address, " off", 4) != 0) {
        const bool is_there = strncmp(address, " 127.", 5) == 0 && strstr(text, "://127.") == NULL;
        sl_log_info("the page of the job: %.*s://%.*s%s", (int)(address - scheme), scheme,
                    (int)strcspn(address + 1, "\n"), address + 1,
                    is_there ? ", on the host of ps/0" : "");
    }
}

int sl_launch_process_start(struct sl_launch_process *process, const char *log_dir,
                            bool (*waits_on)(void *ctx), void *ctx)
{
    /* Worker 0 prints the job's report, so its output is always shown. */
    const bool shown = process->task->role == SL_CLUSTER_WORKER && process->task->index == 0;
    const bool is_read = process->task->role == SL_CLUSTER_PS && process->task->index == 0;
    int log;
    int err = open_log(process, log_dir, &log);
    if (err != 0) {
        return err;
    }
    err = start_child(process, log, shown || is_read);
    if (err == 0 && process->child.out >= 0) {
        sl_log_forward_init(&process->out, process->child.out,
                            is_read && log >= 0 ? log : STDOUT_FILENO, shown ? log : -1,
                            log >= 0 ? NULL : process->task->name);
        process->out.reads = is_read ? announce_page : NULL;
    }
    if (err == 0 && process->child.err >= 0) {
        sl_log_forward_init(&process->err, process->child.err, STDERR_FILENO, -1,
                            process->task->name);
    }
    process->out.waits_on = process->err.waits_on = waits_on;
    process->out.ctx = process->err.ctx = ctx;
    if ((shown || is_read) && err == 0) {
        launch_process_close_fd(&process->shown_log);
        process->shown_log = log;
    } else {
        launch_process_close_fd(&log);
    }
    return err;
}

void sl_launch_process_ask_to_end(struct sl_launch_process *process, int signal_number)
{
    switch (process->task->stop) {
    case SL_PLAN_STOP_SIGNAL:
        kill(process->child.pid, signal_number);
        break;
    case SL_PLAN_STOP_INT:
        kill(process->child.pid, SIGINT);
        break;
    case SL_PLAN_STOP_STDIN:
        launch_process_close_fd(&process->child.in);
        break;
    }
}

bool sl_launch_process_reap(struct sl_launch_process *process)
{
    siginfo_t info = {0};
    const pid_t pid = process->child.pid;
    if (pid == 0 || waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid != pid) {
        return false;
    }
    /* A script may have left processes behind, which its replacement must not meet. Until waitpid
     * the number of the group belongs to no other process. The group of srun holds a helper, which
     * ends the step if srun was killed; Slurm kills what the step leaves. */
    if (process->task->stop != SL_PLAN_STOP_INT) {
        kill(-pid, SIGKILL);
    }
    waitpid(pid, &process->wait_status, 0);
    process->child.pid = 0;
    process->unjudged = true;
    sl_log_forward_fini(&process->out);
    sl_log_forward_fini(&process->err);
    launch_process_close_fd(&process->child.in);
    return true;
}

bool sl_launch_process_ended_well(const struct sl_launch_process *process)
{
    return WIFEXITED(process->wait_status) && WEXITSTATUS(process->wait_status) == 0;
}

bool sl_launch_process_was_terminated(const struct sl_launch_process *process)
{
    const int status = process->wait_status;
    const int asked = process->task->stop == SL_PLAN_STOP_INT ? SIGINT : SIGTERM;
    return WIFSIGNALED(status) ? WTERMSIG(status) == asked : WEXITSTATUS(status) == 128 + asked;
}

void sl_launch_process_describe_end(const struct sl_launch_process *process, const char *what,
                                    char *text, size_t text_bytes)
{
    char name[SL_LAUNCH_PROCESS_NAME_BYTES];
    const int status = process->wait_status;
    sl_launch_process_name(process, name);
    if (WIFSIGNALED(status)) {
        snprintf(text, text_bytes, "%s %s: killed by signal %d (%s)", name, what, WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    } else if (WEXITSTATUS(status) == 255 && process->task->stop == SL_PLAN_STOP_STDIN) {
        snprintf(text, text_bytes,
                 "%s %s: exit status 255, by which ssh says that it could not connect", name, what);
    } else if (WEXITSTATUS(status) == SL_RESTART_POLICY_NOT_FOUND) {
        snprintf(text, text_bytes,
                 "%s %s: exit status 127: %.120s, or a command that it runs, was not found", name,
                 what, process->task->program);
    } else if (WEXITSTATUS(status) == SL_RESTART_POLICY_NOT_EXECUTABLE) {
        snprintf(text, text_bytes,
                 "%s %s: exit status 126: %.120s, or a command that it runs, cannot be executed",
                 name, what, process->task->program);
    } else {
        snprintf(text, text_bytes, "%s %s: exit status %d", name, what, WEXITSTATUS(status));
    }
}
