#include "bench/pslite_job.h"

#include <signal.h>
#include <starling_kv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/child.h"
#include "bench/fork.h"
#include "bench/now.h"
#include "core/assert.h"
#include "core/log.h"

#define LOOK_EVERY_NS (2 * SL_CLOCK_NS_PER_MS)
#define NUMBER_BYTES  16

/* The server is parked now and then for longer than a job's lease would be. */
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
    set("DMLC_NUM_SERVER", "1");
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

/* A server at an address of the network is open to it while the benchmark lasts. */
static int serve(const struct sl_bench_pslite_job_options *options, bool is_scheduler)
{
    static char program[] = "starling-bench", lease[] = "--lease", value[] = LEASE_S;
    static char insecure[] = "--insecure";
    const bool is_open = options->rdma_address != NULL;
    char *of_scheduler[] = {program, lease, value, NULL};
    char *of_server[] = {program, is_open ? insecure : NULL, NULL};
    return is_scheduler ? sl_kv_serve(3, of_scheduler, NULL)
                        : sl_kv_serve(is_open ? 2 : 1, of_server, options->handler);
}

static _Noreturn void run(const struct sl_bench_pslite_job_options *options, const char *role,
                          uint16_t port, uint32_t worker)
{
    const bool is_worker = strcmp(role, "worker") == 0;
    sl_log_setup(SL_LOG_WARN, role);
    /* An endpoint map in our folder is not for this job. */
    if (chdir("/") != 0 ||
        (!is_worker && !is_told_more() && freopen("/dev/null", "w", stdout) == NULL)) {
        _exit(1);
    }
    set_environment(options, role, port);
    const int status = is_worker ? options->work(options->ctx, worker)
                                 : serve(options, strcmp(role, "scheduler") == 0);
    (void)fflush(NULL);
    _exit(status);
}

/* ---- Start ----------------------------------------------------------------------------------- */

static bool start_one(const struct sl_bench_pslite_job_options *options, const char *role, int core,
                      uint16_t port, uint32_t worker, pid_t *out)
{
    const pid_t pid = sl_bench_fork_process(core);
    if (pid == 0) {
        run(options, role, port, worker);
    }
    *out = pid > 0 ? pid : 0;
    return pid > 0;
}

static bool start_all(const struct sl_bench_pslite_job_options *options, uint16_t port,
                      struct sl_bench_pslite_job *job)
{
    bool started = start_one(options, "scheduler", -1, port, 0, &job->scheduler);
    started = started && start_one(options, "server", options->server_core, port, 0, &job->server);
    while (started && job->worker_count < options->workers) {
        const uint32_t worker = job->worker_count++;
        started =
            start_one(options, "worker", options->worker_core, port, worker, &job->workers[worker]);
    }
    return started;
}

int sl_bench_pslite_job_start(const struct sl_bench_pslite_job_options *options,
                              struct sl_bench_pslite_job *out)
{
    sl_assert(options->workers >= 1);
    sl_assert(options->workers <= SL_BENCH_PSLITE_WORKERS_MAX);
    struct sl_bench_pslite_job job = {0};
    uint16_t port;
    const int err = sl_bench_child_port(&port);
    if (err != 0) {
        return err;
    }
    if (!start_all(options, port, &job)) {
        sl_bench_pslite_job_stop(&job);
        return SL_ERR_IO;
    }
    *out = job;
    return 0;
}

/* ---- End ------------------------------------------------------------------------------------- */

/* How many of them run; collects those that have ended. */
static uint32_t count_running(pid_t *pids, uint32_t count, const char *role, bool *failed)
{
    uint32_t running = 0;
    for (uint32_t i = 0; i < count; i++) {
        int status = 0;
        if (pids[i] == 0 || waitpid(pids[i], &status, WNOHANG) != pids[i]) {
            running += pids[i] != 0;
            continue;
        }
        pids[i] = 0;
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
            sl_log_error("a %s of the job ended with %s %d", role,
                         WIFEXITED(status) ? "status" : "signal",
                         WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
            *failed = true;
        }
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
    census.others = count_running(&job->server, 1, "server", &census.failed) +
                    count_running(&job->scheduler, 1, "scheduler", &census.failed);
    return census;
}

int sl_bench_pslite_job_look(struct sl_bench_pslite_job *job)
{
    const struct census census = count_all(job);
    if (!census.failed && census.workers > 0 && census.others < 2) {
        sl_log_error("the server or the scheduler ended before the workers");
        return SL_ERR_CLOSED;
    }
    return census.failed ? SL_ERR_CLOSED : 0;
}

int sl_bench_pslite_job_wait(struct sl_bench_pslite_job *job, uint32_t timeout_ms)
{
    const uint64_t end_ns = sl_bench_now_ns() + timeout_ms * SL_CLOCK_NS_PER_MS;
    for (;;) {
        const struct census census = count_all(job);
        if (census.failed) {
            return SL_ERR_CLOSED;
        }
        if (census.workers + census.others == 0) {
            return 0;
        }
        if (sl_bench_now_ns() >= end_ns) {
            sl_log_error("%u workers and %u others of the job have not ended", census.workers,
                         census.others);
            return SL_ERR_DEADLINE;
        }
        sl_bench_sleep_ns(LOOK_EVERY_NS);
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
    end_all(&job->server, 1);
    end_all(&job->scheduler, 1);
    *job = (struct sl_bench_pslite_job){0};
}

/* ---- Turns ----------------------------------------------------------------------------------- */

void sl_bench_pslite_job_park(struct sl_bench_pslite_job *job, bool parks)
{
    if (job->parked != parks && job->server > 0) {
        (void)kill(job->server, parks ? SIGSTOP : SIGCONT);
    }
    job->parked = parks;
}
