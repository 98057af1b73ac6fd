#include "bench/child.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/fork.h"
#include "bench/now.h"
#include "core/assert.h"
#include "core/hash.h"
#include "core/log.h"

#define LOOK_EVERY_NS (2 * SL_CLOCK_NS_PER_MS)
#define TERM_GRACE_MS 2000

#define PORT_FIRST    10000U
#define PORT_COUNT    22000U
#define PORT_TRIES    100

/* ---- Programs -------------------------------------------------------------------------------- */

bool sl_bench_child_beside(const char *name, int mode, char path[SL_BENCH_PATH_BYTES])
{
    char own[SL_BENCH_PATH_BYTES];
    const ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
    if (length <= 0) {
        return false;
    }
    own[length] = '\0';
    const char *slash = strrchr(own, '/');
    const int used = snprintf(path, SL_BENCH_PATH_BYTES, "%.*s/%s", (int)(slash - own), own, name);
    return used > 0 && used < SL_BENCH_PATH_BYTES && access(path, mode) == 0;
}

void sl_bench_child_script(const char *name, char path[SL_BENCH_PATH_BYTES])
{
    char installed[64];
    (void)snprintf(installed, sizeof installed, "../share/starling-bench/%s", name);
    if (!sl_bench_child_beside(installed, R_OK, path)) {
        (void)snprintf(path, SL_BENCH_PATH_BYTES, "%s/%s", SCRIPT_FOLDER, name);
    }
}

void sl_bench_arguments_add(struct sl_bench_arguments *arguments, const char *format, ...)
{
    char *at = arguments->text + arguments->used;
    va_list values;
    va_start(values, format);
    const int length = vsnprintf(at, sizeof arguments->text - arguments->used, format, values);
    va_end(values);
    sl_assert(length >= 0 && arguments->used + (uint32_t)length < sizeof arguments->text);
    sl_assert(arguments->count + 1 < sizeof arguments->items / sizeof arguments->items[0]);
    arguments->items[arguments->count++] = at;
    arguments->used += (uint32_t)length + 1;
}

/* ---- Children -------------------------------------------------------------------------------- */

int sl_bench_child_start(const struct sl_bench_arguments *arguments, bool prints, pid_t *out)
{
    const pid_t pid = sl_bench_fork_process(-1);
    if (pid == 0) {
        const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
        (void)dup2(null, STDIN_FILENO);
        if (!prints) {
            (void)dup2(null, STDOUT_FILENO);
        }
        (void)execvp(arguments->items[0], (char *const *)(uintptr_t)arguments->items);
        sl_log_error("%s cannot be executed: %s", arguments->items[0], strerror(errno));
        _exit(127);
    }
    if (pid < 0) {
        return SL_ERR_IO;
    }
    *out = pid;
    return 0;
}

static uint64_t now_ms(void)
{
    return sl_bench_now_ns() / SL_CLOCK_NS_PER_MS;
}

/* Whether it has ended by then; *status as waitpid returns it. */
static bool ended_by(pid_t pid, uint64_t deadline_ms, int *status)
{
    while (waitpid(pid, status, WNOHANG) == 0) {
        if (now_ms() >= deadline_ms) {
            return false;
        }
        sl_bench_sleep_ns(LOOK_EVERY_NS);
    }
    return true;
}

void sl_bench_child_stop(pid_t *pid)
{
    int status;
    if (*pid != 0) {
        (void)kill(*pid, SIGTERM);
        if (!ended_by(*pid, now_ms() + TERM_GRACE_MS, &status)) {
            (void)kill(*pid, SIGKILL);
            (void)waitpid(*pid, &status, 0);
        }
        *pid = 0;
    }
}

