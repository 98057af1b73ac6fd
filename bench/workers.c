/* starling-bench workers: real worker processes of one job, each with the client library, which
 * pull rows, push gradients to them and tick, one call at a time. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bench/bench.h"
#include "bench/contest.h"
#include "bench/fork.h"
#include "bench/now.h"
#include "bench/options.h"
#include "bench/ps_process.h"
#include "bench/workload.h"
#include "core/limits.h"
#include "core/log.h"

#define BATCHES     16 /* of keys, drawn beforehand */
#define TIMEOUT_MS  60000U
#define GO_NS       (10 * SL_CLOCK_NS_PER_MS)
#define LATE_MS     120000U /* that a worker may need to join, and to answer */
/* Once around the client's receive buffers: each of their huge pages takes 2 ms at first use. */
#define FIRST_CALLS 300

struct options {
    struct sl_bench_common common;
    const char *workers_text, *congestion;
    struct sl_bench_numbers workers;
    uint64_t rows, dim, keys, reactors, worker_cores, think_us;
};

struct entry {
    const struct options *options;
    uint32_t workers;
};

/* Measurements that a worker reports to its parent. */
struct tally {
    uint64_t cpu_ns;
    int err;
    struct sl_metric_histogram latency; /* of each call */
};

static const struct sl_bench_quantity quantities[] = {
    {"calls", "1/s"},
    {"mean", "us"},
    {"p50", "us"},
    {"p99", "us"},
    {"worker cpu", "us/call"},
    {"server cpu", "us/call"},
    {"server memory", "MB"},
};
enum { CALLS, MEAN, P50, P99, WORKER_CPU, SERVER_CPU, SERVER_MEMORY, QUANTITIES };

/* ---- In a worker ----------------------------------------------------------------------------- */

struct worker {
    const struct options *options;
    struct sl_client *client;
    struct sl_table *table;
    uint64_t *keys; /* [BATCHES * options.keys] */
    float *values;  /* [options.keys * options.dim] */
};

/* A pull, or a push with a tick. */
static int call(struct worker *worker, uint32_t clock, bool pushes)
{
    const uint32_t count = (uint32_t)worker->options->keys;
    const uint64_t *keys = worker->keys + (uint64_t)(clock % BATCHES) * count;
    struct sl_step *step;
    int err = sl_step_begin(worker->client, clock, &step);
    if (err != 0) {
        return err;
    }
    err = pushes ? sl_step_push(step, worker->table, keys, count, worker->values)
                 : sl_step_pull(step, worker->table, keys, count, worker->values);
    err = err == 0 && pushes ? sl_step_tick(step) : err;
    return sl_bench_rows_finish(step, err, "a call has failed");
}

