/* starling-bench ratio: many workers of one ps, each pulling and pushing rows of several tables in
 * a step, by both protocols. */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/bench.h"
#include "bench/contest.h"
#include "bench/fork.h"
#include "bench/now.h"
#include "bench/options.h"
#include "bench/ps_process.h"
#include "bench/workload.h"
#include "core/assert.h"
#include "core/limits.h"
#include "core/log.h"

#define LITE_OF_PLAIN 2.0 /* the target: steps/s */

/* Many workers of one ps, as training makes them: each step pulls rows of several tables, waits,
 * pushes gradients of the same rows, waits. Processes of their own on one core, each with one or
 * several clients of the real library, a thread each. One thread, the only one of its process. */
#define TABLES_MAX    64
#define WORKERS_MAX   256

struct workers {
    const char *coordinator;
    uint32_t processes, clients; /* clients of each process; together at most WORKERS_MAX */
    uint32_t tables, keys, dim;  /* keys of each table in a step */
    uint64_t rows;               /* of each table */
    double zipf_exponent;
    enum sl_protocol protocol;
    bool driven; /* each worker's thread serves its connection itself */
    const char *congestion;
    bool no_shm; /* TCP, between processes of one machine too */
    uint64_t seed;
};

struct result {
    uint64_t steps, keys; /* in the measured time; pulled and pushed keys count once each */
    double bytes_per_step, requests_per_step;
    double cpu_seconds;                 /* of all processes, per step */
    struct sl_metric_histogram latency; /* ns, of a step */
};

#define TIMEOUT_MS  60000
#define STEPS_DRAWN 64 /* steps with keys drawn in advance, used in turns */
#define LOOK_NS     (1 * SL_CLOCK_NS_PER_MS)
#define START_LIMIT (60 * SL_CLOCK_NS_PER_S)

/* Results of one worker. */
struct tally {
    uint64_t steps;     /* measured */
    uint64_t all_steps; /* with those of the warm-up */
    uint64_t cpu_ns;    /* of the process meanwhile; in the tally of its first worker only */
    struct sl_client_stats traffic;
    struct sl_metric_histogram latency;
};

/* Between the processes. */
struct board {
    sem_t ready, failed;      /* posted by each worker that is, or has */
    sem_t go;                 /* posted once for each worker, when the times below are known */
    uint64_t warm_ns, end_ns; /* when what is counted begins and ends */
    struct tally tallies[];   /* of each worker */
};

/* One worker: a client and its thread. */
struct worker {
    const struct workers *workers;
    struct board *board;
    uint32_t index;
    struct sl_client *client;
    struct sl_table *tables[TABLES_MAX];
    uint64_t *keys;   /* [STEPS_DRAWN][tables][keys] */
    float *rows;      /* [tables][keys][dim] */
    float *gradients; /* the same shape */
    pthread_t thread;
};

/* ---- Tables ---------------------------------------------------------------------------------- */

static int connect_worker(struct worker *worker)
{
    const struct workers *workers = worker->workers;
    const struct sl_client_options options = {
        .coordinator = workers->coordinator,
        .task_index = -1,
        .reactor_count = 1,
        .manual_progress = workers->driven,
        .protocol = workers->protocol,
        .congestion_control = workers->congestion,
        .disable_shm = workers->no_shm,
    };
    int err = sl_client_create(&options, &worker->client);
    for (uint32_t t = 0; err == 0 && t < workers->tables; t++) {
        char name[32];
        (void)snprintf(name, sizeof name, "ratio/%u/%u", workers->dim, t);
        const struct sl_table_spec spec =
            sl_bench_rows_table(name, workers->dim, SL_OPTIMIZER_ADAGRAD);
        err = sl_client_table_open(worker->client, &spec, TIMEOUT_MS, &worker->tables[t]);
    }
    return err;
}

