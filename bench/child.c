#include "bench/child.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <netinet/in.h>
#include <poll.h>
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

#define OUTPUT_BYTES_MAX ((size_t)4 << 20)
#define LOOK_EVERY_NS    (2 * SL_CLOCK_NS_PER_MS)
#define TERM_GRACE_MS    2000

#define PORT_FIRST       10000U
#define PORT_COUNT       22000U
#define PORT_TRIES       100

/* ---- Programs -------------------------------------------------------------------------------- */

static bool is_program(const char *folder, size_t length, const char *name,
                       char path[SL_BENCH_PATH_BYTES])
{
    int used = snprintf(path, SL_BENCH_PATH_BYTES, "%.*s/%s", (int)length, folder, name);
    return used > 0 && used < SL_BENCH_PATH_BYTES && access(path, X_OK) == 0;
}

bool sl_bench_child_find(const char *name, char path[SL_BENCH_PATH_BYTES])
{
    const char *folders = getenv("PATH");
    while (folders != NULL && *folders != '\0') {
        size_t length = strcspn(folders, ":");
        if (is_program(folders, length, name, path)) {
            return true;
        }
        folders += length + (folders[length] == ':');
    }
    static const char *const more[] = {"/usr/sbin", "/sbin"};
    for (size_t i = 0; i < sizeof more / sizeof more[0]; i++) {
        if (is_program(more[i], strlen(more[i]), name, path)) {
            return true;
        }
    }
    return false;
}

bool sl_bench_child_beside(const char *name, char path[SL_BENCH_PATH_BYTES])
{
    char own[SL_BENCH_PATH_BYTES];
    ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
    if (length <= 0) {
        return false;
    }
    own[length] = '\0';
    const char *slash = strrchr(own, '/');
    return slash != NULL && is_program(own, (size_t)(slash - own), name, path);
}