static int join(struct worker *worker, const char *coordinator, uint32_t index)
{
    const struct options *options = worker->options;
    struct sl_client_options client = SL_CLIENT_OPTIONS_INIT;
    client.coordinator = coordinator;
    client.task_index = (int32_t)index;
    client.manual_progress = true;
    client.disable_shm = true;
    client.congestion_control = options->congestion;
    const struct sl_table_spec spec =
        sl_bench_rows_table("workers", options->dim, SL_OPTIMIZER_ADAGRAD);
    struct sl_bench_workload workload;
    sl_bench_workload_init(&workload, SL_BENCH_UNIFORM, options->rows, 1, index + 1);
    worker->keys = malloc(BATCHES * options->keys * sizeof *worker->keys);
    worker->values = calloc(options->keys * options->dim, sizeof *worker->values);
    if (worker->keys == NULL || worker->values == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    for (uint64_t i = 0; i < BATCHES * options->keys; i++) {
        worker->keys[i] = sl_bench_workload_next(&workload);
    }
    int err = sl_client_create(&client, &worker->client);
    err = err != 0 ? err : sl_client_table_open(worker->client, &spec, TIMEOUT_MS, &worker->table);
    if (err == 0 && index == 0) {
        err = sl_bench_rows_create(worker->client, worker->table, spec.dim, options->rows);
    }
    for (uint32_t i = 0; err == 0 && i < FIRST_CALLS; i++) {
        err = call(worker, 0, false);
    }
    return err;
}

/* The time measured is that of all workers. */
static int measure(struct worker *worker, uint64_t go_ns, struct tally *tally)
{
    const struct options *options = worker->options;
    const uint64_t from_ns = go_ns + sl_bench_ns(options->common.warm_up);
    const uint64_t to_ns = from_ns + sl_bench_ns(options->common.seconds);
    uint64_t now_ns = sl_bench_now_ns();
    uint64_t cpu_ns = sl_bench_cpu_ns(CLOCK_PROCESS_CPUTIME_ID);
    int err = 0;
    for (uint32_t i = 0; err == 0 && now_ns < to_ns; i++) {
        if (i % 2 != 0 && options->think_us > 0) {
            sl_bench_sleep_ns(options->think_us * SL_CLOCK_NS_PER_US);
        }
        const uint64_t before_ns = sl_bench_now_ns();
        err = call(worker, i / 2, i % 2 != 0);
        now_ns = sl_bench_now_ns();
        if (before_ns >= from_ns && now_ns <= to_ns) {
            sl_metric_record(&tally->latency, now_ns - before_ns);
        } else if (before_ns < from_ns) {
            cpu_ns = sl_bench_cpu_ns(CLOCK_PROCESS_CPUTIME_ID);
        }
    }
    tally->cpu_ns = sl_bench_cpu_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_ns;
    return err;
}

static void work(const struct options *options, const char *coordinator, uint32_t index, int go,
                 int to)
{
    uint64_t go_ns = 0;
    struct worker worker = {.options = options};
    struct tally tally = {0};
    sl_metric_init(&tally.latency);
    tally.err = join(&worker, coordinator, index);
    sl_bench_fork_tell(to, &tally.err, sizeof tally.err);
    if (tally.err == 0 && read(go, &go_ns, sizeof go_ns) != sizeof go_ns) {
        tally.err = SL_ERR_CLOSED;
    }
    tally.err = tally.err != 0 ? tally.err : measure(&worker, go_ns, &tally);
    sl_bench_fork_tell(to, &tally, sizeof tally);
    for (;;) {
        (void)pause(); /* until the others have told, too */
    }
}

/* ---- In the benchmark ------------------------------------------------------------------------ */

static int collect(struct sl_bench_fork *processes, uint32_t count, double seconds, double *values)
{
    struct sl_metric_histogram latency;
    struct tally tally;
    double cpu_ns = 0;
    int err = 0;
    sl_metric_init(&latency);
    for (uint32_t i = 0; err == 0 && i < count; i++) {
        err = sl_bench_fork_hear(&processes[i], LATE_MS, &tally, sizeof tally);
        err = err != 0 ? err : tally.err;
        cpu_ns += (double)tally.cpu_ns;
        sl_metric_merge(&latency, &tally.latency);
    }
    values[CALLS] = (double)latency.count / seconds;
    values[MEAN] = (double)latency.sum / 1e3 / (double)latency.count;
    values[P50] = (double)sl_metric_quantile(&latency, 0.5) / 1e3;
    values[P99] = (double)sl_metric_quantile(&latency, 0.99) / 1e3;
    values[WORKER_CPU] = cpu_ns / 1e3 / (double)latency.count;
    return err;
}

/* Until each has joined. */
static int await_all(struct sl_bench_fork *processes, uint32_t count)
{
    int err = 0;
    for (uint32_t i = 0; err == 0 && i < count; i++) {
        int joined = 0;
        err = sl_bench_fork_hear(&processes[i], LATE_MS, &joined, sizeof joined);
        err = err != 0 ? err : joined;
    }
    return err;
}

static int run_workers(const struct entry *entry, struct sl_bench_ps *ps,
                       struct sl_bench_fork *processes, double *values)
{
    const struct options *options = entry->options;
    struct sl_bench_ps_memory memory = {0};
    int err = 0, to, go[2];
    if (pipe2(go, O_CLOEXEC) != 0) {
        return SL_ERR_IO;
    }
    for (uint32_t i = 0; err == 0 && i < entry->workers; i++) {
        const uint32_t core = i % (uint32_t)options->worker_cores;
        err = sl_bench_fork_start(&processes[i], options->common.client_core + (int)core, &to);
        if (err == 0 && processes[i].pid == 0) {
            work(options, sl_bench_ps_coordinator(ps), i, go[0], to);
        }
    }
    err = err != 0 ? err : await_all(processes, entry->workers);
    const double server_before = sl_bench_ps_cpu_seconds(ps);
    const uint64_t go_ns = sl_bench_now_ns() + GO_NS;
    for (uint32_t i = 0; err == 0 && i < entry->workers; i++) {
        err = write(go[1], &go_ns, sizeof go_ns) == sizeof go_ns ? 0 : SL_ERR_IO;
    }
    err = err != 0 ? err : collect(processes, entry->workers, options->common.seconds, values);
    const double server_s = sl_bench_ps_cpu_seconds(ps) - server_before;
    const double lasted = options->common.warm_up + options->common.seconds;
    values[SERVER_CPU] = server_s * 1e6 / (values[CALLS] * lasted);
    err = err != 0 ? err : sl_bench_ps_memory(ps, &memory);
    values[SERVER_MEMORY] = (double)memory.resident / 1e6;
    (void)close(go[0]);
    (void)close(go[1]);
    return err;
}

static int run(void *ctx, const struct sl_bench_common *common, double *values)
{
    const struct entry *entry = ctx;
    struct sl_bench_fork *processes = calloc(entry->workers, sizeof *processes);
    struct sl_bench_ps *ps = NULL;
    int err =
        processes == NULL
            ? SL_ERR_NO_MEMORY
            : sl_bench_ps_start(
                  &(struct sl_bench_ps_options){.reactors = (uint32_t)entry->options->reactors,
                                                .first_core = common->server_core,
                                                .worker_count = entry->workers,
                                                .congestion = entry->options->congestion},
                  &ps);
    memset(values, 0, QUANTITIES * sizeof *values);
    err = err != 0 ? err : run_workers(entry, ps, processes, values);
    for (uint32_t i = 0; processes != NULL && i < entry->workers; i++) {
        sl_bench_fork_end(&processes[i]);
    }
    sl_bench_ps_stop(&ps);
    free(processes);
    return err;
}

int sl_bench_workers_run(int argc, char **argv)
{
    static struct options o;
    static struct entry entries[SL_BENCH_NUMBERS_MAX];
    o = (struct options){.common = sl_bench_common_defaults(),
                         .workers_text = "1,8,64,200",
                         .rows = 200000,
                         .dim = 16,
                         .keys = 100,
                         .reactors = 1,
                         .worker_cores = 1};
    const struct sl_cli_option table[] = {
        sl_bench_text("workers", &o.workers_text, "N,...", "Worker processes of one job."),
        sl_bench_number("worker-cores", &o.worker_cores, 1, 1024,
                        "That the workers share, from the client's upwards."),
        sl_bench_number("think-us", &o.think_us, 0, 1e9,
                        "That a worker sleeps between a pull and a push, as it does while an "
                        "accelerator computes."),
        sl_bench_number("reactors", &o.reactors, 1, SL_LIMIT_REACTORS,
                        "Of the server, on the cores from its own upwards."),
        sl_bench_number("rows", &o.rows, 1, 1e8, "Rows of the table."),
        sl_bench_number("dim", &o.dim, 1, SL_LIMIT_DIM, "Columns of a row, in f32."),
        sl_bench_number("keys", &o.keys, 1, 8192, "Of a call."),
        sl_bench_congestion(&o.congestion),
    };
    int parsed = sl_bench_parse("workers", "Worker processes that pull, push and tick in turns.",
                                table, sizeof table / sizeof table[0], &o.common, argc, argv);
    if (parsed == SL_CLI_RUN &&
        sl_bench_list("workers", "workers", o.workers_text, 1, 2000, o.workers.items,
                      SL_BENCH_NUMBERS_MAX, &o.workers.count) != 0) {
        parsed = SL_ERR_INVALID;
    }
    if (parsed != SL_CLI_RUN) {
        return parsed < 0 ? 2 : 0;
    }
    struct sl_bench_contest contest = {0};
    char setting[128];
    for (uint32_t i = 0; i < o.workers.count; i++) {
        entries[i] = (struct entry){.options = &o, .workers = (uint32_t)o.workers.items[i]};
        const struct sl_bench_contestant contestant = {.quantities = quantities,
                                                       .quantity_count = QUANTITIES,
                                                       .transport = "TCP",
                                                       .run = run,
                                                       .ctx = &entries[i]};
        (void)sl_bench_contest_add(&contest, &contestant, "%u worker%s", entries[i].workers,
                                   sl_log_plural(entries[i].workers));
    }
    (void)snprintf(setting, sizeof setting, "%llu keys of %llu rows of dim %llu, adagrad",
                   (unsigned long long)o.keys, (unsigned long long)o.rows,
                   (unsigned long long)o.dim);
    return sl_bench_contest_report(&contest, "workers", setting, NULL, NULL, &o.common) == 0 ? 0
                                                                                             : 1;
}
