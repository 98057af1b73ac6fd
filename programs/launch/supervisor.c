#include "programs/launch/supervisor.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/end_signals.h"
#include "core/format.h"
#include "core/log.h"
#include "core/rlimit.h"
#include "programs/launch/process.h"
#include "programs/launch/restart_policy.h"

#define UNREAD_NS                                                                                  \
    SL_CLOCK_NS_PER_S /* when the job stops, blocked output is dropped after this time */

/* A worker that is asked to end finishes its step and needs the servers for that, so servers are
 * asked after the workers have ended. A worker that is left after this time may be waiting for a
 * failed one: ending the servers releases it. */
#define PS_STAY_NS     (5 * SL_CLOCK_NS_PER_S)

/* So many lost processes are named at the end of the job; each was named when it was lost. */
#define LOST_NAMED_MAX 10

enum phase {
    RUNNING,  /* workers run */
    DRAINING, /* all workers are done; the servers were asked to end */
    STOPPING, /* after a failure or a signal: the workers were asked to end */
};

struct supervisor {
    const struct sl_launch_options *options;
    struct sl_completion *completion;
    struct sl_launch_process *processes;
    struct pollfd *polled; /* signals, completions, then two per process */
    uint32_t count;
    uint32_t running[SL_PLAN_ROLES];
    uint32_t awaiting_restart[2]; /* servers, workers; an agent is not restarted */
    uint32_t done_well;           /* workers */
    struct sl_restart_policy policy, ps_policy;
    uint32_t lost_count;            /* processes that the job continued without */
    char lost[LOST_NAMED_MAX * 26]; /* the first of them: "worker/1, worker/3" */
    int signal_fd;
    enum phase phase;
    int status;          /* exit status of the launcher */
    uint64_t timeout_ns; /* end of the job's time */
    uint64_t kill_ns;    /* when processes that were asked to end are killed */
    uint64_t unread_ns;  /* STOPPING: when blocked output is dropped */
    uint64_t ps_stop_ns; /* STOPPING: when the servers are asked; SL_CLOCK_NEVER: done */
    int stop_signal;     /* STOPPING: signal to ask with */
    bool child_ended;    /* SIGCHLD arrived after the last reap */
};

static uint64_t supervisor_now_ns(void)
{
    return sl_clock_now_ns(sl_clock_system());
}

static void ask_role(struct supervisor *supervisor, enum sl_cluster_role role, int signal_number)
{
    for (uint32_t i = 0; i < supervisor->count; i++) {
        struct sl_launch_process *process = &supervisor->processes[i];
        if (process->child.pid != 0 && process->task->role == role) {
            sl_launch_process_ask_to_end(process, signal_number);
        }
    }
}

static void stop_ps_when_due(struct supervisor *supervisor, uint64_t now)
{
    const bool due = supervisor->running[SL_CLUSTER_WORKER] == 0 || now >= supervisor->ps_stop_ns;
    if (supervisor->ps_stop_ns != SL_CLOCK_NEVER && due) {
        supervisor->ps_stop_ns = SL_CLOCK_NEVER;
        ask_role(supervisor, SL_CLUSTER_PS, supervisor->stop_signal);
        ask_role(supervisor, SL_PLAN_AGENT, supervisor->stop_signal);
    }
}

/* Asks the workers, later the servers, and gives all the grace period. */
static void supervisor_stop(struct supervisor *supervisor, int status, int signal_number)
{
    if (supervisor->status == 0) {
        supervisor->status = status;
    }
    const uint64_t now = supervisor_now_ns();
    const uint64_t grace_ns = supervisor->options->grace_ns;
    const uint64_t linger_ns = supervisor->options->settings.times.http_linger_ns;
    supervisor->phase = STOPPING;
    supervisor->timeout_ns = SL_CLOCK_NEVER;
    supervisor->awaiting_restart[SL_CLUSTER_PS] = supervisor->awaiting_restart[SL_CLUSTER_WORKER] =
        0;
    supervisor->unread_ns = now + UNREAD_NS;
    supervisor->kill_ns = now + grace_ns + (signal_number == SIGINT ? 0 : linger_ns);
    supervisor->ps_stop_ns = now + (grace_ns / 2 < PS_STAY_NS ? grace_ns / 2 : PS_STAY_NS);
    supervisor->stop_signal = signal_number;
    ask_role(supervisor, SL_CLUSTER_WORKER, signal_number);
}