int sl_bench_child_wait(pid_t *pid, uint32_t timeout_ms)
{
    const int id = *pid;
    int status = 0;
    *pid = 0;
    if (!ended_by(id, now_ms() + timeout_ms, &status)) {
        (void)kill(id, SIGKILL);
        (void)waitpid(id, &status, 0);
        sl_log_error("process %d did not end in time", id);
        return SL_ERR_DEADLINE;
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        return 0;
    }
    sl_log_error("process %d ended with %s %d", id, WIFEXITED(status) ? "status" : "signal",
                 WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
    return SL_ERR_CLOSED;
}

/* ---- Ports ----------------------------------------------------------------------------------- */

static bool is_free(uint16_t port)
{
    const struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool bound =
        fd >= 0 && bind(fd, (const struct sockaddr *)(const void *)&address, sizeof address) == 0;
    if (fd >= 0) {
        (void)close(fd);
    }
    return bound;
}

/* Below the range from which the kernel takes ports for outgoing connections. */
int sl_bench_child_port(uint16_t *port)
{
    uint64_t seed = (uint64_t)getpid() << 32 ^ sl_bench_now_ns();
    for (uint32_t i = 0; i < PORT_TRIES; i++) {
        uint16_t drawn = (uint16_t)(PORT_FIRST + sl_hash_random(&seed) % PORT_COUNT);
        if (is_free(drawn)) {
            *port = drawn;
            return 0;
        }
    }
    sl_log_error("no free port of 127.0.0.1");
    return SL_ERR_IN_USE;
}

/* ---- Folders ------------------------------------------------------------------------------------
 */

#define REMOVALS_MAX     100
#define REMOVAL_PAUSE_US 10000

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *at)
{
    return remove(path);
}

/* A process that removes the folder when we end, however that happens: it waits for the end of a
 * pipe whose other end only we have. Signals are blocked: Ctrl-C is not for it. */
static int start_cleaner(struct sl_bench_scratch *scratch)
{
    int ends[2];
    char byte;
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return SL_ERR_IO;
    }
    (void)fflush(NULL); /* what is buffered is ours to write, once */
    scratch->cleaner = fork();
    if (scratch->cleaner == 0) {
        (void)close(ends[1]);
        while (read(ends[0], &byte, 1) < 0 && errno == EINTR) {
        }
        /* Other processes end with us, but a moment later, and may write once more. */
        for (uint32_t i = 0; i < REMOVALS_MAX && access(scratch->path, F_OK) == 0; i++) {
            (void)usleep(i > 0 ? REMOVAL_PAUSE_US : 0);
            (void)nftw(scratch->path, remove_one, 8, FTW_DEPTH | FTW_PHYS);
        }
        _exit(0);
    }
    (void)close(ends[0]);
    scratch->pipe = ends[1];
    return scratch->cleaner < 0 ? SL_ERR_IO : 0;
}

/* Signals are blocked until the process that removes the directory exists. */
int sl_bench_scratch_init(struct sl_bench_scratch *scratch, const char *parent, const char *name)
{
    const char *where = parent == NULL ? getenv("TMPDIR") : parent;
    sigset_t all, before;
    where = where == NULL || where[0] == '\0' ? "/tmp" : where;
    *scratch = (struct sl_bench_scratch){0};
    (void)snprintf(scratch->path, sizeof scratch->path, "%s/starling-bench-%s-XXXXXX", where, name);
    (void)sigfillset(&all);
    (void)sigprocmask(SIG_SETMASK, &all, &before);
    int err = 0;
    if (mkdtemp(scratch->path) == NULL) {
        sl_log_error("no folder can be made in %s: %s", where, strerror(errno));
        scratch->path[0] = '\0';
        err = SL_ERR_IO;
    } else if (start_cleaner(scratch) != 0) {
        sl_log_error("no process can be started: %s", strerror(errno));
        err = SL_ERR_IO;
    }
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
    return err;
}

void sl_bench_scratch_fini(struct sl_bench_scratch *scratch)
{
    if (scratch->cleaner > 0) {
        (void)close(scratch->pipe);
        (void)waitpid(scratch->cleaner, NULL, 0);
    } else if (scratch->path[0] != '\0') {
        (void)rmdir(scratch->path); /* nothing is in it yet */
    }
    *scratch = (struct sl_bench_scratch){0};
}
