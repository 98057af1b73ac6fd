#include "programs/serve/local.h"

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "config/cli.h"
#include "core/clock.h"
#include "core/end_signals.h"
#include "core/log.h"
#include "programs/launch/child.h"

#define PROGRAM     "starling-serve"
#define LENGTH(of)  (uint32_t)(sizeof(of) / sizeof((of)[0]))
#define WORKERS_MAX 256
#define PATIENCE_MS 10000 /* then the log says what is waited for */
/* From the signal to the end of the gateway, of the workers, and of the storage. */
#define GATEWAY_NS  (11 * SL_CLOCK_NS_PER_S)
#define WORKERS_NS  (13 * SL_CLOCK_NS_PER_S)
#define STORAGE_NS  (15 * SL_CLOCK_NS_PER_S)
#define RESTART_NS  SL_CLOCK_NS_PER_S

enum { STORAGE, GATEWAY, FIRST_WORKER };

static struct {
    const char *models, *http, *token_file, *tls_cert, *tls_key, *pool_bytes, *keep;
    const char *strategy, *batch_max, *schedule;
    uint32_t workers;
    bool insecure;
} flags = {.http = "127.0.0.1:8080"};

static const struct sl_cli_option options[] = {
    SL_CLI_OPTION(STRING, &flags.models, .name = "models", .metavar = "DIR",
                  .help = "Where " PROGRAM " deploy --dir has stored models. Required."),
    SL_CLI_OPTION(U32, &flags.workers, .name = "workers", .metavar = "N", .least = 1,
                  .most = WORKERS_MAX, .help = "Processes that compute. Default: one a core."),
    SL_CLI_OPTION(STRING, &flags.http, .name = "http", .metavar = "HOST:PORT",
                  .help = "Where the gateway serves HTTP."),
    SL_CLI_OPTION(STRING, &flags.token_file, .name = "http-token-file", .metavar = "FILE",
                  .help = "As of the gateway: see " PROGRAM " gateway --help."),
    SL_CLI_OPTION(STRING, &flags.tls_cert, .name = "http-tls-cert", .metavar = "FILE",
                  .help = "As of the gateway."),
    SL_CLI_OPTION(STRING, &flags.tls_key, .name = "http-tls-key", .metavar = "FILE",
                  .help = "As of the gateway."),
    SL_CLI_OPTION(BOOL, &flags.insecure, .name = "insecure", .help = "As of the gateway."),
    SL_CLI_OPTION(STRING, &flags.strategy, .name = "strategy", .metavar = "RULE",
                  .help = "As of the gateway."),
    SL_CLI_OPTION(STRING, &flags.pool_bytes, .name = "pool-memory", .metavar = "BYTES",
                  .help = "Memory for models, shared by the workers. Default: 1G."),
    SL_CLI_OPTION(STRING, &flags.keep, .name = "keep", .metavar = "MODEL,...",
                  .help = "Models that stay in that memory."),
    SL_CLI_OPTION(STRING, &flags.batch_max, .name = "batch-max", .metavar = "N",
                  .help = "As of a worker: see " PROGRAM " worker --help."),
    SL_CLI_OPTION(STRING, &flags.schedule, .name = "schedule", .metavar = "RULE",
                  .help = "As of a worker."),
};

struct child {
    char name[24];
    struct sl_child process; /* pid 0: it has ended */
    char line[512];          /* that it prints when it is ready */
    char address[128];       /* the first word of it */
    uint64_t started_ns;
};

struct run {
    char *objects, *serve; /* paths of the programs; allocated */
    char agent[64];
    struct child children[FIRST_WORKER + WORKERS_MAX];
    uint32_t count; /* of those that were started */
    sigset_t signals;
    struct sl_reason reason;
};

static uint64_t serve_local_now_ns(void)
{
    return sl_clock_now_ns(sl_clock_system());
}

/* ---- Children -------------------------------------------------------------------------------- */

