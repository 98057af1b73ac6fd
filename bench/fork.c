#include "bench/fork.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/pin.h"
#include "core/clock.h"
#include "core/log.h"

static uint64_t now_ns(void)
{
    return sl_clock_now_ns(sl_clock_system());
}

/* In the child. Of what its reactor has to say, that it was kept waiting, the figures tell. */
static int settle(pid_t parent, int core, const int pipe_fds[2])
{
    cpu_set_t before;
    sl_log_setup(SL_LOG_ERROR, "bench");
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(1);
    }
    (void)close(pipe_fds[0]);
    sl_bench_pin_begin(core, &before);
    return pipe_fds[1];
}

int sl_bench_fork_start(struct sl_bench_fork *process, int core, int *to)
{
    const pid_t parent = getpid();
    int pipe_fds[2];
    *process = (struct sl_bench_fork){.from = -1};
    (void)fflush(NULL); /* what is buffered is ours to write, once */
    if (pipe2(pipe_fds, O_CLOEXEC) != 0) {
        sl_log_error("no pipe for a process of the benchmark");
        return SL_ERR_IO;
    }
    const pid_t pid = fork();
    if (pid == 0) {
        *to = settle(parent, core, pipe_fds);
        return 0;
    }
    (void)close(pipe_fds[1]);
    if (pid < 0) {
        (void)close(pipe_fds[0]);
        sl_log_error("a process of the benchmark cannot be started");
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
    const uint64_t end_ns = now_ns() + timeout_ms * SL_CLOCK_NS_PER_MS;
    uint8_t *at = word;
    while (bytes > 0) {
        struct pollfd look = {.fd = process->from, .events = POLLIN};
        const uint64_t now = now_ns();
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
