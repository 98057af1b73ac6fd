#include "launch/supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/log.h"
#include "launch/child.h"
#include "launch/policy.h"
#include "launch/relay.h"

#define UNREAD_NS                                                                                  \
    SL_CLOCK_NS_PER_S /* a job that is stopped waits so long for who reads its output */

/* A worker that is asked to end finishes its step, for which it needs the ps: they are asked when
 * the workers have ended. Who still waits after this may wait for a worker that has failed, which
 * only the end of the ps cuts short. */
#define PS_STAY_NS (2 * SL_CLOCK_NS_PER_S)

enum phase {
    RUNNING,  /* workers work */
    DRAINING, /* all workers are done; the ps have been asked to end */
    STOPPING, /* somebody failed, or the user wants it: the workers have been asked to end */
};

struct process {
    const struct sl_plan_task *task;
    struct sl_child child; /* pid 0: has ended, or never began */
    struct sl_relay out, err;
    bool fresh;          /* ended since the last look */
    int wait_status;     /* once it has ended */
    uint32_t restarts;   /* so far */
    uint64_t restart_ns; /* when it is started again; SL_CLOCK_NEVER: it is not */
};

struct supervisor {
    const struct sl_launch_options *options;
    struct sl_report *report;
    struct process *processes;
    struct pollfd *polled; /* the signals, the reports, then two of each process */
    uint32_t count;
    uint32_t running[2]; /* by role */
    uint32_t resting;    /* workers that will be started again */
    uint32_t done_well;  /* workers */
    struct sl_policy policy;
    char lost[256]; /* "worker/1, worker/3": went on without them */
    int signal_fd;
    int shown_log; /* worker 0's log, which its shown output is copied to; -1: none */
    enum phase phase;
    int status;          /* what the launcher will exit with */
    uint64_t timeout_ns; /* when the job's time is up */
    uint64_t kill_ns;    /* when those that were asked to end are killed */
    uint64_t unread_ns;  /* STOPPING: when output that has no room is dropped */
    uint64_t ps_stop_ns; /* STOPPING: when the ps are asked too; SL_CLOCK_NEVER: they have been */
    int stop_signal;     /* STOPPING: by which they are asked */
    bool child_ended;    /* a signal said so that no reap has followed */
};

static uint64_t now_ns(void)
{
    return sl_clock_now_ns(sl_clock_system());
}

/* "worker/3 on node7" */
static const char *name_of(const struct process *process, char text[static 320])
{
    snprintf(text, 320, "%s%s", process->task->name, process->task->where);
    return text;
}

static void log_path(const struct supervisor *all, const struct sl_plan_task *task, char *path,
                     size_t path_bytes)
{
    snprintf(path, path_bytes, "%s/%s-%u.log", all->options->log_dir,
             task->role == SL_CLUSTER_PS ? "ps" : "worker", task->index);
}

static void ask_to_end(struct process *process, int signal_number)
{
    switch (process->task->stop) {
    case SL_PLAN_STOP_SIGNAL:
        kill(process->child.pid, signal_number);
        break;
    case SL_PLAN_STOP_TERM:
        kill(process->child.pid, SIGTERM);
        break;
    case SL_PLAN_STOP_STDIN:
        if (process->child.in >= 0) {
            close(process->child.in);
            process->child.in = -1;
        }
        break;
    }
}

static void ask_role(struct supervisor *all, enum sl_cluster_role role, int signal_number)
{
    for (uint32_t i = 0; i < all->count; i++) {
        struct process *process = &all->processes[i];
        if (process->child.pid != 0 && process->task->role == role) {
            ask_to_end(process, signal_number);
        }
    }
}

static void stop_ps_when_due(struct supervisor *all, uint64_t now)
{
    const bool due = all->running[SL_CLUSTER_WORKER] == 0 || now >= all->ps_stop_ns;
    if (all->ps_stop_ns != SL_CLOCK_NEVER && due) {
        all->ps_stop_ns = SL_CLOCK_NEVER;
        ask_role(all, SL_CLUSTER_PS, all->stop_signal);
    }
}

