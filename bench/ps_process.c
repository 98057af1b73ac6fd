#include "bench/ps_process.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/assert.h"
#include "core/clock.h"
#include "core/log.h"

#define START_TIMEOUT_NS (30 * SL_CLOCK_NS_PER_S)
#define TERM_TIMEOUT_NS  (1 * SL_CLOCK_NS_PER_S)
#define END_TIMEOUT_NS   (1 * SL_CLOCK_NS_PER_S)
#define LOOK_AGAIN_NS    (2 * SL_CLOCK_NS_PER_MS)
#define TAIL_BYTES       2048
#define PATH_BYTES       4096

/* Ports from here up to where the kernel begins to take them for connections: one that was free a
 * moment ago is then not taken by a connection meanwhile. */
#define PORT_FIRST       10000
#define PORT_TRIES       1000

/* The process is stopped now and then for longer than the lease that a job would have. */
#define LEASE_S          "3600"

struct sl_bench_ps {
    pid_t pid;
    clockid_t clock; /* of its processor time */
    int log_fd;      /* a file without a name */
    uint16_t port;
    bool parked;
    int status; /* as waitpid tells it, once it has ended */
    char coordinator[32];
};

/* What the child needs, made before the fork: after it, in a process with other threads, only
 * system calls are safe. */
struct launch {
    char program[PATH_BYTES];
    char workers[2 * SL_LIMIT_WORKERS]; /* "w,w,..." */
    const char *arguments[32];
    uint32_t argument_count;
    char adds[12], level[12], task[12];
    char settings[4][64];     /* "NAME=value" */
    const char **environment; /* ours, but for what a ps reads, and the settings */
    cpu_set_t cores;
    pid_t parent;
};

/* Variables that a ps reads: none of ours leak into it. */
static const char *const PS_VARIABLES[] = {
    "NETWORK_PS_CORE_NUMBER=",
    "PS_ENABLE_POLLING=",
    "PS_DISABLE_PIN_CORES=",
    "STARLING_TCP_CONGESTION=",
    "STARLING_SECRET_FILE=",
    "STARLING_LOG=",
    "STARLING_CHECKPOINT_DIR=",
    "STARLING_CHECKPOINT_EVERY=",
    "STARLING_CHECKPOINT_ADDS=",
    "STARLING_CHECKPOINT_KEEP=",
    "STARLING_CHECKPOINT_LEVEL=",
    "STARLING_RESTORE=",
    "TF_CONFIG=",
};

static void pause_ns(uint64_t ns)
{
    const struct timespec wait = {.tv_sec = (time_t)(ns / SL_CLOCK_NS_PER_S),
                                  .tv_nsec = (long)(ns % SL_CLOCK_NS_PER_S)};
    (void)nanosleep(&wait, NULL);
}

/* ---- Before the start */

/* The program of this name in the folder of the one that runs. */
static int find_beside(const char *name, char path[PATH_BYTES])
{
    ssize_t length = readlink("/proc/self/exe", path, PATH_BYTES - 64);
    if (length < 0) {
        sl_log_error("/proc/self/exe: %s", strerror(errno));
        return SL_ERR_IO;
    }
    path[length] = '\0';
    char *slash = strrchr(path, '/');
    sl_assert(slash != NULL);
    (void)snprintf(slash + 1, 64, "%s", name);
    if (access(path, X_OK) != 0) {
        sl_log_error("%s: %s: the benchmark starts the one beside itself", path, strerror(errno));
        return SL_ERR_NOT_FOUND;
    }
    return 0;
}