/* Opens the tables, and creates all rows. Errors, logged. */
static int create_rows(const struct workers *workers)
{
    struct worker worker = {.workers = workers};
    int err = connect_worker(&worker);
    for (uint32_t t = 0; err == 0 && t < workers->tables; t++) {
        err = sl_bench_rows_create(worker.client, worker.tables[t], workers->rows);
    }
    if (worker.client != NULL) {
        sl_client_destroy(&worker.client);
    }
    if (err != 0) {
        sl_log_error("the tables' rows could not be created: %s", sl_err_name(err));
    }
    return err;
}

/* ---- One worker ------------------------------------------------------------------------------ */

static int prepare(struct worker *worker)
{
    const struct workers *workers = worker->workers;
    const size_t keys = (size_t)workers->tables * workers->keys;
    worker->keys = malloc(STEPS_DRAWN * keys * sizeof *worker->keys);
    worker->rows = calloc(keys * workers->dim, sizeof *worker->rows);
    worker->gradients = malloc(keys * workers->dim * sizeof *worker->gradients);
    if (worker->keys == NULL || worker->rows == NULL || worker->gradients == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    struct sl_bench_workload workload;
    sl_bench_workload_init(&workload, SL_BENCH_ZIPF, workers->rows, workers->zipf_exponent,
                           workers->seed + worker->index);
    for (size_t i = 0; i < STEPS_DRAWN * keys; i++) {
        worker->keys[i] = sl_bench_workload_next(&workload);
    }
    for (size_t i = 0; i < keys * workers->dim; i++) {
        worker->gradients[i] = (float)(i % 13) * 0.001F - 0.006F;
    }
    return 0;
}

/* Pulls the rows of all tables, or pushes their gradients. */
static int visit(struct worker *worker, const uint64_t *keys, bool push)
{
    const struct workers *workers = worker->workers;
    const size_t floats = (size_t)workers->keys * workers->dim;
    struct sl_step *step;
    int err = sl_step_begin(worker->client, 0, &step);
    if (err != 0) {
        return err;
    }
    for (uint32_t t = 0; err == 0 && t < workers->tables; t++) {
        const uint64_t *of_table = keys + (size_t)t * workers->keys;
        err = push ? sl_step_push(step, worker->tables[t], of_table, workers->keys,
                                  worker->gradients + t * floats)
                   : sl_step_pull(step, worker->tables[t], of_table, workers->keys,
                                  worker->rows + t * floats);
    }
    return sl_bench_rows_finish(step, err, "a step");
}

static int go_on(struct worker *worker, struct tally *tally)
{
    const struct workers *workers = worker->workers;
    const struct board *board = worker->board;
    const size_t keys = (size_t)workers->tables * workers->keys;
    uint64_t before_ns = sl_bench_now_ns();
    int err = 0;
    while (err == 0 && before_ns < board->end_ns) {
        const uint64_t *of_step = worker->keys + tally->all_steps % STEPS_DRAWN * keys;
        err = visit(worker, of_step, false);
        err = err != 0 ? err : visit(worker, of_step, true);
        const uint64_t after_ns = sl_bench_now_ns();
        if (err == 0 && before_ns >= board->warm_ns && after_ns < board->end_ns) {
            sl_metric_record(&tally->latency, after_ns - before_ns);
        }
        tally->steps += err == 0 && after_ns >= board->warm_ns && after_ns < board->end_ns;
        tally->all_steps++;
        before_ns = after_ns;
    }
    return err;
}

static int work(struct worker *worker)
{
    struct board *board = worker->board;
    struct tally *tally = &board->tallies[worker->index];
    int err = prepare(worker);
    err = err != 0 ? err : connect_worker(worker);
    if (err != 0) {
        return err;
    }
    (void)sem_post(&board->ready);
    while (sem_wait(&board->go) != 0) {
        sl_assert(errno == EINTR);
    }
    struct sl_client_stats before;
    sl_client_stats(worker->client, &before);
    const uint64_t cpu_before_ns = sl_bench_cpu_ns(CLOCK_PROCESS_CPUTIME_ID);
    err = go_on(worker, tally);
    if (worker->index % worker->workers->clients == 0) {
        tally->cpu_ns = sl_bench_cpu_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_before_ns;
    }
    sl_client_stats(worker->client, &tally->traffic);
    tally->traffic.bytes_sent -= before.bytes_sent;
    tally->traffic.bytes_received -= before.bytes_received;
    tally->traffic.requests -= before.requests;
    return err;
}

static void *run_thread(void *ctx)
{
    struct worker *worker = ctx;
    int err = work(worker);
    if (worker->client != NULL) {
        sl_client_destroy(&worker->client);
    }
    free(worker->keys);
    free(worker->rows);
    free(worker->gradients);
    if (err != 0) {
        sl_log_error("worker %u: %s", worker->index, sl_err_name(err));
        (void)sem_post(&worker->board->failed);
    }
    return NULL;
}

/* ---- Processes ------------------------------------------------------------------------------- */

/* In a process of its own. */
static _Noreturn void run_process(const struct workers *workers, struct board *board,
                                  uint32_t process)
{
    /* Threads that share a core with many others are late now and then: no news here. */
    sl_log_setup(SL_LOG_ERROR, "worker");
    struct worker *all = calloc(workers->clients, sizeof *all);
    uint32_t started = 0;
    while (all != NULL && started < workers->clients) {
        all[started] = (struct worker){
            .workers = workers, .board = board, .index = process * workers->clients + started};
        if (pthread_create(&all[started].thread, NULL, run_thread, &all[started]) != 0) {
            break;
        }
        started++;
    }
    if (started < workers->clients) {
        sl_log_error("no memory or no thread for a worker");
        (void)sem_post(&board->failed);
    }
    for (uint32_t i = 0; i < started; i++) {
        (void)pthread_join(all[i].thread, NULL);
    }
    free(all);
    _exit(0);
}

static int start_processes(const struct workers *workers, struct board *board, int core,
                           pid_t *pids)
{
    for (uint32_t i = 0; i < workers->processes; i++) {
        pids[i] = sl_bench_fork_process(core);
        if (pids[i] == 0) {
            run_process(workers, board, i);
        }
        if (pids[i] < 0) {
            return SL_ERR_IO;
        }
    }
    return 0;
}

static bool has_failed(struct board *board)
{
    int count = 0;
    (void)sem_getvalue(&board->failed, &count);
    return count > 0;
}

/* Until all workers are ready; then tells them when to begin and to end. */
static int lead(const struct workers *workers, struct board *board, double warm_up, double seconds)
{
    const uint32_t count = workers->processes * workers->clients;
    const uint64_t limit_ns = sl_bench_now_ns() + START_LIMIT;
    uint32_t ready = 0;
    while (ready < count) {
        if (sem_trywait(&board->ready) == 0) {
            ready++;
            continue;
        }
        if (has_failed(board)) {
            return SL_ERR_CLOSED;
        }
        if (sl_bench_now_ns() > limit_ns) {
            sl_log_error("not all workers have connected");
            return SL_ERR_DEADLINE;
        }
        sl_bench_sleep_ns(LOOK_NS);
    }
    const uint64_t begin_ns = sl_bench_now_ns();
    board->warm_ns = begin_ns + sl_bench_ns(warm_up);
    board->end_ns = board->warm_ns + sl_bench_ns(seconds);
    for (uint32_t i = 0; i < count; i++) {
        (void)sem_post(&board->go);
    }
    return 0;
}

/* Waits for their end; after a failure they are killed. */
static int end_processes(const struct workers *workers, const pid_t *pids, int err)
{
    for (uint32_t i = 0; i < workers->processes && pids[i] > 0; i++) {
        int status = 0;
        if (err != 0) {
            (void)kill(pids[i], SIGKILL);
        }
        (void)waitpid(pids[i], &status, 0);
        if (err == 0 && status != 0) {
            sl_log_error("worker process %u ended badly", i);
            err = SL_ERR_CLOSED;
        }
    }
    return err;
}

static void sum_up(const struct workers *workers, const struct board *board, struct result *out)
{
    uint64_t all_steps = 0;
    uint64_t bytes = 0;
    uint64_t requests = 0;
    uint64_t cpu_ns = 0;
    *out = (struct result){0};
    sl_metric_init(&out->latency);
    for (uint32_t i = 0; i < workers->processes * workers->clients; i++) {
        const struct tally *tally = &board->tallies[i];
        out->steps += tally->steps;
        all_steps += tally->all_steps;
        bytes += tally->traffic.bytes_sent + tally->traffic.bytes_received;
        requests += tally->traffic.requests;
        cpu_ns += tally->cpu_ns;
        sl_metric_merge(&out->latency, &tally->latency);
    }
    const double steps = all_steps == 0 ? 1 : (double)all_steps;
    out->keys = out->steps * 2 * workers->tables * workers->keys;
    out->bytes_per_step = (double)bytes / steps;
    out->requests_per_step = (double)requests / steps;
    out->cpu_seconds = sl_bench_seconds(cpu_ns) / steps;
}

/* Starts the workers on `core`, lets them go on for warm_up seconds, measures, ends them. Errors,
 * logged. */
static int run_workers(const struct workers *workers, int core, double warm_up, double seconds,
                       struct result *out)
{
    const uint32_t count = workers->processes * workers->clients;
    sl_assert(workers->tables <= TABLES_MAX);
    sl_assert(count <= WORKERS_MAX);
    pid_t pids[WORKERS_MAX] = {0};
    const size_t bytes = sizeof(struct board) + count * sizeof(struct tally);
    struct board *board =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED) {
        sl_log_error("no memory for the workers' results");
        return SL_ERR_NO_MEMORY;
    }
    (void)sem_init(&board->ready, 1, 0);
    (void)sem_init(&board->failed, 1, 0);
    (void)sem_init(&board->go, 1, 0);
    for (uint32_t i = 0; i < count; i++) {
        sl_metric_init(&board->tallies[i].latency);
    }
    int err = start_processes(workers, board, core, pids);
    err = err != 0 ? err : lead(workers, board, warm_up, seconds);
    err = end_processes(workers, pids, err);
    if (err == 0 && has_failed(board)) {
        err = SL_ERR_CLOSED; /* logged by the worker */
    }
    if (err == 0) {
        sum_up(workers, board, out);
    }
    (void)munmap(board, bytes);
    return err;
}