static void kill_all(struct supervisor *supervisor)
{
    char name[SL_LAUNCH_PROCESS_NAME_BYTES];
    for (uint32_t i = 0; i < supervisor->count; i++) {
        struct sl_launch_process *process = &supervisor->processes[i];
        if (process->child.pid != 0) {
            sl_log_warn("%s is killed: it has not ended by itself",
                        sl_launch_process_name(process, name));
            kill(process->child.pid, SIGKILL);
        }
    }
    if (supervisor->status == 0) {
        supervisor->status = SL_SUPERVISOR_FAILED;
    }
    supervisor->kill_ns = SL_CLOCK_NEVER;
}

static void supervisor_take_signal(struct supervisor *supervisor)
{
    struct signalfd_siginfo info;
    while (read(supervisor->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
        const int number = (int)info.ssi_signo;
        if (number == SIGCHLD) {
            supervisor->child_ended =
                true; /* children can share a signal: reap checks every process */
            continue;
        }
        if (number == SIGQUIT) {
            sl_log_warn("%s: the job is killed", strsignal(number));
            supervisor_stop(supervisor, SL_SUPERVISOR_SIGNALED + number, SIGTERM);
            kill_all(supervisor);
        } else if (supervisor->phase != STOPPING) {
            sl_log_warn("%s: the job is stopped (SIGQUIT kills it)", strsignal(number));
            supervisor_stop(supervisor, SL_SUPERVISOR_SIGNALED + number,
                            number == SIGINT ? SIGINT : SIGTERM);
        } /* else a duplicate: from a control group, timeout(1), a batch system */
    }
}

static void check_time(struct supervisor *supervisor)
{
    const uint64_t now = supervisor_now_ns();
    if (now >= supervisor->timeout_ns) {
        sl_log_error("the job has not ended within --job-timeout: it is stopped");
        supervisor_stop(supervisor, SL_SUPERVISOR_TIMEOUT, SIGTERM);
    }
    stop_ps_when_due(supervisor, now);
    if (now >= supervisor->kill_ns) {
        kill_all(supervisor);
    }
}

/* Called while forwarded output is blocked: handles signals and timeouts. */
static bool waits_on(void *ctx)
{
    struct supervisor *supervisor = ctx;
    supervisor_take_signal(supervisor);
    check_time(supervisor);
    return supervisor->phase != STOPPING || supervisor_now_ns() < supervisor->unread_ns;
}

static void fail(struct supervisor *supervisor, const struct sl_launch_process *process,
                 const char *what)
{
    char text[512], log[4200] = "";
    sl_launch_process_describe_end(process, what, text, sizeof text);
    if (supervisor->options->log_dir != NULL) {
        char path[4096];
        sl_launch_process_log_path(process, supervisor->options->log_dir, path, sizeof path);
        snprintf(log, sizeof log, "; see %s", path);
    }
    sl_log_error("%s%s", text, log);
    supervisor_stop(supervisor, SL_SUPERVISOR_FAILED, SIGTERM);
}

static void reap(struct supervisor *supervisor)
{
    supervisor->child_ended = false;
    for (uint32_t i = 0; i < supervisor->count; i++) {
        struct sl_launch_process *process = &supervisor->processes[i];
        supervisor->running[process->task->role] -= sl_launch_process_reap(process);
    }
}

static void go_on_without(struct supervisor *supervisor, const char *name)
{
    if (supervisor->lost_count < LOST_NAMED_MAX) {
        (void)sl_format_add(supervisor->lost, sizeof supervisor->lost, ", ", "%s", name);
    }
    supervisor->lost_count++;
}

/* policy: the one that allowed the restart. */
static void schedule_restart(struct supervisor *supervisor, struct sl_launch_process *process,
                             const struct sl_restart_policy *policy)
{
    char text[512];
    process->restarts++;
    process->restart_ns = supervisor_now_ns() + sl_restart_policy_delay_ns(process->restarts);
    supervisor->awaiting_restart[process->task->role]++;
    sl_launch_process_describe_end(process, "failed", text, sizeof text);
    sl_log_warn(
        "%s; restarting in %llu s (restart %llu of %llu)", text,
        (unsigned long long)(sl_restart_policy_delay_ns(process->restarts) / SL_CLOCK_NS_PER_S),
        (unsigned long long)policy->restarts, (unsigned long long)policy->restarts_max);
}

static bool hosts_the_coordinator(const struct supervisor *supervisor,
                                  const struct sl_launch_process *process)
{
    return process->task->index == 0 && supervisor->options->settings.flags.cluster_store == NULL;
}

static uint32_t count_ps(const struct supervisor *supervisor)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < supervisor->count; i++) {
        count += supervisor->processes[i].task->role == SL_CLUSTER_PS;
    }
    return count;
}