static int add_flag(struct sl_words *words, const char *name, const char *value)
{
    return value == NULL ? 0 : sl_words_append_format(words, "--%s=%s", name, value);
}

static int make_words(const struct run *run, uint32_t index, struct sl_words *words)
{
    const struct {
        const char *name, *value;
    } named[3][8] = {
        {{"name", "127.0.0.1:0"},
         {"agent-name", run->agent},
         {"dir", flags.models},
         {"pool-memory", flags.pool_bytes},
         {"keep", flags.keep}},
        {{"listen", "127.0.0.1:0"},
         {"catalogue", run->children[STORAGE].address},
         {"http", flags.http},
         {"http-token-file", flags.token_file},
         {"http-tls-cert", flags.tls_cert},
         {"http-tls-key", flags.tls_key},
         {"strategy", flags.strategy},
         {"insecure", flags.insecure ? "true" : NULL}},
        {{"gateway", run->children[GATEWAY].address},
         {"agent-name", run->agent},
         {"batch-max", flags.batch_max},
         {"schedule", flags.schedule}},
    };
    const uint32_t kind = index < FIRST_WORKER ? index : FIRST_WORKER;
    int err = sl_words_append(words, kind == STORAGE ? run->objects : run->serve);
    err = err != 0 ? err
                   : sl_words_append(words, kind == STORAGE   ? "serve"
                                            : kind == GATEWAY ? "gateway"
                                                              : "worker");
    err = err != 0 || kind != STORAGE ? err : sl_words_append(words, "--agent");
    for (uint32_t i = 0; err == 0 && i < LENGTH(named[0]) && named[kind][i].name != NULL; i++) {
        err = add_flag(words, named[kind][i].name, named[kind][i].value);
    }
    return err;
}

static int serve_local_start(struct run *run, uint32_t index)
{
    struct child *child = &run->children[index];
    struct sl_words words = {0}, variables = {0};
    if (index < FIRST_WORKER) {
        (void)snprintf(child->name, sizeof child->name, index == STORAGE ? "storage" : "gateway");
    } else {
        (void)snprintf(child->name, sizeof child->name, "worker %u", index - FIRST_WORKER);
    }
    child->started_ns = serve_local_now_ns();
    int err = make_words(run, index, &words);
    const struct sl_child_options child_options = {
        .argv = words.items, .variables = &variables, .log_fd = STDERR_FILENO, .show_out = true};
    err = err == 0 ? sl_child_start(&child_options, &child->process, &run->reason)
                   : sl_reason_fail(&run->reason, err, "out of memory");
    sl_words_fini(&words);
    return err;
}