enum { SHAPES_MAX = 8, CROWDS = 2, PROTOCOLS = 2 };

#define ENTRIES_MAX ((SHAPES_MAX) * (SHAPES_MAX) * (CROWDS) * (PROTOCOLS))

static const char *const PROTOCOL_NAMES[PROTOCOLS] = {
    [SL_PROTOCOL_PER_TABLE] = "per-table", [SL_PROTOCOL_BATCHED] = "batched"};

struct options {
    uint64_t processes, clients, tables, rows, seed;
    const char *dims_text, *keys_text;
    uint64_t dims[SHAPES_MAX], keys[SHAPES_MAX];
    uint32_t dim_count, keys_count;
    double exponent;
    int ps_mode, client, over;
    const char *congestion;
    struct sl_bench_common common;
};

struct entry {
    struct sl_bench_ps *ps;
    struct workers workers;
};

struct bench {
    const struct options *options;
    struct sl_bench_ps *ps;
    struct entry entries[ENTRIES_MAX];
    struct sl_bench_contest contest;
};

static const struct sl_bench_quantity QUANTITIES[] = {
    {"steps", "1/s"},      {"keys", "1/s"},         {"step p50", "us"},      {"step p99", "us"},
    {"bytes a step", "B"}, {"requests a step", ""}, {"workers' time", "us"}, {"ps' time", "us"}};