static struct sockaddr_in loopback(uint16_t port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static bool is_free(uint16_t port)
{
    const struct sockaddr_in address = loopback(port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool bound =
        fd >= 0 && bind(fd, (const struct sockaddr *)(const void *)&address, sizeof address) == 0;
    if (fd >= 0) {
        (void)close(fd);
    }
    return bound;
}

static uint32_t first_ephemeral_port(void)
{
    unsigned first = 32768;
    FILE *file = fopen("/proc/sys/net/ipv4/ip_local_port_range", "re");
    if (file != NULL) {
        if (fscanf(file, "%u", &first) != 1 || first < 2 * PORT_FIRST) {
            first = 2 * PORT_FIRST;
        }
        (void)fclose(file);
    }
    return first;
}

int sl_bench_ps_ports(uint32_t count, uint16_t *ports)
{
    uint32_t random, found = 0;
    if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random) {
        random = (uint32_t)getpid();
    }
    const uint32_t range = first_ephemeral_port() - PORT_FIRST;
    for (uint32_t i = 0; i < PORT_TRIES && found < count; i++) {
        uint16_t port = (uint16_t)(PORT_FIRST + (random + i) % range);
        if (is_free(port)) {
            ports[found++] = port;
        }
    }
    if (found == count) {
        return 0;
    }
    sl_log_error("of %d ports of 127.0.0.1 only %u are free", PORT_TRIES, found);
    return SL_ERR_IN_USE;
}

/* Those of our cores that a child with so many reactors is to have: from `first` upwards. */
static int choose_cores(const struct sl_bench_ps_options *options, cpu_set_t *out)
{
    cpu_set_t ours;
    if (sched_getaffinity(0, sizeof ours, &ours) != 0) {
        sl_log_error("the cores that this process may use cannot be read: %s", strerror(errno));
        return SL_ERR_IO;
    }
    CPU_ZERO(out);
    for (int core = options->first_core; core < CPU_SETSIZE; core++) {
        if (CPU_ISSET((size_t)core, &ours) && CPU_COUNT(out) < (int)options->reactors) {
            CPU_SET((size_t)core, out);
        }
    }
    if (CPU_COUNT(out) < (int)options->reactors) {
        sl_log_error("a ps of %u reactors from core %d upwards: this process may use only %d cores "
                     "there",
                     options->reactors, options->first_core, CPU_COUNT(out));
        return SL_ERR_INVALID;
    }
    return 0;
}

static int open_log(int *out_fd)
{
    const char *folder = getenv("TMPDIR");
    char path[PATH_BYTES];
    (void)snprintf(path, sizeof path, "%s/starling-bench-ps-XXXXXX",
                   folder == NULL || folder[0] == '\0' ? "/tmp" : folder);
    *out_fd = mkostemp(path, O_CLOEXEC);
    if (*out_fd < 0) {
        sl_log_error("%s: %s", path, strerror(errno));
        return SL_ERR_IO;
    }
    (void)unlink(path);
    return 0;
}

static bool is_ps_variable(const char *variable)
{
    for (size_t i = 0; i < sizeof PS_VARIABLES / sizeof PS_VARIABLES[0]; i++) {
        if (strncmp(variable, PS_VARIABLES[i], strlen(PS_VARIABLES[i])) == 0) {
            return true;
        }
    }
    return false;
}

static int make_environment(const struct sl_bench_ps_options *options, struct launch *launch)
{
    const size_t setting_count = sizeof launch->settings / sizeof launch->settings[0];
    size_t count = 0;
    while (environ[count] != NULL) {
        count++;
    }
    launch->environment = calloc(count + setting_count + 1, sizeof *launch->environment);
    if (launch->environment == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    (void)snprintf(launch->settings[0], sizeof launch->settings[0], "NETWORK_PS_CORE_NUMBER=%u",
                   options->reactors);
    (void)snprintf(launch->settings[1], sizeof launch->settings[1], "PS_ENABLE_POLLING=%s",
                   options->polling ? "true" : "false");
    (void)snprintf(launch->settings[2], sizeof launch->settings[2], "PS_DISABLE_PIN_CORES=false");
    (void)snprintf(launch->settings[3], sizeof launch->settings[3], "STARLING_TCP_CONGESTION=%s",
                   options->congestion == NULL ? "" : options->congestion);
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (!is_ps_variable(environ[i])) {
            launch->environment[kept++] = environ[i];
        }
    }
    for (size_t i = 0; i < setting_count; i++) {
        launch->environment[kept++] = launch->settings[i];
    }
    return 0;
}

static void add(struct launch *launch, const char *argument)
{
    sl_assert(launch->argument_count + 1 < sizeof launch->arguments / sizeof *launch->arguments);
    launch->arguments[launch->argument_count++] = argument;
}

static void add_flag(struct launch *launch, const char *flag, const char *value)
{
    add(launch, flag);
    add(launch, value);
}

static void add_checkpoints(const struct sl_bench_ps_options *options, struct launch *launch)
{
    (void)snprintf(launch->adds, sizeof launch->adds, "%u", options->checkpoint_adds);
    (void)snprintf(launch->level, sizeof launch->level, "%u", options->checkpoint_level);
    add_flag(launch, "--checkpoint-dir", options->checkpoint_dir);
    add_flag(launch, "--checkpoint-every", "0");
    add_flag(launch, "--checkpoint-adds", launch->adds);
    add_flag(launch, "--checkpoint-level", launch->level);
    if (options->restores) {
        add_flag(launch, "--restore", "newest");
    }
}

static void make_arguments(const struct sl_bench_ps_options *options, const char *hosts,
                           struct launch *launch)
{
    add(launch, launch->program);
    add_flag(launch, "--ps-hosts", hosts);
    add_flag(launch, "--job-name", "ps");
    (void)snprintf(launch->task, sizeof launch->task, "%u", options->task_index);
    add_flag(launch, "--task-index", launch->task);
    if (options->replicas > 0) {
        add_flag(launch, "--replicas", "1");
    }
    add_flag(launch, "--lease", LEASE_S);
    if (options->checkpoint_dir != NULL) {
        add_checkpoints(options, launch);
    }
    if (options->worker_count == 0) {
        return;
    }
    for (uint32_t i = 0; i < options->worker_count; i++) {
        memcpy(launch->workers + 2 * (size_t)i, i + 1 < options->worker_count ? "w," : "w", 2);
    }
    add_flag(launch, "--worker-hosts", launch->workers);
}

static int prepare(const struct sl_bench_ps_options *options, struct sl_bench_ps *ps,
                   struct launch *launch)
{
    launch->parent = getpid();
    int err = find_beside("starling-ps", launch->program);
    if (err == 0) {
        err = choose_cores(options, &launch->cores);
    }
    if (err == 0) {
        ps->port = options->port;
        err = options->hosts == NULL ? sl_bench_ps_ports(1, &ps->port) : 0;
    }
    if (err == 0) {
        err = open_log(&ps->log_fd);
    }
    if (err == 0) {
        err = make_environment(options, launch);
    }
    (void)snprintf(ps->coordinator, sizeof ps->coordinator, "127.0.0.1:%u", ps->port);
    make_arguments(options, options->hosts == NULL ? ps->coordinator : options->hosts, launch);
    return err;
}

/* The child: does not return. */
static void become(const struct launch *launch, int log)
{
    sigset_t none;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launch->parent) {
        _exit(127);
    }
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)sched_setaffinity(0, sizeof launch->cores, &launch->cores);
    /* An endpoint map in the folder that we were started in is not for this cluster. */
    if (dup2(log, STDOUT_FILENO) >= 0 && dup2(log, STDERR_FILENO) >= 0 && chdir("/") == 0) {
        (void)execve(launch->program, (char *const *)(uintptr_t)launch->arguments,
                     (char *const *)(uintptr_t)launch->environment);
    }
    _exit(127);
}

