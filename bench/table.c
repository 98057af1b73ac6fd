/* starling-bench table: one shard's sparse table in this process, without any network. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/bench.h"
#include "bench/report.h"
#include "bench/workload.h"
#include "config/cli.h"
#include "core/clock.h"
#include "core/limits.h"
#include "core/log.h"
#include "core/metric.h"
#include "ps/table.h"

#define ROUNDS_MAX 64
#define GROUP_ROWS 256 /* created between two looks at the processor time */

struct options {
    uint64_t rows, dim, operations, batch, rounds, seed;
    int optimizer, keys;
    double exponent;
    const char *json;
};

/* The phases that take turns in each round. */
enum phase { PHASE_LOOKUP, PHASE_GATHER, PHASE_UPDATE, PHASE_PULL, PHASE_PUSH, PHASE_COUNT };

/* Creations that took longer than a reactor's turn may. Those of our own making are told from those
 * in which the system ran something else by the processor time of the group around them. */
struct pauses {
    uint64_t count, own_count;
    uint64_t own_max_ns, own_max_rank;
};

struct bench {
    const struct options *options;
    struct sl_table_store *store;
    struct sl_optimizer_state powers;
    uint64_t *keys;    /* [operations] */
    uint32_t *records; /* [operations], of those keys */
    uint32_t *found;   /* [batch] */
    float *rows;       /* [batch][dim] */
    float *gradients;  /* [batch][dim] */
    uint64_t step;
    double ns[PHASE_COUNT][ROUNDS_MAX]; /* per key */
    struct sl_metric_histogram *create; /* ns of one creation */
    struct pauses pauses;
};

/* ---- Growth ---------------------------------------------------------------------------------- */

static uint64_t processor_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * SL_CLOCK_NS_PER_S + (uint64_t)now.tv_nsec;
}

/* Creates the rows of `count` ranks. Every creation is timed by itself, so that a pause is seen
 * with the key that met it. */
static int create_group(struct bench *bench, uint64_t first, uint64_t count, uint64_t *longest_ns)
{
    const struct sl_clock *clock = sl_clock_system();
    uint64_t before = sl_clock_now_ns(clock);
    *longest_ns = 0;
    for (uint64_t rank = first; rank < first + count; rank++) {
        const uint64_t key = sl_bench_workload_key(rank);
        uint32_t record;
        const int err = sl_table_store_find_or_create(bench->store, &key, 1, &record);
        if (err != 0) {
            sl_log_error("row %" PRIu64 " cannot be created: %s", rank, sl_err_name(err));
            return err;
        }
        const uint64_t now = sl_clock_now_ns(clock);
        const uint64_t took_ns = now - before;
        sl_metric_record(bench->create, took_ns);
        bench->pauses.count += took_ns > SL_LIMIT_TURN_STALL_NS;
        *longest_ns = took_ns > *longest_ns ? took_ns : *longest_ns;
        before = now;
    }
    return 0;
}

/* A group has at most one pause worth the name, and all the time that its thread did not run is
 * taken to have been then. */
static int create_rows(struct bench *bench)
{
    const struct sl_clock *clock = sl_clock_system();
    struct pauses *pauses = &bench->pauses;
    for (uint64_t first = 0; first < bench->options->rows; first += GROUP_ROWS) {
        const uint64_t left = bench->options->rows - first;
        const uint64_t wall_before = sl_clock_now_ns(clock);
        const uint64_t processor_before = processor_ns();
        uint64_t longest_ns;
        const int err =
            create_group(bench, first, left < GROUP_ROWS ? left : GROUP_ROWS, &longest_ns);
        if (err != 0) {
            return err;
        }
        if (longest_ns <= SL_LIMIT_TURN_STALL_NS) {
            continue;
        }
        const uint64_t ran_ns = processor_ns() - processor_before;
        const uint64_t wall_ns = sl_clock_now_ns(clock) - wall_before;
        const uint64_t away_ns = wall_ns > ran_ns ? wall_ns - ran_ns : 0;
        const uint64_t own_ns = longest_ns > away_ns ? longest_ns - away_ns : 0;
        if (own_ns > SL_LIMIT_TURN_STALL_NS) {
            pauses->own_count++;
            if (own_ns > pauses->own_max_ns) {
                pauses->own_max_ns = own_ns;
                pauses->own_max_rank = first;
            }
        }
    }
    return 0;
}

