#include "bench/ps_process.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/child.h"
#include "bench/now.h"
#include "core/assert.h"
#include "core/log.h"

#define START_TIMEOUT_NS (30 * SL_CLOCK_NS_PER_S)
#define END_TIMEOUT_NS   (1 * SL_CLOCK_NS_PER_S)
#define LOOK_AGAIN_NS    (2 * SL_CLOCK_NS_PER_MS)
#define TAIL_BYTES       2048

/* The process is stopped now and then for longer than the lease that a job would have. */
#define LEASE_S          "3600"

struct sl_bench_ps {
    struct sl_bench_child child; /* pid 0: it has ended */
    clockid_t clock;             /* of its processor time */
    int log_fd;                  /* a file without a name */
    uint16_t port;
    bool parked;
    int status; /* as waitpid tells it, once it has ended */
    char coordinator[32];
};

/* Variables that a ps reads: none of ours leak into it. */
static const char *const PS_VARIABLES[] = {
    "STARLING_SECRET_FILE",
    "STARLING_LOG",
    "STARLING_CHECKPOINT_DIR",
    "STARLING_CHECKPOINT_EVERY",
    "STARLING_CHECKPOINT_INCREMENTALS",
    "STARLING_CHECKPOINT_KEEP",
    "STARLING_CHECKPOINT_COMPRESSION",
    "STARLING_RESTORE",
    "STARLING_FRESH",
    "TF_CONFIG",
    NULL,
};

/* ---- Before the start */

int sl_bench_ps_ports(uint32_t count, uint16_t *ports)
{
    int err = 0;
    for (uint32_t i = 0; err == 0 && i < count; i++) {
        bool is_new;
        do {
            err = sl_bench_child_port(&ports[i]);
            is_new = true;
            for (uint32_t j = 0; j < i; j++) {
                is_new = is_new && ports[j] != ports[i];
            }
        } while (err == 0 && !is_new);
    }
    return err;
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
    char path[SL_BENCH_PATH_BYTES];
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
    if (ps->child.pid > 0 && waitpid(ps->child.pid, &ps->status, WNOHANG) == ps->child.pid) {
        ps->child.pid = 0;
    }
    return ps->child.pid == 0;
}

void sl_bench_ps_stop(struct sl_bench_ps **ps)
{
    struct sl_bench_ps *gone = *ps;
    *ps = NULL;
    if (gone == NULL) {
        return;
    }
    if (!has_ended(gone)) {
        sl_bench_child_stop(&gone->child);
    }
    if (gone->log_fd >= 0) {
        (void)close(gone->log_fd);
    }
    free(gone);
}

void sl_bench_ps_kill(struct sl_bench_ps **ps)
{
    if (*ps != NULL && !has_ended(*ps)) {
        (void)kill((*ps)->child.pid, SIGKILL);
    }
    sl_bench_ps_stop(ps);
}

/* ---- The start */

