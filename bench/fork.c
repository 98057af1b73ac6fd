#include "bench/fork.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/now.h"
#include "core/log.h"

pid_t sl_bench_fork_process(int core)
{
    const pid_t parent = getpid();
    (void)fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        /* The parent may have died before the kernel knew what to do then. */
        if (getppid() != parent || sl_bench_pin_thread(core) != 0) {
            _exit(1);
        }
    } else if (pid < 0) {
        sl_log_error("a process of the benchmark cannot be started: %s", strerror(errno));
    }
    return pid;
}

int sl_bench_fork_start(struct sl_bench_fork *process, int core, int *to)
{
    int pipe_fds[2];
    *process = (struct sl_bench_fork){.from = -1};
    if (pipe2(pipe_fds, O_CLOEXEC) != 0) {
        sl_log_error("no pipe for a process of the benchmark");
        return SL_ERR_IO;
    }
    const pid_t pid = sl_bench_fork_process(core);
    if (pid == 0) {
        sl_log_setup(SL_LOG_ERROR, "bench"); /* of late turns the figures tell */
        (void)close(pipe_fds[0]);
        *to = pipe_fds[1];
        return 0;
    }
    (void)close(pipe_fds[1]);
    if (pid < 0) {
        (void)close(pipe_fds[0]);
        return SL_ERR_IO;
    }
    *process = (struct sl_bench_fork){.pid = pid, .from = pipe_fds[0]};
    return 0;
}

void sl_bench_fork_tell(int to, const void *word, size_t bytes)
{
    const uint8_t *at = word;
    while (bytes > 0) {
        const ssize_t wrote = write(to, at, bytes);
        if (wrote <= 0) {
            _exit(1);
        }
        at += wrote;
        bytes -= (size_t)wrote;
    }
}

int sl_bench_fork_hear(struct sl_bench_fork *process, uint64_t timeout_ms, void *word, size_t bytes)
{
    const uint64_t end_ns = sl_bench_now_ns() + timeout_ms * SL_CLOCK_NS_PER_MS;
    uint8_t *at = word;
    while (bytes > 0) {
        struct pollfd look = {.fd = process->from, .events = POLLIN};
        const uint64_t now = sl_bench_now_ns();
        if (now >= end_ns || poll(&look, 1, (int)((end_ns - now) / SL_CLOCK_NS_PER_MS) + 1) <= 0) {
            return SL_ERR_DEADLINE;
        }
        const ssize_t got = read(process->from, at, bytes);
        if (got <= 0) {
            return SL_ERR_CLOSED;
        }
        at += got;
        bytes -= (size_t)got;
    }
    return 0;
}

void sl_bench_fork_end(struct sl_bench_fork *process)
{
    if (process->pid > 0) {
        (void)kill(process->pid, SIGKILL);
        (void)waitpid(process->pid, NULL, 0);
        process->pid = 0;
    }
    if (process->from >= 0) {
        (void)close(process->from);
        process->from = -1;
    }
}

/* ---- Cores --------------------------------------------------------------------------------------
 */

int sl_bench_pin_thread(int core)
{
    if (core < 0) {
        return 0;
    }
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((size_t)core, &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0) {
        sl_log_error("this process may not run on core %d: %s", core, strerror(errno));
        return SL_ERR_INVALID;
    }
    return 0;
}

int sl_bench_pin_begin(int core, cpu_set_t *before)
{
    CPU_ZERO(before);
    (void)sched_getaffinity(0, sizeof *before, before);
    return sl_bench_pin_thread(core);
}

void sl_bench_pin_end(const cpu_set_t *before)
{
    if (CPU_COUNT(before) > 0) {
        (void)sched_setaffinity(0, sizeof *before, before);
    }
}