/* ---- Phases ---------------------------------------------------------------------------------- */

static void run_batch(struct bench *bench, enum phase phase, uint64_t first, uint32_t count)
{
    const uint64_t *keys = bench->keys + first;
    const uint32_t *records = bench->records + first;
    switch (phase) {
    case PHASE_LOOKUP:
        sl_table_store_find(bench->store, keys, count, bench->found);
        break;
    case PHASE_GATHER:
        sl_table_store_gather(bench->store, records, count, bench->rows);
        break;
    case PHASE_UPDATE:
        sl_table_store_apply(bench->store, records, count, bench->gradients, &bench->powers,
                             ++bench->step);
        break;
    case PHASE_PULL:
        sl_table_store_find(bench->store, keys, count, bench->found);
        sl_table_store_gather(bench->store, bench->found, count, bench->rows);
        break;
    case PHASE_PUSH:
        sl_table_store_find(bench->store, keys, count, bench->found);
        sl_table_store_apply(bench->store, bench->found, count, bench->gradients, &bench->powers,
                             ++bench->step);
        break;
    case PHASE_COUNT:
        break;
    }
}

static void run_rounds(struct bench *bench)
{
    const struct sl_clock *clock = sl_clock_system();
    const struct options *options = bench->options;
    for (uint64_t round = 0; round < options->rounds; round++) {
        for (int phase = 0; phase < PHASE_COUNT; phase++) {
            const uint64_t before = sl_clock_now_ns(clock);
            for (uint64_t first = 0; first < options->operations; first += options->batch) {
                const uint64_t left = options->operations - first;
                run_batch(bench, (enum phase)phase, first,
                          (uint32_t)(left < options->batch ? left : options->batch));
            }
            bench->ns[phase][round] =
                (double)(sl_clock_now_ns(clock) - before) / (double)options->operations;
        }
    }
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* ---- Report ---------------------------------------------------------------------------------- */

static void report_memory(const struct bench *bench, struct sl_bench_report *report)
{
    const double record = (double)sl_table_store_record_bytes(bench->store);
    const double bytes = (double)sl_table_store_memory_bytes(bench->store);
    const double per_row = bytes / (double)sl_table_store_row_count(bench->store);
    sl_bench_report_add(report, "record", record, "bytes", "header, row, slots");
    sl_bench_report_add(report, "memory per row", per_row, "bytes",
                        "records, index, directory and slack");
    sl_bench_report_add(report, "memory per row / record", per_row / record, "", NULL);
    sl_bench_report_add(report, "memory", bytes / (1 << 20), "MiB", NULL);
}

static void report_growth(const struct bench *bench, struct sl_bench_report *report)
{
    const struct sl_metric_histogram *create = bench->create;
    const double us = 1e-3;
    sl_bench_report_add(report, "create", 1e3 * (double)create->count / (double)create->sum,
                        "Mkeys/s", "one by one, each timed");
    sl_bench_report_add(report, "create p50", (double)sl_metric_quantile(create, 0.5) * us, "us",
                        NULL);
    sl_bench_report_add(report, "create p99", (double)sl_metric_quantile(create, 0.99) * us, "us",
                        NULL);
    sl_bench_report_add(report, "create p99.9", (double)sl_metric_quantile(create, 0.999) * us,
                        "us", "about where segments are split");
    sl_bench_report_add(report, "create p99.999", (double)sl_metric_quantile(create, 0.99999) * us,
                        "us", "about where memory is mapped");
    sl_bench_report_add(report, "create max", (double)create->max * us, "us", NULL);
    sl_bench_report_add(report, "pauses", (double)bench->pauses.count, "", "creations over 1 ms");
    sl_bench_report_add(report, "own pauses", (double)bench->pauses.own_count, "",
                        "those over 1 ms of processor time");
    sl_bench_report_add(report, "own pause max", (double)bench->pauses.own_max_ns * us, "us", NULL);
    sl_bench_report_add(report, "own pause max at", (double)bench->pauses.own_max_rank, "row",
                        NULL);
    sl_bench_report_add(report, "late chunks", (double)sl_table_store_chunks_late(bench->store), "",
                        "not ready when needed");
}

static void report_phases(struct bench *bench, struct sl_bench_report *report)
{
    static const char *const names[PHASE_COUNT][2] = {
        [PHASE_LOOKUP] = {"lookup", "lookup per key"},
        [PHASE_GATHER] = {"gather", "gather per row"},
        [PHASE_UPDATE] = {"update", "update per row"},
        [PHASE_PULL] = {"lookup and gather", "lookup and gather per key"},
        [PHASE_PUSH] = {"lookup and update", "lookup and update per key"},
    };
    const uint64_t rounds = bench->options->rounds;
    for (int phase = 0; phase < PHASE_COUNT; phase++) {
        qsort(bench->ns[phase], rounds, sizeof bench->ns[phase][0], compare_doubles);
        const double median = bench->ns[phase][rounds / 2];
        sl_bench_report_add(report, names[phase][0], 1e3 / median, "Mkeys/s", "median of rounds");
        sl_bench_report_add(report, names[phase][1], median, "ns", NULL);
    }
}

/* The pause of growing, as counts of creations that took so long. */
static void print_histogram(const struct sl_metric_histogram *create)
{
    uint64_t counts[64] = {0};
    for (uint32_t bucket = 0; bucket < SL_METRIC_BUCKETS; bucket++) {
        uint64_t upper;
        const uint64_t count = sl_metric_bucket(create, bucket, &upper);
        if (count > 0) {
            counts[63 - __builtin_clzll(upper | 1)] += count;
        }
    }
    printf("  creations by time:\n");
    for (int power = 0; power < 64; power++) {
        if (counts[power] > 0) {
            printf("    %10.3f us to %10.3f us %12" PRIu64 "\n", (double)(1ULL << power) / 1e3,
                   (double)(1ULL << power) * 2 / 1e3, counts[power]);
        }
    }
}

static int report_all(struct bench *bench)
{
    const struct options *options = bench->options;
    const struct sl_optimizer *optimizer = sl_table_store_optimizer(bench->store);
    char setting[256];
    snprintf(setting, sizeof setting,
             "%" PRIu64 " rows, dim %" PRIu64 ", %s (%s), %s keys, batches of %" PRIu64,
             options->rows, options->dim, optimizer->name, sl_optimizer_best_form_name(),
             options->keys == SL_BENCH_ZIPF ? "zipf" : "uniform", options->batch);
    struct sl_bench_report report = {.benchmark = "table", .setting = setting};
    report_memory(bench, &report);
    report_growth(bench, &report);
    report_phases(bench, &report);
    sl_bench_report_print(&report);
    print_histogram(bench->create);
    return options->json == NULL ? 0 : sl_bench_report_write_json(&report, options->json);
}

/* ---- Life ------------------------------------------------------------------------------------ */

static int bench_init(struct bench *bench, const struct options *options)
{
    const struct sl_table_spec spec = {
        .name = "bench",
        .kind = SL_TABLE_SPARSE,
        .dim = (uint32_t)options->dim,
        .optimizer = sl_optimizer_defaults((enum sl_optimizer_kind)options->optimizer),
        .initializer = {.kind = SL_INITIALIZER_UNIFORM, .a = -0.05F, .b = 0.05F, .seed = 1},
    };
    *bench = (struct bench){.options = options};
    sl_optimizer_state_init(&spec.optimizer, &bench->powers);
    bench->keys = calloc(options->operations, sizeof *bench->keys);
    bench->records = calloc(options->operations, sizeof *bench->records);
    bench->found = calloc(options->batch, sizeof *bench->found);
    bench->rows = calloc(options->batch * options->dim, sizeof *bench->rows);
    bench->gradients = calloc(options->batch * options->dim, sizeof *bench->gradients);
    bench->create = malloc(sizeof *bench->create);
    if (bench->keys == NULL || bench->records == NULL || bench->found == NULL ||
        bench->rows == NULL || bench->gradients == NULL || bench->create == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    sl_metric_init(bench->create);
    for (uint64_t i = 0; i < options->batch * options->dim; i++) {
        bench->gradients[i] = (float)(i % 13) * 0.001F - 0.006F;
    }
    return sl_table_store_create(&spec, 0, &bench->store);
}

static void bench_fini(struct bench *bench)
{
    sl_table_store_destroy(&bench->store);
    free(bench->keys);
    free(bench->records);
    free(bench->found);
    free(bench->rows);
    free(bench->gradients);
    free(bench->create);
}

static int measure(struct bench *bench)
{
    const struct options *options = bench->options;
    int err = create_rows(bench);
    if (err != 0) {
        return err;
    }
    struct sl_bench_workload workload;
    sl_bench_workload_init(&workload, (enum sl_bench_distribution)options->keys, options->rows,
                           options->exponent, options->seed);
    for (uint64_t i = 0; i < options->operations; i++) {
        bench->keys[i] = sl_bench_workload_next(&workload);
    }
    sl_table_store_find(bench->store, bench->keys, (uint32_t)options->operations, bench->records);
    run_rounds(bench);
    return report_all(bench);
}

/* A flag that takes a whole number, "N". */
static struct sl_cli_option number(const char *name, uint64_t *target, double least, double most,
                                   const char *help)
{
    return (struct sl_cli_option){
        .kind = SL_CLI_U64,
        .name = name,
        .target = target,
        .metavar = "N",
        .help = help,
        .least = least,
        .most = most,
    };
}

/* A flag that takes one of a few names. */
static struct sl_cli_option choice(const char *name, int *target, const char *choices,
                                   const char *help)
{
    return (struct sl_cli_option){
        .kind = SL_CLI_CHOICE,
        .name = name,
        .target = target,
        .metavar = "NAME",
        .help = help,
        .choices = choices,
    };
}

static int parse(int argc, char **argv, struct options *o)
{
    const struct sl_cli_option table[] = {
        number("rows", &o->rows, 1, 4e9, "Rows that the table holds."),
        number("dim", &o->dim, 1, SL_LIMIT_DIM, "Columns of a row."),
        choice("optimizer", &o->optimizer,
               "sum|sgd|momentum|adagrad|adagrad_decay|rmsprop|adam|adamw|adam_async|ftrl|"
               "ftrl_group",
               "Optimizer of the table."),
        choice("keys", &o->keys, SL_BENCH_DISTRIBUTION_CHOICES, "How keys are drawn."),
        {.kind = SL_CLI_F64,
         .name = "exponent",
         .target = &o->exponent,
         .metavar = "S",
         .help = "Exponent of Zipf's law; not 1.",
         .least = 0.01,
         .most = 5},
        number("operations", &o->operations, 1, 1e9, "Keys of each phase and round."),
        number("batch", &o->batch, 1, SL_LIMIT_TURN_KEYS, "Keys of one call."),
        number("rounds", &o->rounds, 1, ROUNDS_MAX, "Rounds; the median of them is reported."),
        number("seed", &o->seed, 0, 0, "Seed of the keys drawn."),
        {.kind = SL_CLI_STRING,
         .name = "json",
         .target = &o->json,
         .metavar = "FILE",
         .help = "Write the figures there as JSON too."},
    };
    const struct sl_cli cli = {
        .program = "starling-bench table",
        .summary = "Measures one sparse table in this process.",
        .usage = "[options]",
        .options = table,
        .option_count = sizeof table / sizeof table[0],
    };
    char reason[256];
    const int result = sl_cli_parse(&cli, argc, argv, reason, sizeof reason);
    if (result < 0) {
        fprintf(stderr, "starling-bench table: %s\n", reason);
    } else if (result == SL_CLI_RUN && o->exponent == 1) {
        fprintf(stderr, "starling-bench table: --exponent=1: accepts any other number\n");
        return SL_ERR_INVALID;
    }
    return result;
}

int sl_bench_table_run(int argc, char **argv)
{
    struct options options = {
        .rows = 10000000,
        .dim = 16,
        .operations = 4000000,
        .batch = 256,
        .rounds = 5,
        .seed = 1,
        .optimizer = SL_OPTIMIZER_ADAGRAD,
        .keys = SL_BENCH_UNIFORM,
        .exponent = 1.05,
    };
    const int parsed = parse(argc, argv, &options);
    if (parsed != SL_CLI_RUN) {
        return parsed < 0 ? 2 : 0;
    }
    struct bench bench;
    int err = bench_init(&bench, &options);
    if (err == 0) {
        err = measure(&bench);
    } else {
        sl_log_error("no memory for the benchmark");
    }
    bench_fini(&bench);
    return err == 0 ? 0 : 1;
}
