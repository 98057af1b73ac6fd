#include "programs/launch/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
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

static void child_close_fd(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
        *fd = -1;
    }
}

static void close_pipes(struct ends pipes[static PIPES])
{
    for (int i = 0; i < PIPES; i++) {
        child_close_fd(&pipes[i].read);
        child_close_fd(&pipes[i].write);
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

static bool replaces(const struct sl_words *variables, const char *entry)
{
    const size_t bytes = strcspn(entry, "=") + 1;
    uint32_t i = 0;
    while (i < variables->count && strncmp(variables->items[i], entry, bytes) != 0) {
        i++;
    }
    return i < variables->count;
}

/* Returns the child's environment. The caller frees the array, not the strings. NULL: no memory. */
static char **make_environment(const struct sl_words *variables)
{
    uint32_t count = 0;
    while (environ[count] != NULL) {
        count++;
    }
    char **entries = calloc(count + variables->count + 1, sizeof *entries);
    uint32_t used = 0;
    for (uint32_t i = 0; entries != NULL && i < count; i++) {
        if (!replaces(variables, environ[i])) {
            entries[used++] = environ[i];
        }
    }
    for (uint32_t i = 0; entries != NULL && i < variables->count; i++) {
        entries[used++] = variables->items[i];
    }
    return entries;
}

/* Runs in the child until exec: async-signal-safe calls only. */
static _Noreturn void become(const struct sl_child_options *options, char **environment,
                             const struct ends *pipes, pid_t launcher)
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
    execvpe(options->argv[0], options->argv, environment);
    const int failure = errno;
    ssize_t ignored = write(pipes[STATUS].write, &failure, sizeof failure);
    (void)ignored;
    _exit(127);
}

static int fail(const char *what, const char *program, int system_errno, struct sl_reason *reason)
{
    struct stat status;
    char host[256] = "";
    (void)gethostname(host, sizeof host - 1);
    const bool is_directory =
        system_errno == EACCES && stat(program, &status) == 0 && S_ISDIR(status.st_mode);
    sl_reason_set(reason, "cannot %s %.120s on %s: %s", what, program, host,
                  strerror(is_directory ? EISDIR : system_errno));
    return system_errno == ENOENT ? SL_ERR_NOT_FOUND : SL_ERR_IO;
}

int sl_child_start(const struct sl_child_options *options, struct sl_child *out,
                   struct sl_reason *reason)
{
    const char *program = options->argv[0];
    struct ends pipes[PIPES];
    const pid_t launcher = getpid();
    pid_t pid = -1;
    char **environment = make_environment(options->variables);
    if (environment == NULL) {
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "out of memory");
    }
    if (open_pipes(options, pipes)) {
        pid = fork();
    }
    if (pid == 0) {
        become(options, environment, pipes, launcher);
    }
    const int fork_errno = errno;
    free(environment);
    if (pid < 0) {
        close_pipes(pipes);
        return fail("start", program, fork_errno, reason);
    }
    child_close_fd(&pipes[IN].read);
    child_close_fd(&pipes[OUT].write);
    child_close_fd(&pipes[ERR].write);
    child_close_fd(&pipes[STATUS].write);
    /* Returns 0 bytes when the program runs, because exec closes the pipe. */
    int failure = 0;
    const ssize_t got = read(pipes[STATUS].read, &failure, sizeof failure);
    child_close_fd(&pipes[STATUS].read);
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

char *sl_child_find_program(const char *name, const char *bin_dir)
{
    char *path;
    if (bin_dir != NULL) {
        return asprintf(&path, "%s/%s", bin_dir, name) < 0 ? NULL : path;
    }
    char self[4096];
    const ssize_t bytes = readlink("/proc/self/exe", self, sizeof self - 1);
    if (bytes > 0 && bytes < (ssize_t)sizeof self - 1) {
        self[bytes] = '\0';
        const char *slash = strrchr(self, '/');
        if (asprintf(&path, "%.*s/%s", (int)(slash - self), self, name) < 0) {
            return NULL;
        }
        if (access(path, X_OK) == 0) {
            return path;
        }
        free(path);
    }
    return strdup(name);
}