static int launch(const struct sl_bench_ps_options *options, const char *program,
                  const cpu_set_t *cores, struct sl_bench_ps *ps)
{
    struct sl_bench_arguments arguments = {0}, settings = {0};
    sl_bench_arguments_add(&arguments, "%s", program);
    sl_bench_arguments_add(&arguments, "--ps-hosts=%s",
                           options->hosts == NULL ? ps->coordinator : options->hosts);
    sl_bench_arguments_add(&arguments, "--job-name=ps");
    sl_bench_arguments_add(&arguments, "--task-index=%u", options->task_index);
    sl_bench_arguments_add(&arguments, "--lease=" LEASE_S);
    sl_bench_arguments_add(&arguments, "--replicas=%u", options->replicas);
    if (options->checkpoint_dir != NULL) {
        sl_bench_arguments_add(&arguments, "--checkpoint-dir=%s", options->checkpoint_dir);
        sl_bench_arguments_add(&arguments, "--checkpoint-every=0");
        sl_bench_arguments_add(&arguments, "--checkpoint-incrementals=%u",
                               options->checkpoint_adds);
        sl_bench_arguments_add(&arguments, "--checkpoint-compression=%u",
                               options->checkpoint_level);
        sl_bench_arguments_add(&settings, "STARLING_LOG=debug"); /* short stalls are logged there */
    }
    if (options->restores) {
        sl_bench_arguments_add(&arguments, "--restore=newest");
    }
    if (options->worker_count > 0) {
        sl_bench_arguments_add(&arguments, "--num-workers=%u", options->worker_count);
    }
    sl_bench_arguments_add(&arguments, "--reactors=%u", options->reactors);
    sl_bench_arguments_add(&arguments, "--polling=%u", options->polling ? 1 : 0);
    sl_bench_arguments_add(&arguments, "--pin-cores");
    sl_bench_arguments_add(&settings, "STARLING_TCP_CONGESTION=%s",
                           options->congestion == NULL ? "" : options->congestion);
    const struct sl_bench_child_options child = {.argv = arguments.items,
                                                 .environment = settings.items,
                                                 .without = PS_VARIABLES,
                                                 .core = -1,
                                                 .cores = cores,
                                                 .log_fd = ps->log_fd};
    return sl_bench_child_start(&child, &ps->child);
}

static int wait_ready(struct sl_bench_ps *ps)
{
    const uint64_t end_ns = sl_bench_now_ns() + START_TIMEOUT_NS;
    while (!sl_bench_child_listens(ps->port)) {
        if (has_ended(ps)) {
            sl_log_error("starling-ps ended before it could be connected to");
            show_log(ps);
            return SL_ERR_IO;
        }
        if (sl_bench_now_ns() >= end_ns) {
            sl_log_error("starling-ps cannot be connected to at %s", ps->coordinator);
            show_log(ps);
            return SL_ERR_DEADLINE;
        }
        sl_bench_sleep_ns(LOOK_AGAIN_NS);
    }
    return 0;
}

static int start(const struct sl_bench_ps_options *options, struct sl_bench_ps *ps)
{
    char program[SL_BENCH_PATH_BYTES];
    cpu_set_t cores;
    if (!sl_bench_child_beside("starling-ps", program)) {
        sl_log_error("there is no starling-ps beside this program");
        return SL_ERR_NOT_FOUND;
    }
    ps->port = options->port;
    int err = choose_cores(options, &cores);
    err = err != 0 || options->hosts != NULL ? err : sl_bench_ps_ports(1, &ps->port);
    err = err != 0 ? err : open_log(&ps->log_fd);
    (void)snprintf(ps->coordinator, sizeof ps->coordinator, "127.0.0.1:%u", ps->port);
    err = err != 0 ? err : launch(options, program, &cores, ps);
    if (err == 0 && clock_getcpuclockid(ps->child.pid, &ps->clock) != 0) {
        sl_log_error("the processor time of starling-ps cannot be read");
        err = SL_ERR_IO;
    }
    return err != 0 ? err : wait_ready(ps);
}