/* ---- The end */

/* Shows what the process said last. */
static void show_log(const struct sl_bench_ps *ps)
{
    char text[TAIL_BYTES + 1];
    struct stat about;
    if (fstat(ps->log_fd, &about) != 0) {
        return;
    }
    off_t from = about.st_size > TAIL_BYTES ? about.st_size - TAIL_BYTES : 0;
    ssize_t bytes = pread(ps->log_fd, text, TAIL_BYTES, from);
    if (bytes > 0) {
        text[bytes] = '\0';
        const char *line = from == 0 ? text : strchr(text, '\n');
        (void)fprintf(stderr, "---- the end of starling-ps's log:\n%s----\n",
                      line == NULL ? text : line + (from != 0));
    }
}

/* True when it has ended; its status is then collected. */
static bool has_ended(struct sl_bench_ps *ps)
{
    if (ps->pid > 0 && waitpid(ps->pid, &ps->status, WNOHANG) == ps->pid) {
        ps->pid = 0;
    }
    return ps->pid == 0;
}

static bool wait_end(struct sl_bench_ps *ps, uint64_t timeout_ns)
{
    const uint64_t end_ns = sl_clock_now_ns(sl_clock_system()) + timeout_ns;
    while (!has_ended(ps)) {
        if (sl_clock_now_ns(sl_clock_system()) >= end_ns) {
            return false;
        }
        pause_ns(LOOK_AGAIN_NS);
    }
    return true;
}

void sl_bench_ps_stop(struct sl_bench_ps **ps)
{
    struct sl_bench_ps *gone = *ps;
    *ps = NULL;
    if (gone == NULL) {
        return;
    }
    if (!has_ended(gone)) {
        (void)kill(gone->pid, SIGTERM);
        (void)kill(gone->pid, SIGCONT); /* parked, it would not hear of it */
        if (!wait_end(gone, TERM_TIMEOUT_NS)) {
            (void)kill(gone->pid, SIGKILL);
            (void)waitpid(gone->pid, NULL, 0);
        }
    }
    if (gone->log_fd >= 0) {
        (void)close(gone->log_fd);
    }
    free(gone);
}

void sl_bench_ps_kill(struct sl_bench_ps **ps)
{
    if (*ps != NULL && !has_ended(*ps)) {
        (void)kill((*ps)->pid, SIGKILL);
        (void)waitpid((*ps)->pid, &(*ps)->status, 0);
        (*ps)->pid = 0;
    }
    sl_bench_ps_stop(ps);
}