/* Whether the child has ended. flags: of waitpid. */
static bool serve_local_reap(struct run *run, struct child *child, int how)
{
    int status;
    if (child->process.pid == 0 || waitpid(child->process.pid, &status, how) <= 0) {
        return false;
    }
    (void)close(child->process.out);
    child->process.pid = 0;
    sl_reason_set(&run->reason, "the %s has ended, %s %d", child->name,
                  WIFSIGNALED(status) ? "by signal" : "with status",
                  WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    return true;
}

/* Waits until the child prints its line, whose first word is its address. */
static int await(struct run *run, struct child *child)
{
    struct pollfd polled = {.fd = child->process.out, .events = POLLIN};
    size_t used = 0;
    child->line[0] = '\0';
    while (strchr(child->line, '\n') == NULL && used < sizeof child->line - 1) {
        if (poll(&polled, 1, PATIENCE_MS) == 0) {
            sl_log_warn("waiting for the %s, for %llu s", child->name,
                        (unsigned long long)((serve_local_now_ns() - child->started_ns) /
                                             SL_CLOCK_NS_PER_S));
            continue;
        }
        const ssize_t got =
            read(child->process.out, child->line + used, sizeof child->line - 1 - used);
        if (got <= 0) {
            (void)serve_local_reap(run, child, 0);
            return SL_ERR_CLOSED;
        }
        used += (size_t)got;
        child->line[used] = '\0';
    }
    child->line[strcspn(child->line, "\n")] = '\0';
    const size_t length = strcspn(child->line, " ");
    if (length >= sizeof child->address) {
        return sl_reason_fail(&run->reason, SL_ERR_PROTOCOL, "the %s prints no address",
                              child->name);
    }
    memcpy(child->address, child->line, length);
    child->address[length] = '\0';
    return 0;
}

static uint32_t signal_all(struct run *run, uint32_t from, uint32_t end, int number)
{
    uint32_t count = 0;
    for (uint32_t i = from; i < end && i < run->count; i++) {
        struct child *child = &run->children[i];
        if (child->process.pid != 0 && !serve_local_reap(run, child, WNOHANG)) {
            if (number == SIGKILL) {
                sl_log_warn("the %s is killed: it has not ended in time by itself", child->name);
            }
            (void)kill(child->process.pid, number);
            count++;
        }
    }
    return count;
}

/* Asks the children [from, end) to end, together, and kills at until_ns those that have not. */
static void end_children(struct run *run, uint32_t from, uint32_t end, uint64_t until_ns)
{
    (void)signal_all(run, from, end, SIGTERM);
    while (signal_all(run, from, end, 0) > 0) {
        if (serve_local_now_ns() > until_ns) {
            (void)signal_all(run, from, end, SIGKILL);
            until_ns = UINT64_MAX;
        }
        (void)sigtimedwait(&run->signals, NULL, &(struct timespec){.tv_nsec = 100000000});
    }
}

/* ---- Models ---------------------------------------------------------------------------------- */

/* Whether a file of the folder has the suffix. With subfolders: of one of its folders. */
static bool has_file(const char *folder, const char *suffix, bool of_subfolders)
{
    char path[4096];
    bool found = false;
    DIR *directory = opendir(folder);
    const struct dirent *entry;
    while (directory != NULL && !found && (entry = readdir(directory)) != NULL) {
        const char *end = strrchr(entry->d_name, '.');
        const int length = snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        found = of_subfolders ? entry->d_name[0] != '.' && length < (int)sizeof path &&
                                    has_file(path, suffix, false)
                              : end != NULL && strcmp(end, suffix) == 0;
    }
    if (directory != NULL) {
        (void)closedir(directory);
    }
    return found;
}

/* The folder of a model: as storage escapes its name. */
static bool is_stored(const char *name)
{
    char path[4096];
    size_t used = (size_t)snprintf(path, sizeof path / 2, "%s/", flags.models);
    for (const char *at = name; *at != '\0' && used + 4 < sizeof path; at++) {
        const bool is_plain = *at != '/' && *at != '%' && !(*at == '.' && at == name);
        used += (size_t)snprintf(path + used, 4, is_plain ? "%c" : "%%%02X", *at);
    }
    return has_file(path, ".record", false);
}

/* A folder without models is warned of: they may be deployed later. */
static int check_models(struct sl_reason *reason)
{
    const char *rest = flags.keep != NULL ? flags.keep : "";
    for (size_t length; *rest != '\0'; rest += length + (rest[length] == ',')) {
        char name[256];
        length = strcspn(rest, ",");
        (void)snprintf(name, sizeof name, "%.*s", (int)length, rest);
        if (!is_stored(name)) {
            return sl_reason_fail(reason, SL_ERR_INVALID, "--keep %s: %s has no such model", name,
                                  flags.models);
        }
    }
    if (!has_file(flags.models, ".record", true)) {
        sl_log_warn("--models %s has no deployed model: %s; deploy models by " PROGRAM
                    " deploy FILE.onnx --dir %s before the start, or with --catalogue now",
                    flags.models,
                    access(flags.models, F_OK) != 0 ? "the folder did not exist, and is made"
                    : has_file(flags.models, ".onnx", false)
                        ? "files are served after they are deployed"
                        : "the folder is empty",
                    flags.models);
    }
    return 0;
}

/* ---- Run ------------------------------------------------------------------------------------- */

/* A worker is started again, at most once a second. */
static int look_after(struct run *run)
{
    int err = 0;
    for (uint32_t i = 0; err == 0 && i < run->count; i++) {
        struct child *child = &run->children[i];
        if (serve_local_reap(run, child, WNOHANG)) {
            if (i < FIRST_WORKER) {
                return SL_ERR_CLOSED;
            }
            sl_log_warn("%s, and is started again", run->reason.text);
        }
        if (child->process.pid == 0 && serve_local_now_ns() - child->started_ns >= RESTART_NS) {
            err = serve_local_start(run, i);
        }
    }
    return err;
}

static int serve(struct run *run)
{
    int err = 0, signal_number = 0;
    while (err == 0 && run->count < FIRST_WORKER + flags.workers) {
        err = serve_local_start(run, run->count);
        err = err != 0 ? err : await(run, &run->children[run->count++]);
    }
    if (err == 0) {
        (void)sigprocmask(SIG_BLOCK, &run->signals, NULL); /* until here, signals end all at once */
        const char *url = strstr(run->children[GATEWAY].line, "http");
        (void)printf(
            "%s serves the models of %s with %u worker%s until SIGINT or SIGTERM; more by " PROGRAM
            " deploy --catalogue %s\n",
            url != NULL ? url : flags.http, flags.models, flags.workers,
            sl_log_plural(flags.workers), run->children[STORAGE].address);
        (void)fflush(stdout);
    }
    while (err == 0 && (signal_number <= 0 || signal_number == SIGCHLD)) {
        signal_number = sigtimedwait(&run->signals, NULL, &(struct timespec){.tv_sec = 1});
        err = look_after(run);
    }
    const struct sl_reason reason = run->reason;
    const uint64_t since_ns = serve_local_now_ns(); /* the gateway answers what it has accepted */
    end_children(run, GATEWAY, FIRST_WORKER, since_ns + GATEWAY_NS);
    end_children(run, FIRST_WORKER, run->count, since_ns + WORKERS_NS);
    end_children(run, STORAGE, GATEWAY, since_ns + STORAGE_NS);
    run->reason = reason;
    return err;
}

int sl_serve_local_run(int argc, char **argv)
{
    static struct run run;
    const struct sl_cli cli = {.program = PROGRAM,
                               .summary = "Serves models on this machine.",
                               .usage = "--models DIR [options]",
                               .options = options,
                               .option_count = LENGTH(options)};
    int err = sl_cli_parse(&cli, argc, argv, &run.reason);
    if (err == SL_CLI_RUN && flags.models == NULL) {
        err = sl_reason_fail(&run.reason, SL_ERR_INVALID, "--models is missing");
    }
    err = err != SL_CLI_RUN ? err : check_models(&run.reason);
    if (err != SL_CLI_RUN) {
        return sl_cli_exit(&cli, err, &run.reason);
    }
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    flags.workers = flags.workers != 0                  ? flags.workers
                    : cores > 0 && cores <= WORKERS_MAX ? (uint32_t)cores
                                                        : 1;
    run.objects = sl_child_find_program("starling-objects", NULL);
    run.serve = sl_child_find_program(PROGRAM, NULL);
    if (run.objects == NULL || run.serve == NULL) {
        err = sl_reason_fail(&run.reason, SL_ERR_NO_MEMORY, "out of memory");
        return sl_cli_end(&cli, err, &run.reason);
    }
    (void)snprintf(run.agent, sizeof run.agent, "serve-%d", (int)getpid());
    (void)sigemptyset(&run.signals);
    (void)sigaddset(&run.signals, SIGCHLD);
    sl_end_signals_add(&run.signals);
    err = serve(&run);
    free(run.objects);
    free(run.serve);
    return sl_cli_end(&cli, err, &run.reason);
}