int sl_bench_ps_start(const struct sl_bench_ps_options *options, struct sl_bench_ps **out)
{
    sl_assert(options->reactors > 0);
    sl_assert(options->first_core >= 0);
    sl_assert(options->worker_count <= SL_LIMIT_WORKERS);
    struct sl_bench_ps *ps = calloc(1, sizeof *ps);
    if (ps == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    ps->log_fd = ps->child.in = ps->child.out = -1;
    const int err = start(options, ps);
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
    if (ps->parked || ps->child.pid <= 0 || kill(ps->child.pid, SIGSTOP) != 0) {
        return;
    }
    if (waitpid(ps->child.pid, &ps->status, WUNTRACED) == ps->child.pid &&
        !WIFSTOPPED(ps->status)) {
        ps->child.pid = 0; /* it ended instead */
        return;
    }
    ps->parked = true;
}

void sl_bench_ps_unpark(struct sl_bench_ps *ps)
{
    if (ps->parked && ps->child.pid > 0) {
        (void)kill(ps->child.pid, SIGCONT);
    }
    ps->parked = false;
}

double sl_bench_ps_cpu_seconds(const struct sl_bench_ps *ps)
{
    return ps->child.pid <= 0 ? 0 : sl_bench_seconds(sl_bench_cpu_ns(ps->clock));
}

/* The connections of a process that is killed close before it can be waited for. */
void sl_bench_ps_show_log(struct sl_bench_ps *ps)
{
    const uint64_t end_ns = sl_bench_now_ns() + END_TIMEOUT_NS;
    while (!has_ended(ps) && sl_bench_now_ns() < end_ns) {
        sl_bench_sleep_ns(LOOK_AGAIN_NS);
    }
    if (has_ended(ps)) {
        sl_log_error("starling-ps ended, with %s %d", WIFSIGNALED(ps->status) ? "signal" : "status",
                     WIFSIGNALED(ps->status) ? WTERMSIG(ps->status) : WEXITSTATUS(ps->status));
    }
    show_log(ps);
}

/* ---- Observing the server process */

#define TEXT_BYTES 4096 /* no line of a log is as long */

static int read_status(const struct sl_bench_ps *ps, const char *name, uint64_t *bytes)
{
    char path[64], line[160];
    unsigned long long kib = 0;
    bool found = false;
    (void)snprintf(path, sizeof path, "/proc/%d/status", (int)ps->child.pid);
    FILE *file = fopen(path, "re");
    while (file != NULL && !found && fgets(line, sizeof line, file) != NULL) {
        found = strncmp(line, name, strlen(name)) == 0 &&
                sscanf(line + strlen(name), ": %llu kB", &kib) == 1;
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    if (!found) {
        sl_log_error("%s: there is no %s", path, name);
        return SL_ERR_IO;
    }
    *bytes = kib * 1024;
    return 0;
}

int sl_bench_ps_memory(const struct sl_bench_ps *ps, struct sl_bench_ps_memory *out)
{
    struct sl_bench_ps_memory memory;
    int err = read_status(ps, "VmRSS", &memory.resident);
    err = err != 0 ? err : read_status(ps, "VmHWM", &memory.peak);
    if (err == 0) {
        *out = memory;
    }
    return err;
}

int sl_bench_ps_forget_peak(const struct sl_bench_ps *ps)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/clear_refs", (int)ps->child.pid);
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    const bool done = fd >= 0 && write(fd, "5", 1) == 1;
    if (!done) {
        sl_log_error("%s: %s", path, strerror(errno));
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return done ? 0 : SL_ERR_IO;
}

/* Of the text of whole lines. */
static void count_stalls(const char *text, struct sl_bench_ps_stalls *stalls)
{
    static const char words[] = ": a turn took ";
    for (const char *at = strstr(text, words); at != NULL; at = strstr(at + 1, words)) {
        double ms = 0, longest_ms = 0;
        unsigned long long more = 0;
        if (sscanf(at + sizeof words - 1, "%lf ms, of which %*s %lf ms (%llu earlier", &ms,
                   &longest_ms, &more) >= 1) {
            stalls->count += 1 + more;
            stalls->longest_ms = ms > stalls->longest_ms ? ms : stalls->longest_ms;
        }
    }
}

struct sl_bench_ps_stalls sl_bench_ps_stalls(const struct sl_bench_ps *ps, uint64_t *at)
{
    struct sl_bench_ps_stalls stalls = {0};
    char text[TEXT_BYTES + 1];
    for (;;) {
        const ssize_t bytes = pread(ps->log_fd, text, TEXT_BYTES, (off_t)*at);
        text[bytes > 0 ? bytes : 0] = '\0';
        char *end = strrchr(text, '\n');
        if (end == NULL) {
            return stalls; /* no whole line any more */
        }
        end[1] = '\0';
        count_stalls(text, &stalls);
        *at += (uint64_t)(end + 1 - text);
    }
}
