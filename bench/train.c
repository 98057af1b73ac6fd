/* starling-bench train: a job of one ps and several workers on a generated click log, from the
 * reading of the data to the last push, and where its time goes. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <starling.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/bench.h"
#include "bench/child.h"
#include "bench/contest.h"
#include "bench/options.h"
#include "bench/ps_process.h"
#include "core/log.h"

#define OWN_OF_STEP 0.6 /* the target, of lr */
#define WORKERS_MAX 64

enum { MODELS = 3 };
static const char *const MODEL_NAMES[MODELS] = {"lr", "fm", "deepfm"};
static const char *const PROTOCOL_NAMES[] = {
    [SL_PROTOCOL_BATCHED] = "batched", [SL_PROTOCOL_PER_TABLE] = "per-table"};

struct options {
    uint64_t rows, workers, epochs, batch_rows, timeout_s;
    int protocol, over;
    const char *data, *consistency, *congestion;
    struct sl_bench_common common;
};

struct bench {
    const struct options *options;
    struct sl_bench_scratch scratch;
    char data[SL_BENCH_PATH_BYTES];
    char program[SL_BENCH_PATH_BYTES]; /* starling-worker */
    struct sl_bench_contestant contestants[MODELS];
    struct entry {
        const struct bench *bench;
        const char *model;
    } entries[MODELS];
};

/* Sums over the workers, in seconds of processor time; `step`: the longest training, by the wall
 * clock. */
struct job {
    double samples, step;
    double all, reading, computing;
    double ps; /* processor time of the ps */
};

enum { SAMPLES, STEP, OWN, READING, MODEL, CLIENT, IDLE, PS, QUANTITY_COUNT };
static const struct sl_bench_quantity QUANTITIES[QUANTITY_COUNT] = {
    [SAMPLES] = {"samples", "1/s"},       [STEP] = {"time", "s"},
    [OWN] = {"own arithmetic", "s"},      [READING] = {"  reading rows", "s"},
    [MODEL] = {"  the model", "s"},       [CLIENT] = {"client and network", "s"},
    [IDLE] = {"client's core idle", "s"}, [PS] = {"ps", "s"},
};

/* ---- One job --------------------------------------------------------------------------------- */

static void report_path(const struct bench *bench, uint64_t worker, char *path, size_t room)
{
    int used = snprintf(path, room, "%s/report.json", bench->scratch.path);
    if (worker > 0) {
        (void)snprintf(path + used, room - (size_t)used, ".%" PRIu64, worker);
    }
}

static int start_worker(const struct entry *entry, const char *coordinator, uint64_t worker,
                        struct sl_bench_child *out)
{
    const struct bench *bench = entry->bench;
    const struct options *options = bench->options;
    char hosts[2 * WORKERS_MAX] = "w", report[SL_BENCH_PATH_BYTES];
    struct sl_bench_arguments argv = {0}, environment = {0};
    for (uint64_t i = 1; i < options->workers; i++) {
        memcpy(hosts + 2 * i - 1, ",w", 3);
    }
    report_path(bench, 0, report, sizeof report);
    sl_bench_arguments_add(&argv, "%s", bench->program);
    sl_bench_arguments_add(&argv, "--ps-hosts=%s", coordinator);
    sl_bench_arguments_add(&argv, "--worker-hosts=%s", hosts);
    sl_bench_arguments_add(&argv, "--job-name=worker");
    sl_bench_arguments_add(&argv, "--task-index=%" PRIu64, worker);
    sl_bench_arguments_add(&argv, "--data=%s", bench->data);
    sl_bench_arguments_add(&argv, "--format=criteo");
    sl_bench_arguments_add(&argv, "--model=%s", entry->model);
    sl_bench_arguments_add(&argv, "--epochs=%" PRIu64, options->epochs);
    sl_bench_arguments_add(&argv, "--batch-size=%" PRIu64, options->batch_rows);
    sl_bench_arguments_add(&argv, "--consistency=%s", options->consistency);
    sl_bench_arguments_add(&argv, "--protocol=%s", PROTOCOL_NAMES[options->protocol]);
    sl_bench_arguments_add(&argv, "--report=%s", report);
    sl_bench_arguments_add(&argv, "--quiet");
    sl_bench_arguments_add(&environment, "NETWORK_WORKER_CORE_NUMBER=0");
    sl_bench_arguments_add(&environment, "WORKER_ENABLE_POLLING=0");
    sl_bench_arguments_add(&environment, "WORKER_DISABLE_PIN_CORES=1");
    sl_bench_arguments_add(&environment, "STARLING_LOG=error");
    sl_bench_arguments_add(&environment, "STARLING_SHM=%d", options->over != SL_BENCH_OVER_TCP);
    sl_bench_arguments_add(&environment, "STARLING_TCP_CONGESTION=%s",
                           options->congestion == NULL ? "" : options->congestion);
    const struct sl_bench_child_options child = {
        .argv = argv.items, .environment = environment.items, .core = options->common.client_core};
    return sl_bench_child_start(&child, out);
}