/* The next ps has the backups of its shards, and it has those of the previous ps. */
static bool has_backup(const struct supervisor *supervisor, const struct sl_launch_process *process)
{
    const uint32_t count = count_ps(supervisor), index = process->task->index;
    for (uint32_t i = 0; i < supervisor->count; i++) {
        const struct sl_launch_process *other = &supervisor->processes[i];
        const bool is_beside = other->task->role == SL_CLUSTER_PS && other != process &&
                               (other->task->index == (index + 1) % count ||
                                index == (other->task->index + 1) % count);
        if (is_beside && other->child.pid == 0) {
            return false;
        }
    }
    return supervisor->options->settings.replicas != 0;
}

static void supervisor_lose(struct supervisor *supervisor, const struct sl_launch_process *process)
{
    char text[512];
    sl_launch_process_describe_end(process, "failed", text, sizeof text);
    sl_log_warn("%s; the job continues without it", text);
    go_on_without(supervisor, process->task->name);
}

static void act_on_end(struct supervisor *supervisor, struct sl_launch_process *process,
                       enum sl_restart_policy_verdict verdict,
                       const struct sl_restart_policy *policy, const char *failure)
{
    switch (verdict) {
    case SL_RESTART_POLICY_FAIL:
        fail(supervisor, process, failure);
        break;
    case SL_RESTART_POLICY_RESTART:
        schedule_restart(supervisor, process, policy);
        break;
    case SL_RESTART_POLICY_CONTINUE:
        supervisor_lose(supervisor, process);
        break;
    }
}

/* A ps that ended with 0 before the workers was asked to end by another program. */
static void judge_ps(struct supervisor *supervisor, struct sl_launch_process *process, bool early)
{
    enum sl_restart_policy_verdict verdict = SL_RESTART_POLICY_FAIL;
    if (early && supervisor->phase == RUNNING && !sl_launch_process_ended_well(process)) {
        const bool is_coordinator = hosts_the_coordinator(supervisor, process);
        supervisor->ps_policy.continues = has_backup(supervisor, process) && !is_coordinator;
        verdict = sl_restart_policy_judge(&supervisor->ps_policy, process->wait_status);
        if (is_coordinator && supervisor->options->settings.replicas != 0 &&
            supervisor->ps_policy.restarts_max == 0) {
            sl_log_error("ps/0 died and hosted the coordinator: the job ends; use --cluster-store "
                         "or --restart-ps to survive this");
        }
    }
    act_on_end(supervisor, process, verdict, &supervisor->ps_policy,
               early ? "ended early" : "failed");
}

static void judge_worker(struct supervisor *supervisor, struct sl_launch_process *process)
{
    struct sl_restart_policy *policy = &supervisor->policy;
    act_on_end(supervisor, process, sl_restart_policy_judge(policy, process->wait_status), policy,
               "failed");
}

