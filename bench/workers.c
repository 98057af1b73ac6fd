/* The load `workers`: real worker processes of one job, each with the client library, which pull
 * rows, push gradients to them and tick, one call at a time. It has one turn. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bench/bench.h"
#include "bench/fork.h"
#include "bench/now.h"
#include "bench/options.h"
#include "bench/turns.h"
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
    const char *coordinator, *congestion;
    uint64_t workers, rows, dim, keys, worker_cores, think_us;
    bool fused;
};

/* The beginning of the turn, which all workers are sent. */
struct go {
    uint64_t at_ns;
    double warm_up, seconds;
};

/* Measurements that a worker reports to its parent. */
struct tally {
    uint64_t cpu_ns;
    int err;
    struct sl_metric_histogram latency; /* of each call */
};

enum { CALLS, MEAN, P50, P99, WORKER_CPU, QUANTITIES };
static const struct sl_bench_quantity quantities[QUANTITIES] = {
    [CALLS] = {"calls", "1/s"},
    [MEAN] = {"mean", "us"},
    [P50] = {"p50", "us"},
    [P99] = {"p99", "us"},
    [WORKER_CPU] = {"worker cpu", "us/call"},
};

/* ---- In a worker ----------------------------------------------------------------------------- */

struct worker {
    const struct options *options;
    struct sl_client *client;
    struct sl_table *table;
    uint64_t *keys; /* [BATCHES * options.keys] */
    float *values;  /* [options.keys * options.dim] */
};

/* A pull, or a push with a tick; fused: also the pull of the next iteration. */
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
    if (err == 0 && pushes && worker->options->fused) {
        keys = worker->keys + (uint64_t)((clock + 1) % BATCHES) * count;
        err = sl_step_pull(step, worker->table, keys, count, worker->values);
    }
    return sl_bench_rows_finish(step, err, "a call has failed");
}

static int join(struct worker *worker, uint32_t index)
{
    const struct options *options = worker->options;
    struct sl_client_options client = SL_CLIENT_OPTIONS_INIT;
    client.coordinator = options->coordinator;
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
static int measure(struct worker *worker, const struct go *go, struct tally *tally)
{
    const struct options *options = worker->options;
    const uint64_t from_ns = go->at_ns + sl_bench_ns(go->warm_up);
    const uint64_t to_ns = from_ns + sl_bench_ns(go->seconds);
    uint64_t now_ns = sl_bench_now_ns();
    uint64_t cpu_ns = sl_bench_cpu_ns(CLOCK_PROCESS_CPUTIME_ID);
    int err = 0;
    for (uint32_t i = options->fused ? 1 : 0; err == 0 && now_ns < to_ns;
         i += options->fused ? 2 : 1) {
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

static void work(const struct options *options, uint32_t index, int from, int to)
{
    struct go go = {0};
    struct worker worker = {.options = options};
    struct tally tally = {0};
    sl_metric_init(&tally.latency);
    tally.err = join(&worker, index);
    sl_bench_fork_tell(to, &tally.err, sizeof tally.err);
    if (tally.err == 0 && read(from, &go, sizeof go) != sizeof go) {
        tally.err = SL_ERR_CLOSED;
    }
    tally.err = tally.err != 0 ? tally.err : measure(&worker, &go, &tally);
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

/* A job's workers, and the pipe by which they begin. */
struct crew {
    const struct options *options;
    struct sl_bench_fork *processes; /* [options->workers] */
    int go[2];
};

static int start_crew(struct crew *crew)
{
    const struct options *options = crew->options;
    int err = 0, to;
    crew->processes = calloc(options->workers, sizeof *crew->processes);
    if (crew->processes == NULL || pipe2(crew->go, O_CLOEXEC) != 0) {
        return SL_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; err == 0 && i < options->workers; i++) {
        const uint32_t core = i % (uint32_t)options->worker_cores;
        err =
            sl_bench_fork_start(&crew->processes[i], options->common.client_core + (int)core, &to);
        if (err == 0 && crew->processes[i].pid == 0) {
            work(options, i, crew->go[0], to);
        }
    }
    return err != 0 ? err : await_all(crew->processes, (uint32_t)options->workers);
}

static void end_crew(struct crew *crew)
{
    for (uint32_t i = 0; crew->processes != NULL && i < crew->options->workers; i++) {
        sl_bench_fork_end(&crew->processes[i]);
    }
    free(crew->processes);
}

static int run(void *ctx, const struct sl_bench_common *common, double *values)
{
    const struct crew *crew = ctx;
    const uint32_t count = (uint32_t)crew->options->workers;
    const struct go go = {
        .at_ns = sl_bench_now_ns() + GO_NS, .warm_up = common->warm_up, .seconds = common->seconds};
    int err = 0;
    for (uint32_t i = 0; err == 0 && i < count; i++) {
        err = write(crew->go[1], &go, sizeof go) == sizeof go ? 0 : SL_ERR_IO;
    }
    return err != 0 ? err : collect(crew->processes, count, common->seconds, values);
}

int sl_bench_workers_run(int argc, char **argv)
{
    static struct options o;
    o = (struct options){.common = sl_bench_common_defaults(),
                         .workers = 1,
                         .rows = 200000,
                         .dim = 16,
                         .keys = 100,
                         .worker_cores = 1};
    const struct sl_cli_option table[] = {
        sl_bench_text("coordinator", &o.coordinator, "HOST:PORT", "Of the cluster. Required."),
        sl_bench_number("workers", &o.workers, 1, 2000, "Worker processes of the job."),
        sl_bench_number("worker-cores", &o.worker_cores, 1, 1024,
                        "That the workers share, from the client's upwards."),
        sl_bench_number("think-us", &o.think_us, 0, 1e9,
                        "That a worker sleeps between a pull and a push."),
        SL_CLI_OPTION(BOOL, &o.fused, .name = "fused",
                      .help = "Push, tick and the pull of the next iteration are one call."),
        sl_bench_number("rows", &o.rows, 1, 1e8, "Rows of the table."),
        sl_bench_number("dim", &o.dim, 1, SL_LIMIT_DIM, "Columns of a row, in f32."),
        sl_bench_number("keys", &o.keys, 1, 8192, "Of a call."),
        sl_bench_congestion(&o.congestion),
    };
    const int parsed = sl_bench_parse_load("workers", table, sizeof table / sizeof table[0],
                                           &o.common, argc, argv);
    if (parsed != SL_CLI_RUN) {
        return parsed < 0 ? 2 : 0;
    }
    struct crew crew = {.options = &o};
    int status = start_crew(&crew) == 0 ? 0 : 1;
    if (status == 0) {
        const struct sl_bench_turns turns = {
            .quantities = quantities, .quantity_count = QUANTITIES, .run = run, .ctx = &crew};
        status = sl_bench_turns_serve(&turns, &o.common);
    }
    end_crew(&crew);
    return status;
}