/* Adds what a worker's report says. */
static int add_report(const struct bench *bench, uint64_t worker, struct job *job)
{
    char path[SL_BENCH_PATH_BYTES];
    json_error_t fault;
    report_path(bench, worker, path, sizeof path);
    json_t *root = json_load_file(path, 0, &fault);
    double samples = 0;
    double step = 0;
    double all = 0;
    double reading = 0;
    double computing = 0;
    int found = root == NULL
                    ? -1
                    : json_unpack(root, "{s:F, s:{s:F}, s:{s:F, s:F, s:F}}", "samples", &samples,
                                  "seconds", "training", &step, "processor_seconds", "all", &all,
                                  "reading", &reading, "computing", &computing);
    json_decref(root);
    (void)remove(path);
    if (found != 0) {
        sl_log_error("%s: no report of worker %" PRIu64 "%s%s", path, worker,
                     root == NULL ? ": " : "", root == NULL ? fault.text : "");
        return SL_ERR_PROTOCOL;
    }
    job->samples += samples;
    job->step = step > job->step ? step : job->step;
    job->all += all;
    job->reading += reading;
    job->computing += computing;
    return 0;
}

static int run_workers(const struct entry *entry, const struct sl_bench_ps *ps, struct job *job)
{
    const struct options *options = entry->bench->options;
    struct sl_bench_child workers[WORKERS_MAX];
    uint64_t started = 0;
    int err = 0;
    while (err == 0 && started < options->workers) {
        err = start_worker(entry, sl_bench_ps_coordinator(ps), started, &workers[started]);
        started += err == 0;
    }
    for (uint64_t i = 0; i < started; i++) {
        if (err == 0) {
            err = sl_bench_child_wait(&workers[i], (uint32_t)(options->timeout_s * 1000));
        } else {
            sl_bench_child_stop(&workers[i]);
        }
    }
    job->ps = sl_bench_ps_cpu_seconds(ps);
    for (uint64_t i = 0; err == 0 && i < options->workers; i++) {
        err = add_report(entry->bench, i, job);
    }
    return err;
}

/* The whole job, however long it takes: a ps of its own each time, since a second job finds the
 * first one's clocks. */
static int run_entry(void *ctx, const struct sl_bench_common *common, double *values)
{
    const struct entry *entry = ctx;
    const struct options *options = entry->bench->options;
    const struct sl_bench_ps_options ps_options = {
        .reactors = 1,
        .first_core = common->server_core,
        .worker_count = (uint32_t)options->workers,
        .congestion = options->congestion,
    };
    struct sl_bench_ps *ps;
    struct job job = {0};
    int err = sl_bench_ps_start(&ps_options, &ps);
    if (err != 0) {
        return err;
    }
    err = run_workers(entry, ps, &job);
    if (err != 0) {
        sl_bench_ps_show_log(ps);
    }
    sl_bench_ps_stop(&ps);
    if (err == 0) {
        values[SAMPLES] = job.samples / job.step;
        values[STEP] = job.step;
        values[OWN] = job.reading + job.computing;
        values[READING] = job.reading;
        values[MODEL] = job.computing;
        values[CLIENT] = job.all - job.reading - job.computing;
        values[IDLE] = job.step > job.all ? job.step - job.all : 0;
        values[PS] = job.ps;
    }
    return err;
}

/* ---- The whole ------------------------------------------------------------------------------- */

/* The figures of one model are of the whole training, all workers together on the client's core. */
static void add_ratios(void *ctx, struct sl_bench_report *report)
{
    const struct bench *bench = ctx;
    for (uint32_t i = 0; i < MODELS; i++) {
        const struct sl_bench_contestant *of = &bench->contestants[i];
        char name[SL_BENCH_NAME_BYTES];
        (void)snprintf(name, sizeof name, "%s, own arithmetic / time", MODEL_NAMES[i]);
        sl_bench_report_ratio(report, name, of->figures[OWN], of->figures[STEP],
                              i == 0 ? OWN_OF_STEP : 0, 0);
    }
}

static int generate(struct bench *bench)
{
    const struct options *options = bench->options;
    struct sl_bench_arguments argv = {0};
    (void)snprintf(bench->data, sizeof bench->data, "%s/train.tsv", bench->scratch.path);
    sl_bench_arguments_add(&argv, "%s", bench->program);
    sl_bench_arguments_add(&argv, "generate");
    sl_bench_arguments_add(&argv, "--out=%s", bench->scratch.path);
    sl_bench_arguments_add(&argv, "--rows=%" PRIu64, options->rows);
    sl_bench_arguments_add(&argv, "--test-rows=1000");
    const struct sl_bench_child_options child = {.argv = argv.items, .core = -1, .reads = true};
    struct sl_bench_child process;
    char *text = NULL;
    int err = sl_bench_child_start(&child, &process);
    err = err != 0 ? err
                   : sl_bench_child_collect(&process, (uint32_t)(options->timeout_s * 1000), &text);
    if (err == 0) {
        (void)fputs(text, stdout);
    }
    free(text);
    return err;
}