/* Counts unfinished workers, here and at other launchers. */
static uint32_t workers_left(const struct supervisor *supervisor)
{
    return supervisor->running[SL_CLUSTER_WORKER] +
           supervisor->awaiting_restart[SL_CLUSTER_WORKER] + supervisor->completion->workers_left;
}

/* The last worker has ended: drains the servers; fails if no worker has finished. */
static void end_job(struct supervisor *supervisor)
{
    if (supervisor->done_well == 0) {
        if (supervisor->running[SL_CLUSTER_PS] >
            0) { /* else this launcher sees only its own worker */
            sl_log_error("no worker is left: all failed");
        }
        supervisor_stop(supervisor, SL_SUPERVISOR_FAILED, SIGTERM);
        return;
    }
    if (supervisor->lost_count > LOST_NAMED_MAX) {
        sl_log_warn("the job ends without %s and %u more, which failed", supervisor->lost,
                    supervisor->lost_count - LOST_NAMED_MAX);
    } else if (supervisor->lost_count > 0) {
        sl_log_warn("the job ends without %s, which failed", supervisor->lost);
    }
    supervisor->phase = DRAINING;
    supervisor->awaiting_restart[SL_CLUSTER_PS] = 0;
    supervisor->kill_ns = supervisor_now_ns() + supervisor->options->grace_ns +
                          supervisor->options->settings.times.http_linger_ns;
    ask_role(supervisor, SL_CLUSTER_PS, SIGTERM);
    ask_role(supervisor, SL_PLAN_AGENT, SIGTERM);
}

/* A server handles SIGTERM as soon as it has started. Before, it has no parameters to lose: the
 * workers were done without it. */
static bool ended_before_its_start(const struct supervisor *supervisor,
                                   const struct sl_launch_process *process)
{
    return supervisor->phase == DRAINING && process->task->role == SL_CLUSTER_PS &&
           sl_launch_process_was_terminated(process);
}

/* Evaluates the processes that have ended. All ends are collected first: a ps that ended after the
 * last worker did not end early, in whatever order the two were reaped. */
static void judge(struct supervisor *supervisor)
{
    const bool early = workers_left(supervisor) > 0;
    for (uint32_t i = 0; i < supervisor->count; i++) {
        struct sl_launch_process *process = &supervisor->processes[i];
        if (!process->unjudged) {
            continue;
        }
        process->unjudged = false;
        const bool is_ps = process->task->role == SL_CLUSTER_PS;
        const bool well =
            sl_launch_process_ended_well(process) || ended_before_its_start(supervisor, process);
        supervisor->done_well += process->task->role == SL_CLUSTER_WORKER && well;
        if (supervisor->phase == STOPPING || (well && !(is_ps && early))) {
            continue;
        }
        if (is_ps) {
            judge_ps(supervisor, process, early);
        } else if (process->task->role == SL_CLUSTER_WORKER) {
            judge_worker(supervisor, process);
        } else if (supervisor->phase == RUNNING) {
            supervisor_lose(supervisor,
                            process); /* an agent: readers continue with what they have */
        }
    }
    if (supervisor->phase == RUNNING && workers_left(supervisor) == 0) {
        end_job(supervisor);
    }
}

static bool start_process(struct supervisor *supervisor, struct sl_launch_process *process)
{
    const int err =
        sl_launch_process_start(process, supervisor->options->log_dir, waits_on, supervisor);
    supervisor->running[process->task->role] += err == 0;
    return err == 0;
}

static void start_all(struct supervisor *supervisor)
{
    for (uint32_t i = 0; i < supervisor->count; i++) {
        if (!start_process(supervisor, &supervisor->processes[i])) {
            supervisor_stop(supervisor, SL_SUPERVISOR_FAILED, SIGTERM);
            return;
        }
    }
}

static bool awaits_restart(const struct supervisor *supervisor)
{
    return supervisor->awaiting_restart[SL_CLUSTER_PS] +
               supervisor->awaiting_restart[SL_CLUSTER_WORKER] >
           0;
}

