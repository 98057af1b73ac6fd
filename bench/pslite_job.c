#include "bench/pslite_job.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <starling_kv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench/child.h"
#include "bench/pin.h"
#include "core/assert.h"
#include "core/clock.h"
#include "core/log.h"

#define LOOK_EVERY_NS (2 * SL_CLOCK_NS_PER_MS)
#define NUMBER_BYTES  16

/* Servers are parked now and then for longer than a job's lease would be. */
#define LEASE_S       "3600"

/* Variables that a process of the job reads and that are the job's to say: none of ours leak in. */
static const char *const JOB_VARIABLES[] = {
    "DMLC_NODE_HOST",       "DMLC_ENABLE_RDMA",      "DMLC_INTERFACE",       "DMLC_RANK",
    "DMLC_GROUP_SIZE",      "PS_HEARTBEAT_INTERVAL", "PS_HEARTBEAT_TIMEOUT", "TF_CONFIG",
    "STARLING_SECRET_FILE", "STARLING_RDMA",
};

/* ---- A process of the job -------------------------------------------------------------------- */

static void set(const char *name, const char *value)
{
    if (setenv(name, value, 1) != 0) {
        sl_log_error("no memory for %s=%s", name, value);
        _exit(1);
    }
}

static void set_number(const char *name, uint32_t value)
{
    char text[NUMBER_BYTES];
    (void)snprintf(text, sizeof text, "%u", value);
    set(name, text);
}

static void set_unless_null(const char *name, const char *value)
{
    if (value != NULL) {
        set(name, value);
    }
}

/* Whether the user wants to hear what the processes say. */
static bool is_told_more(void)
{
    return getenv("STARLING_LOG") != NULL || getenv("PS_VERBOSE") != NULL;
}

static void set_environment(const struct sl_bench_pslite_job_options *options, const char *role,
                            uint16_t port)
{
    for (size_t i = 0; i < sizeof JOB_VARIABLES / sizeof JOB_VARIABLES[0]; i++) {
        (void)unsetenv(JOB_VARIABLES[i]);
    }
    set("DMLC_ROLE", role);
    set_number("DMLC_NUM_WORKER", options->workers);
    set_number("DMLC_NUM_SERVER", options->servers);
    set("DMLC_PS_ROOT_URI", "127.0.0.1");
    set_number("DMLC_PS_ROOT_PORT", port);
    set("DMLC_NODE_HOST", options->rdma_address == NULL ? "127.0.0.1" : options->rdma_address);
    set("DMLC_ENABLE_RDMA", options->rdma_address == NULL ? "0" : "1");
    set_unless_null("STARLING_RDMA_DEVICE", options->rdma_device);
    set("NETWORK_PS_CORE_NUMBER", "1");
    set("NETWORK_WORKER_CORE_NUMBER", "1");
    if (options->no_shm) {
        set("STARLING_SHM", "0");
    }
    set_unless_null("PS_ENABLE_POLLING", options->server_polling);
    set_unless_null("WORKER_ENABLE_POLLING", options->worker_polling);
    set_unless_null("STARLING_TCP_CONGESTION", options->congestion);
    if (!is_told_more()) {
        /* That threads which share a core, or were parked, are late is no news here. */
        set("STARLING_LOG", "error");
    }
}

/* What each of them does first, in the child. */
static void settle(const struct sl_bench_pslite_job_options *options, const char *role,
                   uint16_t port, int core, pid_t parent)
{
    cpu_set_t before;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(1); /* it died before the kernel knew what to do then */
    }
    sl_log_setup(SL_LOG_WARN, role);
    if (strcmp(role, "worker") != 0 && !is_told_more() &&
        freopen("/dev/null", "w", stdout) == NULL) {
        _exit(1);
    }
    set_environment(options, role, port);
    sl_bench_pin_begin(core, &before);
    if (chdir("/") != 0) { /* an endpoint map in our folder is not for this job */
        _exit(1);
    }
}

/* Servers at an address of the network are open to it while the benchmark lasts. */
static _Noreturn void serve(const struct sl_bench_pslite_job_options *options, bool is_scheduler)
{
    static char program[] = "starling-bench";
    static char lease[] = "--lease";
    static char value[] = LEASE_S;
    static char insecure[] = "--insecure";
    char *of_scheduler[] = {program, lease, value, NULL};
    char *of_server[] = {program, options->rdma_address != NULL ? insecure : NULL, NULL};
    if (is_scheduler) {
        _exit(sl_kv_serve(3, of_scheduler, NULL));
    }
    _exit(sl_kv_serve(options->rdma_address != NULL ? 2 : 1, of_server, options->handler));
}

static pid_t start_server(const struct sl_bench_pslite_job_options *options, uint16_t port)
{
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid == 0) {
        settle(options, "server", port, options->server_core, parent);
        serve(options, false);
    }
    return pid;
}

static pid_t start_scheduler(const struct sl_bench_pslite_job_options *options, uint16_t port)
{
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid == 0) {
        settle(options, "scheduler", port, -1, parent);
        serve(options, true);
    }
    return pid;
}

static pid_t start_worker(const struct sl_bench_pslite_job_options *options, uint16_t port,
                          uint32_t worker)
{
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid == 0) {
        settle(options, "worker", port, options->worker_core, parent);
        const int status = options->work(options->ctx, worker);
        (void)fflush(NULL);
        _exit(status);
    }
    return pid;
}

/* ---- Start ----------------------------------------------------------------------------------- */