static int prepare(struct bench *bench)
{
    const struct options *options = bench->options;
    if (!sl_bench_child_beside("starling-worker", bench->program)) {
        sl_log_error("there is no starling-worker beside this program");
        return SL_ERR_NOT_FOUND;
    }
    int err = sl_bench_scratch_init(&bench->scratch, NULL, "train");
    if (err != 0) {
        return err;
    }
    for (uint32_t i = 0; i < MODELS; i++) {
        bench->entries[i] = (struct entry){.bench = bench, .model = MODEL_NAMES[i]};
        bench->contestants[i] = (struct sl_bench_contestant){
            .name = MODEL_NAMES[i],
            .quantities = QUANTITIES,
            .quantity_count = QUANTITY_COUNT,
            .transport = sl_bench_over_names[options->over],
            .run = run_entry,
            .ctx = &bench->entries[i],
        };
    }
    if (options->data != NULL) {
        (void)snprintf(bench->data, sizeof bench->data, "%s", options->data);
        return 0;
    }
    return generate(bench);
}

static int measure(struct bench *bench)
{
    const struct options *options = bench->options;
    char setting[256];
    char data[96];
    (void)snprintf(data, sizeof data, "%" PRIu64 " generated rows", options->rows);
    (void)snprintf(setting, sizeof setting,
                   "%" PRIu64 " workers on one core, one ps; %.90s, %" PRIu64
                   " epochs, batches of %" PRIu64
                   ", %.20s, %s, over %s; processor time of all workers",
                   options->workers, options->data == NULL ? data : options->data, options->epochs,
                   options->batch_rows, options->consistency, PROTOCOL_NAMES[options->protocol],
                   sl_bench_over_names[options->over]);
    struct sl_bench_contest contest = {.contestants = bench->contestants, .count = MODELS};
    return sl_bench_contest_report(&contest, "train", setting, add_ratios, bench, &options->common);
}

/* As starling-worker has it. Errors, printed: INVALID. */
static int check_consistency(const char *text)
{
    const bool bounded = strncmp(text, "ssp:", 4) == 0 && text[4] != '\0' &&
                         strspn(text + 4, "0123456789") == strlen(text + 4);
    if (!bounded && strcmp(text, "asp") != 0 && strcmp(text, "bsp") != 0 &&
        strcmp(text, "ssp") != 0) {
        (void)fprintf(stderr,
                      "starling-bench train: --consistency=%s: accepts asp, bsp, ssp or "
                      "ssp:N\n",
                      text);
        return SL_ERR_INVALID;
    }
    return SL_CLI_RUN;
}

int sl_bench_train_run(int argc, char **argv)
{
    struct options options = {.rows = 200000,
                              .workers = 8,
                              .epochs = 1,
                              .batch_rows = 64,
                              .timeout_s = 300,
                              .protocol = SL_PROTOCOL_BATCHED,
                              .consistency = "asp",
                              .common = sl_bench_common_defaults()};
    const struct sl_cli_option own[] = {
        sl_bench_number("rows", &options.rows, 1, 1e9, "Rows that are generated to train on."),
        sl_bench_text("data", &options.data, "FILE", "Train on this file of Criteo's format."),
        sl_bench_number("workers", &options.workers, 1, WORKERS_MAX, "Worker processes."),
        sl_bench_number("epochs", &options.epochs, 1, 1000, "Passes over the data."),
        sl_bench_number("batch-size", &options.batch_rows, 1, 1 << 20, "Rows of a step."),
        sl_bench_text("consistency", &options.consistency, "asp|bsp|ssp[:N]",
                      "What the workers wait for, as starling-worker has it."),
        sl_bench_choice("protocol", &options.protocol, "batched|per-table", "How steps travel."),
        sl_bench_over(&options.over),
        sl_bench_congestion(&options.congestion),
        sl_bench_number("timeout", &options.timeout_s, 1, 4000, "Seconds that a job may take."),
    };
    int parsed = sl_bench_parse("train",
                                "Trains lr, fm and deepfm end to end; --seconds and --warm-up do "
                                "not count here.",
                                own, sizeof own / sizeof own[0], &options.common, argc, argv);
    if (parsed == SL_CLI_RUN) {
        parsed = check_consistency(options.consistency);
    }
    if (parsed != SL_CLI_RUN) {
        return parsed < 0 ? 2 : 0;
    }
    static struct bench bench;
    bench.options = &options;
    int err = prepare(&bench);
    err = err != 0 ? err : measure(&bench);
    sl_bench_scratch_fini(&bench.scratch);
    return err == 0 ? 0 : 1;
}