static void restart_due(struct supervisor *supervisor)
{
    for (uint32_t i = 0; awaits_restart(supervisor) && i < supervisor->count; i++) {
        struct sl_launch_process *process = &supervisor->processes[i];
        if (process->restart_ns > supervisor_now_ns()) {
            continue;
        }
        process->restart_ns = SL_CLOCK_NEVER;
        supervisor->awaiting_restart[process->task->role]--;
        if (!start_process(supervisor, process)) {
            supervisor_stop(supervisor, SL_SUPERVISOR_FAILED, SIGTERM);
        }
    }
}

static uint64_t next_due(const struct supervisor *supervisor)
{
    uint64_t due =
        supervisor->timeout_ns < supervisor->kill_ns ? supervisor->timeout_ns : supervisor->kill_ns;
    due = supervisor->ps_stop_ns < due ? supervisor->ps_stop_ns : due;
    for (uint32_t i = 0; awaits_restart(supervisor) && i < supervisor->count; i++) {
        due = supervisor->processes[i].restart_ns < due ? supervisor->processes[i].restart_ns : due;
    }
    return due;
}

/* Returns the time to the next deadline, rounded up so that it has then passed; 0 if a child ended
 * meanwhile. */
static int poll_ms(const struct supervisor *supervisor)
{
    if (supervisor->child_ended) {
        return 0;
    }
    const uint64_t due = next_due(supervisor);
    if (due == SL_CLOCK_NEVER) {
        return -1;
    }
    const uint64_t now = supervisor_now_ns();
    const uint64_t ms = due <= now ? 0 : (due - now) / SL_CLOCK_NS_PER_MS + 1;
    return ms > 1000000 ? 1000000 : (int)ms;
}

static void pump(struct sl_log_forward *forward, const struct pollfd *polled)
{
    /* At its end a pipe stays readable, so it is closed. */
    if (polled->revents != 0 && sl_log_forward_pump(forward) == SL_LOG_FORWARD_END) {
        sl_log_forward_fini(forward);
    }
}

/* Handles workers that ended at other launchers. */
static void take_completions(struct supervisor *supervisor)
{
    uint32_t worker;
    int status;
    while (sl_completion_take(supervisor->completion, &worker, &status)) {
        supervisor->done_well += status == 0;
        if (status == 0 || supervisor->phase == STOPPING) {
            continue;
        }
        if (supervisor->policy.continues) {
            char name[24];
            snprintf(name, sizeof name, "worker/%u", worker);
            sl_log_warn("%s ended: its launcher reports status %d; the job continues without it",
                        name, status);
            go_on_without(supervisor, name);
        } else {
            sl_log_error("worker/%u failed: its launcher reports status %d", worker, status);
            supervisor_stop(supervisor, SL_SUPERVISOR_FAILED, SIGTERM);
        }
    }
}

static void run_once(struct supervisor *supervisor)
{
    struct pollfd *polled = supervisor->polled;
    polled[0] = (struct pollfd){.fd = supervisor->signal_fd, .events = POLLIN};
    polled[1] = (struct pollfd){.fd = supervisor->completion->fd, .events = POLLIN};
    for (uint32_t i = 0; i < supervisor->count; i++) {
        struct sl_launch_process *process = &supervisor->processes[i];
        polled[2 + 2 * i] = (struct pollfd){.fd = process->out.from, .events = POLLIN};
        polled[3 + 2 * i] = (struct pollfd){.fd = process->err.from, .events = POLLIN};
    }
    if (poll(polled, 2 + 2 * (nfds_t)supervisor->count, poll_ms(supervisor)) > 0) {
        for (uint32_t i = 0; i < supervisor->count; i++) {
            pump(&supervisor->processes[i].out, &polled[2 + 2 * i]);
            pump(&supervisor->processes[i].err, &polled[3 + 2 * i]);
        }
    }
    supervisor_take_signal(supervisor);
    take_completions(supervisor);
    reap(supervisor);
    judge(supervisor);
    restart_due(supervisor);
    check_time(supervisor);
}