/* ---- The start */

static bool can_connect(uint16_t port)
{
    const struct sockaddr_in address = loopback(port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return false;
    }
    bool connected =
        connect(fd, (const struct sockaddr *)(const void *)&address, sizeof address) == 0;
    (void)close(fd);
    return connected;
}

static int wait_ready(struct sl_bench_ps *ps)
{
    const uint64_t end_ns = sl_clock_now_ns(sl_clock_system()) + START_TIMEOUT_NS;
    while (!can_connect(ps->port)) {
        if (has_ended(ps)) {
            sl_log_error("starling-ps ended before it could be connected to");
            show_log(ps);
            return SL_ERR_IO;
        }
        if (sl_clock_now_ns(sl_clock_system()) >= end_ns) {
            sl_log_error("starling-ps cannot be connected to at %s", ps->coordinator);
            show_log(ps);
            return SL_ERR_DEADLINE;
        }
        pause_ns(LOOK_AGAIN_NS);
    }
    return 0;
}

static int start(const struct sl_bench_ps_options *options, struct sl_bench_ps *ps,
                 struct launch *launch)
{
    int err = prepare(options, ps, launch);
    if (err != 0) {
        return err;
    }
    (void)fflush(NULL); /* what is buffered is ours to write, once */
    ps->pid = fork();
    if (ps->pid == 0) {
        become(launch, ps->log_fd);
    }
    if (ps->pid < 0) {
        sl_log_error("starling-ps cannot be started: %s", strerror(errno));
        ps->pid = 0;
        return SL_ERR_IO;
    }
    if (clock_getcpuclockid(ps->pid, &ps->clock) != 0) {
        sl_log_error("the processor time of starling-ps cannot be read");
        return SL_ERR_IO;
    }
    return wait_ready(ps);
}

int sl_bench_ps_start(const struct sl_bench_ps_options *options, struct sl_bench_ps **out)
{
    sl_assert(options->reactors > 0);
    sl_assert(options->first_core >= 0);
    sl_assert(options->worker_count <= SL_LIMIT_WORKERS);
    struct sl_bench_ps *ps = calloc(1, sizeof *ps);
    struct launch *launch = calloc(1, sizeof *launch);
    int err = SL_ERR_NO_MEMORY;
    if (ps != NULL && launch != NULL) {
        ps->log_fd = -1;
        err = start(options, ps, launch);
    }
    if (launch != NULL) {
        free(launch->environment);
    }
    free(launch);
    if (err != 0) {
        sl_bench_ps_stop(&ps);
        return err;
    }
    *out = ps;
    return 0;
}

/* ---- While it runs */

const char *sl_bench_ps_coordinator(const struct sl_bench_ps *ps)
{
    return ps->coordinator;
}

void sl_bench_ps_park(struct sl_bench_ps *ps)
{
    if (ps->parked || ps->pid <= 0 || kill(ps->pid, SIGSTOP) != 0) {
        return;
    }
    if (waitpid(ps->pid, &ps->status, WUNTRACED) == ps->pid && !WIFSTOPPED(ps->status)) {
        ps->pid = 0; /* it ended instead */
        return;
    }
    ps->parked = true;
}

void sl_bench_ps_unpark(struct sl_bench_ps *ps)
{
    if (ps->parked && ps->pid > 0) {
        (void)kill(ps->pid, SIGCONT);
    }
    ps->parked = false;
}

double sl_bench_ps_cpu_seconds(const struct sl_bench_ps *ps)
{
    struct timespec now;
    if (ps->pid <= 0 || clock_gettime(ps->clock, &now) != 0) {
        return 0;
    }
    return (double)now.tv_sec + (double)now.tv_nsec / (double)SL_CLOCK_NS_PER_S;
}

/* The connections of a process that is killed close before it can be waited for. */
void sl_bench_ps_show_log(struct sl_bench_ps *ps)
{
    if (wait_end(ps, END_TIMEOUT_NS)) {
        sl_log_error("starling-ps ended, with %s %d", WIFSIGNALED(ps->status) ? "signal" : "status",
                     WIFSIGNALED(ps->status) ? WTERMSIG(ps->status) : WEXITSTATUS(ps->status));
    }
    show_log(ps);
}

pid_t sl_bench_ps_pid(const struct sl_bench_ps *ps)
{
    return ps->pid;
}

int sl_bench_ps_log_fd(const struct sl_bench_ps *ps)
{
    return ps->log_fd;
}