/* A process that was not started has no id. */
static bool has_started(pid_t *pid)
{
    if (*pid > 0) {
        return true;
    }
    sl_log_error("cannot start a process: %s", strerror(errno));
    *pid = 0;
    return false;
}

static bool start_all(const struct sl_bench_pslite_job_options *options, uint16_t port,
                      struct sl_bench_pslite_job *job)
{
    job->scheduler = start_scheduler(options, port);
    bool started = has_started(&job->scheduler);
    while (started && job->server_count < options->servers) {
        pid_t *pid = &job->servers[job->server_count++];
        *pid = start_server(options, port);
        started = has_started(pid);
    }
    while (started && job->worker_count < options->workers) {
        pid_t *pid = &job->workers[job->worker_count];
        *pid = start_worker(options, port, job->worker_count++);
        started = has_started(pid);
    }
    return started;
}

int sl_bench_pslite_job_start(const struct sl_bench_pslite_job_options *options,
                              struct sl_bench_pslite_job *out)
{
    sl_assert(options->workers >= 1);
    sl_assert(options->workers <= SL_BENCH_PSLITE_WORKERS_MAX);
    sl_assert(options->servers >= 1);
    sl_assert(options->servers <= SL_BENCH_PSLITE_SERVERS_MAX);
    struct sl_bench_pslite_job job = {0};
    uint16_t port;
    const int err = sl_bench_child_port(&port);
    if (err != 0) {
        return err;
    }
    (void)fflush(NULL); /* what is buffered is ours to write, once */
    if (!start_all(options, port, &job)) {
        sl_bench_pslite_job_stop(&job);
        return SL_ERR_IO;
    }
    *out = job;
    return 0;
}

/* ---- End ------------------------------------------------------------------------------------- */

/* Collects it if it has ended. Its status, or -1: it runs; 0: it had ended before. */
static int status_of(pid_t *pid, const char *role, bool *failed)
{
    int status = 0;
    if (*pid == 0 || waitpid(*pid, &status, WNOHANG) != *pid) {
        return *pid == 0 ? 0 : -1;
    }
    *pid = 0;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        sl_log_error("a %s of the job ended with %s %d", role,
                     WIFEXITED(status) ? "status" : "signal",
                     WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
        *failed = true;
    }
    return 0;
}

/* How many of them run. */
static uint32_t count_running(pid_t *pids, uint32_t count, const char *role, bool *failed)
{
    uint32_t running = 0;
    for (uint32_t i = 0; i < count; i++) {
        running += status_of(&pids[i], role, failed) != 0;
    }
    return running;
}

struct census {
    uint32_t workers, others;
    bool failed;
};

static struct census count_all(struct sl_bench_pslite_job *job)
{
    struct census census = {0};
    census.workers = count_running(job->workers, job->worker_count, "worker", &census.failed);
    census.others = count_running(job->servers, job->server_count, "server", &census.failed) +
                    count_running(&job->scheduler, 1, "scheduler", &census.failed);
    return census;
}

int sl_bench_pslite_job_look(struct sl_bench_pslite_job *job)
{
    const struct census census = count_all(job);
    if (!census.failed && census.workers > 0 && census.others < job->server_count + 1) {
        sl_log_error("servers or the scheduler ended before the workers");
        return SL_ERR_CLOSED;
    }
    return census.failed ? SL_ERR_CLOSED : 0;
}

static void pause_a_little(void)
{
    const struct timespec wait = {.tv_nsec = LOOK_EVERY_NS};
    (void)nanosleep(&wait, NULL);
}

int sl_bench_pslite_job_wait(struct sl_bench_pslite_job *job, uint32_t timeout_ms)
{
    const uint64_t end_ns = sl_clock_now_ns(sl_clock_system()) + timeout_ms * SL_CLOCK_NS_PER_MS;
    for (;;) {
        const struct census census = count_all(job);
        if (census.failed) {
            return SL_ERR_CLOSED;
        }
        if (census.workers + census.others == 0) {
            return 0;
        }
        if (sl_clock_now_ns(sl_clock_system()) >= end_ns) {
            sl_log_error("%u workers and %u others of the job have not ended", census.workers,
                         census.others);
            return SL_ERR_DEADLINE;
        }
        pause_a_little();
    }
}

static void end_all(pid_t *pids, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (pids[i] > 0) {
            (void)kill(pids[i], SIGKILL);
            (void)waitpid(pids[i], NULL, 0);
            pids[i] = 0;
        }
    }
}

void sl_bench_pslite_job_stop(struct sl_bench_pslite_job *job)
{
    end_all(job->workers, job->worker_count);
    end_all(job->servers, job->server_count);
    end_all(&job->scheduler, 1);
    *job = (struct sl_bench_pslite_job){0};
}

/* ---- Turns ----------------------------------------------------------------------------------- */

static void signal_servers(const struct sl_bench_pslite_job *job, int number)
{
    for (uint32_t i = 0; i < job->server_count; i++) {
        if (job->servers[i] > 0) {
            (void)kill(job->servers[i], number);
        }
    }
}

void sl_bench_pslite_job_park(struct sl_bench_pslite_job *job)
{
    if (!job->parked) {
        signal_servers(job, SIGSTOP);
        job->parked = true;
    }
}

void sl_bench_pslite_job_unpark(struct sl_bench_pslite_job *job)
{
    if (job->parked) {
        signal_servers(job, SIGCONT);
        job->parked = false;
    }
}