/* Asks the workers, then the ps, and gives all of them the grace period. */
static void stop(struct supervisor *all, int status, int signal_number)
{
    if (all->status == 0) {
        all->status = status;
    }
    const uint64_t now = now_ns();
    const uint64_t grace_ns = all->options->grace_s * SL_CLOCK_NS_PER_S;
    all->phase = STOPPING;
    all->resting = 0;
    all->unread_ns = now + UNREAD_NS;
    all->kill_ns = now + grace_ns;
    all->ps_stop_ns = now + (grace_ns / 2 < PS_STAY_NS ? grace_ns / 2 : PS_STAY_NS);
    all->stop_signal = signal_number;
    ask_role(all, SL_CLUSTER_WORKER, signal_number);
}

static void kill_all(struct supervisor *all)
{
    char name[320];
    for (uint32_t i = 0; i < all->count; i++) {
        struct process *process = &all->processes[i];
        if (process->child.pid != 0) {
            sl_log_warn("%s is killed: it has not ended by itself", name_of(process, name));
            kill(process->child.pid, SIGKILL);
        }
    }
    if (all->status == 0) {
        all->status = SL_SUPERVISOR_FAILED;
    }
    all->kill_ns = SL_CLOCK_NEVER;
}

static void take_signal(struct supervisor *all)
{
    struct signalfd_siginfo info;
    while (read(all->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
        const int number = (int)info.ssi_signo;
        if (number == SIGCHLD) {
            all->child_ended = true; /* several may share one: reap looks at every process */
            continue;
        }
        if (all->phase == STOPPING) {
            kill_all(all); /* asked twice */
            continue;
        }
        sl_log_warn("%s: the job is stopped (once more kills it)", strsignal(number));
        stop(all, SL_SUPERVISOR_SIGNALED + number, number == SIGINT ? SIGINT : SIGTERM);
    }
}

static void check_time(struct supervisor *all)
{
    const uint64_t now = now_ns();
    if (now >= all->timeout_ns) {
        all->timeout_ns = SL_CLOCK_NEVER;
        sl_log_error("the job has not ended within %llu s (--timeout): it is stopped",
                     (unsigned long long)all->options->timeout_s);
        stop(all, SL_SUPERVISOR_TIMEOUT, SIGTERM);
    }
    stop_ps_when_due(all, now);
    if (now >= all->kill_ns) {
        kill_all(all);
    }
}

/* A relay finds no room for its line: the job goes on as far as it can without it. */
static bool waits_on(void *ctx)
{
    struct supervisor *all = ctx;
    take_signal(all);
    check_time(all);
    return all->phase != STOPPING || now_ns() < all->unread_ns;
}

static bool ended_well(const struct process *process)
{
    return WIFEXITED(process->wait_status) && WEXITSTATUS(process->wait_status) == 0;
}

/* "worker/3 on node7 failed: exit status 1" */
static void describe_end(const struct process *process, const char *what, char *text, size_t bytes)
{
    char name[320];
    const int status = process->wait_status;
    name_of(process, name);
    if (WIFSIGNALED(status)) {
        snprintf(text, bytes, "%s %s: killed by signal %d (%s)", name, what, WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    } else if (WEXITSTATUS(status) == 255 && process->task->stop == SL_PLAN_STOP_STDIN) {
        snprintf(text, bytes, "%s %s: exit status 255, by which ssh says that it could not connect",
                 name, what);
    } else {
        snprintf(text, bytes, "%s %s: exit status %d", name, what, WEXITSTATUS(status));
    }
}

static void fail(struct supervisor *all, const struct process *process, const char *what)
{
    char text[512], log[4200] = "";
    describe_end(process, what, text, sizeof text);
    if (all->options->log_dir != NULL) {
        char path[4096];
        log_path(all, process->task, path, sizeof path);
        snprintf(log, sizeof log, "; see %s", path);
    }
    sl_log_error("%s%s", text, log);
    stop(all, SL_SUPERVISOR_FAILED, SIGTERM);
}

static void reap(struct supervisor *all)
{
    all->child_ended = false;
    for (uint32_t i = 0; i < all->count; i++) {
        struct process *process = &all->processes[i];
        if (process->child.pid == 0 ||
            waitpid(process->child.pid, &process->wait_status, WNOHANG) != process->child.pid) {
            continue;
        }
        process->child.pid = 0;
        process->fresh = true;
        all->running[process->task->role]--;
        sl_relay_fini(&process->out);
        sl_relay_fini(&process->err);
        if (process->child.in >= 0) {
            close(process->child.in);
            process->child.in = -1;
        }
    }
}

static void go_on_without(struct supervisor *all, const char *name)
{
    const size_t used = strlen(all->lost);
    snprintf(all->lost + used, sizeof all->lost - used, "%s%s", used == 0 ? "" : ", ", name);
}

static void judge_worker(struct supervisor *all, struct process *process)
{
    char text[512];
    switch (sl_policy_judge(&all->policy, process->wait_status)) {
    case SL_POLICY_FAIL:
        fail(all, process, "failed");
        break;
    case SL_POLICY_RESTART:
        process->restarts++;
        process->restart_ns = now_ns() + sl_policy_delay_ns(process->restarts);
        all->resting++;
        describe_end(process, "failed", text, sizeof text);
        sl_log_warn("%s; it is started again in %llu s (restart %llu of %llu)", text,
                    (unsigned long long)(sl_policy_delay_ns(process->restarts) / SL_CLOCK_NS_PER_S),
                    (unsigned long long)all->policy.restarts,
                    (unsigned long long)all->policy.restarts_max);
        break;
    case SL_POLICY_CONTINUE:
        describe_end(process, "is lost", text, sizeof text);
        sl_log_warn("%s; the job goes on without it", text);
        go_on_without(all, process->task->name);
        break;
    }
}

/* Workers that are not done, here and with other launchers. */
static uint32_t workers_left(const struct supervisor *all)
{
    return all->running[SL_CLUSTER_WORKER] + all->resting + all->report->workers_left;
}

/* The last worker has ended: the ps drain, unless there is nothing that a worker has finished. */
static void end_job(struct supervisor *all)
{
    if (all->done_well == 0) {
        if (all->running[SL_CLUSTER_PS] > 0) { /* else it knows of its own worker only */
            sl_log_error("no worker is left: all were lost");
        }
        stop(all, SL_SUPERVISOR_FAILED, SIGTERM);
        return;
    }
    if (all->lost[0] != '\0') {
        sl_log_warn("the job ends without %s: lost on the way", all->lost);
    }
    all->phase = DRAINING;
    all->kill_ns = now_ns() + all->options->grace_s * SL_CLOCK_NS_PER_S;
    ask_role(all, SL_CLUSTER_PS, SIGTERM);
}

/* What the ends that were just read mean. The whole batch is in before any is judged: a ps that
 * ended after the last worker did not end early, whichever was read first. */
static void judge(struct supervisor *all)
{
    const bool early = workers_left(all) > 0;
    for (uint32_t i = 0; i < all->count; i++) {
        struct process *process = &all->processes[i];
        if (!process->fresh) {
            continue;
        }
        process->fresh = false;
        const bool is_ps = process->task->role == SL_CLUSTER_PS;
        const bool well = ended_well(process);
        all->done_well += !is_ps && well;
        if (all->phase == STOPPING || (well && !(is_ps && early))) {
            continue;
        }
        if (is_ps) {
            fail(all, process, early ? "ended early" : "failed");
        } else {
            judge_worker(all, process);
        }
    }
    if (all->phase == RUNNING && workers_left(all) == 0) {
        end_job(all);
    }
}

/* The log of one process, opened anew but for one that is started again, or -1 where there is none;
 * false with the reason logged. */
static bool open_log(const struct supervisor *all, const struct process *process, int *out)
{
    *out = -1;
    if (all->options->log_dir == NULL) {
        return true;
    }
    char path[4096];
    log_path(all, process->task, path, sizeof path);
    const int truncate = process->restarts == 0 ? O_TRUNC : 0;
    *out = open(path, O_WRONLY | O_CREAT | truncate | O_APPEND | O_CLOEXEC, 0644);
    if (*out < 0) {
        sl_log_error("cannot write %s: %s", path, strerror(errno));
    }
    return *out >= 0;
}

static bool start_process(struct supervisor *all, struct process *process)
{
    const struct sl_plan_task *task = process->task;
    /* Worker 0 prints the job's report: it is shown in any case. */
    const bool shown = task->role == SL_CLUSTER_WORKER && task->index == 0;
    char reason[512], name[320];
    int log;
    char **argv = calloc(task->argv.count + 1, sizeof *argv);
    if (argv == NULL || !open_log(all, process, &log)) {
        free(argv);
        return false;
    }
    memcpy(argv, task->argv.items, task->argv.count * sizeof *argv);
    const struct sl_child_options options = {.argv = argv,
                                             .log_fd = log,
                                             .show_out = shown,
                                             .hold_in = task->stop == SL_PLAN_STOP_STDIN};
    int err = sl_child_start(&options, &process->child, reason, sizeof reason);
    free(argv);
    if (err != 0) {
        sl_log_error("%s: %s", name_of(process, name), reason);
    } else {
        all->running[task->role]++;
    }
    if (err == 0 && process->child.out >= 0) {
        sl_relay_init(&process->out, process->child.out, STDOUT_FILENO, log,
                      log >= 0 ? NULL : task->name);
    }
    if (err == 0 && process->child.err >= 0) {
        sl_relay_init(&process->err, process->child.err, STDERR_FILENO, -1, task->name);
    }
    process->out.waits_on = process->err.waits_on = waits_on;
    process->out.ctx = process->err.ctx = all;
    if (shown && err == 0) {
        if (all->shown_log >= 0) {
            close(all->shown_log);
        }
        all->shown_log = log;
    } else if (log >= 0) {
        close(log);
    }
    return err == 0;
}

static void start_all(struct supervisor *all)
{
    for (uint32_t i = 0; i < all->count; i++) {
        if (!start_process(all, &all->processes[i])) {
            stop(all, SL_SUPERVISOR_FAILED, SIGTERM);
            return;
        }
    }
}

static void restart_due(struct supervisor *all)
{
    for (uint32_t i = 0; all->resting > 0 && i < all->count; i++) {
        struct process *process = &all->processes[i];
        if (process->restart_ns > now_ns()) {
            continue;
        }
        process->restart_ns = SL_CLOCK_NEVER;
        all->resting--;
        if (!start_process(all, process)) {
            stop(all, SL_SUPERVISOR_FAILED, SIGTERM);
        }
    }
}

static uint64_t next_due(const struct supervisor *all)
{
    uint64_t due = all->timeout_ns < all->kill_ns ? all->timeout_ns : all->kill_ns;
    due = all->ps_stop_ns < due ? all->ps_stop_ns : due;
    for (uint32_t i = 0; all->resting > 0 && i < all->count; i++) {
        due = all->processes[i].restart_ns < due ? all->processes[i].restart_ns : due;
    }
    return due;
}

/* Until the earliest deadline, rounded up so that it has then passed; not at all when a process
 * ended while the others were looked at. */
static int poll_ms(const struct supervisor *all)
{
    if (all->child_ended) {
        return 0;
    }
    const uint64_t due = next_due(all);
    if (due == SL_CLOCK_NEVER) {
        return -1;
    }
    const uint64_t now = now_ns();
    const uint64_t ms = due <= now ? 0 : (due - now) / SL_CLOCK_NS_PER_MS + 1;
    return ms > 1000000 ? 1000000 : (int)ms;
}

static void pump(struct sl_relay *relay, const struct pollfd *polled)
{
    /* At its end the pipe is readable for ever: it is closed now. */
    if (polled->revents != 0 && sl_relay_pump(relay) == SL_RELAY_END) {
        sl_relay_fini(relay);
    }
}

/* Workers that other launchers have seen end. */
static void take_reports(struct supervisor *all)
{
    uint32_t worker;
    int status;
    while (sl_report_take(all->report, &worker, &status)) {
        all->done_well += status == 0;
        if (status == 0 || all->phase == STOPPING) {
            continue;
        }
        if (all->policy.continues) {
            char name[24];
            snprintf(name, sizeof name, "worker/%u", worker);
            sl_log_warn("%s is lost: its launcher says status %d; the job goes on without it", name,
                        status);
            go_on_without(all, name);
        } else {
            sl_log_error("worker/%u failed: its launcher says status %d", worker, status);
            stop(all, SL_SUPERVISOR_FAILED, SIGTERM);
        }
    }
}

static void turn(struct supervisor *all)
{
    struct pollfd *polled = all->polled;
    polled[0] = (struct pollfd){.fd = all->signal_fd, .events = POLLIN};
    polled[1] = (struct pollfd){.fd = sl_report_fd(all->report), .events = POLLIN};
    for (uint32_t i = 0; i < all->count; i++) {
        struct process *process = &all->processes[i];
        polled[2 + 2 * i] = (struct pollfd){.fd = process->out.from, .events = POLLIN};
        polled[3 + 2 * i] = (struct pollfd){.fd = process->err.from, .events = POLLIN};
    }
    if (poll(polled, 2 + 2 * (nfds_t)all->count, poll_ms(all)) > 0) {
        for (uint32_t i = 0; i < all->count; i++) {
            pump(&all->processes[i].out, &polled[2 + 2 * i]);
            pump(&all->processes[i].err, &polled[3 + 2 * i]);
        }
    }
    take_signal(all);
    take_reports(all);
    reap(all);
    judge(all);
    restart_due(all);
    check_time(all);
}

static bool open_signals(int *out)
{
    sigset_t taken;
    sigemptyset(&taken);
    sigaddset(&taken, SIGINT);
    sigaddset(&taken, SIGTERM);
    sigaddset(&taken, SIGHUP);
    sigaddset(&taken, SIGCHLD);
    sigprocmask(SIG_BLOCK, &taken, NULL);
    signal(SIGPIPE, SIG_IGN);
    *out = signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK);
    return *out >= 0;
}

/* Two pipes a process: the soft limit of open files is soon reached, the hard one seldom. */
static void raise_file_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static bool make_log_dir(const char *log_dir)
{
    if (log_dir == NULL || mkdir(log_dir, 0755) == 0 || errno == EEXIST) {
        return true;
    }
    sl_log_error("--log-dir=%s: cannot make it: %s", log_dir, strerror(errno));
    return false;
}

static bool set_up(struct supervisor *all, const struct sl_plan *plan)
{
    all->processes = calloc(plan->task_count, sizeof *all->processes);
    all->polled = calloc(2 + 2 * (size_t)plan->task_count, sizeof *all->polled);
    if (all->processes == NULL || all->polled == NULL) {
        sl_log_error("out of memory for %u processes", plan->task_count);
        return false;
    }
    all->count = plan->task_count;
    for (uint32_t i = 0; i < all->count; i++) {
        all->processes[i].task = &plan->tasks[i];
        all->processes[i].child = (struct sl_child){.in = -1, .out = -1, .err = -1};
        all->processes[i].out.from = all->processes[i].err.from = -1;
        all->processes[i].restart_ns = SL_CLOCK_NEVER;
    }
    if (!open_signals(&all->signal_fd)) {
        sl_log_error("cannot take signals: %s", strerror(errno));
        return false;
    }
    raise_file_limit();
    return make_log_dir(all->options->log_dir);
}

int sl_supervisor_run(const struct sl_plan *plan, const struct sl_launch_options *options,
                      struct sl_report *report)
{
    struct supervisor all = {
        .options = options,
        .policy = {.restarts_max = options->restarts,
                   .continues = options->on_worker_loss == SL_LAUNCH_LOSS_CONTINUE},
        .report = report,
        .signal_fd = -1,
        .shown_log = -1,
        .timeout_ns = SL_CLOCK_NEVER,
        .kill_ns = SL_CLOCK_NEVER,
        .ps_stop_ns = SL_CLOCK_NEVER};
    if (options->timeout_s != 0) {
        all.timeout_ns = now_ns() + options->timeout_s * SL_CLOCK_NS_PER_S;
    }
    if (set_up(&all, plan)) {
        start_all(&all);
        while (all.running[SL_CLUSTER_PS] + all.running[SL_CLUSTER_WORKER] + all.resting > 0) {
            turn(&all);
        }
    } else {
        all.status = SL_SUPERVISOR_FAILED;
    }
    if (all.signal_fd >= 0) {
        close(all.signal_fd);
    }
    if (all.shown_log >= 0) {
        close(all.shown_log);
    }
    free(all.polled);
    free(all.processes);
    return all.status;
}