static int run_entry(void *ctx, const struct sl_bench_common *common, double *values)
{
    struct entry *entry = ctx;
    struct result *result = malloc(sizeof *result);
    if (result == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    sl_bench_ps_unpark(entry->ps);
    const double cpu_before = sl_bench_ps_cpu_seconds(entry->ps);
    int err =
        run_workers(&entry->workers, common->client_core, common->warm_up, common->seconds, result);
    const double cpu_seconds = sl_bench_ps_cpu_seconds(entry->ps) - cpu_before;
    sl_bench_ps_park(entry->ps);
    if (err != 0) {
        sl_bench_ps_show_log(entry->ps);
    } else {
        const double rate = (double)result->steps / common->seconds;
        values[0] = rate;
        values[1] = (double)result->keys / common->seconds;
        values[2] = (double)sl_metric_quantile(&result->latency, 0.5) / 1e3;
        values[3] = (double)sl_metric_quantile(&result->latency, 0.99) / 1e3;
        values[4] = result->bytes_per_step;
        values[5] = result->requests_per_step;
        values[6] = result->cpu_seconds * 1e6;
        values[7] = rate > 0 ? cpu_seconds / (rate * (common->seconds + common->warm_up)) * 1e6 : 0;
    }
    free(result);
    return err;
}

/* One shape of a step. */
struct shape {
    uint32_t clients, keys, dim;
};

static void add_entry(struct bench *bench, struct shape shape, enum sl_protocol protocol)
{
    const struct options *options = bench->options;
    struct entry *entry = &bench->entries[bench->contest.count];
    entry->ps = bench->ps;
    entry->workers = (struct workers){
        .coordinator = sl_bench_ps_coordinator(bench->ps),
        .processes = (uint32_t)options->processes,
        .clients = shape.clients,
        .tables = (uint32_t)options->tables,
        .keys = shape.keys,
        .dim = shape.dim,
        .rows = options->rows,
        .zipf_exponent = options->exponent,
        .protocol = protocol,
        .driven = options->client == 0,
        .congestion = options->congestion,
        .no_shm = options->over == SL_BENCH_OVER_TCP,
        .seed = options->seed,
    };
    const struct sl_bench_contestant contestant = {
        .quantities = QUANTITIES,
        .quantity_count = sizeof QUANTITIES / sizeof QUANTITIES[0],
        .transport = sl_bench_over_names[options->over],
        .run = run_entry,
        .ctx = entry,
    };
    (void)sl_bench_contest_add(&bench->contest, &contestant, "%u:1, %u keys, dim %u, %s",
                               entry->workers.processes * shape.clients, shape.keys, shape.dim,
                               PROTOCOL_NAMES[protocol]);
}

static void add_entries(struct bench *bench)
{
    const struct options *options = bench->options;
    uint32_t crowds = options->clients == 1 ? 1 : CROWDS;
    for (uint32_t i = 0; i < options->dim_count * options->keys_count * crowds; i++) {
        const struct shape shape = {
            .clients = i % crowds == 0 ? 1 : (uint32_t)options->clients,
            .keys = (uint32_t)options->keys[i / crowds % options->keys_count],
            .dim = (uint32_t)options->dims[i / crowds / options->keys_count],
        };
        add_entry(bench, shape, SL_PROTOCOL_PER_TABLE);
        add_entry(bench, shape, SL_PROTOCOL_BATCHED);
    }
}

/* per-table and batched stand side by side. */
static void add_ratios(void *ctx, struct sl_bench_report *report)
{
    const struct bench *bench = ctx;
    for (uint32_t i = 0; i < bench->contest.count; i += PROTOCOLS) {
        const struct sl_bench_contestant *plain = &bench->contest.contestants[i];
        const struct sl_bench_contestant *lite = &bench->contest.contestants[i + 1];
        char name[SL_BENCH_NAME_BYTES];
        (void)snprintf(name, sizeof name, "%.70s / per-table", lite->name);
        sl_bench_report_ratio(report, name, lite->figures[0], plain->figures[0], LITE_OF_PLAIN, 0);
    }
}

static int start(struct bench *bench)
{
    const struct options *options = bench->options;
    const struct sl_bench_ps_options ps = {
        .reactors = 1,
        .first_core = options->common.server_core,
        .polling = options->ps_mode == 1,
        .worker_count = 1,
        .congestion = options->congestion,
    };
    int err = sl_bench_ps_start(&ps, &bench->ps);
    if (err != 0) {
        return err;
    }
    add_entries(bench);
    const uint32_t of_dim = bench->contest.count / options->dim_count;
    for (uint32_t i = 0; err == 0 && i < bench->contest.count; i += of_dim) {
        err = create_rows(&bench->entries[i].workers);
    }
    sl_bench_ps_park(bench->ps);
    return err;
}

static int measure(struct bench *bench)
{
    const struct options *options = bench->options;
    char setting[256];
    (void)snprintf(setting, sizeof setting,
                   "a step pulls, then pushes keys of each of %" PRIu64 " tables of %" PRIu64
                   " rows, Zipf %.2f, Adagrad; %" PRIu64 " processes on one core, over %s",
                   options->tables, options->rows, options->exponent, options->processes,
                   sl_bench_over_names[options->over]);
    return sl_bench_contest_report(&bench->contest, "ratio", setting, add_ratios, bench,
                                   &options->common);
}

static int read_lists(struct options *options)
{
    int err = sl_bench_list("ratio", "dims", options->dims_text, 1, SL_LIMIT_DIM, options->dims,
                            SHAPES_MAX, &options->dim_count);
    return err != 0 ? err
                    : sl_bench_list("ratio", "keys", options->keys_text, 1, 8192, options->keys,
                                    SHAPES_MAX, &options->keys_count);
}

static int parse(struct options *options, int argc, char **argv)
{
    const struct sl_cli_option own[] = {
        sl_bench_number("processes", &options->processes, 1, 32, "Worker processes."),
        sl_bench_number("clients", &options->clients, 1, 8,
                        "Workers that each process plays where it plays several."),
        sl_bench_number("tables", &options->tables, 1, TABLES_MAX, "Tables that a step visits."),
        sl_bench_text("dims", &options->dims_text, "LIST", "Columns of the rows."),
        sl_bench_text("keys", &options->keys_text, "LIST", "Keys of each table in a step."),
        sl_bench_number("rows", &options->rows, 1, 1e8, "Rows of each table."),
        sl_bench_exponent("exponent", &options->exponent),
        sl_bench_number("seed", &options->seed, 0, 0, "Seed of the keys drawn."),
        sl_bench_choice("ps-mode", &options->ps_mode, "event|polling", "How the ps waits."),
        sl_bench_choice("client", &options->client, "caller|reactor",
                        "Who serves a worker's connection: its own thread or another."),
        sl_bench_over(&options->over),
        sl_bench_congestion(&options->congestion),
    };
    int parsed = sl_bench_parse("ratio", "Measures many workers of one ps.", own,
                                sizeof own / sizeof own[0], &options->common, argc, argv);
    int err = parsed == SL_CLI_RUN ? read_lists(options) : 0;
    return err != 0 ? err : parsed;
}

int sl_bench_ratio_run(int argc, char **argv)
{
    struct options options = {.processes = 8,
                              .clients = 8,
                              .tables = 8,
                              .dims_text = "16,64",
                              .keys_text = "4,32",
                              .rows = 100000,
                              .seed = 1,
                              .exponent = 1.05,
                              .common = sl_bench_common_defaults()};
    int parsed = parse(&options, argc, argv);
    if (parsed != SL_CLI_RUN) {
        return parsed < 0 ? 2 : 0;
    }
    static struct bench bench;
    bench.options = &options;
    int err = start(&bench);
    err = err != 0 ? err : measure(&bench);
    sl_bench_ps_stop(&bench.ps);
    return err == 0 ? 0 : 1;
}
