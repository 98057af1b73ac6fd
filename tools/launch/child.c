#include "tools/launch/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* A pipe, or -1 twice. */
struct ends {
    int read, write;
};

enum { IN, OUT, ERR, STATUS, PIPES };

static bool open_pipe(struct ends *ends)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0) {
        return false;
    }
    *ends = (struct ends){.read = fds[0], .write = fds[1]};
    return true;
}

static void close_fd(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
        *fd = -1;
    }
}

static void close_pipes(struct ends pipes[static PIPES])
{
    for (int i = 0; i < PIPES; i++) {
        close_fd(&pipes[i].read);
        close_fd(&pipes[i].write);
    }
}

static bool open_pipes(const struct sl_child_options *options, struct ends pipes[static PIPES])
{
    const bool wanted[PIPES] = {
        [IN] = options->hold_in,
        [OUT] = options->log_fd < 0 || options->show_out,
        [ERR] = options->log_fd < 0,
        [STATUS] = true,
    };
    for (int i = 0; i < PIPES; i++) {
        pipes[i] = (struct ends){.read = -1, .write = -1};
    }
    for (int i = 0; i < PIPES; i++) {
        if (wanted[i] && !open_pipe(&pipes[i])) {
            return false;
        }
    }
    return true;
}

/* Runs in the child until exec: async-signal-safe calls only. */
static _Noreturn void become(const struct sl_child_options *options, const struct ends *pipes,
                             pid_t launcher)
{
    sigset_t none;
    sigemptyset(&none);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher) {
        _exit(1); /* the launcher died before PR_SET_PDEATHSIG took effect */
    }
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    const int in = pipes[IN].read >= 0 ? pipes[IN].read : open("/dev/null", O_RDONLY | O_CLOEXEC);
    dup2(in, STDIN_FILENO);
    dup2(pipes[OUT].write >= 0 ? pipes[OUT].write : options->log_fd, STDOUT_FILENO);
    dup2(pipes[ERR].write >= 0 ? pipes[ERR].write : options->log_fd, STDERR_FILENO);
    execvp(options->argv[0], options->argv);
    const int failure = errno;
    ssize_t ignored = write(pipes[STATUS].write, &failure, sizeof failure);
    (void)ignored;
    _exit(127);
}

static int fail(const char *what, const char *program, int system_errno, struct sl_reason *reason)
{
    sl_reason_set(reason, "cannot %s %s: %s", what, program, strerror(system_errno));
    return system_errno == ENOENT ? SL_ERR_NOT_FOUND : SL_ERR_IO;
}

int sl_child_start(const struct sl_child_options *options, struct sl_child *out,
                   struct sl_reason *reason)
{
    const char *program = options->argv[0];
    struct ends pipes[PIPES];
    const pid_t launcher = getpid();
    pid_t pid = -1;
    if (open_pipes(options, pipes)) {
        pid = fork();
    }
    if (pid == 0) {
        become(options, pipes, launcher);
    }
    if (pid < 0) {
        const int failure = errno;
        close_pipes(pipes);
        return fail("start", program, failure, reason);
    }
    close_fd(&pipes[IN].read);
    close_fd(&pipes[OUT].write);
    close_fd(&pipes[ERR].write);
    close_fd(&pipes[STATUS].write);
    /* Returns 0 bytes when the program runs, because exec closes the pipe. */
    int failure = 0;
    const ssize_t got = read(pipes[STATUS].read, &failure, sizeof failure);
    close_fd(&pipes[STATUS].read);
    *out = (struct sl_child){
        .pid = pid, .in = pipes[IN].write, .out = pipes[OUT].read, .err = pipes[ERR].read};
    if (got == (ssize_t)sizeof failure) {
        close_pipes(pipes);
        waitpid(pid, NULL, 0); /* it is about to exit */
        *out = (struct sl_child){.in = -1, .out = -1, .err = -1};
        return fail("run", program, failure, reason);
    }
    return 0;
}
