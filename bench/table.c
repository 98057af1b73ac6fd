/* starling-bench table: one shard's sparse table in this process, without any network. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/bench.h"
#include "bench/options.h"
#include "bench/workload.h"
#include "core/clock.h"
#include "core/limits.h"
#include "core/log.h"
#include "core/metric.h"
#include "ps/table.h"

#define GROUP_ROWS 256 /* created between two looks at the processor time */

struct options {
    struct sl_bench_common common;
    uint64_t rows, dim, operations, batch, seed;
    int optimizer, keys;
    double exponent;
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
    double ns[PHASE_COUNT][SL_BENCH_ROUNDS_MAX]; /* per key */
    struct sl_metric_histogram *create;          /* ns of one creation */
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
    for (uint64_t round = 0; round < options->common.rounds; round++) {
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

/* ---- Report ---------------------------------------------------------------------------------- */

static void report_memory(const struct bench *bench, struct sl_bench_report *report)
{
    const double record = (double)sl_table_store_record_bytes(bench->store);
    const double bytes = (double)sl_table_store_memory_bytes(bench->store);
    const double per_row = bytes / (double)sl_table_store_row_count(bench->store);
    sl_bench_report_add(report, "memory", "record", "B", record);
    sl_bench_report_add(report, "memory", "per row", "B", per_row);
    sl_bench_report_add(report, "memory", "per row / record", "", per_row / record);
    sl_bench_report_add(report, "memory", "all", "MiB", bytes / (1 << 20));
}

static void report_growth(const struct bench *bench, struct sl_bench_report *report)
{
    const struct sl_metric_histogram *create = bench->create;
    sl_bench_report_add(report, "create", "rows", "M/s",
                        1e3 * (double)create->count / (double)create->sum);
    sl_bench_report_add(report, "create", "pauses over 1 ms", "", (double)bench->pauses.count);
    sl_bench_report_add(report, "create", "own pauses over 1 ms", "",
                        (double)bench->pauses.own_count);
    sl_bench_report_add(report, "create", "longest own pause", "us",
                        (double)bench->pauses.own_max_ns / 1e3);
    sl_bench_report_add(report, "create", "late chunks", "",
                        (double)sl_table_store_chunks_late(bench->store));
    sl_bench_report_histogram(report, "create", create);
}

static void report_phases(struct bench *bench, struct sl_bench_report *report)
{
    static const char *const names[PHASE_COUNT] = {
        [PHASE_LOOKUP] = "lookup",          [PHASE_GATHER] = "gather",
        [PHASE_UPDATE] = "update",          [PHASE_PULL] = "lookup and gather",
        [PHASE_PUSH] = "lookup and update",
    };
    for (int phase = 0; phase < PHASE_COUNT; phase++) {
        struct sl_bench_figure *figure =
            sl_bench_report_figure(report, names[phase], "per key", "ns");
        for (uint64_t round = 0; round < bench->options->common.rounds; round++) {
            sl_bench_figure_sample(figure, bench->ns[phase][round]);
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
    struct sl_bench_report *report;
    int err = sl_bench_report_create("table", setting, &report);
    if (err != 0) {
        sl_log_error("no memory for the report");
        return err;
    }
    report_memory(bench, report);
    report_growth(bench, report);
    report_phases(bench, report);
    err = sl_bench_report_finish(report, &options->common);
    sl_bench_report_destroy(&report);
    return err;
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

static int parse(int argc, char **argv, struct options *o)
{
    const struct sl_cli_option table[] = {
        sl_bench_number("rows", &o->rows, 1, 4e9, "Rows that the table holds."),
        sl_bench_number("dim", &o->dim, 1, SL_LIMIT_DIM, "Columns of a row."),
        sl_bench_choice("optimizer", &o->optimizer,
                        "sum|sgd|momentum|adagrad|adagrad_decay|rmsprop|adam|adamw|adam_async|ftrl|"
                        "ftrl_group",
                        "Optimizer of the table."),
        sl_bench_choice("keys", &o->keys, SL_BENCH_DISTRIBUTION_CHOICES, "How keys are drawn."),
        {.kind = SL_CLI_F64,
         .name = "exponent",
         .target = &o->exponent,
         .metavar = "S",
         .help = "Exponent of Zipf's law; not 1.",
         .least = 0.01,
         .most = 5},
        sl_bench_number("operations", &o->operations, 1, 1e9, "Keys of each phase and round."),
        sl_bench_number("batch", &o->batch, 1, SL_LIMIT_TURN_KEYS, "Keys of one call."),
        sl_bench_number("seed", &o->seed, 0, 0, "Seed of the keys drawn."),
    };
    const int result = sl_bench_parse("table", "Measures one sparse table in this process.", table,
                                      sizeof table / sizeof table[0], &o->common, argc, argv);
    if (result == SL_CLI_RUN && o->exponent == 1) {
        fprintf(stderr, "starling-bench table: --exponent=1: accepts any other number\n");
        return SL_ERR_INVALID;
    }
    return result;
}

int sl_bench_table_run(int argc, char **argv)
{
    struct options options = {
        .common = sl_bench_common_defaults(),
        .rows = 10000000,
        .dim = 16,
        .operations = 4000000,
        .batch = 256,
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