static bool open_signals(int *out)
{
    sigset_t taken;
    sigemptyset(&taken);
    sl_end_signals_add(&taken);
    sigaddset(&taken, SIGQUIT);
    sigaddset(&taken, SIGCHLD);
    sigprocmask(SIG_BLOCK, &taken, NULL);
    signal(SIGPIPE, SIG_IGN);
    *out = signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK);
    return *out >= 0;
}

static bool make_log_dir(const char *log_dir)
{
    if (log_dir == NULL || mkdir(log_dir, 0755) == 0 || errno == EEXIST) {
        return true;
    }
    sl_log_error("--log-dir=%s: cannot create it: %s", log_dir, strerror(errno));
    return false;
}

static bool set_up(struct supervisor *supervisor, const struct sl_plan *plan)
{
    supervisor->processes = calloc(plan->task_count, sizeof *supervisor->processes);
    supervisor->polled = calloc(2 + 2 * (size_t)plan->task_count, sizeof *supervisor->polled);
    if (supervisor->processes == NULL || supervisor->polled == NULL) {
        sl_log_error("out of memory for %u processes", plan->task_count);
        return false;
    }
    supervisor->count = plan->task_count;
    for (uint32_t i = 0; i < supervisor->count; i++) {
        sl_launch_process_init(&supervisor->processes[i], &plan->tasks[i]);
    }
    if (!open_signals(&supervisor->signal_fd)) {
        sl_log_error("cannot take signals: %s", strerror(errno));
        return false;
    }
    /* Two pipes per process soon exceed the soft limit of open files, rarely the hard one. */
    sl_rlimit_raise(RLIMIT_NOFILE);
    return make_log_dir(supervisor->options->log_dir);
}

/* A job whose output could not be written has failed. */
static void check_output(struct supervisor *supervisor, const struct sl_launch_process *process)
{
    const int failure =
        process->out.lost_errno != 0 ? process->out.lost_errno : process->err.lost_errno;
    char name[SL_LAUNCH_PROCESS_NAME_BYTES];
    if (failure != 0) {
        sl_log_error("%s: some of its output is lost: %s", sl_launch_process_name(process, name),
                     strerror(failure));
        supervisor->status = supervisor->status == 0 ? SL_SUPERVISOR_FAILED : supervisor->status;
    }
}

int sl_supervisor_run(const struct sl_plan *plan, const struct sl_launch_options *options,
                      struct sl_completion *completion)
{
    struct supervisor supervisor = {
        .options = options,
        .policy = {.restarts_max = options->worker.restarts,
                   .continues = options->on_worker_loss == SL_LAUNCH_LOSS_CONTINUE},
        .ps_policy = {.restarts_max = options->ps.restarts},
        .completion = completion,
        .signal_fd = -1,
        .timeout_ns = SL_CLOCK_NEVER,
        .kill_ns = SL_CLOCK_NEVER,
        .ps_stop_ns = SL_CLOCK_NEVER};
    if (options->job_timeout_ns != 0) {
        supervisor.timeout_ns = supervisor_now_ns() + options->job_timeout_ns;
    }
    if (set_up(&supervisor, plan)) {
        start_all(&supervisor);
        while (supervisor.running[SL_CLUSTER_PS] + supervisor.running[SL_CLUSTER_WORKER] +
                       supervisor.running[SL_PLAN_AGENT] >
                   0 ||
               awaits_restart(&supervisor)) {
            run_once(&supervisor);
        }
    } else {
        supervisor.status = SL_SUPERVISOR_FAILED;
    }
    if (supervisor.signal_fd >= 0) {
        close(supervisor.signal_fd);
    }
    for (uint32_t i = 0; i < supervisor.count; i++) {
        check_output(&supervisor, &supervisor.processes[i]);
        sl_launch_process_fini(&supervisor.processes[i]);
    }
    free(supervisor.polled);
    free(supervisor.processes);
    return supervisor.status;
}