int sl_bench_child_script(const char *name, struct sl_bench_arguments *argv)
{
    char python[SL_BENCH_PATH_BYTES], script[SL_BENCH_PATH_BYTES], installed[64];
    (void)snprintf(installed, sizeof installed, "../share/starling-bench/%s", name);
    if (!sl_bench_child_beside(installed, script)) {
        (void)snprintf(script, sizeof script, "%s/%s", SCRIPT_FOLDER, name);
    }
    if (!sl_bench_child_find("python3", python)) {
        sl_log_error("%s needs python3, which is not on the PATH", name);
        return SL_ERR_NOT_FOUND;
    }
    sl_bench_arguments_add(argv, "%s", python);
    sl_bench_arguments_add(argv, "%s", script);
    return 0;
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

/* ---- Start ----------------------------------------------------------------------------------- */

/* In the child, until it is another program. */
static _Noreturn void become(const struct sl_bench_child_options *options, int in, int out)
{
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    (void)dup2(in >= 0 ? in : null, STDIN_FILENO);
    (void)dup2(out >= 0 ? out : null, STDOUT_FILENO);
    if (options->cores != NULL) {
        (void)sched_setaffinity(0, sizeof *options->cores, options->cores);
    }
    if (options->log_fd > 0 && (dup2(out, STDERR_FILENO) < 0 || chdir("/") != 0)) {
        _exit(127);
    }
    for (uint32_t i = 0; options->without != NULL && options->without[i] != NULL; i++) {
        (void)unsetenv(options->without[i]);
    }
    for (uint32_t i = 0; options->environment != NULL && options->environment[i] != NULL; i++) {
        (void)putenv((char *)(uintptr_t)options->environment[i]);
    }
    (void)execv(options->argv[0], (char *const *)(uintptr_t)options->argv);
    _exit(127);
}

static void close_pair(const int ends[2])
{
    for (int i = 0; i < 2; i++) {
        if (ends[i] >= 0) {
            (void)close(ends[i]);
        }
    }
}

int sl_bench_child_start(const struct sl_bench_child_options *options, struct sl_bench_child *out)
{
    int in[2] = {-1, -1}, ends[2] = {-1, -1};
    if ((options->writes && pipe2(in, O_CLOEXEC) != 0) ||
        (options->reads && pipe2(ends, O_CLOEXEC) != 0)) {
        sl_log_error("cannot start %s: no pipe", options->argv[0]);
        close_pair(in);
        return SL_ERR_IO;
    }
    const pid_t pid = sl_bench_fork_process(options->core);
    if (pid == 0) {
        become(options, in[0], options->log_fd > 0 ? options->log_fd : ends[1]);
    }
    if (pid < 0) {
        close_pair(in);
        close_pair(ends);
        return SL_ERR_IO;
    }
    close_pair((int[]){in[0], ends[1]});
    *out = (struct sl_bench_child){.pid = pid, .in = in[1], .out = ends[0]};
    return 0;
}

/* ---- End ------------------------------------------------------------------------------------- */

static uint64_t now_ms(void)
{
    return sl_bench_now_ns() / SL_CLOCK_NS_PER_MS;
}

static void forget(struct sl_bench_child *child)
{
    close_pair((int[]){child->in, child->out});
    *child = (struct sl_bench_child){.in = -1, .out = -1};
}

/* Whether it has ended by then; *status as waitpid tells it. */
static bool ended_by(const struct sl_bench_child *child, uint64_t deadline_ms, int *status)
{
    while (waitpid(child->pid, status, WNOHANG) == 0) {
        if (now_ms() >= deadline_ms) {
            return false;
        }
        sl_bench_sleep_ns(LOOK_EVERY_NS);
    }
    return true;
}

void sl_bench_child_stop(struct sl_bench_child *child)
{
    int status;
    if (child->pid != 0) {
        (void)kill(child->pid, SIGTERM);
        (void)kill(child->pid, SIGCONT); /* one that was parked must see it */
        if (!ended_by(child, now_ms() + TERM_GRACE_MS, &status)) {
            (void)kill(child->pid, SIGKILL);
            (void)waitpid(child->pid, &status, 0);
        }
        forget(child);
    }
}

static int wait_until(struct sl_bench_child *child, uint64_t deadline_ms)
{
    int status = 0;
    int pid = child->pid;
    if (!ended_by(child, deadline_ms, &status)) {
        (void)kill(child->pid, SIGKILL);
        (void)waitpid(child->pid, &status, 0);
        forget(child);
        sl_log_error("process %d did not end in time", pid);
        return SL_ERR_DEADLINE;
    }
    forget(child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        return 0;
    }
    sl_log_error("process %d ended with %s %d", pid, WIFEXITED(status) ? "status" : "signal",
                 WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
    return SL_ERR_CLOSED;
}

int sl_bench_child_wait(struct sl_bench_child *child, uint32_t timeout_ms)
{
    return wait_until(child, now_ms() + timeout_ms);
}

/* ---- Output ---------------------------------------------------------------------------------- */

/* Bytes read, 0 at the end, or DEADLINE. */
static ssize_t read_by(const struct sl_bench_child *child, uint64_t deadline_ms, char *to,
                       size_t room)
{
    struct pollfd look = {.fd = child->out, .events = POLLIN};
    uint64_t now = now_ms();
    int ready;
    do {
        ready = poll(&look, 1, now < deadline_ms ? (int)(deadline_ms - now) : 0);
    } while (ready < 0 && errno == EINTR);
    if (ready <= 0) {
        return SL_ERR_DEADLINE;
    }
    ssize_t got = read(child->out, to, room);
    return got < 0 ? 0 : got;
}

int sl_bench_child_line(struct sl_bench_child *child, char *line, size_t line_bytes,
                        uint32_t timeout_ms)
{
    const uint64_t deadline_ms = now_ms() + timeout_ms;
    for (size_t used = 0; used < line_bytes; used++) {
        const ssize_t got = read_by(child, deadline_ms, line + used, 1);
        if (got <= 0) {
            return got == 0 ? SL_ERR_CLOSED : (int)got;
        }
        if (line[used] == '\n') {
            line[used] = '\0';
            return 0;
        }
    }
    return SL_ERR_TOO_LARGE;
}

static int read_all(const struct sl_bench_child *child, uint64_t deadline_ms, char **text)
{
    size_t room = 64 * 1024;
    size_t used = 0;
    char *all = malloc(room);
    while (all != NULL) {
        ssize_t got = read_by(child, deadline_ms, all + used, room - used - 1);
        if (got <= 0) {
            all[used] = '\0';
            *text = all;
            return (int)got;
        }
        used += (size_t)got;
        if (used + 1 == room) {
            char *larger = room < OUTPUT_BYTES_MAX ? realloc(all, room *= 2) : NULL;
            if (larger == NULL) {
                free(all);
                return SL_ERR_TOO_LARGE;
            }
            all = larger;
        }
    }
    return SL_ERR_NO_MEMORY;
}

int sl_bench_child_collect(struct sl_bench_child *child, uint32_t timeout_ms, char **text)
{
    uint64_t deadline_ms = now_ms() + timeout_ms;
    char *all = NULL;
    int read_err = read_all(child, deadline_ms, &all);
    int err = wait_until(child, read_err == 0 ? deadline_ms : 0);
    err = read_err != 0 ? read_err : err;
    if (err != 0) {
        free(all);
        return err;
    }
    *text = all;
    return 0;
}

/* ---- Ports ----------------------------------------------------------------------------------- */

/* Whether `attempt`, bind or connect, succeeds with the port of loopback. */
static bool can(int (*attempt)(int, const struct sockaddr *, socklen_t), uint16_t port)
{
    const struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool done = fd >= 0 && attempt(fd, (const struct sockaddr *)(const void *)&address,
                                         sizeof address) == 0;
    if (fd >= 0) {
        (void)close(fd);
    }
    return done;
}

/* Below the range from which the kernel takes ports for outgoing connections. */
int sl_bench_child_port(uint16_t *port)
{
    uint64_t seed = (uint64_t)getpid() << 32 ^ sl_bench_now_ns();
    for (uint32_t i = 0; i < PORT_TRIES; i++) {
        uint16_t drawn = (uint16_t)(PORT_FIRST + sl_hash_random(&seed) % PORT_COUNT);
        if (can(bind, drawn)) {
            *port = drawn;
            return 0;
        }
    }
    sl_log_error("no free port of 127.0.0.1");
    return SL_ERR_IN_USE;
}

bool sl_bench_child_listens(uint16_t port)
{
    return can(connect, port);
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
